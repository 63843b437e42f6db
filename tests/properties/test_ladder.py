"""The ladder inside one long loop: results to stubs, steps to notes, in chunks; the task stays, nothing goes unsaid.

Histories here are long loops: a task, and many calls with long results and remarks between them, in every format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.building import AMPLE, PRESETS, Asked, Stored, stored, texts, window
from tests.properties.histories import FORMATS, SHAPES, TEXTS, Format, History, Move, played
from tests.properties.test_window_growth import breaks_of
from tests.properties.test_window_laws import assert_budget_is_hard, assert_laws, laws
from turnlog.core.errors import BudgetTooSmallError
from turnlog.windows.build import Window
from turnlog.windows.fit import GRID

LONG = "the quick brown fox jumps over order W-10023 at /srv/app/main.py. " * 12


@st.composite
def long_loops(draw: st.DrawFn) -> History:
    """Past loops or none, then a loop of 4 to 16 steps."""
    shape = draw(st.sampled_from(SHAPES))
    found = [
        Move(kind, text=text, pick=1)
        for text in draw(st.lists(st.sampled_from(TEXTS[1:]), max_size=3))
        for kind in ("user", "calls", "result_late_first", "result_late_first", "assistant")
    ]
    found += [Move("user", text=draw(st.sampled_from(TEXTS)))] * draw(st.integers(1, 2))
    for _ in range(draw(st.integers(4, 16))):
        found += _step(draw, shape)
    return played(found)


def _step(draw: st.DrawFn, shape: Format | None) -> list[Move]:
    remark, pick = draw(st.sampled_from((*TEXTS, LONG))), draw(st.integers(0, 2))
    fate = draw(st.sampled_from(("", "", "", "", "", "", "pinned", "interrupted")))
    calls = Move("calls", text=remark, pick=pick, shape=shape, fate=fate)
    results = [
        # With ``pick`` 1 a mark stands in front, where a result that is cut to its beginning has it too.
        Move("result_late_first", text=draw(st.sampled_from((LONG, LONG * 3, *TEXTS))), pick=1, shape=shape)
        for _ in range(pick + 1)
    ]
    between = draw(st.sampled_from(((), (), (), ("assistant",), ("system",))))
    return [calls, *results, *(Move(kind, text=remark, shape=shape) for kind in between)]


asked = st.builds(
    Asked,
    policy=st.sampled_from(PRESETS),
    budget=st.integers(150, 6000),
    format=st.sampled_from(FORMATS),
    answer_open_calls=st.booleans(),
    system=st.sampled_from((None, "You are a helpful agent.")),
)


def levels(found: Window) -> Counter[str]:
    return Counter(part.level for part in found.manifest.parts if part.kind == "message" and part.loop)


@laws
@given(long_loops(), asked)
def test_W1_to_W5_hold_on_the_ladder(history: History, wanted: Asked) -> None:
    held = stored(history)
    try:
        window(held, wanted)
    except BudgetTooSmallError as error:
        wanted = replace(wanted, budget=int(error.details["needed"]))
    assert_laws(held, wanted)


@laws
@given(long_loops(), asked)
def test_W3_the_least_window_is_what_the_error_names(history: History, wanted: Asked) -> None:
    assert_budget_is_hard(stored(history), wanted)


@laws
@given(long_loops(), asked)
def test_W7_one_ladder_for_all_builds(history: History, wanted: Asked) -> None:
    held = stored(history)
    try:
        first = window(held, wanted)
    except BudgetTooSmallError:
        return
    assert window(held, wanted) == first


# ---------------------------------------------------------------- what each rung does


def steps(count: int, *, result: str = LONG, remark: str = "", task: str = "Fix the bug.") -> Stored:
    """A loop of so many calls with a result each."""
    found = [Move("user", text=task)]
    for number in range(count):
        found += [Move("calls", text=remark), Move("result_late_first", text=f"{number} {result}", pick=1)]
    return stored(played(found))


def test_the_oldest_results_become_stubs_and_the_newest_stay() -> None:
    held = steps(12, result=LONG * 4)
    found = window(held, Asked(budget=held.total * 2 // 3))
    stubs = [part.first for part in found.manifest.parts if part.level == "stub"]
    assert stubs == list(range(3, 3 + 2 * len(stubs), 2))
    assert max(stubs) < len(held.history) - 4
    assert levels(found)["digest"] == 0
    assert "[shortened; ref 2.0]" in texts(found)
    assert (LONG * 4).strip() in texts(found)


def test_where_stubs_do_not_help_the_oldest_steps_are_told_in_notes() -> None:
    held = steps(30, result="ok", remark=LONG)
    found = window(held, Asked(budget=held.total // 4))
    folded = [part.first for part in found.manifest.parts if part.reason == "fold"]
    assert folded[0] == 2
    assert max(folded) < len(held.history) - 4
    assert "notes on earlier steps of exchange 1" in texts(found)
    assert "Fix the bug." in texts(found)


def test_one_result_that_is_larger_than_all_else_is_cut_first() -> None:
    held = stored(
        played(
            [
                Move("user", text="Fix it."),
                *(Move(kind, text=LONG, pick=1) for _ in range(4) for kind in ("calls", "result_late_first")),
                Move("calls"),
                Move("result_late_first", text=LONG * 40, pick=1),
            ]
        )
    )
    found = window(held, Asked(budget=4000))
    assert [part.first for part in found.manifest.parts if part.level == "stub"] == [len(held.history)]


def test_the_newest_step_is_cut_last_and_the_task_never() -> None:
    held = steps(6, task=LONG)
    task = held.sources[0].event.tokens
    with pytest.raises(BudgetTooSmallError) as raised:
        window(held, Asked(budget=task))
    needed = int(raised.value.details["needed"])
    assert needed < task + 100
    found = window(held, Asked(budget=needed))
    assert LONG.strip() in texts(found)
    assert levels(found)["digest"] == len(held.history) - 1


def test_values_of_folded_steps_stay_in_their_notes() -> None:
    held = steps(30, result="created ticket TCK-88341 for ada@example.com", remark=LONG)
    assert "TCK-88341" in texts(window(held, Asked(budget=held.total // 4)))


def test_a_stub_says_the_values_that_its_beginning_does_not() -> None:
    held = steps(12, result=LONG * 4 + "the invoice is INV-2024-77 of bob@example.com")
    found = window(held, Asked(budget=held.total // 2))
    stub = next(part.first for part in found.manifest.parts if part.level == "stub")
    body = next(one for one in found.messages if f"ref {int(stub or 0) - 1}.0]" in str(one.get("content")))
    assert "INV-2024-77" in str(body["content"])


@pytest.mark.parametrize(("result", "remark"), [(LONG, ""), ("ok", LONG), (LONG, LONG)])
def test_W6_a_long_loop_changes_its_beginning_once_a_chunk_at_most(result: str, remark: str) -> None:
    held = steps(60, result=result, remark=remark)
    budget = held.total // 6
    found = breaks_of(held, budget)
    assert set(found) <= {"first", "crossing", "ladder"}
    # A chunk's results become stubs once, and its steps a note once.
    assert found["ladder"] + found["crossing"] <= 3 * held.total / (GRID * budget)


def test_an_ample_budget_leaves_all_whole() -> None:
    assert set(levels(window(steps(30), Asked(budget=AMPLE)))) == {"whole"}


def positions(found: Window, reasons: Sequence[str]) -> list[int | None]:
    return [part.first for part in found.manifest.parts if part.kind == "message" and part.reason in reasons]


def test_a_pinned_step_and_a_system_message_stay_in_a_folded_loop() -> None:
    moves = [Move("user", text="Fix it.")]
    for number in range(30):
        moves += [Move("calls", text=LONG, fate="pinned" if number == 3 else ""), Move("result_late_first", text="ok")]
        if number == 5:
            moves.append(Move("system", text="Speak French."))
    held = stored(played(moves))
    found = window(held, Asked(budget=held.total // 3))
    assert {8, 14}.isdisjoint(positions(found, ["fold"]))
    assert {2, 4, 6, 10, 12} <= set(positions(found, ["fold"]))
    assert "Speak French." in texts(found)
