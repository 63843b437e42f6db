"""A session whose compression goes off is counted: as a metric by the worker in Lambda, and nowhere else on stdout."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functions.events import Context, load, read_event
from tests.support.jobs import poller
from tests.support.talks import turn
from tests.support.templates import template
from tests.support.triggers import POLICY, asks, script
from turnlog import Turnlog
from turnlog.core.errors import (
    ConflictError,
    CorruptError,
    HeadMismatchError,
    NewerSchemaError,
    SessionExistsError,
    SummariserConfigError,
    UnavailableError,
)
from turnlog.core.identity import Owner
from turnlog.http.lambda_workers import make_worker
from turnlog.http.logs import METRICS, NAMESPACE, EmfSignals, signal_of
from turnlog.log.keys import SessionKeys
from turnlog.ports import Delivery
from turnlog.server.lambda_calls import sqs_event
from turnlog.summaries.trigger import MAX_FAILURES


class Counted:
    """`Signals` that a test reads."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def count(self, name: str, value: int = 1) -> None:
        self.names.append(name)


def counting(harness: Any) -> list[str]:
    counted = Counted()
    harness.app.signals = counted
    return counted.names


def test_three_failures_that_nothing_mends_are_one_signal(harness: Any) -> None:
    names = counting(harness)
    script(harness, *[SummariserConfigError("no such model")] * (MAX_FAILURES + 2))
    session = harness.log().sessions.create("s", policy=POLICY)
    for number in range(1, 16):
        session.append(*turn(number))
        poller(harness).run_once()
    assert names == ["compression_off"]
    for _ in range(2):
        session.compress(mode="async")
        poller(harness).run_once()
    assert names == ["compression_off"], "it is off already"


def test_two_useless_attempts_are_one_signal_each_time_it_goes_off(harness: Any) -> None:
    names = counting(harness)
    script(harness, *["much more than was ever said " * 400] * 9)
    session = harness.log().sessions.create("s", policy=POLICY)
    seen = list[int]()
    for number in range(1, 26):
        session.append(*turn(number, words=1))
        poller(harness).run_once()
        seen.append(len(names))
    assert seen[12] == 1
    assert seen[-1] == 2, "after its rest it is tried again"


def test_an_outage_is_no_signal(harness: Any) -> None:
    names = counting(harness)
    script(harness, *[UnavailableError("down")] * 9)
    session = harness.log().sessions.create("s", policy=POLICY)
    asks(session, 12)
    while poller(harness).run_once():
        pass
    assert names == []


def emitted(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if '"_aws"' in line]


def test_a_metric_is_what_the_alarm_asks_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "turnlog-dev")
    EmfSignals().count("compression_off")
    (line,) = emitted(capsys.readouterr().out)
    (described,) = line["_aws"]["CloudWatchMetrics"]
    resources = template().document["Resources"]
    alarm = resources["CompressionOffAlarm"]["Properties"]
    assert described["Namespace"] == NAMESPACE == alarm["Namespace"]
    assert [metric["Name"] for metric in described["Metrics"]] == [METRICS["compression_off"]] == [alarm["MetricName"]]
    assert described["Dimensions"] == [[dimension["Name"] for dimension in alarm["Dimensions"]]]
    assert [dimension["Value"] for dimension in alarm["Dimensions"]] == [{"Ref": "AWS::StackName"}]
    worker = resources["CompressWorker"]["Properties"]["Environment"]["Variables"]
    assert worker["POWERTOOLS_SERVICE_NAME"] == {"Ref": "AWS::StackName"}
    assert line["service"] == "turnlog-dev"
    assert line[METRICS["compression_off"]] == [1.0]
    assert set(line) == {"_aws", "service", METRICS["compression_off"]}, "no ids, no contents"


