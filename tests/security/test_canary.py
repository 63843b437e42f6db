"""V2: what was said, stored or asked for reaches no log, metric, error, header or queue, on any route and in any worker.

Two canaries. ``CANARY`` stands in every field that holds contents; it is told to nobody but in an answer to its owner. ``NAMED``
stands in what names a thing (ids, keys, names, a policy's name): an error may say it again to the caller who sent it.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote

import pytest

from tests.conftest import Harness
from tests.http.events import event
from tests.log.everything import blobs_of, items_of
from tests.support.scripted import ScriptedMemory, ScriptedSummariser, summarise_with
from tests.support.talks import turn
from turnlog import Turnlog
from turnlog.app import Application
from turnlog.cli.chat.models import model_of
from turnlog.client.exports import ExportFile
from turnlog.core.errors import InvalidInputError, TurnlogError, UnavailableError
from turnlog.core.memory import Memory
from turnlog.http.lambda_api import make_handler
from turnlog.http.lambda_workers import make_retention, make_worker
from turnlog.http.logs import EmfSignals, log_calls
from turnlog.ports import JOB_KINDS, Delivery
from turnlog.routing import BY_NAME, ROUTES, Route
from turnlog.server.lambda_calls import LocalContext, sqs_event
from turnlog.server.local_server import HttpServer
from turnlog.settings import Settings

CANARY = "canary7f3a9c41"
NAMED = "named8e2b7d50"
OWNER = ("111122223333", "ada")
ARN = f"arn:aws:sts::{OWNER[0]}:assumed-role/{OWNER[1]}/session"
BASE64 = base64.b64encode(f"xx {CANARY} xx {CANARY}".encode()).decode()
IN_BASE64 = (base64.b64encode(CANARY.encode()).decode()[:12], BASE64[4:16])
NOON = 1_763_683_200_000
TOOL = {"type": "function", "function": {"name": "f", "description": CANARY, "parameters": {"type": "object"}}}


class Watched:
    """All that leaves the service but answers to their owner: logs with their tracebacks, stdout, stderr, queues, headers."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self._caplog, self._capfd = caplog, capfd
        self.queued: list[str] = []
        self.headers: list[str] = []
        self.errors: list[str] = []
        self.printed = ""

    def told(self) -> dict[str, str]:
        out, err = self._capfd.readouterr()
        self.printed += out + err
        formatter = logging.Formatter("%(levelname)s %(name)s %(message)s")
        logs = "\n".join(
            f"{formatter.format(record)} {record.args!r} {sorted(map(str, vars(record).items()))}"
            for record in self._caplog.records
            if record.name.partition(".")[0] not in ("botocore", "boto3", "urllib3", "moto", "s3transfer")
        )
        return {
            "logs": logs,
            "stdout and stderr": self.printed,
            "queues": "\n".join(self.queued),
            "headers": "\n".join(self.headers),
        }

    def check(self, where: str = "") -> None:
        for place, text in self.told().items():
            for canary in (CANARY, NAMED, *IN_BASE64):
                assert canary not in text, f"{where}: {place}: {around(text, canary)}"
        for text in self.errors:
            for canary in (CANARY, *IN_BASE64):
                assert canary not in text, f"{where}: error body: {around(text, canary)}"


def around(text: str, needle: str) -> str:
    at = text.index(needle)
    return text[max(0, at - 600) : at + 200]


@pytest.fixture
def watched(
    harness: Harness,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Watched]:
    from turnlog.engines.sqlite_tables import SqliteJobQueue
    from turnlog.engines.sqs import SqsJobQueue

    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "turnlog")
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, logger="turnlog")
    watching = Watched(caplog, capfd)
    for kind in (SqliteJobQueue, SqsJobQueue):
        sent = kind.send

        def send(self: Any, body: str, *args: Any, _sent: Any = sent, **options: Any) -> Any:
            watching.queued.append(f"{body} {args} {options}")
            return _sent(self, body, *args, **options)

        monkeypatch.setattr(kind, "send", send)
    harness.app.__dict__["memory"] = ScriptedMemory([Memory("m1", f"Likes {CANARY}.", NOON)])
    harness.app.signals = EmfSignals()
    summarise_with(harness.app, ScriptedSummariser(then=f"They said {CANARY}."))
    yield watching


