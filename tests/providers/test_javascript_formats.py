"""Messages of Vercel's AI SDK and items of OpenAI's Agents SDK for JavaScript, as these libraries write them, in every window."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnlog import Turnlog, build_window, import_files
from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Media, Message, Text, Thinking, ToolResult
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.linter.rules import FORMATS as LINTED
from turnlog.providers import Turn
from turnlog.providers.ai_sdk import media_of_part
from turnlog.providers.registry import CODECS, recognise
from turnlog.providers.token_rules import count_message, count_tools

Body = dict[str, Any]
SIGNED = {"anthropic": {"signature": "c2ln"}}
MODEL: list[Body] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Where is it?"},
            {"type": "image", "image": "iVBORw0KGgo=", "mediaType": "image/png"},
            {"type": "file", "data": "https://example.com/a.pdf", "mediaType": "application/pdf", "filename": "a.pdf"},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "text": "think", "providerOptions": SIGNED},
            {"type": "text", "text": "I look."},
            {"type": "tool-call", "toolCallId": "call_1", "toolName": "look", "input": {"id": "W-10023"}},
            {"type": "tool-call", "toolCallId": "call_2", "toolName": "fail", "input": {}},
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "call_1",
                "toolName": "look",
                "output": {"type": "json", "value": {"city": "Berlin"}},
            },
            {
                "type": "tool-result",
                "toolCallId": "call_2",
                "toolName": "fail",
                "output": {"type": "error-text", "value": "no route"},
            },
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "It is in Berlin."}]},
]
"""What `streamText` of ai 6.0 gave as `response.messages`, behind the user's message."""
UI: list[Body] = [
    {
        "id": "u1",
        "role": "user",
        "parts": [
            {"type": "text", "text": "Where is it?"},
            {"type": "file", "url": "data:image/png;base64,iVBORw0KGgo=", "mediaType": "image/png"},
            {"type": "file", "url": "https://example.com/a.pdf", "mediaType": "application/pdf", "filename": "a.pdf"},
        ],
    },
    {
        "id": "a1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "think", "providerMetadata": SIGNED, "state": "done"},
            {"type": "text", "text": "I look.", "state": "done"},
            {
                "type": "tool-look",
                "toolCallId": "call_1",
                "state": "output-available",
                "input": {"id": "W-10023"},
                "output": {"city": "Berlin"},
            },
            {
                "type": "tool-fail",
                "toolCallId": "call_2",
                "state": "output-error",
                "input": {},
                "errorText": "no route",
            },
            {"type": "step-start"},
            {"type": "data-weather", "data": {"text": "never sent"}},
            {"type": "source-url", "sourceId": "s", "url": "https://example.com", "title": "never sent"},
            {"type": "text", "text": "It is in Berlin.", "state": "done"},
        ],
    },
]
"""The same run as `toUIMessageStream` gave it to `onFinish`."""
ITEMS: list[Body] = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Where is it?"},
            {"type": "input_image", "image": "data:image/png;base64,iVBORw0KGgo="},
            {"type": "input_file", "file": {"url": "https://example.com/a.pdf"}, "filename": "a.pdf"},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "content": [{"type": "input_text", "text": "think"}],
        "providerData": {"encrypted_content": "c2ln"},
    },
    {
        "type": "function_call",
        "callId": "call_1",
        "name": "look",
        "status": "completed",
        "arguments": '{"id":"W-10023"}',
    },
    {"type": "function_call", "callId": "call_2", "name": "fail", "status": "completed", "arguments": "{}"},
    {
        "type": "function_call_result",
        "name": "look",
        "callId": "call_1",
        "status": "completed",
        "output": {"type": "text", "text": '{"city":"Berlin"}'},
    },
    {
        "type": "function_call_result",
        "name": "fail",
        "callId": "call_2",
        "status": "completed",
        "output": {"type": "text", "text": "[error] no route"},
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is in Berlin.", "providerData": {"annotations": []}}],
    },
]
"""What `MemorySession.getItems` of @openai/agents 0.20 gave."""
GIVEN = {
    "model messages": ("ai_sdk", MODEL),
    "messages of the interface": ("ai_sdk", UI),
    "items": ("openai_agents_js", ITEMS),
}


