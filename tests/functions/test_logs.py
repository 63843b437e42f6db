"""What a function logs, and the correlation id: from a call to its answer, its jobs, their logs and what they start."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.functions.events import Context, read_event
from tests.support.jobs import poller
from tests.support.talks import turn
from tests.support.triggers import POLICY
from turnlog import correlated
from turnlog.app import Application, make_application
from turnlog.core.errors import CorruptError, InvalidInputError, describe_error
from turnlog.core.identity import correlation_id, correlation_of, is_correlation_id
from turnlog.http.lambda_api import make_handler
from turnlog.http.lambda_workers import make_retention, make_worker
from turnlog.http.logs import EmfSignals, HandlerError, log_calls, powertools_logger
from turnlog.jobs.models import JobMessage
from turnlog.jobs.worker import RunJob
from turnlog.ports import JOB_KINDS, Delivery
from turnlog.routing import ROUTES
from turnlog.server.lambda_calls import sqs_event
from turnlog.settings import Settings

CANARY = "canary-4711"


@dataclass
class Functions:
    """The functions of one stack, as cold starts make them, and what they have written on stdout."""

    app: Application
    capsys: pytest.CaptureFixture[str]
    api: Callable[..., dict[str, Any]] = field(default_factory=lambda: make_handler(ROUTES))
    worker: Callable[..., dict[str, Any]] = field(default_factory=lambda: make_worker(JOB_KINDS))

    def call(self, name: str, **headers: str) -> dict[str, Any]:
        event = read_event(name)
        event["headers"] |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.api(event, Context())

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]

    def work(self) -> list[str]:
        """Runs what is in the queue; the bodies of its messages."""
        assert self.app.engine.queue is not None
        deliveries = self.app.engine.queue.receive()
        failed = self.worker(sqs_event(deliveries, now_ms=0), Context())["batchItemFailures"]
        assert failed == []
        for delivery in deliveries:
            self.app.engine.queue.acknowledge(delivery.receipt)
        return [delivery.body for delivery in deliveries]


@pytest.fixture
def functions(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Functions]:
    engine = f"sqlite:///{tmp_path}/turnlog.db"
    monkeypatch.setenv("TURNLOG_ENGINE", engine)
    monkeypatch.setenv("TURNLOG_TOKEN_COUNTER", "estimate")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "turnlog-prod")
    app = make_application(Settings(engine=engine))
    yield Functions(app, capsys)
    app.close()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, "request id"),
        ("order/2026:17.a+b=c@d-e_f", "given"),
        ("x" * 128, "given"),
        ("x" * 129, "request id"),
        ("", "request id"),
        ("two words", "request id"),
        ("line\nbreak", "request id"),
        ("id\n", "request id"),
        ('{"json":1}', "request id"),
        ("ü", "request id"),
    ],
)
def test_every_answer_and_line_has_the_correlation_id(functions: Functions, given: str | None, shown: str) -> None:
    headers = {} if given is None else {"x_correlation_id": given}
    for name, status in (("create_session", 201), ("get_agent", 404)):
        request_id = read_event(name)["requestContext"]["requestId"]
        expected = given if shown == "given" else request_id
        answer = functions.call(name, **headers)
        assert (answer["statusCode"], answer["headers"]["X-Correlation-Id"]) == (status, expected)
        (line,) = functions.lines()
        facts = {"correlation_id": expected, "route": name, "status": status, "request_id": request_id}
        assert (
            line.items() >= (facts | {"level": "INFO", "service": "turnlog-prod", "function_name": "turnlog"}).items()
        )
        assert line["function_request_id"] == Context().aws_request_id
    assert correlation_id() is None, "it ends with the call"


def test_a_correlation_id_goes_from_the_api_through_the_queue_and_back(functions: Functions) -> None:
    for name in ("create_session", "append_messages"):
        functions.call(name, x_correlation_id="turn-1")
    answer = functions.call("compress_session", x_correlation_id="order-17")
    job = json.loads(answer["body"])
    assert (answer["statusCode"], job["correlation_id"]) == (202, "order-17")
    functions.lines()
    bodies = functions.work()
    assert {JobMessage.model_validate_json(body).job_id: correlation_of(body) for body in bodies}[
        job["job_id"]
    ] == "order-17"
    (line,) = (line for line in functions.lines() if line.get("job_id") == job["job_id"])
    assert line.items() >= {"correlation_id": "order-17", "kind": "compress", "status": "done"}.items()
    event = read_event("get_job")
    event["rawPath"] = event["rawPath"].replace(event["pathParameters"]["job_id"], job["job_id"])
    event["pathParameters"]["job_id"] = job["job_id"]
    assert json.loads(functions.api(event, Context())["body"])["correlation_id"] == "order-17"


def test_a_job_is_worked_on_under_its_correlation_id(harness: Any) -> None:
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "hi"})
    with correlated("order-17"):
        job = session.erase()
    app, seen = harness.app, list[str | None]()

    def erase(*_: object) -> dict[str, Any]:
        seen.append(correlation_id())
        return {}

    app.run_job = RunJob(app.log, {**app.work, "erase": lambda: erase}, app.engine.queue_of)
    with correlated("somebody-else"):
        poller(harness).run_once()
        assert correlation_id() == "somebody-else"
    assert seen == ["order-17"] and harness.log().job(job.job_id).status == "done"


def test_a_job_that_an_append_triggers_has_the_correlation_id_of_the_append(harness: Any) -> None:
    session = harness.log().sessions.create("s", policy=POLICY)
    for number in range(1, 16):
        with correlated(f"turn-{number}"):
            session.append(*turn(number))
    deliveries = harness.app.engine.queue.receive()
    assert deliveries
    for delivery in deliveries:
        job = harness.log().job(JobMessage.model_validate_json(delivery.body).job_id)
        assert (job.correlation_id or "").startswith("turn-") and job.correlation_id == correlation_of(delivery.body)


@pytest.mark.parametrize(
    "body", ["", "[", "[]", "7", '{"correlation_id": 7}', '{"correlation_id": "a b"}', "[" * 90_000]
)
def test_a_message_that_is_no_job_has_no_correlation_id(body: str) -> None:
    assert correlation_of(body) is None


def test_without_a_correlation_id_a_job_has_none(harness: Any) -> None:
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "hi"})
    job = session.erase()
    assert job.correlation_id is None
    (delivery,) = harness.app.engine.queue.receive()
    assert "correlation_id" not in delivery.body


def broken(*_: object, **__: object) -> Any:
    try:
        raise KeyError(CANARY)
    except KeyError as error:
        raise RuntimeError(f"caused by {CANARY}") from error


def test_an_unexpected_error_is_logged_by_its_types_and_places(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.call("create_session")
    functions.lines()
    monkeypatch.setattr("turnlog.http.api.call", broken)
    answer = functions.call("append_messages")
    assert (answer["statusCode"], json.loads(answer["body"])["code"]) == (500, "internal")
    error, line = functions.lines()
    assert (error["level"], line["status"], line["code"]) == ("ERROR", 500, "internal")
    assert "RuntimeError at _answer api.py:" in error["message"] and "caused by KeyError at broken" in error["message"]
    assert CANARY not in json.dumps([error, line, answer])


def test_what_no_handler_answers_to_leaves_without_its_text(functions: Functions) -> None:
    with pytest.raises(HandlerError) as left:
        log_calls(broken)({}, Context())
    assert str(left.value) == "RuntimeError: the function's log says where"
    assert left.value.__cause__ is None and left.value.__context__ is None, "Lambda's runtime would tell of them"
    (line,) = functions.lines()
    assert line["level"] == "ERROR" and "caused by KeyError" in line["message"] and CANARY not in json.dumps(line)


def test_an_exception_of_a_library_is_logged_without_its_text(functions: Functions) -> None:
    def handler(*_: object) -> None:
        try:
            broken()
        except RuntimeError:
            logging.getLogger("turnlog.somewhere").exception("failed")

    log_calls(handler)({}, None)
    (line,) = functions.lines()
    assert line["exception_name"] == "RuntimeError" and "KeyError at broken" in line["exception"]
    assert CANARY not in json.dumps(line)


@pytest.mark.parametrize(
    ("make", "event"),
    [
        (lambda: make_handler(ROUTES), {"routeKey": 7, "requestContext": CANARY}),
        (lambda: make_worker(JOB_KINDS), {"Records": [{"body": CANARY}]}),
        (lambda: make_retention(), {"detail": CANARY}),
    ],
)
def test_an_event_of_nobody_tells_nothing(functions: Functions, make: Callable[[], Any], event: dict[str, Any]) -> None:
    try:
        dumps = json.dumps(make()(event, Context()))
    except HandlerError as error:
        dumps = str(error)
    assert CANARY not in dumps
    assert CANARY not in json.dumps(functions.lines())


@pytest.mark.parametrize("level", ["INFO", "WARN", "ERROR"])
def test_the_level_is_the_loggers_and_metrics_have_none(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Lambda's own filter stays at INFO, to which Powertools would keep: it would drop metrics, which are lines without a level."""
    before = logging.getLogger("turnlog").level
    monkeypatch.setenv("AWS_LAMBDA_LOG_LEVEL", "INFO")
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", level)
    powertools_logger.cache_clear()
    try:
        functions.call("create_session")
        monkeypatch.setattr("turnlog.http.api.call", broken)
        EmfSignals().count("corrupt_item")
        functions.call("append_messages")
        lines = functions.lines()
    finally:
        powertools_logger.cache_clear()
        logging.getLogger("turnlog").setLevel(before)
    assert [line["level"] for line in lines if "level" in line].count("INFO") == (2 if level == "INFO" else 0)
    assert [line["CorruptItem"] for line in lines if "_aws" in line] == [[1.0]]
    assert [line["level"] for line in lines if "level" in line].count("ERROR") == 1, "what went wrong is always told"


