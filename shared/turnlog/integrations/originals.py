"""Messages of frameworks in Turnlog's own format, and the JSON documents that adapters keep.

An adapter converts a framework's message to a body of the format `turnlog`, and keeps the framework's own form beside it. Texts
that the body has are not stored twice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from turnlog.agents.graph_state.messages import budget_arguments
from turnlog.client import GivenPolicy, parts_of
from turnlog.client.documents import Document, Documents
from turnlog.client.model import Session
from turnlog.core.errors import DocumentChangedError, HeadMismatchError, NotFoundError
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.sessions.context_models import WindowAnswer

FORMAT = "turnlog"
"""The format of messages whose framework has a format of its own; windows of these adapters are built in it."""
_SHARED_CHARS = 48
"""Texts of the original that the body has too, from this length on, are stored as a reference."""
_AT = "$at"
T = TypeVar("T")


def packed(original: JsonValue, body: JsonValue) -> JsonValue:
    """Return the original with each long text that is in the body replaced by the path to it there."""
    places = {text: path for path, text in _texts(body, [])}
    return _packed(original, places)


def unpacked(value: JsonValue, body: JsonValue) -> Any:
    """Return the original that `packed` made ``value`` from."""
    if isinstance(value, Mapping):
        if _AT in value:
            path = value[_AT]
            if not isinstance(path, list):
                raise TypeError(f"{_AT} of a kept message is not a list")
            return _at(body, path)
        return {_plain(name): unpacked(item, body) for name, item in value.items()}
    return [unpacked(item, body) for item in value] if isinstance(value, list) else value


def _packed(value: JsonValue, places: Mapping[str, list[str | int]]) -> JsonValue:
    if isinstance(value, str) and len(value) >= _SHARED_CHARS and value in places:
        return {_AT: list(places[value])}
    if isinstance(value, Mapping):
        return {_escaped(name): _packed(item, places) for name, item in value.items()}
    return [_packed(item, places) for item in value] if isinstance(value, list) else value


def _escaped(name: str) -> str:
    return f"${name}" if name.startswith("$") else name


def _plain(name: str) -> str:
    return name[1:] if name.startswith("$") else name


def _texts(value: JsonValue, path: list[str | int]) -> Iterator[tuple[list[str | int], str]]:
    if isinstance(value, str) and len(value) >= _SHARED_CHARS:
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, [*path, name])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, [*path, index])


def _at(value: Any, path: list[Any]) -> JsonValue:
    for step in path:
        value = value[step]
    text: JsonValue = value
    return text


def body_of(
    role: str, blocks: Sequence[JsonValue], calls: Sequence[JsonValue] = (), results: Sequence[JsonValue] = ()
) -> JsonObject:
    """Return the body of a message: its content of `text_block` and `media_block`, tool calls and results."""
    body: JsonObject = {"role": role, "content": list(blocks) or None}
    if calls:
        body["tool_calls"] = list(calls)
    if results:
        body["tool_results"] = list(results)
    return body


def text_block(text: str, *, is_thinking: bool = False) -> JsonObject:
    return {"type": "thinking" if is_thinking else "text", "text": text}


def media_block(media_type: str, data: bytes | str) -> JsonObject:
    """Return the block of an image, a sound or a file, of bytes or their base64."""
    kind = next((kind for kind in ("image", "audio") if media_type.startswith(kind)), "file")
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode("ascii")
    return {"type": kind, "media_type": media_type, "data": encoded}


def tool_call(call_id: str | None, name: str | None, arguments: Any) -> JsonObject:
    """Return a tool call. Arguments may be JSON text; other text stays as it is."""
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
        return {"id": call_id or "", "name": name or "", "args": arguments}
    return {"id": call_id or "", "name": name or "", "args": arguments or {}}


def tool_result(call_id: str | None, result: Any, *, is_error: bool = False) -> JsonObject:
    return {"tool_call_id": call_id or "", "result": result, **({"is_error": True} if is_error else {})}


def blocks_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of a body's content. Media that a window has left out have no ``data``."""
    content = body.get("content") or []
    return [text_block(content)] if isinstance(content, str) else content


def function_tool(name: str, parameters: JsonValue) -> JsonObject:
    """Return a tool as windows count it."""
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def said(body: Mapping[str, Any]) -> JsonObject:
    """Return what a body says: all but the original beside it, to which a framework may add."""
    return {name: value for name, value in body.items() if name != "metadata"}


@lazy_dataclass(frozen=True, slots=True)
class Limits:
    """Options of `Session.context` that limit a window."""

    budget: int | None = None
    policy: GivenPolicy | None = None
    output_reserve: int | None = None


class FrameworkWindow(Generic[T]):
    """A window as messages of a framework, and its system text: a summary of what it leaves out, or nothing."""

    def __init__(self, messages: Sequence[T], system: str, answer: WindowAnswer) -> None:
        self.messages = list(messages)
        self.system = system
        self.answer = answer


