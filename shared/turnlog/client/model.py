"""The object model: `Turnlog`, its sessions, and the calls of a session. It is the same over every engine.

Objects call a `Backend` with the names of routes; the backend answers in this process or over HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Literal

from turnlog.client import Backend, GivenMessage, GivenPolicy, Paged, plain_messages, policy_field, sent_settings
from turnlog.client.aws import Aws
from turnlog.client.conversation import ConversationCalls, RunCalls
from turnlog.client.documents import Documents
from turnlog.client.exports import PersonExport, SessionExport, SessionImports
from turnlog.client.finding import FindingCalls
from turnlog.client.states import JobCalls, MemoryCalls, StateCalls, UpkeepCalls
from turnlog.client.time_travel import SnapshotCalls, TimeTravel
from turnlog.core.errors import InvalidInputError, NotFoundError, TurnlogError
from turnlog.core.identity import check_session_id
from turnlog.core.json_values import without_none
from turnlog.core.models import Recall, SessionStatus
from turnlog.engines import location_url
from turnlog.http.health_routes import Health
from turnlog.jobs.models import Job
from turnlog.linter.routes import LintAnswer
from turnlog.ports import Prompt
from turnlog.search.models import SearchSessionsAnswer
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.models import Session as SessionInfo
from turnlog.sessions.models import SessionPage


class Turnlog(PersonExport, JobCalls, MemoryCalls, UpkeepCalls):
    """The sessions, jobs and memories of one owner. Open it with `Turnlog.open`; use it as a context manager or call `close`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.sessions = Sessions(backend)

    @classmethod
    def open(  # noqa: PLR0913
        cls,
        url: str | os.PathLike[str],
        *,
        tenant: str | None = None,
        user: str | None = None,
        token: str | None = None,
        aws: Aws | bool | None = None,
        timeout_seconds: float | None = None,
        deadline_seconds: float | None = None,
        worker: bool | None = None,
        summariser: Callable[[Prompt], str] | None = None,
    ) -> Turnlog:
        """Open an engine in this process, or connect to a service over HTTP.

        An engine: a path such as ``agent.db`` (SQLite, blobs in ``agent.db.blobs/``), which is ``sqlite:///agent.db``;
        ``memory://``; or ``dynamodb://TABLE?bucket=B&queue=Q&region=R``. A path without a suffix is a folder that holds
        ``turnlog.db``, like the command line's ``.turnlog``. A service: ``http://127.0.0.1:8787``.

        ``tenant`` and ``user`` are ``local`` and ``me`` by default; over HTTP the service decides by default.

        SQLite and memory have a worker: a thread in this process that makes summaries and does the other jobs. It starts with
        the first job. `close` and the end of the process wait for the job under way, and for due ones that begin within 5
        seconds; the others stay in the queue. With ``worker=False`` there is no thread: call `run_jobs`, or run
        ``turnlog serve`` on the same file.

        ``summariser`` is a function that writes the summaries made in this process. It takes a `turnlog.ports.Prompt`, with the
        instructions in ``system`` and the history in ``record``, and returns the text. An answer that is no summary is refused
        and replaced by extracts; an error is an outage: after three tries, an append ten minutes later asks again.

        The other options are for a service only. ``token`` is its bearer token. Without a token, requests to an https address
        of API Gateway or of a Lambda function URL are signed with the AWS credentials of the environment. ``aws=Aws(...)`` or
        ``aws=True`` signs requests to other addresses too; ``aws=False`` never signs. ``timeout_seconds`` (30) limits
        connecting and each wait. ``deadline_seconds`` limits a call with all its tries; after it the call raises
        `UnavailableError`, code ``deadline_exceeded``. Raises `InvalidInputError` for a URL of another kind. A SQLite file is
        opened here, or created: raises `UnavailableError` for one that can't be used.
        """
        url = location_url(url)
        if url.startswith(("http://", "https://")):
            for name in without_none({"worker": worker, "summariser": summariser}):
                raise InvalidInputError(f"{name} is for an engine in this process; a service has its own workers")
            from turnlog.client.over_http import HttpBackend

            times = without_none({"timeout_seconds": timeout_seconds, "deadline_seconds": deadline_seconds})
            return cls(HttpBackend(url, tenant=tenant, user=user, token=token, aws=aws, **times))
        from turnlog.client.in_process import open_backend

        options = {"token": token, "aws": aws, "timeout_seconds": timeout_seconds, "deadline_seconds": deadline_seconds}
        for name in without_none(options):
            raise InvalidInputError(
                f"{name} is for a service at http:// or https://, not for an engine in this process"
            )
        tenant, user = "local" if tenant is None else tenant, "me" if user is None else user
        return cls(open_backend(url, tenant=tenant, user=user, worker=worker, summariser=summariser))

    def build_window(self, /, messages: Sequence[GivenMessage], **options: Any) -> WindowAnswer:
        """Build a window over messages as `Session.append` takes them; store nothing. Options: those of `turnlog.build_window`."""
        messages, input_format = plain_messages(messages, options.get("input_format"))
        body = {**sent_settings(options), "messages": messages, "input_format": input_format}
        return self._call(WindowAnswer, "build_window", body=body)

    def lint(
        self, /, messages: Sequence[Mapping[str, Any]], *, format: str | None = None, **request: Any
    ) -> LintAnswer:
        """List the provider rules that the messages break; store nothing. Without ``format``, it is recognised from the
        messages. ``request`` may have ``system``, ``tools`` and ``made_behind``, as in `turnlog.lint`.
        """
        fields = {"messages": list(messages), "format": format, **request}
        return self._call(LintAnswer, "lint_messages", body=without_none(fields))

    def erase_me(self, *, idempotency_key: str | None = None) -> Job:
        """Erase everything of the owner for good. Only the job's receipt stays.

        The first 100 sessions are gone when this returns, the others when the job runs. Until the job is done, creating a session
        raises `ConflictError`, code ``erasing``.
        """
        return self._call(Job, "erase_user", idempotency_key=idempotency_key)

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
        """Search the owner's sessions by the words of a question: titles, summaries and messages, best match first.

        With ``role``, ``tool``, ``after`` or ``before`` (times, RFC 3339), only messages are searched. An owner may have more
        sessions than one request can index. The others are searched by title only, counted in ``unindexed``, and a job indexes
        them.
        """
        query = {"q": q, "limit": limit, "role": role, "tool": tool, "after": after, "before": before}
        return self._call(SearchSessionsAnswer, "search_sessions", query=query)

    def health(self) -> Health:
        """Return the health of the engine or the service."""
        return self._call(Health, "health")

    def close(self) -> None:
        """Close the engine, or the connections to the service."""
        self.backend.close()

    def __enter__(self) -> Turnlog:
        return self

    def __exit__(self, *error: object) -> None:
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
        recall: Recall | None = None,
        loop_timeout_seconds: int | None = None,
        ttl_days: int | None = None,
        inactive_after_minutes: int | None = None,
        snapshots: Mapping[str, int] | None = None,
        if_exists: Literal["error", "return"] = "error",
        bootstrap: bool | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Create a session. Raises `SessionExistsError` when the id is taken, unless ``if_exists="return"``.

        An id has 1 to 256 of ``A-Z a-z 0-9 _ - @ : . + /``; without one it is generated. ``system`` and ``tools`` are sent with
        every window, by the rules of ``policy``. ``model`` decides the budget where a call of `Session.context` gives none, and
        ``output_reserve`` (4096 tokens) is kept free for its answer. ``state`` must fit ``state_schema`` (JSON Schema 2020-12).
        ``strict`` refuses messages that break the order of calls and results; else they are kept with a warning. ``recall``: which
        windows offer the tools that bring back what they leave out, with ``auto`` those from the first one on that does. After
        ``loop_timeout_seconds`` (3600) of silence a user message opens a new loop. Without activity the session is handed to
        long-term memory after ``inactive_after_minutes``, and expires after ``ttl_days``; by default neither.

        ``snapshots={"every_loops": 5, "keep": 20}`` makes automatic snapshots. ``bootstrap`` is True, or an object with
        ``question``, ``max_tokens``, ``limit`` and ``timeout_seconds``: the session then begins with what long-term memory
        knows about the user. `Session.info` reports what was added, or why nothing was.
        """
        fields = {
            "session_id": session_id,
            "title": title,
            "system": system,
            "model": model,
            "tools": tools,
            "output_reserve": output_reserve,
            "policy": policy_field(policy),
            "metadata": metadata,
            "state": state,
            "state_schema": state_schema,
            "strict": strict,
            "recall": recall,
            "loop_timeout_seconds": loop_timeout_seconds,
            "ttl_days": ttl_days,
            "inactive_after_minutes": inactive_after_minutes,
            "snapshots": snapshots,
            "if_exists": if_exists,
            "bootstrap": bootstrap,
        }
        info = self._call(SessionInfo, "create_session", body=without_none(fields), idempotency_key=idempotency_key)
        return Session(self.backend, info.session_id)

    def get(self, session_id: str) -> Session:
        """Return an existing session. Raises `NotFoundError` when there is none."""
        session = self.of(session_id)
        session.info()
        return session

    def of(self, session_id: str) -> Session:
        """Return the session object of an id without a request. An expired session still has its snapshots."""
        return Session(self.backend, check_session_id(session_id))

    def get_or_create(self, /, session_id: str, **settings: Any) -> Session:
        """Return the session of an id, or create it with these settings of `create`. Those of an existing session stay."""
        return self.create(check_session_id(session_id), if_exists="return", **settings)

    def exists(self, session_id: str) -> bool:
        """Return whether the owner has a session of this id."""
        try:
            self.get(session_id)
        except NotFoundError:
            return False
        return True

    def page(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        status: SessionStatus | None = None,
        user: str | None = None,
    ) -> SessionPage:
        """Return one page of up to ``limit`` sessions (1 to 100), newest activity first. ``user`` is for operators: see `list`.

        ``next_cursor`` of the answer is the ``cursor`` of the next page; None at the end.
        """
        query = {"limit": limit, "cursor": cursor, "status": status, "user": user}
        return self._call(SessionPage, "list_sessions", query=query)

    def list(self, *, status: SessionStatus | None = None, user: str | None = None) -> Paged[SessionInfo]:
        """Iterate over all sessions, newest activity first, page by page.

        An operator of the tenant lists those of another ``user``, or of every user with ``"*"``, user after user. Raises
        `ForbiddenError` for other callers of a service.
        """

        def fetch(cursor: str | None) -> tuple[Sequence[SessionInfo], str | None]:
            page = self.page(limit=100, cursor=cursor, status=status, user=user)
            return page.sessions, page.next_cursor

        return Paged(fetch)


class Session(ConversationCalls, RunCalls, FindingCalls, StateCalls, SnapshotCalls, SessionExport, TimeTravel):
    """A session of the owner. The object holds only its id: objects of one id are one session, and those of one log are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and (self.backend, self.id) == (other.backend, other.id)

    def __hash__(self) -> int:
        return hash((self.backend, self.id))

    def _repr_html_(self) -> str:
        """Return the session's totals and its current window for a notebook."""
        info = self.info()
        totals = f"{info.messages:,} messages, {info.loops:,} loops, {info.tokens:,} tokens, {info.status}"
        try:
            window = self.context()._repr_html_()
        except TurnlogError as error:  # a session without messages has no window
            window = f"<p>{escape(error.detail)}</p>"
        return f"<p>{escape(repr(self))}: {totals}</p>{window}"

    def info(self) -> SessionInfo:
        """Return settings and totals as of the newest commit."""
        return self._call(SessionInfo, "get_session")

    @property
    def documents(self) -> Documents:
        """Documents of the session: bytes by key, erased with the session."""
        return Documents(self.backend, self._path)

    def update(self, /, *, idempotency_key: str | None = None, **settings: Any) -> SessionInfo:
        """Change settings: ``title``, ``system``, ``model``, ``tools``, ``output_reserve``, ``policy``, ``metadata``,
        ``strict``, ``loop_timeout_seconds``, ``ttl_days``, ``inactive_after_minutes``, ``snapshots``.

        Settings that are left out stay; None restores the default. Windows of earlier moments use the settings of their time.
        """
        body = sent_settings(settings)
        return self._call(SessionInfo, "update_session", body=body, idempotency_key=idempotency_key)

    def end(self, *, idempotency_key: str | None = None) -> SessionInfo:
        """End the session. It stays readable; appends and state changes raise `SessionEndedError`."""
        return self._call(SessionInfo, "end_session", idempotency_key=idempotency_key)

    def reset(self, *, idempotency_key: str | None = None) -> Session:
        """End the session, and return its successor: the same settings, no messages and no state.

        Each session has one successor; a repeated call returns the same one.
        """
        info = self._call(SessionInfo, "reset_session", idempotency_key=idempotency_key)
        return Session(self.backend, info.session_id)

    def erase(self, *, idempotency_key: str | None = None) -> Job:
        """Erase the session and its snapshots for good. Reads raise `NotFoundError` from then on.

        The job reports the progress. It is done after a second pass 15 minutes later.
        """
        return self._call(Job, "erase_session", idempotency_key=idempotency_key)

    def redact(self, position: int, *, idempotency_key: str | None = None) -> Job:
        """Overwrite the text of one message for good. Reads return the redacted message from then on.

        The job removes data derived from the message: summaries, segments, snapshots, copies in forks, exports. It is done
        after a second pass 15 minutes later.
        """
        return self._call(Job, "redact_message", path={"position": str(position)}, idempotency_key=idempotency_key)
