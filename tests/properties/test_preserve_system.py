"""`preserve_system: false`: system messages fall out of a window as other messages do, and every law holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import AMPLE, PRESETS, TOOLS, Asked, request, stored
from tests.properties.histories import FORMATS, SHAPES, TEXTS, History, Move, played
from tests.support.epoch_laws import Pages, assert_memory_changes_nothing, assert_W11
from tests.support.prefix_laws import assert_prefix, built
from tests.support.window_laws import assert_budget_is_hard, assert_laws, window
from turnlog.windows.build import build
from turnlog.windows.policy import PRESETS as POLICIES
from turnlog.windows.policy import Policy

laws = settings(
    max_examples=examples(60),
    derandomize=not is_full(),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
SMALL = Policy.from_options({"window_size": 3, "max_tokens": 60, "compress_threshold": 4, "preserve_system": False})
RELEASING = (
    *(POLICIES[name].model_copy(update={"preserve_system": False}).model_dump_json() for name in PRESETS),
    SMALL.model_dump_json(),
    json.dumps(
        {"steps": [{"step": "pin", "roles": ["system"]}, {"step": "messages", "n": 2}], "preserve_system": False}
    ),
)
TURNS = (
    ("system",),
    ("system", "developer"),
    ("user",),
    ("user", "system", "assistant"),
    ("user", "calls", "result", "developer", "calls", "result", "assistant"),
)


def _turn(kinds: Sequence[str]) -> st.SearchStrategy[Sequence[Move]]:
    return st.tuples(
        *(st.builds(Move, st.just(kind), text=st.sampled_from(TEXTS), shape=st.sampled_from(SHAPES)) for kind in kinds)
    )


histories = st.lists(st.sampled_from(TURNS).flatmap(_turn), min_size=1, max_size=8).map(
    lambda turns: played([move for turn in turns for move in turn])
)
asked = st.builds(
    Asked,
    policy=st.sampled_from(RELEASING),
    budget=st.one_of(st.just(AMPLE), st.integers(150, 600), st.integers(150, 3000)),
    format=st.sampled_from(FORMATS),
    answer_open_calls=st.booleans(),
    system=st.sampled_from((None, "You are a helpful agent.")),
    tools=st.sampled_from(((), TOOLS)),
)


@laws
@given(histories, asked)
def test_W1_to_W6_hold(history: History, wanted: Asked) -> None:
    held = stored(history)
    assert_laws(held, wanted)
    assert_budget_is_hard(held, wanted)
    assert_budget_is_hard(held, replace(wanted, budget=wanted.budget % 150))
    assert_prefix(held, wanted)


@laws
@given(histories, asked)
def test_W11_windows_of_one_epoch_only_append(history: History, wanted: Asked) -> None:
    assert_W11(stored(history), wanted)


@laws
@given(histories, asked, asked, st.integers(1, 9))
def test_W12_neither_memory_nor_pages_change_a_window(history: History, wanted: Asked, other: Asked, size: int) -> None:
    held = stored(history)
    whole, enough = built(window, held, wanted)
    assert build(Pages(held, size), request(enough, held.sources)) == whole
    assert_memory_changes_nothing(held, wanted, other)
