"""Rewinds: from one commit on all is as it was before, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Harness
from tests.explorer import ScheduleRun, explore
from tests.support.rewinds import contents, everything, said, seen
from tests.support.scripted import summarise_with
from tests.support.steps import HUGE, LARGE, appending, application, fresh
from tests.support.talks import AMPLE, filled, texts, turn
from tests.support.triggers import POLICY, asks
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import (
    HeadMismatchError,
    IdempotencyMismatchError,
    InvalidInputError,
    NotFoundError,
    PatchError,
    SessionEndedError,
)
from turnlog.core.positions import MAX_HEADER_STRETCHES, VisibleRanges, subtract
from turnlog.ports import BlobStore, ItemTable
from turnlog.testing.fixed import SequentialIds


@pytest.fixture
def rich(harness: Harness) -> Session:
    """Loops, a call that waits, states, other settings, payloads out of line."""
    session = harness.log().sessions.create("s", system="Be brief.", state={"a": 1})
    session.append(*said(1))
    session.patch_state({"b": 2})
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    session.append({"role": "user", "content": "Do it"}, {"role": "assistant", "content": None, "tool_calls": [call]})
    session.append(LARGE, {"role": "assistant", "content": "Done"}, run={"iteration": 1})
    session.update(system="Be long.", policy="run_loops")
    session.put_state({"c": 3})
    session.append(*said(3), {**HUGE, "role": "user"})
    return session


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_at_every_position_all_is_as_it_was_there(rich: Session) -> None:
    for position in range(1, rich.info().head + 1):
        before = everything(rich, at=position)
        result = rich.rewind(position)
        assert result == rich.info()
        assert everything(rich) == before, position
        assert everything(rich, at=position) == before
        head = rich.info().head
        rich.rewind(head - 1)


def test_the_log_keeps_everything_and_later_positions_go_on(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(*said(1), *said(2))
    session.rewind(3)
    answer = session.append(*said(3))
    assert (answer.first, answer.loop) == (7, 2)
    assert contents(session) == [text for n in (1, 2, 3) for text in (f"Question {n}", f"Answer {n}")]
    assert contents(session, in_view=True) == seen(session) == ["Question 1", "Answer 1", "Question 3", "Answer 3"]
    assert contents(session, in_view=True, order="desc") == seen(session)[::-1]
    assert contents(session, at=5) == seen(session, at=5) == ["Question 1", "Answer 1", "Question 2", "Answer 2"]
    assert [(loop.loop, loop.first, loop.last) for loop in session.loops()] == [(2, 7, 8), (1, 2, 3)]
    assert [entry.action for entry in session.history()][2] == "rewind"
    info = session.info()
    assert (info.messages, info.loops, info.head) == (4, 2, 8)


def test_a_repeated_request_says_that_its_messages_were_rewound(log: Turnlog) -> None:
    session = log.sessions.create()
    session.append({"role": "user", "content": "Hi"}, idempotency_key="turn-1")
    question: dict[str, Any] = {"role": "user", "content": "Cancel it"}
    first = session.append({"role": "assistant", "content": "Hello"}, question, idempotency_key="turn-2")
    assert session.append({"role": "assistant", "content": "Hello"}, question, idempotency_key="turn-2") == first
    session.rewind(first.first - 1)
    repeated = session.append({"role": "assistant", "content": "Hello"}, question, idempotency_key="turn-2")
    assert (repeated.first, repeated.last) == (first.first, first.last)
    assert [(warning.code, warning.position) for warning in repeated.warnings] == [("not_in_view", first.first)]
    assert session.append(question, idempotency_key="turn-3").warnings[0].code == "consecutive_user"
    assert session.append({"role": "user", "content": "Hi"}, idempotency_key="turn-1").warnings == []


def test_a_rewind_is_rewound(log: Turnlog) -> None:
    session = log.sessions.create("s")
    for n in range(1, 5):
        session.append(*said(n))
    session.rewind(5)
    session.append(*said(5))
    session.rewind(3)
    assert seen(session) == ["Question 1", "Answer 1"]
    assert session.rewind(9).messages == 8
    assert contents(session, in_view=True) == [text for n in range(1, 5) for text in (f"Question {n}", f"Answer {n}")]
    session.rewind(12)
    assert seen(session)[-2:] == ["Question 5", "Answer 5"], "what was said after the first rewind"
    session.rewind(session.info().head)
    assert seen(session)[-2:] == ["Question 5", "Answer 5"]


def test_to_the_middle_of_a_commit(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.append(*said(1), *said(2), run={"iteration": 7})
    assert session.agent().state["iteration"] == 7
    session.rewind(4)
    assert seen(session) == ["Question 1", "Answer 1", "Question 2"]
    with pytest.raises(NotFoundError):
        session.agent()
    session.append({"role": "assistant", "content": "Another"})
    assert seen(session)[2:] == ["Question 2", "Another"]
    assert [(loop.loop, loop.last) for loop in session.loops()] == [(2, 8), (1, 3)]


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_more_often_than_a_header_has_room_for(harness: Harness) -> None:
    session, wanted = harness.log().sessions.create("s"), list[str]()
    for n in range(2 * MAX_HEADER_STRETCHES + 3):
        session.append({"role": "user", "content": f"kept {n}"}, {"role": "user", "content": f"dropped {n}"})
        wanted.append(f"kept {n}")
        session.rewind(session.info().head - 1)
    assert contents(session, in_view=True) == wanted
    assert contents(session, in_view=True, order="desc") == wanted[::-1]
    assert seen(session) == wanted
    middle = 3 * MAX_HEADER_STRETCHES
    assert contents(session, at=middle) == seen(session, at=middle)
    session.rewind(middle)
    assert contents(session, in_view=True) == contents(session, at=middle)


@pytest.mark.parametrize("keep", [3, 8])
def test_s6_a_rewind_below_a_summary_brings_the_earlier_one_back(harness: Harness, keep: int) -> None:
    session = filled(harness.log(), 6)
    session.compress(keep_loops=1)
    first = session.summary()
    session.append(*turn(7))
    session.append(*turn(8))
    session.compress(keep_loops=1)
    second = session.summary()
    assert second.base == first.position
    window = session.context(at=second.position - 1, budget=AMPLE)
    session.rewind(second.position - 1)
    calls = harness.faults.calls
    assert session.summary() == first
    assert harness.faults.calls - calls == 2, "the log's end, and the cache that the rewind has written"
    assert session.context(budget=AMPLE).messages == window.messages
    session.rewind(first.position - 1)
    assert session.summary() is None
    assert "Question 1" in texts(session.context(budget=AMPLE))
    session.rewind(second.position)
    assert session.summary() == second
    session.append(*turn(9))
    session.append(*turn(10))
    session.compress(keep_loops=1)
    assert session.summary().base == second.position


def test_a_summary_that_was_begun_before_a_rewind_is_not_published_after_it(harness: Harness) -> None:
    session = filled(harness.log(), 6)
    made = harness.app.summariser

    class Rewinding:
        name, is_done = made.name, False

        def summarise(self, request: Any) -> Any:
            if not self.is_done:
                self.is_done = True
                session.rewind(10)
            return made.summarise(request)

    summarise_with(harness.app, Rewinding())
    session.compress(keep_loops=1)
    summary = session.summary()
    assert summary is None or summary.last <= 10


def test_a_summary_that_was_asked_for_before_a_rewind_is_asked_for_again_after_it(harness: Harness) -> None:
    session = harness.log().sessions.create("s", policy=POLICY)
    assert len(asks(session, 5)) == 1
    session.rewind(session.info().head)
    assert asks(session, 1, first=6) == [6]


def test_the_same_call_again_and_calls_that_are_refused(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(*said(1), idempotency_key="a")
    session.append(*said(2))
    with pytest.raises(HeadMismatchError):
        session.rewind(3, if_head=4)
    first = session.rewind(3, if_head=5, idempotency_key="k")
    session.append(*said(3))
    assert session.rewind(3, if_head=5, idempotency_key="k") == first
    assert session.append(*said(1), idempotency_key="a").last == 3, "an append of before the rewind is recognised"
    with pytest.raises(IdempotencyMismatchError):
        session.rewind(2, idempotency_key="k")
    with pytest.raises(InvalidInputError, match="above the head"):
        session.rewind(99)
    with pytest.raises(InvalidInputError, match="'yesterday' is neither a position nor a time"):
        session.rewind("yesterday")
    with pytest.raises(InvalidInputError, match=r"^0 is neither a position from 1 to the head nor a time such as"):
        session.rewind(0)
    with pytest.raises(NotFoundError):
        log.sessions.of("not-there").rewind(1)
    with pytest.raises(NotFoundError):
        harness.log(user="bob").sessions.of("s").rewind(1)
    session.end()
    with pytest.raises(SessionEndedError):
        session.rewind(1)


def test_to_a_time(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.append(*said(1))
    harness.clock.advance(10)
    then = session.info().updated_at
    harness.clock.advance(10)
    session.append(*said(2))
    session.rewind(then)
    assert seen(session) == ["Question 1", "Answer 1"]


def test_diff_names_the_summary_of_each_moment(harness: Harness) -> None:
    session = filled(harness.log(), 5)
    before = session.info().head
    session.compress(keep_loops=1)
    after = session.info().head
    places = [(diff.summary_from, diff.summary_to) for diff in (session.diff(before), session.diff(after, before))]
    assert places == [(None, after), (after, None)]


def test_diff_tells_what_came_and_what_left(rich: Session) -> None:
    head = rich.info().head
    result = rich.diff(3)
    assert [message.position for message in result.messages] == [
        message.position for message in rich.page(after=3).messages
    ]
    assert (result.from_position, result.to_position, result.left) == (3, head, [])
    assert {step["op"] for step in result.state} == {"add", "remove"}
    assert result.settings == ["system", "policy"]
    back = rich.diff(head, 3)
    assert back.messages == []
    assert [(item.first, item.last) for item in back.left] == [(4, head)]
    rich.rewind(3)
    rich.append(*said(9))
    across = rich.diff(head)
    assert [message.position for message in across.messages] == [head + 2, head + 3]
    assert [(item.first, item.last) for item in across.left] == [(4, head)]
    assert rich.diff(3, 3).model_dump(include={"messages", "left", "state", "settings"}) == {
        "messages": [],
        "left": [],
        "state": [],
        "settings": [],
    }


def test_diff_pages(log: Turnlog) -> None:
    session, result, after = log.sessions.create("s"), list[int](), 0
    for n in range(6):
        session.append(*said(n))
    while True:
        page = session.diff(5, after=after, limit=3)
        result += [message.position for message in page.messages]
        if page.next is None:
            break
        after = page.next
    assert result == list(range(6, 14))


def test_v1_requests_do_not_grow_with_rewinds(harness: Harness) -> None:
    if harness.meter is None:
        pytest.skip("requests are metered on moto")
    session = harness.log().sessions.create("s", state={})
    for n in range(6):
        session.append(*said(n))
        session.patch_state({"n": n})
        session.patch_state({"n": -n})
        session.rewind(session.info().head - 1)
        session.append(*said(n))
        session.rewind(session.info().head - 2)

    def requests(call: Any) -> int:
        before = sum(harness.meter.meter.requests.values())
        call()
        return int(sum(harness.meter.meter.requests.values()) - before)

    assert requests(session.state) == 2
    assert requests(lambda: session.append(*said(9))) == 2
    assert requests(lambda: session.context(budget=AMPLE)) == 1


def test_stretches() -> None:
    assert VisibleRanges.decode(VisibleRanges(((1, 5), (9, 12)), 20).encode()) == VisibleRanges(((1, 5), (9, 12)), 20)
    assert VisibleRanges().encode() == ""
    assert VisibleRanges().rewound(7, at=8) == VisibleRanges(), "to the head: nothing leaves"
    assert VisibleRanges().rewound(5, at=8).rewound(9, at=12).closed == ((1, 5), (8, 9))
    assert VisibleRanges().rewound(5, at=8).rewound(3, at=9) == VisibleRanges(((1, 3),), 9)
    many = VisibleRanges(tuple((at, at) for at in range(1, 2 * MAX_HEADER_STRETCHES, 2)), 99)
    assert not many.cut().is_cut
    longer = VisibleRanges(((1, 1), *((at + 2, at + 2) for at, _ in many.closed)), 99).cut()
    assert longer.is_cut
    assert VisibleRanges.decode(longer.encode()) == longer
    assert subtract([(1, 10), (20, 30)], [(3, 4), (8, 22)]) == [(1, 2), (5, 7), (23, 30)]


def rewinding(items: ItemTable, blobs: BlobStore) -> Any:
    return application(items, blobs, SequentialIds(2_000)).sessions.of("s").rewind(2)


def test_d2_every_order_of_a_rewind_and_an_append() -> None:
    """The append comes before the rewind, and then it has left the view, or after it. It is in the log in any case."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = application(items, blobs, SequentialIds(10**9)).sessions.get("s")
        (at,) = (int(item.history_id) for item in session.history(action="rewind"))
        everything = [message.position for message in session.messages()]
        shown = [message.position for message in session.messages(in_view=True)]
        assert len(everything) == 3
        assert shown == [2, *(position for position in everything if position > at)]
        assert session.info().messages == len(shown)

    def prepare(log: Turnlog) -> None:
        log.sessions.create("s").append({"role": "user", "content": "1"}, {"role": "user", "content": "2"})

    assert explore([appending(1_000, "a"), rewinding], fresh(prepare), check) >= 6


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_d7_a_replay_is_the_state_at_every_position_and_time(rich: Session) -> None:
    rich.rewind(5)
    rich.patch_state({"d": 4})
    fork = rich.fork("fork", at=6)
    fork.patch_state([{"op": "add", "path": "/of", "value": "fork"}])
    for session in (rich, fork):
        for entry in list(session.history()):
            position = int(entry.history_id)
            result = session.replay(until=position)
            assert (result.position, result.state) == (position, session.state(at=position).state)
            by_time = session.replay(until=entry.created_at)
            assert by_time.state == session.state(at=entry.created_at).state
    assert rich.replay().changes == 3, "what was taken back is not counted"


