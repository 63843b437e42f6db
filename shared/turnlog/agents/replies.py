"""Convert the return value of a model function to messages: messages, a provider's complete answer, or a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from turnlog.agents.streams.base import counted, mapping, plain
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass

_CONVERSE_INPUT = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
_ANTHROPIC_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@lazy_dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply: messages in the run's format, the provider's token counts, and its finish reason."""

    messages: Sequence[Mapping[str, Any]]
    usage: Mapping[str, int] | None = None
    finish_reason: str | None = None


def is_stream(value: object) -> bool:
    """Return whether the value is a stream of events."""
    if isinstance(value, Reply | Mapping | Sequence) or hasattr(value, "model_dump"):
        return False
    return hasattr(value, "__iter__") or hasattr(value, "__aiter__")


def events_of(value: Any, format: str) -> Any:
    """Return the events of a stream. The answer of ConverseStream holds them under ``stream``."""
    if format == "bedrock_converse" and isinstance(value, Mapping) and "stream" in value:
        return value["stream"]
    return value


def reply_of(value: Any, format: str) -> Reply:
    """Convert a message, a list of messages, a `Reply`, or a provider's complete answer (its object or its JSON) to a `Reply`.

    Raises `InvalidInputError` for any other value.
    """
    if isinstance(value, Reply):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Reply([plain(message) for message in value])
    if isinstance(value, str):
        raise _not_a_reply(value)
    try:
        answer = plain(value)
    except TypeError as error:
        raise _not_a_reply(value) from error
    reply = _PARSERS[format](answer) if format in _PARSERS else None
    return reply if reply is not None else Reply([answer])


def _chat(answer: Mapping[str, Any]) -> Reply | None:
    if "choices" not in answer:
        return None
    choice, usage = mapping(next(iter(answer["choices"]), None)), mapping(answer.get("usage"))
    # A request refuses the null fields of an answer, except the content.
    message = {
        name: value for name, value in mapping(choice.get("message")).items() if value is not None or name == "content"
    }
    return Reply(
        [message] if message else [],
        counted(usage.get("prompt_tokens"), usage.get("completion_tokens")),
        choice.get("finish_reason"),
    )


def _responses(answer: Mapping[str, Any]) -> Reply | None:
    if "output" not in answer or answer.get("type") is not None:
        return None
    usage, incomplete = mapping(answer.get("usage")), mapping(answer.get("incomplete_details"))
    return Reply(
        [dict(mapping(item)) for item in answer["output"]],
        counted(usage.get("input_tokens"), usage.get("output_tokens")),
        incomplete.get("reason") or answer.get("status"),
    )


def _anthropic(answer: Mapping[str, Any]) -> Reply | None:
    if answer.get("type") != "message":
        return None
    usage = mapping(answer.get("usage"))
    return Reply(
        [{"role": answer.get("role", "assistant"), "content": answer["content"]}],
        _summed(usage, _ANTHROPIC_INPUT, "output_tokens"),
        answer.get("stop_reason"),
    )


def _converse(answer: Mapping[str, Any]) -> Reply | None:
    if "output" not in answer:
        return None
    message = cast("JsonObject", dict(mapping(mapping(answer["output"]).get("message"))))
    usage = mapping(answer.get("usage"))
    return Reply([message], _summed(usage, _CONVERSE_INPUT, "outputTokens"), answer.get("stopReason"))


_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Reply | None]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "bedrock_converse": _converse,
}


def _summed(usage: Mapping[str, Any], names: Iterable[str], output: str) -> dict[str, int] | None:
    counts = [usage.get(name) or 0 for name in names]
    return (
        counted(sum(counts), usage.get(output)) if all(isinstance(number, int) for number in counts) and usage else None
    )


def _not_a_reply(value: object) -> InvalidInputError:
    return InvalidInputError(
        "a model must return a message, a list of messages, a Reply, its provider's answer or a stream, "
        f"not {type(value).__name__}",
        code="not_a_reply",
    )