@pytest.fixture
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as log:
        yield log


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("given", GIVEN)
def test_a_run_of_a_javascript_library_reaches_every_provider_whole(log: Turnlog, given: str, sent: str) -> None:
    format, bodies = GIVEN[given]
    session = log.sessions.create("s", strict=True, recall="never")
    assert session.append(*bodies, format=format).warnings == []  # type: ignore[arg-type]
    assert [message.body for message in session.messages()] == bodies
    window = session.context(format=sent)  # type: ignore[arg-type]
    assert window.open_calls == []
    assert sent not in LINTED or log.lint(window.messages, format=sent).problems == []  # type: ignore[arg-type]
    text = json.dumps(window.messages)
    for said in ("Where is it?", "W-10023", "Berlin", "no route", "It is in Berlin.", "iVBORw0KGgo=", "a.pdf"):
        assert said in text
    assert "never sent" not in text
    assert text.index("Where is it?") < text.index("W-10023") < text.index("no route") < text.index("It is in Berlin.")
    if sent == format and bodies is not UI:
        assert window.messages == bodies


def test_data_of_the_provider_beside_an_item_comes_back_with_it(log: Turnlog) -> None:
    items = [{"providerData": {"x": 1}, **item} for item in ITEMS]
    session = log.sessions.create("s", recall="never")
    session.append(*items, format="openai_agents_js")
    assert session.context(format="openai_agents_js").messages == items


def test_a_message_of_the_interface_becomes_the_model_messages_that_the_library_makes_of_it(log: Turnlog) -> None:
    session = log.sessions.create("s", recall="never")
    session.append(*UI)
    user, assistant, tool, last = session.context(format="ai_sdk").messages
    assert user["content"][1:] == [
        {"type": "file", "data": "iVBORw0KGgo=", "mediaType": "image/png"},
        {"type": "file", "data": "https://example.com/a.pdf", "mediaType": "application/pdf", "filename": "a.pdf"},
    ]
    assert assistant == MODEL[1]
    assert [part["output"] for part in tool["content"]] == [
        {"type": "text", "value": '{"city":"Berlin"}'},
        {"type": "error-text", "value": "no route"},
    ]
    assert [part["toolName"] for part in tool["content"]] == ["look", "fail"]
    assert last == {"role": "assistant", "content": "It is in Berlin."}


def reasoned(text: str, **metadata: Any) -> Body:
    return {"type": "reasoning", "text": text, "state": "done", "providerMetadata": metadata}


def step(name: str) -> list[Body]:
    called = {"type": f"tool-{name}", "toolCallId": name, "state": "output-available", "input": {}, "output": "21"}
    metadata = {"callProviderMetadata": {"openai": {"itemId": f"fc_{name}"}}}
    return [{"type": "step-start"}, reasoned(f"for {name}", openai={"itemId": f"rs_{name}"}), {**called, **metadata}]


def test_reasoning_calls_and_texts_of_the_interface_keep_what_the_library_keeps_for_a_provider(log: Turnlog) -> None:
    said = {"type": "text", "text": "21.", "state": "done", "providerMetadata": {"openai": {"itemId": "msg_1"}}}
    parts = [*step("look"), {"type": "step-start"}, reasoned("and so"), said]
    session = log.sessions.create("s", recall="never")
    session.append({"role": "user", "content": "How warm?"}, {"role": "assistant", "parts": parts}, format="ai_sdk")
    window = session.context(format="ai_sdk")
    first, _, last = window.messages[1:]
    call = {"type": "tool-call", "toolCallId": "look", "toolName": "look", "input": {}}
    assert first["content"] == [
        {"type": "reasoning", "text": "for look", "providerOptions": {"openai": {"itemId": "rs_look"}}},
        {**call, "providerOptions": {"openai": {"itemId": "fc_look"}}},
    ]
    assert last["content"] == [
        {"type": "reasoning", "text": "and so", "providerOptions": {}},
        {"type": "text", "text": "21.", "providerOptions": {"openai": {"itemId": "msg_1"}}},
    ]
    assert "block" not in {part.kind for part in window.manifest.parts}
    assert "options" not in json.dumps(session.context(format="turnlog").messages)


