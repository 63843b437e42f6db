"""The life of a summary on every engine, through the queue: applied once, never too far, and nothing stops while its summariser
does (S1, S2, S4); and `classic`, as its numbers say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Harness, moto_harness, sqlite_harness
from tests.support.jobs import deliver, poller, waiting
from tests.support.scripted import Outcome, ScriptedSummariser, summarise_with
from tests.support.summary_events import summaries
from tests.support.talks import filled, turn
from tests.support.triggers import POLICY, asks, script
from tests.support.window_levels import past_in
from turnlog.app import make_application
from turnlog.client.model import Session
from turnlog.core.errors import SummariserConfigError, UnavailableError
from turnlog.core.summaries import LEASE_MS
from turnlog.linter.rules import lint
from turnlog.settings import Settings
from turnlog.summaries.trigger import MAX_FAILURES
from turnlog.testing.contracts.job_queue import dead_letters
from turnlog.testing.fixed import FixedClock, SequentialIds
from turnlog.windows.policy import classic


@contextlib.contextmanager
def memory_harness() -> Iterator[Harness]:
    clock = FixedClock()
    app = make_application(Settings(engine="memory://"), clock=clock, ids=SequentialIds())
    yield Harness("memory", app, clock, None)
    app.close()


@pytest.fixture(params=["memory", "sqlite", "moto"])
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    made = {
        "memory": memory_harness,
        "sqlite": lambda: sqlite_harness(tmp_path),
        "moto": lambda: moto_harness(monkeypatch),
    }[request.param]
    with made() as session:
        yield session


def assert_one_after_the_other(harness: Any) -> None:
    """Each continues the one before, goes further, and is of whole closed loops."""
    before, result = 0, summaries(harness)
    for event in result:
        assert event.base == before
        before = event.position
    assert [event.last_loop for event in result] == sorted({event.last_loop for event in result})


# ---------------------------------------------------------------- S1


def test_s1_of_two_workers_at_once_one_publishes(harness: Any) -> None:
    session = filled(harness.log(), 8)
    jobs = [session.compress(mode="async", keep_loops=1) for _ in range(2)]
    bodies = waiting(harness)
    bodies += waiting(harness) if len(bodies) < 2 else []
    with ThreadPoolExecutor(4) as pool:
        failed = list(pool.map(lambda body: deliver(harness, body), [*bodies, *bodies]))
    assert failed == [set()] * 4
    (made,) = summaries(harness)
    assert (made.base, made.last_loop) == (0, 6)
    assert {harness.log().job(job.job_id).status for job in jobs} == {"done"}


def test_s1_jobs_out_of_order_and_late_change_nothing(harness: Any) -> None:
    session = filled(harness.log(), 6)
    session.compress(mode="async", keep_loops=2)
    (early,) = waiting(harness)
    for number in range(7, 10):
        session.append(*turn(number))
    session.compress(mode="async", keep_loops=1)
    (late,) = waiting(harness)
    assert deliver(harness, late) == set()
    head = session.info().head
    assert deliver(harness, early, late, early) == set()
    assert session.info().head == head
    assert [event.last_loop for event in summaries(harness)] == [7]
    assert [job.result["reason"] for job in harness.log().jobs()] == [None, "nothing_to_cover"]


# ---------------------------------------------------------------- S2


def test_s2_at_every_moment_it_ends_before_the_open_loop_and_the_newest(harness: Any) -> None:
    session = harness.log().sessions.create("s", policy=POLICY)
    for number in range(1, 13):
        for message in turn(number, words=8):
            session.append(message)
            poller(harness).run_once()
            summary = session.summary()
            if summary is not None:
                open_loop = next(iter(session.loops()))
                assert summary.last < open_loop.first
                assert summary.last_loop <= open_loop.loop - 1 - 2
    assert len(summaries(harness)) >= 3
    assert_one_after_the_other(harness)


# ---------------------------------------------------------------- S4


def test_s4_down_for_hours_and_drained_without_duplicates(harness: Any) -> None:
    summariser = ScriptedSummariser(then=UnavailableError("down"))
    summarise_with(harness.app, summariser)
    session = harness.log().sessions.create("s", policy=POLICY)
    asked, hours = len(asks(session, 5)), 2
    for number in range(6, 6 + 6 * hours):
        poller(harness).run_once()
        harness.clock.advance(seconds=600)
        asked += len(asks(session, 1, first=number))
        assert not lint(session.context().messages, format="openai_chat"), "windows go on"
    poller(harness).run_once()
    assert session.info().loops == 5 + 6 * hours, "appends go on"
    assert session.summary() is None
    assert len(summariser.requests) == asked <= 1 + 6 * hours, (
        "one try for each request, and one request in ten minutes"
    )
    assert not dead_letters(harness.app.engine.queue_of("compress"))
    assert {job.result["status"] for job in harness.log().jobs()} == {"postponed"}
    summarise_with(harness.app, ScriptedSummariser(then="All of it was about orders."))
    harness.clock.advance(seconds=LEASE_MS // 1000 + 1)
    assert asks(session, 1, first=6 + 6 * hours)
    while poller(harness).run_once():
        pass
    (made,) = summaries(harness)
    assert (made.first_loop, made.last_loop) == (1, 6 + 6 * hours - 3)
    assert not list(harness.log().jobs(status="queued"))


# ---------------------------------------------------------------- classic


def short(number: int, words: int = 8) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"Question {number} " + "please " * words},
        {"role": "assistant", "content": f"Answer {number} " + "indeed " * words},
    ]


@pytest.mark.parametrize("harness", ["memory", "sqlite"], indirect=True)
@pytest.mark.parametrize(("words", "first"), [(60, 17), (150, 11)])
def test_classic_compresses_beyond_its_limits_and_keeps_what_is_newest(harness: Any, words: int, first: int) -> None:
    """More than 30 messages, or more than 3,000 tokens; then 20 messages and at most 4,000 tokens, behind the summary."""
    session = harness.log().sessions.create("s", policy="classic", recall="never")
    crossed = list[int]()
    for number in range(1, 24):
        said = [session.append(message).compression for message in short(number, words)]
        if "queued" not in said:
            continue
        crossed.append(number)
        assert poller(harness).run_once() >= 1
        summary, window = session.summary(), session.context()
        shown = past_in(window, number)
        assert window.manifest.parts[0].kind == "summary"
        assert {part.loop for part in shown} == set(range(summary.last_loop + 1, number)), "the rest, whole"
        assert len(shown) <= 20
        assert sum(part.tokens for part in shown) <= 4_000
        rest = sum(part.tokens for part in shown)
        assert len(shown) + 2 > 20 or rest + rest // max(1, len(shown) // 2) > 3_000, "no more than must be is covered"
        assert not window.summary_stale
    assert crossed[0] == first, "the 17th opens when 32 messages are past, the 11th when 3,200 tokens are"
    assert len(crossed) >= 2
    assert_one_after_the_other(harness)


def test_classic_without_a_summary_is_what_is_recent_and_asks_nobody(harness: Any) -> None:
    summariser = script(harness)
    policy = classic(summary=False).model_dump(mode="json")
    session: Session = harness.log().sessions.create("s", policy=policy, recall="never")
    said = [session.append(message).compression for number in range(1, 22) for message in short(number)]
    assert set(said) == {"off"}
    assert list(harness.log().jobs(status="queued")) == []
    assert summariser.requests == []
    window = session.context()
    assert len(past_in(window, 21)) == 20
    assert "summary" not in {part.kind for part in window.manifest.parts}
    assert not window.summary_stale


@pytest.mark.parametrize("harness", ["memory", "sqlite"], indirect=True)
@pytest.mark.parametrize("error", [UnavailableError("down"), SummariserConfigError("no such model")])
def test_classic_with_a_summariser_that_always_fails_is_what_is_recent(harness: Any, error: Outcome) -> None:
    """Through the worker: every window is valid, says what is left out, and the tries are bounded."""
    summariser = ScriptedSummariser(then=error)
    summarise_with(harness.app, summariser)
    session = harness.log().sessions.create("s", policy="classic", recall="never")
    for number in range(1, 25):
        session.append(short(number)[0])
        poller(harness).run_once()
        window = session.context()
        shown = past_in(window, number)
        assert len(shown) == (2 * (number - 1) if number <= 16 else 20)
        assert window.summary_stale == (number > 16)
        assert ("earlier messages" in str(window.messages[0]["content"])) == (number > 16)
        assert not lint(window.messages, format="openai_chat")
        session.append(short(number)[1])
    assert session.summary() is None
    most = MAX_FAILURES if isinstance(error, SummariserConfigError) else (24 - 16) // 2
    assert 1 <= len(summariser.requests) <= most
    assert not dead_letters(harness.app.engine.queue_of("compress"))
