"""Nodes of a graph, wrapped so that what they are given and what they say is in the session."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from turnlog.adapters.system import RandomIds
from turnlog.client.graph.checks import FULL, MESSAGES, has_compressed
from turnlog.client.graph.conversion import save_graph_state
from turnlog.client.graph.messages import updated, with_ids
from turnlog.client.graph.outcomes import PRE_EXECUTION, Converted
from turnlog.client.graph.saving import Saving
from turnlog.client.model import Session
from turnlog.domain.execution import DEFAULT_AGENT

Node = TypeVar("Node", bound=Callable[..., Any])
Reducer = Callable[[Any, Any], Any]
_LISTS = (MESSAGES, FULL)
_IDS = RandomIds()


def with_state(
    node: Node,
    session: Session | Callable[[Any], Session],
    *,
    agent_id: str = DEFAULT_AGENT,
    snapshot: str | None = PRE_EXECUTION,
    snapshot_after: str | None = None,
    reducers: Mapping[str, Reducer] | None = None,
) -> Node:
    """The node, sync or async, between two conversions.

    Before it runs, its state is saved to the session, under a snapshot; after, what it returns: a part of the state, a
    command with one, or None. Its answer has ``metadata`` besides, and ``errors`` when there are problems. ``session`` may be
    a function of the state. ``reducers`` are those of the graph's keys, so that its parts mean here what they mean there;
    `messages` need none. What the node raises is raised.
    """
    wrap = _Wrapped(session, agent_id, snapshot, snapshot_after, reducers or {})
    if inspect.iscoroutinefunction(node) or inspect.iscoroutinefunction(getattr(node, "__call__", None)):  # noqa: B004
        asynchronous = cast("Callable[..., Awaitable[Any]]", node)

        @functools.wraps(node)
        async def run_async(state: Any, *given: Any, **more: Any) -> Any:
            before = await asyncio.to_thread(wrap.before, state)
            update = await asynchronous(before.state if isinstance(state, Mapping) else state, *given, **more)
            return await asyncio.to_thread(wrap.after, state, before, update)

        return cast("Node", run_async)

    @functools.wraps(node)
    def run(state: Any, *given: Any, **more: Any) -> Any:
        before = wrap.before(state)
        update = node(before.state if isinstance(state, Mapping) else state, *given, **more)
        return wrap.after(state, before, update)

    return cast("Node", run)


@dataclasses.dataclass(frozen=True, slots=True)
class _Wrapped:
    """What is done around a node; the two wraps differ only in how they wait."""

    session: Session | Callable[[Any], Session]
    agent_id: str
    snapshot: str | None
    snapshot_after: str | None
    reducers: Mapping[str, Reducer]

    def before(self, state: Any) -> Converted:
        return save_graph_state(self._session(state), _values(state), agent_id=self.agent_id, snapshot=self.snapshot)

    def after(self, state: Any, before: Converted, answer: Any) -> Any:
        if answer is not None and not isinstance(answer, Mapping):
            update = getattr(answer, "update", None)
            if not isinstance(update, Mapping) or not dataclasses.is_dataclass(answer):
                return answer
            return dataclasses.replace(cast("Any", answer), update=self._saved(state, before, update))
        return self._saved(state, before, answer or {})

    def _saved(self, state: Any, before: Converted, update: Mapping[str, Any]) -> dict[str, Any]:
        update = {name: with_ids(value, _IDS.new_id) if name in _LISTS else value for name, value in update.items()}
        merged, earlier = dict(before.state), _listed(before.state.get(MESSAGES))
        for name, value in update.items():
            if name in self.reducers and name in merged:
                merged[name] = self.reducers[name](merged[name], value)
            else:
                merged[name] = updated(earlier, _listed(value)) if name == MESSAGES else value
        source = FULL if FULL in update else MESSAGES
        saving = Saving(
            self._session(state),
            merged,
            self.agent_id,
            None,
            self.snapshot_after,
            given=(source, _listed(update.get(source))),
            earlier=earlier if source == MESSAGES else (),
            is_compressed=self._is_compressed(before.state, merged, update),
        )
        return self._told(state, update, before, saving.run())

    def _told(self, state: Any, update: Mapping[str, Any], before: Converted, after: Converted) -> dict[str, Any]:
        """The node's own answer, with what both conversions say."""
        metadata = {**after.state["metadata"], "snapshot_id": before.snapshot_id}
        told = list(before.state["metadata"]["validation_errors"])
        told += [one for one in after.state["metadata"]["validation_errors"] if one not in told]
        answer = {**update, "metadata": {**metadata, "validation_errors": told}}
        known = _values(state).get("errors")
        errors = after.state.get("errors")
        if errors != known and errors is not None:
            old = known if isinstance(known, list) and "errors" in self.reducers else []
            answer["errors"] = [one for one in errors if one not in old]
        return answer

    def _is_compressed(self, before: Mapping[str, Any], merged: Mapping[str, Any], update: Mapping[str, Any]) -> bool:
        """A full list that the node has left as it was tells nothing of the messages that it has added."""
        if FULL in update:
            return has_compressed(merged)
        return has_compressed(before) or has_compressed({**merged, FULL: None})

    def _session(self, state: Any) -> Session:
        return self.session if isinstance(self.session, Session) else self.session(state)


def _listed(value: Any) -> list[Any]:
    """A node may return one message, or several."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _values(state: Any) -> dict[str, Any]:
    """The keys of a state: of a dict, a dataclass or a pydantic model."""
    if isinstance(state, Mapping):
        return dict(state)
    if dataclasses.is_dataclass(state):
        return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return dict(state)
