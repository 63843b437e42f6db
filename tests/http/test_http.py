"""The HTTP entry: proxy events in, answers and problem documents out."""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.events import event
from tests.support.handlers import Service
from turnlog.core.errors import SHAPES, MalformedError, ThrottledError, UnavailableError
from turnlog.core.json_values import parse_strict_json
from turnlog.http.openapi import openapi_document
from turnlog.routing import ROUTES, Route, function_of, routes_of
from turnlog.settings import Settings


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def session(service: Service) -> Service:
    assert service("POST", "/v1/sessions", body={"session_id": "s"})[0] == 201
    return service


MESSAGE = {"messages": [{"role": "user", "content": "hi"}]}


def test_the_quick_start_works(service: Service) -> None:
    settings = {"session_id": "support-42", "system": "Be brief.", "recall": "never"}
    status, created, _ = service("POST", "/v1/sessions", body=settings)
    assert status == 201
    assert created["session_id"] == "support-42"
    status, appended, _ = service("POST", "/v1/sessions/support-42/messages", body=MESSAGE)
    assert status == 201
    assert {
        "first": 2,
        "last": 2,
        "head": 2,
        "loop": 1,
        "compression": "none",
        "warnings": [],
        "refs": [],
    }.items() <= appended.items()
    status, window, _ = service("POST", "/v1/sessions/support-42/context", body={"budget": 1000})
    assert status == 200
    assert window["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert window["manifest"]["budget"] == {"tokens": 1000, "source": "given"}
    status, page, _ = service("GET", "/v1/sessions/support-42/messages")
    assert (status, page["messages"][0]["body"], page["next"]) == (200, MESSAGE["messages"][0], None)
    assert service("GET", "/v1/sessions/support-42/loops")[1]["loops"][0]["user_message"] == "hi"
    assert service("GET", "/v1/sessions")[1]["sessions"][0]["session_id"] == "support-42"
    assert service("POST", "/v1/window", body={**MESSAGE, "budget": 100})[1]["messages"] == MESSAGE["messages"]


def test_if_exists_and_idempotency_keys(service: Service) -> None:
    body = {"session_id": "s"}
    assert service("POST", "/v1/sessions", body=body)[0] == 201
    status, problem, _ = service("POST", "/v1/sessions", body=body)
    assert (status, problem["code"]) == (409, "session_exists")
    assert service("POST", "/v1/sessions", body={**body, "if_exists": "return"})[0] == 200
    keyed = {"headers": {"Idempotency-Key": "k"}}
    first = service("POST", "/v1/sessions", body={"title": "t"}, **keyed)
    assert service("POST", "/v1/sessions", body={"title": "t"}, **keyed)[:2] == first[:2]
    appended = service("POST", "/v1/sessions/s/messages", body=MESSAGE, **keyed)
    assert service("POST", "/v1/sessions/s/messages", body=MESSAGE, **keyed)[:2] == appended[:2]
    status, problem, _ = service("POST", "/v1/sessions/s/messages", body={**MESSAGE, "run_id": "r"}, **keyed)
    assert (status, problem["code"]) == (422, "idempotency_mismatch")


MALFORMED = {
    "not JSON": "{",
    "nothing but a comma": ",",
    "duplicate keys": '{"messages": [], "messages": []}',
    "NaN": '{"messages": [{"role": "user", "content": NaN}]}',
    "infinity": '{"messages": [{"role": "user", "content": 1e999}]}',
    "65 bits": '{"messages": [{"role": "user", "content": "x", "n": 18446744073709551616}]}',
    "1000 digits": '{"n": ' + "9" * 1000 + "}",
    "33 levels": '{"messages": ' + "[" * 40 + "]" * 40 + "}",
    "100,000 levels": "[" * 100_000,
    "a byte order mark": '\ufeff{"messages": []}',
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_json_is_400(session: Service, kind: str) -> None:
    for path in ("/v1/sessions", "/v1/sessions/s/messages", "/v1/sessions/s/context", "/v1/window", "/v1/lint"):
        status, problem, headers = session("POST", path, raw=MALFORMED[kind])
        assert (status, problem["code"]) == (400, "malformed"), path
        assert headers["Content-Type"] == "application/problem+json" and "errors" not in problem


def test_an_integer_of_65_bits_is_refused_at_every_place_of_a_text() -> None:
    for blanks in map(" ".__mul__, range(40)):
        assert parse_strict_json(f"{blanks}18446744073709551615") == 2**64 - 1
        with pytest.raises(MalformedError, match="64 bits"):
            parse_strict_json(f"{blanks}18446744073709551616")


def test_bytes_that_are_not_utf8_are_400(session: Service) -> None:
    made = event("POST", "/v1/sessions/s/messages", raw=base64.b64encode(b'{"messages": "\xff"}').decode())
    answer = session.handler({**made, "isBase64Encoded": True}, None)
    assert answer["statusCode"] == 400
    assert session.handler({**made, "body": "***", "isBase64Encoded": True}, None)["statusCode"] == 400


def test_a_path_of_a_function_url_is_decoded_as_those_of_api_gateway_are(session: Service) -> None:
    name = "vor dem Umbau – 50%2F"
    session("POST", "/v1/sessions/s/snapshots", body={"name": name})
    session("POST", "/v1/sessions", body={"session_id": "a/b"})
    for path in (f"/v1/sessions/s/snapshots/{quote(name, safe='')}", "/v1/sessions/a%2Fb", "/v1/sessions/a%252Fb"):
        made = event("GET", path)
        made["requestContext"]["domainName"] = "abc.lambda-url.eu-central-1.on.aws"
        assert session.handler(made, None)["statusCode"] == 200, path


@pytest.mark.parametrize("path", ["/test/v1/sessions/s", "/v1/sessions/s"], ids=["address of the API", "own domain"])
def test_a_stage_with_a_name_is_no_part_of_the_path(session: Service, path: str) -> None:
    made = event("GET", path)
    made["requestContext"]["stage"] = "test"
    assert session.handler(made, None)["statusCode"] == 200


def test_an_event_in_another_payload_format_says_which_is_needed(session: Service) -> None:
    made = event("GET", "/v1/sessions/s")
    first_version = {
        "version": "1.0",
        "httpMethod": "GET",
        "path": made["rawPath"],
        "requestContext": {"requestId": "r-1"},
    }
    answer = session.handler(first_version, None)
    problem = json.loads(answer["body"])
    assert answer["statusCode"] == 400 and "payload format 2.0" in problem["detail"] and problem["request_id"] == "r-1"


INVALID: list[tuple[str, str, Any]] = [
    ("POST", "/v1/sessions", {"unknown": 1}),
    ("POST", "/v1/sessions", {"fork": {"session_id": "s", "at": 0}}),
    ("POST", "/v1/sessions", {"fork": {"session_id": "s"}, "state": {}}),
    ("POST", "/v1/sessions", {"fork": {}}),
    ("POST", "/v1/sessions/s/rewind", {"to": 999}),
    ("POST", "/v1/sessions/s/rewind", {}),
    ("POST", "/v1/sessions", {"recall": "sometimes"}),
    ("POST", "/v1/sessions", {"session_id": 7}),
    ("POST", "/v1/sessions", {"session_id": "no//slash"}),
    ("POST", "/v1/sessions", {"policy": "nope"}),
    ("POST", "/v1/sessions", {"policy": {"steps": [{"step": "nope"}]}}),
    ("POST", "/v1/sessions", {"policy": {"steps": [{"step": "turns", "n": -1}]}}),
    ("POST", "/v1/sessions", {"tools": "none"}),
    ("POST", "/v1/sessions", {"strict": "yes"}),
    ("POST", "/v1/sessions", []),
    ("POST", "/v1/sessions", 7),
    ("POST", "/v1/sessions/s/messages", None),
    ("POST", "/v1/sessions/s/messages", {}),
    ("POST", "/v1/sessions/s/messages", {"messages": []}),
    ("POST", "/v1/sessions/s/messages", {"messages": [7]}),
    ("POST", "/v1/sessions/s/messages", {"messages": [{"content": "no role"}]}),
    ("POST", "/v1/sessions/s/messages", {"messages": [{"role": ""}]}),
    ("POST", "/v1/sessions/s/messages", {**MESSAGE, "format": "gemini"}),
    ("POST", "/v1/sessions/s/messages", {**MESSAGE, "meta": [{}, {}]}),
    ("POST", "/v1/sessions/s/messages", {**MESSAGE, "meta": [{"pin": "yes"}]}),
    ("POST", "/v1/sessions/s/messages", {**MESSAGE, "run": {"agent_id": ""}}),
    ("POST", "/v1/sessions/s/messages", {**MESSAGE, "run": {"agent_id": 7}}),
    ("POST", "/v1/sessions/s/messages", {**MESSAGE, "if_head": -1}),
    ("POST", "/v1/sessions/s/messages", {**MESSAGE, "usage": {"input_tokens": -1, "output_tokens": 0}}),
    ("POST", "/v1/sessions/s/context", {"budget": 0}),
    ("POST", "/v1/sessions/s/context", {"format": "gemini"}),
    ("POST", "/v1/sessions/s/context", {"policy": "turns(x)"}),
    ("POST", "/v1/sessions/s/context", {"at": 0}),
    ("POST", "/v1/sessions/s/context", {"at": 999}),
    ("POST", "/v1/sessions/s/context", {"at": "now"}),
    ("POST", "/v1/sessions/s/context", {"at": "2001-01-01T00:00:00Z"}),
    ("POST", "/v1/sessions/s/context", {"build": {}}),
    ("POST", "/v1/sessions/s/context", {"build": {"renderer": 3, "position": 1}, "budget": 5}),
    ("POST", "/v1/window", {"messages": [], "at": 1}),
    ("POST", "/v1/window", {"messages": [], "build": None}),
    ("POST", "/v1/window", {"messages": [{"role": "user", "content": 5}]}),
    ("POST", "/v1/window", {"budget": 100}),
    ("POST", "/v1/lint", {"messages": 7}),
    ("POST", "/v1/lint", {"messages": [7]}),
    ("POST", "/v1/lint", {"messages": [], "format": "gemini"}),
    ("PATCH", "/v1/sessions/s/agents/main", {"iteration": 3, "max_iterations": 2}),
    ("PATCH", "/v1/sessions/s/agents/main", {"iteration": "three"}),
    ("PATCH", "/v1/sessions/s/agents/main", [1]),
    ("PATCH", "/v1/sessions/s/agents/h_x", {"iteration": 1}),
    ("PUT", "/v1/sessions/s/state", {}),
    ("PUT", "/v1/sessions/s/state", {"state": [1]}),
    ("PUT", "/v1/sessions/s/state", {"state": {}, "if_version": -1}),
    ("PUT", "/v1/sessions/s/state", {"state": {}, "action": "rewind"}),
    ("PUT", "/v1/sessions/s/state", {"state": {"agents": {"main": {}}}}),
    ("PATCH", "/v1/sessions/s/state", None),
    ("PATCH", "/v1/sessions/s/state", [{"op": "add", "path": "/a", "value": 1}]),
    ("PATCH", "/v1/sessions/s/state", "text"),
    ("POST", "/v1/sessions/s/agents/main/pending", None),
    ("POST", "/v1/sessions/s/agents/h_x/pending", {"decision": "approve"}),
    ("POST", "/v1/sessions/s/history", {"action": "create"}),
    ("POST", "/v1/sessions/s/history", {"action": "mine", "agent_id": ""}),
    ("POST", "/v1/sessions", {"session_id": "x", "state_schema": {"type": "nothing"}}),
    ("GET", "/v1/sessions/s", {"a": "body"}),
]


@pytest.mark.parametrize(("method", "path", "body"), INVALID)
def test_invalid_input_is_422_and_nothing_is_written(session: Service, method: str, path: str, body: Any) -> None:
    before = session("GET", "/v1/sessions/s")[1]["head"]
    status, problem, _ = session(method, path, raw=json.dumps(body) if body is not None else None)
    assert status == 422, problem
    assert problem["detail"]
    assert session("GET", "/v1/sessions/s")[1]["head"] == before


WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("/v1/sessions", {"bootstrap": "yes"}, ["/bootstrap"]),
    ("/v1/sessions", {"bootstrap": {"max_tokens": -1, "a/b": 1}}, ["/bootstrap/max_tokens", "/bootstrap/a~1b"]),
    ("/v1/sessions", {"policy": 5}, ["/policy"]),
    ("/v1/sessions", {"snapshots": {"every_loops": 0}}, ["/snapshots/every_loops"]),
    ("/v1/sessions", {"fork": {"session_id": 7}}, ["/fork/session_id"]),
    ("/v1/sessions/s/messages", {**MESSAGE, "meta": [{"recalled": [[]]}]}, ["/meta/0/recalled/0"]),
    (
        "/v1/sessions/s/messages",
        {**MESSAGE, "meta": [{"pin": "yes"}], "usage": {}},
        ["/meta/0/pin", "/usage/input_tokens"],
    ),
    ("/v1/sessions/s/messages", {}, ["/messages"]),
]


@pytest.mark.parametrize(("path", "body", "pointers"), WRONG)
def test_a_pointer_is_a_place_in_the_body(
    session: Service, path: str, body: dict[str, Any], pointers: list[str]
) -> None:
    """No name of ours, and none of the library that reads bodies, is in one."""
    status, problem, _ = session("POST", path, raw=json.dumps(body))
    fromkeys = dict.fromkeys(error["pointer"] for error in problem["errors"])
    assert status == 422 and list(fromkeys)[: len(pointers)] == pointers


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/messages", {"messages": [{}] * 26}, "messages has 26 items; at most 25 are allowed"),
        ("POST", "/messages", {"messages": []}, "messages has 0 items; at least 1 is needed"),
        ("POST", "/messages", {}, "messages is missing"),
        ("POST", "/messages", {"messages": {}}, "messages is not a list"),
        ("POST", "/messages", {**MESSAGE, "surprise": 1}, "unknown field 'surprise'"),
        ("POST", "/context", {"budget": "many"}, "budget is not an integer"),
        ("POST", "/context", {"budget": 0}, "budget is less than 1"),
        ("POST", "/context", {"include_current_loop": 1}, "include_current_loop is neither true nor false"),
        ("PATCH", "", {"title": "x" * 1000}, "title has more characters than 200"),
        ("PATCH", "", {"snapshots": {"every_loops": 0}}, "/snapshots/every_loops: every_loops is less than 1"),
        (
            "PATCH",
            "",
            {"policy": {"steps": [{"step": "messages", "n": -1}]}},
            "the policy is not valid: n is less than 0",
        ),
    ],
)
def test_a_wrong_field_is_refused_in_a_plain_sentence(
    session: Service, method: str, path: str, body: Any, says: str
) -> None:
    """None of it is what pydantic says, such as "Input should be a valid integer"."""
    status, problem, _ = session(method, f"/v1/sessions/s{path}", body=body)
    assert (status, problem["detail"]) == (422, says)
    assert "should" not in str(problem["errors"])


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/sessions", {"limit": "0"}),
        ("/v1/sessions", {"limit": "101"}),
        ("/v1/sessions", {"limit": "ten"}),
        ("/v1/sessions", {"limit": "²"}),
        ("/v1/sessions", {"offset": "20"}),
        ("/v1/sessions", {"status": "lost"}),
        ("/v1/sessions/s/messages", {"after": "-1"}),
        ("/v1/sessions/s/messages", {"before": "9999999999999999"}),
        ("/v1/sessions/s/messages", {"order": "random"}),
        ("/v1/sessions/s/messages", {"format": "gemini"}),
        ("/v1/sessions/s/loops", {"before": "0"}),
        ("/v1/health", {"x": "1"}),
    ],
)
def test_a_wrong_query_parameter_is_422_and_named(session: Service, path: str, query: dict[str, str]) -> None:
    status, problem, _ = session("GET", path, query=query)
    assert status == 422
    assert next(iter(query)) in problem["errors"][0]["pointer"]


