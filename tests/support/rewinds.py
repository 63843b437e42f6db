"""What a session shows at a moment."""

from __future__ import annotations

from typing import Any

from tests.support.talks import AMPLE
from turnlog.client.model import Session


def said(n: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"Question {n}"}, {"role": "assistant", "content": f"Answer {n}"}]


def contents(session: Session, **options: Any) -> list[Any]:
    return [message.body["content"] for message in session.messages(**options)]


def seen(session: Session, **options: Any) -> list[Any]:
    """What a window shows of what was said."""
    return [
        message["content"]
        for message in session.context(budget=AMPLE, **options).messages
        if message["role"] != "system"
    ]


def everything(session: Session, **options: Any) -> list[Any]:
    """All that is told of a moment."""
    window = session.context(budget=AMPLE, **options)
    result: list[Any] = [window.messages, window.tokens, window.open_calls, session.state(**options).model_dump()]
    return [*result, [message.model_dump() for message in session.messages(**(options or {"in_view": True}))]]
