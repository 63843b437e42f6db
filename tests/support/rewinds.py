"""What a session shows at a moment."""

from __future__ import annotations

from typing import Any

from tests.support.talks import AMPLE
from turnlog.client.model import Session


def said(n: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"Question {n}"}, {"role": "assistant", "content": f"Answer {n}"}]


def contents(session: Session, **options: Any) -> list[Any]:
    return [one.body["content"] for one in session.messages(**options)]


def seen(session: Session, **options: Any) -> list[Any]:
    """What a window shows of what was said."""
    return [one["content"] for one in session.context(budget=AMPLE, **options).messages if one["role"] != "system"]


def everything(session: Session, **options: Any) -> list[Any]:
    """All that is told of a moment."""
    window = session.context(budget=AMPLE, **options)
    found: list[Any] = [window.messages, window.tokens, window.open_calls, session.state(**options).model_dump()]
    return [*found, [one.model_dump() for one in session.messages(**(options or {"in_view": True}))]]
