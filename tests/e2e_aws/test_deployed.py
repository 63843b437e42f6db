"""The deployed stack from the outside, and what it refuses. `make e2e` builds it and runs this; elsewhere it is skipped."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from tests.e2e_aws.deployed import BUILD, KEPT, SAM, Deployed, deployed, server
from turnlog import Turnlog
from turnlog.core.errors import ForbiddenError, NotFoundError, UnavailableError
from turnlog.jobs.models import Job
from turnlog.routing import ROUTES

pytestmark = [pytest.mark.network]

MUST_RUN = os.environ.get("TURNLOG_TEST_E2E") == "1"
_PATIENCE_SECONDS = 120
_LOOPS = 12
_KEPT = 3
_STOPS = 20
_PLAN = bytes(range(256)) * 8


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    if not MUST_RUN:
        pytest.skip("it takes a build and minutes: make e2e")
    for needed in (BUILD / "template.yaml", SAM, server().executable):
        assert needed.is_file(), f"{needed} is missing: make e2e"
    with deployed(tmp_path_factory.mktemp("deploy")) as resource:
        yield resource


@pytest.fixture(scope="module")
def ada(stack: Deployed) -> Iterator[Turnlog]:
    with stack.principal("ada").open(stack.url) as log:
        yield log


def eventually(look: Callable[[], Any], *, is_so: Callable[[Any], bool]) -> Any:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not is_so(result := look()) and time.monotonic() < until:
        time.sleep(0.2)
    assert is_so(result), result
    return result


def done(log: Turnlog, job: object) -> Job:
    """The job, once a worker has done it."""
    started = cast("Job", job)
    result: Job = eventually(lambda: log.job(started.job_id), is_so=lambda item: item.status != "queued")
    assert result.status == "done", result
    return result


def versions(stack: Deployed, session_id: str) -> set[str]:
    """Names of a session's objects, those that are no longer current too."""
    value = stack.client("s3").list_object_versions(Bucket=stack.outputs["BucketName"]).get("Versions", [])
    return {item["Key"] for item in value if f"/{session_id}/" in item["Key"]}


def test_an_update_of_an_older_stack_keeps_its_data(stack: Deployed) -> None:
    """First of all tests: the others may empty the queues."""
    holding = {name: place for name, place in stack.before.items() if not name.endswith("Policy")}
    assert len(holding) == 10 and {name: stack.ids[name] for name in holding} == holding
    key = {"pk": {"S": KEPT}, "sk": {"S": KEPT}}
    assert stack.client("dynamodb").get_item(TableName=stack.outputs["TableName"], Key=key)["Item"] == key
    assert stack.client("s3").get_object(Bucket=stack.outputs["BucketName"], Key=KEPT)["Body"].read() == KEPT.encode()
    place = stack.outputs["EraseDeadLettersUrl"]
    (message,) = stack.client("sqs").receive_message(QueueUrl=place)["Messages"]
    assert message["Body"] == KEPT
    stack.client("sqs").delete_message(QueueUrl=place, ReceiptHandle=message["ReceiptHandle"])


def test_every_route_is_deployed_and_signed_as_the_template_says(stack: Deployed) -> None:
    pages = stack.client("apigatewayv2").get_routes(ApiId=stack.api_id)["Items"]
    assert {page["RouteKey"] for page in pages} == {route.key for route in ROUTES}
    is_open = {page["RouteKey"] for page in pages if page["AuthorizationType"] == "NONE"}
    assert is_open == {"GET /v1/health", "GET /v1/openapi.json"}


def test_a_conversation_through_api_queue_and_bucket_until_it_is_erased(stack: Deployed, ada: Turnlog) -> None:
    session = ada.sessions.create("trip", system="You plan trips.", policy="default")
    assert versions(stack, "trip") == set()
    for number in range(_LOOPS):
        asked = session.append({"role": "user", "content": f"Question {number}: which train to stop {number}?"})
        assert asked.loop == number + 1
        session.append({"role": "assistant", "content": f"Take train {100 + number}. " + "It has a dining car. " * 20})
    window = session.context()
    assert window.messages[-1]["role"] == "assistant"

    job = done(ada, session.compress(mode="async", keep_loops=_KEPT))
    assert job.kind == "compress"
    summary = session.summary()
    assert summary is not None
    assert summary.messages == 2 * (_LOOPS - 1 - _KEPT), "the last loop is open"
    assert session.context().tokens < window.tokens

    timetable = secrets.token_hex(40_000)  # packed it is too long for the table
    session.append({"role": "user", "content": timetable})
    before = versions(stack, "trip")
    assert before, "the message itself is an object"
    for _ in range(2):
        session.append(*({"role": "user", "content": secrets.token_hex(1_400)} for _ in range(_STOPS)))
    snapshot = cast("Any", session.create_snapshot("before Rome", kind="full"))
    assert session.snapshot("before Rome").snapshot_id == snapshot.snapshot_id
    assert versions(stack, "trip") > before

    session.documents.put("plan.bin", _PLAN)
    document = session.documents.get("plan.bin")
    assert document is not None
    assert document.data == _PLAN
    kept = [message.body["content"] for message in session.messages()]
    assert len(kept) == 2 * _LOOPS + 1 + 2 * _STOPS
    assert (kept[0], kept[2 * _LOOPS]) == ("Question 0: which train to stop 0?", timetable)

    erased = session.erase()
    with pytest.raises(NotFoundError):
        session.context()
    eventually(lambda: versions(stack, "trip"), is_so=lambda left: not left)
    assert ada.job(erased.job_id).status == "queued", "the receipt comes with the second pass, 15 minutes later"


