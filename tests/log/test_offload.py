"""A session that ends, is reset or falls silent is handed to long-term memory: once, whole, and without anybody waiting for it."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.conftest import Harness

TEA = {"role": "user", "content": "I prefer green tea over coffee."}
CITY = {"role": "user", "content": "I live in Lisbon."}
ANSWER = {"role": "assistant", "content": "Noted."}


def copy_of(harness: Harness, session_id: str = "s") -> list[dict[str, Any]]:
    """The lines of a session's newest copy."""
    found = harness.app.engine.blobs.get(f"acme/ada/{session_id}/offload/messages.jsonl.gz")
    return [json.loads(line) for line in gzip.decompress(found).splitlines()] if found is not None else []


def test_ended_it_is_copied_whole_and_known(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(TEA, ANSWER)
    session.append(CITY, ANSWER)
    ended = session.end()
    assert list(log.memory()) == [], "nobody waits for it"
    assert log.run_jobs() == 1
    (job,) = log.jobs()
    assert (job.kind, job.status, job.session_id) == ("offload", "done", "s")
    result = job.result or {}
    assert result["status"] == "offloaded"
    assert (result["first"], result["last"], result["messages"]) == (1, ended.head, 4)
    assert [(one.text, one.session_id, one.position) for one in log.memory()] == [
        ("I live in Lisbon", "s", 4),
        ("I prefer green tea over coffee", "s", 2),
    ]
    lines = copy_of(harness)
    assert [(line["position"], line["role"], line["body"], line["in_view"]) for line in lines] == [
        (2, "user", TEA, True),
        (3, "assistant", ANSWER, True),
        (4, "user", CITY, True),
        (5, "assistant", ANSWER, True),
    ]
    assert result["copied"] == 4 and result["size_bytes"] > 0
