"""The token factor as a fold: what moves it, how far, and how seldom."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import is_full
from turnlog.providers.token_rules import FALL_PERCENT, MAX_PERCENT, MIN_PERCENT, STEP_PERCENT, Calibration, ratio_of

laws = settings(max_examples=300 if is_full() else 60, derandomize=not is_full(), deadline=None)
commits = st.lists(st.tuples(st.none() | st.integers(20, 500), st.booleans()), max_size=60)


def folded(ratios: list[int], *, opens_loop: bool = False, start: Calibration | None = None) -> Calibration:
    result = start if start is not None else Calibration()
    for ratio in ratios:
        result = result.after(ratio, opens_loop=opens_loop)
    return result


@pytest.mark.parametrize(
    ("ratios", "percent"),
    [
        ([], 100),
        ([150, 150], 100),
        ([150, 150, 150], 150),
        ([117, 118, 119], 120),
        ([100, 101, 102], 105),
        ([97, 98, 99, 100, 100], 100),
        ([100, 480, 100], 100),
        ([100, 480, 100, 100, 480], 100),
        ([400, 400, 400], 300),
        ([80, 80, 80], 100),
        ([20] * 9, 100),
        ([150] * 5 + [100] * 5, 150),
    ],
)
def test_the_factor_after_these_ratios_in_one_loop(ratios: list[int], percent: int) -> None:
    assert folded(ratios).percent == percent


def test_it_comes_down_only_when_a_loop_begins_and_it_is_far_too_high() -> None:
    high = folded([150] * 3)
    within = folded([130] * 5, start=high)
    assert within.after(None, opens_loop=False).percent == 150
    assert within.after(None, opens_loop=True).percent == 130
    assert folded([136] * 5, start=high).after(None, opens_loop=True).percent == 150
    assert folded([135] * 5, start=high).after(None, opens_loop=True).percent == 135
    assert folded([30] * 5, opens_loop=True).percent == MIN_PERCENT


@laws
@given(commits)
def test_it_stands_on_steps_within_its_bounds_and_reads_back_the_same(found: list[tuple[int | None, bool]]) -> None:
    calibration = Calibration()
    for ratio, opens_loop in found:
        before, calibration = calibration, calibration.after(ratio, opens_loop=opens_loop)
        assert calibration.percent % STEP_PERCENT == 0
        assert MIN_PERCENT <= calibration.percent <= MAX_PERCENT
        if calibration.percent < before.percent:
            assert opens_loop
            assert before.percent - calibration.percent >= FALL_PERCENT
        text = calibration.encode()
        assert (Calibration.decode(text) if text else Calibration()) == calibration
        assert len(text) <= 24


@laws
@given(st.integers(50, 280), st.lists(st.integers(0, 9), max_size=100), st.booleans())
def test_a_steady_provider_moves_it_at_most_four_times(base: int, noise: list[int], opens_loop: bool) -> None:
    moves, calibration = 0, Calibration()
    for entry in noise:
        before, calibration = calibration, calibration.after(base + entry, opens_loop=opens_loop)
        moves += calibration.percent != before.percent
    assert moves <= 4
    if len(noise) >= 5:
        newest = sorted(base + item for item in noise[-5:])
        assert calibration.percent >= newest[2], "never below the median"


def test_ratios_are_rounded_up_and_small_windows_teach_nothing() -> None:
    assert ratio_of(1001, 1000) == 101
    assert ratio_of(1000, 1000) == 100
    assert ratio_of(255, 255) is None
    assert ratio_of(256, 256) == 100
    assert (ratio_of(200, 1000), ratio_of(5_000, 1000)) == (20, 500)


@pytest.mark.parametrize(("counted", "ours"), [(0, 1000), (1000, 0), (190, 1000), (5_001, 1000), (10**8, 300)])
def test_counts_that_can_not_be_of_one_window_are_refused(counted: int, ours: int) -> None:
    with pytest.raises(ValueError, match=r"count|ratio"):
        ratio_of(counted, ours)
