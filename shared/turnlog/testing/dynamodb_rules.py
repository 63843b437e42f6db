"""Rules of DynamoDB that moto does not enforce, its capacity units, and Turnlog's own rules, as far as `ItemTable` needs them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from turnlog.ports import MAX_GET_ITEMS, MAX_ITEM_BYTES, MAX_WRITE_ITEMS

WireItem: TypeAlias = Mapping[str, Mapping[str, Any]]
"""An item as the client sends it: ``{"pk": {"S": "…"}, "body": {"B": b"…"}}``."""

_READ_UNIT_BYTES = 4_096
_WRITE_UNIT_BYTES = 1_024
Params: TypeAlias = Mapping[str, Any]
_MAX_BATCH_BYTES = 16 * 1_048_576
_MAX_DIGITS = 38
_MAX_DEPTH = 32
_BETWEEN = re.compile(r"BETWEEN (:\w+) AND (:\w+)")
_OUTSIDE_THE_PORT = frozenset(
    {
        *("BatchExecuteStatement", "ExecuteStatement", "ExecuteTransaction"),
        *("TransactGetItems", "TransactWriteItems", "UpdateItem"),
    }
)
_PARTIAL_ANSWERS = ("FilterExpression", "ProjectionExpression", "QueryFilter", "AttributesToGet", "Select")


def wire_item_bytes(item: WireItem) -> int:
    """Return the size of an item in bytes, counted as DynamoDB does."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def digits(number: str) -> int:
    """Count the significant digits of a number. DynamoDB keeps 38."""
    text = "".join(map(str, Decimal(number).as_tuple().digits))
    return len(text.strip("0"))


def numbers_of(value: Mapping[str, Any]) -> Iterable[str]:
    """Yield all numbers in an attribute's value, at any depth."""
    ((kind, content),) = value.items()
    if kind in ("N", "NS"):
        yield from [content] if kind == "N" else content
    elif kind in ("L", "M"):
        for member in content if kind == "L" else content.values():
            yield from numbers_of(member)


def depth(value: Mapping[str, Any]) -> int:
    """Count the lists and maps around the innermost value."""
    ((kind, content),) = value.items()
    if kind not in ("L", "M"):
        return 0
    return 1 + max((depth(member) for member in (content if kind == "L" else content.values())), default=0)


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """Return the read units of one item or of a query's page. A missing item costs as much as the smallest one."""
    return _units(size_bytes, _READ_UNIT_BYTES) * (1.0 if consistent else 0.5)


def write_units(old: WireItem | None, new: WireItem | None) -> int:
    """Return the write units of replacing or deleting an item, or of a refused condition: the larger item counts."""
    return _units(max(wire_item_bytes(old or {}), wire_item_bytes(new or {})), _WRITE_UNIT_BYTES)


def index_write_units(old: WireItem | None, new: WireItem | None, keys: tuple[str, str]) -> int:
    """Return the write units of one index with all attributes. An entry whose keys change is deleted and written."""
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
            return math.ceil(max(1, digits(content)) / 2) + 1 + Decimal(content).is_signed()
        case "BOOL" | "NULL":
            return 1
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: member}) for member in content)
        case "L":
            return 3 + sum(1 + _value_bytes(member) for member in content)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(member) for name, member in content.items())
    raise ValueError(f"{kind!r} is no type of DynamoDB")


def is_consistent(params: Params) -> bool:
    """Return whether a read asks for ConsistentRead, for every table that it names."""
    tables = params.get("RequestItems")
    if tables is not None:
        return all(table.get("ConsistentRead", False) for table in tables.values())
    return bool(params.get("ConsistentRead", False))


def key_of(item: WireItem) -> tuple[str, str]:
    """Return partition key and sort key of an item."""
    return item["pk"]["S"], item["sk"]["S"]


def table_of(params: Params) -> str:
    """Return the name of the only table in a request."""
    (table,) = [params["TableName"]] if "TableName" in params else params["RequestItems"]
    return str(table)


def written_keys(operation: str, params: Params) -> list[WireItem]:
    """Return the items or keys that a request writes or deletes; empty for reads."""
    match operation:
        case "PutItem":
            return [params["Item"]]
        case "DeleteItem":
            return [params["Key"]]
        case "BatchWriteItem":
            return [put_or_key(request)[1] for table in params["RequestItems"].values() for request in table]
    return []


def writes_of(operation: str, params: Params, answer: Params) -> list[tuple[tuple[str, str], WireItem | None]]:
    """Return (key, new item or None) of each write that took effect or was refused by its condition."""
    if operation != "BatchWriteItem":
        return [(key_of(item), params.get("Item")) for item in written_keys(operation, params)]
    unprocessed = {key_of(put_or_key(request)[1]) for table in answer["UnprocessedItems"].values() for request in table}
    pairs = [put_or_key(request) for table in params["RequestItems"].values() for request in table]
    return [(key_of(item), item if is_put else None) for is_put, item in pairs if key_of(item) not in unprocessed]


