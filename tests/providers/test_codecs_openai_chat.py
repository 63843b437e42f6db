"""The `openai_chat` codec: what it reads of each shape, and what it sends of it."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import build_window, count_tokens
from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.linter.rules import lint
from turnlog.providers import Turn
from turnlog.providers.blocks import legal_tool_name
from turnlog.providers.openai_chat import OpenAIChatCodec

CODEC = OpenAIChatCodec()
PNG = "data:image/png;base64,iVBORw0KGgo="


def call(call_id: Any = "a", name: Any = "f", arguments: Any = "{}", **extra: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **extra}


def sent(
    body: dict[str, Any], *, ids: tuple[str, ...] = ("a", "b", "c"), results: tuple[str, ...] = ("r",)
) -> list[Any]:
    """The body as it is sent in its own format, its calls under the first of ``ids``."""
    message = CODEC.parse(body)
    turn = Turn(message, "openai_chat", body, ids[: len(message.tool_calls)], results[: len(message.tool_results)])
    return CODEC.render([turn], system=None, tools=()).messages


def made(message: Message, **ids: tuple[str, ...]) -> list[Any]:
    """The message as it is sent when it came in another format."""
    return CODEC.render([Turn(message, **ids)], system=None, tools=()).messages


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("given", "role"),
    [
        ("system", "system"),
        ("developer", "system"),
        ("user", "user"),
        ("assistant", "assistant"),
        ("tool", "tool"),
        ("function", "tool"),
        ("critic", "unknown"),
        ("User", "unknown"),
    ],
)
def test_roles(given: str, role: str) -> None:
    message = CODEC.parse({"role": given, "content": "x"})
    assert (message.role, message.given_role) == (role, given)


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("hi", (Text("hi"),)),
        ("", (Text(""),)),
        (None, ()),
        ([], ()),
        ([{"type": "text", "text": "a"}, "b"], (Text("a"), Text("b"))),
        ([{"type": "refusal", "refusal": "no"}], (Text("no"),)),
        ([{"type": "text"}], (Opaque("openai_chat", {"type": "text"}),)),
        ([{"type": "hologram"}], (Opaque("openai_chat", {"type": "hologram"}),)),
        (
            [{"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}],
            (Media("image", media_type="image/png", data="iVBORw0KGgo=", detail="low"),),
        ),
        ([{"type": "image_url", "image_url": {"url": "https://x/y.png"}}], (Media("image", url="https://x/y.png"),)),
        (
            [{"type": "image_url", "image_url": "https://x"}],
            (Opaque("openai_chat", {"type": "image_url", "image_url": "https://x"}),),
        ),
        (
            [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}],
            (Media("audio", media_type="audio/mp3", data="AA=="),),
        ),
        (
            [{"type": "input_audio", "input_audio": {}}],
            (Opaque("openai_chat", {"type": "input_audio", "input_audio": {}}),),
        ),
        (
            [{"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}}],
            (Media("file", file_id="f1", name="a.pdf"),),
        ),
        (
            [{"type": "file", "file": {"file_data": "data:application/pdf;base64,AA=="}}],
            (Media("file", media_type="application/pdf", data="AA=="),),
        ),
        ([{"type": "file", "file": {"file_data": "AA=="}}], (Media("file", data="AA=="),)),
        ([{"type": "file", "file": {}}], (Opaque("openai_chat", {"type": "file", "file": {}}),)),
    ],
)
def test_content(content: Any, blocks: tuple[Any, ...]) -> None:
    assert CODEC.parse({"role": "user", "content": content}).content == blocks


def test_a_refusal_is_text_where_there_is_no_content_and_reasoning_is_thinking() -> None:
    assert CODEC.parse({"role": "assistant", "content": None, "refusal": "I won't"}).text == "I won't"
    message = CODEC.parse({"role": "assistant", "content": "x", "reasoning_content": "hm"})
    assert message.content == (Thinking("hm"), Text("x"))


def test_a_spoken_answer_has_its_words_and_only_its_id_is_sent() -> None:
    audio = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1, "transcript": "It arrives today."}
    spoken = {"role": "assistant", "content": None, "audio": audio}
    message = CODEC.parse(spoken)
    assert message.text == "It arrives today."
    assert message.content[1:] == (Media("audio", data="UklGRg==", file_id="audio_1"),)
    assert sent(spoken) == [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]
    window = build_window([spoken], format="anthropic", input_format="openai_chat")
    assert "It arrives today." in str(window.messages)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (call("i", "f", '{"a": 1}'), ToolCall("i", "f", '{"a": 1}')),
        (call(None, None, None), ToolCall("", "", "")),
        (call(arguments={"a": "é"}), ToolCall("a", "f", '{"a":"é"}')),
        (
            {"id": "i", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
            ToolCall("i", "sh", "ls", is_text=True),
        ),
        ({"id": "i", "name": "f", "args": {"a": 1}}, ToolCall("i", "f", '{"a":1}')),
    ],
)
def test_calls(given: Any, parsed: ToolCall) -> None:
    assert CODEC.parse({"role": "assistant", "content": None, "tool_calls": [given]}).tool_calls == (parsed,)


def test_legacy_function_calls_and_results() -> None:
    message = CODEC.parse({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}})
    assert message.tool_calls == (ToolCall("", "f", "{}"),)
    message = CODEC.parse({"role": "function", "name": "f", "content": "42"})
    assert message.tool_results == (ToolResult("", (Text("42"),), name="f", by_name=True),)


@pytest.mark.parametrize(
    ("text", "meta", "is_error"),
    [("x", None, False), ("[error] x", None, True), ("[error] x", False, False), ("x", True, True)],
)
def test_a_result_is_an_error_by_its_mark_unless_the_caller_says_otherwise(
    text: str, meta: bool | None, is_error: bool
) -> None:
    message = CODEC.parse({"role": "tool", "tool_call_id": "a", "content": text}, is_error=meta)
    assert [result.is_error for result in message.tool_results] == [is_error]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"content": "x"}, "/role"),
        ({"role": "", "content": "x"}, "/role"),
        ({"role": 1}, "/role"),
        ({"role": "user", "content": 5}, "/content"),
        ({"role": "user", "content": {"a": 1}}, "/content"),
        ({"role": "user", "content": [5]}, "/content"),
        ({"role": "assistant", "tool_calls": {}}, "/tool_calls"),
        ({"role": "assistant", "tool_calls": [call(), "x"]}, "/tool_calls/1"),
    ],
)
def test_what_is_no_message_is_refused_with_a_pointer(body: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        CODEC.parse(body)
    assert [problem.pointer for problem in raised.value.problems] == [pointer]


# ---------------------------------------------------------------- sending as given


@pytest.mark.parametrize(
    "body",
    [
        {"role": "user", "content": "hi", "name": "Ada"},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": PNG}, "cache_control": {"type": "ephemeral"}}],
        },
        {
            "role": "assistant",
            "content": "x",
            "refusal": None,
            "tool_calls": None,
            "function_call": None,
            "audio": None,
        },
        {"role": "assistant", "content": "x", "name": None},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        {"role": "assistant", "content": None, "tool_calls": [call("a")], "reasoning_content": "hm"},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]},
        {"role": "developer", "content": "x", "name": "ops"},
        {"role": "tool", "tool_call_id": "r", "content": "x", "name": "f"},
        {"role": "assistant", "content": ""},
    ],
)
def test_a_legal_body_is_sent_as_given(body: dict[str, Any]) -> None:
    assert sent(body) == [body]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"role": "user", "content": "x", "id": "msg_1", "timestamp": 1}, {"role": "user", "content": "x"}),
        (
            {"role": "assistant", "content": "x", "tool_calls": [call("a", index=0)]},
            {"role": "assistant", "content": "x", "tool_calls": [call("a")]},
        ),
        ({"role": "user", "content": None, "k": 1}, {"role": "user", "content": ""}),
        ({"role": "assistant", "content": []}, {"role": "assistant", "content": ""}),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
        (
            {"role": "assistant", "content": "x", "tool_calls": [], "k": 1},
            {"role": "assistant", "content": "x"},
        ),
        ({"role": "user", "content": "x", "name": "a b", "k": 1}, {"role": "user", "content": "a b:\nx"}),
        (
            {"role": "user", "name": "a b", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a b:"}, {"type": "image_url", "image_url": {"url": PNG}}],
            },
        ),
        ({"role": "assistant", "content": "x", "name": "a b"}, {"role": "assistant", "content": "x"}),
        ({"role": "user", "content": "x", "name": ""}, {"role": "user", "content": "x"}),
        ({"role": "assistant", "content": "x", "refusal": 5}, {"role": "assistant", "content": "x"}),
        ({"role": "assistant", "content": None, "audio": {}}, {"role": "assistant", "content": ""}),
        (
            {"role": "system", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
            {"role": "system", "content": "[image]"},
        ),
        ({"role": "tool", "content": "x", "tool_call_id": ""}, {"role": "tool", "content": "x", "tool_call_id": "r"}),
        (
            {"role": "assistant", "content": None, "tool_calls": [call("")], "k": 1},
            {"role": "assistant", "content": None, "tool_calls": [call("a")]},
        ),
        (
            {"role": "assistant", "content": "x", "tool_calls": [call(arguments={"q": 1})]},
            {"role": "assistant", "content": "x", "tool_calls": [call(arguments='{"q":1}')]},
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "s h"}}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": legal_tool_name("s h"), "input": ""}}],
            },
        ),
        (
            {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "assistant", "content": "x", "tool_calls": [call()]},
        ),
        ({"role": "function", "name": "f", "content": "42"}, {"role": "tool", "tool_call_id": "r", "content": "42"}),
    ],
)
def test_what_the_provider_would_refuse_is_repaired_and_nothing_else(
    body: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert sent(body) == [wanted]
    alone = [match.rule for match in lint([wanted], format="openai_chat")]
    assert set(alone) <= {"call_unanswered", "orphan_result"}


# ---------------------------------------------------------------- sending what came in another format


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (Message("user", (Text("a"), Text("b"))), "a\nb"),
        (Message("user", (Thinking("hm"), Opaque("turnlog", {}), Text("b"))), "b"),
        (
            Message("user", (Text("a"), Media("image", data="R0lGODlh", media_type="image/png", detail="low"))),
            [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh", "detail": "low"}},
            ],
        ),
        (Message("user", (Media("image", file_id="f1", name="plan"),)), [{"type": "text", "text": "[image: plan]"}]),
        (
            Message("user", (Media("audio", data="AA==", media_type="audio/mp3"),)),
            [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}],
        ),
        (
            Message("user", (Media("audio", data="AA==", media_type="audio/mpeg"),)),
            [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}],
        ),
        (
            Message("user", (Media("audio", data="AA==", media_type="audio/ogg"),)),
            [{"type": "text", "text": "[audio]"}],
        ),
        (Message("user", (Media("audio", url="https://x/y.wav"),)), [{"type": "text", "text": "[audio]"}]),
        (
            Message("user", (Media("file", data="aGk=", media_type="text/plain", name="a.txt"),)),
            [{"type": "text", "text": "<turnlog-data kind='file'>\nhi\n</turnlog-data>"}],
        ),
        (
            Message("user", (Media("file", data="JVBERi0=", media_type="application/pdf"),)),
            [{"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "file.pdf"}}],
        ),
        (
            Message("user", (Media("file", data="AA==", media_type="application/msword", name="a"), Text("?"))),
            [{"type": "text", "text": "[file: a]"}, {"type": "text", "text": "?"}],
        ),
        (Message("user", (Media("image", url="s3://bucket/k"),)), [{"type": "text", "text": "[image]"}]),
        (Message("user", (Media("image", "image/svg+xml", "PHN2Zz4="),)), [{"type": "text", "text": "[image]"}]),
        (Message("user", (Media("file", file_id="f1"),)), [{"type": "file", "file": {"file_id": "f1"}}]),
        (
            Message("user", (Media("file", url="https://x/a.pdf", name="a.pdf"),)),
            [{"type": "text", "text": "[file: a.pdf]"}],
        ),
        (Message("assistant", (Text("a"), Media("image", url="https://x"))), "a\n[image]"),
    ],
)
def test_made_content(message: Message, content: Any) -> None:
    result = made(message)
    assert result == [{"role": message.role, "content": content}]
    assert lint(result, format="openai_chat") == []


def test_made_calls_and_results_each_in_a_message_of_its_own() -> None:
    results = (ToolResult("x", (Text("1"),)), ToolResult("y", (Text("2"),), is_error=True))
    result = made(
        Message("assistant", (Text("so"),), tool_calls=(ToolCall("x", "a b", "{}"), ToolCall("y", "g", "no json"))),
        call_ids=("c1", "c2"),
    ) + made(Message("tool", tool_results=results), result_ids=("c1", "c2"))
    assert result == [
        {
            "role": "assistant",
            "content": "so",
            "tool_calls": [call("c1", legal_tool_name("a b")), call("c2", "g", "no json")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "[error] 2"},
    ]
    assert lint(result, format="openai_chat") == []


def test_a_message_of_results_alone_is_only_these_and_calls_follow_results() -> None:
    results, answer = (ToolResult("r", (Text("1"),)),), {"role": "tool", "tool_call_id": "r", "content": "1"}
    assert made(Message("user", tool_results=results), result_ids=("r",)) == [answer]
    both = Message("assistant", tool_calls=(ToolCall("c", "f", "{}"),), tool_results=results)
    calling = {"role": "assistant", "content": None, "tool_calls": [call("c")]}
    assert made(both, call_ids=("c",), result_ids=("r",)) == [answer, calling]
    said = Message("user", (Text("so"),), tool_results=results)
    assert made(said, result_ids=("r",)) == [answer, {"role": "user", "content": "so"}]


def test_an_author_is_named_where_the_provider_takes_the_name() -> None:
    assert made(Message("user", (Text("x"),), name="ada"))[0]["name"] == "ada"
    assert made(Message("user", (Text("x"),), name="Ada L.")) == [{"role": "user", "content": "Ada L.:\nx"}]


def test_the_system_text_is_the_first_message() -> None:
    rendered = CODEC.render([Turn(Message("user", (Text("x"),)))], system="be brief", tools=[{"type": "function"}])
    assert rendered.messages[0] == {"role": "system", "content": "be brief"}
    assert (rendered.system, rendered.tools) == (None, [{"type": "function"}])


@pytest.mark.parametrize("name", ["f", "get-it_2", "n" * 64])
def test_a_legal_name_stays(name: str) -> None:
    assert legal_tool_name(name) == name


def test_an_illegal_name_becomes_a_legal_one_and_names_stay_apart() -> None:
    names = ["", "查天气", "查地图", "a.b", "a b", "a/b", "n" * 65, "n" * 66, "\ud83d", "_", "__ __"]
    made_names = [legal_tool_name(name) for name in names]
    assert len(set(made_names)) == len(names)
    assert all(
        0 < len(name) <= 64 and name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        for name in made_names
        if name != "_"
    )


@pytest.mark.parametrize(("call_id", "is_legal"), [("", False), ("a", True), ("x" * 40, True), ("x" * 41, False)])
def test_legal_ids(call_id: str, is_legal: bool) -> None:
    assert CODEC.legal_id(call_id) is is_legal


# ---------------------------------------------------------------- more calls than a message takes


@pytest.mark.parametrize("format", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_more_calls_than_a_message_takes_are_sent_in_several_each_with_its_results(
    format: Any, is_reversed: bool
) -> None:
    """OpenAI refuses a message of more than 128 calls, though its models make them."""
    ids = [f"call_{number}" for number in range(300)]
    answered = ids[::-1] if is_reversed else ids
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    if format == "anthropic":
        uses = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in ids]
        results = [{"type": "tool_result", "tool_use_id": call_id, "content": "done"} for call_id in answered]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    else:
        messages.append({"role": "assistant", "content": "working", "tool_calls": [call(call_id) for call_id in ids]})
        messages += [{"role": "tool", "tool_call_id": call_id, "content": "done"} for call_id in answered]
    window = build_window(messages, format="openai_chat")
    assert lint(window.messages, format="openai_chat") == []
    assert [len(message["tool_calls"]) for message in window.messages if "tool_calls" in message] == [128, 128, 44]
    assert [message["tool_call_id"] for message in window.messages if message["role"] == "tool"].count("call_299") == 1
    assert sum(message["role"] == "tool" for message in window.messages) == 300
    assert count_tokens(window.messages, format="openai_chat") <= window.tokens


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}


@pytest.mark.parametrize(
    "items", [[REASONING, SEARCH], [{"type": "compaction", "id": "cmp_1", "encrypted_content": "E"}]]
)
def test_an_answer_of_which_this_format_can_say_nothing_leaves_no_empty_message(items: list[dict[str, Any]]) -> None:
    tools = [{"type": "function", "function": {"name": "kb", "parameters": {"type": "object"}}}]
    messages = [{"role": "user", "content": "q"}, *items, {"role": "user", "content": "thanks"}]
    sent = build_window(messages, format="openai_chat", tools=tools).messages
    assert {message["role"] for message in sent} == {"user"}
    assert build_window(items[-1:], format="openai_chat").messages, "the provider needs a message"


def test_images_of_results_follow_behind_the_last_of_them_under_the_ids_of_their_calls() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    calls = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": [image]} for name in "ab"]
    said = [("user", "look"), ("assistant", calls), ("user", results), ("assistant", "Seen.")]
    messages = [{"role": role, "content": content} for role, content in said]
    *_, last, shown, seen = build_window(messages, input_format="anthropic", format="openai_chat").messages
    assert (last["tool_call_id"], last["content"]) == ("b", [{"type": "text", "text": "[image]"}])
    own = {"type": "image_url", "image_url": {"url": PNG}}
    ids = [{"type": "text", "text": f"[result of {name}]"} for name in "ab"]
    assert shown == {"role": "user", "content": [ids[0], own, ids[1], own]} and seen["role"] == "assistant"
