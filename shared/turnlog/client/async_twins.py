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

    from turnlog.agents.agent_loop import Approval
    from turnlog.agents.runners import AsyncRun
    from turnlog.agents.streams.session_stream import AsyncSessionStream
    from turnlog.agents.tools import Hooks
    from turnlog.client.conversation import E
    from turnlog.client.exports import Into, OnPositions
    from turnlog.client.finding import ToolAnswer
    from turnlog.client.parts import GivenPolicy
    from turnlog.client.time_travel import Replayed
    from turnlog.core.models import FormatName
    from turnlog.jobs.models import Job, Redriven
    from turnlog.linter.models import LintAnswer
    from turnlog.memory.models import Forgotten, MemoryList, StoredMemory
    from turnlog.search.models import Recalled, SearchAnswer, SearchSessionsAnswer
    from turnlog.sessions.context_models import Build, WindowAnswer
    from turnlog.sessions.document_models import Document
    from turnlog.sessions.message_models import Appended, LoopAnswer, MessagePage, StoredMessage
    from turnlog.sessions.models import Session as SessionInfo
    from turnlog.sessions.models import SessionPage, Status
    from turnlog.sessions.state_models import AgentState, Decided, Diff, Health, HistoryEntry, HistoryPage, StateAnswer
    from turnlog.snapshots.export_models import Export, Imported
    from turnlog.snapshots.models import Snapshot, SnapshotDeleted, WholeSnapshot
    from turnlog.summaries.models import Compressed, SummaryAnswer
    from turnlog.upkeep.models import Backup, Verification


