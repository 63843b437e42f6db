"""The prefix that a window names is one: both windows are built and rendered, and compared as bytes.

Never more is named than is really there, in no format; and it is named as broken exactly where it is, with a reason.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import (
    AMPLE,
    PRESETS,
    TOOLS,
    Asked,
    Stored,
    first,
    stored,
    window,
    window_by_cards,
)
from tests.properties.histories import FORMATS, Given, History, disorderly, orderly, orderly_in, sample_histories
from tests.properties.own_steps import Whim, registered
from tests.properties.pipelines import STEPS, pipelines
from tests.support.prefix_laws import (
    Real,
    assert_prefix,
    before_the_answer,
)

laws = settings(
    max_examples=examples(150),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
asked = st.builds(
    Asked,
    policy=st.one_of(
        st.sampled_from((*PRESETS, "turns(1)", "messages(5)", "tokens(300)")),
        pipelines(),
        pipelines((*STEPS, *["whim"] * len(STEPS))),
    ),
    budget=st.one_of(st.just(AMPLE), st.integers(100, 4000)),
    format=st.sampled_from(FORMATS),
    answer_open_calls=st.booleans(),
    system=st.sampled_from((None, "You are an agent.", "  ")),
    tools=st.sampled_from(((), TOOLS)),
    recall=st.sampled_from(("never", "auto", "auto")),
)


@laws
@given(disorderly(max_size=40), asked)
def test_W6_no_more_is_named_as_stable_than_is_and_every_break_has_a_reason(history: History, wanted: Asked) -> None:
    with registered(Whim):
        assert_prefix(stored(history), wanted)


@laws
@given(disorderly(max_size=24), asked)
def test_W6_with_payloads_out_of_line_too(history: History, wanted: Asked) -> None:
    with registered(Whim):
        assert_prefix(stored(history), wanted, window_by_cards, exact=False)


@laws
@given(orderly(max_size=40), asked)
def test_W6_of_well_formed_sessions_too(history: History, wanted: Asked) -> None:
    with registered(Whim):
        assert_prefix(stored(history), wanted)


@laws
@given(orderly(max_size=40), st.integers(200, 8000), st.sampled_from(FORMATS))
def test_W6_of_a_well_formed_session_default_breaks_where_the_budget_presses_and_nowhere_else(
    history: History, budget: int, format: Any
) -> None:
    result = assert_prefix(stored(history), Asked("default", budget, format)).prefix
    assert result.reason in (None, "first", "crossing", "budget", "large_result")
    result = assert_prefix(stored(history), Asked("default", format=format)).prefix
    assert result.reason in (None, "first")


@pytest.mark.parametrize("format", FORMATS)
@settings(laws, max_examples=examples(60))
@given(st.data())
def test_W6_of_what_is_sent_as_it_was_given_the_stable_tokens_are_all_but_lines(
    format: Any, data: st.DataObject
) -> None:
    """Below the marks and in the format of the messages nothing is estimated."""
    held = stored(data.draw(orderly_in(format)))
    wanted = Asked("full", format=format)
    now = assert_prefix(held, wanted)
    count = before_the_answer(held.history)
    if count:
        then = window(first(held, count), wanted)
        real = Real.of(then, now, wanted)
        assert now.prefix.broke_at is None
        assert now.prefix.stable_tokens == real.tokens


def _looked_up(number: int, arguments: str, result: str) -> list[Given]:
    function = {"name": "search", "arguments": arguments}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        Given({"role": "user", "content": f"{number}: what is there?"}),
        Given({"role": "assistant", "content": None, "tool_calls": [call]}),
        Given({"role": "tool", "tool_call_id": f"c{number}", "content": result}),
        Given({"role": "assistant", "content": "There it is, in each of the lines, as always."}),
    ]


@pytest.mark.parametrize("budget", range(2_632, 2_664, 4))
def test_a_large_result_that_no_longer_fits_beside_notes_of_the_same_values_is_a_break(budget: int) -> None:
    orders = "orders W-10023, W-10024 and W-10025 of ada@example.org at /srv/app/main.py"
    alike = [message for number in range(2) for message in _looked_up(number, '{"email": "ada@example.org"}', orders)]
    log = "\n".join(f"line {number}: all is well" for number in range(300))
    assert_prefix(stored([*alike, *_looked_up(2, '{"path": "/srv/app/log"}', log)]), Asked("run_loops", budget=budget))


def test_a_pinned_result_that_brings_its_call_back_changes_what_the_omission_notice_counts() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    history = [
        *(Given({"role": "user", "content": f"question {number}"}) for number in range(23)),
        Given({"role": "assistant", "content": None, "tool_calls": [call]}),
        Given({"role": "user", "content": "And what else?"}),
        Given({"role": "assistant", "content": "Nothing."}),
        Given({"role": "tool", "tool_call_id": "c", "content": "It was found."}, pin=True),
    ]
    result = assert_prefix(stored(history), Asked("messages(0)")).prefix
    assert (result.reason, result.broke_at) == ("late_result", "base")


REAL_ASKED = tuple(
    Asked(policy, budget, format, answer_open_calls, "You are an agent.", TOOLS)
    for policy, (budget, format, answer_open_calls) in zip(
        ("default", "default", "run_loops", "default", "turns(2)", "messages(7)", "full"),
        (
            (AMPLE, "openai_chat", False),
            (4000, "anthropic", True),
            (2500, "bedrock_converse", False),
            (6000, "openai_responses", True),
            (3000, "turnlog", False),
        )
        * 2,
        strict=False,
    )
)


CALLS = 12 if is_full() else 4
"""Calls of a conversation at which a window is looked at."""


SAMPLES = dict(sample_histories())


@pytest.mark.parametrize("number", range(len(SAMPLES)), ids=list(SAMPLES))
def test_W6_holds_along_the_projects_own_conversations(number: int) -> None:
    """Each conversation with one of three requests, so that all of them are tried; each with all of them in `make full`."""
    history = list(SAMPLES.values())[number]
    for index in range(len(REAL_ASKED)) if is_full() else range(number % 3, len(REAL_ASKED), 3):
        assert_at_every_call(stored(history), REAL_ASKED[index], step=max(4, len(history) // CALLS), start=index)


def assert_at_every_call(held: Stored, wanted: Asked, *, step: int, start: int = 0) -> None:
    for count in range(step - start % step, len(held.history) + 1, step):
        assert_prefix(first(held, count), wanted)


def test_W6_holds_on_a_sample_of_real_conversations(real_histories: list[tuple[str, History]]) -> None:
    for at, (_, history) in enumerate(real_histories):
        held = stored(history)
        assert_at_every_call(held, REAL_ASKED[at % len(REAL_ASKED)], step=max(1, len(history) // 4))


@pytest.mark.full
def test_W6_holds_on_all_real_conversations(all_real_histories: list[tuple[str, History]]) -> None:
    for _, history in all_real_histories:
        for wanted in REAL_ASKED:
            assert_at_every_call(stored(history), wanted, step=max(1, len(history) // 8))
