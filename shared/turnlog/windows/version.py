"""The version of the window renderer."""

from __future__ import annotations

RENDERER_VERSION = 10
"""Raised by every change that gives another window for the same log and request. A stored ``build`` of another version is
refused instead of silently giving other bytes (W8). ``tools/record_windows.py`` then records the new windows for the tests."""
