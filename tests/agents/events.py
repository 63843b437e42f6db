"""Messages as their providers stream them: cut anywhere, the deltas of one block in any sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Cut = Callable[[str], list[str]]


def chat(message: Mapping[str, Any], cut: Cut, *, finish: str = "stop") -> Iterator[dict[str, Any]]:
    """Chunks of OpenAI Chat; ids and names come whole, in a call's first chunk, and calls one behind the other."""

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    yield chunk({"role": "assistant", "content": None if message["content"] is None else ""})
    for text in cut(message["content"] or ""):
        yield chunk({"content": text})
    for at, call in enumerate(message.get("tool_calls", [])):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": at, "id": call["id"], "type": "function", "function": function}]})
        for text in cut(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": text}}]})
    yield chunk({}, finish)
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    yield {**chunk({}), "choices": [], "usage": usage}


def anthropic(message: Mapping[str, Any], cut: Cut, *, finish: str = "end_turn") -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 2, "output_tokens": 1}
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        deltas = list[dict[str, Any]]()
        empty = dict(block)
        if block["type"] == "text":
            empty["text"] = ""
            deltas = [{"type": "text_delta", "text": text} for text in cut(block["text"])]
        elif block["type"] == "tool_use":
            empty["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in cut(json.dumps(block["input"]))]
        elif block["type"] == "thinking":
            empty |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": text} for text in cut(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": finish, "stop_sequence": None},
        "usage": {"output_tokens": 7},
    }
    yield {"type": "message_stop"}


def converse(message: Mapping[str, Any], cut: Cut, *, finish: str = "end_turn") -> Iterator[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    for index, block in enumerate(message["content"]):

        def delta(told: dict[str, Any], index: int = index) -> dict[str, Any]:
            return {"contentBlockDelta": {"delta": told, "contentBlockIndex": index}}

        if "text" in block:
            yield from (delta({"text": text}) for text in cut(block["text"]))
        elif "toolUse" in block:
            start = {name: block["toolUse"][name] for name in ("toolUseId", "name")}
            yield {"contentBlockStart": {"start": {"toolUse": start}, "contentBlockIndex": index}}
            yield from (delta({"toolUse": {"input": part}}) for part in cut(json.dumps(block["toolUse"]["input"])))
        else:
            result = block["reasoningContent"]["reasoningText"]
            yield from (delta({"reasoningContent": {"text": text}}) for text in cut(result["text"]))
            yield delta({"reasoningContent": {"signature": result["signature"]}})
        yield {"contentBlockStop": {"contentBlockIndex": index}}
    yield {"messageStop": {"stopReason": finish}}
    usage = {"inputTokens": 5, "cacheReadInputTokens": 6, "outputTokens": 7, "totalTokens": 18}
    yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def responses(items: list[dict[str, Any]], cut: Cut) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {"output": []}}
    for index, item in enumerate(items):
        empty = dict(item)
        if item["type"] == "message":
            empty["content"] = []
        elif item["type"] == "function_call":
            empty["arguments"] = ""
        else:
            empty["summary"] = []
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        if item["type"] == "message":
            for at, part in enumerate(item["content"]):
                place = {"output_index": index, "content_index": at}
                yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
                for text in cut(part["text"]):
                    yield {"type": "response.output_text.delta", **place, "delta": text}
        elif item["type"] == "function_call":
            for text in cut(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}
        else:
            for at, part in enumerate(item["summary"]):
                place = {"output_index": index, "summary_index": at}
                yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
                for text in cut(part["text"]):
                    yield {"type": "response.reasoning_summary_text.delta", **place, "delta": text}
        yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    yield {"type": "response.completed", "response": {"output": items, "usage": usage}}
