"""Async twins of the sync objects. Made by tools/make_async.py (`make docs`); do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.client.async_calls import AsyncPaged, CallThreads, Twin
from turnlog.client.documents import DocumentReading, Documents
from turnlog.client.model import Session, Sessions, Turnlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Literal

    from turnlog.agents import AsyncRun
    from turnlog.agents.agent_loop import Approval
    from turnlog.agents.functions import Hooks
    from turnlog.agents.streams import AsyncSessionStream
    from turnlog.client import GivenMessage, GivenPolicy
    from turnlog.client.conversation import E
    from turnlog.client.exports import Into, OnPositions
    from turnlog.client.finding import ToolAnswer
    from turnlog.client.time_travel import Replayed
    from turnlog.core.models import FormatName
    from turnlog.http.health_routes import Health
    from turnlog.jobs.models import Job, Redriven
    from turnlog.linter.routes import LintAnswer
    from turnlog.memory.routes import Forgotten, MemoryList, StoredMemory
    from turnlog.search.models import Recalled, SearchAnswer, SearchSessionsAnswer
    from turnlog.sessions.context_models import Build, WindowAnswer
    from turnlog.sessions.document_models import Document
    from turnlog.sessions.history_routes import Diff, HistoryEntry, HistoryPage
    from turnlog.sessions.message_models import Appended, LoopAnswer, MessagePage, StoredMessage
    from turnlog.sessions.models import Session as SessionInfo
    from turnlog.sessions.models import SessionPage, Status
    from turnlog.sessions.state_routes import AgentState, Decided, StateAnswer
    from turnlog.snapshots.export_routes import Export, Imported
    from turnlog.snapshots.routes import Snapshot, SnapshotDeleted, WholeSnapshot
    from turnlog.summaries.routes import Compressed, SummaryAnswer
    from turnlog.upkeep.backup import Backup
    from turnlog.upkeep.verify import Verification


class TurnlogCalls(Twin[Turnlog]):
    """`Turnlog` for asyncio: see `AsyncTurnlog`."""

    async def build_window(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> WindowAnswer:
        """Build a window over a list of messages and store nothing. Options are the fields of ``POST /v1/window``."""
        return await self._threads.read(lambda: self._sync.build_window(messages, **options))

    async def lint(
        self, messages: Sequence[Mapping[str, Any]], *, format: str | None = None, **request: Any
    ) -> LintAnswer:
        """List the provider rules that the messages break; store nothing. Without ``format``, it is recognised from the
        messages. ``request`` may have ``system``, ``tools`` and ``made_behind``, as in `turnlog.lint`."""
        return await self._threads.read(lambda: self._sync.lint(messages, format=format, **request))

    async def erase_me(self, *, idempotency_key: str | None = None) -> Job:
        """Erase everything of the owner for good. Only the job's receipt stays.

        Until the job is done, creating a session raises `ConflictError`, code ``erasing``.
        """
        return await self._threads.finish(lambda: self._sync.erase_me(idempotency_key=idempotency_key))

    async def search(
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
        return await self._threads.read(
            lambda: self._sync.search(q, limit=limit, role=role, tool=tool, after=after, before=before)
        )

    async def health(self) -> Health:
        """Return the health of the engine or the service."""
        return await self._threads.read(self._sync.health)

    async def export(self, into: Into, *, timeout_seconds: float = 3600.0) -> Export:
        """Write all sessions of the owner to one zip. A repeated call within an hour returns the same export."""
        return await self._threads.finish(lambda: self._sync.export(into, timeout_seconds=timeout_seconds))

    async def run_jobs(self) -> int:
        """Run the jobs that are due in the engine's queue, and return the number of jobs done.

        When the call returns, the job that the client's own worker ran at the moment is over too. Call it to wait for a summary,
        or to do the jobs of an engine that was opened with ``worker=False``. A service does its own jobs; this returns 0.
        """
        return await self._threads.finish(self._sync.run_jobs)

    async def job(self, job_id: str) -> Job:
        """Return one job. Raises `NotFoundError` when there is none."""
        return await self._threads.read(lambda: self._sync.job(job_id))

    def jobs(self, *, status: Literal["queued", "done", "failed"] | None = None) -> AsyncPaged[Job]:
        """Iterate over the owner's jobs, newest first, page by page."""
        return AsyncPaged(self._sync.jobs(status=status), self._threads)

    async def redrive(self, job_id: str | None = None, *, failed: bool = False) -> Redriven:
        """Put failed jobs back into their queues after their cause is fixed.

        Without ``job_id``: all dead letters, of every owner, and with ``failed`` the owner's failed jobs too. It needs an
        engine in this process; over HTTP it raises `InvalidInputError`.
        """
        return await self._threads.finish(lambda: self._sync.redrive(job_id, failed=failed))

    def memory(self) -> AsyncPaged[StoredMemory]:
        """Iterate over all memories, newest first, page by page. Replaced memories are marked."""
        return AsyncPaged(self._sync.memory(), self._threads)

    async def memory_page(self, *, limit: int = 20, cursor: str | None = None) -> MemoryList:
        """Return one page of memories, and the name of the engine that keeps them."""
        return await self._threads.read(lambda: self._sync.memory_page(limit=limit, cursor=cursor))

    async def forget(self, memory_id: str) -> Forgotten:
        """Delete one memory for good; its source does not create it again. An unknown id is no error."""
        return await self._threads.finish(lambda: self._sync.forget(memory_id))

    async def verify(
        self, session_id: str | None = None, *, progress: Callable[[Verification], None] | None = None
    ) -> Verification:
        """Check what is stored: the chain of commits, checksums, payloads, the head against the caches, and blobs.

        Checks one session of the owner, or everything in the engine, of every owner. Nothing is written; others may write
        meanwhile. ``damages`` of the answer is empty when no damage was found. ``progress`` is called with the totals after
        each session. It needs an engine in this process; over HTTP it raises `InvalidInputError`.
        """
        return await self._threads.read(lambda: self._sync.verify(session_id, progress=progress))

    async def backup(self, path: str | Path, *, progress: Callable[[Verification], None] | None = None) -> Backup:
        """Write the database and its blobs to ``path`` and ``path + ".blobs"``, and check what was written.

        Writers need not stop: the backup shows one moment. Open it with ``sqlite:///PATH``. Raises `InvalidInputError`, code
        ``file_exists``, when ``path`` exists, and over HTTP.
        """
        return await self._threads.finish(lambda: self._sync.backup(path, progress=progress))


