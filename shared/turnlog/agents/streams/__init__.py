"""Streams of a provider: their events pass through, and the message that they tell is kept once it is whole."""

from __future__ import annotations

from turnlog.agents.streams.base import Accumulator
from turnlog.core.errors import InvalidInputError


def accumulator(format: str = "openai_chat") -> Accumulator:
    """An accumulator of a format's events: ``add`` each, and read ``messages`` whenever you like. It stores nothing."""
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
