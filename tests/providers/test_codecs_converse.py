"""The `bedrock_converse` codec."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Turn
from turnlog.providers.alternation import CONTINUE, FIRST_USER
from turnlog.providers.bedrock_converse import DOCUMENT_TEXT, BedrockConverseCodec, document_name
from turnlog.providers.shapes import NO_OUTPUT

CODEC = BedrockConverseCodec()
PNG = "iVBORw0KGgo="
REASONING = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
CALL = {"toolUse": {"toolUseId": "a", "name": "f", "input": {"q": 1}}}
RESULT = {"toolResult": {"toolUseId": "a", "content": [{"json": {"n": 1}}], "status": "success"}}


def given(body: dict[str, Any], *, calls: tuple[str, ...] = (), results: tuple[str, ...] = ()) -> Turn:
    return Turn(CODEC.parse(body), "bedrock_converse", body, calls, results)


def sent(*turns: Turn) -> Any:
    return CODEC.render(turns, system=None, tools=()).messages


def test_a_message_is_understood() -> None:
    point = {"cachePoint": {"type": "default"}}
    cited = {"citationsContent": {"content": [{"text": "a"}, {"text": "b"}], "citations": []}}
    redacted = {"reasoningContent": {"redactedContent": "eA=="}}
    message = CODEC.parse({"role": "assistant", "content": [REASONING, redacted, {"text": "hi"}, cited, point, CALL]})
    assert message.content == (
        Thinking("hm", "c2ln"),
        Thinking("", "eA=="),
        Text("hi"),
        Text("ab"),
        Opaque("bedrock_converse", point),
    )
    assert message.tool_calls == (ToolCall("a", "f", '{"q":1}'),)
    failed = {"toolResult": {**RESULT["toolResult"], "status": "error"}}
    assert CODEC.parse({"role": "user", "content": [failed]}).tool_results == (
        ToolResult("a", (Text('{"n":1}'),), is_error=True),
    )


@pytest.mark.parametrize("content", [5, ["a"], [{"toolResult": {"content": 5}}]])
def test_what_is_no_content_is_refused(content: Any) -> None:
    with pytest.raises(InvalidInputError):
        CODEC.parse({"role": "user", "content": content})


def test_a_turn_comes_back_equal() -> None:
    bodies = [
        {"role": "user", "content": [{"text": "hi"}, {"guardContent": {"text": {"text": "g"}}}]},
        {"role": "assistant", "content": [REASONING, {"text": "t"}, CALL]},
        {"role": "user", "content": [RESULT, {"text": "and?"}, {"cachePoint": {"type": "default"}}]},
    ]
    assert sent(given(bodies[0]), given(bodies[1], calls=("a",)), given(bodies[2], results=("a",))) == bodies


@pytest.mark.parametrize(
    ("block", "sent_as"),
    [
        ({"SDK_UNKNOWN_MEMBER": {"name": "newThing"}}, []),
        ({"text": "t", "type": "text"}, [{"text": "t"}]),
        ({"image": {"format": "bmp", "source": {"bytes": "AA=="}}}, [{"text": "[image]"}]),
        ({"reasoningContent": {}}, []),
    ],
)
def test_what_the_sdk_would_refuse_is_left_out(block: dict[str, Any], sent_as: list[Any]) -> None:
    body = {"role": "user", "content": [{"text": "hi"}, block], "id": "msg_1"}
    assert CODEC.bodies(given(body)) == [{"role": "user", "content": [{"text": "hi"}, *sent_as]}]


def test_neighbours_of_one_role_are_joined_and_lines_stand_at_the_ends() -> None:
    said = [Turn(Message("assistant", (Text(text),))) for text in "ab"]
    assert sent(*said) == [
        {"role": "user", "content": [{"text": FIRST_USER}]},
        {"role": "assistant", "content": [{"text": "a"}, {"text": "b"}]},
        {"role": "user", "content": [{"text": CONTINUE}]},
    ]


def test_results_of_a_turn_are_one_message_with_what_the_user_says_behind_them() -> None:
    calls = tuple(ToolCall(item, "a b", "no json") for item in "ab")
    results = [
        Turn(Message("tool", tool_results=(ToolResult(item, (), is_error=True),)), result_ids=(item,)) for item in "ab"
    ]
    turns = [
        Turn(Message("assistant", tool_calls=calls), call_ids=("a", "b")),
        *results,
        Turn(Message("user", (Text("x"),))),
    ]
    assistant, user = sent(*turns)[1:]
    assert [block["toolUse"]["input"] for block in assistant["content"]] == [{"_raw": "no json"}] * 2
    assert user["content"] == [
        *({"toolResult": {"toolUseId": item, "content": [{"text": NO_OUTPUT}], "status": "error"}} for item in "ab"),
        {"text": "x"},
    ]


def test_repairs() -> None:
    body = {"role": "assistant", "content": [REASONING, CALL]}
    assert CODEC.bodies(given(body, calls=("b",)))[0]["content"] == [
        REASONING,
        {"toolUse": {**CALL["toolUse"], "toolUseId": "b"}},
    ]
    (answer,) = CODEC.bodies(given({"role": "user", "content": [RESULT]}, results=("b",)))
    assert answer["content"] == [{"toolResult": {**RESULT["toolResult"], "toolUseId": "b"}}]
    (wrapped,) = CODEC.bodies(
        given({"role": "assistant", "content": [REASONING, {"toolUse": {"name": "f", "input": "x"}}]}, calls=("b",))
    )
    assert wrapped["content"] == [{"toolUse": {"name": "f", "input": {"_raw": "x"}, "toolUseId": "b"}}]
    assert CODEC.bodies(given({"role": "assistant", "content": [REASONING, {"text": " "}]})) == []
    (empty,) = CODEC.bodies(
        given(
            {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": ""}]}}]}, results=("a",)
        )
    )
    assert empty["content"] == [{"toolResult": {"toolUseId": "a", "content": [{"text": NO_OUTPUT}]}}]


# ---------------------------------------------------------------- media


@pytest.mark.parametrize(
    ("media", "block"),
    [
        (Media("image", "image/png", data=PNG), {"image": {"format": "png", "source": {"bytes": PNG}}}),
        (Media("image", "image/jpg", data=PNG), {"image": {"format": "png", "source": {"bytes": PNG}}}),
        (Media("image", "image/png", data="!!!", name="a plan"), {"text": "[image: a plan]"}),
        (
            Media("image", "image/jpeg", url="s3://bucket/k"),
            {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://bucket/k"}}}},
        ),
        (
            Media("file", "text/csv", data="AA==", name="my_list.csv"),
            {"document": {"format": "csv", "name": "my list csv", "source": {"bytes": "AA=="}}},
        ),
        (Media("image", data="R0lGODlh"), {"image": {"format": "gif", "source": {"bytes": "R0lGODlh"}}}),
        (Media("image", "image/tiff", data="AA=="), {"text": "[image]"}),
        (Media("image", url="https://x/a.png"), {"text": "[image]"}),
        (Media("audio", data="AA=="), {"text": "[audio]"}),
        (Media("file", "application/zip", data="AA==", name="a.zip"), {"text": "[file: a.zip]"}),
    ],
)
def test_media_of_others(media: Media, block: dict[str, Any]) -> None:
    assert CODEC.bodies(Turn(Message("user", (media,)))) == [{"role": "user", "content": [block]}]


def test_a_block_that_only_this_provider_has_is_sent_to_it_and_another_s_as_its_text() -> None:
    own, other = {"guardContent": {"text": {"text": "g"}}}, {"type": "search_result", "title": "t"}
    message = Message("user", (Opaque("bedrock_converse", own), Opaque("anthropic", other), Opaque("anthropic", {})))
    fenced = "<turnlog-data kind='search_result'>\nt\n</turnlog-data>"
    assert CODEC.bodies(Turn(message)) == [{"role": "user", "content": [own, {"text": fenced}]}]


def test_documents_have_names_of_their_own_and_text_beside_them() -> None:
    pdf = Media("file", "application/pdf", data="AA==", name="a/b")
    (message,) = sent(Turn(Message("user", (pdf, pdf))))
    assert [block["document"]["name"] for block in message["content"][:2]] == ["a b", "a b (2)"]
    assert message["content"][2:] == [{"text": DOCUMENT_TEXT}]


@pytest.mark.parametrize(
    ("names", "unique"),
    [
        (["a", "A", "a", "b"], ["a", "A (2)", "a (3)", "b"]),
        (["x" * 200] * 2, ["x" * 200, "x" * 192 + " (2)"]),
        (["x" * 191 + " y"] * 2, ["x" * 191 + " y", "x" * 191 + " (2)"]),
        (["", ""], ["document", "document (2)"]),
    ],
)
def test_no_two_documents_of_a_request_share_a_name_wherever_they_are(names: list[str], unique: list[str]) -> None:
    files = [Media("file", data="AA==", name=name) for name in names]
    (message,) = sent(Turn(Message("user", (*files, Text("x")))))
    assert message["content"] == [
        *({"document": {"format": "pdf", "name": name, "source": {"bytes": "AA=="}}} for name in unique),
        {"text": "x"},
    ]
    calls = tuple(ToolCall(str(number), "f", "{}") for number in range(len(files)))
    results = tuple(ToolResult(call.id, (file,)) for call, file in zip(calls, files, strict=True))
    ids = tuple(call.id for call in calls)
    turns = [Turn(Message("assistant", tool_calls=calls), call_ids=ids)]
    message = sent(*turns, Turn(Message("tool", tool_results=results), result_ids=ids))[-1]
    blocks = [block["toolResult"]["content"][0]["document"]["name"] for block in message["content"]]
    assert blocks == unique, "a document in a result needs no text beside it"


def test_media_of_an_assistant_are_named_and_its_own_results_follow_it() -> None:
    files = Media("image", data="AA=="), Media("file", data="AA==", name="a.pdf")
    message = Message("assistant", files, (ToolCall("a", "f", ""),), (ToolResult("a", (Text("x"),)),))
    call = {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}
    answer = {"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}
    said = {"role": "assistant", "content": [{"text": "[image]"}, {"text": "[file: a.pdf]"}, call]}
    assert CODEC.bodies(Turn(message, call_ids=("a",), result_ids=("a",))) == [
        said,
        {"role": "user", "content": [answer]},
    ]
    earlier = Turn(message, call_ids=("b",), result_ids=("a",))
    assert [body["role"] for body in CODEC.bodies(earlier)] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("Report (v2) [a]-1", "Report (v2) [a]-1"),
        ("a  b", "a b"),
        ("é", "document"),
        ("x" * 300, "x" * 200),
        ("", "document"),
    ],
)
def test_document_names(name: str, legal: str) -> None:
    assert document_name(name) == legal


def test_a_document_is_read() -> None:
    block = {"document": {"format": "pdf", "name": "a", "source": {"bytes": "AA=="}}}
    assert CODEC.parse({"role": "user", "content": [block]}).content == (
        Media("file", "application/pdf", data="AA==", name="a"),
    )


@pytest.mark.parametrize(
    "source",
    [
        {"bytes": "AA=="},
        {"s3Location": {"uri": "s3://bucket/key", "bucketOwner": "111122223333"}},
        {"text": "t"},
        {"content": [{"text": "t"}]},
    ],
)
def test_a_document_comes_back_from_each_source(source: dict[str, Any]) -> None:
    block = {"document": {"format": "pdf", "name": "a", "source": source}}
    body = {"role": "user", "content": [block, {"text": "x"}]}
    assert sent(given(body)) == [body]


@pytest.mark.parametrize("result_id", ["", "a b", "x" * 65])
def test_a_result_of_the_provider_with_an_id_that_it_refuses_is_left_out(result_id: str) -> None:
    result = {"toolUseId": result_id, "content": [{"text": "x"}], "type": "nova_grounding_result"}
    body = {"role": "user", "content": [{"toolResult": result}, {"text": "go on"}]}
    assert sent(given(body)) == [{"role": "user", "content": [{"text": "go on"}]}]
