"""The two conversions: save a graph's state to a session, and load it back."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from turnlog.agents.graph_state.aligning import Aligned, append_new
from turnlog.agents.graph_state.checks import (
    FULL,
    MESSAGES,
    PRE_EXECUTION,
    Converted,
    Handlers,
    Place,
    has_compressed,
    is_system,
    listed_problems,
    problems_of,
    put_back,
    record_conversion,
    split_storable,
    valid_fields,
    with_problems,
)
from turnlog.agents.graph_state.messages import (
    GRAPH_METADATA,
    GraphMessage,
    is_one_message,
    is_removal,
    merge_answer,
    original_form,
    original_message,
    to_graph_message,
    with_ids,
)
from turnlog.client import retried
from turnlog.client.model import Session
from turnlog.core.agent_state import DEFAULT_AGENT
from turnlog.core.errors import InvalidInputError, NotFoundError, Problem, TurnlogError, VersionMismatchError
from turnlog.core.identity import check_agent_id
from turnlog.core.json_values import encode_json, json_pointer, without_none
from turnlog.engines import RandomIds
from turnlog.sessions.message_models import StoredMessage
from turnlog.sessions.state_store import MAX_STATE_BYTES

GRAPH = "graph"
"""The field of an agent's execution state that holds the graph's other values."""


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedState:
    """A graph's state, checked, and divided into what is appended, what is stored as JSON, and what can't be stored.

    ``messages`` are those of the list under the key ``source``; None stands for one that can't be appended. ``lists`` are the keys
    that hold lists of messages. ``stored`` and ``handlers`` are the other values. With ``is_compressed`` the state's ``messages``
    leave out some of the conversation.
    """

    values: dict[str, Any]
    agent_id: str
    source: str
    messages: Sequence[GraphMessage | None]
    lists: list[str]
    stored: dict[str, Any]
    handlers: Handlers
    is_compressed: bool
    problems: Sequence[Problem]


def check_state(
    state: Any,
    agent_id: str,
    *,
    replacement: tuple[str, Any] | None = None,
    earlier: Sequence[Any] = (),
    offset: int = 0,
    is_compressed: bool | None = None,
) -> CheckedState:
    """Check a state, and divide it for `Saving`.

    ``replacement`` is used instead of the state's messages when only it can be new: a key of the state, and the messages, with
    ``offset`` messages before them there. ``earlier`` are messages that may have the calls of their results.
    """
    values = _values(state)
    own_id, problems = _own_agent_id(values, agent_id)
    own = FULL if isinstance(values.get(FULL), list | tuple) and values[FULL] else MESSAGES
    source, listed = replacement if replacement is not None else (own, values.get(own))
    lists = [name for name in (MESSAGES, FULL) if isinstance(values.get(name), list | tuple)]
    stored, handlers, lost = split_storable({name: value for name, value in values.items() if name not in lists})
    is_short = is_compressed if is_compressed is not None else has_compressed(values)
    messages, bodies = list[GraphMessage | None](), None
    if isinstance(listed, list | tuple):
        for message in listed:
            if not is_removal(message):
                converted, own_problems = to_graph_message(message, f"/{source}/{offset + len(messages)}")
                messages.append(converted)
                problems += own_problems
        bodies = [_body(message) for message in messages]
    calls = [_body(to_graph_message(message, "")[0]) for message in earlier]
    for problem in problems_of(stored, bodies, own_id, source=source, earlier=calls, offset=offset):
        # A compressed list may have a result without its call.
        if source == FULL or not is_short or problem.code != "result_without_call":
            problems.append(problem)
    all_problems = tuple(dict.fromkeys([*problems, *lost]))
    return CheckedState(values, own_id, source, messages, lists, stored, handlers, is_short, all_problems)


def _own_agent_id(values: Mapping[str, Any], agent_id: str) -> tuple[str, list[Problem]]:
    """Return the agent id that a state names, or ``agent_id`` when it names none or an invalid one, which is a problem."""
    own = values.get("agent_id")
    if isinstance(own, str) and own:
        try:
            return check_agent_id(own), []
        except InvalidInputError:
            return check_agent_id(agent_id), [Problem("invalid_id", "/agent_id", "agent_id is not one that we take")]
    return check_agent_id(agent_id), []


class Saving:
    """Saves a checked state to a session. What the session refuses becomes a problem of the state."""

    def __init__(self, session: Session, checked: CheckedState) -> None:
        self._session = session
        self._checked = checked
        self._problems = list(checked.problems)

    def run(self, snapshot: str | None) -> Converted:
        """Save the state, and return it with the metadata of the conversion."""
        aligned, positions = self._append_messages()
        state = self._store_state(aligned, positions)
        return record_conversion(
            self._session,
            state,
            self._checked.handlers,
            self._problems,
            self._checked.agent_id,
            snapshot,
            (positions[0], positions[-1]) if positions else None,
            direction="to_session",
        )

    def _append_messages(self) -> tuple[Aligned, list[int]]:
        """Append new messages, and return their positions. What the log refuses becomes a problem."""
        checked = self._checked

        def refused(error: TurnlogError) -> None:
            self._problems.append(Problem(error.error_code, f"/{checked.source}", error.detail))

        is_compressed = checked.source == MESSAGES and checked.is_compressed
        aligned, positions = append_new(
            self._session, checked.messages, is_compressed=is_compressed, is_same_run=self._is_same_run, refused=refused
        )
        if not aligned.is_sure:
            message = "nothing of a compressed list is in the log: none of it was appended"
            self._problems.append(Problem("messages_not_aligned", f"/{checked.source}", message))
        return aligned, positions

    def _is_same_run(self) -> bool | None:
        """Return whether the state is of the run that was saved before; None when that is unknown."""
        run_id = self._checked.values.get("run_id")
        try:
            known = self._session.agent(self._checked.agent_id).state.get("run_id")
        except NotFoundError:
            known = None
        return None if run_id is None or known is None else bool(known == run_id)

    def _store_state(self, aligned: Aligned, positions: Sequence[int]) -> dict[str, Any]:
        """Store the execution state and the graph's other values, and return the state. A refusal becomes a problem."""
        view = self._view(aligned, positions[-1] if positions else aligned.head)
        while True:
            state = with_problems(self._checked.values, self._problems)
            own = {name: state.get(name) for name in ("metadata", "errors") if (name,) not in self._checked.handlers}
            values = {**self._checked.stored, **split_storable(without_none(own))[0]}
            fields = valid_fields(values, self._checked.agent_id)
            others = {name: value for name, value in values.items() if name not in fields}
            try:
                self._store({**fields, GRAPH: {"values": others, "view": view, "lists": self._checked.lists}}, state)
            except InvalidInputError as error:
                if error.error_code == "too_large" and self._leave_out(error.detail):
                    continue
                self._problems.append(Problem(error.error_code, "", error.detail))
            return state

    def _leave_out(self, reason: str) -> bool:
        """Leave the largest values out of what is stored, so that the others fit. Returns whether there was a value."""
        stored = self._checked.stored
        sizes = {name: len(encode_json([name, value])) for name, value in stored.items()}
        size_bytes = sum(sizes.values())
        limit = MAX_STATE_BYTES if size_bytes > MAX_STATE_BYTES else size_bytes // 2
        for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if size_bytes > limit:
                size_bytes -= sizes[name]
                del stored[name]
                self._checked.handlers[name,] = self._checked.values[name]
                message = f"{sizes[name]:,} bytes are put back, but a restart loses them: {reason}"
                self._problems.append(Problem("too_large", json_pointer([name], max_chars=100), message))
        return len(stored) < len(sizes)

    def _store(self, fields: dict[str, Any], graph: Mapping[str, Any]) -> None:
        """Store the fields; other fields of the agent, which the graph's state does not have, stay as they are."""
        agent_id = self._checked.agent_id

        def attempt() -> None:
            state = self._session.state()
            agents = state.state.get("agents")
            before = agents.get(agent_id) if isinstance(agents, dict) else None
            known: dict[str, Any] = before if isinstance(before, dict) else {}
            # Before the state is stored: a conversion that stops in between then sets it again.
            self._set_system(known, graph.get("system_prompt"))
            others = {name: value for name, value in known.items() if name not in graph}
            after = {**others, **fields, "agent_id": agent_id}
            patch = [] if isinstance(agents, dict) else [{"op": "add", "path": "/agents", "value": {}}]
            patch.append({"op": "add", "path": f"/agents/{agent_id}", "value": after})
            self._session.patch_state(patch, if_version=state.version)

        retried(attempt, VersionMismatchError)

    def _set_system(self, before: Mapping[str, Any], system: Any) -> None:
        """Set the session's system prompt to the graph's, so that windows begin with it."""
        kept = before.get(GRAPH)
        known = kept["values"].get("system_prompt") if isinstance(kept, dict) else None
        if isinstance(system, str) and system != known and is_system(system):
            self._session.update(system=system)

    def _view(self, aligned: Aligned, head: int) -> dict[str, Any] | None:
        """Describe a compressed list: positions of messages in the log up to ``head``, and bodies of the others.

        Returns None when the list is not compressed.
        """
        short = self._checked.values.get(MESSAGES)
        if not self._checked.is_compressed or not isinstance(short, list | tuple):
            return None
        shown = list[Any]()
        for index, message in enumerate(short):
            parsed, _ = to_graph_message(message, f"/{MESSAGES}/{index}")
            if parsed is not None:
                position = aligned.position(parsed.identity)
                object_fields = (parsed.meta.get("metadata") or {}).get(GRAPH_METADATA)
                shown.append(position if position is not None else [parsed.body, object_fields])
        return {"shown": shown, "head": head}


