"""The linter of OpenAI Chat histories: one broken history per rule, every mutant of valid ones, and any JSON at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.linter.rule_mutants import (
    Cases,
    Json,
    Path,
    anything,
    assert_pointers_lead,
    assert_told,
    assert_violations,
    near_values,
    replaced,
)
from turnlog.linter.openai_chat import RULES
from turnlog.linter.rules import FORMATS, Violation, lint

USER: Json = {"role": "user", "content": "What is the weather?"}
PICTURE: Json = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
SYSTEM: Json = {"role": "system", "content": "Be brief."}
DONE: Json = {"role": "assistant", "content": "Sunny."}


def call(call_id: object, name: object = "get_weather", arguments: object = "{}") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def call_with_parsed(call_id: str) -> Json:
    return {**call(call_id), "function": {**call(call_id)["function"], "parsed_arguments": {}}}


def calls(*items: object) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": [c if isinstance(c, dict) else call(c) for c in items]}


def result(call_id: object) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": "sunny"}


def function_call(name: object = "get_weather") -> Json:
    return {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}


def function_result(name: object = "get_weather") -> Json:
    return {"role": "function", "name": name, "content": "sunny"}


def user(**keys: object) -> Json:
    return {**USER, **keys}


def broken(messages: object) -> list[tuple[str, str]]:
    return [(match.rule, match.pointer) for match in lint(messages, format="openai_chat")]


# --- what is valid

HISTORIES: dict[str, list[Json]] = {
    "single": [SYSTEM, USER, calls("a"), result("a"), DONE],
    "parallel": [USER, calls("a", "b", "c"), result("a"), result("b"), result("c"), DONE],
    "loops": [
        USER,
        calls("a"),
        result("a"),
        calls("b", "c"),
        result("b"),
        result("c"),
        DONE,
        USER,
        calls("d"),
        result("d"),
    ],
    "legacy": [USER, function_call(), function_result(), DONE],
}

VALID: dict[str, list[Json]] = {
    **HISTORIES,
    "one message": [USER],
    "every role": [{"role": "developer", "content": "x"}, SYSTEM, USER, DONE],
    "assistant first and last": [DONE, DONE],
    "results in another order than the calls": [calls("a", "b"), result("b"), result("a")],
    "custom tool": [calls({"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls"}}), result("a")],
    "arguments that are no JSON": [calls(call("a", arguments='{"city": "Par')), result("a")],
    "no arguments": [calls(call("a", arguments="")), result("a")],
    "keys of other servers": [
        user(),
        {**DONE, "reasoning_content": "hm", "reasoning_details": [], "annotations": []},
        {**DONE, "reasoning": "hm", "thinking_blocks": [], "prefix": True, "extra_content": {}},
        calls({**call("a"), "extra_content": {"google": {"thought_signature": "x"}}}),
        result("a"),
    ],
    "null as absent": [
        user(name=None),
        {**DONE, "tool_calls": None, "function_call": None, "refusal": None, "audio": None},
    ],
    "content left out beside calls": [{"role": "assistant", "tool_calls": [call("a")]}, result("a")],
    "refusal": [USER, {"role": "assistant", "content": None, "refusal": "No."}],
    "audio": [USER, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}],
    "legacy null result": [function_call(), {**function_result(), "content": None}],
    "names": [user(name="Zoë.Smith"), {**SYSTEM, "name": "x" * 64}, calls("a"), {**result("a"), "name": "get_weather"}],
    "empty strings": [user(content=""), {**DONE, "content": ""}],
    "most images": [user(content=[PICTURE] * 1_500)],
    "longest id": [calls("x" * 40), result("x" * 40)],
    "parts": [
        user(
            content=[
                {"type": "text", "text": ""},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}},
            ]
        ),
        {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "y"}]},
        {**SYSTEM, "content": [{"type": "text", "text": "x"}]},
        calls("a"),
        {**result("a"), "content": [{"type": "text", "text": "x"}]},
    ],
}


@pytest.mark.parametrize("name", VALID)
def test_a_valid_history_has_no_violation(name: str) -> None:
    assert lint(VALID[name], format="openai_chat") == []


# --- one fault, one violation

IMAGE: Json = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}

FAULTS: list[tuple[str, str, object]] = [
    ("messages_not_list", "/messages", {"messages": [USER]}),
    ("messages_not_list", "/messages", None),
    ("messages_empty", "/messages", []),
    ("message_not_object", "/messages/1", [USER, "hello"]),
    ("unknown_key", "/messages/0/created_at", [user(created_at=1)]),
    ("unknown_key", "/messages/0/content/0/x", [user(content=[{"type": "text", "text": "x", "x": 1}])]),
    ("unknown_key", "/messages/0/tool_calls/0/index", [calls({**call("a"), "index": 0}), result("a")]),
    ("unknown_key", "/messages/0/tool_calls/0/function/parsed_arguments", [calls(call_with_parsed("a")), result("a")]),
    ("lone_surrogate", "/messages/0/content", [user(content="a\ud83d")]),
    (
        "lone_surrogate",
        "/messages/1/tool_calls/0/function/arguments",
        [USER, calls(call("a", arguments="\ude00")), result("a")],
    ),
    ("unknown_role", "/messages/0/role", [user(role="human")]),
    ("unknown_role", "/messages/0/role", [{"content": "x"}]),
    ("unknown_role", "/messages/0/role", [user(role=["user"])]),
    ("name_invalid", "/messages/0/name", [user(name="two words")]),
    ("name_invalid", "/messages/0/name", [user(name="x\n")]),
    ("name_invalid", "/messages/0/name", [user(name="x" * 65)]),
    ("name_invalid", "/messages/0/name", [user(name="")]),
    ("name_invalid", "/messages/0/name", [user(name=7)]),
    ("content_missing", "/messages/0/content", [user(content=None)]),
    ("content_missing", "/messages/0/content", [{"role": "system"}]),
    ("content_missing", "/messages/0/content", [{"role": "assistant", "content": None}]),
    ("content_missing", "/messages/1/content", [calls("a"), {**result("a"), "content": None}]),
    ("content_missing", "/messages/1/content", [function_call(), {"role": "function", "name": "get_weather"}]),
    ("content_type", "/messages/0/content", [user(content={"type": "text", "text": "x"})]),
    ("content_type", "/messages/1/content", [function_call(), {**function_result(), "content": []}]),
    ("content_empty_list", "/messages/0/content", [user(content=[])]),
    ("part_not_object", "/messages/0/content/1", [user(content=[IMAGE, "x"])]),
    ("part_type", "/messages/0/content/0/type", [user(content=[{"type": "image", "image": "x"}])]),
    ("part_type", "/messages/0/content/0/type", [user(content=[{"text": "x"}])]),
    ("part_type", "/messages/0/content/0/type", [user(content=[{"type": ["text"], "text": "x"}])]),
    ("part_type", "/messages/0/content/0/type", [user(content=[{"type": "refusal", "refusal": "x"}])]),
    ("part_type", "/messages/0/content/0/type", [{**DONE, "content": [IMAGE]}]),
    ("part_type", "/messages/0/content/0/type", [{**SYSTEM, "content": [IMAGE]}]),
    ("part_type", "/messages/1/content/0/type", [calls("a"), {**result("a"), "content": [IMAGE]}]),
    ("part_field", "/messages/0/content/0/text", [user(content=[{"type": "text"}])]),
    ("part_field", "/messages/0/content/0/refusal", [{**DONE, "content": [{"type": "refusal", "refusal": None}]}]),
    (
        "part_field",
        "/messages/0/content/0/image_url",
        [user(content=[{"type": "image_url", "image_url": "https://x"}])],
    ),
    ("part_field", "/messages/0/content/0/image_url/url", [user(content=[{"type": "image_url", "image_url": {}}])]),
    (
        "part_field",
        "/messages/0/content/0/input_audio/format",
        [user(content=[{"type": "input_audio", "input_audio": {"data": "AAAA"}}])],
    ),
    ("part_field", "/messages/0/content/0/file", [user(content=[{"type": "file", "file": {"filename": "a.pdf"}}])]),
    *(
        (
            "image_url",
            "/messages/0/content/0/image_url/url",
            [user(content=[{"type": "image_url", "image_url": {"url": url}}])],
        )
        for url in ("file:///etc/passwd", "data:image/png;base64,!!!", "data:image/svg+xml,<svg>")
    ),
    (
        "file_data",
        "/messages/0/content/0/file/file_data",
        [user(content=[{"type": "file", "file": {"file_data": "data:text/plain;base64,YQ==", "filename": "a.txt"}}])],
    ),
    (
        "file_data",
        "/messages/0/content/0/file/filename",
        [user(content=[{"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}}])],
    ),
    ("too_many_images", "/messages", [user(content=[PICTURE] * 1_501)]),
    ("refusal_type", "/messages/0/refusal", [{**DONE, "refusal": True}]),
    ("audio_type", "/messages/0/audio", [{**DONE, "audio": {}}]),
    ("tool_calls_wrong_role", "/messages/0/tool_calls", [user(tool_calls=[call("a")])]),
    ("tool_calls_not_list", "/messages/0/tool_calls", [{**DONE, "tool_calls": call("a")}]),
    ("tool_calls_empty", "/messages/0/tool_calls", [{**DONE, "tool_calls": []}]),
    (
        "too_many_calls",
        "/messages/0/tool_calls",
        [calls(*map(str, range(129))), *[result(str(number)) for number in range(129)]],
    ),
    ("call_not_object", "/messages/0/tool_calls/0", [{**DONE, "tool_calls": ["a"]}]),
    ("call_not_object", "/messages/0/tool_calls/0", [{**DONE, "tool_calls": [None]}, result("a")]),
    ("call_type", "/messages/0/tool_calls/0/type", [calls({**call("a"), "type": "tool"}), result("a")]),
    ("call_type", "/messages/0/tool_calls/0/type", [calls({"id": "a", "function": {}}), result("a")]),
    ("call_body", "/messages/0/tool_calls/0/function", [calls({"id": "a", "type": "function"}), result("a")]),
    ("call_body", "/messages/0/tool_calls/0/custom", [calls({**call("a"), "type": "custom"}), result("a")]),
    ("call_body", "/messages/0/function_call", [{**DONE, "function_call": "get_weather"}, function_result()]),
    (
        "call_name",
        "/messages/0/tool_calls/0/function/name",
        [calls(call("a", name="multi_tool.parallel")), result("a")],
    ),
    ("call_name", "/messages/0/tool_calls/0/function/name", [calls(call("a", name="x" * 65)), result("a")]),
    ("call_name", "/messages/0/tool_calls/0/function/name", [calls(call("a", name="")), result("a")]),
    ("call_name", "/messages/0/function_call/name", [function_call(None), function_result()]),
    (
        "arguments_not_string",
        "/messages/0/tool_calls/0/function/arguments",
        [calls(call("a", arguments={})), result("a")],
    ),
    (
        "arguments_not_string",
        "/messages/0/tool_calls/0/function/arguments",
        [calls(call("a", arguments=None)), result("a")],
    ),
    (
        "input_not_string",
        "/messages/0/tool_calls/0/custom/input",
        [calls({"id": "a", "type": "custom", "custom": {"name": "shell"}}), result("a")],
    ),
    ("call_id", "/messages/0/tool_calls/0/id", [calls(""), result("a")]),
    ("call_id", "/messages/0/tool_calls/0/id", [calls(None), result("a")]),
    ("call_id", "/messages/0/tool_calls/1/id", [calls("a", 7), result("7"), result("a")]),
    ("call_id_too_long", "/messages/0/tool_calls/0/id", [calls("x" * 41), result("x" * 41)]),
    ("call_id_repeated", "/messages/0/tool_calls/1/id", [calls("a", "a"), result("a"), result("a")]),
    ("call_id_repeated", "/messages/2/tool_calls/0/id", [calls("a"), result("a"), calls("a"), result("a")]),
    ("call_unanswered", "/messages/1/tool_calls/0", [USER, calls("a")]),
    ("call_unanswered", "/messages/0/tool_calls/1", [calls("a", "b"), result("a"), USER]),
    ("orphan_result", "/messages/0/role", [result("a")]),
    ("orphan_result", "/messages/3/role", [calls("a"), result("a"), USER, result("a")]),
    ("orphan_result", "/messages/1/role", [USER, result("a")]),
    ("result_id", "/messages/1/tool_call_id", [calls("a"), result(None)]),
    ("result_id", "/messages/1/tool_call_id", [calls("a"), result("")]),
    ("result_id", "/messages/1/tool_call_id", [calls("a", "b"), {"role": "tool", "content": "x"}, result("b")]),
    ("result_id_unknown", "/messages/2/tool_call_id", [calls("a"), result("a"), result("b")]),
    ("second_result", "/messages/2/tool_call_id", [calls("a"), result("a"), result("a")]),
    ("function_call_wrong_role", "/messages/0/function_call", [user(function_call={})]),
    ("function_call_unanswered", "/messages/0/function_call", [function_call(), USER]),
    ("function_call_unanswered", "/messages/0/function_call", [function_call()]),
    ("orphan_function_result", "/messages/0/role", [function_result()]),
    ("orphan_function_result", "/messages/2/role", [function_call(), function_result(), function_result()]),
    ("function_result_name", "/messages/1/name", [function_call(), function_result("get_time")]),
    ("function_name", "/messages/1/name", [function_call(), {"role": "function", "content": "x"}]),
    ("function_name", "/messages/1/name", [function_call(), function_result("get weather")]),
]


@pytest.mark.parametrize(("rule", "pointer", "messages"), FAULTS)
def test_a_fault_is_told_once_and_where_it_is(rule: str, pointer: str, messages: object) -> None:
    assert broken(messages) == [(rule, pointer)]


def test_every_rule_has_a_broken_history() -> None:
    assert {rule for rule, _, _ in FAULTS} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_tells_answer_fix_and_source(name: str) -> None:
    assert_told(RULES[name])


def test_a_violation_carries_its_rule() -> None:
    [value] = lint([calls("a"), USER], format="openai_chat")
    rule = RULES["call_unanswered"]
    assert value == Violation(
        "call_unanswered", "/messages/0/tool_calls/0", value.message, rule.answer, rule.fix, rule.source
    )
    assert "'a'" in value.message


def test_a_result_that_comes_too_late_is_told_at_both_ends() -> None:
    late = [calls("a"), USER, result("a")]
    assert broken(late) == [("call_unanswered", "/messages/0/tool_calls/0"), ("orphan_result", "/messages/2/role")]


def test_only_tool_messages_stand_between_a_call_and_its_result() -> None:
    for between in (USER, DONE, SYSTEM, function_result(), calls("b")):
        assert ("call_unanswered", "/messages/0/tool_calls/0") in broken([calls("a"), between, result("a")])


def test_a_message_of_the_linter_is_short_whatever_the_value() -> None:
    for item in lint([calls("x" * 10_000), user(role="y" * 10_000), user(role=10**5_000)], format="openai_chat"):
        assert len(item.message) < 200


def test_an_unknown_format_is_refused() -> None:
    assert "openai_chat" in FORMATS
    with pytest.raises(ValueError, match="'smoke_signals'"):
        lint([USER], format="smoke_signals")


# --- mutants: whatever is done to a call or a result of a valid history is seen

RENAMED = "renamed"


def tool_related(message: Json) -> bool:
    return message["role"] in {"tool", "function"} or "tool_calls" in message or "function_call" in message


def id_places(history: list[Json]) -> Iterator[tuple[str, Path]]:
    """The places of everything by which a call and its result find each other."""
    for index, message in enumerate(history):
        for nth in range(len(message.get("tool_calls", ()))):
            yield f"{index}.{nth}", (index, "tool_calls", nth, "id")
        if "tool_call_id" in message:
            yield f"{index}", (index, "tool_call_id")
        if "function_call" in message:
            yield f"{index}", (index, "function_call", "name")
        if message["role"] == "function":
            yield f"{index}", (index, "name")


def of_messages(history: list[Json]) -> Iterator[tuple[str, list[Json]]]:
    for index, message in enumerate(history):
        yield f"drop {index}", history[:index] + history[index + 1 :]
        yield f"duplicate {index}", [*history[:index], message, *history[index:]]
        if index + 1 < len(history):
            swapped = [history[index + 1], message]
            yield f"swap {index} {index + 1}", [*history[:index], *swapped, *history[index + 2 :]]
        if tool_related(message):
            for role in ("developer", "system", "user", "assistant", "tool", "function"):
                if role != message["role"]:
                    yield f"role {index} {role}", replaced(history, (index, "role"), role)


def of_calls(history: list[Json]) -> Iterator[tuple[str, list[Json]]]:
    for index, message in enumerate(history):
        items = message.get("tool_calls", [])
        for nth, item in enumerate(items):
            path: Path = (index, "tool_calls")
            yield f"drop {index}.{nth}", replaced(history, path, items[:nth] + items[nth + 1 :])
            yield f"duplicate {index}.{nth}", replaced(history, path, [*items[:nth], item, *items[nth:]])
            if nth + 1 < len(items):
                swapped = [*items[:nth], items[nth + 1], item, *items[nth + 2 :]]
                yield f"swap {index}.{nth} {index}.{nth + 1}", replaced(history, path, swapped)


def of_ids(history: list[Json]) -> Iterator[tuple[str, list[Json]]]:
    places = list(id_places(history))
    values = {str(read(history, path)) for _, path in places}
    for name, path in places:
        yield f"null {name}", replaced(history, path, None)
        yield f"empty {name}", replaced(history, path, "")
        for other in sorted({RENAMED, *values} - {str(read(history, path))}):
            yield f"rename {name} {other}", replaced(history, path, other)


def read(history: list[Json], path: Path) -> object:
    place: Any = history
    for step in path:
        place = place[step]
    return place


def mutants(history: list[Json]) -> Iterator[tuple[str, list[Json]]]:
    yield from of_messages(history)
    yield from of_calls(history)
    yield from of_ids(history)


STILL_VALID: dict[str, set[str]] = {
    # Plain messages (system, user, the last answer) may go, come twice or change places, as long as they come between
    # no call and its result. Calls of one message, and results of one message's calls, may stand in any order.
    "single": {"drop 0", "drop 1", "drop 4", "duplicate 0", "duplicate 1", "duplicate 4", "swap 0 1"},
    "parallel": {
        *("drop 0", "drop 5", "duplicate 0", "duplicate 5"),
        *("swap 1.0 1.1", "swap 1.1 1.2", "swap 2 3", "swap 3 4"),
    },
    "loops": {
        *("drop 0", "drop 6", "drop 7", "duplicate 0", "duplicate 6", "duplicate 7"),
        *("swap 3.0 3.1", "swap 4 5", "swap 6 7"),
    },
    "legacy": {"drop 0", "drop 3", "duplicate 0", "duplicate 3"},
}


COUNTS = {"single": 32, "parallel": 75, "loops": 121, "legacy": 27}
LEGAL = {
    name: dict.fromkeys(map(re.escape, passing), "plain messages, and order") for name, passing in STILL_VALID.items()
}
CASES = Cases("openai_chat", HISTORIES, LEGAL, COUNTS, mutants)


@pytest.mark.parametrize("name", HISTORIES)
def test_the_mutants_that_pass_are_those_that_are_valid(name: str) -> None:
    CASES.judge(name)


def test_a_whole_loop_may_go() -> None:
    loops = HISTORIES["loops"]
    assert broken(loops[:1] + loops[3:]) == []
    assert broken(loops[:3] + loops[6:]) == []


# --- strangers' input

words = st.sampled_from(
    ["user", "assistant", "tool", "function", "custom", "text", "file", "image_url", "a", "", "x" * 41]
)
keys = st.sampled_from(
    [
        *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "id", "type"),
        *("function", "custom", "arguments", "input", "text", "image_url", "input_audio", "file", "url", "file_id"),
    ]
)
near = near_values(words, keys)
near_message = st.builds(
    lambda body, role: {**body, "role": role},
    st.dictionaries(keys, near, max_size=5),
    st.sampled_from(["user", "assistant", "tool", "function"]),
)


@given(anything | st.lists(near, max_size=8) | st.lists(near_message, max_size=8))
def test_any_json_gets_violations_and_never_an_exception(messages: object) -> None:
    assert_violations(messages, format="openai_chat", rules=RULES)


@given(st.lists(near_message, min_size=1, max_size=8))
def test_a_pointer_leads_to_the_fault_or_to_where_something_lacks(messages: list[Json]) -> None:
    assert_pointers_lead(messages, format="openai_chat")
