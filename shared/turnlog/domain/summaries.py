"""What a summariser is given: past run loops in short, as plain text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopText:
    """A closed loop in short. ``calls`` has a line per tool call, errors marked; empty texts: nothing was said.

    Everything in it is data: it may hold anything that a user, a model or a tool has said.
    """

    number: int
    asked: str
    reply: str
    calls: tuple[str, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """``previous`` is the text of the summary that is to be continued by ``loops``, or empty."""

    previous: str
    loops: tuple[LoopText, ...]
    max_tokens: int