def test_a_replay_on_another_beginning(log: Turnlog) -> None:
    session = log.sessions.create("s", state={"lang": "en"})
    session.patch_state({"cart": 1})
    assert session.replay(base_state={"lang": "zh"}).state == {"lang": "zh", "cart": 1}
    session.patch_state([{"op": "replace", "path": "/lang", "value": "fr"}])
    with pytest.raises(PatchError):
        session.replay(base_state={})
    with pytest.raises(InvalidInputError):
        session.replay(until="yesterday")


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_going_back_to_a_silent_moment_is_an_activity(harness: Harness) -> None:
    session = harness.log().sessions.create("s", inactive_after_minutes=2880, ttl_days=3)
    session.append(*said(1))
    harness.clock.advance(2.5 * 24 * 3600)
    assert harness.app.retain_sessions().timed_out == 1
    silent = session.info()
    assert silent.status == "inactive"
    session.append(*said(2))
    back = session.rewind(silent.head)
    assert (back.status, back.messages) == ("active", 2)
    assert back.expires_at > silent.expires_at
    harness.clock.advance(2 * 24 * 3600)
    assert seen(session) == ["Question 1", "Answer 1"], "it lives on"


@pytest.mark.parametrize("to", [4, 5])
def test_all_loops_are_listed_after_a_rewind_into_a_commit_of_several_loops(log: Turnlog, to: int) -> None:
    session = log.sessions.create("s")
    session.append(*said(1), *said(2), *said(3), *said(4))  # 2 to 9
    session.rewind(to)
    session.append(*said(2)[to - 4 :])
    for number in range(3, 28):
        session.append(*said(number))
        positions = dict[int, list[int]]()
        for message in session.messages(in_view=True):
            positions.setdefault(message.loop or 0, []).append(message.position)
        listed = {loop.loop: (loop.first, loop.last) for loop in session.loops()}
        assert listed == {loop: (own[0], own[-1]) for loop, own in positions.items()}
