"""W6, as far as `default` reaches: while a session grows, what was sent stays as it was, but for crossings of the high mark.

Breaks that are allowed, and counted by their reason: a crossing (the border moves on its grid), a late result (it comes
when its call has been settled), an open call (its message was left out or sent without it while it waited), the budget (a
current loop so large that past loops have to give way off the grid), the ladder (a chunk of a long loop is shortened),
a long loop's end (the border has passed its beginning while it was the current one, which is always whole), the first
message, which takes the place of a line that nothing has been said, and a system message that joins the system text.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import Asked, Stored, stored, window
from tests.properties.histories import FORMATS, Format, History, Move, disorderly, orderly, played, sample_histories
from tests.properties.plain_pairing import plainly_paired
from tests.properties.test_prefix import Blocks, without_frame
from turnlog.core.errors import BudgetTooSmallError
from turnlog.providers.alternation import FIRST_USER
from turnlog.windows.build import Window

HIGH, LOW = 0.8, 0.5

growing = settings(
    max_examples=examples(96),
    derandomize=not is_full(),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # every example builds a window per message: shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def border(held: Stored, upto: int, budget: int, frame: int = 0) -> float:
    """Where the whole loops begin, in running tokens: on a grid of high - low. ``frame``: what a format's own lines take."""
    total = sum(source.event.tokens for source in held.sources[:upto])
    fixed = 3 + frame + _preamble(held, upto)
    grid = (HIGH - LOW) * budget
    return grid * math.ceil(max(0.0, total - (HIGH * budget - fixed)) / grid)


def _preamble(held: Stored, upto: int) -> int:
    return sum(source.event.tokens for source in held.sources[:upto] if source.loop == 0)


def breaks_of(held: Stored, budget: int, format: Format = "openai_chat") -> Counter[str]:
    """Grows the session message by message, checks the law at each, and counts the allowed breaks by reason."""
    asked = Asked("default", budget, format)
    found, before = Counter[str](), _built(held, 0, asked)
    for upto in range(1, len(held.sources) + 1):
        after = _built(held, upto, asked)
        if before is not None and after is not None and not _begins_as(after, before, asked):
            reason = _reason(held, before, after, upto, budget)
            assert reason, f"message {upto} changes what was sent before it"
            found[reason] += 1
        if after is not None:
            assert_border_is_on_the_grid(held, after, upto, budget)
        before = after
    return found


def _built(held: Stored, upto: int, asked: Asked) -> Window | None:
    try:
        return window(held, asked, upto=upto)
    except BudgetTooSmallError:
        return None


def _begins_as(after: Window, before: Window, asked: Asked) -> bool:
    """Block by block: a format may put what follows into the last message, and a line behind an assistant's."""
    old, new = Blocks(without_frame(before.messages, asked)).flat(), Blocks(after.messages).flat()
    return after.system == before.system and new[: len(old)] == old


def _frame(found: Window) -> int:
    return sum(part.tokens for part in found.manifest.parts if part.reason == "frame")


def _reason(held: Stored, before: Window, after: Window, upto: int, budget: int) -> str:
    is_line_alone = len(before.messages) == 1 and FIRST_USER in str(before.messages)
    if is_line_alone or any(part.reason == "nothing_said" for part in before.manifest.parts):
        return "first"
    if border(held, upto - 1, budget, _frame(before)) != border(held, upto, budget, _frame(after)):
        return "crossing"
    if any(part.reason == "budget" for found in (before, after) for part in found.manifest.parts):
        return "budget"
    if _shortened(before) != _shortened(after):
        return "ladder"
    if _has_long_loop_ended(held, upto, budget, _frame(after)):
        return "long loop"
    plain, earlier = plainly_paired(held.history[:upto]), plainly_paired(held.history[: upto - 1])
    for call, result in plain.result_of.items():
        if result[0] == upto and not earlier.is_left_out(call[0], answer_open_calls=False):
            return "late result"
    waited = [position for position in earlier.calls if earlier.is_left_out(position, answer_open_calls=False)]
    return "open call" if waited else "system" if after.system != before.system else ""


