"""The view: a session as the steps of a policy see it, and the draft of a window.

A view has loops, a loop has units, and a unit has the messages that are in or out together: a call and its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Literal, NamedTuple, TypeAlias

from turnlog.core.calls import MessageOutline, Ref
from turnlog.core.events import MessageEvent, SummaryEvent
from turnlog.core.lazy_dataclass import Lasting, lazy_dataclass, once
from turnlog.core.messages import Message, Role
from turnlog.core.window_parts import RecalledMessage
from turnlog.windows.text import summary_tokens

OF_ITEMS = ("openai_responses", "openai_agents_js")
"""Formats in which each item of an answer is a message of its own."""
NOT_READ = "not_read"
"""The reason in the manifest for messages that were not read."""
OLDER_TOO = frozenset({NOT_READ, "turns", "messages", "tokens", "max_loops", "max_age", "digests_full", "budget"})
"""The reasons for which all loops before a loop that is out are out, too."""
Level: TypeAlias = Literal["whole", "digest", "out"]
RankedBy: TypeAlias = Literal["", "by_meaning", "by_words"]
"""How an embedder has ranked what is recalled: by meaning, or, because it gave no answer, by words; empty: it was not asked."""


@lazy_dataclass(frozen=True, slots=True)
class Entry:
    """A message with its outline. ``message`` is None while its payload has not been fetched.

    ``extra`` is the most tokens that the requested format may add; after a redaction also what the message takes beyond its stored
    count, less than 0 for a longer one. Running totals are sums of stored counts alone.
    ``values`` returns the values of its calls and results; it reads them once.
    """

    event: MessageEvent
    facts: MessageOutline
    loop: int
    time_ms: int
    message: Message | None = None
    extra: int = 0
    values: Callable[[], tuple[str, ...]] = field(default=tuple, compare=False)

    @property
    def position(self) -> int:
        return self.event.position

    @property
    def outline(self) -> MessageOutline:
        """The outline of the stored card, else of the message. It does not depend on whether the body has been read."""
        return self.event.facts or self.facts

    @property
    def cost(self) -> int:
        """The most tokens that the message takes when it is sent: its stored count and ``extra``."""
        return self.event.tokens + self.extra


@lazy_dataclass(frozen=True, slots=True)
class CallResult:
    """The place of the result of a unit's call. ``entry`` is None when there is no result; a neutral text is sent for it."""

    ref: Ref
    entry: Entry | None
    index: int = 0


@lazy_dataclass(frozen=True, slots=True)
class Stub:
    """A message's results cut to their beginnings, as one unit sends them. ``tokens`` is the most that they take."""

    position: int
    texts: tuple[tuple[Ref, str], ...]
    tokens: int
    reason: str


@lazy_dataclass(frozen=True, slots=True)
class Unit(Lasting):
    """A message, or a message with calls and their results. ``tokens`` is what it takes as it is sent.

    ``before`` is the running total of stored tokens before its first message. A unit at the level ``digest`` is described in one
    of its loop's notes. ``stubs`` replace results that are not sent whole.
    ``entries`` are its messages, each once: its own, then those with results. ``pinned``: it stays in every window.
    ``calls_as_text``: the calls are a user's own, or of tools that the request does not offer, so they are sent with their results
    as text behind what the message says.
    ``group``: all items of an answer of several messages, ``entry`` among them; empty for a single message.
    """

    entry: Entry
    entries: tuple[Entry, ...]
    answers: tuple[CallResult, ...] = ()
    tokens: int = 0
    before: int = 0
    level: Level = "whole"
    reason: str = ""
    pinned: bool = False
    calls_as_text: bool = False
    group: tuple[Entry, ...] = ()
    stubs: tuple[Stub, ...] = ()

    @property
    def said(self) -> tuple[Entry, ...]:
        """The messages of the assistant's answer, or the message that leads the unit."""
        return self.group or (self.entry,)

    @property
    def behind(self) -> tuple[Entry, ...]:
        """The messages behind those said that have results of its calls."""
        return self.entries[len(self.said) :]

    @property
    def is_waiting(self) -> bool:
        """Whether a call has no result."""
        return any(answer.entry is None for answer in self.answers)

    def stub_at(self, position: int) -> Stub | None:
        """Return the stub that replaces the results of the message at a position; None when they are sent whole."""
        return _stubs_by_message(self).get(position) if self.stubs else None

    @property
    def position(self) -> int:
        return self.entry.position


@once
def _stubs_by_message(unit: Unit) -> Mapping[int, Stub]:
    return {stub.position: stub for stub in unit.stubs}


@lazy_dataclass(frozen=True, slots=True)
class Note:
    """A text about calls that are not sent, before position ``at`` or at the end of its loop.

    ``values`` are those that lines and texts do not have already, in order of first appearance. ``fixed`` is an upper bound of the
    tokens of everything but the values.
    """

    title: str
    lines: tuple[str, ...]
    values: tuple[str, ...]
    fixed: int
    at: int | None = None


