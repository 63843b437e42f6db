"""The codec of OpenAI's Agents SDK for JavaScript: items of OpenAI Responses in the SDK's own spelling.

Source of the shapes: https://openai.github.io/openai-agents-js/openai/agents-core/type-aliases/agentinputitem/. An item is read as
the item of `openai_responses` that the SDK sends for it, and windows are made of those, so both formats have one set of rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import once
from turnlog.core.messages import Message
from turnlog.providers import Rendered, Turn
from turnlog.providers.blocks import object_of, objects_in, string_of
from turnlog.providers.openai_responses import FORMAT as RESPONSES
from turnlog.providers.openai_responses import OpenAIResponsesCodec

FORMAT = "openai_agents_js"
_RESPONSES = OpenAIResponsesCodec()
_CAMEL, _SNAKE = re.compile(r"(?<=[a-z0-9])([A-Z])"), re.compile(r"_([a-z])")
_OWN_TYPES = frozenset({"function_call_result", "computer_call_result", "hosted_tool_call"})
_OWN_KEYS = ("callId", "providerData", "rawContent")
_PLAIN = ("arguments", "code", "tools", "queries", "results")
"""Members whose inner names are the caller's or the provider's."""


class OpenAIAgentsJsCodec(OpenAIResponsesCodec):
    """Codec of the `openai_agents_js` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        if string_of(body.get("type")) in _OWN_TYPES or any(key in body for key in _OWN_KEYS):
            return isinstance(body.get("type", body.get("role")), str)
        return any(
            part.get("type") in ("input_image", "input_file") and ("image" in part or "file" in part)
            for part in objects_in(body.get("content"))
        )

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        return super().parse(as_responses(body), is_error=is_error)

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        new_turns = [_as_turn_of_responses(turn) for turn in turns]
        own_bodies = {id(new.body): turn.body for turn, new in zip(turns, new_turns, strict=True) if new is not turn}
        rendered = _RESPONSES.render(new_turns, system=system, tools=tools)
        names = {
            string_of(item.get("call_id")): string_of(item.get("name"))
            for item in rendered.messages
            if item.get("type") == "function_call"
        }
        sent = {id(item): own_bodies.get(id(item)) or _as_own(item, names) for item in rendered.messages}
        return Rendered(
            [sent[id(item)] for item in rendered.messages],
            tools=rendered.tools,
            ends=rendered.ends,
            bodies=[[sent[id(item)] for item in items] for items in rendered.bodies],
        )

    def bodies(self, turn: Turn) -> list[JsonObject]:
        new_turn = _as_turn_of_responses(turn)
        own = turn.body if new_turn is not turn else None
        items = _RESPONSES.bodies(new_turn)
        return [own if own is not None and item is new_turn.body else _as_own(item, {}) for item in items]

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        return _RESPONSES.tools(tools)


@once
def _as_turn_of_responses(turn: Turn) -> Turn:
    if turn.format != FORMAT or turn.body is None:
        return turn
    return Turn(turn.message, RESPONSES, as_responses(turn.body), turn.call_ids, turn.result_ids)


def _renamed(value: JsonValue, spell: Callable[[str], str]) -> JsonValue:
    """Return a value with its names as ``spell`` spells them, at any depth."""
    if isinstance(value, list):
        return [_renamed(item, spell) for item in value]
    if not isinstance(value, dict):
        return value
    return {spell(key): item if key in _PLAIN else _renamed(item, spell) for key, item in value.items()}


def _snake(key: str) -> str:
    """Return a name of the SDK as OpenAI spells it."""
    return _CAMEL.sub(r"_\1", key).lower() if key[:1].islower() else key


# ---------------------------------------------------------------- reading


def as_responses(item: JsonObject) -> JsonObject:
    """Return the item of OpenAI Responses that the SDK sends for one of its own."""
    read = _READERS.get(string_of(item.get("type", "message")))
    provided = object_of(item.get("providerData"))
    own: JsonObject = {key: value for key, value in item.items() if key != "providerData"}
    if read is not None:
        return read(own, provided)
    snaked = _renamed({**provided, **own}, _snake)
    return snaked if isinstance(snaked, dict) else item


def _message(item: JsonObject, provided: JsonObject) -> JsonObject:
    content = item.get("content")
    return {**item, "content": [_part(part) for part in content]} if isinstance(content, list) else item


def _part(part: JsonValue) -> JsonValue:
    """Return a part of a message, or of a tool's output, as OpenAI spells it."""
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    rest = {key: value for key, value in part.items() if key not in ("image", "file", "providerData")}
    if kind == "text":
        return {**rest, "type": "input_text"}
    if kind in ("image", "input_image") and (source := _source(part.get("image"), "image/png")):
        name = "file_id" if source[0] == "id" else "image_url"
        return {**rest, "type": "input_image", name: source[1]}
    if kind in ("file", "input_file") and (source := _source(part.get("file"), "application/pdf")):
        file = part.get("file")
        filename: JsonObject = {"filename": file["filename"]} if isinstance(file, dict) and "filename" in file else {}
        is_url = source[0] == "url" and not source[1].startswith("data:")
        name = "file_id" if source[0] == "id" else "file_url" if is_url else "file_data"
        return {**rest, **filename, "type": "input_file", name: source[1]}
    return rest if kind in ("input_text", "output_text", "refusal") else part


