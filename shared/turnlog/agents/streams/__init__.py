"""Streams of a provider: their events pass through, and the message that they make up is appended when it is complete.

This module has the interface of accumulators, which build a message from the events of a provider's stream, and helpers for
reading events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject

Event = Mapping[str, Any]


class Accumulator(Protocol):
    """Builds messages from events. It may be read at any time, and keeps no reference to the events."""

    format: str
    finish_reason: str | None
    """The provider's finish reason; None before it came."""
    is_broken: bool
    """Whether the stream reported an error."""

    @property
    def usage(self) -> dict[str, int] | None:
        """``input_tokens`` and ``output_tokens``; None before the provider has sent both."""

    def add(self, event: Event) -> None:
        """Add an event. Unknown fields and types are ignored."""

    @property
    def messages(self) -> list[JsonObject]:
        """The messages so far, in the stream's format; empty before the first content."""

    @property
    def text(self) -> str:
        """The text so far, without thinking."""


def as_mapping(event: object) -> Event:
    """Return an event or a message as a mapping. Raises `TypeError` for a value that is neither a mapping nor a pydantic model."""
    if isinstance(event, Mapping):
        return event
    dump = getattr(event, "model_dump", None)
    if callable(dump):
        fields: Event = dump(mode="json", exclude_unset=True)
        return fields
    raise TypeError(f"an event must be a mapping or an object of the provider's library, not {type(event).__name__}")


def mapping_or_empty(value: object) -> Event:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_or_empty(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return the value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def index_of(value: object, default: int) -> int:
    """Return the value if it is an integer, else ``default``."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def input_of(text: str) -> JsonObject:
    """Return the object that a JSON text holds; an incomplete or invalid text is returned under ``_raw``."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"_raw": text}


def usage_of(input_tokens: object, output_tokens: object) -> dict[str, int] | None:
    """Return token counts as a usage object, or None when one of them is missing."""
    if isinstance(input_tokens, int) and isinstance(output_tokens, int):
        return {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return None


def accumulator(format: str = "openai_chat") -> Accumulator:
    """Return an accumulator for a format's events: ``add`` each event, read ``messages`` at any time. It stores nothing."""
    if format == "openai_chat":
        from turnlog.agents.streams.accumulators import ChatAccumulator

        return ChatAccumulator()
    if format == "openai_responses":
        from turnlog.agents.streams.accumulators import ResponsesAccumulator

        return ResponsesAccumulator()
    if format == "anthropic":
        from turnlog.agents.streams.accumulators import AnthropicAccumulator

        return AnthropicAccumulator()
    if format == "bedrock_converse":
        from turnlog.agents.streams.accumulators import ConverseAccumulator

        return ConverseAccumulator()
    raise InvalidInputError(f"no provider streams in format {format!r}", code="unknown_format")
