"""The price of one request to DynamoDB, from its body, its answer, and what stands in the table."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID  # type: ignore[attr-defined]
from moto.dynamodb.models import dynamodb_backends

from benchmarks.peers.prices import REGION
from turnlog.ports import MAX_ITEM_BYTES
from turnlog.testing.dynamodb_rules import WireItem, index_write_units, read_units, wire_item_bytes, write_units

_BEHIND_A_PROJECTION = ("ProjectionExpression", "ExpressionAttributeNames")
_HIDES = ("FilterExpression", "QueryFilter", "AttributesToGet", "Select", "IndexName")
_CONDITION = "ConditionalCheckFailedException"


class TooLarge(Exception):  # noqa: N818 - the service's refusal, no fault of this program
    """The write would leave an item over the limit; nothing was written."""


@dataclass(frozen=True, slots=True)
class _Table:
    keys: tuple[str, ...]
    indexes: tuple[tuple[str, str], ...]


class Shadow:
    """Looks up beside the meter what a request's price depends on."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tables = dict[str, _Table]()

    def priced(self, operation: str, body: bytes, send: Callable[[], Any]) -> tuple[Any, tuple[float, int]]:
        """Sends, and returns the attempt's answer with its read and write units."""
        params = _decoded(json.loads(body))
        if operation in ("GetItem", "Query", "BatchGetItem"):
            answer = send()
            return answer, (0.0 if _failed(answer) else self._reads(operation, params, answer[0][1]), 0)
        if operation in ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"):
            answer, writes = self._written(operation, params, send)
            return answer, (0.0, writes)
        raise AssertionError(f"{operation} has no price here")

    def _reads(self, operation: str, params: dict[str, Any], parsed: dict[str, Any]) -> float:
        if operation == "BatchGetItem":
            ((name, table),) = params["RequestItems"].items()
            assert "ProjectionExpression" not in table and not parsed.get("UnprocessedKeys")
            sizes = [wire_item_bytes(item) for item in parsed["Responses"].get(name, [])]
            sizes += [0] * (len(table["Keys"]) - len(sizes))
            return sum(read_units(size, consistent=table.get("ConsistentRead", False)) for size in sizes)
        if any(name in params for name in _HIDES):
            raise AssertionError(f"{operation} with {sorted(params)} has no price here")
        if "ProjectionExpression" in params:  # charged by the whole item
            whole = {name: value for name, value in params.items() if name not in _BEHIND_A_PROJECTION}
            parsed = self._client.get_item(**whole) if operation == "GetItem" else self._client.query(**whole)
        items = parsed["Items"] if operation == "Query" else [parsed.get("Item", {})]
        return read_units(sum(map(wire_item_bytes, items)), consistent=params.get("ConsistentRead", False))

    def _written(self, operation: str, params: dict[str, Any], send: Callable[[], Any]) -> tuple[Any, int]:
        if operation == "BatchWriteItem":
            ((table, requests),) = params["RequestItems"].items()
            writes = [_put_or_delete(request) for request in requests]
        else:
            table = params["TableName"]
            writes = [(params.get("Item") or params["Key"], params.get("Item"))]
        if any(wire_item_bytes(new or {}) > MAX_ITEM_BYTES for _, new in writes):
            raise TooLarge
        olds = [self._item(table, at) for at, _ in writes]
        answer = send()
        refused = _failed(answer)
        if refused and refused != _CONDITION:
            return answer, 0
        news = [new for _, new in writes]
        if operation == "UpdateItem" and not refused:
            news = [self._updated(table, params["Key"], olds[0])]
        units = 0
        for old, new in zip(olds, news, strict=True):
            units += write_units(old, new)
            if not refused:
                units += sum(index_write_units(old, new, keys) for keys in self._table(table).indexes)
        return answer, units

    def _updated(self, table: str, key: WireItem, old: WireItem | None) -> WireItem | None:
        new = self._item(table, key)
        if wire_item_bytes(new or {}) <= MAX_ITEM_BYTES:
            return new
        if old is not None:
            self._client.put_item(TableName=table, Item=old)
        else:
            self._client.delete_item(TableName=table, Key=key)
        raise TooLarge

    def _item(self, table: str, at: WireItem) -> WireItem | None:
        """Return an item from moto's memory: its answers take seconds for a long item."""
        key = {name: at[name] for name in self._table(table).keys}
        result = dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].get_item(table, key)
        item: WireItem | None = _decoded(result.to_json()["Attributes"]) if result is not None else None
        return item

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            result = self._client.describe_table(TableName=name)["Table"]
            indexes = [_names(index["KeySchema"]) for index in result.get("GlobalSecondaryIndexes", [])]
            self._tables[name] = _Table(_names(result["KeySchema"]), tuple((index[0], index[1]) for index in indexes))
        return self._tables[name]


def _names(schema: Sequence[dict[str, str]]) -> tuple[str, ...]:
    return tuple(part["AttributeName"] for part in schema)


def _put_or_delete(request: dict[str, Any]) -> tuple[WireItem, WireItem | None]:
    if "PutRequest" in request:
        return request["PutRequest"]["Item"], request["PutRequest"]["Item"]
    return request["DeleteRequest"]["Key"], None


def _failed(answer: Any) -> str | None:
    """Return the code of an answer that is an error; of a lost answer too, as no code of the service."""
    if answer[0] is None:
        return "lost"
    code: str | None = answer[0][1].get("Error", {}).get("Code")
    return code


def _decoded(value: Any) -> Any:
    """Return a request's body with its binary values as bytes, as the client took them."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((kind, content),) = value.items()
            if kind == "B" and isinstance(content, str):
                return {kind: base64.b64decode(content)}
            if kind == "BS":
                return {kind: [base64.b64decode(member) for member in content]}
        return {name: _decoded(member) for name, member in value.items()}
    return [_decoded(member) for member in value] if isinstance(value, list) else value
