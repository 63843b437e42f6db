"""Items of commits across partitions: the commits before a fork are in the partition of the session it was forked from.

A fork's first commit is stored in slot 1, as every session's first commit is. Its item has three attributes more:

- ``fp``: the commit's position in the log.
- ``bs``: the parent, whose log has the commits before: a session's id, or empty for the fork's own base partition.
- ``fa``: the position up to which the parent's log is shared.

So one conditional put makes a fork, and one put makes it independent of a parent that is erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from turnlog.core.errors import CorruptError
from turnlog.core.limits import MAX_APPEND_MESSAGES, MAX_POSITION
from turnlog.log.commit import VERIFIED, read_commit, stored_lines
from turnlog.log.headers import attribute, hashed_header, item_name, log_key
from turnlog.log.keys import FORKS_FROM, FORKS_TO, SessionKeys, commit_sort_key, position_of
from turnlog.log.lines import hidden
from turnlog.log.packing import pack
from turnlog.log.payloads import Payloads
from turnlog.log.tombstones import is_slot_tombstone
from turnlog.ports import Equal, Item, ItemTable, Page, Query, get_item, item_size_bytes, pages

MAX_EVENTS = MAX_APPEND_MESSAGES + 1
"""Events of a commit at most: messages and a change of the state. It begins less than this many positions before each."""
PageSize: TypeAlias = int | Callable[[Sequence[Item]], int | None] | None
"""The most items of a page; None: as many as there are in 1 MB. A function returns it before each page, from the items that are
read already."""
_FORK_ATTRIBUTES = frozenset({"fp", "bs", "fa"})


class CommitItems:
    """A reader of commits' items that follows forks to their parents."""

    def __init__(self, items: ItemTable) -> None:
        self._items = items

    def back(
        self,
        keys: SessionKeys,
        last: int = MAX_POSITION,
        first: int = 1,
        *,
        limit: PageSize = None,
        first_limit: int | None = None,
        fork: Item | None = None,
    ) -> Iterator[Sequence[Item]]:
        """Yield pages of commits that hold positions from ``last`` back to ``first``, newest first. Each page is one request.

        ``first_limit`` limits the items of the first page, ``limit`` those of the others. The last page may have commits
        older than the one of ``first``. Yields nothing when there is no session. ``fork`` is the first commit of a forked
        session, for a caller that has read it already and whose ``last`` lies before it.
        """
        home, reached, size = keys, last + 1, first_limit or page_limit(limit)
        child: SessionKeys | None = None
        shared, lineage = MAX_POSITION, [keys]
        if fork is not None:
            child, home, shared = keys, _next(lineage, fork), shared_of(fork)
        while reached > first:
            page = self._page(home, max(1, first - MAX_EVENTS + 1), reached - 1, descending=True, limit=size)
            items = [item for item in page.items if first_position(item) < reached]
            moved = self._moved(child, home, items) if child is not None else None
            if moved is not None:
                home = moved
                continue
            if items:
                reached = first_position(items[-1])
                yield up_to(shared, items)
                size = page_limit(limit)
            if page.next is not None and items:
                continue
            if reached <= first or is_tombstone(items):
                return
            fork = self._fork(home, page)
            if fork is None:
                return
            if first <= first_position(fork) < reached:
                reached = first_position(fork)
                yield [fork]
            reached = min(reached, first_position(fork))
            child, home, shared = home, _next(lineage, fork), min(shared, shared_of(fork))

    def on(
        self,
        keys: SessionKeys,
        first: int,
        last: int = MAX_POSITION,
        *,
        limit: PageSize = None,
        exact: bool = False,
        lineage: Sequence[SessionKeys] = (),
    ) -> Iterator[Sequence[Item]]:
        """Yield pages of commits that hold positions from ``first`` to ``last``, oldest first. Each page is one request.

        ``exact`` says that a commit begins at ``first``; without it, the first page may have older commits. ``lineage`` are
        the forks that the read has followed to this session.
        """
        low, is_begun = first if exact else max(1, first - MAX_EVENTS + 1), False
        while low <= last:
            page = self._page(keys, low, last, descending=False, limit=page_limit(limit))
            items = [item for item in page.items if "fp" not in item]
            if not is_begun and (not items or first_position(items[0]) > first):
                yield from self._before([*lineage, keys], page, first, last, limit, exact=exact)
            is_begun = True
            if items:
                yield items
                low = first_position(items[-1]) + 1
            if page.next is None:
                return
            if not items:
                low += 1

    def slots(
        self,
        keys: SessionKeys,
        positions: Sequence[int],
        *,
        lineage: Sequence[SessionKeys] = (),
        consistent: bool = True,
    ) -> dict[int, Item]:
        """Return the existing commits that begin at these positions, by position.

        Takes one request, and more for commits older than a fork. ``lineage`` are the forks that the read has followed to
        this session. Not ``consistent``, it costs half; commits that are missing then are read again.
        """
        wanted = {keys.commit(position): position for position in positions}
        stored = self._items.get_many(list(wanted), consistent=consistent) if wanted else {}
        if not consistent and len(stored) < len(wanted):
            stored = self._items.get_many(list(wanted))
        items = {wanted[key]: item for key, item in stored.items() if first_position(item) == wanted[key]}
        missing = [position for position in wanted.values() if position not in items]
        if not missing:
            return items
        fork = stored.get(keys.commit(1)) or get_item(self._items, keys.commit(1))
        if fork is None or "fp" not in fork:
            return items
        begin = first_position(_checked_fork(fork))
        if begin in missing:
            items[begin] = fork
        older = [position for position in missing if position < begin]
        shared = self._older_slots([*lineage, keys], fork, older) if older else {}
        return items | dict(zip(shared, up_to(shared_of(fork), list(shared.values())), strict=True))

    def _older_slots(self, lineage: list[SessionKeys], fork: Item, positions: Sequence[int]) -> dict[int, Item]:
        keys, parent = lineage[-1], _next(lineage, fork)
        items = self.slots(parent, positions, lineage=lineage[:-1])
        if len(items) == len(positions) and not is_tombstone(list(items.values())):
            return items
        moved = self._moved(keys, parent, ())
        return self.slots(moved, positions) if moved is not None else items

    def _before(
        self, lineage: list[SessionKeys], page: Page, first: int, last: int, limit: PageSize, *, exact: bool
    ) -> Iterator[Sequence[Item]]:
        """Yield pages of commits before a fork's own ones, then its first commit. The fork is the last of ``lineage``.

        Yields nothing for a session that is not a fork.
        """
        keys = lineage[-1]
        fork = self._fork(keys, page)
        if fork is None:
            return
        begin = first_position(fork)
        if first < begin:
            parent, until = _next(lineage, fork), min(last, begin - 1)
            pages = self.on(parent, first, until, limit=limit, exact=exact, lineage=lineage[:-1])
            newest = next(pages, ())
            moved = self._moved(keys, parent, newest)
            if moved is not None:
                newest, pages = (), self.on(moved, first, until, limit=limit, exact=exact)
            for older in chain([newest] if newest else [], pages):
                yield up_to(shared_of(fork), older)
        if begin <= last and (begin >= first or not exact):
            yield [fork]

    def _fork(self, home: SessionKeys, page: Page) -> Item | None:
        """Return the first commit of a fork; None for a session that is not a fork."""
        commit = next((item for item in page.items if "fp" in item), None)
        if commit is None:
            commit = get_item(self._items, home.commit(1))
        return _checked_fork(commit) if commit is not None and "fp" in commit else None

    def _moved(self, child: SessionKeys, parent: SessionKeys, items: Sequence[Item]) -> SessionKeys | None:
        """Return the new parent of a fork when ``items`` of ``parent`` are empty or erased and the fork has been moved.

        A fork is moved to its own base partition while its parent is being erased. Returns None when it has not moved.
        """
        if items and not is_tombstone(items):
            return None
        fork = get_item(self._items, child.commit(1))
        now = parent_of(child, fork) if fork is not None and "fp" in fork else parent
        return now if now != parent else None

    def _page(self, home: SessionKeys, low: int, high: int, *, descending: bool, limit: int | None) -> Page:
        high_key = commit_sort_key(min(high, MAX_POSITION))
        return self._items.query(
            Query(home.partition, commit_sort_key(low), high_key, descending=descending, limit=limit)
        )


