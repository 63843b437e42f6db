"""Items of commits across partitions: the commits before a fork are in the partition of the session it was forked from.

A fork's first commit is stored in slot 1, as every session's first commit is. Its item has three attributes more:

- ``fp``: the commit's position in the log.
- ``bs``: the parent, whose log has the commits before: a session's id, or empty for the fork's own base partition.
- ``fa``: the position up to which the parent's log is shared.

So one conditional put makes a fork, and one put makes it independent of a parent that is erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

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


class _Stretch(NamedTuple):
    """A range of positions in one partition of a log, with its first page. ``shared`` is the last position that is read.

    ``fork`` is the first commit of a fork, which comes before the others of its partition.
    """

    home: SessionKeys
    low: int
    last: int
    shared: int
    page: Page
    fork: Item | None = None

    @property
    def items(self) -> Sequence[Item]:
        return [item for item in self.page.items if "fp" not in item]


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
        self, keys: SessionKeys, first: int, last: int = MAX_POSITION, *, limit: PageSize = None, exact: bool = False
    ) -> Iterator[Sequence[Item]]:
        """Yield pages of commits that hold positions from ``first`` to ``last``, oldest first. Each page is one request.

        ``exact`` says that a commit begins at ``first``; without it, the first page may have older commits.
        """
        low = first if exact else max(1, first - MAX_EVENTS + 1)
        if low > last:
            return
        stretches, lineage = [self._stretch(keys, low, last, limit)], [keys]
        while not (items := stretches[-1].items) or first_position(items[0]) > first:
            fork = self._fork(stretches[-1].home, stretches[-1].page)
            if fork is None:
                break
            begin, shared = first_position(fork), min(stretches[-1].shared, shared_of(fork))
            if begin <= last and (begin >= first or not exact):
                stretches[-1] = stretches[-1]._replace(fork=fork)
            if first >= begin:
                break
            last = min(last, begin - 1)
            stretches.append(self._stretch(_next(lineage, fork), low, last, limit, shared))
        for index in range(len(stretches) - 1, 0, -1):
            stretch, oldest = stretches[index], next(self._pages(stretches[index:], limit), ())
            moved = self._moved(stretches[index - 1].home, stretch.home, oldest)
            if moved is not None:
                stretches[index:] = [self._stretch(moved, low, stretch.last, limit, stretch.shared)]
        yield from self._pages(stretches, limit)

    def _stretch(self, home: SessionKeys, low: int, last: int, limit: PageSize, shared: int = MAX_POSITION) -> _Stretch:
        page = self._page(home, low, last, descending=False, limit=page_limit(limit))
        return _Stretch(home, low, last, shared, page)

    def _pages(self, stretches: Sequence[_Stretch], limit: PageSize) -> Iterator[Sequence[Item]]:
        """Yield the pages of stretches, the last one's first, each behind the first commit of its fork."""
        for oldest in reversed(stretches):
            if oldest.fork is not None:
                yield up_to(oldest.shared, [oldest.fork])
            stretch: _Stretch | None = oldest
            while stretch is not None:
                items = stretch.items
                if items:
                    yield up_to(stretch.shared, items)
                low = first_position(items[-1]) + 1 if items else stretch.low + 1
                is_last = stretch.page.next is None or low > stretch.last
                stretch = self._stretch(stretch.home, low, stretch.last, limit, stretch.shared) if not is_last else None

    def slots(self, keys: SessionKeys, positions: Sequence[int], *, consistent: bool = True) -> dict[int, Item]:
        """Return the existing commits that begin at these positions, by position.

        Takes one request, and more for commits older than a fork. Not ``consistent``, it costs half; commits that are missing then
        are read again.
        """
        items, lineage, shared, wanted = dict[int, Item](), [keys], MAX_POSITION, list(positions)
        places = list[tuple[SessionKeys, list[int], int]]()
        while wanted:
            places.append((lineage[-1], wanted, shared))
            own, fork = self._own_slots(lineage[-1], wanted, shared, consistent=consistent or len(places) > 1)
            items |= own
            if fork is None:
                break
            wanted = [position for position in wanted if position not in own and position < first_position(fork)]
            if wanted:
                _next(lineage, fork)
                shared = min(shared, shared_of(fork))
        for (child, *_), (parent, wanted, shared) in reversed(list(pairwise(places))):
            stored = [items[position] for position in wanted if position in items]
            if len(stored) < len(wanted) or is_tombstone(stored):
                moved = self._moved(child, parent, ())
                if moved is not None:
                    items = {position: item for position, item in items.items() if position not in wanted}
                    items |= self._own_slots(moved, wanted, shared)[0]
        return items

    def _own_slots(
        self, home: SessionKeys, positions: Sequence[int], shared: int, *, consistent: bool = True
    ) -> tuple[dict[int, Item], Item | None]:
        """Return the commits in one partition that begin at these positions; where some are missing, also a fork's first commit."""
        wanted = {home.commit(position): position for position in positions}
        stored = self._items.get_many(list(wanted), consistent=consistent)
        if not consistent and len(stored) < len(wanted):
            stored = self._items.get_many(list(wanted))
        items = {wanted[key]: item for key, item in stored.items() if first_position(item) == wanted[key]}
        fork: Item | None = None
        if len(items) < len(wanted):
            first = stored.get(home.commit(1)) or get_item(self._items, home.commit(1))
            fork = _checked_fork(first) if first is not None and "fp" in first else None
            if fork is not None and (begin := first_position(fork)) in positions:
                items.setdefault(begin, fork)
        return dict(zip(items, up_to(shared, list(items.values())), strict=True)), fork

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
