"""The commit log: commits in numbered slots, written with conditional puts and read in order, over any engine.

An append takes one query (the newest commit and META) and one conditional put into the next slot. A slot is never freed, so
a stale writer can never win one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import zip_longest
from typing import Any, TypeAlias

from turnlog.core.errors import ConflictError, CorruptError, NotFoundError
from turnlog.core.events import Event, ForkEvent, MessageEvent, Payload, RewindEvent
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import VisibleRanges
from turnlog.log.commit import (
    VERIFIED,
    Commit,
    Verified,
    checked_chain,
    clipped,
    event_at,
    events_of,
    header_in,
    read_commit,
    with_body,
)
from turnlog.log.commit_items import CommitItems, PageSize, first_position, page_limit
from turnlog.log.headers import GENESIS, Header, attribute, chain_hash, hashed_header, header_attributes, listed
from turnlog.log.keys import COMMITS_FROM, META, TAIL_TO, SessionKeys, commit_sort_key, item_at
from turnlog.log.lines import encode_line, payload_content, stored_line
from turnlog.log.packing import pack
from turnlog.log.payloads import INLINE_BYTES, Payloads, PreparedPayload, digest_of
from turnlog.log.request_keys import KEPT_SECONDS, SLACK_SECONDS, Attempt, RequestKey
from turnlog.log.tombstones import MATERIALISING, is_cache_tombstone, is_slot_tombstone
from turnlog.ports import Absent, Clock, IdSource, Item, ItemTable, Query, get_item, item_size_bytes

WRITE_DEADLINE_SECONDS = 5.0
_FIRST_BACKOFF_SECONDS = 0.01
_MAX_BACKOFF_SECONDS = 0.4


@lazy_dataclass(frozen=True, slots=True)
class Tail:
    """The end of a session's log: the newest header, its item, and ``D#META`` if it exists."""

    header: Header
    item: Item
    meta: Item | None


@lazy_dataclass(frozen=True, slots=True)
class Draft:
    """A commit that is not written yet: its header without hash and nonce, and its events in order of position."""

    header: Header
    events: tuple[Event, ...]
    bodies: Sequence[bytes | None] = ()
    """The JSON of the bodies of the first events, which are messages; None where it is not known."""


Stored: TypeAlias = dict[tuple[int, str], Payload]
"""Payloads that an earlier try of a commit has stored, by index and digest. A later try follows another commit, so its contents
may differ."""
Compose: TypeAlias = Callable[[Tail], "Draft | Commit"]
"""Function from the log's end to the next commit, or to an earlier commit with the same effect. May raise to refuse."""