class AsyncSessions(Twin[Sessions]):
    """`Sessions` for asyncio: see `AsyncTurnlog`."""

    async def create(
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
        idempotency_key: str | None = None,
    ) -> AsyncSession:
        """Create a session. Raises `SessionExistsError` when the id is taken, unless ``if_exists="return"``.

        ``snapshots={"every_loops": 5, "keep": 20}`` makes automatic snapshots. ``bootstrap`` is True, or an object with
        ``question``, ``max_tokens``, ``limit`` and ``timeout_seconds``: the session then begins with what long-term memory
        knows about the user. `Session.info` reports what was added, or why nothing was.
        """
        return AsyncSession(
            await self._threads.finish(
                lambda: self._sync.create(
                    session_id,
                    title=title,
                    system=system,
                    model=model,
                    tools=tools,
                    output_reserve=output_reserve,
                    policy=policy,
                    metadata=metadata,
                    state=state,
                    state_schema=state_schema,
                    strict=strict,
                    recall=recall,
                    loop_timeout_seconds=loop_timeout_seconds,
                    ttl_days=ttl_days,
                    inactive_after_days=inactive_after_days,
                    snapshots=snapshots,
                    if_exists=if_exists,
                    bootstrap=bootstrap,
                    idempotency_key=idempotency_key,
                )
            ),
            self._threads,
        )

    async def get(self, session_id: str) -> AsyncSession:
        """Return an existing session. Raises `NotFoundError` when there is none."""
        return AsyncSession(await self._threads.read(lambda: self._sync.get(session_id)), self._threads)

    def of(self, session_id: str) -> AsyncSession:
        """Return the session object of an id without a request. An expired session still has its snapshots."""
        return AsyncSession(self._sync.of(session_id), self._threads)

    async def get_or_create(self, session_id: str, **settings: Any) -> AsyncSession:
        """Return the session of an id, or create it with these settings."""
        return AsyncSession(
            await self._threads.finish(lambda: self._sync.get_or_create(session_id, **settings)), self._threads
        )

    async def exists(self, session_id: str) -> bool:
        """Return whether the owner has a session of this id."""
        return await self._threads.read(lambda: self._sync.exists(session_id))

    async def page(self, *, limit: int = 20, cursor: str | None = None, status: Status | None = None) -> SessionPage:
        """Return one page of sessions, newest activity first."""
        return await self._threads.read(lambda: self._sync.page(limit=limit, cursor=cursor, status=status))

    async def import_(
        self,
        file: Into,
        *,
        session_id: str | None = None,
        session: str | None = None,
        documents: bool = True,
        on_positions: OnPositions | None = None,
    ) -> list[Imported]:
        """Create the sessions of an exported file: equal, with their times, envelopes, history and documents.

        ``session`` selects one session of the file (by default all); ``session_id`` gives it another id. The whole file is
        checked before anything is written; `InvalidInputError` says what is wrong. A repeated import continues where the last
        one stopped.

        Documents are bytes that a framework reads later, and some frameworks build objects of any class from them. Pass
        ``documents=False`` for a file that you do not trust.
        """
        return await self._threads.finish(
            lambda: self._sync.import_(
                file, session_id=session_id, session=session, documents=documents, on_positions=on_positions
            )
        )

    def list(self, *, status: Status | None = None) -> AsyncPaged[SessionInfo]:
        """Iterate over all sessions, newest activity first, page by page."""
        return AsyncPaged(self._sync.list(status=status), self._threads)


