"""What the libraries of providers and LangChain return is appended as it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import httpx2
import pytest
from anthropic import Anthropic
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock, Usage
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from openai import AsyncOpenAI, OpenAI, omit
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tests.conftest import Harness
from turnlog import AsyncSession, AsyncTurnlog, Session
from turnlog.core.errors import InvalidInputError

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
CONVERSE = {
    "ResponseMetadata": {"HTTPStatusCode": 200},
    "output": {"message": {"role": "assistant", "content": [{"text": "On its way."}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 90, "outputTokens": 9, "totalTokens": 99},
}
WITHOUT_NULLS = {name: value for name, value in CHAT_BODY.items() if value is not None}
completion, response = ChatCompletion.model_validate(CHAT), Response.model_validate(RESPONSE)
GIVEN: dict[str, tuple[list[Any], list[Any]]] = {
    "an OpenAI message": ([completion.choices[0].message], [WITHOUT_NULLS]),
    "an OpenAI completion": ([completion], [WITHOUT_NULLS]),
    "a completion's JSON": ([CHAT], [WITHOUT_NULLS]),
    "OpenAI tool calls in a message": (
        [{"role": "assistant", "content": None, "tool_calls": completion.choices[0].message.tool_calls}],
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
    ),
    "a Responses answer": ([response], ITEMS),
    "Responses items": ([*response.output], ITEMS),
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
    "a Bedrock answer": ([CONVERSE], [CONVERSE["output"]["message"]]),  # type: ignore[index]
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
    "a message beside an answer": (
        [{"role": "user", "content": "hi"}, completion],
        [{"role": "user", "content": "hi"}, WITHOUT_NULLS],
    ),
}


@pytest.mark.every_engine
@pytest.mark.parametrize("name", GIVEN)
def test_what_a_library_returns_is_appended(harness: Harness, name: str) -> None:
    given, bodies = GIVEN[name]
    session = harness.log().sessions.create("s")
    session.append(*given)
    assert [message.body for message in session.messages()] == bodies
    assert session.context().messages or session.context().open_calls


def test_an_answer_brings_its_token_counts_and_a_caller_s_win(harness: Harness) -> None:
    sent = list[Any]()
    log = harness.log()
    call = log._backend.call
    log._backend.call = lambda operation, **options: (sent.append(options["body"]), call(operation, **options))[1]  # type: ignore[method-assign, func-returns-value]
    session = log.sessions.create("s")
    for answer in (completion, ANTHROPIC, response, CONVERSE):
        session.append(answer)
    session.append(completion, usage={"input_tokens": 1, "output_tokens": 2})
    session.append(completion, completion)  # which of the two a window led to is not known
    usages = [body.get("usage") for body in sent[1:]]
    assert usages == [{"input_tokens": 90, "output_tokens": 9}] * 4 + [{"input_tokens": 1, "output_tokens": 2}, None]


def test_objects_and_their_json_are_one_request(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    first = session.append(completion, idempotency_key="k")
    assert session.append(CHAT, idempotency_key="k") == first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[{"role": "user", "content": "hi"}]], r"message 0 is a list: pass messages one by one, append\(\*messages\)"),
        (["hi"], "message 0 is a str: a message is an object with a role and content"),
        ([{"role": "user", "content": "hi"}, 7], "message 1 is a int: a message is an object"),
        ([None], "message 0 is a NoneType"),
    ],
)
def test_what_is_no_message_is_refused_in_a_plain_sentence(harness: Harness, given: list[Any], said: str) -> None:
    session = harness.log().sessions.create("s")
    with pytest.raises(InvalidInputError, match=said) as caught:
        session.append(*given)
    assert caught.value.error_code == "not_a_message"
    assert session.info().messages == 0
    with pytest.raises(InvalidInputError) as caught:
        session._backend.call("append_messages", path={"session_id": "s"}, body={"messages": given})
    assert caught.value.detail.endswith(": not an object")


# The loops below are checked by mypy --strict with the rest of the tests (`make lint`): they have no cast and no ignore.


def openai_loop(client: OpenAI, session: Session) -> None:
    session.append({"role": "user", "content": "hi"}, idempotency_key="k")
    window = session.context(budget=1000)
    answer = client.chat.completions.create(model="m", messages=window.messages, tools=window.tools or omit)
    session.append(answer.choices[0].message, window=window)


def responses_loop(client: OpenAI, session: Session) -> None:
    session.append({"role": "user", "content": "hi"})
    window = session.context(format="openai_responses", budget=1000)
    answer = client.responses.create(model="m", input=window.messages, tools=window.tools)
    session.append(*answer.output)


def anthropic_loop(client: Anthropic, session: Session) -> None:
    session.append({"role": "user", "content": "hi"})
    window = session.context(format="anthropic", budget=1000)
    answer = client.messages.create(
        model="m", max_tokens=100, system=window.system or "", messages=window.messages, tools=window.tools
    )
    session.append(answer, window=window)


async def async_loop(client: AsyncOpenAI, session: AsyncSession) -> None:
    await session.append({"role": "user", "content": "hi"})
    window = await session.context(budget=1000)
    answer = await client.chat.completions.create(model="m", messages=window.messages)
    await session.append(answer.choices[0].message)


def transport(answer: Any) -> httpx.MockTransport:
    return httpx.MockTransport(lambda request: httpx.Response(200, json=answer))


def anthropic_client(answer: Any) -> httpx2.Client:
    return httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(200, json=answer)))


def test_the_loops_that_a_strict_type_checker_accepts_also_run(harness: Harness) -> None:
    def opened(name: str) -> Session:
        return harness.log().sessions.create(name, system="You are an agent.")

    for name, loop, answer, bodies in (
        ("chat", openai_loop, CHAT, [WITHOUT_NULLS]),
        ("responses", responses_loop, RESPONSE, ITEMS),
    ):
        session = opened(name)
        loop(OpenAI(api_key="k", http_client=httpx.Client(transport=transport(answer))), session)
        assert [message.body for message in session.messages()][1:] == bodies
    session, answer = opened("anthropic"), json.loads(ANTHROPIC.model_dump_json())
    anthropic_loop(Anthropic(api_key="k", http_client=anthropic_client(answer)), session)
    assert [message.body["role"] for message in session.messages()] == ["user", "assistant"]


def test_the_async_loop_runs(harness: Harness) -> None:
    async def life() -> None:
        async with AsyncTurnlog(harness.log()) as log:
            session = await log.sessions.create("s")
            client = httpx.AsyncClient(transport=transport(CHAT))
            await async_loop(AsyncOpenAI(api_key="k", http_client=client), session)
            assert [message.body async for message in session.messages()][1:] == [WITHOUT_NULLS]

    asyncio.run(life())
