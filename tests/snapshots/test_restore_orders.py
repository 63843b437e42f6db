"""D2: restoring an expired session under its own id among all that erases it, makes it or asks for it, in every order."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from tests.effort import is_full
from tests.explorer import Crash, Operation, ScheduleRun, explore, run_schedule
from tests.log.everything import local_blobs, places_of, sqlite_items
from tests.support.erase_orders import with_queue
from tests.support.erasing import CANARY, KEYS, OWNER, noise
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import ConflictError, CorruptError, NotFoundError, SessionExistsError, TurnlogError
from turnlog.core.json_values import JsonObject
from turnlog.core.times import DAY_MS
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.jobs.worker import Later
from turnlog.log.commit import VERIFIED
from turnlog.log.tombstones import QUIET_MS
from turnlog.ports import BlobStore, ItemTable
from turnlog.privacy import retention
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.sessions.models import Session as SessionAnswer

DAY = DAY_MS // 1000
BODIES = [{"role": "user", "content": "said"}, {"role": "user", "content": noise(60_000)}]
LATER = {"role": "user", "content": "said later"}


@dataclass
class Stage:
    """An engine as it is at a moment of the session's end."""

    items: list[Any]
    blobs: dict[str, bytes]
    seconds: float
    options: JsonObject = field(default_factory=dict)

    def make(self) -> tuple[ItemTable, BlobStore]:
        VERIFIED.clear()
        items, blobs = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore()
        items.write_many(self.items)
        for name, data in self.blobs.items():
            blobs.put(name, data)
        return items, blobs

    def app(self, items: ItemTable, blobs: BlobStore, start: int, *, after: float = 0) -> Application:
        app, clock = with_queue(items, blobs, start)
        clock.advance(self.seconds + after)
        return app

    def at(self, start: int, do: Callable[[Application, Stage], Any]) -> Operation:
        return lambda items, blobs: do(self.app(items, blobs, start), self)


@cache
def stage(name: str) -> Stage:
    """``fenced``: the first pass is over, and the second one is due. ``erased``: that is over too. ``cleared``: a day later."""
    items, blobs = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore()
    app, clock = with_queue(items, blobs, 1)
    session = Turnlog(InProcessBackend(app, OWNER)).sessions.create("s", ttl_days=1, state={"a": 1})
    session.append(*BODIES)
    session.create_snapshot("whole", kind="full")
    session.append(LATER)
    session.create_snapshot("second", kind="full")
    session.append({"role": "user", "content": "never again"})
    clock.advance(DAY + 1)
    seconds: float = DAY + 1
    options: JsonObject = {"first": app.erasure.identity(KEYS), "expired": True}
    for _ in range({"expired": 0, "fenced": 1, "erased": 2, "cleared": 2}[name]):
        left = app.erase_session.run(OWNER, "s", options)
        options = left.options if isinstance(left, Later) else options
        clock.advance(SECOND_PASS_SECONDS if isinstance(left, Later) else 1)
        seconds += SECOND_PASS_SECONDS if isinstance(left, Later) else 1
    if name == "cleared":
        clock.advance(DAY)
        seconds += DAY
        assert app.erase_session.run(OWNER, "s", {**options, "release": True})["status"] == "kept"  # type: ignore[index]
    return Stage(sqlite_items(items), {name: blobs.get(name) or b"" for name in blobs.names("")}, seconds, options)


def session_of(app: Application) -> Session:
    return Session(InProcessBackend(app, OWNER), "s")


def restore(app: Application, _stage: Stage | None = None) -> Any:
    return session_of(app).restore_snapshot("whole", as_="rewind", idempotency_key="k")


def back(app: Application, at: Stage, snapshot: str = "whole") -> None:
    """Asked for until it is there, when nobody else is at work."""
    for _ in range(3):
        try:
            session_of(app).restore_snapshot(snapshot, as_="rewind")
        except ConflictError as error:
            assert (error.error_code, error.retry_after_seconds) == ("session_expiring", 10)
            release(app, at)
            continue
        return
    raise AssertionError("it is never there")


def delete_snapshot(app: Application, _stage: Stage) -> None:
    session_of(app).delete_snapshot("whole")
    app.sweep_snapshots.run(OWNER, "s", {})


def erase_user(app: Application, _stage: Stage) -> Any:
    app.erase_user(OWNER)
    return app.erase_user.run(OWNER, "", {})


