"""Sessions that end: nothing more is said in them, and everything in them is read as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Harness
from tests.explorer import Crash, ScheduleRun, explore
from tests.support.steps import application, fresh
from tests.support.talks import filled
from turnlog.client.model import Turnlog
from turnlog.core.errors import IdempotencyMismatchError, NotFoundError, SessionEndedError, TurnlogError
from turnlog.log.caches import LISTING_MS
from turnlog.ports import BlobStore, ItemTable
from turnlog.testing.fixed import SequentialIds

ASK, ANSWER = {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "All is well."}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "needle in the result"}


def test_an_ended_session_says_so_and_takes_no_more(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", strict=True)
    session.append(ASK, CALLS, run={"pending_action": {"call_id": "c1"}})
    result = session.end()
    assert (result.status, result.head, result.messages) == ("ended", 5, 2)
    assert session.info() == result
    assert [item.status for item in log.sessions.list()] == ["ended"]
    refused: list[Callable[[], object]] = [
        lambda: session.append(RESULT),
        lambda: session.append(RESULT, if_head=5),
        lambda: session.append(RESULT, if_head=2, idempotency_key="behind"),
        lambda: session.append(ASK, run={"iteration": 1}),
        lambda: session.put_state({}),
        lambda: session.patch_state({"a": 1}),
        lambda: session.patch_agent({"iteration": 1}),
        lambda: session.decide_pending("approve"),
        lambda: session.decide_pending("reject"),
    ]
    for refuse in refused:
        with pytest.raises(SessionEndedError) as caught:
            refuse()
        assert caught.value.error_code == "session_ended"
    assert session.info() == result


def test_all_of_it_is_read_as_before(harness: Harness) -> None:
    session = harness.log().sessions.create("s", state={"a": 1})
    (ref,) = session.append(ASK, CALLS, RESULT).refs

    def read() -> list[Any]:
        return [
            session.context().messages,
            session.context(at=4).model_dump(),
            [message.model_dump() for message in session.messages()],
            session.recall(ref.ref).model_dump(),
            session.search("needle").model_dump(),
            session.state(),
        ]

    before, window = read(), session.context()
    session.end()
    assert read() == before
    assert session.context(build=window.manifest.build).model_dump() == window.model_dump()
    assert next(session.history()).action == "end"


def test_what_is_told_of_a_session_may_still_change(harness: Harness) -> None:
    session = filled(harness.log(), 6)
    session.end()
    assert session.update(title="Done").status == "ended"
    session.record("rated", metadata={"stars": 5})
    session.compress(keep_loops=1)
    session.create_snapshot("last")
    harness.clock.advance(LISTING_MS / 1000)
    assert [(item.status, item.title) for item in harness.log().sessions.list()] == [("ended", "Done")]
    with pytest.raises(SessionEndedError):
        session.append(ASK)


@pytest.mark.parametrize(("last", "status"), [(ANSWER, "closed"), (CALLS, "interrupted")])
def test_the_open_loop_is_closed_by_the_end(log: Turnlog, last: dict[str, Any], status: str) -> None:
    session = log.sessions.create("s")
    session.append(ASK, ANSWER, ASK, last)
    assert [loop.status for loop in session.loops()] == ["closed" if status == "closed" else "open", "closed"]
    session.end()
    assert [loop.status for loop in session.loops()] == [status, "closed"]


def test_ending_twice_is_one_end(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(ASK, idempotency_key="a")
    first = session.end(idempotency_key="k")
    assert [session.end(idempotency_key="k"), session.end(), session.end(idempotency_key="another")] == [first] * 3
    assert session.info().head == 3
    assert session.append(ASK, idempotency_key="a").last == 2, "an append of before the end is recognised"
    with pytest.raises(IdempotencyMismatchError):
        session.end(idempotency_key="a")
    with pytest.raises(NotFoundError):
        log.sessions.of("not-there").end()


def _appending(items: ItemTable, blobs: BlobStore) -> Any:
    return application(items, blobs, SequentialIds(1000)).sessions.of("s").append(ASK, ANSWER)


def _ending(start: int = 2000) -> Callable[[ItemTable, BlobStore], Any]:
    return lambda items, blobs: application(items, blobs, SequentialIds(start)).sessions.of("s").end()


def _is_over(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
    """Nothing stands behind the end, and what was acknowledged stands before it."""
    log = application(items, blobs, SequentialIds(10**9))
    session = log.sessions.get("s")
    appended = run.results[0]
    assert not isinstance(appended, TurnlogError) or appended.error_code == "session_ended"
    stored = [message.position for message in session.messages()]
    if not isinstance(appended, BaseException):
        assert stored == [appended.first, appended.last]
    elif isinstance(appended, TurnlogError):
        assert stored == []
    assert session.info().status == "ended"
    (entry,) = session.history(action="end")
    assert all(position < entry.first for position in stored)
    assert [item.status for item in log.sessions.list()] == ["ended"]


def test_every_order_of_an_append_and_an_end() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not isinstance(run.results[1], BaseException)
        _is_over(run, items, blobs)

    assert explore([_appending, _ending()], fresh(lambda log: log.sessions.create("s")), check) >= 6


@pytest.mark.parametrize("after", [False, True])
def test_every_order_with_a_crash_of_the_one_that_ends_it(after: bool) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        _ending(5000)(items, blobs)
        _is_over(run, items, blobs)

    for at in (1, 2, 3):
        operations = [_appending, _ending()]
        explore(operations, fresh(lambda log: log.sessions.create("s")), check, crash=Crash(1, at, after))


def test_every_order_of_two_ends_is_one_end() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert run.results[0] == run.results[1]
        assert run.results[0].head == 2

    explore([_ending(1000), _ending(2000)], fresh(lambda log: log.sessions.create("s")), check)
