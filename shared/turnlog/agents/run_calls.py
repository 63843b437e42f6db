"""`Session.run` and `Session.run_async`: agent loops over a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from turnlog.client.backend import SessionResource
from turnlog.core.agent_state import DEFAULT_AGENT
from turnlog.core.models import FormatName
from turnlog.engines.system import RandomIds
from turnlog.sessions.context_models import WindowAnswer

if TYPE_CHECKING:
    from turnlog.agents.agent_loop import Approval, RunPlan
    from turnlog.agents.runners import AsyncRun, Run
    from turnlog.agents.tools import Hooks
    from turnlog.client.model import Session


_IDS = RandomIds()


class RunCalls(SessionResource):
    """Calls that start an agent loop, in a thread or in asyncio."""

    def run(
        self,
        model: Callable[[WindowAnswer], Any],
        tools: Mapping[str, Callable[..., Any]] | None = None,
        *,
        format: FormatName = "openai_chat",
        agent_id: str = DEFAULT_AGENT,
        max_iterations: int = 20,
        approve: Approval = (),
        hooks: Sequence[Hooks] = (),
        author: str | None = None,
        **window: Any,
    ) -> Run:
        """Return a run of an agent in this session: window, model, reply, tools, again.

            with session.run(model=ask, tools={"find_order": find_order}) as run:
                outcome = run.send("Where is my order?")

        ``model`` takes the window, and returns a message, its provider's answer, or its stream. ``tools`` are functions by
        name, called with the arguments as keywords; an error becomes a result that the model reads. The session executes the
        recall tools. Calls of the tools in ``approve`` (names, or a function of a `RequestedCall`) wait for a decision
        (`decide_pending`). ``max_iterations`` limits the model calls between two messages of the user. Several agents of a
        session have an ``agent_id`` and an ``author`` each. ``window`` are options of `context`: ``budget``, ``policy``, and
        ``model_name`` for its ``model``.
        """
        from turnlog.agents.runners import Run

        return Run(self._plan(model, tools, format, agent_id, max_iterations, approve, hooks, author, window))

    def run_async(
        self,
        model: Callable[[WindowAnswer], Any],
        tools: Mapping[str, Callable[..., Any]] | None = None,
        *,
        format: FormatName = "openai_chat",
        agent_id: str = DEFAULT_AGENT,
        max_iterations: int = 20,
        approve: Approval = (),
        hooks: Sequence[Hooks] = (),
        author: str | None = None,
        **window: Any,
    ) -> AsyncRun:
        """Return a run for asyncio. The model, the tools and the hooks may be async or not. See `run`."""
        from turnlog.agents.runners import AsyncRun

        return AsyncRun(self._plan(model, tools, format, agent_id, max_iterations, approve, hooks, author, window))

    def _plan(  # noqa: PLR0913
        self,
        model: Callable[[WindowAnswer], Any],
        tools: Mapping[str, Callable[..., Any]] | None,
        format: FormatName,
        agent_id: str,
        max_iterations: int,
        approve: Approval,
        hooks: Sequence[Hooks],
        author: str | None,
        window: Mapping[str, Any],
    ) -> RunPlan:
        from turnlog.agents.agent_loop import RunPlan

        options = {("model" if name == "model_name" else name): value for name, value in window.items()}
        return RunPlan(
            cast("Session", self),
            model,
            dict(tools or {}),
            format,
            agent_id,
            max_iterations,
            approve,
            hooks,
            author,
            options,
            _IDS.new_id,
        )
