"""What is said by a stream's events is the message that the provider meant, however it was cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents import events
from tests.effort import examples
from turnlog.agents.streams import accumulator, as_mapping
from turnlog.core.errors import InvalidInputError
from turnlog.providers.registry import codec_of

TEXTS = st.text(max_size=40)
OBJECTS = st.dictionaries(
    st.text(max_size=8), st.none() | st.integers(-(2**53), 2**53) | st.text(max_size=20), max_size=3
)
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
IDS = st.from_regex(r"call_[a-z0-9]{1,8}", fullmatch=True)

CHAT = st.builds(
    lambda content, calls: {
        "role": "assistant",
        "content": content if not calls else content or None,
        **({"tool_calls": [{**call, "id": f"{call['id']}{at}"} for at, call in enumerate(calls)]} if calls else {}),
    },
    TEXTS,
    st.lists(
        st.builds(
            lambda call_id, name, given: {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given)},
            },
            IDS,
            NAMES,
            OBJECTS,
        ),
        max_size=3,
    ),
)
ANTHROPIC = st.builds(
    lambda content: {"role": "assistant", "content": content},
    st.lists(
        st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
        | st.builds(lambda i, n, o: {"type": "tool_use", "id": i, "name": n, "input": o}, IDS, NAMES, OBJECTS)
        | st.builds(lambda t, s: {"type": "thinking", "thinking": t, "signature": s}, TEXTS, NAMES)
        | st.builds(lambda data: {"type": "redacted_thinking", "data": data}, NAMES),
        min_size=1,
        max_size=4,
    ),
)
CONVERSE = st.builds(
    lambda content: {"role": "assistant", "content": content},
    st.lists(
        st.builds(lambda text: {"text": text}, st.text(min_size=1, max_size=40))
        | st.builds(lambda i, n, o: {"toolUse": {"toolUseId": i, "name": n, "input": o}}, IDS, NAMES, OBJECTS)
        | st.builds(
            lambda t, s: {"reasoningContent": {"reasoningText": {"text": t, "signature": s}}},
            st.text(min_size=1, max_size=40),
            NAMES,
        ),
        min_size=1,
        max_size=4,
    ),
)
ITEMS = st.lists(
    st.builds(
        lambda texts: {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []} for text in texts],
        },
        st.lists(TEXTS, min_size=1, max_size=2),
    )
    | st.builds(
        lambda i, n, o: {"type": "function_call", "call_id": i, "name": n, "arguments": json.dumps(o)},
        IDS,
        NAMES,
        OBJECTS,
    )
    | st.builds(
        lambda texts: {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": t} for t in texts],
        },
        st.lists(TEXTS, max_size=2),
    ),
    min_size=1,
    max_size=4,
)
STREAMS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., Iterator[dict[str, Any]]]]] = {
    "openai_chat": (CHAT, events.chat),
    "anthropic": (ANTHROPIC, events.anthropic),
    "bedrock_converse": (CONVERSE, events.converse),
    "openai_responses": (ITEMS, events.responses),
}


def cuts(data: st.DataObject) -> events.Cut:
    def cut(text: str) -> list[str]:
        parts = list[str]()
        while text:
            at = data.draw(st.integers(1, len(text)))
            parts.append(text[:at])
            text = text[at:]
        return parts

    return cut


@pytest.mark.parametrize("format", STREAMS)
@given(data=st.data())
@settings(max_examples=examples(300), deadline=None)
def test_cut_anywhere_it_is_the_message_that_was_meant(format: str, data: st.DataObject) -> None:
    messages, stream = STREAMS[format]
    meant, said = data.draw(messages), accumulator(format)
    for event in stream(meant, cuts(data)):
        assert said.finish_reason is None or said.messages
        before = json.dumps(event)
        said.add(event)
        # At any time it can be read, and parsed by the codec; what was read is not what is kept.
        for body in said.messages:
            codec_of(format).parse(body)
            body.clear()
        assert json.dumps(event) == before
    assert said.messages == (meant if isinstance(meant, list) else [meant])
    assert said.finish_reason is not None and not said.is_broken
    assert said.usage == {"input_tokens": 11, "output_tokens": 7}


@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_it_says_what_the_library_of_openai_says(data: st.DataObject) -> None:
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    meant, said, library = data.draw(CHAT), accumulator(), ChatCompletionStreamState()
    by_helper = accumulator()
    for event in events.chat(meant, cuts(data)):
        chunk = ChatCompletionChunk.model_validate(event)
        for helper_event in library.handle_chunk(chunk):
            by_helper.add(as_mapping(helper_event))
        said.add(as_mapping(chunk))
    (message,) = said.messages
    assert by_helper.messages == [message]
    told = library.current_completion_snapshot.choices[0].message
    assert message["content"] == (told.content or (None if told.tool_calls else ""))
    calls = [call.model_dump(include={"id", "type", "function"}) for call in told.tool_calls or []]
    for call in calls:
        call["function"].pop("parsed_arguments", None)
    assert message.get("tool_calls", []) == calls


def deltas(*many: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in many]


CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]


@pytest.mark.parametrize(
    "chunks",
    [
        # All of them are number 0, whole.
        deltas(*({"index": 0, **call} for call in CALLS)),
        # None has a number.
        deltas(*CALLS),
        # The id and the name come again with each part.
        deltas(
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}},
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ":1}"}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ),
        # No numbers, and parts without an id go on with the newest.
        deltas(
            {"id": "a", "function": {"name": "f", "arguments": ""}},
            {"function": {"arguments": '{"x":1}'}},
            {"id": "b", "function": {"name": "g", "arguments": "{}"}},
        ),
        # Both at once.
        deltas(
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x'}},
            {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}},
            {"index": 0, "function": {"arguments": '":1}'}},
            {"index": 1, "function": {"arguments": "}"}},
        ),
    ],
)
def test_calls_as_other_services_number_them(chunks: list[dict[str, Any]]) -> None:
    said = accumulator()
    for chunk in chunks:
        said.add(chunk)
    assert said.messages == [{"role": "assistant", "content": None, "tool_calls": CALLS}]


def test_only_the_first_of_several_choices_and_what_other_services_add() -> None:
    said = accumulator()
    for at, text in ((0, "yes"), (1, "no")):
        said.add({"choices": [{"index": at, "delta": {"content": text, "reasoning_content": f"think {text}"}}]})
    said.add({"choices": [{"index": 0, "delta": {"reasoning_content": " more"}, "finish_reason": "stop"}]})
    assert said.messages == [{"role": "assistant", "content": "yes", "reasoning_content": "think yes more"}]
    assert said.text == "yes"


def test_blocks_of_content_in_chunks() -> None:
    said = accumulator()
    for content in ("a", [{"type": "thinking", "thinking": []}], "b"):
        said.add({"choices": [{"delta": {"content": content}}]})
    parts = [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": []}, {"type": "text", "text": "b"}]
    assert said.messages == [{"role": "assistant", "content": parts}] and said.text == "ab"


def test_arguments_that_never_became_json_are_kept() -> None:
    said = accumulator("anthropic")
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    said.add({"type": "content_block_start", "index": 0, "content_block": block})
    said.add(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a": '}}
    )
    assert said.messages[0]["content"] == [{**block, "input": {"_raw": '{"a": '}}]


@pytest.mark.parametrize(
    ("format", "event"),
    [
        ("openai_chat", {"error": {"message": "overloaded"}}),
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}),
        ("openai_responses", {"type": "response.failed", "response": {}}),
        ("openai_responses", {"type": "error", "code": "x"}),
        ("bedrock_converse", {"modelStreamErrorException": {"message": "x"}}),
    ],
)
def test_an_error_in_the_stream_breaks_it(format: str, event: dict[str, Any]) -> None:
    said = accumulator(format)
    said.add(event)
    assert said.is_broken and said.messages == []


@pytest.mark.parametrize("format", STREAMS)
@pytest.mark.parametrize(
    "event", [{}, {"type": "new.kind"}, {"choices": None}, {"choices": [None]}, {"contentBlockDelta": None}]
)
def test_what_is_not_known_is_passed_over(format: str, event: dict[str, Any]) -> None:
    said = accumulator(format)
    said.add(event)
    assert said.messages == [] and not said.is_broken


def test_a_format_that_nobody_streams() -> None:
    with pytest.raises(InvalidInputError, match="turnlog"):
        accumulator("turnlog")
