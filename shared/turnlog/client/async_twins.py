"""`AsyncTurnlog`, the client for asyncio, and the async twins of the other objects.

Each method is made from the sync one, with its parameters and its documentation. Open the client with ``async with`` or ``await``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from turnlog.client import Paged
from turnlog.client.async_calls import CallThreads, Method, P, T, async_form, checked_max_calls, run_to_end
from turnlog.client.aws import Aws
from turnlog.client.documents import DocumentReading, Documents
from turnlog.client.model import Session, Sessions, Turnlog
from turnlog.ports import Prompt

S = TypeVar("S")


class Twin(Generic[S]):
    """An async object that stands for an object of the sync model."""

    def __init__(self, sync: S, threads: CallThreads) -> None:
        self._sync = sync
        self._threads = threads

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Twin) and self._sync == other._sync

    def __hash__(self) -> int:
        return hash(self._sync)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


def read(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Return the async form of a method that only reads. When its caller is cancelled, it is abandoned."""
    return async_form(
        method, lambda self: getattr(self._sync, method.__name__), lambda self, call: self._threads.read(call)
    )


def finish(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Return the async form of a method that may write. When its caller is cancelled, a call that has started is finished."""
    return async_form(
        method, lambda self: getattr(self._sync, method.__name__), lambda self, call: self._threads.finish(call)
    )


def plain(method: Method[P, T]) -> Method[P, T]:
    """Return a method that calls the sync one as it is, for one that is for asyncio already."""

    @functools.wraps(method)
    def call(self: Twin[Any], /, *args: P.args, **options: P.kwargs) -> T:
        answer: T = getattr(self._sync, method.__name__)(*args, **options)
        return answer

    return call


def paged(method: Method[P, Paged[T]]) -> Method[P, AsyncPaged[T]]:
    """Return the async form of a method that lists: for ``async for``, page by page."""

    @functools.wraps(method)
    def call(self: Twin[Any], /, *args: P.args, **options: P.kwargs) -> AsyncPaged[T]:
        return AsyncPaged(getattr(self._sync, method.__name__)(*args, **options), self._threads)

    return answering(f"Async{method.__annotations__['return']}", call)


F = TypeVar("F", bound=Callable[..., Any])


def answering(annotation: str, method: F) -> F:
    """Set what `help` shows as the answer of a method that is made from another."""
    shown = inspect.signature(method).replace(return_annotation=annotation)
    method.__signature__ = shown  # type: ignore[attr-defined]
    return method


class AsyncPaged(AsyncIterator[T], Generic[T]):
    """Async form of `Paged`. A page that was being fetched when the caller was cancelled is returned by the next call."""

    def __init__(self, paged: Paged[T], threads: CallThreads) -> None:
        self._paged = paged
        self._threads = threads
        self._left = deque[T]()
        self._coming: asyncio.Future[Sequence[T] | None] | None = None

    def __repr__(self) -> str:
        return "<AsyncPaged: iterate over it once, with async for>"

    async def __anext__(self) -> T:
        while not self._left:
            page = await self._page()
            if page is None:
                raise StopAsyncIteration
            self._left.extend(page)
        return self._left.popleft()

    async def _page(self) -> Sequence[T] | None:
        """Return the next page; take over a fetch that a cancelled caller left running."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._threads.read(self._paged.page))
        coming = self._coming
        try:
            return await asyncio.shield(coming)
        finally:
            if coming.done():
                self._coming = None


class AsyncDocumentReading(Twin[DocumentReading]):
    """`DocumentReading` for asyncio: see `AsyncTurnlog`."""

    get = read(DocumentReading.get)
    get_many = read(DocumentReading.get_many)
    list = paged(DocumentReading.list)


class AsyncDocuments(AsyncDocumentReading):
    """`Documents` for asyncio: see `AsyncTurnlog`."""

    _sync: Documents

    put = finish(Documents.put)
    put_many = finish(Documents.put_many)
    delete = finish(Documents.delete)

    def reading(self) -> AsyncDocumentReading:
        """Return an object for several reads in a row: together they check once that the session exists."""
        return AsyncDocumentReading(self._sync.reading(), self._threads)


def session_of(method: Method[P, Coroutine[Any, Any, Session]]) -> Method[P, Coroutine[Any, Any, AsyncSession]]:
    """Return an async method that answers with the twin of the session that ``method`` answers with."""

    @functools.wraps(method)
    async def call(self: Twin[Any], /, *args: P.args, **options: P.kwargs) -> AsyncSession:
        return AsyncSession(await method(self, *args, **options), self._threads)

    return answering("AsyncSession", call)


class AsyncSession(Twin[Session]):
    """`Session` for asyncio: see `AsyncTurnlog`."""

    def __init__(self, sync: Session, threads: CallThreads) -> None:
        super().__init__(sync, threads)
        self.id = sync.id

    info = read(Session.info)
    update = finish(Session.update)
    end = finish(Session.end)
    reset = session_of(finish(Session.reset))
    erase = finish(Session.erase)
    redact = finish(Session.redact)

    append = finish(Session.append)
    extend = finish(Session.extend)
    stream = plain(Session.stream_async)
    run = plain(Session.run_async)
    context = read(Session.context)
    page = read(Session.page)
    messages = paged(Session.messages)
    loops = paged(Session.loops)
    compress = finish(Session.compress)
    summary = read(Session.summary)
    discard_summary = finish(Session.discard_summary)

    recall = read(Session.recall)
    search = read(Session.search)
    handles = staticmethod(Session.handles)
    execute_tool = read(Session.execute_tool)

    state = read(Session.state)
    put_state = finish(Session.put_state)
    patch_state = finish(Session.patch_state)
    agent = read(Session.agent)
    patch_agent = finish(Session.patch_agent)
    cancel_run = finish(Session.cancel_run)
    decide_pending = finish(Session.decide_pending)
    acquire = finish(Session.acquire)
    renew = finish(Session.renew)
    release = finish(Session.release)
    send_to_run = finish(Session.send_to_run)
    history_page = read(Session.history_page)
    history = paged(Session.history)
    record = finish(Session.record)

    create_snapshot = finish(Session.create_snapshot)
    snapshot = read(Session.snapshot)
    snapshots = paged(Session.snapshots)
    restore_snapshot = finish(Session.restore_snapshot)
    delete_snapshot = finish(Session.delete_snapshot)
    export = finish(Session.export)
    rewind = finish(Session.rewind)
    fork = session_of(finish(Session.fork))
    child = session_of(finish(Session.child))
    replay = read(Session.replay)
    diff = read(Session.diff)

    @property
    def documents(self) -> AsyncDocuments:
        """Documents of the session."""
        return AsyncDocuments(self._sync.documents, self._threads)


class AsyncSessions(Twin[Sessions]):
    """`Sessions` for asyncio: see `AsyncTurnlog`."""

    create = session_of(finish(Sessions.create))
    get = session_of(read(Sessions.get))
    get_or_create = session_of(finish(Sessions.get_or_create))
    exists = read(Sessions.exists)
    page = read(Sessions.page)
    list = paged(Sessions.list)
    import_ = finish(Sessions.import_)

    def of(self, session_id: str) -> AsyncSession:
        """Return the session object of an id without a request. An expired session still has its snapshots."""
        return AsyncSession(self._sync.of(session_id), self._threads)


MAX_CALLS = 16


class AsyncTurnlog(Twin[Turnlog]):
    """`Turnlog` for asyncio. Each call runs the sync code in a thread, at most ``max_calls`` at once.

    Tasks may share it; it is not bound to an event loop. When the caller is cancelled, a writing call that has started is
    finished before the cancellation is raised; a call that still waits for a thread is not made. A reading call is abandoned.
    """

    def __init__(self, log: Turnlog, *, max_calls: int = MAX_CALLS) -> None:
        super().__init__(log, CallThreads(max_calls))
        self.sessions = AsyncSessions(log.sessions, self._threads)

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
        max_calls: int = MAX_CALLS,
    ) -> Opening:
        """Open a client for ``async with`` or ``await``. The other options are those of `Turnlog.open`.

        async with AsyncTurnlog.open("sqlite:///agent.db") as log:
            session = await log.sessions.get_or_create("support-42")
        """
        checked_max_calls(max_calls)  # before anything is opened
        open_log = functools.partial(
            Turnlog.open,
            url,
            tenant=tenant,
            user=user,
            token=token,
            aws=aws,
            timeout_seconds=timeout_seconds,
            deadline_seconds=deadline_seconds,
            worker=worker,
            summariser=summariser,
        )
        return Opening(lambda: cls(open_log(), max_calls=max_calls))

    build_window = read(Turnlog.build_window)
    lint = read(Turnlog.lint)
    search = read(Turnlog.search)
    health = read(Turnlog.health)
    export = finish(Turnlog.export)
    erase_me = finish(Turnlog.erase_me)
    run_jobs = finish(Turnlog.run_jobs)
    job = read(Turnlog.job)
    jobs = paged(Turnlog.jobs)
    redrive = finish(Turnlog.redrive)
    memory = paged(Turnlog.memory)
    memory_page = read(Turnlog.memory_page)
    forget = finish(Turnlog.forget)
    verify = read(Turnlog.verify)
    backup = finish(Turnlog.backup)

    async def close(self) -> None:
        """Wait for running calls, then close. A later call raises `UnavailableError`, code ``closed``."""
        await self._threads.close()
        await run_to_end(self._sync.close)

    async def __aenter__(self) -> AsyncTurnlog:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Opening:
    """A client that is being opened: await it, or enter it with ``async with``."""

    def __init__(self, make: Callable[[], AsyncTurnlog]) -> None:
        self._make = make
        self._log: AsyncTurnlog | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            detail = f"{name!r} of a client that is not open: `log = await AsyncTurnlog.open(...)`, or `async with`"
            raise AttributeError(detail, name=name, obj=self)

    def __await__(self) -> Generator[Any, None, AsyncTurnlog]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncTurnlog:
        self._log = await self
        return self._log

    async def __aexit__(self, *error: object) -> None:
        if self._log is not None:
            await self._log.close()

    async def _opened(self) -> AsyncTurnlog:
        """Open the client in a thread; close it again when the caller is cancelled meanwhile."""
        opened: list[AsyncTurnlog] = []
        try:
            await run_to_end(lambda: opened.append(self._make()))
        except asyncio.CancelledError:
            for log in opened:
                await log.close()
            raise
        return opened[0]
