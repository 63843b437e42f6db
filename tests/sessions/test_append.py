"""Properties A1 to A7: appends lose nothing, on every engine."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.chat_messages import assistant, user
from tests.support.memory import memory
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import (
    ConflictError,
    HeadMismatchError,
    IdempotencyMismatchError,
    InvalidInputError,
    LoopUnfinishedError,
    NotFoundError,
    RunActiveError,
    TooLargeError,
)
from turnlog.sessions import incoming


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def bodies(session: Session) -> list[dict[str, Any]]:
    return [message.body for message in session.messages()]


def codes(answer: Any) -> list[str]:
    return [warning.code for warning in answer.warnings]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failures = list[BaseException]()

    def run(at: int) -> None:
        try:
            work(at)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("writers", [2, 16])
def test_a1_concurrent_appenders_lose_nothing_and_leave_no_gap(log: Turnlog, writers: int) -> None:
    session, each = log.sessions.create("shared"), 4

    def work(writer: int) -> None:
        for at in range(each):
            key = f"{writer}-{at}"
            while True:
                try:
                    session.append(user(key), idempotency_key=key)
                    break
                except ConflictError:
                    continue

    in_threads(writers, work)
    stored = list(session.messages())
    assert [message.position for message in stored] == list(range(2, 2 + writers * each))
    assert sorted(message.body["content"] for message in stored) == sorted(
        f"{writer}-{at}" for writer in range(writers) for at in range(each)
    )
    assert [message.position for message in session.messages(order="desc")] == list(range(1 + writers * each, 1, -1))
    for writer in range(writers):
        own = [message.body["content"] for message in stored if message.body["content"].startswith(f"{writer}-")]
        assert own == [f"{writer}-{at}" for at in range(each)]


def test_a3_the_same_key_makes_one_commit_and_the_same_answer(log: Turnlog) -> None:
    session = log.sessions.create("one")
    first = session.append(user("hi"), assistant(None, ("c1", "f")), idempotency_key="k")
    session.append(result("c1", "42"), idempotency_key="other")
    assert session.append(user("hi"), assistant(None, ("c1", "f")), idempotency_key="k") == first
    assert len(bodies(session)) == 3


def test_a4_the_same_key_with_another_payload_is_refused(log: Turnlog) -> None:
    session = log.sessions.create("one")
    session.append(user("hi"), idempotency_key="k")
    with pytest.raises(IdempotencyMismatchError):
        session.append(user("ho"), idempotency_key="k")
    with pytest.raises(IdempotencyMismatchError):
        session.append(user("hi"), run_id="r", idempotency_key="k")
    assert bodies(session) == [user("hi")]


def test_a4_if_head_is_no_part_of_the_payload(log: Turnlog) -> None:
    session = log.sessions.create("one")
    first = session.append(user("hi"), idempotency_key="k")
    assert session.append(user("hi"), idempotency_key="k", if_head=first.head) == first


def test_a5_acknowledged_means_readable_at_once_by_anyone(log: Turnlog, harness: Any) -> None:
    session = log.sessions.create("one")
    for at in range(5):
        answer = session.append(user(str(at)))
        again = harness.log().sessions.get("one")
        assert [message.body for message in again.messages()][-1] == user(str(at))
        assert again.info().head == answer.head


def test_a6_a_wrong_if_head_is_refused_with_the_head(log: Turnlog) -> None:
    session = log.sessions.create("one")
    answer = session.append(user("a"))
    for wrong in (0, 1, answer.head + 1, 999_999):
        with pytest.raises(HeadMismatchError) as caught:
            session.append(user("b"), if_head=wrong)
        assert caught.value.details["head"] == answer.head
        with pytest.raises(HeadMismatchError):
            session.append(user("b"), if_head=wrong, idempotency_key=f"key {wrong}")
    after = session.append(user("c"), if_head=answer.head)
    assert after.first == answer.head + 1
    assert bodies(session) == [user("a"), user("c")]


DISORDER: dict[str, tuple[list[list[dict[str, Any]]], str]] = {
    "orphan_result": ([[user("q")], [result("nobody", "x")]], "orphan_result"),
    "orphan_result_before_its_call": (
        [[result("c1", "x"), user("q"), assistant(None, ("c1", "f"))]],
        "orphan_result",
    ),
    "second_result": (
        [[user("q"), assistant(None, ("c1", "f"))], [result("c1", "1")], [result("c1", "2")]],
        "second_result",
    ),
    "repeated_id": ([[user("q"), assistant(None, ("c1", "f"), ("c1", "g"))]], "repeated_id"),
    "missing_id_of_a_call": ([[user("q"), assistant(None, ("", "f"))]], "missing_id"),
    "missing_id_of_a_result": ([[user("q"), assistant(None, ("c1", "f"))], [result("", "x")]], "missing_id"),
    "open_calls": ([[user("q"), assistant(None, ("c1", "f"))], [user("never mind")]], "open_calls"),
    "result_out_of_order": (
        [[user("q"), assistant(None, ("c1", "f")), assistant(None, ("c2", "g")), result("c2", "x")]],
        "result_out_of_order",
    ),
    "consecutive_user": ([[user("a")], [user("b")]], "consecutive_user"),
    "consecutive_assistant": ([[user("a"), assistant("b")], [assistant("c")]], "consecutive_assistant"),
    "assistant_first": ([[assistant("hello")]], "assistant_first"),
    "system_mid": ([[user("a")], [{"role": "system", "content": "s"}]], "system_mid"),
    "user_tool_calls": ([[{**assistant("x", ("c1", "f")), "role": "user"}]], "user_tool_calls"),
    "empty_content": ([[user("")]], "empty_content"),
    "null_content": ([[user("a"), assistant(None)]], "empty_content"),
    "unknown_role": ([[{"role": "exit", "content": "bye"}]], "unknown_role"),
    "bad_arguments": (
        [
            [
                user("q"),
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{oops"}}],
                },
            ]
        ],
        "bad_arguments",
    ),
    "control_chars": ([[user("a\x1b[31mred")]], "control_chars"),
    "unknown_content": ([[user([{"type": "hologram", "x": "c"}])]], "unknown_content"),
}


@pytest.mark.parametrize("kind", DISORDER)
def test_a7_every_kind_of_disorder_is_kept_and_reported(log: Turnlog, kind: str) -> None:
    batches, code = DISORDER[kind]
    session = log.sessions.create("messy")
    answers = [session.append(*batch, lenient=True) for batch in batches]
    assert bodies(session) == [message for batch in batches for message in batch]
    assert code in codes(answers[-1])
    for warning in answers[-1].warnings:
        assert answers[-1].first <= warning.position <= answers[-1].last
        assert warning.pointer.startswith("/messages/")
        assert warning.message


CALLED = [
    {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"} for call_id in ("c1", "c2", "c3")
]
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
REASONED = {"type": "reasoning", "summary": []}


@pytest.mark.parametrize(
    "answer",
    [
        [SAID, *CALLED],
        [REASONED, SAID, *CALLED],
        [SAID, SAID, *CALLED],
        [*CALLED, SAID],
        [CALLED[0], REASONED, *CALLED[1:]],
    ],
    ids=["text first", "reasoning first", "two texts", "text last", "reasoning between"],
)
def test_items_of_one_answer_are_in_order(log: Turnlog, answer: list[dict[str, Any]]) -> None:
    session = log.sessions.create("strict", strict=True)
    session.append(user("q"))
    session.append(*answer, format="openai_responses")
    for call_id in ("c2", "c3", "c1"):
        session.append({"type": "function_call_output", "call_id": call_id, "output": "x"}, format="openai_responses")
    session.append(SAID, format="openai_responses")


def test_items_of_one_answer_that_are_appended_one_by_one_are_in_order(log: Turnlog) -> None:
    session = log.sessions.create("strict", strict=True)
    session.append(user("q"))
    for item in (REASONED, SAID, *CALLED):
        session.append(item, format="openai_responses")


def test_answers_of_two_requests_are_consecutive_also_as_items(log: Turnlog) -> None:
    session = log.sessions.create("items")
    session.append(user("q"))
    session.append(SAID, format="openai_responses")
    assert codes(session.append(SAID, format="openai_responses")) == ["consecutive_assistant"]


def test_a_user_message_behind_the_items_of_an_answer_does_not_continue_it(log: Turnlog) -> None:
    session = log.sessions.create("items")
    session.append(user("q"))
    assert codes(session.append(CALLED[0], user("stop"), format="openai_responses")) == ["open_calls"]


def test_results_of_parallel_calls_are_in_order_in_any_order(log: Turnlog) -> None:
    session = log.sessions.create("strict", strict=True)
    session.append(user("q"), assistant(None, ("c1", "f"), ("c2", "f"), ("c3", "f")))
    for call_id in ("c2", "c3", "c1"):
        assert codes(session.append(result(call_id, "x"))) == []


@pytest.mark.parametrize("kind", DISORDER)
def test_a3_a_repeated_append_is_answered_as_the_first_was(log: Turnlog, kind: str) -> None:
    """With its warnings, also when what follows has changed what is open."""
    batches, code = DISORDER[kind]
    session = log.sessions.create("messy")
    for batch in batches[:-1]:
        session.append(*batch)
    options: Any = {"idempotency_key": "k", "usage": {"input_tokens": 9, "output_tokens": 2}, "lenient": True}
    first = session.append(*batches[-1], **options)
    session.append(user("more"))
    again = session.append(*batches[-1], **options)
    assert code in codes(first)
    assert again == first


_OF_OTHER_LIBRARIES: list[tuple[str, dict[str, Any], str, str]] = [
    ("openai_chat", user([{"type": "image", "image": "aGk="}]), "image", "/content/0"),
    ("openai_chat", user([{"type": "text", "text": "a"}, {"type": "video_url", "x": 1}]), "video_url", "/content/1"),
    ("openai_chat", {"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "parts", "/parts"),
    ("anthropic", user([{"type": "image", "image": "aGk="}]), "image", "/content/0"),
    (
        "anthropic",
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c"}]},
        "tool-call",
        "/content/0",
    ),
    (
        "anthropic",
        user([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image_url", "image_url": {}}]}]),
        "image_url",
        "/content/0/content/0",
    ),
    ("bedrock_converse", user([{"type": "tool-call", "toolCallId": "c"}]), "tool-call", "/content/0"),
    ("bedrock_converse", user([{"image": "aGk="}]), "image", "/content/0"),
    (
        "bedrock_converse",
        user([{"toolResult": {"toolUseId": "t", "content": [{"type": "image"}]}}]),
        "image",
        "/content/0/toolResult/content/0",
    ),
    ("openai_responses", {"type": "function_call_result", "callId": "c", "output": "x"}, "function_call_result", ""),
    ("openai_responses", {"type": "function_call", "callId": "c", "name": "f", "arguments": "{}"}, "callId", "/callId"),
    ("openai_responses", user([{"type": "input_image", "image": "aGk="}]), "input_image", "/content/0"),
    ("turnlog", user([{"type": "image", "image": "aGk="}]), "image", "/content/0"),
    ("openai_chat", {"role": "user", "parts": [{"text": "hi"}]}, "parts", "/parts"),
    ("openai_chat", {"role": "tool", "tool_results": [{"result": 1}]}, "tool_results", "/tool_results"),
    ("turnlog", {"role": "tool", "tool_call_id": "c", "content": "x"}, "tool_call_id", "/tool_call_id"),
    *(
        (format, body, name, f"/{name}")
        for format in ("anthropic", "bedrock_converse", "openai_responses")
        for name, body in (
            ("tool_calls", assistant("I look.", ("c", "f"))),
            ("tool_call_id", result("c", "x")),
            ("function_call", {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}}),
        )
    ),
    ("turnlog", user([{"type": "tool-call"}]), "tool-call", "/content/0"),
]


@pytest.mark.parametrize(("format", "body", "name", "pointer"), _OF_OTHER_LIBRARIES)
def test_content_that_no_rule_knows_is_kept_and_named_and_refused_in_a_strict_session(
    log: Turnlog, format: str, body: dict[str, Any], name: str, pointer: str
) -> None:
    session = log.sessions.create("loose")
    values = [
        warning
        for warning in session.append(body, format=format, lenient=True).warnings
        if warning.code == "unknown_content"
    ]
    assert [item.pointer for item in values] == [f"/messages/0{pointer}"]
    assert values[0].message.endswith(f": {name}")
    assert bodies(session) == [body]
    strict = log.sessions.create("strict", strict=True)
    head = strict.info().head
    with pytest.raises(InvalidInputError) as caught:
        strict.append(body, format=format, lenient=True)
    problems = [problem for problem in caught.value.problems if problem.code == "unknown_content"]
    assert [problem.message for problem in problems] == [values[0].message]
    assert strict.info().head == head


def test_only_the_warning_about_unknown_content_names_it(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"})
    unknown = {"type": "hologram", "id": "x"}
    messages = {
        warning.code: warning.message
        for warning in session.append(unknown, format="openai_responses", lenient=True).warnings
    }
    assert messages["unknown_content"].endswith(": hologram")
    assert "hologram" not in messages["open_calls"]


@pytest.mark.parametrize(
    ("format", "body", "name"),
    [
        (None, {"role": "user", "parts": [{"text": "hi"}]}, "parts"),
        ("anthropic", assistant(None, ("c", "f")), "tool_calls"),
        ("bedrock_converse", {**assistant("", ("c", "f")), "content": []}, "tool_calls"),
    ],
)
def test_a_message_with_content_only_in_fields_of_another_format_is_refused_unless_the_caller_is_lenient(
    log: Turnlog, format: str | None, body: dict[str, Any], name: str
) -> None:
    session = log.sessions.create("s")
    with pytest.raises(InvalidInputError, match=f"has no '{name}'.*lenient") as caught:
        session.append(user("a"), body, format=format)
    assert [(problem.code, problem.pointer) for problem in caught.value.problems] == [
        ("invalid_message", f"/messages/1/{name}")
    ]
    assert bodies(session) == []
    assert "unknown_content" in codes(session.append(body, format=format, lenient=True))


def test_a_role_that_no_provider_has_is_refused_unless_the_caller_is_lenient(log: Turnlog) -> None:
    session = log.sessions.create("s")
    with pytest.raises(InvalidInputError, match="unknown role 'usr'; did you mean 'user'") as caught:
        session.append(user("a"), {"role": "usr", "content": "b"})
    assert [(problem.code, problem.pointer) for problem in caught.value.problems] == [
        ("unknown_role", "/messages/1/role")
    ]
    assert bodies(session) == []
    roles = ["system", "developer", "user", "assistant", "tool", "function"]
    session.append(*({"role": role, "content": "x", "name": "f"} for role in roles))
    assert session.append({"role": "usr", "content": "b"}, lenient=True).warnings[0].code == "unknown_role"


@pytest.mark.parametrize("kind", DISORDER)
def test_a7_a_strict_session_refuses_disorder_and_keeps_nothing_of_the_batch(log: Turnlog, kind: str) -> None:
    batches, code = DISORDER[kind]
    session = log.sessions.create("strict", strict=True)
    for batch in batches[:-1]:
        session.append(*batch)
    before = bodies(session)
    with pytest.raises((InvalidInputError, LoopUnfinishedError)) as caught:
        session.append(*batches[-1])
    if isinstance(caught.value, InvalidInputError):
        assert code in [problem.code for problem in caught.value.problems]
    assert bodies(session) == before


@pytest.mark.parametrize(
    ("body", "format"),
    [
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}],
            },
            "openai_chat",
        ),
        ({"type": "custom_tool_call", "call_id": "a", "name": "sh", "input": "ls -l"}, "openai_responses"),
        ({"role": "assistant", "content": None, "audio": {"id": "audio_1", "transcript": "Hi."}}, "openai_chat"),
        (
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            "openai_responses",
        ),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "openai_responses"),
        ({"type": "configuration_update", "reasoning": {"effort": "low"}}, "openai_responses"),
        *(
            ({"role": "assistant", "content": [block, {"type": "text", "text": "Hi."}]}, "anthropic")
            for block in (
                {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
                {"type": "mcp_tool_listing", "mcp_server_name": "docs", "tools": []},
            )
        ),
    ],
)
def test_a_strict_session_takes_what_providers_say_in_their_own_ways(
    log: Turnlog, body: dict[str, Any], format: str
) -> None:
    session = log.sessions.create("strict", strict=True)
    session.append(user("a"))
    assert session.append(body, format=format).warnings == []


def test_a_clean_conversation_has_no_warning_and_passes_a_strict_session(log: Turnlog) -> None:
    session = log.sessions.create("clean", strict=True)
    answers = [
        session.append(user("two cities?")),
        session.append(assistant("Looking.", ("c1", "weather"), ("c2", "weather"))),
        session.append(result("c1", "rain"), result("c2", "sun")),
        session.append(assistant("Rain and sun.")),
        session.append(user("thanks"), assistant("You are welcome.")),
    ]
    assert [codes(answer) for answer in answers] == [[]] * 5
    assert [answer.loop for answer in answers] == [1, 1, 1, 1, 2]
    assert [(ref.ref, ref.call_id) for ref in answers[1].refs] == [("3.0", "c1"), ("3.1", "c2")]


def test_47_parallel_calls_are_paired_although_a_header_holds_16(log: Turnlog) -> None:
    session = log.sessions.create("wide")
    calls = [(f"call-{at}", "f") for at in range(47)]
    session.append(user("go"), assistant(None, *calls))
    answers = [session.append(*[result(call_id, "x") for call_id, _ in calls[at : at + 20]]) for at in (0, 20, 40)]
    assert [codes(answer) for answer in answers] == [[], [], []]
    assert codes(session.append(assistant("done"))) == []
    assert session.context().open_calls == []


def test_a_run_that_meets_another_is_warned_and_refused_when_strict(log: Turnlog, harness: Any) -> None:
    for strict in (False, True):
        session = log.sessions.create(f"runs-{strict}", strict=strict, loop_timeout_seconds=60)
        session.append(user("go"), assistant(None, ("c1", "f")), run_id="run-1")
        if strict:
            with pytest.raises(RunActiveError):
                session.append(result("c1", "x"), run_id="run-2")
        else:
            assert "run_active" in codes(session.append(result("c1", "x"), run_id="run-2"))
        session.append(result("c1", "x") if strict else assistant("done"), run_id="run-1" if strict else "run-2")
        harness.clock.advance(61)
        assert "run_active" not in codes(session.append(user("again"), run_id="run-3"))


def test_a_run_that_began_no_loop_refuses_no_other(log: Turnlog) -> None:
    session = log.sessions.create("s", loop_timeout_seconds=60)
    first = session.append({"role": "system", "content": "Be brief."}, run_id="run-1")
    assert (first.loop, session.info().loops) == (None, 0)
    assert "run_active" not in codes(session.append(user("go"), run_id="run-2"))


def test_a_loop_without_a_run_is_not_that_of_the_run_before(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), assistant("done"), run_id="run-1")
    session.append(user("again"))
    assert "run_active" not in codes(session.append(assistant("done"), run_id="run-2"))


def test_an_unfinished_loop_is_refused_when_strict_until_it_times_out(log: Turnlog, harness: Any) -> None:
    session = log.sessions.create("strict", strict=True, loop_timeout_seconds=60)
    session.append(user("go"), assistant(None, ("c1", "f")), result("c1", "x"))
    with pytest.raises(LoopUnfinishedError):
        session.append(user("hello?"))
    with pytest.raises(LoopUnfinishedError):
        session.append(assistant(None, ("c2", "f")), result("c2", "x"), user("hello?"))
    harness.clock.advance(60)
    with pytest.raises(LoopUnfinishedError):
        session.append(user("hello?"))
    harness.clock.advance(1)
    assert session.append(user("hello?")).loop == 2


def test_two_user_messages_after_a_time_out_open_one_loop(log: Turnlog, harness: Any) -> None:
    session = log.sessions.create("s", loop_timeout_seconds=60)
    session.append(user("go"))
    harness.clock.advance(61)
    assert session.append(user("hello?"), user("anyone?")).loop == 2


@pytest.mark.parametrize("calls", [0, 1, 20])
def test_a_loop_that_timed_out_does_not_lock_a_strict_session(log: Turnlog, harness: Any, calls: int) -> None:
    session = log.sessions.create("strict", strict=True, loop_timeout_seconds=60)
    session.append(user("go"), *([assistant(None, *((f"c{index}", "f") for index in range(calls)))] if calls else ()))
    harness.clock.advance(61)
    late = session.append(user("hello?"))
    assert (late.loop, codes(late)) == (2, ["open_calls" if calls else "consecutive_user"]), "it is said, not refused"
    assert codes(session.append(assistant(None, ("d1", "f")))) == []
    with pytest.raises(InvalidInputError, match="strict"):
        session.append(assistant("done"))
    session.append(result("d1", "x"), assistant("done"))
    assert [loop.status for loop in session.loops()] == ["closed", "interrupted"]


def test_a_strict_session_refuses_a_turn_of_the_loop_while_a_call_is_open(log: Turnlog, harness: Any) -> None:
    session = log.sessions.create("strict", strict=True, loop_timeout_seconds=60)
    session.append(user("go"), assistant(None, ("c1", "f"), ("c2", "f")), result("c2", "x"))
    with pytest.raises(InvalidInputError, match="calls are still open"):
        session.append(user("more"), loop="join")
    harness.clock.advance(61)
    with pytest.raises(InvalidInputError, match="calls are still open"):
        session.append(assistant("done"))


def test_what_was_thought_after_the_reply_is_not_the_reply(log: Turnlog) -> None:
    session = log.sessions.create("one")
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    session.append(user("go"), said, REASONED, format="openai_responses")
    assert next(session.loops()).reply == "done"


def test_a_newest_loop_with_its_final_reply_is_closed(log: Turnlog) -> None:
    session = log.sessions.create("one")
    meta = [{"created_at": f"2020-01-0{day}T12:00:00+02:00"} for day in (1, 2)]
    session.append(user("go"), assistant("done"), meta=meta)
    loop = next(session.loops())
    assert (loop.status, loop.reply) == ("closed", "done")
    assert (loop.started_at, loop.ended_at) == ("2020-01-01T10:00:00.000Z", "2020-01-02T10:00:00.000Z")
    session.append(assistant(None, ("c1", "f")))
    assert (next(session.loops()).status, next(session.loops()).ended_at) == ("open", None), "the agent goes on"
    session.append(assistant("while I wait"))
    assert next(session.loops()).status == "open", "a call still waits for its result"


@pytest.mark.parametrize(
    ("created_at", "started_at"),
    [
        ("2020-01-01", "2020-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00+12:00", "0001-01-01T00:00:00.000Z"),
    ],
)
def test_any_time_of_the_caller_can_be_told(log: Turnlog, created_at: str, started_at: str) -> None:
    session = log.sessions.create("one")
    session.append(user("go"), meta=[{"created_at": created_at}])
    assert next(session.loops()).started_at == started_at
    assert len(session.context(policy="run_loops").messages) > 0


@pytest.mark.parametrize("created_at", ["yesterday", "2026-02-30T00:00:00Z", "1763683200", "None"])
def test_a_time_that_is_none_is_refused(log: Turnlog, created_at: str) -> None:
    session = log.sessions.create("one")
    with pytest.raises(InvalidInputError, match="is not a time") as caught:
        session.append(user("go"), meta=[{"created_at": created_at}])
    assert caught.value.problems[0].pointer == "/meta/0/created_at"


def test_a_stored_time_that_is_none_is_the_commits(log: Turnlog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions stored any text."""
    session = log.sessions.create("one")
    with monkeypatch.context() as patch:
        patch.setattr(incoming, "read_time", lambda text: True)
        session.append(user("go"), meta=[{"created_at": "yesterday"}])
    assert next(session.loops()).started_at > "2020"
    assert [message.created_at for message in session.messages()] == ["yesterday"]
    assert session.context(policy="run_loops").messages


