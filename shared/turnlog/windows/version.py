"""The version of the renderer."""

from __future__ import annotations

RENDERER_VERSION = 4
"""Goes up with every change that makes another window of the same log and request, so that a stored ``build`` is refused
instead of giving other bytes in silence (W8)."""
