"""A LangGraph checkpointer (langgraph-checkpoint 4.3): https://docs.langchain.com/oss/python/langgraph/persistence.

    from turnlog.integrations.langgraph import TurnlogSaver

    graph = builder.compile(checkpointer=TurnlogSaver(log))
    graph.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "support-42"}})

A thread is a session; its checkpoints are documents of the session. Unchanged data is not written again: a channel's value is
stored once, and a list as its new elements. Elements that a task has already written are stored as references to that write.
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

from turnlog.client.async_calls import finished
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.integrations.langgraph.checkpointing import CheckpointBuilder, IncomingCheckpoint
from turnlog.integrations.langgraph.elements import is_by_element
from turnlog.integrations.langgraph.known import CheckpointMemory
from turnlog.integrations.langgraph.loading import Histories, Loaded, Loader, matches
from turnlog.integrations.langgraph.records import Elements, Stored, Typed, WholeValue, Write
from turnlog.integrations.langgraph.sweeping import keep, newest_of, sweep_of
from turnlog.integrations.langgraph.threads import Namespace, ThreadSessions
from turnlog.integrations.langgraph.values import CheckpointValues
from turnlog.integrations.langgraph.writing import Writer

_UNKNOWN = ""
"""Stands for the parent's id until its child has been read."""


class TurnlogSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer over the sessions of one owner.

    The session of a thread is created with its first checkpoint; ``settings`` are those of `Sessions.create`. Once `put` returns,
    every reader in any process sees the checkpoint. A checkpoint with a missing part raises `CorruptError`; an older one is never
    returned in its place. When a caller is cancelled during a write, the write completes first and then the cancellation is raised.
    """

    def __init__(self, log: Turnlog, *, serde: SerializerProtocol | None = None, **settings: Any) -> None:
        super().__init__(serde=serde)
        self._threads = ThreadSessions(log, settings)
        self._memory = CheckpointMemory()

    # ------------------------------------------------------------ reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        space, checkpoint_id = _space(config), get_checkpoint_id(config) or None
        result = self._loader.find(space, checkpoint_id)
        if result is None:
            return None
        loaded, values = result
        answer = self._tuple(space, loaded, values, config if checkpoint_id else None)
        self._loader.remember(space, loaded, values)
        return answer

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first, over every namespace and thread that ``config`` selects."""
        below = get_checkpoint_id(before) if before is not None else None
        wanted = get_checkpoint_id(config) if config is not None else None
        streams = [self._iter_checkpoints(space, wanted, below or None) for space in self._spaces(config)]
        remaining = limit
        for _, _, space, loaded, values in heapq.merge(*streams, key=lambda entry: entry[:2], reverse=True):
            if remaining is not None and remaining <= 0:
                return
            if matches(loaded.metadata, filter):
                remaining = remaining - 1 if remaining is not None else None
                yield self._tuple(space, loaded, values, None)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history of each channel, read in one walk back with a request per megabyte.

        A parent with a greater id than its child, written after a clock went back, costs one more walk.
        """
        if not channels:
            return {}
        space, histories = _space(config), Histories(self._loader, channels)
        checkpoint_id, seen = get_checkpoint_id(config) or None, set[str]()
        parent = self._add_ancestors(histories, space, checkpoint_id, _UNKNOWN)
        while parent is not None and parent not in seen:
            seen.add(parent)
            parent = self._add_ancestors(histories, space, parent, parent)
        return histories.all()

    def _add_ancestors(
        self, histories: Histories, space: Namespace, start: str | None, parent: str | None
    ) -> str | None:
        """Add ``parent`` and its ancestors to ``histories`` while ids decrease from ``start``.

        With `_UNKNOWN` as parent, the walk begins at the parent of the checkpoint ``start`` or of the newest one. Returns the
        ancestor where the next walk begins, or None when the histories are complete.
        """
        loader = self._loader
        reader = loader.reader(space, start=start)
        values = loader.values_of(reader)
        with suppress(NotFoundError):
            for stored in reader.walk():
                if parent == _UNKNOWN:
                    if start not in (None, stored.checkpoint_id):
                        return None
                    parent = stored.record.parent if not stored.record.is_hidden else parent
                elif stored.checkpoint_id == parent and not stored.record.is_hidden:
                    histories.add(loader.loaded(stored), values)
                    parent = stored.record.parent
                if parent is None or histories.is_done:
                    return None
                if parent and space.checkpoint(parent) >= space.checkpoint(stored.checkpoint_id):
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
        rest: dict[str, Any] = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        incoming = IncomingCheckpoint(
            checkpoint["id"],
            parent,
            self._dump(rest),
            self._dump(get_checkpoint_metadata(config, metadata)),
            checkpoint["channel_versions"],
            new_versions,
            {name: value for name, value in checkpoint["channel_values"].items() if name in new_versions},
        )
        older = incoming.older
        parent_state = self._loader.known(space, parent) if parent and (older or incoming.has_lists) else None
        builder = CheckpointBuilder(
            space,
            incoming,
            dump=self._dump,
            before=parent_state,
            written=self._memory.written(space, parent) if parent and parent <= incoming.checkpoint_id else {},
            homes=self._loader.homes(space, parent_state, older),
        )
        record = builder.record()
        size = Writer(self._threads, self._memory).put_checkpoint(space, incoming.checkpoint_id, record, builder.parts)
        self._memory.remember(space, incoming.checkpoint_id, builder.known(size))
        return _config(space, incoming.checkpoint_id, config["configurable"]["thread_id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        records = [
            Write(WRITES_IDX_MAP.get(channel, index), channel, task_path, self._stored(value))
            for index, (channel, value) in enumerate(writes)
        ]
        if records:
            checkpoint_id = config["configurable"]["checkpoint_id"]
            Writer(self._threads, self._memory).put_writes(_space(config), checkpoint_id, task_id, records)

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        number = current if isinstance(current, int) else int(current.split(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"

    # ------------------------------------------------------------ threads

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread. Its session and messages stay, and the thread can be used again."""
        self._memory.forget(thread_id=str(thread_id))
        self._threads.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs. Reads all threads of the owner."""
        runs = set(run_ids)
        for thread_id in self._threads.all() if runs else ():
            for space in self._threads.spaces(thread_id):
                documents = self._threads.documents(thread_id)
                sweep = sweep_of(self._loader, documents, space)
                kept = {name for name, loaded in sweep.visible.items() if loaded.metadata.get("run_id") not in runs}
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

    # ------------------------------------------------------------ async variants

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
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        while (checkpoint := await asyncio.to_thread(next, checkpoints, None)) is not None:
            yield checkpoint

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

    # ------------------------------------------------------------ helpers

    @property
    def _loader(self) -> Loader:
        return Loader(self._threads, self._memory, self.serde.loads_typed)

    def _dump(self, value: Any) -> Typed:
        kind, data = self.serde.dumps_typed(value)
        return kind, bytes(data)  # a serializer may return a bytearray

    def _stored(self, value: Any) -> Stored:
        if is_by_element(value):
            return Elements(None, tuple(map(self._dump, value)))
        return WholeValue(self._dump(value))

    def _spaces(self, config: RunnableConfig | None) -> Sequence[Namespace]:
        if config is None:
            return [space for thread_id in self._threads.all() for space in self._threads.spaces(thread_id)]
        thread_id, namespace = str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns")
        return self._threads.spaces(thread_id) if namespace is None else [Namespace(thread_id, namespace)]

    def _iter_checkpoints(
        self, space: Namespace, wanted: str | None, below: str | None
    ) -> Iterator[tuple[str, str, Namespace, Loaded, CheckpointValues]]:
        """Yield the visible checkpoints of a namespace; with ``wanted`` only that one, if its id is less than ``below``."""
        checkpoint_id = wanted or None
        if checkpoint_id is not None and below is not None and checkpoint_id >= below:
            return
        reader = self._loader.reader(space, start=checkpoint_id, below=None if checkpoint_id else below)
        values = self._loader.values_of(reader)
        try:
            for stored in reader.visible():
                if checkpoint_id is not None and stored.checkpoint_id != checkpoint_id:
                    return
                yield stored.checkpoint_id, space.thread_id, space, self._loader.loaded(stored), values
        except NotFoundError:
            return

    def _tuple(
        self, space: Namespace, loaded: Loaded, values: CheckpointValues, config: RunnableConfig | None
    ) -> CheckpointTuple:
        stored, loader = loaded.stored, self._loader
        checkpoint: Any = {**loaded.checkpoint, "channel_values": loader.values(loaded, values)}
        metadata: Any = loaded.metadata
        parent = stored.record.parent
        return CheckpointTuple(
            config if config is not None else _config(space, stored.checkpoint_id),
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
