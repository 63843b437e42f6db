"""The linter of Anthropic histories: one broken history per rule, every mutant of valid ones, and any JSON at all."""

from __future__ import annotations

import base64
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
from turnlog.linter.anthropic import MAX_MESSAGES
from turnlog.linter.anthropic_table import RULES
from turnlog.linter.rules import lint

EPHEMERAL: Json = {"type": "ephemeral"}
THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": "sig"}
SIGNED: Json = {"type": "compaction", "content": "what was said", "signature": "sig", "tool_changes": []}
REDACTED: Json = {"type": "redacted_thinking", "data": "AAAA"}
START = "iVBORw0KGgo"
PNG: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PDF: Json = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}


def user(*content: object) -> Json:
    return {"role": "user", "content": [text(c) if isinstance(c, str) else c for c in content]}


def claude(*content: object) -> Json:
    return {**user(*content), "role": "assistant"}


def system(content: object = "Be brief.") -> Json:
    return {"role": "system", "content": content}


def text(words: object, **keys: object) -> Json:
    return {"type": "text", "text": words, **keys}


def call(call_id: object, name: object = "get_weather", given: object = None) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if given is None else given}


def result(call_id: object, content: object = "sunny", **keys: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **keys}


def document(**source: object) -> Json:
    return {"type": "document", "source": source}


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes(5)
    return base64.b64encode(head).decode()


def image(data: str) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def server_call(call_id: object = "srvtoolu_1") -> Json:
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {}}


def server_result(call_id: object = "srvtoolu_1") -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


USER: Json = {"role": "user", "content": "What is the weather?"}
DONE: Json = {"role": "assistant", "content": "Sunny."}


def broken(messages: object) -> list[tuple[str, str]]:
    return [(match.rule, match.pointer) for match in lint(messages, format="anthropic")]


# --- what is valid

HISTORIES: dict[str, list[Json]] = {
    "chat": [USER, DONE, USER],
    "single": [USER, claude("Let me see.", call("a", given={"city": "Paris"})), user(result("a"), "Go on.")],
    "parallel": [
        USER,
        claude(call("a"), call("b")),
        user(result("a"), result("b", [text("x"), text("y")], is_error=True)),
    ],
    "loops": [USER, claude(call("a")), user(result("a")), claude(call("b")), user(result("b")), DONE, USER],
    "thinking": [USER, claude(THOUGHT, REDACTED, call("a")), user(result("a")), claude(THOUGHT, "Sunny."), USER],
    "media": [user(PNG, PDF, document(type="url", url="https://example.com/a.pdf"), "Compare.")],
}

