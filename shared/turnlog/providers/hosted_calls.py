"""Shapes of the calls and results of tools that a provider runs or defines itself.

OpenAI Responses tells a call and its output in an item each, or both in one; `ITEMS` says in which fields. Anthropic tells them
in blocks of an assistant message, which need no table: a call's type ends with ``_tool_use``, a result's with ``_tool_result``.
A type that is not known yet is read by the same rules, because providers add some between two releases of their SDKs.

Sources: https://platform.openai.com/docs/api-reference/responses/create (input items) and
https://docs.anthropic.com/en/api/messages (content blocks).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from turnlog.core.json_values import JsonObject, JsonValue, sendable_json_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Block, Media, Text, ToolCall, ToolResult
from turnlog.providers.blocks import json_text, marked_error, media_from_url, objects_in, string_of

Write: TypeAlias = Callable[[str, bool], JsonObject]
"""Makes the fields of an output that says a text; the flag says whether the call failed."""


@lazy_dataclass(frozen=True, slots=True)
class CallShape:
    """Where an item of OpenAI Responses has a call, and where its output has the result.

    ``output``: the type of the item with the result; empty when the call's own item has it, because the provider ran the call.
    ``name``: the tool's name; empty when the field ``name`` has it. ``call_id``: the field with the call's id.
    ``answered_id``: the fields of the output that may have this id. ``arguments`` and ``result``: the fields with these.
    ``write``: makes the fields of an output with a text; None for an output that can't hold a text. ``may_lack_id``: null stands
    for the id of a call that the provider ran. ``has_image``: the result is an image in base64.
    """

    call: str
    output: str = ""
    name: str = ""
    call_id: str = "call_id"
    answered_id: tuple[str, ...] = ("call_id",)
    arguments: tuple[str, ...] = ("arguments",)
    result: tuple[str, ...] = ("output",)
    write: Write | None = None
    may_lack_id: bool = False
    has_image: bool = False


def _as_output(text: str, failed: bool) -> JsonObject:
    return {"output": text}


def _as_shell_output(text: str, failed: bool) -> JsonObject:
    return {"output": [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": int(failed)}}]}


_SHAPES = (
    CallShape("function_call", "function_call_output", write=_as_output),
    CallShape("custom_tool_call", "custom_tool_call_output", arguments=("input",), write=_as_output),
    CallShape("shell_call", "shell_call_output", "shell", arguments=("action",), write=_as_shell_output),
    CallShape(
        "local_shell_call",
        "local_shell_call_output",
        "local_shell",
        answered_id=("call_id", "id"),
        arguments=("action",),
        write=_as_output,
    ),
    CallShape(
        "apply_patch_call",
        "apply_patch_call_output",
        "apply_patch",
        arguments=("operation",),
        write=lambda text, failed: {"output": text, "status": "failed" if failed else "completed"},
    ),
    CallShape("computer_call", "computer_call_output", "computer", arguments=("action", "actions")),
    CallShape("tool_search_call", "tool_search_output", "tool_search", result=("tools",), may_lack_id=True),
    CallShape(
        "program",
        "program_output",
        "program",
        arguments=("code",),
        result=("result",),
        write=lambda text, _failed: {"result": text},
    ),
    CallShape(
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_approval_request",
        call_id="id",
        answered_id=("approval_request_id",),
        arguments=("server_label", "name", "arguments"),
        result=("approve", "reason"),
        write=lambda text, _failed: {"approve": False, "reason": text},
    ),
    CallShape("mcp_call", call_id="id", result=("output", "error"), write=_as_output),
    CallShape(
        "mcp_list_tools", name="mcp_list_tools", call_id="id", arguments=("server_label",), result=("tools", "error")
    ),
    CallShape("web_search_call", name="web_search", call_id="id", arguments=("action",), result=("results", "sources")),
    CallShape(
        "file_search_call",
        name="file_search",
        call_id="id",
        arguments=("queries",),
        result=("results",),
        write=lambda text, _failed: {"results": [{"text": text}]},
    ),
    CallShape(
        "code_interpreter_call",
        name="code_interpreter",
        call_id="id",
        arguments=("code",),
        result=("outputs",),
        write=lambda text, _failed: {"outputs": [{"type": "logs", "logs": text}]},
    ),
    CallShape(
        "image_generation_call",
        name="image_generation",
        call_id="id",
        arguments=("revised_prompt", "action", "size", "quality", "background", "output_format"),
        result=("result", "error"),
        has_image=True,
    ),
)
ITEMS = {shape.call: shape for shape in _SHAPES}
"""Type of a call -> its shape."""
_BY_OUTPUT = {shape.output: shape for shape in _SHAPES if shape.output}
_UNKNOWN_CALL = re.compile(r"[a-z_]+_call")
_UNKNOWN_OUTPUT = re.compile(r"([a-z_]+_call)_output")
_RESULT_FIELDS = ("output", "outputs", "result", "results", "error")
_NO_ARGUMENTS = frozenset({"type", "id", "call_id", "status", "caller", "name", "created_by", *_RESULT_FIELDS})


def shape_of_call(item: JsonObject) -> CallShape | None:
    """Return the shape of a call, None for other items. One of an unknown type without ``call_id`` has its result in it."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return None
    if kind in ITEMS or not _UNKNOWN_CALL.fullmatch(kind):
        return ITEMS.get(kind)
    arguments = tuple(key for key in item if key not in _NO_ARGUMENTS)
    name = "" if isinstance(item.get("name"), str) else kind.removesuffix("_call")
    if isinstance(item.get("call_id"), str):
        return CallShape(kind, f"{kind}_output", name, arguments=arguments, write=_as_output)
    return CallShape(kind, "", name, call_id="id", arguments=arguments, result=_RESULT_FIELDS)


