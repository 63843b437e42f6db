"""The linter of Converse histories: one broken history per rule, every mutant of valid ones, and any JSON at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.linter.rule_mutants import (
    Cases,
    Json,
    Path,
    anything,
    assert_linear,
    assert_pointers_lead,
    assert_told,
    assert_violations,
    mutants,
    near_values,
)
from turnlog.linter.bedrock_converse_table import RULES
from turnlog.linter.rules import lint

PNG: Json = {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
WIDE = "iVBORw0KGgoAAAANSUhEUgAAH0EAAAAJAAAAAAA="
"""The header of a PNG of 8,001 pixels."""
HIGH = "iVBORw0KGgoAAAANSUhEUgAAAAkAAB9AAAAAAAA="
"""The header of a PNG of 8,000 pixels."""


def image(data: str | bytes) -> Json:
    return {"image": {"format": "png", "source": {"bytes": data}}}


def file(data: str | bytes) -> Json:
    return {"document": {"name": "x", "source": {"bytes": data}}}


THOUGHT: Json = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}
REDACTED: Json = {"reasoningContent": {"redactedContent": "AAAA"}}
CACHE: Json = {"cachePoint": {"type": "default"}}


def user(*content: object) -> Json:
    return {"role": "user", "content": [{"text": c} if isinstance(c, str) else c for c in content]}


def model(*content: object) -> Json:
    return {**user(*content), "role": "assistant"}


def call(call_id: object, name: object = "get_weather", given: object = None, **keys: object) -> Json:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": {} if given is None else given, **keys}}


def result(call_id: object, *content: object, **keys: object) -> Json:
    said = [{"text": c} if isinstance(c, str) else c for c in content or ("sunny",)]
    return {"toolResult": {"toolUseId": call_id, "content": said, **keys}}


def document(name: object = "report", **keys: object) -> Json:
    return {"document": {"format": "pdf", "name": name, "source": {"bytes": "AAAA"}, **keys}}


USER, DONE = user("What is the weather?"), model("Sunny.")


def broken(messages: object) -> list[tuple[str, str]]:
    return [(match.rule, match.pointer) for match in lint(messages, format="bedrock_converse")]


# --- what is valid

HISTORIES: dict[str, list[Json]] = {
    "chat": [USER, DONE, USER],
    "single": [USER, model("Let me see.", call("a", given={"city": "Paris"})), user(result("a"), "Go on.")],
    "parallel": [
        USER,
        model(call("a"), call("b")),
        user(result("a"), result("b", "x", {"json": {"t": 1}}, PNG, status="error")),
    ],
    "loops": [USER, model(call("a")), user(result("a")), model(call("b")), user(result("b")), DONE, USER],
    "reasoning": [USER, model(THOUGHT, REDACTED, call("a")), user(result("a")), model(THOUGHT, "Sunny."), USER],
    "media": [user(PNG, document("report (1)"), "Compare.", CACHE)],
}
S3: Json = {"s3Location": {"uri": "s3://bucket/a.pdf"}}
VALID: dict[str, list[Json]] = {
    **HISTORIES,
    "results in another order than the calls": [USER, model(call("a"), call("b")), user(result("b"), result("a"))],
    "an empty result": [USER, model(call("a")), user({"toolResult": {"toolUseId": "a", "content": []}})],
    "longest ids and names": [USER, model(call("x.:-_" + "y" * 59, "x" * 64)), user(result("x.:-_" + "y" * 59))],
    "bytes": [user({"image": {"format": "webp", "source": {"bytes": b"A"}}})],
    "largest image": [user(image("iVBORw0K" + "A" * 5_242_872), image(b"A" * 3_932_160))],
    "largest document": [user(file("A" * 6_291_456), "x")],
    "largest document in bytes": [user(file(b"A" * 4_718_592), "x")],
    "longest side": [user(image(HIGH))],
    "most images": [user(*[PNG] * 20)],
    "most documents": [user("x", *[document(f"x{n}") for n in range(5)])],
    "documents": [
        user(
            "x",
            document("a_b - [c] (d)", source=S3, context="x", citations={"enabled": True}),
            document("x" * 200, source={"content": [{"text": "x"}]}),
            {"document": {"name": "no format", "source": {"text": "x"}}},
        )
    ],
    "more media": [
        user(
            {"video": {"format": "mp4", "source": S3}},
            {"audio": {"format": "wav", "source": {"bytes": "AAAA"}}},
            {"guardContent": {"text": {"text": "x", "qualifiers": ["query"]}}},
            {"guardContent": {"image": {"format": "png", "source": {"bytes": "AAAA"}}}},
            {"searchResult": {"source": "s", "title": "t", "content": [{"text": "x"}]}},
            {"cachePoint": {"type": "default", "ttl": "1h"}},
        )
    ],
    "four cache points": [user("x", CACHE, "y", CACHE), model("x", CACHE), user("x", CACHE)],
    "citations": [USER, model({"citationsContent": {"content": [{"text": "x"}], "citations": [{"title": "t"}]}}), USER],
    "a server's tool": [USER, model(call("a", type="server_tool_use"), result("a", type="x"), "x"), USER],
}


@pytest.mark.parametrize("name", VALID)
def test_a_valid_history_has_no_violation(name: str) -> None:
    assert broken(VALID[name]) == []


# --- one fault, one violation

FIRST = "/messages/0/content/0"
LAST = "/messages/1/content/0"
ANSWER = "/messages/2/content/0/toolResult"
CALLED = [USER, model(call("a"))]
FAULTS: list[tuple[str, str, object]] = [
    ("messages_not_list", "/messages", {"messages": [USER]}),
    ("messages_empty", "/messages", []),
    ("unknown_role", "/messages/0/role", [{**USER, "role": "tool"}]),
    ("unknown_role", "/messages/0/role", [{"content": [{"text": "x"}]}]),
    ("system_role", "/messages/1/role", [USER, {**USER, "role": "system"}, DONE, USER]),
    ("first_not_user", "/messages/0/role", [DONE, USER]),
    ("roles_not_alternating", "/messages/1/role", [USER, USER]),
    ("roles_not_alternating", "/messages/2/role", [USER, DONE, DONE, USER]),
    ("ends_on_assistant", "/messages/1/role", [USER, DONE]),
    ("field_type", "/messages/1", [USER, "hello"]),
    ("field_type", "/messages/0/content", [{"role": "user", "content": "x"}]),
    ("field_type", f"{FIRST}/text", [user({"text": None})]),
    ("field_type", FIRST, [{"role": "user", "content": ["x"]}]),
    ("field_type", f"{FIRST}/image/source/bytes", [user({"image": {"format": "png", "source": {"bytes": ""}}})]),
    ("field_type", f"{FIRST}/document/name", [user(document(7), "x")]),
    ("field_missing", "/messages/0/content", [{"role": "user"}]),
    ("field_missing", f"{FIRST}/image/format", [user({"image": {"source": {"bytes": "AAAA"}}})]),
    ("field_missing", f"{ANSWER}/content", [*CALLED, user({"toolResult": {"toolUseId": "a"}})]),
    ("unknown_key", "/messages/0/name", [{**USER, "name": "x"}]),
    ("unknown_key", f"{FIRST}/type", [user({"text": "x", "type": "text"})]),
    ("unknown_key", f"{FIRST}/tool_use", [user({"tool_use": {}})]),
    ("union_members", FIRST, [user({**PNG, "text": "x"})]),
    ("union_members", FIRST, [user({})]),
    ("enum_value", f"{FIRST}/image/format", [user({"image": {"format": "jpg", "source": {"bytes": "AAAA"}}})]),
    ("enum_value", f"{ANSWER}/status", [*CALLED, user(result("a", status="ok"))]),
    (
        "s3_uri",
        f"{FIRST}/video/source/s3Location/uri",
        [user({"video": {"format": "mp4", "source": {"s3Location": {"uri": "x"}}}})],
    ),
    ("content_empty", "/messages/0/content", [user()]),
    ("text_blank", f"{FIRST}/text", [user(" ")]),
    ("text_blank", f"{ANSWER}/content/0/text", [*CALLED, user(result("a", ""))]),
    ("block_wrong_role", f"{FIRST}/toolUse", [user(call("a"))]),
    ("block_wrong_role", f"{FIRST}/reasoningContent", [user(THOUGHT)]),
    ("block_wrong_role", f"{LAST}/toolResult", [USER, model(result("a")), USER]),
    ("media_wrong_role", f"{LAST}/image", [USER, model(PNG), USER]),
    ("media_wrong_role", f"{LAST}/document", [USER, model(document(), "x"), USER]),
    ("media_bytes", f"{FIRST}/image", [user(image("iVBORw0K" + "A" * 5_242_876))]),
    ("image_data", f"{FIRST}/image/source/bytes", [user(image("!!!"))]),
    ("media_bytes", f"{FIRST}/image", [user(image(b"A" * 3_932_161))]),
    ("media_bytes", f"{FIRST}/document", [user(file("A" * 6_291_460), "x")]),
    ("media_bytes", f"{FIRST}/document", [user(file(b"A" * 4_718_593), "x")]),
    ("image_pixels", f"{FIRST}/image", [user(image(WIDE))]),
    ("too_many_images", "/messages/0/content", [user(*[PNG] * 21)]),
    ("too_many_documents", "/messages/0/content", [user("x", *[document(f"x{n}") for n in range(6)])]),
    (
        "breakpoint_order",
        "/messages/0/content/3/cachePoint/ttl",
        [user("x", CACHE, "y", {"cachePoint": {"type": "default", "ttl": "1h"}})],
    ),
    (
        "too_many_breakpoints",
        "/messages/1/content/2/cachePoint",
        [user("x", *[CACHE] * 3), model("x", *[CACHE] * 3), USER],
    ),
    ("document_without_text", "/messages/0/content", [user(document())]),
    ("document_name", f"{FIRST}/document/name", [user(document("report.pdf"), "x")]),
    ("document_name", f"{FIRST}/document/name", [user(document("a  b"), "x")]),
    ("document_name", f"{FIRST}/document/name", [user(document("a\tb"), "x")]),
    ("document_name", f"{FIRST}/document/name", [user(document("x" * 201), "x")]),
    (
        "document_name_repeated",
        "/messages/2/content/0/document/name",
        [user(document(), "x"), DONE, user(document(), "x")],
    ),
    ("call_id", f"{LAST}/toolUse/toolUseId", [USER, model(call("x" * 65)), user(result("a"))]),
    ("call_id", f"{LAST}/toolUse/toolUseId", [USER, model(call("a b")), user(result("a"))]),
    ("call_id", f"{ANSWER}/toolUseId", [*CALLED, user(result(None))]),
    (
        "call_id_repeated",
        "/messages/1/content/1/toolUse/toolUseId",
        [USER, model(call("a"), call("a")), user(result("a"), result("a"))],
    ),
    (
        "call_id_repeated",
        "/messages/3/content/0/toolUse/toolUseId",
        [*CALLED, user(result("a")), model(call("a")), user(result("a"))],
    ),
    ("call_name", f"{LAST}/toolUse/name", [USER, model(call("a", "x" * 65)), user(result("a"))]),
    ("call_name", f"{LAST}/toolUse/name", [USER, model(call("a", "multi_tool.parallel")), user(result("a"))]),
    ("input_not_object", f"{LAST}/toolUse/input", [USER, model(call("a", given="{}")), user(result("a"))]),
    ("input_not_object", f"{LAST}/toolUse/input", [USER, model(call("a", given=[])), user(result("a"))]),
    ("call_unanswered", f"{LAST}/toolUse", CALLED),
    ("call_unanswered", f"{LAST}/toolUse", [*CALLED, USER, DONE, USER]),
    ("call_unanswered", "/messages/1/content/1/toolUse", [USER, model(call("a"), call("b")), user(result("a"))]),
    ("result_unknown", f"{FIRST}/toolResult/toolUseId", [user(result("a"))]),
    ("result_unknown", "/messages/2/content/1/toolResult/toolUseId", [*CALLED, user(result("a"), result("b"))]),
    ("second_result", "/messages/2/content/1/toolResult/toolUseId", [*CALLED, user(result("a"), result("a"))]),
    ("result_after_content", "/messages/2/content/1/toolResult", [*CALLED, user("Here.", result("a"))]),
    ("json_not_object", f"{ANSWER}/content/0/json", [*CALLED, user(result("a", {"json": [1]}))]),
    (
        "error_empty",
        f"{ANSWER}/content",
        [*CALLED, user({"toolResult": {"toolUseId": "a", "content": [], "status": "error"}})],
    ),
]


@pytest.mark.parametrize(("rule", "pointer", "messages"), FAULTS)
def test_a_fault_is_told_once_and_where_it_is(rule: str, pointer: str, messages: object) -> None:
    assert broken(messages) == [(rule, pointer)]


def test_every_rule_has_a_broken_history() -> None:
    assert {rule for rule, _, _ in FAULTS} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_tells_answer_fix_and_source(name: str) -> None:
    assert_told(RULES[name])


def test_results_in_two_messages_are_told_as_two_messages_of_the_user() -> None:
    split = [USER, model(call("a"), call("b")), user(result("a")), user(result("b"))]
    assert broken(split) == [("roles_not_alternating", "/messages/3/role")]


def test_a_result_that_comes_too_late_is_told_at_both_ends() -> None:
    late = [*CALLED, USER, DONE, user(result("a"))]
    assert broken(late) == [
        ("call_unanswered", f"{LAST}/toolUse"),
        ("result_unknown", "/messages/4/content/0/toolResult/toolUseId"),
    ]


def test_a_message_of_the_linter_is_short_whatever_the_value() -> None:
    long_ones = [{**USER, "role": "x" * 10_000}, {**USER, "y" * 10_000: 1}, model(call("z" * 10_000, "z" * 10_000))]
    for item in lint(long_ones, format="bedrock_converse"):
        assert len(item.message) + len(item.pointer) < 300


# --- mutants: whatever is done to a valid history is seen


def opaque(path: Path) -> bool:
    return "input" in path or "json" in path


IDS = {"toolUseId"}
BLOCKS = "text, reasoning and media may go, come twice or change places, as long as none comes before a result"
RESULT = "a result may have any number of blocks"
ARGUMENTS = "the arguments are free"
ORDER = "calls of a turn, and its results, may stand in any order"
UNSIGNED = "not every model signs its reasoning"
LEGAL: dict[str, dict[str, str]] = {
    "chat": {r"duplicate [012]\.content\.0": BLOCKS},
    "single": {
        r"duplicate 0\.content\.0": BLOCKS,
        r"(drop|duplicate) (1\.content\.0|2\.content\.1)": BLOCKS,
        r"swap 1\.content\.0": BLOCKS,
        r"(drop|duplicate) 2\.content\.0\.toolResult\.content\.0": RESULT,
        r"add to 1\.content\.1\.toolUse\.input": ARGUMENTS,
    },
    "parallel": {
        r"duplicate 0\.content\.0": BLOCKS,
        r"swap [12]\.content\.0": ORDER,
        r"(drop|duplicate) 2\.content\.[01]\.toolResult\.content\.[012]": RESULT,
        r"swap 2\.content\.1\.toolResult\.content\.[01]": RESULT,
        r"remove 2\.content\.1\.toolResult\.status": "without it the result is no error",
        r"add to 1\.content\.[01]\.toolUse\.input": ARGUMENTS,
        r"add to 2\.content\.1\.toolResult\.content\.1\.json": "the value is free",
    },
    "loops": {
        r"duplicate [056]\.content\.0": BLOCKS,
        r"(drop|duplicate) [24]\.content\.0\.toolResult\.content\.0": RESULT,
        r"add to [13]\.content\.0\.toolUse\.input": ARGUMENTS,
    },
    "reasoning": {
        r"duplicate [04]\.content\.0": BLOCKS,
        r"(drop|duplicate|swap) 1\.content\.[01]": BLOCKS,
        r"(drop|duplicate) 3\.content\.[01]": BLOCKS,
        r"swap 3\.content\.0": BLOCKS,
        r"(drop|duplicate) 2\.content\.0\.toolResult\.content\.0": RESULT,
        r"set [13]\.content\.0\.reasoningContent\.reasoningText\.text ''": "the signature holds what was thought",
        r"(remove|set) [13]\.content\.0\.reasoningContent\.reasoningText\.signature(| '')": UNSIGNED,
        r"add to 1\.content\.2\.toolUse\.input": ARGUMENTS,
    },
    "media": {
        r"(drop|duplicate|swap) 0\.content\.0": BLOCKS,
        r"(drop|swap) 0\.content\.1": BLOCKS,
        r"(duplicate|swap) 0\.content\.2": BLOCKS,
        r"(drop|duplicate) 0\.content\.3": BLOCKS,
        r"remove 0\.content\.1\.document\.format": "the model of the service does not demand it",
    },
}
COUNTS = {"chat": 104, "single": 182, "parallel": 290, "loops": 348, "reasoning": 308, "media": 127}


CASES = Cases("bedrock_converse", HISTORIES, LEGAL, COUNTS, lambda history: mutants(history, ids=IDS, opaque=opaque))


@pytest.mark.parametrize("name", HISTORIES)
def test_the_mutants_that_pass_are_those_that_are_valid(name: str) -> None:
    CASES.judge(name)


# --- strangers' input

words = st.sampled_from(
    ["user", "assistant", "system", "png", "pdf", "success", "error", "default", "a", "", " ", "a/b"]
)
keys = st.sampled_from(
    [
        *("role", "content", "text", "image", "document", "toolUse", "toolResult", "reasoningContent", "cachePoint"),
        *("toolUseId", "name", "input", "status", "json", "format", "source", "bytes", "s3Location", "uri", "type"),
    ]
)
near = near_values(words, keys)
near_block = st.dictionaries(keys, near, min_size=1, max_size=2)
near_message = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "system"]),
    near | st.lists(near_block, max_size=4),
)


@given(anything | st.lists(near, max_size=8) | st.lists(near_message, max_size=8))
def test_any_json_gets_violations_and_never_an_exception(messages: object) -> None:
    assert_violations(messages, format="bedrock_converse", rules=RULES)


@given(st.lists(near_message, min_size=1, max_size=8))
def test_a_pointer_leads_to_the_fault_or_to_where_something_lacks(messages: list[Json]) -> None:
    assert_pointers_lead(messages, format="bedrock_converse")


# --- big input


def long(loops: int) -> list[Json]:
    pairs = [[model(call(f"a{n}"), call(f"b{n}")), user(result(f"a{n}"), result(f"b{n}"))] for n in range(loops)]
    return [USER, *[message for pair in pairs for message in pair]]


def wide(calls: int) -> list[Json]:
    return [USER, model(*[call(f"a{n}") for n in range(calls)]), user(*[result(f"a{n}") for n in range(calls)])]


def wrong(messages: int) -> list[Json]:
    return [model(call("a"), call("a"), "x", PNG), DONE, user(document(), "x", result("b"), result("a"))] * messages


@pytest.mark.parametrize("build", [long, wide, wrong])
def test_the_work_grows_with_the_input_and_no_faster(build: Callable[[int], list[Json]]) -> None:
    assert_linear(broken, build)
