"""Reading blocks and fields that several formats share, tolerant of every shape."""

from __future__ import annotations

import hashlib
import re

from turnlog.core.errors import InvalidInputError, MalformedError, Problem
from turnlog.core.json_values import JsonObject, JsonValue, encode_json, parse_strict_json
from turnlog.core.messages import Block, Media, Message, Role, Text, ToolCall, ToolResult

ERROR_PREFIX = "[error]"
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL)
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def role_of(body: JsonObject) -> Role:
    """The domain's role; `unknown` for one that no provider has."""
    return _ROLES.get(given_role(body), "unknown")


def given_role(body: JsonObject) -> str:
    role = body.get("role")
    if not isinstance(role, str) or not role:
        raise invalid("/role", "a message needs a role, a non-empty string")
    return role


def role_with(body: JsonObject, content: tuple[Block, ...], *, calls: bool, results: bool) -> Role:
    """Results alone are nobody's turn, whoever is named as their author; who calls tools is an assistant, or a user."""
    role = role_of(body)
    if role == "tool":
        return "assistant" if calls else "tool"
    is_results_alone = results and not calls and all(is_blank(block) for block in content)
    return "tool" if is_results_alone and role != "unknown" else role


def is_blank(block: Block) -> bool:
    return block == Text("")


def arguments_value(call: ToolCall) -> JsonValue:
    """The object that the arguments are, or the text as given. Strict: NaN or a key given twice would be lost as an object."""
    try:
        given = parse_strict_json(call.arguments)
    except MalformedError:
        given = None
    return given if isinstance(given, dict) else {"_raw": call.arguments}


def tool_input(call: ToolCall) -> JsonValue:
    """The arguments where a format demands an object: none given are an empty one."""
    return arguments_value(call) if call.arguments.strip() else {}


def string(value: JsonValue) -> str:
    """A string field that may be missing or null."""
    return value if isinstance(value, str) else ""


def json_text(value: JsonValue) -> str:
    """Arguments as JSON text: a string as it is, null as nothing, another value in compact JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode_json(value).decode("utf-8")


def media_from_url(kind_url: str, *, detail: str | None = None) -> Media:
    """An image from its URL; a data URL is taken apart."""
    match = _DATA_URL.fullmatch(kind_url)
    if match:
        return Media("image", media_type=match[1] or None, data=match[2], detail=detail)
    return Media("image", url=kind_url, detail=detail)


def marked_error(text: str) -> bool:
    return text.startswith(ERROR_PREFIX)


def result_text(result: ToolResult) -> str:
    """The result's text for a format that has no field for errors."""
    text = "\n".join(placeholder_text(block) for block in result.content)
    return f"{ERROR_PREFIX} {text}" if result.is_error and not marked_error(text) else text


def placeholder_text(block: object) -> str:
    """A block as text where only text is allowed."""
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Media):
        return f"[{block.kind}{': ' + block.name if block.name else ''}]"
    return ""


def text_with_placeholders(message: Message) -> str:
    return "\n".join(text for text in map(placeholder_text, message.content) if text)


def invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_message", problems=[Problem("invalid_message", pointer, message)])


_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]+")


def is_tool_name(name: str) -> bool:
    """Whether every provider takes the name."""
    return _TOOL_NAME.fullmatch(name) is not None


def legal_tool_name(name: str) -> str:
    """A name that every provider takes: as given, or its legal characters and a hash that keeps names apart."""
    if is_tool_name(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    kept = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:48]
    return f"{kept}_{digest}" if kept else f"tool_{digest}"


def is_safe_id(call_id: str, *, longest: int) -> bool:
    """Whether the id has none but letters, digits, _ and -, and at most ``longest`` of them."""
    return len(call_id) <= longest and _SAFE_ID.fullmatch(call_id) is not None


_OPEN, _CLOSE = "<turnlog-data kind={kind!r}>", "</turnlog-data>"
_MARK = re.compile(r"<(?=\s*/?\s*(?i:turnlog-data))")
SYSTEM_KIND = "system message"


def fenced(kind: str, text: str) -> str:
    """The text as data of a kind."""
    return f"{_OPEN.format(kind=kind)}\n{escaped(text)}\n{_CLOSE}"


def escaped(text: str) -> str:
    """The text with every fence in it made harmless. Escaped twice is the same."""
    return _MARK.sub(r"<\\", text)
