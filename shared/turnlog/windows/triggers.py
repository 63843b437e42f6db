"""Triggers: the limits at which a session should be compressed, as data. One crossed clause is enough.

The totals come from the newest commit's header, so no message is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from turnlog.windows.view import Entry, Room, WindowDraft

_MEASURES = ("messages_over", "tokens_over", "loops_over", "fraction_over")


class Counted(NamedTuple):
    """Numbers of past loops and messages, and the messages' stored tokens."""

    loops: int
    messages: int
    tokens: int


class Totals(NamedTuple):
    """The messages since the current summary.

    ``everything`` includes system messages and the current loop, ``past`` has past loops alone. Both count past loops only.
    ``current`` has the current loop alone.
    """

    everything: Counted
    past: Counted
    current: Counted


def _one_property(schema: dict[str, Any]) -> None:
    """Change the JSON Schema to an object with exactly one property and no null."""
    schema["properties"] = {name: field_schema["anyOf"][0] for name, field_schema in schema["properties"].items()}
    schema |= {"minProperties": 1, "maxProperties": 1}


class Clause(BaseModel):
    """A limit, crossed by a larger number. ``fraction_over`` is a fraction of the budget."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, json_schema_extra=_one_property)

    messages_over: int | None = Field(default=None, ge=0, le=1_000_000)
    tokens_over: int | None = Field(default=None, ge=0, le=100_000_000)
    loops_over: int | None = Field(default=None, ge=0, le=1_000_000)
    fraction_over: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _one_limit(self) -> Clause:
        if sum(getattr(self, name) is not None for name in _MEASURES) != 1:
            message = "a clause has exactly one of {names}"
            raise PydanticCustomError("invalid_clause", message, {"names": ", ".join(_MEASURES)})
        return self

    # No return type: with one its JSON Schema would be an object of anything.
    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        return {name: value for name, value in whole(self).items() if value is not None}


class Trigger(BaseModel):
    """Crossed when ``any`` of its clauses is.

    ``counts``: ``all`` counts all messages since the current summary, and for a fraction also system text, tools and the summary.
    ``past`` leaves out system messages and the current loop.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    any: tuple[Clause, ...] = Field(max_length=8, json_schema_extra={"minItems": 1})
    counts: Literal["all", "past"] = "all"

    @field_validator("any")
    @classmethod
    def _one_at_least(cls, clauses: tuple[Clause, ...]) -> tuple[Clause, ...]:
        # Not with `min_length`: pydantic would also report it for clauses that are present and invalid.
        if not clauses:
            raise PydanticCustomError("no_clause", "a trigger has at least one clause")
        return clauses


def is_crossed(trigger: Trigger, totals: Totals, room: Room) -> bool:
    """Return whether a session with these totals should be compressed.

    ``room.fixed`` is the tokens of system text, tools and the summary.
    """
    if trigger.counts == "past":
        return any_crossed(trigger.any, totals.past, budget=room.tokens)
    return any_crossed(trigger.any, totals.everything, budget=room.tokens, fixed=room.fixed)


def any_crossed(clauses: tuple[Clause, ...], counted: Counted, *, budget: int, fixed: int = 0) -> bool:
    """Return whether a limit is crossed. ``fixed`` tokens count towards a fraction of the budget besides the messages."""
    return any(
        (clause.messages_over is not None and counted.messages > clause.messages_over)
        or (clause.tokens_over is not None and counted.tokens > clause.tokens_over)
        or (clause.loops_over is not None and counted.loops > clause.loops_over)
        or (clause.fraction_over is not None and fixed + counted.tokens > clause.fraction_over * budget)
        for clause in clauses
    )


def past_of(view: WindowDraft) -> Counted:
    """Return the totals of a view's past loops as the log counts them: since the current summary, messages never sent included."""
    if not view.loops:
        return Counted(0, 0, 0)
    current, covered, covered_to, before = view.loops[-1], 0, 0, 0
    if view.summary is not None:
        covered, covered_to, before = view.summary.last_loop, view.summary.last, view.summary.source_tokens
    said = [entry for unit in view.units for entry in unit.entries]
    said += [entry for entry, _ in view.set_aside]
    if view.summary is None:
        lead = [entry for unit in view.preamble for entry in unit.entries] + said
        before = sum(entry.event.tokens for entry in _each_once(lead) if not entry.loop)
    past = [entry for entry in _each_once(said) if covered_to < entry.position and 0 < entry.loop < current.number]
    return Counted(current.number - 1 - covered, view.unread + len(past), max(0, current.before - before))


def _each_once(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Return each entry once; a message with results of several calls is in several units."""
    return {entry.position: entry for entry in entries}.values()
