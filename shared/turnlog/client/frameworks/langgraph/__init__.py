"""Checkpoints of LangGraph in the documents of a session: `TurnlogSaver`."""

from turnlog.client.frameworks.langgraph.saver import TurnlogSaver

__all__ = ["TurnlogSaver"]
