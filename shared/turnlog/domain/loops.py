"""Borders of run loops: from a user message to the assistant's final reply.

A user message opens the next loop if the current one has an assistant message since its first user message, or has
timed out; else it joins it. The first message that is not a system message opens loop 1, whatever its role. System messages
before it belong to no loop. Messages of an interrupted stream change nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from turnlog.domain.messages import Role
from turnlog.domain.values import dataclass

LoopStatus: TypeAlias = Literal["open", "closed", "interrupted"]


@dataclass(frozen=True, slots=True)
class LoopState:
    """The newest loop so far. ``number`` 0: none yet. ``start`` is the position of its first message.

    ``answered``: it has an assistant message since its first user message. ``final``: its newest assistant message has no
    calls, so the loop would be `closed` if it ended here.
    """

    number: int = 0
    start: int = 0
    has_user: bool = False
    answered: bool = False
    final: bool = False

    def opens(self, role: Role, *, timed_out: bool = False) -> bool:
        """Whether a message of this role opens a new loop."""
        if self.number == 0:
            return role != "system"
        return role == "user" and (timed_out or (self.has_user and self.answered))

    def after(
        self, role: Role, *, position: int, has_calls: bool, interrupted: bool, timed_out: bool = False
    ) -> LoopState:
        state = self
        if self.opens(role, timed_out=timed_out) and not (interrupted and self.number):
            state = LoopState(number=self.number + 1, start=position)
        if interrupted or state.number == 0:
            return state
        if role == "user":
            return replace(state, has_user=True)
        if role == "assistant":
            return replace(state, answered=state.answered or state.has_user, final=not has_calls)
        return state

    @property
    def ended_as(self) -> LoopStatus:
        """The status of this loop once it is over."""
        return "closed" if self.final else "interrupted"

    def encode(self) -> str:
        flags = "".join(flag for flag, on in (("u", self.has_user), ("a", self.answered), ("f", self.final)) if on)
        return f"{self.number} {self.start} {flags}"

    @classmethod
    def decode(cls, text: str) -> LoopState:
        number, start, flags = text.split(" ")
        return cls(int(number), int(start), "u" in flags, "a" in flags, "f" in flags)
