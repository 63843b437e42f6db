"""Reads the documents of a namespace: newest first for its checkpoints, and by their keys for values of older ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turnlog.client.documents import Documents
from turnlog.core.errors import CorruptError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.records import Checkpointed, Write, Writes, checkpoint_of, writes_of
from turnlog.integrations.langgraph.threads import Namespace, task_of

NEAR_DOCUMENTS = 100
"""Of older checkpoints: as many more are looked at before they are asked for by their keys."""


@lazy_dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint, and what was written to it, by the task's name."""

    checkpoint_id: str
    record: Checkpointed
    writes: Mapping[str, Writes]

    def ordered(self) -> list[tuple[str, Write]]:
        """Each write with its task's id, in order of `writes_sort_key`."""
        found = list[tuple[str, Write]]()
        for name, writes in self.writes.items():
            task_id = writes.task_id if writes.task_id is not None else task_of(name) or name
            found += [(task_id, one) for one in writes.writes]
        return sorted(found, key=lambda one: (one[1].path, one[0], one[1].index))


class Reader:
    """What was read is kept, for as long as the reader is there. ``documents`` are those of a session.

    One walk through the checkpoints begins at ``at`` or before ``below``. It is read in pages of a megabyte, and ``hint`` is the
    checkpoint that the first one ends with: nothing older may be needed.
    """

    def __init__(
        self,
        documents: Documents,
        space: Namespace,
        *,
        at: str | None = None,
        below: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.space = space
        self._documents = documents.reading()
        self._at = at
        self._after = space.above(at) if at is not None else space.checkpoint(below) if below is not None else None
        self._data: dict[str, bytes] = {}
        self._checkpoints: dict[str, Checkpointed] = {}
        self._writes: dict[str, Writes] = {}
        self._order = list[str]()
        self._pages = self._walked(hint)
        self._is_hinted = hint is not None

    def newest(self) -> StoredCheckpoint | None:
        return next(self.visible(), None)

    def exactly(self, checkpoint_id: str) -> StoredCheckpoint | None:
        """The one that the walk begins at."""
        found = next(self.walk(), None)
        if found is None or found.checkpoint_id != checkpoint_id or found.record.is_hidden:
            return None
        return found

    def visible(self) -> Iterator[StoredCheckpoint]:
        return (found for found in self.walk() if not found.record.is_hidden)

    def walk(self) -> Iterator[StoredCheckpoint]:
        """The checkpoints, newest first."""
        space, writes, place = self.space, dict[str, dict[str, Writes]](), 0
        while place < len(self._order) or self._pull():
            key = self._order[place]
            place += 1
            checkpoint_id, task = space.parsed(key)
            if task is not None:
                writes.setdefault(checkpoint_id, {})[task] = self.writes_at(key)
            elif self._at is None or key <= space.checkpoint(self._at):
                yield StoredCheckpoint(checkpoint_id, self.checkpoint_at(key), writes.pop(checkpoint_id, {}))

    def _pull(self) -> bool:
        """One document more of the walk."""
        key = next(self._pages, None)
        if key is not None:
            self._order.append(key)
        return key is not None

    def _walked(self, hint: str | None) -> Iterator[str]:
        after = self._after
        if hint is not None and (after is None or self.space.checkpoint(hint) < after):
            for key in self._listed(after=after, until=self.space.checkpoint(hint)):
                after = key
                yield key
        yield from self._listed(after=after)

    def _listed(self, **given: Any) -> Iterator[str]:
        for document in self._documents.list(self.space.prefix, order="desc", **given):
            self._data[document.key] = document.data
            yield document.key

    # ------------------------------------------------------------ by key

    def read_between(self, newest: str, oldest: str) -> None:
        """All from one checkpoint back to another one, and what was written to them."""
        first, last = self.space.checkpoint(newest), self.space.checkpoint(oldest)
        if self._order and first <= self._order[0]:
            while self._order[-1] > last and self._pull():
                pass
        else:
            for _ in self._listed(after=self.space.above(newest), until=last):
                pass

    def get(self, keys: Iterable[str]) -> None:
        """`CorruptError` where one is not there: it is named by what is there."""
        wanted = sorted(keys)
        if self._order and not self._is_hinted:
            for _ in range(NEAR_DOCUMENTS):  # they are in the page that was read, or that one has come to its end
                if all(key in self._data for key in wanted) or not self._pull():
                    break
        wanted = [key for key in wanted if key not in self._data]
        if not wanted:
            return
        found = self._documents.get_many(wanted)
        for key in wanted:
            if key not in found:
                raise CorruptError("a document of a checkpoint is missing", item=key)
            self._data[key] = found[key].data

    def find(self, checkpoint_id: str) -> Checkpointed | None:
        """A checkpoint by its id, hidden or not."""
        key = self.space.checkpoint(checkpoint_id)
        if key not in self._data:
            found = self._documents.get(key)
            if found is None:
                return None
            self._data[key] = found.data
        return self.checkpoint_at(key)

    def has(self, key: str) -> bool:
        return key in self._data

    def data(self, key: str) -> bytes:
        return self._data[key]

    def checkpoint_at(self, key: str) -> Checkpointed:
        """One that was read."""
        if key not in self._checkpoints:
            self._checkpoints[key] = checkpoint_of(self._data[key], item=key)
        return self._checkpoints[key]

    def writes_at(self, key: str) -> Writes:
        """Those that were read."""
        if key not in self._writes:
            self._writes[key] = writes_of(self._data[key], item=key)
        return self._writes[key]