def shape_of_output(item: JsonObject) -> CallShape | None:
    """Return the shape of the call that an item answers; None for items that are no output."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return None
    match = _UNKNOWN_OUTPUT.fullmatch(kind)
    if kind in _BY_OUTPUT or match is None:
        return _BY_OUTPUT.get(kind)
    return CallShape(match[1], kind, result=_RESULT_FIELDS, write=_as_output)


def call_of(item: JsonObject, shape: CallShape) -> ToolCall:
    """Return the call of an item."""
    action = item.get("action")
    if isinstance(action, dict):
        item = {**item, "action": {key: value for key, value in action.items() if key != "sources"}}
    values: JsonObject = {key: item[key] for key in shape.arguments if item.get(key) is not None}
    only = next(iter(values.values())) if len(values) == 1 else None
    is_text = shape.arguments == ("input",)
    is_whole = is_text or isinstance(only, dict) or shape.arguments == ("arguments",)
    call_id, name = string_of(item.get(shape.call_id)), shape.name or string_of(item.get("name"))
    return ToolCall(call_id, name, json_text(only if is_whole else values), shape.output == "", is_text)


def result_of(item: JsonObject, shape: CallShape, *, is_error: bool | None = None) -> ToolResult:
    """Return the result of an item. An item that says none has its status as a text. ``is_error`` overrides its own mark."""
    action = item.get("action")
    if isinstance(action, dict) and "sources" in action:
        item = {**item, "sources": action["sources"]}
    values = [item[key] for key in shape.result if item.get(key) is not None]
    blocks = tuple(block for value in values for block in result_blocks(value))
    if shape.has_image and isinstance(item.get("result"), str):
        image_type = f"image/{string_of(item.get('output_format')) or 'png'}"
        blocks = (Media("image", image_type, data=string_of(item["result"])), *blocks[1:])
    if not blocks and isinstance(item.get("status"), str):
        blocks = (Text(string_of(item["status"])),)
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    failed = item.get("status") == "failed" or item.get("error") is not None or has_failed(values)
    call_ids = (item.get(key) for key in (shape.answered_id if shape.output else (shape.call_id,)))
    call_id = next((call_id for call_id in call_ids if isinstance(call_id, str)), "")
    is_failed = (failed or marked_error(text)) if is_error is None else is_error
    return ToolResult(call_id, blocks, is_error=is_failed, hosted=shape.output == "")


def result_blocks(value: JsonValue) -> Iterator[Block]:
    """Yield what a result says: its texts and media, and everything else as JSON without what only the provider can read."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and _is_readable(part) for part in value):
        for part in value:
            yield from result_blocks(part)
    elif isinstance(value, dict) and _is_readable(value):
        yield from _read_part(value)
    elif isinstance(value, str):
        yield Text(value)
    elif value not in (None, []):
        yield Text(sendable_json_text(_without_secrets(value)))


