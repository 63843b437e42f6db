"""Sessions to erase, and what must be gone."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import Harness
from tests.log.everything import blobs_of, held, items_of
from tests.support.jobs import deliver
from tests.support.talks import turn
from turnlog.client.model import Session
from turnlog.core.identity import Owner
from turnlog.jobs.models import Job
from turnlog.log.keys import SessionKeys
from turnlog.privacy.erase import SECOND_PASS_SECONDS

OWNER = Owner.of("acme", "ada")
KEYS = SessionKeys(OWNER, "s")
CANARY = "canary-5be1"
TOMBSTONE = {"pk", "sk", "h", "ttl", "pos", "g2pk", "g2sk", "kp", "c", "ok"}


def noise(size: int, start: int = 0) -> str:
    """Text with the canary that no compression makes small."""
    return CANARY + "".join(f"{(start + at) * 7919 % 1_000_003:06x}" for at in range(size // 6))


def said(harness: Harness, session_id: str = "s", *, sealed: bool = False) -> Session:
    """A session that holds the canary in every place that there is."""
    log = harness.log()
    session = log.sessions.create(
        session_id, title=CANARY, system=noise(70_000), metadata={"m": CANARY}, state={"a": CANARY}
    )
    for number in range(1, 5):
        session.append(*turn(number), {"role": "user", "content": CANARY})
    session.append({"role": "user", "content": noise(6_000)}, meta=[{"metadata": {"m": CANARY}, "author": CANARY}])
    session.append({"role": "user", "content": noise(60_000)}, run={"scratchpad": noise(40_000), "iteration": 1})
    session.compress(keep_loops=1)
    session.create_snapshot(CANARY, metadata={"m": CANARY})
    session.create_snapshot(CANARY, metadata={"m": CANARY}, mode="async")
    session.record("noted", metadata={"m": CANARY})
    if sealed:
        for at in range(11):
            session.append(*({"role": "user", "content": f"{CANARY} {at} {n}"} for n in range(25)))
        while harness.log().run_jobs():
            pass
        assert any("/seg/" in name for name in blobs_of(harness))
    assert held(CANARY, harness)
    return session


def message_of(job: Job, user: str = "ada", tenant: str = OWNER.tenant_id) -> str:
    """What is in the queue for a job. On moto a delay is real time, so tests bring the message themselves."""
    ids = {"tenant": tenant, "user": user, "session_id": job.session_id or ""}
    return json.dumps({"v": 1, "job_id": job.job_id, "kind": job.kind, **ids})


def worked(harness: Harness, job: Job) -> Job:
    """The job after both of its passes."""
    for _ in range(50):
        assert deliver(harness, message_of(job)) == set()
        job = harness.log().job(job.job_id)
        if job.status != "queued":
            return job
        harness.clock.advance(SECOND_PASS_SECONDS)
    raise AssertionError("the job does not end")


def of_session(harness: Harness, session_id: str = "s") -> list[dict[str, Any]]:
    keys = SessionKeys(OWNER, session_id)
    return [item for item in items_of(harness) if item["pk"] == keys.partition or item["sk"] == keys.directory.sk]
