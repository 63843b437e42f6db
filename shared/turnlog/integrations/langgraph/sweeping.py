"""Deletes checkpoints but keeps the values that remaining checkpoints need.

A deleted checkpoint whose values are needed becomes hidden: only those values stay. Remaining data is never changed, so a crash
or a concurrent write at any point is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from turnlog.client.documents import Documents
from turnlog.core.errors import CorruptError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.loading import OWN_ANCESTOR, Loaded, Loader
from turnlog.integrations.langgraph.reading import Reader, StoredCheckpoint
from turnlog.integrations.langgraph.records import Elements, Large, Stored, Version
from turnlog.integrations.langgraph.threads import Namespace
from turnlog.integrations.langgraph.values import CheckpointValues, Needed, needed_by

_COUNTERS = "counters_since_delta_snapshot"
_BATCH = 25


@lazy_dataclass(frozen=True, slots=True)
class Sweep:
    """The checkpoints of a namespace by id, newest first, visible and hidden."""

    space: Namespace
    reader: Reader
    visible: Mapping[str, Loaded]
    hidden: Mapping[str, StoredCheckpoint]


def sweep_of(loader: Loader, documents: Documents, space: Namespace) -> Sweep:
    """Read all checkpoints of a namespace."""
    reader = Reader(documents, space)
    stored = {checkpoint.checkpoint_id: checkpoint for checkpoint in reader.walk()}
    visible = {
        name: loader.loaded(checkpoint) for name, checkpoint in stored.items() if not checkpoint.record.is_hidden
    }
    hidden = {name: checkpoint for name, checkpoint in stored.items() if checkpoint.record.is_hidden}
    return Sweep(space, reader, visible, hidden)


def newest_of(sweep: Sweep) -> set[str]:
    """Return the ids of the newest checkpoint and of the ancestors that its delta channels are built from."""
    kept = set[str]()
    for checkpoint_id, loaded in sweep.visible.items():
        kept.add(checkpoint_id)
        channels = set(loaded.metadata.get(_COUNTERS) or {})
        current: Loaded | None = loaded
        while current is not None and (channels := {name for name in channels if name not in _with_value(current)}):
            parent = current.stored.record.parent
            if parent in kept:
                raise CorruptError(OWN_ANCESTOR, item=parent)
            current = sweep.visible.get(parent) if parent is not None else None
            if current is not None:
                kept.add(current.stored.checkpoint_id)
        break
    return kept


def keep(sweep: Sweep, documents: Documents, kept: Collection[str]) -> None:
    """Delete every checkpoint that is not in ``kept``, and hidden values that no kept checkpoint needs."""
    needed, space = _needed(sweep, kept), sweep.space
    values = dict[str, set[tuple[str, Version]]]()
    for value in needed.values:
        values.setdefault(value.home, set()).add((value.channel, value.version))
    checkpoints = [*(loaded.stored for loaded in sweep.visible.values()), *sweep.hidden.values()]
    hidden, deleted, dropped = dict[str, bytes](), list[str](), set[str]()
    for checkpoint in (checkpoint for checkpoint in checkpoints if checkpoint.checkpoint_id not in kept):
        key = space.checkpoint(checkpoint.checkpoint_id)
        remainder = checkpoint.record.hidden(values.get(checkpoint.checkpoint_id, set()))
        dropped.update(_parts(old.stored for old in checkpoint.record.values if old not in remainder.values))
        if not remainder.values:
            deleted.append(key)
        elif remainder != checkpoint.record:
            hidden[key] = remainder.packed()
        for name, writes in checkpoint.writes.items():
            if (key := space.writes(checkpoint.checkpoint_id, name)) not in needed.writes:
                deleted.append(key)
                dropped.update(_parts(write.stored for write in writes.writes))
    names = list(hidden)
    for start in range(0, len(names), _BATCH):
        documents.put_many({name: hidden[name] for name in names[start : start + _BATCH]})
    documents.delete([*deleted, *sorted(dropped)])


@lazy_dataclass(frozen=True, slots=True)
class Use:
    """The values that kept checkpoints are built from, and the keys of the writes that they refer to."""

    values: set[Needed]
    writes: set[str]


def _with_value(loaded: Loaded) -> Mapping[str, Needed]:
    return needed_by(loaded.stored.checkpoint_id, loaded.stored.record, loaded.versions)


def _needed(sweep: Sweep, kept: Iterable[str]) -> Use:
    use, values, space = Use(set(), set()), CheckpointValues(sweep.reader, lambda *_: None), sweep.space
    for checkpoint_id in kept:
        loaded = sweep.visible[checkpoint_id]
        values.of(loaded.stored, loaded.versions)
        waiting = list(_with_value(loaded).values())
        while waiting:
            needed = waiting.pop()
            if needed in use.values:
                continue
            use.values.add(needed)
            stored = values.stored(needed)
            if isinstance(stored, Elements):
                use.writes.update(space.writes(item.checkpoint_id, item.task) for item in stored.written)
                if stored.base is not None:
                    waiting.append(Needed(stored.base.home, needed.channel, stored.base.version))
    return use


def _parts(values: Iterable[Stored]) -> set[str]:
    return {key for value in values if isinstance(value, Large) for key in value.keys}