@dataclass(frozen=True)
class Ask:
    route: str
    path: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    raw: str | None = None
    key: str | None = None
    media_type: str = "application/json"


@lru_cache(maxsize=1)
def handler_of(app: Application) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    return log_calls(make_handler(ROUTES, app))


def answer_to(harness: Harness, watched: Watched, ask: Ask) -> tuple[int, Any]:
    """Through the handler. An error's body is kept to be searched, and every answer's headers."""
    route, path = BY_NAME[ask.route], BY_NAME[ask.route].path
    for parameter, value in ask.path.items():
        path = path.replace("{" + parameter + "}", quote(value, safe=""))
    headers = {"content-type": ask.media_type, **({"Idempotency-Key": ask.key} if ask.key else {})}
    made = event(
        route.method,
        path,
        query=ask.query,
        body=ask.body,
        raw=ask.raw,
        headers=headers,
        authorizer={"iam": {"userArn": ARN}},
    )
    answer = handler_of(harness.app)(made, LocalContext(29_000))
    if ask.route != "download":
        watched.headers.append(
            json.dumps([answer.get("headers"), answer.get("multiValueHeaders"), answer.get("cookies")])
        )
    if answer["statusCode"] >= 400:
        watched.errors.append(f"{ask.route}: {answer['body']}")
        return answer["statusCode"], json.loads(answer["body"])
    return answer["statusCode"], answer.get("body")


S = {"session_id": "s"}
A = {**S, "agent_id": "main"}
P = {**S, "snapshot": NAMED}


