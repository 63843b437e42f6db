"""Policy steps: models with a pure function that returns a view with less in it.

A step lowers the levels of past loops, takes messages out of them, or pins messages. It never removes the current loop, a
system message before the first loop, or a pinned message, and it gives a reason for everything that it removes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnlog.core.lazy_dataclass import once
from turnlog.windows.digests import tells_something, with_note
from turnlog.windows.view import Loop, Unit, WindowDraft

MAX_MESSAGE_CHARS = 500
LEDGER_PER_LOOP = 200


class Room(NamedTuple):
    """The token budget, as a step sees it.

    ``tokens`` may be sent in all; ``fixed`` of them are taken by system text, tools and the messages before the first loop.
    """

    tokens: int
    fixed: int


class Step(BaseModel):
    """A step as data. A subclass has ``step: Literal["its_name"] = "its_name"``, fields with defaults, and `apply`.

    Unknown fields and values of another type are refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    step: str

    @abstractmethod
    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        """Return the view after this step. Must be pure: the same view, fields and room give the same view in every process."""


class DigestWhenFull(Step):
    """Everything is sent while it fits; then the oldest part becomes the base of an epoch: digests and notes.

    Behind the border stands the tail, whole. A new epoch begins when the tail takes more than ``high`` of the room for messages;
    its tail begins with about ``low`` of it. So the beginning of the window stays the same for many calls, and a provider's prompt
    cache holds. The base takes what ``high`` leaves. A digest has at most ``max_message_chars`` characters of each message and
    ``ledger`` values. The digest of a loop without a final reply says so; with ``interrupted: "drop"`` such a loop is out instead.

    Every policy is fitted to the budget in this way; the step sets the numbers.
    """

    step: Literal["digest_when_full"] = "digest_when_full"
    high: float = Field(default=0.7, gt=0, le=1)
    low: float = Field(default=0.35, ge=0, lt=1)
    max_message_chars: int = Field(default=MAX_MESSAGE_CHARS, ge=1, le=1_000_000)
    ledger: int = Field(default=LEDGER_PER_LOOP, ge=0, le=1_000)
    interrupted: Literal["mark", "drop"] = "mark"

    @model_validator(mode="after")
    def _ordered(self) -> DigestWhenFull:
        if self.low >= self.high:
            raise ValueError("low must be smaller than high")
        return self

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return view

    def summary_border(self, total: int, room: Room, summary: int) -> float:
        """Return the border between the loops that a summary covers and the newer ones, as a running total of tokens.

        A loop is covered if the log had fewer tokens than that when the loop began. ``total`` is the running total at the log's
        end; ``summary`` is the number of tokens that a summary takes of the window.
        """
        high = self.high * room.tokens - room.fixed - summary
        size = max(1.0, (self.high - self.low) * room.tokens)
        return size * math.ceil(max(0.0, total - high) / size)

    def steps_border(self, total: int, room: Room, summary: int) -> float:
        """Return the border between the steps of the open loop that a summary covers and the newer ones, like `summary_border`.

        Where system text and tools leave little room it moves no sooner than the log has grown by as much again.
        """
        size = max(1.0, (self.high - self.low) * room.tokens)
        return min(self.summary_border(total, room, summary), size * (total // size))


def digest(loop: Loop, reason: str, max_message_chars: int = MAX_MESSAGE_CHARS, ledger: int = LEDGER_PER_LOOP) -> Loop:
    """Return a whole loop as a digest; out, when its digest would have nothing but pinned messages.

    A loop that is a digest or out is returned as it is.
    Texts are cut to their first ``max_message_chars`` characters; the note has at most ``ledger`` values.
    """
    if loop.level != "whole":
        return loop
    made = with_note(
        replace(loop, level="digest", reason=reason, max_message_chars=max_message_chars), max_values=ledger
    )
    return made if tells_something(made) else out(loop, reason)


@once
def out(loop: Loop, reason: str) -> Loop:
    """Return the loop at the level out; only its pinned messages are sent. A loop that is out already keeps its reason."""
    return loop if loop.level == "out" else replace(loop, level="out", reason=reason, notes=())


def unit_out(unit: Unit, reason: str) -> Unit:
    """Return the unit, a message with its results, at the level out. A pinned unit is returned as it is."""
    return unit if unit.pinned or unit.level == "out" else replace(unit, level="out", reason=reason)


def pinned(unit: Unit) -> Unit:
    """Return the unit pinned; it is whole again if it was out or its results were shortened."""
    costs = {entry.position: entry.cost for entry in unit.entries}
    tokens = unit.tokens + sum(costs[stub.position] - stub.tokens for stub in unit.stubs)
    return replace(unit, pinned=True, level="whole", reason="", stubs=(), tokens=tokens)
