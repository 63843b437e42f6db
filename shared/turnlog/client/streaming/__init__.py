"""Streams of a provider: their events pass through, and the message that they tell is kept once it is whole."""

from __future__ import annotations

from turnlog.client.streaming.base import Accumulator
from turnlog.domain.errors import InvalidInputError


def accumulator(format: str = "openai_chat") -> Accumulator:
    """An accumulator of a format's events: ``add`` each, and read ``messages`` whenever you like. It stores nothing."""
    if format == "openai_chat":
        from turnlog.client.streaming.openai_chat import ChatAccumulator

        return ChatAccumulator()
    if format == "openai_responses":
        from turnlog.client.streaming.openai_responses import ResponsesAccumulator

        return ResponsesAccumulator()
    if format == "anthropic":
        from turnlog.client.streaming.anthropic import AnthropicAccumulator

        return AnthropicAccumulator()
    if format == "bedrock_converse":
        from turnlog.client.streaming.bedrock_converse import ConverseAccumulator

        return ConverseAccumulator()
    raise InvalidInputError(f"no provider streams in format {format!r}", code="unknown_format")
