"""Messages of frameworks in Turnlog's own format, and windows for the frameworks' model calls.

An adapter converts a framework's message to a body of the format `turnlog`, and keeps the framework's own form beside it. Texts
that the body has are not stored twice. The own form is what the model is sent, so the body has all of it that takes tokens.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce
from itertools import takewhile
from operator import getitem
from typing import Any, Generic, NamedTuple, TypeVar

from turnlog.client import GivenPolicy
from turnlog.client.model import Session
from turnlog.core.errors import HeadMismatchError, NotFoundError
from turnlog.core.json_values import MAX_INT, MIN_INT, JsonObject, JsonValue
from turnlog.core.messages import Opaque
from turnlog.core.session_settings import DEFAULT_OUTPUT_RESERVE
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.blocks import DATA_URL, json_text, placeholder_text
from turnlog.sessions.context_models import WindowAnswer
from turnlog.windows.request import system_cost

FORMAT = "turnlog"
"""The format of messages whose framework has a format of its own; windows of these adapters are built in it."""
_SHARED_CHARS = 48
"""Texts of the original that the body has too, from this length on, are stored as a reference."""
_AT, _NUMBER = "$at", "$number"
_VERSION, _COUNTS_ALL = "version", 2
"""Member beside the original, and its value since bodies have the parts of `added_media` and `other_parts`."""
_MEDIA = ("image", "audio", "file")
Part = dict[str, Any]
"""What a message consists of: a block of its content, a tool call, or a result."""
T = TypeVar("T")


def packed(original: JsonValue, body: JsonValue) -> JsonValue:
    """Return the original as the log can hold it.

    The path in the body is in place of each long text that the body has, and text in place of each number that Turnlog refuses.
    """
    return _packed(original, {text: path for path, text in _texts(body, [])})


def unpacked(value: JsonValue, body: Any) -> Any:
    """Return the original that `packed` made ``value`` from."""
    if isinstance(value, Mapping):
        if _AT in value:
            path = value[_AT]
            if not isinstance(path, list):
                raise TypeError(f"{_AT} of a kept message is not a list")
            return reduce(getitem, path, body)
        if _NUMBER in value:
            return json.loads(str(value[_NUMBER]))
        return {name.removeprefix("$"): unpacked(item, body) for name, item in value.items()}
    return [unpacked(item, body) for item in value] if isinstance(value, list) else value


def _packed(value: JsonValue, places: Mapping[str, list[str | int]]) -> JsonValue:
    if isinstance(value, str) and len(value) >= _SHARED_CHARS and value in places:
        return {_AT: list(places[value])}
    if is_refused(value):
        return {_NUMBER: json.dumps(value)}
    if isinstance(value, Mapping):
        return {f"${name}" if name.startswith("$") else name: _packed(item, places) for name, item in value.items()}
    return [_packed(item, places) for item in value] if isinstance(value, list) else value


def is_refused(value: object) -> bool:
    """Return whether a value is a number that Turnlog refuses: NaN, infinity, or an integer of more than 64 bits."""
    if isinstance(value, int):
        return not MIN_INT <= value <= MAX_INT
    return isinstance(value, float) and not math.isfinite(value)


def storable(value: Any) -> Any:
    """Return a value in which each number that Turnlog refuses is its text, such as `NaN`."""
    if isinstance(value, dict):
        return {name: storable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return json.dumps(value) if is_refused(value) else value


def _texts(value: JsonValue, path: list[str | int]) -> Iterator[tuple[list[str | int], str]]:
    if isinstance(value, str) and len(value) >= _SHARED_CHARS:
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, [*path, name])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, [*path, index])


def body_of(role: str, parts: Sequence[Part]) -> JsonObject:
    """Return the body of a message from its parts: `text_block`, `media_block`, `tool_call` and `tool_result`.

    A message with results is one of the role ``tool``.
    """
    body: dict[str, Any] = {"role": role, "content": [part for part in parts if "type" in part] or None}
    if calls := [part for part in parts if "args" in part]:
        body["tool_calls"] = calls
    if results := [part for part in parts if "tool_call_id" in part]:
        body |= {"role": "tool", "tool_results": results}
    return body


def body_parts(body: Mapping[str, Any], names: Mapping[str, str]) -> list[Part]:
    """Return the parts of a body: blocks, calls, and results, each with the ``name`` of its tool from ``names`` by call id.

    Media that a window has left out have no ``data``. A block that Turnlog does not know is the text in it.
    """
    content, results = body.get("content") or [], body.get("tool_results") or ()
    content = [text_block(content)] if isinstance(content, str) else content
    is_known = [block.get("type") in ("text", "thinking", *_MEDIA) for block in content]
    blocks = [
        block if known else text_block(placeholder_text(Opaque(FORMAT, block)) or json_text(block))
        for block, known in zip(content, is_known, strict=True)
    ]
    named = [{**result, "name": names.get(result["tool_call_id"], "tool")} for result in results]
    return [*blocks, *(body.get("tool_calls") or ()), *named]


def text_block(text: str, *, is_thinking: bool = False) -> Part:
    return {"type": "thinking" if is_thinking else "text", "text": text}


def media_block(media_type: str, data: bytes | str) -> Part:
    """Return the block of an image, a sound or a file, of bytes or their base64."""
    kind = next((kind for kind in ("image", "audio") if media_type.startswith(kind)), "file")
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode("ascii")
    return {"type": kind, "media_type": media_type, "data": encoded}


class _Added(Part):
    """A part that bodies of earlier versions lack."""


def added_media(media_type: str | None, data: bytes | str | None = None, **place: str) -> Part:
    """Return the block of media as `media_block` does, also of media by their ``url`` or ``file_id``."""
    block = media_block(media_type or "", data or b"") | place
    return _Added({name: value for name, value in block.items() if value})


def other_parts(kind: str, value: JsonValue) -> list[Part]:
    """Return the parts of what Turnlog has no block for, so that it is counted: its JSON, and the media in its data URLs."""
    media = list[Part]()

    def without_media(value: JsonValue) -> JsonValue:
        if isinstance(value, str) and (url := DATA_URL.fullmatch(value)):
            media.append(added_media(url[1], url[2]))
            return ""
        if isinstance(value, dict):
            return {name: without_media(item) for name, item in value.items()}
        return [without_media(item) for item in value] if isinstance(value, list) else value

    return [_Added(type=f"{kind}_part", content=without_media(storable(value))), *media]


def tool_call(call_id: str | None, name: str | None, arguments: Any) -> Part:
    """Return a tool call. Arguments may be JSON text; other text stays as it is."""
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
        return {"id": call_id or "", "name": name or "", "args": storable(arguments)}
    return {"id": call_id or "", "name": name or "", "args": storable(arguments or {})}


def tool_result(call_id: str | None, result: Any, *, is_error: bool = False) -> Part:
    return {"tool_call_id": call_id or "", "result": storable(result), **({"is_error": True} if is_error else {})}


def result_parts(result: Part, added: Sequence[Part]) -> list[Part]:
    """Return a tool result with its `added_media`, and its `other_parts` behind it."""
    media = [part for part in added if part["type"] in _MEDIA]
    others = [part for part in added if part["type"] not in _MEDIA]
    return [{**result, "media": media} if media else result, *others]


def function_tool(name: str, parameters: JsonValue) -> JsonObject:
    """Return a tool as windows count it."""
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def said(body: Mapping[str, Any]) -> JsonObject:
    """Return what a body says: all but the original beside it, to which a framework may add."""
    return {name: value for name, value in body.items() if name != "metadata"}


def _says(stored: Mapping[str, Any], body: JsonObject) -> bool:
    """Return whether a stored body says what a message says today. One of an earlier version lacks what only the original has."""
    plain, metadata = said(stored), stored.get("metadata")
    is_earlier = not isinstance(metadata, Mapping) or _VERSION not in metadata
    return plain == said(body) or (is_earlier and plain == _of_earlier_version(said(body)))


def _of_earlier_version(body: Mapping[str, Any]) -> JsonObject:
    earlier = {**body, "content": [block for block in body["content"] or () if not isinstance(block, _Added)] or None}
    if "tool_results" in body:
        results = body["tool_results"]
        earlier["tool_results"] = [{name: result[name] for name in result if name != "media"} for result in results]
    return earlier


@dataclass(kw_only=True)
class Limits:
    """Options of `Session.context` that limit a window. What sends windows for a framework has them too."""

    budget: int | None = None
    policy: GivenPolicy | None = None
    output_reserve: int | None = None


def tokens_of_system(system: str) -> int:
    """Return the most tokens that a framework's own system text takes of a budget."""
    return system_cost(upper_bound_tokens(system)) if system else 0


