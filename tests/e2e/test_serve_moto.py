"""`turnlog serve --engine moto`: the service of template.yaml over the resources that CloudFormation made in moto."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from moto.core.models import botocore_stubber
from moto.sqs import models as sqs_models

from benchmarks.replay.replaying import Replay
from tests.conftest import SAMPLES
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.cli.transcripts import read_transcripts
from turnlog.client.model import Session
from turnlog.core.errors import ConflictError
from turnlog.engines import SystemClock, aws_clients
from turnlog.http import api, lambda_api
from turnlog.http import lambda_workers as sqs
from turnlog.ports import QUEUES
from turnlog.routing import BY_NAME, ROUTES, Route
from turnlog.server.local_server import HttpServer
from turnlog.server.moto_engine import MotoService, moto_service
from turnlog.server.stack import NOT_CREATED, REGION
from turnlog.testing.aws import GuardError
from turnlog.testing.contracts.job_queue import dead_letters

pytestmark = pytest.mark.network

MAX_RECEIVES = 5
MAX_MESSAGES = 60
LONGER_THAN_VISIBILITY_MS = 1_200_000
_PATIENCE_SECONDS = 120


class Served:
    """The service, and plain HTTP to it. ``called`` collects the names of the routes that answered as asked."""

    def __init__(self, service: MotoService, url: str) -> None:
        self.service = service
        self.url = url
        self.called: set[str] = set()

    def call(
        self, name: str, *, body: object = None, query: dict[str, str] | None = None, status: int = 200, **path: str
    ) -> Any:
        route = BY_NAME[name]
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self.url + route.path.format(**path) + (f"?{urllib.parse.urlencode(query)}" if query else ""),
            data=data,
            method=route.method,
            headers={"Content-Type": "application/json", "X-Turnlog-Tenant": "acme", "X-Turnlog-User": "ada"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                result, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            result, text = error.code, error.read()
        assert result == status, text
        self.called.add(name)
        return json.loads(text)

    def finished(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job once it is no longer queued."""
        assert job["status"] == "queued"
        return _eventually(lambda: self.call("get_job", job_id=job["job_id"]), lambda item: item["status"] != "queued")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with moto_service(SystemClock()) as service:
        server = HttpServer(service.answer, port=0).start()
        yield Served(service, server.url)
        server.stop()


def _eventually(ask: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_right(result := ask()):
        assert time.monotonic() < deadline, result
        time.sleep(0.05)
    return result


def _talk(served: Served, session: str, *, turns: int = 8) -> None:
    served.call("create_session", body={"session_id": session, "system": "Be brief."}, status=201)
    for turn in range(turns):
        said = [
            {"role": "user", "content": f"Question {turn}: where is order A-{turn}417? " + "Please look. " * 40},
            {"role": "assistant", "content": f"Order A-{turn}417 is in Berlin. " + "It left the hub. " * 40},
        ]
        served.call("append_messages", session_id=session, body={"messages": said}, status=201)


# Before and after; the first of the module, as moto is on in those that follow


def test_afterwards_nothing_of_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "somebody's")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TURNLOG_ENDPOINT_URL", "http://127.0.0.1:1")
    before, maker = dict(os.environ), make_application
    with moto_service(SystemClock()) as service:
        assert botocore_stubber.enabled
        assert "AWS_PROFILE" not in os.environ and os.environ["AWS_SECRET_ACCESS_KEY"] != "somebody's"
        assert service.app_of("SessionsFunction").list_sessions
    assert not botocore_stubber.enabled
    assert dict(os.environ) == before and make_application is maker


# What was made


def test_the_resources_are_those_of_the_template(served: Served) -> None:
    stack = served.service.stack
    assert {resource.logical_id: resource.kind.rpartition(":")[2] for resource in stack.resources} == {
        "Table": "Table",
        "Bucket": "Bucket",
        "CompressQueue": "Queue",
        "CompressDeadLetters": "Queue",
        "SnapshotQueue": "Queue",
        "SnapshotDeadLetters": "Queue",
        "EraseQueue": "Queue",
        "EraseDeadLetters": "Queue",
        "OffloadQueue": "Queue",
        "OffloadDeadLetters": "Queue",
    }
    assert not {resource.kind for resource in stack.resources} & NOT_CREATED.keys()