def test_reasoning_of_several_steps_with_calls_is_left_out_because_their_calls_are_sent_together(log: Turnlog) -> None:
    session = log.sessions.create("s", recall="never")
    parts = [*step("look"), *step("find"), {"type": "text", "text": "21."}]
    session.append({"role": "user", "content": "How warm?"}, {"role": "assistant", "parts": parts}, format="ai_sdk")
    window = session.context(format="ai_sdk")
    assert [part["type"] for part in window.messages[1]["content"]] == ["tool-call", "tool-call"]
    assert "providerOptions" not in json.dumps(window.messages)
    assert "thinking" in {part.reason for part in window.manifest.parts if part.kind == "block"}


def test_reasoning_before_a_call_that_is_sent_as_text_or_renamed_is_left_out(log: Turnlog) -> None:
    session = log.sessions.create("s", recall="never")
    session.append(
        {"role": "user", "content": "How warm?"}, {"role": "assistant", "parts": step("look")}, format="ai_sdk"
    )
    other = [{"type": "function", "function": {"name": "find"}}]
    assert "reasoning" not in json.dumps(session.context(format="ai_sdk", tools=other).messages)
    renamed = log.sessions.create("renamed", recall="never")
    renamed.append(
        {"role": "user", "content": "How warm?"}, {"role": "assistant", "parts": step("a.b")}, format="ai_sdk"
    )
    assert "reasoning" not in json.dumps(renamed.context(format="ai_sdk").messages)


@pytest.mark.parametrize(
    ("state", "fields", "calls", "results"),
    [
        ("input-streaming", {"input": {"q": 1}}, 0, []),
        ("input-available", {"input": {"q": 1}}, 1, []),
        ("approval-requested", {"input": {}, "approval": {"id": "x"}}, 1, []),
        ("approval-responded", {"input": {}, "approval": {"id": "x", "approved": True}}, 1, []),
        ("output-available", {"input": {}, "output": "done"}, 1, [("done", False)]),
        ("output-error", {"rawInput": "{", "errorText": "bad"}, 1, [("bad", True)]),
        ("output-denied", {"input": {}, "approval": {"id": "x", "approved": False, "reason": "no"}}, 1, [("no", True)]),
        ("output-denied", {"input": {}, "approval": {}}, 1, [("the user denied this call", True)]),
    ],
)
@pytest.mark.parametrize("kind", [{"type": "tool-find"}, {"type": "dynamic-tool", "toolName": "find"}])
def test_each_state_of_a_call_in_the_interface(
    kind: Body, state: str, fields: Body, calls: int, results: list[Any]
) -> None:
    part = {**kind, "toolCallId": "c", "state": state, **fields}
    message = CODECS["ai_sdk"].parse({"role": "assistant", "parts": [{"type": "text", "text": "hm"}, part]})
    assert [call.name for call in message.tool_calls] == ["find"] * calls
    assert [(result.text, result.is_error) for result in message.tool_results] == results
    assert message.content == (Text("hm"),)


@pytest.mark.parametrize(
    ("output", "text", "failed"),
    [
        ({"type": "text", "value": "a"}, "a", False),
        ({"type": "json", "value": {"a": 1}}, '{"a":1}', False),
        ({"type": "error-json", "value": [1]}, "[1]", True),
        ({"type": "execution-denied", "reason": "no"}, "no", True),
        ({"type": "execution-denied"}, "the user denied this call", True),
        ({"type": "content", "value": [{"type": "text", "text": "b"}]}, "b", False),
        ("plain", "plain", False),
    ],
)
def test_each_output_of_a_tool(output: Any, text: str, failed: bool) -> None:
    part = {"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": output}
    (result,) = CODECS["ai_sdk"].parse({"role": "tool", "content": [part]}).tool_results
    assert (result.text, result.is_error) == (text, failed)