def limited_window(
    session: Session,
    limits: Limits,
    format: str,
    *,
    system: str,
    tools: Sequence[Mapping[str, Any]],
    model_limit: int | None = None,
    newest: int | None = None,
) -> WindowAnswer:
    """Build a window for a model call in which the framework's own system text and tools count.

    The budget is that of the limits, or the rest of the model's limit after the reserve for its output. When neither is known,
    the reserve includes the system text. ``newest`` is the position of the run's newest message: the window is built as if the log
    ended there.
    """
    system_tokens = tokens_of_system(system)
    reserve = DEFAULT_OUTPUT_RESERVE if limits.output_reserve is None else limits.output_reserve
    budget = model_limit - reserve if limits.budget is None and model_limit else limits.budget
    build = partial(
        session.context,
        format=format,
        policy=limits.policy,
        tools=tools,
        budget=max(1, budget - system_tokens) if budget is not None else None,
        output_reserve=reserve + system_tokens if budget is None else None,
    )
    window = build()
    if newest is None or window.head == newest:
        return window
    end = session.page(after=newest - 1, limit=2, in_view=True).messages
    return window if [message.position for message in end] == [newest] else build(at=newest)


class FrameworkWindow(NamedTuple, Generic[T]):
    """A window as messages of a framework, and its system text: a summary of what it leaves out, or nothing."""

    messages: list[T]
    system: str


