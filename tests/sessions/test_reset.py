"""A reset: the session ends, and one fresh session of its settings is in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Harness
from tests.explorer import Crash, ScheduleRun, explore
from tests.support.steps import application, fresh
from turnlog.client.model import Turnlog
from turnlog.core.errors import IdempotencyMismatchError, NotFoundError, SessionEndedError, TurnlogError
from turnlog.ports import BlobStore, ItemTable
from turnlog.testing.fixed import SequentialIds

ASK = {"role": "user", "content": "And now?"}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
POLICY = {"steps": [{"step": "loops", "max": 1}]}


def test_the_fresh_one_has_the_settings_and_nothing_else(harness: Harness) -> None:
    log = harness.log()
    schema = {"properties": {"a": {"type": "integer"}}}
    old = log.sessions.create(
        "s", title="T", system="Old.", tools=[TOOL], strict=True, state={"a": 1}, state_schema=schema, model="gpt-4o"
    )
    old.update(system="Be brief.", policy=POLICY, metadata={"m": [1]}, loop_timeout_seconds=60, output_reserve=9)
    old.append(ASK, run={"iteration": 1})
    new = old.reset()
    ended, info = old.info(), new.info()
    assert (ended.status, ended.head, ended.reset_of) == ("ended", 5, None)
    same = ("user", "title", "policy", "model", "recall", "metadata", "schema_version")
    assert [info[name] for name in same] == [ended[name] for name in same]
    assert (info.status, info.head, info.messages, info.reset_of) == ("active", 1, 0, "s")
    assert new.state().state == {}
    with pytest.raises(SessionEndedError):
        old.append(ASK)
    new.append(ASK)
    windows = [value.context() for value in (old, new)]
    assert windows[0].messages == windows[1].messages
    assert windows[0].tools == windows[1].tools
    assert windows[0].manifest.budget == windows[1].manifest.budget
    assert {item.session_id: (item.status, item.reset_of) for item in log.sessions.list()} == {
        "s": ("ended", None),
        new.id: ("active", "s"),
    }
    again = new.reset()
    assert (again.info().reset_of, new.info().status, len(list(log.sessions.list()))) == (new.id, "ended", 3)


def test_the_fresh_one_of_a_fork_is_no_fork(log: Turnlog) -> None:
    info = log.sessions.create("s").fork("forked").reset().info()
    assert (info.reset_of, info.forked_from, info.forked_at) == ("forked", None, None)


def test_a_session_has_one_in_its_place_however_often_it_is_asked_for(log: Turnlog) -> None:
    session = log.sessions.create("s")
    first = session.reset(idempotency_key="k")
    first.append(ASK)
    assert {session.reset(idempotency_key="k").id, session.reset().id, session.reset(idempotency_key="another").id} == {
        first.id
    }
    assert session.info().head == 2
    assert first.info().messages == 1
    with pytest.raises(IdempotencyMismatchError):
        session.end(idempotency_key="k")
    with pytest.raises(NotFoundError):
        log.sessions.of("not-there").reset()


def test_one_that_has_ended_is_begun_anew_with_the_settings_that_it_has_now(log: Turnlog) -> None:
    session = log.sessions.create("s", title="Old")
    session.end()
    session.update(title="New")
    assert session.reset().info().title == "New"
    assert session.info().head == 3


def _resetting(start: int) -> Callable[[ItemTable, BlobStore], Any]:
    return lambda items, blobs: application(items, blobs, SequentialIds(start)).sessions.of("s").reset().id


def _appending(items: ItemTable, blobs: BlobStore) -> Any:
    return application(items, blobs, SequentialIds(3000)).sessions.of("s").append(ASK)


def _one_in_its_place(items: ItemTable, blobs: BlobStore) -> Turnlog:
    log = application(items, blobs, SequentialIds(10**9))
    old, new = sorted(log.sessions.list(), key=lambda item: item.session_id != "s")
    assert (old.status, new.status, new.reset_of) == ("ended", "active", "s")
    (entry,) = log.sessions.get("s").history(action="end")
    assert all(message.position < entry.first for message in log.sessions.get("s").messages())
    return log


def test_every_order_of_two_resets_makes_one() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert run.results[0] == run.results[1]
        _one_in_its_place(items, blobs)

    explore([_resetting(1000), _resetting(2000)], fresh(lambda log: log.sessions.create("s")), check, max_preemptions=1)


@pytest.mark.parametrize("after", [False, True])
def test_every_order_of_an_append_and_a_reset_that_crashes_and_is_tried_again(after: bool) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        _resetting(5000)(items, blobs)
        log, appended = _one_in_its_place(items, blobs), run.results[1]
        assert not isinstance(appended, TurnlogError) or appended.error_code == "session_ended"
        if not isinstance(appended, BaseException):
            assert [message.position for message in log.sessions.get("s").messages()] == [appended.first]

    for at in range(1, 9):
        operations = [_resetting(1000), _appending]
        explore(
            operations,
            fresh(lambda log: log.sessions.create("s")),
            check,
            crash=Crash(0, at, after),
            max_preemptions=1,
        )
