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
from turnlog.agents.streams import accumulator, as_mapping, usage_of
from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Text
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
            lambda call_id, name, item: {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(item)},
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


def emptied(value: Any) -> None:
    """Take everything out of a message, at every level."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            emptied(part)
        value.clear()


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
        text = ""
        for body in said.messages:
            text += "".join(part.text for part in codec_of(format).parse(body).content if isinstance(part, Text))
            emptied(body)
        assert said.text == text
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
    result = library.current_completion_snapshot.choices[0].message
    assert message["content"] == (result.content or (None if result.tool_calls else ""))
    calls = [call.model_dump(include={"id", "type", "function"}) for call in result.tool_calls or []]
    for call in calls:
        call["function"].pop("parsed_arguments", None)
    assert message.get("tool_calls", []) == calls


def deltas(*many: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"choices": [{"index": 0, "delta": {"tool_calls": [item]}}]} for item in many]


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


def delta(index: int, content: dict[str, Any]) -> dict[str, Any]:
    """A delta of Anthropic Messages; one of ConverseStream when the content has no type."""
    if "type" in content:
        return {"type": "content_block_delta", "index": index, "delta": content}
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": content}}


def started(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"contentBlockStart": {"contentBlockIndex": index, "start": block}}


def of_item(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **fields}


def added(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [of_item("output_item.added", index, item=item) for index, item in enumerate(items)]


CITED = [{"title": "A", "location": {"page": 1}}, {"title": "B", "location": {"page": 2}}]
ANNOTATED = [{"type": "url_citation", "url": "a"}, {"type": "url_citation", "url": "b"}]
CUT_OFF: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "anthropic: content at the start, citations, a block without a start": (
        [
            {"type": "message_start", "message": {"role": "assistant", "content": [{"type": "text", "text": "Hm. "}]}},
            delta(0, {"type": "text_delta", "text": "Yes"}),
            *(delta(0, {"type": "citations_delta", "citation": place}) for place in CITED),
            delta(1, {"type": "thinking_delta", "thinking": "why"}),
            delta(2, {"type": "text_delta", "text": "Right"}),
        ],
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Hm. Yes", "citations": CITED},
                    {"type": "thinking", "thinking": "why"},
                    {"type": "text", "text": "Right"},
                ],
            }
        ],
    ),
    "anthropic: a compaction": (
        [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
            delta(0, {"type": "compaction_delta", "content": "So far.", "encrypted_content": "c2ln"}),
            delta(1, {"type": "text_delta", "text": "Yes"}),
        ],
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "compaction", "content": "So far.", "encrypted_content": "c2ln"},
                    {"type": "text", "text": "Yes"},
                ],
            }
        ],
    ),
    "bedrock_converse: a tool that Bedrock runs, images": (
        [
            started(0, {"toolUse": {"toolUseId": "t", "name": "nova_grounding", "type": "server_tool_use"}}),
            delta(0, {"toolUse": {"input": '{"q": 1}'}}),
            started(1, {"toolResult": {"toolUseId": "t", "type": "nova_grounding_result", "status": "success"}}),
            delta(1, {"toolResult": [{"text": "Fo"}]}),
            delta(1, {"toolResult": [{"text": "und"}, {"json": {"n": 1}}, {"text": "."}]}),
            started(2, {"image": {"format": "png"}}),
            delta(2, {"image": {"source": {"bytes": b"ab"}}}),
            delta(2, {"image": {"source": {"bytes": "Y2Q="}}}),
            started(3, {"image": {"format": "png"}}),
            delta(3, {"image": {"source": {"s3Location": {"uri": "s3://bucket/a"}}}}),
            started(4, {"image": {"format": "png"}}),
            delta(4, {"image": {"error": {"message": "blocked"}}}),
        ],
        [
            {
                "role": "assistant",
                "content": [
                    {
                        "toolUse": {
                            "toolUseId": "t",
                            "name": "nova_grounding",
                            "type": "server_tool_use",
                            "input": {"q": 1},
                        }
                    },
                    {
                        "toolResult": {
                            "toolUseId": "t",
                            "type": "nova_grounding_result",
                            "status": "success",
                            "content": [{"text": "Found"}, {"json": {"n": 1}}, {"text": "."}],
                        }
                    },
                    {"image": {"format": "png", "source": {"bytes": "YWJjZA=="}}},
                    {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a"}}}},
                    {"image": {"format": "png", "error": {"message": "blocked"}}},
                ],
            }
        ],
    ),
    "bedrock_converse: citations around text, redacted reasoning in bytes": (
        [
            delta(0, {"text": "Y"}),
            *(delta(0, {"citation": place}) for place in CITED),
            delta(0, {"text": "es"}),
            delta(1, {"reasoningContent": {"redactedContent": b"ab"}}),
            delta(1, {"reasoningContent": {"redactedContent": "Y2RlZg=="}}),
            delta(2, {"citation": CITED[0]}),
            delta(3, {"toolUse": {"input": "{}"}}),
        ],
        [
            {
                "role": "assistant",
                "content": [
                    {"citationsContent": {"content": [{"text": "Yes"}], "citations": CITED}},
                    {"reasoningContent": {"redactedContent": "YWJjZGVm"}},
                    {"citationsContent": {"content": [{"text": ""}], "citations": CITED[:1]}},
                    {"toolUse": {"input": {}}},
                ],
            }
        ],
    ),
    "bedrock_converse: what is no base64 is kept, or left out": (
        [
            delta(0, {"reasoningContent": {"redactedContent": "Y2Rl"}}),
            delta(0, {"reasoningContent": {"redactedContent": "é"}}),
            delta(1, {"reasoningContent": {"redactedContent": 7}}),
            delta(2, {"image": {"source": {"bytes": "a"}}}),
        ],
        [
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"redactedContent": "Y2Rlé"}},
                    {"reasoningContent": {"redactedContent": ""}},
                    {"image": {"source": {"bytes": "a"}}},
                ],
            }
        ],
    ),
    "openai_chat: a function of the first protocol": (
        [
            {"choices": [{"delta": {"role": "assistant", "function_call": {"name": "fi", "arguments": ""}}}]},
            {"choices": [{"delta": {"function_call": {"name": "nd", "arguments": '{"q"'}}}]},
        ],
        [{"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": '{"q"'}}],
    ),
    "openai_chat: a refusal stands in place of content, as in a whole answer": (
        [
            {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
            {"choices": [{"delta": {"refusal": "I can"}}]},
            {"choices": [{"delta": {"refusal": "'t"}}]},
        ],
        [{"role": "assistant", "content": None, "refusal": "I can't"}],
    ),
    "openai_chat: a new id begins a new call, also behind a call without one": (
        deltas({"function": {"name": "f", "arguments": "{}"}}, CALLS[1]),
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}}, CALLS[1]],
            }
        ],
    ),
    "openai_chat: fields of other services, merged by their kind": (
        [
            *deltas(
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}, "extra": {"sig": "x", "n": 1}},
                {"index": 0, "function": {"arguments": "{}"}, "extra": {"sig": "y", "n": 2, "more": [1]}},
            ),
            {"choices": [{"delta": {"reasoning_details": [{"text": "a"}], "audio": None, "score": 1}}]},
            {"choices": [{"delta": {"reasoning_details": [{"text": "b"}], "score": 2}}]},
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "reasoning_details": [{"text": "a"}, {"text": "b"}],
                "score": 2,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "f", "arguments": "{}"},
                        "extra": {"sig": "xy", "n": 2, "more": [1]},
                    }
                ],
            }
        ],
    ),
    "openai_chat: audio": (
        [
            {"choices": [{"delta": {"role": "assistant", "audio": {"id": "audio_1", "transcript": "Hel"}}}]},
            {"choices": [{"delta": {"audio": {"transcript": "lo"}}}]},
            {"choices": [{"delta": {"audio": {"id": "audio_1", "data": "UklG", "expires_at": 1}}}]},
        ],
        [
            {
                "role": "assistant",
                "content": "",
                "audio": {"id": "audio_1", "transcript": "Hello", "data": "UklG", "expires_at": 1},
            }
        ],
    ),
    "openai_responses: parts that are announced, parts that are not, annotations, a message without content": (
        [
            *added(
                {"type": "message", "id": "m", "role": "assistant", "content": []},
                {"type": "reasoning", "id": "r", "summary": []},
                {"type": "message", "id": "n", "role": "assistant", "content": []},
            ),
            of_item("content_part.added", 0, content_index=0, part={"type": "output_text", "text": "", "logprobs": []}),
            of_item("content_part.added", 0, content_index=0, part={"type": "output_text", "text": "repeated"}),
            of_item("output_text.delta", 0, content_index=0, delta="Y"),
            of_item("output_text.delta", 0, content_index=0, delta="es"),
            *(of_item("output_text.annotation.added", 0, content_index=0, annotation=place) for place in ANNOTATED),
            of_item("refusal.delta", 0, content_index=1, delta="N"),
            of_item("refusal.delta", 0, content_index=1, delta="o"),
            of_item("output_text.annotation.added", 0, content_index=2, annotation=ANNOTATED[0]),
            of_item(
                "reasoning_summary_part.added", 1, summary_index=0, part={"type": "summary_text", "text": "", "n": 1}
            ),
            of_item("reasoning_summary_text.delta", 1, summary_index=0, delta="So"),
            of_item("reasoning_summary_text.delta", 1, summary_index=1, delta="then"),
            of_item("reasoning_text.delta", 1, content_index=0, delta="Hm"),
            of_item("output_text.delta", 7, content_index=0, delta="of no item"),
        ],
        [
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "Yes", "logprobs": [], "annotations": ANNOTATED},
                    {"type": "refusal", "refusal": "No"},
                    {"type": "output_text", "annotations": ANNOTATED[:1]},
                ],
            },
            {
                "type": "reasoning",
                "id": "r",
                "summary": [{"type": "summary_text", "text": "So", "n": 1}, {"type": "summary_text", "text": "then"}],
                "content": [{"type": "reasoning_text", "text": "Hm"}],
            },
        ],
    ),
    "openai_responses: a part that is none": (
        [
            *added({"type": "message", "content": ["?"]}),
            of_item("output_text.delta", 0, content_index=0, delta="Yes"),
        ],
        [{"type": "message", "content": [{"type": "output_text", "text": "Yes"}]}],
    ),
    "openai_responses: inputs of each kind of call": (
        [
            *added(
                *({"type": kind} for kind in ("function_call", "custom_tool_call", "mcp_call", "code_interpreter_call"))
            ),
            *(
                of_item(kind, index, delta=text)
                for text in ("a", "b")
                for index, kind in enumerate(
                    (
                        "function_call_arguments.delta",
                        "custom_tool_call_input.delta",
                        "mcp_call_arguments.delta",
                        "code_interpreter_call_code.delta",
                    )
                )
            ),
        ],
        [
            {"type": "function_call", "arguments": "ab"},
            {"type": "custom_tool_call", "input": "ab"},
            {"type": "mcp_call", "arguments": "ab"},
            {"type": "code_interpreter_call", "code": "ab"},
        ],
    ),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_stream_that_is_cut_off_has_all_that_was_sent(name: str) -> None:
    many, messages = CUT_OFF[name]
    said = accumulator(name.partition(":")[0])
    for event in many:
        said.add(event)
    assert said.messages == messages and said.finish_reason is None and not said.is_broken


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    said = accumulator("openai_chat")
    said.add({"choices": [{"delta": {}}]})
    assert said.messages == []
    said.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert said.messages == [{"role": "assistant", "content": ""}]


def test_the_expiry_of_audio_ends_an_answer() -> None:
    said = accumulator("openai_chat")
    said.add({"choices": [{"delta": {"audio": {"id": "audio_1", "data": "UklG", "expires_at": 1}}}]})
    assert said.finish_reason is None
    said.add({"choices": [{"delta": {"audio": {"expires_at": 2}}}]})
    assert said.finish_reason == "stop"


def test_a_response_that_ends_without_its_items_keeps_those_that_came() -> None:
    """Its last event repeats all items and the token counts, or has none of them."""
    said, item = accumulator("openai_responses"), {"type": "function_call", "call_id": "c", "arguments": "{}"}
    for event in added(item, item):
        said.add(event)
    usage = {"input_tokens": 3, "output_tokens": 2}
    said.add({"type": "response.completed", "response": {"output": [{**item, "n": 1}] * 2, "usage": usage}})
    assert (said.messages, said.finish_reason) == ([{**item, "n": 1}] * 2, "completed")
    said.add(
        {"type": "response.incomplete", "response": {"output": [item], "incomplete_details": {"reason": "length"}}}
    )
    assert (said.messages, said.finish_reason, said.usage) == ([{**item, "n": 1}] * 2, "length", usage)


@pytest.mark.parametrize(
    ("format", "usages"),
    [
        ("openai_chat", [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": None}}]),
        ("openai_responses", [{"type": "response.completed", "response": {"usage": {"input_tokens": 3}}}]),
        ("bedrock_converse", [{"metadata": {"usage": {"outputTokens": 3}}}]),
        ("anthropic", [{"type": "message_delta", "usage": {"output_tokens": 3}}]),
        ("anthropic", [{"type": "message_start", "message": {"usage": {"input_tokens": 3}}}]),
    ],
)
def test_token_counts_are_told_when_both_have_come(format: str, usages: list[dict[str, Any]]) -> None:
    said = accumulator(format)
    for event in usages:
        said.add(event)
    assert said.usage is None


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


@pytest.mark.parametrize(
    ("format", "counts"),
    [
        ("openai_chat", {"prompt_tokens": 7, "total_tokens": 10, "completion_tokens": 3}),
        ("openai_responses", {"input_tokens": 7, "total_tokens": 10, "output_tokens": 3}),
        (
            "anthropic",
            {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 4, "output_tokens": 3},
        ),
        (
            "bedrock_converse",
            {"inputTokens": 1, "cacheReadInputTokens": 2, "cacheWriteInputTokens": 4, "outputTokens": 3},
        ),
    ],
)
def test_what_a_provider_counts_is_its_input_with_what_was_cached_and_its_output(
    format: str, counts: dict[str, int]
) -> None:
    assert usage_of(format, counts) == {"input_tokens": 7, "output_tokens": 3}
    for needed in (next(iter(counts)), list(counts)[-1]):
        assert usage_of(format, {**counts, needed: "7"}) is None
    assert usage_of(format, None) is None
