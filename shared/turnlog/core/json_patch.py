"""Changes of JSON values: JSON Merge Patch (RFC 7396), JSON Patch (RFC 6902), and the difference of two values as one.

Stored patches must fold to the same state for as long as a log exists, so this module defines their meaning and depends
on no library. Values are never changed in place: an object or list is copied when a patch first changes it, once in a
fold. The cost of a patch is counted in steps. A caller's patch may take `MAX_STEPS`; stored patches have no limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from turnlog.core.errors import PatchError, Problem, TooMuchWorkError
from turnlog.core.json_values import MAX_DEPTH, JsonObject, JsonValue, copied_json, encode_json, json_pointer, measured
from turnlog.core.limits import UNLIMITED, Work

MAX_OPERATIONS = 10_000
MAX_STEPS = 1_000_000
"""Limit for the steps of one patch. A step is counted for each value that is added, compared, copied, moved or merged, 8 for
each operation, and 1 for every 1,024 list elements that shift."""
MAX_WORK_BYTES = 16 * 1024 * 1024
"""Limit for the JSON that the operations of one patch add, copy, move or compare. Copies of a value into itself double it."""
OPERATION_STEPS = 8
_ELEMENTS_PER_STEP = 1_024
Patch: TypeAlias = "JsonObject | list[JsonValue]"
"""An object is a Merge Patch, a list is a JSON Patch."""
_Value = TypeVar("_Value", bound=JsonValue)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_BAD_ESCAPE = re.compile(r"~(?![01])")
_VALUED = frozenset({"add", "replace", "test"})
_SOURCED = frozenset({"move", "copy"})
_OPERATIONS = frozenset({*_VALUED, *_SOURCED, "remove"})


def apply_patch(target: JsonObject, patch: Patch) -> tuple[JsonObject, int]:
    """Return the object after a caller's patch, and the number of steps. Raises `PatchError` or `TooMuchWorkError`."""
    if isinstance(patch, list) and len(patch) > MAX_OPERATIONS:
        raise _error("", f"a patch has at most {MAX_OPERATIONS} operations")
    return apply_patches(target, [patch], limit=MAX_STEPS)


def apply_patches(target: JsonObject, patches: Iterable[Patch], *, limit: int = UNLIMITED) -> tuple[JsonObject, int]:
    """Return the object after stored patches, and the number of steps. Their limits were checked when they were stored."""
    document = PatchedValue(target, limit=limit)
    for patch in patches:
        document.patch(patch)
        if not isinstance(document.root, dict):
            raise _error("", "the result of the patch is not an object")
        target = document.root
    return target, document.steps


