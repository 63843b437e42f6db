"""Items of commits wherever they are: of a fork, what came before it is in the partition of the session it was forked from.

A fork's first commit is stored where every session begins, in slot 1, and tells its own position (``fp``), whose log goes on
before it (``bs``: a session's id, or empty for the fork's own base) and up to which position it is shared (``fa``). So one
conditional put makes a fork, and one makes it independent of a session that is erased.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from turnlog.core.errors import CorruptError
from turnlog.log.headers import item_name, log_key
from turnlog.log.keys import MAX_POSITION, SessionKeys, commit_sort_key, position_of
from turnlog.log.tombstones import is_slot_tombstone
from turnlog.log.verified import VERIFIED
from turnlog.ports import Item, ItemTable, Page, Query

MAX_EVENTS = 26
"""Of a commit: so far back at most begins the one that holds a position."""


_OF_FORKS = frozenset({"fp", "bs", "fa"})


class CommitItems:
    """Reads the items of commits of sessions."""

    def __init__(self, items: ItemTable) -> None:
        self._items = items

    def back(
        self,
        keys: SessionKeys,
        last: int = MAX_POSITION,
        first: int = 1,
        *,
        limit: int | None = None,
        first_limit: int | None = None,
        fork: Item | None = None,
    ) -> Iterator[Sequence[Item]]:
        """Pages of commits that hold positions from ``last`` back to ``first``, newest first; one request each.

        ``first_limit`` counts the items of the first page, ``limit`` of the others. Older commits than that of ``first`` may be
        among them. Nothing when there is no session. ``fork`` is the session's first commit where that has been read already,
        and ``last`` lies before it.
        """
        home, reached, size = keys, last + 1, first_limit or limit
        child: SessionKeys | None = None
        shared, way = MAX_POSITION, [keys]
        if fork is not None:
            child, home, shared = keys, _next(way, fork), shared_of(fork)
        while reached > first:
            page = self._page(home, max(1, first - MAX_EVENTS + 1), reached - 1, descending=True, limit=size)
            found = [item for item in page.items if first_position(item) < reached]
            moved = self._moved(child, home, found) if child is not None else None
            if moved is not None:
                home = moved
                continue
            if found:
                reached, size = first_position(found[-1]), limit
                yield up_to(shared, found)
            if page.next is not None and found:
                continue
            if reached <= first or is_tombstone(found):
                return
            fork = self._fork(home, page)
            if fork is None:
                return
            if first <= first_position(fork) < reached:
                reached = first_position(fork)
                yield [fork]
            reached = min(reached, first_position(fork))
            child, home, shared = home, _next(way, fork), min(shared, shared_of(fork))

    def on(
        self,
        keys: SessionKeys,
        first: int,
        last: int = MAX_POSITION,
        *,
        limit: int | None = None,
        exact: bool = False,
        way: Sequence[SessionKeys] = (),
    ) -> Iterator[Sequence[Item]]:
        """Pages of commits that hold positions from ``first`` to ``last``, oldest first; one request each.

        ``exact``: a commit begins at ``first``; else an older one may be among them. ``way`` are the forks that lead here.
        """
        low, is_begun = first if exact else max(1, first - MAX_EVENTS + 1), False
        while low <= last:
            page = self._page(keys, low, last, descending=False, limit=limit)
            found = [item for item in page.items if "fp" not in item]
            if not is_begun and (not found or first_position(found[0]) > first):
                yield from self._before([*way, keys], page, first, last, limit, exact=exact)
            is_begun = True
            if found:
                yield found
                low = first_position(found[-1]) + 1
            if page.next is None or not page.items:
                return
            if not found:
                low += 1

    def slots(self, keys: SessionKeys, positions: Sequence[int], *, way: Sequence[SessionKeys] = ()) -> dict[int, Item]:
        """The commits that begin at these positions, as far as they exist: one request, and more for what is older than a
        fork. ``way`` are the forks that lead here."""
        wanted = {keys.commit(position): position for position in positions}
        stored = self._items.get_many(list(wanted)) if wanted else {}
        found = {wanted[key]: item for key, item in stored.items() if first_position(item) == wanted[key]}
        missing = [position for position in wanted.values() if position not in found]
        if not missing:
            return found
        fork = stored.get(keys.commit(1)) or self._items.get_many([keys.commit(1)]).get(keys.commit(1))
        if fork is None or "fp" not in fork:
            return found
        begin = first_position(_checked_fork(fork))
        if begin in missing:
            found[begin] = fork
        older = [position for position in missing if position < begin]
        shared = self._older_slots([*way, keys], fork, older) if older else {}
        return found | dict(zip(shared, up_to(shared_of(fork), list(shared.values())), strict=True))

    def _older_slots(self, way: list[SessionKeys], fork: Item, positions: Sequence[int]) -> dict[int, Item]:
        keys, parent = way[-1], _next(way, fork)
        found = self.slots(parent, positions, way=way[:-1])
        if len(found) == len(positions) and not is_tombstone(list(found.values())):
            return found
        moved = self._moved(keys, parent, ())
        return self.slots(moved, positions) if moved is not None else found

    def _before(
        self, way: list[SessionKeys], page: Page, first: int, last: int, limit: int | None, *, exact: bool
    ) -> Iterator[Sequence[Item]]:
        """What is older than a fork's own commits, and its first commit. The fork is the last on the ``way``."""
        keys = way[-1]
        fork = self._fork(keys, page)
        if fork is None:
            return
        begin = first_position(fork)
        if first < begin:
            parent, until = _next(way, fork), min(last, begin - 1)
            pages = self.on(parent, first, until, limit=limit, exact=exact, way=way[:-1])
            newest = next(pages, ())
            moved = self._moved(keys, parent, newest)
            if moved is not None:
                newest, pages = (), self.on(moved, first, until, limit=limit, exact=exact)
            for older in chain([newest] if newest else [], pages):
                yield up_to(shared_of(fork), older)
        if begin <= last:
            yield [fork]

    def _fork(self, home: SessionKeys, page: Page) -> Item | None:
        """The first commit of a fork; None for a session that is none."""
        found = next((item for item in page.items if "fp" in item), None)
        if found is None:
            key = home.commit(1)
            found = self._items.get_many([key]).get(key)
        return _checked_fork(found) if found is not None and "fp" in found else None

    def _moved(self, child: SessionKeys, parent: SessionKeys, found: Sequence[Item]) -> SessionKeys | None:
        """Where a fork's log goes on now, if that is no longer where nothing was found: the parent is being erased."""
        if found and not is_tombstone(found):
            return None
        fork = self._items.get_many([child.commit(1)]).get(child.commit(1))
        now = parent_of(child, fork) if fork is not None and "fp" in fork else parent
        return now if now != parent else None

    def _page(self, home: SessionKeys, low: int, high: int, *, descending: bool, limit: int | None) -> Page:
        high_key = commit_sort_key(min(high, MAX_POSITION))
        return self._items.query(
            Query(home.partition, commit_sort_key(low), high_key, descending=descending, limit=limit)
        )


