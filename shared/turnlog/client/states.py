"""The state of a session, of its agents, and the history of what was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from turnlog.client.backend import OwnerResource, Paged, SessionResource, given
from turnlog.jobs.models import Job, JobPage, Redriven
from turnlog.memory.models import Forgotten, MemoryList, StoredMemory
from turnlog.sessions.state_models import AgentState, Decided, HistoryEntry, HistoryPage, StateAnswer
from turnlog.upkeep.models import Backup, Verification


class StateCalls(SessionResource):
    """Reading and changing state, and recording entries."""

    def state(self, *, at: int | str | None = None) -> StateAnswer:
        """The state and its version, now or as it was ``at`` a position or time (RFC 3339)."""
        answer: StateAnswer = self._backend.call("get_state", path=self._path, query={"at": at})
        return answer

    def put_state(
        self,
        state: Mapping[str, Any],
        *,
        action: str | None = None,
        if_version: int | None = None,
        key: str | None = None,
    ) -> StateAnswer:
        """Another state in place of the one there is; `VersionMismatchError` unless it has the version ``if_version``."""
        body = given({"state": dict(state), "action": action, "if_version": if_version})
        answer: StateAnswer = self._backend.call("put_state", path=self._path, body=body, key=key)
        return answer

    def patch_state(
        self,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        action: str | None = None,
        if_version: int | None = None,
        key: str | None = None,
    ) -> StateAnswer:
        """Changes the state by a JSON Merge Patch (a mapping) or a JSON Patch (a list of operations).

        `PatchError` when it does not apply, `VersionMismatchError` unless the state has the version ``if_version``.
        """
        is_merge = isinstance(patch, Mapping)
        answer: StateAnswer = self._backend.call(
            "patch_state",
            path=self._path,
            query={"action": action, "if_version": if_version},
            body=dict(patch) if isinstance(patch, Mapping) else list(patch),
            key=key,
            media_type="application/merge-patch+json" if is_merge else "application/json-patch+json",
        )
        return answer

    def agent(self, agent_id: str = "main") -> AgentState:
        """The execution state of an agent, or `NotFoundError`."""
        answer: AgentState = self._backend.call("get_agent", path={**self._path, "agent_id": agent_id})
        return answer

    def patch_agent(self, patch: Mapping[str, Any], *, agent_id: str = "main", key: str | None = None) -> AgentState:
        """Changes an agent's execution state by a JSON Merge Patch; `InvalidInputError` when the result is not valid."""
        path = {**self._path, "agent_id": agent_id}
        answer: AgentState = self._backend.call("patch_agent", path=path, body=dict(patch), key=key)
        return answer

    def decide_pending(
        self,
        decision: Literal["approve", "reject"],
        *,
        reason: str | None = None,
        agent_id: str = "main",
        key: str | None = None,
    ) -> Decided:
        """Decides what an agent waits for. A refusal is the result of the call that waited, in the same commit.

        `ConflictError` when nothing waits, or it is decided already.
        """
        path, body = {**self._path, "agent_id": agent_id}, given({"decision": decision, "reason": reason})
        answer: Decided = self._backend.call("decide_pending", path=path, body=body, key=key)
        return answer

    def history_page(
        self, *, limit: int = 100, before: int | None = None, action: str | None = None, agent: str | None = None
    ) -> HistoryPage:
        """One page of what was done, newest first."""
        query = {"limit": limit, "before": before, "action": action, "agent": agent}
        answer: HistoryPage = self._backend.call("read_history", path=self._path, query=query)
        return answer

    def record(
        self,
        action: str,
        *,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> HistoryEntry:
        """An entry of one's own in the history; nothing changes."""
        body = given({"action": action, "agent_id": agent_id, "metadata": metadata})
        answer: HistoryEntry = self._backend.call("record_history", path=self._path, body=body, key=key)
        return answer


class JobCalls(OwnerResource):
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


class MemoryCalls(OwnerResource):
    """Listing and forgetting."""

    def memory(self) -> Paged[StoredMemory]:
        """All that is known, newest first, page by page; what a newer one replaced is marked."""

        def fetch(cursor: str | None) -> tuple[Sequence[StoredMemory], str | None]:
            page = self.memory_page(limit=100, cursor=cursor)
            return page.memories, page.next_cursor

        return Paged(fetch)

    def memory_page(self, *, limit: int = 20, cursor: str | None = None) -> MemoryList:
        """One page, and which engine keeps it."""
        answer: MemoryList = self._backend.call("list_memories", query={"limit": limit, "cursor": cursor})
        return answer

    def forget(self, memory_id: str) -> Forgotten:
        """Deletes one memory for good: it is not made again of what it came from. One that is not there is no error."""
        answer: Forgotten = self._backend.call("forget_memory", path={"memory_id": memory_id})
        return answer


class UpkeepCalls(OwnerResource):
    """Checks and backups of an engine in this process."""

    def verify(
        self, session_id: str | None = None, *, progress: Callable[[Verification], None] | None = None
    ) -> Verification:
        """Check what is stored: the chain of commits, checksums, payloads, the head against the caches, and blobs.

        One session of the owner, or everything in the engine, whoever owns it. Nothing is written, and others may write meanwhile.
        ``damages`` of the answer is empty when all is well. ``progress`` is told the sum after each session. It takes an engine in
        this process: over HTTP it is `InvalidInputError`.
        """
        return self._backend.verify(session_id, progress or _ignored)

    def backup(self, path: str | Path, *, progress: Callable[[Verification], None] | None = None) -> Backup:
        """Write the database and the blobs that it names to ``path`` and ``path + ".blobs"``, and check what was written.

        Writers need not stop: the backup is of one moment. Open it with ``sqlite:///PATH``. `InvalidInputError`, code
        ``file_exists``, when something is there already; over HTTP too.
        """
        return self._backend.back_up(Path(path), progress or _ignored)


def _ignored(done: Verification) -> None:
    """Nobody wants to know how far it is."""
