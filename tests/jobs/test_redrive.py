"""Redrive: dead letters and failed jobs go back into their queues, and what is over is not done again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.dead_letters import bury, letters
from tests.support.jobs import poller, waiting
from tests.support.scripted import ScriptedSummariser, summarise_with
from tests.support.talks import filled
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import InvalidInputError, NotFoundError, SummariserConfigError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.times import rfc3339
from turnlog.log.keys import OwnerKeys
from turnlog.log.records import Record
from turnlog.ports import JobQueue
from turnlog.settings import Settings
from turnlog.testing.fixed import SequentialIds


def work(harness: Any) -> None:
    """Run what waits in the queue: a worker takes one job at a time."""
    while poller(harness).run_once():
        pass


def test_dead_letters_of_every_owner_go_back_and_are_done(harness: Any) -> None:
    log, other = harness.log(), harness.log(user="eve")
    for owner in (log, other):
        filled(owner, 5).compress(mode="async", keep_loops=1)
    bury(harness)
    assert letters(harness)
    redriven = log.redrive()
    assert (redriven.dead_letters >= 2, redriven.jobs, redriven.left) == (True, [], 0)
    assert letters(harness) == set()
    work(harness)
    assert [job.status for value in (log, other) for job in value.jobs()] == ["done", "done"]
    assert log.redrive().dead_letters == 0


def test_a_letter_that_is_no_job_stays(harness: Any) -> None:
    log = harness.log()
    filled(log, 5).compress(mode="async", keep_loops=1)
    bury(harness, "poison", '{"v": 2}')
    redriven = log.redrive()
    assert (redriven.dead_letters >= 1, redriven.left) == (True, 2)
    harness.clock.advance(1)
    assert letters(harness) == {"poison", '{"v": 2}'}


def test_one_dead_letter_by_the_id_of_its_job(harness: Any) -> None:
    log = harness.log()
    first, second = (filled(log, 5, name).compress(mode="async", keep_loops=1) for name in ("a", "b"))
    bury(harness)
    redriven = log.redrive(second.job_id)
    assert (redriven.dead_letters >= 1, redriven.jobs) == (True, [second.job_id])
    work(harness)
    assert log.job(second.job_id).status == "done"
    assert log.job(first.job_id).status == "queued"
    assert {first.job_id in body for body in letters(harness)} == {True}


def test_failed_jobs_are_queued_again_when_their_cause_is_mended(harness: Any) -> None:
    log = harness.log()
    summariser = ScriptedSummariser([SummariserConfigError("no such model")] * 2, then="All of it was about orders.")
    summarise_with(harness.app, summariser)
    failed = [filled(log, 5, name).compress(mode="async", keep_loops=1) for name in ("a", "b")]
    work(harness)
    assert [job.status for job in log.jobs()] == ["failed", "failed"]
    assert log.redrive().jobs == [], "failed jobs are asked for"
    harness.clock.advance(3_600)
    assert log.redrive(failed[0].job_id).jobs == [failed[0].job_id]
    again, now = log.job(failed[0].job_id), harness.clock.now_ms()
    assert (again.status, again.error, again.attempts, again.updated_at) == ("queued", None, 1, rfc3339(now))
    key = OwnerKeys(Owner.of("acme", "ada")).jobs.record(again.job_id)
    assert harness.app.engine.items.get_many([key])[key]["ttl"] == now // 1000 + 30 * 86_400
    work(harness)
    assert log.redrive(failed=True).jobs == [failed[1].job_id]
    work(harness)
    assert [(job.status, job.attempts, job.error) for job in log.jobs()] == [("done", 2, None)] * 2
    assert log.sessions.get("b").summary().text == "All of it was about orders."


def test_a_job_whose_message_is_lost_gets_a_new_one_and_twice_is_done_once(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 5)
    job = session.compress(mode="async", keep_loops=1)
    waiting(harness)  # taken, and the worker ends
    for _ in range(2):
        assert log.redrive(job.job_id).jobs == [job.job_id]
    while poller(harness).run_once():
        pass
    done = log.job(job.job_id)
    assert (done.status, done.attempts) == ("done", 1)
    with pytest.raises(InvalidInputError, match="done"):
        log.redrive(job.job_id)


def test_t1_a_job_of_another_owner_is_missing(harness: Any) -> None:
    job = filled(harness.log(), 5).compress(mode="async")
    for job_id in (job.job_id, "1700000000000-none", "x"):
        with pytest.raises(NotFoundError):
            harness.log(user="eve").redrive(job_id)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_redrive_of_failed_jobs_that_breaks_off_is_repeated(harness: Any, when: str) -> None:
    """At every call of it: an hour later at most, the same command has all of them done."""
    log = harness.log()
    summarise_with(harness.app, ScriptedSummariser([SummariserConfigError("no such model")] * 30, then="About orders."))
    jobs = [filled(log, 5, name).compress(mode="async", keep_loops=1) for name in ("a", "b")]
    for _ in range(2):  # the first one finds the queues, too
        work(harness)
        before = harness.faults.calls
        assert sorted(log.redrive(failed=True).jobs) == sorted(job.job_id for job in jobs)
        calls = harness.faults.calls - before
    work(harness)
    for at in range(1, calls + 1):
        harness.faults.fail(at, when)
        with pytest.raises(UnavailableError):
            log.redrive(failed=True)
        harness.clock.advance(3_600)
        again = log.redrive(failed=True).jobs
        assert sorted(again) == sorted(job.job_id for job in jobs), (at, when)
        work(harness)
        assert [(job.status, job.error.code) for job in log.jobs()] == [("failed", "summariser_misconfigured")] * 2


def test_a_redrive_whose_answer_is_lost_is_repeated(harness: Any) -> None:
    """At every call of it, before and after: the job is done all the same, once."""
    log = harness.log()
    session = filled(log, 5)
    summarise_with(harness.app, ScriptedSummariser([SummariserConfigError("no")] * 30))
    job = session.compress(mode="async", keep_loops=1)
    work(harness)
    calls = tried = 0
    for at in range(20):
        for when in ("before", "after") if at else ("never",):
            before = harness.faults.calls
            if at:
                harness.faults.fail(at, when)
                with pytest.raises(UnavailableError):
                    log.redrive(job.job_id)
                tried += 1
            log.redrive(job.job_id)
            calls = calls or harness.faults.calls - before
            assert log.job(job.job_id).status == "queued"
            while poller(harness).run_once():
                pass
            assert log.job(job.job_id).status == "failed"
        if at == calls:
            break
    assert tried == 2 * calls > 0


def test_an_engine_without_a_queue_or_behind_a_service_says_so(harness: Any) -> None:
    class Plain:
        """A queue that can't."""

    for queue in (None, Plain()):
        engine = replace(harness.app.engine, queue=queue)
        app = Application(engine, Settings(), clock=harness.clock, ids=SequentialIds(9_000))
        with pytest.raises(UnavailableError) as raised:
            Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))).redrive()
        assert raised.value.error_code == "no_queue"
    with pytest.raises(InvalidInputError) as refused:
        Turnlog(HttpBackend("http://127.0.0.1:1")).redrive()
    assert refused.value.error_code == "needs_engine"


