"""The page Limits: each limit of the API is taken at its value, and refused at one more with the error that the page tells."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.effort import is_full
from tests.http.events import event
from turnlog.app import Application, make_application
from turnlog.client.model import Turnlog
from turnlog.core import json_patch as patches
from turnlog.core import json_values as jsonvalue
from turnlog.core.errors import TooLargeError
from turnlog.core.json_values import encode_json
from turnlog.core.limits import MAX_APPEND_MESSAGES, MAX_BODY_BYTES, MAX_POSITION, MAX_WINDOW_MESSAGES
from turnlog.http.api import MAX_BODY_VALUES
from turnlog.http.lambda_api import make_handler
from turnlog.linter import routes as lint
from turnlog.log import request_keys
from turnlog.log.packing import MAX_UNPACKED_BYTES
from turnlog.routing import ROUTES
from turnlog.search.models import MAX_QUESTION_CHARS, MAX_RECALL_TOKENS
from turnlog.sessions import document_models as documents
from turnlog.sessions import history, incoming, update
from turnlog.sessions import message_models as messages
from turnlog.sessions import models as sessions
from turnlog.sessions import state as changes
from turnlog.sessions import state_schema as schemas
from turnlog.sessions.state_store import MAX_STATE_BYTES
from turnlog.settings import Settings
from turnlog.snapshots import export_routes as exports
from turnlog.snapshots import routes as snapshots
from turnlog.summaries import routes as summaries

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
ROWS = {
    what: (limit, status, code)
    for what, limit, status, code in re.findall(r"^\| ([^|]+) \| ([^|]+) \| (\d{3}) `(\w+)` \|$", PAGE, re.M)
}
S = "/v1/sessions/s"
Request = dict[str, Any]
KB, MB = 1024, 1024 * 1024


def ask(method: str, path: str, **given: Any) -> Request:
    return {"method": method, "path": path, **given}


def text_of(size: int) -> dict[str, Any]:
    """A message of so many bytes as JSON."""
    empty = len(encode_json({"role": "user", "content": ""}))
    return {"role": "user", "content": "x" * (size - empty)}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def append(*given: Any, **more: Any) -> Request:
    return ask("POST", f"{S}/messages", body={"messages": list(given)}, **more)


def create(**fields: Any) -> Request:
    return ask("POST", "/v1/sessions", body=fields)


def get(path: str, **query: Any) -> Request:
    return ask("GET", path, query={name: str(value) for name, value in query.items()})


def padded(size: int) -> Request:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    return ask("POST", "/v1/lint", raw=body + " " * (size - len(body)))


def settings_of(size: int) -> Request:
    """Metadata so long that all settings together have so many bytes."""
    empty = len(encode_json([None, [], "default", {"a": ""}]))
    return create(metadata={"a": "x" * (size - empty)})


def schema_of(size: int) -> Request:
    empty = len(encode_json({"title": ""}))
    return create(state_schema={"title": "x" * (size - empty)})


def state_of(size: int) -> list[Request]:
    """More than a body has room for: put in two parts."""
    empty, half = len(encode_json({"a": "", "b": ""})), size // 2
    return [
        ask("PUT", f"{S}/state", body={"state": {"a": "x" * half}}),
        ask("PATCH", f"{S}/state", body={"b": "x" * (size - empty - half)}),
    ]


def record_of(size: int) -> Request:
    empty = len(encode_json({"a": ""}))
    return ask("POST", f"{S}/history", body={"action": "note", "metadata": {"a": "x" * (size - empty)}})


def document(**fields: Any) -> dict[str, Any]:
    return {"key": "k", "data": "", **fields}


def write(*puts: dict[str, Any]) -> Request:
    return ask("POST", f"{S}/documents", body={"put": list(puts)})


def patch_of(count: int) -> Request:
    operations = [{"op": "add", "path": "/a", "value": 1}] * count
    return ask("PATCH", f"{S}/state", body=operations, headers={"content-type": "application/json-patch+json"})


def patch_steps(count: int) -> list[Request]:
    """A value that is moved to and fro, and tests of 9 steps for what is no multiple of 4."""
    tests = next(number for number in range(4) if (count - 9 * number) % 4 == 0)
    values = (count - 9 * tests) // 4 - 9
    moves = [{"op": "move", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a"}] * 2
    operations = [*moves, *[{"op": "test", "path": "/n", "value": 0}] * tests]
    return [
        create(session_id="steps", state={"a": [0] * values, "n": 0}),
        ask(
            "PATCH",
            "/v1/sessions/steps/state",
            body=operations,
            headers={"content-type": "application/json-patch+json"},
        ),
    ]


def schema_steps(count: int) -> list[Request]:
    """5 steps for each element of a list, 8 around it, and 3 for each other keyword."""
    others = next(number for number in range(5) if (count - 8 - 3 * number) % 5 == 0)
    names = ["minLength", "maxLength", "minItems", "maxItems"][:others]
    schema = {"properties": {"l": {"items": {"type": "integer"}}}, **dict.fromkeys(names, 0)}
    session = f"steps-{count}"
    return [
        create(session_id=session, state_schema=schema),
        ask("PUT", f"/v1/sessions/{session}/state", body={"state": {"l": [0] * ((count - 8 - 3 * others) // 5)}}),
    ]


def values_of_state(count: int) -> list[Request]:
    """More than a body has room for: put in two parts."""
    half = count // 2
    return [
        ask("PUT", f"{S}/state", body={"state": {"a": [0] * half}}),
        ask("PATCH", f"{S}/state", body={"b": [0] * (count - half - 3)}),
    ]


def calls_of(count: int) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call] * count}


Case = tuple[int, str, Callable[[int], "Request | list[Request]"]]
"""The limit, its unit, and the request of a size. A request that is within the limit may fail for another reason."""

CASES: dict[str, Case] = {
    "levels of JSON": (jsonvalue.MAX_DEPTH, "", lambda n: create(metadata=nested(n - 1))),
    "request body": (MAX_BODY_BYTES, "MiB", padded),
    "`Idempotency-Key`": (
        request_keys.MAX_KEY_CHARS,
        "characters",
        lambda n: append(text_of(40), headers={"idempotency-key": "k" * n}),
    ),
    "messages of one append": (MAX_APPEND_MESSAGES, "", lambda n: append(*[text_of(40)] * n)),
    "calls and results of one append": (incoming.MAX_CALLS, "", lambda n: append(calls_of(n))),
    "values of a JSON body": (
        MAX_BODY_VALUES,
        "",
        lambda n: ask("POST", "/v1/lint", body={"messages": [{"role": "user", "content": [0] * (n - 5)}]}),
    ),
    "values of system text, tools, policy and metadata together": (
        update.MAX_SETTINGS_VALUES,
        "",
        lambda n: create(metadata={"a": [0] * (n - 6)}),
    ),
    "values of a state": (changes.MAX_STATE_VALUES, "", values_of_state),
    "steps of a JSON Patch or Merge Patch": (patches.MAX_STEPS, "", patch_steps),
    "steps of checking a state and its schema": (schemas.MAX_STEPS, "", schema_steps),
    "calls and results of `POST /v1/window`": (
        incoming.MAX_CALLS,
        "",
        lambda n: ask("POST", "/v1/window", body={"messages": [calls_of(n)], "budget": 100_000_000}),
    ),
    "`title`": (200, "characters", lambda n: create(title="t" * n)),
    "session id": (256, "characters", lambda n: create(session_id="i" * n)),
    "`system`": (1_000_000, "characters", lambda n: create(system="s" * n)),
    "`tools`": (512, "", lambda n: create(tools=[{"name": f"t{number}"} for number in range(n)])),
    "system text, tools, policy and metadata together": (update.MAX_SETTINGS_BYTES, "MiB", settings_of),
    "`state_schema`": (schemas.MAX_SCHEMA_BYTES, "KiB", schema_of),
    "`ttl_days`": (36_500, "", lambda n: create(ttl_days=n)),
    "`loop_timeout_seconds`": (31_536_000, "", lambda n: create(loop_timeout_seconds=n)),
    "`snapshots.keep`": (sessions.MAX_KEPT, "", lambda n: create(snapshots={"every_loops": 1, "keep": n})),
    "`snapshots.keep_named`": (sessions.MAX_KEPT, "", lambda n: create(snapshots={"keep_named": n})),
    "`bootstrap.max_tokens`": (20_000, "", lambda n: create(bootstrap={"max_tokens": n})),
    "state": (MAX_STATE_BYTES, "MiB", state_of),
    "levels of a state": (
        changes.MAX_STATE_DEPTH,
        "",
        lambda n: ask("PUT", f"{S}/state", body={"state": nested(n)}),
    ),
    "operations of a JSON Patch": (patches.MAX_OPERATIONS, "", patch_of),
    "`metadata` of an entry of the history": (history.MAX_METADATA_BYTES, "KiB", record_of),
    "`budget`": (100_000_000, "tokens", lambda n: ask("POST", f"{S}/context", body={"budget": n})),
    "position": (MAX_POSITION, "", lambda n: get(f"{S}/messages", after=n)),
    "page of messages": (100, "", lambda n: get(f"{S}/messages", limit=n)),
    "page of loops": (100, "", lambda n: get(f"{S}/loops", limit=n)),
    "page of history": (1_000, "", lambda n: get(f"{S}/history", limit=n)),
    "page of sessions": (100, "", lambda n: get("/v1/sessions", limit=n)),
    "page of snapshots": (100, "", lambda n: get(f"{S}/snapshots", limit=n)),
    "page of jobs": (100, "", lambda n: get("/v1/jobs", limit=n)),
    "page of memories": (100, "", lambda n: get("/v1/users/me/memory", limit=n)),
    "results of a search": (50, "", lambda n: get(f"{S}/search", q="order", limit=n)),
    "question of a search": (MAX_QUESTION_CHARS, "characters", lambda n: get(f"{S}/search", q="x" * n)),
    "`max_tokens` of a recall": (MAX_RECALL_TOKENS, "", lambda n: get(f"{S}/recall", ref="2.0", max_tokens=n)),
    "`max_tokens` of a summary": (
        summaries.MAX_SUMMARY_TOKENS,
        "",
        lambda n: ask("POST", f"{S}/compress", body={"mode": "sync", "max_tokens": n}),
    ),
    "name of a snapshot": (128, "characters", lambda n: ask("POST", f"{S}/snapshots", body={"name": "n" * n})),
    "`seconds` of a lease": (
        messages.MAX_LEASE_SECONDS,
        "",
        lambda n: ask("POST", f"{S}/lease", body={"holder": "a-run", "seconds": n}),
    ),
    "`keep` of a snapshot": (sessions.MAX_KEPT, "", lambda n: ask("POST", f"{S}/snapshots", body={"keep": n})),
    "documents of one writing": (
        documents.MAX_WRITTEN,
        "",
        lambda n: write(*(document(key=f"k{at}") for at in range(n))),
    ),
    "documents that are read by key": (
        documents.MAX_READ,
        "",
        lambda n: ask("POST", f"{S}/documents/read", body={"keys": [f"k{at}" for at in range(n)]}),
    ),
    "key of a document": (512, "bytes", lambda n: write(document(key="k" * n))),
    "one document": (
        documents.MAX_DOCUMENT_BYTES,
        "MiB",
        lambda n: write(document(data=base64.b64encode(b"x" * n).decode())),
    ),
    "messages of `POST /v1/window`": (
        MAX_WINDOW_MESSAGES,
        "",
        lambda n: ask("POST", "/v1/window", body={"messages": [{"role": "user", "content": "x"}] * n}),
    ),
    "messages of `POST /v1/lint`": (
        lint.MAX_LINTED,
        "",
        lambda n: ask("POST", "/v1/lint", body={"messages": [{}] * n, "format": "openai_chat"}),
    ),
    "commits of one import": (
        1_000,
        "",
        lambda n: ask("POST", f"{S}-2/import", body={"head": 1, "hash": "0" * 32, "commits": ["x"] * n}),
    ),
}


LONG = {
    *("messages of `POST /v1/window`", "messages of `POST /v1/lint`"),
    *("steps of a JSON Patch or Merge Patch", "steps of checking a state and its schema"),
    *("values of a JSON body", "values of a state", "values of system text, tools, policy and metadata together"),
}
"""Those whose request at the limit takes seconds: that it is taken is tried in `make full`."""


@pytest.fixture(scope="module")
def app() -> Iterator[Application]:
    made = make_application(Settings(engine="memory://"))
    yield made
    made.close()


def last_answer(app: Application, requests: Request | list[Request]) -> tuple[int, str]:
    handler = make_handler(ROUTES, app)
    handler(event("POST", "/v1/sessions", body={"session_id": "s", "if_exists": "return"}), None)
    answer: dict[str, Any] = {}
    for request in requests if isinstance(requests, list) else [requests]:
        answer = handler(event(**request), None)
    body = json.loads(answer["body"] or "{}")
    return answer["statusCode"], body.get("code", "")


def shown(limit: int, unit: str) -> str:
    scale = {"MiB": MB, "KiB": KB}.get(unit, 1)
    return f"{limit / scale:,g} {unit}".strip() if scale > 1 else f"{limit:,} {unit}".strip()


@pytest.mark.parametrize("what", CASES)
def test_a_limit_is_taken_and_one_more_is_refused(app: Application, what: str) -> None:
    limit, unit, request = CASES[what]
    result, status, code = ROWS[what]
    assert result == shown(limit, unit)
    if what not in LONG or is_full():
        within, error = last_answer(app, request(limit))
        assert within < 300 or error != code
    assert last_answer(app, request(limit + 1)) == (int(status), code)


BYTES = "bytes of one append, [uploaded](api.md#large-requests) over 4.25 MiB"


def test_a_message_has_32_mib_in_process_and_what_is_over_it_is_named(tmp_path: Path) -> None:
    assert ROWS[BYTES] == (shown(messages.MAX_APPEND_BYTES, "MiB"), "413", "too_large")
    with Turnlog.open(tmp_path / "agent.db") as log:
        session = log.sessions.create("s")
        with pytest.raises(TooLargeError) as raised:
            session.append({"role": "user", "content": "hi"}, text_of(messages.MAX_APPEND_BYTES))
        assert "the largest, number 1, has 33,554,432" in raised.value.detail
        assert [problem.pointer for problem in raised.value.problems] == ["/messages/1"]
        with pytest.raises(TooLargeError, match="a message with its metadata has"):
            metadata = {"m": "x" * MAX_UNPACKED_BYTES}
            session.append({"role": "user", "content": "hi"}, meta=[{"metadata": metadata}])
        assert session.info().messages == 0


def test_every_limit_of_the_page_is_tried() -> None:
    assert set(ROWS) == {*CASES, BYTES}


def test_every_largest_number_of_a_contract_is_on_the_page() -> None:
    """A new ``MAX_`` of a contract has a row, or is no limit that a caller meets."""
    tried = {messages.MAX_APPEND_BYTES, *(limit for limit, _, _ in CASES.values())}
    contracts = (documents, exports, lint, messages, sessions, snapshots, summaries)
    values = {
        f"{contract.__name__}.{name}": value
        for contract in contracts
        for name, value in vars(contract).items()
        if name[:4] == "MAX_"
    }
    inside = {"MAX_DATA_CHARS", "MAX_TOKENS", "MAX_PROBLEMS"}
    assert {
        name for name, value in values.items() if value not in tried and name.rpartition(".")[2] not in inside
    } == set()
