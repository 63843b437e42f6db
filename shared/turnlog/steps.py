"""Names to write a step of your own with: docs/reference/policies.md.

from turnlog.steps import Room, Step, WindowDraft, digest, register_step
"""

from __future__ import annotations

from turnlog.windows.digests import digest
from turnlog.windows.registry import register_step
from turnlog.windows.steps import Step
from turnlog.windows.view import Entry, Loop, Room, Unit, WindowDraft, out, pinned, unit_out

__all__ = [
    "Entry",
    "Loop",
    "Room",
    "Step",
    "Unit",
    "WindowDraft",
    "digest",
    "out",
    "pinned",
    "register_step",
    "unit_out",
]
