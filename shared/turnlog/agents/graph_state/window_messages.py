"""A window as message objects of LangChain: those that were said are the objects they were, the others are made of its text."""

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
_MOST = 4_000


class Shown:
    """Objects by the body that a window has of them, of many sessions; what is not known any more is read from the log again.

    So a message keeps what no format tells: its id, its thinking with the provider's signature, its artifact.
    """

    def __init__(self) -> None:
        self._known = dict[tuple[str, bytes], Any]()
        self._lock = threading.Lock()

    def learn(self, session_id: str, body: JsonObject, message: Any) -> None:
        """What stands for this body in a window; None where no object does."""
        key = (session_id, canonical_json(_rendered(body)))
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = _without_invalid_calls(message)
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]

    def objects(self, session: Session, window: WindowAnswer) -> list[Any]:
        """The messages of a window in the format `openai_chat`."""
        keys = [(session.id, canonical_json(body)) for body in window.messages]
        if any(key not in self._known for key in keys):
            self._read(session, window)
        found = list[Any]()
        for key, body in zip(keys, window.messages, strict=True):
            known = self._known.get(key)
            found.append(known.model_copy() if known is not None else _made(body))
            if key not in self._known:
                self.learn(session.id, body, None)
        return found

    def _read(self, session: Session, window: WindowAnswer) -> None:
        """Objects of all messages that the window shows whole."""
        whole = [part.first for part in window.manifest.parts if part.level == "whole" and part.first is not None]
        before: int | None = window.head + 1
        while whole and before is not None and before > min(whole):
            page = session.page(order="desc", before=before, in_view=True)
            for one in page.messages:
                if KEPT in (one.metadata or {}):
                    self.learn(session.id, one.body, given_of(one))
            before = page.next


def with_changes(shown: Sequence[Any], state: Sequence[Any], request: Sequence[Any]) -> list[Any]:
    """What was changed in a request for one call, or put into it, in the window too.

    ``state`` are the messages that the request had. What is put behind a message that the window leaves out is left out, too.
    """
    known = {one.id: one for one in state}
    changed = {one.id: one for one in request if one.id in known and one != known[one.id]}
    put, behind = dict[str | None, list[Any]](), None
    for one in request:
        if one.id in known:
            behind = one.id
        elif one.type != "tool":
            put.setdefault(behind, []).append(one)
    front, end = put.pop(None, []), put.pop(behind, []) if behind is not None else []
    found = [(changed.get(one.id, one), put.get(one.id, [])) for one in shown]
    return [*front, *(made for one, more in found for made in (one, *more)), *end]


def _without_invalid_calls(message: Any) -> Any:
    """Calls that could not be read are in no window, and nothing answers them."""
    if not getattr(message, "invalid_tool_calls", None):
        return message
    return message.model_copy(update={"invalid_tool_calls": []})


def _rendered(body: JsonObject) -> JsonObject:
    """The body as windows show it where nothing has to be mended."""
    codec = codec_of(FORMAT)
    message = codec.parse(body)
    calls = tuple(call.id for call in message.tool_calls)
    results = tuple(result.tool_call_id for result in message.tool_results)
    made = codec.bodies(Turn(message, FORMAT, body, call_ids=calls, result_ids=results))
    return made[0] if len(made) == 1 else body


def _made(body: Mapping[str, Any]) -> Any:
    library = importlib.import_module("langchain_core.messages")
    (made,) = library.convert_to_messages([_with_objects(body)])
    return made


def _with_objects(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """With arguments that are the JSON of an object, as LangChain demands them."""
    calls: Sequence[Mapping[str, Any]] | None = body.get("tool_calls")
    if not calls:
        return body
    made = list[dict[str, Any]]()
    for call in calls:
        function = call.get("function") or {
            "name": call["custom"]["name"],
            "arguments": canonical_json({"input": call["custom"]["input"]}).decode(),
        }
        given = tool_input(ToolCall(call["id"], function["name"], function["arguments"]))
        value = given if isinstance(given, dict) else {"input": given}
        made.append({"id": call["id"], "name": function["name"], "args": value, "type": "tool_call"})
    return {**body, "tool_calls": made}


def room(*, budget: int | None, reserve: int | None, system: str, limit: int | None) -> dict[str, Any]:
    """Arguments of `Session.context`: the budget, or what the model's ``limit`` leaves beside the reserve for its output, without
    the framework's own system text; where neither is known, a reserve that has the text in it."""
    own = system_cost(upper_bound_tokens(system)) if system else 0
    kept = DEFAULT_OUTPUT_RESERVE if reserve is None else reserve
    if budget is not None:
        return {"budget": max(1, budget - own)}
    return {"budget": max(1, limit - kept - own)} if limit else {"output_reserve": kept + own}