def test_an_image_of_a_tool_is_an_image_in_both(log: Turnlog) -> None:
    shown = {"type": "content", "value": [{"type": "image-data", "data": "iVBORw0KGgo=", "mediaType": "image/png"}]}
    part = {"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": shown}
    (result,) = CODECS["ai_sdk"].parse({"role": "tool", "content": [part]}).tool_results
    assert result.content == (Media("image", "image/png", data="iVBORw0KGgo="),)
    item = {
        "type": "function_call_result",
        "callId": "c",
        "name": "f",
        "output": {"type": "image", "image": {"data": "iVBORw0KGgo=", "mediaType": "image/png"}},
    }
    (result,) = CODECS["openai_agents_js"].parse(item).tool_results
    assert result.content == (Media("image", "image/png", data="iVBORw0KGgo="),)


PDF = "application/pdf"


@pytest.mark.parametrize(
    ("part", "media"),
    [
        ({"type": "file", "data": "https://x/a", "mediaType": PDF}, Media("file", PDF, url="https://x/a")),
        (
            {"type": "file", "url": "http://x/a", "mediaType": "image/png"},
            Media("image", "image/png", url="http://x/a"),
        ),
        (
            {"type": "file", "url": "data:image/png;base64,iVBORw0KGgo="},
            Media("image", "image/png", data="iVBORw0KGgo="),
        ),
        (
            {"type": "file", "data": "data:;base64,iVBORw0KGgo=", "mediaType": PDF},
            Media("file", PDF, data="iVBORw0KGgo="),
        ),
        (
            {"type": "file", "data": "iVBORw0KGgo=", "mediaType": "audio/wav"},
            Media("audio", "audio/wav", data="iVBORw0KGgo="),
        ),
        ({"type": "media", "data": "iVBORw0KGgo=", "filename": "a"}, Media("file", data="iVBORw0KGgo=", name="a")),
        ({"type": "image", "image": "https://x"}, Media("image", url="https://x")),
        ({"type": "image-url", "url": "https://x"}, Media("image", url="https://x")),
        ({"type": "file-url", "url": "https://x"}, Media("file", url="https://x")),
        ({"type": "file-data", "data": "iVBORw0KGgo="}, Media("file", data="iVBORw0KGgo=")),
        ({"type": "image", "image": ""}, None),
        ({"type": "image", "url": "https://x"}, None),
        ({"type": "file", "mediaType": PDF}, None),
        ({"type": "text", "text": "x", "data": "iVBORw0KGgo="}, None),
    ],
)
def test_a_file_is_read_from_where_its_part_has_it(part: Body, media: Media | None) -> None:
    assert media_of_part(part) == media


