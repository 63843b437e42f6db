"""Strands agents (1.62) over the log: https://strandsagents.com/docs/user-guide/concepts/agents/session-management/.

    from turnlog.integrations.strands import TurnlogConversationManager, TurnlogRepository

    agent = Agent(
        model=model,
        tools=tools,
        session_manager=RepositorySessionManager("support-42", TurnlogRepository(log)),
        conversation_manager=TurnlogConversationManager(log, "support-42", budget=30_000),
    )

`TurnlogRepository` stores sessions, agents and their messages. `TurnlogStorage` stores bytes by key, for instance snapshots.
`TurnlogConversationManager` sends the model the session's window.
"""

from __future__ import annotations

from turnlog.integrations.strands.conversation import TurnlogConversationManager
from turnlog.integrations.strands.repository import TurnlogRepository
from turnlog.integrations.strands.storage import TurnlogStorage

__all__ = ["TurnlogConversationManager", "TurnlogRepository", "TurnlogStorage"]
