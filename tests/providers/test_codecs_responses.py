"""The `openai_responses` codec."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import build_window
from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Turn
from turnlog.providers.alternation import FIRST_USER
from turnlog.providers.openai_responses import OpenAIResponsesCodec

CODEC = OpenAIResponsesCodec()
USER = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "x",
}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "so", "annotations": []}],
}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}

COMPACTED = Message(
    "assistant",
    (Opaque("openai_responses", {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}),),
    given_role="compaction",
    compacts=True,
)


def call(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def output(call_id: str, value: Any = "out") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (USER, Message("user", (Text("hi"),), given_role="user")),
        (call("a"), Message("assistant", tool_calls=(ToolCall("a", "f", "{}"),), given_role="function_call")),
        (REASONING, Message("assistant", (Thinking("hm"),), given_role="reasoning")),
        (
            SEARCH,
            Message(
                "assistant",
                (),
                (ToolCall("ws_1", "web_search", "{}", hosted=True),),
                (ToolResult("ws_1", (Text("completed"),), hosted=True),),
                given_role="web_search_call",
            ),
        ),
        ({"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}, COMPACTED),
        (
            {"type": "compaction", "id": "cmp_1"},
            Message(
                "assistant",
                (Opaque("openai_responses", {"type": "compaction", "id": "cmp_1"}),),
                given_role="compaction",
            ),
        ),
        (
            output("a", "[error] no"),
            Message(
                "tool",
                tool_results=(ToolResult("a", (Text("[error] no"),), is_error=True),),
                given_role="function_call_output",
            ),
        ),
        (
            {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"},
            Message("assistant", tool_calls=(ToolCall("a", "f", "x", is_text=True),), given_role="custom_tool_call"),
        ),
    ],
)
def test_an_item_is_understood(item: dict[str, Any], message: Message) -> None:
    assert CODEC.parse(item) == message


@pytest.mark.parametrize("item", [{"type": 5}, {"type": "a b"}, {"type": "message"}, {"role": "user", "content": [1]}])
def test_what_is_no_item_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        CODEC.parse(item)


@pytest.mark.parametrize(
    ("part", "media"),
    [
        (
            {"type": "input_image", "image_url": "https://x", "detail": "low"},
            Media("image", url="https://x", detail="low"),
        ),
        ({"type": "input_image", "file_id": "f", "detail": "auto"}, Media("image", file_id="f", detail="auto")),
        ({"type": "input_file", "file_id": "f"}, Media("file", file_id="f")),
        ({"type": "input_file", "file_url": "https://x"}, Media("file", url="https://x")),
        (
            {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a"},
            Media("file", "application/pdf", data="AA==", name="a"),
        ),
    ],
)
def test_media_both_ways(part: dict[str, Any], media: Media) -> None:
    assert CODEC.parse({"role": "user", "content": [part]}).content == (media,)
    assert CODEC.bodies(Turn(Message("user", (media,)))) == [{"role": "user", "content": [part]}]
    (made,) = CODEC.bodies(Turn(Message("tool", tool_results=(ToolResult("a", (media,)),)), result_ids=("a",)))
    assert made["output"] == [part]


@pytest.mark.parametrize(
    ("media", "text"),
    [
        (Media("file", name="a.pdf"), "[file: a.pdf]"),
        (Media("image", name="plan"), "[image: plan]"),
        (Media("audio", data="AA=="), "[audio]"),
    ],
)
def test_media_without_a_source_that_the_provider_takes_are_named(media: Media, text: str) -> None:
    assert CODEC.bodies(Turn(Message("user", (media,)))) == [
        {"role": "user", "content": [{"type": "input_text", "text": text}]}
    ]
    (made,) = CODEC.bodies(Turn(Message("tool", tool_results=(ToolResult("a", (media,)),)), result_ids=("a",)))
    assert made["output"] == text


def test_a_failed_result_with_an_image_says_so() -> None:
    image = Media("image", url="https://x", detail="low")
    result = ToolResult("a", (Text("no"), image), is_error=True)
    (made,) = CODEC.bodies(Turn(Message("tool", tool_results=(result,)), result_ids=("a",)))
    shown = {"type": "input_image", "image_url": "https://x", "detail": "low"}
    assert made["output"] == [{"type": "input_text", "text": "[error] no"}, shown]


# ---------------------------------------------------------------- windows of items


def test_items_come_back_equal_and_in_order() -> None:
    items = [USER, REASONING, call("a"), call("b"), output("a"), output("b"), SEARCH, SAID]
    assert build_window(items, format="openai_responses").messages == items


def test_what_an_sdk_writes_for_absent_members_is_not_sent() -> None:
    """The provider refuses the status of reasoning (BerriAI/litellm#13420), and null where it has no value."""
    dumped: list[dict[str, Any]] = [
        USER,
        {**REASONING, "status": None, "content": None},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": None, "status": "completed"},
        {**call("a"), "namespace": None, "caller": None, "status": None},
        output("a"),
        {**SAID, "status": None, "phase": None},
    ]
    bare = [{key: value for key, value in item.items() if value is not None} for item in dumped]
    del bare[2]["status"]
    assert build_window(dumped, format="openai_responses").messages == bare


def test_parallel_calls_are_one_message_elsewhere() -> None:
    items = [USER, REASONING, call("a"), call("b"), output("a"), output("b")]
    chat = build_window(items, format="openai_chat").messages
    assert [tool_call["id"] for tool_call in chat[1]["tool_calls"]] == ["a", "b"]
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool"]
    claude = build_window(items, format="anthropic").messages
    assert [message["role"] for message in claude] == ["user", "assistant", "user"]
    assert [block["type"] for block in claude[1]["content"]] == ["tool_use", "tool_use"]


def test_reasoning_stays_with_its_item_or_goes_with_it() -> None:
    later = [USER, {**SAID, "id": "msg_2"}, {"role": "user", "content": "go"}]
    items = [USER, REASONING, SAID, *later]
    for n in range(7):
        sent = build_window(items, format="openai_responses", policy=f"messages({n})").messages
        assert (REASONING in sent) == (SAID in sent)
    assert REASONING not in build_window([USER, REASONING, USER], format="openai_responses").messages
    shortened = build_window(items, format="openai_responses", policy="run_loops").messages
    assert {"role": "assistant", "content": "so"} in shortened


def test_one_open_call_holds_its_parallel_calls_back() -> None:
    window = build_window([USER, call("a"), call("b"), output("a")], format="openai_responses")
    assert window.messages == [USER]
    assert [open_call.call_id for open_call in window.open_calls] == ["b"]


def test_an_unanswered_call_of_a_custom_tool_is_settled_in_kind() -> None:
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"}
    sent = build_window([USER, custom, SAID], format="openai_responses").messages
    assert [item.get("type") for item in sent] == [None, "custom_tool_call", "custom_tool_call_output", "message"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("computer_call", {"output": {"type": "computer_screenshot", "file_id": "file_1"}}),
        ("shell_call", {"output": []}),
        ("local_shell_call", {"output": "{}"}),
    ],
)
def test_an_output_with_the_id_of_its_call_is_sent_too(kind: str, fields: dict[str, Any]) -> None:
    made = {"type": kind, "id": "a", "call_id": "a", "action": {"type": "exec"}, "status": "completed"}
    answer = {"type": f"{kind}_output", "id": "a", "call_id": "a", **fields}
    sent = build_window([USER, made, answer, SAID], format="openai_responses").messages
    assert [item.get("type") for item in sent] == [None, kind, f"{kind}_output", "message"]