class Originals(Generic[T]):
    """Messages of one framework as bodies of the format `turnlog`. They come back equal, from the log and from windows.

    ``dump`` and ``load`` convert a message to JSON and back. ``to_parts`` returns the role and the parts of a message, those of
    `body_of`. ``from_parts`` makes a new message from the role and the `body_parts` of a body that a window has shortened, or
    that another program has said. ``content_of`` returns what a message consists of; windows leave out messages without any.
    With ``is_exact`` an edit of a field that the body does not have makes another message, too.
    """

    format = FORMAT

    def __init__(
        self,
        name: str,
        *,
        dump: Callable[[T], JsonObject],
        load: Callable[[JsonObject], T],
        to_parts: Callable[[T], tuple[str, Sequence[Part]]],
        from_parts: Callable[[str, Sequence[Part]], T],
        content_of: Callable[[T], object],
        is_exact: bool = False,
    ) -> None:
        self._name, self._is_exact = name, is_exact
        self._dump, self._load = dump, load
        self._to_parts, self._from_parts, self._content_of = to_parts, from_parts, content_of

    def body(self, message: T) -> JsonObject:
        """Return the body of a message, with its original in the body's metadata."""
        body = body_of(*self._to_parts(message))
        return {**body, "metadata": {self._name: packed(self._dump(message), body), _VERSION: _COUNTS_ALL}}

    def message(self, body: Mapping[str, Any], names: Mapping[str, str] | None = None) -> T:
        """Return the message of a body: the original where the body still says the same. ``names`` are those of `body_parts`."""
        plain: dict[str, Any] = said(body)
        metadata = body.get("metadata")
        if isinstance(metadata, Mapping) and self._name in metadata:
            original = self._load(unpacked(metadata[self._name], plain))
            if _says(body, body_of(*self._to_parts(original))):
                return original
        return self._from_parts(plain["role"], body_parts(plain, names or {}))

    def stored(self, session: Session) -> list[tuple[int, T]]:
        """Return position and message of all messages in view; none when there is no session."""
        return list(self.newest_first(session))[::-1]

    def newest_first(self, session: Session) -> Iterator[tuple[int, T]]:
        """Yield what `stored` returns, newest first; older messages are read when they are needed."""
        with suppress(NotFoundError):
            for message in session.messages(order="desc", in_view=True, format=FORMAT):
                yield message.position, self.message(message.body)

    def extend(
        self,
        session: Session,
        messages: Sequence[T],
        *,
        after: int = 0,
        head: int | None = None,
        drop_rest: bool = False,
    ) -> list[int]:
        """Make these the messages in view after a position, and return their positions. Messages that are there stay.

        Where one differs, the session is rewound to the one before. Without ``drop_rest``, `HeadMismatchError` is raised when the
        session has messages after all of these, or when another writer appends meanwhile. ``head`` is the session's, if known.
        """
        bodies = [self.body(message) for message in messages]
        head = session.info().head if head is None else head
        newest_first = session.messages(order="desc", in_view=True, format=FORMAT)
        known = [*takewhile(lambda stored: stored.position > after, newest_first)][::-1]
        pairs = zip(known, bodies, messages, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: self._is_same(pair[0].body, pair[1], pair[2]), pairs))
        positions = [stored.position for stored in known[:shared]]
        if shared < len(known):
            if shared == len(bodies) and not drop_rest:
                raise HeadMismatchError(f"session {session.id!r} has {len(known) - shared} messages more")
            head = session.rewind(positions[-1] if positions else max(after, 1), if_head=head).head
        return positions + self.append(session, bodies[shared:], head)

    def _is_same(self, stored: Mapping[str, Any], body: JsonObject, message: T) -> bool:
        """Return whether a stored body is that of a message."""
        return _says(stored, body) and (not self._is_exact or self._dump(self.message(stored)) == self._dump(message))

    def append(self, session: Session, bodies: Sequence[JsonObject], head: int | None = None) -> list[int]:
        """Append bodies of messages, and return their positions. With ``head``, only while nobody else appends."""
        answers = session.extend(bodies, format=FORMAT, if_head=head, lenient=True)
        return [position for answer in answers for position in range(answer.first, answer.last + 1)]

    def window(
        self,
        session: Session,
        limits: Limits,
        *,
        system: str = "",
        tools: Sequence[JsonObject] = (),
        newest: int | None = None,
    ) -> FrameworkWindow[T]:
        """Build the window for a model call. The options are those of `limited_window`."""
        answer = limited_window(session, limits, FORMAT, system=system, tools=tools, newest=newest)
        names = {call["id"]: call["name"] for body in answer.messages for call in body.get("tool_calls") or ()}
        messages = [self.message(body, names) for body in answer.messages]
        return FrameworkWindow([message for message in messages if self._content_of(message)], str(answer.system or ""))


def has_messages(session: Session) -> bool:
    """Return whether the session exists and has messages in view."""
    with suppress(NotFoundError):
        return bool(session.page(limit=1, in_view=True).messages)
    return False