def _source(value: JsonValue, media_type: str) -> tuple[str, str] | None:
    """Return where an image or a file is: ``id`` or ``url``, and its id, address or data URL; None when nothing says it."""
    if isinstance(value, str) and value:
        is_address = value.startswith(("data:", "https://", "http://"))
        return "url", value if is_address else f"data:{media_type};base64,{value}"
    if not isinstance(value, dict):
        return None
    for key in ("id", "fileId"):
        if isinstance(value.get(key), str):
            return "id", string_of(value[key])
    if isinstance(value.get("data"), str):
        return "url", f"data:{string_of(value.get('mediaType')) or media_type};base64,{value['data']}"
    return ("url", string_of(value["url"])) if isinstance(value.get("url"), str) else None


def _function_output(item: JsonObject, provided: JsonObject) -> JsonObject:
    output = item.get("output")
    if isinstance(output, dict) and output.get("type") == "text":
        output = output.get("text")
    elif isinstance(output, dict):
        output = [output]
    sent_output: JsonValue = [_part(part) for part in output] if isinstance(output, list) else output
    return {**_with_call_id(item), "type": "function_call_output", "output": sent_output}


def _computer_output(item: JsonObject, provided: JsonObject) -> JsonObject:
    output = item.get("output")
    if isinstance(output, dict) and isinstance(output.get("data"), str):
        source = _source(output["data"], "image/png")
        output = {"type": "computer_screenshot", "image_url": source[1] if source else ""}
    return {**_with_call_id(item), "type": "computer_call_output", "output": output}


def _hosted_call(item: JsonObject, provided: JsonObject) -> JsonObject:
    """Return the call that the provider ran: the SDK keeps it beside a short form of its own."""
    kind = string_of(provided.get("type")) or string_of(item.get("name")) or "unknown"
    snaked = _renamed({key: value for key, value in provided.items() if key != "type"}, _snake)
    name = kind if kind.startswith("mcp_") or kind.endswith("_call") else f"{kind}_call"
    call: JsonObject = {key: item[key] for key in ("id", "status") if item.get(key) is not None}
    if item.get("output") is not None:
        call["result" if name == "image_generation_call" else "output"] = item["output"]
    if not provided and item.get("arguments") is not None:
        call["arguments"] = item["arguments"]
    return {"type": name, **call, **(snaked if isinstance(snaked, dict) else {})}


def _reasoning(item: JsonObject, provided: JsonObject) -> JsonObject:
    def parts(value: JsonValue, kind: str) -> list[JsonValue]:
        return [{"type": kind, "text": part.get("text")} for part in objects_in(value)]

    read: JsonObject = {"type": "reasoning", "summary": parts(item.get("content"), "summary_text")}
    if item.get("id") is not None:
        read["id"] = item["id"]
    if item.get("rawContent") is not None:
        read["content"] = parts(item["rawContent"], "reasoning_text")
    encrypted = provided.get("encrypted_content", provided.get("encryptedContent"))
    return read if encrypted is None else {**read, "encrypted_content": encrypted}


def _with_call_id(item: JsonObject) -> JsonObject:
    return {"call_id" if key == "callId" else key: value for key, value in item.items()}


_READERS: Mapping[str, Callable[[JsonObject, JsonObject], JsonObject]] = {
    "message": _message,
    "function_call": lambda item, _: _with_call_id(item),
    "function_call_result": _function_output,
    "computer_call_result": _computer_output,
    "hosted_tool_call": _hosted_call,
    "reasoning": _reasoning,
}


# ---------------------------------------------------------------- rendering


def _as_own(item: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """Return an item of OpenAI Responses in the SDK's spelling. ``names``: call id -> name of the function, for outputs."""
    kind = string_of(item.get("type", "message"))
    if kind == "message":
        return _own_message(item)
    if kind in ("function_call", "function_call_output"):
        own: JsonObject = {"callId" if key == "call_id" else key: value for key, value in item.items()}
        if kind == "function_call":
            return own
        output = item.get("output")
        own_output: JsonValue = [_own_part(part) for part in output] if isinstance(output, list) else output
        name = string_of(item.get("name")) or names.get(string_of(item.get("call_id")), "tool")
        return {**own, "type": "function_call_result", "name": name, "status": "completed", "output": own_output}
    if kind == "reasoning":
        parts = objects_in(item.get("summary"))
        content: JsonValue = [{"type": "input_text", "text": part.get("text")} for part in parts]
        return {"type": "reasoning", "content": content, "providerData": item}
    camel = _renamed(item, lambda key: _SNAKE.sub(lambda match: match[1].upper(), key))
    return camel if isinstance(camel, dict) else item


def _own_message(item: JsonObject) -> JsonObject:
    content, role = item.get("content"), string_of(item.get("role"))
    if role == "assistant":
        parts: JsonValue = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        return {"type": "message", "role": role, "status": "completed", "content": parts}
    own_content: JsonValue = [_own_part(part) for part in content] if isinstance(content, list) else content
    return {"type": "message", "role": "system" if role == "developer" else role, "content": own_content}


def _own_part(part: JsonValue) -> JsonValue:
    if not isinstance(part, dict):
        return part
    own = "image" if part.get("type") == "input_image" else "file"
    for name, key in _SOURCES.items():
        if isinstance(part.get(name), str):
            source: JsonValue = {key: part[name]} if key else part[name]
            return {**{inner: value for inner, value in part.items() if inner != name}, own: source}
    return part


_SOURCES = {"image_url": "", "file_data": "", "file_url": "url", "file_id": "id"}
"""Member of OpenAI's part with its file -> the key that the SDK has it under; none for an address or a data URL alone."""
