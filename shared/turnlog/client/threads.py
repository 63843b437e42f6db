"""Run blocking calls in a thread, from asyncio."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")


async def finished(mutation: Callable[[], T], executor: Executor | None = None) -> T:
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


async def abandonable(call: Callable[[], T], executor: Executor) -> T:
    """Run a call in a thread, and stop waiting for it when the caller is cancelled."""
    return await asyncio.wrap_future(executor.submit(contextvars.copy_context().run, call))
