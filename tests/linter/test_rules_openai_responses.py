"""The linter of Responses inputs: one broken input per rule, every mutant of valid ones, and any JSON at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.linter.rule_mutants import (
    Cases,
    Json,
    anything,
    assert_linear,
    assert_pointers_lead,
    assert_told,
    assert_violations,
    mutants,
    near_values,
)
from turnlog.linter.openai_responses import RULES
from turnlog.linter.rules import lint

USER: Json = {"role": "user", "content": "What is the weather?"}
PNG: Json = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}


def message(*parts: object, role: str = "user", **keys: object) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "role": role, "content": content, **keys}


def said(*parts: object, **keys: object) -> Json:
    return message(*(parts or ("Sunny.",)), role="assistant", **keys)


def call(call_id: object, name: object = "get_weather", arguments: object = "{}", **keys: object) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **keys}


def output(call_id: object, value: object = "sunny", **keys: object) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": value, **keys}


def custom(call_id: object, given: object = "ls") -> Json:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "shell", "input": given}


def custom_output(call_id: object, value: object = "a.txt") -> Json:
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": value}


def reasoning(item_id: object = "rs_1", **keys: object) -> Json:
    return {"type": "reasoning", "id": item_id, "summary": [{"type": "summary_text", "text": "hm"}], **keys}


def broken(items: object) -> list[tuple[str, str]]:
    return [(match.rule, match.pointer) for match in lint(items, format="openai_responses")]


# --- what is valid

HISTORIES: dict[str, list[Json]] = {
    "chat": [USER, said(id="msg_1", status="completed", phase="final_answer"), USER],
    "single": [
        USER,
        call("a", arguments='{"city": "Paris"}', id="fc_1", status="completed"),
        output("a"),
        said(),
        USER,
    ],
    "parallel": [USER, call("a"), call("b"), output("a"), output("b", [{"type": "input_text", "text": "x"}, PNG])],
    "custom": [USER, custom("a"), call("b"), custom_output("a"), output("b"), said()],
    "reasoning": [
        USER,
        reasoning("rs_1", encrypted_content="AAAA"),
        call("a", id="fc_1"),
        output("a"),
        reasoning("rs_2", content=[{"type": "reasoning_text", "text": "hm"}]),
        said(id="msg_1"),
    ],
    "media": [message("Compare.", PNG, {"type": "input_file", "file_id": "file_1"}, role="user")],
}
VALID: dict[str, list[Json]] = {
    **HISTORIES,
    "every role": [{"role": role, "content": "x"} for role in ("developer", "system", "user", "assistant")],
    "a refusal": [
        USER,
        said({"type": "refusal", "refusal": "No."}, {"type": "output_text", "text": "x", "annotations": []}),
    ],
    "empty strings": [message(""), said(""), {"role": "user", "content": ""}, message()],
    "outputs later, in another order": [call("a"), call("b"), USER, said(), output("b"), output("a")],
    "arguments that are no JSON": [call("a", arguments='{"city": "Par'), output("a")],
    "null as absent": [{**said(), "phase": None, "id": None}, call("a", status=None), output("a", id=None)],
    "reasoning without an id": [{"type": "reasoning", "summary": [], "encrypted_content": "AAAA"}, said()],
    "reasoning in a row": [reasoning("rs_1"), reasoning("rs_2"), call("a"), output("a")],
    "reasoning before a tool of the provider": [
        reasoning(),
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ],
    "references": [
        {"type": "item_reference", "id": "fc_1"},
        {"id": "rs_1"},
        {"id": "a", "type": None},
        output("a"),
        USER,
    ],
    "reasoning before a reference": [reasoning(), {"type": "item_reference", "id": "msg_1"}],
    "other calls": [
        {"type": "computer_call", "id": "cu_1", "call_id": "a", "pending_safety_checks": [], "status": "completed"},
        {"type": "computer_call_output", "call_id": "a", "output": {"type": "computer_screenshot"}},
        {"type": "shell_call", "call_id": "b", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "b", "output": []},
    ],
    "an output with the item id of its call": [
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": "x"},
    ],
    "an output of its own": [USER, {"type": "function_call_output", "name": "alarm", "output": "It rings."}],
    "a call that goes on": [USER, call("a", **{"async": True})],
    "a new item": [{"type": "compaction", "encrypted_content": "AAAA"}, USER],
    "most images": [{"role": "user", "content": [PNG] * 1_500}],
    "longest": [call("x" * 64, "y" * 128), output("x" * 64)],
    "files": [
        message(
            {"type": "input_file", "file_url": "https://example.com/a.pdf"},
            {"type": "input_image", "file_id": "file_1"},
        )
    ],
}


@pytest.mark.parametrize("name", VALID)
def test_a_valid_history_has_no_violation(name: str) -> None:
    assert broken(VALID[name]) == []


# --- one fault, one violation

FAULTS: list[tuple[str, str, object]] = [
    ("items_not_list", "/messages", "hello"),
    ("items_empty", "/messages", []),
    ("item_not_object", "/messages/1", [USER, "hello"]),
    ("item_type", "/messages/0/type", [{"type": "tool_use", "id": "a"}]),
    ("compaction_trigger", "/messages/0", [{"type": "compaction_trigger"}, USER]),
    ("item_type", "/messages/0/type", [{"content": "x"}]),
    ("item_type", "/messages/0/type", [{"type": 7, "role": "user", "content": "x"}]),
    ("item_type", "/messages/0/type", [{"type": "chat", "role": "user", "content": "x"}]),
    ("unknown_key", "/messages/0/content/0/parsed", [said({"type": "output_text", "text": "x", "parsed": None})]),
    ("unknown_key", "/messages/1/tool_calls", [USER, {**said(), "tool_calls": []}]),
    ("unknown_key", "/messages/0/parsed_arguments", [call("a", parsed_arguments={}), output("a")]),
    ("unknown_key", "/messages/0/status", [reasoning(status="completed"), said()]),
    ("lone_surrogate", "/messages/0/content/0/text", [said({"type": "output_text", "text": "a\ud83d"})]),
    ("item_id", "/messages/0/id", [call("a", id=""), output("a")]),
    ("item_id", "/messages/0/id", [call("a", id="fc|1"), output("a")]),
    ("item_id", "/messages/0/id", [said(id=7)]),
    ("item_id_prefix", "/messages/0/id", [call("a", id="call_1"), output("a")]),
    ("item_id_prefix", "/messages/0/id", [said(id="rs_1")]),
    ("item_id_prefix", "/messages/0/id", [reasoning("item_1"), said()]),
    ("item_id_prefix", "/messages/0/id", [{**custom("a"), "id": "fc_1"}, custom_output("a")]),
    ("item_id_repeated", "/messages/1/id", [said(id="msg_1"), said(id="msg_1")]),
    ("item_id_repeated", "/messages/1/id", [said(id="msg_1"), {"type": "item_reference", "id": "msg_1"}]),
    ("status_value", "/messages/0/status", [said(status="done")]),
    ("reference_id", "/messages/0/id", [{"type": "item_reference", "id": ""}]),
    ("unknown_role", "/messages/0/role", [{"role": "tool", "content": "x"}]),
    ("unknown_role", "/messages/0/role", [{"type": "message", "content": "x"}]),
    ("content_type", "/messages/0/content", [{"role": "user"}]),
    ("content_type", "/messages/0/content", [{"role": "user", "content": {"type": "input_text", "text": "x"}}]),
    ("part_not_object", "/messages/0/content/1", [{"role": "user", "content": [PNG, "x"]}]),
    ("part_type", "/messages/0/content/0/type", [message({"type": "text", "text": "x"})]),
    ("part_type", "/messages/0/content/0/type", [said({"type": "input_text", "text": "x"})]),
    ("part_type", "/messages/0/content/0/type", [message({"type": "output_text", "text": "x"})]),
    ("part_type", "/messages/1/output/0/type", [call("a"), output("a", [{"type": "output_text", "text": "x"}])]),
    ("part_field", "/messages/0/content/0/text", [message({"type": "input_text"})]),
    ("part_field", "/messages/0/content/0/refusal", [said({"type": "refusal"})]),
    ("part_field", "/messages/0/content/0", [message({"type": "input_image", "image_url": {"url": "x"}})]),
    ("part_field", "/messages/0/content/0", [message({"type": "input_file", "filename": "a.pdf"})]),
    ("part_field", "/messages/0/content/0/detail", [message({**PNG, "detail": "fine"})]),
    (
        "part_field",
        "/messages/0/content/0/annotations",
        [said({"type": "output_text", "text": "x", "annotations": {}})],
    ),
    ("image_url", "/messages/0/content/0/image_url", [message({"type": "input_image", "image_url": "s3://bucket/k"})]),
    (
        "file_data",
        "/messages/0/content/0/filename",
        [message({"type": "input_file", "file_data": "data:text/csv;base64,YQ=="})],
    ),
    (
        "file_data",
        "/messages/0/content/0/file_data",
        [message({"type": "input_file", "file_data": "YQ==", "filename": "a"})],
    ),
    ("file_data", "/messages/0/content/0/file_url", [message({"type": "input_file", "file_url": "s3://bucket/k"})]),
    ("part_field", "/messages/0/content/0/file_id", [message({"type": "input_image", "file_id": "file_011CNha8"})]),
    ("too_many_images", "/messages", [{"role": "user", "content": [PNG] * 1_501}]),
    ("phase_value", "/messages/0/phase", [said(phase="last")]),
    ("call_id", "/messages/0/call_id", [call(""), output("a")]),
    ("call_id", "/messages/0/call_id", [call(None), output("a")]),
    ("call_id", "/messages/1/call_id", [call("a"), output(None)]),
    ("call_id", "/messages/1/call_id", [call("a"), output("")]),
    ("call_id_too_long", "/messages/0/call_id", [call("x" * 65, **{"async": True})]),
    ("call_id_repeated", "/messages/1/call_id", [call("a"), call("a"), output("a"), output("a")]),
    ("call_id_repeated", "/messages/2/call_id", [call("a"), output("a"), call("a"), output("a")]),
    ("call_name", "/messages/0/name", [call("a", "multi_tool.parallel"), output("a")]),
    ("call_name", "/messages/0/name", [call("a", "x" * 129), output("a")]),
    ("call_name", "/messages/0/name", [call("a", ""), output("a")]),
    ("arguments_not_string", "/messages/0/arguments", [call("a", arguments={}), output("a")]),
    ("input_not_string", "/messages/0/input", [custom("a", {}), custom_output("a")]),
    ("call_unanswered", "/messages/1", [USER, call("a"), said()]),
    ("call_unanswered", "/messages/1", [call("a"), call("b"), output("a"), USER]),
    ("orphan_output", "/messages/1/call_id", [USER, output("a")]),
    ("output_kind", "/messages/1/type", [call("a"), custom_output("a")]),
    ("output_kind", "/messages/1/type", [custom("a"), output("a")]),
    ("second_output", "/messages/2/call_id", [call("a"), output("a"), output("a")]),
    ("output_type", "/messages/1/output", [call("a"), output("a", {"sunny": True})]),
    ("output_type", "/messages/1/output", [call("a"), output("a", None)]),
    ("reasoning_summary", "/messages/0/summary", [{"type": "reasoning", "id": "rs_1"}, said()]),
    (
        "reasoning_summary",
        "/messages/0/summary/0",
        [{**reasoning(), "summary": [{"type": "text", "text": "x"}]}, said()],
    ),
    ("reasoning_content", "/messages/0/content", [reasoning(content="hm"), said()]),
    ("reasoning_encrypted", "/messages/0/encrypted_content", [reasoning(encrypted_content=7), said()]),
    ("reasoning_alone", "/messages/1", [USER, reasoning()]),
    ("reasoning_alone", "/messages/0", [reasoning(), USER]),
    ("reasoning_alone", "/messages/1", [call("a"), reasoning(), output("a")]),
]


@pytest.mark.parametrize(("rule", "pointer", "items"), FAULTS)
def test_a_fault_is_told_once_and_where_it_is(rule: str, pointer: str, items: object) -> None:
    assert broken(items) == [(rule, pointer)]


def test_every_rule_has_a_broken_input() -> None:
    assert {rule for rule, _, _ in FAULTS} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_tells_answer_fix_and_source(name: str) -> None:
    assert_told(RULES[name])


def test_an_id_that_is_too_long_is_told_in_the_call_and_in_its_output() -> None:
    assert broken([call("x" * 65), output("x" * 65)]) == [
        ("call_id_too_long", "/messages/0/call_id"),
        ("call_id_too_long", "/messages/1/call_id"),
    ]


def test_a_call_or_an_output_without_a_valid_id_excuses_one_other_and_no_more() -> None:
    assert broken([call(""), output("a"), output("b")]) == [
        ("call_id", "/messages/0/call_id"),
        ("orphan_output", "/messages/2/call_id"),
    ]
    assert broken([call("a"), call("b"), output("")]) == [
        ("call_id", "/messages/2/call_id"),
        ("call_unanswered", "/messages/1"),
    ]
    assert broken([call("a"), call("a"), output("a"), output("a"), output("a")]) == [
        ("call_id_repeated", "/messages/1/call_id"),
        ("second_output", "/messages/4/call_id"),
    ]


def test_an_output_before_its_call_is_told_at_both_ends() -> None:
    assert broken([output("a"), call("a")]) == [
        ("orphan_output", "/messages/0/call_id"),
        ("call_unanswered", "/messages/1"),
    ]


def test_a_message_of_the_linter_is_short_whatever_the_value() -> None:
    long_ones = [{**USER, "role": "x" * 10_000}, {**USER, "y" * 10_000: 1}, call("z" * 10_000, "z" * 10_000)]
    for item in lint(long_ones, format="openai_responses"):
        assert len(item.message) + len(item.pointer) < 300


# --- mutants: whatever is done to a valid input is seen


IDS = {"call_id", "id"}
PLAIN = "a message may go, come twice or change places, as long as none comes between reasoning and what it led to"
FREE = "text, arguments and outputs are strings, and may be empty; so may a list of parts"
PARTS = "a part may go, come twice or change places"
OPTIONAL = "what the provider gave may be left out"
TYPELESS = "a message may go without its type"
ORDER = "an output may come anywhere behind its call"
LEGAL: dict[str, dict[str, str]] = {
    "chat": {
        "(drop|swap) [01]|drop 2|duplicate [02]": PLAIN,
        r"set [02]\.content (\[\]|'')|set 1\.content ''|set 1\.content\.0\.text ''": FREE,
        r"(drop|duplicate) 1\.content\.0": PARTS,
        r"(remove|set) 1\.(id|status|phase)(| None)": OPTIONAL,
        r"(remove|set) 1\.type(| None)": TYPELESS,
    },
    "single": {
        "(drop|duplicate) [034]|swap [03]": PLAIN,
        "swap 2": ORDER,
        r"set [024]\.(content|output) (\[\]|'')|set 3\.content ''|set 3\.content\.0\.text ''": FREE,
        r"set 1\.arguments ''": FREE,
        r"(drop|duplicate) 3\.content\.0": PARTS,
        r"(remove|set) 1\.(id|status)(| None)": OPTIONAL,
        r"(remove|set) 3\.type(| None)": TYPELESS,
    },
    "parallel": {
        "(drop|duplicate|swap) 0": PLAIN,
        "swap [123]": ORDER,
        r"set [03]\.(content|output) (\[\]|'')|set 4\.output ''|set 4\.output\.0\.text ''": FREE,
        r"set [12]\.arguments ''": FREE,
        r"(drop|duplicate) 4\.output\.[01]|swap 4\.output\.0": PARTS,
        r"(remove|set) 4\.output\.1\.detail(| None)": OPTIONAL,
    },
    "custom": {
        "(drop|duplicate) [05]|swap [04]": PLAIN,
        "swap [123]": ORDER,
        r"set [034]\.(content|output) (\[\]|'')|set 5\.content ''|set 5\.content\.0\.text ''": FREE,
        r"set (1\.input|2\.arguments) ''": FREE,
        r"(drop|duplicate) 5\.content\.0": PARTS,
        r"(remove|set) 5\.type(| None)": TYPELESS,
    },
    "reasoning": {
        "(drop|duplicate) 0": PLAIN,
        "drop [14]": "only the provider knows which call came with reasoning",
        r"rename [14]\.type": "an item of an unknown type may be a new one",
        r"set [03]\.(content|output) (\[\]|'')|set 5\.content ''": FREE,
        r"set (1|4)\.(summary|content)\.0\.text ''|set 5\.content\.0\.text ''|set 2\.arguments ''": FREE,
        r"(drop|duplicate) ([14]\.summary|[45]\.content)\.0": PARTS,
        r"(remove|set) [1245]\.id(| None)": OPTIONAL,
        r"(remove|set) (1\.encrypted_content|4\.content)(| None)|set 1\.encrypted_content ''": OPTIONAL,
        r"(remove|set) 5\.type(| None)": TYPELESS,
    },
    "media": {
        "duplicate 0": PLAIN,
        r"set 0\.content ''|set 0\.content\.0\.text ''": FREE,
        r"(drop|duplicate) 0\.content\.[012]|swap 0\.content\.[01]": PARTS,
        r"(remove|set) 0\.content\.1\.detail(| None)": OPTIONAL,
        r"(remove|set) 0\.type(| None)": TYPELESS,
    },
}
COUNTS = {"chat": 112, "single": 175, "parallel": 204, "custom": 205, "reasoning": 312, "media": 96}


CASES = Cases("openai_responses", HISTORIES, LEGAL, COUNTS, lambda history: mutants(history, ids=IDS))


@pytest.mark.parametrize("name", HISTORIES)
def test_the_mutants_that_pass_are_those_that_are_valid(name: str) -> None:
    CASES.judge(name)


# --- strangers' input

words = st.sampled_from(
    [
        *("user", "assistant", "message", "reasoning", "input_text", "output_text", "input_image", "summary_text"),
        *("completed", "a", "", "rs_1", "fc_1", "msg_1", "x" * 65),
    ]
)
keys = st.sampled_from(
    [
        *("type", "id", "role", "content", "text", "call_id", "name", "arguments", "input", "output", "summary"),
        *("encrypted_content", "status", "phase", "image_url", "file_id", "detail", "async", "annotations"),
    ]
)
near = near_values(words, keys)
near_item = st.builds(
    lambda body, kind: {**body, "type": kind},
    st.dictionaries(keys, near, max_size=6),
    st.sampled_from(
        [
            *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "item_reference"),
            *("custom_tool_call_output", "computer_call", "computer_call_output", None),
        ]
    ),
)


@given(anything | st.lists(near, max_size=8) | st.lists(near_item, max_size=8))
def test_any_json_gets_violations_and_never_an_exception(items: object) -> None:
    assert_violations(items, format="openai_responses", rules=RULES)


@given(st.lists(near_item, min_size=1, max_size=8))
def test_a_pointer_leads_to_the_fault_or_to_where_something_lacks(items: list[Json]) -> None:
    assert_pointers_lead(items, format="openai_responses")


# --- big input


def long(loops: int) -> list[Json]:
    return [item for n in range(loops) for item in (USER, reasoning(f"rs_{n}"), call(f"a{n}"), output(f"a{n}"), said())]


def wide(calls: int) -> list[Json]:
    return [*[call(f"a{n}") for n in range(calls)], *[output(f"a{n}") for n in range(calls)]]


def wrong(items: int) -> list[Json]:
    return [call("a", id="x"), call("a"), reasoning(), output("b"), output("a"), output("a")] * items


@pytest.mark.parametrize("build", [long, wide, wrong])
def test_the_work_grows_with_the_input_and_no_faster(build: Callable[[int], list[Json]]) -> None:
    assert_linear(broken, build)
