"""Jobs of an owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turnlog.client.backend import OfOwner
from turnlog.client.paging import Paged
from turnlog.contracts.jobs import Job, JobPage, Redriven


class JobCalls(OfOwner):
    """Doing, looking at and redriving them."""

    def run_jobs(self) -> int:
        """Does the jobs that wait in the queue of an engine in this process, and returns how many were done.

        In a process without ``turnlog serve`` nobody else does them: call it when the agent has nothing to do. A service does
        its own jobs, and so do the workers of a table in AWS.
        """
        return self._backend.run_jobs()

    def job(self, job_id: str) -> Job:
        """One job, or `NotFoundError`."""
        answer: Job = self._backend.call("get_job", path={"job_id": job_id})
        return answer

    def jobs(self, *, status: Literal["queued", "done", "failed"] | None = None) -> Paged[Job]:
        """The owner's jobs, newest first, page by page."""

        def fetch(cursor: str | None) -> tuple[Sequence[Job], str | None]:
            query = {"limit": 100, "cursor": cursor, "status": status}
            page: JobPage = self._backend.call("list_jobs", query=query)
            return page.jobs, page.next_cursor

        return Paged(fetch)

    def redrive(self, job_id: str | None = None, *, failed: bool = False) -> Redriven:
        """Puts jobs that did not get done back into their queues, once their cause is mended: all dead letters, whoever owns
        them, and with ``failed`` the owner's failed jobs; or one job.

        It takes an engine in this process, with its rights: over HTTP it is `InvalidInputError`.
        """
        return self._backend.redrive(job_id, failed=failed)