def test_words_of_digits_are_searched_as_a_text(session: Service) -> None:
    session("POST", "/v1/sessions/s/messages", body={"messages": [{"role": "user", "content": "flight 2024"}]})
    status, answer, _ = session("GET", "/v1/sessions/s/search", query={"q": "2024"})
    assert (status, len(answer["results"])) == (200, 1)


def test_a_bad_cursor_is_400(session: Service) -> None:
    assert session("GET", "/v1/sessions", query={"cursor": "made-up"})[0] == 400


def test_a_body_that_is_too_large_is_413(session: Service) -> None:
    big = {"messages": [{"role": "user", "content": "x" * 4_456_449}]}
    assert session("POST", "/v1/lint", body=big)[0] == 413
    huge = {"messages": [{"role": "user", "content": "x" * 900_000}] * 50}
    assert session("POST", "/v1/sessions/s/messages", body=huge)[0] == 413


def test_another_content_type_is_415(session: Service) -> None:
    for content_type in ("text/plain", "application/xml", "multipart/form-data; boundary=x"):
        status, problem, _ = session(
            "POST", "/v1/sessions/s/messages", body=MESSAGE, headers={"content-type": content_type}
        )
        assert (status, problem["code"]) == (415, "unsupported_media_type")
        assert " is not application/json: send the header" in problem["detail"]
    for content_type in ("application/json; charset=utf-8", "APPLICATION/JSON"):
        assert (
            session("POST", "/v1/sessions/s/messages", body=MESSAGE, headers={"content-type": content_type})[0] == 201
        )


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("BR", 415), ("identity", 201)])
def test_a_compressed_body_is_415(session: Service, encoding: str, status: int) -> None:
    headers = {"content-type": "application/json", "Content-Encoding": encoding}
    answer = session("POST", "/v1/sessions/s/messages", body=MESSAGE, headers=headers)
    assert answer[0] == status and (status == 201 or "without a header Content-Encoding" in answer[1]["detail"])
    assert session("GET", "/v1/sessions", headers={"content-encoding": encoding})[0] == 200, "there is no body"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_body_without_content_type_is_415_on_every_route(session: Service, route: Route) -> None:
    path = re.sub("{.*?}", "s", route.path)
    before = session("GET", "/v1/sessions")[1]
    for body in ({"position": 1}, MESSAGE, []):
        for headers in (
            None,
            {},
            {"content-type": ""},
            {"Content-Type": " ; charset=utf-8"},
            {"content-type": "text/plain"},
        ):
            request = {**event(route.method, path, body=body), "headers": headers}
            answer = session.handler(request, None)
            assert (answer["statusCode"], json.loads(answer["body"])["code"]) == (415, "unsupported_media_type")
    assert session("GET", "/v1/sessions")[1] == before


