"""Agent loops over a session: window, model, reply, tools, again, until the model has answered.

`Run` runs a loop in the calling thread, `AsyncRun` in asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from turnlog.agents.agent_loop import AgentLoop
from turnlog.agents.functions import NEEDS_ASYNC, RunResult, executing
from turnlog.agents.run_log import LoopStep, RunPlan, Step, StreamEvents
from turnlog.client import GivenMessage, plain_messages
from turnlog.client.async_calls import run_to_end
from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Message, Text
from turnlog.providers import Turn
from turnlog.providers.registry import codec_of
from turnlog.telemetry import span

RunInput = str | GivenMessage | Sequence[GivenMessage]


class _BaseRun:
    """Base of both runs. A run is one agent's work: do not call it from two threads at once."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._loop = AgentLoop(plan)

    @property
    def run_id(self) -> str:
        """The id of the newest run; empty before the first."""
        return self._loop.run.run_id

    @property
    def lease(self) -> int | None:
        """The token of the run's lease, for `Session.renew` in a tool that takes long; None while it has no session to itself."""
        return self._loop.run.token

    @property
    def iterations(self) -> int:
        """Model calls of the newest run so far."""
        return self._loop.run.iterations

    async def _drive(self, steps: Step, perform: Callable[[Any], Awaitable[Any]]) -> RunResult:
        """Perform the steps of a run, recorded as a span, and return its result."""
        agent_id = self._plan.agent_id
        attributes = {**self._plan.span_attributes("invoke_agent"), "gen_ai.agent.id": agent_id}
        with span(f"invoke_agent {agent_id}", attributes) as note:
            result = await _perform_all(steps, perform)
            run = {"turnlog.run.id": result.run_id, "turnlog.run.status": result.status}
            note({**run, "turnlog.run.iterations": result.iterations})
            return result

    def _messages(self, value: RunInput) -> list[Mapping[str, Any]]:
        if isinstance(value, str):
            return list(codec_of(self._plan.format).bodies(Turn(Message("user", (Text(value),)))))
        values = value if isinstance(value, Sequence) and not isinstance(value, bytes) else [value]
        messages, _ = plain_messages(cast("Sequence[GivenMessage]", values), self._plan.format)
        if not messages:
            raise InvalidInputError.at("/messages", "messages has 0 items; at least 1 is needed", "too_short")
        return messages


class Run(_BaseRun):
    """A run in the calling thread. See `Session.run`."""

    def send(self, value: RunInput) -> RunResult:
        """Append the user's message, a text or one or several as `Session.append` takes them, and run the loop.

        Returns when the model has answered, waits for a decision, or reaches ``max_iterations``. The status is ``queued`` when
        another run has the session and takes the messages.
        """
        return _finish(self._drive(self._loop.send(self._messages(value)), _perform))

    def resume(self) -> RunResult:
        """Continue the agent's newest run, of this process or another: after a crash, after a decision, or with a greater
        ``max_iterations``. Calls that had not begun are executed first. What happens to one that had begun is set by its `Tool`.
        """
        return _finish(self._drive(self._loop.resume(), _perform))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: all messages are in the log."""


class AsyncRun(_BaseRun):
    """A run in asyncio. See `Session.run_async`."""

    async def send(self, value: RunInput) -> RunResult:
        """Append the user's message and run the loop. See `Run.send`."""
        return await self._drive(self._loop.send(self._messages(value)), _perform_async)

    async def resume(self) -> RunResult:
        """Continue the agent's newest run. See `Run.resume`."""
        return await self._drive(self._loop.resume(), _perform_async)

    async def __aenter__(self) -> AsyncRun:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing: all messages are in the log."""


async def _perform_all(steps: Step, perform: Callable[[Any], Awaitable[Any]]) -> RunResult:
    """Perform the steps of a run until it returns its result."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.throw(failure) if failure is not None else steps.send(answer)
        except StopIteration as stop:
            result: RunResult = stop.value
            return result
        answer, failure = None, None
        try:
            answer = await perform(step)
        except BaseException as error:  # noqa: BLE001 - the loop handles it
            failure = error


def _finish(driving: Coroutine[Any, Any, RunResult]) -> RunResult:
    """Run a coroutine that waits for nothing, without an event loop."""
    try:
        driving.send(None)
    except StopIteration as stop:
        result: RunResult = stop.value
        return result
    raise AssertionError("a step in this thread waits for nothing")


async def _perform(step: LoopStep | StreamEvents) -> Any:
    """Perform a step in this thread. Raises `InvalidInputError` for a stream or a function that is async."""
    if isinstance(step, LoopStep):
        with executing(step.call):
            return _sync(step.function())
    if not hasattr(step.events, "__iter__"):
        raise _needs_async("the model streams asynchronously")
    for event in step.events:
        for handler in step.handlers(event):
            _sync(handler())
    return None


def _sync(value: Any) -> Any:
    if inspect.isawaitable(value):
        with suppress(AttributeError):
            value.close()  # type: ignore[attr-defined]
        raise _needs_async("a function of the run is async")
    return value


def _needs_async(reason: str) -> InvalidInputError:
    return InvalidInputError(f"{reason}: use session.run_async()", code=NEEDS_ASYNC)


async def _perform_async(step: LoopStep | StreamEvents) -> Any:
    if isinstance(step, LoopStep):
        # A session call ends also when the caller is cancelled, so that the loop knows what is in the log.
        return await (run_to_end(step.function) if step.by_session else _call_user_function(step))
    if hasattr(step.events, "__aiter__"):
        async for event in step.events:
            await _handle_event(step, event)
    else:
        for event in step.events:
            await _handle_event(step, event)
    return None


async def _handle_event(step: StreamEvents, event: Any) -> None:
    for handler in step.handlers(event):
        value = handler()
        if inspect.isawaitable(value):
            await value


async def _call_user_function(step: LoopStep) -> Any:
    """Call a function of the user in a thread, since it may block; await its value here when it is awaitable."""
    with executing(step.call):
        value = await asyncio.to_thread(step.function)
        return await value if inspect.isawaitable(value) else value
