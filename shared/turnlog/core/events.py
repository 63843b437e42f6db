"""Events, the contents of commits, and the names of the actions that a session's history shows for them.

Each event has a position; positions have no gaps.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from turnlog.core.calls import MessageOutline
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import REDACTED
from turnlog.core.models import MessageStatus
from turnlog.core.positions import Stretch
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import Branch

MAX_LISTED_KEYS = 100
HEAD_TOKEN_CHARS = 500
"""Length of the text's beginning whose tokens are counted separately at append; digests cut texts to it."""


@lazy_dataclass(frozen=True, slots=True)
class Envelope:
    """Fields that are stored beside a message's body.

    ``created_at`` is the caller's own time, as given. ``origin`` says who added the message when it was not the caller:
    ``memory`` marks the message with long-term memories at the beginning of a session. ``parent`` is the ref of the call within
    which an agent's run has said it, and ``agent_id`` that agent: the message belongs to no loop of the session.
    """

    id: str | None = None
    status: MessageStatus = "complete"
    pin: bool = False
    author: str | None = None
    created_at: str | None = None
    metadata: JsonObject | None = None
    finish_reason: str | None = None
    is_error: bool | None = None
    origin: Literal["memory"] | None = None
    parent: str | None = None
    agent_id: str | None = None


NO_ENVELOPE = Envelope()
"""The envelope of a message without any of these fields."""