def test_the_callers_times_decide_how_old_a_loop_is_in_a_window(log: Turnlog) -> None:
    session = log.sessions.create("one", policy="run_loops")
    old, recent = ({"created_at": f"2020-01-{day:02d}T00:00:00Z"} for day in (1, 9))
    session.append(user("ancient"), assistant("a"), meta=[old, old])
    session.append(user("recent"), assistant("b"), meta=[recent, recent])
    session.append(user("now"), meta=[recent])
    text = json.dumps(session.context().messages)
    assert "ancient" not in text
    assert "recent" in text


def test_while_an_action_is_pending_the_loop_does_not_time_out(log: Turnlog, harness: Any) -> None:
    session = log.sessions.create("waits", loop_timeout_seconds=60)
    session.append(user("delete it"), assistant(None, ("c1", "delete")), run={"pending_action": {"call": "c1"}})
    harness.clock.advance(3600)
    assert next(session.loops()).status == "open"
    session.append(result("c1", "done"), run={"pending_action": None})
    harness.clock.advance(61)
    assert next(session.loops()).status == "interrupted"


@pytest.mark.parametrize("chars", [9, 9_000, 90_000], ids=["in the commit", "in an item", "in a blob"])
def test_a_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch, chars: int) -> None:
    session, encoded, encode = memory()[0].sessions.create("one"), list[str](), json.JSONEncoder.encode

    def counted(encoder: json.JSONEncoder, value: object) -> str:
        encoded.append(encode(encoder, value))
        return encoded[-1]

    text = f"{random.Random(4711).randbytes(chars).hex()} the end"
    with monkeypatch.context() as patch:
        patch.setattr(json.JSONEncoder, "encode", counted)
        session.append(user(text))
    assert sum("the end" in value for value in encoded) == 1
    assert bodies(session) == [user(text)]


