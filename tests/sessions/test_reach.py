"""How far a summary reaches: to the border up to which the policy's windows have shortened what was said, and no loop further."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.support.jobs import poller
from tests.support.talks import filled, turn
from turnlog.client.model import Session
from turnlog.linter.rules import lint
from turnlog.sessions.context_models import WindowAnswer
from turnlog.summaries.trigger import KEEP_LOOPS, Reach
from turnlog.windows.policy import policy_of
from turnlog.windows.triggers import Counted
from turnlog.windows.view import Room

ON_A_GRID = {"output_reserve": 120_000, "recall": "never"}
"""A budget of 8,000 tokens: digests begin beyond 6,400, in steps of 2,400."""


def levels(window: WindowAnswer) -> dict[int, str]:
    return {
        part.loop: part.level
        for part in window.manifest.parts
        if part.loop is not None and part.reason != "summary" and part.kind in ("loop", "message")
    }


def whole_loops(window: WindowAnswer) -> list[int]:
    result = levels(window)
    return sorted(takewhile(lambda loop: result[loop] == "whole", sorted(result, reverse=True)))


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_W6_a_summary_takes_the_place_of_digests_and_breaks_the_prefix_once(harness: Any) -> None:
    """At every model call of a long session of `default`: what is whole stays whole when a summary lands, and is the same."""
    session = harness.log().sessions.create("s", **ON_A_GRID)
    windows, reasons, landed = list[WindowAnswer](), list[Any](), 0
    for number in range(1, 42):
        user, *answer = turn(number)
        session.append(user)
        windows.append(session.context())
        reasons.append(windows[-1].prefix.reason)
        assert not lint(windows[-1].messages, format="openai_chat")
        session.append(*answer)
        if not poller(harness).run_once():
            continue
        landed += 1
        after, summary = session.context(), session.summary()
        before = whole_loops(session.context(at=summary.position - 1))
        shown = [loop for loop in before if loop > summary.last_loop]
        assert summary.last_loop >= before[0] - 1, "it ends at the border or behind it"
        assert whole_loops(after) == shown == sorted(levels(after)), "and no digest is left"
        first = next(
            at for at, message in enumerate(after.messages) if f"Question {shown[0]}:" in str(message["content"])
        )
        assert after.messages[first:-3] == windows[-1].messages[-len(after.messages[first:-3]) :]
    assert landed >= 3
    assert reasons.count("summary") == landed, "one break for each, told as what it is"
    assert set(reasons) <= {None, "first", "crossing", "summary"}
    assert reasons.count("crossing") <= landed + 1


def test_a_job_that_comes_again_leaves_what_the_windows_show_whole(harness: Any) -> None:
    session = filled(harness.log(), 24, **ON_A_GRID)
    session.append({"role": "user", "content": "next"})
    made = session.compress().summary
    assert 0 < made.last_loop < 22
    assert sorted(levels(session.context())) == whole_loops(session.context()), "no digest is left"
    again = session.compress()
    assert (again.status, again.reason) == ("unchanged", "nothing_to_cover")
    assert session.compress(keep_loops=0).summary.last_loop == 24, "a caller may want more"


def test_while_everything_is_shown_whole_all_but_the_newest_are_covered(harness: Any) -> None:
    session = filled(harness.log(), 8)
    assert session.compress().summary.last_loop == 5
    session = filled(harness.log(), 12, "c", policy="classic")
    assert session.compress().summary.last_loop <= 9


def test_loops_that_a_step_keeps_whole_stay_out(harness: Any) -> None:
    policy = {"steps": [{"step": "summary"}, {"step": "loops", "whole": 4}]}
    session = filled(harness.log(), 12, policy=policy)
    assert session.compress().summary.last_loop == 12 - 1 - 4


def test_s2_the_worker_never_covers_the_newest_whatever_the_border_says(harness: Any) -> None:
    """Of two loops each is larger than what is shown whole."""
    session: Session = harness.log().sessions.create("s", **ON_A_GRID)
    for number in range(1, 9):
        for message in turn(number, words=900):
            session.append(message)
        poller(harness).run_once()
        summary = session.summary()
        assert summary is None or summary.last_loop < number - KEEP_LOOPS + 1
    assert summary is not None


# ---------------------------------------------------------------- as numbers

sizes = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3_000)), min_size=1, max_size=30)


def borders(name: str, loops: list[tuple[int, int]], lead: tuple[int, int]) -> tuple[Reach, list[tuple[int, int, int]]]:
    """The reach, and of each loop its number and what is before it."""
    messages, tokens, places = *lead, list[tuple[int, int, int]]()
    for number, (more, more_tokens) in enumerate(loops, start=1):
        places.append((number, messages, tokens))
        messages, tokens = messages + more, tokens + more_tokens
    past = Counted(len(loops), messages, tokens)
    policy, room = policy_of(name), Room(10_000, 500)
    return Reach(policy, room, Counted(0, *lead), past, tokens + 40, 1_000), places


@settings(max_examples=examples(300), derandomize=not is_full(), deadline=None)
@given(st.sampled_from(("default", "classic")), sizes, st.tuples(st.integers(0, 3), st.integers(0, 400)))
def test_what_is_covered_is_the_beginning_and_the_rest_is_what_the_policy_shows(
    name: str, loops: list[tuple[int, int]], lead: tuple[int, int]
) -> None:
    reach, places = borders(name, loops, lead)
    covered = [reach.covers(*place) for place in places]
    assert covered == sorted(covered, reverse=True), "no hole"

    def left(at: int) -> tuple[int, int]:
        return reach.past.messages - places[at][1], reach.past.tokens - places[at][2]

    first = covered.index(False) if False in covered else None
    if name == "classic" and first is not None:
        messages, tokens = left(first)
        assert messages <= 20
        assert tokens <= 3_000, "else it would be compressed again at once"
        assert not first or left(first - 1)[0] > 20 or left(first - 1)[1] > 3_000, "no more than must be"
    if name == "default":
        assert reach.is_endless == (reach.total <= 0.7 * 10_000 - 500 - 1_000)
        if first is not None:
            assert reach.total - places[first][2] <= 0.7 * 10_000 - 500 - 1_000, "below the high mark"


LIMITS: list[tuple[dict[str, Any], int, int, bool]] = [
    ({"messages": 5, "tokens": None}, 5, 9_999, False),
    ({"messages": 5, "tokens": None}, 6, 0, True),
    ({"messages": None, "tokens": 100}, 999, 100, False),
    ({"messages": None, "tokens": 100}, 0, 101, True),
    ({"messages": 5, "tokens": 100}, 5, 100, False),
    ({"messages": 5, "tokens": 100}, 5, 101, True),
    ({"messages": 5, "tokens": 100}, 6, 100, True),
    ({"messages": 99, "tokens": None, "once": [{"messages_over": 7}]}, 7, 0, False),
    ({"messages": 99, "tokens": None, "once": [{"messages_over": 7}]}, 8, 0, True),
    ({"messages": 99, "tokens": None, "once": [{"loops_over": 3}]}, 0, 0, False),
    ({"messages": 99, "tokens": None, "once": [{"loops_over": 2}]}, 0, 0, True),
]


@pytest.mark.parametrize(("step", "messages", "tokens", "is_covered"), LIMITS, ids=str)
def test_a_loop_is_covered_when_what_is_left_from_it_on_is_over_a_limit(
    step: dict[str, Any], messages: int, tokens: int, is_covered: bool
) -> None:
    """Of ten past loops, three are left from the eighth on."""
    policy = policy_of({"steps": [{"step": "recent", **step}]})
    reach = Reach(policy, Room(10_000, 500), Counted(0, 0, 0), Counted(10, 1_000, 50_000), 50_040, 1_000)
    assert reach.covers(8, 1_000 - messages, 50_000 - tokens) is is_covered


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([], KEEP_LOOPS),
        ([{"step": "loops", "whole": 1}], KEEP_LOOPS),
        ([{"step": "loops", "whole": 5}], 5),
        ([{"step": "loops", "whole": 5}, {"step": "loops", "whole": 3}], 5),
    ],
)
def test_the_loops_that_a_step_shows_whole_are_kept(steps: list[dict[str, Any]], kept: int) -> None:
    policy = policy_of({"steps": steps})
    reach = Reach(policy, Room(10_000, 500), Counted(0, 1, 10), Counted(9, 90, 900), 940, 100)
    assert reach.keep_loops == kept
    assert reach.covers(9, 80, 800), "no step limits it"
    assert not reach.is_endless


@pytest.mark.parametrize("is_limited", [True, False])
def test_a_log_is_endless_while_the_windows_show_all_of_it(is_limited: bool) -> None:
    policy = policy_of({"steps": [{"step": "recent", "messages": 5 if is_limited else 99, "tokens": None}]})
    reach = Reach(policy, Room(10_000, 500), Counted(0, 2, 20), Counted(3, 9, 900), 940, 100)
    assert reach.is_endless is not is_limited


def test_one_of_several_steps_that_leaves_a_loop_out_is_enough() -> None:
    policy = policy_of({"steps": [{"step": "recent", "messages": count, "tokens": None} for count in (5, 99)]})
    reach = Reach(policy, Room(10_000, 500), Counted(0, 0, 0), Counted(3, 9, 900), 940, 100)
    assert reach.covers(1, 0, 0)


def test_steps_of_the_open_loop_are_covered_when_the_border_is_behind_all_closed_loops() -> None:
    def border_behind(past_tokens: int) -> float:
        past = Counted(1, 1, past_tokens)
        return Reach(policy_of("default"), Room(10_000, 500), Counted(0, 0, 0), past, 50_000, 1_000).steps_border

    border = int(border_behind(0))
    assert border > 0
    assert (border_behind(border - 1), border_behind(border)) == (border, 0)
