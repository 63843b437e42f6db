"""Agent loops over a session: `Run` in the calling thread, `AsyncRun` in asyncio, and what their functions are given.

Names are loaded when they are first used. A package that imports its own modules at once can't be loaded while another thread
loads one of these: each would wait for the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnlog.agents.functions import Effect, Hooks, Reply, RequestedCall, RunResult, Tool, current_call
    from turnlog.agents.runs import AsyncRun, Run

__all__ = ["AsyncRun", "Effect", "Hooks", "Reply", "RequestedCall", "Run", "RunResult", "Tool", "current_call"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "runs" if name in ("AsyncRun", "Run") else "functions"
    return getattr(import_module(f"{__name__}.{home}"), name)
