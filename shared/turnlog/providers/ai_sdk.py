"""The codec of Vercel's AI SDK: model messages as `generateText` takes them, and messages of its user interface (`parts`).

Sources of the shapes: https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message and
https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message. Windows are model messages. A message of the user interface may hold
several steps of a run; it is read as one message with its calls and their results. Parts that the SDK itself sends to no model
(`source-url`, `data-...`, `step-start`, a call that was cut off) are stored and not sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Codec, End, Rendered, Turn
from turnlog.providers.alternation import FIRST_USER, length_of
from turnlog.providers.blocks import (
    DATA_URL,
    content_with_name,
    convert_tools,
    given_role,
    invalid_message,
    is_safe_name,
    json_text,
    legal_tool_name,
    object_of,
    placeholder_text,
    role_with,
    string_of,
    text_with_placeholders,
    tool_input,
)

FORMAT = "ai_sdk"
_OWN_TYPES = frozenset({"tool-call", "tool-result", "tool-approval-request", "tool-approval-response"})
_FAILED = frozenset({"error-text", "error-json", "execution-denied"})
_DENIED = "the user denied this call"
_ROLES = ("system", "user", "assistant", "tool")


class AiSdkCodec(Codec):
    """Codec of the `ai_sdk` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        parts, content = body.get("parts"), body.get("content")
        if isinstance(parts, list):
            return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
        return isinstance(content, list) and any(map(_is_own_part, content))

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        content, calls, results, before_result = list[Block](), list[ToolCall](), list[ToolResult](), 0
        parts, in_assistant = list(_parts(body)), body.get("role") == "assistant"
        tools = [index for index, part in enumerate(parts) if tool_of_part(part) is not None] or [0]
        # The calls of several steps are sent behind what was said in all of them.
        is_one_step = "step-start" not in [part["type"] for part in parts[tools[0] : tools[-1]]]
        for part in parts:
            options = _options(part) if is_one_step and in_assistant else None
            if (call := _call(part, options)) is not None:
                calls.append(call)
            if (result := _result(part, is_error, in_assistant=in_assistant)) is not None:
                results.append(result)
                before_result = len(content)
            if call is None and result is None and not is_unsent(part):
                content.append(_block(part, options))
        role = role_with(body, tuple(content), calls=bool(calls), results=bool(results))
        is_answered = bool(calls) and {call.id for call in calls} <= {result.tool_call_id for result in results}
        closing = len(content) - before_result if is_answered else 0
        blocks = (tuple(content), tuple(calls), tuple(results))
        return Message(role, *blocks, given_role=given_role(body), closing=closing)

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        messages, ends, bodies, names = list[JsonObject](), list[End](), list[Sequence[JsonObject]](), dict[str, str]()
        for turn in turns:
            sent = [_with_names(body, names) for body in self.bodies(turn)]
            messages += sent
            bodies.append(sent)
            ends.append(End(len(messages) - 1, length_of(messages[-1]) if messages else 0))
        messages = messages or [{"role": "user", "content": FIRST_USER}]
        return Rendered(messages, system=system, tools=self.tools(tools), ends=tuple(ends), bodies=bodies)

    def repaired(self, turn: Turn, body: JsonObject) -> list[JsonObject] | None:
        """Return the model message as it was appended, with the ids to send; None when it must be rendered."""
        message, content, role = turn.message, body.get("content"), body.get("role")
        has_results = any(not result.hosted for result in message.tool_results)
        if "parts" in body or role not in _ROLES or (has_results and role != "tool"):
            return None
        if isinstance(content, str):
            return [body] if role != "tool" and content else None
        if (
            not isinstance(content, list)
            or not content
            or not all(is_safe_name(call.name) for call in message.tool_calls)
        ):
            return None
        calls, results = iter(turn.call_ids), iter(turn.result_ids)
        parts = [_with_id(part, calls, results) for part in content]
        return [body if parts == content else {**body, "content": parts}]

    def rendered(self, turn: Turn) -> list[JsonObject]:
        message = turn.message
        is_own = turn.format == FORMAT and all(map(is_safe_name, [call.name for call in message.tool_calls]))
        calls: list[JsonValue] = [
            {
                "type": "tool-call",
                "toolCallId": call_id,
                "toolName": legal_tool_name(call.name),
                "input": tool_input(call),
                **(call.options if is_own and call.options else {}),
            }
            for call, call_id in zip(message.tool_calls, turn.call_ids, strict=True)
        ]
        results: list[JsonValue] = [
            {"type": "tool-result", "toolCallId": call_id, "toolName": result.name, "output": _output_of(result)}
            for result, call_id in zip(message.tool_results, turn.result_ids, strict=True)
        ]
        role = "assistant" if calls else message.role
        has_media = role not in ("system", "tool")
        parts = [_part(block, has_media=has_media, is_own=is_own) for block in content_with_name(message)]
        content = [part for part in parts if part is not None]
        assistant: JsonObject = {
            "role": "user" if role in ("tool", "unknown") else role,
            "content": [*content, *calls] if calls else _joined(content),
        }
        answers: JsonObject = {"role": "tool", "content": results}
        bodies = [assistant, answers] if turn.has_own_results else [answers, assistant]
        return [body for body in bodies if body["content"]]

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        return convert_tools(tools, "openai_chat")


