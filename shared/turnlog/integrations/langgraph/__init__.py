"""Checkpoints of LangGraph in the documents of a session: `TurnlogSaver`."""

from turnlog.integrations.langgraph.saver import TurnlogSaver

__all__ = ["TurnlogSaver"]
