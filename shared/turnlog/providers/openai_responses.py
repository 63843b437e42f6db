"""The codec of OpenAI Responses input items.

Sources of the shapes and rules: https://platform.openai.com/docs/api-reference/responses/create and
https://platform.openai.com/docs/guides/reasoning. Each body is one item. A ``function_call`` is an assistant message with one
call; consecutive ones are parallel calls of one turn. ``reasoning`` is thinking that is sent with the item it belongs to. Calls
of the provider's own tools (``shell_call``, ``web_search_call`` and others) are told in shapes of their own (`hosted_calls`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import BEFORE_ALL, Codec, End, Rendered, Turn
from turnlog.providers.alternation import FIRST_USER
from turnlog.providers.blocks import (
    content_blocks,
    content_with_name,
    data_url,
    file_fields,
    given_role,
    invalid_message,
    is_safe_name,
    legal_tool_name,
    marked_error,
    media_from_file,
    media_from_url,
    objects_in,
    parts_of,
    placeholder_text,
    result_parts,
    role_of,
    string_of,
    text_with_placeholders,
)
from turnlog.providers.hosted_calls import CallShape, call_of, result_of, shape_of_call, shape_of_output
from turnlog.providers.shapes import fitted

FORMAT = "openai_responses"
_WITH_NAME = {"function_call": "arguments", "custom_tool_call": "input"}
_WITH_PARTS = ("function_call_output", "custom_tool_call_output")
_PARTS_OF_OTHER_ROLES = {
    "user": frozenset({"output_text", "refusal"}),
    "system": frozenset({"output_text", "refusal"}),
    "assistant": frozenset({"input_text", "input_image", "input_file"}),
}
"""Role -> the part types that only other roles may have."""
_ITEM_TYPE = re.compile(r"[a-z_]{1,64}")


class OpenAIResponsesCodec(Codec):
    """Codec of the `openai_responses` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        if isinstance(body.get("type"), str):
            return True
        kinds = [string_of(part.get("type")) for part in objects_in(body.get("content"))]
        return any(kind != "input_audio" and kind.startswith(("input_", "output_text")) for kind in kinds)

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        kind = body.get("type", "message")
        if kind == "message":
            content = tuple(map(_part, content_blocks(body.get("content"), "/content")))
            return Message(role_of(body), content, given_role=given_role(body))
        if not isinstance(kind, str) or not _ITEM_TYPE.fullmatch(kind):
            raise invalid_message("/type", "an item's type is letters and _")
        if (shape := shape_of_call(body)) is not None:
            results = () if shape.output else (result_of(body, shape, is_error=is_error),)
            return Message("assistant", (), (call_of(body, shape),), results, given_role=kind)
        if kind in _WITH_PARTS and isinstance(body.get("output"), list):
            blocks = tuple(map(_part, content_blocks(body["output"], "/output")))
            text = "\n".join(block.text for block in blocks if isinstance(block, Text))
            failed = marked_error(text) if is_error is None else is_error
            result = ToolResult(string_of(body.get("call_id")), blocks, is_error=failed)
            return Message("tool", tool_results=(result,), given_role=kind)
        if (shape := shape_of_output(body)) is not None:
            return Message("tool", tool_results=(result_of(body, shape, is_error=is_error),), given_role=kind)
        if kind == "reasoning":
            parts = objects_in(body.get("summary")) + objects_in(body.get("content"))
            text = "\n".join(filter(None, (string_of(part.get("text")) for part in parts)))
            return Message("assistant", (Thinking(text),), given_role=kind)
        compacts = kind == "compaction" and bool(string_of(body.get("encrypted_content")))
        return Message("assistant", (Opaque(FORMAT, body),), given_role=kind, compacts=compacts)

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        items = list[JsonObject]() if system is None else [_message("system", system)]
        lengths = [len(items)]
        for turn_bodies in map(self.bodies, turns):
            items.extend(turn_bodies)
            lengths.append(len(items))
        kept_items = _without_lone_reasoning(_with_matching_outputs(_without_repeated_ids(items)))
        sent_counts = [0, *accumulate(item is not None for item in kept_items)]
        sent = [item for item in kept_items if item is not None]
        borders = [sent_counts[length] for length in lengths]
        return Rendered(
            sent or [_message("user", FIRST_USER)],
            tools=self.tools(tools),
            ends=tuple(End(border - 1, 1) if border else BEFORE_ALL for border in borders[1:]),
            bodies=[sent[start:end] for start, end in pairwise(borders)],
        )

    def repaired(self, turn: Turn, body: JsonObject) -> list[JsonObject] | None:
        repaired = _repaired_item(turn, body)
        legal = fitted(repaired, FORMAT) if repaired is not None else None
        return None if legal is None else [legal]

    def rendered(self, turn: Turn) -> list[JsonObject]:
        return [legal for body in _rendered_items(turn) if (legal := fitted(body, FORMAT)) is not None]