_TEXT_KEYS = ("text", "logs", "stdout", "stderr")


def _is_readable(part: JsonObject) -> bool:
    """Return whether the part is a text, an image, or the output of a program."""
    kind = part.get("type")
    is_image = isinstance(part.get("image_url"), str) or (kind == "image" and isinstance(part.get("url"), str))
    is_screenshot = kind == "computer_screenshot" and isinstance(part.get("file_id"), str)
    is_text = isinstance(part.get("text"), str) and kind in ("input_text", "output_text", "text", "advisor_result")
    return is_image or is_screenshot or is_text or any(isinstance(part.get(key), str) for key in _TEXT_KEYS[1:])


def _read_part(part: JsonObject) -> Iterator[Block]:
    url = part.get("image_url", part.get("url"))
    if isinstance(url, str):
        yield media_from_url(url, detail=string_of(part.get("detail")) or None)
        return
    if part.get("type") == "computer_screenshot":
        yield Media("image", file_id=string_of(part.get("file_id")))
        return
    yield from (Text(string_of(part[key])) for key in _TEXT_KEYS if string_of(part.get(key)))
    outcome, code = part.get("outcome"), part.get("return_code")
    if isinstance(outcome, dict):
        code = outcome.get("exit_code", outcome.get("type"))
    if code not in (None, 0):
        yield Text(f"[exit {json_text(code)}]")
    files = part.get("content")
    if isinstance(files, list) and files:
        yield Text(sendable_json_text(_without_secrets(files)))


def has_failed(values: Iterable[JsonValue]) -> bool:
    """Return whether a result says that a program failed, or is a provider's own error."""
    for value in values:
        for part in objects_in(value if isinstance(value, list) else [value]):
            outcome = part.get("outcome")
            code = outcome.get("exit_code", 1) if isinstance(outcome, dict) else part.get("return_code")
            if code not in (None, 0) or string_of(part.get("type")).endswith("_error"):
                return True
    return False


def _without_secrets(value: JsonValue) -> JsonValue:
    """Return the value without members that are encrypted for the provider."""
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items() if not key.startswith("encrypted")}
    return value


def is_call(kind: str) -> bool:
    """Return whether a block of Anthropic is a call, of the caller's tool or the provider's own."""
    return kind.endswith("tool_use")


def is_result(kind: str) -> bool:
    """Return whether a block of Anthropic is a result."""
    return kind.endswith("tool_result")


def with_result_text(body: JsonObject, texts: dict[int, str]) -> JsonObject | None:
    """Return a body with texts in place of its results, by their index; None when its shape can't hold a text."""
    content = body.get("content")
    if isinstance(content, list):
        return _with_block_texts(body, content, texts)
    shape = shape_of_call(body)
    if shape is None or shape.output or shape.write is None:
        return None
    return body | {key: None for key in shape.result if key in body} | shape.write(texts[0], False)


def _with_block_texts(body: JsonObject, content: list[JsonValue], texts: dict[int, str]) -> JsonObject | None:
    blocks, index = list[JsonValue](), -1
    for block in content:
        is_result_block = isinstance(block, dict) and is_result(string_of(block.get("type")))
        index += is_result_block
        if not isinstance(block, dict) or not is_result_block or index not in texts:
            blocks.append(block)
            continue
        inner = _inner_with_text(block, texts[index])
        if inner is None:
            return None
        blocks.append({**block, "content": inner})
    return {**body, "content": blocks}


def _inner_with_text(block: JsonObject, text: str) -> JsonValue:
    """Return the content of an Anthropic result with ``text`` as all that it says; None when a result of its type holds no text."""
    inner = block.get("content")
    if block["type"] == "mcp_tool_result":
        return [{"type": "text", "text": text}]
    if not isinstance(inner, dict):
        return None
    if isinstance(inner.get("stdout"), str):
        return {**inner, "stdout": text, "stderr": ""}
    key = "text" if "text" in inner else "content"
    if isinstance(inner.get(key), str):
        return {**inner, key: text}
    source: JsonObject = {"type": "text", "media_type": "text/plain", "data": text}
    return {**inner, "content": {"type": "document", "source": source}} if "url" in inner else None