VALID: dict[str, list[Json]] = {
    **HISTORIES,
    "messages of one role in a row": [USER, USER, claude("x"), claude(call("a")), user(result("a")), USER],
    "results in another order than the calls": [USER, claude(call("a"), call("b")), user(result("b"), result("a"))],
    "text behind a call": [USER, claude(call("a"), "Let me see."), user(result("a"))],
    "a result without content": [USER, claude(call("a")), user({"type": "tool_result", "tool_use_id": "a"})],
    "an image in a result": [USER, claude(call("a")), user(result("a", [text("x"), PNG]))],
    "an empty result": [USER, claude(call("a"), call("b")), user(result("a", ""), result("b", []))],
    "null as absent": [USER, claude(call("a")), user(result("a", None, is_error=None, cache_control=None))],
    "four breakpoints": [
        user(*[text("x", cache_control=EPHEMERAL) for _ in range(3)], {**PNG, "cache_control": EPHEMERAL})
    ],
    "an hour": [user(text("x", cache_control={**EPHEMERAL, "ttl": "1h"}))],
    "sources": [
        user(
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            document(type="text", media_type="text/plain", data="x"),
            document(type="content", content="x"),
            document(type="content", content=[text("x"), PNG]),
            document(type="file", file_id="file_1"),
            {**PDF, "title": "A", "context": "B", "citations": {"enabled": True}},
        )
    ],
    "search results": [
        USER,
        claude(call("a")),
        user(result("a", [{"type": "search_result", "source": "s", "title": "t", "content": [text("x")]}])),
    ],
    "tool references": [USER, claude(call("a")), user(result("a", [{"type": "tool_reference", "tool_name": "x"}]))],
    "a server's tool": [USER, claude(server_call(), server_result(), text("x", citations=[{}])), USER],
    "a paused turn": [USER, claude(server_call())],
    **{
        f"thinking behind a {block['type']}": [USER, claude(block, THOUGHT, "x"), USER]
        for block in (
            {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
            {"type": "mcp_tool_listing", "mcp_server_name": "docs", "tools": []},
            {"type": "compaction", "content": "what was said"},
        )
    },
    "interleaved thinking": [USER, claude(THOUGHT, server_call(), server_result(), THOUGHT, "x"), USER],
    "a new block": [user({"type": "browser_state", "tabs": []}, {"type": "container_upload", "file_id": "file_1"})],
    "longest name": [USER, claude(call("a", "x" * 200)), user(result("a"))],
    "a summary of the provider first": [claude({"type": "compaction", "content": "what was said"}), USER],
    "a summary without a text": [user({"type": "compaction", "content": None, "encrypted_content": "x"}, "x")],
    "lifetimes": [user(*[text("x", cache_control={**EPHEMERAL, "ttl": ttl}) for ttl in ("1h", "5m", None)])],
    "a last space before the end": [USER, claude("x "), USER],
    "most messages": [USER] * MAX_MESSAGES,
    "largest image": [user(image(START + "A" * 9_999_989))],
    "longest side": [user(*[image(png(9, 8_000))] * 20)],
    "longest side of many": [user(*[image(png(9, 2_000))] * 21)],
    "most images": [user(*[image(png(9, 9))] * 100)],
    "largest request": [user(*[image(START + "A" * 7_999_989)] * 4)],
    "a directive": [USER, {"role": "system", "content": [], "output_config": {"effort": "low"}}, USER],
}


@pytest.mark.parametrize("name", VALID)
def test_a_valid_history_has_no_violation(name: str) -> None:
    assert broken(VALID[name]) == []


# --- one fault, one violation

LAST = "/messages/1/content/0"
ANSWERED = [USER, claude(call("a")), user(result("a"))]
FAULTS: list[tuple[str, str, object]] = [
    ("messages_not_list", "/messages", {"messages": [USER]}),
    ("messages_empty", "/messages", []),
    ("too_many_messages", "/messages", [USER] * (MAX_MESSAGES + 1)),
    ("message_not_object", "/messages/1", [USER, "hello"]),
    ("lone_surrogate", "/messages/0/content/0/text", [user({"type": "text", "text": "a\ud83d"})]),
    (
        "lone_surrogate",
        f"{LAST}/input/\ude00",
        [USER, claude({**call("a"), "input": {"\ude00": 1}}), user(result("a"))],
    ),
    ("unknown_key", "/messages/0/created_at", [{**USER, "created_at": 1}]),
    ("unknown_key", "/messages/0/content/0/a~1b~0", [user(text("x", **{"a/b~": 1}))]),
    ("unknown_key", f"{LAST}/cache_control", [USER, claude({**THOUGHT, "cache_control": EPHEMERAL}, "x"), USER]),
    ("unknown_key", "/messages/0/content/0/source/x", [user(document(type="url", url="https://example.com", x=1))]),
    ("unknown_role", "/messages/0/role", [{**USER, "role": "human"}]),
    ("unknown_role", "/messages/0/role", [{"content": "x"}]),
    ("unknown_role", "/messages/1/role", [USER, {**USER, "role": "tool"}]),
    ("system_role", "/messages/1/role", [USER, system(), DONE, USER]),
    ("compaction_misplaced", LAST, [USER, claude(SIGNED, "x"), USER]),
    ("compaction_misplaced", "/messages/0/content/1", [user(SIGNED, SIGNED)]),
    ("compaction_blank", "/messages/0/content/0/content", [user({"type": "compaction", "content": " "}, text("x"))]),
    ("system_role", "/messages/1/role", [USER, system()]),
    ("system_misplaced", "/messages/0/role", [system(), USER]),
    ("system_misplaced", "/messages/1/role", [USER, system(), USER]),
    ("system_misplaced", "/messages/2/role", [USER, DONE, system(), DONE, USER]),
    ("first_not_user", "/messages/0/role", [DONE, USER]),
    ("first_not_user", "/messages/0/role", [claude({"type": "compaction", "content": None}), USER]),
    ("first_not_user", "/messages/0/role", [claude("x", {"type": "compaction", "content": "y"}), USER]),
    ("system_role", "/messages/2/role", [USER, claude(server_call(), server_result()), system(), DONE, USER]),
    (
        "unknown_key",
        "/messages/0/content/0/source/media_type",
        [user(document(type="url", url="https://example.com", media_type="application/pdf"))],
    ),
    (
        "block_type",
        "/messages/0/content/0/content/0",
        [user({"type": "search_result", "source": "s", "title": "t", "content": [PNG]})],
    ),
    ("block_wrong_role", "/messages/0/content/0/type", [user(server_call())]),
    (
        "cache_control",
        "/messages/0/content/0/cache_control",
        [user(text("x", cache_control={**EPHEMERAL, "ttl": "2h"}))],
    ),
    ("cache_control", "/messages/0/content/0/cache_control", [user(text("x", cache_control="ephemeral"))]),
    *(
        (
            "error_empty",
            "/messages/2/content/0/content",
            [USER, claude(call("a")), user(result("a", content, is_error=True))],
        )
        for content in (None, [], " ")
    ),
    ("ends_on_assistant", "/messages/1/content", [USER, DONE]),
    ("ends_on_assistant", "/messages/1", [USER, claude()]),
    ("content_type", "/messages/0/content", [{"role": "user"}]),
    ("content_type", "/messages/0/content", [{"role": "user", "content": text("x")}]),
    ("content_empty", "/messages/0/content", [{"role": "user", "content": ""}, USER]),
    ("content_empty", "/messages/1/content", [USER, claude(), USER]),
    ("block_not_object", "/messages/0/content/0", [{"role": "user", "content": ["x"]}]),
    ("block_type", "/messages/0/content/0/type", [user({"type": "image_url", "image_url": {"url": "x"}})]),
    ("block_type", "/messages/0/content/0/type", [user({"text": "x"})]),
    ("block_type", "/messages/0/content/0/source/content/0", [user(document(type="content", content=[PDF]))]),
    ("block_field", "/messages/0/content/0/text", [user({"type": "text"})]),
    ("block_field", f"{LAST}/data", [USER, claude({**REDACTED, "data": ""}, "x"), USER]),
    ("block_field", "/messages/0/content/0/content", [user({"type": "search_result", "source": "s", "title": "t"})]),
    ("block_wrong_role", "/messages/0/content/0/type", [user(call("a"))]),
    ("block_wrong_role", "/messages/0/content/0/type", [user(THOUGHT)]),
    ("block_wrong_role", f"{LAST}/type", [USER, claude(result("a")), USER]),
    ("text_blank", "/messages/0/content", [{"role": "user", "content": " \n"}]),
    ("text_blank", "/messages/0/content/0/text", [user("")]),
    ("citations_in_user", "/messages/0/content/0/citations", [user(text("x", citations=[{}]))]),
    ("document_in_assistant", f"{LAST}/type", [USER, claude(PDF), USER]),
    ("source_type", "/messages/0/content/0/source", [user({"type": "image"})]),
    ("source_type", "/messages/0/content/0/source/type", [user(document(type="s3", uri="s3://x"))]),
    ("source_field", "/messages/0/content/0/source/url", [user(document(type="url"))]),
    ("source_field", "/messages/0/content/0/source/url", [user(document(type="url", url="s3://bucket/k"))]),
    ("source_field", "/messages/0/content/0/source/file_id", [user(document(type="file", file_id="file-abc"))]),
    ("media_type", "/messages/0/content/0/source/media_type", [user(document(**PNG["source"]))]),
    ("cache_control", "/messages/0/content/0/cache_control", [user(text("x", cache_control={"type": "forever"}))]),
    (
        "breakpoint_order",
        "/messages/0/content/1/cache_control/ttl",
        [user(text("x", cache_control=EPHEMERAL), text("y", cache_control={**EPHEMERAL, "ttl": "1h"}))],
    ),
    (
        "too_many_breakpoints",
        "/messages/0/content/4/cache_control",
        [user(*[text("x", cache_control=EPHEMERAL) for _ in range(6)])],
    ),
    ("thinking_signature", f"{LAST}/signature", [USER, claude({"type": "thinking", "thinking": "x"}, "x"), USER]),
    ("thinking_not_first", LAST, [USER, claude("x", THOUGHT, REDACTED, "y"), USER]),
    ("thinking_last", LAST, [USER, claude(THOUGHT), USER]),
    ("call_id", f"{LAST}/id", [USER, claude(call("functions.Bash:0")), user(result("a"))]),
    ("call_id", f"{LAST}/id", [USER, claude(call(None)), user(result("a"))]),
    ("call_id", f"{LAST}/id", [USER, claude(server_call(None)), USER]),
    (
        "call_id_repeated",
        "/messages/1/content/1/id",
        [USER, claude(call("a"), call("a")), user(result("a"), result("a"))],
    ),
    ("call_id_repeated", "/messages/3/content/0/id", [*ANSWERED, *ANSWERED[1:]]),
    ("call_name", f"{LAST}/name", [USER, claude(call("a", "multi_tool.parallel")), user(result("a"))]),
    ("call_name", f"{LAST}/name", [USER, claude(call("a", "x" * 201)), user(result("a"))]),
    ("input_not_object", f"{LAST}/input", [USER, claude(call("a", given="{}")), user(result("a"))]),
    ("call_unanswered", LAST, [USER, claude(call("a"))]),
    ("call_unanswered", "/messages/1/content/1", [USER, claude(call("a"), call("b")), user(result("a"))]),
    ("call_unanswered", LAST, [USER, claude(call("a")), USER, DONE, USER]),
    ("result_id", "/messages/2/content/0/tool_use_id", [USER, claude(call("a")), user(result(None))]),
    ("result_unknown", "/messages/0/content/0/tool_use_id", [user(result("a"))]),
    ("result_unknown", "/messages/2/content/1/tool_use_id", [*ANSWERED[:2], user(result("a"), result("b"))]),
    ("second_result", "/messages/2/content/1/tool_use_id", [*ANSWERED[:2], user(result("a"), result("a"))]),
    ("result_after_content", "/messages/2/content/1", [*ANSWERED[:2], user("Here.", result("a"))]),
    ("result_after_content", "/messages/3/content/0", [*ANSWERED[:2], USER, user(result("a"))]),
    (
        "results_split",
        "/messages/3/content/0",
        [USER, claude(call("a"), call("b")), user(result("a")), user(result("b"))],
    ),
    ("result_content", "/messages/2/content/0/content", [*ANSWERED[:2], user(result("a", {"sunny": True}))]),
    ("result_block_type", "/messages/2/content/0/content/0/type", [*ANSWERED[:2], user(result("a", [call("b")]))]),
    ("is_error_type", "/messages/2/content/0/is_error", [*ANSWERED[:2], user(result("a", is_error="no"))]),
    ("error_empty", "/messages/2/content/0/content", [*ANSWERED[:2], user(result("a", "", is_error=True))]),
    ("error_not_text", "/messages/2/content/0/content/0", [*ANSWERED[:2], user(result("a", [PNG], is_error=True))]),
    ("image_data", "/messages/0/content/0/source/data", [user(image("/9j/4AAQ"))]),
    ("image_data", "/messages/0/content/0/source/data", [user(image("iVBORw0KGgo!"))]),
    ("image_bytes", "/messages/0/content/0", [user(image(START + "A" * 9_999_990))]),
    ("image_pixels", "/messages/0/content/0", [user(image(png(8_001, 9)))]),
    ("many_images_pixels", "/messages/0/content/20", [user(*[image(png(9, 9))] * 20, image(png(9, 2_001)))]),
    ("too_many_images", "/messages", [user(*[image(png(9, 9))] * 101)]),
    ("request_bytes", "/messages", [user(*[image(START + "A" * 7_999_989)] * 4, image(START))]),
    ("server_call_unanswered", f"{LAST}", [USER, claude(server_call()), USER]),
    ("server_call_unanswered", "/messages/1/content/0", [USER, claude(server_call()), user("stop"), claude("x"), USER]),
    ("error_empty", "/messages/2/content/0/content", [USER, claude(call("a")), user(result("a", " ", is_error=True))]),
    ("text_blank", "/messages/2/content/0/content", [USER, claude(call("a")), user(result("a", " \n"))]),
    ("unknown_key", f"{LAST}/x", [USER, claude({**server_call(), "x": 1}, server_result()), USER]),
    ("server_result_unknown", f"{LAST}/tool_use_id", [USER, claude(server_result(), "x"), USER]),
    ("system_block", "/messages/1/content/0", [USER, system([PNG]), DONE, USER]),
    ("trailing_whitespace", "/messages/1/content", [USER, {**DONE, "content": "The answer is "}]),
    ("trailing_whitespace", f"{LAST}/text", [USER, claude("The answer is\n")]),
]
ALONG = {"system_block": "system_role", "trailing_whitespace": "ends_on_assistant"}
"""Rule -> the rule that is broken along with it, as it is told of messages that only some models take."""


@pytest.mark.parametrize(("rule", "pointer", "messages"), FAULTS)
def test_a_fault_is_told_once_and_where_it_is(rule: str, pointer: str, messages: object) -> None:
    assert [match for match in broken(messages) if match[0] != ALONG.get(rule)] == [(rule, pointer)]


def test_every_rule_has_a_broken_history() -> None:
    assert {rule for rule, _, _ in FAULTS} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_tells_answer_fix_and_source(name: str) -> None:
    assert_told(RULES[name])


def test_a_group_of_system_messages_is_judged_as_one() -> None:
    assert broken([USER, system(), system("x"), DONE, USER]) == [
        ("system_role", "/messages/1/role"),
        ("system_role", "/messages/2/role"),
    ]


@pytest.mark.parametrize(
    ("content", "rule", "place"),
    [
        ("", "content_empty", ""),
        ([], "content_empty", ""),
        (7, "content_type", ""),
        (" ", "text_blank", ""),
        ([text(" ")], "text_blank", "/0/text"),
        ([text("a", x=1)], "unknown_key", "/0/x"),
        (["a"], "system_block", "/0"),
    ],
)
def test_the_content_of_a_system_message_is_checked(content: object, rule: str, place: str) -> None:
    assert broken([USER, system(content), DONE, USER]) == [
        (rule, f"/messages/1/content{place}"),
        ("system_role", "/messages/1/role"),
    ]


def test_a_call_or_a_result_without_a_valid_id_excuses_one_other_and_no_more() -> None:
    place = "/messages/2/content"
    assert broken([USER, claude(call("")), user(result("a"), result("b"))]) == [
        ("call_id", f"{LAST}/id"),
        ("result_unknown", f"{place}/1/tool_use_id"),
    ]
    assert broken([USER, claude(call("a"), call("b")), user(result(""))]) == [
        ("result_id", f"{place}/0/tool_use_id"),
        ("call_unanswered", "/messages/1/content/1"),
    ]
    assert broken([USER, claude(call("a"), call("a")), user(result("a"), result("a"), result("a"))]) == [
        ("call_id_repeated", "/messages/1/content/1/id"),
        ("second_result", f"{place}/2/tool_use_id"),
    ]


def test_a_result_that_comes_too_late_is_told_at_both_ends() -> None:
    late = [USER, claude(call("a")), USER, DONE, user(result("a"))]
    assert broken(late) == [("call_unanswered", LAST), ("result_unknown", "/messages/4/content/0/tool_use_id")]


def test_a_message_of_the_linter_is_short_whatever_the_value() -> None:
    long = [{**USER, "role": "x" * 10_000}, {**USER, "y" * 10_000: 1}, claude(call("z" * 10_000 + "/", "z" * 10_000))]
    for item in lint(long, format="anthropic"):
        assert len(item.message) + len(item.pointer) < 300


# --- mutants: whatever is done to a valid history is seen


def opaque(path: Path) -> bool:
    return "input" in path


TURNS = "a message may come twice: messages of one role in a row are one turn"
BLOCKS = "text, thinking and media may go, come twice or change places, as long as none comes before a result"
TYPES = "a block of an unknown type may be a new one"
RESULT = "a result may be empty"
ARGUMENTS = "the arguments are free"
LEGAL: dict[str, dict[str, str]] = {
    "chat": {"duplicate [012]": TURNS, "drop 1": "the two of the user are one turn"},
    "single": {
        "duplicate 0": TURNS,
        r"(drop|duplicate) (1\.content\.0|2\.content\.1)": BLOCKS,
        r"swap 1\.content\.0": BLOCKS,
        r"rename (1\.content\.0|2\.content\.1)\.type": TYPES,
        r"(remove|set) 2\.content\.0\.content(| None| \[\]| '')": RESULT,
        r"add to 1\.content\.1\.input": ARGUMENTS,
    },
    "parallel": {
        "duplicate 0": TURNS,
        r"swap [12]\.content\.0": "calls of a turn, and its results, may stand in any order",
        r"(remove|set) 2\.content\.0\.content(| None| \[\]| '')": RESULT,
        r"(drop|duplicate|swap) 2\.content\.1\.content\.[01]": BLOCKS,
        r"(remove|set) 2\.content\.1\.is_error(| None)": "without it the result is no error",
        r"add to 1\.content\.[01]\.input": ARGUMENTS,
    },
    "loops": {
        "duplicate [056]": TURNS,
        "swap 4": "the answer joins the turn of the call",
        "drop 5": "the result and the next question are one turn",
        r"(remove|set) [24]\.content\.0\.content(| None| \[\]| '')": RESULT,
        r"add to [13]\.content\.0\.input": ARGUMENTS,
    },
    "thinking": {
        "duplicate [034]": TURNS,
        "swap 2": "the answer joins the turn of the call",
        "drop 3": "the result and the next question are one turn",
        r"(drop|duplicate|swap) 1\.content\.[01]": BLOCKS,
        r"(drop|duplicate) 3\.content\.0": BLOCKS,
        r"duplicate 3\.content\.1": BLOCKS,
        r"rename [13]\.content\.[01]\.type": TYPES,
        r"set [13]\.content\.0\.thinking ''": "the signature holds what was thought",
        r"(remove|set) 2\.content\.0\.content(| None| \[\]| '')": RESULT,
        r"add to 1\.content\.2\.input": ARGUMENTS,
    },
    "media": {
        "duplicate 0": TURNS,
        r"(drop|duplicate) 0\.content\.[0123]": BLOCKS,
        r"swap 0\.content\.[012]": BLOCKS,
        r"rename 0\.content\.[0123]\.type": TYPES,
    },
}
COUNTS = {"chat": 62, "single": 170, "parallel": 245, "loops": 282, "thinking": 266, "media": 157}


CASES = Cases(
    "anthropic", HISTORIES, LEGAL, COUNTS, lambda history: mutants(history, ids={"id", "tool_use_id"}, opaque=opaque)
)


@pytest.mark.parametrize("name", HISTORIES)
def test_the_mutants_that_pass_are_those_that_are_valid(name: str) -> None:
    CASES.judge(name)


def test_a_whole_loop_may_go() -> None:
    loops = HISTORIES["loops"]
    assert broken(loops[:1] + loops[3:]) == []


# --- strangers' input

words = st.sampled_from(
    [
        *("user", "assistant", "system", "text", "image", "document", "tool_use", "tool_result", "thinking", "base64"),
        *("search_result", "server_tool_use", "web_search_tool_result", "content", "ephemeral", "a", "", " ", "a/b"),
    ]
)
keys = st.sampled_from(
    [
        *("role", "content", "type", "text", "id", "name", "input", "tool_use_id", "is_error", "source", "data", "url"),
        *("media_type", "thinking", "signature", "cache_control", "citations", "output_config", "title"),
    ]
)
near = near_values(words, keys)
near_block = st.builds(
    lambda body, kind: {**body, "type": kind},
    st.dictionaries(keys, near, max_size=5),
    st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "document", "search_result"]),
)
near_message = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "system"]),
    near | st.lists(near_block, max_size=4),
)


