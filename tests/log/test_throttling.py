"""V5: an engine that throttles 30 % of all calls, or loses every fifth answer: each step ends as it should, once, or in a typed
error that says to try again; nothing is there twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.conftest import Harness
from tests.support.steps import STEPS, begin, check
from turnlog.core.errors import ConflictError, ThrottledError, UnavailableError

TRIES = 200


@pytest.mark.parametrize(("share", "when"), [(0.3, "before"), pytest.param(0.2, "after", marks=pytest.mark.full)])
@pytest.mark.parametrize("step", STEPS)
def test_v5_every_step_is_done_once_or_said_to_be_tried_again(
    harness: Harness, step: str, share: float, when: str, tells: Callable[..., None]
) -> None:
    log = harness.log()
    begin(log, step)
    # A seed that meets the first call: no step is without a fault.
    begins = random.Random(f"{step} {when}").randrange(10**6)
    seed = next(seed for seed in count(begins) if random.Random(seed).random() < share)
    harness.faults.fail_often(share, when, seed=seed)
    answer = _tried(harness, lambda: STEPS[step](log), when)
    assert harness.faults.often_met
    if when == "before":
        tells("throttled", step, harness.faults.often_met)
    harness.faults.clear()
    assert STEPS[step](log) == answer
    check(log, step)


def test_v5_a_conversation_goes_on_and_is_erased_under_throttling(harness: Harness) -> None:
    log, said = harness.log(), [{"role": ("user", "assistant")[at % 2], "content": f"{at}"} for at in range(30)]
    harness.faults.fail_often(0.3, "before", seed=7)
    session = _tried(harness, lambda: log.sessions.create("s", idempotency_key="create"), "before")
    for at, body in enumerate(said):
        _tried(harness, lambda: session.append(body, idempotency_key=f"k{at}"), "before")  # noqa: B023 - called at once
        window = _tried(harness, lambda: session.context(budget=4_000), "before")
        assert window.messages[-1]["content"] == body["content"]
    result = _tried(harness, lambda: [message.body for message in session.messages()], "before")
    assert result == said
    assert harness.faults.often_met > 30
    _tried(harness, lambda: session.erase(idempotency_key="erase"), "before")
    harness.faults.clear()
    assert not log.sessions.exists("s")


def _tried(harness: Harness, call: Any, when: str) -> Any:
    """The answer, in as many tries as it takes. Whatever else is raised is a defect."""
    expected = ThrottledError if when == "before" else UnavailableError
    for _ in range(TRIES):
        try:
            return call()
        except expected as error:
            assert error.error_code in ("throttled", "unavailable", "timeout"), error
        except ConflictError as error:
            assert error.retry_after_seconds is not None, error
    raise AssertionError(f"not done in {TRIES} tries")
