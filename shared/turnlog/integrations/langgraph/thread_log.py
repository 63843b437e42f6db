"""Keeps the messages of a graph's thread in the log of its session, and builds the window of a model call from it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from turnlog.agents.graph_state.aligning import append_all, append_new, leave_branch, leave_edits
from turnlog.agents.graph_state.messages import (
    FORMAT,
    GRAPH_METADATA,
    GraphMessage,
    Newest,
    WindowObjects,
    to_graph_message,
)
from turnlog.client import retried
from turnlog.client.model import Session
from turnlog.core.errors import HeadMismatchError, NotFoundError
from turnlog.core.json_values import JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.threads import ThreadSessions
from turnlog.integrations.originals import Limits, limited_window

NOT_KEPT = "message_not_kept"
MARK = "langgraph"
"""Metadata key of messages that a checkpoint has brought; messages of subgraphs and of others do not have it."""
_NEWEST = 50
"""How many of the newest messages of a thread are remembered, and compared with those of its next checkpoint."""
_MAX_THREADS, _LOCKS = 1_000, 64
Messages = Sequence[BaseMessage]


@lazy_dataclass(frozen=True, slots=True)
class Kept:
    """The end of a thread's log: the newest checkpoint, the log's head, the newest messages and the position of the last one."""

    checkpoint_id: str
    head: int
    newest: Messages
    last: int

    def new(self, messages: Messages) -> Messages | None:
        """Return the messages after those that the log ends with; None when they do not continue it."""
        last = self.newest[-1]
        end = next((index for index in reversed(range(len(messages))) if _is_same(messages[index], last)), -1)
        shared = messages[max(0, end + 1 - len(self.newest)) : end + 1]
        known = self.newest[len(self.newest) - len(shared) :]
        is_same = bool(shared) and all(map(_is_same, known, shared))
        return messages[end + 1 :] if is_same else None

    def has(self, messages: Messages) -> bool:
        """Return whether the last of the messages is one of the newest of the log."""
        return any(_is_same(message, messages[-1]) for message in self.newest)


def _is_same(message: BaseMessage, other: BaseMessage) -> bool:
    return message is other or message == other


class ThreadLogs:
    """The messages of threads in the logs of their sessions. Safe to use from many threads.

    The newest checkpoint of a thread decides what is in view. Messages of another branch of the graph stay in the log.
    """

    def __init__(self, threads: ThreadSessions) -> None:
        self._threads = threads
        self._kept = Newest[str, Kept](_MAX_THREADS)
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._window_objects = WindowObjects()

    def keep(
        self,
        thread_id: str,
        messages: Messages,
        checkpoint_id: str,
        *,
        is_update: bool = False,
        is_last_new: bool = True,
    ) -> None:
        """Append the messages of a checkpoint that the log lacks. The view has these, and older ones that the graph has removed.

        With ``is_update`` any message may have been edited; else the last `_NEWEST` ones, or any in a process that does not know
        the thread. No messages take all out of view. What a checkpoint adds after a newer one is appended, and out of view. Without
        ``is_last_new`` the checkpoint before has the last message too; the log may have redacted it.
        """
        with self._locks[hash(thread_id) % _LOCKS]:
            kept = self._kept.get(thread_id)
            is_late = kept is not None and checkpoint_id < kept.checkpoint_id
            if kept is not None and is_late and (not messages or kept.has(messages)):
                return
            if not messages:
                self.clear(thread_id)
                return
            end = self._added(thread_id, kept, messages) if kept is not None and not is_update else None
            if end is None:
                end = self._threads.written(thread_id, lambda session: self._aligned(session, messages, is_last_new))
            if kept is not None and is_late:
                head = self._threads.session(thread_id).rewind(kept.last).head
                self._kept[thread_id] = Kept(kept.checkpoint_id, head, kept.newest, kept.last)
            else:
                self._kept[thread_id] = Kept(checkpoint_id, end[0], tuple(messages[-_NEWEST:]), end[1])

    def is_continued(self, thread_id: str, messages: Messages) -> bool:
        """Return whether a subgraph's messages continue those of the thread's graph: they have all of its newest ones.

        The graph's checkpoint may still be on its way, so these may be the messages of the one before.
        """
        kept, newest = self._kept.get(thread_id), list[str | None]()
        if kept is not None:
            newest = [message.id for message in kept.newest]
        else:
            with suppress(NotFoundError):
                page = self._threads.session(thread_id).page(order="desc", limit=_NEWEST, in_view=True)
                newest = [stored.id for stored in page.messages if MARK in (stored.metadata or {})]
        return bool(newest) and {message.id for message in messages}.issuperset(newest)

    def keep_beside(self, thread_id: str, messages: Messages) -> None:
        """Append the messages of a subgraph that the log lacks; the subgraph may lack some of the log's."""
        self._threads.written(
            thread_id, lambda session: append_new(session, self._listed(session, messages, {}), options=_options)
        )

    def window(self, thread_id: str, limits: Limits, *, system: str, tools: Sequence[Any]) -> list[BaseMessage]:
        """Return the window of the log as message objects, with ``system`` before it."""
        session = self._threads.session(thread_id)
        schemas = [dict(tool) if isinstance(tool, Mapping) else convert_to_openai_tool(tool) for tool in tools]
        answer = limited_window(session, limits, FORMAT, system=system, tools=schemas)
        shown: list[BaseMessage] = self._window_objects.objects(session, answer)
        return [SystemMessage(system), *shown] if system else shown

    def clear(self, thread_id: str) -> None:
        """Take the messages of a thread's graph out of view. They stay in the log."""
        self._kept.pop(thread_id, None)
        with suppress(NotFoundError):
            _rewind_before(self._threads.session(thread_id), GRAPH_METADATA)

    def _added(self, thread_id: str, kept: Kept, messages: Messages) -> tuple[int, int] | None:
        """Append what continues the log where it ended, and return its head and last position; None when it ends elsewhere."""
        new, session = kept.new(messages), self._threads.session(thread_id)
        if new is None:
            return None
        listed = [message for message in self._listed(session, new, {MARK: True}) if message is not None]
        if not listed:
            return kept.head, kept.last
        try:
            positions, head = append_all(session, listed, kept.head, _options)
        except (HeadMismatchError, NotFoundError):
            return None
        return head, positions[-1]

    def _aligned(self, session: Session, messages: Messages, is_last_new: bool) -> tuple[int, int]:
        """Rewind and append until the log ends with the messages, and return its head and last position."""
        listed = self._listed(session, messages, {MARK: True})
        has_ids = any(message is not None and message.identity.id is not None for message in listed)

        def attempt() -> tuple[int, int]:
            head, place = leave_branch(session, listed, MARK)
            if place is None and has_ids and (begun := _rewind_before(session, MARK, head)) is not None:
                head, place = begun, -1
            if place is None:
                aligned, _ = append_new(session, listed, options=_options)
                return aligned.head, aligned.known[0][1] if aligned.known else 1
            places: Sequence[int] = range(place + 1, len(listed))
            if place >= 0:
                head, places = leave_edits(session, listed, head, place, is_last_new=is_last_new)
            new = [message for index in places if (message := listed[index]) is not None]
            positions, head = append_all(session, new, head, _options)
            return head, positions[-1] if positions else head

        return retried(attempt)

    def _listed(self, session: Session, messages: Messages, mark: Mapping[str, JsonValue]) -> list[GraphMessage | None]:
        return [self._graph_message(session, message, mark) for message in messages]

    def _graph_message(
        self, session: Session, message: BaseMessage, mark: Mapping[str, JsonValue]
    ) -> GraphMessage | None:
        """Return the message as the log stores it; None for one that no log takes, which the history then names."""
        graph_message, problems = to_graph_message(message, "")
        if graph_message is None:
            details = {"message_id": message.id, "problem": problems[-1].message}
            session.record(NOT_KEPT, metadata=details, idempotency_key=f"not-kept-{message.id}")
            return None
        graph_message.meta["metadata"].update(mark)
        self._window_objects.learn(session.id, graph_message.body, message.model_copy())
        return graph_message


def _rewind_before(session: Session, mark: str, head: int | None = None) -> int | None:
    """Rewind to before the first message in view with a metadata key, and return the new head; None when none has it."""
    marked = (stored.position for stored in session.messages(in_view=True) if mark in (stored.metadata or {}))
    first = next(marked, None)
    return session.rewind(max(1, first - 1), if_head=head).head if first is not None else None


def _options(batch: Sequence[GraphMessage]) -> dict[str, Any]:
    """Return the append options of a batch: the provider's token counts of its reply, when it has exactly one."""
    said = [message.meta["metadata"][GRAPH_METADATA]["data"].get("usage_metadata") for message in batch]
    counts = [count for count in said if count]
    return {"usage": {name: counts[0][name] for name in ("input_tokens", "output_tokens")}} if len(counts) == 1 else {}