def test_each_function_has_the_engine_that_the_template_says(served: Served) -> None:
    stack = served.service.stack
    names = {resource.logical_id: resource.name for resource in stack.resources}
    plain = f"dynamodb://{names['Table']}?bucket={names['Bucket']}"
    engines = {name: function.environment["TURNLOG_ENGINE"] for name, function in stack.functions.items()}
    assert engines["StateFunction"] == plain
    assert engines["SessionsFunction"] == f"{plain}&offload_queue={names['OffloadQueue']}"
    assert engines["CompressFunction"] == f"{plain}&compress_queue={names['CompressQueue']}"
    assert (
        engines["SnapshotFunction"]
        == f"{plain}&snapshot_queue={names['SnapshotQueue']}&erase_queue={names['EraseQueue']}"
    )
    for name, engine in engines.items():
        assert served.service.app_of(name).settings.engine == engine


def test_each_queue_is_given_to_its_worker(served: Served) -> None:
    stack = served.service.stack
    names = {resource.logical_id: resource.name for resource in stack.resources}
    assert stack.queues == {
        "CompressWorker": names["CompressQueue"],
        "SnapshotWorker": names["SnapshotQueue"],
        "EraseWorker": names["EraseQueue"],
        "OffloadWorker": names["OffloadQueue"],
    }


