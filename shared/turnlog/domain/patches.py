"""Changes of JSON values: JSON Merge Patch (RFC 7396), JSON Patch (RFC 6902), and the difference of two values as one.

Stored patches are folded for as long as there are logs, so what they mean is said here and by no library's version. Values
are never changed in place: what comes back shares no part that a later patch could change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from turnlog.domain.errors import PatchError, Problem
from turnlog.domain.jsonvalue import MAX_DEPTH, JsonObject, JsonValue, encode_json

MAX_OPERATIONS = 10_000
MAX_WORK_BYTES = 16 * 1024 * 1024
"""Of JSON that the operations of one patch may add, copy, move or compare: a copy into itself doubles each time."""
Patch: TypeAlias = "JsonObject | list[JsonValue]"
"""An object is a Merge Patch, a list is a JSON Patch."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_BAD_ESCAPE = re.compile(r"~(?![01])")
_VALUED = frozenset({"add", "replace", "test"})
_SOURCED = frozenset({"move", "copy"})


def applied(target: JsonObject, patch: Patch) -> JsonObject:
    """The object after a patch of either kind, or `PatchError`. A patch that makes no object of it is refused."""
    after = merge(target, patch) if isinstance(patch, dict) else apply_operations(target, patch)
    if not isinstance(after, dict):
        raise _error("", "what it leaves is not an object")
    return after


