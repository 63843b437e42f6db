"""AWS in tests: the resources that Turnlog needs, on moto, on an emulator or in an account, and a guard around botocore clients.

The guard refuses requests that DynamoDB refuses and moto accepts, and counts requests.

    guard = Guard.attach(client)                    # or several clients, which then share one count of requests
    with guard.measure() as spent:
        table.query(...)
    assert spent.requests == {"Query": 1} and spent.read_units == 1.0

Every attempt counts as a request, so a repeat by the SDK is visible.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from unittest import mock

from turnlog.ports import INDEX_KEYS
from turnlog.testing import dynamodb_rules as rules
from turnlog.testing.dynamodb_rules import GuardError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import CreateTableInputTypeDef, KeySchemaElementTypeDef
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

DemandConsistent: TypeAlias = Callable[[str, rules.Params], bool]
Answer: TypeAlias = tuple[Any, Exception | None]
_PARAMS = "turnlog_guard_params"
# moto checks a condition and writes in two steps, and lists a table while other threads change it; DynamoDB does neither.
_ONE_AT_A_TIME = threading.RLock()


def create_table(client: DynamoDBClient, name: str) -> None:
    """Create the table with its two indexes, wait until it can be used, and enable time to live on ``ttl``."""
    keys = [("pk", "sk"), *INDEX_KEYS.values()]
    request: CreateTableInputTypeDef = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for pair in keys for key in pair],
        "KeySchema": _key_schema("pk", "sk"),
        "GlobalSecondaryIndexes": [
            {"IndexName": index, "KeySchema": _key_schema(*keys_of_index), "Projection": {"ProjectionType": "ALL"}}
            for index, keys_of_index in INDEX_KEYS.items()
        ],
    }
    client.create_table(**request)
    client.get_waiter("table_exists").wait(TableName=name)
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"})


def _key_schema(partition: str, sort: str) -> list[KeySchemaElementTypeDef]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


def create_bucket(client: S3Client, name: str) -> None:
    """Create a bucket in the client's region, with versioning as in the template."""
    region = client.meta.region_name
    if region == "us-east-1":
        client.create_bucket(Bucket=name)
    else:
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})  # type: ignore[typeddict-item]
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})


def create_queue(client: SQSClient, name: str, *, visibility_seconds: int, max_receives: int) -> tuple[str, str]:
    """Create a standard queue and its dead-letter queue, and return the URLs of both."""
    dead_url = client.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    attributes = client.get_queue_attributes(QueueUrl=dead_url, AttributeNames=["QueueArn"])["Attributes"]
    redrive = {"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": str(max_receives)}
    url = client.create_queue(
        QueueName=name, Attributes={"VisibilityTimeout": str(visibility_seconds), "RedrivePolicy": json.dumps(redrive)}
    )["QueueUrl"]
    return url, dead_url


__all__ = ["Guard", "GuardError", "Meter", "base_table_queries", "real_item_limit"]


@dataclass
class Meter:
    """Requests and capacity units spent. ``requests`` counts attempts by operation, including failed ones."""

    requests: Counter[str] = field(default_factory=Counter)
    read_units: float = 0.0
    write_units: float = 0.0
    index_write_units: float = 0.0


def base_table_queries(operation: str, params: rules.Params) -> bool:
    """Return whether a request must be consistent: queries of the table must see every acknowledged write."""
    return operation == "Query" and "IndexName" not in params


