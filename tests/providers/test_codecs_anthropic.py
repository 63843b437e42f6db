"""The `anthropic` codec."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Turn
from turnlog.providers.alternation import CONTINUE, FIRST_USER
from turnlog.providers.anthropic import AnthropicCodec
from turnlog.providers.registry import recognise
from turnlog.providers.shapes import NO_OUTPUT

CODEC = AnthropicCodec()
PNG = "iVBORw0KGgo="
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
FALLBACK = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}}
TEXT = {"type": "text", "text": "t"}
CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}, "cache_control": {"type": "ephemeral"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "out", "cache_control": None}


def given(body: dict[str, Any], *, calls: tuple[str, ...] = (), results: tuple[str, ...] = ()) -> Turn:
    message = CODEC.parse(body)
    calls = calls or tuple(call.id for call in message.tool_calls)
    return Turn(
        message,
        "anthropic",
        body,
        calls,
        results or tuple(tool_result.tool_call_id for tool_result in message.tool_results),
    )


def sent(*turns: Turn, system: str | None = None) -> Any:
    return CODEC.render(turns, system=system, tools=()).messages


# ---------------------------------------------------------------- reading


def test_an_assistant_message_is_understood() -> None:
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    body = {"role": "assistant", "content": [THINKING, {"type": "text", "text": "hi", "citations": []}, server, CALL]}
    message = CODEC.parse(body)
    assert message.content == (Thinking("hm", "c2ln"), Text("hi"))
    assert message.tool_calls == (ToolCall("s", "web_search", "{}", hosted=True), ToolCall("a", "f", '{"q":1}'))
    assert message.role == "assistant"


@pytest.mark.parametrize(
    ("source", "media"),
    [
        ({"type": "base64", "media_type": "application/pdf", "data": "AA=="}, Media("file", "application/pdf", "AA==")),
        ({"type": "text", "media_type": "text/plain", "data": "hé"}, Media("file", "text/plain", "aMOp")),
        ({"type": "url", "url": "https://x/a.pdf"}, Media("file", url="https://x/a.pdf")),
        ({"type": "file", "file_id": "f1"}, Media("file", file_id="f1")),
    ],
)
def test_documents_both_ways(source: dict[str, Any], media: Media) -> None:
    block = {"type": "document", "source": source}
    assert CODEC.parse({"role": "user", "content": [block]}).content == (media,)
    assert CODEC.bodies(Turn(Message("user", (media,)))) == [{"role": "user", "content": [block]}]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64"},
        {"type": "base64", "data": ""},
        {"type": "url", "data": "AA=="},
        {"type": "url", "url": 7},
        {"type": "file", "file_id": None},
        {"type": "text", "data": "x"},
        {"type": "s3", "url": "s3://x"},
    ],
)
def test_an_image_without_what_its_source_names_is_no_image(source: dict[str, Any]) -> None:
    block = {"type": "image", "source": source}
    assert CODEC.parse({"role": "user", "content": [block]}).content == (Opaque("anthropic", block),)


@pytest.mark.parametrize(
    ("media", "source"),
    [
        (Media("image", "image/png", data=PNG), {"type": "base64", "media_type": "image/png", "data": PNG}),
        (Media("image", "image/jpg", data=PNG), {"type": "base64", "media_type": "image/png", "data": PNG}),
        (Media("image", "image/png", data="!!!"), None),
        (Media("image", "image/png", data=f"{PNG}!"), None),
        (Media("image", "image/svg+xml", data="PHN2Zz4=", name="a plan"), None),
        (Media("image", url="https://x/a.png"), {"type": "url", "url": "https://x/a.png"}),
        (Media("image", file_id="f"), {"type": "file", "file_id": "f"}),
        (Media("image", "image/tiff", data="AA=="), None),
        (Media("audio", "audio/wav", data="AA=="), None),
        (Media("file", "application/zip", data="AA==", name="a.zip"), None),
        (Media("image", url="data:x"), None),
    ],
)
def test_media_of_others(media: Media, source: dict[str, Any] | None) -> None:
    (block,) = CODEC.bodies(
        Turn(Message("tool", tool_results=(ToolResult("a", (media,)),), content=()), result_ids=("a",))
    )
    (inner,) = block["content"][0]["content"]  # type: ignore[call-overload,index]
    if source is None:
        assert inner == {"type": "text", "text": f"[{media.kind}{': ' + media.name if media.name else ''}]"}
    else:
        assert inner["source"] == source


@pytest.mark.parametrize("meta", [None, True, False])
def test_the_error_of_a_result_is_the_blocks_unless_the_caller_says(meta: bool | None) -> None:
    message = CODEC.parse({"role": "user", "content": [{**RESULT, "is_error": True}]}, is_error=meta)
    assert message.role == "tool"
    assert message.tool_results == (ToolResult("a", (Text("out"),), is_error=meta is not False),)


@pytest.mark.parametrize(
    ("source", "block"),
    [
        ({"type": "base64", "media_type": "application/pdf", "data": "AA=="}, Media("file", "application/pdf", "AA==")),
        ({"type": "text", "media_type": "text/plain", "data": "page"}, Text("page")),
    ],
)
def test_a_page_that_the_provider_fetched_is_its_text_or_a_file(source: dict[str, Any], block: Any) -> None:
    page = {"type": "web_fetch_result", "url": "https://x", "content": {"type": "document", "source": source}}
    body = {"role": "assistant", "content": [{"type": "web_fetch_tool_result", "tool_use_id": "s", "content": page}]}
    (result,) = CODEC.parse(body).tool_results
    assert result == ToolResult("s", (Text('{"type":"web_fetch_result","url":"https://x"}'), block), hosted=True)


@pytest.mark.parametrize("content", [5, ["a"], [{"text": "no type"}], [{"type": "tool_result", "content": 5}]])
def test_what_is_no_content_is_refused(content: Any) -> None:
    with pytest.raises(InvalidInputError):
        CODEC.parse({"role": "user", "content": content})


@pytest.mark.parametrize(
    ("body", "format"),
    [
        ({"role": "assistant", "content": [THINKING]}, "anthropic"),
        ({"role": "assistant", "content": [CALL]}, "anthropic"),
        ({"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "image", "url": "x"}], "author": "a"}, "turnlog"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "openai_chat"),
        ({"role": "user", "content": [{"text": "x"}]}, "bedrock_converse"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, "openai_responses"),
        ({"type": "function_call", "call_id": "a"}, "openai_responses"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "openai_chat"),
    ],
)
def test_a_body_is_recognised_by_what_one_format_has(body: dict[str, Any], format: str) -> None:
    assert recognise(body).format == format


# ---------------------------------------------------------------- the same format again


def test_a_turn_comes_back_equal() -> None:
    bodies = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [THINKING, {"type": "text", "text": "t"}, {"type": "novel", "new": 2}, CALL]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "and?", "cache_control": {"type": "ephemeral"}}]},
    ]
    turns = [given(bodies[0]), given(bodies[1], calls=("a",)), given(bodies[2], results=("a",))]
    assert sent(*turns) == bodies


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "compaction", "content": "so far"}, THINKING, TEXT],
        [{"type": "mcp_tool_listing", "mcp_server_name": "docs", "tools": []}, THINKING, TEXT],
        [FALLBACK, THINKING, TEXT],
        [THINKING, TEXT, FALLBACK, THINKING, TEXT],
        [TEXT, {"type": "container_upload", "file_id": "file_1"}],
    ],
)
def test_an_answer_comes_back_with_all_its_blocks(content: list[dict[str, Any]]) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
    messages = messages[1:] if content[0]["type"] == "compaction" else messages
    assert sent(*map(given, messages))[: len(messages)] == messages


@pytest.mark.parametrize(
    ("body", "content"),
    [
        ({"role": "user", "content": "hi", "id": "msg_1", "timestamp": 1}, "hi"),
        ({"role": "assistant", "content": [{**THINKING, "signature": ""}, TEXT]}, [TEXT]),
        ({"role": "assistant", "content": [{"type": "redacted_thinking"}, {**TEXT, "x": 1}]}, [TEXT]),
        (
            {"role": "user", "content": [{**TEXT, "citations": []}, {"type": "image"}]},
            [TEXT, {**TEXT, "text": "[image]"}],
        ),
        ({"role": "user", "content": [{**TEXT, "cache_control": {}}, {"type": "image_url"}]}, [TEXT]),
        ({"role": "user", "content": [THINKING, {"type": "redacted_thinking", "data": "eA=="}, TEXT]}, [TEXT]),
    ],
)
def test_what_the_provider_would_refuse_is_left_out(body: dict[str, Any], content: Any) -> None:
    assert CODEC.bodies(given(body)) == [{"role": body["role"], "content": content}]


SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def test_a_server_call_and_its_result_are_sent_once() -> None:
    repeated = given({"role": "assistant", "content": [SERVER_CALL, SERVER_CALL, SERVER_RESULT, SERVER_RESULT, TEXT]})
    messages = sent(given({"role": "user", "content": "news?"}), repeated)
    assert messages[1]["content"] == [SERVER_CALL, SERVER_RESULT, TEXT]


def test_a_server_tool_that_was_cut_off_is_left_out_once_the_user_goes_on() -> None:
    asked = given({"role": "user", "content": "news?"})
    paused = given({"role": "assistant", "content": [TEXT, SERVER_CALL]})
    assert sent(asked, paused)[-1]["content"] == [TEXT, SERVER_CALL]
    assert sent(asked, paused, given({"role": "user", "content": "stop"}))[1]["content"] == [TEXT]
    assert sent(asked, given({"role": "assistant", "content": [SERVER_RESULT, TEXT]}))[1]["content"] == [TEXT]


@pytest.mark.parametrize(
    ("content", "closing"),
    [
        ([SERVER_CALL, SERVER_RESULT, TEXT, TEXT], 2),
        ([TEXT, SERVER_CALL, SERVER_RESULT], 0),
        ([SERVER_CALL, TEXT], 0),
        ([SERVER_RESULT, TEXT], 0),
        ([SERVER_CALL, SERVER_RESULT, CALL, TEXT], 0),
        ([TEXT], 0),
    ],
)
def test_a_message_closes_with_what_stands_behind_the_results_of_all_its_calls(content: Any, closing: int) -> None:
    assert CODEC.parse({"role": "assistant", "content": content}).closing == closing


def test_a_server_call_beside_an_image_is_sent_as_it_came() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    for content in ([TEXT, image, SERVER_CALL, CALL], [SERVER_CALL, SERVER_RESULT, image, CALL]):
        (body,) = CODEC.bodies(given({"role": "assistant", "content": content}))
        assert [block for block in body["content"] if "tool" in block["type"]] == [  # type: ignore[union-attr,index,operator,call-overload]
            block for block in content if "tool" in str(block["type"])
        ]


def test_a_server_tool_goes_on_behind_the_results_of_other_calls() -> None:
    turns = [
        given({"role": "user", "content": "news?"}),
        given({"role": "assistant", "content": [SERVER_CALL, CALL]}),
        given({"role": "user", "content": [RESULT]}, results=("a",)),
    ]
    assert sent(*turns)[1]["content"] == [SERVER_CALL, CALL]
    answered = sent(*turns, given({"role": "assistant", "content": [SERVER_RESULT, TEXT]}))
    assert [message["content"] for message in answered[1:4:2]] == [[SERVER_CALL, CALL], [SERVER_RESULT, TEXT]]
    assert sent(*turns, given({"role": "assistant", "content": [TEXT]}))[1]["content"] == [CALL]


def test_an_id_is_repaired_and_thinking_stays() -> None:
    (body,) = CODEC.bodies(given({"role": "assistant", "content": [THINKING, CALL]}, calls=("b",)))
    assert body == {"role": "assistant", "content": [THINKING, {**CALL, "id": "b"}]}
    (answer,) = CODEC.bodies(given({"role": "user", "content": [RESULT]}, results=("b",)))
    assert answer == {"role": "user", "content": [{**RESULT, "tool_use_id": "b"}]}
    own = {"role": "assistant", "content": [SERVER_CALL, SERVER_RESULT, TEXT]}
    (hosted,) = CODEC.bodies(given(own, calls=("b",), results=("b",)))
    assert hosted["content"] == [
        {**SERVER_CALL, "id": "srvtoolu_b"},
        {**SERVER_RESULT, "tool_use_id": "srvtoolu_b"},
        TEXT,
    ]
    mcp = {"type": "mcp_tool_use", "id": "x", "name": "f", "server_name": "s", "input": {}}
    (hosted,) = CODEC.bodies(given({"role": "assistant", "content": [mcp]}, calls=("b",)))
    assert hosted["content"] == [{**mcp, "id": "b"}]


@pytest.mark.parametrize(("value", "sent_as"), [("text", {"_raw": "text"}), (None, {}), ([1], {"_raw": "[1]"})])
def test_input_that_is_no_object_is_wrapped_and_thinking_dropped(value: Any, sent_as: Any) -> None:
    (body,) = CODEC.bodies(given({"role": "assistant", "content": [THINKING, {**CALL, "input": value}]}, calls=("a",)))
    assert body == {"role": "assistant", "content": [{**CALL, "input": sent_as}]}


def test_blank_text_is_left_out_and_thinking_with_nothing_behind_it() -> None:
    blank = {"type": "text", "text": " \n"}
    assert CODEC.bodies(given({"role": "assistant", "content": [THINKING, blank]})) == []
    (body,) = CODEC.bodies(given({"role": "assistant", "content": [THINKING, TEXT, THINKING, THINKING]}))
    assert body["content"] == [THINKING, TEXT]
    assert CODEC.bodies(given({"role": "user", "content": ""})) == []
    (body,) = CODEC.bodies(given({"role": "user", "content": [{**RESULT, "content": [blank]}]}, results=("a",)))
    assert body["content"] == [{**RESULT, "content": []}]


def test_a_result_behind_text_is_sent_before_it() -> None:
    text = {"type": "text", "text": "see"}
    turns = [
        given({"role": "user", "content": "hi"}),
        given({"role": "assistant", "content": [CALL]}, calls=("a",)),
        given({"role": "user", "content": [text, RESULT]}, results=("a",)),
    ]
    assert sent(*turns)[-1] == {"role": "user", "content": [RESULT, text]}


# ---------------------------------------------------------------- of other formats


def test_results_of_one_turn_are_gathered_before_any_text() -> None:
    calls = tuple(ToolCall(name, "f", "") for name in "ab")
    results = [
        Turn(Message("tool", tool_results=(ToolResult(item, (Text(item),)),)), result_ids=(item,)) for item in "ab"
    ]
    turns = [
        Turn(Message("user", (Text("hi"),))),
        Turn(Message("assistant", (Thinking("x", "y"), Text("so")), calls), call_ids=("a", "b")),
        *results,
        Turn(Message("user", (Text("and"),))),
    ]
    assert sent(*turns) == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": item, "content": [{"type": "text", "text": item}]}
                for item in "ab"
            ],
        },
        {"role": "user", "content": "and"},
    ]


def test_system_messages_go_apart_or_into_a_fence() -> None:
    turns = [
        Turn(Message("system", (Text("b"),))),
        Turn(Message("user", (Text("u"),))),
        Turn(Message("system", (Text("c"),))),
    ]
    rendered = CODEC.render(turns, system="a", tools=())
    assert rendered.system == "a\n\nb"
    assert [message["content"] for message in rendered.messages] == [
        "u",
        "<turnlog-data kind='system message'>\nc\n</turnlog-data>",
    ]


def test_neutral_lines_stand_where_the_user_is_missing() -> None:
    assert sent(Turn(Message("assistant", (Text("hello"),)))) == [
        {"role": "user", "content": FIRST_USER},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": CONTINUE},
    ]
    assert sent() == [{"role": "user", "content": FIRST_USER}]


def test_a_result_that_failed_says_so() -> None:
    turn = Turn(Message("tool", tool_results=(ToolResult("a", (), is_error=True),)), result_ids=("a",))
    assert CODEC.bodies(turn) == [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": NO_OUTPUT, "is_error": True}],
        }
    ]


@pytest.mark.parametrize("own", [True, False])
def test_a_failed_result_with_an_image_says_so_in_a_text(own: bool) -> None:
    """Anthropic takes only texts beside ``is_error``."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    content = [{"type": "text", "text": "click failed"}, image]
    result = {"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": True}
    turn = given({"role": "user", "content": [result]})
    (message,) = sent(turn if own else Turn(turn.message, result_ids=("a",)))
    marked = [{"type": "text", "text": "[error]"}, *content]
    assert message["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": marked}]


@pytest.mark.parametrize(("call_id", "legal"), [("toolu_01-A", True), ("", False), ("a b", False), ("x" * 65, False)])
def test_ids(call_id: str, legal: bool) -> None:
    assert CODEC.legal_id(call_id) is legal


def test_thinking_is_left_out_of_a_turn_that_does_not_begin_with_it() -> None:
    text = {"type": "text", "text": "t"}
    late = given({"role": "assistant", "content": [THINKING, text]})
    before = given({"role": "assistant", "content": "first"})
    assert [message["content"] for message in sent(before, late)[1:3]] == ["first", [text]]
    assert [message["content"] for message in sent(late, late)[1:3]] == [[THINKING, text]] * 2
