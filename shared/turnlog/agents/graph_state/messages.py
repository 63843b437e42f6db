"""Messages of a graph's state: dicts, and message objects of LangChain, which are restored equal, alone or in a window.

A message object is stored in the format `openai_chat`; its other fields are in the message's metadata. LangChain is imported
only when objects are created.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from turnlog.agents.graph_state.checks import split_storable
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.json_values import JsonObject, canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import ToolCall
from turnlog.providers import Turn
from turnlog.providers.blocks import tool_input
from turnlog.providers.registry import codec_of, recognise
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import StoredMessage

GRAPH_METADATA = "graph"
"""The metadata key that holds the fields of a message object that its body does not have."""
FRAMEWORK_METADATA = (GRAPH_METADATA, "strands")
"""Metadata keys that mark messages whose ids come from a framework."""
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_REMOVE_ALL = "__remove_all__"
_KINDS = {role: kind for kind, role in _ROLES.items()}


@lazy_dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a message: its id when both messages have one, else its body. A redacted message has only a role."""

    id: str | None
    body: bytes
    role: object = None
    is_redacted: bool = False

    def is_same(self, other: Identity) -> bool:
        """Return whether both are the identity of one message."""
        return self.id == other.id if self.id is not None and other.id is not None else self.body == other.body


@lazy_dataclass(frozen=True, slots=True)
class GraphMessage:
    """A message ready to be appended."""

    body: dict[str, Any]
    meta: dict[str, Any]
    identity: Identity


def whole_message(value: Any) -> Any:
    """Return the message that LangGraph's shorthand stands for, ``"text"`` or ``("ai", "text")``, or that LangChain's chunk is.

    Other values are returned unchanged.
    """
    if _is_object(value):
        return importlib.import_module("langchain_core.messages").message_chunk_to_message(value)
    if isinstance(value, str):
        return {"role": "user", "content": value}
    if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str):
        return {"role": _ROLES.get(value[0], value[0]), "content": value[1]}
    return value


def is_one_message(value: Any) -> bool:
    """Return whether an update of ``messages`` is one message. LangGraph takes a pair for one in a tuple, for two in a list."""
    return not isinstance(value, list | tuple) or (isinstance(value, tuple) and whole_message(value) is not value)


def to_graph_message(value: Any, pointer: str) -> tuple[GraphMessage | None, list[Problem]]:
    """Convert a message of a graph. Returns None when it can't be appended, and the problems found."""
    value = whole_message(value)
    converted = _body_and_meta(value) if _is_object(value) else (value, {}) if isinstance(value, Mapping) else None
    if converted is None:
        message = f"{type(value).__name__} is no message: an object, a LangChain message, a text, or a role and a text"
        return None, [Problem("wrong_type", pointer, message)]
    (body, _, problems), meta = split_storable(converted[0]), converted[1]
    placed = [Problem(problem.code, pointer + problem.pointer, problem.message) for problem in problems]
    try:
        recognise(body).parse(body)
    except InvalidInputError as error:
        return None, [*placed, Problem("invalid_message", pointer, error.detail)]
    return GraphMessage(body, meta, Identity(meta.get("id"), canonical_json(body), body.get("role"))), placed


def is_removal(value: Any) -> bool:
    """Return whether the value is a `RemoveMessage`: an instruction to a graph's reducer, not a message."""
    return _is_object(value) and getattr(value, "type", None) == "remove"


def merge_answer(before: Sequence[Any], answer: Sequence[Any]) -> list[Any]:
    """Merge a node's answer into the messages: the answer is the whole list, a list behind a summary, or new messages only."""
    removed = {message.id for message in answer if is_removal(message)}
    new = [message for message in answer if not is_removal(message)]
    if removed:
        return [*(message for message in before if not removed & {_REMOVE_ALL, getattr(message, "id", None)}), *new]
    known = _identities(before)
    is_whole = any(identity.is_same(other) for identity in _identities(new) for other in known)
    return new if is_whole else [*before, *new]


def _identities(messages: Sequence[Any]) -> list[Identity]:
    converted = [to_graph_message(message, "")[0] for message in messages]
    return [message.identity for message in converted if message is not None]


def with_ids(answer: Any, make_id: Callable[[], str]) -> Any:
    """Give an id to each message object without one. The graph would add an id later, which the log would not have."""
    if not is_one_message(answer):
        return [with_ids(message, make_id) if _is_object(message) else message for message in answer]
    return answer.model_copy(update={"id": make_id()}) if _is_object(answer) and answer.id is None else answer


def identity_of(stored: StoredMessage) -> Identity:
    """Return the identity of a message in the log."""
    own = stored.id if any(name in (stored.metadata or {}) for name in FRAMEWORK_METADATA) else None
    return Identity(own, canonical_json(stored.body), stored.body.get("role"), stored.redacted)


def original_message(stored: StoredMessage) -> Any:
    """Return a message of the log as the graph gave it: a dict, or a message object when LangChain is installed."""
    object_fields = (stored.metadata or {}).get(GRAPH_METADATA)
    return original_form(stored.body, object_fields if isinstance(object_fields, dict) else None)