def test_a_json_patch_has_its_own_content_type_and_its_own_route(session: Service) -> None:
    kind = {"content-type": "application/json-patch+json"}
    operations = [{"op": "add", "path": "/a", "value": None}]
    assert session("PATCH", "/v1/sessions/s/state", body=operations, headers=kind)[:2] == (
        200,
        {"state": {"a": None}, "version": 2},
    )
    assert session("PATCH", "/v1/sessions/s/state", body={"a": 1}, headers=kind)[0] == 422
    merge = {"content-type": "application/merge-patch+json"}
    answer = session("PATCH", "/v1/sessions/s/state", body={"a": {"b": 1}}, headers=merge, query={"if_version": "2"})
    assert answer[:2] == (200, {"state": {"a": {"b": 1}}, "version": 3})
    status, problem, _ = session("PATCH", "/v1/sessions/s/state", body={"a": 2}, query={"if_version": "2"})
    assert (status, problem["code"], problem["version"]) == (409, "version_mismatch", 3)
    for method, path in (("PUT", "state"), ("PATCH", "agents/main"), ("POST", "messages")):
        assert session(method, f"/v1/sessions/s/{path}", body=operations, headers=kind)[0] == 415
    text = {"content-type": "text/plain"}
    status, problem, _ = session("PATCH", "/v1/sessions/s/state", body=operations, headers=text)
    assert status == 415 and "is not application/json or application/merge-patch+json or" in problem["detail"]


