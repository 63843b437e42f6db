"""What a model function has returned, as messages of its format: messages, a provider's whole answer, or a stream of events."""

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
    """Messages in the run's format, what the provider counted, and why it has ended."""

    messages: Sequence[Mapping[str, Any]]
    usage: Mapping[str, int] | None = None
    finish_reason: str | None = None


def is_stream(value: object) -> bool:
    """Whether it is events that are still to come."""
    if isinstance(value, Reply | Mapping | Sequence) or hasattr(value, "model_dump"):
        return False
    return hasattr(value, "__iter__") or hasattr(value, "__aiter__")


def events_of(value: Any, format: str) -> Any:
    """The events of a stream; of ConverseStream they are in its answer."""
    if format == "bedrock_converse" and isinstance(value, Mapping) and "stream" in value:
        return value["stream"]
    return value


def reply_of(value: Any, format: str) -> Reply:
    """Of one message, a list of them, a `Reply`, or a provider's whole answer (its object, or its JSON).

    `InvalidInputError` where it is none of these.
    """
    if isinstance(value, Reply):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Reply([plain(one) for one in value])
    if isinstance(value, str):
        raise _not_a_reply(value)
    try:
        given = plain(value)
    except TypeError as error:
        raise _not_a_reply(value) from error
    found = _WHOLE[format](given) if format in _WHOLE else None
    return found if found is not None else Reply([given])


def _chat(given: Mapping[str, Any]) -> Reply | None:
    if "choices" not in given:
        return None
    choice, usage = mapping(next(iter(given["choices"]), None)), mapping(given.get("usage"))
    # Of the null fields that an answer has, a request takes but the content's.
    message = {
        name: one for name, one in mapping(choice.get("message")).items() if one is not None or name == "content"
    }
    return Reply(
        [message] if message else [],
        counted(usage.get("prompt_tokens"), usage.get("completion_tokens")),
        choice.get("finish_reason"),
    )


def _responses(given: Mapping[str, Any]) -> Reply | None:
    if "output" not in given or given.get("type") is not None:
        return None
    usage, incomplete = mapping(given.get("usage")), mapping(given.get("incomplete_details"))
    return Reply(
        [dict(mapping(item)) for item in given["output"]],
        counted(usage.get("input_tokens"), usage.get("output_tokens")),
        incomplete.get("reason") or given.get("status"),
    )


def _anthropic(given: Mapping[str, Any]) -> Reply | None:
    if given.get("type") != "message":
        return None
    usage = mapping(given.get("usage"))
    return Reply(
        [{"role": given.get("role", "assistant"), "content": given["content"]}],
        _summed(usage, _ANTHROPIC_INPUT, "output_tokens"),
        given.get("stop_reason"),
    )


def _converse(given: Mapping[str, Any]) -> Reply | None:
    if "output" not in given:
        return None
    message = cast("JsonObject", dict(mapping(mapping(given["output"]).get("message"))))
    usage = mapping(given.get("usage"))
    return Reply([message], _summed(usage, _CONVERSE_INPUT, "outputTokens"), given.get("stopReason"))


_WHOLE: Mapping[str, Callable[[Mapping[str, Any]], Reply | None]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "bedrock_converse": _converse,
}


def _summed(usage: Mapping[str, Any], names: Iterable[str], output: str) -> dict[str, int] | None:
    counts = [usage.get(name) or 0 for name in names]
    return counted(sum(counts), usage.get(output)) if all(isinstance(one, int) for one in counts) and usage else None


def _not_a_reply(value: object) -> InvalidInputError:
    return InvalidInputError(
        "a model answers with a message, a list of messages, a Reply, its provider's answer or a stream, "
        f"not {type(value).__name__}",
        code="not_a_reply",
    )
