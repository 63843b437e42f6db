"""Export commits as lines of readable JSON, and read each line back to the identical bytes.

    {"position": 2, "header": {…}, "bytes": {"h": "9f…", …}, "events": [{…}, …], "payloads": {"R#…": {…}}}

``header`` and ``bytes`` are the attributes of the commit's item; ``bytes`` are hexadecimal. ``events`` are its stored lines.
``payloads`` are contents that are stored outside the item. ``escaped`` has the indices of events whose line is stored as ASCII
though UTF-8 can hold it: earlier versions stored surrogate pairs so. The chain hash ``h`` proves everything but the payloads,
whose digests are in the events. Lines may come from anyone: every line is checked before any part of it is used.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import chain
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from turnlog.core.errors import CorruptError, InvalidInputError, MalformedError, NewerSchemaError
from turnlog.core.events import (
    REDACT,
    CreateEvent,
    Event,
    ForkEvent,
    MessageEvent,
    NoteEvent,
    Payload,
    RewindEvent,
    SettingsEvent,
    StateEvent,
)
from turnlog.core.json_values import JsonObject, JsonValue, checked_json, encode_ascii_json, encode_json
from turnlog.core.limits import MAX_POSITION
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import DAY_MS, LAST_MS, MINUTES_A_DAY
from turnlog.log.commit import Commit, events_of
from turnlog.log.commit_items import MAX_EVENTS
from turnlog.log.headers import Header, chain_hash, hashed_header, read_header
from turnlog.log.keys import commit_sort_key
from turnlog.log.packing import line_digest
from turnlog.log.payloads import digest_of, is_blob
from turnlog.log.read_lines import payload_of
from turnlog.log.tombstones import MATERIALISING
from turnlog.ports import AttributeValue, Item
from turnlog.providers.registry import codec_of
from turnlog.snapshots.segment_format import SealedCommit


def check_shape(value: object, expected: Any, *, name: str = "") -> None:
    """Raise `MalformedError` that names the first field whose value has another type than its dataclass declares.

    A bool is not accepted as a number. Contents of JSON objects and lists are not checked.
    """
    if not _fits(value, expected, name):
        raise MalformedError(f"{name or 'the value'} is not of type {getattr(expected, '__name__', expected)}")


def _fits(value: object, expected: Any, name: str) -> bool:
    origin, inner = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option, name) for option in inner)
    if origin is Literal:
        return value in inner and type(value) in {type(literal) for literal in inner}
    if origin is tuple and isinstance(value, tuple):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(kinds) and all(map(partial(_fits, name=name), value, kinds))
    if origin in (dict, list):
        return isinstance(value, origin)
    if dataclasses.is_dataclass(expected):
        return isinstance(value, expected) and _fields_fit(value, name)  # type: ignore[arg-type]
    return type(value) is expected


def _fields_fit(value: object, name: str) -> bool:
    cls: Any = type(value)
    for field, expected in _fields(cls).items():
        check_shape(getattr(value, field), expected, name=f"{name}.{field}" if name else field)
    return True


@cache
def _fields(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls, localns={"JsonValue": object})


_PLACE = re.compile(r"R#\d{12}~[0-9a-f]{16}\d{2}|blob:payload/\d{12}-[0-9a-f]{16}\d{2}")
_NAME = re.compile(r"[a-z]{1,4}")
_LATEST_MS = LAST_MS // 2
_MAX_DAYS = _LATEST_MS // DAY_MS
"""Keeps the time at which a session expires within the range of dates."""
_RESERVED_NAMES = frozenset({"pk", "sk", "b", "ttl", "mk", "fp", "bs", "fa", MATERIALISING})


def commit_line(sealed: SealedCommit, blob_of: Callable[[Payload], bytes]) -> JsonObject:
    """Return a commit as its line of the export, as JSON. ``blob_of`` reads payloads from the blob store."""
    attributes = sorted(sealed.item.items())
    header = {name: value for name, value in attributes if name != "sk" and not isinstance(value, bytes)}
    binary = {name: value.hex() for name, value in attributes if isinstance(value, bytes)}
    line: dict[str, Any] = {"position": sealed.commit.header.first, "header": header, "bytes": binary}
    line["events"] = events = [json.loads(event) for event in sealed.lines]
    payloads: JsonObject = {}
    for payload in filter(None, map(sealed.commit.payload_of, events)):
        content = blob_of(payload) if is_blob(payload) else sealed.contents[payload.place]
        payloads[payload.place] = json.loads(content)
    pairs = enumerate(zip(sealed.lines, events, strict=True))
    escaped = [index for index, (stored, event) in pairs if b"\\ud" in stored and encode_json(event) != stored]
    return line | ({"escaped": escaped} if escaped else {}) | ({"payloads": payloads} if payloads else {})


def position_in(source: str | dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the position of a line and its JSON object. The line may be text or parsed JSON.

    Raises `InvalidInputError` when the line is no commit.
    """
    try:
        parsed = json.loads(source) if isinstance(source, str) else source
        position = parsed["position"]
    except (ValueError, TypeError, KeyError, RecursionError):
        parsed, position = {}, None
    if not isinstance(position, int) or isinstance(position, bool) or not 1 <= position <= MAX_POSITION:
        raise InvalidInputError("a line of the export is no commit", code="bad_export")
    return position, parsed


