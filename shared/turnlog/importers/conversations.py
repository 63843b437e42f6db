"""Conversations in the form of a provider's request: ``{id?, messages, system?, tools?}``, the body of a request, or a list of
messages alone. The format (OpenAI Chat, Responses, Anthropic, Bedrock Converse or Turnlog's own) is recognised from the
messages.

Messages are stored unchanged. A file of JSON Lines has a conversation in each line, or one message in each line of one
conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.importers.models import (
    MALFORMED,
    MAX_SYSTEM,
    NOT_AN_OBJECT,
    SourceFile,
    SourceMessage,
    SourceRemark,
    SourceSession,
    id_warnings,
    objects_of,
    session_id_of,
)
from turnlog.providers.blocks import object_of, objects_in
from turnlog.providers.registry import format_of

_ITEM = re.compile(r"message|reasoning|item_reference|\w+_call|\w+_call_output")
"""Types of the items of an OpenAI Responses ``input``; some items have no role."""


@lazy_dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts of a request, unchecked. ``rest`` has its other keys."""

    messages: Any
    system: Any
    tools: Any
    rest: dict[str, Any]


def request_parts(value: Any) -> RequestParts:
    """Split ``{messages, system?, tools?}``, the body of a provider's request, or a list of messages into its parts.

    A request may have ``input`` and ``instructions`` (OpenAI Responses), its system text in blocks (Anthropic, Bedrock
    Converse) and its tools in ``toolConfig`` (Bedrock Converse). A text in ``input`` is one user message.
    """
    rest = dict(value) if isinstance(value, dict) else {"messages": value}
    messages = rest.pop("messages") if "messages" in rest else _items(rest.pop("input", None))
    system = _text(rest.pop("system") if "system" in rest else rest.pop("instructions", None))
    config = rest.get("toolConfig")
    if "tools" in rest:
        tools = rest.pop("tools")
    elif isinstance(config, dict) and "tools" in config:
        tools = config["tools"]
        rest["toolConfig"] = {name: item for name, item in config.items() if name != "tools"}
        if not rest["toolConfig"]:
            del rest["toolConfig"]
    else:
        tools = None
    return RequestParts(messages, system, tools, rest)


def is_message(value: Any) -> bool:
    """Return whether the value is a single message of some provider."""
    if not isinstance(value, dict) or "messages" in value or _is_of_gemini(value):
        return False
    kind = value.get("type")
    return "role" in value or "content" in value or (isinstance(kind, str) and _ITEM.fullmatch(kind) is not None)


def _is_of_gemini(value: dict[str, Any]) -> bool:
    """Return whether a message has its content in ``parts`` without types, as Gemini's messages do."""
    untyped = [part for part in objects_in(value.get("parts")) if "type" not in part]
    return "content" not in value and bool(untyped) and untyped == value["parts"]


def _items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _text(value: Any) -> Any:
    """Return a list of text blocks as one text, and any other value as it is."""
    if not isinstance(value, list):
        return value
    texts = [block["text"] for block in value if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return "\n\n".join(texts) if len(texts) == len(value) else value


SHAPE = "messages"


def recognises(file: SourceFile) -> bool:
    values = [value for _, value in _values(file)[0]]
    return bool(values) and (all(map(_is_provider_message, values)) or all(map(_is_conversation, values)))


def read(file: SourceFile) -> Iterator[SourceSession]:
    values, broken = _values(file)
    if all(_is_provider_message(value) for _, value in values):
        yield _session(file.path.stem, [value for _, value in values], broken)
        return
    for number, (place, value) in enumerate(values, start=1):
        source_id = file.source_id(object_of(value), place, "id")
        yield _session(source_id, value, broken if number == len(values) else {})


def _values(file: SourceFile) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """Return the file's values with their places, and the lines that are not JSON, such as the half line of a killed writer.

    These are reported with the last session.
    """
    if file.document is not None:
        return list(file.values), {}
    broken = {f"line {line.number}": line.text for line in file.lines if not line.is_json}
    return [(f"line {line.number}", line.value) for line in file.lines if line.is_json], broken


def _is_provider_message(value: Any) -> bool:
    """Return whether the value is a message of a provider; messages of a flat list have a ``kind``."""
    return is_message(value) and "kind" not in value


def _is_conversation(value: Any) -> bool:
    messages = request_parts(value).messages
    return isinstance(messages, list) and any(map(_is_provider_message, messages))


def _session(source_id: str, value: Any, broken: dict[str, str]) -> SourceSession:
    parts, warnings, settings = request_parts(value), list(id_warnings(source_id)), dict[str, Any]()
    rest = dict(parts.rest)
    if any(block.keys() - {"type", "text"} for block in objects_in(object_of(value).get("system"))):
        # Blocks of the system text have more than their texts, such as a cache mark.
        rest["system"] = value["system"]
    if isinstance(parts.system, str) and len(parts.system) <= MAX_SYSTEM:
        settings["system"] = parts.system
    elif parts.system is not None:
        warnings.append(SourceRemark("system", "not_a_text"))
        rest["system"] = parts.system
    if isinstance(parts.tools, list) and all(isinstance(tool, dict) for tool in parts.tools):
        settings["tools"] = parts.tools
    elif parts.tools is not None:
        warnings.append(SourceRemark("tools", NOT_AN_OBJECT))
        rest["tools"] = parts.tools
    messages, skipped = objects_of(parts.messages)
    unread = skipped | broken
    return SourceSession(
        id=session_id_of(source_id),
        shape=SHAPE,
        source_id=source_id,
        format=format_of(messages.values()),
        messages=tuple(SourceMessage(place, message) for place, message in messages.items()),
        settings=settings,
        extra=rest | ({"skipped": unread} if unread else {}),
        skipped=(
            *(SourceRemark(place, NOT_AN_OBJECT) for place in skipped),
            *(SourceRemark(place, MALFORMED) for place in broken),
        ),
        warnings=tuple(warnings),
    )
