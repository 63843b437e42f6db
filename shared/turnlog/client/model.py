"""The object model: `Turnlog`, its sessions, and what can be done with one. The same over every engine.

It speaks to a `Backend`, which takes calls of the route table by name: in this process, or over HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from turnlog.agents.run_calls import RunCalls
from turnlog.client.aws import Aws
from turnlog.client.backend import Backend, Paged, given
from turnlog.client.conversation import ConversationCalls
from turnlog.client.documents import DocumentCalls
from turnlog.client.exports import PersonExport, SessionExport, SessionImports
from turnlog.client.finding import FindingCalls
from turnlog.client.parts import GivenPolicy, policy_field
from turnlog.client.states import JobCalls, MemoryCalls, StateCalls, UpkeepCalls
from turnlog.client.time_travel import SnapshotCalls, TimeTravel
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.jobs.models import Job
from turnlog.linter.models import LintAnswer
from turnlog.search.models import SearchSessionsAnswer
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.models import Session as SessionInfo
from turnlog.sessions.models import SessionPage, Status
from turnlog.sessions.state_models import Health


class Turnlog(PersonExport, JobCalls, MemoryCalls, UpkeepCalls):
    """The sessions of one owner. Made by `Turnlog.open`; use it as a context manager or call `close`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.sessions = Sessions(backend)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        tenant: str | None = None,
        user: str | None = None,
        token: str | None = None,
        aws: Aws | bool | None = None,
        timeout_seconds: float | None = None,
        deadline_seconds: float | None = None,
    ) -> Turnlog:
        """Opens an engine in this process: ``sqlite:///agent.db`` (blobs in ``agent.db.blobs/``), ``memory://``, or
        ``dynamodb://TABLE?bucket=B&queue=Q&region=R``; or a service over HTTP: ``http://127.0.0.1:8787``.

        The owner is ``local`` / ``me`` where it is left out; over HTTP the service decides then. The other options are for a
        service. ``token`` is its bearer token. Without one, requests to an https address of API Gateway's or of a function's URL
        are signed with the AWS credentials of the environment; ``aws=Aws(...)``, or True, signs for other addresses too, and False
        never. ``timeout_seconds`` (30) is for connecting and for each wait, ``deadline_seconds`` for a call with all its tries:
        then it is `UnavailableError`, code ``deadline_exceeded``. Raises `InvalidInputError` for a URL that names neither.
        """
        if url.startswith(("http://", "https://")):
            from turnlog.client.over_http import HttpBackend

            times = given({"timeout_seconds": timeout_seconds, "deadline_seconds": deadline_seconds})
            return cls(HttpBackend(url, tenant=tenant, user=user, token=token, aws=aws, **times))
        from turnlog.client.in_process import open_backend

        options = {"token": token, "aws": aws, "timeout_seconds": timeout_seconds, "deadline_seconds": deadline_seconds}
        for name in given(options):
            raise InvalidInputError(
                f"{name} is for a service at http:// or https://, not for an engine in this process"
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
            "lint_messages", body=given({"messages": list(messages), "format": format})
        )
        return answer

    def erase_me(self, *, key: str | None = None) -> Job:
        """Erases everything of the owner for good. Until the job is done, no session can be created (`ConflictError`, code
        ``erasing``); its receipt is what stays.
        """
        answer: Job = self._backend.call("erase_user", key=key)
        return answer

    def search(
        self,
        q: str,
        *,
        limit: int | None = None,
        role: Literal["system", "user", "assistant", "tool"] | None = None,
        tool: str | None = None,
        after: str | None = None,
        before: str | None = None,
    ) -> SearchSessionsAnswer:
        """The owner's sessions by the words of a question: titles, summaries and messages, best first; with ``role``, ``tool``,
        ``after`` or ``before`` (times, RFC 3339) messages only.

        Among very many sessions those that were never looked through are known by their titles at first (``unindexed``); a job is
        made for them.
        """
        query = {"q": q, "limit": limit, "role": role, "tool": tool, "after": after, "before": before}
        answer: SearchSessionsAnswer = self._backend.call("search_sessions", query=query)
        return answer

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
        bootstrap: bool | Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Session:
        """A new session; `SessionExistsError` when there is one of that id, unless ``if_exists="return"``.

        ``snapshots={"every_loops": 5, "keep": 20}``: it makes snapshots by itself. ``bootstrap=True``, or an object with
        ``question``, ``max_tokens``, ``limit`` and ``timeout_seconds``: it begins with what long-term memory knows of the user;
        `Session.info` says what that was, or why not.
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
            "bootstrap": bootstrap,
        }
        info: SessionInfo = self._backend.call("create_session", body=given(fields), key=key)
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

    def list(self, *, status: Status | None = None) -> Paged[SessionInfo]:
        """All of them, newest activity first, page by page."""

        def fetch(cursor: str | None) -> tuple[Sequence[SessionInfo], str | None]:
            page = self.page(limit=100, cursor=cursor, status=status)
            return page.sessions, page.next_cursor

        return Paged(fetch)


class Session(
    ConversationCalls, RunCalls, FindingCalls, StateCalls, DocumentCalls, SnapshotCalls, SessionExport, TimeTravel
):
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
