"""What policies count and decide, over histories with all the disorder of real transcripts."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import Asked, stored, window
from tests.properties.histories import History, disorderly
from turnlog.providers.token_rules import WINDOW_OVERHEAD
from turnlog.windows.assembly import assemble
from turnlog.windows.plan import entry_of
from turnlog.windows.policy import PRESETS
from turnlog.windows.triggers import Counted, Totals, is_crossed, past_of
from turnlog.windows.view import Room

laws = settings(
    max_examples=examples(150),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@laws
@given(disorderly())
def test_a_step_counts_the_past_as_the_header_does(history: History) -> None:
    """So that `classic` leaves out just when its trigger says that the session should be compressed."""
    held = stored(history)
    view = assemble([entry_of(source) for source in held.sources], total=held.total)
    loops = max(0, held.flow.loop.number - 1)
    assert past_of(view) == Counted(loops, held.flow.closed.messages, held.flow.closed.tokens)


@laws
@given(disorderly(), st.integers(1, 4_000))
def test_default_is_to_be_compressed_before_its_window_leaves_anything_out(history: History, budget: int) -> None:
    held, trigger = stored(history), PRESETS["default"].compress
    flow, loops = held.flow, max(0, held.flow.loop.number - 1)
    totals = Totals(
        Counted(loops, flow.messages, flow.tokens),
        Counted(loops, flow.closed.messages, flow.closed.tokens),
        Counted(0, 0, 0),
    )
    preamble = sum(source.event.tokens for source in held.sources if not source.loop)
    assert trigger is not None
    is_over = is_crossed(trigger, totals, Room(budget, WINDOW_OVERHEAD + preamble))
    if not is_over and not sum(source.loop == 0 for source in held.sources):
        made = window(held, Asked("default", budget * 2))
        assert {part.level for part in made.manifest.parts if part.kind == "loop"} <= {"whole"}
