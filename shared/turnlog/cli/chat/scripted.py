"""Models that need no key: one that says what is written, and one that says what it was told. They stream, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import parse_strict_json
from turnlog.sessions.context_models import WindowAnswer


class Scripted:
    """Says one reply after the other: texts, or messages in OpenAI's chat format, which may call tools."""

    def __init__(self, replies: Sequence[Mapping[str, Any]]) -> None:
        self._replies = list(replies)
        self._said = 0

    def __call__(self, window: WindowAnswer) -> Iterator[dict[str, Any]]:
        if self._said == len(self._replies):
            raise InvalidInputError(f"the script has no more than {self._said} replies", code="script_over")
        self._said += 1
        return chunks(self._replies[self._said - 1])


def echo(window: WindowAnswer) -> Iterator[dict[str, Any]]:
    """Says what it was told."""
    told = next((one for one in reversed(window.messages) if one.get("role") == "user"), {})
    content = told.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    text = " ".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
    return chunks({"role": "assistant", "content": f"You said: {text}"})


def script_of(path: Path) -> list[dict[str, Any]]:
    """The replies of a file: a JSON list, or one JSON value a line. `InvalidInputError` where it is neither."""
    data = path.read_bytes()
    try:
        try:
            values = parse_strict_json(data)
        except MalformedError:
            values = [parse_strict_json(line) for line in data.splitlines() if line.strip()]
    except MalformedError as error:
        raise InvalidInputError(f"{str(path)!r} is neither JSON nor JSON Lines", code="bad_script") from error
    found = list[dict[str, Any]]()
    for at, value in enumerate(values if isinstance(values, list) else [values]):
        if isinstance(value, str):
            value = {"role": "assistant", "content": value}  # noqa: PLW2901 - the short form of the same
        if not isinstance(value, dict) or value.get("role", "assistant") != "assistant":
            raise InvalidInputError(
                f"reply {at + 1} of {str(path)!r} is neither a text nor a message of the assistant's", code="bad_script"
            )
        found.append({"role": "assistant", "content": None, **value})
    return found


def chunks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A message as OpenAI streams it."""
    for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", message.get("content") or ""):
        yield {"choices": [{"index": 0, "delta": {"content": word}}]}
    calls = message.get("tool_calls")
    if calls:
        told = [{"index": at, **call} for at, call in enumerate(calls)]
        yield {"choices": [{"index": 0, "delta": {"tool_calls": told}}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}