RUN: Body = {"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {}, "providerExecuted": True}
RAN: Body = {"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": {"type": "text", "value": "x"}}


@pytest.mark.parametrize(
    ("parts", "closing"),
    [
        ([RUN, RAN, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}], 2),
        ([{"type": "text", "text": "a"}, RUN, RAN], 0),
        ([RUN, {"type": "text", "text": "a"}], 0),
        ([RAN, {"type": "text", "text": "a"}], 0),
        ([RUN, {**RUN, "toolCallId": "d"}, RAN, {"type": "text", "text": "a"}], 0),
    ],
)
def test_a_message_closes_with_what_stands_behind_the_results_of_all_its_calls(parts: list[Body], closing: int) -> None:
    message = CODECS["ai_sdk"].parse({"role": "assistant", "content": parts})
    assert message.closing == closing
    assert [call.hosted for call in message.tool_calls] == [True] * len([part for part in parts if "input" in part])
    assert [result.hosted for result in message.tool_results] == [True] * (RAN in parts)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"role": "user", "content": 7}, "/content"),
        ({"role": "user", "content": ["x"]}, "/content"),
        ({"role": "user", "parts": [7]}, "/parts"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}, "/content/1"),
        ({"role": "user", "parts": [{"type": None}]}, "/parts/0"),
    ],
)
def test_what_is_no_message_of_the_ai_sdk_is_refused_with_its_place(body: Body, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        CODECS["ai_sdk"].parse(body)
    assert [problem.pointer for problem in raised.value.problems] == [pointer]


def test_media_of_a_tool_without_data_are_named_beside_one_with_data() -> None:
    content = (
        Text("b"),
        Media("image", data="iVBORw0KGgo="),
        Media("image", url="https://x"),
        Media("file", data="iVBORw0KGgo=", name="a"),
    )
    turn = Turn(Message("tool", tool_results=(ToolResult("c", content),)), result_ids=("c",))
    (body,) = CODECS["ai_sdk"].bodies(turn)
    (part,) = body["content"]  # type: ignore[misc,assignment]
    assert part["output"] == {  # type: ignore[index,call-overload]
        "type": "content",
        "value": [
            {"type": "text", "text": "b"},
            {"type": "image-data", "data": "iVBORw0KGgo=", "mediaType": "image/png"},
            {"type": "text", "text": "[image]"},
            {"type": "file-data", "data": "iVBORw0KGgo=", "mediaType": "application/octet-stream"},
        ],
    }


@pytest.mark.parametrize("detail", ["low", "high", None])
def test_the_detail_of_an_image_goes_to_the_ai_sdk_and_comes_back(log: Turnlog, detail: str | None) -> None:
    image = {"url": "data:image/png;base64,iVBORw0KGgo="} | ({"detail": detail} if detail else {})
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    shown = {"type": "input_image", "image_url": image["url"]} | ({"detail": detail} if detail else {})
    session = log.sessions.create("s", recall="never")
    session.append({"role": "user", "content": [{"type": "image_url", "image_url": image}]})
    session.append(call, {"type": "function_call_output", "call_id": "c", "output": [shown]})
    window = session.context(format="ai_sdk")
    user, _, tool = window.messages
    options = {"providerOptions": {"openai": {"imageDetail": detail}}} if detail else {}
    assert user["content"] == [{"type": "file", "data": "iVBORw0KGgo=", "mediaType": "image/png", **options}]
    assert tool["content"][0]["output"]["value"] == [
        {"type": "image-data", "data": "iVBORw0KGgo=", "mediaType": "image/png", **options}
    ]
    parsed = [CODECS["ai_sdk"].parse(message) for message in (user, tool)]
    assert [block.detail for message in parsed for block in message.blocks if isinstance(block, Media)] == [detail] * 2


@pytest.mark.parametrize(
    ("kind", "source", "own"),
    [
        ("image", {"image_url": "https://x/a", "detail": "low"}, {"image": "https://x/a", "detail": "low"}),
        ("image", {"file_id": "file-1", "detail": "auto"}, {"image": {"id": "file-1"}, "detail": "auto"}),
        ("file", {"file_id": "file-2"}, {"file": {"id": "file-2"}}),
        ("file", {"file_url": "https://x/b"}, {"file": {"url": "https://x/b"}}),
    ],
)
def test_a_file_of_openai_goes_to_the_agents_sdk_and_comes_back(kind: str, source: Body, own: Body) -> None:
    message = {"role": "user", "content": [{"type": f"input_{kind}", **source}]}
    window = build_window([message], input_format="openai_responses", format="openai_agents_js")
    assert window.messages[0]["content"] == [{"type": f"input_{kind}", **own}]
    back = build_window(window.messages, input_format="openai_agents_js", format="openai_responses")
    assert back.messages == [message]


def test_items_of_openai_are_sent_to_the_agents_sdk_in_its_own_spelling(log: Turnlog) -> None:
    session = log.sessions.create("s", recall="never")
    session.append({"role": "user", "content": "hi"}, format="openai_responses")
    session.append({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"})
    session.append({"type": "function_call_output", "call_id": "c1", "output": "ok"})
    assert session.context(format="openai_agents_js").messages == [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "function_call", "callId": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_result", "callId": "c1", "name": "f", "status": "completed", "output": "ok"},
    ]


def test_a_text_part_of_the_interface_without_a_text_is_sent_as_it_is() -> None:
    body: Body = {"role": "user", "parts": [{"type": "text"}, {"type": "text", "text": "hi"}]}
    codec = CODECS["ai_sdk"]
    turn = Turn(codec.parse(body), "ai_sdk", body)
    assert codec.bodies(turn) == [{"role": "user", "content": body["parts"]}]


def test_a_part_whose_type_is_no_text_is_unknown_content(log: Turnlog) -> None:
    part = {"type": "text", "text": "a", "toolResult": {"content": [{"type": ["x"]}]}}
    answer = log.sessions.create("s").append({"role": "user", "content": [part]}, format="ai_sdk")
    assert [warning.code for warning in answer.warnings] == ["unknown_content"]


HOSTED = {
    "type": "hosted_tool_call",
    "id": "ws_1",
    "name": "web_search_call",
    "status": "completed",
    "providerData": {"type": "web_search_call", "action": {"type": "search", "query": "rivers"}},
}


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        (HOSTED, "web_search", '{"type":"search","query":"rivers"}'),
        ({key: HOSTED[key] for key in HOSTED if key != "status"}, "web_search", '{"type":"search","query":"rivers"}'),
        (
            {"type": "shell_call", "callId": "c", "action": {"commands": ["ls"], "timeoutMs": 5}},
            "shell",
            '{"commands":["ls"],"timeout_ms":5}',
        ),
        (
            {"type": "apply_patch_call", "callId": "c", "operation": {"type": "update_file", "moveTo": "b"}},
            "apply_patch",
            '{"type":"update_file","move_to":"b"}',
        ),
    ],
)
def test_calls_that_the_provider_defines_are_those_of_responses(item: Body, name: str, arguments: str) -> None:
    assert recognise(item) is CODECS["openai_agents_js"]
    (call,) = CODECS["openai_agents_js"].parse(item).tool_calls
    assert (call.name, call.arguments) == (name, arguments)


@pytest.mark.parametrize(
    ("part", "format"),
    [
        ({"type": "input_image", "image": "iVBORw0KGgo="}, "openai_agents_js"),
        ({"type": "input_file", "file": {"id": "f"}}, "openai_agents_js"),
        ({"type": "input_image", "image_url": "https://x"}, "openai_responses"),
        ({"type": "input_file", "file_id": "f"}, "openai_responses"),
        ({"type": "input_text", "text": "x", "file": 1}, "openai_responses"),
        ({"type": "image", "image": "iVBORw0KGgo="}, "ai_sdk"),
    ],
)
def test_a_part_is_recognised_by_where_it_has_its_file(part: Body, format: str) -> None:
    assert recognise({"role": "user", "content": [part]}).format == format


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ({"type": "computer_screenshot", "data": "https://x"}, (Media("image", url="https://x"),)),
        (
            {"type": "computer_screenshot", "data": "data:image/png;base64,iVBORw0KGgo="},
            (Media("image", "image/png", "iVBORw0KGgo="),),
        ),
        ("nothing to see", (Text("nothing to see"),)),
    ],
)
def test_a_screen_is_an_image_whatever_its_output_has(output: Any, content: tuple[Any, ...]) -> None:
    item = {"type": "computer_call_result", "callId": "c", "output": output}
    (result,) = CODECS["openai_agents_js"].parse(item).tool_results
    assert (result.tool_call_id, result.content) == ("c", content)


