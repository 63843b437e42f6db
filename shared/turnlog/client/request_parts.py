"""What a conversation in a file has, whatever provider's request it is the body of: its messages, its system text, its tools."""

from __future__ import annotations

import re
from typing import Any

from turnlog.domain.values import dataclass

_ITEM = re.compile(r"message|reasoning|item_reference|\w+_call|\w+_call_output")
"""Types of the items of an OpenAI Responses ``input``, of which not all have a role."""


@dataclass(frozen=True, slots=True)
class RequestParts:
    """As they stand there: nothing is checked. ``rest`` has the keys that are none of them."""

    messages: Any
    system: Any
    tools: Any
    rest: dict[str, Any]


def request_parts(value: Any) -> RequestParts:
    """The parts of ``{messages, system?, tools?}``, of the body of a provider's request, or of a list of messages alone.

    A request may have ``input`` and ``instructions`` (OpenAI Responses), its system text in blocks (Anthropic, Bedrock
    Converse) and its tools in ``toolConfig`` (Bedrock Converse). An ``input`` that is a text is one user message.
    """
    rest = dict(value) if isinstance(value, dict) else {"messages": value}
    messages = rest.pop("messages") if "messages" in rest else _items(rest.pop("input", None))
    system = _text(rest.pop("system") if "system" in rest else rest.pop("instructions", None))
    config = rest.get("toolConfig")
    if "tools" in rest:
        tools = rest.pop("tools")
    elif isinstance(config, dict) and "tools" in config:
        tools = config["tools"]
        rest["toolConfig"] = {name: one for name, one in config.items() if name != "tools"}
        if not rest["toolConfig"]:
            del rest["toolConfig"]
    else:
        tools = None
    return RequestParts(messages, system, tools, rest)


def is_message(value: Any) -> bool:
    """Whether the value is one message of some provider, and no conversation."""
    if not isinstance(value, dict) or "messages" in value:
        return False
    kind = value.get("type")
    return "role" in value or "content" in value or (isinstance(kind, str) and _ITEM.fullmatch(kind) is not None)


def _items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _text(value: Any) -> Any:
    """A list of text blocks as their text; other values as they are."""
    if not isinstance(value, list):
        return value
    texts = [block["text"] for block in value if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return "\n\n".join(texts) if len(texts) == len(value) else value
