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
"""How many more documents of the walk are read before documents of older checkpoints are fetched by key."""


@lazy_dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint with the writes of its tasks, by task name."""

    checkpoint_id: str
    record: Checkpointed
    writes: Mapping[str, Writes]

    def ordered(self) -> list[tuple[str, Write]]:
        """Return each write with its task's id, in the order of LangGraph's `writes_sort_key`."""
        pairs = list[tuple[str, Write]]()
        for name, writes in self.writes.items():
            task_id = writes.task_id if writes.task_id is not None else task_of(name) or name
            pairs += [(task_id, write) for write in writes.writes]
        return sorted(pairs, key=lambda pair: (pair[1].path, pair[0], pair[1].index))


class Reader:
    """Reads the documents of one namespace and keeps what it has read. ``documents`` are those of a session.

    The walk through the checkpoints begins at ``start``, or before ``below``, and reads pages of a megabyte. ``hint`` is the
    checkpoint that ends the first page, because nothing older may be needed.
    """

    def __init__(
        self,
        documents: Documents,
        space: Namespace,
        *,
        start: str | None = None,
        below: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.space = space
        self._documents = documents.reading()
        self._at = start
        self._after = (
            space.above(start) if start is not None else space.checkpoint(below) if below is not None else None
        )
        self._data: dict[str, bytes] = {}
        self._checkpoints: dict[str, Checkpointed] = {}
        self._writes: dict[str, Writes] = {}
        self._order = list[str]()
        self._pages = self._walked(hint)
        self._is_hinted = hint is not None

    def newest(self) -> StoredCheckpoint | None:
        return next(self.visible(), None)

    def exactly(self, checkpoint_id: str) -> StoredCheckpoint | None:
        """Return the checkpoint at the start of the walk if it has this id and is visible, otherwise None."""
        stored = next(self.walk(), None)
        if stored is None or stored.checkpoint_id != checkpoint_id or stored.record.is_hidden:
            return None
        return stored

    def visible(self) -> Iterator[StoredCheckpoint]:
        return (stored for stored in self.walk() if not stored.record.is_hidden)

    def walk(self) -> Iterator[StoredCheckpoint]:
        """Yield the checkpoints, newest first, hidden ones too."""
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
        """Read one more document of the walk. Returns False at its end."""
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

    def _listed(self, **bounds: Any) -> Iterator[str]:
        for document in self._documents.list(self.space.prefix, order="desc", **bounds):
            self._data[document.key] = document.data
            yield document.key

    # ------------------------------------------------------------ by key

    def read_between(self, newest: str, oldest: str) -> None:
        """Read all documents from the checkpoint ``newest`` back to ``oldest``, with the writes of their tasks."""
        first, last = self.space.checkpoint(newest), self.space.checkpoint(oldest)
        if self._order and first <= self._order[0]:
            while self._order[-1] > last and self._pull():
                pass
        else:
            for _ in self._listed(after=self.space.above(newest), until=last):
                pass

    def get(self, keys: Iterable[str]) -> None:
        """Read the documents with these keys. Raises `CorruptError` when one is missing: other documents refer to it."""
        wanted_keys = sorted(keys)
        if self._order and not self._is_hinted:
            for _ in range(NEAR_DOCUMENTS):  # most often they are in the page already read
                if all(key in self._data for key in wanted_keys) or not self._pull():
                    break
        wanted_keys = [key for key in wanted_keys if key not in self._data]
        if not wanted_keys:
            return
        documents = self._documents.get_many(wanted_keys)
        for key in wanted_keys:
            if key not in documents:
                raise CorruptError("a document of a checkpoint is missing", item=key)
            self._data[key] = documents[key].data

    def find(self, checkpoint_id: str) -> Checkpointed | None:
        """Return the checkpoint with this id, hidden or not; None when it is missing."""
        key = self.space.checkpoint(checkpoint_id)
        if key not in self._data:
            document = self._documents.get(key)
            if document is None:
                return None
            self._data[key] = document.data
        return self.checkpoint_at(key)

    def has(self, key: str) -> bool:
        return key in self._data

    def data(self, key: str) -> bytes:
        return self._data[key]

    def checkpoint_at(self, key: str) -> Checkpointed:
        """Return the checkpoint of a document that has been read."""
        if key not in self._checkpoints:
            self._checkpoints[key] = checkpoint_of(self._data[key], item=key)
        return self._checkpoints[key]

    def writes_at(self, key: str) -> Writes:
        """Return the writes of a document that has been read."""
        if key not in self._writes:
            self._writes[key] = writes_of(self._data[key], item=key)
        return self._writes[key]