def _body(message: GraphMessage | None) -> dict[str, Any]:
    return message.body if message is not None else {}


def validate_graph_state(state: Any, *, agent_id: str = DEFAULT_AGENT) -> list[dict[str, str]]:
    """List what is wrong with a graph's state, each with ``type``, ``path`` (a JSON pointer) and ``message``. Stores nothing.

    Raises `InvalidInputError`, code ``not_a_state``, for a value that is no state.
    """
    return listed_problems(check_state(state, agent_id).problems)


def save_graph_state(
    session: Session, state: Any, *, agent_id: str = DEFAULT_AGENT, snapshot: str | None = PRE_EXECUTION
) -> Converted:
    """Save a graph's state to the session: new messages to the log, the rest to the agent's execution state.

    The state is a dict, a dataclass, a pydantic model, or an object with ``to_dict()``. ``full_messages`` is used before
    ``messages``. ``snapshot`` names the head behind them, so that a restore has the state; None makes no snapshot, and of a
    name the 10 newest stay. Problems do not stop the conversion. Errors of a session that has ended, or of an engine that does
    not answer, are raised.
    """
    return Saving(session, check_state(state, agent_id)).run(snapshot)


def load_graph_state(
    session: Session,
    *,
    handlers: Mapping[Place, Any] | None = None,
    agent_id: str = DEFAULT_AGENT,
    snapshot: str | None = PRE_EXECUTION,
) -> Converted:
    """Load the graph's state from the session, with messages and changes that others made since it was saved.

    ``handlers`` of the saved state are put back. Raises `NotFoundError` when no graph's state was saved for the agent.
    """
    agent = session.agent(agent_id).state
    kept = agent.get(GRAPH)
    if not isinstance(kept, dict):
        raise NotFoundError(f"no graph's state of agent {agent_id!r} in session {session.id!r}", code="no_graph_state")
    stored = [message for message in session.messages(in_view=True) if message.status == "complete"]
    values: dict[str, Any] = {**kept["values"], **{name: agent[name] for name in valid_fields(agent, agent_id)}}
    full = [original_message(message) for message in stored]
    lists = {FULL: full, MESSAGES: full if kept.get("view") is None else _compressed_list(kept["view"], stored)}
    values |= {name: lists[name] for name in kept["lists"]}
    bodies = [message.body for message in stored]
    source = FULL if FULL in kept["lists"] else MESSAGES
    problems = problems_of({**values, FULL: bodies, MESSAGES: bodies}, bodies, agent_id, source=source)
    state = put_back(values, handlers or {})
    return record_conversion(
        session, state, Handlers(handlers or {}), problems, agent_id, snapshot, direction="from_session"
    )


