"""Sessions in every provider's format: appended without naming it, read back equal, and sent in any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from turnlog import Turnlog, build_window
from turnlog.core.messages import Message, Role, Text
from turnlog.linter.rules import lint
from turnlog.providers import Turn
from turnlog.providers.registry import CODECS, recognise

CALLS: dict[str, list[dict[str, Any]]] = {
    "openai_chat": [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": item, "type": "function", "function": {"name": "look", "arguments": "{}"}} for item in "ab"
            ],
        },
        *({"role": "tool", "tool_call_id": item, "content": "found"} for item in "ab"),
    ],
    "openai_responses": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        *({"type": "function_call", "call_id": item, "name": "look", "arguments": "{}"} for item in "ab"),
        *({"type": "function_call_output", "call_id": item, "output": "found"} for item in "ab"),
    ],
    "anthropic": [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": item, "name": "look", "input": {}} for item in "ab"],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": item, "content": "found"} for item in "ab"],
        },
    ],
    "bedrock_converse": [
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": item, "name": "look", "input": {}}} for item in "ab"],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": item, "content": [{"text": "found"}]}} for item in "ab"],
        },
    ],
    "turnlog": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": item, "name": "look", "args": {}} for item in "ab"],
        },
        {
            "role": "tool",
            "tool_results": [{"tool_call_id": item, "result": "found", "is_error": False} for item in "ab"],
        },
    ],
    "ai_sdk": [
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": item, "toolName": "look", "input": {}} for item in "ab"],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": item,
                    "toolName": "look",
                    "output": {"type": "text", "value": "found"},
                }
                for item in "ab"
            ],
        },
    ],
    "openai_agents_js": [
        *({"type": "function_call", "callId": item, "name": "look", "arguments": "{}"} for item in "ab"),
        *(
            {"type": "function_call_result", "callId": item, "name": "look", "status": "completed", "output": "found"}
            for item in "ab"
        ),
    ],
}
USER = {"role": "user", "content": "Where is it?"}


@pytest.fixture
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as log:
        yield log


@pytest.mark.parametrize("format", CODECS)
def test_a_strict_session_takes_each_format_unnamed_and_gives_it_back(log: Turnlog, format: str) -> None:
    session = log.sessions.create("s", strict=True, recall="never")
    appended = session.append(USER, *CALLS[format])
    assert appended.warnings == []
    assert [ref.call_id for ref in appended.refs] == ["a", "b"]
    stored = list(session.messages())
    assert [item.body for item in stored] == [USER, *CALLS[format]]
    assert {item.format for item in stored[1:]} == {format}
    window = session.context(format=format)
    assert window.messages[1:] == CALLS[format]


@pytest.mark.parametrize("given", CODECS)
@pytest.mark.parametrize("sent", CODECS)
def test_calls_of_each_format_are_told_in_each(log: Turnlog, given: str, sent: str) -> None:
    session = log.sessions.create("s", system="You find things.", recall="never")
    session.append(USER, *CALLS[given])
    window = session.context(format=sent)
    assert window.requires_tool_config
    assert window.tool_names == ["look"]
    assert str(window.messages).count("found") == 2
    is_first = sent in ("openai_chat", "openai_responses", "openai_agents_js")
    assert window.system == (None if is_first else "You find things.")
    assert ("You find things." in str(window.messages)) == is_first


@pytest.mark.parametrize("format", CODECS)
def test_a_request_says_which_messages_are_of_which_turn_and_where_it_ends(format: str) -> None:
    codec = CODECS[format]
    roles: tuple[Role, ...] = ("user", "assistant", "user")
    turns = [Turn(Message(role, (Text(role),))) for role in roles]
    rendered = codec.render(turns, system=None, tools=())
    assert [list(bodies) for bodies in rendered.bodies] == [codec.bodies(turn) for turn in turns]
    assert [body for bodies in rendered.bodies for body in bodies] == rendered.messages
    assert [end.message for end in rendered.ends] == [0, 1, 2]
    silent = codec.render([Turn(Message("user")), turns[0], Turn(Message("assistant"))], system=None, tools=())
    assert len(silent.ends) == len(silent.bodies) == 3, "also a turn of which nothing is sent"


def test_a_message_that_is_several_items_is_read_as_several_of_one_position(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(USER, CALLS["openai_chat"][0])
    read = list(session.messages(format="openai_responses"))
    assert [(item.position, item.body.get("type")) for item in read] == [
        (2, None),
        (3, None),
        (3, "function_call"),
        (3, "function_call"),
    ]
    assert sum(item.tokens for item in read) == sum(message.tokens for message in session.messages())


def test_tools_are_sent_in_the_shape_of_the_format_and_within_the_budget(log: Turnlog) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    session = log.sessions.create("s", tools=[tool], recall="never")
    session.append(USER)
    window = session.context(format="bedrock_converse")
    assert window.tools == [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]
    assert (
        sum(part.tokens for part in window.manifest.parts if part.kind in ("tools", "omission_notice", "loop")) + 3
        == window.tokens
    )


@pytest.mark.parametrize("kind", ["tool-call", "tool-result", "tool-approval-request", "tool-approval-response"])
def test_a_part_that_only_the_ai_sdk_has_names_its_format(kind: str) -> None:
    assert recognise({"role": "assistant", "content": [{"type": kind}]}).format == "ai_sdk"


@pytest.mark.parametrize("kind", [None, 1, True, [], {}, [[]], {"type": []}])
def test_a_part_whose_type_is_no_text_is_of_no_format(kind: object) -> None:
    """Strangers send what they like: nothing of it ends the search for a format with an untyped error."""
    part = {"type": kind}
    for body in ({"role": "user", "content": [part]}, {"role": "user", "parts": [part]}, {**part, "content": [part]}):
        assert recognise(body) is recognise({"role": "user", "content": "hi"})


PNG, TEXT_URL = "iVBORw0KGgo=", "data:text/plain;base64,aGk="
REFUSED_MEDIA: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "openai_chat": [
        ({"type": "image_url", "image_url": {"url": "s3://bucket/k.png"}}, {"type": "text", "text": "[image]"}),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!"}}, {"type": "text", "text": "[image]"}),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG}"}},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        ),
        (
            {"type": "file", "file": {"file_data": TEXT_URL, "filename": "a.txt"}},
            {"type": "text", "text": "<turnlog-data kind='file'>\nhi\n</turnlog-data>"},
        ),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": ""}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "file.pdf"}},
        ),
        (
            {"type": "file", "file": {"file_data": "data:application/zip;base64,UEs=", "filename": "a.zip"}},
            {"type": "text", "text": "[file: a.zip]"},
        ),
        (
            {"type": "file", "file": {"file_data": "JVBERi0="}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "file.pdf"}},
        ),
    ],
    "openai_responses": [
        ({"type": "input_image", "image_url": "file:///etc/passwd"}, {"type": "input_text", "text": "[image]"}),
        (
            {"type": "input_file", "file_url": "s3://bucket/k", "filename": "k"},
            {"type": "input_text", "text": "[file: k]"},
        ),
        (
            {"type": "input_file", "file_data": TEXT_URL},
            {"type": "input_file", "file_data": TEXT_URL, "filename": "file.txt"},
        ),
        (
            {"type": "input_file", "file_data": "data:application/zip;base64,UEs=", "filename": "a.zip"},
            {"type": "input_text", "text": "[file: a.zip]"},
        ),
    ],
    "anthropic": [
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!!!"}},
            {"type": "text", "text": "[image]"},
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "s3://bucket/k"}},
            {"type": "text", "text": "[document]"},
        ),
    ],
    "bedrock_converse": [
        (
            {"image": {"format": "jpeg", "source": {"bytes": PNG}}},
            {"image": {"format": "png", "source": {"bytes": PNG}}},
        ),
        ({"image": {"format": "png", "source": {"bytes": "!!!"}}}, {"text": "[image]"}),
    ],
}
"""Format -> media that its provider refuses, with what is sent in their place."""


@pytest.mark.parametrize(
    ("format", "part", "sent"), [(format, *pair) for format, pairs in REFUSED_MEDIA.items() for pair in pairs]
)
def test_media_that_the_provider_refuses_are_sent_as_what_it_takes(
    format: Any, part: dict[str, Any], sent: dict[str, Any]
) -> None:
    kinds = {"openai_responses": {"type": "input_text", "text": "look"}, "bedrock_converse": {"text": "look"}}
    text = kinds.get(format, {"type": "text", "text": "look"})
    (message,) = build_window([{"role": "user", "content": [part, text]}], format=format).messages
    assert message["content"] == [sent, text]
    assert lint([message], format=format) == []


FILES: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "document", "source": {"type": "file", "file_id": "file_011CNha8"}, "title": "plan"},
        {"type": "image", "source": {"type": "file", "file_id": "file_011CNhb9"}},
    ],
    "openai_chat": [{"type": "file", "file": {"file_id": "file-abc"}}],
    "openai_responses": [{"type": "input_image", "file_id": "file-abc"}, {"type": "input_file", "file_id": "file-abd"}],
}
"""Format -> files and images that its provider holds."""


@pytest.mark.parametrize("format", ["anthropic", "openai_chat", "openai_responses", "bedrock_converse", "turnlog"])
@pytest.mark.parametrize("given", FILES)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_file_id_goes_to_the_provider_that_gave_it_alone(given: str, format: Any, *, as_text: bool) -> None:
    content = {"role": "user", "content": FILES[given]}
    call: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": FILES[given]}
    calls = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result, *FILES[given]]}]
    with Turnlog.open("memory://") as log:
        session = log.sessions.create()
        session.append(content, *(calls if given == "anthropic" else []), format=given)  # type: ignore[arg-type]
        tools = [{"name": "other", "input_schema": {"type": "object"}}]
        window = session.context(format=format, tools=tools, others_calls="text" if as_text else "calls")
    is_provider = format.partition("_")[0] == given.partition("_")[0]
    assert ("file_01" in str(window.messages) or "file-a" in str(window.messages)) == (
        is_provider or format == "turnlog"
    )
    if format != "turnlog":
        assert window.messages[-1]["role"] in ("user", "tool") and lint(window.messages, format=format) == []


@pytest.mark.parametrize(("file_id", "format"), [("file-abc", "anthropic"), ("file_011CNha8", "openai_responses")])
def test_an_id_in_turnlog_s_own_format_is_judged_by_its_form(file_id: str, format: Any) -> None:
    media = [{"type": kind, "file_id": file_id, "name": "plan"} for kind in ("image", "file")]
    (sent,) = build_window([{"role": "user", "content": media, "author": "ada"}], format=format).messages
    assert file_id not in str(sent) and lint([sent], format=format) == []


NAMELESS = ["anthropic", "openai_responses", "bedrock_converse", "ai_sdk", "openai_agents_js"]


@pytest.mark.parametrize(("format", "space"), [*((format, "") for format in NAMELESS), ("openai_chat", " ")])
def test_two_people_stay_two_where_messages_have_no_place_for_their_names(format: Any, space: str) -> None:
    said = [{"role": "user", "name": f"{name}{space}", "content": f"I am {name}."} for name in ("ada", "bob")]
    answer = {"role": "assistant", "name": "clerk", "content": "Welcome."}
    sent = str(build_window([*said, answer, {"role": "user", "content": "Well?"}], format=format).messages)
    names = [sent.index(f"{name}{space}:") for name in ("ada", "bob")]
    assert names[0] < sent.index("I am ada.") < names[1] < sent.index("I am bob.")
    assert space or "clerk" not in sent, "a model that reads a name before its own text writes one"