# ---------------------------------------------------------------- reading


def _is_own_part(part: JsonValue) -> bool:
    """Return whether no other format has such a part."""
    fields = object_of(part)
    kind = string_of(fields.get("type"))
    is_image = kind == "image" and isinstance(fields.get("image"), str)
    return kind in _OWN_TYPES or is_image or (kind == "file" and isinstance(fields.get("mediaType"), str))


def _parts(body: JsonObject) -> Iterator[JsonObject]:
    name = "parts" if isinstance(body.get("parts"), list) else "content"
    value = body.get(name)
    if isinstance(value, str):
        yield {"type": "text", "text": value}
        return
    if not isinstance(value, list | None) or not all(isinstance(part, dict) for part in value or ()):
        raise invalid_message(f"/{name}", f"{name} is neither a string, a list of parts nor null")
    for index, part in enumerate(value or ()):
        if isinstance(part, dict):
            if not isinstance(part.get("type"), str):
                raise invalid_message(f"/{name}/{index}", "a part has no type")
            yield part


def is_unsent(part: JsonObject) -> bool:
    """Return whether the SDK shows the part to users and sends it to no model."""
    kind = string_of(part.get("type"))
    return kind.startswith(("data-", "source-")) or kind == "step-start" or tool_of_part(part) is not None


def is_known_part(part: JsonValue) -> bool:
    """Return whether a rule of this format knows the part."""
    if not isinstance(part, dict):
        return False
    is_said = string_of(part.get("type")) in _OWN_TYPES or not isinstance(_block(part), Opaque)
    return is_said or is_unsent(part)


def tool_of_part(part: JsonObject) -> str | None:
    """Return the tool's name of a part that shows a call to users; None for other parts."""
    kind = string_of(part.get("type"))
    if not isinstance(part.get("state"), str) or not isinstance(part.get("toolCallId"), str):
        return None
    if kind == "dynamic-tool":
        return string_of(part.get("toolName"))
    return kind.removeprefix("tool-") if kind.startswith("tool-") else None


def _options(part: JsonObject) -> JsonObject | None:
    """Return the options that the SDK keeps for a provider. Reasoning always has some, other parts may have None."""
    options = part.get("providerMetadata", part.get("callProviderMetadata", part.get("providerOptions"))) or {}
    return {"providerOptions": options} if options or part["type"] == "reasoning" else None


def _call(part: JsonObject, options: JsonObject | None) -> ToolCall | None:
    name = tool_of_part(part)
    if name is None and part["type"] != "tool-call":
        return None
    if name is not None and part["state"] == "input-streaming":
        return None  # cut off before its input was whole: the SDK leaves it out, too
    value = part.get("input", part.get("rawInput", part.get("args")))
    is_hosted = part.get("providerExecuted") is True
    call_id, name = string_of(part.get("toolCallId")), string_of(part.get("toolName")) if name is None else name
    return ToolCall(call_id, name, json_text(value), is_hosted, options=options)


def _result(part: JsonObject, is_error: bool | None, *, in_assistant: bool) -> ToolResult | None:
    name, call_id = tool_of_part(part), string_of(part.get("toolCallId"))
    if name is None:
        if part["type"] != "tool-result":
            return None
        content, failed = _output(part.get("output", part.get("result")))
        is_hosted = in_assistant
    else:
        if part["state"] not in ("output-available", "output-error", "output-denied"):
            return None
        failed, is_hosted = part["state"] != "output-available", part.get("providerExecuted") is True
        reason = string_of(part.get("errorText")) or string_of(object_of(part.get("approval")).get("reason"))
        content = (Text(reason or _DENIED),) if failed else _texts(part.get("output"))
    return ToolResult(call_id, content, is_error=failed if is_error is None else is_error, hosted=is_hosted)


def _output(output: JsonValue) -> tuple[tuple[Block, ...], bool]:
    """Return the blocks of a tool's output, and whether it says that the call failed."""
    fields = object_of(output)
    kind, value = fields.get("type"), fields.get("value")
    if kind == "execution-denied":
        return (Text(string_of(fields.get("reason")) or _DENIED),), True
    if not isinstance(kind, str) or not fields.keys() & {"value", "reason"}:
        return _texts(output), False
    if kind == "content" and isinstance(value, list):
        return tuple(_block(part) for part in value if isinstance(part, dict)), False
    return _texts(value), kind in _FAILED


def _texts(value: JsonValue) -> tuple[Block, ...]:
    text = json_text(value)
    return (Text(text),) if text else ()


