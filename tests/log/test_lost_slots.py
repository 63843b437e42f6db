"""D2: a writer that loses slots of the log tries again, says when to come back after five seconds, and knows its own commit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.memory import memory
from turnlog import Session
from turnlog.core.errors import ConflictError
from turnlog.ports import Item, Lost


class Clock:
    """Notes the pauses of an application's clock."""

    def __init__(self, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.pauses, self._sleep = clock, list[float](), clock.sleep
        monkeypatch.setattr(clock, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._sleep(seconds)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> tuple[Session, Any, Any, Clock]:
    log, items, blobs = memory()
    session = log.sessions.create("s", recall="never")
    backend: Any = log.backend
    return session, items, blobs, Clock(backend.app.clock, monkeypatch)


def lose(monkeypatch: pytest.MonkeyPatch, items: Any, times: int, *, stores: bool = False) -> list[Item]:
    """Let so many puts into slots lose to another writer, or with ``stores`` store the commit and lose the answer."""
    put, lost = items.put, list[Item]()

    def losing(item: Item, *, condition: Any = None) -> Lost | None:
        if str(item["sk"]).startswith("C#") and len(lost) < times:
            lost.append(item)
            if not stores:
                return Lost({**item, "n": b"another-"})
            assert put(item, condition=condition) is None
        outcome: Lost | None = put(item, condition=condition)
        return outcome

    monkeypatch.setattr(items, "put", losing)
    return lost


def test_d2_a_writer_that_loses_every_slot_says_so_after_five_seconds(
    opened: tuple[Session, Any, Any, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, items, _, clock = opened
    lose(monkeypatch, items, 1_000)
    began_ms = clock.clock.now_ms()
    with pytest.raises(ConflictError) as raised:
        session.append({"role": "user", "content": "hi"})
    assert raised.value.retry_after_seconds == 1
    assert 5_000 <= clock.clock.now_ms() - began_ms < 5_500
    assert clock.pauses[:8] == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2])
    assert set(clock.pauses[6:]) == {0.2}, "half of the longest pause, by the jitter"


@pytest.mark.parametrize("times", [1, 7])
def test_d2_a_writer_that_lost_some_slots_writes_one_commit_and_stores_its_payload_once(
    opened: tuple[Session, Any, Any, Clock], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    session, items, blobs, clock = opened
    lost = lose(monkeypatch, items, times)
    body = {"role": "user", "content": random.Random(1).randbytes(40_000).hex()}
    session.append(body)
    assert len(lost) == len(clock.pauses) == times
    assert [message.body for message in session.messages()] == [body]
    names: Sequence[str] = blobs.names("")
    assert len([name for name in names if "/payload/" in name]) == 1


def test_d2_a_commit_whose_answer_was_lost_is_known_by_its_nonce(
    opened: tuple[Session, Any, Any, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, items, _, clock = opened
    lose(monkeypatch, items, 1, stores=True)
    session.append({"role": "user", "content": "hi"})
    assert clock.pauses == []
    assert [message.body["content"] for message in session.messages()] == ["hi"]