def merge(target: JsonValue, patch: JsonValue) -> JsonValue:
    """JSON Merge Patch, as a new value."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


# ------------------------------------------------------------ JSON Patch


def apply_operations(target: JsonValue, operations: Sequence[JsonValue]) -> JsonValue:
    """JSON Patch: all operations in order, or `PatchError` and nothing of them."""
    if len(operations) > MAX_OPERATIONS:
        raise _error("", f"a patch has at most {MAX_OPERATIONS} operations")
    document = _Document(copied(target))
    for at, operation in enumerate(operations):
        document.apply(at, operation)
    return document.root


class _Document:
    """A value that operations change in place."""

    def __init__(self, root: JsonValue) -> None:
        self.root = root
        self._work_bytes = 0
        self._at = 0

    def apply(self, at: int, operation: JsonValue) -> None:
        self._at = at
        if not isinstance(operation, dict):
            raise _error(f"/{at}", "an operation is an object")
        name = operation.get("op")
        if not isinstance(name, str) or name not in ("add", "remove", "replace", "move", "copy", "test"):
            raise self._error("op", "op is not add, remove, replace, move, copy or test")
        path = self._path(operation, "path")
        if name in _VALUED and "value" not in operation:
            raise self._error("value", "the value is missing")
        if name in _VALUED:
            value = operation["value"]
            self._charge(value, path)
            if name == "test":
                if not equal(self._found(path, "path"), value):
                    raise self._error("value", "the value there is another one")
            elif name == "add":
                self._add(path, copied(value))
            else:
                self._replace(path, copied(value))
        elif name == "remove":
            self._remove(path, "path")
        elif name in _SOURCED:
            source = self._path(operation, "from")
            value = self._found(source, "from")
            self._charge(value, path)
            if name == "copy":
                self._add(path, copied(value))
            elif path != source:
                if path[: len(source)] == source:
                    raise self._error("path", "a value can't be moved into itself")
                self._remove(source, "from")
                self._add(path, value)

    def _path(self, operation: JsonObject, member: str) -> list[str]:
        text = operation.get(member)
        if not isinstance(text, str):
            raise self._error(member, f"{member} is missing or not a string")
        if not text:
            return []
        if not text.startswith("/") or _BAD_ESCAPE.search(text):
            raise self._error(member, f"{member} is not a JSON pointer")
        return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]

    def _found(self, path: Sequence[str], member: str) -> JsonValue:
        value = self.root
        for part in path:
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif isinstance(value, list):
                value = value[self._index(value, part, member)]
            else:
                raise self._error(member, "there is nothing")
        return value

    def _add(self, path: Sequence[str], value: JsonValue) -> None:
        if not path:
            self.root = value
            return
        parent, last = self._found(path[:-1], "path"), path[-1]
        if isinstance(parent, dict):
            parent[last] = value
        elif isinstance(parent, list):
            at = len(parent) if last == "-" else self._index([*parent, None], last, "path")
            parent.insert(at, value)
        else:
            raise self._error("path", "there is nothing to add to")

    def _replace(self, path: Sequence[str], value: JsonValue) -> None:
        self._found(path, "path")
        if not path:
            self.root = value
            return
        parent, last = self._found(path[:-1], "path"), path[-1]
        if isinstance(parent, dict):
            parent[last] = value
        elif isinstance(parent, list):
            parent[int(last)] = value

    def _remove(self, path: Sequence[str], member: str) -> None:
        if not path:
            self.root = None
            return
        self._found(path, member)
        parent, last = self._found(path[:-1], member), path[-1]
        if isinstance(parent, dict):
            del parent[last]
        elif isinstance(parent, list):
            del parent[int(last)]

    def _index(self, values: Sequence[JsonValue], part: str, member: str) -> int:
        if not _INDEX.fullmatch(part) or int(part) >= len(values):
            raise self._error(member, "there is nothing")
        return int(part)

    def _charge(self, value: JsonValue, path: Sequence[str]) -> None:
        if len(path) + depth_of(value) > MAX_DEPTH:
            raise self._error("path", f"the value would be deeper than {MAX_DEPTH} levels")
        self._work_bytes += len(encode_json(value))
        if self._work_bytes > MAX_WORK_BYTES:
            raise self._error("op", f"the operations handle more than {MAX_WORK_BYTES} bytes together")

    def _error(self, member: str, message: str) -> PatchError:
        return _error(f"/{self._at}/{member}", message)


def _error(pointer: str, message: str) -> PatchError:
    where = pointer or "the patch"
    return PatchError(f"{where}: {message}", problems=[Problem("patch_failed", pointer, message)])


# ------------------------------------------------------------ values


def copied(value: JsonValue) -> JsonValue:
    """The value with objects and lists of its own."""
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list) else value


def equal(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are the same JSON: 1 is 1.0 and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(equal(*pair) for pair in zip(one, other, strict=True))
    return one == other


def difference(before: JsonValue, after: JsonValue) -> list[JsonValue]:
    """A JSON Patch that makes the one of the other: by name in objects, by place in lists."""
    found = list[JsonValue]()
    _differ(before, after, "", found)
    return found


def _differ(before: JsonValue, after: JsonValue, pointer: str, found: list[JsonValue]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before:
            if name not in after:
                found.append({"op": "remove", "path": _child(pointer, name)})
        for name, value in after.items():
            if name in before:
                _differ(before[name], value, _child(pointer, name), found)
            else:
                found.append({"op": "add", "path": _child(pointer, name), "value": value})
    elif isinstance(before, list) and isinstance(after, list):
        shared = min(len(before), len(after))
        for at in range(shared):
            _differ(before[at], after[at], _child(pointer, str(at)), found)
        for at in range(len(before) - 1, shared - 1, -1):
            found.append({"op": "remove", "path": _child(pointer, str(at))})
        for value in after[shared:]:
            found.append({"op": "add", "path": _child(pointer, "-"), "value": value})
    elif type(before) is not type(after) or repr(before) != repr(after):
        found.append({"op": "replace", "path": pointer, "value": after})


def _child(pointer: str, name: str) -> str:
    return pointer + "/" + name.replace("~", "~0").replace("/", "~1")


def depth_of(value: JsonValue) -> int:
    """How many objects and lists stand inside one another, counted up to any depth without recursion."""
    deepest, waiting = 0, list[tuple[JsonValue, int]]([(value, 1)])
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, dict | list):
            deepest = max(deepest, depth)
            children = one.values() if isinstance(one, dict) else one
            waiting.extend((child, depth + 1) for child in children)
    return deepest
