"""Async methods made from sync ones, the base class of the objects that have them, and the threads in which calls run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from turnlog.client import Paged
from turnlog.core.errors import InvalidInputError, UnavailableError

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")
Method = Callable[Concatenate[Any, P], T]


async def run_to_end(mutation: Callable[[], T], executor: Executor | None = None) -> T:
    """Run a call in a thread to its end, also when the caller is cancelled.

    The cancellation is raised after the call has ended, so its effect is never in doubt. With an ``executor``, a call that
    still waits for a thread is not made at all.
    """
    queued: Future[T] | None = None
    if executor is None:
        doing: asyncio.Future[T] = asyncio.ensure_future(asyncio.to_thread(mutation))
    else:
        queued = executor.submit(contextvars.copy_context().run, mutation)
        doing = asyncio.wrap_future(queued)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            if queued is not None and queued.cancel():
                raise
            cancelled = cancelled or error
    if cancelled is not None:
        doing.exception()
        raise cancelled
    return doing.result()


def _async_form(
    method: Method[P, T],
    bound: Callable[[Any], Callable[P, T]],
    wait: Callable[[Any, Callable[[], T]], Coroutine[Any, Any, T]],
) -> Method[P, Coroutine[Any, Any, T]]:
    """Return a method that waits for a sync one: ``bound`` returns that of an object, ``wait`` runs the call in a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return await wait(self, functools.partial(bound(self), *args, **options))

    return call


def reads(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Make a method that reads async: it runs in a thread, and is abandoned when its caller is cancelled."""
    return _async_form(method, lambda self: functools.partial(method, self), lambda self, call: asyncio.to_thread(call))


def writes(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Make a method that writes async: it runs in a thread, to its end also when its caller is cancelled."""
    return _async_form(method, lambda self: functools.partial(method, self), lambda self, call: run_to_end(call))


def in_thread(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Return the async form of an object's own method, or of a subclass's in its place: `reads`."""
    return _async_form(method, lambda self: getattr(self, method.__name__), lambda self, call: asyncio.to_thread(call))


def to_end(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Return the async form of an object's own method, or of a subclass's in its place: `writes`."""
    return _async_form(method, lambda self: getattr(self, method.__name__), lambda self, call: run_to_end(call))


class CallThreads:
    """Threads of one client: at most ``max_calls`` calls run at once; others wait."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = checked_max_calls(max_calls)
        self._executor = self._new_executor()
        self._pid = os.getpid()
        self._is_closed = False

    async def read(self, call: Callable[[], T]) -> T:
        """Run a reading call. When the caller is cancelled, stop waiting for it."""
        return await asyncio.wrap_future(self._running().submit(contextvars.copy_context().run, call))

    async def finish(self, call: Callable[[], T]) -> T:
        """Run a writing call to its end. When the caller is cancelled, a call that has not started is dropped, else its end is
        awaited.
        """
        return await run_to_end(call, self._running())

    async def close(self) -> None:
        """Refuse new calls, and wait for the running ones."""
        self._is_closed = True
        if self._pid == os.getpid():
            await asyncio.to_thread(self._executor.shutdown)

    def _running(self) -> ThreadPoolExecutor:
        if self._is_closed:
            raise UnavailableError("the client is closed", code="closed")
        if self._pid != os.getpid():
            # A forked child has none of its parent's threads.
            self._executor, self._pid = self._new_executor(), os.getpid()
        return self._executor

    def _new_executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._max_calls, thread_name_prefix="turnlog")


def checked_max_calls(value: int) -> int:
    """Return ``value``; raise `InvalidInputError` when it is below 1."""
    if value < 1:
        raise InvalidInputError(f"max_calls must be a number above 0, not {value!r}")
    return value


class Twin(Generic[S]):
    """An async object that stands for an object of the sync model."""

    def __init__(self, sync: S, threads: CallThreads) -> None:
        self._sync = sync
        self._threads = threads


def read(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Return the async form of a method that only reads. When its caller is cancelled, it is abandoned."""
    return _async_form(
        method, lambda self: getattr(self._sync, method.__name__), lambda self, call: self._threads.read(call)
    )


def finish(method: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """Return the async form of a method that may write. When its caller is cancelled, a call that has started is finished."""
    return _async_form(
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
