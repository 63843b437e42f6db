"""A saver of LangGraph's checkpoints (langgraph-checkpoint 4.3): https://docs.langchain.com/oss/python/langgraph/persistence.

    from turnlog.integrations.langgraph import TurnlogSaver

    graph = builder.compile(checkpointer=TurnlogSaver(log))
    graph.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "support-42"}})

A thread is a session, and its checkpoints are documents of it. What did not change is not written again: the value of a channel is
stored once, a list as what has come to it, and what a task has written is named where it is the same.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from turnlog.client.model import Turnlog
from turnlog.client.threads import finished
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.integrations.langgraph.checkpointing import Given, Making
from turnlog.integrations.langgraph.elements import is_by_element
from turnlog.integrations.langgraph.known import CheckpointMemory
from turnlog.integrations.langgraph.loading import Histories, Loaded, Loader, matches
from turnlog.integrations.langgraph.records import Elements, Stored, Typed, WholeValue, Write
from turnlog.integrations.langgraph.sweeping import keep, newest_of, sweep_of
from turnlog.integrations.langgraph.threads import Namespace, ThreadSessions
from turnlog.integrations.langgraph.values import CheckpointValues
from turnlog.integrations.langgraph.writing import Writer

_UNKNOWN = ""
"""In place of a parent's id, before its child is read."""