def test_the_handlers_that_the_template_names_have_these_routes_and_jobs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deployed code and the template agree: each handler string leads to a module with just these routes."""
    stack = served.service.stack
    monkeypatch.setattr(lambda_api, "make_handler", lambda routes: routes)
    monkeypatch.setattr(sqs, "make_worker", lambda kinds: tuple(kinds))
    pollers = set(stack.queues)
    for name, function in stack.functions.items():
        module_name, _, attribute = function.handler.rpartition(".")
        for loaded in ("api", "workers", module_name):
            monkeypatch.delitem(sys.modules, loaded, raising=False)
        result: Any = getattr(importlib.import_module(module_name), attribute)
        del sys.modules[module_name]  # the end of the test must not put it back
        if name == "RetentionWorker":
            assert callable(result)
        elif name in pollers:
            assert result == QUEUES[function.resource]
        else:
            wanted = {route for route, match in stack.routes.items() if match == name}
            assert {item.key for item in result} == wanted
    assert pollers | set(stack.routes.values()) | {"RetentionWorker"} == stack.functions.keys()


def test_a_route_is_answered_by_the_application_of_its_function(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def call(app: Any, route: Route, request: Any) -> Any:
        asked.append((route.key, app.settings.engine))
        return as_it_is(app, route, request)

    as_it_is = api.call  # type: ignore[attr-defined]
    monkeypatch.setattr(api, "call", call)
    _talk(served, "who", turns=1)
    served.call("compress_session", session_id="who", body={"mode": "sync"})
    served.call("create_snapshot", session_id="who", body={"name": "a"}, status=201)
    stack = served.service.stack
    assert len(asked) == 4
    for route, engine in asked:
        assert engine == stack.functions[stack.routes[route]].environment["TURNLOG_ENGINE"]


def test_its_clients_are_behind_the_guard(served: Served) -> None:
    table = next(resource.name for resource in served.service.stack.resources if resource.logical_id == "Table")
    with pytest.raises(GuardError, match="Scan"):
        aws_clients.Clients(REGION).dynamodb.scan(TableName=table)


# The API


def test_every_route_answers(served: Served) -> None:
    served.called.clear()
    _talk(served, "every")
    at = {"session_id": "every"}
    assert served.call("get_session", **at)["messages"] == 16
    assert next(session["session_id"] for session in served.call("list_sessions")["sessions"]) == "every"
    assert len(served.call("read_messages", **at)["messages"]) == 16
    assert len(served.call("read_loops", **at)["loops"]) == 8
    assert served.call("build_context", **at, body={"budget": 50_000})["messages"]
    assert served.call("search_session", **at, query={"q": "A-3417"})["results"][0]["position"] == 9
    assert served.call("search_sessions", query={"q": "A-3417"})["results"][0]["session_id"] == "every"
    assert not served.call("recall", **at, query={"ref": "2.0"})["found"]
    assert served.call("build_window", body={"messages": [{"role": "user", "content": "hi"}]})["messages"]
    assert served.call("lint_messages", body={"messages": [{"role": "user", "content": "hi"}]})["valid"]
    served.call("patch_agent", **at, agent_id="main", body={"iteration": 3})
    assert served.call("get_agent", **at, agent_id="main")["state"]["iteration"] == 3
    served.call("compress_session", **at, body={"mode": "sync", "keep_loops": 1})
    assert served.call("get_summary", **at)["last"] > 2
    snapshot = served.call("create_snapshot", **at, body={"name": "before"}, status=201)
    assert [snapshot["name"] for snapshot in served.call("list_snapshots", **at)["snapshots"]] == ["before"]
    assert served.call("get_snapshot", **at, snapshot="before")["snapshot_id"] == snapshot["snapshot_id"]
    restored = served.call(
        "restore_snapshot", **at, snapshot="before", body={"as": "fork", "session_id": "again"}, status=201
    )
    assert restored["forked_from"] == "every"
    served.call("delete_snapshot", **at, snapshot="before")
    assert served.call("export_session", **at, body={})["sessions"] == 1
    assert served.call("export_everything", status=202)["kind"] == "export"
    of_nothing = {"head": 1, "hash": "0" * 32, "commits": ["{}"]}
    assert served.call("import_session", session_id="new", body=of_nothing, status=422)["code"] == "bad_export"
    assert served.call("download", token="invented", status=404)["code"] == "not_found"
    job = served.call("compress_session", **at, body={"mode": "async"}, status=202)
    assert served.call("get_job", job_id=job["job_id"])["kind"] == "compress"
    assert job["job_id"] in [job["job_id"] for job in served.call("list_jobs")["jobs"]]
    assert served.finished(job)["status"] == "done"
    discarded = served.call("discard_summary", **at, status=202)
    assert discarded["kind"] == "compress"
    assert served.finished(discarded)["status"] == "done"
    served.call("put_state", **at, body={"state": {"cart": 1}})
    assert served.call("patch_state", **at, body={"cart": None, "paid": True})["state"]["paid"]
    assert served.call("get_state", **at)["state"]["paid"]
    served.call("put_documents", **at, body={"put": [{"key": "plan", "data": "cGFjaw=="}]})
    assert served.call("get_documents", **at, body={"keys": ["plan"]})["documents"][0]["data"] == "cGFjaw=="
    served.call("record_history", **at, body={"action": "noted"}, status=201)
    assert served.call("read_history", **at)["entries"][0]["action"] == "noted"
    assert served.call("diff_session", **at, query={"from": "2"})["messages"]
    head = served.call("get_session", **at)["head"]
    assert served.call("rewind_session", **at, body={"to": head})["head"] == head + 1
    waiting = {"pending_action": {"name": "refund"}}
    served.call("patch_agent", **at, agent_id="main", body=waiting)
    served.call("decide_pending", **at, agent_id="main", body={"decision": "approve"})
    token = served.call("lease_session", **at, body={"holder": "a-run"})["lease"]["token"]
    said = {"messages": [{"role": "user", "content": "And then?"}]}
    assert served.call("send_to_run", **at, agent_id="main", body=said, status=201)["position"] > token
    assert served.call("lease_session", **at, body={"token": token, "release": True})["lease"] is None
    assert served.call("update_session", **at, body={"title": "Every"})["title"] == "Every"
    position = str(served.call("read_messages", **at)["messages"][0]["position"])
    assert served.call("redact_message", **at, position=position, status=202)["kind"] == "redact"
    assert served.call("end_session", **at)["status"] == "ended"
    assert served.call("reset_session", **at, status=201)["reset_of"] == "every"
    assert served.call("list_memories")["engine"] == "embedded"
    assert served.call("forget_memory", memory_id="unknown")["memory_id"] == "unknown"
    assert served.call("erase_session", **at, status=202)["kind"] == "erase"
    with Turnlog.open(served.url, tenant="acme", user="leaver") as leaver:
        assert (
            leaver.erase_me().kind == "erase_user"
        )  # another person: until it is done, none of the person's is created
    served.called.add("erase_user")
    assert served.call("health")["engine"] == "dynamodb"
    assert served.call("openapi")["openapi"].startswith("3.1")
    assert served.called == {route.name for route in ROUTES}


def test_what_has_no_route_is_not_found(served: Served) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{served.url}/v1/nothing", timeout=30)
    assert caught.value.code == 404
    assert json.load(caught.value)["code"] == "not_found"


def test_payloads_go_to_the_bucket_and_come_back(served: Served) -> None:
    with Turnlog.open(served.url) as log:
        session = log.sessions.create("large")
        large = {"role": "user", "content": "".join(f"line {number}\n" for number in range(60_000))}
        session.append(large)
        assert [message.body for message in session.messages()] == [large]
    blobs = served.service.app_of("AppendFunction").engine.blobs
    assert any("/large/" in name or "large" in name for name in blobs.names(""))


def test_no_address_leads_to_the_real_aws(served: Served) -> None:
    with Turnlog.open(served.url) as log:
        session, large = log.sessions.create("far"), {"role": "user", "content": "order 7 " * 600_000}
        session.append(large)
        file = io.BytesIO()
        assert session.export(file).url.startswith("/v1/downloads/") and file.getvalue()
        session.append(large)
        assert [message.body for message in session.messages()] == [large, large], "an answer over 6 MB"


def _append(session: Session, text: str, tries: int = 20) -> int:
    """Append a message and return its position. Where other writers won every slot, the answer says to try again."""
    for number in range(tries):
        try:
            return session.append({"role": "user", "content": text}).first
        except ConflictError:
            if number + 1 == tries:
                raise
    raise AssertionError("no try")


def test_threads_that_write_one_session_lose_nothing(served: Served) -> None:
    with Turnlog.open(served.url) as log:
        log.sessions.create("many")

    def write(writer: int) -> list[int]:
        with Turnlog.open(served.url) as own:
            session = own.sessions.get("many")
            return [_append(session, f"{writer}.{number}") for number in range(8)]

    with ThreadPoolExecutor(6) as pool:
        positions = [position for written in pool.map(write, range(6)) for position in written]
    with Turnlog.open(served.url) as log:
        stored = {message.position: message.body["content"] for message in log.sessions.get("many").messages()}
    assert sorted(positions) == sorted(stored) == list(range(2, 50))
    assert len(set(stored.values())) == 48


@pytest.mark.full
def test_the_sample_conversations_replay_without_a_finding(served: Served) -> None:
    # moto is slow with large items: of the long one, the beginning.
    transcripts = [
        replace(read_transcript, messages=read_transcript.messages[:MAX_MESSAGES])
        for read_transcript in read_transcripts([SAMPLES])
    ]
    with Turnlog.open(served.url) as log:
        report = Replay(policy="default", budget=60_000).run(log, transcripts)
    assert report.findings == [] and report.ok
    assert report.total.messages == sum(len(transcript.messages) for transcript in transcripts)


# Jobs


def test_a_job_goes_through_the_queue_to_the_worker_and_is_done(served: Served) -> None:
    _talk(served, "queued")
    before = served.call("build_context", session_id="queued", body={})["tokens"]
    job = served.call("compress_session", session_id="queued", body={"mode": "async", "keep_loops": 1}, status=202)
    done = served.finished(job)
    assert (done["status"], done["attempts"], done["error"]) == ("done", 1, None)
    summary = served.call("get_summary", session_id="queued")
    assert summary["last"] == 13 and done["result"]["position"] == summary["position"]
    assert served.call("build_context", session_id="queued", body={})["tokens"] < before

    job = served.call("create_snapshot", session_id="queued", body={"name": "later", "mode": "async"}, status=202)
    assert served.finished(job)["status"] == "done"
    assert served.call("get_snapshot", session_id="queued", snapshot="later")["kind"] == "ref"
    for worker in served.service.stack.queues:
        assert served.service.queue_of(worker).receive() == ()


def test_poison_is_a_dead_letter_after_five_receives_and_harms_no_other_job(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    later_ms, now_ms = 0, sqs_models.unix_time_millis  # type: ignore[attr-defined]
    monkeypatch.setattr(sqs_models, "unix_time_millis", lambda: now_ms() + later_ms)
    queue = served.service.queue_of("CompressWorker")
    _talk(served, "beside", turns=4)
    with caplog.at_level(logging.WARNING, "turnlog"):
        poison_id = queue.send('{"v": 1, "kind": "nonsense"}', group="acme")
        job = served.call("compress_session", session_id="beside", body={"mode": "async"}, status=202)
        assert served.finished(job)["status"] == "done"

        def receives() -> int:
            return sum(poison_id in record.getMessage() for record in caplog.records)

        for number in range(1, MAX_RECEIVES + 1):
            _eventually(receives, number.__eq__)
            assert dead_letters(queue) == []
            later_ms += LONGER_THAN_VISIBILITY_MS
        dead = _eventually(lambda: dead_letters(queue), bool)
        assert dead == ['{"v": 1, "kind": "nonsense"}']
        assert receives() == MAX_RECEIVES


# The command


@pytest.mark.full
def test_the_command_says_what_it_made_and_ends_cleanly() -> None:
    command = [sys.executable, "-m", "turnlog.cli", "serve", "--engine", "moto", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TURNLOG_", "AWS_"))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(10)]
        hits = re.search(r"turnlog serves (http://127\.0\.0\.1:\d+)", lines[0])
        assert hits, process.communicate()[1]
        said = "".join(lines)
        assert "gone when it stops" in said
        assert re.search(r"Table +AWS::DynamoDB::Table +turnlog-table", said)
        with Turnlog.open(hits[1]) as log:
            log.sessions.create("a").append({"role": "user", "content": "hi"})
            assert log.sessions.get("a").info().messages == 1
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        assert output.endswith("turnlog stopped\n")
    finally:
        process.kill()
        process.communicate()
