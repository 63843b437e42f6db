"""The shipped contracts on emulators of AWS, and our meter against dynoxide's own figures.

    make emulators            # fetches them, runs this file

An emulator that is not installed, and that no variable names (TURNLOG_TEST_DYNOXIDE, TURNLOG_TEST_MINISTACK), is skipped.
The recorded figures are compared without one too.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator

import pytest
from moto import mock_aws

from tools.emulators import DYNOXIDE, MINISTACK, Emulator, running
from tools.record_operations import Replayed, Units, operations, recorded, replay
from turnlog.engines.aws_clients import Clients
from turnlog.engines.dynamodb import DynamoItemTable
from turnlog.engines.s3 import S3BlobStore
from turnlog.engines.sqs import SqsJobQueue
from turnlog.testing.aws import create_bucket, create_queue, create_table, real_item_limit
from turnlog.testing.contracts import Advance, BlobStoreContract, ItemTableContract, JobQueueContract
from turnlog.testing.dynamodb_rules import write_units

REGION = "eu-central-1"


def is_here(emulator: Emulator) -> bool:
    return emulator.is_installed or emulator.variable in os.environ


@pytest.mark.parametrize("emulator", [DYNOXIDE, MINISTACK], ids=lambda emulator: emulator.name)
def test_the_emulator_is_here(emulator: Emulator) -> None:
    """Skipped once for all its suites, which are then not collected."""
    if not is_here(emulator):
        pytest.skip(emulator.why_not)


def emulated(emulator: Emulator) -> Iterator[Clients]:
    """Clients of the emulator, with a table that all tests share: each keeps to its own partition."""
    if not is_here(emulator):
        pytest.skip(emulator.why_not)
    with pytest.MonkeyPatch.context() as patch, running(emulator) as url:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        clients = Clients(REGION, url)
        yield clients
        for service in ("dynamodb", "s3", "sqs"):
            clients.open(service, read_timeout_seconds=1).close()


@pytest.fixture(scope="module")
def dynoxide() -> Iterator[Clients]:
    yield from emulated(DYNOXIDE)


@pytest.fixture(scope="module")
def ministack() -> Iterator[Clients]:
    yield from emulated(MINISTACK)


@pytest.fixture(scope="module")
def dynoxide_table(dynoxide: Clients) -> DynamoItemTable:
    return new_table(dynoxide)


@pytest.fixture(scope="module")
def ministack_table(ministack: Clients) -> DynamoItemTable:
    return new_table(ministack)


@pytest.fixture(scope="module")
def ministack_bucket(ministack: Clients) -> str:
    name = f"turnlog-{secrets.token_hex(4)}"
    create_bucket(ministack.s3, name)
    return name


def new_table(clients: Clients) -> DynamoItemTable:
    name = f"turnlog-{secrets.token_hex(4)}"
    create_table(clients.dynamodb, name)
    return DynamoItemTable(clients.dynamodb, name)


@pytest.mark.network
class TestDynoxideItemTable(ItemTableContract):
    __test__ = is_here(DYNOXIDE)

    @pytest.fixture
    def table(self, dynoxide_table: DynamoItemTable) -> DynamoItemTable:
        return dynoxide_table


@pytest.mark.network
class TestMinistackItemTable(ItemTableContract):
    __test__ = is_here(MINISTACK)

    @pytest.fixture
    def table(self, ministack_table: DynamoItemTable) -> DynamoItemTable:
        return ministack_table


@pytest.mark.network
class TestMinistackBlobStore(BlobStoreContract):
    __test__ = is_here(MINISTACK)

    @pytest.fixture
    def blobs(self, ministack: Clients, ministack_bucket: str) -> S3BlobStore:
        return S3BlobStore(ministack.s3, ministack_bucket)


@pytest.mark.network
class TestMinistackJobQueue(JobQueueContract):
    __test__ = is_here(MINISTACK)

    @pytest.fixture
    def queue(self, ministack: Clients) -> SqsJobQueue:
        name = f"turnlog-{secrets.token_hex(4)}"
        url, _ = create_queue(
            ministack.sqs, name, visibility_seconds=self.visibility_seconds, max_receives=self.max_receives
        )
        return SqsJobQueue(ministack.sqs, url)

    @pytest.fixture
    def advance(self) -> Advance:
        return time.sleep


# Capacity: the meter, the recorded figures, and dynoxide itself, one operation at a time


def test_the_recorded_list_is_the_one_that_its_maker_makes() -> None:
    listed = [
        {name: value for name, value in operation.items() if name not in _OUTCOME}
        for operation in recorded()["operations"]
    ]
    assert listed == operations()
    kinds = {(item["do"], item.get("index"), item.get("eventual", False)) for item in listed}
    assert len(listed) > 300
    assert len(kinds) >= 8


def test_our_meter_says_what_dynoxide_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws(), real_item_limit():
        client = Clients(REGION, max_attempts=1).dynamodb
        create_table(client, "recorded")
        replayed = list(replay(operations(), client, "recorded"))
    assert differences(replayed, [item.metered for item in replayed]) == []


@pytest.mark.network
def test_our_meter_and_dynoxide_agree_and_the_record_is_true(dynoxide: Clients) -> None:
    create_table(dynoxide.dynamodb, "recorded")
    client = Clients(REGION, dynoxide.dynamodb.meta.endpoint_url, max_attempts=1).dynamodb
    replayed = list(replay(operations(), client, "recorded"))
    client.close()
    assert [item for item in replayed if not item.lost and item.metered != item.reported] == []
    assert differences(replayed, [item.reported for item in replayed]) == []


def test_a_put_that_lost_costs_the_larger_of_both_items() -> None:
    """By the developer guide; no service tells it."""
    small, large = ({"pk": {"S": "p"}, "sk": {"S": "s"}, "body": {"B": bytes(size)}} for size in (10, 3_000))
    assert write_units(large, small) == write_units(small, large) == write_units(None, large) == 3
    assert write_units(None, small) == 1


_OUTCOME = ("lost", "units")


def differences(replayed: list[Replayed], figures: list[Units | None]) -> list[tuple[object, ...]]:
    """Operations whose outcome or whose figures are not the recorded ones. Of a lost put no figure is recorded."""
    result = list[tuple[object, ...]]()
    for number, (item, units, line) in enumerate(zip(replayed, figures, recorded()["operations"], strict=True)):
        expected = tuple(line["units"]) if line["units"] is not None else None
        if item.lost is not line["lost"] or (not item.lost and units != expected):
            result.append((number, item.operation, units, expected))
    return result
