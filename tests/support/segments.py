"""Sessions with segments, and the segments of one."""

from __future__ import annotations

from typing import Any

from turnlog.client.model import Session, Turnlog
from turnlog.core import positions as borders
from turnlog.core.identity import Owner
from turnlog.log.keys import SessionKeys

OWNER = Owner.of("acme", "ada")
KEYS = SessionKeys(OWNER, "s")
FEW = 8
"""Positions of a segment where a test needs many orders, not many messages."""


def noise(size: int, seed: int = 7) -> str:
    """Text that packs to about half of its size."""
    return "".join(f"{(at * 2654435761 + seed) % 2**32:08x}" for at in range(size // 8))


def said(at: int) -> dict[str, Any]:
    return {"role": ("user", "assistant")[at % 2], "content": f"{at}: what was said, 说了什么, about order A-{at * 37}"}


def filled(log: Turnlog, messages: int, session_id: str = "s", *, batch: int = 25, **settings: Any) -> Session:
    session = log.sessions.create(session_id, **settings)
    for at in range(0, messages, batch):
        session.append(*(said(n) for n in range(at, min(at + batch, messages))))
    return session


def rich(log: Turnlog) -> Session:
    """Every kind of commit, with and without keys, payloads beside the commits and in the blob store."""
    session = log.sessions.create("s", system="Be careful. " * 400, state={"a": [1, 2.0, None]})
    call = {"id": "c", "type": "function", "function": {"name": "cat", "arguments": '{"path": "a"}'}}
    for at in range(12):
        session.append(*(said(n) for n in range(at * 20, at * 20 + 20)), idempotency_key=f"k{at}" if at % 3 else None)
        if at % 4 == 0:
            session.append({"role": "user", "content": "Show it."}, run={"iteration": at}, run_id=f"r{at}")
            session.append(
                {"role": "assistant", "content": None, "tool_calls": [call]},
                usage={"input_tokens": 9, "output_tokens": 2},
            )
            size = (3_000, 9_000, 90_000)[at % 3]
            session.append(
                {"role": "tool", "tool_call_id": "c", "content": noise(size, at)}, idempotency_key=f"result{at}"
            )
        if at == 5:
            assert session.compress().status == "published"
    session.patch_agent({"iteration": 99, "scratchpad": noise(6_000), "pending_action": {"tool": "x"}})
    session.decide_pending("approve", idempotency_key="decided")
    session.put_state({"replaced": [None]}, action="handover")
    session.patch_state([{"op": "add", "path": "/noise", "value": noise(9_000)}])
    session.record("noted", agent_id="main", metadata={"why": None}, idempotency_key="noted")
    session.update(title="Renamed", policy="full", idempotency_key="renamed")
    session.update(system=noise(9_000), tools=None)
    session.append({"role": "user", "content": "a lone surrogate \ud83d and \n a line"}, meta=[{"pin": True}])
    while session.info().head < 2 * borders.SEGMENT_POSITIONS + 3:
        session.append(*(said(n) for n in range(25)))
    return session