def _shortened(found: Window) -> set[tuple[int | None, str]]:
    """What of a long loop is not whole."""
    parts = [part for part in found.manifest.parts if part.kind == "message"]
    return {(part.first, part.reason) for part in parts if part.reason in ("stub", "fold")}


def _has_long_loop_ended(held: Stored, upto: int, budget: int, frame: int) -> bool:
    if upto < 2 or held.loop_of(upto) == held.loop_of(upto - 1):
        return False
    ended = [source.event.position for source in held.sources if source.loop == held.loop_of(upto - 1)]
    opened = sum(source.event.tokens for source in held.sources[: ended[0] - 1])
    return opened < border(held, upto, budget, frame)


def assert_border_is_on_the_grid(held: Stored, found: Window, upto: int, budget: int) -> None:
    running, opened, line = 0, dict[int, int](), border(held, upto, budget, _frame(found))
    for source in held.sources[:upto]:
        opened.setdefault(source.loop, running)
        running += source.event.tokens
    for part in found.manifest.parts:
        if part.kind == "loop" and part.loop and part.level != "whole" and part.reason != "budget":
            assert opened[part.loop] < line, f"loop {part.loop} was opened behind the border and is not whole"


@pytest.mark.parametrize("format", FORMATS)
@growing
@given(orderly(min_size=12), st.integers(200, 4000))
def test_W6_a_well_formed_session_keeps_what_was_sent_between_crossings(
    format: Format, history: History, budget: int
) -> None:
    found = breaks_of(stored(history), budget, format)
    assert set(found) <= {"crossing", "budget", "first", "long loop", "ladder"}


@pytest.mark.parametrize("format", FORMATS)
@growing
@given(disorderly(max_size=40), st.integers(200, 8000))
def test_W6_in_disorder_only_late_results_and_open_calls_change_what_was_sent(
    format: Format, history: History, budget: int
) -> None:
    breaks_of(stored(history), budget, format)


def test_W6_a_long_session_is_cut_at_few_crossings_and_nowhere_else() -> None:
    turns = [
        Move(kind, text=f"{number} The quick brown fox jumps over the lazy dog. " * 6)
        for number in range(40)
        for kind in ("user", "calls", "result_late_first", "assistant")
    ]
    held = stored(played(turns))
    budget = 3000
    found = breaks_of(held, budget)
    assert set(found) == {"first", "crossing"}
    assert 3 <= found["crossing"] <= math.ceil(held.total / ((HIGH - LOW) * budget))


def test_W6_digests_fill_their_room_and_the_line_is_part_of_it() -> None:
    turns = [Move(kind, text="The quick brown fox.") for _ in range(60) for kind in ("user", "assistant")]
    found = breaks_of(stored(played(turns)), 700)
    assert set(found) == {"first", "crossing"}


def test_W6_a_late_result_replaces_the_neutral_text_and_is_the_only_break() -> None:
    kinds = ("user", "calls", "user", "assistant", "result", "assistant")
    found = breaks_of(stored(played([Move(kind, text="x") for kind in kinds])), 100_000)
    assert found == {"first": 1, "late result": 1}


@pytest.mark.parametrize(("name", "history"), [pytest.param(*one, id=one[0]) for one in sample_histories()])
def test_W6_holds_on_the_projects_own_conversations(name: str, history: History) -> None:
    held = stored(history)
    breaks_of(held, max(200, held.total // 2))


def test_W6_holds_on_a_sample_of_real_conversations(real_histories: list[tuple[str, History]]) -> None:
    for _, history in real_histories:
        if len(history) <= 120:
            held = stored(history)
            breaks_of(held, max(200, held.total // 2))


@pytest.mark.full
def test_W6_holds_on_all_real_conversations(all_real_histories: list[tuple[str, History]]) -> None:
    for _, history in all_real_histories:
        held = stored(history)
        breaks_of(held, max(200, held.total // 2))