class Originals(Generic[T]):
    """Messages of one framework as bodies of the format `turnlog`. They come back equal, from the log and from windows.

    ``dump`` and ``load`` convert a message to JSON and back. ``to_body`` makes the body from the message. ``from_body`` makes a
    new message from a body that a window has shortened, or that another program has said, and from the names of called tools
    by call id.
    """

    format = FORMAT

    def __init__(
        self,
        name: str,
        *,
        dump: Callable[[T], JsonObject],
        load: Callable[[JsonObject], T],
        to_body: Callable[[T], JsonObject],
        from_body: Callable[[Mapping[str, Any], Mapping[str, str]], T],
    ) -> None:
        self._name = name
        self._dump, self._load = dump, load
        self._to_body, self._from_body = to_body, from_body

    def body(self, message: T) -> JsonObject:
        """Return the body of a message, with its original in the body's metadata."""
        body = self._to_body(message)
        return {**body, "metadata": {self._name: packed(self._dump(message), body)}}

    def message(self, body: Mapping[str, Any], names: Mapping[str, str] | None = None) -> T:
        """Return the message of a body: the original where the body still says the same. ``names`` are those of `from_body`."""
        plain = said(body)
        metadata = body.get("metadata")
        if isinstance(metadata, Mapping) and self._name in metadata:
            original = self._load(unpacked(metadata[self._name], plain))
            if self._to_body(original) == plain:
                return original
        return self._from_body(plain, names or {})

    def stored(self, session: Session) -> Iterator[tuple[int, T]]:
        """Yield position and message of all messages in view."""
        for message in session.messages(in_view=True, format=FORMAT):
            yield message.position, self.message(message.body)

    def extend(self, session: Session, messages: Sequence[T], *, after: int = 0, drop_rest: bool = False) -> list[int]:
        """Make these the messages in view after a position, and return their positions. Messages that are there stay.

        Where one differs, the session is rewound to the one before. Without ``drop_rest``, `HeadMismatchError` is raised when the
        session has messages after all of these, or when another writer appends meanwhile.
        """
        bodies = [self.body(message) for message in messages]
        head = session.info().head
        known = [stored for stored in session.messages(in_view=True, format=FORMAT) if stored.position > after]
        shared = 0
        while shared < min(len(known), len(bodies)) and said(known[shared].body) == said(bodies[shared]):
            shared += 1
        positions = [stored.position for stored in known[:shared]]
        if shared < len(known):
            if shared == len(bodies) and not drop_rest:
                raise HeadMismatchError(f"session {session.id!r} has {len(known) - shared} messages more")
            head = session.rewind(positions[-1] if positions else max(after, 1), if_head=head).head
        return positions + self.append(session, bodies[shared:], head)

    def append(self, session: Session, bodies: Sequence[JsonObject], head: int | None = None) -> list[int]:
        """Append bodies of messages, and return their positions. With ``head``, only while nobody else appends."""
        positions = list[int]()
        for part in parts_of(bodies):
            answer = session.append(*bodies[part], format=FORMAT, if_head=head, lenient=True)
            positions += range(answer.first, answer.last + 1)
            head = answer.head if head is not None else None
        return positions

    def window(
        self, session: Session, limits: Limits, *, system: str = "", tools: Sequence[JsonObject] = ()
    ) -> FrameworkWindow[T]:
        """Build the window for a model call. ``system`` and ``tools`` are the framework's own, and count in the budget."""
        answer = session.context(
            format=FORMAT,
            policy=limits.policy,
            tools=tools,
            **budget_arguments(budget=limits.budget, reserve=limits.output_reserve, system=system, limit=None),
        )
        names = {call["id"]: call["name"] for body in answer.messages for call in body.get("tool_calls") or ()}
        messages = [self.message(body, names) for body in answer.messages if any(body.get(name) for name in _SAYS)]
        return FrameworkWindow(messages, str(answer.system or ""), answer)


_SAYS = ("content", "tool_calls", "tool_results")


def has_messages(session: Session) -> bool:
    """Return whether the session exists and has messages in view."""
    with suppress(NotFoundError):
        return bool(session.page(limit=1, in_view=True).messages)
    return False


def read_json(documents: Documents, key: str) -> Any:
    """Return the JSON of a document; None when there is none, or no session."""
    with suppress(NotFoundError):
        document = documents.get(key)
        return json.loads(document.data) if document is not None else None
    return None


def change_document(documents: Documents, key: str, change: Callable[[Any], Any], *, tries: int = 100) -> Any:
    """Replace the JSON of a document by what ``change`` makes of it (of None where there is none), whoever else writes.

    Returns the new JSON.
    """
    for tries_left in reversed(range(tries)):
        before = documents.get(key)
        old = json.loads(before.data) if before is not None else None
        new = change(old)
        if new == old:
            return new
        try:
            put_json(documents, key, new, before)
        except DocumentChangedError:
            if not tries_left:
                raise
            continue
        return new
    return None


def put_json(documents: Documents, key: str, value: Any, before: Document | None) -> Document:
    """Write a value in place of the document ``before``, or where there is none. Raises `DocumentChangedError`."""
    data = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
    return documents.put(
        key, data, if_absent=before is None, if_revision=before.revision if before is not None else None
    )
