"""Settings from the environment, and the engine, models and counters that they name."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws_requests import Answer, AnsweredRequests
from turnlog import Turnlog
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import InvalidInputError, TurnlogError, UnavailableError
from turnlog.core.identity import serving
from turnlog.engines import Engine, RandomIds, SystemClock, make_chat_model, make_counter, make_embedder, make_engine
from turnlog.ports import JOB_KINDS, JobKind, JobQueue, Key, Prompt
from turnlog.settings import Settings
from turnlog.testing.contracts.job_queue import dead_letters
from turnlog.testing.fixed import FixedClock, SequentialIds


def test_models_of_the_environment_are_used_by_both_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_MODELS", '{"my-own": 9000}')
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", model="my-own-7b", output_reserve=1_000)
        windows = [session.context(), log.build_window([], model="my-own", output_reserve=1_000)]
        assert [(window.manifest.budget.tokens, window.manifest.budget.source) for window in windows] == [
            (8_000, "model")
        ] * 2
        assert session.context(budget=500).manifest.budget.tokens == 500
        assert session.context(model="other").manifest.budget.source == "default"


def test_a_build_keeps_its_budget_when_the_table_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", model="gpt-4o")
        window = session.context()
        app = log.backend.app  # type: ignore[attr-defined]
        settings = app.settings.model_copy(update={"models": {"gpt-4o": 5_000}})
        other = Application(app.engine, settings, clock=app.clock, ids=app.ids)
        session = Turnlog(InProcessBackend(other, log.backend.owner)).sessions.of("s")  # type: ignore[attr-defined]
        assert session.context().manifest.budget.tokens == 904
        assert session.context(build=window.manifest.build) == window


def test_no_variable_no_models_of_our_own() -> None:
    assert Settings.from_environment({}).models == {}
    assert Settings.from_environment({"TURNLOG_MODELS": ""}).models == {}
    assert Settings.from_environment({"TURNLOG_MODELS": '{"a": 1, "b": 2}'}).models == {"a": 1, "b": 2}


@pytest.mark.parametrize("text", ["{", "32000", "[]", '{"a": 0}', '{"a": "x"}', '{"a": 1, "a": 2}', '{"a": 1e99}'])
def test_what_is_no_table_of_models_is_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match="TURNLOG_MODELS"):
        Settings.from_environment({"TURNLOG_MODELS": text})


@pytest.mark.parametrize(
    "engine",
    [
        *("sqlite://", "sqlite:///", "sqlite://host/a.db", "sqlite:////tmp/a%00b.db", "mysql://a"),
        *("sqlite:///a.db?mode=ro", "sqlite:///a.db#x", "memory://a", "memory://?a=b", "sqlite://[/a.db", "://["),
    ],
)
def test_an_engine_that_is_none_is_refused_by_name(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="engine") as raised:
        make_engine(Settings(engine=engine), clock=FixedClock(), ids=SequentialIds())
    assert raised.value.error_code == "invalid_settings" and not list(tmp_path.iterdir())


QUEUES = "https://sqs.example.com/1/"
IN_2100 = datetime(2100, 1, 1, tzinfo=UTC)
ANSWERS: dict[str, Answer] = {
    "GetQueueUrl": lambda body: {"QueueUrl": QUEUES + body["QueueName"]},
    "SendMessage": lambda body: {"MessageId": body["MessageBody"]},
    "GetQueueAttributes": lambda body: {
        "Attributes": {
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": f"arn:{body['QueueUrl'].rpartition('/')[2]}-dead"})
        }
    },
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> AnsweredRequests:
    return AnsweredRequests(monkeypatch, ANSWERS)


def engine_of(url: str, **settings: Any) -> Engine:
    return make_engine(Settings(engine=url, **settings), clock=FixedClock(), ids=SequentialIds())


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://",
        "dynamodb://table",
        "dynamodb://?bucket=b",
        "dynamodb://table?queue=q",
        "dynamodb://table?bucket=b&buckets=c",
        "dynamodb://table?bucket=b&index_queue=q",
    ],
)
def test_an_address_of_a_table_has_a_bucket_and_known_options(url: str) -> None:
    with pytest.raises(InvalidInputError, match="is not dynamodb://TABLE") as raised:
        engine_of(url)
    assert raised.value.error_code == "invalid_settings"


def test_a_table_and_a_bucket_are_enough_and_have_no_jobs(aws: AnsweredRequests) -> None:
    engine = engine_of("dynamodb://table?bucket=blobs&region=eu-west-1")
    engine.items.get_many([Key("p", "s")])
    engine.blobs.put("name", b"")
    read, put = aws.requests
    assert (engine.name, read.body["TableName"]) == ("dynamodb", "table")
    assert put.url == "https://blobs.s3.eu-west-1.amazonaws.com/name"
    assert [engine.queue_of(kind) for kind in JOB_KINDS] == [None] * len(JOB_KINDS)
    assert engine.copy_to is None
    engine.release()
    engine.close()


def test_each_kind_of_job_goes_to_the_queue_of_its_name_and_others_to_the_common_one(aws: AnsweredRequests) -> None:
    queues = "queue=common&compress_queue=c&snapshot_queue=s&offload_queue=o"

    def queue_of(engine: Engine, kind: JobKind) -> str:
        queue = engine.queue_of(kind)
        assert queue is not None and queue.send(kind, group="acme") == kind
        return str(aws.requests[-1].body["QueueUrl"]).removeprefix(QUEUES)

    def dead_letters_of(queue: JobQueue | None) -> str:
        assert queue is not None and dead_letters(queue) == []
        return str(aws.requests[-1].body["QueueUrl"]).removeprefix(QUEUES)

    engine = engine_of(f"dynamodb://t?bucket=b&region=eu-west-1&{queues}")
    assert {kind: queue_of(engine, kind) for kind in JOB_KINDS} == {
        **dict.fromkeys(("compress", "seal", "index"), "c"),
        **dict.fromkeys(("snapshot", "restore", "export"), "s"),
        **dict.fromkeys(("erase", "erase_user", "sweep", "redact"), "common"),
        "offload": "o",
    }
    assert [dead_letters_of(queue) for queue in (engine.queue, engine.queue_of("seal"))] == ["common-dead", "c-dead"]
    alone = engine_of("dynamodb://t?bucket=b&erase_queue=e&region=eu-west-1")
    assert alone.queue is None and alone.queue_of("seal") is None
    assert queue_of(alone, "redact") == "e"
    common = engine_of("dynamodb://t?bucket=b&queue=q&region=eu-west-1")
    assert (queue_of(common, "seal"), dead_letters_of(common.queue)) == ("q", "q-dead")


@pytest.mark.parametrize(
    ("region", "endpoint_url", "address"),
    [
        ("eu-west-1", None, "https://dynamodb.eu-west-1.amazonaws.com"),
        ("eu-west-1", "http://localhost:4566", "http://localhost:4566"),
    ],
)
def test_clients_are_of_the_region_and_the_address_of_the_settings(
    aws: AnsweredRequests, region: str, endpoint_url: str | None, address: str
) -> None:
    url = f"dynamodb://t?bucket=b&queue=q&region={region}"
    engine = engine_of(url, endpoint_url=endpoint_url)
    engine.items.get_many([Key("p", "s")])
    engine.blobs.put("name", b"")
    assert engine.queue is not None
    dead_letters(engine.queue)
    assert {request.client.service_model.service_name for request in aws.requests} == {"dynamodb", "s3", "sqs"}
    for request in aws.requests:
        assert request.client.region_name == region
        assert request.client.config.retries == {"mode": "standard", "total_max_attempts": 4}
    assert aws.requests[0].url.startswith(address)
    aws.requests.clear()
    settings = Settings(
        engine=url,
        endpoint_url=endpoint_url,
        summary_model="m",
        summary_timeout_seconds=7,
        rerank_model="cohere.embed-multilingual-v3",
        rerank_timeout_seconds=2,
    )
    with suppress(TurnlogError):
        make_chat_model(settings).answer(Prompt("Be brief.", "hi", 1), max_tokens=1)
    embedder = make_embedder(settings)
    with suppress(TurnlogError):
        assert embedder is not None and embedder.embed(["hi"])
    for request in aws.requests:
        assert request.client.region_name == region
        assert request.client.config.retries["total_max_attempts"] == 1, "the caller makes the other tries"
        assert (request.client.endpoint_url == endpoint_url) is (endpoint_url is not None)
    assert [request.client.config.read_timeout for request in aws.requests] == [7, 2]


def test_a_tenants_role_signs_what_stores_data(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = {"AccessKeyId": "theirs", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": IN_2100}
    AnsweredRequests(monkeypatch, {"AssumeRole": lambda _body: {"Credentials": credentials}})
    role = "arn:aws:iam::111122223333:role/tenants"
    engine = engine_of("dynamodb://t?bucket=b&region=eu-west-1", tenant_role_arn=role)
    with serving("acme"):
        url = engine.blobs.url("acme/name", seconds=60, filename="name")
    assert url is not None and "X-Amz-Credential=theirs%2F" in url and "X-Amz-Security-Token=t" in url


@pytest.mark.parametrize("place", [":memory:", "%3Amemory%3A", "./:memory:"])
def test_blobs_of_a_database_in_memory_are_in_memory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = make_engine(Settings(engine=f"sqlite:///{place}"), clock=FixedClock(), ids=SequentialIds())
    engine.blobs.put("a/b", b"x")
    assert (engine.name, engine.blobs.get("a/b"), list(tmp_path.iterdir())) == ("memory", b"x", [])
    engine.close()


def test_an_embedded_queue_has_the_times_of_the_settings(tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/t.db"):
        clock = FixedClock()
        settings = Settings(engine=url, queue_visibility_seconds=7, queue_max_receives=2)
        engine = make_engine(settings, clock=clock, ids=SequentialIds())
        assert engine.name == url.partition(":")[0]
        queue = engine.queue_of("seal")
        assert queue is not None and queue is engine.queue
        queue.send("a", group="acme")
        for _ in range(2):
            assert [delivery.body for delivery in queue.receive()] == ["a"]
            clock.advance(6.999)
            assert list(queue.receive()) == []
            clock.advance(0.001)
        assert list(queue.receive()) == []
        assert dead_letters(queue) == ["a"]
        engine.close()


def test_blobs_of_a_file_are_in_a_folder_beside_it(tmp_path: Path) -> None:
    engine = engine_of(f"sqlite:///{tmp_path}/a%20b.db")
    engine.items.put({"pk": "p", "sk": "s"})
    engine.blobs.put("name", b"x")
    engine.release()
    assert (tmp_path / "a b.db").is_file()
    assert (tmp_path / "a b.db.blobs" / "name").read_bytes() == b"x"
    assert engine.copy_to is not None
    copy = engine.copy_to(tmp_path / "copy.db", tmp_path / "copies")
    copy.blobs.put("other", b"y")
    assert (copy.name, copy.queue, copy.copy_to) == ("sqlite", None, None)
    assert copy.items.get_many([Key("p", "s")]) == {Key("p", "s"): {"pk": "p", "sk": "s"}}
    assert (tmp_path / "copies" / "other").is_file() and engine.blobs.get("other") is None
    for value in (copy, engine):
        value.close()
        with pytest.raises(UnavailableError, match="closed"):
            value.items.get_many([Key("p", "s")])


def test_a_counter_has_the_name_of_the_setting() -> None:
    assert [make_counter(name).name for name in ("estimate", "o200k_base")] == ["estimate", "o200k_base"]


def test_ids_are_long_and_begin_with_a_letter() -> None:
    ids = RandomIds()
    several = {ids.new_id() for _ in range(200)}
    assert len(several) == 200
    assert all(re.fullmatch("s[a-z2-7]{31}", item) for item in several)
    assert {len(ids.nonce()) for _ in range(9)} == {8}
    assert all(0 <= ids.jitter() < 1 for _ in range(99)) and len({ids.jitter() for _ in range(9)}) == 9


def test_the_clock_tells_milliseconds_and_sleeps_for_seconds() -> None:
    clock = SystemClock()
    before, began = time.time() * 1000, clock.now_ms()
    clock.sleep(0.02)
    assert before - 1 <= began and 15 <= clock.now_ms() - began < 5_000
    assert isinstance(began, int)