def original_form(body: dict[str, Any], object_fields: dict[str, Any] | None) -> Any:
    """Return a body as the graph gave it. ``object_fields`` are the other fields of a message object; None for a dict."""
    if object_fields is None:
        return body
    try:
        library = importlib.import_module("langchain_core.messages")
    except ImportError:
        return body
    data = _data(body) | object_fields["data"]
    (message,) = library.messages_from_dict([{"type": object_fields["type"], "data": data}])
    return message


def _is_object(value: Any) -> bool:
    """Return whether the value is a message of LangChain, without importing LangChain."""
    kinds = type(value).__mro__
    return any(kind.__name__ == "BaseMessage" and kind.__module__.startswith("langchain_core.") for kind in kinds)


def _body_and_meta(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    data, _, _ = split_storable(value.model_dump())
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
    derived = _data(body)
    object_fields = {name: item for name, item in data.items() if name not in derived or derived[name] != item}
    meta: dict[str, Any] = {"metadata": {GRAPH_METADATA: {"type": value.type, "data": object_fields}}}
    if isinstance(value.id, str) and 0 < len(value.id) <= 128:
        meta["id"] = value.id
    if value.type == "tool" and data.get("status") == "error":
        meta["is_error"] = True
    return body, meta


def _content(value: Any) -> Any:
    """Return the content of a message object: a text, or parts of the format."""
    if isinstance(value.content, str):
        return value.content
    convert = importlib.import_module("langchain_core.messages").convert_to_openai_messages
    try:
        return convert([value])[0].get("content", "")
    except ValueError:  # of a block that OpenAI Chat does not take
        return [part for block in value.content for part in _parts(value, block, convert)]


def _parts(value: Any, block: Any, convert: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Return the parts of one block: a text or media of the same size in place of what OpenAI Chat does not take."""
    try:
        content = convert([value.model_copy(update={"content": [block]})])[0].get("content", "")
    except ValueError:
        data, place = block.get("base64") or block.get("data"), block.get("url") or block.get("file_id")
        if isinstance(block.get("text"), str):
            return [{"type": "text", "text": block["text"]}]
        if block["type"] == "image" and place:
            return [{"type": "image_url", "image_url": {"url": place}}]
        url = f"data:{block.get('mime_type', '')};base64,{data}"
        return [{"type": "file", "file": {"file_data": url} if data else {"file_id": str(place)}}]
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content)


def _data(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message object that its body determines."""
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


K = TypeVar("K")
V = TypeVar("V")


class Newest(OrderedDict[K, V]):
    """A mapping that keeps the ``limit`` keys that were set last. Threads may share it."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self._limit:
            self.popitem(last=False)


FORMAT = "openai_chat"
_MAX_KNOWN = 4_000


class WindowObjects:
    """Message objects of many sessions, by their bodies in a window. Missing ones are read from the log again.

    An object keeps fields that no format has: its id, its thinking with the provider's signature, its artifact.
    """

    def __init__(self) -> None:
        self._known = Newest[tuple[str, bytes], Any](_MAX_KNOWN)
        self._lock = threading.Lock()

    def learn(self, session_id: str, body: JsonObject, message: Any) -> None:
        """Remember the object for a body in a window; None when the body has no object."""
        key = (session_id, canonical_json(_as_in_window(body)))
        if getattr(message, "invalid_tool_calls", None):
            # Calls that could not be parsed are in no window, and nothing answers them.
            message = message.model_copy(update={"invalid_tool_calls": []})
        with self._lock:
            self._known[key] = message

    def objects(self, session: Session, window: WindowAnswer) -> list[Any]:
        """Return the messages of a window in the format `openai_chat` as message objects."""
        keys = [(session.id, canonical_json(body)) for body in window.messages]
        if any(key not in self._known for key in keys):
            self._read(session, window)
        window_objects = list[Any]()
        for key, body in zip(keys, window.messages, strict=True):
            known = self._known.get(key)
            window_objects.append(known.model_copy() if known is not None else _new_object(body))
            if key not in self._known:
                self.learn(session.id, body, None)
        return window_objects

    def _read(self, session: Session, window: WindowAnswer) -> None:
        """Read the objects of all messages that the window shows in full, oldest first: of too many, the newest stay known."""
        shown = [part for part in window.manifest.parts if part.kind == "message" and part.level == "whole"]
        reached = 0
        for position in sorted(part.first for part in shown if part.first is not None):
            if position > reached:
                messages = session.page(after=position - 1, in_view=True).messages
                for stored in messages:
                    if GRAPH_METADATA in (stored.metadata or {}):
                        self.learn(session.id, stored.body, original_message(stored))
                reached = messages[-1].position if messages else position


def with_changes(window_objects: Sequence[Any], state: Sequence[Any], request: Sequence[Any]) -> list[Any]:
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
    groups = [(changed.get(message.id, message), inserted.get(message.id, [])) for message in window_objects]
    return [*front, *(message for first, more in groups for message in (first, *more)), *end]


def _as_in_window(body: JsonObject) -> JsonObject:
    """Return the body as windows show it when no repair is needed."""
    codec = codec_of(FORMAT)
    bodies = codec.bodies(Turn.with_own_ids(codec.parse(body), FORMAT, body))
    return bodies[0] if len(bodies) == 1 else body


def _new_object(body: Mapping[str, Any]) -> Any:
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
