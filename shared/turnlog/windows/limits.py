"""Steps that keep what is newest of the past and leave the rest out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from turnlog.windows.steps import Room, Step, out
from turnlog.windows.triggers import Clause, any_crossed, past_of
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


class Recent(Step):
    """The newest messages of past loops stay, at most ``messages`` of them with at most ``tokens`` tokens together; older ones
    are out. null: no such limit.

    With ``once`` nothing is left out until one of its clauses is crossed by what past loops have, as the log counts it since
    the summary in force; null: the limits hold always.
    """

    step: Literal["recent"] = "recent"
    messages: int | None = Field(default=20, ge=0, le=1_000_000)
    tokens: int | None = Field(default=4000, ge=0, le=100_000_000)
    once: tuple[Clause, ...] | None = Field(default=None, min_length=1, max_length=8)

    @model_validator(mode="after")
    def _limited(self) -> Recent:
        if self.messages is None and self.tokens is None:
            raise PydanticCustomError("no_limit", "recent needs a limit: messages, tokens or both")
        return self

    def apply(self, view: View, room: Room) -> View:
        if self.once is not None and not any_crossed(self.once, past_of(view), budget=room.tokens):
            return view
        if self.messages is not None:
            view = newest_units(view, limit=self.messages, cost=lambda unit: len(unit.entries), reason="messages")
        if self.tokens is not None:
            view = newest_units(view, limit=self.tokens, cost=lambda unit: unit.tokens, reason="tokens")
        return view


def newest_units(view: View, *, limit: int, cost: Callable[[Unit], int], reason: str) -> View:
    """Units of past loops from the newest back, until one would cost more than is left; that one and all older are out.

    Loops that are out already cost nothing.
    """
    left, changed, full = limit, list[Loop](), False
    for loop in reversed(view.past):
        if loop.level == "out":
            changed.append(loop)
            continue
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
