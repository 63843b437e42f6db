"""Compare a session of a source with the log.

The log is read at each import, and no record of earlier imports is kept. So a killed import continues where it stopped, a
repeated import writes nothing, and the import of a source that has grown appends what is new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from turnlog.core.json_values import canonical_json, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.importers.source_sessions import Noted, SourceChangedError, SourceMessage, SourceSession
from turnlog.sessions.message_models import StoredMessage

MAX_BODY_BYTES = 1024 * 1024
MAX_META_BYTES = 2 * 1024 * 1024
MAX_LEVELS = 28
"""Levels of JSON in a body and in metadata, so that a request around them stays within `MAX_DEPTH`."""
CUT, AS_TEXT = "cut", "as_text"
_KEPT_CHARS = 1_000
_TEXT_TYPES = {"openai_responses": "input_text"}


def fitted(message: SourceMessage, format: str) -> tuple[SourceMessage, tuple[Noted, ...]]:
    """Cut a message to the log's limits. Returns the message and the cuts; equal messages are cut equally."""
    body, body_changes = _within(message.body, MAX_BODY_BYTES, _TEXT_TYPES.get(format, "text"))
    meta, meta_changes = _within(message.meta, MAX_META_BYTES, "text")
    changes = (*body_changes, *meta_changes)
    if not changes:
        return message, ()
    return replace(message, body=body, meta=meta), tuple(Noted(message.place, change) for change in changes)


def shallow(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Replace JSON below ``levels`` levels by its text."""
    return _shallow(value, levels, "", [])


def _shallow(value: Any, levels: int, pointer: str, changes: list[str]) -> Any:
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        changes.append(f"{AS_TEXT} {pointer}")
        return encode_json(value).decode("utf-8")
    if isinstance(value, list):
        return [_shallow(item, levels - 1, f"{pointer}/{index}", changes) for index, item in enumerate(value)]
    return {name: _shallow(item, levels - 1, f"{pointer}{_token(name)}", changes) for name, item in value.items()}


def _token(name: object) -> str:
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


def _within(value: dict[str, Any], limit: int, text_type: str) -> tuple[dict[str, Any], list[str]]:
    """Cut a value to ``limit`` bytes, its largest texts first. Returns the value and the changes."""
    changes = list[str]()
    fitting = _shallow(value, MAX_LEVELS, "", changes)
    while len(encode_json(fitting)) > limit:
        holder, key, pointer, size = max(
            _leaves(fitting, ""), key=lambda leaf: (leaf[3], leaf[2]), default=(None, "", "", 0)
        )
        if holder is None or size <= _KEPT_CHARS:
            break
        holder[key] = _cut(holder[key], size, text_type)
        changes.append(f"{CUT} {pointer}")
    return fitting, changes


def _leaves(value: Any, pointer: str) -> Iterator[tuple[Any, Any, str, int]]:
    """Yield texts and media that can be cut, as (holder, key, pointer, size). Media are cut as a whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        child_pointer = f"{pointer}{_token(key)}"
        if isinstance(child, str):
            yield value, key, child_pointer, len(child)
        elif isinstance(child, dict) and _is_media(child):
            yield value, key, child_pointer, len(encode_json(child))
        else:
            yield from _leaves(child, child_pointer)


def _is_media(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and any(word in kind for word in ("image", "file", "audio", "document"))


def _cut(value: Any, size: int, text_type: str) -> Any:
    if isinstance(value, str):
        return f"{value[:_KEPT_CHARS]}\n[{size - _KEPT_CHARS:,} characters left out by the import]"
    return {"type": text_type, "text": f"[{value['type']} of {size:,} bytes left out by the import]"}


_META_FIELDS = ("id", "author", "metadata", "finish_reason", "is_error")


@lazy_dataclass(frozen=True, slots=True)
class ComparedSession:
    """The comparison of a source's session with the log.

    ``present`` are the source's messages that the log has, with their positions; ``missing`` are the others. ``passed`` counts
    interrupted messages of the log that the source has no more, ``more`` the messages behind its last one.
    """

    present: tuple[tuple[int, SourceMessage], ...]
    missing: tuple[SourceMessage, ...]
    changed: tuple[Noted, ...]
    passed: int
    more: int


def compare(source: SourceSession, stored: Iterable[StoredMessage]) -> ComparedSession:
    """Compare a source with the log. Raises `SourceChangedError` at the first message that differs."""
    waiting = deque(source.messages)
    present, changed = list[tuple[int, SourceMessage]](), list[Noted]()
    passed = more = 0
    for entry in stored:
        if not waiting:
            more += 1
            continue
        match = _take_match(waiting, entry, source.format)
        if match is not None:
            message, cut = match
            present.append((entry.position, message))
            changed += cut
        elif entry.status == "interrupted":
            # A partial answer of an earlier import. The source has replaced it by a complete one, or dropped it.
            passed += 1
        else:
            place = waiting[0].place
            text = f"{place} of {source.source_id[:80]!r} is not message {entry.position} of session {source.id!r}"
            raise SourceChangedError(text, details={"place": place, "position": entry.position})
    missing = list[SourceMessage]()
    for message in waiting:
        cut_message, cut = fitted(message, source.format)
        missing.append(cut_message)
        changed += cut
    return ComparedSession(tuple(present), tuple(missing), tuple(changed), passed, more)


def _take_match(
    waiting: deque[SourceMessage], stored: StoredMessage, format: str
) -> tuple[SourceMessage, tuple[Noted, ...]] | None:
    """Take the next message of the source when it is the stored one, or its first pieces when these are.

    Returns the message and its cuts, or None.
    """
    following = waiting[0]
    for count in (None, *range(1, len(following.pieces))):
        candidate = following if count is None else following.first(count)
        message, noted = fitted(candidate, format)
        if _key(_source_key(message, format)) == _key(_log_key(stored, has_time=message.created_at is not None)):
            waiting.popleft()
            if count is not None:
                waiting.appendleft(following.rest(count))
            return message, noted
    return None


def _source_key(message: SourceMessage, format: str) -> list[Any]:
    """Return the compared fields of a message of the source."""
    meta = message.meta
    own = [meta.get(name) for name in _META_FIELDS]
    return [format, message.body, meta.get("status", "complete"), meta.get("pin", False), meta.get("created_at"), *own]


def _log_key(stored: StoredMessage, *, has_time: bool) -> list[Any]:
    """Return the compared fields of a message of the log, in the order of `_source_key`."""
    own = [getattr(stored, name) for name in _META_FIELDS]
    return [stored.format, stored.body, stored.status, stored.pin, stored.created_at if has_time else None, *own]


def _key(value: list[Any]) -> bytes:
    return canonical_json(value)
