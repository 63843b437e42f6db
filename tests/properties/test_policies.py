"""What policies count and decide, over histories with all the disorder of real transcripts."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.properties.building import stored
from tests.properties.histories import History, disorderly
from turnlog.windows.build import entry_of
from turnlog.windows.triggers import Counted, past_of
from turnlog.windows.view import assemble

laws = settings(
    max_examples=150,
    derandomize=True,
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
