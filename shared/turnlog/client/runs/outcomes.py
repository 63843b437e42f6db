"""How a run has come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.values import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model. ``arguments`` is its JSON text, ``ref`` the log's name of it."""

    ref: str
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """``status``: ``final`` (the model has answered), ``pending`` (a call waits for a decision), ``max_iterations`` (another call
    of the model was refused), ``idle`` (there was nothing to answer).

    ``messages`` are the newest reply, in the run's format, and ``text`` what it says. ``iterations`` counts the model calls of this
    run, earlier processes included. ``pending`` is the action that waits.
    """

    status: Literal["final", "pending", "max_iterations", "idle"]
    run_id: str
    iterations: int
    messages: tuple[JsonObject, ...] = ()
    text: str = ""
    finish_reason: str | None = None
    pending: Mapping[str, Any] | None = None
