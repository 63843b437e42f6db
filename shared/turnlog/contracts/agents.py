"""Execution state of agents."""

from __future__ import annotations

from turnlog.contracts.base import Answer, JsonObjectField


class AgentState(Answer):
    """``version`` is the position of the newest state event; ``state`` has the fields of the agent's execution state."""

    agent_id: str
    state: JsonObjectField
    version: int


class Health(Answer):
    status: str
    version: str
    engine: str
    schema_version: int
