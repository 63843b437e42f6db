"""Windows of a process that remembers nothing."""

from __future__ import annotations

from typing import Any

from tests.conftest import Harness
from turnlog.client.model import Session
from turnlog.core.errors import TurnlogError
from turnlog.sessions.session_history import WarmSessions


def window(session: Session, **options: Any) -> dict[str, Any]:
    """Return the window, or the refusal of the budget."""
    try:
        return session.context(**options).model_dump(mode="json")
    except TurnlogError as error:
        return {"refused": error.code, "details": dict(error.details)}


def cold(harness: Harness, session: Session, **options: Any) -> dict[str, Any]:
    """Return the window of a process that remembers nothing, and leave what this one remembers."""
    use_case = harness.app.build_context
    remembered, use_case.warm_sessions = use_case.warm_sessions, WarmSessions()
    try:
        return window(session, **options)
    finally:
        use_case.warm_sessions = remembered
