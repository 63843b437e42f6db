"""Events of the Agent Development Kit as messages of the log in the format `turnlog`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from google.adk.events.event import Event
from google.genai import types

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.integrations.originals import Originals


def _to_body(event: Event) -> JsonObject:
    parts = event.content.parts or [] if event.content is not None else []
    blocks: list[JsonValue] = [block for part in parts if (block := _block(part)) is not None]
    calls = [part.function_call for part in parts if part.function_call is not None]
    results = [part.function_response for part in parts if part.function_response is not None]
    said_by_user = event.content is not None and event.content.role == "user"
    body: JsonObject = {
        "role": "tool" if results else "user" if said_by_user else "assistant",
        "content": blocks or None,
    }
    if calls:
        body["tool_calls"] = [{"id": call.id or "", "name": call.name or "", "args": call.args or {}} for call in calls]
    if results:
        body["tool_results"] = [{"tool_call_id": result.id or "", "result": result.response} for result in results]
    return body


def _block(part: types.Part) -> JsonObject | None:
    if part.text is not None:
        return {"type": "thinking" if part.thought else "text", "text": part.text}
    if part.inline_data is not None and part.inline_data.data is not None:
        media_type = part.inline_data.mime_type or ""
        kind = next((kind for kind in ("image", "audio") if media_type.startswith(kind)), "file")
        return {"type": kind, "media_type": media_type, "data": base64.b64encode(part.inline_data.data).decode("ascii")}
    return None


def _from_body(body: Mapping[str, Any], names: Mapping[str, str]) -> Event:
    """Return a new event for a body that a window has shortened. Media in it are named by their text."""
    content, parts = body.get("content") or [], list[types.Part]()
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if block["type"] == "text":
            parts.append(types.Part(text=block["text"]))
        elif block.get("data"):
            parts.append(types.Part.from_bytes(data=base64.b64decode(block["data"]), mime_type=block["media_type"]))
    for call in body.get("tool_calls") or ():
        parts.append(types.Part(function_call=types.FunctionCall(id=call["id"], name=call["name"], args=call["args"])))
    for result in body.get("tool_results") or ():
        value = result["result"]
        response = types.FunctionResponse(
            id=result["tool_call_id"],
            name=names.get(result["tool_call_id"], "tool"),
            response=value if isinstance(value, dict) else {"result": value},
        )
        parts.append(types.Part(function_response=response))
    role = "model" if body["role"] == "assistant" else "user"
    return Event(author=role, content=types.Content(role=role, parts=parts))


EVENTS = Originals[Event](
    "google_adk",
    dump=lambda event: event.model_dump(mode="json", exclude_none=True, fallback=str),
    load=Event.model_validate,
    to_body=_to_body,
    from_body=_from_body,
)