class TurnlogSaver(BaseCheckpointSaver[str]):
    """The checkpoints of an owner's threads. The session of a thread is made when its first checkpoint comes, with ``settings``
    of `Sessions.create`.

    A checkpoint that was put is seen by every reader from then on, in any process; one of which a part is missing is
    `CorruptError`, never an older one. A mutation is done to its end when its caller is cancelled, who is then told so.
    """

    def __init__(self, log: Turnlog, *, serde: SerializerProtocol | None = None, **settings: Any) -> None:
        super().__init__(serde=serde)
        self._threads = ThreadSessions(log, settings)
        self._memory = CheckpointMemory()

    # ------------------------------------------------------------ reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        space, checkpoint_id = _space(config), get_checkpoint_id(config) or None
        one = self._loader.one(space, checkpoint_id)
        if one is None:
            return None
        loaded, values = one
        found = self._tuple(space, loaded, values, config if checkpoint_id else None)
        self._loader.remember(space, loaded, values)
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Newest first, over all namespaces and threads that are asked for."""
        below = get_checkpoint_id(before) if before is not None else None
        wanted = get_checkpoint_id(config) if config is not None else None
        ways = [self._way(space, wanted, below or None) for space in self._spaces(config)]
        left = limit
        for _, _, space, loaded, values in heapq.merge(*ways, key=lambda one: one[:2], reverse=True):
            if left is not None and left <= 0:
                return
            if matches(loaded.metadata, filter):
                left = left - 1 if left is not None else None
                yield self._tuple(space, loaded, values, None)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """In one walk back, a request for each megabyte of it, and one more walk for each parent whose id is the greater one: a
        clock went back."""
        if not channels:
            return {}
        space, histories = _space(config), Histories(self._loader, channels)
        at, seen = get_checkpoint_id(config) or None, set[str]()
        parent = self._add_ancestors(histories, space, at, _UNKNOWN)
        while parent is not None and parent not in seen:
            seen.add(parent)
            parent = self._add_ancestors(histories, space, parent, parent)
        return histories.all()

    def _add_ancestors(self, histories: Histories, space: Namespace, at: str | None, parent: str | None) -> str | None:
        """Adds ``parent`` and its ancestors, as far as ids decrease from ``at``; those of the newest checkpoint there for
        `_UNKNOWN`. The ancestor to go on with."""
        loader = self._loader
        reader = loader.reader(space, at=at)
        values = loader.values_of(reader)
        with suppress(NotFoundError):
            for found in reader.walk():
                if parent == _UNKNOWN:
                    if at not in (None, found.checkpoint_id):
                        return None
                    parent = found.record.parent if not found.record.is_hidden else parent
                elif found.checkpoint_id == parent and not found.record.is_hidden:
                    histories.add(loader.loaded(found), values)
                    parent = found.record.parent
                if parent is None or histories.is_done:
                    return None
                if parent and space.checkpoint(parent) >= space.checkpoint(found.checkpoint_id):
                    return parent
        return None

    # ------------------------------------------------------------ writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        space, parent = _space(config), get_checkpoint_id(config) or None
        rest: dict[str, Any] = {name: one for name, one in checkpoint.items() if name != "channel_values"}
        given = Given(
            checkpoint["id"],
            parent,
            self._dump(rest),
            self._dump(get_checkpoint_metadata(config, metadata)),
            checkpoint["channel_versions"],
            new_versions,
            {name: one for name, one in checkpoint["channel_values"].items() if name in new_versions},
        )
        older = given.older
        known = self._loader.known(space, parent) if parent and (older or given.has_lists) else None
        making = Making(
            space,
            given,
            dump=self._dump,
            before=known,
            written=self._memory.written(space, parent) if parent and parent <= given.checkpoint_id else {},
            homes=self._loader.homes(space, known, older),
        )
        record = making.record()
        size = Writer(self._threads, self._memory).put_checkpoint(space, given.checkpoint_id, record, making.parts)
        self._memory.remember(space, given.checkpoint_id, making.known(size))
        return _config(space, given.checkpoint_id, config["configurable"]["thread_id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        given = [
            Write(WRITES_IDX_MAP.get(channel, at), channel, task_path, self._stored(value))
            for at, (channel, value) in enumerate(writes)
        ]
        if given:
            checkpoint_id = config["configurable"]["checkpoint_id"]
            Writer(self._threads, self._memory).put_writes(_space(config), checkpoint_id, task_id, given)

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        number = current if isinstance(current, int) else int(current.split(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"

    # ------------------------------------------------------------ threads

    def delete_thread(self, thread_id: str) -> None:
        """Deletes everything of a thread. Its session stays, with its messages if it has any, and the thread can be used again."""
        self._memory.forget(thread_id=str(thread_id))
        self._threads.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Looks through all threads of the owner."""
        gone = set(run_ids)
        for thread_id in self._threads.all() if gone else ():
            for space in self._threads.spaces(thread_id):
                documents = self._threads.documents(thread_id)
                sweep = sweep_of(self._loader, documents, space)
                kept = {name for name, one in sweep.visible.items() if one.metadata.get("run_id") not in gone}
                if len(kept) < len(sweep.visible):
                    keep(sweep, documents, kept)
                    self._memory.forget([space])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._memory.forget(thread_id=str(target_thread_id))
        self._threads.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError(f"strategy {strategy!r} is not one of 'keep_latest' and 'delete'")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            for space in self._threads.spaces(thread_id):
                documents = self._threads.documents(thread_id)
                sweep = sweep_of(self._loader, documents, space)
                keep(sweep, documents, newest_of(sweep))
                self._memory.forget([space])

    # ------------------------------------------------------------ of a coroutine

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await finished(lambda: self.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await finished(lambda: self.put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await finished(lambda: self.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await finished(lambda: self.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await finished(lambda: self.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await finished(lambda: self.prune(thread_ids, strategy=strategy))

    # ------------------------------------------------------------ steps

    @property
    def _loader(self) -> Loader:
        return Loader(self._threads, self._memory, self.serde.loads_typed)

    def _dump(self, value: Any) -> Typed:
        kind, data = self.serde.dumps_typed(value)
        return kind, bytes(data)  # that of a bytearray is the array itself

    def _stored(self, value: Any) -> Stored:
        if is_by_element(value):
            return Elements(None, tuple(map(self._dump, value)))
        return WholeValue(self._dump(value))

    def _spaces(self, config: RunnableConfig | None) -> Sequence[Namespace]:
        if config is None:
            return [space for thread_id in self._threads.all() for space in self._threads.spaces(thread_id)]
        thread_id, namespace = str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns")
        return self._threads.spaces(thread_id) if namespace is None else [Namespace(thread_id, namespace)]

    def _way(
        self, space: Namespace, wanted: str | None, below: str | None
    ) -> Iterator[tuple[str, str, Namespace, Loaded, CheckpointValues]]:
        """The checkpoints of a namespace; or that one, if it is before ``below``."""
        at = wanted or None
        if at is not None and below is not None and at >= below:
            return
        reader = self._loader.reader(space, at=at) if at else self._loader.reader(space, below=below)
        values = self._loader.values_of(reader)
        try:
            for found in reader.visible():
                if at is not None and found.checkpoint_id != at:
                    return
                yield found.checkpoint_id, space.thread_id, space, self._loader.loaded(found), values
        except NotFoundError:
            return

    def _tuple(
        self, space: Namespace, loaded: Loaded, values: CheckpointValues, config: RunnableConfig | None
    ) -> CheckpointTuple:
        found, loader = loaded.found, self._loader
        checkpoint: Any = {**loaded.checkpoint, "channel_values": loader.values(loaded, values)}
        metadata: Any = loaded.metadata
        parent = found.record.parent
        return CheckpointTuple(
            config if config is not None else _config(space, found.checkpoint_id),
            checkpoint,
            metadata,
            _config(space, parent) if parent is not None else None,
            loader.writes(loaded, values),
        )


def _space(config: RunnableConfig) -> Namespace:
    configurable = config["configurable"]
    return Namespace(str(configurable["thread_id"]), configurable.get("checkpoint_ns", ""))


def _config(space: Namespace, checkpoint_id: str, thread_id: Any = None) -> RunnableConfig:
    thread = space.thread_id if thread_id is None else thread_id
    return {"configurable": {"thread_id": thread, "checkpoint_ns": space.namespace, "checkpoint_id": checkpoint_id}}