def said(role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": f"I said {CANARY}.", **fields}


CALL = {"id": "c", "type": "function", "function": {"name": CANARY, "arguments": json.dumps({"a": CANARY})}}
GOOD: list[Ask] = [
    Ask("health"),
    Ask("openapi"),
    Ask(
        "create_session",
        body={
            "session_id": "s",
            "title": CANARY,
            "system": CANARY,
            "tools": [TOOL],
            "metadata": {"m": CANARY},
            "state": {"s": CANARY},
            "state_schema": {"properties": {"s": {"type": "string", "description": CANARY}}},
            "policy": {"steps": [{"step": "summary", "label": CANARY}, {"step": "loops", "whole": 1}]},
            "bootstrap": {"question": CANARY},
        },
        key=f"{CANARY}-create",
    ),
    Ask("append_messages", S, body={"messages": [said()], "meta": [{"author": CANARY, "metadata": {"m": CANARY}}]}),
    Ask("append_messages", S, body={"messages": [said("assistant", tool_calls=[CALL])]}, key=CANARY),
    Ask(
        "append_messages",
        S,
        body={
            "messages": [{"role": "tool", "tool_call_id": "c", "content": CANARY * 3_000}, said("assistant")],
            "run": {"iteration": 1, "scratchpad": CANARY, "pending_action": {"tool": CANARY}},
        },
    ),
    Ask("get_session", S),
    Ask("list_sessions"),
    Ask("read_messages", S),
    Ask("read_loops", S),
    Ask("recall", S, {"ref": "4.0", "pattern": CANARY}),
    Ask("search_session", S, {"q": CANARY}),
    Ask("search_sessions", query={"q": CANARY}),
    Ask("build_context", S, body={"tools": [TOOL]}),
    Ask("build_window", body={"messages": [said()], "budget": 1_000, "system": CANARY}),
    Ask("lint_messages", body={"messages": [said(CANARY, odd=CANARY)], "format": "openai_chat"}),
    Ask("get_agent", A),
    Ask("patch_agent", A, body={"scratchpad": {"x": CANARY}}, key=f"{CANARY}-agent"),
    Ask("decide_pending", A, body={"decision": "reject", "reason": CANARY}),
    Ask("lease_session", S, body={"holder": CANARY}),
    Ask("send_to_run", A, body={"messages": [said()]}),
    Ask("get_state", S),
    Ask("patch_state", S, body={"t": CANARY}),
    Ask(
        "patch_state", S, body=[{"op": "add", "path": "/u", "value": CANARY}], media_type="application/json-patch+json"
    ),
    Ask("put_state", S, body={"state": {"s": CANARY}}, key=f"{CANARY}-state"),
    Ask("put_documents", S, body={"put": [{"key": NAMED, "data": BASE64}]}),
    Ask("get_documents", S, body={"keys": [NAMED]}),
    Ask("record_history", S, body={"action": NAMED, "metadata": {"m": CANARY}}),
    Ask("read_history", S),
    Ask("diff_session", S, {"from": "1"}),
    Ask("compress_session", S, body={"mode": "async", "keep_loops": 0}, key=f"{CANARY}-compress"),
    Ask("create_snapshot", S, body={"name": NAMED, "metadata": {"m": CANARY}}),
    Ask("create_snapshot", S, body={"kind": "full", "mode": "async", "metadata": {"m": CANARY}}),
    Ask("list_snapshots", S, {"name": NAMED}),
    Ask("get_snapshot", P),
    Ask("restore_snapshot", P, body={"as": "fork", "session_id": "fork"}),
    Ask("delete_snapshot", P),
    Ask("export_session", S, body={}),
    Ask("export_session", S, body={"mode": "async"}, key=f"{CANARY}-export"),
    Ask("export_everything"),
    Ask("update_session", S, body={"title": CANARY, "system": CANARY, "metadata": {"n": CANARY}}),
    Ask("list_memories"),
    Ask("forget_memory", {"memory_id": "m1"}),
    Ask("list_jobs"),
    Ask("redact_message", {**S, "position": "2"}),
    Ask("rewind_session", S, body={"to": 4}),
    Ask("end_session", {"session_id": "fork"}),
    Ask("reset_session", {"session_id": "fork"}),
]
LAST: list[Ask] = [Ask("discard_summary", S), Ask("erase_session", S), Ask("erase_user")]
BY_ID = {"get_summary", "get_job", "download", "import_session"}
"""Routes that need what another one has answered: `test_v2_a_whole_day…` asks them by itself."""


def worked(harness: Harness, watched: Watched, *, milliseconds: int = 60_000) -> None:
    """Every job that is in the queue now goes through the worker, once."""
    queue = harness.app.engine.queue
    assert queue is not None
    for _ in range(40):
        deliveries = queue.receive()
        if not deliveries:
            return
        answer = log_calls(make_worker(JOB_KINDS, harness.app))(
            sqs_event(deliveries, now_ms=harness.clock.now_ms()), LocalContext(milliseconds)
        )
        watched.headers.append(json.dumps(answer))
        failed = {batchitemfailure["itemIdentifier"] for batchitemfailure in answer["batchItemFailures"]}
        for delivery in deliveries:
            if delivery.job_id not in failed:
                queue.acknowledge(delivery.receipt)


def ok(harness: Harness, watched: Watched, ask: Ask) -> Any:
    status, body = answer_to(harness, watched, ask)
    assert status < 300, (ask.route, body)
    return json.loads(body) if body and ask.route != "download" else body


def filled(harness: Harness, watched: Watched) -> None:
    """The session ``s`` with contents in every place, some of it summarised, sealed and remembered."""
    for ask in GOOD[2:6]:
        ok(harness, watched, ask)
    session = harness.log(*OWNER).sessions.get("s")
    for number in range(4):
        session.append(*turn(number), {"role": "user", "content": CANARY})
    session.put_state({"s": CANARY})
    session.documents.put(NAMED, CANARY.encode())
    session.create_snapshot(NAMED, metadata={"m": CANARY})


def test_every_route_is_asked() -> None:
    assert {ask.route for ask in (*GOOD, *LAST)} | BY_ID == set(BY_NAME)


def test_v2_a_whole_day_tells_its_contents_to_their_owner_alone(harness: Harness, watched: Watched) -> None:
    """Every route answers 2xx, every job is done, and nothing of it is anywhere else."""
    jobs = list[str]()
    for ask in GOOD:
        if ask.route == "compress_session":
            for number in range(4):
                harness.log(*OWNER).sessions.get("s").append(*turn(number))
        answer = ok(harness, watched, ask)
        if isinstance(answer, dict):
            jobs += [answer["job_id"]] if "job_id" in answer else []
        worked(harness, watched)
        if ask.route == "compress_session":
            assert CANARY in json.dumps(ok(harness, watched, Ask("get_summary", S))), "the summary has it"
        if ask.route == "export_session" and ask.key is None:
            assert ok(harness, watched, Ask("import_session", {"session_id": "back"}, body=lines_of(harness)))
            if harness.name == "sqlite":  # S3 gives addresses of its own
                assert ok(harness, watched, Ask("download", {"token": answer["url"].rpartition("/")[2]}))
    session = harness.log(*OWNER).sessions.get("s")
    assert CANARY in json.dumps([message.body for message in session.messages()])
    for ask in LAST:
        answer = ok(harness, watched, ask)
        jobs += [answer["job_id"]]
        for _ in range(3):
            worked(harness, watched)
            harness.clock.advance(3_600)
    assert ok(harness, watched, Ask("get_job", {"job_id": jobs[-1]}))
    make_retention(harness.app)({}, LocalContext(60_000))
    assert watched.queued, "jobs were sent"
    watched.check()


def lines_of(harness: Harness) -> dict[str, Any]:
    """The body of an import: the session's commits out of its export."""
    (data,) = [data for name, data in blobs_of(harness).items() if "session-s.zip" in name][-1:]
    with ExportFile(io.BytesIO(data)) as export:
        (result,) = export.sessions()
        (batch,) = export.batches("s", max_bytes=10**7, max_commits=1_000)
        return {"head": result.head, "hash": result.hash, "commits": batch, "documents": list(export.documents("s"))}


# ------------------------------------------------------------ requests that are refused


NAMES = frozenset(
    (
        *(
            "session_id",
            "agent_id",
            "name",
            "key",
            "keys",
            "prefix",
            "after",
            "until",
            "reading",
            "if_revision",
            "action",
        ),
        *("policy", "format", "input_format", "model", "at", "to", "as", "as_", "mode", "kind", "order", "hash"),
        *("decision", "breakpoints", "recall", "if_exists", "fork", "build", "run_id", "run", "window", "usage"),
    )
)
"""Fields that name something, or choose: what a caller has put there may be said again to the caller."""
IS_CONTENT = frozenset(
    {
        "messages",
        "meta",
        "system",
        "tools",
        "title",
        "metadata",
        "state",
        "state_schema",
        "reason",
        "put",
        "then",
        "commits",
    }
)


def bad_bodies(route: Route) -> Iterator[Ask]:
    """Each field of the body with a value that it doesn't take, and texts that are no JSON at all."""
    path = {"session_id": "s", "agent_id": "main", "snapshot": NAMED, "position": "2", "token": NAMED, "job_id": NAMED}
    path |= {"memory_id": NAMED}
    path = {name: value for name, value in path.items() if "{" + name + "}" in route.path}
    good = next((ask.body for ask in GOOD if ask.route == route.name and isinstance(ask.body, dict)), {})
    fields = list(route.body.model_fields) if route.body is not None else ["state", "messages"]
    for name in fields:
        canary = NAMED if name in NAMES else CANARY
        for value in (canary, [canary], {canary if canary == NAMED else "x": canary}, [{"x": canary}], [[canary]]):
            yield Ask(route.name, path, body={**good, name: value})
        deep = {"role": 7, "content": [{"type": CANARY, "text": {"x": CANARY}}], "tool_calls": CANARY}
        if canary == CANARY:
            yield Ask(route.name, path, body={**good, name: [deep]})
    yield Ask(route.name, path, body={**good, NAMED: CANARY})
    yield Ask(route.name, path, body=[CANARY])
    for raw in (
        f'{{"messages": "{CANARY}',
        f'{{"{NAMED}": "{CANARY}", "{NAMED}": 1}}',
        f'{{"x": ["{CANARY}", NaN]}}',
        f'{{"x": ["{CANARY}", 1e999]}}',
        f"{CANARY}",
        f'{{"x": {"[" * 40}"{CANARY}"{"]" * 40}}}',
        f'{{"x": "{CANARY}\\x"}}',
    ):
        yield Ask(route.name, path, raw=raw)
    yield Ask(route.name, path, raw=f'"{CANARY}"', media_type=f"text/{NAMED}")


def bad_queries(route: Route) -> Iterator[Ask]:
    path = {"session_id": "s", "agent_id": "main", "snapshot": "x", "position": "2"}
    path = {name: value for name, value in path.items() if "{" + name + "}" in route.path}
    for parameter in route.parameters:
        canary = CANARY if parameter.name in ("q", "pattern", "pointer", "cursor") else NAMED
        for value in (canary, f"{canary}\x00(", f"({canary}", f"/{canary}/~9", canary * 200, f"[{canary}-"):
            yield Ask(route.name, path, {parameter.name: value})
            yield Ask(route.name, path, {"q": "x", "ref": "4.0", "from": "1", parameter.name: value})
    yield Ask(route.name, path, {NAMED: CANARY})


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_v2_what_is_refused_is_not_said_again(harness: Harness, watched: Watched) -> None:
    assert IS_CONTENT.isdisjoint(NAMES)
    filled(harness, watched)
    refused = set[str]()
    for route in ROUTES:
        for ask in (*bad_bodies(route), *bad_queries(route)):
            status, body = answer_to(harness, watched, ask)
            assert status < 500, (ask, body)
            refused |= {route.name} if status >= 400 else set()
    assert refused == set(BY_NAME), "every route has refused something"
    # The same key with another payload, and a batch that breaks a rule of its schema.
    ok(harness, watched, Ask("append_messages", S, body={"messages": [said()]}, key=f"{CANARY}-again"))
    again = Ask("append_messages", S, body={"messages": [said(), said()]}, key=f"{CANARY}-again")
    assert answer_to(harness, watched, again)[0] == 422
    assert answer_to(harness, watched, Ask("put_state", S, body={"state": {"s": [CANARY]}}))[0] == 422
    watched.check()


# ------------------------------------------------------------ what breaks inside


class BrokenError(Exception):
    """Says contents, as exceptions of libraries do."""


def client_error(status: int, code: str) -> Exception:
    from botocore.exceptions import ClientError

    error = {
        "Error": {"Code": code, "Message": f"Item {CANARY} is {NAMED}"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(error, "PutItem")  # type: ignore[arg-type]


def of_botocore() -> list[Exception]:
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ParamValidationError, ReadTimeoutError

    return [
        client_error(400, "ValidationException"),
        client_error(500, "InternalServerError"),
        client_error(400, "ThrottlingException"),
        ParamValidationError(report=f"Invalid type for {CANARY}"),
        ConnectTimeoutError(endpoint_url=f"https://{CANARY}", error=BrokenError(CANARY)),
        ReadTimeoutError(endpoint_url=f"https://{CANARY}", error=BrokenError(CANARY)),
        EndpointConnectionError(endpoint_url=f"https://{CANARY}", error=BrokenError(CANARY)),
    ]


def chained() -> Exception:
    """As they come: one for another."""
    try:
        try:
            raise BrokenError(CANARY)
        except BrokenError as error:
            raise ValueError(f"for {CANARY}") from error
    except ValueError as error:
        return error


def break_tables(harness: Harness, monkeypatch: pytest.MonkeyPatch, make: Callable[[], BaseException]) -> None:
    """Every request to the table, the blobs and the queue raises."""

    def raises(*_: Any, **__: Any) -> Any:
        raise make()

    engine = harness.app.engine
    for port, names in (
        (engine.items, ("get_many", "query", "put", "write_many", "delete_many")),
        (engine.blobs, ("get", "put", "names", "erase")),
        (engine.queue, ("send", "receive")),
    ):
        for name in names:
            if hasattr(type(port), name):
                monkeypatch.setattr(type(port), name, raises)


def asked_all(harness: Harness, watched: Watched) -> set[int]:
    result = set[int]()
    for ask in (*GOOD, *LAST):
        result.add(answer_to(harness, watched, ask)[0])
    return result


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize("make", [lambda: BrokenError(CANARY), chained], ids=["one", "chained"])
def test_v2_an_exception_that_says_contents_is_told_without_them(
    harness: Harness, watched: Watched, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Exception]
) -> None:
    filled(harness, watched)
    harness.log(*OWNER).sessions.get("s").compress(mode="async")
    with monkeypatch.context() as broken:
        deliveries = harness.app.engine.queue.receive()  # type: ignore[union-attr]
        break_tables(harness, broken, make)
        assert 500 in asked_all(harness, watched)
        answer = log_calls(make_worker(JOB_KINDS, harness.app))(sqs_event(deliveries, now_ms=0), LocalContext(60_000))
        assert answer["batchItemFailures"]
        watched.headers.append(json.dumps(answer))
        with pytest.raises(Exception) as raised:
            make_retention(harness.app)({}, LocalContext(60_000))
        if isinstance(raised.value, TurnlogError):
            assert CANARY not in str(raised.value)
    assert "BrokenError" in watched.told()["logs"] + watched.printed, "what broke is told by its type"
    watched.check()


@pytest.mark.parametrize("harness", ["moto"], indirect=True)
@pytest.mark.parametrize("at", range(7))
def test_v2_what_a_service_of_aws_says_of_contents_is_not_told(harness: Harness, watched: Watched, at: int) -> None:
    filled(harness, watched)
    error = of_botocore()[at]
    statuses = set[int]()
    for ask in (*GOOD[2:], *LAST):
        harness.meter.fail(1, "before", error)
        statuses.add(answer_to(harness, watched, ask)[0])
        harness.meter.clear_faults()
    assert statuses & {429, 503, 413, 500}, statuses
    watched.check()


def damaged(item: Mapping[str, Any]) -> dict[str, Any]:
    """The item with what it holds written over, by what was said."""
    return {name: (CANARY.encode() * 3 if isinstance(value, bytes) else value) for name, value in item.items()}


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_v2_a_damaged_item_is_named_and_not_told(harness: Harness, watched: Watched) -> None:
    filled(harness, watched)
    harness.log(*OWNER).sessions.get("s").compress(mode="async")
    for item in items_of(harness):
        if any(isinstance(value, bytes) for value in item.values()) and not str(item["sk"]).startswith("J#"):
            harness.app.engine.items.write_many([damaged(item)])
    fresh = harness
    statuses = asked_all(fresh, watched)
    worked(harness, watched)
    assert 500 in statuses
    assert any('"code":"corrupt"' in error for error in watched.errors)
    watched.check()


# ------------------------------------------------------------ summarisers, memory engines, time


def failing(error: Exception) -> Any:
    class Failing:
        name = "failing"

        def __getattr__(self, name: str) -> Any:
            def fail(*_: Any, **__: Any) -> Any:
                raise error

            return fail

    return Failing()


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize("error", [BrokenError(CANARY), TimeoutError(CANARY), UnavailableError("down")], ids=repr)
def test_v2_a_summariser_or_memory_engine_that_breaks_tells_nothing(
    harness: Harness, watched: Watched, error: Exception
) -> None:
    filled(harness, watched)
    summarise_with(harness.app, failing(error))
    harness.app.__dict__["memory"] = failing(error)
    answer_to(harness, watched, Ask("compress_session", S, body={"mode": "sync", "keep_loops": 0}))
    answer_to(harness, watched, Ask("compress_session", S, body={"mode": "async", "keep_loops": 0}))
    answer_to(harness, watched, Ask("create_session", body={"session_id": "new", "bootstrap": {"question": CANARY}}))
    for route in ("list_memories", "forget_memory", "end_session", "discard_summary", "erase_session"):
        answer_to(harness, watched, Ask(route, {**S, "memory_id": "m1"}))
    worked(harness, watched)
    worked(harness, watched, milliseconds=1_000)
    watched.check()


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_v2_a_message_that_is_no_job_is_not_told(harness: Harness, watched: Watched) -> None:
    filled(harness, watched)
    harness.log(*OWNER).sessions.get("s").compress(mode="async")
    (real,) = [json.loads(item.body) for item in harness.app.engine.queue.receive()]  # type: ignore[union-attr]
    bodies = [
        CANARY,
        json.dumps(CANARY),
        json.dumps([CANARY]),
        f'{{"job_id": "{CANARY}',
        *(json.dumps({**real, name: CANARY}) for name in (*real, "unknown")),
        *(json.dumps({**real, name: {"x": CANARY}}) for name in real),
        *(json.dumps({**real, name: f"{CANARY}/../#"}) for name in real),
    ]
    deliveries = [Delivery(f"m{at}", body, f"r{at}", 1) for at, body in enumerate(bodies)]
    answer = log_calls(make_worker(JOB_KINDS, harness.app))(sqs_event(deliveries, now_ms=0), LocalContext(60_000))
    assert len(answer["batchItemFailures"]) >= len(bodies) - 3
    watched.headers.append(json.dumps(answer))
    text = watched.told()
    assert CANARY not in text["logs"].replace(f"job {CANARY} ", "job ID ")
    for place in ("stdout and stderr", "queues", "headers"):
        assert CANARY not in text[place], place


# ------------------------------------------------------------ settings


SECRETS = {
    "summary_model": "m",
    "summary_url": "https://example.org/v1",
    "summary_api_key": CANARY,
    "memory": "webhook",
    "memory_webhook_url": "https://example.org/hook",
    "memory_webhook_secret": CANARY + "-of-a-webhook",
}


def test_v2_settings_show_no_secret() -> None:
    settings = Settings.model_validate(SECRETS)
    shown = [
        repr(settings),
        str(settings),
        str(settings.model_dump()),
        settings.model_dump_json(),
        repr(vars(settings)),
    ]
    assert not any(CANARY in item for item in shown)
    for name in SECRETS:
        values = {f"TURNLOG_{secret.upper()}": value for secret, value in SECRETS.items()}
        for wrong in (f"{CANARY} \n", "\x00" + CANARY):
            try:
                Settings.from_environment({**values, f"TURNLOG_{name.upper()}": wrong})
            except TurnlogError as error:
                result = "".join(traceback.format_exception(error))
                assert CANARY not in f"{error} {error.details} {error.problems} {result}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://ada:{CANARY}@api.example.com/v1", "https://***@api.example.com/v1"),
        (f"https://ada:x?{CANARY}@api.example.com", "https://***"),
        (f"https://api.example.com/v1?token={CANARY}", "https://api.example.com/v1?***"),
        (f"https://api.example.com/?next=https://a@{CANARY}", "https://***"),
        (f"https://api.example.com#{CANARY}", "https://api.example.com#***"),
        (f"postgres://ada:{CANARY}@db/table", "postgres://***@db/table"),
        (f"postgres:ada:{CANARY}@db", "***@db"),
        (f"ada:{CANARY}@api.example.com:80/v1", "***@api.example.com:80/v1"),
        (f"dynamodb://ada:{CANARY}@table?bucket=b", "dynamodb://***@table?***"),
        (f"dynamodb://table?bucket=b&secret={CANARY}", "dynamodb://table?***"),
        (f"sqlite:///a.db?{CANARY}", "sqlite:///a.db?***"),
    ],
)
def test_v2_a_refused_url_is_said_without_its_secrets(url: str, shown: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Turnlog.open(url)
    assert f"'{shown}'" in raised.value.detail
    assert CANARY not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("spec", [f"https://ada:{CANARY}@h#m", f"https://h?{CANARY}#m", f"opneai://ada:{CANARY}@h"])
def test_v2_a_refused_address_of_a_model_is_said_without_its_secrets(spec: str) -> None:
    with pytest.raises(InvalidInputError, match=r"\*\*\*") as raised:
        model_of(spec)
    assert CANARY not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("token", ["", f"{CANARY}\n", f" {CANARY}", f"{CANARY} ", f"{CANARY}\0"])
def test_v2_a_refused_token_is_not_said_again(token: str) -> None:
    with pytest.raises(InvalidInputError, match="token is empty, begins or ends with a space") as raised:
        Turnlog.open("https://api.example.com", token=token)
    with pytest.raises(InvalidInputError, match="token is empty, begins or ends with a space") as raised_by_server:
        HttpServer(cast("Any", None), token=token)
    errors = (raised.value, raised_by_server.value)
    assert CANARY not in "".join(text for error in errors for text in traceback.format_exception(error))


def test_v2_an_application_shows_no_secret() -> None:
    from turnlog.app import make_application

    app = make_application(Settings.model_validate({**SECRETS, "engine": "memory://"}))
    assert not any(CANARY in show(value) for value in (app, app.engine, app.settings) for show in (repr, str))
    app.close()
