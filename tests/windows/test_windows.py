"""Windows of single odd histories, each with what is sent and what the manifest says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.properties.building import Asked, stored, window, window_by_cards
from tests.properties.histories import Body, Given
from tests.support.window_messages import result, said
from turnlog import build_window, count_tokens
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.models import FORMATS
from turnlog.linter.rules import FORMATS as LINTED
from turnlog.linter.rules import lint
from turnlog.sessions.context_models import WindowAnswer
from turnlog.windows.text import NOTHING_SAID, SETTLEMENT


def calling(*ids: str, content: str | None = None, role: str = "assistant") -> Body:
    calls = [{"id": value, "type": "function", "function": {"name": "f", "arguments": "{}"}} for value in ids]
    return {"role": role, "content": content, "tool_calls": calls}


def full(*messages: Body, **options: Any) -> WindowAnswer:
    answer = build_window(messages, policy="full", **options)
    if answer.messages and options.get("format", "openai_chat") == "openai_chat":
        assert lint(answer.messages, format="openai_chat") == []
    return answer


def told(answer: WindowAnswer) -> dict[int, tuple[str, str | None]]:
    """Level and reason of every message."""
    return {
        part.first: (part.level, part.reason) for part in answer.manifest.parts if part.kind == "message" and part.first
    }


# ---------------------------------------------------------------- texts


LONE = "\ud83d"


@pytest.mark.parametrize("given", ["openai_chat", "turnlog"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_lone_surrogate_is_sent_as_the_replacement_character(format: str, given: str) -> None:
    """In texts, names, ids, arguments, results and tools: no provider's SDK can send half a character."""
    ids, name, arguments = (f"a{LONE}", "a\ude00"), f"f{LONE}", f'{{"{LONE}": "{LONE}\\ud83d"}}'
    calls: list[Body] = [{"id": call_id, "name": name, "args": {LONE: [LONE]}} for call_id in ids]
    results: list[Body] = [
        {"role": "tool", "tool_results": [{"tool_call_id": call_id, "result": LONE}]} for call_id in ids
    ]
    if given == "openai_chat":
        function = {"name": name, "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
        results = [{"role": "tool", "tool_call_id": call_id, "content": LONE} for call_id in ids]
    user: Body = {"role": "user", "content": f"x{LONE}y", f"more{LONE}": LONE}
    assistant: Body = {"role": "assistant", "content": f"{LONE}\ude00{LONE}", "tool_calls": calls}
    tool = {"type": "function", "function": {"name": name, "description": LONE, "parameters": {LONE: LONE}}}
    answer = build_window([user, assistant, *results, said("user")], format=format, input_format=given, tools=[tool])
    json.dumps([answer.messages, answer.system, answer.tools, answer.tool_names], ensure_ascii=False).encode("utf-8")
    sent = str(answer.messages)
    assert "x\ufffdy" in sent and "😀\ufffd" in sent
    if format in LINTED:
        assert lint(answer.messages, format=format) == [], "the ids of calls are distinct, and those of their results"


# ---------------------------------------------------------------- calls and results


def test_a_late_result_is_sent_with_its_call_and_told_so() -> None:
    answer = full(said("user"), calling("a"), said("user", "well?"), result("a"), said("assistant"))
    assert [message["role"] for message in answer.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert answer.messages[2] == result("a")
    assert told(answer)[4] == ("whole", "late_result")


def test_results_out_of_order_are_sent_in_the_order_in_which_they_came() -> None:
    messages = [said("user"), calling("a", "b"), result("b"), result("a")]
    assert full(*messages).messages == messages


def test_an_unanswered_call_with_a_later_message_is_settled() -> None:
    answer = full(said("user"), calling("a", "b"), result("b"), said("user", "well?"))
    assert answer.messages[3] == {"role": "tool", "tool_call_id": "a", "content": SETTLEMENT}
    assert (told(answer)[2], answer.open_calls) == (("whole", "settled"), [])


@pytest.mark.parametrize("later", [[], [said("system", "note")], [result("b")], [said("critic")]])
def test_one_at_the_logs_end_is_left_out_with_its_results_and_named(later: list[Body]) -> None:
    answer = full(said("user"), calling("a", "b"), *later)
    assert [message["role"] for message in answer.messages if message["role"] not in ("user", "system")] == []
    waiting = answer.open_calls[0]
    assert (waiting.ref, waiting.call_id, waiting.name) == ("2.0", "a", "f")
    assert told(answer)[2] == ("out", "open_call")


def test_or_settled_when_the_call_says_so() -> None:
    answer = full(said("user"), calling("a"), answer_open_calls=True)
    assert answer.messages[-1]["content"] == SETTLEMENT
    assert answer.open_calls == []


def test_the_newest_of_two_results_is_sent_and_the_other_told() -> None:
    answer = full(said("user"), calling("a"), result("a", "old"), result("a", "new"))
    assert [message["content"] for message in answer.messages[2:]] == ["new"]
    assert told(answer)[3] == ("out", "superseded_result")


def test_orphans_unknown_roles_and_interrupted_streams_are_never_sent_and_told() -> None:
    answer = full(result("x"), said("critic"), said("user"))
    assert answer.messages == [said("user")]
    assert (told(answer)[1], told(answer)[2]) == (("out", "orphan_result"), ("out", "unknown_role"))
    held = stored([Given(said("user")), Given(said("assistant"), interrupted=True)])
    outcome = window(held, Asked("full"))
    assert outcome.messages == [said("user")]
    assert [(part.first, part.reason) for part in outcome.manifest.parts if part.level == "out"] == [(2, "interrupted")]


def test_ids_that_are_empty_too_long_or_used_before_are_made_of_the_ref() -> None:
    long = "x" * 41
    answer = full(calling("", "a"), result(""), result("a"), calling("a", long), result("a"), result(long))
    assert [
        [call["id"] for call in message["tool_calls"]] for message in answer.messages if "tool_calls" in message
    ] == [
        ["call_1_0", "a"],
        ["call_4_0", "call_4_1"],
    ]
    assert [message["tool_call_id"] for message in answer.messages if message["role"] == "tool"] == [
        "call_1_0",
        "a",
        "call_4_0",
        "call_4_1",
    ]


def test_a_made_id_never_meets_a_given_one() -> None:
    answer = full(calling("call_3_0"), result("call_3_0"), calling(""), result(""))
    assert [message["tool_call_id"] for message in answer.messages if message["role"] == "tool"] == [
        "call_3_0",
        "call_3_0_2",
    ]


# ---------------------------------------------------------------- users with calls and results


def test_a_users_own_calls_and_results_are_fenced_text_in_the_user_role() -> None:
    answer = full(calling("a", content="I looked.", role="user"), result("a", "it is off"), said("assistant"))
    assert answer.messages == [
        said("user", "I looked."),
        said("user", "<turnlog-data kind='earlier tool calls'>\n1.0 f {}\n-> it is off\n</turnlog-data>"),
        said("assistant"),
    ]


@pytest.mark.parametrize("budget", [1, 3, 16, 30])
def test_a_budget_that_is_too_small_for_an_empty_list_names_what_is_needed(budget: int) -> None:
    with pytest.raises(BudgetTooSmallError) as caught:
        build_window([], budget=budget)
    assert caught.value.details["needed"] == 31


def test_a_budget_that_is_too_small_names_what_tools_and_system_text_take() -> None:
    tools = [{"type": "function", "function": {"name": f"tool_{number}", "parameters": {}}} for number in range(100)]
    with pytest.raises(BudgetTooSmallError) as caught:
        build_window([said("user", "hi")], system="Be brief.", tools=tools, budget=300)
    needed, fixed = caught.value.details["needed"], caught.value.details["fixed"]
    assert needed - fixed == count_tokens([said("user", "hi")])
    assert f"needs {needed} tokens (tools and system text: {fixed}); the budget is 300" in caught.value.detail


def test_what_a_user_says_beside_calls_that_wait_is_the_task_and_stays() -> None:
    answer = full(calling("a", content="Do this.", role="user"))
    assert answer.messages == [said("user", "Do this.")]
    assert [open_call.ref for open_call in answer.open_calls] == ["1.0"]


def test_text_beside_results_is_a_message_of_its_own_in_its_own_loop() -> None:
    both = {"role": "user", "content": "and now?", "tool_results": [{"tool_call_id": "a", "result": "done"}]}
    messages = [said("user"), calling("a"), said("assistant", "wait"), both]
    answer = full(*messages)
    assert answer.messages == [
        said("user"),
        calling("a"),
        result("a"),
        said("assistant", "wait"),
        said("user", "and now?"),
    ]
    assert [part.last for part in answer.manifest.parts if part.kind == "loop"] == [3, 4]
    digested = build_window(messages, policy="turns(0)")
    assert [message["content"] for message in digested.messages[1:]] == ["and now?"]


def test_in_its_own_format_it_comes_back_in_one_where_nothing_stands_between() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "name": "f", "args": {}}]}
    both = {"role": "user", "content": "and now?", "tool_results": [{"tool_call_id": "a", "result": 1}], "metadata": {}}
    itself = {
        "role": "assistant",
        "tool_calls": [{"id": "b", "name": "f", "args": {}}],
        "tool_results": [{"tool_call_id": "b", "result": 2}],
    }
    assert full(call, both, itself, format="turnlog").messages == [call, both, itself]
    assert [message["role"] for message in full(call, both, itself).messages] == [
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
    ]


