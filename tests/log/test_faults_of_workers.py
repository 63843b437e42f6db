"""A worker that Lambda ends in the middle of a job, whatever the job: at each of its requests, before or after the effect. The
queue gives the job out again, and it is done once. A job that failed five times is a dead letter, and is done when it is redriven.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import FEWEST, boundaries
from tests.explorer import Crash, Crashed, run_schedule
from tests.log.everything import held
from tests.support.dead_letters import bury, letters
from tests.support.erasing import CANARY, message_of
from tests.support.job_faults import application, said
from tests.support.jobs import deliver
from tests.support.worker_faults import JOBS
from turnlog.client.model import Session
from turnlog.http.lambda_workers import make_worker
from turnlog.jobs.models import Job
from turnlog.ports import JOB_KINDS, BlobStore, Delivery, ItemTable
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.server.lambda_calls import LocalContext, sqs_event


def begun(harness: Harness, kind: str, user: str) -> tuple[Session, Job]:
    session = said(harness.log(user=user))
    session.append({"role": "user", "content": CANARY})
    job: Job = JOBS[kind][0](session)
    return session, job


def delivered(harness: Harness, job: Job, user: str) -> None:
    """As often as it takes: an erasing has a second pass."""
    for _ in range(3):
        assert deliver(harness, message_of(job, user)) == set()
        if harness.log(user=user).job(job.job_id).status == "done":
            return
        harness.clock.advance(SECOND_PASS_SECONDS + 1)
    raise AssertionError("not done")


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_d1_a_worker_that_is_ended_in_the_middle(
    harness: Harness, kind: str, after: bool, tells: Callable[..., None]
) -> None:
    wanted, tried = [0], 0
    for at in wanted:
        session, job = begun(harness, kind, f"user-{at}")
        body = message_of(job, f"user-{at}")

        def work(items: ItemTable, blobs: BlobStore, body: str = body) -> Any:
            worker = make_worker(JOB_KINDS, application(harness, items, blobs))
            return worker(sqs_event([Delivery("m", body, "r", 1)], now_ms=0), LocalContext(60_000))

        engine = harness.app.engine
        crash = Crash(0, at, after) if at else None
        run, _ = run_schedule([work], engine.items, engine.blobs, [], crash=crash)
        if at:
            assert isinstance(run.results[0], Crashed), "it was met"
            tried += 1
        else:
            assert run.results == [{"batchItemFailures": []}]
            wanted += boundaries(run.requests[0], harness.name, sqlite=2)
        delivered(harness, job, f"user-{at}")
        JOBS[kind][1](session)
    tells("worker ends", f"{kind} job", tried)
    assert tried == len(wanted) - 1 >= FEWEST
    if kind == "erase":
        assert held(CANARY, harness) == []


@pytest.mark.parametrize("kind", JOBS)
def test_a_dead_letter_of_any_kind_is_redriven_and_done(
    harness: Harness, kind: str, tells: Callable[..., None]
) -> None:
    session, job = begun(harness, kind, "ada")
    bury(harness)
    assert len(letters(harness)) >= 1
    assert harness.log().redrive(job.job_id).jobs == [job.job_id]
    assert letters(harness) == set()
    delivered(harness, job, "ada")
    JOBS[kind][1](session)
    tells("dead letter", f"{kind} job")
