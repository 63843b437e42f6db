"""`build_window` over a list of messages and a session's `context` over the same messages send the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import is_full
from tests.properties.building import PRESETS
from tests.properties.histories import DISORDERLY, TEXTS, Format, Given, History, Move, moves, played, sample_histories
from turnlog import Turnlog, build_window
from turnlog.core.errors import BudgetTooSmallError
from turnlog.sessions.context_models import WindowAnswer

SESSION_OFFSET = 1
"""A session's first event is its creation, so its messages stand one further on."""
KINDS = [kind for kind in DISORDERLY if kind not in ("calls_of_long_ids", "many_calls")]
SHORT = [text for text in TEXTS if len(text) < 200]

some = settings(
    max_examples=25,
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
policies = st.sampled_from((*PRESETS, "turns(1)", "messages(5)", "tokens(300)"))
short_moves = st.builds(
    Move, st.sampled_from(KINDS), st.integers(0, 11), st.sampled_from(SHORT), st.booleans(), st.just("")
)


@pytest.fixture(scope="module")
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as opened:
        yield opened


def of_session(log: Turnlog, history: History, policy: str, format: Format, budget: int | None) -> WindowAnswer:
    session = log.sessions.create(recall="never")
    for at in range(0, len(history), 7):
        session.append(*(item.body for item in history[at : at + 7]), lenient=True)
    return session.context(policy=policy, format=format, budget=budget)


def of_list(history: History, policy: str, format: Format, budget: int | None) -> WindowAnswer:
    return build_window([item.body for item in history], policy=policy, format=format, budget=budget)


def sent(answer: WindowAnswer, offset: int = 0) -> str:
    """What is sent, with the ids that were made of positions as if counted from 1."""
    text = json.dumps(
        [answer.messages, answer.system, answer.tools, [open_call.ref for open_call in answer.open_calls]]
    )
    text = re.sub(r"\bcall_(\d+)_(\d+)", lambda item: f"call_{int(item[1]) - offset}_{item[2]}", text)
    text = re.sub(r"\\n(\d+)\.(\d+) ", lambda item: f"\\n{int(item[1]) - offset}.{item[2]} ", text)
    return re.sub(r'"(\d+)\.(\d+)"', lambda item: f'"{int(item[1]) - offset}.{item[2]}"', text)


@some
@given(
    st.lists(moves(KINDS, fates=False), max_size=40).map(played), policies, st.sampled_from(("openai_chat", "turnlog"))
)
def test_a_session_sends_what_build_window_sends(log: Turnlog, history: History, policy: str, format: Format) -> None:
    assert sent(of_session(log, history, policy, format, None), SESSION_OFFSET) == sent(
        of_list(history, policy, format, None)
    )


@some
@given(
    st.lists(short_moves, max_size=40).map(played),
    policies.filter(lambda policy: policy != "recall"),
    st.integers(50, 1500),
)
def test_under_a_budget_too_and_with_the_same_tokens(log: Turnlog, history: History, policy: str, budget: int) -> None:
    try:
        wanted = of_list(history, policy, "openai_chat", budget)
    except BudgetTooSmallError as error:
        with pytest.raises(BudgetTooSmallError) as raised:
            of_session(log, history, policy, "openai_chat", budget)
        assert raised.value.details == error.details
    else:
        result = of_session(log, history, policy, "openai_chat", budget)
        assert sent(result, SESSION_OFFSET) == sent(wanted)
        assert result.tokens == wanted.tokens
        assert result.manifest.totals == wanted.manifest.totals


def test_what_comes_back_has_a_day_where_it_is_known(log: Turnlog) -> None:
    """A session knows when a message was said; a list does not, and its windows said that it was in 1970."""
    said = [f"Parcel {number} went to {town}." for number, town in enumerate(("Riga", "Oslo", "Bern", "Graz") * 10)]
    said += ["Which parcel went to Narvik?", "Number 99 went to Narvik.", *said, "So which parcel went to Narvik?"]
    roles = ("user", "assistant")
    history = [Given({"role": roles[at % 2], "content": text}, "openai_chat") for at, text in enumerate(said, start=1)]
    history[-1] = Given({"role": "user", "content": said[-1]}, "openai_chat")
    (with_day,), (without,) = (
        re.findall("recalled from earlier.*?turnlog-data", sent(answer, offset))
        for answer, offset in (
            (of_session(log, history, "recall", "openai_chat", 700), SESSION_OFFSET),
            (of_list(history, "recall", "openai_chat", 700), 0),
        )
    )
    assert "Number 99 went to Narvik." in without and "1970" not in without
    assert re.sub(r"\\n20\d\d-\d\d-\d\d", "", with_day, count=1) == without


SAMPLES = dict(sample_histories())


@pytest.mark.parametrize("number", range(len(SAMPLES)), ids=list(SAMPLES))
def test_the_projects_own_conversations_too(log: Turnlog, number: int) -> None:
    """Each conversation with one of three presets, so that all of them are tried; each with all of them in `make full`."""
    history = list(SAMPLES.values())[number]
    for policy in PRESETS if is_full() else list(PRESETS)[number % 3 :: 3]:
        result = of_session(log, history, policy, "openai_chat", None)
        assert sent(result, SESSION_OFFSET) == sent(of_list(history, policy, "openai_chat", None))
