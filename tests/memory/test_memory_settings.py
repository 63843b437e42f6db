"""Which long-term memory the settings name."""

from __future__ import annotations

import logging

import pytest

from tests.support.aws_requests import AnsweredRequests
from turnlog import Turnlog
from turnlog.app import make_application, make_memory
from turnlog.core.errors import InvalidInputError
from turnlog.core.identity import Owner
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

CANARY = "canary-of-the-secret"
WEBHOOK = {
    "TURNLOG_MEMORY": "webhook",
    "TURNLOG_MEMORY_WEBHOOK_URL": "https://memory.example.com/hook",
    "TURNLOG_MEMORY_WEBHOOK_SECRET": CANARY,
}
ARN = "arn:aws:bedrock-agentcore:eu-west-1:111122223333:memory/turnlog_memory-Ab12Cd34Ef"


def chosen(environment: dict[str, str]) -> str | None:
    app = make_application(Settings.from_environment(environment))
    name = app.memory.name if app.memory is not None else None
    app.close()
    return name


def test_each_name_has_its_engine() -> None:
    assert chosen({}) == "embedded"
    assert chosen({"TURNLOG_MEMORY": "facts"}) == "embedded"
    assert chosen({"TURNLOG_MEMORY": "none"}) is None
    assert chosen(WEBHOOK) == "webhook"
    assert chosen({"TURNLOG_MEMORY": "agentcore", "TURNLOG_MEMORY_ID": "turnlog_memory-Ab12Cd34Ef"}) == "agentcore"


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"TURNLOG_MEMORY": "other"}, "TURNLOG_MEMORY is not 'facts'"),
        ({"TURNLOG_MEMORY": "agentcore"}, "TURNLOG_MEMORY_ID is not set"),
        ({**WEBHOOK, "TURNLOG_MEMORY_WEBHOOK_URL": ""}, "TURNLOG_MEMORY_WEBHOOK_URL"),
        ({**WEBHOOK, "TURNLOG_MEMORY_WEBHOOK_SECRET": ""}, "TURNLOG_MEMORY_WEBHOOK_SECRET"),
        ({"TURNLOG_MEMORY_TIMEOUT_SECONDS": "0"}, "TURNLOG_MEMORY_TIMEOUT_SECONDS"),
    ],
)
def test_settings_that_are_not_whole_are_refused_at_start(environment: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as raised:
        Settings.from_environment(environment)
    assert CANARY not in str(raised.value)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> AnsweredRequests:
    return AnsweredRequests(monkeypatch, {"ListMemoryRecords": lambda _body: {"memoryRecordSummaries": []}})


def ask(settings: Settings) -> None:
    """Ask the memory engine of the settings for ada's memories."""
    engine = make_memory(settings, FixedClock(), SequentialIds())
    assert engine is not None and not engine.page(Owner.of("acme", "ada"), limit=1).memories


def test_the_region_is_that_of_the_memory(aws: AnsweredRequests) -> None:
    def region(**options: str) -> str:
        ask(Settings(engine="dynamodb://T?bucket=B&region=eu-central-1", memory="agentcore", **options))  # type: ignore[arg-type]
        return str(aws.requests[-1].client.region_name)

    assert region(memory_id=ARN) == "eu-west-1"
    assert region(memory_id=ARN, memory_region="us-east-1") == "us-east-1"
    assert region(memory_id="turnlog_memory-Ab12Cd34Ef") == "eu-central-1"


def test_requests_to_the_memory_have_the_time_and_the_namespace_of_the_settings(aws: AnsweredRequests) -> None:
    template = "/own/{actorId}/{sessionId}/"
    ask(Settings(memory="agentcore", memory_id=ARN, memory_timeout_seconds=7, memory_namespace=template))
    (request,) = aws.requests
    assert request.body["namespacePath"] == "/own/t-acme:u-ada/"
    assert (request.client.config.read_timeout, request.client.config.retries["total_max_attempts"]) == (7, 2)


def test_the_secret_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = Settings.from_environment(WEBHOOK)
    engine = make_memory(settings, FixedClock(), SequentialIds())
    assert CANARY not in repr(settings) + repr(engine) + str(vars(settings)) + caplog.text


def test_without_memory_sessions_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_MEMORY", "none")
    with Turnlog.open("memory://", worker=False) as log:
        session = log.sessions.create("s", bootstrap=True)
        session.append({"role": "user", "content": "I live in Lisbon."})
        session.end()
        log.run_jobs()
        assert list(log.jobs()) == []
        result = session.info().bootstrap
        assert result is not None and result.status == "off"