def test_repairs_of_items() -> None:
    items = [
        USER,
        call("x" * 65),
        output("x" * 65),
        {"role": "user", "content": [{"type": "output_text", "text": "t"}]},
    ]
    sent = build_window(items, format="openai_responses").messages
    assert sent[1:] == [
        {**call("x" * 65), "call_id": "call_2_0"},
        {**output("x" * 65), "call_id": "call_2_0"},
        {"role": "user", "content": "t"},
    ]


OF_INPUT, OF_OUTPUT = {"type": "input_text", "text": "a"}, {"type": "output_text", "text": "a"}
REFUSAL = {"type": "refusal", "refusal": "b"}


@pytest.mark.parametrize(
    ("role", "parts"),
    [
        ("user", [OF_INPUT, REFUSAL]),
        ("system", [OF_INPUT, REFUSAL]),
        ("user", [OF_OUTPUT, {**OF_INPUT, "text": "b"}]),
        ("assistant", [OF_INPUT, REFUSAL]),
    ],
)
def test_no_text_is_lost_for_a_part_that_only_another_role_may_have(role: str, parts: list[dict[str, Any]]) -> None:
    sent = build_window([USER, {"role": role, "content": parts}], format="openai_responses").messages
    assert {"role": role, "content": "a\nb"} in sent


def test_the_system_text_is_the_first_item_and_an_empty_input_has_a_line() -> None:
    assert CODEC.render([], system="s", tools=()).messages == [{"role": "system", "content": "s"}]
    assert CODEC.render([], system=None, tools=()).messages == [{"role": "user", "content": FIRST_USER}]


def test_no_item_is_sent_twice() -> None:
    turns = [Turn(CODEC.parse(item), "openai_responses", item) for item in (REASONING, SAID, REASONING, SAID)]
    without = {key: value for key, value in SAID.items() if key != "id"}
    assert CODEC.render(turns, system=None, tools=()).messages == [REASONING, SAID, without]


def test_reasoning_goes_with_a_repeated_item_that_is_not_sent() -> None:
    items = (USER, SEARCH, {**REASONING, "id": "rs_2"}, SEARCH)
    turns = [Turn(CODEC.parse(item), "openai_responses", item) for item in items]
    assert CODEC.render(turns, system=None, tools=()).messages == [USER, SEARCH]
