"""Calls for the state of a session and its agents, for jobs, long-term memory, and upkeep of an engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from turnlog.client import Backend, OwnerResource, Paged, SessionResource
from turnlog.core.json_values import without_none
from turnlog.jobs.models import Job, JobPage, Redriven
from turnlog.memory.routes import Forgotten, MemoryList, StoredMemory
from turnlog.ports import JobStatus
from turnlog.sessions.state_routes import AgentState, Decided, StateAnswer

if TYPE_CHECKING:
    from turnlog.upkeep.backup import Backup
    from turnlog.upkeep.verify import Verification


class StateCalls(SessionResource):
    """Calls that read and change the state of a session and of its agents."""

    def state(self, *, at: int | str | None = None) -> StateAnswer:
        """Return the state and its version: the newest, or as it was ``at`` a position or time (RFC 3339)."""
        return self._call(StateAnswer, "get_state", query={"at": at})

    def put_state(
        self,
        state: Mapping[str, Any],
        *,
        action: str | None = None,
        if_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> StateAnswer:
        """Replace the state. ``action`` names the change in the history.

        Raises `VersionMismatchError` unless its version is ``if_version``, and `InvalidInputError` for one that does not fit the
        session's ``state_schema``.
        """
        body = without_none({"state": state, "action": action, "if_version": if_version})
        return self._call(StateAnswer, "put_state", body=body, idempotency_key=idempotency_key)

    def patch_state(
        self,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        action: str | None = None,
        if_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> StateAnswer:
        """Change the state by a JSON Merge Patch (a mapping) or a JSON Patch (a list of operations).

        Raises `PatchError` when the patch does not apply, `VersionMismatchError` unless the state has the version
        ``if_version``.
        """
        is_merge = isinstance(patch, Mapping)
        return self._call(
            StateAnswer,
            "patch_state",
            query={"action": action, "if_version": if_version},
            body=patch,
            idempotency_key=idempotency_key,
            media_type="application/merge-patch+json" if is_merge else "application/json-patch+json",
        )

    def agent(self, agent_id: str = "main") -> AgentState:
        """Return the execution state of an agent. Raises `NotFoundError` when there is none."""
        return self._call(AgentState, "get_agent", path={"agent_id": agent_id})

    def patch_agent(
        self,
        patch: Mapping[str, Any],
        *,
        agent_id: str = "main",
        lease: int | None = None,
        idempotency_key: str | None = None,
    ) -> AgentState:
        """Change an agent's execution state by a JSON Merge Patch. Raises `InvalidInputError` when the result is not valid.

        With ``lease``, raises `RunLostError` unless it is the token of the session's lease.
        """
        return self._call(
            AgentState,
            "patch_agent",
            path={"agent_id": agent_id},
            query={"lease": lease},
            body=patch,
            idempotency_key=idempotency_key,
        )

    def cancel_run(self, *, agent_id: str = "main", idempotency_key: str | None = None) -> AgentState:
        """Cancel an agent's newest run: its process stops before its next model call or its next tools.

        What the run has appended stays. Raises `NotFoundError` when the agent has no execution state.
        """
        patch = {"cancelled_run": self.agent(agent_id).state.get("run_id")}
        return self.patch_agent(patch, agent_id=agent_id, idempotency_key=idempotency_key)

    def decide_pending(
        self,
        decision: Literal["approve", "reject"],
        *,
        reason: str | None = None,
        agent_id: str = "main",
        idempotency_key: str | None = None,
    ) -> Decided:
        """Approve or reject the action that an agent waits with.

        A rejection, with its ``reason``, is appended as the result of the waiting call, in the same commit; an approved call is
        executed when the run continues. Raises `ConflictError` when nothing waits or a decision exists.
        """
        body = without_none({"decision": decision, "reason": reason})
        path = {"agent_id": agent_id}
        return self._call(Decided, "decide_pending", path=path, body=body, idempotency_key=idempotency_key)


_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0


def await_job(
    backend: Backend,
    job: Job,
    *,
    seconds: float,
    is_over: Callable[[Job], bool] = lambda job: job.status != "queued",
    meanwhile: Callable[[Job, float], None] = lambda _job, _seconds: None,
) -> Job:
    """Wait up to ``seconds`` until ``is_over`` is true of a job, and return its latest state.

    ``meanwhile`` is called before each request, with the job and the seconds that have passed.
    """
    started, pause_seconds = time.monotonic(), _FIRST_PAUSE_SECONDS
    while not is_over(job):
        passed_seconds = time.monotonic() - started
        meanwhile(job, passed_seconds)
        job = backend.call("get_job", path={"job_id": job.job_id})
        if is_over(job) or passed_seconds >= seconds:
            break
        time.sleep(min(pause_seconds, seconds - passed_seconds))
        pause_seconds = min(pause_seconds * 1.5, _LONGEST_PAUSE_SECONDS)
    return job


class JobCalls(OwnerResource):
    """Calls that run, list and redrive jobs."""

    def run_jobs(self) -> int:
        """Run the jobs that are due in the engine's queue, and return the number of jobs done.

        Call it to wait for a summary, or to do the worker's part for an engine that was opened with ``worker=False``: that
        also erases expired sessions and hands silent ones to long-term memory, at most once a minute. A job that the worker
        runs at the moment is over when the call returns. A service does its own jobs; there the call returns 0.
        """
        return self.backend.run_jobs()

    def job(self, job_id: str) -> Job:
        """Return one job. Raises `NotFoundError` when there is none."""
        return self._call(Job, "get_job", path={"job_id": job_id})

    def jobs(self, *, status: JobStatus | None = None) -> Paged[Job]:
        """Iterate over the owner's jobs, newest first, page by page."""

        def fetch(cursor: str | None) -> tuple[Sequence[Job], str | None]:
            query = {"limit": 100, "cursor": cursor, "status": status}
            page = self._call(JobPage, "list_jobs", query=query)
            return page.jobs, page.next_cursor

        return Paged(fetch)

    def redrive(self, job_id: str | None = None, *, failed: bool = False) -> Redriven:
        """Put failed jobs back into their queues after their cause is fixed.

        Without ``job_id``: all dead letters, of every owner, and with ``failed`` the owner's failed jobs too. It needs an
        engine in this process; over HTTP it raises `InvalidInputError`.
        """
        return self.backend.redrive(job_id, failed=failed)


