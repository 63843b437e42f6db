"""Requests and results of summarisers, the tree of summary texts, and the limits of requests and tokens."""

from __future__ import annotations

from dataclasses import replace

from turnlog.core.lazy_dataclass import lazy_dataclass

TIMED_OUT, UNREADABLE = "summariser_timeout", "summariser_unreadable"
"""Codes of an `UnavailableError` after which a summariser's model may have run nevertheless, so its tokens are charged."""


@lazy_dataclass(frozen=True, slots=True)
class LoopText:
    """A closed loop as short plain text. ``calls`` has a line for each tool call, with errors marked.

    ``asked`` and ``reply`` are empty when nothing was said. All texts are untrusted: they may hold anything that a user, a
    model or a tool wrote.
    """

    number: int
    asked: str
    reply: str
    calls: tuple[str, ...] = ()
    interrupted: bool = False


@lazy_dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A request to a summariser.

    ``previous`` is the text of the summary that ``loops`` continue, or empty. ``parts`` are stored texts about the time
    before the loops, oldest first, to be combined. ``tenant_id`` is the tenant whose token budget is charged; with an
    empty one, tokens are not counted.
    """

    previous: str
    loops: tuple[LoopText, ...]
    max_tokens: int
    tenant_id: str = ""
    parts: tuple[str, ...] = ()

    @property
    def all_text(self) -> str:
        """All texts of the request without tool calls, for detecting the language of the history."""
        return "\n".join(
            [self.previous, *self.parts, *(text for loop in self.loops for text in (loop.asked, loop.reply))]
        )


@lazy_dataclass(frozen=True, slots=True)
class Summarised:
    """A summary's text, the name of its summariser, and the tokens that a provider charges for it (0 without a model)."""

    text: str
    summariser: str
    input_tokens: int = 0
    output_tokens: int = 0


FAN = 8
"""Number of texts that are combined into one text of the next level."""


@lazy_dataclass(frozen=True, slots=True)
class Branch:
    """A stored text of the summary tree.

    A text of ``level`` 0 covers one round; a text of a higher level covers `FAN` texts of the level below. ``position`` is
    the position of the summary event that holds the text.
    """

    level: int
    position: int


@lazy_dataclass(frozen=True, slots=True)
class Growth:
    """A summary tree before a new round is added to it.

    ``branches`` are the texts that stay, oldest first. The round adds a text of ``level``, made of the loops that the
    round reads and of the texts in the groups of ``merged``.
    """

    branches: tuple[Branch, ...]
    level: int
    merged: tuple[tuple[Branch, ...], ...]

    @property
    def is_rebuilt(self) -> bool:
        """Whether the summary must be written anew from all texts, which happens every `FAN` rounds."""
        return bool(self.merged)


def plan_growth(tree: tuple[Branch, ...]) -> Growth:
    """Return the change of a summary tree that one more round makes."""
    older, level, merged = tree, 0, list[tuple[Branch, ...]]()
    while len(older) >= FAN - 1 and all(branch.level == level for branch in older[1 - FAN :]):
        older, group = older[: 1 - FAN], older[1 - FAN :]
        merged.append(group)
        level += 1
    return Growth(older, level, tuple(merged))


@lazy_dataclass(frozen=True, slots=True)
class Spent:
    """Calls and tokens that a tenant has spent on summaries.

    ``reserved`` are tokens of calls that are under way or never reported their end; they count as spent.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reserved: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.reserved

    def reserve(self, tokens: int, *, limit: int) -> Spent | None:
        """Return the spending with a new call of about ``tokens`` reserved, or None when that exceeds the limit."""
        return replace(self, reserved=self.reserved + tokens) if self.tokens + tokens <= limit else None

    def settle(self, tokens: int, *, input_tokens: int, output_tokens: int) -> Spent:
        """Return the spending after a reserved call of ``tokens`` ended with its actual usage.

        A call without any tokens is not counted.
        """
        return Spent(
            self.calls + (input_tokens + output_tokens > 0),
            self.input_tokens + input_tokens,
            self.output_tokens + output_tokens,
            max(0, self.reserved - tokens),
        )


COOL_DOWN_LOOPS = 2
"""Loops that must open after the end of a request's job before there is another request."""
LEASE_MS = 10 * 60 * 1000
"""Time after which a request without a summary counts as lost: the process ended before it sent the job, or the model failed."""


@lazy_dataclass(frozen=True, slots=True)
class CompressionRequest:
    """The newest request for compression: the open loop and the time of the commit that made the request.

    ``is_answered`` says that the request led to a summary, which is then at ``loop`` and ``time_ms``.
    """

    loop: int
    time_ms: int
    is_answered: bool = False

    def encode(self) -> str:
        return f"{self.loop} {self.time_ms} {int(self.is_answered)}"

    @classmethod
    def decode(cls, text: str) -> CompressionRequest:
        loop, time_ms, is_answered = text.split(" ")
        return cls(int(loop), int(time_ms), is_answered == "1")

    def allows_another(self, loop: int, now_ms: int, *, ended_ms: int, is_long: bool) -> bool:
        """Return whether an append to this loop at this time may request compression again.

        ``ended_ms`` is the time of the newest request whose job ended without a summary. ``is_long``: the loop alone has become
        too long since the current summary.
        """
        has_ended = self.is_answered or ended_ms >= self.time_ms
        if has_ended and loop >= self.loop + COOL_DOWN_LOOPS:
            return True
        return is_long if self.is_answered else now_ms - self.time_ms >= LEASE_MS
