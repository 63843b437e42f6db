"""Snapshots to restore."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tests.effort import is_full
from tests.support.segments import noise, rich, said
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import ConflictError, NotFoundError
from turnlog.log.keys import SessionKeys
from turnlog.ports import Query


def fold(session: Session, at: int) -> dict[str, Any]:
    """All that can be read of a session at a position."""
    windows = [session.context(at=at, budget=120_000)]
    return {
        "messages": [message for message in session.messages() if message.position <= at],
        "state": session.state(at=at),
        "history": [item for item in session.history() if item.last <= at],
        "windows": [(window.messages, window.system, window.tools, window.manifest) for window in windows],
        "loops": [loop for loop in session.loops() if loop.last <= at],
    }


def info(session: Session) -> dict[str, Any]:
    return session.info().model_dump(exclude={"session_id", "head", "updated_at"})


def items_of(harness: Any, keys: SessionKeys, last: int) -> list[dict[str, Any]]:
    result, after = [], None
    while True:
        page = harness.app.engine.items.query(Query(keys.partition, "C#", f"C#{last:012d}", after=after))
        result += [{name: value for name, value in item.items() if name != "pk"} for item in page.items]
        after = page.next
        if after is None:
            return result


def varied(harness: Any) -> Session:
    """Every kind of commit; on the slow engine those that are stored in several places."""
    if harness.name == "sqlite":
        session = rich(harness.log())
        session.compress()
        return session
    session = harness.log().sessions.create("s", system=noise(5_000), state={"a": 1})
    session.append(*(said(at) for at in range(20)), run={"iteration": 1}, idempotency_key="k")
    session.append(*({"role": "user", "content": noise(size)} for size in (3_000, 9_000, 90_000)))
    session.update(title="Renamed")
    session.append(*(said(at) for at in range(25)))
    session.append(*(said(at) for at in range(25)))
    return session


def step_of(harness: Any) -> int:
    """Which boundaries are tried: all of them in `make full`; of the slow engine, which takes the same calls, fewer."""
    step = 1 if harness.name == "sqlite" else 3
    return step if is_full() else 3 * step


def unseen(log: Turnlog, session_id: str, messages: list[Any]) -> bool:
    """Whether nothing tells of a session; pages of its messages may, when they are whole."""
    session = log.sessions.of(session_id)
    reads: list[Callable[[], Any]] = [
        session.info,
        lambda: session.append(said(0)),
        lambda: list(session.loops()),
        session.compress,
        session.context,
        session.state,
    ]
    for read in reads:
        try:
            read()
        except (NotFoundError, ConflictError):
            continue
        return False
    with contextlib.suppress(NotFoundError):
        assert list(session.messages()) == messages
    return session_id not in [item.session_id for item in log.sessions.list()]