class AsyncSession(Twin[Session]):
    """`Session` for asyncio: see `AsyncTurnlog`."""

    def __init__(self, sync: Session, threads: CallThreads) -> None:
        super().__init__(sync, threads)
        self.id = sync.id

    def __repr__(self) -> str:
        return f"AsyncSession({self.id!r})"

    async def info(self) -> SessionInfo:
        """Return settings and totals as of the newest commit."""
        return await self._threads.read(self._sync.info)

    async def update(self, *, idempotency_key: str | None = None, **settings: Any) -> SessionInfo:
        """Change settings: ``title``, ``system``, ``model``, ``tools``, ``output_reserve``, ``policy``, ``metadata``,
        ``strict``, ``loop_timeout_seconds``, ``ttl_days``, ``inactive_after_days``, ``snapshots``.

        Settings that are left out stay; None restores the default. Windows of earlier moments use the settings of their time.
        """
        return await self._threads.finish(lambda: self._sync.update(idempotency_key=idempotency_key, **settings))

    async def end(self, *, idempotency_key: str | None = None) -> SessionInfo:
        """End the session. It stays readable; appends and state changes raise `SessionEndedError`."""
        return await self._threads.finish(lambda: self._sync.end(idempotency_key=idempotency_key))

    async def reset(self, *, idempotency_key: str | None = None) -> AsyncSession:
        """End the session, and return its successor: the same settings, no messages and no state.

        Each session has one successor; a repeated call returns the same one.
        """
        return AsyncSession(
            await self._threads.finish(lambda: self._sync.reset(idempotency_key=idempotency_key)), self._threads
        )

    async def erase(self, *, idempotency_key: str | None = None) -> Job:
        """Erase the session and its snapshots for good. Reads raise `NotFoundError` from then on.

        The job reports the progress. It is done after a second pass 15 minutes later.
        """
        return await self._threads.finish(lambda: self._sync.erase(idempotency_key=idempotency_key))

    async def redact(self, position: int, *, idempotency_key: str | None = None) -> Job:
        """Overwrite the text of one message for good. Reads return the redacted message from then on.

        The job removes data derived from the message: summaries, segments, snapshots, copies in forks, exports. It is done
        after a second pass 15 minutes later.
        """
        return await self._threads.finish(lambda: self._sync.redact(position, idempotency_key=idempotency_key))

    async def append(
        self,
        *messages: GivenMessage,
        meta: Sequence[Mapping[str, Any]] | None = None,
        format: str | None = None,
        if_head: int | None = None,
        run: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        window: WindowAnswer | Mapping[str, Any] | None = None,
        usage: Mapping[str, int] | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append 1 to 25 messages in one commit.

        A message is JSON in a provider's format, or an object: of the libraries of OpenAI and Anthropic, or of LangChain. A
        complete answer of a provider, its object or its JSON, is taken as its messages, with its token counts as ``usage``.

        Repeated with the same ``idempotency_key``, a call has one effect and the same answer. ``if_head`` is the expected head:
        the append is refused with a `HeadMismatchError` when the log ends elsewhere. ``window`` is the window that a reply was made
        by, from `context`: later windows then know what the reply's signed thinking is bound to.
        """
        return await self._threads.finish(
            lambda: self._sync.append(
                *messages,
                meta=meta,
                format=format,
                if_head=if_head,
                run=run,
                run_id=run_id,
                window=window,
                usage=usage,
                idempotency_key=idempotency_key,
            )
        )

    def stream(
        self,
        events: AsyncIterable[E],
        *,
        format: FormatName = "openai_chat",
        on_break: Literal["keep", "drop"] = "keep",
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncSessionStream[E]:
        """Pass a model's stream through, for ``async with`` and ``async for``. On cancellation, the partial reply is appended
        first."""
        return self._sync.stream_async(events, format=format, on_break=on_break, meta=meta, **options)

    async def context(
        self,
        *,
        format: str | None = None,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        output_reserve: int | None = None,
        include_current_loop: bool | None = None,
        answer_open_calls: bool | None = None,
        others_calls: Literal["text", "calls"] | None = None,
        breakpoints: Literal["suggest", "apply"] | None = None,
        at: int | str | None = None,
        build: Build | Mapping[str, Any] | None = None,
    ) -> WindowAnswer:
        """Build the window for the next model call.

        ``breakpoints="apply"`` sets the provider's prompt-cache breakpoints, so the window can be sent as it is. ``at`` builds
        the window as if the log ended at that position or time (RFC 3339). ``others_calls="calls"`` sends calls of tools that are
        not offered as calls, not as text. ``build``, the ``build`` of a manifest, builds that
        window again.
        """
        return await self._threads.read(
            lambda: self._sync.context(
                format=format,
                budget=budget,
                policy=policy,
                model=model,
                tools=tools,
                output_reserve=output_reserve,
                include_current_loop=include_current_loop,
                answer_open_calls=answer_open_calls,
                others_calls=others_calls,
                breakpoints=breakpoints,
                at=at,
                build=build,
            )
        )

    async def page(
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
        """Return one page of the full history.

        With ``in_view``, messages that rewinds took out of view are left out. With ``at``, the page has the messages that were
        in view at that position or time.
        """
        return await self._threads.read(
            lambda: self._sync.page(
                after=after, before=before, limit=limit, order=order, format=format, at=at, in_view=in_view
            )
        )

    def messages(
        self,
        *,
        order: Literal["asc", "desc"] = "asc",
        format: str | None = None,
        at: int | str | None = None,
        in_view: bool = False,
    ) -> AsyncPaged[StoredMessage]:
        """Iterate over the full history page by page. The options are those of `page`."""
        return AsyncPaged(self._sync.messages(order=order, format=format, at=at, in_view=in_view), self._threads)

    def loops(self) -> AsyncPaged[LoopAnswer]:
        """Iterate over run loops, newest first, page by page."""
        return AsyncPaged(self._sync.loops(), self._threads)

    async def compress(
        self,
        *,
        mode: Literal["sync", "async"] = "sync",
        keep_loops: int | None = None,
        max_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> Compressed | Job:
        """Summarise closed run loops.

        Returns a job with ``mode="async"``, and when the work takes longer than one request may.
        """
        return await self._threads.finish(
            lambda: self._sync.compress(
                mode=mode, keep_loops=keep_loops, max_tokens=max_tokens, idempotency_key=idempotency_key
            )
        )

    async def summary(self) -> SummaryAnswer | None:
        """Return the current summary, or None."""
        return await self._threads.read(self._sync.summary)

    async def discard_summary(self, *, idempotency_key: str | None = None) -> Job:
        """Discard the current summary; a job makes a new one from the history.

        The log keeps the discarded summary for windows of earlier moments (``at``). Until the job is done, windows have no
        summary.
        """
        return await self._threads.finish(lambda: self._sync.discard_summary(idempotency_key=idempotency_key))

    def run(
        self,
        model: Callable[[WindowAnswer], Any],
        tools: Mapping[str, Callable[..., Any]] | None = None,
        *,
        format: FormatName = "openai_chat",
        agent_id: str = "main",
        max_iterations: int = 20,
        approve: Approval = (),
        hooks: Sequence[Hooks] = (),
        author: str | None = None,
        **window: Any,
    ) -> AsyncRun:
        """Return a run for asyncio. The model, the tools and the hooks may be async or not. See `Session.run`."""
        return self._sync.run_async(
            model,
            tools,
            format=format,
            agent_id=agent_id,
            max_iterations=max_iterations,
            approve=approve,
            hooks=hooks,
            author=author,
            **window,
        )

    async def recall(
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
        """Return a tool call and its result. When there is none, ``found`` is false and ``hint`` says what to try."""
        return await self._threads.read(
            lambda: self._sync.recall(
                ref,
                call_id=call_id,
                pattern=pattern,
                from_line=from_line,
                to_line=to_line,
                pointer=pointer,
                max_tokens=max_tokens,
            )
        )

    async def search(
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
        """Search messages by the words of a question, best match first. ``after`` and ``before`` are a position or a time."""
        return await self._threads.read(
            lambda: self._sync.search(q, limit=limit, role=role, loop=loop, tool=tool, after=after, before=before)
        )

    @staticmethod
    def handles(name: str) -> bool:
        """Return whether `execute_tool` executes the tool: `recall_tool_call` and `search_history`, which windows offer to the
        model."""
        return Session.handles(name)

    async def execute_tool(
        self,
        name: str,
        arguments: str | Mapping[str, Any] | None,
        *,
        call_id: str | None = None,
        format: FormatName | None = None,
    ) -> ToolAnswer:
        """Execute a model's call of `recall_tool_call` or `search_history`, and return the answer to append.

            answer = session.execute_tool(name, arguments, call_id=call_id)
            session.append(answer.message, meta=[answer.meta])

        ``arguments`` are JSON text or a mapping, as the model wrote them. An invalid call is answered with a text that says
        what is wrong, so that the model can try again. For the name of another tool, ``is_ours`` is false: check with `handles`
        before. Only errors that no model can fix are raised, such as an engine or a service that does not answer. ``call_id``
        is the id of the model's call; without it, the result belongs to the newest open call. Nothing is written: the commit
        that appends the message records the recall in the history.
        """
        return await self._threads.read(
            lambda: self._sync.execute_tool(name, arguments, call_id=call_id, format=format)
        )

    async def state(self, *, at: int | str | None = None) -> StateAnswer:
        """Return the state and its version: the newest, or as it was ``at`` a position or time (RFC 3339)."""
        return await self._threads.read(lambda: self._sync.state(at=at))

    async def put_state(
        self,
        state: Mapping[str, Any],
        *,
        action: str | None = None,
        if_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> StateAnswer:
        """Replace the state. Raises `VersionMismatchError` unless its version is ``if_version``."""
        return await self._threads.finish(
            lambda: self._sync.put_state(state, action=action, if_version=if_version, idempotency_key=idempotency_key)
        )

    async def patch_state(
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
        return await self._threads.finish(
            lambda: self._sync.patch_state(patch, action=action, if_version=if_version, idempotency_key=idempotency_key)
        )

    async def agent(self, agent_id: str = "main") -> AgentState:
        """Return the execution state of an agent. Raises `NotFoundError` when there is none."""
        return await self._threads.read(lambda: self._sync.agent(agent_id))

    async def patch_agent(
        self, patch: Mapping[str, Any], *, agent_id: str = "main", idempotency_key: str | None = None
    ) -> AgentState:
        """Change an agent's execution state by a JSON Merge Patch. Raises `InvalidInputError` when the result is not valid."""
        return await self._threads.finish(
            lambda: self._sync.patch_agent(patch, agent_id=agent_id, idempotency_key=idempotency_key)
        )

    async def decide_pending(
        self,
        decision: Literal["approve", "reject"],
        *,
        reason: str | None = None,
        agent_id: str = "main",
        idempotency_key: str | None = None,
    ) -> Decided:
        """Approve or reject the action that an agent waits with.

        A rejection is appended as the result of the waiting call, in the same commit. Raises `ConflictError` when nothing waits
        or a decision exists.
        """
        return await self._threads.finish(
            lambda: self._sync.decide_pending(
                decision, reason=reason, agent_id=agent_id, idempotency_key=idempotency_key
            )
        )

    async def history_page(
        self, *, limit: int = 100, before: int | None = None, action: str | None = None, agent: str | None = None
    ) -> HistoryPage:
        """Return one page of history entries, newest first."""
        return await self._threads.read(
            lambda: self._sync.history_page(limit=limit, before=before, action=action, agent=agent)
        )

    async def record(
        self,
        action: str,
        *,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> HistoryEntry:
        """Add an entry of your own to the history. Nothing else changes."""
        return await self._threads.finish(
            lambda: self._sync.record(action, agent_id=agent_id, metadata=metadata, idempotency_key=idempotency_key)
        )

    @property
    def documents(self) -> AsyncDocuments:
        """Documents of the session: bytes by key, erased with the session."""
        return AsyncDocuments(self._sync.documents, self._threads)

    async def create_snapshot(
        self,
        name: str | None = None,
        *,
        kind: Literal["ref", "full"] = "ref",
        metadata: Mapping[str, Any] | None = None,
        agent_id: str | None = None,
        if_name_absent: bool = False,
        keep: int | None = None,
        mode: Literal["sync", "async"] = "sync",
        idempotency_key: str | None = None,
    ) -> Snapshot | Job:
        """Name the session's head; ``kind="full"`` copies the history, so that it outlives the session.

        ``keep`` deletes older unnamed snapshots of this kind and agent, and leaves that many of the newest. Raises
        `ConflictError` with ``if_name_absent`` when a snapshot has the name. For a full snapshot of a long history the answer
        is a job.
        """
        return await self._threads.finish(
            lambda: self._sync.create_snapshot(
                name,
                kind=kind,
                metadata=metadata,
                agent_id=agent_id,
                if_name_absent=if_name_absent,
                keep=keep,
                mode=mode,
                idempotency_key=idempotency_key,
            )
        )

    async def snapshot(self, snapshot: str, *, after: int | None = None) -> WholeSnapshot:
        """Return a snapshot by id or name (the newest of that name), with the session's contents at its position.

        ``after`` is the ``next`` of the page of messages before.
        """
        return await self._threads.read(lambda: self._sync.snapshot(snapshot, after=after))

    def snapshots(self, *, name: str | None = None, agent: str | None = None) -> AsyncPaged[Snapshot]:
        """Iterate over snapshots, newest first, page by page."""
        return AsyncPaged(self._sync.snapshots(name=name, agent=agent), self._threads)

    async def restore_snapshot(
        self,
        snapshot: str,
        *,
        as_: Literal["rewind", "fork"] = "fork",
        session_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SessionInfo | Job:
        """Create a session that begins with the snapshot (``fork``), or rewind this session to it (``rewind``).

        A full snapshot can also be restored after the session has expired. For a long history the answer is a job.
        """
        return await self._threads.finish(
            lambda: self._sync.restore_snapshot(
                snapshot, as_=as_, session_id=session_id, idempotency_key=idempotency_key
            )
        )

    async def delete_snapshot(self, snapshot: str, *, idempotency_key: str | None = None) -> SnapshotDeleted:
        """Delete a snapshot by id or name, and the parts of the session's history that only it needs."""
        return await self._threads.finish(lambda: self._sync.delete_snapshot(snapshot, idempotency_key=idempotency_key))

    async def export(self, into: Into, *, timeout_seconds: float = 600.0) -> Export:
        """Write the session to a zip of JSON Lines, from which `Sessions.import_` makes an equal session.

        A file is replaced only when the export is complete; a device or a pipe is written to directly.
        """
        return await self._threads.finish(lambda: self._sync.export(into, timeout_seconds=timeout_seconds))

    async def rewind(
        self, to: int | str, *, if_head: int | None = None, idempotency_key: str | None = None
    ) -> SessionInfo:
        """Return the session to an earlier moment: messages, state, settings and summary.

        The log keeps what came after; a later rewind can return to it.
        """
        return await self._threads.finish(
            lambda: self._sync.rewind(to, if_head=if_head, idempotency_key=idempotency_key)
        )

    async def fork(
        self,
        session_id: str | None = None,
        *,
        at: int | str | None = None,
        idempotency_key: str | None = None,
        **settings: Any,
    ) -> AsyncSession:
        """Create a session that begins as this one was at a moment (by default its head) and shares its log; copy nothing.

        ``settings`` replace this session's: ``title``, ``system``, ``model``, ``tools``, ``policy`` and the others that can be
        changed.
        """
        return AsyncSession(
            await self._threads.finish(
                lambda: self._sync.fork(session_id, at=at, idempotency_key=idempotency_key, **settings)
            ),
            self._threads,
        )

    async def replay(self, *, base_state: Mapping[str, Any] | None = None, until: int | str | None = None) -> Replayed:
        """Fold the state again from the history, up to a position or time. Rewinds are followed.

        ``base_state`` replaces the state that the session was created with.
        """
        return await self._threads.read(lambda: self._sync.replay(base_state=base_state, until=until))

    def history(self, *, action: str | None = None, agent: str | None = None) -> AsyncPaged[HistoryEntry]:
        """Iterate over history entries, newest first, page by page."""
        return AsyncPaged(self._sync.history(action=action, agent=agent), self._threads)

    async def diff(self, from_: int | str, to: int | str | None = None, *, after: int = 0, limit: int = 100) -> Diff:
        """Compare two moments of the session; ``to`` is the head by default.

        The answer has a page of the messages that came into view, and the ranges that left it. It also has a JSON Patch of the
        state and the names of changed settings.
        """
        return await self._threads.read(lambda: self._sync.diff(from_, to, after=after, limit=limit))


class AsyncDocuments(Twin[Documents]):
    """`Documents` for asyncio: see `AsyncTurnlog`."""

    def reading(self) -> AsyncDocumentReading:
        """Return an object for several reads in a row: together they check once that the session exists."""
        return AsyncDocumentReading(self._sync.reading(), self._threads)

    async def get(self, key: str) -> Document | None:
        """Return a document, or None."""
        return await self._threads.read(lambda: self._sync.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """Return the documents that exist, by key. See `DocumentReading.get_many`."""
        return await self._threads.read(lambda: self._sync.get_many(keys))

    async def put(
        self,
        name: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_revision: str | None = None,
        idempotency_key: str | None = None,
    ) -> Document:
        """Write a document of up to 3 MiB, whole.

        Raises `DocumentChangedError` with ``if_absent`` when the document exists, with ``if_revision`` when its revision
        differs.
        """
        return await self._threads.finish(
            lambda: self._sync.put(
                name, data, if_absent=if_absent, if_revision=if_revision, idempotency_key=idempotency_key
            )
        )

    async def put_many(
        self,
        documents: Mapping[str, bytes],
        *,
        then: Mapping[str, bytes] | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Write documents in any order, then those of ``then``, which may refer to the others.

        Makes a request for each 25 documents and each 3 MiB; together the requests are not atomic. The documents of ``then``
        must fit one request.
        """
        return await self._threads.finish(
            lambda: self._sync.put_many(documents, then=then, idempotency_key=idempotency_key)
        )

    async def delete(self, names: Iterable[str], *, idempotency_key: str | None = None) -> None:
        """Delete documents; missing ones are no error. Makes a request for each 100 names."""
        return await self._threads.finish(lambda: self._sync.delete(names, idempotency_key=idempotency_key))

    def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        until: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int | None = None,
    ) -> AsyncPaged[Document]:
        """Iterate over documents by prefix. See `DocumentReading.list`."""
        return AsyncPaged(self._sync.list(prefix, after=after, until=until, order=order, limit=limit), self._threads)


class AsyncDocumentReading(Twin[DocumentReading]):
    """`DocumentReading` for asyncio: see `AsyncTurnlog`."""

    async def get(self, key: str) -> Document | None:
        """Return a document, or None."""
        return await self._threads.read(lambda: self._sync.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """Return the documents that exist, by key. Makes a request for each 100 keys and each 4 MiB."""
        return await self._threads.read(lambda: self._sync.get_many(keys))

    def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        until: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int | None = None,
    ) -> AsyncPaged[Document]:
        """Iterate over documents whose keys begin with ``prefix``, ordered by the UTF-8 bytes of their keys.

        The range begins after ``after`` and ends with ``until``, in the direction of ``order``. Makes a request for each page
        of about 1 MB of stored data.
        """
        return AsyncPaged(self._sync.list(prefix, after=after, until=until, order=order, limit=limit), self._threads)
