"""The parts of the answer with a window: manifest, prefix, epoch, breakpoints, and the reasons why a new epoch began."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import JsonObjectField

PartKind: TypeAlias = Literal[
    "system", "tools", "summary", "older", "loop", "message", "block", "omission_notice", "recalled"
]
OthersCalls: TypeAlias = Literal["text", "calls"]
"""How calls of tools that a request does not offer are sent."""
PartLevel: TypeAlias = Literal["whole", "digest", "stub", "out"]
BudgetSource: TypeAlias = Literal["given", "model", "default"]
BrokeAt: TypeAlias = int | Literal["tools", "system", "summary", "base"] | None
"""The first position, or the part of a window, that differs from the window before; None where nothing does."""


class _ByName:
    """A part of an answer whose fields are read as ``part["kind"]`` too, as those of an answer are."""

    __slots__ = ()

    def __getitem__(self, name: str) -> object:
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)


@lazy_dataclass(frozen=True, slots=True)
class WindowPart(_ByName):
    """A part of a window. ``level`` says how much of it is sent; ``refs`` name the calls whose results it holds.

    The steps in a note are one ``message`` from ``first`` to ``last``, without ``refs``.
    A part ``block`` says that the format has no place for some blocks of a message; ``reason`` is their type.
    The part ``older`` is the oldest stretch of the session, up to ``loop``, of which nothing but pinned messages is sent.
    """

    kind: PartKind
    loop: int | None
    first: int | None
    last: int | None
    level: PartLevel
    tokens: int
    reason: str | None
    refs: tuple[str, ...]


BreakReason: TypeAlias = Literal[
    "first",
    "tools",
    "system",
    "policy",
    "budget",
    "summary",
    "not_read",
    "redaction",
    "late_result",
    "unprompted",
    "crossing",
    "large_result",
    "media",
    "past_loop",
    "recall",
    "stub",
    "compaction",
]
"""The reasons why a new epoch began:

- ``first``: there was no window before.
- ``tools``, ``policy``, ``system``: the session's tools, its policy or its system text changed.
- ``budget``: the budget changed, or it hardly holds the newest messages.
- ``summary``: there is a new summary.
- ``not_read``: all that was read is sent, and older messages are not read any more.
- ``redaction``: a message was redacted.
- ``late_result``: a result replaces the neutral text, or the result, that was sent for its call.
- ``unprompted``: an answer came that nothing prompted, or behind messages that its window lacked: no thinking up to it is sent.
- ``crossing``: the border between digests and whole messages moved. ``large_result``: results that filled the window shrank.
- ``past_loop``: a loop ended, and the policy sends past loops otherwise. ``stub``: the policy shortened an older result.
- ``recall``: what was recalled for older loops left for a newer.
- ``compaction``: the provider wrote a summary of what came before, or what came behind that summary became too large.
"""


@lazy_dataclass(frozen=True, slots=True)
class PrefixAnswer(_ByName):
    """The part of the window that is unchanged since the previous model call, so that a prompt cache can still hold it.

    Compared with the window of the same call at the position before the newest assistant message. ``stable_tokens`` counts the
    unchanged beginning, in the order tools, system text, messages. It is a lower bound. ``broke_at`` is the first position or
    part of the previous window that has changed or is gone; null when nothing has.
    """

    stable_tokens: int
    broke_at: BrokeAt
    reason: Annotated[BreakReason | None, Field(description="Why it broke; null when it did not")]


@lazy_dataclass(frozen=True, slots=True)
class EpochAnswer(_ByName):
    """The epoch of a window: later windows of the same epoch begin with all of this one and only append.

    ``id`` names it: two windows have the same just when their requests and ``since`` are the same. ``since`` is the position with
    which the epoch began, 0 for the beginning of the log.
    """

    id: str
    since: int


@lazy_dataclass(frozen=True, slots=True)
class Breakpoint(_ByName):
    """A prompt-cache breakpoint in the provider's form. ``pointer`` is a JSON pointer into the answer.

    Anthropic: set the members of ``form`` on the block at ``pointer``. Bedrock Converse: insert ``form`` there as a block of
    its own, in the order of the list. Content or a system text that is a string counts as one block of text.
    """

    pointer: str
    form: JsonObjectField


@lazy_dataclass(frozen=True, slots=True)
class RecalledMessage(_ByName):
    """A message that a search brought back: its position, its score, and the most tokens that it takes.

    ``place`` says where it is from, when that is elsewhere; then ``session_id`` names the session, None for a memory. The position
    is 0 for a title or a memory.
    """

    position: int
    score: float
    tokens: int
    place: str = ""
    session_id: str | None = None
