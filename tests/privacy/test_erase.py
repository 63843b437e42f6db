"""E1, E2, E3: a session that is erased answers to nobody from then on, and nothing of it is left but tombstones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import FEWEST, boundaries, is_full
from tests.log.everything import blobs_of, held, items_of
from tests.support.erasing import CANARY, KEYS, OWNER, TOMBSTONE, message_of, noise, of_session, said, worked
from tests.support.jobs import deliver
from tests.support.session_routes import BODIES, QUERIES, SESSION_ROUTES
from turnlog.core.errors import (
    IdempotencyMismatchError,
    InvalidInputError,
    NotFoundError,
    SessionExistsError,
    UnavailableError,
)
from turnlog.log.keys import SessionKeys
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.routing import HttpRequest, call
from turnlog.sessions.state_store import state_at, write_state_cache
from turnlog.summaries.store import Summaries


def test_e1_nothing_answers_from_the_moment_it_returns(harness: Harness) -> None:
    session = said(harness)
    job = session.erase()
    assert (job.kind, job.session_id, job.status, job.result) == ("erase", "s", "queued", None)
    for route in SESSION_ROUTES:
        path = {"session_id": "s", "agent_id": "main", "snapshot": CANARY, "position": "3"}
        queries = [QUERIES.get(route.name, {})]
        if route.name in ("get_state", "read_history", "read_messages"):
            queries += [{"at": "4"}] if route.name == "get_state" else [{"before": "6"}]
        for query in queries:
            # An import begins a session: this one is of nothing.
            refused = InvalidInputError if route.name == "import_session" else NotFoundError
            with pytest.raises(refused):
                call(harness.app, route, HttpRequest(OWNER, path, query, BODIES.get(route.name)))
    for at in (4, "2999-01-01T00:00:00Z"):
        with pytest.raises(NotFoundError):
            session.context(at=at)
    assert list(harness.log().sessions.list()) == []
    for if_exists in ("error", "return"):
        with pytest.raises(SessionExistsError):
            harness.log().sessions.create("s", if_exists=if_exists)


def test_e1_no_content_is_left_after_the_sweep(harness: Harness) -> None:
    session = said(harness, sealed=True)
    other = harness.log().sessions.create("t", title="stays")
    other.append({"role": "user", "content": noise(60_000)})
    mine = {place for place in held(CANARY, harness) if "/t/" in place or place.startswith("C#")}
    done = worked(harness, session.erase())
    assert (done.status, done.error) == ("done", None)
    result = done.result or {}
    assert result["status"] == "erased"
    assert result["commits"] > 10 and result["items"] > 3 and result["blobs"] >= 3
    assert result["requests"] > 10
    left = of_session(harness)
    assert {name for item in left for name in item} <= TOMBSTONE
    assert not [item for item in left if item["sk"][:2] not in ("C#", "D#", "E#", "S#")]
    assert [place for place in held(CANARY, harness) if place not in mine] == []
    assert not [name for name in blobs_of(harness) if "/s/" in name]
    assert [message.body["content"][:6] for message in other.messages()] == ["canary"]
    assert [item.session_id for item in harness.log().sessions.list()] == ["t"]
    with pytest.raises(SessionExistsError):
        harness.log().sessions.create("s")


def test_what_requests_in_flight_leave_behind_goes_with_the_second_pass(harness: Harness) -> None:
    session = said(harness)
    late = [item for item in items_of(harness) if item["pk"] == KEYS.partition and item["sk"][:2] in ("R#", "P#")]
    name, data = KEYS.blob_prefix + "payload/late", b"\x00" * 5 + CANARY.encode()
    job = session.erase()
    assert deliver(harness, message_of(job)) == set()
    assert harness.log().job(job.job_id).status == "queued"
    assert held(CANARY, harness) == []
    harness.app.engine.items.write_many(late)
    harness.app.engine.blobs.put(name, data)
    assert len(held(CANARY, harness)) > 2
    assert deliver(harness, message_of(job)) == set(), "too early, so it is put off"
    assert len(held(CANARY, harness)) > 2
    assert worked(harness, job).status == "done"
    assert held(CANARY, harness) == []


def test_caches_that_are_written_late_bring_nothing_back(harness: Harness) -> None:
    """A request that was under way writes what it has read: META, settings, state, summary, its entry in the list."""
    session = said(harness)
    log = harness.app.log
    tail = log.commits.tail(KEYS)
    in_force = log.full_settings(KEYS, tail)
    state, summary = state_at(log, KEYS, tail.header.last_state), Summaries(log).current(KEYS, tail.header.summary)
    job = session.erase()
    for _ in range(2):
        log.write_listing(KEYS, tail.header, in_force)
        log.caches.write_settings(KEYS, replace(in_force, position=tail.header.last, payload=None))
        write_state_cache(log, KEYS, state)
        Summaries(log).write_cache(KEYS, summary.event, time_ms=summary.time_ms)
        with pytest.raises(NotFoundError):
            session.info()
        assert list(harness.log().sessions.list()) == []
        deliver(harness, message_of(job))
    assert held(CANARY, harness) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_e2_d1_interrupted_anywhere_it_resumes(harness: Harness, when: str, tells: Callable[..., None]) -> None:
    """A fault at every call: of the request, and of both passes of the job. Done again, it is done.

    On moto at every ninth; at all of them in --full."""
    wanted, tried = [0], 0
    for at in wanted:
        log = harness.log(user=f"user-{at}")
        session = log.sessions.create("s", title=CANARY, state={"a": CANARY})
        session.append({"role": "user", "content": noise(4_000)}, {"role": "user", "content": noise(60_000)})
        session.create_snapshot(CANARY)
        started = harness.faults.calls
        if at:
            harness.faults.fail(at, when)
        job = None
        for _ in range(2):
            try:
                job = session.erase(idempotency_key=f"k{at}")
            except UnavailableError:
                continue
        assert job is not None
        for _ in range(4):
            deliver(harness, message_of(job, f"user-{at}"))
            with contextlib.suppress(UnavailableError):
                if log.job(job.job_id).status == "done":
                    break
            harness.clock.advance(SECOND_PASS_SECONDS)
        if at == 0:
            wanted += boundaries(harness.faults.calls - started, harness.name)
        else:
            assert not harness.faults.is_pending, "the fault was never met"
            tried += 1
        assert log.job(job.job_id).status == "done"
    tells(f"no answer {when}", "erase", tried)
    assert tried == len(wanted) - 1 >= FEWEST
    assert {name for item in items_of(harness) if "#S#s" in item["pk"] for name in item} <= TOMBSTONE
    assert held(CANARY, harness) == []


def test_e3_a_blob_error_is_never_reported_as_done(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    session = said(harness)
    blobs = harness.app.engine.blobs
    erase = blobs.erase

    def fails(prefix: str, **options: Any) -> int:
        raise UnavailableError("DeleteObjects kept 1 versions: AccessDenied")

    monkeypatch.setattr(type(blobs), "erase", lambda _self, prefix, **options: fails(prefix, **options))
    job = session.erase()
    for _ in range(3):
        assert deliver(harness, message_of(job)) == {"m0"}, (
            "it comes again, and at last is a dead letter with its alarm"
        )
        result = harness.log().job(job.job_id)
        assert (result.status, result.error.code if result.error else "") == ("queued", "unavailable")
        harness.clock.advance(SECOND_PASS_SECONDS)
    monkeypatch.setattr(type(blobs), "erase", lambda _self, prefix, **options: erase(prefix, **options))
    assert worked(harness, job).status == "done"
    assert held(CANARY, harness) == []


def test_a_key_has_one_effect_and_one_receipt(harness: Harness) -> None:
    session = said(harness)
    first = session.erase(idempotency_key="k")
    assert session.erase(idempotency_key="k") == first
    done = worked(harness, first)
    assert session.erase(idempotency_key="k") == done
    for key in (None, "other"):
        with pytest.raises(NotFoundError):
            session.erase(idempotency_key=key)
    assert [job.job_id for job in harness.log().jobs() if job.kind == "erase"] == [first.job_id]
    other = harness.log().sessions.create("other")
    with pytest.raises(IdempotencyMismatchError):
        other.erase(idempotency_key="k")
    assert other.info().status == "active"


def test_sessions_in_every_state_and_none(harness: Harness) -> None:
    log = harness.log()
    with pytest.raises(NotFoundError):
        log.sessions.of("never").erase()
    ended = log.sessions.create("ended")
    ended.append({"role": "user", "content": CANARY})
    ended.end()
    bare = log.sessions.create("bare", title=CANARY)
    for session in (ended, bare):
        assert worked(harness, session.erase()).status == "done"
    assert held(CANARY, harness) == []
    assert not [job for job in log.jobs() if job.session_id == "never"]


def test_what_can_not_be_read_can_be_erased(harness: Harness) -> None:
    session = said(harness)
    items = harness.app.engine.items
    head = KEYS.commit(session.info().head)
    items.put({**items.get_many([head])[head], "b": b"damaged", "t": "no time"})
    assert worked(harness, session.erase()).status == "done"
    assert held(CANARY, harness) == []


def test_it_is_done_in_parts_that_end_before_their_worker(harness: Harness) -> None:
    """Time goes by with every call: no part goes on after its deadline, and the parts add up."""
    session = said(harness, sealed=True)
    items, tick = harness.app.engine.items, harness.clock.advance
    parts, query = 0, type(items).query
    job = session.erase()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(items), "query", lambda self, item: (tick(20), query(self, item))[1])
        while held(CANARY, harness):
            assert deliver(harness, message_of(job)) == set()
            parts += 1
            assert harness.log().job(job.job_id).attempts == parts <= 10
    assert parts >= 2
    assert worked(harness, job).status == "done"


def test_a_late_job_leaves_another_session_of_the_id_alone(harness: Harness) -> None:
    session = said(harness)
    job = session.erase()
    items = harness.app.engine.items
    items.delete_many([KEYS.directory, *(SessionKeys(OWNER, "s").commit(n) for n in range(1, 400)), KEYS.meta])
    again = harness.log().sessions.create("s", title="another")
    assert worked(harness, job).status == "done"
    assert again.info().title == "another"


def test_d2_a_fork_reads_the_same_at_every_moment_after_its_parent_is_erased(harness: Harness) -> None:
    """From the first moment on: what the parent was created with belongs to the fork too."""
    session = harness.log().sessions.create("s", state={"n": 0}, system="Be brief.", metadata={"m": 1})
    session.append({"role": "user", "content": "one"}, {"role": "assistant", "content": noise(6_000)})
    session.put_state({"n": 1})
    session.append({"role": "user", "content": "two"})
    fork = session.fork("child")
    fork.append({"role": "user", "content": "three"})

    def read() -> list[Any]:
        moments = range(1, fork.info().head + 1)
        states = [fork.state(at=moment).model_dump() for moment in moments]
        windows = [fork.context(at=moment).messages for moment in moments]
        history = [entry.model_dump() for entry in fork.history()]
        return [states, windows, history, [message.model_dump() for message in fork.messages()]]

    before = read()
    worked(harness, session.erase())
    assert read() == before


def test_d2_a_fork_within_a_commit_has_the_state_of_then_after_its_parent_is_erased(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.put_state({"step": 1})  # 2
    messages = ({"role": "user", "content": "go"}, {"role": "assistant", "content": "done"})
    session.append(*messages, run={"iteration": 1})  # 3 to 5: the state is changed at 5
    fork = session.fork("forked", at=3)
    worked(harness, session.erase())
    assert [fork.state(at=position).state for position in (1, 2, 3)] == [{}, {"step": 1}, {"step": 1}]
    assert fork.fork("again", at=3).state(at=3).state == {"step": 1}


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_deleting_a_session_of_10_000_messages_and_50_blobs_leaves_no_content_and_its_request_count_is_reported(
    harness: Harness,
) -> None:
    """In --full; a tenth of it otherwise."""
    count = 10_000 if is_full() else 1_000
    session = harness.log().sessions.create("s", title=CANARY)
    for at in range(0, count, 25):
        session.append(*({"role": ("user", "assistant")[n % 2], "content": f"{CANARY} {at} {n}"} for n in range(25)))
    blobs = max(5, count // 200)
    for at in range(blobs):
        session.append({"role": "user", "content": noise(60_000, at)})
    done = worked(harness, session.erase())
    result = done.result or {}
    assert (done.status, result["commits"], result["blobs"]) == ("done", count // 25 + blobs + 1, blobs)
    assert result["commits"] / 25 < result["requests"] < count / 10 + 60
    assert held(CANARY, harness) == []


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_waiting_snapshot_of_another_session_keeps_its_name(harness: Harness) -> None:
    log = harness.log()
    erased, other = log.sessions.create("s"), log.sessions.create("other")
    options: Any = {"first": harness.app.erasure.identity(KEYS)}
    erased.erase()
    other.create_snapshot("named", mode="async")
    harness.app.erase_session.run(OWNER, "s", options)
    log.run_jobs()
    assert [snapshot.name for snapshot in other.snapshots()] == ["named"]
