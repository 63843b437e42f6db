"""V1: requests and capacity of a compress job, metered by the guard on moto: flat in session length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Harness, moto_harness, sqlite_harness
from tests.support.jobs import deliver, waiting
from turnlog.client.model import Session

OWNER = ("tenant-00001", "user-0000001")
NEW_LOOPS, KEPT_LOOPS = 10, 2
SAID = "What about this order, and when will it be here? " * 6


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with moto_harness(monkeypatch) as made:
        yield made


def loops(first: int, count: int) -> list[dict[str, Any]]:
    return [
        message
        for number in range(first, first + count)
        for message in (
            {"role": "user", "content": f"{number}: {SAID}"},
            {"role": "assistant", "content": f"{number}: It is on its way. " + SAID},
        )
    ]


def summarised(harness: Harness, messages: int) -> Session:
    """So many messages under a summary, then `NEW_LOOPS` loops that it does not cover, a commit each."""
    session = harness.log(*OWNER).sessions.create(f"session-{messages:04d}")
    made = loops(1, messages // 2)
    for at in range(0, len(made), 20):
        session.append(*made[at : at + 20])
        if (at + 20) % 100 == 0:
            # As it grows, which is what a session's own jobs do.
            assert session.compress(keep_loops=0).status == "published"
    for number in range(NEW_LOOPS):
        session.append(*loops(messages // 2 + 1 + number, 1))
    return session


def body_of(harness: Harness, job_id: str) -> str:
    """The job's message, and no other's."""
    result = list[str]()
    while bodies := waiting(harness):
        result += bodies
    (body,) = (item for item in result if json.loads(item)["job_id"] == job_id)
    return body


@dataclass(frozen=True)
class Spent:
    requests: dict[str, int]
    read_units: float
    write_units: float


def spent_by_a_job(harness: Harness, messages: int) -> tuple[Spent, Spent]:
    """By the request that sends it, and by the worker."""
    session = summarised(harness, messages)
    before = session.summary()
    with harness.meter.measure() as asking:
        job = session.compress(mode="async", keep_loops=KEPT_LOOPS)
    body = body_of(harness, job.job_id)
    with harness.meter.measure() as working:
        assert deliver(harness, body) == set()
    summary = session.summary()
    assert summary is not None and before is not None
    assert (summary.base, summary.last_loop) == (before.position, messages // 2 + NEW_LOOPS - 1 - KEPT_LOOPS)
    sent, done = (Spent(dict(value.requests), value.read_units, value.write_units) for value in (asking, working))
    return sent, done


def test_a_job_costs_at_1000_messages_what_it_costs_at_100(moto: Harness) -> None:
    sent, done = spent_by_a_job(moto, 100)
    sent_of_many, done_of_many = spent_by_a_job(moto, 1_000)
    assert sent == sent_of_many == Spent({"Query": 1, "PutItem": 1, "SendMessage": 1}, read_units=1, write_units=1)
    assert (done.requests, done.read_units) == (done_of_many.requests, done_of_many.read_units)
    assert sum(done.requests.values()) <= 12
    assert done.read_units <= 12
    # A summary is never larger than what it covers, so that of few messages is shorter.
    assert done.write_units <= done_of_many.write_units <= 5


def test_a_job_with_nothing_to_do_costs_no_more_in_a_long_session_and_a_repeated_one_is_one_request(
    moto: Harness,
) -> None:
    result = list[dict[str, int]]()
    for messages in (100, 1_000):
        session = summarised(moto, messages)
        job = session.compress(mode="async", keep_loops=NEW_LOOPS)
        body = body_of(moto, job.job_id)
        with moto.meter.measure() as spent:
            deliver(moto, body)
        result.append(dict(spent.requests))
        with moto.meter.measure() as again:
            deliver(moto, body)
        assert dict(again.requests) == {"GetItem": 1}
    assert result[0] == result[1]
    assert sum(result[0].values()) <= 8


@pytest.mark.parametrize("messages", [1_000, pytest.param(10_000, marks=pytest.mark.full)])
def test_a_job_makes_the_calls_it_makes_at_100_on_sqlite_too(tmp_path: Path, messages: int) -> None:
    calls = list[int]()
    for length in (100, messages):
        with sqlite_harness(tmp_path / str(length)) as harness:
            job = summarised(harness, length).compress(mode="async", keep_loops=KEPT_LOOPS)
            body = body_of(harness, job.job_id)
            before = harness.faults.calls
            assert deliver(harness, body) == set()
            calls.append(harness.faults.calls - before)
    assert calls[0] == calls[1]


def test_the_rounds_of_a_session_cost_the_same_again_and_again(moto: Harness) -> None:
    """Every eighth writes the summary anew, of stored texts: dearer, and no dearer the second time."""
    session, spent = moto.log(*OWNER).sessions.create("session-0001"), list[Spent]()
    for number in range(17):
        session.append(*loops(1 + number * 10, 10))
        job = session.compress(mode="async", keep_loops=0)
        body = body_of(moto, job.job_id)
        with moto.meter.measure() as item:
            assert deliver(moto, body) == set()
        assert session.summary() is not None
        spent.append(Spent(dict(item.requests), item.read_units, item.write_units))
    rebuilt = [spent.pop(at) for at in (15, 7)]
    for item in spent[1:]:
        assert (item.requests, item.read_units) == (spent[1].requests, spent[1].read_units), (
            "the first continues nothing"
        )
        assert item.write_units <= 5, "a summary is never larger than what it covers, so the early ones are shorter"
    for item in rebuilt:
        assert sum(item.requests.values()) == sum(spent[1].requests.values()) + 1, "all stored texts in one request"
        assert item.read_units <= 16
        assert item.write_units <= 5