def test_a_message_in_a_queue_of_another_kind_stays(harness: Any) -> None:
    """Where each kind has its queue: its worker would never do it."""
    log = harness.log()
    filled(log, 5).compress(mode="async")
    bury(harness)

    class Empty:
        def redrive(self, _group_of: Any) -> int:
            return 0

    job = log.sessions.get("s").create_snapshot(mode="async")
    only = replace(harness.app.engine, queue=None, queues={"compress": harness.app.engine.queue})
    app = Application(only, Settings(), clock=harness.clock, ids=SequentialIds(8_000))
    with pytest.raises(UnavailableError, match="'snapshot'"):
        Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))).redrive(job.job_id)
    own: JobQueue = Empty()  # type: ignore[assignment]
    engine = replace(harness.app.engine, queues={"compress": own})
    app = Application(engine, Settings(), clock=harness.clock, ids=SequentialIds(9_000))
    redriven = Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))).redrive()
    assert redriven.dead_letters == 0
    assert redriven.left >= 1


def test_a_job_of_a_later_version_has_no_queue_here(harness: Any) -> None:
    records, keys = harness.app.log.records, OwnerKeys(Owner.of("acme", "ada")).jobs
    job_id = records.claim(keys, None)
    records.create(keys, Record(job_id, 1, "failed", {"kind": "later_kind", "session_id": "s"}))
    with pytest.raises(UnavailableError, match="no queue for 'later_kind' jobs"):
        harness.log().redrive(job_id)
