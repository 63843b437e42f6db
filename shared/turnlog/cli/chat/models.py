"""Models for `turnlog chat`, chosen by the text of ``--model``. Two need no key: one replies from a script, one echoes the user.

The others are asked over HTTP with server-sent events, by the standard library only. Redirects and proxies are not used, so key and
conversation go only to the given address.
"""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urldefrag

from turnlog.core.errors import InvalidInputError, MalformedError, ThrottledError, TurnlogError, UnavailableError
from turnlog.core.json_values import encode_json, parse_strict_json
from turnlog.core.models import FormatName
from turnlog.engines import shown_url
from turnlog.engines.http_post import HEADERS, open_connection, web_address
from turnlog.sessions.context_models import WindowAnswer

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0
"""Longest pause that a model may take before or within its answer."""
MAX_BYTES = 16 * 1024 * 1024
_MAX_WORDS = 300
KINDS = "echo, script:FILE, URL#NAME, openai:NAME, anthropic:NAME, bedrock:ID"
OPENAI_URL, ANTHROPIC_URL = "https://api.openai.com/v1", "https://api.anthropic.com"
_ANTHROPIC_VERSION = "2023-06-01"
_ANSWER_TOKENS = 4096
"""Maximum answer, which Anthropic requires: as much as windows reserve for it."""


def address(url: str, path: str) -> SplitResult:
    """Return the address of a path below a base URL. Raises `InvalidInputError` for an invalid URL."""
    base = web_address(url)
    if base is None:
        raise InvalidInputError(f"{shown_url(url)!r} is no http or https address", code="unknown_model")
    return base._replace(path=base.path.rstrip("/") + path)


def request(
    url: SplitResult, headers: Mapping[str, str], *, name: str, body: Mapping[str, Any] | None = None
) -> Iterator[dict[str, Any]] | dict[str, Any]:
    """Send a body as JSON, or ask for what is at an address; return the events of the answer as they arrive, or the whole answer.

    Raises `InvalidInputError`, `ThrottledError` or `UnavailableError` with the server's own message.
    """
    sent = {**HEADERS, "Accept": "text/event-stream, application/json", **headers}
    connection = open_connection(url, timeout_seconds=CONNECT_SECONDS)
    try:
        if body is None:
            connection.request("GET", url.path, headers=sent)
        else:
            connection.request("POST", url.path, encode_json(dict(body)), sent)
            connection.sock.settimeout(SILENCE_SECONDS)
        answer = connection.getresponse()
        if answer.status != 200:
            raise _refused(name, answer)
        if "text/event-stream" in (answer.getheader("Content-Type") or ""):
            return _events(connection, answer, name)
        with closing(connection):
            return _object(answer.read(MAX_BYTES + 1), name)
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise _unreachable(name, error) from error
    except BaseException:
        connection.close()
        raise


def _events(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, name: str
) -> Iterator[dict[str, Any]]:
    """Yield the server-sent events of an answer: lines of data up to an empty line.

    See https://html.spec.whatwg.org/multipage/server-sent-events.html. Closing the iterator early closes the connection, so that
    the model stops.
    """
    data = list[str]()
    with closing(connection):
        try:
            while line := answer.readline(MAX_BYTES):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if text.startswith("data:"):
                    data.append(text[5:].removeprefix(" "))
                elif not text and data:
                    if data == ["[DONE]"]:
                        return
                    yield _object("\n".join(data).encode(), name)
                    data.clear()
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(name, error) from error


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UnavailableError(f"{name} answers with something that is no JSON object", code="model_unreadable")
    return value


def _unreachable(name: str, error: Exception) -> UnavailableError:
    reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return UnavailableError(f"{name}: {reason}", code="model_unreachable")


def _refused(name: str, answer: http.client.HTTPResponse) -> TurnlogError:
    status = answer.status
    try:
        error = json.loads(answer.read(MAX_BYTES))["error"]
        words = str(error["message"] if isinstance(error, dict) else error)[:_MAX_WORDS]
    except (ValueError, KeyError, TypeError, RecursionError):
        words = ""
    detail = f"{name} answers {status}{f': {words}' if words else ''}"
    if status == 429:
        return ThrottledError(detail, code="model_throttled")
    if status in (408, 409, 425) or status >= 500:
        return UnavailableError(detail, code="model_unavailable")
    return InvalidInputError(detail, code="model_refused")


class Scripted:
    """A model that gives one scripted reply after the other: messages in OpenAI's chat format, which may call tools."""

    def __init__(self, replies: Sequence[Mapping[str, Any]]) -> None:
        self._replies = list(replies)
        self._sent = 0

    def __call__(self, window: WindowAnswer) -> Iterator[dict[str, Any]]:
        if self._sent == len(self._replies):
            raise InvalidInputError(f"the script has no more than {self._sent} replies", code="script_over")
        self._sent += 1
        return chunks(self._replies[self._sent - 1])


def echo(window: WindowAnswer) -> Iterator[dict[str, Any]]:
    """Answer with the newest user message."""
    newest: dict[str, Any] = next(
        (message for message in reversed(window.messages) if message.get("role") == "user"), {}
    )
    content = newest.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    text = " ".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
    return chunks({"role": "assistant", "content": f"You said: {text}"})


