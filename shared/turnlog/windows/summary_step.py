"""The step that lets the summary in force stand for the loops that it covers."""

from __future__ import annotations

from typing import Literal

from turnlog.windows.steps import Room, Step, out
from turnlog.windows.view import View


class Summary(Step):
    """The summary in force stands for the loops that it covers. Without this step they are read and sent as any other."""

    step: Literal["summary"] = "summary"

    def apply(self, view: View, room: Room) -> View:
        if view.summary is None:
            return view
        covered = view.summary.last_loop
        return view.with_past(out(loop, "summary") if loop.number <= covered else loop for loop in view.past)