@lazy_dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of `CommitLog.write`: the commit, whether it existed before, and the tail that it was composed for.

    ``events`` are those of a new commit, with their contents; empty for a repeated one.
    """

    commit: Commit
    repeated: bool
    tail: Tail
    events: tuple[Event, ...] = ()


class CommitLog:
    """The log of every session in an engine."""

    def __init__(
        self, items: ItemTable, payloads: Payloads, clock: Clock, ids: IdSource, *, expires: bool = True
    ) -> None:
        self._expires = expires
        self._items = items
        self.stored = CommitItems(items)
        self._payloads = payloads
        self._clock = clock
        self._ids = ids

    # ------------------------------------------------------------ writing

    def tail(self, keys: SessionKeys) -> Tail:
        """Return the end of the log in one request, or raise `NotFoundError`.

        Raises `CorruptError` for a log that ends before the position that ``D#META`` reflects: it has lost commits.
        """
        tail = self._tail(keys)
        if tail.meta is not None:
            self.check_reached(keys, tail.header, [tail.meta])
        return tail

    def find_tail(self, keys: SessionKeys) -> Tail | None:
        """Return the end of the log as `tail` does; None for a session that does not exist."""
        with suppress(NotFoundError):
            return self.tail(keys)
        return None

    def check_reached(self, keys: SessionKeys, header: Header, caches: Iterable[Item]) -> None:
        """Raise `CorruptError` when the log ends before a position that one of its caches reflects.

        A cache is written after its commit. The log's end is read once more before the error, because a query is not a
        snapshot of the table.
        """
        position = max((attribute(cache, "pos", int) for cache in caches if not is_cache_tombstone(cache)), default=0)
        if position > header.last and position > self._tail(keys).header.last:
            message = f"the log ends at position {header.last}, but a cache reflects position {position}"
            raise CorruptError(message, item=commit_sort_key(header.last + 1))

    def _tail(self, keys: SessionKeys) -> Tail:
        items = list(self._items.query(Query(keys.partition, COMMITS_FROM, TAIL_TO, descending=True, limit=2)).items)
        meta = items.pop(0) if items and items[0]["sk"] == META else None
        newest = items[0] if items else None
        if newest is None or is_slot_tombstone(newest) or (meta is not None and MATERIALISING in meta):
            raise NotFoundError(f"no session {keys.session_id!r}")
        header = VERIFIED.read(newest).header
        self.check_alive(keys, header)
        return Tail(header, newest, meta)

    def check_alive(self, keys: SessionKeys, newest: Header) -> None:
        """Raise `NotFoundError` for a session that has expired by its newest header, also when it is not erased yet."""
        if self._expires and newest.expires_ms is not None and self._clock.now_ms() >= newest.expires_ms:
            raise NotFoundError(f"no session {keys.session_id!r}")

    def write(
        self, keys: SessionKeys, compose: Compose, request: RequestKey | None = None, *, begun: Attempt | None = None
    ) -> WriteResult:
        """Append the commit that ``compose`` makes for the log's end, or return an earlier commit of the same request.

        ``begun`` is the attempt of this request if the caller has begun it. After a lost slot, read the log's end again and
        retry until a deadline. Before each put, the attempt has checked that no commit up to that slot belongs to its request.
        So two attempts of a request never write two commits. Raises the errors of ``compose``, or `ConflictError` when other
        writers win every slot for `WRITE_DEADLINE_SECONDS`.
        """
        attempt = begun or Attempt(self, keys, request)
        nonce, stored = self._ids.nonce(), dict[tuple[int, str], Payload]()
        deadline = self._clock.now_ms() + WRITE_DEADLINE_SECONDS * 1000
        backoff = _FIRST_BACKOFF_SECONDS
        while True:
            tail, earlier = attempt.read()
            draft = earlier or compose(tail)
            if isinstance(draft, Commit):
                return WriteResult(draft, True, tail)
            commit = self.put(keys, draft, nonce=nonce, previous=tail.header.hash, stamp=attempt.stamp, stored=stored)
            if commit is not None:
                return WriteResult(commit, False, tail, draft.events)
            if self._clock.now_ms() >= deadline:
                raise ConflictError("other writers won every slot; try again", retry_after_seconds=1)
            self._clock.sleep(self._ids.jitter() * backoff)
            backoff = min(backoff * 2, _MAX_BACKOFF_SECONDS)

    def begin_request(self, keys: SessionKeys, request: RequestKey, *, head: int) -> int | None:
        """Record that a request with a key begins at this head of the log.

        Return None for the first attempt, else the head that an earlier attempt recorded. The commit of the request, if
        any, comes after that head.
        """
        ttl = self._clock.now_ms() // 1000 + KEPT_SECONDS + SLACK_SECONDS
        lost = self._items.put(item_at(keys.request(request.key_hash), {"pos": head, "ttl": ttl}), condition=Absent())
        if lost is None:
            return None
        return attribute(lost.existing, "pos", int) if lost.existing is not None else 0

    def put(
        self,
        keys: SessionKeys,
        draft: Draft,
        *,
        nonce: bytes,
        previous: bytes = GENESIS,
        stamp: bytes = b"",
        stored: Stored | None = None,
        fork_of: tuple[SessionKeys, int] | None = None,
    ) -> Commit | None:
        """Put a commit into its slot, after its large payloads. Returns None when another writer has the slot.

        ``stamp`` is that of a request with a key. Payloads in ``stored`` are not stored again. With ``fork_of`` (parent,
        position) the commit goes into slot 1 of a new session that shares the parent's log up to that position.
        """
        lines, encoded = self._lines(keys, draft, nonce, stored if stored is not None else {})
        pinned = [event.position for event in draft.events if isinstance(event, MessageEvent) and event.envelope.pin]
        header, partition = listed(draft.header, pinned), keys.partition
        sort_key, attributes = commit_sort_key(header.first), {**header_attributes(header), "n": nonce}
        if stamp:
            attributes["ik"] = stamp
        covered = hashed_header(sort_key, attributes)
        digests, content = tuple([sha256(line).digest() for line in encoded]), b"\n".join(encoded)
        chained = chain_hash(previous, covered, digests)
        item: dict[str, Any] = {"pk": partition, "sk": sort_key, **attributes, "h": chained}
        if fork_of is not None:
            item |= {"sk": commit_sort_key(1), "fp": header.first, "bs": fork_of[0].session_id, "fa": fork_of[1]}
        item["b"] = pack(content, beside=covered, item_bytes=item_size_bytes(item) + 1)
        outcome = self._items.put(item, condition=Absent())
        if outcome is not None and (outcome.existing is None or outcome.existing.get("n") != nonce):
            return None
        header = replace(header, nonce=nonce, hash=chained, idempotency=stamp)
        VERIFIED.keep(item, Verified(header, content, covered, digests))
        return Commit(header, tuple(lines), partition)

    def _lines(
        self, keys: SessionKeys, draft: Draft, nonce: bytes, stored: Stored
    ) -> tuple[list[JsonObject], list[bytes]]:
        """Return the stored lines of a commit's events, as objects and encoded, after storing their large payloads."""
        prepared, lines, encoded = list[PreparedPayload](), list[JsonObject](), list[bytes]()
        for index, (event, body) in enumerate(zip_longest(draft.events, draft.bodies)):
            line = stored_line(event, None)
            data = encode_line(line, body)
            # A line holds its payload, so a short line has no large one.
            if len(data) > INLINE_BYTES:
                content = payload_content(event, body)
                place = index, digest_of(content)
                if place not in stored:
                    large = self._payloads.prepare(keys, content, position=event.position, nonce=nonce, index=index)
                    if large is not None:
                        prepared.append(large)
                        stored[place] = large.payload
                if place in stored:
                    line = stored_line(event, stored[place])
                    data = encode_json(line)
            lines.append(line)
            encoded.append(data)
        if prepared:
            self._payloads.store(prepared)
        return lines, encoded

    # ------------------------------------------------------------ reading

    def made_by(self, keys: SessionKeys, request: RequestKey, first: int, last: int) -> Commit | None:
        """Return the session's own commit of this request between two positions, or None.

        ``first`` begins a commit and ``last`` ends one. Every commit between them is read and checked; a missing one raises
        `CorruptError`.
        """
        before: Sequence[Item] = ()
        for page in self.stored_on(keys, first, last, exact=True):
            for commit in checked_chain([*before, *page])[len(before) :]:
                if commit.home == keys.partition and request.matches(commit.header.idempotency):
                    return commit
            before = page[-1:]
        return None

    def get(self, keys: SessionKeys, position: int) -> Commit | None:
        """Return the commit that begins at this position; None when there is none or it was erased."""
        item = self.stored.slots(keys, [position]).get(position)
        return read_commit(item) if item is not None and not is_slot_tombstone(item) else None

    def begin(self, keys: SessionKeys) -> Commit | None:
        """Return the session's own first commit (its creation or its fork), or None when there is none."""
        item = get_item(self._items, keys.commit(1))
        return read_commit(item) if item is not None and not is_slot_tombstone(item) else None

    def at(self, keys: SessionKeys, begins: Sequence[int], *, only: Collection[int] | None = None) -> list[Commit]:
        """Return the commits that begin at these positions, in one request. Raises `CorruptError` for a missing one.

        With ``only``, for commits that are not new: the lines at these positions alone are parsed, and the read costs half.
        """
        items = self.stored.slots(keys, begins, consistent=only is None)
        for position in begins:
            if position not in items:
                raise CorruptError("a commit that the log names is missing", item=commit_sort_key(position))
        return [read_commit(items[position], only) for position in begins]

    def find_holding(self, keys: SessionKeys, position: int) -> Commit | None:
        """Return the commit that holds the event at this position, or None. Takes one request."""
        items = next(self.stored.back(keys, position, limit=1), ())
        if not items:
            return None
        commit = read_commit(items[0])
        return commit if commit.header.last >= position else None

    def holding(self, keys: SessionKeys, position: int) -> Commit:
        """Return the commit that holds the event at this position. Raises `CorruptError` when there is none."""
        commit = self.find_holding(keys, position)
        if commit is None:
            raise CorruptError("a commit is missing", item=commit_sort_key(position))
        return commit

    def range(self, keys: SessionKeys, first: int, last: int) -> list[Commit]:
        """Return all commits with an event between two positions, oldest first, in view or not.

        The hash chain between them is checked.
        """
        items = [item for page in self.stored_on(keys, first, last) for item in page]
        return [commit for commit in checked_chain(items) if commit.header.last >= first]

    def in_view(
        self, keys: SessionKeys, header: Header, *, first: int = 1, read: Sequence[Item] = (), limit: PageSize = None
    ) -> Iterator[list[Commit]]:
        """Yield pages of the commits in view at a header, from the header back to position ``first``.

        Within a page the oldest commit is first. The hash chain is checked, also with the page before. ``read`` are items
        at the log's end that need not be read again. A page is one request, of at most 1 MB and ``limit`` commits; it
        never extends across a rewind.
        """
        stretches = self.view(keys, header, first).up_to(header.last)
        for start, end in reversed(stretches):
            low, reached = max(start, first), end + 1
            later: Sequence[Item] = ()
            for page in self._pages(keys, low, end, read, limit):
                items = [item for item in page if first_position(item) >= start]
                commits = checked_chain([*items[::-1], *later])[: len(items)]
                if not commits:
                    continue
                if not later and commits[-1].header.last < end:
                    raise self.missing(keys, commits[-1].header.last + 1)
                later, reached = items[-1:], commits[0].header.first
                yield [clipped(commit, stretches) for commit in commits]
            if low <= end and reached > low:
                raise self.missing(keys, reached - 1)
            if start <= first:
                return

    def in_view_on(
        self, keys: SessionKeys, header: Header, *, first: int = 1, limit: PageSize = None
    ) -> Iterator[list[Commit]]:
        """Yield pages of the commits in view from position ``first`` up to a header, oldest first.

        The commit that holds ``first`` is complete, with its earlier events.
        """
        stretches = self.view(keys, header, first).up_to(header.last)
        for start, end in stretches:
            before: Sequence[Item] = ()
            for page in self.stored_on(keys, max(start, first), end, limit=limit) if end >= first else ():
                items = [item for item in page if first_position(item) >= start]
                commits = checked_chain([*before, *items])[len(before) :]
                before = items[-1:] or before
                if commits:
                    yield [clipped(commit, stretches) for commit in commits]

    def stored_on(
        self, keys: SessionKeys, first: int, last: int, *, limit: PageSize = None, exact: bool = False
    ) -> Iterator[Sequence[Item]]:
        """Yield pages of items of all commits that hold positions from ``first`` to ``last``, oldest first.

        The log must have these positions. Without ``exact`` the first page may have older commits. Raises `CorruptError`
        for a missing or damaged commit. The hash chain is not checked here; `checked_chain` does that.
        """
        reached = 0
        pages = self.stored.on(keys, first, last, limit=limit, exact=exact)
        for page in (part for items in pages for part in _parts(items, limit)):
            for item in page:
                header = header_in(item)
                if header.first > (reached + 1 if reached else first):
                    raise self.missing(keys, reached + 1 if reached else first)
                reached = header.last
            yield page
        if reached < last:
            raise self.missing(keys, max(reached + 1, first))

    def missing(self, keys: SessionKeys, position: int) -> CorruptError:
        """Return the error for a missing position. Raises `NotFoundError` instead when the session was deleted meanwhile."""
        self._tail(keys)
        return CorruptError(f"no commit holds position {position}", item=commit_sort_key(position))

    def view(self, keys: SessionKeys, header: Header, first: int = 1) -> VisibleRanges:
        """Return the positions that are in view at a header, complete back to position ``first``.

        Takes a request when there were so many rewinds that the header does not hold them all.
        """
        view = header.view
        if not view.is_cut or view.closed[0][0] <= first:
            return view
        commit = self.find_holding(keys, header.rewound)
        event = next(iter(self.events(keys, [commit], fetch=False))) if commit is not None else None
        if not isinstance(event, RewindEvent | ForkEvent):
            raise CorruptError("no rewind where the log says there is one", item=commit_sort_key(header.rewound))
        return VisibleRanges(event.closed, view.since)

    def _pages(
        self, keys: SessionKeys, first: int, last: int, read: Sequence[Item], limit: PageSize
    ) -> Iterator[Sequence[Item]]:
        """Yield pages of a stretch, newest first. The items in ``read`` are the first page.

        What was read at once is several pages where ``limit`` is a function that wants fewer items.
        """
        known = [item for item in read if first_position(item) <= last]
        yield from _parts(known, limit)
        if known:
            last = first_position(known[-1]) - 1
        if last >= first:
            # When a fork's first commit has been read, the commits before it are in its parent's partition.
            fork = known[-1] if known and "fp" in known[-1] else None
            home = keys.home(str(fork["pk"])) if fork is not None else keys
            for page in self.stored.back(home, last, first, limit=limit, fork=fork):
                yield from _parts(page, limit)

    def events(self, keys: SessionKeys, commits: Sequence[Commit], *, fetch: bool = True) -> list[Event]:
        """Return the events in view of commits, oldest first. With ``fetch``, out-of-line payloads are fetched."""
        wanted = [payload for commit in commits for payload in commit.payloads] if fetch else []
        contents = self._payloads.fetch(keys, wanted)
        return [event for commit in commits for event in events_of(commit, contents)]

    def whole(self, keys: SessionKeys, wanted: Sequence[tuple[Commit, int]]) -> list[Event]:
        """Return one event for each commit and position in ``wanted``, with its payload if that is stored out of line.

        Payloads of the commits' other events are not fetched.
        """
        payloads = (commit.payload_of(commit.line(position)) for commit, position in wanted)
        contents = self._payloads.fetch(keys, [payload for payload in payloads if payload is not None])
        return [event_at(commit, position, contents) for commit, position in wanted]

    def fetch(self, keys: SessionKeys, events: Iterable[MessageEvent]) -> dict[int, MessageEvent]:
        """Return the messages that lack their bodies, with the bodies fetched, by position."""
        missing = [(event, event.payload) for event in events if event.body is None and event.payload is not None]
        contents = self._payloads.fetch(keys, [payload for _, payload in missing])
        return {event.position: with_body(event, payload.place, contents[payload.place]) for event, payload in missing}


def _parts(items: Sequence[Item], limit: PageSize) -> Iterator[Sequence[Item]]:
    """Yield items in parts of the sizes that ``limit`` returns when it is a function; else all at once."""
    while items:
        size = (page_limit(limit, items) if callable(limit) else None) or len(items)
        yield items[:size]
        items = items[size:]