def put_or_key(request: Params) -> tuple[bool, WireItem]:
    """Return whether an entry of a batch is a put, and its item, or the key of a delete."""
    if "PutRequest" in request:
        return True, request["PutRequest"]["Item"]
    return False, request["DeleteRequest"]["Key"]


def read_units_of(operation: str, params: Params, answer: Params) -> float:
    """Return the read units of a request, from its answer; 0 for writes."""
    match operation:
        case "GetItem":
            return read_units(wire_item_bytes(answer.get("Item", {})), consistent=is_consistent(params))
        case "Query":
            return read_units(sum(map(wire_item_bytes, answer["Items"])), consistent=is_consistent(params))
        case "BatchGetItem":
            return sum(_batch_reads(name, table, answer) for name, table in params["RequestItems"].items())
    return 0.0


def _batch_reads(name: str, request: Params, answer: Params) -> float:
    consistent = bool(request.get("ConsistentRead", False))
    items = answer.get("Responses", {}).get(name, [])
    unprocessed = answer.get("UnprocessedKeys", {}).get(name, {}).get("Keys", [])
    absent = len(request["Keys"]) - len(items) - len(unprocessed)
    sizes = [*map(wire_item_bytes, items), *[0] * absent]
    return sum(read_units(size, consistent=consistent) for size in sizes)


class GuardError(AssertionError):
    """A request that DynamoDB would refuse, or that breaks a rule of Turnlog. It is not sent."""


def check(operation: str, params: Params) -> None:
    """Raise `GuardError` for a request that must not be sent."""
    match operation:
        case "Scan":
            raise GuardError("Scan reads the tables of all owners")
        case "PutItem":
            _check_item(params["Item"])
        case "BatchWriteItem":
            _check_batch_write(params)
        case "BatchGetItem":
            _check_batch_get(params)
        case "Query":
            _check_query(params)
        case _ if operation in _OUTSIDE_THE_PORT:
            raise GuardError(f"{operation} is not needed by ItemTable, and its item sizes can't be checked")
    _check_values(params.get("ExpressionAttributeValues", {}))


def _check_item(item: WireItem) -> None:
    size = wire_item_bytes(item)
    if size > MAX_ITEM_BYTES:
        raise GuardError(f"an item of {size} bytes, over {MAX_ITEM_BYTES}")
    _check_values(item)


def _check_values(values: WireItem) -> None:
    for name, value in values.items():
        if depth(value) > _MAX_DEPTH:
            raise GuardError(f"{name!r} is nested deeper than {_MAX_DEPTH}")
        for number in numbers_of(value):
            if digits(number) > _MAX_DIGITS:
                raise GuardError(f"{name!r} has a number of more than {_MAX_DIGITS} digits")


def _check_batch_write(params: Params) -> None:
    requests = [request for requests in params["RequestItems"].values() for request in requests]
    _check_count(len(requests), MAX_WRITE_ITEMS, "BatchWriteItem")
    items = [request["PutRequest"]["Item"] for request in requests if "PutRequest" in request]
    for item in items:
        _check_item(item)
    if sum(map(wire_item_bytes, items)) > _MAX_BATCH_BYTES:
        raise GuardError(f"BatchWriteItem of more than {_MAX_BATCH_BYTES} bytes")
    _check_distinct(written_keys("BatchWriteItem", params), "BatchWriteItem")


def _check_batch_get(params: Params) -> None:
    for table in params["RequestItems"].values():
        _refuse_partial_answers(table)
    keys = [key for table in params["RequestItems"].values() for key in table["Keys"]]
    _check_count(len(keys), MAX_GET_ITEMS, "BatchGetItem")
    _check_distinct(keys, "BatchGetItem")


def _check_query(params: Params) -> None:
    _refuse_partial_answers(params)
    values = params.get("ExpressionAttributeValues", {})
    if {"S": ""} in values.values():
        raise GuardError("Query compares a key with an empty text")
    for low, high in _BETWEEN.findall(params.get("KeyConditionExpression", "")):
        if values[low]["S"].encode() > values[high]["S"].encode():
            raise GuardError("Query has a range the wrong way round")


def _refuse_partial_answers(params: Params) -> None:
    """Raise `GuardError` for an answer that hides what was read: the meter takes a read's size from its answer."""
    for name in _PARTIAL_ANSWERS:
        if name in params:
            raise GuardError(f"{name} hides from the meter what was read")


def _check_count(count: int, limit: int, operation: str) -> None:
    if not 1 <= count <= limit:
        raise GuardError(f"{operation} of {count} keys: it takes 1 to {limit}")


def _check_distinct(keys: Sequence[WireItem], operation: str) -> None:
    if len({key_of(key) for key in keys}) < len(keys):
        raise GuardError(f"{operation} names a key twice")