def test_thinking_is_kept_and_comes_back_in_its_own_format() -> None:
    assert CODECS["ai_sdk"].parse(MODEL[1]).content[0] == Thinking("think", options={"providerOptions": SIGNED})
    assert CODECS["openai_agents_js"].parse(ITEMS[1]).content == (Thinking("think"),)


@pytest.mark.parametrize(
    ("format", "body", "name", "pointer"),
    [
        ("ai_sdk", {"role": "user", "content": [{"type": "hologram", "x": 1}]}, "hologram", "/content/0"),
        ("ai_sdk", {"role": "user", "parts": [{"type": "text", "text": "a"}, {"type": "text"}]}, "text", "/parts/1"),
        ("ai_sdk", {"role": "user", "content": [{"type": "image", "image": {"0": 137}}]}, "image", "/content/0"),
        ("openai_agents_js", {"role": "user", "content": [{"type": "input_image"}]}, "input_image", "/content/0"),
        ("openai_agents_js", {"type": "unknown", "providerData": {"x": 1}}, "unknown", ""),
    ],
)
def test_a_part_that_no_rule_knows_is_kept_named_and_refused_in_a_strict_session(
    log: Turnlog, format: Any, body: Body, name: str, pointer: str
) -> None:
    session = log.sessions.create("loose")
    (warning,) = (
        each for each in session.append(body, format=format, lenient=True).warnings if each.code == "unknown_content"
    )
    assert warning.pointer == f"/messages/0{pointer}"
    assert warning.message.endswith(f": {name}")
    assert [message.body for message in session.messages()] == [body]
    with pytest.raises(InvalidInputError) as caught:
        log.sessions.create("strict", strict=True).append(body, format=format, lenient=True)
    assert "unknown_content" in [problem.code for problem in caught.value.problems]