def test_owners_do_not_see_each_other(stack: Deployed, ada: Turnlog) -> None:
    diary = ada.sessions.create("diary")
    diary.append({"role": "user", "content": "It is mine."})
    assert diary.info().user == "iam-user/ada", "a role of that name is another owner"
    with stack.principal("bert").open(stack.url) as bert:
        assert not bert.sessions.exists("diary")
        assert [item.session_id for item in bert.sessions.list()] == []
    assert ada.sessions.exists("diary")


def test_who_has_no_right_to_call_is_refused(stack: Deployed) -> None:
    with stack.principal("mallory", may_call=False).open(stack.url) as log, pytest.raises(ForbiddenError):
        log.sessions.create("mine")
    with Turnlog.open(stack.url, aws=False, deadline_seconds=20) as log:
        assert log.health().status == "ok"
        with pytest.raises(ForbiddenError):
            log.sessions.create("mine")


def test_a_role_without_one_statement_is_refused_by_the_table(stack: Deployed, ada: Turnlog) -> None:
    session = ada.sessions.create("rights")
    session.append({"role": "user", "content": "before"})
    with stack.without("AppendFunction", "Write"), pytest.raises(UnavailableError) as refused:
        session.append({"role": "user", "content": "during"})
    assert refused.value.error_code == "storage_denied"
    session.append({"role": "user", "content": "after"})
    assert [message.body["content"] for message in session.messages()] == ["before", "after"]


def over_plain_http(request: Any, **_: object) -> None:
    """The emulator believes a proxy before it, as it has no plain port beside."""
    request.headers["X-Forwarded-Proto"] = "http"


def test_what_did_not_come_over_tls_is_refused(stack: Deployed) -> None:
    """Also to who has the right: queues and bucket say so in policies of their own."""
    role = stack.credentials_of("SnapshotWorker")
    sqs, s3 = stack.client("sqs", role), stack.client("s3", role)
    calls: list[Callable[[], object]] = [
        partial(sqs.get_queue_attributes, QueueUrl=stack.outputs["SnapshotQueueUrl"], AttributeNames=["QueueArn"]),
        partial(s3.list_objects_v2, Bucket=stack.outputs["BucketName"]),
    ]
    for call in calls:
        call()
    for client in (sqs, s3):
        client.meta.events.register("before-send", over_plain_http)
    for call in calls:
        with pytest.raises(ClientError) as refused:
            call()
        assert refused.value.response["Error"]["Code"].startswith("AccessDenied")


def test_no_function_may_do_what_only_the_eraser_does(stack: Deployed) -> None:
    table, bucket = stack.outputs["TableName"], stack.outputs["BucketName"]
    key = {"pk": {"S": "nobody"}, "sk": {"S": "nothing"}}
    batch = {table: [{"DeleteRequest": {"Key": key}}]}
    functions = list(stack.template.handlers)
    assert len(functions) > 15
    for function in functions:
        role = stack.credentials_of(function)
        items, blobs = stack.client("dynamodb", role), stack.client("s3", role)
        refused: list[Callable[[], object]] = [
            partial(items.scan, TableName=table),
            partial(items.delete_item, TableName=table, Key=key),
        ]
        erasing: list[Callable[[], object]] = [
            partial(items.batch_write_item, RequestItems=batch),
            partial(blobs.delete_object, Bucket=bucket, Key="nothing", VersionId="null"),
            partial(blobs.delete_object, Bucket=bucket, Key="nothing"),
        ]
        if function == "EraseWorker":
            for call in erasing:
                call()
        else:
            refused += erasing
        for call in refused:
            with pytest.raises(ClientError) as error:
                call()
            assert error.value.response["Error"]["Code"].startswith("AccessDenied"), function
