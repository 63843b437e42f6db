"""Runs that wait: in a thread, or in asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from turnlog.agents.agent_loop import AgentLoop, Each, LoopStep, RunPlan, Step, user_message
from turnlog.agents.tools import RunResult
from turnlog.client.threads import finished
from turnlog.core.errors import InvalidInputError

Given = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class _Running:
    """What both have. One at a time: a run is one agent's course."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._course = AgentLoop(plan)

    @property
    def run_id(self) -> str:
        """Of the newest run; empty before there is one."""
        return self._course.run_id

    @property
    def iterations(self) -> int:
        """Model calls of that run so far."""
        return self._course.iterations

    def _messages(self, given: Given) -> list[Mapping[str, Any]]:
        if isinstance(given, str):
            return [user_message(given, self._plan.format)]
        return [given] if isinstance(given, Mapping) else list(given)


class Run(_Running):
    """See `Session.run`."""

    def send(self, given: Given) -> RunResult:
        """Appends what the user says (a text, a message or several), and runs until the model has answered, waits for a
        decision, or may not be called again."""
        return _driven(self._course.send(self._messages(given)))

    def resume(self) -> RunResult:
        """Goes on where the newest run of the agent has stopped, in this process or another: after a crash, a decision, or with a
        greater ``max_iterations``. Calls without a result are executed first."""
        return _driven(self._course.resume())

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to be done: all that was said is in the log."""


class AsyncRun(_Running):
    """See `Session.run_async`."""

    async def send(self, given: Given) -> RunResult:
        """As `Run.send`."""
        return await _driven_async(self._course.send(self._messages(given)))

    async def resume(self) -> RunResult:
        """As `Run.resume`."""
        return await _driven_async(self._course.resume())

    async def __aenter__(self) -> AsyncRun:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to be done: all that was said is in the log."""


def _driven(course: Step) -> RunResult:
    answer: Any = None
    failed: BaseException | None = None
    while True:
        try:
            step = course.throw(failed) if failed is not None else course.send(answer)
        except StopIteration as over:
            outcome: RunResult = over.value
            return outcome
        answer, failed = None, None
        try:
            answer = _done(step)
        except BaseException as error:  # noqa: BLE001 - the course decides what becomes of it
            failed = error


def _done(step: LoopStep | Each) -> Any:
    if isinstance(step, LoopStep):
        return _sync(step.what())
    if not hasattr(step.events, "__iter__"):
        raise _asynchronous("its model streams")
    for event in step.events:
        for then in step.to(event):
            _sync(then())
    return None


def _sync(value: Any) -> Any:
    if inspect.isawaitable(value):
        with suppress(AttributeError):
            value.close()  # type: ignore[attr-defined]
        raise _asynchronous("a function of it is async")
    return value


def _asynchronous(why: str) -> InvalidInputError:
    return InvalidInputError(f"{why}: use session.run_async()", code="needs_async")


async def _driven_async(course: Step) -> RunResult:
    answer: Any = None
    failed: BaseException | None = None
    while True:
        try:
            step = course.throw(failed) if failed is not None else course.send(answer)
        except StopIteration as over:
            outcome: RunResult = over.value
            return outcome
        answer, failed = None, None
        try:
            answer = await _done_async(step)
        except BaseException as error:  # noqa: BLE001 - the course decides what becomes of it
            failed = error


async def _done_async(step: LoopStep | Each) -> Any:
    if isinstance(step, LoopStep):
        # Done to its end also when the caller is cancelled, so that the log is as the course knows it.
        return await (finished(step.what) if step.own else _of_user(step))
    if hasattr(step.events, "__aiter__"):
        async for event in step.events:
            await _each(step, event)
    else:
        for event in step.events:
            await _each(step, event)
    return None


async def _each(step: Each, event: Any) -> None:
    for then in step.to(event):
        value = then()
        if inspect.isawaitable(value):
            await value


async def _of_user(step: LoopStep) -> Any:
    """A function that blocks has a thread of its own; what is awaitable is awaited here."""
    value = await asyncio.to_thread(step.what)
    return await value if inspect.isawaitable(value) else value
