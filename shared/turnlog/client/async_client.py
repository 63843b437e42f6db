"""`AsyncTurnlog`, the client for asyncio. Open it with ``async with`` or ``await``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from turnlog.client.async_calls import CallThreads, checked_max_calls, run_to_end
from turnlog.client.async_twins import AsyncSessions, TurnlogCalls
from turnlog.client.aws import Aws
from turnlog.client.model import Turnlog
from turnlog.ports import Prompt

MAX_CALLS = 16


class AsyncTurnlog(TurnlogCalls):
    """`Turnlog` for asyncio. Each call runs the sync code in a thread, at most ``max_calls`` at once.

    Tasks may share it; it is not bound to an event loop. When the caller is cancelled, a writing call that has started is
    finished before the cancellation is raised; a call that still waits for a thread is not made. A reading call is abandoned.
    """

    def __init__(self, log: Turnlog, *, max_calls: int = MAX_CALLS) -> None:
        super().__init__(log, CallThreads(max_calls))
        self.sessions = AsyncSessions(log.sessions, self._threads)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

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
        """Open a client for ``async with`` or ``await``. The options are those of `Turnlog.open`.

        async with AsyncTurnlog.open("sqlite:///agent.db") as log:
            session = await log.sessions.get_or_create("support-42")
        """
        checked_max_calls(max_calls)  # before anything is opened
        open_log = partial(
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

    async def close(self) -> None:
        """Wait for running calls, then close. A later call raises `UnavailableError`, code ``closed``."""
        await self._threads.close()
        await run_to_end(self._sync.close)

    async def __aenter__(self) -> AsyncTurnlog:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