def _compressed_list(view: Mapping[str, Any], stored: Sequence[StoredMessage]) -> list[Any]:
    """Restore a compressed list, with the messages that were appended after it."""
    by_position = {message.position: message for message in stored}
    shown = [
        original_message(by_position[entry]) if isinstance(entry, int) else original_form(entry[0], entry[1])
        for entry in view["shown"]
        if not isinstance(entry, int) or entry in by_position
    ]
    return [*shown, *(original_message(message) for message in stored if message.position > view["head"])]


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
    """Wrap a node, sync or async: save its state to the session before it runs, and its answer after.

    An answer is a part of the state, a command with one, or None. The wrapped node's answer also has ``metadata``, and
    ``errors`` when there are problems. ``session`` may be a function of the state. ``snapshot`` names the head with the node's
    input, ``snapshot_after`` the one with its answer. ``reducers`` are those of the graph's keys, so that an answer is merged as
    the graph merges it; `messages` needs none. Errors of the node are raised.
    """
    wrap = _NodeConversion(session, agent_id, snapshot, snapshot_after, reducers or {})
    if inspect.iscoroutinefunction(node) or inspect.iscoroutinefunction(getattr(node, "__call__", None)):  # noqa: B004
        asynchronous = cast("Callable[..., Awaitable[Any]]", node)

        @functools.wraps(node)
        async def run_async(state: Any, *arguments: Any, **keywords: Any) -> Any:
            before = await asyncio.to_thread(wrap.before, state)
            update = await asynchronous(before.state if isinstance(state, Mapping) else state, *arguments, **keywords)
            return await asyncio.to_thread(wrap.after, state, before, update)

        return cast("Node", run_async)

    @functools.wraps(node)
    def run(state: Any, *arguments: Any, **keywords: Any) -> Any:
        before = wrap.before(state)
        update = node(before.state if isinstance(state, Mapping) else state, *arguments, **keywords)
        return wrap.after(state, before, update)

    return cast("Node", run)


