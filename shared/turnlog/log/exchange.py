"""Commits as lines of JSON that anyone can read, from which each is given back byte by byte.

    {"position": 2, "header": {…}, "bytes": {"h": "9f…", …}, "events": [{…}, …], "payloads": {"R#…": {…}}}

``header`` and ``bytes`` are the attributes of the commit's item, the latter in hexadecimal; ``events`` are its stored lines;
``payloads`` are what it has out of line, wherever that was stored. The chain hash ``h`` proves all of it but for the payloads,
whose digests are in the events. What is read may come from anyone: every line is checked before anything of it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from turnlog.domain.errors import CorruptError, InvalidInputError, MalformedError, NewerSchemaError
from turnlog.domain.events import Payload
from turnlog.domain.jsonvalue import JsonObject, JsonValue, check_json, decode_json, encode_json
from turnlog.log.commit_items import MAX_EVENTS
from turnlog.log.commits import MATERIALISING, Commit, events_of
from turnlog.log.headers import chain_hash, hashed_header, read_header
from turnlog.log.keys import MAX_POSITION, commit_sort_key
from turnlog.log.payloads import digest_of, is_blob
from turnlog.log.read_lines import payload_of, upcast
from turnlog.log.segment_format import SealedCommit
from turnlog.ports import AttributeValue

_PLACE = re.compile(r"R#\d{12}~[0-9a-f]{16}\d{2}|blob:payload/\d{12}-[0-9a-f]{16}\d{2}")
_NAME = re.compile(r"[a-z]{1,4}")
_OURS = frozenset({"pk", "sk", "b", "ttl", "mk", MATERIALISING})


def commit_line(sealed: SealedCommit, blob_of: Callable[[Payload], bytes]) -> JsonObject:
    """A commit as its line says it."""
    told = sorted(sealed.item.items())
    header = {name: value for name, value in told if name != "sk" and not isinstance(value, bytes)}
    found = {name: value.hex() for name, value in told if isinstance(value, bytes)}
    payloads: JsonObject = {}
    for payload in sealed.commit.payloads:
        content = blob_of(payload) if is_blob(payload) else sealed.contents[payload.place]
        payloads[payload.place] = decode_json(content)
    line: dict[str, Any] = {"position": sealed.commit.header.first, "header": header, "bytes": found}
    line["events"] = [decode_json(event) for event in sealed.lines]
    return line | ({"payloads": payloads} if payloads else {})


def position_in(text: str) -> tuple[int, dict[str, Any]]:
    """The position of a line, and the line as JSON; `InvalidInputError` when it is none of ours."""
    try:
        line = json.loads(text)
        position = line["position"]
    except (ValueError, TypeError, KeyError, RecursionError):
        line, position = {}, None
    if not isinstance(position, int) or isinstance(position, bool) or not 1 <= position <= MAX_POSITION:
        raise InvalidInputError("a line of the export is no commit", code="bad_export")
    return position, line


def commit_of(text: str, *, previous: bytes) -> SealedCommit:
    """The commit of a line that follows on the chain hash ``previous``; `InvalidInputError` says which it is and what is wrong."""
    position, line = position_in(text)
    try:
        return _read(line, position, previous)
    except NewerSchemaError as error:
        raise InvalidInputError(f"commit {position}: {error.detail}", code="newer_export") from error
    except (CorruptError, MalformedError) as error:
        raise InvalidInputError(f"commit {position}: {error.detail}", code="bad_export") from error
    except (KeyError, ValueError, TypeError, AttributeError, AssertionError, IndexError, OverflowError) as error:
        message = f"commit {position} is no commit of ours: {type(error).__name__}"
        raise InvalidInputError(message, code="bad_export") from error


def _read(line: Mapping[str, Any], position: int, previous: bytes) -> SealedCommit:
    item: dict[str, AttributeValue] = {"sk": commit_sort_key(position)}
    for name, value in line["header"].items():
        item[_checked_name(name)] = _text_or_number(value)
    for name, value in line["bytes"].items():
        item[_checked_name(name)] = bytes.fromhex(value)
    for values in (*line["events"], *line.get("payloads", {}).values()):
        for value in values.values():
            check_json(value)
    lines = tuple(encode_json(event) for event in line["events"])
    header = read_header(item)
    if not 1 <= len(lines) <= MAX_EVENTS or header.last != position + len(lines) - 1:
        raise ValueError("events")
    if chain_hash(previous, hashed_header(str(item["sk"]), item), [sha256(one).digest() for one in lines]) != item["h"]:
        raise CorruptError("the chain hash does not follow from the commit before", item=str(item["sk"]))
    parsed = [upcast(decode_json(one), header.version) for one in lines]
    commit = Commit(header, tuple(parsed))
    contents = _contents(commit, line.get("payloads", {}))
    sealed = SealedCommit(commit, item, lines, contents)
    # What can't be read back is never stored.
    for _ in events_of(commit, contents):
        pass
    return sealed


def _contents(commit: Commit, given: Mapping[str, JsonValue]) -> dict[str, bytes]:
    contents = {_checked_place(place): encode_json(value) for place, value in given.items()}
    payloads = [payload for payload in map(payload_of, commit.lines) if payload is not None]
    if {payload.place for payload in payloads} != set(contents):
        raise CorruptError("its payloads are not those that it names", item=commit_sort_key(commit.header.first))
    for payload in payloads:
        content = contents[payload.place]
        if digest_of(content) != payload.digest or len(content) != payload.size_bytes:
            raise CorruptError("a payload is not the one its commit names", item=payload.place)
    return contents


def _checked_name(name: str) -> str:
    if name in _OURS or not _NAME.fullmatch(name):
        raise ValueError("header")
    return name


def _checked_place(place: str) -> str:
    if not _PLACE.fullmatch(place):
        raise ValueError("place")
    return place


def _text_or_number(value: object) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError("header")
    return value
