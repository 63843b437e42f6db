"""Takes checkpoints away, and leaves what the others need of them.

A checkpoint whose values are needed is hidden: only they stay of it. Everything else of it is deleted. Nothing that stays is
changed, so that it makes no difference where this ends by a crash, nor what is written meanwhile.
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
    """The checkpoints of a namespace, newest first. Those that were hidden before are ``hidden``."""

    space: Namespace
    reader: Reader
    visible: Mapping[str, Loaded]
    hidden: Mapping[str, StoredCheckpoint]


def sweep_of(loader: Loader, documents: Documents, space: Namespace) -> Sweep:
    reader = Reader(documents, space)
    found = list(reader.walk())
    visible = {one.checkpoint_id: loader.loaded(one) for one in found if not one.record.is_hidden}
    return Sweep(space, reader, visible, {one.checkpoint_id: one for one in found if one.record.is_hidden})


def newest_of(sweep: Sweep) -> set[str]:
    """The newest checkpoint, and those that its delta channels are made of."""
    kept = set[str]()
    for checkpoint_id, loaded in sweep.visible.items():
        kept.add(checkpoint_id)
        left = set(loaded.metadata.get(_COUNTERS) or {})
        at: Loaded | None = loaded
        while at is not None and (left := {name for name in left if name not in _with_value(at)}):
            parent = at.found.record.parent
            if parent in kept:
                raise CorruptError(OWN_ANCESTOR, item=parent)
            at = sweep.visible.get(parent) if parent is not None else None
            if at is not None:
                kept.add(at.found.checkpoint_id)
        break
    return kept


def keep(sweep: Sweep, documents: Documents, kept: Collection[str]) -> None:
    """Deletes all checkpoints but those, and what nobody needs of those that were hidden."""
    needed, space = _needed(sweep, kept), sweep.space
    values = dict[str, set[tuple[str, Version]]]()
    for value in needed.values:
        values.setdefault(value.home, set()).add((value.channel, value.version))
    every = [*(one.found for one in sweep.visible.values()), *sweep.hidden.values()]
    hidden, deleted, dropped = dict[str, bytes](), list[str](), set[str]()
    for one in (found for found in every if found.checkpoint_id not in kept):
        key = space.checkpoint(one.checkpoint_id)
        left = one.record.hidden(values.get(one.checkpoint_id, set()))
        dropped.update(_parts(old.stored for old in one.record.values if old not in left.values))
        if not left.values:
            deleted.append(key)
        elif left != one.record:
            hidden[key] = left.packed()
        for name, writes in one.writes.items():
            if (key := space.writes(one.checkpoint_id, name)) not in needed.writes:
                deleted.append(key)
                dropped.update(_parts(write.stored for write in writes.writes))
    names = list(hidden)
    for at in range(0, len(names), _BATCH):
        documents.put_many({name: hidden[name] for name in names[at : at + _BATCH]})
    documents.delete([*deleted, *sorted(dropped)])


@lazy_dataclass(frozen=True, slots=True)
class Use:
    """What kept checkpoints are made of: values, and the keys of what tasks have written."""

    values: set[Needed]
    writes: set[str]


def _with_value(loaded: Loaded) -> Mapping[str, Needed]:
    return needed_by(loaded.found.checkpoint_id, loaded.found.record, loaded.versions)


def _needed(sweep: Sweep, kept: Iterable[str]) -> Use:
    use, values, space = Use(set(), set()), CheckpointValues(sweep.reader, lambda *_: None), sweep.space
    for checkpoint_id in kept:
        loaded = sweep.visible[checkpoint_id]
        values.of(loaded.found, loaded.versions)
        waiting = list(_with_value(loaded).values())
        while waiting:
            one = waiting.pop()
            if one in use.values:
                continue
            use.values.add(one)
            stored = values.stored(one)
            if isinstance(stored, Elements):
                use.writes.update(space.writes(item.checkpoint_id, item.task) for item in stored.written)
                if stored.base is not None:
                    waiting.append(Needed(stored.base.home, one.channel, stored.base.version))
    return use


def _parts(values: Iterable[Stored]) -> set[str]:
    return {key for one in values if isinstance(one, Large) for key in one.keys}