@given(anything | st.lists(near, max_size=8) | st.lists(near_message, max_size=8))
def test_any_json_gets_violations_and_never_an_exception(messages: object) -> None:
    assert_violations(messages, format="anthropic", rules=RULES)


@given(st.lists(near_message, min_size=1, max_size=8))
def test_a_pointer_leads_to_the_fault_or_to_where_something_lacks(messages: list[Json]) -> None:
    assert_pointers_lead(messages, format="anthropic")


# --- big input


def long(loops: int) -> list[Json]:
    pairs = [[claude(call(f"a{n}"), call(f"b{n}")), user(result(f"a{n}"), result(f"b{n}"))] for n in range(loops)]
    return [USER, *[message for pair in pairs for message in pair]]


def wide(calls: int) -> list[Json]:
    return [USER, claude(*[call(f"a{n}") for n in range(calls)]), user(*[result(f"a{n}") for n in range(calls)])]


def wrong(messages: int) -> list[Json]:
    return [claude(call("a"), call("a"), "x", THOUGHT), system(), user("x", result("b"), result("a"))] * messages


@pytest.mark.parametrize("build", [long, wide, wrong])
def test_the_work_grows_with_the_input_and_no_faster(build: Callable[[int], list[Json]]) -> None:
    assert_linear(broken, build)
