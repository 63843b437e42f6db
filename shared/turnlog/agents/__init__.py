"""Agent loops over a session: window, model, reply, tools, again, until the model has answered."""

from __future__ import annotations

from turnlog.agents.replies import Reply
from turnlog.agents.runners import AsyncRun, Run
from turnlog.agents.tools import Hooks, RequestedCall, RunResult

__all__ = ["AsyncRun", "Hooks", "Reply", "RequestedCall", "Run", "RunResult"]
