"""Answers and messages as the libraries of providers and LangChain return them, and the bodies that are stored of them.

Import it within a test: it imports the libraries, which takes seconds."""

from __future__ import annotations

import json
from typing import Any

from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock, Usage
from anthropic.types.beta import BetaMessage
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from openai.lib._parsing import parse_chat_completion
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"id": "A17"}'}}
CHAT_BODY = {"role": "assistant", "content": "On its way.", "refusal": None, "annotations": None, "tool_calls": [CALL]}
CHAT = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": CHAT_BODY}],
    "usage": {"prompt_tokens": 90, "completion_tokens": 9, "total_tokens": 99},
}
BLOCKS = [
    ThinkingBlock(type="thinking", thinking="hm", signature="c2ln"),
    TextBlock(type="text", text="On its way."),
    ToolUseBlock(type="tool_use", id="toolu_1", name="find", input={"id": "A17"}),
]
ANTHROPIC = Message(
    id="msg_1",
    type="message",
    role="assistant",
    model="claude",
    content=BLOCKS,
    stop_reason="tool_use",
    usage=Usage(input_tokens=80, output_tokens=9, cache_read_input_tokens=10),
)
BLOCK_BODIES = [json.loads(block.model_dump_json(exclude_unset=True)) for block in BLOCKS]
ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "find", "arguments": "{}"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "On its way.", "annotations": []}],
    },
]
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "output": ITEMS,
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 90,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 99,
    },
}
FALLBACK = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "On its"},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}},
        {"type": "text", "text": " way."},
    ],
}
BETA = BetaMessage.model_validate(
    {
        **FALLBACK,
        "id": "msg_2",
        "type": "message",
        "model": "b",
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 80, "output_tokens": 9},
    }
)
BACKGROUND = {"type": "function_call", "call_id": "call_2", "name": "find", "arguments": "{}", "async": True}
CONVERSE = {
    "ResponseMetadata": {"HTTPStatusCode": 200},
    "output": {"message": {"role": "assistant", "content": [{"text": "On its way."}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 90, "outputTokens": 9, "totalTokens": 99},
}


def redacted(data: bytes | str) -> dict[str, object]:
    """Return redacted thinking of Bedrock, whose bytes the log has as base64."""
    return {"reasoningContent": {"redactedContent": data}}


WITHOUT_NULLS = {name: value for name, value in CHAT_BODY.items() if value is not None}
COMPLETION, ANSWER = ChatCompletion.model_validate(CHAT), Response.model_validate(RESPONSE)


class Place(BaseModel):
    city: str


PARSED_BODY = {"role": "assistant", "content": '{"city": "Rome"}'}
PARSED = parse_chat_completion(
    response_format=Place,
    chat_completion=ChatCompletion.model_validate(
        {**CHAT, "choices": [{"index": 0, "finish_reason": "stop", "message": PARSED_BODY}]}
    ),
    input_tools=[],
)
GIVEN: dict[str, tuple[list[Any], list[Any]]] = {
    "an OpenAI message": ([COMPLETION.choices[0].message], [WITHOUT_NULLS]),
    "an OpenAI completion": ([COMPLETION], [WITHOUT_NULLS]),
    "a completion that OpenAI's library has parsed": ([PARSED], [{**PARSED_BODY, "parsed": {"city": "Rome"}}]),
    "a completion's JSON": ([CHAT], [WITHOUT_NULLS]),
    "OpenAI tool calls in a message": (
        [{"role": "assistant", "content": None, "tool_calls": COMPLETION.choices[0].message.tool_calls}],
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
    ),
    "a Responses answer": ([ANSWER], ITEMS),
    "Responses items": ([*ANSWER.output], ITEMS),
    "a Responses answer's JSON": ([RESPONSE], ITEMS),
    "an Anthropic answer": ([ANTHROPIC], [{"role": "assistant", "content": BLOCK_BODIES}]),
    "an Anthropic answer's JSON": (
        [json.loads(ANTHROPIC.model_dump_json())],
        [{"role": "assistant", "content": json.loads(ANTHROPIC.model_dump_json())["content"]}],
    ),
    "Anthropic blocks in a message": (
        [{"role": "assistant", "content": ANTHROPIC.content}],
        [{"role": "assistant", "content": BLOCK_BODIES}],
    ),
    "an Anthropic answer of two models": ([BETA], [FALLBACK]),
    "Anthropic blocks of two models": ([{"role": "assistant", "content": BETA.content}], [FALLBACK]),
    "a Responses call in the background": (
        [Response.model_validate({**RESPONSE, "output": [BACKGROUND]}).output[0]],
        [BACKGROUND],
    ),
    "a Bedrock answer": ([CONVERSE], [CONVERSE["output"]["message"]]),  # type: ignore[index]
    "a Bedrock answer with bytes": (
        [{**CONVERSE, "output": {"message": {"role": "assistant", "content": [redacted(b"sig"), {"text": "Yes."}]}}}],
        [{"role": "assistant", "content": [redacted("c2ln"), {"text": "Yes."}]}],
    ),
    "LangChain messages": (
        [
            HumanMessage("hi"),
            AIMessage("", tool_calls=[{"name": "find", "args": {"id": "A17"}, "id": "call_1"}]),
            ToolMessage("found", tool_call_id="call_1"),
        ],
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "found", "tool_call_id": "call_1"},
        ],
    ),
    "a chunk of LangChain": (
        [AIMessageChunk("Hel") + AIMessageChunk("lo")],
        [{"role": "assistant", "content": "Hello"}],
    ),
    "a message beside an answer": (
        [{"role": "user", "content": "hi"}, COMPLETION],
        [{"role": "user", "content": "hi"}, WITHOUT_NULLS],
    ),
}
