"""Models of `turnlog chat`: each provider's stream over real HTTP, and each wrong name, key and answer by its own words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat_server import StreamingServer
from turnlog import Turnlog
from turnlog.agents import RunResult
from turnlog.cli.chat import tools_of
from turnlog.cli.chat.models import model_of
from turnlog.core.errors import InvalidInputError, ThrottledError, TurnlogError, UnavailableError

pytestmark = pytest.mark.network
TOOLS = """
from __future__ import annotations
from typing import Literal

def price(sku: str, unit: Literal["eur", "usd"] = "eur") -> dict[str, object]:
    "The price of an article."
    return {"sku": sku, "price": 12.5, "unit": unit}

def stock(sku: str, *, at: list[str] | None = None) -> int:
    return 3

async def later(sku: str) -> int:
    return 1

def by_place(sku, /):
    return 1

BOTH = [price, stock]
PAIR = (price, stock)
NAMED = {"x": stock}
number = 3
"""


@pytest.fixture
def server() -> Iterator[StreamingServer]:
    made = StreamingServer()
    yield made
    made.close()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(TOOLS, encoding="utf-8")
    return path


def talk(spec: str, env: dict[str, str], tools: Path, **options: Any) -> tuple[RunResult, list[Any]]:
    result, model = tools_of([f"{tools}:BOTH"]), model_of(spec, env)
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", system="You are brief.", tools=result.schemas)
        outcome = session.run(model.ask, result.functions, format=model.format, **options).send("What is it?")
        return outcome, [(message.status, message.body) for message in session.messages()]


def serve_bedrock(server: StreamingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send boto3's requests of Bedrock to the server, each once."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)


@pytest.mark.parametrize("provider", ["url", "openai", "anthropic", "bedrock"])
def test_every_provider_streams_calls_and_text(
    server: StreamingServer, tools: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"OPENAI_API_KEY": "k-1", "OPENAI_BASE_URL": f"{server.url}/v1", "ANTHROPIC_API_KEY": "k-1"}
    env["ANTHROPIC_BASE_URL"] = server.url
    specs = {"url": f"{server.url}/v1", "openai": "openai:m", "anthropic": "anthropic:m", "bedrock": "bedrock:m"}
    if provider == "bedrock":
        serve_bedrock(server, monkeypatch)
        use = {"toolUse": {"toolUseId": "c1", "name": "price", "input": {"sku": "A-7"}}}
        server.replies = [
            {"role": "assistant", "content": [use]},
            {"role": "assistant", "content": [{"text": "It is 12.50 €."}]},
        ]
    elif provider == "anthropic":
        used = {"type": "tool_use", "id": "c1", "name": "price", "input": {"sku": "A-7"}}
        server.replies = [
            {"role": "assistant", "content": [used]},
            {"role": "assistant", "content": [{"type": "text", "text": "It is 12.50 €."}]},
        ]
    else:
        function = {"name": "price", "arguments": '{"sku": "A-7"}'}
        server.replies = [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "assistant", "content": "It is 12.50 €."},
        ]
    outcome, said = talk(specs[provider], env, tools)
    assert (outcome.status, outcome.text, outcome.iterations) == ("final", "It is 12.50 €.", 2)
    assert "12.5" in str(said[2][1]) and "eur" in str(said[2][1])
    first, second = server.asked
    assert "You are brief." in str(first) and "What is it?" in str(first) and "12.5" in str(second)
    assert "stock" in str(first["toolConfig"] if provider == "bedrock" else first["tools"])
    if provider == "anthropic":
        assert server.headers["x-api-key"] == "k-1" and first["max_tokens"] > 0
    elif provider != "bedrock":
        assert server.headers["authorization"] == "Bearer k-1"
        assert first["model"] == ("first-model" if provider == "url" else "m")


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, InvalidInputError, "model_refused"),
        (401, InvalidInputError, "model_refused"),
        (429, ThrottledError, "model_throttled"),
        (503, UnavailableError, "model_unavailable"),
    ],
)
def test_a_refusal_says_what_the_server_says_and_leaves_the_question(
    server: StreamingServer, tools: Path, status: int, kind: type[TurnlogError], code: str
) -> None:
    server.replies = [status]
    with pytest.raises(kind, match=f"answers {status}: the server's words") as caught:
        talk(f"{server.url}#m", {}, tools)
    assert caught.value.error_code == code


@pytest.mark.parametrize(
    ("status", "aws_code", "kind", "code"),
    [
        (400, "ValidationException", InvalidInputError, "model_refused"),
        (403, "AccessDeniedException", InvalidInputError, "model_refused"),
        (429, "ThrottlingException", ThrottledError, "model_throttled"),
        (503, "ServiceUnavailableException", UnavailableError, "model_unavailable"),
    ],
)
def test_a_refusal_of_bedrock_is_the_same_error_as_that_of_a_server(
    server: StreamingServer,
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    aws_code: str,
    kind: type[TurnlogError],
    code: str,
) -> None:
    serve_bedrock(server, monkeypatch)
    server.replies = [(status, {"code": aws_code, "message": "the server's words"})]
    with pytest.raises(kind, match="the server's words") as caught:
        talk("bedrock:m", {}, tools)
    assert (type(caught.value), caught.value.error_code) == (kind, code)


def test_a_stream_that_breaks_is_kept_as_interrupted(server: StreamingServer, tools: Path) -> None:
    server.replies, server.held_after = [{"role": "assistant", "content": "It is far"}], 5
    server.ended.set()  # the server ends there
    model = model_of(f"{server.url}#m", {})
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        with pytest.raises(TurnlogError):
            session.run(model.ask).send("Where?")
        assert [(message.status, message.body["content"]) for message in session.messages()][1] == (
            "interrupted",
            "It i",
        )


def test_no_server_is_a_clear_word(server: StreamingServer) -> None:
    url = server.url
    server.close()
    with pytest.raises(UnavailableError, match="refused"):
        model_of(url, {})


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("gpt", "none of echo"),
        ("script:", "none of echo"),
        ("openai:m", "OPENAI_API_KEY is not set"),
        ("anthropic:m", "ANTHROPIC_API_KEY is not set"),
        ("http://#m", "no http or https address"),
        ("ftp://x/y", "none of echo"),
    ],
)
def test_a_model_that_there_is_not(spec: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        model_of(spec, {})


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"role": "user", "content": "x"}', "{", '["a", ["b"]]', '"a"\n{"role":'], ids=repr
)
def test_a_script_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text, encoding="utf-8")
    if text:
        with pytest.raises(InvalidInputError, match=r"script\.json"):
            model_of(f"script:{path}", {})
        return
    with Turnlog.open("memory://") as log, pytest.raises(InvalidInputError, match="no more than 0 replies"):
        log.sessions.create("s").run(model_of(f"script:{path}", {}).ask).send("Hi")


def test_tools_are_told_as_their_signatures_say(tools: Path) -> None:
    result = tools_of([f"{tools}:price", f"{tools}:NAMED"])
    assert tools_of([f"{tools}:PAIR"]).schemas == result.schemas
    price, stock = (schema["function"] for schema in result.schemas)
    assert isinstance(price, dict) and isinstance(stock, dict)
    assert (price["name"], price["description"]) == ("price", "The price of an article.")
    parameters: Any = price["parameters"]
    assert parameters["required"] == ["sku"] and parameters["properties"]["unit"]["enum"] == ["eur", "usd"]
    assert result.functions["stock"](sku="x", at=["here"]) == 3
    with pytest.raises(ValueError, match="unit"):
        result.functions["price"](sku="x", unit="gold")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (":nothing", "has no 'nothing'"),
        (":number", "is no function"),
        (":later", "is async"),
        (":by_place", "given by name"),
        ("", "is not MODULE:NAME"),
        (":not a name", "is not MODULE:NAME"),
    ],
)
def test_a_tool_that_is_none(tools: Path, name: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        tools_of([f"{tools}{name}"])


def test_a_module_that_is_none(tools: Path) -> None:
    for place in ("no.such.module:price", f"{tools}x.py:price"):
        with pytest.raises(InvalidInputError, match="can't be imported"):
            tools_of([place])
    with pytest.raises(InvalidInputError, match="two tools are called 'price'"):
        tools_of([f"{tools}:price", f"{tools}:price"])