@dataclasses.dataclass(frozen=True, slots=True)
class _NodeConversion:
    """The conversions around a node. The sync and the async wrapper differ only in how they wait."""

    session: Session | Callable[[Any], Session]
    agent_id: str
    snapshot: str | None
    snapshot_after: str | None
    reducers: Mapping[str, Reducer]

    def before(self, state: Any) -> Converted:
        return save_graph_state(self._session(state), state, agent_id=self.agent_id, snapshot=self.snapshot)

    def after(self, state: Any, before: Converted, answer: Any) -> Any:
        if answer is not None and not isinstance(answer, Mapping):
            update = getattr(answer, "update", None)
            if not isinstance(update, Mapping) or not dataclasses.is_dataclass(answer):
                return answer
            return dataclasses.replace(cast("Any", answer), update=self._saved(state, before, update))
        return self._saved(state, before, answer or {})

    def _saved(self, state: Any, before: Converted, update: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a node's update into the state, save it, and return the node's answer."""
        update = {name: with_ids(value, _IDS.new_id) if name in _LISTS else value for name, value in update.items()}
        merged, earlier = dict(before.state), _listed(before.state.get(MESSAGES))
        for name, value in update.items():
            if name in self.reducers and name in merged:
                merged[name] = self.reducers[name](merged[name], value)
            else:
                merged[name] = merge_answer(earlier, _listed(value)) if name == MESSAGES else value
        source = FULL if FULL in update else MESSAGES
        new = [message for message in _listed(update.get(source)) if not is_removal(message)]
        checked = check_state(
            merged,
            self.agent_id,
            replacement=(source, new),
            earlier=earlier if source == MESSAGES else (),
            offset=len(_listed(merged.get(source))) - len(new),
            is_compressed=self._is_compressed(before.state, merged, update),
        )
        after = Saving(self._session(state), checked).run(self.snapshot_after)
        return self._answer(state, update, before, after)

    def _answer(self, state: Any, update: Mapping[str, Any], before: Converted, after: Converted) -> dict[str, Any]:
        """Return the node's answer with the metadata and problems of both conversions."""
        metadata = {**after.state["metadata"], "snapshot_id": before.snapshot_id}
        problems = list(before.state["metadata"]["validation_errors"])
        problems += [problem for problem in after.state["metadata"]["validation_errors"] if problem not in problems]
        answer = {**update, "metadata": {**metadata, "validation_errors": problems}}
        known = _values(state).get("errors")
        errors = after.state.get("errors")
        if errors != known and errors is not None:
            old = known if isinstance(known, list) and "errors" in self.reducers else []
            answer["errors"] = [error for error in errors if error not in old]
        return answer

    def _is_compressed(self, before: Mapping[str, Any], merged: Mapping[str, Any], update: Mapping[str, Any]) -> bool:
        """Return whether the list that the node changed is compressed. A ``full_messages`` that it left alone does not count."""
        if FULL in update:
            return has_compressed(merged)
        return has_compressed(before) or has_compressed({**merged, FULL: None})

    def _session(self, state: Any) -> Session:
        return self.session if isinstance(self.session, Session) else self.session(state)


def _listed(value: Any) -> list[Any]:
    """Return the messages of a node's answer, which may be one message or several."""
    if value is None:
        return []
    return [value] if is_one_message(value) else list(value)


def _values(state: Any) -> dict[str, Any]:
    """Return the keys of a state: a dict, a dataclass, a pydantic model, or an object with ``to_dict()``.

    Raises `InvalidInputError`, code ``not_a_state``, for another value.
    """
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    try:
        return dict(state.to_dict() if hasattr(state, "to_dict") and not isinstance(state, Mapping) else state)
    except (TypeError, ValueError) as error:
        kinds = "a dict, a dataclass, a pydantic model, or an object with to_dict()"
        raise InvalidInputError(f"{type(state).__name__} is no state: pass {kinds}", code="not_a_state") from error