def script_of(path: Path) -> list[dict[str, Any]]:
    """Read replies from a file: a JSON list, or one JSON value a line. Raises `InvalidInputError` for other content."""
    data = path.read_bytes()
    try:
        try:
            values = parse_strict_json(data)
        except MalformedError:
            values = [parse_strict_json(line) for line in data.splitlines() if line.strip()]
    except MalformedError as error:
        raise InvalidInputError(f"{str(path)!r} is neither JSON nor JSON Lines", code="bad_script") from error
    replies = list[dict[str, Any]]()
    for index, value in enumerate(values if isinstance(values, list) else [values]):
        if isinstance(value, str):
            value = {"role": "assistant", "content": value}  # noqa: PLW2901 - a text is the short form of a message
        if not isinstance(value, dict) or value.get("role", "assistant") != "assistant":
            detail = f"reply {index + 1} of {str(path)!r} is neither a text nor a message of the assistant's"
            raise InvalidInputError(detail, code="bad_script")
        replies.append({"role": "assistant", "content": None, **value})
    return replies


def chunks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message as the chunks that OpenAI streams."""
    for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", message.get("content") or ""):
        yield {"choices": [{"index": 0, "delta": {"content": word}}]}
    calls = message.get("tool_calls")
    if calls:
        deltas = [{"index": index, **call} for index, call in enumerate(calls)]
        yield {"choices": [{"index": 0, "delta": {"tool_calls": deltas}}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}


@dataclass(frozen=True, slots=True)
class Model:
    """A model to chat with.

    ``ask`` takes a window in ``format`` and returns a stream or a whole answer. ``budget_name`` is the model whose context size
    is the budget of windows; None uses the session's model or the default.
    """

    name: str
    format: FormatName
    ask: Callable[[WindowAnswer], Any]
    budget_name: str | None = None


def model_of(spec: str, environment: Mapping[str, str] | None = None) -> Model:
    """Return the model that ``spec`` names. Raises `InvalidInputError` for an unknown model or a missing key."""
    env = os.environ if environment is None else environment
    kind, _, rest = spec.partition(":")
    if spec == "echo":
        return Model("echo", "openai_chat", echo)
    if kind == "script" and rest:
        return Model(spec, "openai_chat", Scripted(script_of(Path(rest))))
    if kind in ("http", "https"):
        url, name = urldefrag(spec)
        return _chat(url, name, env.get("OPENAI_API_KEY", ""))
    if kind == "openai" and rest:
        url = env.get("OPENAI_BASE_URL") or OPENAI_URL
        return _chat(url, rest, env.get("OPENAI_API_KEY", "") if url != OPENAI_URL else _key(env, "OPENAI_API_KEY"))
    if kind == "anthropic" and rest:
        return _anthropic(env.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL, rest, _key(env, "ANTHROPIC_API_KEY"))
    if kind == "bedrock" and rest:
        return _bedrock(rest)
    raise InvalidInputError(f"the model {shown_url(spec)!r} is none of {KINDS}", code="unknown_model")


def _key(env: Mapping[str, str], name: str) -> str:
    key = env.get(name, "")
    if not key:
        raise InvalidInputError(f"the variable {name} is not set", code="no_key")
    return key


def _chat(url: str, name: str, key: str) -> Model:
    """Return a model of an endpoint with OpenAI's chat completions. Without a name, the first model it lists."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if not name:
        listed: Any = request(address(url, "/models"), headers, name=url)
        try:
            name = str(listed["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise InvalidInputError(f"{url} names no model: URL#NAME", code="unknown_model") from None
    options = {"stream_options": {"include_usage": True}}
    return _over_http(name, "openai_chat", address(url, "/chat/completions"), headers, options)


def _anthropic(url: str, name: str, key: str) -> Model:
    headers = {"x-api-key": key, "anthropic-version": _ANTHROPIC_VERSION}
    return _over_http(name, "anthropic", address(url, "/v1/messages"), headers, {"max_tokens": _ANSWER_TOKENS})


def _over_http(
    name: str, format: FormatName, url: SplitResult, headers: Mapping[str, str], options: Mapping[str, Any]
) -> Model:
    def ask(window: WindowAnswer) -> Any:
        parts = {"system": window.system, "tools": window.tools}  # OpenAI's format has the system text in the messages
        body = {"model": name, "messages": window.messages, "stream": True, **options}
        body |= {part: value for part, value in parts.items() if value}
        return request(url, headers, name=name, body=body)

    return Model(name, format, ask, name)


def _bedrock(model_id: str) -> Model:
    """Return a model of Bedrock, with boto3's default credentials and region."""
    try:
        import boto3
    except ImportError as error:
        raise InvalidInputError("Bedrock needs boto3: pip install 'turnlog[aws]'", code="extra_missing") from error
    from botocore.exceptions import BotoCoreError, ClientError

    def ask(window: WindowAnswer) -> Any:
        body: dict[str, Any] = {"modelId": model_id, "messages": window.messages}
        if window.system:
            body["system"] = [{"text": window.system}] if isinstance(window.system, str) else window.system
        if window.tools:
            body["toolConfig"] = {"tools": window.tools}
        try:
            return _translated(boto3.client("bedrock-runtime").converse_stream(**body)["stream"])
        except (BotoCoreError, ClientError) as error:
            raise _aws_error(model_id, error) from error

    def _translated(events: Any) -> Iterator[Any]:
        try:
            yield from events
        except (BotoCoreError, ClientError) as error:
            raise _aws_error(model_id, error) from error
        finally:
            events.close()

    return Model(model_id, "bedrock_converse", ask, model_id)


def _aws_error(name: str, error: Exception) -> TurnlogError:
    response = getattr(error, "response", {})
    code, status = response.get("Error", {}).get("Code", ""), response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in ("ThrottlingException", "TooManyRequestsException"):
        return ThrottledError(f"{name}: {error}", code="model_throttled")
    if isinstance(status, int) and 400 <= status < 500:
        return InvalidInputError(f"{name}: {error}", code="model_refused")
    return UnavailableError(f"{name}: {error}", code="model_unavailable")
