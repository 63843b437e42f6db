"""What the libraries of providers and LangChain return is appended as it is."""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import TYPE_CHECKING, Any

import httpx
import httpx2
import pytest

from tests.agents.scripts import Script, calls, says
from tests.conftest import Harness
from turnlog import AsyncSession, AsyncTurnlog, Session, build_window, count_tokens
from turnlog.core.errors import InvalidInputError, MalformedError

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import AsyncOpenAI, OpenAI

NAMES = (
    "an OpenAI message",
    "an OpenAI completion",
    "a completion that OpenAI's library has parsed",
    "a completion's JSON",
    "OpenAI tool calls in a message",
    "a Responses answer",
    "Responses items",
    "a Responses answer's JSON",
    "an Anthropic answer",
    "an Anthropic answer's JSON",
    "Anthropic blocks in a message",
    "an Anthropic answer of two models",
    "Anthropic blocks of two models",
    "a Responses call in the background",
    "a Bedrock answer",
    "a Bedrock answer with bytes",
    "LangChain messages",
    "a chunk of LangChain",
    "a message beside an answer",
)


@pytest.fixture(scope="module")
def objects() -> Any:
    """The objects of the libraries, which are imported by the process that needs them and not by each that collects."""
    return importlib.import_module("tests.support.library_objects")


def test_each_object_is_tried(objects: Any) -> None:
    assert set(NAMES) == set(objects.GIVEN)


@pytest.mark.every_engine
@pytest.mark.parametrize("name", NAMES)
def test_what_a_library_returns_is_appended(harness: Harness, objects: Any, name: str) -> None:
    result, bodies = objects.GIVEN[name]
    session = harness.log().sessions.create("s")
    session.append(*result)
    assert [message.body for message in session.messages()] == bodies
    assert session.context().messages or session.context().open_calls


@pytest.mark.parametrize("name", NAMES)
def test_a_window_and_a_count_take_what_an_append_takes(harness: Harness, objects: Any, name: str) -> None:
    result, _ = objects.GIVEN[name]
    session = harness.log().sessions.create("s")
    appended = session.append(*result)
    windows = [build_window(result, format="anthropic"), harness.log().build_window(result, format="anthropic")]
    assert [window.messages for window in windows] == [session.context(format="anthropic").messages] * 2
    assert count_tokens(result) == sum(message.tokens for message in session.messages()) and appended.first == 2


def test_an_answer_brings_its_token_counts_and_a_caller_s_win(harness: Harness, objects: Any) -> None:
    sent = list[Any]()
    log = harness.log()
    call = log.backend.call
    log.backend.call = lambda operation, **options: (sent.append(options["body"]), call(operation, **options))[1]  # type: ignore[method-assign, func-returns-value]
    session = log.sessions.create("s")
    for answer in (objects.COMPLETION, objects.ANTHROPIC, objects.ANSWER, objects.CONVERSE):
        session.append(answer)
    session.append(objects.COMPLETION, usage={"input_tokens": 1, "output_tokens": 2})
    session.append(objects.COMPLETION, objects.COMPLETION)  # which of the two a window led to is not known
    usages = [body.get("usage") for body in sent[1:]]
    assert usages == [{"input_tokens": 90, "output_tokens": 9}] * 4 + [{"input_tokens": 1, "output_tokens": 2}, None]


def test_an_answer_brings_its_finish_reason_and_a_caller_s_meta_wins(harness: Harness, objects: Any) -> None:
    session = harness.log().sessions.create("s")
    answers = (objects.COMPLETION, objects.ANTHROPIC, objects.ANSWER, objects.CONVERSE)
    reasons = ["tool_calls", "tool_use", "completed", "end_turn"]
    for answer, reason in zip(answers, reasons, strict=True):
        appended = session.append(answer)
        assert {stored.finish_reason for stored in session.page(after=appended.first - 1).messages} == {reason}
    session.append(objects.COMPLETION, meta=[{"author": "ada"}])
    appended = session.append(objects.COMPLETION, {"role": "user", "content": "hi"})
    newest = session.page(after=appended.first - 2).messages
    assert [stored.finish_reason for stored in newest] == [None, "tool_calls", None]


