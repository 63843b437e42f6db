"""A model that says what is written, in any provider's shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from turnlog.sessions.context_models import WindowAnswer

FORMATS = ("openai_chat", "openai_responses", "anthropic", "bedrock_converse")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
    }
    for name in ("find", "delete")
]


def says(text: str, format: str = "openai_chat") -> Any:
    """An answer without calls, as the provider gives it whole."""
    if format == "openai_responses":
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        return {
            "object": "response",
            "status": "completed",
            "output": [item],
            "usage": {"input_tokens": 9, "output_tokens": 3},
        }
    if format == "anthropic":
        usage = {"input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 3}
        content = [{"type": "text", "text": text}]
        return {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn", "usage": usage}
    if format == "bedrock_converse":
        message = {"role": "assistant", "content": [{"text": text}]}
        return {
            "output": {"message": message},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 9, "outputTokens": 3},
        }
    choice = {"index": 0, "message": {"role": "assistant", "content": text, "refusal": None}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}


def calls(*many: tuple[str, str, Any], format: str = "openai_chat") -> Any:
    """An answer that calls: id, name, arguments (an object; text as it is)."""
    if format == "openai_responses":
        return [{"type": "function_call", "call_id": i, "name": n, "arguments": _text(a)} for i, n, a in many]
    if format == "anthropic":
        return {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in many],
        }
    if format == "bedrock_converse":
        return {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": i, "name": n, "input": a}} for i, n, a in many],
        }
    functions = [{"id": i, "type": "function", "function": {"name": n, "arguments": _text(a)}} for i, n, a in many]
    return {"role": "assistant", "content": None, "tool_calls": functions}


class Script:
    """Says one thing after the other; ``windows`` are those that it was given. An exception among them is raised."""

    def __init__(self, *said: Any) -> None:
        self._said = list(said)
        self.windows: list[WindowAnswer] = []

    def __call__(self, window: WindowAnswer) -> Any:
        self.windows.append(window)
        item = self._said.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item() if isinstance(item, Callable) else item  # type: ignore[arg-type]


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
