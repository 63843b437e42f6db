"""LangGraph over sessions: `TurnlogSaver`, a checkpointer, and `TurnlogStore`, a store. A name is loaded at its first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnlog.integrations.langgraph.saver import TurnlogSaver
    from turnlog.integrations.langgraph.store import TurnlogStore

__all__ = ["TurnlogSaver", "TurnlogStore"]
_HOMES = {"TurnlogSaver": "saver", "TurnlogStore": "store"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
