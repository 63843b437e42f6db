"""`TurnlogSaver`: a LangGraph checkpointer that stores checkpoints as documents of a session."""

from turnlog.integrations.langgraph.saver import TurnlogSaver

__all__ = ["TurnlogSaver"]