def _checked_fork(fork: Item) -> Item:
    """Return the first commit of a fork, whose pointer is what its event says; else raise the `CorruptError` that names it."""
    if not is_slot_tombstone(fork):
        VERIFIED.of(fork)
    return fork


def parent_of(home: SessionKeys, fork: Item) -> SessionKeys:
    """Where the log goes on before a fork that is stored in ``home``."""
    parent = fork.get("bs", "")
    if not isinstance(parent, str):
        raise CorruptError("a fork does not say of which session", item=item_name(fork))
    return SessionKeys(home.owner, parent) if parent else home.base


def _next(way: list[SessionKeys], fork: Item) -> SessionKeys:
    """Return where the log goes on before a fork, and add it to the ``way`` of forks that ends with this one."""
    parent = parent_of(way[-1], fork)
    if parent in way:
        raise CorruptError("a fork is its own ancestor", item=item_name(fork))
    way.append(parent)
    return parent


def shared_of(fork: Item) -> int:
    """The position up to which a fork shares the log before it. The commit there may go on in the log that it is shared with."""
    shared = fork.get("fa", MAX_POSITION)
    if not isinstance(shared, int):
        raise CorruptError("a fork does not say how much it shares", item=item_name(fork))
    return shared


def up_to(position: int, items: Sequence[Item]) -> Sequence[Item]:
    """Commits of a log of which a fork shares what comes up to a position: the one that goes on behind it says so (``fu``),
    also where a fork of a fork shares less of it."""
    if not any(_is_behind(item, position) for item in items):
        return items
    return [{**item, "fu": position} if _is_behind(item, position) else item for item in items]


def shared_position(item: Item, position: int) -> int:
    """A position of a commit; the end of what is shared of it where the position is behind that."""
    shared = item.get("fu")
    return min(position, shared) if isinstance(shared, int) else position


def _is_behind(item: Item, position: int) -> bool:
    last = item.get("l")
    return isinstance(last, int) and shared_position(item, last) > position


def is_tombstone(items: Sequence[Item]) -> bool:
    return any(map(is_slot_tombstone, items))


def logged(item: Item) -> Item:
    """A commit's item as it would be stored in the log of a session that shares it with no other. ``fu`` stays: what lies behind
    that is no part of the session."""
    return {name: value for name, value in item.items() if name not in _OF_FORKS} | {"sk": log_key(item)}


def first_position(item: Item) -> int:
    """The position that a commit begins at, in its log."""
    return position_of(log_key(item))