class MemoryCalls(OwnerResource):
    """Calls that list and forget memories."""

    def memory(self) -> Paged[StoredMemory]:
        """Iterate over all memories, newest first, page by page. Replaced memories are marked."""

        def fetch(cursor: str | None) -> tuple[Sequence[StoredMemory], str | None]:
            page = self.memory_page(limit=100, cursor=cursor)
            return page.memories, page.next_cursor

        return Paged(fetch)

    def memory_page(self, *, limit: int = 20, cursor: str | None = None, q: str | None = None) -> MemoryList:
        """Return one page of memories, and the name of their engine; with ``q`` those that fit its words, best first."""
        query = {"limit": limit, "cursor": cursor, "q": q}
        return self._call(MemoryList, "list_memories", query=query)

    def forget(self, memory_id: str) -> Forgotten:
        """Delete one memory for good; its source does not create it again. An unknown id is no error."""
        return self._call(Forgotten, "forget_memory", path={"memory_id": memory_id})


class UpkeepCalls(OwnerResource):
    """Calls that check and back up an engine in this process."""

    def verify(
        self, session_id: str | None = None, *, progress: Callable[[Verification], None] | None = None
    ) -> Verification:
        """Check what is stored: the chain of commits, checksums, payloads, the head against the caches, and blobs.

        Checks one session of the owner, or everything in the engine, of every owner. Nothing is written; others may write
        meanwhile. ``damages`` of the answer is empty when no damage was found. ``progress`` is called with the totals after
        each session. It needs an engine in this process; over HTTP it raises `InvalidInputError`.
        """
        return self.backend.verify(session_id, progress or _ignored)

    def backup(self, path: str | Path, *, progress: Callable[[Verification], None] | None = None) -> Backup:
        """Write the database and its blobs to ``path`` and ``path + ".blobs"``, and check what was written.

        Writers need not stop: the backup shows one moment. Open it with ``sqlite:///PATH``. Raises `InvalidInputError`: code
        ``file_exists`` when ``path`` exists, ``needs_engine`` over HTTP.
        """
        return self.backend.back_up(Path(path), progress or _ignored)


def _ignored(done: Verification) -> None:
    """Ignore the progress: the default of ``progress``."""
