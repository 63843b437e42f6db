"""The rules of DynamoDB that moto does not enforce, and Turnlog's own: only what `ItemTable` needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from turnlog.ports import MAX_GET_ITEMS, MAX_ITEM_BYTES, MAX_WRITE_ITEMS
from turnlog.testing.capacity import WireItem, depth, digits, numbers_of, wire_item_bytes
from turnlog.testing.dynamodb_requests import Params, key_of, written_keys

_MAX_BATCH_BYTES = 16 * 1_048_576
_MAX_DIGITS = 38
_MAX_DEPTH = 32
_BETWEEN = re.compile(r"BETWEEN (:\w+) AND (:\w+)")

_OUTSIDE_THE_PORT = frozenset(
    {
        "BatchExecuteStatement",
        "ExecuteStatement",
        "ExecuteTransaction",
        "TransactGetItems",
        "TransactWriteItems",
        "UpdateItem",
    }
)
_PARTIAL_ANSWERS = ("FilterExpression", "ProjectionExpression", "QueryFilter", "AttributesToGet", "Select")


class GuardError(AssertionError):
    """A request that DynamoDB would refuse, or that breaks a rule of Turnlog. Never sent."""


def check(operation: str, params: Params) -> None:
    """Raises `GuardError` for a request that must not be sent."""
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
    """The meter takes a read's size from its answer, which must then hold all that was read."""
    for name in _PARTIAL_ANSWERS:
        if name in params:
            raise GuardError(f"{name} hides from the meter what was read")


def _check_count(count: int, limit: int, operation: str) -> None:
    if not 1 <= count <= limit:
        raise GuardError(f"{operation} of {count} keys: it takes 1 to {limit}")


def _check_distinct(keys: Sequence[WireItem], operation: str) -> None:
    if len({key_of(key) for key in keys}) < len(keys):
        raise GuardError(f"{operation} names a key twice")
