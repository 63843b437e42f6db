"""`POST /v1/lint`, and the same through the library: what a provider would refuse, named; nothing is stored."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import pytest

import turnlog
from tests.conftest import ROOT, SAMPLES
from tests.http.events import event
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.models import FORMATS
from turnlog.http.lambda_api import make_handler
from turnlog.linter import thinking
from turnlog.linter.lint_messages import LintHistories
from turnlog.linter.routes import MAX_LINTED, MAX_PROBLEMS, LintAnswer, LintFormat, LintMessages
from turnlog.linter.rules import image_side
from turnlog.linter.rules import lint as violations_of
from turnlog.routing import BY_NAME, ROUTES, routes_of
from turnlog.settings import Settings

CANARY = "canary-7f3a9c"
Lint = Callable[..., tuple[int, Any]]


@pytest.fixture
def lint() -> Iterator[Lint]:
    """The function's handler; its engine refuses every call."""
    app = make_application(Settings(engine="memory://", token_counter="estimate"))
    app.engine.close()
    handler = make_handler(routes_of("lint"), app)

    def ask(body: Any = None, raw: str | None = None) -> tuple[int, Any]:
        answer = handler(event("POST", "/v1/lint", body=body, raw=raw), None)
        return answer["statusCode"], json.loads(answer["body"])

    yield ask


def user(text: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


UNANSWERED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "openai_chat": (
        [
            user(),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            user(),
        ],
        "/messages/1/tool_calls/0",
    ),
    "openai_responses": (
        [user(), {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}],
        "/messages/1",
    ),
    "anthropic": (
        [
            user(),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            user(),
        ],
        "/messages/1/content/0",
    ),
    "bedrock_converse": (
        [
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
            {"role": "user", "content": [{"text": "hi"}]},
        ],
        "/messages/1/content/0/toolUse",
    ),
}
"""Format -> a history with one call that has no result, and the pointer to it."""


@pytest.mark.parametrize("format", UNANSWERED)
@pytest.mark.parametrize("is_given", [True, False])
def test_a_broken_rule_is_named_with_its_place_and_what_to_do(lint: Lint, format: str, is_given: bool) -> None:
    messages, pointer = UNANSWERED[format]
    status, answer = lint({"messages": messages, **({"format": format} if is_given else {})})
    assert status == 200
    assert answer.keys() == {"valid", "format", "total", "problems", "fingerprint"}
    assert (answer["valid"], answer["format"], answer["total"]) == (False, format, 1)
    (problem,) = answer["problems"]
    (violation,) = violations_of(messages, format=format)
    assert problem == {
        "rule": "call_unanswered",
        "pointer": pointer,
        "message": violation.message,
        "provider_says": violation.provider_says,
        "fix": violation.fix,
        "source": violation.source,
    }
    assert all(problem.values())


@pytest.mark.parametrize("format", UNANSWERED)
def test_a_valid_history_has_no_problem(lint: Lint, format: str) -> None:
    messages = UNANSWERED[format][0][:1]
    status, answer = lint({"messages": messages, "format": format})
    assert (answer.pop("fingerprint") is not None) == (format in thinking.SIGNED_FORMATS)
    assert (status, answer) == (200, {"valid": True, "format": format, "total": 0, "problems": []})


def test_the_formats_are_those_that_have_rules() -> None:
    from turnlog.linter import rules

    assert set(get_args(LintFormat)) == set(rules.FORMATS) == set(FORMATS) - {"turnlog", "ai_sdk", "openai_agents_js"}


def test_an_empty_list_is_a_broken_rule_and_no_error(lint: Lint) -> None:
    status, answer = lint({"messages": []})
    assert (status, answer["format"]) == (200, "openai_chat")
    assert [problem["rule"] for problem in answer["problems"]] == ["messages_empty"]