def erase(app: Application, at: Stage) -> Any:
    return app.erase_session.run(OWNER, "s", at.options)


def release(app: Application, at: Stage) -> Any:
    return app.erase_session.run(OWNER, "s", {"first": at.options["first"], "release": True})


OTHERS: dict[str, Callable[[Application, Stage], Any]] = {
    "restore": restore,
    "restore another": lambda app, _: session_of(app).restore_snapshot("second", as_="rewind"),
    "restore elsewhere": lambda app, _: session_of(app).restore_snapshot("whole", session_id="fork"),
    "erase": erase,
    "release": release,
    "create": lambda app, _: Turnlog(InProcessBackend(app, OWNER)).sessions.create("s"),
    "delete snapshot": delete_snapshot,
    "retain": lambda app, _: app.retain_sessions(),
}
REFUSALS = {"session_expiring", "id_claimed"}


def check_restored(app: Application, *, most: int = 1) -> None:
    """All of a snapshot, once, and nothing else; it goes on. ``most`` restores one after the other are in the history."""
    session = session_of(app)
    assert [message.body for message in session.messages()] in (BODIES, [*BODIES, LATER])
    assert 1 <= [item.action for item in session.history()].count("restore") <= most
    assert session.state().state == {"a": 1}
    assert session.info().messages == len(list(session.messages(in_view=True)))
    assert [item.session_id for item in Turnlog(session.backend).sessions.list() if item.session_id == "s"] == ["s"]
    assert session.append(LATER).head == session.info().head


def is_seen(app: Application) -> bool:
    try:
        session_of(app).info()
    except NotFoundError:
        return False
    return True


CRASHED = ("restore another", "delete snapshot")
STAGES = ("fenced", "erased", "cleared")
SHORT = {"erase", "release"}
"""What writes without conditions: tried at two stages, and with as many preemptions as it takes to meet it half-way."""


@pytest.fixture(autouse=True)
def runs_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FIRST_DAYS", 2)


