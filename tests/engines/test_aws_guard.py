"""The guard refuses what DynamoDB refuses, counts as DynamoDB counts, and fails requests where it is told to."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ClientError, ConnectionClosedError
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber
from moto.dynamodb.models import dynamo_type
from moto.dynamodb.models.table import Table

from tests.faulty_engines import FaultyGuard
from turnlog.engines.aws_clients import Clients
from turnlog.ports import AttributeValue, item_size_bytes
from turnlog.testing.aws import GuardError, Meter, create_table, real_item_limit
from turnlog.testing.dynamodb_rules import depth, digits, index_write_units, read_units, wire_item_bytes, write_units

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REGION = "eu-central-1"
TABLE = "turnlog"
ACTIVITY = ("g1pk", "g1sk")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBClient]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    with mock_aws(), real_item_limit():
        client = Clients(REGION, max_attempts=1).dynamodb
        create_table(client, TABLE)
        yield client


@pytest.fixture
def guard(client: DynamoDBClient) -> FaultyGuard:
    return FaultyGuard.attach(client)


# Rules: each rejection has its test, beside the last that passes


def test_an_item_over_400_kb_is_refused_in_a_put(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item=_wire_of(409_600))
    with pytest.raises(GuardError, match="409601"):
        client.put_item(TableName=TABLE, Item=_wire_of(409_601))
    assert guard.meter.requests == {"PutItem": 1}


def test_an_item_over_400_kb_is_refused_in_a_batch(client: DynamoDBClient, guard: FaultyGuard) -> None:
    _batch_write(client, [_put(_wire_of(409_600))])
    with pytest.raises(GuardError, match="409601"):
        _batch_write(client, [_put(_wire_of(409_601))])


def test_a_batch_write_over_16_mb_is_refused(monkeypatch: pytest.MonkeyPatch, client: DynamoDBClient) -> None:
    """25 of the largest items have 10 MB, so the limit is lowered to meet it."""
    monkeypatch.setattr("turnlog.testing.dynamodb_rules._MAX_BATCH_BYTES", 2_000)
    FaultyGuard.attach(client)
    _batch_write(client, [_put(_wire_of(1_000, "1")), _put(_wire_of(1_000, "2"))])
    with pytest.raises(GuardError, match="more than 2000 bytes"):
        _batch_write(client, [_put(_wire_of(1_000, "1")), _put(_wire_of(1_001, "2"))])


def test_a_batch_write_takes_25(client: DynamoDBClient, guard: FaultyGuard) -> None:
    requests = [_put(_wire(str(number))) for number in range(26)]
    _batch_write(client, requests[:25])
    with pytest.raises(GuardError, match="26 keys"):
        _batch_write(client, requests)


def test_a_batch_get_takes_100(client: DynamoDBClient, guard: FaultyGuard) -> None:
    keys = [_wire(str(number)) for number in range(101)]
    _batch_get(client, keys[:100])
    with pytest.raises(GuardError, match="101 keys"):
        _batch_get(client, keys)


def test_a_batch_write_names_a_key_once(client: DynamoDBClient, guard: FaultyGuard) -> None:
    for requests in ([_put(_wire("1")), _put(_wire("1", n={"N": "1"}))], [_put(_wire("1")), _delete("1")]):
        with pytest.raises(GuardError, match="twice"):
            _batch_write(client, requests)


def test_a_batch_get_names_a_key_once(client: DynamoDBClient, guard: FaultyGuard) -> None:
    with pytest.raises(GuardError, match="twice"):
        _batch_get(client, [_wire("1"), _wire("2"), _wire("1")])


def test_scan_is_refused(client: DynamoDBClient, guard: FaultyGuard) -> None:
    with pytest.raises(GuardError, match="Scan"):
        client.scan(TableName=TABLE)


@pytest.mark.parametrize(
    "operation", ["update_item", "transact_write_items", "transact_get_items", "execute_statement"]
)
def test_what_the_port_does_not_need_is_refused(client: DynamoDBClient, guard: FaultyGuard, operation: str) -> None:
    parameters: dict[str, dict[str, Any]] = {
        "update_item": {"TableName": TABLE, "Key": _wire("1")},
        "transact_write_items": {"TransactItems": []},
        "transact_get_items": {"TransactItems": []},
        "execute_statement": {"Statement": "SELECT 1"},
    }
    with pytest.raises(GuardError, match="not needed"):
        getattr(client, operation)(**parameters[operation])


def test_a_number_has_38_digits(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item=_wire("1", n={"N": "9" * 38 + "000"}))
    for value in ({"N": "9" * 39}, {"NS": ["1", "9" * 39]}, {"M": {"a": {"L": [{"N": "9" * 39}]}}}):
        with pytest.raises(GuardError, match="38 digits"):
            client.put_item(TableName=TABLE, Item=_wire("1", n=value))
    with pytest.raises(GuardError, match="38 digits"):
        _batch_write(client, [_put(_wire("1", n={"N": "9" * 39}))])
    with pytest.raises(GuardError, match="38 digits"):
        client.put_item(
            TableName=TABLE,
            Item=_wire("1"),
            ConditionExpression="n = :n",
            ExpressionAttributeValues={":n": {"N": "9" * 39}},
        )


def test_nesting_goes_32_deep(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item=_wire("1", deep=_nested(32)))
    with pytest.raises(GuardError, match="deeper than 32"):
        client.put_item(TableName=TABLE, Item=_wire("1", deep=_nested(33)))


def test_a_query_of_the_base_table_is_consistent(client: DynamoDBClient, guard: FaultyGuard) -> None:
    _query(client, ConsistentRead=True)
    for parameters in ({}, {"ConsistentRead": False}):
        with pytest.raises(GuardError, match="ConsistentRead"):
            _query(client, **parameters)


def test_what_must_be_consistent_is_the_caller_s_to_say(client: DynamoDBClient) -> None:
    FaultyGuard.attach(client, demand_consistent=lambda operation, params: operation in ("GetItem", "BatchGetItem"))
    _query(client)
    client.get_item(TableName=TABLE, Key=_wire("1"), ConsistentRead=True)
    with pytest.raises(GuardError, match="GetItem"):
        client.get_item(TableName=TABLE, Key=_wire("1"))
    with pytest.raises(GuardError, match="BatchGetItem"):
        _batch_get(client, [_wire("1")], consistent=False)


def test_a_query_has_no_empty_key_and_no_range_the_wrong_way_round(client: DynamoDBClient, guard: FaultyGuard) -> None:
    with pytest.raises(GuardError, match="empty text"):
        _query(client, low="", ConsistentRead=True)
    with pytest.raises(GuardError, match="wrong way round"):
        _query(client, low="b", high="a", ConsistentRead=True)


def test_a_filter_is_refused_for_it_hides_what_was_read(client: DynamoDBClient, guard: FaultyGuard) -> None:
    with pytest.raises(GuardError, match="FilterExpression"):
        _query(client, ConsistentRead=True, FilterExpression="attribute_exists(pk)")
    with pytest.raises(GuardError, match="Select"):
        _query(client, ConsistentRead=True, Select="COUNT")
    with pytest.raises(GuardError, match="ProjectionExpression"):
        client.batch_get_item(RequestItems={TABLE: {"Keys": [_wire("1")], "ProjectionExpression": "pk"}})


# Sizes and units


@pytest.mark.parametrize(
    "value",
    [
        "",
        "text",
        "ä🌍",
        b"",
        b"\x00\xff",
        0,
        1,
        9,
        10,
        99,
        100,
        101,
        12_300,
        -1,
        -99,
        -100,
        2**63 - 1,
        -(2**63),
        10**18,
    ],
    ids=repr,
)
def test_two_counts_of_a_size_agree(value: AttributeValue) -> None:
    kind = "S" if isinstance(value, str) else "B" if isinstance(value, bytes) else "N"
    wire = _wire("1", ä={kind: str(value) if kind == "N" else value})
    assert wire_item_bytes(wire) == item_size_bytes({"pk": "P", "sk": "1", "ä": value})


@pytest.mark.parametrize(
    ("value", "size_bytes"),
    [
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}, {"N": "1"}]}, 3 + (1 + 2) + (1 + 2)),
        ({"M": {"ab": {"S": "c"}}}, 3 + (1 + 2 + 1)),
        ({"SS": ["a", "bc"]}, 3),
        ({"NS": ["1", "100", "-12"]}, 2 + 2 + 3),
        ({"BS": [b"abc"]}, 3),
        ({"N": "0.5"}, 2),
    ],
)
def test_sizes_of_the_other_types(value: dict[str, Any], size_bytes: int) -> None:
    assert wire_item_bytes({"v": value}) == 1 + size_bytes


def test_digits_and_depth() -> None:
    assert [digits(number) for number in ("0", "10", "1.50", "-0.012", "1e5", "1" + "0" * 50)] == [0, 1, 2, 2, 1, 1]
    assert [depth(value) for value in ({"S": "x"}, {"L": []}, _nested(3))] == [0, 1, 3]


def test_units_round_up_and_nothing_costs_one() -> None:
    assert [read_units(size, consistent=True) for size in (0, 1, 4_096, 4_097)] == [1, 1, 1, 2]
    assert [read_units(size, consistent=False) for size in (0, 4_097)] == [0.5, 1.0]
    sizes = [(None, None), (None, 1_024), (None, 1_025), (1_025, None), (3_000, 10), (10, 3_000)]
    assert [write_units(_sized(old), _sized(new)) for old, new in sizes] == [1, 1, 2, 2, 3, 3]


def test_units_of_an_index() -> None:
    outside = _wire("1", a={"S": "x"})
    here = {**outside, "g1pk": {"S": "o"}, "g1sk": {"S": "1"}}
    there, rewritten = {**here, "g1sk": {"S": "2"}}, {**here, "a": {"B": bytes(2_000)}}
    half = {**outside, "g1pk": {"S": "o"}}
    assert index_write_units(None, outside, ACTIVITY) == 0
    assert index_write_units(outside, half, ACTIVITY) == 0
    assert index_write_units(None, here, ACTIVITY) == 1
    assert index_write_units(here, here, ACTIVITY) == 0
    assert index_write_units(here, rewritten, ACTIVITY) == 2
    assert index_write_units(here, there, ACTIVITY) == 1 + 1
    assert index_write_units(rewritten, there, ACTIVITY) == 2 + 1
    assert index_write_units(rewritten, outside, ACTIVITY) == 2
    assert index_write_units(here, None, ACTIVITY) == 1


# The meter


def test_a_write_costs_the_larger_of_old_and_new(client: DynamoDBClient, guard: FaultyGuard) -> None:
    for size, units in ((1_024, 1), (1_025, 2), (3_000, 3), (50, 3), (50, 1)):
        with guard.measure() as spent:
            client.put_item(TableName=TABLE, Item=_wire_of(size))
        assert spent == Meter(_count(PutItem=1), write_units=units)


def test_a_refused_write_costs_too_but_not_on_an_index(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item=_wire_of(2_500))
    for item in (_wire_of(100), {**_wire_of(100), "g1pk": {"S": "o"}, "g1sk": {"S": "1"}}):
        with guard.measure() as spent, pytest.raises(ClientError):
            client.put_item(TableName=TABLE, Item=item, ConditionExpression="attribute_not_exists(pk)")
        assert spent == Meter(_count(PutItem=1), write_units=3)


def test_a_request_refused_for_another_reason_costs_nothing(client: DynamoDBClient, guard: FaultyGuard) -> None:
    with guard.measure() as spent, pytest.raises(ClientError):
        client.put_item(TableName=TABLE, Item=_wire("1"), ConditionExpression="not an expression")
    assert spent == Meter(_count(PutItem=1))


def test_deletes_cost_what_stood_there(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item={**_wire_of(2_500), "g1pk": {"S": "o"}, "g1sk": {"S": "1"}})
    with guard.measure() as spent:
        client.delete_item(TableName=TABLE, Key=_wire("1"))
        client.delete_item(TableName=TABLE, Key=_wire("1"))
    assert spent == Meter(_count(DeleteItem=2), write_units=3 + 1, index_write_units=3)


def test_a_batch_write_costs_the_sum_of_its_items(client: DynamoDBClient, guard: FaultyGuard) -> None:
    indexed = {"g1pk": {"S": "o"}, "g1sk": {"S": "1"}, "g2pk": {"S": "d"}, "g2sk": {"S": "1"}}
    with guard.measure() as spent:
        _batch_write(client, [_put(_wire_of(1_500, "1")), _put(_wire("2", **indexed)), _delete("3")])
    assert spent == Meter(_count(BatchWriteItem=1), write_units=2 + 1 + 1, index_write_units=2)
    with guard.measure() as spent:
        _batch_write(client, [_delete("1"), _delete("2")])
    assert spent == Meter(_count(BatchWriteItem=1), write_units=2 + 1, index_write_units=2)


def test_gets_are_rounded_one_by_one_and_a_query_as_a_whole(client: DynamoDBClient, guard: FaultyGuard) -> None:
    for number in range(5):
        client.put_item(TableName=TABLE, Item=_wire_of(1_000, str(number)))
    keys = [_wire(str(number)) for number in range(6)]
    with guard.measure() as spent:
        client.get_item(TableName=TABLE, Key=keys[0], ConsistentRead=True)
        client.get_item(TableName=TABLE, Key=keys[5])
    assert spent == Meter(_count(GetItem=2), read_units=1 + 0.5)
    with guard.measure() as spent:
        _batch_get(client, keys)
    assert spent == Meter(_count(BatchGetItem=1), read_units=6)
    with guard.measure() as spent:
        _query(client, ConsistentRead=True)
    assert spent == Meter(_count(Query=1), read_units=2)
    with guard.measure() as spent:
        _query(client, ConsistentRead=True, Limit=4)
    assert spent == Meter(_count(Query=1), read_units=1)


def test_a_query_of_an_index_costs_half(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item={**_wire_of(5_000), "g1pk": {"S": "o"}, "g1sk": {"S": "1"}})
    with guard.measure() as spent:
        client.query(
            TableName=TABLE,
            IndexName="activity",
            KeyConditionExpression="g1pk = :pk",
            ExpressionAttributeValues={":pk": {"S": "o"}},
        )
    assert spent == Meter(_count(Query=1), read_units=1.0)


def test_meters_nest_and_the_guard_s_own_counts_on(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item=_wire("1"))
    with guard.measure() as outer:
        client.put_item(TableName=TABLE, Item=_wire("2"))
        with guard.measure() as inner:
            client.put_item(TableName=TABLE, Item=_wire("3"))
    client.put_item(TableName=TABLE, Item=_wire("4"))
    assert [meter.write_units for meter in (guard.meter, outer, inner)] == [4, 2, 1]


# Faults


def test_before_has_no_effect_and_after_has_it(client: DynamoDBClient, guard: FaultyGuard) -> None:
    guard.fail(at=1, when="before")
    with pytest.raises(ConnectionClosedError):
        client.put_item(TableName=TABLE, Item=_wire("1"))
    assert _sort_keys(client) == []
    assert guard.meter.write_units == 0
    guard.fail(at=1, when="after")
    with pytest.raises(ConnectionClosedError):
        client.put_item(TableName=TABLE, Item=_wire("1"))
    assert _sort_keys(client) == ["1"]
    assert guard.meter.write_units == 1
    assert guard.faults_left == 0


def test_the_request_of_that_number_fails_and_no_other(client: DynamoDBClient, guard: FaultyGuard) -> None:
    client.put_item(TableName=TABLE, Item=_wire("0"))
    guard.fail(at=2, when="before")
    guard.fail(at=4, when="before")
    done: list[bool] = []
    for number in range(1, 6):
        try:
            client.put_item(TableName=TABLE, Item=_wire(str(number)))
            done.append(True)
        except ConnectionClosedError:
            done.append(False)
    assert done == [True, False, True, False, True]
    assert _sort_keys(client) == ["0", "1", "3", "5"]


def test_a_fault_is_any_error(client: DynamoDBClient, guard: FaultyGuard) -> None:
    guard.fail(at=1, when="before", error=ClientError({"Error": {"Code": "ThrottlingException"}}, "Query"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        _query(client, ConsistentRead=True)


def test_several_clients_share_one_count(client: DynamoDBClient) -> None:
    others = Clients(REGION, max_attempts=1)
    guard = FaultyGuard.attach(client, others.s3, others.sqs)
    guard.fail(at=3, when="before")
    client.put_item(TableName=TABLE, Item=_wire("1"))
    others.s3.list_buckets()
    with pytest.raises(ConnectionClosedError):
        others.sqs.list_queues()
    assert guard.meter.requests == {"PutItem": 1, "ListBuckets": 1, "ListQueues": 1}


def test_the_sdk_s_retry_is_a_request_of_its_own(client: DynamoDBClient) -> None:
    """With more than one attempt a fault is repeated by the SDK and seen in the count only."""
    patient = Clients(REGION, max_attempts=2).dynamodb
    guard = FaultyGuard.attach(patient)
    guard.fail(at=1, when="after")
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        patient.put_item(TableName=TABLE, Item=_wire("1"), ConditionExpression="attribute_not_exists(pk)")
    assert guard.meter.requests == {"PutItem": 2}
    assert _sort_keys(client) == ["1"]


def _wire(sk: str, **attributes: Any) -> dict[str, Any]:
    return {"pk": {"S": "P"}, "sk": {"S": sk}, **attributes}


def _wire_of(size_bytes: int, sk: str = "1") -> dict[str, Any]:
    rest = wire_item_bytes(_wire(sk, body={"B": b""}))
    return _wire(sk, body={"B": bytes(size_bytes - rest)})


def _sized(size_bytes: int | None) -> dict[str, Any] | None:
    return None if size_bytes is None else {"b": {"B": bytes(size_bytes - 1)}}


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"S": "core"}
    for level in range(levels):
        value = {"L": [value]} if level % 2 else {"M": {"in": value}}
    return value


def _put(item: dict[str, Any]) -> dict[str, Any]:
    return {"PutRequest": {"Item": item}}


def _delete(sk: str) -> dict[str, Any]:
    return {"DeleteRequest": {"Key": _wire(sk)}}


def _batch_write(client: DynamoDBClient, requests: list[dict[str, Any]]) -> None:
    client.batch_write_item(RequestItems={TABLE: requests})  # type: ignore[dict-item]


def _batch_get(client: DynamoDBClient, keys: list[dict[str, Any]], *, consistent: bool = True) -> None:
    client.batch_get_item(RequestItems={TABLE: {"Keys": keys, "ConsistentRead": consistent}})


def _query(client: DynamoDBClient, low: str = "0", high: str = "~", **parameters: Any) -> list[dict[str, Any]]:
    answer = client.query(
        TableName=TABLE,
        KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
        ExpressionAttributeValues={":pk": {"S": "P"}, ":low": {"S": low}, ":high": {"S": high}},
        **parameters,
    )
    return list(answer["Items"])


def _sort_keys(client: DynamoDBClient) -> list[str]:
    return [item["sk"]["S"] for item in _query(client, ConsistentRead=True)]


def _count(**requests: int) -> Any:
    from collections import Counter

    return Counter(requests)


# moto, made quick for the tests: tests.support.quick_moto


@pytest.mark.parametrize("index", [None, "activity"])
def test_a_query_of_quick_moto_has_the_answer_of_moto(
    client: DynamoDBClient, monkeypatch: pytest.MonkeyPatch, index: str | None
) -> None:
    for number in range(60):
        keys = {"pk": f"p{number % 3}", "sk": f"s{number:02d}"}
        keys |= {"g1pk": f"p{number % 2}", "g1sk": f"s{number % 7}"} if number % 5 else {}
        client.put_item(TableName=TABLE, Item={name: {"S": value} for name, value in keys.items()})
    prefix = "" if index is None else "g1"
    names, values = (
        {"#p": f"{prefix}pk", "#s": f"{prefix}sk"},
        {":p": {"S": "p1"}, ":a": {"S": "s1"}, ":b": {"S": "s4"}},
    )

    def answers() -> list[Any]:
        pages = list[Any]()
        for condition in ("#p = :p", "#p = :p AND #s BETWEEN :a AND :b", "#p = :p AND #s < :b"):
            used = {name: value for name, value in values.items() if name in condition}
            asked: dict[str, Any] = {"KeyConditionExpression": condition, "ExpressionAttributeValues": used}
            asked["ExpressionAttributeNames"] = {name: value for name, value in names.items() if name in condition}
            asked |= {"IndexName": index} if index else {}
            for forward in (True, False):
                start: dict[str, Any] = {}
                while start is not None:
                    page: Any = client.query(TableName=TABLE, Limit=4, ScanIndexForward=forward, **asked, **start)
                    pages.append((page["Items"], page["Count"]))
                    start = {"ExclusiveStartKey": page["LastEvaluatedKey"]} if "LastEvaluatedKey" in page else None
        return pages

    quick = answers()
    monkeypatch.setattr(Table, "query", vars(Table)["query"].__wrapped__)
    assert quick == answers() and len(quick) > 8


def test_values_of_quick_moto_compare_and_measure_as_those_of_moto() -> None:
    plain = [{"S": ""}, {"S": "\u00e4\u4e2d"}, {"B": "eA=="}, {"B": b"\xff"}, {"N": "1"}, {"N": "1.0"}, {"BOOL": True}]
    values = [*plain, {"NULL": True}, {"SS": ["a", "b"]}, {"SS": ["b", "a"]}, {"L": plain}, {"M": {"a": {"S": "b"}}}]
    kind: Any = dynamo_type.DynamoType
    cast_value = kind.cast_value.fget
    for value in map(kind, values):
        assert value.cast_value == cast_value.__wrapped__(value)
        assert value.size() == kind.size.__wrapped__(value)
        assert copy.deepcopy(value) == value
        for other in map(kind, values):
            assert (value == other) is kind.__eq__.__wrapped__(value, other)


@pytest.mark.usefixtures("client")
def test_an_address_is_answered_by_quick_moto_as_by_moto(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that no service has."""
    hosts = ("dynamodb", "sqs", "sts", "s3", "bucket.s3", "s3-control", "lambda", "nothing")
    addresses = [
        f"https://{host}.{REGION}.amazonaws.com/{path}" for host in hosts for path in ("", "1/q", "b/c%20d?e=f")
    ]

    def answers() -> list[Any]:
        requests = (AWSPreparedRequest("GET", address, {}, None, False) for address in addresses)
        answers = map(BotocoreStubber().process_request, requests)
        return [(answer[0], sorted(answer[1])) if answer else None for answer in answers]

    quick = answers()
    monkeypatch.setattr(BotocoreStubber, "process_request", vars(BotocoreStubber)["process_request"].__wrapped__)
    assert quick == answers() and len(set(map(str, quick))) > 2
