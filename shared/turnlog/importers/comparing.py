"""What of a source's session the log holds already.

The log itself is asked, not a memory of earlier imports: so an import that was killed goes on where it stopped, a second one
finds nothing to do, and one of a source that has grown appends what is new, however long ago the first was.
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


_GIVEN = ("id", "author", "metadata", "finish_reason", "is_error")


@lazy_dataclass(frozen=True, slots=True)
class ComparedSession:
    """``present`` are positions of the source's messages that are there, ``missing`` the messages that are not.

    ``passed`` interrupted messages are in the log and no more in the source; ``more`` messages stand behind its last one.
    """

    present: tuple[tuple[int, SourceMessage], ...]
    missing: tuple[SourceMessage, ...]
    changed: tuple[Noted, ...]
    passed: int
    more: int


def compare(source: SourceSession, stored: Iterable[StoredMessage]) -> ComparedSession:
    """Raises `SourceChangedError` at the first message of the source that is not the one in the log."""
    waiting = deque(source.messages)
    present, changed = list[tuple[int, SourceMessage]](), list[Noted]()
    passed = more = 0
    for one in stored:
        if not waiting:
            more += 1
            continue
        found = _found(waiting, one, source.format)
        if found is not None:
            message, cut = found
            present.append((one.position, message))
            changed += cut
        elif one.status == "interrupted":
            # A partial answer of an earlier import: it has become a whole one, or was given up.
            passed += 1
        else:
            place = waiting[0].place
            text = f"{place} of {source.source_id[:80]!r} is not message {one.position} of session {source.id!r}"
            raise SourceChangedError(text, details={"place": place, "position": one.position})
    missing = list[SourceMessage]()
    for message in waiting:
        made, cut = fitted(message, source.format)
        missing.append(made)
        changed += cut
    return ComparedSession(tuple(present), tuple(missing), tuple(changed), passed, more)


def _found(
    waiting: deque[SourceMessage], stored: StoredMessage, format: str
) -> tuple[SourceMessage, tuple[Noted, ...]] | None:
    """The next message of the source, taken, where it is the stored one; or its first pieces, where these are."""
    whole = waiting[0]
    for cut in (None, *range(1, len(whole.pieces))):
        made = whole if cut is None else whole.first(cut)
        message, noted = fitted(made, format)
        if _key(_given(message, format)) == _key(_stored(stored, has_time=message.created_at is not None)):
            waiting.popleft()
            if cut is not None:
                waiting.appendleft(whole.rest(cut))
            return message, noted
    return None


def _given(message: SourceMessage, format: str) -> list[Any]:
    meta = message.meta
    own = [meta.get(name) for name in _GIVEN]
    return [format, message.body, meta.get("status", "complete"), meta.get("pin", False), meta.get("created_at"), *own]


def _stored(one: StoredMessage, *, has_time: bool) -> list[Any]:
    own = [getattr(one, name) for name in _GIVEN]
    return [one.format, one.body, one.status, one.pin, one.created_at if has_time else None, *own]


def _key(value: list[Any]) -> bytes:
    return canonical_json(value)
