"""D6, E4: a session that has expired is restored under its own id, as soon as all else of it is erased; one effect (D1)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import FEWEST, boundaries, is_full
from tests.log.everything import blobs_of, held, items_of
from tests.support.erasing import CANARY, OWNER, TOMBSTONE, message_of, of_session, worked
from tests.support.jobs import deliver
from tests.support.own_ids import back, erased, expiring
from tests.support.restores import fold, unseen
from turnlog.client.model import Session
from turnlog.core import positions as borders
from turnlog.core.errors import ConflictError, CorruptError, NotFoundError, SessionExistsError, UnavailableError
from turnlog.core.times import DAY_MS
from turnlog.jobs.models import Job
from turnlog.log.commit import VERIFIED
from turnlog.log.keys import SessionKeys
from turnlog.log.tombstones import QUIET_MS
from turnlog.privacy import retention
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.snapshots import restore
from turnlog.snapshots.materialise import Materialiser

DAY = DAY_MS // 1000


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FIRST_DAYS", 5)
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", 8)


def said(size: int = 20, start: int = 0) -> dict[str, Any]:
    return {
        "role": "user",
        "content": "said " + "".join(f"{(start + n) * 7919 % 999_983:06x}" for n in range(size // 6)),
    }


def whole(harness: Harness) -> Session:
    """A session of every kind of place, and a full snapshot of it."""
    session = harness.log().sessions.create("s", title="t", ttl_days=3, state={"a": 1}, system="x" * 40_000)
    session.append(*(said(start=n) for n in range(9)))
    session.append(said(9_000), said(90_000), {"role": "assistant", "content": "done"})
    session.create_snapshot("whole", kind="full")
    return session


def told(harness: Harness) -> Session:
    """With something that was said after that."""
    session = whole(harness)
    session.append({"role": "user", "content": CANARY})
    return session


def refused(session: Session, snapshot: str = "whole") -> ConflictError:
    with pytest.raises(ConflictError) as raised:
        session.restore_snapshot(snapshot, as_="rewind")
    return raised.value


def test_d6_e4_an_expired_session_goes_back_to_its_snapshot_under_its_own_id(harness: Harness) -> None:
    """Asked for at once, it says when; the asking itself has the rest of it erased, and nothing of that comes back."""
    session = whole(harness)
    made = next(iter(session.snapshots()))
    before = fold(session, made.position)
    session.append({"role": "user", "content": CANARY})
    harness.clock.advance(3 * DAY + 1)
    for _ in range(2):
        error = refused(session)
        assert (error.error_code, error.retry_after_seconds) == ("session_expiring", SECOND_PASS_SECONDS)
    (job,) = expiring(harness)
    assert deliver(harness, message_of(job)) == set()
    error = refused(session)
    assert (error.error_code, error.retry_after_seconds) == ("session_expiring", QUIET_MS // 1000)
    with pytest.raises(SessionExistsError):
        harness.log().sessions.create("s")
    assert worked(harness, job).status == "done"
    with pytest.raises(NotFoundError):
        session.info()
    VERIFIED.clear()
    restored = back(harness, session, idempotency_key="k")
    assert (restored.session_id, restored.head, restored.title) == ("s", made.position + 1, "t")
    assert fold(session, made.position) == before
    assert held(CANARY, harness) == [], "what the snapshot has not is gone"
    assert [item.session_id for item in harness.log().sessions.list()] == ["s"]
    assert session.append(said()).head == made.position + 2
    assert session.put_state({"a": 2}).state == {"a": 2}
    assert session.update(title="u").title == "u"
    value = harness.log().sessions.get("s")
    assert (value.info().title, value.state().state) == ("u", {"a": 2})
    stored = {item["sk"]: item for item in of_session(harness)}
    assert not {"kp", "c", "ok", "mat", "g2pk"} & set(stored["C#000000000001"])
    assert all("pos" in stored[name] and stored[name]["pos"] < 100 for name in ("D#META", "S#STATE", "S#s"))
    head = session.info().head
    assert session.restore_snapshot("whole", as_="rewind", idempotency_key="k").head == head, "the same request again"
    session.create_snapshot("later")
    assert session.snapshot("later").content and session.snapshot("whole").content
    erased(harness)
    assert session.info().head == head, "late jobs leave it alone"


def test_a_key_of_the_life_before_counts_as_new(harness: Harness) -> None:
    session = whole(harness)
    session.append({"role": "user", "content": CANARY}, idempotency_key="k")
    harness.clock.advance(3 * DAY + 1)
    erased(harness)
    restored = back(harness, session)
    assert session.append({"role": "user", "content": "of this life"}, idempotency_key="k").head == restored.head + 1


def test_a_day_later_too_and_as_a_job_when_it_is_long(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    session = told(harness)
    harness.clock.advance(3 * DAY + 1)
    monkeypatch.setattr(restore, "MAX_POSITIONS", 3)
    assert refused(session).error_code == "session_expiring", "said before there is a job"
    erased(harness)
    for _ in range(2):
        harness.clock.advance(DAY + 1)
        erased(harness)
        slots = [item for item in of_session(harness) if item["sk"] < "P"]
        assert [item["sk"] for item in slots] == ["C#000000000001"], "the first slot alone keeps the id"
        assert [snapshot.name for snapshot in session.snapshots()] == ["whole"]
        with pytest.raises(SessionExistsError):
            harness.log().sessions.create("s")
    job = session.restore_snapshot("whole", as_="rewind", idempotency_key="k")
    assert isinstance(job, Job)
    assert deliver(harness, message_of(job)) == set()
    head = session.info().head
    session.append(said())
    assert session.restore_snapshot("whole", as_="rewind", idempotency_key="k").head == head + 1, (
        "the same request again"
    )  # type: ignore[union-attr]


def test_a_restore_that_waits_while_the_expired_session_is_erased_is_done(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = told(harness)
    harness.clock.advance(3 * DAY + 1)
    monkeypatch.setattr(restore, "MAX_POSITIONS", 3)
    job = session.restore_snapshot("whole", session_id="other", idempotency_key="k")
    assert isinstance(job, Job)
    erased(harness)
    assert worked(harness, job).status == "done"
    assert next(message.body for message in harness.log().sessions.get("other").messages()) == said()


def test_it_expires_again_and_goes_back_to_any_of_its_snapshots(harness: Harness) -> None:
    """Those that were made behind the moment that it went back to, too, whatever was said there since."""
    session = told(harness)
    first = session.snapshot("whole").content
    later = session.create_snapshot("later", kind="full").position
    content = session.snapshot("later").content
    harness.clock.advance(3 * DAY + 1)
    erased(harness)
    harness.clock.advance(DAY)
    erased(harness)
    session.restore_snapshot("whole", as_="rewind")
    assert [snapshot.name for snapshot in session.snapshots()] == ["later", "whole"]
    with pytest.raises(SessionExistsError):
        session.restore_snapshot("later", as_="rewind")
    while session.info().head < later + 3:
        session.append(said(start=70))
    assert session.snapshot("later").content == content
    assert session.restore_snapshot("later", session_id="fork").messages == 13
    session.create_snapshot("newest", kind="full", keep=1)
    assert session.restore_snapshot("whole", as_="rewind").messages == 12, "its log has it: a rewind"
    harness.clock.advance(3 * DAY + 1)
    erased(harness)
    assert [snapshot.name for snapshot in session.snapshots()] == ["newest", "later", "whole"]
    assert back(harness, session, "later").head == later + 1
    assert [message.body["content"] for message in session.messages()][-1] == CANARY
    assert session.snapshot("whole").content == first
    for name in ("newest", "later", "whole"):
        session.delete_snapshot(name)
    harness.log().run_jobs()
    harness.clock.advance(3 * DAY + 1)
    erased(harness)
    harness.clock.advance(DAY)
    erased(harness)
    assert of_session(harness) == []
    assert not [name for name in blobs_of(harness) if "/s/" in name]
    assert harness.log().sessions.create("s").info().messages == 0


def test_a_session_that_was_deleted_never_comes_back(harness: Harness) -> None:
    log = harness.log()
    session = told(harness)
    harness.clock.advance(3 * DAY + 1)
    erased(harness)
    old = [job for job in log.jobs() if job.kind == "erase"]
    back(harness, session)
    job = session.erase()
    options = {"first": harness.app.erasure.identity(SessionKeys(OWNER, "s"))}
    for _ in range(2):
        for flag in ("expired", "release"):
            harness.app.erase_session.run(OWNER, "s", {**options, flag: True})
        for late in old:
            deliver(harness, message_of(late))
        with pytest.raises(NotFoundError):
            session.restore_snapshot("whole", as_="rewind")
        with pytest.raises(NotFoundError):
            list(session.snapshots())
        assert worked(harness, job).status == "done"
    assert {item["sk"][:2] for item in of_session(harness)} <= {"C#", "D#", "E#", "S#"}
    harness.clock.advance(DAY)
    erased(harness)
    assert of_session(harness) == []


def test_a_person_that_is_erased_leaves_nothing_of_it(harness: Harness) -> None:
    """However long ago it has expired: its entry in the list stays as long as what was kept."""
    session = told(harness)
    harness.clock.advance(3 * DAY + 1)
    erased(harness)
    harness.clock.advance(5 * DAY)
    erased(harness)
    assert "ttl" not in next(item for item in of_session(harness) if item["sk"] == "S#s"), "no table takes it away"
    job = harness.app.erase_user(OWNER)
    with contextlib.suppress(NotFoundError):
        assert refused(session).error_code == "erasing"
    assert worked(harness, job).status == "done"
    with pytest.raises((NotFoundError, ConflictError)):
        session.restore_snapshot("whole", as_="rewind")
    assert [item["sk"] for item in items_of(harness) if item["pk"].endswith("#S#s") and item["sk"][:2] == "P#"] == []
    assert held("said ", harness) == []


def restored_by_half(harness: Harness) -> Session:
    """An expired session, and two restores of it that were stopped right behind their claims: as ``other``, and as itself."""
    session = told(harness)
    harness.clock.advance(3 * DAY + 1)
    erased(harness)
    harness.clock.advance(DAY)
    erased(harness)
    half_made(session, "other")
    half_made(session, "s", as_="rewind")
    return session


def half_made(session: Session, session_id: str, **how: Any) -> None:
    """A restore that was stopped right behind its claim."""

    def stop(*_given: Any) -> None:
        raise UnavailableError("stopped")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Materialiser, "add", stop)
        with pytest.raises(UnavailableError):
            session.restore_snapshot("whole", session_id=session_id, **how)


def test_a_restore_that_stopped_is_erased_under_a_new_id_and_goes_on_under_its_own(harness: Harness) -> None:
    """The snapshots of the expired session are what the second one is made of."""
    session, other = restored_by_half(harness), harness.log().sessions.of("other")
    assert worked(harness, other.erase()).status == "done"
    assert {name for item in of_session(harness, "other") for name in item} <= TOMBSTONE
    VERIFIED.clear()
    assert back(harness, session).title == "t"


def test_a_restore_that_stopped_ends_with_the_erasure_of_its_session(harness: Harness) -> None:
    session = restored_by_half(harness)
    job = session.erase()
    for how in ({"as_": "rewind"}, {"session_id": "third"}):
        with pytest.raises(NotFoundError):
            session.restore_snapshot("whole", **how)
    assert worked(harness, job).status == "done"
    assert {name for item in of_session(harness) for name in item} <= TOMBSTONE
    with pytest.raises((NotFoundError, ConflictError)):
        session.restore_snapshot("whole", as_="rewind")


def test_a_claim_of_a_person_that_is_erased_leaves_nothing(harness: Harness) -> None:
    """It holds the first commit, and is none yet."""
    session = restored_by_half(harness)
    assert [item for item in items_of(harness) if item["sk"].startswith("C#") and "b" in item]
    assert worked(harness, harness.app.erase_user(OWNER)).status == "done"
    assert not [item for item in items_of(harness) if "#S#" in item["pk"] and "b" in item]
    with pytest.raises((NotFoundError, ConflictError)):
        session.restore_snapshot("whole", as_="rewind")


def test_one_that_was_left_half_made_gives_way_to_another(harness: Harness) -> None:
    """The claim is waited for as long as a request may live; one that nobody goes on with is erased a day later."""
    session = told(harness)
    session.create_snapshot("later", kind="full")
    for days in (1, 0):
        harness.clock.advance(3 * DAY + 1)
        erased(harness)
        harness.clock.advance(DAY)
        erased(harness)
        half_made(session, "s", as_="rewind")
        assert unseen(harness.log(), "s", [])
        error = refused(session, "later")
        assert error.error_code == "id_claimed"
        assert 0 <= (error.retry_after_seconds or 0) - QUIET_MS // 1000 <= 1
        if days:
            harness.clock.advance(DAY + 1)
            erased(harness)
            assert [item["sk"] for item in of_session(harness) if item["sk"] < "P"] == ["C#000000000001"]
        else:
            harness.clock.advance(QUIET_MS // 1000 - 1)
            half_made(session, "s", as_="rewind")
            harness.clock.advance(2)
            assert refused(session, "later").error_code == "id_claimed", "somebody goes on with it"
            harness.clock.advance(QUIET_MS // 1000)
        back(harness, session, "later")
        assert session.info().messages == len(list(session.messages())) == 13


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("later", [False, True])
def test_d1_a_fault_at_every_call_of_a_restore_under_its_own_id(harness: Harness, when: str, later: bool) -> None:
    """The same request again has one effect. The worker that makes room, when it was stopped, is waited for."""
    if harness.name == "moto" and (later == (when == "before")) and not is_full():
        pytest.skip("there in the long form")
    log, bodies = harness.log(), [said(9_000), said(60_000), *(said(start=n) for n in range(8))]

    def prepared(*names: str) -> list[Session]:
        sessions = [log.sessions.create(name, ttl_days=3, state={"a": 1}) for name in names]
        for session in sessions:
            session.append(*bodies)
            session.create_snapshot("whole", kind="full")
            session.append(said())
        harness.clock.advance(3 * DAY + 1)
        erased(harness)
        if later:
            harness.clock.advance(DAY)
            erased(harness)
        return sessions

    def asked(session: Session) -> tuple[Any, float]:
        """As often as it takes; how long it was waited."""
        waited = 0.0
        for _ in range(8):
            with contextlib.suppress(UnavailableError):
                try:
                    return session.restore_snapshot("whole", as_="rewind", idempotency_key="k"), waited
                except ConflictError as error:
                    assert error.error_code == "session_expiring"
                    wait = error.retry_after_seconds or 0
                for job in expiring(harness):
                    deliver(harness, message_of(job))
                harness.clock.advance(wait)
                waited += wait
        raise AssertionError("it is never there")

    (session,) = prepared("first")
    started = harness.faults.calls
    expected, _ = asked(session)
    tried = boundaries(harness.faults.calls - started, harness.name, sqlite=5 if later else 9, emulated=37)
    for at, session in zip(tried, prepared(*(f"s{at}" for at in tried)), strict=True):
        VERIFIED.clear()
        harness.faults.fail(at, when)
        answer, waited = asked(session)
        assert not harness.faults.is_pending, "the fault was never met: there are fewer calls than before"
        assert waited == 0 if later else waited <= QUIET_MS // 1000 + 30
        assert (answer.head, answer.messages, answer.status) == (expected.head, len(bodies), "active")
        assert session.restore_snapshot("whole", as_="rewind", idempotency_key="k") == answer
        assert session.restore_snapshot("whole", as_="rewind") == answer, "nothing has come since"
        assert [item.action for item in session.history()].count("restore") == 1
        assert [message.body for message in session.messages()] == bodies
        assert session.state().state == {"a": 1}
        assert session.id in [item.session_id for item in log.sessions.list()]
        assert session.append(said()).head == answer.head + 1
        assert session.restore_snapshot("whole", as_="rewind", idempotency_key="k").head == answer.head + 1, (
            "its key is remembered"
        )
    assert len(tried) >= FEWEST


def test_a_pointer_of_a_log_that_is_another_one_is_still_told(harness: Harness) -> None:
    session = told(harness)
    session.create_snapshot("point")
    session.create_snapshot("full", kind="full")
    items, key = harness.app.engine.items, SessionKeys(OWNER, "s").commit(session.info().head)
    items.put({**items.get_many([key])[key], "h": bytes(16)})
    with pytest.raises(CorruptError):
        session.snapshot("point")
    assert session.snapshot("full").content, "it has its own history"
