"""The `turnlog` codec, and how a body without a format is recognised."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Turn
from turnlog.providers.registry import codec_of, recognise
from turnlog.providers.turnlog_format import TurnlogCodec

CODEC = TurnlogCodec()
RESULT = {"tool_call_id": "a", "result": "x", "is_error": False}


def sent(body: dict[str, Any], *, calls: tuple[str, ...] = (), results: tuple[str, ...] = ()) -> Any:
    turn = Turn(CODEC.parse(body), "turnlog", body, calls, results)
    (message,) = CODEC.render([turn], system=None, tools=()).messages
    return message


def made(message: Message, **ids: tuple[str, ...]) -> Any:
    (body,) = CODEC.render([Turn(message, **ids)], system=None, tools=()).messages
    return body


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        (None, ()),
        ("", (Text(""),)),
        ("hi", (Text("hi"),)),
        (
            [{"type": "text", "text": "a"}, {"type": "thinking", "text": "b", "signature": "s"}],
            (Text("a"), Thinking("b", "s")),
        ),
        ([{"type": "image", "media_type": "image/png", "data": "AA=="}], (Media("image", "image/png", "AA=="),)),
        ([{"type": "file", "file_id": "f", "name": "a"}], (Media("file", file_id="f", name="a"),)),
        ([{"type": "audio", "url": "https://x"}], (Media("audio", url="https://x"),)),
        (
            [{"type": "text"}, {"type": "new"}],
            (Opaque("turnlog", {"type": "text"}), Opaque("turnlog", {"type": "new"})),
        ),
    ],
)
def test_content(content: Any, blocks: tuple[Any, ...]) -> None:
    assert CODEC.parse({"role": "user", "content": content}).content == blocks


def test_calls_and_results() -> None:
    message = CODEC.parse(
        {
            "role": "assistant",
            "author": "bot",
            "tool_calls": [{"id": "a", "name": "f", "args": {"q": "é"}}, {"name": "g", "args": "text"}, {}],
            "tool_results": [{"tool_call_id": "a", "result": {"n": 1}, "is_error": True}, {"result": None}],
        }
    )
    assert message.tool_calls == (ToolCall("a", "f", '{"q":"é"}'), ToolCall("", "g", "text"), ToolCall("", "", ""))
    assert message.tool_results == (ToolResult("a", (Text('{"n":1}'),), is_error=True), ToolResult("", ()))
    assert message.name == "bot"


@pytest.mark.parametrize(
    ("body", "role"),
    [
        ({"role": "user", "tool_results": [RESULT]}, "tool"),
        ({"role": "user", "content": "", "tool_results": [RESULT]}, "tool"),
        ({"role": "assistant", "tool_results": [RESULT]}, "tool"),
        ({"role": "user", "content": "and so", "tool_results": [RESULT]}, "user"),
        ({"role": "user", "content": [{"type": "image", "url": "u"}], "tool_results": [RESULT]}, "user"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}], "tool_results": [RESULT]}, "assistant"),
        ({"role": "tool", "tool_calls": [{"id": "a"}], "tool_results": [RESULT]}, "assistant"),
        ({"role": "tool", "tool_results": [RESULT]}, "tool"),
        ({"role": "critic", "tool_results": [RESULT]}, "unknown"),
    ],
)
def test_results_alone_are_nobodys_turn(body: dict[str, Any], role: str) -> None:
    assert CODEC.parse(body).role == role


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"content": "x"}, "/role"),
        ({"role": "user", "content": 5}, "/content"),
        ({"role": "user", "content": ["x"]}, "/content"),
        ({"role": "user", "tool_calls": {}}, "/tool_calls"),
        ({"role": "user", "tool_calls": [5]}, "/tool_calls/0"),
        ({"role": "user", "tool_results": "x"}, "/tool_results"),
        ({"role": "user", "tool_results": [RESULT, None]}, "/tool_results/1"),
    ],
)
def test_what_is_no_message_is_refused_with_a_pointer(body: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        CODEC.parse(body)
    assert [problem.pointer for problem in raised.value.problems] == [pointer]


# ---------------------------------------------------------------- sending


def test_a_body_is_sent_as_given_but_for_ids_that_had_to_be_made() -> None:
    body = {
        "id": "m1",
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "", "name": "查", "args": "no json", "k": 1}],
        "metadata": {"n": [1]},
    }
    assert sent(body, calls=("call_1_0",)) == {**body, "tool_calls": [{**body["tool_calls"][0], "id": "call_1_0"}]}  # type: ignore[index,dict-item]
    assert sent({"role": "tool", "tool_results": [RESULT]}, results=("z",)) == {
        "role": "tool",
        "tool_results": [{**RESULT, "tool_call_id": "z"}],
    }
    assert sent({"role": "tool", "tool_results": [RESULT]}, results=("a",)) == {
        "role": "tool",
        "tool_results": [RESULT],
    }


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{}", {}),
        ("", {"_raw": ""}),
        ("[1]", {"_raw": "[1]"}),
        ("not json", {"_raw": "not json"}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ('{"a": 1e999}', {"_raw": '{"a": 1e999}'}),
        ('{"a": 1, "a": 2}', {"_raw": '{"a": 1, "a": 2}'}),
        ("[" * 5000, {"_raw": "[" * 5000}),
    ],
)
def test_arguments_that_are_no_json_object_are_sent_raw(arguments: str, args: Any) -> None:
    body = made(Message("assistant", tool_calls=(ToolCall("a", "f", arguments),)), call_ids=("a",))
    assert body == {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "name": "f", "args": args}]}


def test_made_content_and_results() -> None:
    message = Message(
        "user", (Text("a"), Thinking("b"), Media("image", url="u"), Opaque("openai_chat", {})), name="ada"
    )
    assert made(message) == {
        "role": "user",
        "author": "ada",
        "content": [{"type": "text", "text": "a"}, {"type": "thinking", "text": "b"}, {"type": "image", "url": "u"}],
    }
    assert made(Message("user", (Text("a"), Text("b"))))["content"] == "a\nb"
    assert made(Message("tool", tool_results=(ToolResult("a", (Text("x"),)),)), result_ids=("c",)) == {
        "role": "tool",
        "content": None,
        "tool_results": [{"tool_call_id": "c", "result": "x", "is_error": False}],
    }


def test_the_system_text_stands_beside_the_messages() -> None:
    assert CODEC.render([], system="s", tools=()).system == "s"


# ---------------------------------------------------------------- recognising


@pytest.mark.parametrize(
    ("body", "format"),
    [
        ({"role": "user", "content": "x"}, "openai_chat"),
        ({"role": "developer", "content": "x"}, "openai_chat"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "openai_chat"),
        ({"role": "assistant", "tool_calls": [{"name": "f", "args": {}}]}, "turnlog"),
        ({"role": "tool", "tool_call_id": "a"}, "openai_chat"),
        ({"role": "tool", "tool_results": []}, "turnlog"),
        ({"role": "user", "author": "ada"}, "turnlog"),
        ({"role": "function", "author": "ada"}, "openai_chat"),
        ({"role": "user", "content": [{"toolAddition": {"tool": {"toolSpec": {"name": "f"}}}}]}, "bedrock_converse"),
    ],
)
def test_a_body_is_recognised_by_what_only_its_format_has(body: dict[str, Any], format: str) -> None:
    assert recognise(body).format == format


def test_an_unknown_format_is_refused_with_a_pointer() -> None:
    with pytest.raises(InvalidInputError) as raised:
        codec_of("smoke signals")
    assert raised.value.problems[0].pointer == "/format"
