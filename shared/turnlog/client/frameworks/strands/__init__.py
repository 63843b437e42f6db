"""Strands agents (1.62) over the log: https://strandsagents.com/docs/user-guide/concepts/agents/session-management/.

    from turnlog.client.frameworks.strands import TurnlogConversationManager, TurnlogRepository

    agent = Agent(
        model=model,
        tools=tools,
        session_manager=RepositorySessionManager("support-42", TurnlogRepository(log)),
        conversation_manager=TurnlogConversationManager(log, "support-42", budget=30_000),
    )

`TurnlogRepository` keeps sessions, agents and their messages; `TurnlogStorage` keeps the bytes of snapshots and of whatever else;
`TurnlogConversationManager` sends the model the session's window.
"""

from __future__ import annotations

from turnlog.client.frameworks.strands.conversation import TurnlogConversationManager
from turnlog.client.frameworks.strands.repository import TurnlogRepository
from turnlog.client.frameworks.strands.storage import TurnlogStorage

__all__ = ["TurnlogConversationManager", "TurnlogRepository", "TurnlogStorage"]
