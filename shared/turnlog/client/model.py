"""The object model: `Turnlog`, its sessions, and what can be done with one. The same over every engine.

It speaks to a `Backend`, which takes calls of the route table by name: in this process, or over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from turnlog.client.backend import Backend
from turnlog.client.exports import PersonExport, SessionExport, SessionImports
from turnlog.client.policies import GivenPolicy, policy_field
from turnlog.client.snapshots import SnapshotCalls
from turnlog.client.time_travel import TimeTravel
from turnlog.contracts.agents import AgentState, Decided, Health
from turnlog.contracts.builds import Build
from turnlog.contracts.context import WindowAnswer
from turnlog.contracts.history import HistoryEntry, HistoryPage
from turnlog.contracts.jobs import Job, JobPage, Redriven
from turnlog.contracts.lint import LintAnswer
from turnlog.contracts.messages import Appended, LoopAnswer, LoopPage, MessagePage, StoredMessage
from turnlog.contracts.recall import Recalled, SearchAnswer
from turnlog.contracts.sessions import Session as SessionInfo
from turnlog.contracts.sessions import SessionPage, Status
from turnlog.contracts.state import StateAnswer
from turnlog.contracts.summaries import Compressed, SummaryAnswer
from turnlog.domain.errors import InvalidInputError, NotFoundError


class Turnlog(PersonExport):
    """The sessions of one owner. Made by `Turnlog.open`; use it as a context manager or call `close`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.sessions = Sessions(backend)

    @classmethod
    def open(cls, url: str, *, tenant: str | None = None, user: str | None = None, token: str | None = None) -> Turnlog:
        """Opens an engine in this process: ``sqlite:///agent.db`` (blobs in ``agent.db.blobs/``), ``memory://``, or
        ``dynamodb://TABLE?bucket=B&queue=Q&region=R``; or a service over HTTP: ``http://127.0.0.1:8787``.

        The owner is ``local`` / ``me`` where it is left out; over HTTP the service decides then. ``token`` is the service's
        bearer token. Raises `InvalidInputError` for a URL that names neither.
        """
        if url.startswith(("http://", "https://")):
            from turnlog.client.over_http import HttpBackend

            return cls(HttpBackend(url, tenant=tenant, user=user, token=token))
        from turnlog.client.in_process import open_backend

        if token is not None:
            raise InvalidInputError(
                "a token is for a service at http:// or https://, not for an engine in this process"
            )
        return cls(open_backend(url, tenant="local" if tenant is None else tenant, user="me" if user is None else user))

    def build_window(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> WindowAnswer:
        """A window over a list of messages; nothing is stored. Options are the fields of ``POST /v1/window``."""
        body = {**options, "messages": list(messages)}
        if "policy" in options:
            body["policy"] = policy_field(options["policy"])
        answer: WindowAnswer = self._backend.call("build_window", body=body)
        return answer

    def lint(self, messages: Sequence[Mapping[str, Any]], *, format: str | None = None) -> LintAnswer:
        """Which rules of a provider the messages break; nothing is stored. ``format`` is recognised when it is left out."""
        answer: LintAnswer = self._backend.call(
            "lint_messages", body=_given({"messages": list(messages), "format": format})
        )
        return answer

    def run_jobs(self) -> int:
        """Does the jobs that wait in the queue of an engine in this process, and returns how many were done.

        In a process without ``turnlog serve`` nobody else does them: call it when the agent has nothing to do. A service does
        its own jobs, and so do the workers of a table in AWS.
        """
        return self._backend.run_jobs()

    def erase_me(self, *, key: str | None = None) -> Job:
        """Erases everything of the owner for good. Until the job is done, no session can be created (`ConflictError`, code
        ``erasing``); its receipt is what stays.
        """
        answer: Job = self._backend.call("erase_user", key=key)
        return answer

    def job(self, job_id: str) -> Job:
        """One job, or `NotFoundError`."""
        answer: Job = self._backend.call("get_job", path={"job_id": job_id})
        return answer

    def jobs(self, *, status: Literal["queued", "done", "failed"] | None = None) -> Iterator[Job]:
        """The owner's jobs, newest first, page by page."""
        cursor: str | None = None
        while True:
            query = {"limit": 100, "cursor": cursor, "status": status}
            page: JobPage = self._backend.call("list_jobs", query=query)
            yield from page.jobs
            cursor = page.next_cursor
            if cursor is None:
                return

    def redrive(self, job_id: str | None = None, *, failed: bool = False) -> Redriven:
        """Puts jobs that did not get done back into their queues, once their cause is mended: all dead letters, whoever owns
        them, and with ``failed`` the owner's failed jobs; or one job.

        It takes an engine in this process, with its rights: over HTTP it is `InvalidInputError`.
        """
        return self._backend.redrive(job_id, failed=failed)

    def health(self) -> Health:
        answer: Health = self._backend.call("health")
        return answer

    def close(self) -> None:
        self._backend.close()

    def __enter__(self) -> Turnlog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sessions(SessionImports):
    """The owner's sessions."""

    def create(  # noqa: PLR0913 - the fields of a session
        self,
        session_id: str | None = None,
        *,
        title: str | None = None,
        system: str | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        output_reserve: int | None = None,
        policy: GivenPolicy | None = None,
        metadata: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        state_schema: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        recall: Literal["always", "never"] | None = None,
        loop_timeout_seconds: int | None = None,
        ttl_days: int | None = None,
        inactive_after_days: int | None = None,
        snapshots: Mapping[str, int] | None = None,
        if_exists: Literal["error", "return"] = "error",
        key: str | None = None,
    ) -> Session:
        """A new session; `SessionExistsError` when there is one of that id, unless ``if_exists="return"``.

        ``snapshots={"every_loops": 5, "keep": 20}``: it makes snapshots by itself.
        """
        fields = {
            "session_id": session_id,
            "title": title,
            "system": system,
            "model": model,
            "tools": list(tools) if tools is not None else None,
            "output_reserve": output_reserve,
            "policy": policy_field(policy),
            "metadata": metadata,
            "state": state,
            "state_schema": state_schema,
            "strict": strict,
            "recall": recall,
            "loop_timeout_seconds": loop_timeout_seconds,
            "ttl_days": ttl_days,
            "inactive_after_days": inactive_after_days,
            "snapshots": snapshots,
            "if_exists": if_exists,
        }
        info: SessionInfo = self._backend.call("create_session", body=_given(fields), key=key)
        return Session(self._backend, info.session_id)

    def get(self, session_id: str) -> Session:
        """An existing session, or `NotFoundError`."""
        session = Session(self._backend, session_id)
        session.info()
        return session

    def of(self, session_id: str) -> Session:
        """A session by its id, whether or not there is one: the snapshots of one that has expired are still there."""
        return Session(self._backend, session_id)

    def get_or_create(self, session_id: str, **settings: Any) -> Session:
        """The session of that id; made with these settings when there is none."""
        return self.create(session_id, if_exists="return", **settings)

    def exists(self, session_id: str) -> bool:
        try:
            self.get(session_id)
        except NotFoundError:
            return False
        return True

    def page(self, *, limit: int = 20, cursor: str | None = None, status: Status | None = None) -> SessionPage:
        """One page, newest activity first."""
        answer: SessionPage = self._backend.call(
            "list_sessions", query={"limit": limit, "cursor": cursor, "status": status}
        )
        return answer

    def list(self, *, status: Status | None = None) -> Iterator[SessionInfo]:
        """All of them, newest activity first, page by page."""
        cursor: str | None = None
        while True:
            page = self.page(limit=100, cursor=cursor, status=status)
            yield from page.sessions
            cursor = page.next_cursor
            if cursor is None:
                return


class Session(SnapshotCalls, SessionExport, TimeTravel):
    """One session. Nothing is kept in this object but its id: two of them, in two processes, are the same session."""

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def info(self) -> SessionInfo:
        """Settings and totals as of the newest commit."""
        answer: SessionInfo = self._backend.call("get_session", path=self._path)
        return answer

    def update(self, *, key: str | None = None, **settings: Any) -> SessionInfo:
        """Other settings: ``title``, ``system``, ``model``, ``tools``, ``output_reserve``, ``policy``, ``metadata``, ``strict``,
        ``loop_timeout_seconds``, ``ttl_days``, ``inactive_after_days``, ``snapshots``.

        What is left out stays; None is the default again. Windows of earlier moments keep the settings of their time.
        """
        fields = dict(settings)
        if "policy" in fields:
            fields["policy"] = policy_field(fields["policy"])
        if fields.get("tools") is not None:
            fields["tools"] = list(fields["tools"])
        answer: SessionInfo = self._backend.call("update_session", path=self._path, body=fields, key=key)
        return answer

    def end(self, *, key: str | None = None) -> SessionInfo:
        """Ends the session: appends and changes of its state are `SessionEndedError` from here on. All of it can be read."""
        answer: SessionInfo = self._backend.call("end_session", path=self._path, key=key)
        return answer

    def reset(self, *, key: str | None = None) -> Session:
        """Ends the session, and gives the fresh one that is in its place: the same settings, no messages and no state.

        There is one for each session, however often this is called.
        """
        info: SessionInfo = self._backend.call("reset_session", path=self._path, key=key)
        return Session(self._backend, info.session_id)

    def erase(self, *, key: str | None = None) -> Job:
        """Erases the session for good, with its snapshots. From here on it is `NotFoundError` to everyone; the job says how far
        the erasing is, and is done after a second look 15 minutes later.
        """
        answer: Job = self._backend.call("erase_session", path=self._path, key=key)
        return answer

    def redact(self, position: int, *, key: str | None = None) -> Job:
        """Overwrites what one message says, for good. From here on nobody reads it; the job removes what was made of it (summaries,
        segments, snapshots, copies in forks, exports), and is done after a second look 15 minutes later.
        """
        path = {**self._path, "position": str(position)}
        answer: Job = self._backend.call("redact_message", path=path, key=key)
        return answer

    def append(
        self,
        *messages: Mapping[str, Any],
        meta: Sequence[Mapping[str, Any]] | None = None,
        format: str | None = None,
        if_head: int | None = None,
        run: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        window: Mapping[str, int] | None = None,
        usage: Mapping[str, int] | None = None,
        key: str | None = None,
    ) -> Appended:
        """Appends 1 to 25 messages in one commit. With ``key``, a repeated call has one effect and the same answer."""
        fields = {
            "messages": list(messages),
            "meta": list(meta) if meta is not None else None,
            "format": format,
            "if_head": if_head,
            "run": run,
            "run_id": run_id,
            "window": window,
            "usage": usage,
        }
        answer: Appended = self._backend.call("append_messages", path=self._path, body=_given(fields), key=key)
        return answer

    def context(
        self,
        *,
        format: str | None = None,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        output_reserve: int | None = None,
        include_current_loop: bool | None = None,
        settle: bool | None = None,
        breakpoints: Literal["suggest", "apply"] | None = None,
        at: int | str | None = None,
        build: Build | Mapping[str, Any] | None = None,
    ) -> WindowAnswer:
        """The window for the next model call.

        ``breakpoints="apply"``: with the provider's prompt-cache breakpoints, to be sent as it is.
        ``at``: as if the log ended at this position, or time (RFC 3339). ``build``: of a manifest; the same window again.
        """
        fields = {
            "format": format,
            "budget": budget,
            "policy": policy_field(policy),
            "model": model,
            "tools": list(tools) if tools is not None else None,
            "output_reserve": output_reserve,
            "include_current_loop": include_current_loop,
            "settle": settle,
            "breakpoints": breakpoints,
            "at": at,
            "build": build.model_dump(mode="json") if isinstance(build, Build) else build,
        }
        answer: WindowAnswer = self._backend.call("build_context", path=self._path, body=_given(fields))
        return answer

    def page(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
        format: str | None = None,
        at: int | str | None = None,
        in_view: bool = False,
    ) -> MessagePage:
        """One page of the full history; with ``in_view`` without what rewinds have taken out of view, with ``at`` what was in
        view at that position or time."""
        query = {"after": after, "before": before, "limit": limit, "order": order, "format": format, "at": at}
        query["in_view"] = "true" if in_view else None
        answer: MessagePage = self._backend.call("read_messages", path=self._path, query=query)
        return answer

    def messages(
        self,
        *,
        order: Literal["asc", "desc"] = "asc",
        format: str | None = None,
        at: int | str | None = None,
        in_view: bool = False,
    ) -> Iterator[StoredMessage]:
        """The full history, or what `page` gives of it, page by page."""
        place: int | None = None
        while True:
            after, before = (place, None) if order == "asc" else (None, place)
            page = self.page(after=after, before=before, order=order, format=format, at=at, in_view=in_view)
            yield from page.messages
            place = page.next
            if place is None:
                return

    def loops(self) -> Iterator[LoopAnswer]:
        """Run loops, newest first, page by page."""
        before: int | None = None
        while True:
            page: LoopPage = self._backend.call("read_loops", path=self._path, query={"before": before})
            yield from page.loops
            before = page.next
            if before is None:
                return

    def recall(
        self,
        ref: str | None = None,
        *,
        call_id: str | None = None,
        pattern: str | None = None,
        from_line: int | None = None,
        to_line: int | None = None,
        pointer: str | None = None,
        max_tokens: int | None = None,
    ) -> Recalled:
        """A tool call and its result, or ``found`` false with a hint."""
        query = {
            "ref": ref,
            "call_id": call_id,
            "pattern": pattern,
            "from_line": from_line,
            "to_line": to_line,
            "pointer": pointer,
            "max_tokens": max_tokens,
        }
        answer: Recalled = self._backend.call("recall", path=self._path, query=query)
        return answer

    def search(
        self,
        q: str,
        *,
        limit: int | None = None,
        role: Literal["system", "user", "assistant", "tool"] | None = None,
        loop: int | None = None,
        tool: str | None = None,
        after: int | str | None = None,
        before: int | str | None = None,
    ) -> SearchAnswer:
        """Messages by the words of a question, best first; ``after`` and ``before`` are a position or a time each."""
        query = {
            "q": q,
            "limit": limit,
            "role": role,
            "loop": loop,
            "tool": tool,
            "after": after,
            "before": before,
        }
        answer: SearchAnswer = self._backend.call("search_session", path=self._path, query=query)
        return answer

    def run_recall_tool(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Executes a call of `recall_tool_call` or `search_history` that a model made: the text to give back to it.

        What is wrong with the call is said in the text, so that the model can try again; `KeyError` when the name is
        another tool's.
        """
        from turnlog.client.recall_tools import run

        return run(self, name, arguments)

    def compress(
        self,
        *,
        mode: Literal["sync", "async"] = "sync",
        keep_loops: int | None = None,
        max_tokens: int | None = None,
        key: str | None = None,
    ) -> Compressed | Job:
        """Summarises closed loops. A job in mode ``async``, and when there is more to do than a request has time for."""
        fields = {"mode": mode, "keep_loops": keep_loops, "max_tokens": max_tokens}
        answer: Compressed | Job = self._backend.call("compress_session", path=self._path, body=_given(fields), key=key)
        return answer

    def summary(self) -> SummaryAnswer | None:
        """The summary in force; None while there is none."""
        try:
            answer: SummaryAnswer = self._backend.call("get_summary", path=self._path)
        except NotFoundError as error:
            if error.error_code != "no_summary":
                raise
            return None
        return answer

    def discard_summary(self, *, key: str | None = None) -> Job:
        """Discards the summary in force; the job makes one of the history, as if there had been none.

        The log keeps the discarded one, for windows of earlier moments (``at``). Until the job is done, windows have none.
        """
        answer: Job = self._backend.call("discard_summary", path=self._path, key=key)
        return answer

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
        body = _given({"state": dict(state), "action": action, "if_version": if_version})
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
        path, body = {**self._path, "agent_id": agent_id}, _given({"decision": decision, "reason": reason})
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
        body = _given({"action": action, "agent_id": agent_id, "metadata": metadata})
        answer: HistoryEntry = self._backend.call("record_history", path=self._path, body=body, key=key)
        return answer


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