def commit_of(source: str | dict[str, Any], *, previous: bytes) -> SealedCommit:
    """Return the commit of a line that follows the chain hash ``previous``.

    Raises `InvalidInputError` that names the commit's position and the fault.
    """
    position, line = position_in(source)
    try:
        return _read(line, position, previous)
    except NewerSchemaError as error:
        raise InvalidInputError(f"commit {position}: {error.detail}", code="newer_export") from error
    except (CorruptError, MalformedError) as error:
        raise InvalidInputError(f"commit {position}: {error.detail}", code="bad_export") from error
    except (KeyError, ValueError, TypeError, AttributeError, AssertionError, IndexError, OverflowError) as error:
        message = f"commit {position} is no commit of an export: {type(error).__name__}"
        raise InvalidInputError(message, code="bad_export") from error


def _read(line: Mapping[str, Any], position: int, previous: bytes) -> SealedCommit:
    item: dict[str, AttributeValue] = {"sk": commit_sort_key(position)}
    for name, value in line["header"].items():
        item[_checked_name(name)] = _text_or_number(value)
    for name, value in line["bytes"].items():
        item[_checked_name(name)] = bytes.fromhex(value)
    for values in (*line["events"], *line.get("payloads", {}).values()):
        for value in values.values():
            checked_json(value)
    escaped = set(line.get("escaped", ()))
    lines = tuple(
        encode_ascii_json(event) if index in escaped else encode_json(event)
        for index, event in enumerate(line["events"])
    )
    header = read_header(item)
    if not 1 <= len(lines) <= MAX_EVENTS or header.last != position + len(lines) - 1:
        raise ValueError("events")
    if chain_hash(previous, hashed_header(str(item["sk"]), item), list(map(line_digest, lines))) != item["h"]:
        raise CorruptError("the chain hash does not follow from the commit before", item=str(item["sk"]))
    commit = Commit(header, tuple(map(json.loads, lines)), until=_until(item, header))
    contents = _contents(commit, line.get("payloads", {}))
    sealed = SealedCommit(commit, item, lines, contents)
    # Check everything before it is stored: what is stored must be readable.
    _check_header(header)
    for event in events_of(commit, contents):
        _check_event(event)
    return sealed


def _check_header(header: Header) -> None:
    check_shape(header, Header)
    _check_days(header.ttl_days)
    if not (0 <= header.time_ms <= _LATEST_MS and 0 <= header.idle_ms <= _LATEST_MS):
        raise MalformedError("its time is out of range")
    places = (header.last_state, header.last_settings, header.ended, header.rewound, header.redacted, header.view.since)
    _check_places(header.last + 1, *places, *chain(*header.view.closed))
    if header.view.is_cut and not header.view.closed:
        raise MalformedError("its view is cut but has no ranges")


def _check_event(event: Event) -> None:
    """Check an event against its class, and a message's body against its format."""
    check_shape(event, type(event))
    if isinstance(event, MessageEvent):
        if event.body is None:
            raise MalformedError("a message has no body")
        try:
            codec_of(event.format).parse(event.body, is_error=event.envelope.is_error)
        except InvalidInputError as error:
            raise MalformedError(error.detail) from error
    if isinstance(event, CreateEvent | SettingsEvent | ForkEvent):
        _check_settings(event.settings)
    if isinstance(event, StateEvent):
        _check_places(event.position, event.previous)
    if isinstance(event, NoteEvent) and event.action == REDACT:
        place = (event.metadata or {}).get("position")
        _check_places(event.position, place if isinstance(place, int) else -1)
    if isinstance(event, RewindEvent | ForkEvent):
        _check_places(event.position, event.to if isinstance(event, RewindEvent) else event.at, *chain(*event.closed))


def _check_settings(settings: SessionSettings) -> None:
    _check_days(settings.ttl_days or 0)
    _check_days((settings.inactive_after_minutes or 0) / MINUTES_A_DAY)
    if settings.model is not None and not settings.model.encode("utf-8"):
        raise MalformedError("a model without a name")


def _check_places(position: int, *places: int) -> None:
    """Check that every position that an event or a header names lies before it; 0 means none."""
    if not all(0 <= place < position for place in places):
        raise MalformedError("it names a position that does not lie before it")


def _check_days(days: float) -> None:
    if not 0 <= days <= _MAX_DAYS:
        raise MalformedError(f"{days} days are more than {_MAX_DAYS}")


def _until(item: Item, header: Header) -> int | None:
    """Return the last position that this session has of a commit shared in part with another; None when it has all."""
    until = item.get("fu")
    if until is not None and not (isinstance(until, int) and header.first <= until < header.last):
        raise MalformedError("it is shared up to a position outside of it")
    return until


def _contents(commit: Commit, values: Mapping[str, JsonValue]) -> dict[str, bytes]:
    if not all(map(_PLACE.fullmatch, values)):
        raise ValueError("place")
    payloads = [payload for payload in map(payload_of, commit.lines) if payload is not None]
    if {payload.place for payload in payloads} != values.keys():
        raise CorruptError("its payloads are not those that it names", item=commit_sort_key(commit.header.first))
    return {payload.place: _content(payload, values[payload.place]) for payload in payloads}


def _content(payload: Payload, value: JsonValue) -> bytes:
    """Return the stored bytes of a payload, which earlier versions stored as ASCII when it had a surrogate pair."""
    for encode in (encode_json, encode_ascii_json):
        content = encode(value)
        if digest_of(content) == payload.digest and len(content) == payload.size_bytes:
            return content
    raise CorruptError("a payload is not the one its commit names", item=payload.place)


def _checked_name(name: str) -> str:
    if name in _RESERVED_NAMES or not _NAME.fullmatch(name):
        raise ValueError("header")
    return name


def _text_or_number(value: object) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError("header")
    if isinstance(value, str):
        value.encode("utf-8")  # raises for a lone surrogate, which no table stores
    return value
