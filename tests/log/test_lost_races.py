"""D2: a writer that loses every race says so with an error to retry by, and the same call has its effect when the race is over.

And what another writer has changed between reading an item and writing it stays changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import Harness
from tests.support.erasing import message_of
from tests.support.offloads import embedded_memory
from tests.support.redacting import bodies_are_gone, noise, said
from turnlog.core.errors import ConflictError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.memory import MemoryFact
from turnlog.core.summaries import Spent
from turnlog.jobs.models import Job
from turnlog.ports import JOB_KINDS, Absent, Condition, Item, Key, Lost
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.summaries.budget import Spending
from turnlog.testing.contracts.memory import part_of

LOSSES = 20
"""More than any writer tries that gives up at all."""
Call = Callable[[], Any]


@dataclass
class Races:
    """Conditional writes over items of one kind: so many lose, as if another writer had been there and had put all back."""

    harness: Harness
    kind: str
    left: int = LOSSES

    def __post_init__(self) -> None:
        self._put = self.harness.app.engine.items.put
        self.harness.app.engine.items.put = self.put  # type: ignore[method-assign]

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        key = Key(str(item["pk"]), str(item["sk"]))
        if self.left and condition is not None and not isinstance(condition, Absent) and key.sk.startswith(self.kind):
            existing = self.harness.app.engine.items.get_many([key]).get(key)
            if existing is not None:
                self.left -= 1
                self.harness.clock.advance(1)
                return Lost(existing)
        return self._put(item, condition=condition)


def redact(harness: Harness) -> tuple[Call, Call]:
    session, position = said(harness, noise(6_000), many=True)
    session.fork(session_id="forked").append({"role": "user", "content": "on"})
    return lambda: done(harness, session.redact(position, idempotency_key="redact")), lambda: bodies_are_gone(harness)


def redact_two(harness: Harness) -> tuple[Call, Call, Call]:
    """Redact two messages of one commit, one segment and two full snapshots."""
    session = harness.log().sessions.create("s")
    first = session.append(*({"role": "user", "content": noise(6_000)} for _ in range(2))).first
    session.create_snapshot("inline", kind="full")
    for number in range(12):
        session.append(*({"role": "user", "content": f"more {number} {n}"} for n in range(25)))
    harness.log().run_jobs()
    session.create_snapshot("full", kind="full")

    def redacting(position: int) -> Call:
        return lambda: done(harness, session.redact(position))

    return redacting(first), redacting(first + 1), lambda: bodies_are_gone(harness)


def done(harness: Harness, job: Job) -> None:
    """Do both passes of a job in this process, where no worker takes its errors."""
    for _ in range(3):
        harness.app.run_job(message_of(job), kinds=JOB_KINDS)
        harness.clock.advance(SECOND_PASS_SECONDS)
    assert harness.log().job(job.job_id).status in ("queued", "done")


def forget(harness: Harness) -> tuple[Call, Call]:
    ada, memories = Owner.of("acme", "ada"), embedded_memory(harness.app.engine.items)
    memories.add(
        part_of(ada, "s", [], first=1), [MemoryFact("entity", text, "", 2, 1_000) for text in ("a cat", "a dog")]
    )
    (cat,) = [memory.id for memory in memories.read(ada) if memory.text == "a cat"]

    def is_forgotten() -> None:
        assert [memory.text for memory in memories.read(ada)] == ["a dog"]

    return lambda: memories.forget(ada, [cat]), is_forgotten


def forget_two(harness: Harness) -> tuple[Call, Call, Call]:
    ada, memories = Owner.of("acme", "ada"), embedded_memory(harness.app.engine.items)
    facts = [MemoryFact("entity", text, "", 2, 1_000) for text in ("a cat", "a dog", "a fish")]
    memories.add(part_of(ada, "s", [], first=1), facts)
    ids = {memory.text: memory.id for memory in memories.read(ada)}

    def are_forgotten() -> None:
        assert [memory.text for memory in memories.read(ada)] == ["a fish"]

    return lambda: memories.forget(ada, [ids["a cat"]]), lambda: memories.forget(ada, [ids["a dog"]]), are_forgotten


def spend(harness: Harness) -> tuple[Call, Call]:
    spending = Spending(harness.app.engine.items, harness.clock, harness.app.ids, harness.app.signals)
    assert spending.reserve("acme", 10, limit=100) is not None

    def is_spent() -> None:
        assert spending.of_day("acme", harness.clock.now_ms()) == Spent(reserved=30)

    return lambda: spending.reserve("acme", 20, limit=100), is_spent


@pytest.mark.parametrize(
    ("begin", "kind"),
    [(redact, kind) for kind in ("C#", "E#SUM", "G#", "P#", "J#")] + [(forget, "M#"), (spend, "B#")],
)
def test_d2_who_loses_every_race_says_so_and_the_same_call_is_done_when_it_is_over(
    harness: Harness, begin: Callable[[Harness], tuple[Call, Call]], kind: str
) -> None:
    call, check = begin(harness)
    races = Races(harness, kind)
    try:
        call()
    except (ConflictError, UnavailableError):
        assert races.left < LOSSES, "it was the race"
        races.left = 0
        call()
    assert races.left < LOSSES, "there was a race"
    check()


def spend_two(harness: Harness) -> tuple[Call, Call, Call]:
    call, _ = spend(harness)
    spending = Spending(harness.app.engine.items, harness.clock, harness.app.ids, harness.app.signals)

    def are_spent() -> None:
        assert spending.of_day("acme", harness.clock.now_ms()) == Spent(reserved=10 + 2 * 20)

    return call, lambda: spending.reserve("acme", 20, limit=100), are_spent


@pytest.mark.parametrize(
    ("begin", "kind"), [(redact_two, kind) for kind in ("C#", "G#", "P#")] + [(forget_two, "M#"), (spend_two, "B#")]
)
def test_d2_what_another_writer_changed_in_between_stays_changed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Harness], tuple[Call, Call, Call]], kind: str
) -> None:
    call, other, check = begin(harness)
    items, begun = harness.app.engine.items, list[str]()
    put_now = items.put

    def put(item: Item, *, condition: Condition | None = None) -> Lost | None:
        key = Key(str(item["pk"]), str(item["sk"]))
        if key.sk.startswith(kind) and not begun and items.get_many([key]):
            begun.append(kind)
            other()
        return put_now(item, condition=condition)

    monkeypatch.setattr(items, "put", put)
    call()
    assert begun, "there was a race"
    check()
