"""The laws of windows hold with a summary in force, over disorderly histories and through a session's whole path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.building import COUNTER
from tests.properties.histories import DISORDERLY, Format, History, moves, played
from tests.properties.pipelines import pipelines
from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.codecs.counting import WINDOW_OVERHEAD, count_message
from turnlog.codecs.registry import CODECS
from turnlog.codecs.rules import lint
from turnlog.contracts.context import WindowAnswer
from turnlog.contracts.summaries import SummaryAnswer
from turnlog.domain.errors import BudgetTooSmallError
from turnlog.domain.summaries import SummaryRequest
from turnlog.testing.summarisers import ScriptedSummariser

laws = settings(
    max_examples=examples(150),
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
KINDS = [kind for kind in DISORDERLY if kind not in ("calls_of_long_ids", "many_calls")]
histories = st.lists(moves(KINDS), min_size=10, max_size=50).map(played)


def terse(request: SummaryRequest) -> str:
    """Says next to nothing, so that a summary is nearly always worth it; in two languages."""
    loops = len(request.loops)
    return f"{loops} loops {'</turnlog-data>' * (loops % 2)}" + "，共几个回合" * (loops % 3 == 0)


@pytest.fixture(scope="module")
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as opened:
        opened._backend._app.compress_session._summariser = ScriptedSummariser(then=terse)  # type: ignore[attr-defined]
        yield opened


taking_summaries = st.tuples(pipelines(max_size=3).map(json.loads), st.integers(0, 3)).map(
    lambda drawn: {"steps": [*drawn[0]["steps"][: drawn[1]], {"step": "summary"}, *drawn[0]["steps"][drawn[1] :]]}
)
"""Pipelines with the step summary somewhere among the others."""


def filled(log: Turnlog, history: History, size: int, rounds: list[int]) -> Session:
    """The history in batches; after some of them closed loops are summarised."""
    session = log.sessions.create()
    for at, start in enumerate(range(0, len(history), size)):
        batch = history[start : start + size]
        for one in batch:
            meta = {"pin": one.pin, "status": "interrupted" if one.interrupted else "complete"}
            session.append(one.body, meta=[meta], format=one.format)
        if at in rounds:
            session.compress(keep_loops=at % 2, max_tokens=64)
    return session


def built(session: Session, policy: Any, format: Format, budget: int) -> WindowAnswer:
    try:
        return session.context(policy=policy, format=format, budget=budget)
    except BudgetTooSmallError as error:
        return session.context(policy=policy, format=format, budget=int(error.details["needed"]))


def recounted(window: WindowAnswer, format: Format) -> int:
    return WINDOW_OVERHEAD + sum(count_message(CODECS[format].parse(one), COUNTER) for one in window.messages)


@laws
@given(
    histories,
    st.integers(1, 9),
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.one_of(st.sampled_from(("default", "run_loops", "classic")), taking_summaries),
    st.sampled_from(("openai_chat", "turnlog")),
    st.one_of(st.just(1_000_000), st.integers(30, 3000)),
)
def test_windows_with_a_summary_keep_the_laws(
    log: Turnlog, history: History, size: int, rounds: list[int], policy: Any, format: Format, budget: int
) -> None:
    session = filled(log, history, size, rounds)
    window = built(session, policy, format, budget)
    if format == "openai_chat":
        assert lint(window.messages, format="openai_chat") == []
    assert recounted(window, format) <= window.tokens
    assert window.tokens == sum(window.manifest.totals.values()) + WINDOW_OVERHEAD
    assert [message.body for message in session.messages()] == [one.body for one in history], "nothing is lost"
    summary = session.summary()
    if summary is not None:
        check_cover(session, summary, window)


def check_cover(session: Session, summary: SummaryAnswer, window: WindowAnswer) -> None:
    """W5: what the summary covers, then what is rendered; with a summary that has no room, the line says how much."""
    info = session.info()
    positions = [message.position for message in session.messages()]
    covered = [position for position in positions if position <= summary.last]
    assert summary.messages == len(covered)
    assert all(loop.loop > summary.last_loop for loop in session.loops() if loop.first > summary.last)
    assert summary.last_loop < info.loops, "the open loop is never covered"
    shown = [part for part in window.manifest.parts if part.kind == "summary"]
    parts = {part.first for part in window.manifest.parts if part.kind == "message" and part.first is not None}
    pinned = {message.position for message in session.messages() if message.pin and message.status == "complete"}
    if shown:
        assert (shown[0].first, shown[0].last) == (summary.first, summary.last)
    else:
        line = re.search(r"\[(\d+) earlier message", str(window.messages))
        kept = sum(position in parts for position in covered)
        assert line is not None
        assert int(line[1]) >= len(covered) - kept
    # Results alone are nobody's turn, whoever the format names as their author: an orphan is never sent, pinned or not.
    roles = {message.position: CODECS[message.format].parse(message.body).role for message in session.messages()}
    for position in pinned & set(covered):
        if roles[position] in ("user", "assistant"):
            assert position in parts, f"the pinned message {position} is gone"