def _part(part: JsonObject) -> Block:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return Text(string_of(part["text"]))
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return Text(string_of(part["refusal"]))
    if kind == "input_image":
        detail, url = string_of(part.get("detail")) or None, string_of(part.get("image_url"))
        if url:
            return media_from_url(url, detail=detail)
        if isinstance(part.get("file_id"), str):
            return Media("image", file_id=string_of(part["file_id"]), detail=detail)
    if kind == "input_file" and any(isinstance(part.get(key), str) for key in ("file_id", "file_data", "file_url")):
        return media_from_file(part, url=string_of(part.get("file_url")) or None)
    return Opaque(FORMAT, part)


def _message(role: str, content: JsonValue) -> JsonObject:
    return {"role": role, "content": content}


# ---------------------------------------------------------------- rendering


def _repaired_item(turn: Turn, body: JsonObject) -> JsonObject | None:
    """Return the item as it was appended, or a copy with repairs; None when it must be rendered from the message."""
    message = turn.message
    kind = body.get("type", "message")
    if (shape := shape_of_call(body)) is not None:
        is_legal = kind not in _WITH_NAME or (
            is_safe_name(message.tool_calls[0].name) and isinstance(body.get(_WITH_NAME[str(kind)]), str)
        )
        has_own_id = not shape.output or (shape.may_lack_id and body.get("call_id") is None)
        repaired = body if has_own_id else _with_id(body, (shape.call_id,), turn.call_ids[0])
        return repaired if is_legal else None
    if (shape := shape_of_output(body)) is not None:
        output = body.get("output")
        is_legal = kind not in _WITH_PARTS or isinstance(output, str) or (isinstance(output, list) and bool(output))
        has_own_id = shape.may_lack_id and body.get("call_id") is None
        repaired = body if has_own_id else _with_id(body, shape.answered_id, turn.result_ids[0])
        return repaired if is_legal else None
    if kind != "message":
        return body
    role, content = message.role, body.get("content")
    kinds = {string_of(part.get("type")) for part in objects_in(content)}
    is_legal = content not in (None, []) and role != "tool" and not kinds & _PARTS_OF_OTHER_ROLES.get(role, set())
    return body if is_legal else None


def _with_id(body: JsonObject, keys: Sequence[str], call_id: str) -> JsonObject:
    """Return the item with the id of its call in the first of ``keys`` that it has."""
    key = next((key for key in keys if body.get(key) is not None), keys[0])
    return body if body.get(key) == call_id else {**body, key: call_id}


def _with_matching_outputs(items: list[JsonObject | None]) -> list[JsonObject | None]:
    """Return the items; each output has the type that fits its call.

    Where the type that answers a call can't hold the output, both become a function's.
    """
    shapes = {_id_of(item): shape for item in items if item and (shape := shape_of_call(item)) and shape.output}
    matched, functions = list[JsonObject | None](), set[JsonValue]()
    for item in items:
        if item is None:
            matched.append(None)
            continue
        own = shape_of_output(item)
        call_id = next((item[key] for key in own.answered_id if item.get(key) is not None), None) if own else None
        shape = shapes.get(call_id)
        if own is None or shape is None or shape.output == item["type"]:
            matched.append(item)
            continue
        output = _as_output_of(shape, item, own, call_id)
        matched.append(output)
        if output["type"] != shape.output:
            functions.add(call_id)
    return [_as_function(item) if item and _id_of(item) in functions else item for item in matched]