def test_poison_is_logged_by_its_message_id(functions: Functions) -> None:
    delivery = Delivery(job_id="message-1", receipt="r", body=f"[{CANARY}", receives=1)
    answer = functions.worker(sqs_event([delivery], now_ms=0), Context())
    assert answer == {"batchItemFailures": [{"itemIdentifier": "message-1"}]}
    lines = functions.lines()
    assert any("message-1" in line["message"] for line in lines) and CANARY not in json.dumps(lines)


def test_places_name_types_and_frames_of_the_whole_chain() -> None:
    try:
        try:
            broken()
        except RuntimeError:
            raise CorruptError(CANARY, item=CANARY)  # noqa: B904 - its context is what is tested
    except CorruptError as error:
        result = describe_error(error)
        error.__context__.__cause__.__context__ = error  # type: ignore[union-attr]
        assert len(describe_error(error).split("; caused by ")) == 5, "a loop ends"
    kinds = [part.split(" at ")[0] for part in result.split("; caused by ")]
    assert kinds == ["CorruptError", "RuntimeError", "KeyError"] and CANARY not in result
    assert "test_logs.py:" in result
    assert describe_error(ValueError("x")) == "ValueError at nowhere"


def test_of_a_deep_error_the_innermost_frames_are_named() -> None:
    def descend(levels: int) -> None:
        if levels:
            descend(levels - 1)
        broken()

    with pytest.raises(RuntimeError) as caught:
        descend(20)
    frames = describe_error(caught.value).partition("; caused by ")[0].split(" > ")
    assert len(frames) == 12 and frames[-1].startswith("broken ")


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "ü", "a\n", 7])
def test_a_bad_correlation_id_is_refused(bad: Any) -> None:
    assert not is_correlation_id(bad)
    with pytest.raises(InvalidInputError) as refused, correlated(bad):
        pass
    assert refused.value.error_code == "invalid_correlation_id"
