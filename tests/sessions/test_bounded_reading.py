"""What a window, and an append with results, read of a long session is bounded: they cost no more after more writes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pytest

from tests.support.chat_messages import assistant, user
from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError
from turnlog.core.events import Event
from turnlog.engines import sqlite_tables
from turnlog.log import commit, headers, read_lines
from turnlog.log.commit_items import MAX_EVENTS
from turnlog.providers import openai_chat
from turnlog.sessions import append, messages, session_history
from turnlog.windows.plan import WindowPlan


@pytest.fixture
def session() -> Iterator[Session]:
    with Turnlog.open("memory://", worker=False) as log:  # its worker would read events, too
        yield log.sessions.create("s")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each message that is parsed."""
    seen, parse = list[int](), openai_chat.OpenAIChatCodec.parse

    def counted(self: openai_chat.OpenAIChatCodec, *arguments: object, **options: object) -> object:
        seen.append(1)
        return parse(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(openai_chat.OpenAIChatCodec, "parse", counted)
    return seen


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The position of each event that is decoded."""
    positions, read_event = list[int](), read_lines.read_event

    def counted(line: Mapping[str, Any], **place: Any) -> Event:
        positions.append(place["position"])
        return read_event(line, **place)

    monkeypatch.setattr(commit, "read_event", counted)
    return positions


def talk(session: Session, count: int) -> None:
    session.append(*({"role": ("user", "assistant")[n % 2], "content": f"m{n}"} for n in range(count)))


def call_of(number: int) -> dict[str, object]:
    function = {"name": "f", "arguments": "{}"}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "function": function}]}


def test_a_window_considers_the_newest_messages_and_says_that_older_ones_are_unread(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_history, "MAX_WINDOW_MESSAGES", 30)
    for _ in range(5):
        talk(session, 20)
    window = session.context(budget=1_000_000, policy="full")
    assert [message["content"] for message in window.messages][-30:] == [f"m{n % 20}" for n in range(70, 100)]
    assert [part.kind for part in window.manifest.parts].count("older") == 1
    assert sum(part.level == "whole" and part.kind == "loop" for part in window.manifest.parts) == 15


def test_a_window_reads_a_number_of_pages(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        session.append({"role": "user", "content": f"m{number}"})
    monkeypatch.setattr(session_history, "MAX_PAGES", 2)
    monkeypatch.setattr(sqlite_tables, "MAX_PAGE_BYTES", 2_048)
    window = session.context(budget=1_000_000, policy="full")
    assert 5 < len([message for message in window.messages if str(message["content"]).startswith("m")]) < 30
    assert [part.kind for part in window.manifest.parts].count("older") == 1


@pytest.mark.parametrize("others", ["all", "answers", "nothing"])
def test_an_agent_within_a_call_has_all_that_it_sees_from_many_pages(
    session: Session, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    for number in range(20):
        session.append(*({"role": role, "content": f"{role} {number}"} for role in ("user", "assistant")))
    result = {"role": "tool", "tool_call_id": "c99", "content": "42"}
    session.append(
        {"role": "user", "content": "user look"}, call_of(99), result, {"role": "assistant", "content": "so"}
    )
    call = session.append({"role": "user", "content": "go"}, call_of(1)).head
    parent = {"ref": f"{call}.0", "agent_id": "helper"}
    for number in range(20):
        session.append({"role": ("user", "assistant")[number % 2], "content": f"own {number}"}, parent=parent)
    monkeypatch.setattr(sqlite_tables, "MAX_PAGE_BYTES", 2_048)
    window = session.context(budget=100_000, policy="full", parent={**parent, "others": others})
    shown = [str(message["content"]) for message in window.messages]
    assert sum(text.startswith("own") for text in shown) == 20
    assert sum(text.startswith(("user", "assistant")) for text in shown) == (0 if others == "nothing" else 41)
    assert [message.get("tool_call_id") for message in window.messages].count("c99") == (others == "all")


@pytest.mark.parametrize("ref", ["999.0", "2.0", "3.1"])
def test_a_window_within_a_call_that_is_not_in_view_is_refused(session: Session, ref: str) -> None:
    call = session.append({"role": "user", "content": "go"}, call_of(1)).head
    assert call == 3 and session.context(parent={"ref": "3.0", "agent_id": "helper"}).messages is not None
    with pytest.raises(InvalidInputError, match=f"no call {ref} is in view"):
        session.context(parent={"ref": ref, "agent_id": "helper"})
    session.rewind(to=2)
    with pytest.raises(InvalidInputError, match=r"no call 3\.0 is in view"):
        session.context(parent={"ref": "3.0", "agent_id": "helper"})


def test_windows_of_more_messages_than_are_read_begin_as_before_but_for_a_few(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest message that is read moves in steps, so a prompt cache works at this length, too."""
    monkeypatch.setattr(session_history, "MAX_WINDOW_MESSAGES", 100)
    before, epochs = list[object](), list[str]()
    for turn in range(80):
        session.append({"role": "user", "content": f"m{turn}"})
        window = session.context(budget=1_000_000)
        if epochs and window.manifest.epoch.id == epochs[-1]:
            assert window.messages[: len(before)] == before
        before, _ = window.messages, epochs.append(window.manifest.epoch.id)
        session.append({"role": "assistant", "content": f"answer {turn}"})
        assert 95 <= len(window.messages) <= 102 or 2 * turn < 100
    assert len(set(epochs)) == 1 + -(-(2 * 80 - 100) // 5)


def test_a_window_parses_no_more_messages_after_more_appends(
    session: Session, monkeypatch: pytest.MonkeyPatch, parsed: list[int]
) -> None:
    monkeypatch.setattr(session_history, "MAX_WINDOW_MESSAGES", 30)
    counts = list[int]()
    for _ in range(4):
        for _ in range(3):
            talk(session, 20)
        parsed.clear()
        session.context(budget=1_000_000)
        counts.append(len(parsed))
    assert len(set(counts)) == 1


@pytest.mark.parametrize("in_commit", [1, 2, 24])
@pytest.mark.parametrize("last", [1, 24])
def test_a_page_decodes_what_it_holds_and_a_commit_or_two(
    session: Session, decoded: list[int], in_commit: int, last: int
) -> None:
    for _ in range(480 // in_commit):
        talk(session, in_commit)
    talk(session, last)
    for order in ("asc", "desc"):
        for limit in (1, 10, 100):
            decoded.clear()
            assert len(session.page(limit=limit, order=order).messages) == limit
            assert len(decoded) <= limit + 3 * MAX_EVENTS
    decoded.clear()
    loops = len(list(session.loops()))
    assert loops == len({message.loop for message in session.messages()})
    assert len(decoded) <= 5 * session.info().messages


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("view", [{}, {"in_view": True}, {"at": 401}])
def test_all_pages_together_decode_each_commit_a_few_times(
    session: Session, decoded: list[int], order: Literal["asc", "desc"], view: dict[str, Any]
) -> None:
    talk(session, 10)
    session.rewind(to=1)
    while session.info().head < 400:
        session.append({"role": "user", "content": "m"})
    session.append({"role": "user", "content": "m"})
    decoded.clear()
    pages, place = [session.page(limit=20, order=order, **view)], "after" if order == "asc" else "before"
    while pages[-1].next is not None:
        pages.append(session.page(limit=20, order=order, **{place: pages[-1].next}, **view))
    positions = [message.position for page in pages for message in page.messages]
    assert sorted(positions) == [*(range(2, 12) if not view else ()), *range(13, 402)]
    assert len(decoded) <= 3 * len(positions)
    assert [message.position for message in session.page(after=50, before=53, order=order, **view).messages] == (
        [51, 52] if order == "asc" else [52, 51]
    )


@pytest.mark.parametrize("change", ["rewind", "redact", "compress"])
def test_a_window_behind_a_change_parses_what_its_budget_has_room_for(
    session: Session, parsed: list[int], change: str
) -> None:
    """Commits of 25 messages stand before some of one, so the newest ones say nothing of what a page of others has."""
    for _ in range(40):
        talk(session, 24)
    session.append({"role": "user", "content": "pad " * 400})
    session.context(budget=1_000)
    for number in range(5):
        session.append({"role": ("assistant", "user")[number % 2], "content": f"n{number}"})
    if change == "rewind":
        session.rewind(to=session.info().head - 1)
    elif change == "redact":
        session.redact(session.info().head)
    else:
        assert session.compress(keep_loops=400).status == "published"
    parsed.clear()
    session.context(budget=1_000)
    assert len(parsed) < 400


@pytest.mark.parametrize("pinned", [1, headers.MAX_PINNED, headers.MAX_PINNED + 1])
def test_what_is_pinned_is_in_every_window_however_old(session: Session, pinned: int) -> None:
    for number in range(pinned):
        session.append({"role": "user", "content": f"pinned {number}"}, meta=[{"pin": True}])
        talk(session, 2)
    for _ in range(60):
        talk(session, 20)
    for _ in range(3):  # a process knows the pinned messages after its first window
        shown = [message["content"] for message in session.context(budget=2_000).messages]
        assert [text for text in shown if "pinned" in str(text)] == [f"pinned {number}" for number in range(pinned)]
        talk(session, 2)


@pytest.mark.parametrize("turns_before", [0, 60])
def test_a_pinned_result_is_in_every_window_with_its_call(session: Session, turns_before: int) -> None:
    """Its call may be in a loop long before its own."""
    result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    session.append({"role": "user", "content": "go"}, call_of(1))
    for _ in range(turns_before):
        talk(session, 20)
    session.append(result, meta=[{"pin": True}])
    for _ in range(60 - turns_before):
        talk(session, 20)
    window = session.context(budget=2_000)
    assert {"tool", "assistant"} <= {message["role"] for message in window.messages}
    assert result in window.messages


def test_system_messages_at_the_beginning_are_in_every_window(session: Session) -> None:
    session.append({"role": "system", "content": "be brief"}, {"role": "system", "content": "be kind"})
    for _ in range(60):
        talk(session, 20)
    window = session.context(budget=2_000)
    assert [message["content"] for message in window.messages if message["role"] == "system"][-2:] == [
        "be brief",
        "be kind",
    ]


def test_a_pinned_message_that_was_rewound_is_gone(session: Session) -> None:
    talk(session, 2)
    session.append({"role": "user", "content": "pinned"}, meta=[{"pin": True}])
    session.rewind(to=3)
    for _ in range(60):
        talk(session, 20)
    assert "pinned" not in str(session.context(budget=2_000).messages)


def test_a_window_considers_the_newest_calls_and_the_message_that_opens_their_loop(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_history, "MAX_CALLS", 10)
    session.append({"role": "user", "content": "go"})
    for start in range(0, 60, 20):
        session.append(*map(call_of, range(start, start + 20)))
    window = session.context(budget=1_000_000, policy="full", answer_open_calls=True)
    calls = [call["id"] for message in window.messages for call in message.get("tool_calls") or ()]
    assert calls == [f"c{n}" for n in range(50, 60)]
    assert "go" in [message["content"] for message in window.messages]


@pytest.mark.parametrize("budget", [400, 1_000, 1_000_000])
def test_the_message_that_opens_a_long_loop_is_in_every_window(
    session: Session, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(session_history, "MAX_WINDOW_MESSAGES", 30)
    session.append({"role": "user", "content": "go"})
    for number in range(40):
        session.append(call_of(number), {"role": "tool", "tool_call_id": f"c{number}", "content": "done " * 10})
        assert "go" in [message["content"] for message in session.context(budget=budget).messages]


def test_an_append_of_a_result_parses_no_more_messages_after_more_calls(
    session: Session, monkeypatch: pytest.MonkeyPatch, parsed: list[int]
) -> None:
    monkeypatch.setattr(append, "MAX_WINDOW_MESSAGES", 30)
    session.append({"role": "user", "content": "go"})
    counts, sent = list[int](), 0
    for _ in range(4):
        for _ in range(3):
            session.append(*map(call_of, range(sent, sent + 20)))
            sent += 20
        parsed.clear()
        answer = session.append({"role": "tool", "tool_call_id": f"c{sent - 5}", "content": "r"})
        assert [warning.code for warning in answer.warnings] == ["result_out_of_order"]
        counts.append(len(parsed))
    assert max(counts) <= counts[0] + 1


def test_loops_are_read_up_to_a_number_of_messages(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_WINDOW_MESSAGES", 40)
    monkeypatch.setattr(messages, "_PAGE_COMMITS", 2)
    for _ in range(6):
        talk(session, 20)
    loops = list(session.loops())
    assert [loop.loop for loop in loops] == list(range(60, 0, -1)), "each loop once"
    assert not any(loop.partial for loop in loops)


def test_a_loop_that_is_too_long_to_be_read_says_so(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_WINDOW_MESSAGES", 40)
    monkeypatch.setattr(messages, "_PAGE_COMMITS", 2)
    talk(session, 2)
    session.append({"role": "user", "content": "go"})
    for start in range(0, 100, 20):
        session.append(*map(call_of, range(start, start + 20)))
    loop, older = session.loops()
    assert (loop.loop, loop.partial, older.loop, older.partial) == (2, True, 1, False)
    assert [call.call_id for call in loop.tool_calls] == [f"c{n}" for n in range(60, 100)]


def test_a_loop_of_which_only_an_agents_messages_are_read_has_them(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_WINDOW_MESSAGES", 3)
    monkeypatch.setattr(messages, "_PAGE_COMMITS", 1)
    monkeypatch.setattr(messages, "MAX_EVENTS", 1)
    session.append({"role": "user", "content": "go"}, call_of(0))
    ref = f"{session.info().head}.0"
    for number in range(9):
        session.append({"role": "user", "content": f"n{number}"}, parent={"ref": ref, "agent_id": "sub"})
    (loop,) = session.loops()
    assert (loop.loop, loop.partial, loop.user_message, loop.tool_calls) == (1, True, None, [])
    (nested,) = loop.nested
    assert (loop.first, loop.last) == (nested.first, nested.last)
    assert (nested.parent, nested.status, nested.last) == (ref, "open", session.info().head)


@pytest.mark.parametrize("at", [3, 4, 5])
def test_what_is_pinned_before_a_fork_is_in_every_window_of_it(session: Session, at: int) -> None:
    """The fork shares a part of the commit that holds the pinned message."""
    talk(session, 2)
    session.append({"role": "user", "content": "pinned"}, *talks(2), meta=[{"pin": True}, {}, {}])
    fork = session.fork(at=at)
    for _ in range(60):
        talk(fork, 20)
    assert str(fork.context(budget=2_000).messages).count("'pinned'") == (at > 3)


def talks(count: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": f"m{n}"} for n in range(count)]


def test_many_rewinds_hide_nothing_from_a_window(session: Session) -> None:
    """A header names the last 16 of them only."""
    for _ in range(4):
        talk(session, 24)
    session.append({"role": "user", "content": "What now?"})
    expected = session.context(budget=1_000).messages
    for _ in range(40):
        session.rewind(to=96 + 1)
        session.append({"role": "user", "content": "What now?"})
        assert session.context(budget=1_000).messages == expected


@pytest.mark.parametrize("way", ["fork", "rewind", "redact", "state"])
def test_a_first_page_without_messages_hides_no_question(session: Session, way: str) -> None:
    for number in range(6):
        session.append(user(f"question {number}"), meta=[{"pin": number == 0}])
        session.append({"role": "assistant", "content": f"answer {number}"}, meta=[{"pin": number == 1}])
    session.append(user("the newest"))
    session.context()
    head, changed = session.info().head, session
    for number in range(170 if way == "state" else 1):
        session.patch_state({"a": number})
    if way == "fork":
        changed = session.fork("fork")
    elif way == "rewind":
        session.append({"role": "assistant", "content": "bad"})
        session.rewind(head + 1)
    elif way == "redact":
        session.context()
        session.redact(3)
    window = changed.context(policy="turns(0)")
    assert window.messages[-1]["content"] == "the newest"
    assert changed.context(build=window.manifest.build).messages == window.messages


@pytest.mark.parametrize("has_summary", [False, True])
def test_a_chain_of_forks_hides_nothing_from_a_window(session: Session, has_summary: bool) -> None:
    for _ in range(20):
        talk(session, 20)
    if has_summary:
        session.compress(mode="sync")
    covered = session.info().summary_to or 0
    assert bool(covered) == has_summary
    for _ in range(20):
        talk(session, 2)
        session = session.fork()
        said = [message.body for message in session.messages() if message.position > covered]
        assert session.context(budget=100_000).messages[-len(said) :] == said


def test_a_fork_without_messages_has_windows(session: Session) -> None:
    fork = session.fork(at=1)
    first = fork.context().messages
    assert fork.context().messages == first
    fork.append({"role": "user", "content": "Hello"})
    assert "Hello" in str(fork.context().messages)


@pytest.mark.parametrize("seed", [3, 5, 9, 10, 13])
def test_a_window_behind_forks_is_that_of_one_session_with_the_same_messages(seed: int) -> None:
    choices = random.Random(seed)
    with Turnlog.open("memory://", worker=False) as log:
        fork, whole = log.sessions.create("s"), log.sessions.create("whole")
        for number in range(choices.choice([2, 3, 5, 9, 14])):
            for turn in range(choices.choice([0, 1, 1, 3])):
                text = f"{number}.{turn}" + " word" * choices.choice([1, 60, 300])
                fork.append(user(text))
                fork.append(assistant(text))
            fork = fork.fork()
        fork.append(user("And now?"))
        for message in fork.messages():
            whole.append(message.body)
        for budget in (500, 900, 2_000, 5_000, 100_000):
            expected, window = whole.context(budget=budget), fork.context(budget=budget)
            assert (window.messages, window.tokens) == (expected.messages, expected.tokens), budget


def test_a_chain_of_more_forks_than_python_nests_calls_is_read_and_planned_in_a_few_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans, make = list[int](), WindowPlan.of
    monkeypatch.setattr(WindowPlan, "of", lambda *args: plans.append(1) or make(*args))
    with Turnlog.open("memory://", worker=False) as log:
        session = log.sessions.create("s")
        for number in range(520):
            session.append(user(f"question {number}"), assistant(f"answer {number}"))
            session = session.fork()
        plans.clear()
        assert session.context(budget=6_000).tokens > 4_000
        assert len(plans) < 20
        assert len(list(session.messages())) == 1_040
        assert session.page(after=1, limit=1).messages[0].body == user("question 0")
        assert session.context(at=3).messages == [user("question 0"), assistant("answer 0")]
        session.redact(2)
        assert "question 0" not in repr(list(session.messages()))