class TurnlogCalls(Twin[Turnlog]):
    """`Turnlog` for asyncio: see `AsyncTurnlog`."""

    async def build_window(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> WindowAnswer:
        """A window over a list of messages; nothing is stored. Options are the fields of ``POST /v1/window``."""
        return await self._threads.read(lambda: self._sync.build_window(messages, **options))

    async def lint(self, messages: Sequence[Mapping[str, Any]], *, format: str | None = None) -> LintAnswer:
        """Which rules of a provider the messages break; nothing is stored. ``format`` is recognised when it is left out."""
        return await self._threads.read(lambda: self._sync.lint(messages, format=format))

    async def erase_me(self, *, key: str | None = None) -> Job:
        """Erases everything of the owner for good. Until the job is done, no session can be created (`ConflictError`, code
        ``erasing``); its receipt is what stays."""
        return await self._threads.finish(lambda: self._sync.erase_me(key=key))

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
        """The owner's sessions by the words of a question: titles, summaries and messages, best first; with ``role``, ``tool``,
        ``after`` or ``before`` (times, RFC 3339) messages only.

        Among very many sessions those that were never looked through are known by their titles at first (``unindexed``); a job is
        made for them.
        """
        return await self._threads.read(
            lambda: self._sync.search(q, limit=limit, role=role, tool=tool, after=after, before=before)
        )

    async def health(self) -> Health:
        """See `Turnlog.health`."""
        return await self._threads.read(self._sync.health)

    async def export(self, into: Into, *, timeout_seconds: float = 3600.0) -> Export:
        """Writes all sessions of the owner to one zip. Asked for again within an hour, it is the same one."""
        return await self._threads.finish(lambda: self._sync.export(into, timeout_seconds=timeout_seconds))

    async def run_jobs(self) -> int:
        """Does the jobs that wait in the queue of an engine in this process, and returns how many were done.

        In a process without ``turnlog serve`` nobody else does them: call it when the agent has nothing to do. A service does
        its own jobs, and so do the workers of a table in AWS.
        """
        return await self._threads.finish(self._sync.run_jobs)

    async def job(self, job_id: str) -> Job:
        """One job, or `NotFoundError`."""
        return await self._threads.read(lambda: self._sync.job(job_id))

    def jobs(self, *, status: Literal["queued", "done", "failed"] | None = None) -> AsyncPaged[Job]:
        """The owner's jobs, newest first, page by page."""
        return AsyncPaged(self._sync.jobs(status=status), self._threads)

    async def redrive(self, job_id: str | None = None, *, failed: bool = False) -> Redriven:
        """Puts jobs that did not get done back into their queues, once their cause is mended: all dead letters, whoever owns
        them, and with ``failed`` the owner's failed jobs; or one job.

        It takes an engine in this process, with its rights: over HTTP it is `InvalidInputError`.
        """
        return await self._threads.finish(lambda: self._sync.redrive(job_id, failed=failed))

    def memory(self) -> AsyncPaged[StoredMemory]:
        """All that is known, newest first, page by page; what a newer one replaced is marked."""
        return AsyncPaged(self._sync.memory(), self._threads)

    async def memory_page(self, *, limit: int = 20, cursor: str | None = None) -> MemoryList:
        """One page, and which engine keeps it."""
        return await self._threads.read(lambda: self._sync.memory_page(limit=limit, cursor=cursor))

    async def forget(self, memory_id: str) -> Forgotten:
        """Deletes one memory for good: it is not made again of what it came from. One that is not there is no error."""
        return await self._threads.finish(lambda: self._sync.forget(memory_id))

    async def verify(
        self, session_id: str | None = None, *, progress: Callable[[Verification], None] | None = None
    ) -> Verification:
        """Check what is stored: the chain of commits, checksums, payloads, the head against the caches, and blobs.

        One session of the owner, or everything in the engine, whoever owns it. Nothing is written, and others may write meanwhile.
        ``damages`` of the answer is empty when all is well. ``progress`` is told the sum after each session. It takes an engine in
        this process: over HTTP it is `InvalidInputError`.
        """
        return await self._threads.read(lambda: self._sync.verify(session_id, progress=progress))

    async def backup(self, path: str | Path, *, progress: Callable[[Verification], None] | None = None) -> Backup:
        """Write the database and the blobs that it names to ``path`` and ``path + ".blobs"``, and check what was written.

        Writers need not stop: the backup is of one moment. Open it with ``sqlite:///PATH``. `InvalidInputError`, code
        ``file_exists``, when something is there already; over HTTP too.
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
        key: str | None = None,
    ) -> AsyncSession:
        """A new session; `SessionExistsError` when there is one of that id, unless ``if_exists="return"``.

        ``snapshots={"every_loops": 5, "keep": 20}``: it makes snapshots by itself. ``bootstrap=True``, or an object with
        ``question``, ``max_tokens``, ``limit`` and ``timeout_seconds``: it begins with what long-term memory knows of the user;
        `Session.info` says what that was, or why not.
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
                    key=key,
                )
            ),
            self._threads,
        )

    async def get(self, session_id: str) -> AsyncSession:
        """An existing session, or `NotFoundError`."""
        return AsyncSession(await self._threads.read(lambda: self._sync.get(session_id)), self._threads)

    def of(self, session_id: str) -> AsyncSession:
        """A session by its id, whether or not there is one: the snapshots of one that has expired are still there."""
        return AsyncSession(self._sync.of(session_id), self._threads)

    async def get_or_create(self, session_id: str, **settings: Any) -> AsyncSession:
        """The session of that id; made with these settings when there is none."""
        return AsyncSession(
            await self._threads.finish(lambda: self._sync.get_or_create(session_id, **settings)), self._threads
        )

    async def exists(self, session_id: str) -> bool:
        """See `Sessions.exists`."""
        return await self._threads.read(lambda: self._sync.exists(session_id))

    async def page(self, *, limit: int = 20, cursor: str | None = None, status: Status | None = None) -> SessionPage:
        """One page, newest activity first."""
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
        """Makes the sessions of an exported file again: equal, with their times, envelopes, history and documents.

        ``session`` is the one of the file that is wanted (all of them); ``session_id`` gives it another id. The whole file is
        checked before anything is written; `InvalidInputError` says what is wrong. Again, it goes on where another try ended.

        Documents are bytes that a framework reads later, and some frameworks make objects of any class out of them: with
        ``documents=False`` those of a file that is not your own are left out.
        """
        return await self._threads.finish(
            lambda: self._sync.import_(
                file, session_id=session_id, session=session, documents=documents, on_positions=on_positions
            )
        )

    def list(self, *, status: Status | None = None) -> AsyncPaged[SessionInfo]:
        """All of them, newest activity first, page by page."""
        return AsyncPaged(self._sync.list(status=status), self._threads)


