"""`ItemTable` on a DynamoDB table with string keys ``pk``, ``sk`` and the indexes ``activity`` and ``expiry``."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from botocore.exceptions import ClientError

from turnlog.core.errors import ThrottledError, TooLargeError
from turnlog.engines.aws_errors import error_code, translated
from turnlog.ports import (
    INDEX_KEYS,
    MAX_GET_ITEMS,
    MAX_ITEM_BYTES,
    MAX_WRITE_ITEMS,
    Absent,
    AttributeValue,
    Condition,
    Equal,
    Item,
    Key,
    Lost,
    Page,
    Query,
    item_size_bytes,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        AttributeValueTypeDef,
        PutItemInputTypeDef,
        QueryInputTypeDef,
        WriteRequestUnionTypeDef,
    )


_T = TypeVar("_T")

_MAX_IDLE_ROUNDS = 6
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_READERS: dict[str, Callable[[Any], AttributeValue]] = {"N": int, "B": bytes}


class DynamoItemTable:
    """Implements `ItemTable`. A call takes one request; a batch takes one for each 100 reads or 25 writes.

    Keys that DynamoDB leaves unprocessed in a batch are sent again with growing pauses. If six tries in a row process no key, the
    call raises `ThrottledError`. ``sleep`` makes the pauses (seconds).
    """

    def __init__(self, client: DynamoDBClient, table_name: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._table_name = table_name
        self._sleep = sleep

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        wanted = list(dict.fromkeys(keys))
        if len(wanted) == 1:
            return self._get(wanted[0], consistent=consistent)
        items: dict[Key, Item] = {}

        def send(chunk: list[Key]) -> list[Key]:
            request: Any = {"Keys": [_encode_key(key) for key in chunk], "ConsistentRead": consistent}
            with translated("BatchGetItem"):
                answer = self._client.batch_get_item(RequestItems={self._table_name: request})
            for raw in answer.get("Responses", {}).get(self._table_name, []):
                item = _decode(raw)
                items[_key_of(item)] = item
            unprocessed = answer.get("UnprocessedKeys", {}).get(self._table_name)
            return [_key_of(_decode(raw)) for raw in unprocessed["Keys"]] if unprocessed else []

        self._send_all(wanted, MAX_GET_ITEMS, send, "BatchGetItem")
        return items

    def query(self, query: Query) -> Page:
        if query.low > query.high or not query.high:
            return Page((), None)  # DynamoDB refuses an empty range
        with translated("Query"):
            answer = self._client.query(**self._query_request(query))
        last = answer.get("LastEvaluatedKey")
        return Page(
            items=tuple(_decode(raw) for raw in answer["Items"]),
            next={name: value["S"] for name, value in last.items()} if last else None,
        )

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        _check_size(item)
        request: PutItemInputTypeDef = {"TableName": self._table_name, "Item": _encode(item)}
        if condition is not None:
            _add_condition(request, condition)
        with translated("PutItem"):
            try:
                self._client.put_item(**request)
            except ClientError as error:
                if error_code(error) != "ConditionalCheckFailedException":
                    raise
                existing = cast("Mapping[str, Any]", error.response).get("Item")  # boto's types don't declare it
                return Lost(_decode(existing) if existing else None)
        return None

    def write_many(self, items: Sequence[Item]) -> None:
        for item in items:
            _check_size(item)
        # DynamoDB refuses a batch that names a key twice.
        last = {_key_of(item): item for item in items}
        self._write([{"PutRequest": {"Item": _encode(item)}} for item in last.values()])

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._write([{"DeleteRequest": {"Key": _encode_key(key)}} for key in dict.fromkeys(keys)])

    def _get(self, key: Key, *, consistent: bool) -> dict[Key, Item]:
        with translated("GetItem"):
            answer = self._client.get_item(TableName=self._table_name, Key=_encode_key(key), ConsistentRead=consistent)
        raw = answer.get("Item")
        return {key: _decode(raw)} if raw else {}

    def _query_request(self, query: Query) -> QueryInputTypeDef:
        partition, sort = INDEX_KEYS[query.index] if query.index else ("pk", "sk")
        # DynamoDB refuses an empty string as a key, even as a bound.
        bounds = f"{sort} BETWEEN :low AND :high" if query.low else f"{sort} <= :high"
        values: dict[str, AttributeValueTypeDef] = {":pk": {"S": query.pk}, ":high": {"S": query.high}}
        if query.low:
            values[":low"] = {"S": query.low}
        request: QueryInputTypeDef = {
            "TableName": self._table_name,
            "KeyConditionExpression": f"{partition} = :pk AND {bounds}",
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not query.descending,
        }
        if query.index:
            request["IndexName"] = query.index
        else:
            request["ConsistentRead"] = True
        if query.limit is not None:
            request["Limit"] = query.limit
        if query.after is not None:
            request["ExclusiveStartKey"] = {name: {"S": value} for name, value in query.after.items()}
        return request

    def _write(self, requests: list[WriteRequestUnionTypeDef]) -> None:
        def send(chunk: list[WriteRequestUnionTypeDef]) -> list[WriteRequestUnionTypeDef]:
            with translated("BatchWriteItem"):
                answer = self._client.batch_write_item(RequestItems={self._table_name: chunk})
            return list(answer.get("UnprocessedItems", {}).get(self._table_name, []))

        self._send_all(requests, MAX_WRITE_ITEMS, send, "BatchWriteItem")

    def _send_all(self, values: list[_T], size: int, send: Callable[[list[_T]], list[_T]], operation: str) -> None:
        """Send keys or requests, up to ``size`` at once; ``send`` returns those that DynamoDB left unprocessed."""
        for start in range(0, len(values), size):
            pending, idle_rounds = values[start : start + size], 0
            while left := send(pending):
                # Fewer left is progress: a batch get ends at 16 MB even without throttling.
                idle_rounds = idle_rounds + 1 if len(left) == len(pending) else 0
                if idle_rounds == _MAX_IDLE_ROUNDS:
                    raise ThrottledError(f"{operation} left {len(left)} keys unprocessed", retry_after_seconds=1)
                self._sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**idle_rounds)))
                pending = left


def _add_condition(request: PutItemInputTypeDef, condition: Condition) -> None:
    request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if isinstance(condition, Absent):
        request["ConditionExpression"] = "attribute_not_exists(pk)"
        return
    request["ExpressionAttributeNames"] = {"#a": condition.attribute}
    request["ExpressionAttributeValues"] = _encode({":v": condition.value})
    if isinstance(condition, Equal):
        request["ConditionExpression"] = "#a = :v"
    else:
        request["ConditionExpression"] = "attribute_not_exists(pk) OR #a < :v" if condition.or_absent else "#a < :v"


def _check_size(item: Item) -> None:
    size = item_size_bytes(item)
    if size > MAX_ITEM_BYTES:
        raise TooLargeError(
            f"the item {item['sk']!r} has {size} bytes, over {MAX_ITEM_BYTES}",
            details={"size_bytes": size, "limit_bytes": MAX_ITEM_BYTES},
        )


def _key_of(item: Item) -> Key:
    return Key(str(item["pk"]), str(item["sk"]))


def _encode_key(key: Key) -> dict[str, AttributeValueTypeDef]:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def _encode(item: Item) -> dict[str, AttributeValueTypeDef]:
    return {name: _encode_value(value) for name, value in item.items()}


def _encode_value(value: AttributeValue) -> AttributeValueTypeDef:
    return {"S": value} if isinstance(value, str) else {"B": value} if isinstance(value, bytes) else {"N": str(value)}


def _decode(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, AttributeValue]:
    """Return an item from DynamoDB's form, in which each attribute is an object of its type and its value."""
    return {
        name: _READERS.get(kind, str)(content) for name, attribute in raw.items() for kind, content in attribute.items()
    }