def _checked_fork(fork: Item) -> Item:
    """Return a fork's first commit after checking its checksum and that its attributes match its event.

    Raises a `CorruptError` that names the item.
    """
    if not is_slot_tombstone(fork):
        VERIFIED.read(fork)
    return fork


def page_limit(limit: PageSize, items: Sequence[Item] = ()) -> int | None:
    return limit(items) if callable(limit) else limit


def parent_of(home: SessionKeys, fork: Item) -> SessionKeys:
    """Return the keys of the log before a fork that is stored in ``home``."""
    parent = attribute(fork, "bs", str) if "bs" in fork else ""
    return SessionKeys(home.owner, parent) if parent else home.base


def _next(lineage: list[SessionKeys], fork: Item) -> SessionKeys:
    """Return the parent of the fork that is last in ``lineage``, and append the parent to ``lineage``."""
    parent = parent_of(lineage[-1], fork)
    if parent in lineage:
        raise CorruptError("a fork is its own ancestor", item=item_name(fork))
    lineage.append(parent)
    return parent


def shared_of(fork: Item) -> int:
    """Return the position up to which a fork shares its parent's log. The parent's commit there may be longer."""
    return attribute(fork, "fa", int) if "fa" in fork else MAX_POSITION


def up_to(position: int, items: Sequence[Item]) -> Sequence[Item]:
    """Mark the commit that extends beyond ``position``, up to which a fork shares these commits, with ``fu=position``.

    A mark that is already there is lowered when a fork of a fork shares less.
    """
    if not any(_is_behind(item, position) for item in items):
        return items
    return [{**item, "fu": position} if _is_behind(item, position) else item for item in items]


