"""Agent loops over a session: window, model, reply, tools, again, until the model has answered."""

from __future__ import annotations

from turnlog.client.runs.drivers import AsyncRun, Run
from turnlog.client.runs.hooks import Hooks
from turnlog.client.runs.outcomes import Call, Outcome
from turnlog.client.runs.replies import Reply

__all__ = ["AsyncRun", "Call", "Hooks", "Outcome", "Reply", "Run"]
