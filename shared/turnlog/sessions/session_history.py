"""The messages of a session as windows read them: from the newest commit back, as far as a window needs.

A process remembers what it has read of a session. The next window reads the newest commits alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

from turnlog.core.calls import parse_ref
from turnlog.core.errors import BuildMismatchError, InvalidInputError
from turnlog.core.events import MessageEvent, SummaryEvent
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_WINDOW_MESSAGES
from turnlog.core.loops import Flow, accept
from turnlog.core.session_settings import SessionSettings
from turnlog.log.commit import Commit, checked_chain, clipped, header_in
from turnlog.log.commit_items import first_position, is_tombstone
from turnlog.log.fork_lock import fork_lock
from turnlog.log.headers import Header
from turnlog.log.keys import COMMITS_FROM, META, TAIL_TO, WINDOW_TO, SessionKeys, commit_sort_key
from turnlog.log.reading import Located, above_head_error, calls_in, header_at, located, newest_within
from turnlog.log.tombstones import MATERIALISING
from turnlog.ports import Item, Query
from turnlog.sessions.context_models import ParentWindow
from turnlog.sessions.context_requests import ContextRequest, breaks_of_requests
from turnlog.sessions.incoming import MAX_CALLS
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.assembly import Memory
from turnlog.windows.breaks import EpochStart
from turnlog.windows.recalled import RecallHit, RecallSearch

MAX_PAGES = 8
"""Pages of commits that a window reads at most; a rewind or fork allows one more."""
SMALL_PAGES = 4
"""Pages before those that have no limit but 1 MB."""
FIRST_ITEMS = 160
"""Items on the first page: all commits of most sessions, and few more than needed where a summary covers the older ones."""
LEAST_GROWTH = 32
"""Messages that a session may grow by, whatever was read of it, before the log is read again."""
WARM_BYTES = 64 * 1024 * 1024
"""Estimated memory of the sessions that a process remembers: enough for `MAX_WINDOW_MESSAGES` short messages."""
_MESSAGE_BYTES, _TOKEN_BYTES = 6 * 1024, 6
_LIMIT_STEPS = 20


@lazy_dataclass(frozen=True, slots=True)
class WarmSession:
    """The part of a session that windows have read, and what they made of it for a format.

    ``header`` is that of the newest commit. ``calls`` counts calls and results.
    ``is_limited``: older messages are not read, however much room there is.
    ``cold_count`` is the number of messages that were read from the log at once. ``first`` is the position of the oldest one that
    the last window looked at, ``budget`` what that window had: with the same one, the next window looks at the same messages.
    """

    header: Header
    settings: SessionSettings
    summary: SummaryEvent | None
    covered_to: int
    commits: tuple[Commit, ...]
    messages: tuple[Located, ...]
    calls: int
    is_limited: bool
    older: dict[int, Located] | None
    format: str
    memory: Memory
    cold_count: int
    first: int
    budget: int

    @property
    def size_bytes(self) -> int:
        """The estimated memory of the messages."""
        return sum(_MESSAGE_BYTES + _TOKEN_BYTES * message.event.tokens for message in self.messages)

    def continued(self, header: Header, commits: Sequence[Commit], messages: Sequence[Located]) -> WarmSession | None:
        """Return the session with newer commits; None when they change what was read before, or when it has grown by half.

        Behind a rewind or a redaction the log is read again, behind another summary only what it keeps.
        """
        if (header.view, header.redacted) != (self.header.view, self.header.redacted):
            return None
        newer, calls = (*self.messages, *messages), self.calls + sum(calls_in(message.event) for message in messages)
        if len(newer) > self.cold_count + max(self.cold_count // 2, LEAST_GROWTH):
            return None
        if len(newer) > header.flow.messages - unread_at_least(header) or calls > MAX_CALLS:
            return None
        known = self if self.header.summary == header.summary else replace(self, older=None, memory=Memory())
        return replace(known, header=header, commits=(*self.commits, *commits), messages=newer, calls=calls)

    def behind(self, covered_to: int) -> WarmSession | None:
        """Return the session without what a summary up to position ``covered_to`` covers; None when more may have to be read."""
        if covered_to == self.covered_to:
            return self
        if covered_to < self.covered_to or self.is_limited:
            return None
        messages = tuple(message for message in self.messages if message.event.position > covered_to)
        return replace(
            self,
            covered_to=covered_to,
            commits=tuple(commit for commit in self.commits if commit.header.last > covered_to),
            messages=messages,
            calls=sum(calls_in(message.event) for message in messages),
            older=None,
            memory=Memory(),
        )


def unread_at_least(header: Header) -> int:
    """Return how many of a log's oldest messages no window reads, so that it reads `MAX_WINDOW_MESSAGES` at most.

    The number grows in steps: windows of the calls between begin with the same message.
    """
    excess, step = header.flow.messages - MAX_WINDOW_MESSAGES, max(1, MAX_WINDOW_MESSAGES // _LIMIT_STEPS)
    return max(0, -(-excess // step) * step)


FindInSession: TypeAlias = Callable[
    [SessionKeys, Header, Sequence[Commit], RecallSearch], "Sequence[Sequence[RecallHit]] | None"
]
"""Searches what is in view of a session at a header. The commits are the newest ones, as far as they are known."""


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...


_Warm = TypeVar("_Warm", bound=_Sized)


class WarmSessions(Generic[_Warm]):
    """A thread-safe cache of what was read of the last sessions, with ``max_bytes`` of memory together."""

    def __init__(self, max_bytes: int = WARM_BYTES) -> None:
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[SessionKeys, tuple[_Warm, int]] = OrderedDict()
        self._bytes = 0
        self._lock = fork_lock()

    def take(self, keys: SessionKeys) -> _Warm | None:
        """Remove a session from the cache and return it, if it is there. Its reader puts it back."""
        with self._lock:
            session, size = self._sessions.pop(keys, (None, 0))
            self._bytes -= size
        return session

    def put(self, keys: SessionKeys, session: _Warm | None) -> None:
        """Add a session, if there is one that fits, and drop the oldest ones for which there is no room any more."""
        if session is None or (size := session.size_bytes) > self._max_bytes:
            return
        with self._lock:
            self._bytes += size - self._sessions.pop(keys, (None, 0))[1]
            self._sessions[keys] = session, size
            while self._bytes > self._max_bytes:
                self._bytes -= self._sessions.popitem(last=False)[1][1]


@lazy_dataclass(frozen=True, slots=True)
class SessionReading:
    """The newest commits of a session and its caches, read in one request.

    ``items`` are the commits, newest first. ``warm`` has them already, and all that was read before; None when it is not known or
    has changed. ``settings`` and ``summary`` are the current ones, where they are known.
    ``position`` is where the window is built; None for the log's end.
    """

    keys: SessionKeys
    header: Header
    items: Sequence[Item]
    caches: Mapping[str, Item] = field(default_factory=dict)
    position: int | None = None
    warm: WarmSession | None = None
    settings: SessionSettings | None = None
    summary: SummaryEvent | None = None


def read_newest(log: SessionLog, keys: SessionKeys, warm: WarmSession | None) -> SessionReading:
    """Read the end of a session: what is new behind a warm session, or a page. Raises `NotFoundError` when there is none."""
    first, last = (commit_sort_key(warm.header.first), TAIL_TO) if warm is not None else (COMMITS_FROM, WINDOW_TO)
    page = log.items.query(Query(keys.partition, first, last, descending=True, limit=FIRST_ITEMS))
    commits = [item for item in page.items if str(item["sk"]).startswith(COMMITS_FROM)]
    caches = {str(item["sk"]): item for item in page.items if not str(item["sk"]).startswith(COMMITS_FROM)}
    if not commits and warm is not None:
        return read_newest(log, keys, None)  # A fork's first commit has the key of the first position.
    if not commits or is_tombstone(commits[:1]) or MATERIALISING in caches.get(META, {}):
        newest = log.commits.tail(keys).header.last
        if not commits:
            raise log.commits.missing(keys, newest)
    header = header_in(commits[0])
    log.commits.check_alive(keys, header)
    log.commits.check_reached(keys, header, caches.values())
    reading = SessionReading(keys, header, commits, caches)
    return _continued(log, reading, warm) if warm is not None else reading


def _continued(log: SessionLog, reading: SessionReading, warm: WarmSession) -> SessionReading:
    """Return the reading with what is known from before, as far as its commits follow the warm session and do not change it."""
    header, known = reading.header, warm.header
    if header_in(reading.items[-1]).hash != known.hash:
        return reading
    commits = checked_chain(reading.items[::-1])[1:]
    messages = _outside_calls(located(log.commits, reading.keys, commits))
    return replace(
        reading,
        warm=warm.continued(header, commits, messages),
        settings=warm.settings if header.last_settings == known.last_settings else None,
        summary=warm.summary if header.summary == known.summary else None,
    )


def read_up_to(log: SessionLog, keys: SessionKeys, position: int, *, is_build: bool) -> SessionReading:
    """Read the newest commits up to a position. ``is_build``: a build names the position.

    Raises an error for a position that the log has not reached.
    """
    items = next(log.commits.stored.back(keys, position, limit=FIRST_ITEMS), ())
    if not items or is_tombstone(items[:1]):
        newest = log.commits.tail(keys).header.last
        if not items:
            raise log.commits.missing(keys, min(position, newest))
    header = header_in(items[0])
    if position > header.last:
        error = above_head_error(header, position)
        raise BuildMismatchError(error.detail, details=error.details) if is_build else error

    header = header_at(log.commits, keys, items[0], position, before=items[1] if len(items) > 1 else None)
    return SessionReading(keys, header, items, position=position)


class SessionHistory:
    """The messages of a session as a window reads them: from the newest commit back, as far as the plan needs."""

    def __init__(self, log: SessionLog, reading: SessionReading, context: ContextRequest, find: FindInSession) -> None:
        """Begin with the messages of a warm session, or else with the first page. ``find`` searches the session."""
        self._log, self._keys, self._header, self._context = log.commits, reading.keys, reading.header, context
        self.total = self._header.flow.tokens
        self._summary = context.request.summary
        self._covered = self._header.summary if self._summary is not None else None
        self._covered_to = self._covered.last if self._covered is not None else 0
        self._floor = unread_at_least(self._header)
        self._find = find
        self._pages: Iterator[list[Commit]] | None = None
        warm = reading.warm.behind(self._covered_to) if reading.warm is not None else None
        self._is_limited = self._is_at_floor = warm is not None and warm.is_limited
        self.memory = warm.memory if warm is not None and warm.format == context.request.format else Memory()
        if warm is None:
            self._begin(reading.items)
            return
        self._commits, self._held, self.sources = list(warm.commits), list(warm.messages), list[Located]()
        self._calls: int | None = warm.calls
        self._older: dict[int, Located] | None = warm.older
        self._cold_count = warm.cold_count
        if warm.budget == context.request.budget.tokens:
            self.sources = [source for source in self._held if source.event.position >= warm.first]
        else:
            self._show_more()

    def _begin(self, items: Sequence[Item]) -> None:
        """Read the log from its end, of which the newest ``items`` are known."""
        items = items or next(self._log.stored.back(self._keys, self._header.last, limit=FIRST_ITEMS), ())
        self._pages = self._log.in_view(
            self._keys, self._header, first=self._covered_to + 1, read=items, limit=self._page_size
        )
        self._item_count = len(items)
        self._oldest_read = first_position(items[-1])
        self._page_count, self._stretches, self._cold_count, self._calls = 1, 0, 0, None
        self._commits, self._held, self.sources, self._older = [], [], [], None
        self._read_page()

    def warm(self) -> WarmSession | None:
        """Return what a process may remember of the session; None for a fork, and for a log too large to read as far as others.

        A redaction is noted in the session that stores the message, before it is answered; in forks, it is noted later.
        """
        if (
            (self._is_limited and not self._is_at_floor)
            or not self._commits
            or any(commit.home != self._keys.partition for commit in self._commits)
        ):
            return None
        if self._older and self._header.rewound:
            return None  # They may be the parent's.
        return WarmSession(
            header=self._header,
            settings=self._context.settings,
            summary=self._summary,
            covered_to=self._covered_to,
            commits=tuple(self._commits),
            messages=tuple(self._held),
            calls=sum(calls_in(source.event) for source in self._held) if self._calls is None else self._calls,
            is_limited=self._is_limited,
            older=self._older and {place: source for place, source in self._older.items() if self._stays(source)},
            format=self._context.request.format,
            memory=self.memory,
            cold_count=self._cold_count or len(self._held),
            first=self.sources[0].event.position if self.sources else 0,
            budget=self._context.request.budget.tokens,
        )

    def _stays(self, source: Located) -> bool:
        """Return whether an older message is in later windows too: the one that opens the current loop may not be."""
        return source.event.envelope.pin or not source.loop or source.event.position <= self._covered_to

    def recall(self, search: RecallSearch) -> Sequence[Sequence[RecallHit]] | None:
        """Return messages about questions; None when the log cannot be searched."""
        return self._find(self._keys, self._header, self._commits, search)

    @property
    def kept(self) -> Sequence[Located]:
        """The messages before the first loop, pinned ones, and those that the summary keeps; none that `sources` has."""
        if self._older is None:
            self._older = self._read_kept()
        first = self.sources[0].event.position if self.sources else self._header.last + 1
        held = self._held[: len(self._held) - len(self.sources)]
        remembered = (source for source in held if source.event.envelope.pin or not source.loop)
        older = self._older | {source.event.position: source for source in remembered}
        return [source for position, source in sorted(older.items()) if position < first]

    @property
    def has_all_kept(self) -> bool:
        return self._header.pinned is not None

    @property
    def unread(self) -> int:
        kept = sum(source.event.position > self._covered_to for source in self.kept)
        covered = self._covered.messages if self._covered is not None else 0
        return self._header.flow.messages - covered - len(self.sources) - kept

    def read_on(self) -> bool:
        """Read one more page, first of what is remembered. Behind the last one, read the message that opens the current loop.

        Pages of a fork's ancestors, which may be short, are joined until they bring half as many commits as are known.
        """
        if self._pages is not None:
            count, is_read = len(self._commits) * 3 // 2, self._read_page()
            is_more = is_read and count > 0
            while is_more and len(self._commits) < count and self._commits[0].home != self._keys.partition:
                is_more = self._read_page()
            return is_read or self._read_opening()
        if len(self.sources) < len(self._held):
            self._show_more()
        elif self._is_limited:
            return self._read_opening()
        else:
            self._begin(())
        return True

    def _show_more(self) -> None:
        """Take more of the remembered messages: those that bring twice the budget's tokens, and twice as many as before."""
        room, count = 2 * self._context.request.budget.tokens, 0
        for source in reversed(self._held):
            if room <= 0 and count >= 2 * len(self.sources):
                break
            room, count = room - source.event.tokens, count + 1
        self.sources = self._held[len(self._held) - count :]

    def fetch(self, events: list[MessageEvent]) -> Mapping[int, MessageEvent]:
        return self._log.fetch(self._keys, events)

    @property
    def limit_since(self) -> int | None:
        if not (self._is_at_floor and self.unread and len(self.sources) == self._header.flow.messages - self._floor):
            return None
        return self.sources[MAX_WINDOW_MESSAGES - max(1, MAX_WINDOW_MESSAGES // _LIMIT_STEPS)].event.position

    def breaks(self) -> Sequence[EpochStart]:
        return breaks_of_requests(self._log, self._keys, self._header, self._context.request, self._commits)

    def _read_page(self) -> bool:
        """Read a page of commits; return whether there was one."""
        page = next(self._pages, None) if self._pages is not None and not self._is_limited else None
        if page is None:
            return False
        if self._commits:
            older, newer = page[-1], self._commits[0]
            border = older.header.last + 1 < newer.header.first or older.home != newer.home
            self._stretches += border or older.header.rewound == older.header.first
        self._page_count += page[0].header.first < self._oldest_read
        uncovered = [commit for commit in page if commit.header.last > self._covered_to]
        commits = [commit for commit in uncovered if not self._floor or commit.header.flow.messages > self._floor]
        new = _outside_calls(located(self._log, self._keys, commits))
        self._commits = [*commits, *self._commits]
        messages = [
            *(message for message in new if self._covered_to < message.event.position <= self._header.last),
            *self.sources,
        ]
        newest = messages[-(self._header.flow.messages - self._floor) :]
        within = newest_within(newest, max_messages=MAX_WINDOW_MESSAGES, max_calls=MAX_CALLS)
        self._held = self.sources = within if len(within) == len(newest) else _from_step(within)
        is_last_page = self._page_count >= MAX_PAGES + self._stretches
        self._is_at_floor = (
            len(commits) < len(uncovered) or len(newest) < len(messages) or len(self.sources) < len(within)
        )
        self._is_limited = (
            self._is_at_floor
            or len(self.sources) < len(newest)
            or (is_last_page and page[0].header.first <= self._oldest_read)
        )
        return True

    def _page_size(self, items: Sequence[Item]) -> int | None:
        """Return how many commits to look at next: those that bring twice the budget's tokens, if messages are like all others.

        That is at least half as many as before; None, as many as there are in 1 MB, behind a few pages. ``items`` are the next
        commits if they are read; else commits are taken to have as many messages as the newest ones.
        """
        if self._page_count >= SMALL_PAGES:
            return None
        flow, count = self._header.flow, len(self._commits)
        tokens = sum(message.event.tokens for message in self.sources)
        missing = 2 * self._context.request.budget.tokens - tokens
        positions = missing * self._header.last // max(1, flow.tokens)
        if items:
            oldest = first_position(items[0]) - positions
            size, least = sum(first_position(item) > oldest for item in items), 8
        else:
            size, least = positions * self._item_count // (self._header.last - self._oldest_read + 1), FIRST_ITEMS // 4
        size = max(size, count // 2, least)
        return size if size < FIRST_ITEMS * 4 else None

    def _read_kept(self) -> dict[int, Located]:
        """Read the older messages that every window sends, by position. One request if there are any; a lead takes another."""
        header, places = self._header, set[tuple[int, int]]()
        if self._summary is not None:
            places |= {(kept.commit, kept.position) for kept in (*self._summary.kept, *(self._summary.parted or ()))}
        first = self.sources[0].event.position if self.sources else header.last + 1
        pinned = [place for place in header.pinned or () if header.view.shows(place[1])]
        places |= {place for place in pinned if self._covered_to < place[1] < first}
        commits = self._log.at(self._keys, sorted({commit for commit, _ in places}))
        positions = {position for _, position in places}
        kept = [message for message in located(self._log, self._keys, commits) if message.event.position in positions]
        if self._covered is None:
            kept += self._lead(first)
        return {source.event.position: source for source in _outside_calls(kept)}

    def _lead(self, first: int) -> list[Located]:
        """Return the messages before the first loop, as far as they are before position ``first``."""
        header, messages = self._header, list[Located]()
        count = header.flow.lead.messages
        if not count or header.flow.messages == len(self.sources):
            return []
        for page in self._log.in_view_on(self._keys, header, limit=min(count + 1, FIRST_ITEMS)):
            messages += located(self._log, self._keys, page)
            if len(messages) >= count:
                break
        return [message for message in messages[:count] if message.event.position < first]

    def _read_opening(self) -> bool:
        start = self._header.flow.loop.start
        if not self._is_limited or self._older is None or start in self._older or start <= self._covered_to:
            return False
        if not self.sources or self.sources[0].event.position <= start:
            return False
        commit = self._log.find_holding(self._keys, start)
        opening = located(
            self._log, self._keys, [clipped(commit, self._header.view.up_to(self._header.last))] if commit else []
        )
        self._older |= {
            source.event.position: source for source in _outside_calls(opening) if source.event.position == start
        }
        return start in self._older


def _from_step(messages: list[Located]) -> list[Located]:
    """Return the messages from a multiple of a step on, so that windows of the next calls begin with the same one."""
    step = max(1, MAX_CALLS // _LIMIT_STEPS // 2)
    first = -(-messages[0].event.position // step) * step
    return [message for message in messages if message.event.position >= first] or messages


def _outside_calls(messages: Iterable[Located]) -> list[Located]:
    """Return the messages without those of agents within a call, which have windows of their own."""
    return [message for message in messages if message.event.envelope.parent is None]


def messages_within(log: SessionLog, reading: SessionReading, parent: ParentWindow, *, room: int) -> list[Located]:
    """Return the messages of an agent within a call, and of the loops before the call what it sees, up to ``room`` tokens.

    Reads from the log's end back to the call, and further for the loops before it. Raises `InvalidInputError` when no such call
    is in view.
    """
    call, header = parse_ref(parent.ref, pointer="/parent/ref"), reading.header
    own, others, tokens, has_call = list[Located](), list[Located](), 0, False
    for page in log.commits.in_view(reading.keys, header, read=reading.items):
        for message in reversed(located(log.commits, reading.keys, page, fetch=True)):
            envelope, position = message.event.envelope, message.event.position
            has_call = has_call or (position == call.position and call.index < len(message.facts.calls))
            if envelope.parent == parent.ref and envelope.agent_id == parent.agent_id:
                own.append(message)
            elif envelope.parent is None and position < call.position and _is_seen(message, parent.others):
                others.append(message)
                tokens += message.event.tokens
        if page[0].header.first <= call.position and (parent.others == "nothing" or tokens > room):
            break
    if not has_call:
        raise InvalidInputError.at("/parent/ref", f"no call {parent.ref} is in view")
    return _as_loops(others[::-1], own[::-1])


def _is_seen(message: Located, others: str) -> bool:
    """Return whether an agent within a later call sees a message of the loops before."""
    facts = message.facts
    is_spoken = facts.role in ("user", "assistant") and not (facts.calls or facts.results)
    return others == "all" or (others == "answers" and is_spoken)


def _as_loops(others: Sequence[Located], own: Sequence[Located]) -> list[Located]:
    """Return messages with loops of their own: those before, then those within the call."""
    flow, sources = Flow(), list[Located]()
    for index, message in enumerate([*others, *own]):
        flow = accept(flow, message.arrival(index=index, timed_out=bool(own) and message is own[0])).flow
        sources.append(Located(replace(message.event, opens_loop=0), flow.loop.number, message.time_ms))
    return sources
