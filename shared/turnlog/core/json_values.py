"""JSON as Turnlog stores it: checked strictly when it comes in, returned unchanged.

Strict means: valid UTF-8, no duplicate keys, no NaN or infinity, integers of at most 64 bits, at most 32 levels deep.
A lone surrogate (half of a pair, such as U+D83D) is legal JSON and comes back as the same escape. A pair is its character.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard, TypeVar, cast

from turnlog.core.errors import MalformedError, TooLargeError

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_DEPTH, MAX_READ_DEPTH = 32, 200
"""Levels of JSON that is stored, and of JSON that is only read: far below what Python's recursion allows."""
MIN_INT, MAX_INT = -(2**63), 2**64 - 1
_Path: TypeAlias = "tuple[_Path | None, str | int]"
"""The place of a value: that of the object or list that holds it, and its name or index there."""
_DIGIT, _WIDE_INTEGER = re.compile(r"[0-9]"), re.compile(r"[0-9]{19}")
_HINTS = {"bytes": "; give bytes as base64 text", "datetime": "; give a time as text such as 2026-01-31T12:00:00Z"}
# `json.dumps` makes an encoder for each call that has options, and `json.loads` a decoder.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ASCII_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_CANONICAL_ENCODER = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":"))


def encode_json(value: object) -> bytes:
    """Encode a value as compact UTF-8 JSON in its own key order.

    A surrogate pair is encoded as its character, as `json.loads` returns it. A value with a lone surrogate is encoded as ASCII
    with escapes, because UTF-8 can't hold it.
    """
    text = _ENCODER.encode(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        joined = joined_pairs(text)
    return joined.encode("utf-8") if is_unicode(joined) else encode_ascii_json(value)


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields whose value is not None."""
    return {name: value for name, value in fields.items() if value is not None}


def encode_ascii_json(value: object) -> bytes:
    """Encode a value as compact ASCII JSON in its own key order."""
    return _ASCII_ENCODER.encode(value).encode("ascii")


def is_unicode(text: str) -> bool:
    """Return whether the text has no surrogate, so that UTF-8 can hold it."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return False
    return True


def joined_pairs(text: str) -> str:
    """Return the text with the character that it encodes in place of each surrogate pair. Lone surrogates stay."""
    return text if is_unicode(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def canonical_json(value: object) -> bytes:
    """Encode a value for hashing: compact ASCII JSON with sorted keys, so equal values have equal bytes."""
    return _CANONICAL_ENCODER.encode(value).encode("ascii")


def json_pointer(path: Iterable[str | int], *, max_chars: int | None = None) -> str:
    """Return the place of a value, its keys and indexes from the outside, as a JSON pointer (RFC 6901).

    Each step has at most ``max_chars`` characters.
    """
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1")[:max_chars] for step in path)


_Json = TypeVar("_Json")


def copied_json(value: _Json) -> _Json:
    """Return a JSON value whose objects and lists are copies, all the way down."""
    if isinstance(value, dict):
        return cast("_Json", {key: copied_json(item) for key, item in value.items()})
    return cast("_Json", [copied_json(item) for item in value]) if isinstance(value, list) else value


def sendable_text(text: str) -> str:
    """Return the text with U+FFFD in place of each lone surrogate, which no provider accepts, and with surrogate pairs joined."""
    return text if is_unicode(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def sendable_json(value: _Json) -> _Json:
    """Return a JSON value as it can be sent: `sendable_text` of its texts, in copies of its objects and lists, all the way down."""
    if isinstance(value, str):
        return cast("_Json", sendable_text(value))
    if isinstance(value, dict):
        return cast(
            "_Json",
            {
                key if key.isascii() else sendable_text(key): (
                    item if isinstance(item, str) and item.isascii() else sendable_json(item)
                )
                for key, item in value.items()
            },
        )
    if isinstance(value, list):
        return cast("_Json", [sendable_json(item) for item in value])
    return value


def sendable_json_text(value: object) -> str:
    """Return a value as the compact JSON text that `sendable_json` of it has."""
    return sendable_text(_ENCODER.encode(value))


def parse_strict_json(data: bytes | str, *, max_values: int | None = None, is_stored: bool = True) -> JsonValue:
    """Parse and check a caller's JSON. With ``is_stored=False`` it may have `MAX_READ_DEPTH` levels and wider integers.

    Raises `MalformedError`, or `TooLargeError` for more than ``max_values`` values.
    """
    if isinstance(data, bytes):
        try:
            data = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedError(f"body is not UTF-8 at byte {error.start}") from error
    if data.startswith("\ufeff"):
        raise MalformedError("body begins with a byte order mark")
    try:
        # A call for each integer is slow, and few texts have 19 digits in a row, of which one stands at a 19th place.
        is_wide = is_stored and _DIGIT.search(data[18::19]) and _WIDE_INTEGER.search(data)
        value = (_WIDE if is_wide else _DECODER).decode(data)
    except json.JSONDecodeError as error:
        raise MalformedError(f"body is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise MalformedError(f"JSON is deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:  # Python's limit of an integer's digits
        raise MalformedError("an integer has thousands of digits") from error
    count, depth = measured(value)
    _check_depth(depth, MAX_DEPTH if is_stored else MAX_READ_DEPTH)
    if max_values is not None and count > max_values:
        raise TooLargeError(f"a body of {count} JSON values is over the limit of {max_values}")
    return cast("JsonValue", value)


def json_or_text(text: str) -> JsonValue:
    """Return the value of a JSON text, or the text itself when it is no valid JSON."""
    try:
        return parse_strict_json(text)
    except MalformedError:
        return text


def checked_json(value: _Json) -> _Json:
    """Return ``value`` (a Python object from a caller) as a JSON parser would: with plain texts, objects and lists, pairs joined.

    Raises `MalformedError` unless it is JSON within the limits. Returns the same object when it is so already.
    """
    stack: list[tuple[object, int, _Path | None]] = [(value, 1, None)]
    is_parsed, item, path = True, cast("object", value), None
    try:
        while stack:
            item, depth, path = stack.pop()
            if isinstance(item, str):
                is_parsed = is_parsed and type(item) is str and is_unicode(item)
                continue
            if item is None or isinstance(item, bool):
                continue
            if isinstance(item, (dict, Mapping)):
                is_parsed = is_parsed and isinstance(item, dict)
                for key in item:
                    if not isinstance(key, str):
                        raise MalformedError(f"an object's key must be a string, not {type(key).__name__}")
                    is_parsed = is_parsed and type(key) is str and is_unicode(key)
                members: Iterable[tuple[str | int, object]] = item.items()
            elif isinstance(item, int | float):
                _check_number(item)
                continue
            elif _is_list(item):
                is_parsed = is_parsed and isinstance(item, list)
                members = enumerate(item)
            else:
                raise MalformedError(f"a value of type {type(item).__name__} is not JSON")
            _check_depth(depth)
            stack.extend([(child, depth + 1, (path, name)) for name, child in members])
    except MalformedError as error:
        pointer, hint = _pointer_of(path), _HINTS.get(type(item).__name__, "")
        raise MalformedError.at(pointer, f"{error.detail}, at {pointer!r}{hint}", "not_json") from error
    return value if is_parsed else cast("_Json", _parsed(value))


def _parsed(value: object) -> object:
    if isinstance(value, str):
        return joined_pairs(str.__str__(value))
    if isinstance(value, (dict, Mapping)):
        return _unique(
            [(joined_pairs(str.__str__(key)), cast("JsonValue", _parsed(item))) for key, item in value.items()]
        )
    return [_parsed(item) for item in value] if _is_list(value) else value


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Return whether a Python object stands for a JSON list: any sequence, such as a deque, but no text and no bytes."""
    return isinstance(value, (list, tuple, Sequence)) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _pointer_of(path: _Path | None) -> str:
    names = list[str | int]()
    while path is not None:
        path, name = path
        names.insert(0, name)
    return json_pointer(names)


def _check_number(value: float) -> None:
    if isinstance(value, int):
        if not MIN_INT <= value <= MAX_INT:
            raise MalformedError("an integer is wider than 64 bits")
    elif not math.isfinite(value):
        raise MalformedError("NaN and infinity are not JSON")


def _check_depth(depth: int, max_depth: int = MAX_DEPTH) -> None:
    if depth > max_depth:
        raise MalformedError(f"JSON is deeper than {max_depth} levels")


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedError(f"an object has the key {twice[:64]!r} twice")
    return result


def _no_constant(name: str) -> JsonValue:
    raise MalformedError(f"{name} is not JSON")


def _int(text: str) -> int:
    if len(text) > 21:
        raise MalformedError("an integer is wider than 64 bits")
    value = int(text)
    _check_number(value)
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedError("a number is too large for JSON in double precision")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_float)
_WIDE = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_float, parse_int=_int)


def measured(value: JsonValue) -> tuple[int, int]:
    """Return the number of values in a value, itself included, and its depth in nested objects and lists.

    Works level by level without recursion, so any depth is allowed. Takes about 30 ns for each value.
    """
    count, depth, level = 1, 0, [value] if isinstance(value, (dict, list)) else []
    while level:
        depth += 1
        children = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        count += len(children)
        level = [child for child in children if isinstance(child, (dict, list))]
    return count, depth
