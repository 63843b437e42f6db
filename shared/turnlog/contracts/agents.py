"""Execution state of agents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnlog.contracts.base import Answer, Body, JsonObjectField


class AgentState(Answer):
    """``version`` is the position of the newest state event; ``state`` has the fields of the agent's execution state."""

    agent_id: str
    state: JsonObjectField
    version: int


class DecidePending(Body):
    """The decision on what an agent waits for."""

    decision: Literal["approve", "reject"]
    reason: str | None = Field(default=None, max_length=10_000, description="Told to the model with a refusal")


class Decided(AgentState):
    """``refusal`` is the position of the result that refuses the call; null when approved, or when there is no such call."""

    refusal: int | None


class Health(Answer):
    status: str
    version: str
    engine: str
    schema_version: int
