"""A LangGraph checkpointer (langgraph-checkpoint 4.3): https://docs.langchain.com/oss/python/langgraph/persistence.

    from turnlog.integrations.langgraph import TurnlogSaver

    graph = builder.compile(checkpointer=TurnlogSaver(log))
    graph.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "support-42"}})

A thread is a session; its checkpoints are documents of the session, its messages are those of the session's log. Unchanged data
is not written again: a channel's value is stored once, and a list as its new elements.

A sweep deletes checkpoints but keeps the values that remaining checkpoints need: a deleted checkpoint with such values becomes
hidden. Remaining data is never changed, so a crash or a concurrent write at any point is safe.
"""

from __future__ import annotations

import asyncio
import builtins
import heapq
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import BaseMessage
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
from langgraph.config import get_config

from turnlog.client import GivenPolicy
from turnlog.client.async_calls import in_thread, to_end
from turnlog.client.documents import Documents
from turnlog.client.model import Turnlog
from turnlog.core.errors import CorruptError, InvalidInputError, NotFoundError
from turnlog.core.json_values import without_none
from turnlog.integrations.langgraph.known import CheckpointCache, KnownCheckpoint, ListState, is_by_element
from turnlog.integrations.langgraph.reading import CheckpointValues, Loader, Plain, Reader, StoredCheckpoint
from turnlog.integrations.langgraph.records import Elements, Stored, Typed, Version, WholeValue, Write, part_keys
from turnlog.integrations.langgraph.threads import Namespace, ThreadSessions
from turnlog.integrations.langgraph.writing import CheckpointBuilder, Writer

if TYPE_CHECKING:
    from turnlog.integrations.langgraph.thread_log import ThreadLogs
    from turnlog.integrations.originals import Limits

_COUNTERS = "counters_since_delta_snapshot"
_IN_SUBGRAPH = "|"
"""Separates the names of nodes in the namespace of a subgraph's node."""
_BRANCHES = ("fork", "update")
"""Sources of checkpoints that may begin another branch with messages that an older one had."""
_AGENT = ("ls_integration", "langchain_create_agent")
"""Entry of a run's metadata by which LangChain names its agents: their middleware may change a message before it is kept."""


def needed_by_newest(visible: Mapping[str, StoredCheckpoint]) -> set[str]:
    """Return the ids of the newest checkpoint, the first of ``visible``, and of the ancestors that its delta channels need."""
    current = next(iter(visible.values()), None)
    channels = set(current.metadata.get(_COUNTERS) or {}) if current is not None else set()
    kept = set[str]()
    while current is not None:
        kept.add(current.checkpoint_id)
        channels = {name for name in channels if name not in current.refs}
        parent = current.record.parent
        if not channels or parent is None:
            break
        if parent in kept:
            raise CorruptError("a checkpoint is its own ancestor", item=parent)
        current = visible.get(parent)
    return kept


def delete_others(
    documents: Documents, reader: Reader, checkpoints: Sequence[StoredCheckpoint], kept: Collection[str]
) -> None:
    """Delete every checkpoint of a namespace that is not in ``kept``, and hidden values that no kept checkpoint needs."""
    used, values = CheckpointValues(reader, {}), dict[str, set[tuple[str, Version]]]()
    for checkpoint in checkpoints:
        if checkpoint.checkpoint_id in kept:
            used.of(checkpoint)
    for ref in used.refs:
        values.setdefault(ref.home, set()).add((ref.channel, ref.version))
    hidden, deleted, parts, kept_parts = dict[str, bytes](), list[str](), set[str](), set[str]()
    for checkpoint in checkpoints:
        key, record = reader.namespace.checkpoint(checkpoint.checkpoint_id), checkpoint.record
        is_kept = checkpoint.checkpoint_id in kept
        remainder = record if is_kept else record.hidden(values.get(checkpoint.checkpoint_id, set()))
        parts |= part_keys(value.stored for value in record.values)
        kept_parts |= part_keys(value.stored for value in remainder.values)
        if not is_kept and not remainder.values:
            deleted.append(key)
        elif remainder != record:
            hidden[key] = remainder.packed()
        for key in checkpoint.writes.values():
            written = part_keys(write.stored for write in reader.writes_at(key).writes)
            parts |= written
            if is_kept or key in used.writes:
                kept_parts |= written
            else:
                deleted.append(key)
    documents.put_many(hidden)
    documents.delete([*deleted, *sorted(parts - kept_parts)])


class TurnlogSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer over the sessions of one owner.

    The session of a thread is created with its first checkpoint; ``settings`` are those of `Sessions.create`. Once `put` returns,
    every reader in any process sees the checkpoint. A checkpoint with a missing part raises `CorruptError`; an older one is never
    returned in its place. When a caller is cancelled during a write, the write completes first and then the cancellation is raised.

    ``messages`` names the graph's channel of messages: they are appended to the session's log, which shows those of the newest
    checkpoint; `window` makes a model's window of it. With None the log gets no messages. Those of LangChain's agents are appended
    by `TurnlogMiddleware`, behind other middleware.
    """

    def __init__(
        self,
        log: Turnlog,
        *,
        messages: str | None = "messages",
        serde: SerializerProtocol | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(serde=serde)
        self._threads = ThreadSessions(log, settings)
        self._cache = CheckpointCache.of(log)
        self._channel = messages

    @cached_property
    def _logs(self) -> ThreadLogs:
        # Imported by the first checkpoint with messages: it takes five times what all else here does, and a load needs none of it.
        from turnlog.integrations.langgraph.thread_log import ThreadLogs

        return ThreadLogs(self._threads)

    def window(
        self,
        state: Any,
        *,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        output_reserve: int | None = None,
        system: str = "",
        tools: Sequence[Any] = (),
    ) -> builtins.list[BaseMessage]:
        """Return the messages for a model call of a graph's node: the window of the thread's session.

            def answer(state):
                return {"messages": [model.invoke(saver.window(state, budget=30_000, system="Be brief."))]}

        ``state`` is the node's; its new messages are appended first. Of a subgraph whose messages do not continue the thread's, it
        is the window of the state alone, and nothing is appended. ``system`` comes before the window and counts in the budget,
        as ``tools`` do: tools of LangChain, or schemas. The other options are those of `Session.context`. Raises
        `InvalidInputError` outside of a node, and when the saver keeps no messages.
        """
        from turnlog.integrations.originals import Limits

        try:
            configurable = get_config()["configurable"]
        except RuntimeError as error:
            raise InvalidInputError("call window() in a node of a graph: it reads the thread of the run") from error
        if self._channel is None:
            raise InvalidInputError("this saver keeps no messages; make it with messages= the name of their channel")
        messages = state[self._channel] if isinstance(state, Mapping) else getattr(state, self._channel)
        thread_id = _thread_id(configurable)
        limits = Limits(budget=budget, policy=policy, output_reserve=output_reserve)
        if _IN_SUBGRAPH not in configurable.get("checkpoint_ns", ""):
            self._logs.keep(thread_id, messages, configurable["checkpoint_map"][""])
        elif self._logs.is_continued(thread_id, messages):
            self._logs.keep_beside(thread_id, messages)
        else:
            return self._window_beside(thread_id, messages, limits, system=system, tools=tools)
        return self._logs.window(thread_id, limits, system=system, tools=tools)

    def _window_beside(
        self, thread_id: str, messages: Sequence[BaseMessage], limits: Limits, *, system: str, tools: Sequence[Any]
    ) -> builtins.list[BaseMessage]:
        """Return the window of messages that only a subgraph has, by the thread's policy. The thread's log does not get them."""
        from turnlog.integrations.langgraph.thread_log import ThreadLogs

        info = self._threads.written(thread_id, lambda session: session.info())
        settings = without_none({"policy": info.policy, "model": info.model, "recall": "never"})
        with Turnlog.open("memory://") as log:
            logs = ThreadLogs(ThreadSessions(log, settings))
            logs.keep_beside(thread_id, messages)
            return logs.window(thread_id, limits, system=system, tools=tools)

    def _keep_messages(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        before: KnownCheckpoint | None,
    ) -> None:
        """Append a checkpoint's new messages to the log. Forks and updates may take some out of view."""
        channel, namespace = self._channel, _namespace(config)
        is_update = metadata.get("source") in _BRANCHES
        is_changed = channel in new_versions or is_update
        if channel is None or namespace.name or not is_changed or _AGENT in (config.get("metadata") or {}).items():
            return
        messages = checkpoint["channel_values"].get(channel)
        if isinstance(messages, list) and all(isinstance(message, BaseMessage) for message in messages):
            lists = before.lists.items() if before is not None else ()
            earlier = next((state.items for ref, state in lists if ref.channel == channel), ())
            is_last_new = not messages or self._dump(messages[-1]) not in earlier
            self._logs.keep(
                namespace.thread_id, messages, checkpoint["id"], is_update=is_update, is_last_new=is_last_new
            )

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        namespace, checkpoint_id, loader = _namespace(config), get_checkpoint_id(config) or None, self._loader
        result = loader.find(namespace, checkpoint_id)
        if result is None:
            return None
        checkpoint, values = result
        answer = self._tuple(checkpoint, values, config if checkpoint_id else None)
        loader.remember(checkpoint, values)
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
        below = (get_checkpoint_id(before) or None) if before is not None else None
        wanted = (get_checkpoint_id(config) or None) if config is not None else None
        streams = [self._iter_checkpoints(namespace, wanted, below) for namespace in self._namespaces(config)]
        remaining = limit
        for _, _, checkpoint, values in heapq.merge(*streams, key=lambda entry: entry[:2], reverse=True):
            if remaining is not None and remaining <= 0:
                return
            if all(checkpoint.metadata.get(name) == value for name, value in (filter or {}).items()):
                remaining = remaining - 1 if remaining is not None else None
                yield self._tuple(checkpoint, values)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history of each channel, read in one walk back with a request per megabyte.

        A parent with a greater id than its child, written after a clock went back, is read by itself.
        """
        namespace, checkpoint_id = _namespace(config), get_checkpoint_id(config) or None
        walk, seen = self._iter_checkpoints(namespace, None, None, start=checkpoint_id), set[str | None]()

        def get_tuple(config: RunnableConfig) -> CheckpointTuple | None:
            wanted = get_checkpoint_id(config) or None
            if wanted in seen:
                raise CorruptError("a checkpoint is its own ancestor", item=wanted or "")
            seen.add(wanted)
            for name, _, checkpoint, values in walk:
                if wanted in (name, None):
                    return self._tuple(checkpoint, values)
                if namespace.checkpoint(name) < namespace.checkpoint(wanted or ""):
                    break
            return self.get_tuple(config)

        walking: Any = SimpleNamespace(get_tuple=get_tuple)
        return BaseCheckpointSaver.get_delta_channel_history(walking, config=config, channels=channels)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        namespace, parent = _namespace(config), get_checkpoint_id(config) or None
        checkpoint_id, versions = checkpoint["id"], checkpoint["channel_versions"].items()
        older = {name: version for name, version in versions if new_versions.get(name) != version}
        before = self._loader.known(namespace, parent) if parent else None
        homes = self._loader.homes(namespace, before, older)
        builder = CheckpointBuilder(
            namespace, parent, checkpoint, new_versions, dump=self._dump, before=before, homes=homes
        )
        record = builder.record(get_checkpoint_metadata(config, metadata))
        self._keep_messages(config, checkpoint, metadata, new_versions, before)
        key = namespace.checkpoint(checkpoint_id)
        Writer(self._threads).put(namespace.thread_id, key, record.packed(), builder.parts)
        self._cache.remember(namespace, checkpoint_id, builder.known())
        return _config(namespace, checkpoint_id, config["configurable"]["thread_id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        records = [
            Write(WRITES_IDX_MAP.get(channel, index), channel, task_path, self._stored(value))
            for index, (channel, value) in enumerate(writes)
        ]
        if records:
            checkpoint_id = config["configurable"]["checkpoint_id"]
            Writer(self._threads).put_writes(_namespace(config), checkpoint_id, task_id, records)

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        number = current if isinstance(current, int) else int(current.split(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread, and take its messages out of view. The thread can be used again.

        The messages stay in the log: `Session.erase` deletes them.
        """
        try:
            self._threads.delete(str(thread_id))
        finally:
            self._cache.forget(thread_id=str(thread_id))
        if self._channel is not None:
            self._logs.clear(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs. Reads all threads of the owner."""
        runs = set(run_ids)

        def others(visible: Mapping[str, StoredCheckpoint]) -> Collection[str] | None:
            kept = [name for name, stored in visible.items() if stored.metadata.get("run_id") not in runs]
            return kept if len(kept) < len(visible) else None

        for thread_id in self._threads.all() if runs else ():
            self._sweep(thread_id, others)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        try:
            Writer(self._threads).copy(str(source_thread_id), str(target_thread_id))
        finally:
            self._cache.forget(thread_id=str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError(f"strategy {strategy!r} is not one of 'keep_latest' and 'delete'")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                self._sweep(thread_id, needed_by_newest)

    def _sweep(
        self, thread_id: str, choose: Callable[[Mapping[str, StoredCheckpoint]], Collection[str] | None]
    ) -> None:
        """Delete the checkpoints of a thread but those that ``choose`` takes from the visible ones of a namespace, newest first.

        A namespace of which it returns None is left as it is, and its values are not read.
        """
        documents = self._threads.documents(thread_id)
        for namespace in self._threads.namespaces(thread_id):
            reader = self._loader.reader(namespace)
            checkpoints = list(reader.walk())
            visible = {stored.checkpoint_id: stored for stored in checkpoints if not stored.record.is_hidden}
            kept = choose(visible)
            if kept is not None:
                delete_others(documents, reader, checkpoints, kept)
                self._cache.forget([namespace])

    awindow = in_thread(window)
    aget_tuple = in_thread(get_tuple)
    aget_delta_channel_history = in_thread(get_delta_channel_history)
    aput = to_end(put)
    aput_writes = to_end(put_writes)
    adelete_thread = to_end(delete_thread)
    adelete_for_runs = to_end(delete_for_runs)
    acopy_thread = to_end(copy_thread)
    aprune = to_end(prune)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        checkpoints = self.list(config, **options)
        while (checkpoint := await asyncio.to_thread(next, checkpoints, None)) is not None:
            yield checkpoint

    @property
    def _loader(self) -> Loader:
        return Loader(self._threads, self._cache, self.serde.loads_typed)

    def _dump(self, value: Any) -> Typed:
        kind, data = self.serde.dumps_typed(value)
        return kind, bytes(data)  # a serializer may return a bytearray

    def _stored(self, value: Any) -> Stored:
        is_list = is_by_element(value)
        return Elements(None, tuple(map(self._dump, value))) if is_list else WholeValue(self._dump(value))

    def _namespaces(self, config: RunnableConfig | None) -> Sequence[Namespace]:
        """Return the namespaces that a config selects; without one those of all threads."""
        if config is None:
            return [namespace for thread_id in self._threads.all() for namespace in self._threads.namespaces(thread_id)]
        thread_id, name = _thread_id(config["configurable"]), config["configurable"].get("checkpoint_ns")
        return self._threads.namespaces(thread_id) if name is None else [Namespace(thread_id, name)]

    def _iter_checkpoints(
        self, namespace: Namespace, wanted: str | None, below: str | None, *, start: str | None = None
    ) -> Iterator[tuple[str, str, StoredCheckpoint, CheckpointValues]]:
        """Yield the visible checkpoints of a namespace from ``start`` back; with ``wanted`` only that one, when below ``below``."""
        if wanted is not None and below is not None and wanted >= below:
            return
        values = self._loader.values(namespace, start=wanted or start, below=None if wanted else below)
        try:
            for stored in values.reader.visible():
                if wanted is not None and stored.checkpoint_id != wanted:
                    return
                yield stored.checkpoint_id, namespace.thread_id, stored, values
        except NotFoundError:
            return

    def _tuple(
        self, stored: StoredCheckpoint, values: CheckpointValues, config: RunnableConfig | None = None
    ) -> CheckpointTuple:
        channels = {
            name: self._value(list(value.items) if isinstance(value, ListState) else value)
            for name, value in values.of(stored).items()
        }
        checkpoint: Any = {**stored.checkpoint, "channel_values": channels}
        namespace, parent = values.namespace, stored.record.parent
        return CheckpointTuple(
            config if config is not None else _config(namespace, stored.checkpoint_id),
            checkpoint,
            cast("CheckpointMetadata", stored.metadata),
            _config(namespace, parent) if parent is not None else None,
            [(task_id, channel, self._value(value)) for task_id, channel, value in values.written(stored)],
        )

    def _value(self, plain: Plain) -> Any:
        load = self.serde.loads_typed
        return [load(element) for element in plain] if isinstance(plain, list) else load(plain)


def _namespace(config: RunnableConfig) -> Namespace:
    configurable = config["configurable"]
    return Namespace(_thread_id(configurable), configurable.get("checkpoint_ns", ""))


def _thread_id(configurable: Mapping[str, Any]) -> str:
    if configurable["thread_id"] is None:
        raise InvalidInputError("the run's thread_id is None; give it the id of its conversation")
    return str(configurable["thread_id"])


def _config(namespace: Namespace, checkpoint_id: str, thread_id: Any = None) -> RunnableConfig:
    thread = namespace.thread_id if thread_id is None else thread_id
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace.name, "checkpoint_id": checkpoint_id}}
