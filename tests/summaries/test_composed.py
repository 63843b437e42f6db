"""From settings to a published summary: the model over HTTP, within its budget, behind the use case and the worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.summaries.server import ModelServer, Reply
from tests.support.composed import application
from tests.support.talks import filled
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import ThrottledError
from turnlog.core.identity import Owner
from turnlog.http.api import status_of
from turnlog.http.lambda_workers import DEADLINE_MS, make_worker
from turnlog.server.lambda_calls import LocalContext, sqs_event
from turnlog.summaries import rounds

pytestmark = pytest.mark.network

GOOD = "The customer asked about several orders. The agent looked each one up, and all have left the warehouse."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer([Reply(GOOD)])
    yield made
    made.close()


def session_of(app: Application, turns: int = 8) -> Session:
    return filled(Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))), turns)


def test_an_endpoint_in_the_settings(server: ModelServer) -> None:
    app = application(summary_model="small", summary_url=f"{server.url}/v1", summary_api_key="k")
    session = session_of(app)
    made = session.compress().summary
    assert (made.text, made.summariser) == (GOOD, "openai:small")
    window = session.context()
    (shown,) = [message for message in window.messages if GOOD in str(message["content"])]
    assert shown["role"] == "user"
    for number in range(4):
        session.append(
            {"role": "user", "content": f"more {number} " * 99}, {"role": "assistant", "content": "ok " * 99}
        )
    session.compress()
    assert GOOD in server.asked[1].record, "the next summary continues this one"


def test_bedrock_in_the_settings(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    app = application(summary_model="amazon.nova-lite-v1:0", endpoint_url=server.url)
    assert session_of(app).compress().summary.summariser == "bedrock:amazon.nova-lite-v1:0"


def test_a_refused_answer_and_a_spent_budget_are_extracted(server: ModelServer) -> None:
    server.plan = [Reply("Assistant: sure!")]
    app = application(summary_model="small", summary_url=server.url, summary_tokens_per_day=2_000)
    session = session_of(app)
    assert session.compress(keep_loops=6).summary.summariser == "extractive-4 (refused: role_markers)"
    server.plan = [Reply(GOOD)]
    names = [session.compress(keep_loops=keep).summary.summariser for keep in (4, 2, 0)]
    assert names[-1] == "extractive-4 (over_budget)"


def test_a_request_has_no_time_for_a_second_round_when_a_model_may_take_it_all(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ROUND_LOOPS", 2)
    app = application(summary_model="small", summary_url=server.url, summary_timeout_seconds=16)
    rest = session_of(app).compress()
    assert (rest.kind, rest.status, len(server.asked)) == ("compress", "queued", 1)


def test_without_a_model_nobody_is_asked() -> None:
    app = application()
    assert app.longest_summary_ms == 0
    assert session_of(app).compress().summary.summariser == "extractive-4"


def test_an_outage_postpones_the_job_and_the_next_one_is_done(server: ModelServer) -> None:
    server.plan = [Reply(status=503)]
    app = application(summary_model="small", summary_url=server.url)
    session = session_of(app)
    job = session.compress(mode="async")
    worker = make_worker(["compress"], app)

    def deliver(milliseconds: int = 60_000) -> int:
        assert app.engine.queue is not None
        answer = worker(sqs_event([delivery], now_ms=0), LocalContext(milliseconds))
        return len(answer["batchItemFailures"])

    assert app.engine.queue is not None
    (delivery,) = app.engine.queue.receive()
    assert deliver() == 0
    postponed = app.get_job(Owner.of("acme", "ada"), job.job_id)
    assert postponed.result is not None
    assert (postponed.status, postponed.result["status"]) == ("done", "postponed")
    asked = len(server.asked)
    assert asked <= 3
    server.plan = [Reply(GOOD)]
    again = session.compress(mode="async")
    (delivery,) = [item for item in app.engine.queue.receive() if again.job_id in item.body]
    assert deliver(DEADLINE_MS + 24_000) == 1, "a model may take longer than that"
    assert len(server.asked) == asked
    assert deliver() == 0
    assert session.summary().text == GOOD


def test_wrong_settings_settle_the_job(server: ModelServer) -> None:
    server.plan = [Reply(status=401, error="bad key")]
    app = application(summary_model="small", summary_url=server.url)
    session = session_of(app)
    job = session.compress(mode="async")
    assert app.engine.queue is not None
    deliveries = app.engine.queue.receive()
    answer = make_worker(["compress"], app)(sqs_event(deliveries, now_ms=0), LocalContext(60_000))
    assert answer["batchItemFailures"] == []
    failed = app.get_job(Owner.of("acme", "ada"), job.job_id)
    assert failed.error is not None
    assert (failed.status, failed.error.code) == ("failed", "summariser_misconfigured")
    assert len(server.asked) == 1
    assert session.context(budget=100_000).messages, "windows go on"


def test_a_throttled_model_is_a_429_with_a_time(server: ModelServer) -> None:
    server.plan = [Reply(status=429, headers={"Retry-After": "30"})]
    app = application(summary_model="small", summary_url=server.url)
    with pytest.raises(ThrottledError) as raised:
        session_of(app).compress()
    assert (status_of(raised.value), raised.value.retry_after_seconds) == (429, 30)
