"""Steps that keep what is newest of the past and leave the rest out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pydantic import Field

from turnlog.windows.steps import Room, Step, out
from turnlog.windows.view import Loop, Unit, View


class Turns(Step):
    """The newest ``n`` past loops stay whole; older ones are out."""

    step: Literal["turns"] = "turns"
    n: int = Field(default=10, ge=0, le=1_000_000)

    def apply(self, view: View, room: Room) -> View:
        past = view.past
        kept = max(0, len(past) - self.n)
        return view.with_past(out(loop, "turns") if at < kept else loop for at, loop in enumerate(past))


class Messages(Step):
    """The newest ``n`` messages of past loops stay; older ones are out. A call stays with its results, or neither does."""

    step: Literal["messages"] = "messages"
    n: int = Field(default=20, ge=0, le=1_000_000)

    def apply(self, view: View, room: Room) -> View:
        return newest_units(view, limit=self.n, cost=lambda unit: len(unit.entries), reason="messages")


class Tokens(Step):
    """The newest messages of past loops that together have at most ``n`` tokens stay; older ones are out."""

    step: Literal["tokens"] = "tokens"
    n: int = Field(default=4000, ge=0, le=100_000_000)

    def apply(self, view: View, room: Room) -> View:
        return newest_units(view, limit=self.n, cost=lambda unit: unit.tokens, reason="tokens")


def newest_units(view: View, *, limit: int, cost: Callable[[Unit], int], reason: str) -> View:
    """Units of past loops from the newest back, until one would cost more than is left; that one and all older are out."""
    left, changed, full = limit, list[Loop](), False
    for loop in reversed(view.past):
        units = list[Unit]()
        for unit in reversed(loop.units):
            if unit.level != "out" and not unit.pinned:
                full = full or cost(unit) > left
                unit = replace(unit, level="out", reason=reason) if full else unit  # noqa: PLW2901
                left -= 0 if full else cost(unit)
            units.append(unit)
        kept = tuple(reversed(units))
        if any(unit.level != "out" for unit in kept):
            changed.append(replace(loop, units=kept))
        else:
            changed.append(replace(loop, units=kept, level="out", reason=reason))
    return view.with_past(reversed(changed))
