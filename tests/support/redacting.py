"""Messages to redact, and where their text may be."""

from __future__ import annotations

from tests.conftest import Harness
from tests.log.everything import held
from tests.support.erasing import OWNER
from tests.support.talks import turn
from turnlog.client.model import Session
from turnlog.log.keys import SessionKeys
from turnlog.snapshots.full import parts_of
from turnlog.snapshots.segment_format import read_segment

CANARY = "canary-8d20"


def noise(size: int) -> str:
    return CANARY + "".join(f"{at * 7919 % 1_000_003:06x}" for at in range(size // 6))


def said(harness: Harness, content: str, *, many: bool = False) -> tuple[Session, int]:
    """A session with one message that has the canary, in everything that is made of messages."""
    session = harness.log().sessions.create("s")
    session.append(*turn(1))
    meta = [{"metadata": {"m": CANARY}, "author": CANARY, "id": CANARY}]
    position = session.append({"role": "user", "content": content}, meta=meta).first
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"path": "/etc/hosts"}'}}
    session.append(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "done"},
    )
    session.append(*turn(2))
    session.append(*turn(3))
    session.create_snapshot("inline", kind="full")
    session.compress(keep_loops=1)
    if many:
        for at in range(12):
            session.append(*({"role": "user", "content": f"more {at} {n}"} for n in range(25)))
        harness.log().run_jobs()
    session.create_snapshot("full", kind="full")
    return session, position


def bodies_are_gone(harness: Harness) -> None:
    """Also where `held` does not look: in snapshots that are whole in their record."""
    assert held(CANARY, harness) == []
    for session_id in ("s", "forked"):
        for record in harness.app.log.records.every(SessionKeys(OWNER, session_id).snapshots):
            for part in parts_of(record) if record.content["kind"] == "full" else ():
                if part.inline is not None:
                    lines = [line for item in read_segment(part.inline, name="x") for line in item.lines]
                    assert CANARY.encode() not in b"\n".join(lines)
                    continue
                assert harness.app.engine.blobs.get(f"acme/ada/{session_id}/{part.blob}") is not None
