"""Forks of a session that is about to be erased: what they share is copied for each of them, then they are told where it is.

The copy is invisible until one conditional put has moved the fork's pointer, and a reader that finds the parent's log gone reads
the pointer again; so every reader sees the whole of it at any time. Done again after a crash it is the same copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnlog.log.commit_items import first_position, parent_of, shared_of, shared_position
from turnlog.log.commits import CommitLog, read_commit, stored_lines
from turnlog.log.headers import hashed_header, item_name, log_key
from turnlog.log.keys import FORKS_FROM, FORKS_TO, MAX_POSITION, SessionKeys
from turnlog.log.packing import pack
from turnlog.log.payloads import Payloads
from turnlog.log.redacted_lines import hidden
from turnlog.ports import Equal, Item, ItemTable, Query, item_size_bytes

_POINTER = ("fp", "bs", "fa")


class Forks:
    """Makes forks independent of a session."""

    def __init__(self, items: ItemTable, payloads: Payloads, commits: CommitLog) -> None:
        self._items = items
        self._payloads = payloads
        self._commits = commits

    def of(self, keys: SessionKeys) -> Iterator[SessionKeys]:
        """The sessions that were, or were about to be, forked from this one."""
        after = None
        while True:
            page = self._items.query(Query(keys.partition, FORKS_FROM, FORKS_TO, after=after))
            for item in page.items:
                yield SessionKeys(keys.owner, item_name(item)[len(FORKS_FROM) :])
            after = page.next
            if after is None:
                return

    def make_independent(self, keys: SessionKeys) -> int:
        """Gives every fork that shares this session's log a base of its own. Returns how many.

        Nobody may be able to fork the session any more: then a fork that has no first commit yet will have none.
        """
        done = 0
        for child in self.of(keys):
            item = self._items.get_many([child.commit(1)]).get(child.commit(1))
            if item is None or "fp" not in item or parent_of(child, item) != keys:
                continue
            for page in self._commits.stored.on(keys, 1, first_position(item) - 1):
                self._copy(child, page, shared_of(item))
            self._items.put({**item, "bs": ""}, condition=Equal("bs", keys.session_id))
            done += 1
        return done

    def _copy(self, child: SessionKeys, found: Sequence[Item], shared: int) -> None:
        """Commits to a fork's base, after what they have out of line; nothing of what lies behind the end of what it shares."""
        base, page = child.base, [as_shared(item, shared) for item in found]
        for item in page:
            self._payloads.copy(base, read_commit(item).payloads)
        self._items.write_many(
            [
                {name: value for name, value in item.items() if name not in _POINTER}
                | {"pk": base.partition, "sk": log_key(item)}
                for item in page
            ]
        )


def as_shared(item: Item, shared: int = MAX_POSITION) -> Item:
    """A commit as a fork may have it: what lies behind the end of what it shares is hidden, also by the commit's own ``fu``."""
    end, last = shared_position(item, shared), item.get("l")
    if not isinstance(last, int) or last <= end:
        return item
    first = first_position(item)
    lines = [line if first + at <= end else hidden(line) for at, line in enumerate(stored_lines(item))]
    bare = {name: value for name, value in item.items() if name != "b"}
    covered = hashed_header(log_key(item), item)
    return {**bare, "b": pack(b"\n".join(lines), beside=covered, item_bytes=item_size_bytes(bare) + 1)}