def shared_position(item: Item, position: int) -> int:
    """Return ``position``, or the end of the shared part of its commit when that is lower."""
    shared = item.get("fu")
    return min(position, shared) if isinstance(shared, int) else position


def _is_behind(item: Item, position: int) -> bool:
    last = item.get("l")
    return isinstance(last, int) and shared_position(item, last) > position


def is_tombstone(items: Sequence[Item]) -> bool:
    """Return whether any of the items is the tombstone of an erased commit."""
    return any(map(is_slot_tombstone, items))


def logged(item: Item) -> Item:
    """Return a commit's item as a session that is no fork would store it.

    ``fu`` stays, because events behind it are not part of the session.
    """
    return {name: value for name, value in item.items() if name not in _FORK_ATTRIBUTES} | {"sk": log_key(item)}


def first_position(item: Item) -> int:
    """Return the position of a commit's first event. Raises `CorruptError` for a damaged key."""
    try:
        return position_of(log_key(item))
    except (ValueError, TypeError) as error:
        raise CorruptError("the key of a commit is damaged", item=item_name(item)) from error


class Forks:
    """Finds the forks of a session, and makes them independent of it."""

    def __init__(self, items: ItemTable, payloads: Payloads) -> None:
        self._items = items
        self._payloads = payloads
        self._commits = CommitItems(items)

    def forks_of(self, keys: SessionKeys) -> Iterator[SessionKeys]:
        """Yield the sessions that were forked from this one, including those whose first commit is not written yet."""
        for items in pages(self._items, Query(keys.partition, FORKS_FROM, FORKS_TO)):
            for item in items:
                yield SessionKeys(keys.owner, item_name(item)[len(FORKS_FROM) :])

    def make_independent(self, keys: SessionKeys) -> int:
        """Copy this session's log to every fork that shares it; return the number of forks.

        Call it only when the session can't be forked: then forks without a first commit will never have one.
        """
        count = 0
        for child in self.forks_of(keys):
            item = get_item(self._items, child.commit(1))
            if item is None or "fp" not in item or parent_of(child, item) != keys:
                continue
            for page in self._commits.on(keys, 1, first_position(item) - 1):
                self._copy(child, page, shared_of(item))
            self._items.put({**item, "bs": ""}, condition=Equal("bs", keys.session_id))
            count += 1
        return count

    def _copy(self, child: SessionKeys, items: Sequence[Item], shared: int) -> None:
        """Copy commits to a fork's base, payloads first. Lines after position ``shared``, where sharing ends, are hidden."""
        base, page = child.base, [as_shared(item, shared) for item in items]
        for item in page:
            self._payloads.copy(base, read_commit(item).payloads)
        self._items.write_many([{**logged(item), "pk": base.partition} for item in page])


def as_shared(item: Item, shared: int = MAX_POSITION) -> Item:
    """Return a commit's item as a fork may read it: lines after the end of sharing are hidden.

    Sharing ends at position ``shared``, or earlier when the commit's own field ``fu`` says so.
    """
    end, last = shared_position(item, shared), item.get("l")
    if not isinstance(last, int) or last <= end:
        return item
    first = first_position(item)
    lines = [line if first + index <= end else hidden(line) for index, line in enumerate(stored_lines(item))]
    return with_lines(item, lines)


def with_lines(item: Item, lines: Sequence[bytes]) -> Item:
    """Return a commit's item with these lines of its events, in place of those that it may have."""
    bare = {name: value for name, value in item.items() if name != "b"}
    covered = hashed_header(log_key(item), item)
    return {**bare, "b": pack(b"\n".join(lines), beside=covered, item_bytes=item_size_bytes(bare) + 1)}
