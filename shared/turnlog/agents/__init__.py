"""Agent loops over a session: window, model, reply, tools, again, until the model has answered."""

from __future__ import annotations

from turnlog.agents.functions import Hooks, Reply, RequestedCall, RunResult
from turnlog.agents.runners import AsyncRun, Run

__all__ = ["AsyncRun", "Hooks", "Reply", "RequestedCall", "Run", "RunResult"]