def _as_output_of(shape: CallShape, item: JsonObject, own: CallShape, call_id: JsonValue) -> JsonObject:
    """Return an output in the shape that answers another type of call; as a function's output when that shape can't hold it."""
    if shape.output in _WITH_PARTS and item["type"] in _WITH_PARTS:
        return {**item, "type": shape.output}
    result = result_of(item, own)
    if shape.write is None or shape.output in _WITH_PARTS or any(isinstance(part, Media) for part in result.content):
        kind = shape.output if shape.output in _WITH_PARTS else "function_call_output"
        return {"type": kind, "call_id": call_id, "output": result_parts(result, _media_part, "input_text")}
    return {"type": shape.output, shape.answered_id[0]: call_id, **shape.write(result.text, result.is_error)}


def _id_of(item: JsonObject) -> JsonValue:
    """Return the id of a call that another item answers; None for all other items."""
    shape = shape_of_call(item)
    return item.get(shape.call_id) if shape is not None and shape.output else None


def _as_function(item: JsonObject) -> JsonObject:
    shape = shape_of_call(item)
    return item if shape is None else _function_call(call_of(item, shape), str(item[shape.call_id]))


def _function_call(call: ToolCall, call_id: str) -> JsonObject:
    kind, field = ("custom_tool_call", "input") if call.is_text else ("function_call", "arguments")
    return {"type": kind, "call_id": call_id, "name": legal_tool_name(call.name), field: call.arguments}


def _without_repeated_ids(items: list[JsonObject]) -> list[JsonObject | None]:
    """Return the items without item ids that an earlier item has: the provider refuses repeated ids.

    Of the items that cannot be sent without an id, calls become a function's, and None takes the place of others.
    """
    used, kept = set[str](), list[JsonObject | None]()
    for item in items:
        output = shape_of_output(item)
        item_id = None if output is not None and "id" in output.answered_id else item.get("id")
        if not isinstance(item_id, str) or item_id not in used:
            kept.append(item)
        elif output is not None or item.get("type", "message") in ("message", *_WITH_NAME):
            kept.append({key: value for key, value in item.items() if key != "id"})
        else:
            kept.append(_as_function(item) if _id_of(item) is not None else None)
        if isinstance(item_id, str):
            used.add(item_id)
    return kept


def _without_lone_reasoning(items: list[JsonObject | None]) -> list[JsonObject | None]:
    """Return the items without reasoning that no item of the model follows: the provider refuses it."""
    kept, is_followed = list(items), False
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if item is None:
            continue
        kind = string_of(item.get("type", "message"))
        if kind != "reasoning":
            is_followed = item.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")
        elif not is_followed:
            kept[index] = None
    return kept


def _rendered_items(turn: Turn) -> list[JsonObject]:
    message, content = turn.message, content_with_name(turn.message)
    results: list[JsonObject] = [
        {"type": "function_call_output", "call_id": call_id, "output": result_parts(result, _media_part, "input_text")}
        for result, call_id in zip(message.tool_results, turn.result_ids, strict=True)
    ]
    calls: list[JsonObject] = [
        _function_call(call, call_id) for call, call_id in zip(message.tool_calls, turn.call_ids, strict=True)
    ]
    messages = list[JsonObject]()
    if message.role == "user":
        has_media = any(isinstance(block, Media) for block in content)
        parts = parts_of(content, _media_part, "input_text") if has_media else text_with_placeholders(content)
        messages = [_message("user", parts)] if parts else []
    elif message.role in ("assistant", "system"):
        text = text_with_placeholders(content)
        role = "developer" if message.given_role == "developer" else message.role
        messages = [_message(role, text)] if text else []
    items = [*messages, *calls]
    return [*items, *results] if turn.has_own_results else [*results, *items]


def _media_part(media: Media) -> JsonObject:
    """Return the part of the media, or its name as text when the provider does not accept such media."""
    if media.kind == "image" and (media.data or media.url or media.file_id):
        source: JsonObject = {"file_id": media.file_id}
        if media.data or media.url:
            source = {"image_url": media.url or data_url(media, "image/png")}
        return {"type": "input_image", **source, "detail": media.detail or "auto"}
    if media.kind == "file" and (media.data or media.file_id or media.url):
        return {"type": "input_file", **file_fields(media)}
    return {"type": "input_text", "text": placeholder_text(media)}
