"""What the tests of the LangGraph saver share: checkpoints to put, and the framework's saver in memory as a model."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from turnlog.integrations.langgraph import TurnlogSaver


def config(thread: str = "t", namespace: str | None = "", checkpoint_id: str | None = None) -> Any:
    values: dict[str, Any] = {"thread_id": thread}
    if namespace is not None:
        values["checkpoint_ns"] = namespace
    if checkpoint_id is not None:
        values["checkpoint_id"] = checkpoint_id
    return {"configurable": values}


def checkpoint(checkpoint_id: str, values: Mapping[str, Any], versions: Mapping[str, Any]) -> Any:
    return {
        "v": 4,
        "id": checkpoint_id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": dict(values),
        "channel_versions": dict(versions),
        "versions_seen": {},
        "updated_channels": None,
    }


class Branch:
    """Checkpoints one after the other: each with the values of the one before and new ones; None takes a value away."""

    def __init__(self, saver: Any, thread: str = "t", namespace: str = "") -> None:
        self.saver, self.thread, self.namespace = saver, thread, namespace
        self.values: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.at: str | None = None
        self.ids = list[str]()

    def put(self, checkpoint_id: str, metadata: Mapping[str, Any] | None = None, **values: Any) -> Any:
        new = {name: self.saver.get_next_version(self.versions.get(name), None) for name in values}
        self.versions = {**self.versions, **new}
        self.values = {name: item for name, item in {**self.values, **values}.items() if item is not None}
        outcome = checkpoint(checkpoint_id, self.values, self.versions)
        result = self.saver.put(config(self.thread, self.namespace, self.at), outcome, dict(metadata or {}), new)
        self.at = checkpoint_id
        self.ids.append(checkpoint_id)
        return result

    def get(self, checkpoint_id: str | None = None, saver: Any = None) -> CheckpointTuple | None:
        result: CheckpointTuple | None = (saver or self.saver).get_tuple(
            config(self.thread, self.namespace, checkpoint_id)
        )
        return result


class Model(InMemorySaver):
    """LangGraph's saver in memory, with what it leaves out."""

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread in thread_ids:
            for namespace, entry in self.storage[thread].items():
                self._drop(thread, namespace, [item for item in entry if item != max(entry)])

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        for thread, namespaces in self.storage.items():
            for namespace, entry in namespaces.items():
                gone = [
                    item
                    for item, (_, meta, _) in entry.items()
                    if self.serde.loads_typed(meta).get("run_id") in run_ids
                ]
                self._drop(thread, namespace, gone)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        for namespace, item in self.storage[source_thread_id].items():
            self.storage[target_thread_id][namespace].update(copy.deepcopy(item))
        for (thread, *rest), writes in list(self.writes.items()):
            if thread == source_thread_id:
                self.writes[target_thread_id, rest[0], rest[1]].update(writes)
        for (thread, *rest), blob in list(self.blobs.items()):
            if thread == source_thread_id:
                self.blobs[target_thread_id, rest[0], rest[1], rest[2]] = blob

    def _drop(self, thread: str, namespace: str, gone: Sequence[str]) -> None:
        for item in gone:
            del self.storage[thread][namespace][item]
            self.writes.pop((thread, namespace, item), None)


def plain(found: CheckpointTuple | None) -> Any:
    return None if found is None else tuple(found)


def everything(saver: TurnlogSaver | Model, thread: str) -> Iterator[Any]:
    yield sorted((plain(item) for item in saver.list(config(thread, None))), key=repr)
