"""A message for a person to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from turnlog.codecs.registry import recognise
from turnlog.domain.errors import TurnlogError
from turnlog.domain.messages import Message, text_of
from turnlog.local.cli.screen import cut, plain

MAX_CHARS = 600
_ROLES = {"system": "cyan", "user": "bold blue", "assistant": "bold green", "tool": "yellow"}


def message_text(body: Mapping[str, Any], *, heading: str, max_chars: int | None = MAX_CHARS) -> Text:
    """Heading and role, then the text (cut after ``max_chars``), calls and results."""
    try:
        message = recognise(dict(body)).parse(dict(body))
    except TurnlogError:
        return Text(f"{heading}  {cut(json.dumps(body), MAX_CHARS)}\n")
    made = Text()
    made.append(f"{heading}  ", style="dim").append(
        cut(message.given_role or message.role, 40), style=_ROLES.get(message.role, "red")
    )
    if message.name:
        made.append(f" ({cut(message.name, 64)})")
    for line, style in _lines(message, max_chars):
        made.append("\n  ").append(line.replace("\n", "\n  "), style=style)
    return made.append("\n")


def _lines(message: Message, max_chars: int | None) -> Iterator[tuple[str, str]]:
    text = text_of(message.content)
    if text:
        yield _shortened(text, max_chars), ""
    media = sum(1 for block in message.content if not hasattr(block, "text"))
    if media:
        yield f"[{media} part{'s' * (media > 1)} without text]", "dim"
    for call in message.tool_calls:
        yield f"→ {cut(call.name, 64)}({cut(call.arguments, 200)})", "magenta"
    for result in message.tool_results:
        mark = "✗" if result.is_error else "←"
        yield f"{mark} {_shortened(result.text, max_chars)}", "red" if result.is_error else ""


def _shortened(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return plain(text)
    return f"{plain(text[:limit])} … [{len(text) - limit:,} more characters]"
