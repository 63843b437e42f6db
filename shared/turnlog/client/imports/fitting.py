"""A message of a source within the limits of one commit: what is over them is cut, and the place of the cut is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from turnlog.client.imports.sessions import Noted, SourceMessage
from turnlog.domain.jsonvalue import encode_json

MAX_BODY_BYTES = 1024 * 1024
MAX_META_BYTES = 2 * 1024 * 1024
MAX_LEVELS = 28
"""Of JSON in a body, in a message's metadata, in a session's: what stands around it in a request is within `MAX_DEPTH` then."""
CUT, AS_TEXT = "cut", "as_text"
_KEPT_CHARS = 1_000
_TEXT_TYPES = {"openai_responses": "input_text"}


def fitted(message: SourceMessage, format: str) -> tuple[SourceMessage, tuple[Noted, ...]]:
    """The message, and what was cut from it: always the same for the same message."""
    body, of_body = _within(message.body, MAX_BODY_BYTES, _TEXT_TYPES.get(format, "text"))
    meta, of_meta = _within(message.meta, MAX_META_BYTES, "text")
    changes = (*of_body, *of_meta)
    if not changes:
        return message, ()
    return replace(message, body=body, meta=meta), tuple(Noted(message.place, change) for change in changes)


def shallow(value: Any, levels: int = MAX_LEVELS) -> Any:
    """The value with all that is deeper as JSON text."""
    return _shallow(value, levels, "", [])


def _shallow(value: Any, levels: int, pointer: str, changes: list[str]) -> Any:
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        changes.append(f"{AS_TEXT} {pointer}")
        return encode_json(value).decode("utf-8")
    if isinstance(value, list):
        return [_shallow(one, levels - 1, f"{pointer}/{at}", changes) for at, one in enumerate(value)]
    return {name: _shallow(one, levels - 1, f"{pointer}{_token(name)}", changes) for name, one in value.items()}


def _token(name: object) -> str:
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


def _within(value: dict[str, Any], limit: int, text_type: str) -> tuple[dict[str, Any], list[str]]:
    changes = list[str]()
    made = _shallow(value, MAX_LEVELS, "", changes)
    while len(encode_json(made)) > limit:
        holder, key, pointer, size = max(_leaves(made, ""), key=lambda one: (one[3], one[2]), default=(None, "", "", 0))
        if holder is None or size <= _KEPT_CHARS:
            break
        holder[key] = _cut(holder[key], size, text_type)
        changes.append(f"{CUT} {pointer}")
    return made, changes


def _leaves(value: Any, pointer: str) -> Iterator[tuple[Any, Any, str, int]]:
    """What can be cut: texts, and media as a whole, for half an image is none. (holder, key, pointer, size)"""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        at = f"{pointer}{_token(key)}"
        if isinstance(child, str):
            yield value, key, at, len(child)
        elif isinstance(child, dict) and _is_media(child):
            yield value, key, at, len(encode_json(child))
        else:
            yield from _leaves(child, at)


def _is_media(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and any(word in kind for word in ("image", "file", "audio", "document"))


def _cut(value: Any, size: int, text_type: str) -> Any:
    if isinstance(value, str):
        return f"{value[:_KEPT_CHARS]}\n[{size - _KEPT_CHARS:,} characters left out by the import]"
    return {"type": text_type, "text": f"[{value['type']} of {size:,} bytes left out by the import]"}
