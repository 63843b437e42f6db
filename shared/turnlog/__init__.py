"""Turnlog: the session state of an LLM agent. Everything said is kept; each model call gets the window that fits.

    from turnlog import AsyncTurnlog, Turnlog, build_window, correlated, lint
    from turnlog import DualWrite, import_files, load_graph_state, save_graph_state, with_state

`import turnlog` loads nothing but this file; names are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, whose import takes as long as all else of `turnlog --version`

if TYPE_CHECKING:
    from typing import Any

    from turnlog.agents.graph_state.conversion import (
        load_graph_state,
        save_graph_state,
        validate_graph_state,
        with_state,
    )
    from turnlog.client.async_twins import AsyncSession, AsyncTurnlog
    from turnlog.client.aws import Aws
    from turnlog.client.model import Session, Turnlog
    from turnlog.client.stateless import build_window, count_tokens, lint
    from turnlog.core.errors import TurnlogError
    from turnlog.core.identity import correlated
    from turnlog.importers import import_files
    from turnlog.importers.dual_write import DualWrite
    from turnlog.windows.policy import Policy

__all__ = [
    "AsyncSession",
    "AsyncTurnlog",
    "Aws",
    "DualWrite",
    "Policy",
    "Session",
    "Turnlog",
    "TurnlogError",
    "__version__",
    "build_window",
    "correlated",
    "count_tokens",
    "import_files",
    "lint",
    "load_graph_state",
    "save_graph_state",
    "validate_graph_state",
    "with_state",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncSession": "turnlog.client.async_twins",
    "AsyncTurnlog": "turnlog.client.async_twins",
    "Aws": "turnlog.client.aws",
    "DualWrite": "turnlog.importers.dual_write",
    "Policy": "turnlog.windows.policy",
    "Session": "turnlog.client.model",
    "Turnlog": "turnlog.client.model",
    "TurnlogError": "turnlog.core.errors",
    "build_window": "turnlog.client.stateless",
    "correlated": "turnlog.core.identity",
    "count_tokens": "turnlog.client.stateless",
    "import_files": "turnlog.importers",
    "lint": "turnlog.client.stateless",
    "load_graph_state": "turnlog.agents.graph_state.conversion",
    "save_graph_state": "turnlog.agents.graph_state.conversion",
    "validate_graph_state": "turnlog.agents.graph_state.conversion",
    "with_state": "turnlog.agents.graph_state.conversion",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'turnlog' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