def test_one_message_of_results_for_two_messages_is_sent_behind_each() -> None:
    results = {
        "role": "tool",
        "tool_results": [{"tool_call_id": "b", "result": "for b"}, {"tool_call_id": "a", "result": "for a"}],
    }
    answer = full(said("user"), calling("a"), calling("b"), results)
    assert [message.get("content") for message in answer.messages] == ["user says", None, "for a", None, "for b"]
    assert told(answer)[4][0] == "whole"


def test_such_a_message_is_told_with_the_call_that_is_in() -> None:
    results = {
        "role": "tool",
        "tool_results": [{"tool_call_id": "b", "result": "for b"}, {"tool_call_id": "a", "result": "for a"}],
    }
    messages = [said("user"), calling("a"), calling("b"), results, said("assistant"), said("user", "now")]
    answer = build_window(messages, policy="messages(3)")
    assert [message.get("content") for message in answer.messages[1:]] == [None, "for b", "assistant says", "now"]
    assert (told(answer)[2], told(answer)[3], told(answer)[4]) == (
        ("out", "messages"),
        ("whole", None),
        ("whole", None),
    )


def test_a_tool_message_without_results_answers_nothing() -> None:
    answer = full({"role": "tool", "author": "f", "content": "done"}, said("user"))
    assert answer.messages == [said("user")]
    assert told(answer)[1] == ("out", "orphan_result")


