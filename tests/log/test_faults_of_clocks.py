"""Clocks jump: a host's time goes back a day, or thirty years ahead, between two calls. Positions and times of a log increase, a
repeated call has one effect, and what has expired has expired by the clock of who asks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.conftest import Harness
from tests.effort import is_full
from tests.support.steps import STEPS, begin, check
from turnlog.core.errors import NotFoundError
from turnlog.core.identity import Owner
from turnlog.log.keys import SessionKeys

DAY = 24 * 3600
JUMPS = {"back": -DAY, "ahead": 30 * 365 * DAY}


@pytest.mark.parametrize("step", STEPS)
def test_a_call_that_is_made_again_after_a_jump_has_one_effect(
    harness: Harness, step: str, tells: Callable[..., None]
) -> None:
    if harness.name == "moto" and not is_full():
        pytest.skip("the engine knows no time: on the other one in `make full`")
    for jump, seconds in JUMPS.items():
        log = harness.log(user=jump)
        begin(log, step)
        harness.clock.advance(seconds)
        answer = STEPS[step](log)
        harness.clock.advance(-2 * seconds)
        assert STEPS[step](log) == answer
        check(log, step)
        harness.clock.advance(seconds)
    tells("clock", step, 2 * len(JUMPS))


def test_times_increase_when_the_clock_goes_back(harness: Harness, tells: Callable[..., None]) -> None:
    session = harness.log().sessions.create("s")
    for at, seconds in enumerate([0, -DAY, 1, 30 * 365 * DAY, -31 * 365 * DAY, -1]):
        harness.clock.advance(seconds)
        session.append({"role": "user", "content": f"{at}"}, idempotency_key=f"k{at}")
        session.patch_state({"at": at})
        assert session.state().state == {"at": at} == session.replay().state
    log = harness.app.log.commits
    times = [
        number.header.time_ms for number in log.range(SessionKeys(Owner.of("acme", "ada"), "s"), 1, session.info().head)
    ]
    assert all(before < after for before, after in pairwise(times)) and len(times) == 13
    assert [message.body["content"] for message in session.messages()] == list("012345")
    assert session.info().head == 13
    tells("clock", "append", 6)


def test_expiry_goes_by_the_clock_and_comes_back_with_it(harness: Harness, tells: Callable[..., None]) -> None:
    """A clock that was ahead for a moment has erased nothing: that is the worker's, who looks again."""
    log = harness.log()
    session = log.sessions.create("s", ttl_days=2)
    session.append({"role": "user", "content": "hi"}, idempotency_key="k")
    harness.clock.advance(3 * DAY)
    for call in (lambda: session.info(), lambda: session.append({"role": "user", "content": "no"})):
        with pytest.raises(NotFoundError):
            call()
    harness.clock.advance(-3 * DAY)
    assert [message.body["content"] for message in session.messages()] == ["hi"]
    harness.clock.advance(-DAY)
    session.append({"role": "user", "content": "later"}, idempotency_key="l")
    harness.clock.advance(2 * DAY)
    assert len(list(session.messages())) == 2, "the last commit's time is not before the one before it"
    harness.clock.advance(2 * DAY)
    assert not log.sessions.exists("s")
    tells("clock", "expiry", 4)