class AsyncSession(Twin[Session]):
    """`Session` for asyncio: see `AsyncTurnlog`."""

    def __init__(self, sync: Session, threads: CallThreads) -> None:
        super().__init__(sync, threads)
        self.id = sync.id

    def __repr__(self) -> str:
        return f"AsyncSession({self.id!r})"

    async def info(self) -> SessionInfo:
        """Settings and totals as of the newest commit."""
        return await self._threads.read(self._sync.info)

    async def update(self, *, key: str | None = None, **settings: Any) -> SessionInfo:
        """Other settings: ``title``, ``system``, ``model``, ``tools``, ``output_reserve``, ``policy``, ``metadata``, ``strict``,
        ``loop_timeout_seconds``, ``ttl_days``, ``inactive_after_days``, ``snapshots``.

        What is left out stays; None is the default again. Windows of earlier moments keep the settings of their time.
        """
        return await self._threads.finish(lambda: self._sync.update(key=key, **settings))

    async def end(self, *, key: str | None = None) -> SessionInfo:
        """Ends the session: appends and changes of its state are `SessionEndedError` from here on. All of it can be read."""
        return await self._threads.finish(lambda: self._sync.end(key=key))

    async def reset(self, *, key: str | None = None) -> AsyncSession:
        """Ends the session, and gives the fresh one that is in its place: the same settings, no messages and no state.

        There is one for each session, however often this is called.
        """
        return AsyncSession(await self._threads.finish(lambda: self._sync.reset(key=key)), self._threads)

    async def erase(self, *, key: str | None = None) -> Job:
        """Erases the session for good, with its snapshots. From here on it is `NotFoundError` to everyone; the job says how far
        the erasing is, and is done after a second look 15 minutes later."""
        return await self._threads.finish(lambda: self._sync.erase(key=key))

    async def redact(self, position: int, *, key: str | None = None) -> Job:
        """Overwrites what one message says, for good. From here on nobody reads it; the job removes what was made of it (summaries,
        segments, snapshots, copies in forks, exports), and is done after a second look 15 minutes later."""
        return await self._threads.finish(lambda: self._sync.redact(position, key=key))

    async def append(
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
                key=key,
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
        """`Session.stream` for ``async with`` and ``async for``. A cancelled one is appended before the cancellation goes on."""
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
        settle: bool | None = None,
        breakpoints: Literal["suggest", "apply"] | None = None,
        at: int | str | None = None,
        build: Build | Mapping[str, Any] | None = None,
    ) -> WindowAnswer:
        """The window for the next model call.

        ``breakpoints="apply"``: with the provider's prompt-cache breakpoints, to be sent as it is.
        ``at``: as if the log ended at this position, or time (RFC 3339). ``build``: of a manifest; the same window again.
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
                settle=settle,
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
        """One page of the full history; with ``in_view`` without what rewinds have taken out of view, with ``at`` what was in
        view at that position or time."""
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
        """The full history, or what `page` gives of it, page by page."""
        return AsyncPaged(self._sync.messages(order=order, format=format, at=at, in_view=in_view), self._threads)

    def loops(self) -> AsyncPaged[LoopAnswer]:
        """Run loops, newest first, page by page."""
        return AsyncPaged(self._sync.loops(), self._threads)

    async def compress(
        self,
        *,
        mode: Literal["sync", "async"] = "sync",
        keep_loops: int | None = None,
        max_tokens: int | None = None,
        key: str | None = None,
    ) -> Compressed | Job:
        """Summarises closed loops. A job in mode ``async``, and when there is more to do than a request has time for."""
        return await self._threads.finish(
            lambda: self._sync.compress(mode=mode, keep_loops=keep_loops, max_tokens=max_tokens, key=key)
        )

    async def summary(self) -> SummaryAnswer | None:
        """The summary in force; None while there is none."""
        return await self._threads.read(self._sync.summary)

    async def discard_summary(self, *, key: str | None = None) -> Job:
        """Discards the summary in force; the job makes one of the history, as if there had been none.

        The log keeps the discarded one, for windows of earlier moments (``at``). Until the job is done, windows have none.
        """
        return await self._threads.finish(lambda: self._sync.discard_summary(key=key))

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
        """`Session.run` for asyncio: the model, the tools and the hooks may be async or not."""
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
        """A tool call and its result, or ``found`` false with a hint."""
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
        """Messages by the words of a question, best first; ``after`` and ``before`` are a position or a time each."""
        return await self._threads.read(
            lambda: self._sync.search(q, limit=limit, role=role, loop=loop, tool=tool, after=after, before=before)
        )

    @staticmethod
    def handles(name: str) -> bool:
        """Whether a tool of that name is one of the two that windows have brought: `execute_tool` executes it."""
        return Session.handles(name)

    async def execute_tool(
        self,
        name: str,
        arguments: str | Mapping[str, Any] | None,
        *,
        call_id: str | None = None,
        format: FormatName | None = None,
    ) -> ToolAnswer:
        """Executes a call of `recall_tool_call` or `search_history` that a model made: takes what it sent, gives what to append.

            answer = session.execute_tool(name, arguments, call_id=call_id)
            session.append(answer.message, meta=[answer.meta])

        ``arguments`` are JSON text or a mapping, however the model wrote them. What is wrong with the call is said in the answer,
        so that the model can try again; so is another tool's name (``is_ours`` is false then: ask `handles` before). Raised is only
        what no model can mend: an engine or a service that does not answer. ``call_id`` is the call's; without one the result
        belongs to the newest open call. Nothing is written: the commit that appends the message tells the history of the recall.
        """
        return await self._threads.read(
            lambda: self._sync.execute_tool(name, arguments, call_id=call_id, format=format)
        )

    async def state(self, *, at: int | str | None = None) -> StateAnswer:
        """The state and its version, now or as it was ``at`` a position or time (RFC 3339)."""
        return await self._threads.read(lambda: self._sync.state(at=at))

    async def put_state(
        self,
        state: Mapping[str, Any],
        *,
        action: str | None = None,
        if_version: int | None = None,
        key: str | None = None,
    ) -> StateAnswer:
        """Another state in place of the one there is; `VersionMismatchError` unless it has the version ``if_version``."""
        return await self._threads.finish(
            lambda: self._sync.put_state(state, action=action, if_version=if_version, key=key)
        )

    async def patch_state(
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
        return await self._threads.finish(
            lambda: self._sync.patch_state(patch, action=action, if_version=if_version, key=key)
        )

    async def agent(self, agent_id: str = "main") -> AgentState:
        """The execution state of an agent, or `NotFoundError`."""
        return await self._threads.read(lambda: self._sync.agent(agent_id))

    async def patch_agent(
        self, patch: Mapping[str, Any], *, agent_id: str = "main", key: str | None = None
    ) -> AgentState:
        """Changes an agent's execution state by a JSON Merge Patch; `InvalidInputError` when the result is not valid."""
        return await self._threads.finish(lambda: self._sync.patch_agent(patch, agent_id=agent_id, key=key))

    async def decide_pending(
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
        return await self._threads.finish(
            lambda: self._sync.decide_pending(decision, reason=reason, agent_id=agent_id, key=key)
        )

    async def history_page(
        self, *, limit: int = 100, before: int | None = None, action: str | None = None, agent: str | None = None
    ) -> HistoryPage:
        """One page of what was done, newest first."""
        return await self._threads.read(
            lambda: self._sync.history_page(limit=limit, before=before, action=action, agent=agent)
        )

    async def record(
        self,
        action: str,
        *,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> HistoryEntry:
        """An entry of one's own in the history; nothing changes."""
        return await self._threads.finish(
            lambda: self._sync.record(action, agent_id=agent_id, metadata=metadata, key=key)
        )

    @property
    def documents(self) -> AsyncDocuments:
        """Bytes by key, erased with the session."""
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
        key: str | None = None,
    ) -> Snapshot | Job:
        """Names the session's head; ``kind="full"`` copies the history, so that it outlives the session's expiry.

        ``keep``: unnamed ones of this kind and agent are deleted but for so many of the newest. `ConflictError` when
        ``if_name_absent`` and a snapshot has the name. A full one of a long history is a job at first.
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
                key=key,
            )
        )

    async def snapshot(self, snapshot: str, *, after: int | None = None) -> WholeSnapshot:
        """A snapshot by id or name (the newest of that name), with what the session was at its position.

        ``after`` is the ``next`` of the page of messages before.
        """
        return await self._threads.read(lambda: self._sync.snapshot(snapshot, after=after))

    def snapshots(self, *, name: str | None = None, agent: str | None = None) -> AsyncPaged[Snapshot]:
        """Newest first, page by page."""
        return AsyncPaged(self._sync.snapshots(name=name, agent=agent), self._threads)

    async def restore_snapshot(
        self,
        snapshot: str,
        *,
        as_: Literal["rewind", "fork"] = "fork",
        session_id: str | None = None,
        key: str | None = None,
    ) -> SessionInfo | Job:
        """Another session that begins with the snapshot (``fork``), or this one goes back to it (``rewind``).

        A full one can be restored after the session has expired too. A long history is a job at first.
        """
        return await self._threads.finish(
            lambda: self._sync.restore_snapshot(snapshot, as_=as_, session_id=session_id, key=key)
        )

    async def delete_snapshot(self, snapshot: str, *, key: str | None = None) -> SnapshotDeleted:
        """Deletes a snapshot by id or name, and what only it needs of the session's history."""
        return await self._threads.finish(lambda: self._sync.delete_snapshot(snapshot, key=key))

    async def export(self, into: Into, *, timeout_seconds: float = 600.0) -> Export:
        """Writes the session to a zip of JSON Lines, from which `Sessions.import_` makes an equal one. A file is written whole or
        not at all; a device or a pipe is written to."""
        return await self._threads.finish(lambda: self._sync.export(into, timeout_seconds=timeout_seconds))

    async def rewind(self, to: int | str, *, if_head: int | None = None, key: str | None = None) -> SessionInfo:
        """From now on all is as it was at that moment: messages, state, settings, summary. The log keeps what came after, and a
        later rewind can go back to it."""
        return await self._threads.finish(lambda: self._sync.rewind(to, if_head=if_head, key=key))

    async def fork(
        self, session_id: str | None = None, *, at: int | str | None = None, key: str | None = None, **settings: Any
    ) -> AsyncSession:
        """A new session that begins as this one was at that moment (by default now) and shares its log; nothing is copied.

        ``settings`` are put in place of this session's: ``title``, ``system``, ``model``, ``tools``, ``policy`` and the others
        that can be changed.
        """
        return AsyncSession(
            await self._threads.finish(lambda: self._sync.fork(session_id, at=at, key=key, **settings)), self._threads
        )

    async def replay(self, *, base_state: Mapping[str, Any] | None = None, until: int | str | None = None) -> Replayed:
        """The state, folded again from the history: up to a position or time, on ``base_state`` in place of what the session was
        created with. Rewinds are followed."""
        return await self._threads.read(lambda: self._sync.replay(base_state=base_state, until=until))

    def history(self, *, action: str | None = None, agent: str | None = None) -> AsyncPaged[HistoryEntry]:
        """What was done, newest first, page by page."""
        return AsyncPaged(self._sync.history(action=action, agent=agent), self._threads)

    async def diff(self, from_: int | str, to: int | str | None = None, *, after: int = 0, limit: int = 100) -> Diff:
        """What is different at ``to`` (by default now): messages that came into view, a page of them, and stretches that left
        it; a JSON Patch of the state; the names of other settings."""
        return await self._threads.read(lambda: self._sync.diff(from_, to, after=after, limit=limit))


class AsyncDocuments(Twin[Documents]):
    """`Documents` for asyncio: see `AsyncTurnlog`."""

    def reading(self) -> AsyncDocumentReading:
        """For several reads in a row: they ask once whether the session is there."""
        return AsyncDocumentReading(self._sync.reading(), self._threads)

    async def get(self, key: str) -> Document | None:
        """The document; None when there is none."""
        return await self._threads.read(lambda: self._sync.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """As `DocumentReading.get_many`."""
        return await self._threads.read(lambda: self._sync.get_many(keys))

    async def put(
        self, name: str, data: bytes, *, if_absent: bool = False, if_revision: str | None = None, key: str | None = None
    ) -> Document:
        """Writes a document of up to 3 MiB, whole. `DocumentChangedError` with ``if_absent`` when there is one, with
        ``if_revision`` when it has another revision. ``key`` is the idempotency key."""
        return await self._threads.finish(
            lambda: self._sync.put(name, data, if_absent=if_absent, if_revision=if_revision, key=key)
        )

    async def put_many(
        self, documents: Mapping[str, bytes], *, then: Mapping[str, bytes] | None = None, key: str | None = None
    ) -> None:
        """Writes documents in any order, and those of ``then`` when all others are there: what is named before what names it.

        Together not atomic. A request for each 25 documents, and for each 3 MiB.
        """
        return await self._threads.finish(lambda: self._sync.put_many(documents, then=then, key=key))

    async def delete(self, names: Iterable[str], *, key: str | None = None) -> None:
        """There are no such documents any more, whether or not there were. A request for each 100."""
        return await self._threads.finish(lambda: self._sync.delete(names, key=key))

    def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        until: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int | None = None,
    ) -> AsyncPaged[Document]:
        """As `DocumentReading.list`."""
        return AsyncPaged(self._sync.list(prefix, after=after, until=until, order=order, limit=limit), self._threads)


class AsyncDocumentReading(Twin[DocumentReading]):
    """`DocumentReading` for asyncio: see `AsyncTurnlog`."""

    async def get(self, key: str) -> Document | None:
        """The document; None when there is none."""
        return await self._threads.read(lambda: self._sync.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """Those that there are: a request for each 100 keys, and for each 4 MiB."""
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
        """Documents whose keys begin with ``prefix``, in order of their UTF-8 bytes: those behind ``after``, up to ``until`` and
        it too, both as the order goes; a request for each page of about 1 MB as they are stored."""
        return AsyncPaged(self._sync.list(prefix, after=after, until=until, order=order, limit=limit), self._threads)