def test_what_is_not_there_is_404(session: Service) -> None:
    for method, path in (("GET", "/v1/sessions/none"), ("GET", "/v2/sessions"), ("DELETE", "/v1/health"), ("GET", "/")):
        status, problem, _ = session(method, path)
        assert (status, problem["code"]) == (404, "not_found")


def test_a_budget_that_is_too_small_says_what_is_needed(session: Service) -> None:
    session("POST", "/v1/sessions/s/messages", body=MESSAGE)
    status, problem, _ = session("POST", "/v1/sessions/s/context", body={"budget": 2})
    assert (status, problem["code"]) == (422, "budget_too_small")
    assert session("POST", "/v1/sessions/s/context", body={"budget": problem["needed"]})[0] == 200


def test_a_wrong_head_names_the_head(session: Service) -> None:
    status, problem, _ = session("POST", "/v1/sessions/s/messages", body={**MESSAGE, "if_head": 9})
    assert (status, problem["code"], problem["head"]) == (409, "head_mismatch", 1)


@pytest.mark.parametrize(
    ("error", "status"),
    [(UnavailableError("x", retry_after_seconds=1), 503), (ThrottledError("x", retry_after_seconds=2), 429)],
)
def test_an_engine_that_fails_is_503_or_429_with_retry_after(
    session: Service, error: UnavailableError, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(session.app.engine.items, "query", failing)
    answered, problem, headers = session("POST", "/v1/sessions/s/messages", body=MESSAGE)
    assert (answered, headers["Retry-After"]) == (status, str(error.retry_after_seconds))
    assert problem["request_id"] == "request-1"


def test_an_unexpected_error_is_500_without_contents(
    session: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(session.app.engine.items, "query", failing)
    with caplog.at_level(logging.ERROR, logger="turnlog"):
        status, problem, _ = session("GET", "/v1/sessions/s")
    assert (status, problem["code"]) == (500, "internal")
    assert "secret" not in json.dumps(problem)
    assert caplog.records


# ------------------------------------------------------------ identity


def test_no_authoriser_is_401(service: Service) -> None:
    for authorizer in (
        {},
        {"iam": {}},
        {"iam": {"userArn": "nonsense"}},
        {"iam": {"userArn": 7}},
        {"jwt": {"claims": {"sub": "a"}}},
    ):
        status, problem, _ = service("GET", "/v1/sessions", authorizer=authorizer)
        assert (status, problem["code"]) == (401, "unauthorized")
    assert service("GET", "/v1/health", authorizer={})[0] == 200


def test_a_named_user_is_refused_but_for_delegating_principals() -> None:
    plain, delegating = Service(), Service(Settings(token_counter="estimate", delegating_principals=("agent-backend",)))
    header = {"X-Turnlog-User": "ada@example.com"}
    assert plain("GET", "/v1/sessions", headers=header)[0] == 403
    assert delegating("POST", "/v1/sessions", body={"session_id": "s"}, headers=header)[0] == 201
    assert delegating("GET", "/v1/sessions/s", headers=header)[1]["user"] == "ada@example.com"
    assert delegating("GET", "/v1/sessions/s", headers={"x-turnlog-user": "bob"})[0] == 404
    assert delegating("GET", "/v1/sessions/s")[0] == 404
    assert delegating("GET", "/v1/sessions", headers={"x-turnlog-user": " "})[0] == 403


def test_claims_name_tenant_and_user() -> None:
    service = Service(Settings(token_counter="estimate", identity="jwt", tenant_claim="org", user_claim="email"))
    claims = {"jwt": {"claims": {"org": "acme", "email": "ada@example.com"}}}
    assert service("POST", "/v1/sessions", body={"session_id": "s"}, authorizer=claims)[0] == 201
    assert service("GET", "/v1/sessions/s", authorizer=claims)[1]["user"] == "ada@example.com"
    other = {"jwt": {"claims": {"org": "other", "email": "ada@example.com"}}}
    assert service("GET", "/v1/sessions/s", authorizer=other)[0] == 404
    half = [{"org": "acme"}, {"email": "x"}, {"org": "", "email": "x"}, {"org": "acme", "email": ""}]
    for wrong in (*half, {"org": ["acme"], "email": "x"}, {"org": "acme", "email": 5}):
        assert service("GET", "/v1/sessions", authorizer={"jwt": {"claims": wrong}})[0] == 401


# ------------------------------------------------------------ functions


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TURNLOG_ENGINE", f"sqlite:///{tmp_path}/turnlog.db")
    monkeypatch.setenv("TURNLOG_TOKEN_COUNTER", "estimate")
    yield


def test_every_route_has_its_function() -> None:
    root = Path(__file__).parent.parent.parent / "functions" / "api"
    assert {path.stem for path in root.glob("*.py")} - {"__init__"} == {function_of(route.resource) for route in ROUTES}


@pytest.mark.parametrize("route", [route for route in ROUTES if route.endpoint is None], ids=lambda route: route.name)
def test_a_route_calls_its_use_case_with_what_it_takes(route: Route, service: Service) -> None:
    body = ["body"] if route.body is not None else ["patch"] if route.free_body else []
    arguments = [*route.path_names, *body]
    query = {parameter.name: parameter for parameter in route.parameters}
    use_case = inspect.signature(getattr(service.app, route.name))
    bound = use_case.bind("owner", *arguments, **query, **({"key": "a key"} if route.writes else {}))
    assert all(name in query or name in ("key", value) for name, value in bound.arguments.items())
    for name, parameter in query.items():
        default = use_case.parameters[name].default
        assert default == parameter.default or (parameter.default is None and default in (None, 0, False))
    assert route.answers, "the type of an answer tells its status"


@pytest.mark.usefixtures("environment")
def test_functions_share_one_log() -> None:
    handlers = {
        name: importlib.import_module(f"api.{name}").handler
        for name in ("sessions", "append", "build_context", "health")
    }
    created = handlers["sessions"](event("POST", "/v1/sessions", body={"session_id": "s", "recall": "never"}), None)
    assert created["statusCode"] == 201
    assert handlers["append"](event("POST", "/v1/sessions/s/messages", body=MESSAGE), None)["statusCode"] == 201
    window = handlers["build_context"](event("POST", "/v1/sessions/s/context"), None)
    assert json.loads(window["body"])["messages"] == MESSAGE["messages"]
    assert handlers["append"](event("GET", "/v1/sessions/s"), None)["statusCode"] == 404, "not this function's route"
    assert json.loads(handlers["health"](event("GET", "/v1/health"), None)["body"])["engine"] == "sqlite"


def test_settings_name_the_variable_that_is_wrong() -> None:
    from turnlog.core.errors import InvalidInputError

    for variables, name in (
        ({"TURNLOG_ENGIN": "memory://"}, "TURNLOG_ENGIN"),
        ({"TURNLOG_TOKEN_COUNTER": "x"}, "TURNLOG_TOKEN_COUNTER"),
        ({"TURNLOG_QUEUE_MAX_RECEIVES": "many"}, "TURNLOG_QUEUE_MAX_RECEIVES"),
    ):
        with pytest.raises(InvalidInputError, match=name):
            Settings.from_environment(variables)
    result = Settings.from_environment({"TURNLOG_DELEGATING_PRINCIPALS": "a, b", "TURNLOG_URL": "x", "HOME": "/"})
    assert result.delegating_principals == ("a", "b")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sqlite:",
        "sqlite:///",
        "sqlite://host/x",
        "mysql://x",
        "dynamodb://",
        "dynamodb://t",
        "dynamodb://t?bucket=b&x=1",
    ],
)
def test_an_engine_url_that_is_wrong_is_a_typed_error(url: str) -> None:
    from turnlog import Turnlog
    from turnlog.core.errors import InvalidInputError

    with pytest.raises(InvalidInputError):
        Turnlog.open(url)