# ---------------------------------------------------------------- what is said of what is left out


def test_a_window_of_nothing_says_so_since_no_provider_takes_an_empty_list() -> None:
    assert full().messages == [said("user", NOTHING_SAID)]
    assert full(calling("a")).messages == [said("user", NOTHING_SAID)]
    assert full(system="be brief").messages == [said("system", "be brief")]
    assert [part.reason for part in full().manifest.parts] == ["nothing_said"]


def test_without_the_current_loop_it_is_declared_and_not_shown() -> None:
    answer = full(said("user"), said("assistant"), said("user", "now"), include_current_loop=False)
    assert answer.messages == [said("user"), said("assistant")]
    (current,) = (part for part in answer.manifest.parts if part.loop == 2)
    assert (current.level, current.reason, current.first, current.last) == ("out", "not_included", 3, 3)


def test_without_the_current_loop_its_messages_are_declared_once_when_older_loops_are_out() -> None:
    history = [said("user", "word " * 90), said("assistant", "so " * 60), said("user", "a"), said("user", "b " * 20)]
    policy = {"steps": [{"step": "pin", "first_user": True}]}
    answer = build_window(history, policy=policy, budget=145, include_current_loop=False)
    assert "not shown here" in answer.messages[0]["content"] and answer.messages[1:] == history[:1]
    current = [part for part in answer.manifest.parts if part.last and part.last > 2]
    assert [(part.kind, part.reason, part.first, part.last) for part in current] == [("loop", "not_included", 3, 4)]


def test_a_loop_whose_digest_would_say_nothing_is_out_and_declared() -> None:
    answer = build_window([said("user", ""), said("assistant", ""), said("user")], policy="run_loops")
    assert [part.level for part in answer.manifest.parts if part.kind == "loop"] == ["out", "whole"]
    assert "not shown here" in answer.messages[0]["content"]


@pytest.mark.parametrize("policy", ["default", "full"])
def test_so_is_such_a_loop_where_the_budget_makes_digests(policy: str) -> None:
    messages = list[Body]()
    for number in range(9):
        messages += [said("user", ""), said("assistant", "")]
        messages += [said("user", f"{number} " + "word " * 90), said("assistant", "word " * 90)]
    answer = build_window([*messages, said("user", "now")], policy=policy, budget=1_350)
    loops = [part for part in answer.manifest.parts if part.kind == "loop"]
    empty = {part.level for part in loops[:-1:2] if part.reason == "high_mark"}
    assert empty == {"out"}
    assert "digest" in {part.level for part in loops[1::2]}
    assert "not shown here" in answer.messages[0]["content"]


def test_system_messages_before_the_first_loop_are_always_in_and_later_ones_go_with_their_loop() -> None:
    messages = [said("system", "first"), said("user"), said("system", "later"), said("assistant"), said("user", "now")]
    answer = build_window(messages, policy="turns(0)")
    assert [message["content"] for message in answer.messages if message["role"] == "system"] == ["first"]
    assert full(*messages).messages == messages


