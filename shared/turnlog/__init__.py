"""Turnlog: the session state of an LLM agent. Everything said is kept; each model call gets the window that fits.

    from turnlog import AsyncTurnlog, Turnlog, build_window, correlated, lint
    from turnlog import DualWrite, import_files, load_graph_state, save_graph_state, with_state

`import turnlog` loads nothing but this file; names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnlog.version import __version__

if TYPE_CHECKING:
    from turnlog.client.asynchronous.client import AsyncTurnlog
    from turnlog.client.asynchronous.twins import AsyncSession
    from turnlog.client.aws import Aws
    from turnlog.client.dual_write import DualWrite
    from turnlog.client.graph import load_graph_state, save_graph_state, with_state
    from turnlog.client.imports import import_files
    from turnlog.client.linting import lint
    from turnlog.client.model import Session, Turnlog
    from turnlog.client.windows import build_window
    from turnlog.domain.correlation import correlated
    from turnlog.domain.errors import TurnlogError
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
    "import_files",
    "lint",
    "load_graph_state",
    "save_graph_state",
    "with_state",
]

_HOMES = {
    "AsyncSession": "turnlog.client.asynchronous.twins",
    "AsyncTurnlog": "turnlog.client.asynchronous.client",
    "Aws": "turnlog.client.aws",
    "DualWrite": "turnlog.client.dual_write",
    "Policy": "turnlog.windows.policy",
    "Session": "turnlog.client.model",
    "Turnlog": "turnlog.client.model",
    "TurnlogError": "turnlog.domain.errors",
    "build_window": "turnlog.client.windows",
    "correlated": "turnlog.domain.correlation",
    "import_files": "turnlog.client.imports",
    "lint": "turnlog.client.linting",
    "load_graph_state": "turnlog.client.graph",
    "save_graph_state": "turnlog.client.graph",
    "with_state": "turnlog.client.graph",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'turnlog' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