def test_objects_and_their_json_are_one_request(harness: Harness, objects: Any) -> None:
    session = harness.log().sessions.create("s")
    first = session.append(objects.COMPLETION, idempotency_key="k")
    assert session.append(objects.CHAT, idempotency_key="k") == first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[{"role": "user", "content": "hi"}]], r"message 0 is a list: .* append\(\*messages\)"),
        (["hi"], "message 0 is of type str: a message is an object with a role and content"),
        ([{"role": "user", "content": "hi"}, 7], "message 1 is of type int: a message is an object"),
        ([None], "message 0 is of type NoneType"),
    ],
)
def test_what_is_no_message_is_refused_in_a_plain_sentence(harness: Harness, given: list[Any], said: str) -> None:
    session = harness.log().sessions.create("s")
    for call in (session.append, session.send_to_run, lambda *values: session.run(Script()).send(list(values))):
        with pytest.raises(InvalidInputError, match=said) as caught:
            call(*given)
        assert caught.value.error_code == "not_a_message"
    with pytest.raises(InvalidInputError, match="is of type bytes"):
        session.run(Script()).send(b"hello")  # type: ignore[arg-type]
    assert session.info().messages == 0
    with pytest.raises(InvalidInputError) as caught:
        session.backend.call("append_messages", path={"session_id": "s"}, body={"messages": given})
    assert caught.value.detail.endswith(": not an object")


@pytest.mark.parametrize("name", ["LangChain messages", "OpenAI tool calls in a message", "a message beside an answer"])
def test_a_run_is_sent_what_an_append_takes(harness: Harness, objects: Any, name: str) -> None:
    result, bodies = objects.GIVEN[name]
    session, reply = harness.log().sessions.create("s"), {"role": "assistant", "content": "Seen."}
    session.run(Script(says("Seen."))).send(result)
    asyncio.run(session.run_async(Script(says("Seen."))).send(result[0]))
    assert [message.body for message in session.messages()] == [*bodies, reply, bodies[0], reply]
    session.acquire("another")
    session.send_to_run(*result)
    ((_, waiting),) = session.agent().state["inbox"].items()
    assert waiting["messages"] == bodies


def test_a_run_is_not_sent_nothing(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    for call in (session.append, lambda: session.run(Script()).send([])):
        with pytest.raises(InvalidInputError, match="messages has 0 items; at least 1 is needed") as caught:
            call()
        assert [problem.pointer for problem in caught.value.problems] == ["/messages"]
    with pytest.raises(InvalidInputError, match="message 0 is of type NoneType"):
        session.run(Script()).send(None)  # type: ignore[arg-type]
    assert session.info().messages == 0


@pytest.mark.parametrize("field", [{"choices": [{"message": {}}]}, {"output": {"message": {}}}, {"output": []}])
def test_a_message_with_a_field_of_an_answer_is_a_message(harness: Harness, field: dict[str, Any]) -> None:
    session, message = harness.log().sessions.create("s"), {"role": "user", "content": "hi", **field}
    session.append(message)
    assert [stored.body for stored in session.messages()] == [message]


@pytest.mark.parametrize("field", [{"choices": [{"message": {"role": "user"}}]}, {"output": []}])
@pytest.mark.parametrize("format", ["openai_chat", "openai_responses"])
def test_a_message_beside_an_object_of_a_library_is_no_answer(
    harness: Harness, objects: Any, field: dict[str, Any], format: str
) -> None:
    session, message = harness.log().sessions.create("s"), {"role": "user", "content": "hi", **field}
    session.append(objects.COMPLETION.choices[0].message, message, format=format)
    assert [stored.body for stored in session.messages()][1:] == [message]


def test_an_answer_of_a_known_format_may_have_fields_of_a_gateway(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    answer = {"type": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "Hi"}}]}
    assert session.run(Script(answer)).send("Hello").text == "Hi"


