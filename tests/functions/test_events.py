"""Each event of `events/` is run by the function that it is for, as a cold start on an embedded engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functions.events import FOLDER, RUNS, Context, handler_of, load, read_event, run_events
from turnlog.jobs.models import JobMessage
from turnlog.ports import QUEUES
from turnlog.routing import BY_NAME, ROUTES


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The answers of one run of all events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNLOG_ENGINE", f"sqlite:///{tmp_path_factory.mktemp('events')}/turnlog.db")
        patch.setenv("TURNLOG_TOKEN_COUNTER", "estimate")
        yield run_events(lambda name, event: load(handler_of(name))(event, Context()))


def test_every_trigger_has_its_event_and_every_event_is_run() -> None:
    result = {path.stem for path in FOLDER.glob("*")} - {"env"}  # variables for `sam local`, no event
    assert result == {route.name for route in ROUTES} | {f"sqs_{kind}" for kind in QUEUES} | {"schedule_retention"}
    assert result == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_an_event_is_answered(answers: dict[str, Any], name: str) -> None:
    if name.startswith("schedule_"):
        assert not any(answers[name].values())
    elif name.startswith("sqs_"):
        assert answers[name] == {"batchItemFailures": []}
    else:
        assert answers[name]["statusCode"] == RUNS[name], answers[name]["body"]


def test_the_events_tell_one_story(answers: dict[str, Any]) -> None:
    body = {name: json.loads(answers[name]["body"]) for name in RUNS if RUNS[name]}
    assert [entry["session_id"] for entry in body["list_sessions"]["sessions"]] == ["support-42"]
    assert (body["append_messages"]["first"], body["append_messages"]["last"]) == (2, 6)
    assert len(body["read_messages"]["messages"]) == 5
    assert body["get_job"]["job_id"] == body["compress_session"]["job_id"]
    assert body["get_snapshot"]["name"] == "before-refund"
    assert body["get_summary"]["last"] == 5, "the open loop is not covered"


@pytest.mark.parametrize("name", [name for name in RUNS if RUNS[name]])
def test_an_event_is_the_one_of_its_route(name: str) -> None:
    event, route = read_event(name), BY_NAME[name]
    http = event["requestContext"]["http"]
    assert event["version"] == "2.0"
    assert event["routeKey"] == event["requestContext"]["routeKey"] == route.key
    path = route.path
    for key, value in event.get("pathParameters", {}).items():
        path = path.replace("{" + key + "}", value)
    assert event["rawPath"] == http["path"] == path
    assert http["method"] == route.method
    assert ("authorizer" in event["requestContext"]) == (route.resource != "health")
    assert ("idempotency-key" in event["headers"]) == route.writes
    assert ("body" in event) == (route.body is not None or route.free_body)


@pytest.mark.parametrize("kind", QUEUES)
def test_a_job_is_the_contract_s(kind: str) -> None:
    (record,) = read_event(f"sqs_{kind}")["Records"]
    message = JobMessage.model_validate_json(record["body"])
    assert message.kind == kind
    assert record["attributes"]["MessageGroupId"] == message.tenant
    assert record["md5OfBody"] == hashlib.md5(record["body"].encode(), usedforsecurity=False).hexdigest()
