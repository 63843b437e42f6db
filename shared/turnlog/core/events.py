"""Events: what commits hold. Each has a position; positions have no gaps."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from turnlog.core.calls import MessageOutline
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import Stretch
from turnlog.core.session_settings import MessageStatus, SessionSettings
from turnlog.core.summaries import Branch

MAX_KEYS_TOLD = 100
HEAD_TOKEN_CHARS = 500
"""The length of the text's beginning whose tokens are counted apart at append, for cut texts in digests."""


@lazy_dataclass(frozen=True, slots=True)
class Envelope:
    """What is kept around a body. ``created_at`` is the caller's own time, as given. ``origin``: who has put the message in, where
    that is not the caller: ``memory``, when the session began."""

    id: str | None = None
    status: MessageStatus = "complete"
    pin: bool = False
    author: str | None = None
    created_at: str | None = None
    metadata: JsonObject | None = None
    finish_reason: str | None = None
    is_error: bool | None = None
    origin: Literal["memory"] | None = None


@lazy_dataclass(frozen=True, slots=True)
class Recall:
    """That a message answers calls of the recall tools: the refs of these, and what they brought back, without its contents: refs
    of calls, and positions of messages."""

    answers: tuple[str, ...]
    places: tuple[str | int, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class Payload:
    """Where a payload out of line is: ``R#…`` in the session's partition, or ``blob:<name>``.

    ``home`` is the partition that it was read from, which may be that of a session from which this one was forked; empty
    until it has been read.
    """

    place: str
    size_bytes: int
    digest: str
    home: str = field(default="", compare=False)


@lazy_dataclass(frozen=True, slots=True)
class MessageEvent:
    """``body`` is None while its payload has not been fetched; then ``facts`` (from the card) may be None as well.

    ``opens_loop`` is the number of the loop that begins here, or 0. ``head_tokens`` counts the first
    `HEAD_TOKEN_CHARS` characters of a longer text.
    """

    position: int
    format: str
    tokens: int
    envelope: Envelope
    body: JsonObject | None
    opens_loop: int = 0
    head_tokens: int | None = None
    facts: MessageOutline | None = None
    payload: Payload | None = None
    notes: Notes | None = None
    redacted: bool = False
    recall: Recall | None = None


@lazy_dataclass(frozen=True, slots=True)
class Notes:
    """What is kept of a request beside its messages, with the first of them: warnings as (code, position, pointer),
    what the provider counted as (input, output), and the window that was sent as (position, tokens)."""

    warnings: tuple[tuple[str, int, str], ...] = ()
    usage: tuple[int, int] | None = None
    window: tuple[int, int] | None = None


@lazy_dataclass(frozen=True, slots=True)
class StateEvent:
    """A change of the session's state: an object is a JSON Merge Patch, a list a JSON Patch.

    ``full`` is the whole state after it, in every 32nd and where the change is no patch (then ``patch`` is None).
    ``previous`` is the position of the state event before, 0 when there is none. ``keys_before`` and ``keys_after`` are the
    state's first `MAX_KEYS_TOLD` names, None in events from before they were kept.
    """

    position: int
    action: str
    patch: JsonObject | list[JsonValue] | None
    previous: int
    count: int
    agent_id: str | None = None
    full: JsonObject | None = None
    payload: Payload | None = None
    keys_before: tuple[str, ...] | None = None
    keys_after: tuple[str, ...] | None = None


@lazy_dataclass(frozen=True, slots=True)
class CreateEvent:
    position: int
    session_id: str
    settings: SessionSettings
    state: JsonObject | None = None
    payload: Payload | None = None


@lazy_dataclass(frozen=True, slots=True)
class SettingsEvent:
    """Other settings, whole: they are in force from here on. ``changed`` names the fields that the caller gave."""

    position: int
    settings: SessionSettings
    changed: tuple[str, ...]
    payload: Payload | None = None


@lazy_dataclass(frozen=True, slots=True)
class CloseEvent:
    """The session has ended. The slot that this takes is one that an append in flight has lost."""

    position: int


@lazy_dataclass(frozen=True, slots=True)
class RewindEvent:
    """What came after position ``to`` has left the view; the log keeps it. ``closed`` are all stretches before this event
    that are in view, oldest first. ``snapshot_id`` names the snapshot that was restored."""

    position: int
    to: int
    closed: tuple[Stretch, ...]
    snapshot_id: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class ForkEvent:
    """The session begins as another one was at its position ``at``, whose log it shares up to the event before this one.

    ``settings`` are whole and in force from here on. ``closed`` is as in `RewindEvent`.
    """

    position: int
    session_id: str
    parent: str
    at: int
    settings: SessionSettings
    closed: tuple[Stretch, ...]
    payload: Payload | None = None


@lazy_dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message that stays in the window although a summary covers it: its commit's first position, and its own."""

    commit: int
    position: int


@lazy_dataclass(frozen=True, slots=True)
class SummaryEvent:
    """What stands in windows for the closed loops ``first_loop`` to ``last_loop``, the positions ``first`` to ``last``.

    ``base`` is the position of the summary that it continues (0: none) and ``covers`` the chain hash of the commit that
    holds ``last``: it stands for exactly that history. ``facts`` are values of the covered tool calls, kept verbatim, each
    with the position where it stood first. ``tokens`` counts text and facts; ``source_tokens`` and ``messages`` count what
    is covered. ``outline`` tells in short what this round has read (empty: as ``text`` does), or of ``level`` more rounds;
    ``tree`` are the outlines of the rounds before (`turnlog.core.summaries`).
    """

    position: int
    first: int
    last: int
    first_loop: int
    last_loop: int
    base: int
    covers: str
    text: str
    facts: tuple[tuple[int, str], ...]
    tokens: int
    source_tokens: int
    messages: int
    summariser: str
    kept: tuple[KeptMessage, ...] = ()
    outline: str = ""
    level: int = 0
    tree: tuple[Branch, ...] = ()
    payload: Payload | None = None

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The outlines of all that it covers, its own the newest."""
        if self.base and not self.tree and not self.level:
            # Of before there were outlines: its text tells of all rounds.
            return (Branch(1, self.position),)
        return (*self.tree, Branch(self.level, self.position))


@lazy_dataclass(frozen=True, slots=True)
class NoteEvent:
    """An entry of the history that a caller records: nothing changes. ``keys`` are names of the state at the time."""

    position: int
    action: str
    agent_id: str | None
    metadata: JsonObject | None
    keys: tuple[str, ...] = ()
    payload: Payload | None = None


@lazy_dataclass(frozen=True, slots=True)
class DiscardEvent:
    """The summary at position ``summary`` is in force no more, and none is. It stays in the log, for windows of earlier moments."""

    position: int
    summary: int


Event: TypeAlias = (
    MessageEvent
    | StateEvent
    | CreateEvent
    | SettingsEvent
    | CloseEvent
    | SummaryEvent
    | DiscardEvent
    | NoteEvent
    | RewindEvent
    | ForkEvent
)