def _block(part: JsonObject, options: JsonObject | None = None) -> Block:
    kind = string_of(part.get("type"))
    if kind == "text" and isinstance(part.get("text"), str):
        return Text(string_of(part["text"]), options)
    if kind == "reasoning" and isinstance(part.get("text"), str):
        return Thinking(string_of(part["text"]), options=options)
    return media_of_part(part) or Opaque(FORMAT, part)


_MEDIA_FIELDS: Mapping[str, str] = {
    "image": "image",
    "file": "data",
    "media": "data",
    "file-data": "data",
    "image-data": "data",
    "file-url": "url",
    "image-url": "url",
}
"""Type of a part with an image, a file or a sound -> the member that holds it; a file of the user interface has a ``url``."""


def media_of_part(part: JsonObject) -> Media | None:
    """Return the image, file or sound of a part; None for other parts, and for bytes that were not written as base64 or a URL."""
    kind = string_of(part.get("type"))
    value = part.get(_MEDIA_FIELDS.get(kind, ""), part.get("url") if kind == "file" else None)
    if not isinstance(value, str) or not value:
        return None
    media_type, name = string_of(part.get("mediaType")) or None, string_of(part.get("filename")) or None
    data_url = DATA_URL.fullmatch(value)
    media_type = media_type or (data_url[1] if data_url else None) or None
    is_image = kind.startswith("image") or (media_type or "").startswith("image/")
    of = "image" if is_image else "audio" if (media_type or "").startswith("audio/") else "file"
    is_url = data_url is None and value.startswith(("https://", "http://"))
    data, url = (None, value) if is_url else (data_url[2] if data_url else value, None)
    of_openai = object_of(object_of(part.get("providerOptions")).get("openai"))
    detail = string_of(of_openai.get("imageDetail")) or None
    return Media(of, media_type, data, url, name=name, detail=detail)  # type: ignore[arg-type]


def _with_detail(part: JsonObject, media: Media) -> JsonObject:
    return part | ({"providerOptions": {"openai": {"imageDetail": media.detail}}} if media.detail else {})


# ---------------------------------------------------------------- rendering


def _with_id(part: JsonValue, calls: Iterator[str], results: Iterator[str]) -> JsonValue:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in ("tool-call", "tool-result"):
        return part
    call_id = next(calls if kind == "tool-call" else results)
    return part if part.get("toolCallId") == call_id else {**part, "toolCallId": call_id}


def _with_names(body: JsonObject, names: dict[str, str]) -> JsonObject:
    """Return a message whose results have the names of their calls, and note the names of its own calls."""
    content = body["content"]
    if not isinstance(content, list):
        return body
    parts = list[JsonValue]()
    for part in content:
        is_named = isinstance(part, dict) and part.get("toolName")
        if isinstance(part, dict) and part.get("type") == "tool-call":
            names[string_of(part.get("toolCallId"))] = string_of(part.get("toolName"))
        elif isinstance(part, dict) and part.get("type") == "tool-result" and not is_named:
            parts.append({**part, "toolName": names.get(string_of(part.get("toolCallId")), "tool")})
            continue
        parts.append(part)
    return body if parts == content else {**body, "content": parts}


def _joined(parts: Sequence[JsonValue]) -> JsonValue:
    """Return texts as one text; parts as they are when one of them is no text."""
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.keys() == {"type", "text"}]
    words = [text for text in texts if isinstance(text, str)]
    return "\n".join(words) if len(words) == len(parts) else list(parts)


_MEDIA_TYPES = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}
"""Types of media that came without one: a part's type decides what it counts as."""


def _part(block: Block, *, has_media: bool, is_own: bool) -> JsonObject | None:
    """Return the part of a block; None for thinking that is not ``is_own`` and a block of another format without a text."""
    options = (getattr(block, "options", None) if is_own else None) or {}
    if isinstance(block, Thinking) and options:
        return {"type": "reasoning", "text": block.text, **options}
    if isinstance(block, Opaque) and block.format == FORMAT:
        return block.value if isinstance(block.value, dict) else None
    if isinstance(block, Media) and has_media and (source := block.data or block.url):
        media_type = block.media_type or _MEDIA_TYPES.get(block.kind, "application/octet-stream")
        named: JsonObject = {"filename": block.name} if block.name else {}
        return _with_detail({"type": "file", "data": source, "mediaType": media_type, **named}, block)
    text = placeholder_text(block)
    return {"type": "text", "text": text, **options} if text.strip() else None


def _output_of(result: ToolResult) -> JsonObject:
    if any(isinstance(block, Media) and block.data for block in result.content):
        return {"type": "content", "value": [part for block in result.content if (part := _content_part(block))]}
    text = text_with_placeholders(result.content)
    return {"type": "error-text" if result.is_error else "text", "value": text}


def _content_part(block: Block) -> JsonObject | None:
    if isinstance(block, Media) and block.data:
        kind, other = (
            ("image-data", "image/png") if block.kind == "image" else ("file-data", "application/octet-stream")
        )
        return _with_detail({"type": kind, "data": block.data, "mediaType": block.media_type or other}, block)
    text = placeholder_text(block)
    return {"type": "text", "text": text} if text else None
