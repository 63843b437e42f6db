"""V3: hostile JSON at every entrance that reads any: refused by a typed error, within bounds, and nothing is half written."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import tracemalloc
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import ROOT, Harness
from tests.effort import is_full
from tests.http.events import event
from tests.log.everything import blobs_of, items_of
from tests.security.corpus import KEPT, REFUSED, STRINGS
from turnlog import Turnlog
from turnlog.app import Application
from turnlog.core.errors import MalformedError, TurnlogError
from turnlog.core.json_values import checked_json, encode_json, parse_strict_json
from turnlog.http.lambda_api import make_handler
from turnlog.http.lambda_workers import make_worker
from turnlog.importers import import_files
from turnlog.ports import JOB_KINDS, Delivery
from turnlog.routing import ROUTES, Route
from turnlog.server.lambda_calls import LocalContext, sqs_event

on_sqlite = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
PATH = {
    "session_id": "s",
    "agent_id": "main",
    "snapshot": "named",
    "position": "2",
    "job_id": "1763720100000-absent",
    "memory_id": "m",
    "token": "AAAA",
}
BYTES_FOR_A_BYTE = 64
"""The most memory that a byte of JSON may take: that of an empty array in a list, with its comma."""


EACH = 1 if is_full() else 8
"""One of so many strings is tried at one place, and the others at the places beside it."""
SENDABLE = [text for text in STRINGS if "\ud83d" not in text]
"""In what has to be UTF-8: a query, a message of SQS, a line of JSON-RPC."""


# ------------------------------------------------------------ the parser itself


@pytest.mark.parametrize("name", REFUSED)
def test_v3_what_is_not_strict_json_is_malformed(name: str) -> None:
    data = REFUSED[name]
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError) as refused:
            parse_strict_json(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000 + BYTES_FOR_A_BYTE * len(data)
    assert len(refused.value.detail) < 200, "an error does not repeat what it refuses"


@pytest.mark.parametrize("name", KEPT)
def test_v3_strict_json_is_told_again_equal(name: str) -> None:
    data = KEPT[name]
    tracemalloc.start()
    try:
        value = parse_strict_json(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000 + BYTES_FOR_A_BYTE * len(data)
    assert same(parse_strict_json(encode_json(value)), value)
    checked_json(value)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1 is not 1.0, and -0.0 not 0.0. Read with recursion: 32 levels at most."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))


# ------------------------------------------------------------ HTTP


@lru_cache(maxsize=1)
def handler_of(app: Application) -> Any:
    return make_handler(ROUTES, app)


def sent(
    harness: Harness,
    route: Route,
    data: bytes | None = None,
    *,
    path: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
) -> tuple[int, Any]:
    address = route.path
    for name, value in {**PATH, **(path or {})}.items():
        address = address.replace("{" + name + "}", quote(value.encode("utf-8", "surrogatepass"), safe=""))
    made = event(route.method, address, query=query)
    if data is not None:
        made |= {"body": base64.b64encode(data).decode(), "isBase64Encoded": True}
    answer = handler_of(harness.app)(made, None)
    body = answer.get("body") or "{}"
    return answer["statusCode"], json.loads(body) if "json" in str(answer["headers"]) else body


def stored(harness: Harness) -> Any:
    return {(item["pk"], item["sk"]): item for item in items_of(harness)}, blobs_of(harness)


@pytest.fixture
def there(harness: Harness) -> Harness:
    log = harness.log("111122223333", "agent-backend")
    session = log.sessions.create("s", state={"agents": {"main": {"agent_id": "main"}}})
    session.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"})
    session.create_snapshot("named")
    log.sessions.page()  # makes the secret of cursors
    return harness


WITH_BODY = [route for route in ROUTES if route.body is not None or route.free_body]


@on_sqlite
def test_v3_every_route_with_a_body_refuses_hostile_json(there: Harness) -> None:
    before = stored(there)
    for route in WITH_BODY:
        for name, data in REFUSED.items():
            status, problem = sent(there, route, data)
            if not data:
                assert status in (400, 422) or route.method == "POST", (route.name, name)
                continue
            assert (status, problem["code"]) == (400, "malformed"), (route.name, name)
            assert len(json.dumps(problem)) < 1_000
        assert stored(there)[0].keys() >= before[0].keys(), route.name
    for route in (route for route in WITH_BODY if route.writes):
        for data in list(REFUSED.values())[:6]:
            sent(there, route, b'{"messages": [{"role": "user", "content": "half"}], "x": ' + data + b"}")
    assert b"half" not in b"".join(str(item).encode() for item in stored(there)[0].values())
    assert len(list(there.log("111122223333", "agent-backend").sessions.get("s").messages())) == 2


@on_sqlite
def test_v3_a_route_without_a_body_takes_none(there: Harness) -> None:
    for route in ROUTES:
        if route not in WITH_BODY and "users/me" not in route.path and route.method != "DELETE":
            for data in (KEPT["__proto__"], REFUSED["33 arrays"], b"1"):
                assert 400 <= sent(there, route, data)[0] < 500, route.name


@on_sqlite
def test_v3_strict_json_where_any_is_taken_comes_back_equal(there: Harness) -> None:
    for name, data in KEPT.items():
        value, session = parse_strict_json(data), there.log("111122223333", "agent-backend").sessions.create()
        if name.startswith("32 "):
            continue  # with what is around it, it is too deep: refused, as the test above has it
        before = session.info().head
        session.put_state({"value": value})
        assert same(session.state()["state"]["value"], value), name
        message = {"role": "user", "content": "x", "value": value}
        session.append(message)
        assert same(list(session.messages())[-1].body, message), name
        session.update(metadata={"value": value})
        assert same(session.info().metadata, {"value": value}), name
        assert session.info().head > before


# ------------------------------------------------------------ parameters, ids, cursors


@on_sqlite
def test_v3_no_parameter_makes_a_5xx(there: Harness) -> None:
    tried = 0
    for route in ROUTES:
        needed = {name: value for name, value in (("q", "x"), ("ref", "2.0"), ("from", "1")) if _takes(route, name)}
        for parameter in route.parameters:
            for text in SENDABLE[tried % EACH :: EACH]:
                status, problem = sent(there, route, query={**needed, parameter.name: text})
                assert status < 500, (route.name, parameter.name, text)
                assert len(json.dumps(problem)) < 20_000
                tried += 1
    assert tried > 1_000 // EACH


def _takes(route: Route, name: str) -> bool:
    return any(parameter.name == name for parameter in route.parameters)


@on_sqlite
def test_v3_no_id_in_a_path_makes_a_5xx(there: Harness) -> None:
    body = b'{"messages": [{"role": "user", "content": "x"}], "state": {}, "decision": "reject", "action": "x"}'
    for at, route in enumerate(ROUTES):
        for name in PATH:
            if "{" + name + "}" not in route.path or route.name in ("erase_session", "end_session"):
                continue
            for text in STRINGS[at % EACH :: EACH]:
                status, _ = sent(there, route, body if route in WITH_BODY else None, path={name: text})
                assert status < 500, (route.name, name, text)
    names = {session.session_id for session in there.log("111122223333", "agent-backend").sessions.list()}
    assert all(name.replace("-", "").replace("_", "").isalnum() and name.isascii() for name in names)


# ------------------------------------------------------------ workers


@on_sqlite
def test_v3_a_worker_gives_back_what_is_no_job_and_does_its_neighbours(there: Harness) -> None:
    log = there.log("111122223333", "agent-backend")
    log.sessions.get("s").compress(mode="async")
    assert there.app.engine.queue is not None
    (real,) = there.app.engine.queue.receive()
    before = stored(there)
    bodies = [data.decode("utf-8", "replace") for data in REFUSED.values()]
    bodies += [data.decode("utf-8", "replace") for data in KEPT.values()]
    fields = json.loads(real.body)
    bodies += [
        json.dumps({**fields, name: text})
        for name in ("tenant", "user", "session_id", "kind", "v")
        for text in SENDABLE
    ]
    for start in range(0, len(bodies), 9):
        hostile = [Delivery(f"m{at}", body, f"r{at}", 1) for at, body in enumerate(bodies[start : start + 9])]
        answer = make_worker(JOB_KINDS, there.app)(sqs_event(hostile, now_ms=0), LocalContext(60_000))
        failed = {batchitemfailure["itemIdentifier"] for batchitemfailure in answer["batchItemFailures"]}
        done = {item.job_id for item in hostile} - failed
        # A message of an owner who has no such job is over: nothing is done for it.
        assert all(bodies[start + int(item[1:])].startswith('{"v": 1') for item in done)
    assert stored(there) == before
    neighbours = [Delivery("bad", bodies[0], "r", 1), real, Delivery("worse", bodies[1], "r", 1)]
    answer = make_worker(JOB_KINDS, there.app)(sqs_event(neighbours, now_ms=0), LocalContext(60_000))
    assert {batchitemfailure["itemIdentifier"] for batchitemfailure in answer["batchItemFailures"]} == {"bad", "worse"}
    assert log.job(fields["job_id"]).status == "done"


# ------------------------------------------------------------ files


def test_v3_a_hostile_file_is_refused_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    with Turnlog.open("memory://") as log:
        for at, (name, data) in enumerate({**REFUSED, **KEPT}.items()):
            path = tmp_path / f"file-{at}.json"
            path.write_bytes(data)
            try:
                report = import_files(log, [path])
            except TurnlogError as error:
                assert len(error.detail) < 2_000, name
            else:
                assert all(not row.written for row in report.sessions), name
        assert list(log.sessions.list()) == []


def test_v3_hostile_lines_do_not_harm_their_neighbours(tmp_path: Path) -> None:
    """Of a log with lines; a file that is one list of sessions is taken whole or not at all."""
    good = (ROOT / "tests" / "importers" / "samples" / "coding-agent.jsonl").read_bytes().splitlines()
    bad = [
        item
        for item in REFUSED.values()
        if b"\n" not in item and item.strip() and len(item) < 50_000 and _is_utf8(item)
    ]
    paths = [tmp_path / "good.jsonl", tmp_path / "mixed" / "good.jsonl", tmp_path / "flat.jsonl"]
    paths[1].parent.mkdir()
    paths[0].write_bytes(b"\n".join(good))
    paths[1].write_bytes(b"\n".join([good[0], *bad, *good[1:]]))
    result = list[list[Any]]()
    for path in paths[:2]:
        with Turnlog.open("memory://") as log:
            report = import_files(log, [path])
            assert report.ok
            sessions = sorted(log.sessions.list(), key=lambda item: item.session_id)
            result.append(
                [message.body for session in sessions for message in log.sessions.get(session.session_id).messages()]
            )
    assert result[0] == result[1] and len(result[0]) > 5
    flat = b'{"id": "good", "messages": [{"kind": "user", "content": "hi", "timestamp": 1763683201000}]}'
    paths[2].write_bytes(b"\n".join([flat, *bad]))
    with Turnlog.open("memory://") as log:
        with pytest.raises(TurnlogError):
            import_files(log, [paths[2]])
        assert list(log.sessions.list()) == []


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("command", ["lint", "import", "chat"])
def test_v3_the_command_line_says_in_one_line_that_a_file_is_hostile(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from turnlog.cli.app import app

    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    few = {name: data for name, data in list(REFUSED.items())[::6] if len(data) < 100_000}
    for at, (name, data) in enumerate((REFUSED if is_full() else few).items()):
        path = tmp_path / f"file-{at}.json"
        path.write_bytes(data)
        arguments = ["chat", "--script", str(path), "--data", "d"] if command == "chat" else [command, str(path)]
        result = runner.invoke(app, arguments, input="")
        assert result.exception is None or isinstance(result.exception, SystemExit | TurnlogError), (
            name,
            result.exception,
        )
        assert "Traceback" not in result.output, name
        assert result.exit_code != 0 or command == "chat" or name in ("a byte order mark", "lines"), (
            name,
            result.output,
        )


# ------------------------------------------------------------ MCP


def test_v3_tools_of_mcp_answer_hostile_arguments_with_an_error() -> None:
    pytest.importorskip("mcp")
    from tests.support.mcp_calls import asked, talked
    from turnlog.integrations.mcp import make_server

    calls = list[tuple[str, dict[str, Any]]]()
    for text in SENDABLE[::EACH]:
        desk = {"session_id": "desk"}
        calls += [
            ("recall_tool_call", {"session_id": text, "ref": "3.0"}),
            ("recall_tool_call", {**desk, "ref": text}),
            ("recall_tool_call", {**desk, "ref": "3.0", "pattern": text}),
            ("recall_tool_call", {**desk, "ref": "3.0", "pointer": text}),
            ("search_history", {**desk, "q": text}),
            ("build_context", {**desk, "policy": text}),
            ("list_sessions", {"cursor": text}),
            ("append_message", {**desk, "content": 7}),
        ]
    with Turnlog.open("memory://") as log:
        talked(log)
        before = log.sessions.get("desk").info().head
        answers = asyncio.run(asked(make_server(log), *calls))
        assert len(answers) == len(calls)
        for (tool, arguments), (text, is_error) in zip(calls, answers, strict=True):
            assert "Traceback" not in text and "Internal" not in text, (tool, arguments, text)
            is_read = tool in ("search_history", "recall_tool_call", "build_context", "list_sessions")
            assert is_error or is_read, (tool, arguments, text)
        assert log.sessions.get("desk").info().head == before
