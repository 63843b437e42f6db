"""E1, D2: erasing a session among other requests of it, in every order, with crashes; and what a stale writer finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.effort import is_full
from tests.explorer import Crash, ScheduleRun, explore
from tests.log.everything import local_blobs, places_of, sqlite_items
from tests.support.erase_orders import (
    PREEMPTIONS,
    Operation,
    at_s,
    erasing,
    holds_nothing,
    is_gone,
    session_of,
    with_queue,
)
from tests.support.erasing import CANARY, KEYS, noise
from tests.support.steps import fresh
from tests.support.talks import turn
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import NotFoundError, SessionExistsError, TurnlogError
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable


def sweep(items: ItemTable, blobs: BlobStore) -> None:
    """What the job does at last, however often it was interrupted."""
    app, _ = with_queue(items, blobs, 10**9)
    app.erasure.erase(KEYS)


def prepared(log: Turnlog) -> None:
    session = log.sessions.create("s", title=CANARY, state={"a": CANARY})
    session.append(*turn(1), *turn(2), *turn(3))


def forked(session: Session) -> Session:
    return session.fork("child")


def test_d2_every_order_of_erasing_a_session_and_forking_it() -> None:
    """A fork that is there has the whole of what it shares; one that came too late is none."""
    before: list[Any] = []

    def prepare(log: Turnlog) -> None:
        log.sessions.create("s", title=CANARY).append({"role": "user", "content": CANARY})
        before[:] = [message.body for message in log.sessions.get("s").messages()]

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        made = run.results[0]
        assert not isinstance(made, BaseException) or isinstance(made, NotFoundError | SessionExistsError), made
        assert not isinstance(run.results[1], BaseException), run.results[1]
        sweep(items, blobs)
        is_gone(items, blobs)
        child = Turnlog(session_of(items, blobs, 10**7).backend).sessions
        if isinstance(made, BaseException):
            assert not child.exists("child")
        else:
            assert [message.body for message in child.get("child").messages()] == before
            app, _ = with_queue(items, blobs, 10**6)
            app.erasure.erase(SessionKeys(KEYS.owner, "child"))
            app.erasure.erase(KEYS)
            assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []

    operations: list[Operation] = [at_s(forked), erasing(passes=1)]
    assert explore(operations, fresh(prepare), check, max_preemptions=PREEMPTIONS) > 6


OTHERS: dict[str, Operation] = {
    "append": at_s(lambda session: session.append({"role": "user", "content": CANARY}, idempotency_key="k")),
    "append a payload": at_s(lambda session: session.append({"role": "user", "content": noise(6_000)})),
    "put state": at_s(lambda session: session.put_state({"a": CANARY})),
    "update": at_s(lambda session: session.update(title=CANARY, system=noise(3_000))),
    "compress": at_s(lambda session: session.compress(keep_loops=1)),
    "snapshot": at_s(lambda session: session.create_snapshot(CANARY)),
    "end": at_s(lambda session: session.end()),
    "reset": at_s(lambda session: session.reset()),
    "read": at_s(lambda session: [message.body for message in session.messages()]),
    "list": at_s(lambda session: list(Turnlog(session.backend).sessions.list())),
    "create": at_s(lambda session: Turnlog(session.backend).sessions.create("s", title=CANARY, if_exists="return")),
    "rewind": at_s(lambda session: session.rewind(3)),
    "fork": at_s(lambda session: forked(session) and None),
    "restore": at_s(lambda session: session.restore_snapshot(session.create_snapshot().snapshot_id, as_="rewind")),
    "redact": at_s(lambda session: session.redact(2)),
    "erase": erasing(1000),
}


@pytest.mark.parametrize("other", OTHERS)
def test_d2_every_order_of_erasing_and_another_request(other: str) -> None:
    """Whatever comes in between, nothing answers once both are over, and the sweep leaves nothing."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        for result in run.results:
            assert not isinstance(result, BaseException) or isinstance(result, TurnlogError), result
        assert not isinstance(run.results[1], BaseException), run.results[1]
        refused = run.results[0]
        if isinstance(refused, TurnlogError):
            assert isinstance(refused, NotFoundError | SessionExistsError), refused
        is_gone(items, blobs)
        sweep(items, blobs)
        is_gone(items, blobs)
        holds_nothing(items, blobs)

    explore([OTHERS[other], erasing()], fresh(prepared), check, max_preemptions=PREEMPTIONS)


@pytest.mark.parametrize(
    "other",
    [
        "append a payload",
        "read",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("append", "put state", "snapshot", "compress")),
    ],
)
def test_d2_every_order_of_the_job_and_a_request_that_was_under_way(other: str) -> None:
    """The job's first pass meets what began before the fence; the second one takes what that has left."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        for result in run.results:
            assert not isinstance(result, BaseException) or isinstance(result, NotFoundError), result
        is_gone(items, blobs)
        sweep(items, blobs)
        holds_nothing(items, blobs)

    explore([OTHERS[other], erasing(passes=1)], fresh(prepared), check, max_preemptions=PREEMPTIONS)


@pytest.mark.parametrize("after", [False, True])
def test_d2_every_order_with_a_crash_of_the_one_that_erases(after: bool) -> None:
    """Before the fence nothing has happened, behind it nothing answers; done again, it is done."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        erasing(7000)(items, blobs)
        is_gone(items, blobs)
        sweep(items, blobs)
        holds_nothing(items, blobs)

    for at in range(1, 10, 1 if is_full() else 3):
        explore([OTHERS["append"], erasing()], fresh(prepared), check, crash=Crash(1, at, after), max_preemptions=1)


def test_an_acknowledged_append_was_in_front_of_the_fence() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        commits = [item for item in sqlite_items(items) if item["sk"].startswith("C#") and item["pk"] == KEYS.partition]
        newest = max(commits, key=lambda item: item["sk"])
        assert "k" not in newest, "the log ends with the fence"
        assert all("k" in item for item in commits if item is not newest)
        appended = run.results[0]
        assert len(commits) == (3 if isinstance(appended, TurnlogError) else 4)

    explore([OTHERS["append"], erasing()], fresh(prepared), check)
