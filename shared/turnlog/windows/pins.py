"""The step that pins messages: what it finds stays in the window, whatever other steps and the budget take."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from turnlog.windows.digests import with_note
from turnlog.windows.steps import Room, Step, pinned
from turnlog.windows.view import Entry, Loop, Unit, View

PinnedRole = Literal["user", "assistant", "system", "tool"]


class Pin(Step):
    """Messages that all selectors which are given agree on stay in the window, wherever this step stands among the others.

    ``roles``, ``positions``, ``authors``: the message has one of them. ``first_user``: it is the session's first user message.
    ``flag``: its metadata has this key with the value true. A call stays with its results, and the other way round.
    A summary keeps what the session's policy pins when it is made; other messages that it stands for are not read again.
    """

    step: Literal["pin"] = "pin"
    roles: tuple[PinnedRole, ...] | None = Field(default=None, min_length=1, max_length=4)
    positions: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(default=None, min_length=1, max_length=100)
    authors: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=20)
    first_user: bool = False
    flag: str | None = Field(default=None, min_length=1, max_length=128)

    @model_validator(mode="after")
    def _selective(self) -> Pin:
        if not self.first_user and not any((self.roles, self.positions, self.authors, self.flag)):
            message = "pin needs a selector: roles, positions, authors, first_user or flag"
            raise PydanticCustomError("no_selector", message)
        return self

    def apply(self, view: View, room: Room) -> View:
        first = _first_user(view) if self.first_user else None
        return replace(view, loops=tuple(self._pinned(loop, first) for loop in view.loops))

    def _pinned(self, loop: Loop, first: int | None) -> Loop:
        if not any(self._finds(unit, first) for unit in loop.units):
            return loop
        units = tuple(pinned(unit) if self._finds(unit, first) else unit for unit in loop.units)
        found = replace(loop, units=units)
        # A digest does not say again what is pinned in it.
        is_told = loop.level == "digest"
        return with_note(found, max_values=sum(len(note.values) for note in loop.notes)) if is_told else found

    def _finds(self, unit: Unit, first: int | None) -> bool:
        return any(self._agrees(entry, first) for entry in unit.entries)

    def _agrees(self, entry: Entry, first: int | None) -> bool:
        envelope = entry.event.envelope
        return (
            (self.roles is None or entry.facts.role in self.roles)
            and (self.positions is None or entry.position in self.positions)
            and (self.authors is None or envelope.author in self.authors)
            and (not self.first_user or entry.position == first)
            and (self.flag is None or (envelope.metadata or {}).get(self.flag) is True)
        )


def _first_user(view: View) -> int | None:
    """The position of the session's first user message, where it is in view."""
    users = [unit.entry for loop in view.loops for unit in loop.units if unit.entry.facts.role == "user"]
    opening = next((entry.position for entry in users if entry.event.opens_loop == 1), None)
    # One that joined the first loop can be told only when everything is in view.
    is_whole = not view.unread and view.summary is None
    return opening if opening is not None or not is_whole else next((entry.position for entry in users), None)
