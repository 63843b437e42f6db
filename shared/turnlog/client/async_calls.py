"""Async methods made from an object's own sync ones, and the threads in which their calls run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from turnlog.core.errors import InvalidInputError, UnavailableError

T = TypeVar("T")
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


def async_form(
    method: Method[P, T],
    bound: Callable[[Any], Callable[P, T]],
    wait: Callable[[Any, Callable[[], T]], Coroutine[Any, Any, T]],
) -> Method[P, CoroutineType[Any, Any, T]]:
    """Return a method that waits for a sync one: ``bound`` returns that of an object, ``wait`` runs the call in a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return await wait(self, functools.partial(bound(self), *args, **options))

    return cast("Method[P, CoroutineType[Any, Any, T]]", call)  # what `async def` makes, for protocols that have it


def reads(method: Method[P, T]) -> Method[P, CoroutineType[Any, Any, T]]:
    """Make a method that reads async: it runs in a thread, and is abandoned when its caller is cancelled."""
    return async_form(method, lambda self: functools.partial(method, self), lambda self, call: asyncio.to_thread(call))


def writes(method: Method[P, T]) -> Method[P, CoroutineType[Any, Any, T]]:
    """Make a method that writes async: it runs in a thread, to its end also when its caller is cancelled."""
    return async_form(method, lambda self: functools.partial(method, self), lambda self, call: run_to_end(call))


def in_thread(method: Method[P, T]) -> Method[P, CoroutineType[Any, Any, T]]:
    """Return the async form of an object's own method, or of a subclass's in its place: `reads`."""
    return async_form(method, lambda self: getattr(self, method.__name__), lambda self, call: asyncio.to_thread(call))


def to_end(method: Method[P, T]) -> Method[P, CoroutineType[Any, Any, T]]:
    """Return the async form of an object's own method, or of a subclass's in its place: `writes`."""
    return async_form(method, lambda self: getattr(self, method.__name__), lambda self, call: run_to_end(call))


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
        """Run a writing call to its end. If the caller is cancelled, a call that has not started is dropped; others are awaited."""
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
