"""Models for `turnlog chat`, chosen by the text of ``--model``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from turnlog.cli.chat import posting, scripted
from turnlog.core.errors import InvalidInputError, ThrottledError, TurnlogError, UnavailableError
from turnlog.core.models import FormatName
from turnlog.sessions.context_models import WindowAnswer

KINDS = "echo, script:FILE, URL#NAME, openai:NAME, anthropic:NAME, bedrock:ID"
OPENAI_URL, ANTHROPIC_URL = "https://api.openai.com/v1", "https://api.anthropic.com"
_ANTHROPIC_VERSION = "2023-06-01"
_ANSWER_TOKENS = 4096
"""Maximum answer, which Anthropic requires: as much as windows reserve for it."""


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
        return Model("echo", "openai_chat", scripted.echo)
    if kind == "script" and rest:
        return Model(spec, "openai_chat", scripted.Scripted(scripted.script_of(Path(rest))))
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
    raise InvalidInputError(f"the model {spec!r} is none of {KINDS}", code="unknown_model")


def _key(env: Mapping[str, str], name: str) -> str:
    key = env.get(name, "")
    if not key:
        raise InvalidInputError(f"the variable {name} is not set", code="no_key")
    return key


def _chat(url: str, name: str, key: str) -> Model:
    """Return a model of an endpoint with OpenAI's chat completions. Without a name, the first model it lists."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if not name:
        listed = posting.get(posting.address(url, "/models"), headers, name=url)
        try:
            name = str(listed["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise InvalidInputError(f"{url} names no model: URL#NAME", code="unknown_model") from None
    target = posting.address(url, "/chat/completions")

    def ask(window: WindowAnswer) -> Any:
        body: dict[str, Any] = {"model": name, "messages": window.messages, "stream": True}
        body["stream_options"] = {"include_usage": True}
        if window.tools:
            body["tools"] = window.tools
        return posting.post(target, body, headers, name=name)

    return Model(name, "openai_chat", ask, name)


def _anthropic(url: str, name: str, key: str) -> Model:
    headers = {"x-api-key": key, "anthropic-version": _ANTHROPIC_VERSION}
    target = posting.address(url, "/v1/messages")

    def ask(window: WindowAnswer) -> Any:
        body: dict[str, Any] = {"model": name, "messages": window.messages, "max_tokens": _ANSWER_TOKENS}
        body["stream"] = True
        if window.system:
            body["system"] = window.system
        if window.tools:
            body["tools"] = window.tools
        return posting.post(target, body, headers, name=name)

    return Model(name, "anthropic", ask, name)


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