def test_nothing_of_a_refused_batch_is_kept(log: Turnlog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_APPEND_BYTES", 1_048_576)
    session = log.sessions.create("one")
    head = session.info().head
    for wrong in (
        [user("ok"), {"content": "no role"}],
        [user("ok"), {"role": "user", "content": 7}],
        [user("ok"), {"role": "assistant", "content": "x", "tool_calls": "no list"}],
        [user(str(at)) for at in range(26)],
        [],
    ):
        with pytest.raises(InvalidInputError):
            session.append(*wrong)
    with pytest.raises(InvalidInputError):
        session.append(user("a"), meta=[{}, {}])
    with pytest.raises(TooLargeError):
        session.append(user("ok"), user("x" * 1_048_576))
    assert session.info().head == head
    assert bodies(session) == []


def test_what_is_kept_around_a_message_comes_back(log: Turnlog) -> None:
    session = log.sessions.create("one")
    meta = {
        "id": "m-1",
        "status": "interrupted",
        "created_at": "2026-01-02T03:04:05+02:00",
        "author": "planner",
        "pin": True,
        "metadata": {"trace": ["a", 1, None]},
        "finish_reason": "length",
        "is_error": False,
    }
    session.append(user("a"), assistant("par"), meta=[{}, meta])
    stored = list(session.messages())[1].model_dump()
    assert {name: stored[name] for name in meta} == meta


def test_an_interrupted_stream_is_kept_marked_and_stays_out_of_the_window(log: Turnlog) -> None:
    session = log.sessions.create("one", recall="never")
    session.append(user("tell me"))
    session.append(assistant("Once upon"), meta=[{"status": "interrupted"}])
    assert codes(session.append(assistant("Once upon a time."))) == ["consecutive_assistant"]
    assert session.context().messages == [user("tell me"), assistant("Once upon a time.")]
    assert len(bodies(session)) == 3


def test_a_session_that_is_not_there_is_not_found(log: Turnlog) -> None:
    for call in (
        lambda: log.sessions.get("nobody"),
        lambda: log.sessions.of("nobody").append(user("a")),
        lambda: log.sessions.of("nobody").context(),
        lambda: list(log.sessions.of("nobody").messages()),
        lambda: list(log.sessions.of("nobody").loops()),
        lambda: log.sessions.of("nobody").agent(),
    ):
        with pytest.raises(NotFoundError):
            call()
    assert not log.sessions.exists("nobody")


@pytest.mark.parametrize("arguments", ['{"a": NaN}', '{"a": 1, "a": 2}', "[" * 50, "", "{", '{"a": 1e999}'])
def test_loops_show_arguments_that_are_no_json_as_the_text_they_are(log: Turnlog, arguments: str) -> None:
    session = log.sessions.create("odd")
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    session.append(user("q"), {"role": "assistant", "content": None, "tool_calls": [call]})
    assert next(session.loops()).tool_calls[0].arguments == arguments
