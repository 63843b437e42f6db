"""What DynamoDB counts: the size of an item on the wire, and the capacity units of a read or a write.

Written apart from `turnlog.ports.item_size_bytes`, so that each checks the other. Source: "DynamoDB item sizes and
formats" and "Read and write operations" in the developer guide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

WireItem: TypeAlias = Mapping[str, Mapping[str, Any]]
"""An item as the client sends it: ``{"pk": {"S": "…"}, "body": {"B": b"…"}}``."""

_READ_UNIT_BYTES = 4_096
_WRITE_UNIT_BYTES = 1_024


def wire_item_bytes(item: WireItem) -> int:
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def digits(number: str) -> int:
    """The significant digits of a number. DynamoDB keeps 38."""
    text = "".join(map(str, Decimal(number).as_tuple().digits))
    return len(text.strip("0"))


def numbers_of(value: Mapping[str, Any]) -> Iterable[str]:
    """All numbers in an attribute's value, at any depth."""
    ((kind, content),) = value.items()
    if kind == "N":
        yield content
    elif kind == "NS":
        yield from content
    elif kind in ("L", "M"):
        for member in content if kind == "L" else content.values():
            yield from numbers_of(member)


def depth(value: Mapping[str, Any]) -> int:
    """How many lists and maps stand around the innermost value."""
    ((kind, content),) = value.items()
    if kind not in ("L", "M"):
        return 0
    return 1 + max((depth(member) for member in (content if kind == "L" else content.values())), default=0)


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """Of one item, or of a query's whole page. What is not there costs as much as the smallest item."""
    return _units(size_bytes, _READ_UNIT_BYTES) * (1.0 if consistent else 0.5)


def write_units(old: WireItem | None, new: WireItem | None) -> int:
    """Of replacing, deleting or refusing to replace an item: the larger of the two counts."""
    return _units(max(wire_item_bytes(old or {}), wire_item_bytes(new or {})), _WRITE_UNIT_BYTES)


def index_write_units(old: WireItem | None, new: WireItem | None, keys: tuple[str, str]) -> int:
    """Of one index that projects everything: an entry that moves is deleted and written."""
    before = old if old and all(key in old for key in keys) else None
    after = new if new and all(key in new for key in keys) else None
    if before == after:
        return 0
    if before and after and any(before[key] != after[key] for key in keys):
        return write_units(before, None) + write_units(None, after)
    return write_units(before, after)


def _units(size_bytes: int, unit_bytes: int) -> int:
    return max(1, math.ceil(size_bytes / unit_bytes))


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            return _number_bytes(content)
        case "BOOL" | "NULL":
            return 1
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: member}) for member in content)
        case "L":
            return 3 + sum(1 + _value_bytes(member) for member in content)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(member) for name, member in content.items())
    raise ValueError(f"{kind!r} is no type of DynamoDB")


def _number_bytes(number: str) -> int:
    sign = 1 if Decimal(number).is_signed() else 0
    return math.ceil(max(1, digits(number)) / 2) + 1 + sign