class Guard:
    """A guard that stays attached to its clients for their lifetime. Safe to use from many threads."""

    def __init__(self, demand_consistent: DemandConsistent, *, one_at_a_time: bool) -> None:
        self.meter = Meter()
        self._meters = [self.meter]
        self._demand_consistent = demand_consistent
        self._turn: AbstractContextManager[Any] = _ONE_AT_A_TIME if one_at_a_time else nullcontext()
        self._lock = threading.Lock()
        self._own = threading.local()

    @classmethod
    def attach(
        cls, *clients: Any, demand_consistent: DemandConsistent = base_table_queries, one_at_a_time: bool = True
    ) -> Self:
        """Attach a guard to clients: requests of all are counted, those of DynamoDB are checked and metered.

        ``one_at_a_time`` makes moto's requests atomic; turn it off for an emulator with atomic requests.
        """
        guard = cls(demand_consistent, one_at_a_time=one_at_a_time)
        for client in clients:
            if client.meta.service_model.service_name == "dynamodb":
                client.meta.events.register("before-parameter-build.dynamodb", guard._check)
            guard._wrap_attempts(client)
        return guard

    @contextmanager
    def measure(self) -> Iterator[Meter]:
        """Yield a meter of requests and units spent within the block."""
        meter = Meter()
        with self._lock:
            self._meters.append(meter)
        try:
            yield meter
        finally:
            with self._lock:
                self._meters = [other for other in self._meters if other is not meter]

    def attempt(self, operation: str, send: Callable[[], Answer]) -> Answer:
        """Send a request once, by ``send``. Returns the SDK's pair of a response and an error. Subclasses inject faults."""
        return send()

    def _wrap_attempts(self, client: Any) -> None:
        """Wrap the SDK's single attempt of a request.

        Only at this place a request has taken effect while the SDK can still decide on a retry. An error of the ``before-send``
        hook comes before the effect, and errors of later hooks bypass the retry.
        """
        endpoint = client._endpoint
        attempt = endpoint._do_get_response

        def guarded(request: Any, operation_model: Any, context: Any) -> Any:
            if getattr(self._own, "reads", False):
                return attempt(request, operation_model, context)
            operation: str = operation_model.name
            self._count(operation)

            def send() -> Answer:
                params = context.get(_PARAMS)
                with self._turn:
                    old = self._old_items(client, operation, params) if params is not None else {}
                    success, error = attempt(request, operation_model, context)
                if params is not None and success is not None:
                    _, parsed = success
                    self._spend(operation, params, old, parsed)
                return success, error

            return self.attempt(operation, send)

        endpoint._do_get_response = guarded

    def _count(self, operation: str) -> None:
        with self._lock:
            for meter in self._meters:
                meter.requests[operation] += 1

    def _check(self, params: rules.Params, model: Any, context: Any, **_: Any) -> None:
        if getattr(self._own, "reads", False):
            return
        operation: str = model.name
        rules.check(operation, params)
        if self._demand_consistent(operation, params) and not rules.is_consistent(params):
            raise GuardError(f"{operation} must ask for ConsistentRead")
        context[_PARAMS] = params

    def _old_items(self, client: Any, operation: str, params: rules.Params) -> dict[tuple[str, str], rules.WireItem]:
        """Return the stored items under the keys of a write, which decide its price. Bypasses the guard."""
        keys = [rules.key_of(item) for item in rules.written_keys(operation, params)]
        if not keys:
            return {}
        wire_keys = [{"pk": {"S": pk}, "sk": {"S": sk}} for pk, sk in keys]
        table = rules.table_of(params)
        self._own.reads = True
        try:
            answer = client.batch_get_item(RequestItems={table: {"Keys": wire_keys, "ConsistentRead": True}})
        except client.exceptions.ResourceNotFoundException:
            return {}  # the write itself raises this error
        finally:
            self._own.reads = False
        return {rules.key_of(item): item for item in answer["Responses"].get(table, [])}

    def _spend(
        self, operation: str, params: rules.Params, old: Mapping[tuple[str, str], rules.WireItem], answer: rules.Params
    ) -> None:
        refused = answer.get("Error", {}).get("Code")
        if refused not in (None, "ConditionalCheckFailedException"):
            return
        reads = rules.read_units_of(operation, params, answer)
        writes = index_writes = 0
        for key, new in rules.writes_of(operation, params, answer):
            writes += rules.write_units(old.get(key), new)
            if refused is None:
                index_writes += sum(rules.index_write_units(old.get(key), new, keys) for keys in INDEX_KEYS.values())
        with self._lock:
            for meter in self._meters:
                meter.read_units += reads
                meter.write_units += writes
                meter.index_write_units += index_writes


@contextmanager
def real_item_limit() -> Iterator[None]:
    """Lift moto's item limit within the block: it counts bytes as base64, up to 405,000. The guard checks the real limit."""
    from moto.dynamodb.models.dynamo_type import LimitedSizeDict

    with mock.patch.object(LimitedSizeDict, "__setitem__", dict.__setitem__):
        yield