def is_long(name: str, other: str) -> bool:
    return name == "fenced" if other in SHORT else name != "cleared"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        pytest.param(name, other, marks=[pytest.mark.full] * is_long(name, other))
        for name, other in itertools.product(STAGES, OTHERS)
    ],
)
def test_d2_every_order_of_a_restore_and_another_request(name: str, other: str) -> None:
    """What is acknowledged is there, whole, and late jobs leave it alone; what is refused goes when it was waited for."""
    begun, answered = stage(name), set[str]()

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        restored, its_other = run.results
        assert not isinstance(restored, BaseException) or isinstance(restored, TurnlogError), restored
        assert not isinstance(its_other, BaseException) or isinstance(its_other, TurnlogError), its_other
        if other == "create":
            assert isinstance(its_other, SessionExistsError)
        is_deleted = other == "delete snapshot" and not isinstance(its_other, BaseException)
        if isinstance(restored, ConflictError) and not isinstance(restored, SessionExistsError):
            assert restored.error_code in REFUSALS
        elif isinstance(restored, SessionExistsError):
            assert other == "restore another"
        elif isinstance(restored, TurnlogError):
            assert is_deleted and isinstance(restored, NotFoundError | CorruptError), restored
        answered.add(restored.error_code if isinstance(restored, TurnlogError) else "restored")
        VERIFIED.clear()
        is_there = [result for result in run.results if isinstance(result, SessionAnswer) and result.session_id == "s"]
        assert is_seen(begun.app(items, blobs, 10**6)) == bool(is_there)
        if is_there:
            # The session that one has brought back is taken back further by the other.
            check_restored(begun.app(items, blobs, 10**6), most=len(is_there) if other == "restore another" else 1)
        for late in (erase, release):
            late(begun.app(items, blobs, 10**7, after=QUIET_MS // 1000 + 1), begun)
        wanted = begun.app(items, blobs, 10**8, after=2 * QUIET_MS // 1000 + 2)
        assert is_seen(wanted) == bool(is_there)
        if not is_there and not is_deleted:
            back(wanted, begun)
            check_restored(wanted)
        elif not is_there:
            back(wanted, begun, "second")
            check_restored(wanted)
        assert places_of("never again", sqlite_items(items), local_blobs(blobs)) == []

    operations = [begun.at(2_000, restore), begun.at(3_000, OTHERS[other])]
    most = 3 if is_full() or (other == "erase" and name == "cleared") else 1
    if (name, other) == ("cleared", "restore"):  # Three preemptions of two that do all of the same work take too long.
        most = min(most, 2)
    assert explore(operations, begun.make, check, max_preemptions=most, only_conflicts=True) >= 1
    if name == "cleared":
        assert "restored" in answered, "the first one that comes is served"


def test_d2_a_restore_that_another_one_overtakes_returns_the_session() -> None:
    """Wherever the first one stops, and the other one before the session appears: both return the session."""
    begun = stage("cleared")
    alone, _ = run_schedule([begun.at(2_000, restore)], *begun.make(), [])
    others = (begun.at(2_000, restore), begun.at(3_000, restore))
    (requests,) = alone.requests
    for first in range(1, requests):
        whole, _ = run_schedule(others, *begun.make(), [0] * first + [1])
        items, blobs = begun.make()
        run, _ = run_schedule(others, items, blobs, [0] * first + [1] * (whole.requests[1] - 3) + [0])
        assert [type(result) for result in run.results] == [SessionAnswer] * 2, (first, run.results)
        VERIFIED.clear()
        check_restored(begun.app(items, blobs, 10**6))


def test_d2_a_restore_that_an_eraser_overtakes_says_when_to_try_again() -> None:
    """Whichever of its requests the eraser stops at: nobody is told that the id is lost."""
    begun, codes = stage("cleared"), set[str]()
    others = (begun.at(2_000, restore), begun.at(3_000, release))
    for first, second in itertools.product(range(1, 7), range(1, 7)):
        run, _ = run_schedule(others, *begun.make(), [0] * first + [1] * second + [0])
        refused = run.results[0]
        assert isinstance(refused, SessionAnswer | ConflictError), refused
        codes.add(refused.error_code if isinstance(refused, ConflictError) else "restored")
    assert codes == {"session_expiring", "restored"}


@pytest.mark.parametrize(
    "name", ["cleared", *(pytest.param(value, marks=pytest.mark.full) for value in ("fenced", "erased"))]
)
def test_d2_every_order_of_a_restore_and_the_erasing_of_its_person(name: str) -> None:
    """Whatever comes first, after its second pass there is nothing, and nothing comes back."""
    begun = stage(name)

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        restored, erased = run.results
        assert isinstance(erased, Later), erased
        if isinstance(restored, BaseException):
            assert isinstance(restored, ConflictError | NotFoundError | CorruptError), restored
        app = begun.app(items, blobs, 10**6, after=SECOND_PASS_SECONDS)
        options = erased.options
        for _ in range(3):
            left = app.erase_user.run(OWNER, "", options)
            if not isinstance(left, Later):
                break
            options = left.options
        for late in (erase, release):
            late(begun.app(items, blobs, 10**7, after=SECOND_PASS_SECONDS), begun)
        VERIFIED.clear()
        assert not is_seen(app)
        for _ in range(2):
            with pytest.raises((NotFoundError, ConflictError)):
                restore(app)
        assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []
        assert places_of("said", sqlite_items(items), local_blobs(blobs)) == []

    operations = [begun.at(2_000, restore), begun.at(3_000, erase_user)]
    assert explore(operations, begun.make, check, max_preemptions=3 if is_full() else 1, only_conflicts=True) > 3


@pytest.mark.parametrize(
    "other", ["erase", "release", *(pytest.param(item, marks=pytest.mark.full) for item in CRASHED)]
)
@pytest.mark.parametrize("after", [False, True])
def test_d2_every_order_with_a_crash_of_the_other(other: str, after: bool) -> None:
    """One who has stopped is waited for, and then the session is restored."""
    begun = stage("cleared")

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        VERIFIED.clear()
        is_there, moment = is_seen(begun.app(items, blobs, 10**6)), QUIET_MS // 1000 + 1
        assert is_there == isinstance(run.results[0], SessionAnswer)
        app = begun.app(items, blobs, 10**7, after=moment)
        if is_there:
            check_restored(app)
            return
        with contextlib.suppress(ConflictError):
            back(app, begun, "second")
            check_restored(app)
            return
        app = begun.app(items, blobs, 10**8, after=2 * moment)
        back(app, begun, "second")
        check_restored(app)

    for at in range(1, 16, 1 if is_full() else 5):
        operations = [begun.at(2_000, restore), begun.at(3_000, OTHERS[other])]
        explore(operations, begun.make, check, crash=Crash(1, at, after), max_preemptions=1, only_conflicts=True)