def test_the_worker_emits_it_in_lambda_and_a_local_service_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{tmp_path}/turnlog.db"
    monkeypatch.setenv("TURNLOG_ENGINE", address)
    monkeypatch.setenv("TURNLOG_TOKEN_COUNTER", "estimate")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "turnlog-dev")
    with Turnlog.open(address, tenant="acme", user="ada", worker=False) as log:
        for is_lambda in (True, False):
            session = log.sessions.create(f"lambda-{is_lambda}")
            for number in range(1, 6):
                session.append(*turn(number))
            for _ in range(MAX_FAILURES):
                session.compress(mode="async", keep_loops=1)
            engine = log.backend.app.engine  # type: ignore[attr-defined]
            key = SessionKeys(Owner.of("acme", "ada"), session.id).commit(6)
            commit = engine.items.get_many([key])[key]
            engine.items.put({**commit, "b": commit["b"][:-3]})
            if is_lambda:
                deliveries = [Delivery(item.job_id, item.body, item.receipt, 1) for item in engine.queue.receive()]
                answer = load("workers.compress.handler")(sqs_event(deliveries, now_ms=0), Context90())
                assert answer == {"batchItemFailures": []}
            else:
                log.run_jobs()
            result = emitted(capsys.readouterr().out)
            names = [name for item in result for name in METRICS.values() if name in item]
            expected = ["CorruptItem"] * (MAX_FAILURES - 1) + ["CompressionOff", "CorruptItem"]
            assert names == (expected if is_lambda else [])
            assert {job.status for job in log.jobs() if job.session_id == session.id} == {"failed"}


class Context90(Context):
    def get_remaining_time_in_millis(self) -> int:
        return 90_000


def test_the_api_counts_what_an_operator_is_to_know_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{tmp_path}/turnlog.db"
    monkeypatch.setenv("TURNLOG_ENGINE", address)
    monkeypatch.setenv("TURNLOG_TOKEN_COUNTER", "estimate")
    monkeypatch.setenv("TURNLOG_IDENTITY", "iam")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "turnlog-dev")
    with Turnlog.open(address, tenant="111122223333", user="agent-backend") as log:
        log.sessions.create("support-42").append({"role": "user", "content": "SECRET"})
        read = load("api.messages.handler")
        assert read(read_event("read_messages"), Context())["statusCode"] == 200
        assert emitted(capsys.readouterr().out) == [], "all is well"
        engine = log.backend.app.engine  # type: ignore[attr-defined]
        key = SessionKeys(Owner.of("111122223333", "agent-backend"), "support-42").commit(2)
        commit = engine.items.get_many([key])[key]
        engine.items.put({**commit, "b": commit["b"][:-3]})
        assert read(read_event("read_messages"), Context())["statusCode"] == 500
        (line,) = emitted(capsys.readouterr().out)
        assert line["CorruptItem"] == [1.0] and set(line) == {"_aws", "service", "CorruptItem"}


def test_what_is_left_a_day_after_an_erasure_is_told(harness: Any) -> None:
    counted = Counted()
    session = harness.log().sessions.create("s")
    harness.app.signals = counted
    session.erase()
    keys = SessionKeys(Owner.of("acme", "ada"), "s")
    for wait in (0, 16 * 60):
        harness.clock.advance(wait)
        harness.log().run_jobs()
    harness.app.engine.blobs.put(keys.blob_prefix + "payload/late", b"written by who knows whom")
    for names in ([], ["erasure_overdue"]):
        assert counted.names == names
        harness.clock.advance(25 * 3600)
        harness.app.retain_sessions()
        harness.log().run_jobs()
    harness.app.engine.blobs.erase(keys.blob_prefix + "payload/late")
    harness.clock.advance(25 * 3600)
    harness.app.retain_sessions()
    harness.log().run_jobs()
    assert harness.app.engine.items.get_many([keys.commit(1)]) == {}, "the id is free"


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_job_that_meets_an_item_of_a_later_version_is_a_signal(harness: Any) -> None:
    names, engine = counting(harness), harness.app.engine
    session, key = harness.log().sessions.create("s"), SessionKeys(Owner.of("acme", "ada"), "s").commit(2)
    for number in range(1, 6):
        session.append(*turn(number))
    job = session.compress(mode="async", keep_loops=1)
    engine.items.put({**engine.items.get_many([key])[key], "v": 99})
    deliveries = [Delivery(item.job_id, item.body, item.receipt, 1) for item in engine.queue.receive()]
    make_worker({"compress"}, app=harness.app)(sqs_event(deliveries, now_ms=0), None)
    assert harness.log().job(job.job_id).error.code == "newer_schema"
    assert names == ["corrupt_item"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (CorruptError("x", item="C#1"), "corrupt_item"),
        (NewerSchemaError("x", item="C#1"), "corrupt_item"),
        (ConflictError("other writers won every slot"), "conflicts_exhausted"),
        (HeadMismatchError("x"), None),
        (SessionExistsError("x"), None),
        (UnavailableError("x"), None),
    ],
)
def test_what_an_error_is_to_an_operator(error: Any, name: str | None) -> None:
    assert signal_of(error) == name