def test_messages_that_nothing_tells_of_have_no_say_in_what_the_format_is(lint: Lint) -> None:
    history = UNANSWERED["anthropic"][0]
    assert lint({"messages": [user()] * 9 + history})[1]["format"] == "anthropic"
    assert lint({"messages": [user()]})[1]["format"] == "openai_chat"
    assert lint({"messages": [*UNANSWERED["openai_chat"][0], *history, *history]})[1]["format"] == "anthropic"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/messages"),
        ({"messages": "hi"}, "/messages"),
        ({"messages": {"0": user()}}, "/messages"),
        ({"messages": [user(), 7]}, "/messages/1"),
        ({"messages": [user()], "format": "gemini"}, "/format"),
        ({"messages": [user()], "format": "turnlog"}, "/format"),
        ({"messages": [user()], "format": 7}, "/format"),
        ({"messages": [{"role": "assistant", "author": "bot", "content": "hi"}]}, "/format"),
        ({"messages": [user()], "strict": True}, "/strict"),
        ([user()], ""),
        (7, ""),
        (None, ""),
    ],
)
def test_what_is_no_request_is_422_with_a_pointer(lint: Lint, body: Any, pointer: str) -> None:
    status, problem = lint(body)
    assert (status, problem["code"]) == (422, "invalid_input")
    assert problem["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("raw", ["{", '{"messages": [], "messages": []}', '{"messages": [{"n": NaN}]}', "[" * 99])
def test_what_is_no_json_is_400(lint: Lint, raw: str) -> None:
    status, problem = lint(raw=raw)
    assert (status, problem["code"]) == (400, "malformed")


def test_an_answer_is_bounded_whatever_is_wrong(lint: Lint) -> None:
    many = [{"role": "user", "content": "x", **{f"k{at}": 1 for at in range(50)}}] * 50
    status, answer = lint({"messages": many, "format": "anthropic"})
    assert (status, answer["total"], len(answer["problems"])) == (200, 2_500, MAX_PROBLEMS)
    assert lint({"messages": [{}] * (MAX_LINTED + 1)})[0] == 422


def test_no_contents_are_in_logs_or_errors(lint: Lint, caplog: pytest.LogCaptureFixture) -> None:
    history = json.loads(json.dumps(UNANSWERED["anthropic"][0]).replace('"hi"', f'"{CANARY}"'))
    history[1]["content"][0]["input"] = {CANARY: CANARY}
    called = {"toolUseId": "a", "name": "f", "input": f'{{"q": "{CANARY}"}}'}
    bodies = [
        {"messages": history},
        {"messages": [*history, CANARY]},
        {"messages": [{"role": "assistant", "author": "bot", "content": CANARY}]},
        {"messages": history, "format": CANARY},
        {"messages": [{"role": "assistant", "content": [{"toolUse": called}]}], "format": "bedrock_converse"},
    ]
    with caplog.at_level(logging.DEBUG):
        for body in bodies:
            assert CANARY not in json.dumps(lint(body))
        assert CANARY not in json.dumps(lint(raw=f'{{"messages": [{{"role": "user", "content": "{CANARY}"}}'))
    assert CANARY not in caplog.text


def test_nothing_is_asked_of_the_store(lint: Lint) -> None:
    """The fixture's engine is closed: what calls it fails."""
    assert lint({"messages": [user()]})[0] == 200
    app = make_application(Settings(engine="memory://", token_counter="estimate"))
    app.engine.close()
    answer = make_handler(routes_of("sessions"), app)(event("GET", "/v1/sessions/s"), None)
    assert answer["statusCode"] >= 500
    assert BY_NAME["lint_messages"].writes is False
    assert {route.name for route in ROUTES if route.resource == "lint"} == {"lint_messages"}


# ------------------------------------------------------------ the library


@pytest.mark.parametrize("format", UNANSWERED)
def test_the_library_gives_the_same_answer_in_every_way(lint: Lint, format: str) -> None:
    messages = UNANSWERED[format][0]
    over_http = LintAnswer.model_validate(lint({"messages": messages, "format": format})[1])
    assert turnlog.lint(messages, format=format) == turnlog.lint(messages) == over_http
    assert LintHistories()(LintMessages.model_validate({"messages": messages})) == over_http
    with Turnlog.open("memory://") as log:
        assert log.lint(messages) == log.lint(messages, format=format) == over_http
        assert list(log.sessions.list()) == []


def test_the_library_refuses_what_the_route_refuses() -> None:
    wrong: list[Any] = [7, "hi"]
    with pytest.raises(InvalidInputError) as caught:
        turnlog.lint(wrong)
    assert caught.value.problems[0].pointer == "/messages/0"
    with pytest.raises(InvalidInputError, match="format"):
        turnlog.lint([user()], format="smoke_signals")
    with pytest.raises(MalformedError):
        turnlog.lint([{"role": "user", "content": float("nan")}])


def test_the_samples_of_the_house_are_judged() -> None:
    sample = json.loads((SAMPLES / "support-agent.json").read_text("utf-8"))
    assert turnlog.lint(sample["messages"]).valid


def test_the_function_needs_no_extra_and_no_counter() -> None:
    """`import turnlog` loads nothing; linting loads no SDK, no server, no vocabulary, no engine."""
    code = (
        "import sys, turnlog\n"
        "assert sorted(name for name in sys.modules if name.startswith('turnlog')) == ['turnlog']\n"
        "assert turnlog.lint([{'role': 'user', 'content': 'hi'}]).valid\n"
        "heavy = {'boto3', 'botocore', 'aws_lambda_powertools', 'typer', 'rich', 'waitress', 'tiktoken',\n"
        "         'turnlog_vocabulary', 'turnlog.engines.sqlite'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")


def jpeg(frame: int, width: int, height: int) -> bytes:
    """A JPEG up to its frame, with tables before it whose markers are next to those of frames."""
    tables = b"".join(b"\xff" + bytes([marker]) + b"\0\x09" + b"\x7f" * 7 for marker in (0xE0, 0xC4, 0xC8, 0xCC))
    sides = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return b"\xff\xd8" + tables + b"\xff" + bytes([frame]) + b"\0\x11\x08" + sides


HEADS: dict[str, Callable[[int, int], bytes]] = {
    "PNG": lambda w, h: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + w.to_bytes(4, "big") + h.to_bytes(4, "big"),
    "GIF": lambda w, h: b"GIF89a" + w.to_bytes(2, "little") + h.to_bytes(2, "little"),
    **{f"JPEG of {frame:X}": partial(jpeg, frame) for frame in (0xC0, 0xC5, 0xC9, 0xCD, 0xCF)},
    "WebP of VP8X": lambda w, h: (
        b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (w - 1).to_bytes(3, "little") + (h - 1).to_bytes(3, "little")
    ),
    "WebP of VP8L": lambda w, h: (
        b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + (w - 1 | h - 1 << 14 | 1 << 28).to_bytes(4, "little")
    ),
    "WebP of VP8": lambda w, h: (
        b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + (w | 1 << 14).to_bytes(2, "little") + (h | 1 << 14).to_bytes(2, "little")
    ),
}
"""Kind of image -> its bytes up to its width and height."""


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("sides", [(300, 40), (40, 300), (16_383, 40), (40, 16_383)])
def test_the_longest_side_of_an_image_is_in_its_header(kind: str, sides: tuple[int, int]) -> None:
    head = HEADS[kind](*sides)
    for data in (head, head + bytes(300_000)):
        assert image_side(data) == image_side(base64.b64encode(data).decode()) == max(sides)
    for length in range(len(head)):
        assert image_side(head[:length]) >= 0
    assert image_side("x") == image_side(None) == image_side("é" * 9) == 0
