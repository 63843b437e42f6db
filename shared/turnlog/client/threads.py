"""Calls that wait, made from asyncio in a thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")


async def finished(mutation: Callable[[], T], executor: Executor | None = None) -> T:
    """Makes a call in a thread, to its end: its caller's cancellation is told when it is done, so that nobody has to guess.

    With an executor of one's own, a call that waits for a thread when its caller is cancelled is not made at all.
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


async def abandonable(reading: Callable[[], T], executor: Executor) -> T:
    """Makes a call in a thread, and does not wait for it when its caller is cancelled."""
    return await asyncio.wrap_future(executor.submit(contextvars.copy_context().run, reading))