@lazy_dataclass(frozen=True, slots=True)
class Recall:
    """A mark of a message that answers calls of the recall tools.

    ``answers`` are the refs of those calls. ``places`` name what the calls returned, without contents: refs of calls
    and positions of messages.
    """

    answers: tuple[str, ...]
    places: tuple[str | int, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class Payload:
    """The address of a payload that is stored out of line.

    ``place`` is ``R#…`` for an item in the session's partition, or ``blob:<name>``. ``home`` is the partition that the
    address was read from, empty before. For a forked session it can be the partition of the session it was forked from.
    """

    place: str
    size_bytes: int
    digest: str
    home: str = field(default="", compare=False)


@lazy_dataclass(frozen=True, slots=True)
class MessageEvent:
    """A message in the log.

    ``body`` is None while its payload has not been fetched. ``facts`` is the outline from the card of a payload, if it has one; for
    a message that is to be stored, the one to make the card of.
    ``opens_loop`` is the number of the loop that begins with this message, or 0. ``head_tokens`` counts the first
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
class LoggedMessage:
    """A message of the log with its loop (0 before the first) and the time of its commit."""

    event: MessageEvent
    loop: int
    time_ms: int


@lazy_dataclass(frozen=True, slots=True)
class Notes:
    """Fields of an append request that are stored with its first message.

    ``warnings`` are (code, position, pointer). ``usage`` is the provider's token count as (input, output). ``window`` is
    the window that was sent, as (position, tokens); ``epoch`` names its epoch.
    """

    warnings: tuple[tuple[str, int, str], ...] = ()
    usage: tuple[int, int] | None = None
    window: tuple[int, int] | None = None
    epoch: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class StateEvent:
    """A change of the session's state: an object is a JSON Merge Patch, a list a JSON Patch.

    ``full`` is the whole state after the change. Every 32nd state event has it, and every change that is not a patch (then
    ``patch`` is None). ``previous`` is the position of the previous state event, 0 when there is none. ``keys_before`` and
    ``keys_after`` are the state's first `MAX_LISTED_KEYS` names; events of older versions have None.
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
    """The creation of a session; ``state`` is its initial state."""

    position: int
    session_id: str
    settings: SessionSettings
    state: JsonObject | None = None
    payload: Payload | None = None


@lazy_dataclass(frozen=True, slots=True)
class SettingsEvent:
    """A change of settings. ``settings`` holds all settings after the change; ``changed`` names the fields that the caller sent."""

    position: int
    settings: SessionSettings
    changed: tuple[str, ...]
    payload: Payload | None = None


@lazy_dataclass(frozen=True, slots=True)
class CloseEvent:
    """The end of a session. The event takes the next slot, so an append that is under way loses that slot and fails."""

    position: int


@lazy_dataclass(frozen=True, slots=True)
class RewindEvent:
    """A rewind: events after position ``to`` leave the view but stay in the log.

    ``closed`` are all stretches before this event that are in view, oldest first. ``snapshot_id`` names the snapshot that
    was restored, if any.
    """

    position: int
    to: int
    closed: tuple[Stretch, ...]
    snapshot_id: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class ForkEvent:
    """The first own event of a fork, which begins as session ``parent`` was at position ``at``.

    The fork shares the parent's log up to the event before this one. ``settings`` are all settings of the fork.
    ``closed`` is as in `RewindEvent`.
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
    """A summary that replaces the closed loops ``first_loop`` to ``last_loop`` (positions ``first`` to ``last``) in windows.

    It may also replace the first steps of the loop behind them, when that has become long: then ``last`` lies in that loop, and
    ``parted`` are the loop's messages before it that stay in the window, the user's. None: there is no such loop.

    ``base`` is the position of the summary that this one continues, or 0. ``covers`` is the chain hash of the commit that
    holds ``last``, so the summary stands for exactly that history. ``facts`` are values of the covered tool calls, kept
    verbatim, each with the position where it first occurred. ``tokens`` counts text and facts; ``source_tokens`` and
    ``messages`` count what is covered. ``outline`` is a short text of what this round has read; when it is empty, ``text``
    serves as the outline. With ``level`` above 0 the outline also covers earlier rounds. ``tree`` names the outlines of
    the rounds before (`turnlog.core.summaries`).
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
    parted: tuple[KeptMessage, ...] | None = None

    @property
    def is_redacted(self) -> bool:
        """Whether a redaction has overwritten the text."""
        return self.text == REDACTED and not self.facts

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The outlines of everything that the summary covers, oldest first; its own is the last."""
        if self.base and not self.tree and not self.level:
            # Written by a version without outlines: the text covers all rounds.
            return (Branch(1, self.position),)
        return (*self.tree, Branch(self.level, self.position))


@lazy_dataclass(frozen=True, slots=True)
class NoteEvent:
    """A history entry that a caller records without changing anything. ``keys`` are the state's names at that moment."""

    position: int
    action: str
    agent_id: str | None
    metadata: JsonObject | None
    keys: tuple[str, ...] = ()
    payload: Payload | None = None


@lazy_dataclass(frozen=True, slots=True)
class DiscardEvent:
    """The withdrawal of the summary at position ``summary``; the session has no current summary afterwards.

    The summary stays in the log for windows of earlier moments.
    """

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


STATE_CHANGE, RUN, APPROVE, REJECT = "state_change", "run", "approve", "reject"
CREATE, MESSAGE_ADDED, TOOL_CALL, TOOL_RESULT = "create", "message_added", "tool_call", "tool_result"
TOOL_RECALLED = "tool_recalled"
SUMMARY_PUBLISHED, SUMMARY_DISCARDED = "summary_published", "summary_discarded"
POLICY_CHANGE, END, TIME_OUT = "policy_change", "end", "time_out"
REWIND, FORK, RESTORE, REDACT = "rewind", "fork", "restore", "redact"
RUN_ACQUIRED, RUN_RENEWED, RUN_RELEASED, SENT_TO_RUN = "run_acquired", "run_renewed", "run_released", "sent_to_run"
DOCUMENTS_WRITTEN = "documents_written"
LOG_ACTIONS = frozenset(
    {CREATE, MESSAGE_ADDED, TOOL_CALL, TOOL_RESULT, TOOL_RECALLED, SUMMARY_PUBLISHED, SUMMARY_DISCARDED}
    | {RUN, APPROVE, REJECT, POLICY_CHANGE, RESTORE, REWIND, FORK, REDACT, END, TIME_OUT, DOCUMENTS_WRITTEN}
    | {RUN_ACQUIRED, RUN_RENEWED, RUN_RELEASED, SENT_TO_RUN}
)
"""Actions that only the log records; a caller's entry can't use them."""


def own_action(action: str | None, *, pointer: str) -> str:
    """Return the action of a caller's change, `STATE_CHANGE` when it is None.

    Raises `InvalidInputError` for an action that only the log records.
    """
    if action is None:
        return STATE_CHANGE
    if action in LOG_ACTIONS:
        message = f"the action {action!r} is reserved for entries that the log writes itself"
        raise InvalidInputError.at(pointer, message, "reserved_action")
    return action
