"""The step that sends long tool results as stubs."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from turnlog.windows.steps import Room, Step
from turnlog.windows.stubs import OVER_TOKENS, PREVIEW_TOKENS, result_entries, stub_results
from turnlog.windows.view import Unit, View


class StubToolResults(Step):
    """Tool results of more than ``over_tokens`` are sent as stubs: their first ``preview_tokens``, their ref and their values.

    The newest ``keep_newest`` messages with results stay whole, and so does what is pinned. Of the current loop too: where a
    budget alone presses, the ladder does it when it has to.
    """

    step: Literal["stub_tool_results"] = "stub_tool_results"
    keep_newest: int = Field(default=3, ge=0, le=1_000_000)
    over_tokens: int = Field(default=OVER_TOKENS, ge=0, le=100_000_000)
    preview_tokens: int = Field(default=PREVIEW_TOKENS, ge=0, le=1_000)

    def apply(self, view: View, room: Room) -> View:
        units = [unit for loop in view.loops if loop.level == "whole" for unit in loop.units if unit.level == "whole"]
        positions = sorted({entry.position for unit in units for entry in result_entries(unit)})
        kept = frozenset(positions[max(0, len(positions) - self.keep_newest) :])
        if len(kept) == len(positions):
            return view
        loops = [
            replace(loop, units=tuple(self._stubbed(unit, kept) for unit in loop.units))
            if loop.level == "whole"
            else loop
            for loop in view.loops
        ]
        return replace(view, loops=tuple(loops))

    def _stubbed(self, unit: Unit, kept: frozenset[int]) -> Unit:
        return stub_results(
            unit, self.step, over_tokens=self.over_tokens, preview_tokens=self.preview_tokens, whole=kept
        )