def test_a_result_without_a_type_is_no_answer(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    with pytest.raises(InvalidInputError, match="a message needs a role"):
        session.append({"call_id": "c1", "output": [{"text": "x"}]})
    assert session.info().messages == 0


def test_an_answer_without_content_is_an_empty_message(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.append({"type": "message", "role": "assistant", "stop_reason": "end_turn"})
    assert [stored.body for stored in session.messages()] == [{"role": "assistant", "content": []}]


ODD = [
    '{"a": 98765432109876543210}',
    '{"a": NaN}',
    '{"a": 1e400}',
    f'{{"a": {"[" * 40}{"]" * 40}}}',
    '{"a": 1, "a": 2}',
]


@pytest.mark.parametrize("text", ODD, ids=["wide", "NaN", "infinite", "deep", "twice"])
@pytest.mark.parametrize("format", ["anthropic", "bedrock_converse"])
@pytest.mark.parametrize("whole", [True, False])
def test_arguments_that_are_no_object_that_can_be_stored_lose_no_reply(
    harness: Harness, format: Any, text: str, whole: bool
) -> None:
    session, executed = harness.log().sessions.create("s"), list[Any]()
    answer = calls(("c1", "find", json.loads(text)), format=format)
    if format == "anthropic":
        answer |= {"type": "message", "stop_reason": "tool_use"}
    else:
        answer = {"output": {"message": answer}, "stopReason": "tool_use"}
    streamed = {"anthropic": _streamed_call, "bedrock_converse": _converse_call}[format](text)
    model = Script(answer if whole else lambda: iter(streamed), says("Done", format))
    outcome = session.run(model, {"find": lambda a: executed.append(a) or "found"}, format=format).send("Go")
    assert (outcome.status, len(executed)) == ("final", 1), [message.body for message in session.messages()]
    assert repr(executed[0]) == repr(json.loads(text)["a"]), "the tool has them as they came"


def _streamed_call(text: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": "c1", "name": "find", "input": {}}
    return [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _converse_call(text: str) -> list[dict[str, Any]]:
    return [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "c1", "name": "find"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": text}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "tool_use"}},
    ]


def test_an_answer_with_several_choices_is_refused(harness: Harness, objects: Any) -> None:
    session = harness.log().sessions.create("s")
    with pytest.raises(InvalidInputError, match=r"2 choices.*choices\[0\]\.message") as caught:
        session.append({**objects.CHAT, "choices": objects.CHAT["choices"] * 2})
    assert caught.value.error_code == "several_choices" and session.info().messages == 0


def test_bytes_are_refused_with_their_place(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    image = {"image": {"format": "png", "source": {"bytes": b"x"}}}
    with pytest.raises(MalformedError, match=r"bytes is not JSON.*base64") as caught:
        session.append({"role": "user", "content": "hi"}, {"role": "user", "content": [{"text": "look"}, image]})
    assert [problem.pointer for problem in caught.value.problems] == ["/messages/1/content/1/image/source/bytes"]
    assert session.info().messages == 0


# The loops below are checked by mypy --strict with the rest of the tests (`make lint`): they have no cast and no ignore.


def openai_loop(client: OpenAI, session: Session) -> None:
    from openai import omit

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


def test_the_loops_that_a_strict_type_checker_accepts_also_run(harness: Harness, objects: Any) -> None:
    from anthropic import Anthropic
    from openai import OpenAI

    def opened(name: str) -> Session:
        return harness.log().sessions.create(name, system="You are an agent.")

    for name, loop, answer, bodies in (
        ("chat", openai_loop, objects.CHAT, [objects.WITHOUT_NULLS]),
        ("responses", responses_loop, objects.RESPONSE, objects.ITEMS),
    ):
        session = opened(name)
        loop(OpenAI(api_key="k", http_client=httpx.Client(transport=transport(answer))), session)
        assert [message.body for message in session.messages()][1:] == bodies
    session, answer = opened("anthropic"), json.loads(objects.ANTHROPIC.model_dump_json())
    anthropic_loop(Anthropic(api_key="k", http_client=anthropic_client(answer)), session)
    assert [message.body["role"] for message in session.messages()] == ["user", "assistant"]


def test_the_async_loop_runs(harness: Harness, objects: Any) -> None:
    from openai import AsyncOpenAI

    async def life() -> None:
        async with AsyncTurnlog(harness.log()) as log:
            session = await log.sessions.create("s")
            client = httpx.AsyncClient(transport=transport(objects.CHAT))
            await async_loop(AsyncOpenAI(api_key="k", http_client=client), session)
            assert [message.body async for message in session.messages()][1:] == [objects.WITHOUT_NULLS]

    asyncio.run(life())
