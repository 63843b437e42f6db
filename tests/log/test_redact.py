"""E5: a redacted body is nowhere; the log proves itself as before, and every window stays valid."""

from __future__ import annotations

import pytest

from tests.conftest import Harness
from tests.log.everything import held
from tests.log.test_compress import turn
from tests.log.test_erase import worked
from turnlog.client.model import Session
from turnlog.domain.errors import NotFoundError

CANARY = "canary-8d20"
FORMATS = ("openai_chat", "openai_responses", "anthropic", "bedrock_converse")


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


@pytest.mark.parametrize("size", [0, 6_000, 60_000])
def test_e5_a_redacted_body_is_nowhere(harness: Harness, size: int) -> None:
    session, position = said(harness, noise(size), many=size == 6_000)
    fork = session.fork(session_id="forked")
    fork.append({"role": "user", "content": "on"})
    fork.create_snapshot("full", kind="full")
    session._backend.call("export_session", path=session._path, body={})
    assert held(CANARY, harness)
    job = session.redact(position)
    assert (job.kind, job.status) == ("redact", "queued")
    for one in (session, fork):
        assert CANARY not in repr(list(one.messages()))
        (message,) = [message for message in one.messages() if message.position == position]
        assert (message.redacted, message.body) == (True, {"role": "user", "content": "[redacted]"})
    assert worked(harness, job).result["status"] == "redacted"
    assert held(CANARY, harness) == []
    for one in (session, fork):
        assert CANARY not in repr(list(one.history()))
        assert not one.search(CANARY).results
        for format in FORMATS:
            one.context(format=format)
        assert one.snapshot("full").position
    with pytest.raises(NotFoundError):
        session.redact(1)
    with pytest.raises(NotFoundError):
        session.redact(10**6)
