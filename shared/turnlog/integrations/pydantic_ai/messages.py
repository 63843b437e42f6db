"""Messages of Pydantic AI as messages of the log in the format `turnlog`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.integrations.originals import Originals

_MESSAGE = TypeAdapter[ModelMessage](ModelMessage)


def _to_body(message: ModelMessage) -> JsonObject:
    blocks, calls, results = list[JsonValue](), list[JsonValue](), list[JsonValue]()
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            calls.append({"id": part.tool_call_id, "name": part.tool_name, "args": part.args_as_dict()})
        elif isinstance(part, ToolReturnPart):
            failed = {"is_error": True} if part.outcome != "success" else {}
            results.append({"tool_call_id": part.tool_call_id, "result": part.model_response_str(), **failed})
        elif isinstance(part, RetryPromptPart) and part.tool_name is not None:
            results.append({"tool_call_id": part.tool_call_id, "result": part.model_response(), "is_error": True})
        elif isinstance(part, ThinkingPart):
            blocks.append({"type": "thinking", "text": part.content})
        elif isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            blocks += [_block(item) for item in part.content]
        elif isinstance(content := getattr(part, "content", None), str):
            blocks.append({"type": "text", "text": content})
    role = "assistant" if isinstance(message, ModelResponse) else "tool" if results else "user"
    body: JsonObject = {"role": role, "content": blocks or None}
    if calls:
        body["tool_calls"] = calls
    if results:
        body["tool_results"] = results
    return body


def _block(item: Any) -> JsonObject:
    if isinstance(item, BinaryContent):
        kind = "image" if item.is_image else "audio" if item.is_audio else "file"
        return {"type": kind, "media_type": item.media_type, "data": base64.b64encode(item.data).decode("ascii")}
    return {"type": "text", "text": item if isinstance(item, str) else str(getattr(item, "url", item))}


def _from_body(body: Mapping[str, Any], names: Mapping[str, str]) -> ModelMessage:
    content = body.get("content") or []
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if body["role"] == "assistant":
        calls = [ToolCallPart(call["name"], call["args"], call["id"]) for call in body.get("tool_calls") or ()]
        return ModelResponse([*(TextPart(text) for text in texts), *calls])
    results = [
        ToolReturnPart(names.get(result["tool_call_id"], "tool"), result["result"], result["tool_call_id"])
        for result in body.get("tool_results") or ()
    ]
    media = [
        BinaryContent(base64.b64decode(block["data"]), media_type=block["media_type"])
        for block in blocks
        if block.get("data")
    ]
    said = [*texts, *media] if media else "\n".join(texts)
    return ModelRequest([*results, *([UserPromptPart(said)] if said else [])])


MESSAGES = Originals[ModelMessage](
    "pydantic_ai",
    dump=lambda message: _MESSAGE.dump_python(message, mode="json"),
    load=_MESSAGE.validate_python,
    to_body=_to_body,
    from_body=_from_body,
)
