"""Messages of a graph's state: dicts as they are, and message objects of LangChain, which come back equal.

A message object is stored in the format `openai_chat`; what of it that format does not say is in the message's metadata.
LangChain itself is imported only when objects are to be made.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnlog.agents.graph_state.checks import storable
from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.json_values import canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.providers.registry import recognise
from turnlog.sessions.message_models import StoredMessage

KEPT = "graph"
"""The key of a message's metadata under which a message object has what its body does not say."""
WITH_IDS = (KEPT, "strands")
"""Keys of the metadata of messages whose ids are the framework's own."""
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_REMOVE_ALL = "__remove_all__"
_KINDS = {role: kind for kind, role in _ROLES.items()}


@lazy_dataclass(frozen=True, slots=True)
class Identity:
    """What a message is known by: its id where both have one, else what it says."""

    id: str | None
    body: bytes

    def is_same(self, other: Identity) -> bool:
        return self.id == other.id if self.id is not None and other.id is not None else self.body == other.body


@lazy_dataclass(frozen=True, slots=True)
class GraphMessage:
    """A message as it is appended."""

    body: dict[str, Any]
    meta: dict[str, Any]
    identity: Identity


def said(value: Any, pointer: str) -> tuple[GraphMessage | None, list[Problem]]:
    """The message as it can be appended, or None and what is wrong with it."""
    given = _of_object(value) if _is_object(value) else (value, {}) if isinstance(value, Mapping) else None
    if given is None:
        return None, [Problem("wrong_type", pointer, "a message is neither an object nor a message of LangChain")]
    (body, _, problems), meta = storable(given[0]), given[1]
    found = [Problem(one.code, pointer + one.pointer, one.message) for one in problems]
    try:
        recognise(body).parse(body)
    except InvalidInputError as error:
        return None, [*found, Problem("invalid_message", pointer, error.detail)]
    return GraphMessage(body, meta, Identity(meta.get("id"), canonical_json(body))), found


def is_removal(value: Any) -> bool:
    """An order to a graph's reducer, not something said: the log keeps what was said."""
    return _is_object(value) and getattr(value, "type", None) == "remove"


def updated(before: Sequence[Any], answer: Sequence[Any]) -> list[Any]:
    """All messages after a node's answer, which is the whole list, a part of it behind a summary, or only what is new."""
    removed = {one.id for one in answer if is_removal(one)}
    new = [one for one in answer if not is_removal(one)]
    if removed:
        return [*(one for one in before if not removed & {_REMOVE_ALL, getattr(one, "id", None)}), *new]
    known = [made.identity for one in before if (made := said(one, "")[0]) is not None]
    found = [made.identity for one in new if (made := said(one, "")[0]) is not None]
    is_whole = any(one.is_same(other) for one in found for other in known)
    return new if is_whole else [*before, *new]


def with_ids(answer: Any, make_id: Callable[[], str]) -> Any:
    """A node's messages with an id each, where they are objects: the graph would give them one that the log never learns."""
    if isinstance(answer, list | tuple):
        return [with_ids(one, make_id) for one in answer]
    return answer.model_copy(update={"id": make_id()}) if _is_object(answer) and answer.id is None else answer


def identity_of(stored: StoredMessage) -> Identity:
    own = stored.id if any(name in (stored.metadata or {}) for name in WITH_IDS) else None
    return Identity(own, canonical_json(stored.body))


def given_of(stored: StoredMessage) -> Any:
    """The message as it was given: a dict, or a message object where LangChain is there."""
    kept = (stored.metadata or {}).get(KEPT)
    return as_given(stored.body, kept if isinstance(kept, dict) else None)


def as_given(body: dict[str, Any], kept: dict[str, Any] | None) -> Any:
    if kept is None:
        return body
    try:
        library = importlib.import_module("langchain_core.messages")
    except ImportError:
        return body
    data = _data(body) | kept["data"]
    (made,) = library.messages_from_dict([{"type": kept["type"], "data": data}])
    return made


def _is_object(value: Any) -> bool:
    """A message of LangChain, which need not be imported to know one."""
    kinds = type(value).__mro__
    return any(kind.__name__ == "BaseMessage" and kind.__module__.startswith("langchain_core.") for kind in kinds)


def _of_object(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    data, _, _ = storable(value.model_dump())
    role = _ROLES.get(value.type, getattr(value, "role", value.type))
    body: dict[str, Any] = {"role": role, "content": _content(value)}
    if data.get("name"):
        body["name"] = data["name"]
    if value.type == "ai" and data.get("tool_calls"):
        body["tool_calls"] = [
            {
                "id": call["id"] or "",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["args"], ensure_ascii=False)},
            }
            for call in data["tool_calls"]
        ]
    if value.type == "tool":
        body["tool_call_id"] = data.get("tool_call_id", "")
    told = _data(body)
    kept = {name: one for name, one in data.items() if name not in told or told[name] != one}
    meta: dict[str, Any] = {"metadata": {KEPT: {"type": value.type, "data": kept}}}
    if isinstance(value.id, str) and 0 < len(value.id) <= 128:
        meta["id"] = value.id
    if value.type == "tool" and data.get("status") == "error":
        meta["is_error"] = True
    return body, meta


def _content(value: Any) -> Any:
    """Text, or parts as the format has them."""
    if isinstance(value.content, str):
        return value.content
    library = importlib.import_module("langchain_core.messages")
    return library.convert_to_openai_messages([value])[0].get("content", "")


def _data(body: dict[str, Any]) -> dict[str, Any]:
    """What a body says of a message object's fields."""
    data: dict[str, Any] = {"content": body["content"], "type": _KINDS.get(body["role"], body["role"])}
    if "name" in body:
        data["name"] = body["name"]
    if "tool_calls" in body:
        data["tool_calls"] = [
            {
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
                "id": call["id"],
                "type": "tool_call",
            }
            for call in body["tool_calls"]
        ]
    if "tool_call_id" in body:
        data["tool_call_id"] = body["tool_call_id"]
    return data