@lazy_dataclass(frozen=True, slots=True)
class Loop(Lasting):
    """A run loop. ``before`` is the running total of tokens when it was opened; ``level`` is how it is sent.

    ``notes`` belong to a digest, or replace the earlier steps of a long loop.
    """

    number: int
    units: tuple[Unit, ...]
    first: int
    last: int
    opened_ms: int
    last_ms: int
    before: int
    level: Level = "whole"
    reason: str = ""
    max_message_chars: int = 0
    notes: tuple[Note, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def is_covered(self) -> bool:
        """Whether the loop is out because a summary covers it, even when the summary did not fit."""
        return self.level == "out" and self.reason == "summary"


@lazy_dataclass(frozen=True, slots=True)
class RecalledPart:
    """Messages that a search brought back, sent as one text before the loop ``loop``; an empty text: the search was skipped.

    ``place`` is the position of the message behind it.
    """

    loop: int
    place: int
    text: str
    tokens: int
    messages: tuple[RecalledMessage, ...]
    ranked: RankedBy = ""


@lazy_dataclass(frozen=True, slots=True)
class WindowDraft:
    """The draft of a window. ``preamble``: system messages before the first loop. The last loop is the current one.

    ``keeps_system``: system messages stay before the first loop and in the current one. Where they need not, those before the
    first loop are loop 0.

    ``total`` is the running total of all stored tokens. ``unread`` counts the older messages that are left out and have no entry;
    ``unread_reason`` says why.
    ``oldest`` is the number of the first loop with all its messages; of loops before it only messages that every window sends are
    here. ``is_open``: older messages could be read and might change the window. ``compacted_to``: the position up to which
    a message in the view stands for all messages, because its provider has summarised them in it; 0 without such a message.
    ``has_system``: a system text is sent before the messages. ``summary`` replaces the messages it covers; only those it keeps
    are among the units. ``summary_reason``: why the summary is not shown whole. ``summary_role`` is the role of its message,
    ``summary_label`` stands before its text; None: a label in the text's language.
    """

    preamble: tuple[Unit, ...]
    loops: tuple[Loop, ...]
    total: int = 0
    set_aside: tuple[tuple[Entry, str], ...] = ()
    open_calls: tuple[Ref, ...] = ()
    unread: int = 0
    unread_reason: str = NOT_READ
    oldest: int = 0
    is_open: bool = False
    has_system: bool = False
    keeps_system: bool = True
    summary: SummaryEvent | None = None
    summary_reason: str = ""
    summary_role: Role = "user"
    summary_label: str | None = None
    recalled: tuple[RecalledPart, ...] = ()
    compacted_to: int = 0

    @property
    def preamble_tokens(self) -> int:
        return sum(unit.tokens for unit in self.preamble)

    @property
    def summary_tokens(self) -> int:
        return summary_tokens(self.summary, self.summary_label)

    @property
    def units(self) -> Iterator[Unit]:
        """The units of all loops, in order."""
        return (unit for loop in self.loops for unit in loop.units)

    @property
    def last(self) -> int:
        """The position of the last message of a loop; 0 without loops."""
        return max((loop.last for loop in self.loops), default=0)

    @property
    def past(self) -> tuple[Loop, ...]:
        return self.loops[:-1]

    def with_past(self, past: Iterable[Loop]) -> WindowDraft:
        return replace(self, loops=(*past, *self.loops[-1:]))

    def with_current(self, loop: Loop) -> WindowDraft:
        return replace(self, loops=(*self.past, loop))


class Room(NamedTuple):
    """The token budget, as a step sees it.

    ``tokens`` may be sent in all; ``fixed`` of them are taken by system text, tools and the messages before the first loop.
    """

    tokens: int
    fixed: int


def is_item(entry: Entry) -> bool:
    """Return whether the entry is an item of an assistant's answer."""
    return entry.event.format in OF_ITEMS and entry.facts.role == "assistant"


def continues_answer(entry: Entry, previous: Entry) -> bool:
    """Return whether two neighbours are items of one answer: of one author, and made under one window, as far as known."""
    notes, before = entry.event.notes, previous.event.notes
    window = notes.window if notes is not None else None
    is_of_window = window is None or (before is not None and before.window == window)
    authors = {item.event.envelope.author for item in (entry, previous)} - {None}
    return is_item(previous) and is_item(entry) and is_of_window and len(authors) < 2


def never_sent(entry: Entry) -> str:
    """Return why a message is in no window at all, or an empty string."""
    if entry.event.envelope.status == "interrupted":
        return "interrupted"
    return "unknown_role" if entry.facts.role == "unknown" else ""


def is_whole(loop: Loop) -> bool:
    """Return whether all of a loop is sent as it is."""
    return loop.level == "whole" and all(unit.level == "whole" for unit in loop.units)


@once
def pinned_tokens(loop: Loop) -> int:
    """Return the tokens of a loop's pinned messages."""
    return sum(unit.tokens for unit in loop.units if unit.pinned)


def pinned_alone(loop: Loop, reason: str) -> Loop:
    """Return a loop that is out but for its pinned messages."""
    units = tuple(unit for unit in loop.units if unit.pinned)
    positions = [entry.position for unit in units for entry in unit.entries if entry.loop == loop.number]
    return replace(loop, units=units, first=min(positions), last=max(positions), level="out", reason=reason, notes=())


def is_turn(entry: Entry) -> bool:
    """Return whether the message is the user's or the assistant's; no call before it waits for a result after that."""
    return entry.facts.role in ("user", "assistant")


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