def test_each_function_serves_only_its_routes() -> None:
    assert {route.resource for route in routes_of("append")} == {"append"}
    assert {route.resource for route in routes_of("messages")} == {"messages", "search"}
    assert sum(len(routes_of(name)) for name in {function_of(route.resource) for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("sent", ["a%252Fb@c", "a%2Fb%40c", "a%2Fb@c"])
def test_an_id_with_a_slash_is_one_part_of_the_path(service: Service, sent: str) -> None:
    """A gateway may decode a path once, so ``%252F`` arrives as it is or as ``%2F``; both reach the session."""
    service("POST", "/v1/sessions", body={"session_id": "a/b@c"})
    assert service("GET", f"/v1/sessions/{sent}")[1]["session_id"] == "a/b@c"
    assert service("POST", f"/v1/sessions/{sent}/messages", body=MESSAGE)[0] == 201
    assert service("GET", "/v1/sessions/a/b@c")[0] == 404


def test_the_document_takes_what_the_service_takes(service: Service) -> None:
    """A snapshot's name with spaces and dots, a position that is a number, and a body that may be left out."""
    paths = openapi_document()["paths"]
    service("POST", "/v1/sessions", body={"session_id": "s"})
    service("POST", "/v1/sessions/s/messages", body=MESSAGE)
    service("POST", "/v1/sessions/s/snapshots", body={"name": "before deploy 1.2"})
    assert service("GET", "/v1/sessions/s/snapshots/before deploy 1.2")[0] == 200

    def schema(path: str, method: str, name: str) -> dict[str, Any]:
        parameters = paths[path][method]["parameters"]
        return dict(next(parameter["schema"] for parameter in parameters if parameter["name"] == name))

    pattern = schema("/v1/sessions/{session_id}/snapshots/{snapshot}", "get", "snapshot")["pattern"]
    assert re.search(pattern, "before deploy 1.2") and not re.search(pattern, "a/b")
    assert schema("/v1/sessions/{session_id}/messages/{position}/redact", "post", "position")["type"] == "integer"
    assert service("POST", "/v1/sessions/s/context")[0] == 200
    assert paths["/v1/sessions/{session_id}/context"]["post"]["requestBody"]["required"] is False
    for path in ("/v1/sessions/{session_id}/state", "/v1/sessions/{session_id}/agents/{agent_id}"):
        for name, content in paths[path]["patch"]["requestBody"]["content"].items():
            free = (
                {"type": "array"}
                if name == "application/json-patch+json"
                else {"type": "object", "additionalProperties": True}
            )
            assert content["schema"] == free, "generated types take any object"


@pytest.mark.parametrize("route", [route for route in ROUTES if route.parameters], ids=lambda route: route.name)
def test_what_the_document_says_of_a_query_is_what_the_service_checks(service: Service, route: Route) -> None:
    """Without what is required, and beyond each bound, the answer is 422 that names the parameter."""
    service("POST", "/v1/sessions", body={"session_id": "s"})
    path = route.path.format(session_id="s", agent_id="a", snapshot="n")
    operation = openapi_document()["paths"][route.path][route.method.lower()]
    parameters = [parameter for parameter in operation["parameters"] if parameter["in"] == "query"]
    required = {parameter["name"]: "1" for parameter in parameters if parameter.get("required")}

    def faults(query: dict[str, str]) -> set[str]:
        status, problem, _ = service(route.method, path, query=query, body={} if route.free_body else None)
        return {fault["pointer"] for fault in problem.get("errors", ())} if status == 422 else set()

    for name, schema in ((parameter["name"], parameter["schema"]) for parameter in parameters):
        beyond = ["?"] if schema.keys() & {"enum", "pattern"} else []
        beyond += [str(schema["minimum"] - 1)] if "minimum" in schema else []
        beyond += [str(schema["maximum"] + 1)] if "maximum" in schema else []
        beyond += ["x" * (schema["minLength"] - 1)] if "minLength" in schema else []
        beyond += ["x" * (schema["maxLength"] + 1)] if "maxLength" in schema else []
        for value in beyond:
            assert f"/query/{name}" in faults({**required, name: value}), (name, value)
    for name in required:
        assert f"/query/{name}" in faults({other: "1" for other in required if other != name})


def test_the_name_of_an_unknown_parameter_is_a_short_step_of_a_pointer(service: Any) -> None:
    for name, step in (("a~b/c", "a~0b~1c"), ("x" * 20_000, "x" * 128)):
        status, problem, _ = service("GET", "/v1/sessions", query={name: "1"})
        assert (status, problem["errors"][0]["pointer"]) == (422, f"/query/{step}")
        assert len(json.dumps(problem)) < 1_000


def test_the_document_says_which_parameters_are_required() -> None:
    required = {
        (route.name, parameter["name"]): parameter["schema"]
        for route in ROUTES
        for parameter in openapi_document()["paths"][route.path][route.method.lower()].get("parameters", ())
        if parameter["in"] == "query" and parameter.get("required")
    }
    question = {"type": "string", "minLength": 1, "maxLength": 1_000}
    assert required == {
        ("diff_session", "from"): {"type": "string"},
        ("search_session", "q"): question,
        ("search_sessions", "q"): question,
    }


def test_an_error_about_a_pattern_says_in_words_what_it_takes() -> None:
    schemas = openapi_document()["components"]["schemas"]
    patterns = set(re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(schemas)))
    assert {json.loads(pattern) for pattern in patterns} <= set(SHAPES)
    service = Service()
    service("POST", "/v1/sessions", body={"session_id": "s"})
    _, problem, _ = service("POST", "/v1/sessions/s/snapshots", body={"name": "a/b"})
    assert problem["errors"][0]["message"] == "name is not a text without slashes and control characters"