@pytest.mark.parametrize("sent", ["ai_sdk", "openai_agents_js"])
@pytest.mark.parametrize("given", ["openai_chat", "anthropic", "openai_responses", "turnlog"])
def test_messages_of_others_come_back_from_these_formats_with_calls_results_and_texts(sent: str, given: str) -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", recall="never", system="Be kind.")
        source = log.sessions.create("source")
        source.append(*MODEL)
        session.append(*source.context(format=given).messages, format=given)  # type: ignore[arg-type]
        window = session.context(format=sent)  # type: ignore[arg-type]
        again = log.sessions.create("again")
        warnings = again.append(*window.messages, format=sent).warnings  # type: ignore[arg-type]
        assert {warning.code for warning in warnings} <= {"consecutive_assistant"}
        messages = [message for message in again.context(format="turnlog").messages if message["role"] != "system"]
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        assert [(call["name"], call["args"]) for call in calls] == [("look", {"id": "W-10023"}), ("fail", {})]
        results = [result["result"] for message in messages for result in message.get("tool_results", ())]
        assert [text.removeprefix("[error] ") for text in results] == ['{"city":"Berlin"}', "no route"]


@pytest.mark.parametrize("given", GIVEN)
def test_a_window_of_a_javascript_library_keeps_its_budget(log: Turnlog, given: str) -> None:
    format, bodies = GIVEN[given]
    session = log.sessions.create("s")
    texts = bodies[1:] if format == "ai_sdk" else bodies[3:]
    for _ in range(40):
        session.append({"role": "user", "content": "Where is it?"}, *texts, format=format)  # type: ignore[arg-type]
    for sent in ("ai_sdk", "openai_agents_js"):
        window = session.context(format=sent, budget=2_000)  # type: ignore[arg-type]
        counter, codec = TiktokenCounter(), CODECS[sent]
        counted = sum(count_message(codec.parse(message), counter) for message in window.messages)
        assert any(part.reason for part in window.manifest.parts)
        assert counted + count_tools(window.tools, counter) <= window.tokens <= 2_000


@pytest.mark.parametrize("given", GIVEN)
def test_a_file_of_such_messages_is_imported_in_their_format(log: Turnlog, given: str, tmp_path: Path) -> None:
    format, bodies = GIVEN[given]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"id": "chat", "messages": bodies}), encoding="utf-8")
    import_files(log, [file]).check()
    stored = list(log.sessions.get("chat").messages())
    assert [message.body for message in stored] == bodies
    assert {message.format for message in stored} == {format}