class PatchedValue:
    """A JSON value and the patches applied to it.

    ``_owned`` holds the copies made here, by identity. Only these are changed in place.
    """

    def __init__(self, root: JsonValue, *, limit: int = UNLIMITED) -> None:
        self.root = root
        self._work = Work("the patch", limit=limit)
        self._bytes_left = MAX_WORK_BYTES
        self._owned: dict[int, JsonValue] = {}
        self._position = 0

    @property
    def steps(self) -> int:
        return self._work.steps

    def patch(self, patch: Patch) -> None:
        if isinstance(patch, dict):
            self.merge(patch)
        else:
            self.operate(patch)

    # -------------------------------------------------------- JSON Merge Patch

    def merge(self, patch: JsonValue) -> None:
        self.root = self._merged(self.root, patch)

    def _merged(self, target: JsonValue, patch: JsonValue) -> JsonValue:
        if not isinstance(patch, dict):
            return patch
        self._work.spend(1 + len(patch))
        merged = self._own(target if isinstance(target, dict) else {})
        for name, value in patch.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = self._merged(merged.get(name), value)
        return merged

    # -------------------------------------------------------- JSON Patch

    def operate(self, operations: Sequence[JsonValue]) -> None:
        try:
            for position, operation in enumerate(operations):
                self._position = position
                self._work.spend(OPERATION_STEPS)
                self._apply(operation)
        except TooMuchWorkError as error:
            pointer = f"/{self._position}"
            problem = Problem(error.error_code, pointer, error.detail)
            raise TooMuchWorkError(f"{pointer}: {error.detail}", problems=[problem], details=error.details) from error

    def _apply(self, operation: JsonValue) -> None:
        if not isinstance(operation, dict):
            raise _error(f"/{self._position}", "an operation must be an object")
        name = operation.get("op")
        if not isinstance(name, str) or name not in _OPERATIONS:
            raise self._error("op", "op is not add, remove, replace, move, copy or test")
        path = self._path(operation, "path")
        if name in _SOURCED:
            self._take(name, self._path(operation, "from"), path)
        elif name in _VALUED:
            if "value" not in operation:
                raise self._error("value", "the value is missing")
            self._set(name, path, operation["value"])
        else:
            self._remove(path, "path")

    def _set(self, name: str, path: Sequence[str], value: JsonValue) -> None:
        self._charge(value, path)
        if name == "add":
            self._add(path, value)
        elif name == "replace":
            self._replace(path, value)
        elif not equal(self._value_at(path, "path"), value):
            raise self._error("value", "the test failed: the target has another value")

    def _take(self, name: str, source: Sequence[str], path: Sequence[str]) -> None:
        value = self._value_at(source, "from")
        self._charge(value, path)
        if name == "copy":
            self._add(path, copied_json(value))
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

    def _value_at(self, path: Sequence[str], member: str) -> JsonValue:
        value: Any = self.root
        for part in path:
            value = value[self._key(value, part, member)]
        return cast("JsonValue", value)

    def _key(self, value: JsonValue, part: str, member: str) -> Any:
        """Return the name or the index that a part of a path has in a value. Raises `PatchError` where nothing exists."""
        if isinstance(value, dict) and part in value:
            return part
        if isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
            return int(part)
        raise self._error(member, "nothing exists at this path")

    def _parent(self, path: Sequence[str], member: str) -> Any:
        """Return the container of a path's last part, after copying it and all containers above it."""
        self.root = self._own(self.root)
        value: Any = self.root
        for part in path[:-1]:
            key = self._key(value, part, member)
            child = value[key] = self._own(value[key])
            value = child
        return value

    def _own(self, value: _Value) -> _Value:
        if id(value) in self._owned or not isinstance(value, (dict, list)):
            return value
        copy = dict(value) if isinstance(value, dict) else list(value)
        self._owned[id(copy)] = copy
        return cast("_Value", copy)

    def _add(self, path: Sequence[str], value: JsonValue) -> None:
        if not path:
            self.root = value
            return
        parent, last = self._parent(path, "path"), path[-1]
        if isinstance(parent, list):
            index = len(parent) if last in ("-", str(len(parent))) else self._key(parent, last, "path")
            self._shift(len(parent) - index)
            parent.insert(index, value)
        elif isinstance(parent, dict):
            parent[last] = value
        else:
            raise self._error("path", "the parent is neither an object nor a list")

    def _replace(self, path: Sequence[str], value: JsonValue) -> None:
        if not path:
            self.root = value
            return
        parent = self._parent(path, "path")
        parent[self._key(parent, path[-1], "path")] = value

    def _remove(self, path: Sequence[str], member: str) -> None:
        if not path:
            self.root = None
            return
        parent = self._parent(path, member)
        key = self._key(parent, path[-1], member)
        if isinstance(parent, list):
            self._shift(len(parent) - key)
        del parent[key]

    def _shift(self, elements: int) -> None:
        self._work.spend(elements // _ELEMENTS_PER_STEP)

    def _charge(self, value: JsonValue, path: Sequence[str]) -> None:
        count, depth = measured(value)
        self._work.spend(count)
        if len(path) + depth > MAX_DEPTH:
            raise self._error("path", f"the value would be deeper than {MAX_DEPTH} levels")
        if self._work.limit < UNLIMITED:
            self._bytes_left -= len(encode_json(value))
            if self._bytes_left < 0:
                raise self._error("op", f"the operations handle more than {MAX_WORK_BYTES} bytes together")

    def _error(self, member: str, message: str) -> PatchError:
        return _error(f"/{self._position}/{member}", message)


def _error(pointer: str, message: str) -> PatchError:
    where = pointer or "the patch"
    return PatchError(f"{where}: {message}", problems=[Problem("patch_failed", pointer, message)])


# ------------------------------------------------------------ values


def equal(value: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are the same JSON: 1 equals 1.0 but not true."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(equal(child, other[name]) for name, child in value.items())
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(equal(*pair) for pair in zip(value, other, strict=True))
    return value == other


def difference(before: JsonValue, after: JsonValue) -> list[JsonValue]:
    """Return a JSON Patch that turns ``before`` into ``after``. Objects are compared by name, lists by index."""
    operations = list[JsonValue]()
    _differ(before, after, "", operations)
    return operations


def _differ(before: JsonValue, after: JsonValue, pointer: str, operations: list[JsonValue]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        _differ_objects(before, after, pointer, operations)
    elif isinstance(before, list) and isinstance(after, list):
        _differ_lists(before, after, pointer, operations)
    elif type(before) is not type(after) or repr(before) != repr(after):
        operations.append({"op": "replace", "path": pointer, "value": after})


def _differ_objects(before: JsonObject, after: JsonObject, pointer: str, operations: list[JsonValue]) -> None:
    for name in before:
        if name not in after:
            operations.append({"op": "remove", "path": pointer + json_pointer([name])})
    for name, value in after.items():
        if name in before:
            _differ(before[name], value, pointer + json_pointer([name]), operations)
        else:
            operations.append({"op": "add", "path": pointer + json_pointer([name]), "value": value})


def _differ_lists(before: list[JsonValue], after: list[JsonValue], pointer: str, operations: list[JsonValue]) -> None:
    shared = min(len(before), len(after))
    for index in range(shared):
        _differ(before[index], after[index], f"{pointer}/{index}", operations)
    for index in range(len(before) - 1, shared - 1, -1):
        operations.append({"op": "remove", "path": f"{pointer}/{index}"})
    for value in after[shared:]:
        operations.append({"op": "add", "path": f"{pointer}/-", "value": value})
