"""Models that need no key: one replies from a script, one echoes the user. They stream word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import parse_strict_json
from turnlog.sessions.context_models import WindowAnswer


class Scripted:
    """A model that gives one scripted reply after the other: messages in OpenAI's chat format, which may call tools."""

    def __init__(self, replies: Sequence[Mapping[str, Any]]) -> None:
        self._replies = list(replies)
        self._said = 0

    def __call__(self, window: WindowAnswer) -> Iterator[dict[str, Any]]:
        if self._said == len(self._replies):
            raise InvalidInputError(f"the script has no more than {self._said} replies", code="script_over")
        self._said += 1
        return chunks(self._replies[self._said - 1])


def echo(window: WindowAnswer) -> Iterator[dict[str, Any]]:
    """Answer with the newest user message."""
    newest = next((message for message in reversed(window.messages) if message.get("role") == "user"), {})
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
            raise InvalidInputError(
                f"reply {index + 1} of {str(path)!r} is neither a text nor a message of the assistant's",
                code="bad_script",
            )
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