def test_a_pinned_message_is_in_whatever_the_policy_and_its_pair_with_it() -> None:
    history = [
        Given(said("user")),
        Given(calling("a")),
        Given(result("a"), pin=True),
        Given(said("assistant")),
        Given(said("user", "now")),
    ]
    for policy in ("turns(0)", "run_loops", "messages(0)", "tokens(0)"):
        outcome = window(stored(history), Asked(policy))
        assert [calling("a"), result("a")] == [m for m in outcome.messages if m["role"] == "tool" or "tool_calls" in m]
        pinned = [part for part in outcome.manifest.parts if part.kind == "message" and part.first in (2, 3)]
        assert [part.level for part in pinned] == ["whole", "whole"]


def test_a_past_loop_of_which_all_is_pinned_leaves_nothing_to_declare() -> None:
    history = [Given(said("user"), pin=True), Given(said("assistant"), pin=True), Given(said("user", "now"))]
    outcome = window(stored(history), Asked("turns(0)"))
    assert outcome.messages == [value.body for value in history]
    assert not any(part.kind == "omission_notice" for part in outcome.manifest.parts)


def test_the_current_loop_is_the_newest_even_when_nothing_of_it_can_be_sent() -> None:
    asking = {**calling("a", role="user"), "content": None}
    answer = build_window([said("user"), said("assistant"), asking], policy="turns(0)")
    assert [part.level for part in answer.manifest.parts if part.kind in ("older", "loop")] == ["out", "whole"]
    assert [message["content"] for message in answer.messages] == [
        "[2 earlier messages (1 earlier exchange) of this conversation not shown here]"
    ]


def test_the_manifest_tells_a_budget_too_small_with_what_is_needed() -> None:
    with pytest.raises(BudgetTooSmallError) as raised:
        build_window([said("user", "word " * 200)], budget=50)
    assert raised.value.details["needed"] == build_window([said("user", "word " * 200)]).tokens
    assert raised.value.details["budget"] == 50


@pytest.mark.parametrize(
    "past",
    [
        pytest.param([said("user", "a"), said("assistant", "b")], id="as small as its digest"),
        pytest.param([calling("a"), result("a"), said("user", ""), said("assistant", "")], id="nothing to digest"),
        pytest.param([said("user", "a"), said("assistant", "b")] * 3, id="more than the room for digests"),
    ],
)
def test_a_line_that_would_take_more_than_what_it_stands_for_is_not_bought(past: list[Body]) -> None:
    messages = [*past, said("user", "word " * 60)]
    whole = build_window(messages).tokens
    for policy in ("default", "full", "turns"):
        assert build_window(messages, policy=policy, budget=whole).messages == messages
        with pytest.raises(BudgetTooSmallError) as raised:
            build_window(messages, policy=policy, budget=whole - 1)
        assert raised.value.details["needed"] == whole


@pytest.mark.parametrize(("less", "left_out"), [(1, 1), (50, 1), (150, 2), (250, 3), (650, 7)])
def test_of_messages_that_nobody_answers_no_more_are_left_out_than_must_be(less: int, left_out: int) -> None:
    """The first and the newest stay; the oldest of the others go, and the manifest says why."""
    messages = [said("user", f"{number} " + "word " * 98) for number in range(12)]
    whole = build_window(messages).tokens
    answer = build_window(messages, budget=whole - less)
    out = {position: reason for position, (level, reason) in told(answer).items() if level == "out"}
    assert out == dict.fromkeys(range(2, 2 + left_out), "budget")
    assert answer.messages[1:] == [messages[0], *messages[1 + left_out :]]
    assert answer.tokens <= whole - less


def test_a_digest_for_want_of_room_says_nothing_that_the_policy_has_left_out() -> None:
    messages = [said("user", "long ago"), said("assistant", "word " * 400), said("user", "now")]
    answer = build_window(messages, policy="messages(1)", budget=250)
    assert [part.level for part in answer.manifest.parts if part.kind == "loop"] == ["digest", "whole"]
    assert [message["content"] for message in answer.messages[1:]] == [
        ("word " * 40) + "...[truncated 1800 characters]",
        "now",
    ]
    assert told(answer)[1] == ("out", "messages")


# ---------------------------------------------------------------- payloads out of line


def test_only_payloads_that_are_sent_whole_are_read() -> None:
    long = "The quick brown fox jumps over the lazy dog. " * 60
    history = [
        Given(body)
        for body in (said("user", long), calling("a"), result("a", long), said("assistant", long), said("user", long))
    ]
    fetched = list[int]()
    window_by_cards(stored(history), Asked("run_loops"), fetched)
    assert fetched == [5]
    fetched.clear()
    window_by_cards(stored(history), Asked("turns(0)"), fetched)
    assert fetched == [5]
