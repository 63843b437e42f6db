"""What a summariser is given: past run loops in short, as plain text; and what it gives back."""

from __future__ import annotations

from dataclasses import replace

from turnlog.core.lazy_dataclass import lazy_dataclass

TIMED_OUT, UNREADABLE = "summariser_timeout", "summariser_unreadable"
"""Codes of an `UnavailableError` of a summariser whose model may have worked all the same, and costs what it took."""


@lazy_dataclass(frozen=True, slots=True)
class LoopText:
    """A closed loop in short. ``calls`` has a line per tool call, errors marked; empty texts: nothing was said.

    Everything in it is data: it may hold anything that a user, a model or a tool has said.
    """

    number: int
    asked: str
    reply: str
    calls: tuple[str, ...] = ()
    interrupted: bool = False


@lazy_dataclass(frozen=True, slots=True)
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


@lazy_dataclass(frozen=True, slots=True)
class Summarised:
    """A summary's text, who made it, and the tokens that a provider charges for it (none without a model)."""

    text: str
    summariser: str
    input_tokens: int = 0
    output_tokens: int = 0


FAN = 8
"""So many texts are put together to one."""


@lazy_dataclass(frozen=True, slots=True)
class Branch:
    """A stored text: ``level`` 0 tells of one round, the next of `FAN` of the level below. ``position`` is that of the summary
    which holds it."""

    level: int
    position: int


@lazy_dataclass(frozen=True, slots=True)
class Growth:
    """A tree with one round more. ``branches`` are its texts, oldest first; the newest, of ``level``, is made in this round:
    of what the round has read and, group by group, of the texts of ``merged``."""

    branches: tuple[Branch, ...]
    level: int
    merged: tuple[tuple[Branch, ...], ...]

    @property
    def is_rebuilt(self) -> bool:
        """Whether the summary is to be written anew of all texts: every `FAN` rounds."""
        return bool(self.merged)


def grown(tree: tuple[Branch, ...]) -> Growth:
    """The tree with one round more."""
    older, level, merged = tree, 0, list[tuple[Branch, ...]]()
    while len(older) >= FAN - 1 and all(branch.level == level for branch in older[1 - FAN :]):
        older, group = older[: 1 - FAN], older[1 - FAN :]
        merged.append(group)
        level += 1
    return Growth(older, level, tuple(merged))


@lazy_dataclass(frozen=True, slots=True)
class Spent:
    """``reserved`` are tokens of calls that are under way, or whose end was never told: they count as spent."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reserved: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.reserved

    def reserve(self, tokens: int, *, limit: int) -> Spent | None:
        """With a call of about so many tokens begun; None when that would be over the limit."""
        return replace(self, reserved=self.reserved + tokens) if self.tokens + tokens <= limit else None

    def settle(self, tokens: int, *, input_tokens: int, output_tokens: int) -> Spent:
        """With that call ended: what it really took. Without tokens it was none."""
        return Spent(
            self.calls + (input_tokens + output_tokens > 0),
            self.input_tokens + input_tokens,
            self.output_tokens + output_tokens,
            max(0, self.reserved - tokens),
        )


COOL_DOWN_LOOPS = 2
"""So many loops must have been opened since the newest request before there is another."""
LEASE_MS = 10 * 60 * 1000
"""After that time without a summary a request counts as lost (the process ended before its job was sent, the model is down)."""


@lazy_dataclass(frozen=True, slots=True)
class CompressionRequest:
    """The newest request: the open loop and the time of the commit that made it. ``is_answered``: a summary came of it."""

    loop: int
    time_ms: int
    is_answered: bool = False

    def encode(self) -> str:
        return f"{self.loop} {self.time_ms} {int(self.is_answered)}"

    @classmethod
    def decode(cls, text: str) -> CompressionRequest:
        loop, time_ms, is_answered = text.split(" ")
        return cls(int(loop), int(time_ms), is_answered == "1")

    def allows_another(self, *, loop: int, now_ms: int) -> bool:
        """Whether an append to this loop at this time may ask again."""
        if loop >= self.loop + COOL_DOWN_LOOPS:
            return True
        return not self.is_answered and now_ms - self.time_ms >= LEASE_MS
