"""Streams of a provider: their events pass through, and the message that they make up is appended when it is complete."""

from __future__ import annotations

from turnlog.agents.streams.base import Accumulator
from turnlog.core.errors import InvalidInputError


def accumulator(format: str = "openai_chat") -> Accumulator:
    """Return an accumulator for a format's events: ``add`` each event, read ``messages`` at any time. It stores nothing."""
    if format == "openai_chat":
        from turnlog.agents.streams.openai import ChatAccumulator

        return ChatAccumulator()
    if format == "openai_responses":
        from turnlog.agents.streams.openai import ResponsesAccumulator

        return ResponsesAccumulator()
    if format == "anthropic":
        from turnlog.agents.streams.anthropic import AnthropicAccumulator

        return AnthropicAccumulator()
    if format == "bedrock_converse":
        from turnlog.agents.streams.anthropic import ConverseAccumulator

        return ConverseAccumulator()
    raise InvalidInputError(f"no provider streams in format {format!r}", code="unknown_format")
