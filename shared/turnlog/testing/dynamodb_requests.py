"""What a request to DynamoDB names, reads and writes, from its parameters and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from turnlog.testing.capacity import WireItem, read_units, wire_item_bytes

Params: TypeAlias = Mapping[str, Any]


def is_consistent(params: Params) -> bool:
    tables = params.get("RequestItems")
    if tables is not None:
        return all(table.get("ConsistentRead", False) for table in tables.values())
    return bool(params.get("ConsistentRead", False))


def key_of(item: WireItem) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def table_of(params: Params) -> str:
    (table,) = [params["TableName"]] if "TableName" in params else params["RequestItems"]
    return str(table)


def written_keys(operation: str, params: Params) -> list[WireItem]:
    match operation:
        case "PutItem":
            return [params["Item"]]
        case "DeleteItem":
            return [params["Key"]]
        case "BatchWriteItem":
            return [put_or_key(request)[1] for table in params["RequestItems"].values() for request in table]
    return []


def writes_of(operation: str, params: Params, answer: Params) -> list[tuple[tuple[str, str], WireItem | None]]:
    """(key, new item or None) of each write that was done or refused by its condition."""
    if operation != "BatchWriteItem":
        return [(key_of(item), params.get("Item")) for item in written_keys(operation, params)]
    left = {key_of(put_or_key(request)[1]) for table in answer["UnprocessedItems"].values() for request in table}
    pairs = [put_or_key(request) for table in params["RequestItems"].values() for request in table]
    return [(key_of(item), item if is_put else None) for is_put, item in pairs if key_of(item) not in left]


def put_or_key(request: Params) -> tuple[bool, WireItem]:
    if "PutRequest" in request:
        return True, request["PutRequest"]["Item"]
    return False, request["DeleteRequest"]["Key"]


def read_units_of(operation: str, params: Params, answer: Params) -> float:
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
    found = answer.get("Responses", {}).get(name, [])
    left = answer.get("UnprocessedKeys", {}).get(name, {}).get("Keys", [])
    absent = len(request["Keys"]) - len(found) - len(left)
    sizes = [*map(wire_item_bytes, found), *[0] * absent]
    return sum(read_units(size, consistent=consistent) for size in sizes)
