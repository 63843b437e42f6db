"""A window as message objects of LangChain: the original objects of messages in the log, and new objects for the rest."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.agents.graph_state.messages import KEPT, given_of
from turnlog.client.model import Session
from turnlog.core.json_values import JsonObject, canonical_json
from turnlog.core.messages import ToolCall
from turnlog.core.session_settings import DEFAULT_OUTPUT_RESERVE
from turnlog.providers.base import Turn
from turnlog.providers.blocks import tool_input
from turnlog.providers.registry import codec_of
from turnlog.sessions.context_models import WindowAnswer
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.build import system_cost

FORMAT = "openai_chat"
_MAX_KNOWN = 4_000


class Shown:
    """Message objects of many sessions, by their bodies in a window. Missing ones are read from the log again.

    An object keeps fields that no format has: its id, its thinking with the provider's signature, its artifact.
    """

    def __init__(self) -> None:
        self._known = dict[tuple[str, bytes], Any]()
        self._lock = threading.Lock()

    def learn(self, session_id: str, body: JsonObject, message: Any) -> None:
        """Remember the object for a body in a window; None when the body has no object."""
        key = (session_id, canonical_json(_as_in_window(body)))
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = _without_invalid_calls(message)
            while len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]

    def objects(self, session: Session, window: WindowAnswer) -> list[Any]:
        """Return the messages of a window in the format `openai_chat` as message objects."""
        keys = [(session.id, canonical_json(body)) for body in window.messages]
        if any(key not in self._known for key in keys):
            self._read(session, window)
        shown = list[Any]()
        for key, body in zip(keys, window.messages, strict=True):
            known = self._known.get(key)
            shown.append(known.model_copy() if known is not None else _new_object(body))
            if key not in self._known:
                self.learn(session.id, body, None)
        return shown

    def _read(self, session: Session, window: WindowAnswer) -> None:
        """Read the objects of all messages that the window shows in full."""
        positions = [part.first for part in window.manifest.parts if part.level == "whole" and part.first is not None]
        before: int | None = window.head + 1
        while positions and before is not None and before > min(positions):
            page = session.page(order="desc", before=before, in_view=True)
            for stored in page.messages:
                if KEPT in (stored.metadata or {}):
                    self.learn(session.id, stored.body, given_of(stored))
            before = page.next


def with_changes(shown: Sequence[Any], state: Sequence[Any], request: Sequence[Any]) -> list[Any]:
    """Apply the changes of one request to the window: changed messages, and messages that were put in.

    ``state`` are the messages that the request began with. A message put behind one that the window leaves out is left out,
    too.
    """
    known = {message.id: message for message in state}
    changed = {message.id: message for message in request if message.id in known and message != known[message.id]}
    inserted, previous_id = dict[str | None, list[Any]](), None
    for message in request:
        if message.id in known:
            previous_id = message.id
        elif message.type != "tool":
            inserted.setdefault(previous_id, []).append(message)
    front = inserted.pop(None, [])
    end = inserted.pop(previous_id, []) if previous_id is not None else []
    groups = [(changed.get(message.id, message), inserted.get(message.id, [])) for message in shown]
    return [*front, *(message for first, more in groups for message in (first, *more)), *end]


def _without_invalid_calls(message: Any) -> Any:
    """Return the message without calls that could not be parsed: they are in no window, and nothing answers them."""
    if not getattr(message, "invalid_tool_calls", None):
        return message
    return message.model_copy(update={"invalid_tool_calls": []})


def _as_in_window(body: JsonObject) -> JsonObject:
    """Return the body as windows show it when no repair is needed."""
    codec = codec_of(FORMAT)
    message = codec.parse(body)
    calls = tuple(call.id for call in message.tool_calls)
    results = tuple(result.tool_call_id for result in message.tool_results)
    bodies = codec.bodies(Turn(message, FORMAT, body, call_ids=calls, result_ids=results))
    return bodies[0] if len(bodies) == 1 else body


def _new_object(body: Mapping[str, Any]) -> Any:
    """Return a new message object for a body."""
    library = importlib.import_module("langchain_core.messages")
    (message,) = library.convert_to_messages([_with_objects(body)])
    return message


def _with_objects(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body with call arguments that are JSON objects, as LangChain requires."""
    calls: Sequence[Mapping[str, Any]] | None = body.get("tool_calls")
    if not calls:
        return body
    converted = list[dict[str, Any]]()
    for call in calls:
        function = call.get("function") or {
            "name": call["custom"]["name"],
            "arguments": canonical_json({"input": call["custom"]["input"]}).decode(),
        }
        arguments = tool_input(ToolCall(call["id"], function["name"], function["arguments"]))
        value = arguments if isinstance(arguments, dict) else {"input": arguments}
        converted.append({"id": call["id"], "name": function["name"], "args": value, "type": "tool_call"})
    return {**body, "tool_calls": converted}


def room(*, budget: int | None, reserve: int | None, system: str, limit: int | None) -> dict[str, Any]:
    """Return the budget arguments of `Session.context`, with the framework's own system text taken off.

    They are the budget, or the rest of the model's ``limit`` after the reserve for its output. When neither is known, they are
    a reserve that includes the system text.
    """
    system_tokens = system_cost(upper_bound_tokens(system)) if system else 0
    reserve_tokens = DEFAULT_OUTPUT_RESERVE if reserve is None else reserve
    if budget is not None:
        return {"budget": max(1, budget - system_tokens)}
    return (
        {"budget": max(1, limit - reserve_tokens - system_tokens)}
        if limit
        else {"output_reserve": reserve_tokens + system_tokens}
    )
