"""What a summariser is given: past run loops in short, as plain text; and what it gives back."""

from __future__ import annotations

from turnlog.domain.values import dataclass

TIMED_OUT, UNREADABLE = "summariser_timeout", "summariser_unreadable"
"""Codes of an `UnavailableError` of a summariser whose model may have worked all the same, and costs what it took."""


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
    """``previous`` is the text of the summary that is to be continued by ``loops``, or empty. ``parts`` are stored texts of
    what came before the loops, oldest first, that are to be put together.

    ``tenant_id`` is whose tokens are spent where a model is paid for; empty: nobody's, they are not counted.
    """

    previous: str
    loops: tuple[LoopText, ...]
    max_tokens: int
    tenant_id: str = ""
    parts: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """What people and models said, without the tool calls: the history's language is read off it."""
        return "\n".join(
            [self.previous, *self.parts, *(text for loop in self.loops for text in (loop.asked, loop.reply))]
        )


@dataclass(frozen=True, slots=True)
class Summarised:
    """A summary's text, who made it, and the tokens that a provider charges for it (none without a model)."""

    text: str
    summariser: str
    input_tokens: int = 0
    output_tokens: int = 0
