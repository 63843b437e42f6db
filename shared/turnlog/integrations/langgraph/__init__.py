"""LangGraph over sessions: `TurnlogSaver`, a checkpointer, and `TurnlogStore`, a store."""

from turnlog.integrations.langgraph.saver import TurnlogSaver
from turnlog.integrations.langgraph.store import TurnlogStore

__all__ = ["TurnlogSaver", "TurnlogStore"]
