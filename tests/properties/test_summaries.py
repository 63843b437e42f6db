"""The laws of windows hold with a summary in force, over disorderly histories and through a session's whole path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import COUNTER, Asked
from tests.properties.histories import DISORDERLY, FORMATS, SHAPES, TEXTS, Format, History, Move, moves, played
from tests.properties.pipelines import STEPS, pipelines
from tests.properties.plain_pairing import plainly_paired
from tests.support.prefix_laws import Blocks, Real, without_frame
from tests.support.scripted import ScriptedSummariser, summarise_with
from tests.support.terse import terse
from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.loops import REASONING
from turnlog.linter.rules import lint
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import WINDOW_OVERHEAD, count_message
from turnlog.sessions.context_models import WindowAnswer
from turnlog.summaries.routes import SummaryAnswer
from turnlog.windows.policy import PRESETS
from turnlog.windows.prices import FENCING
from turnlog.windows.steps import Summary

laws = settings(
    max_examples=examples(150),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
KINDS = [kind for kind in DISORDERLY if kind not in ("calls_of_long_ids", "many_calls")]
histories = st.lists(moves(KINDS), min_size=10, max_size=50).map(played)
short = st.lists(moves(KINDS), min_size=8, max_size=24).map(played)


@pytest.fixture(scope="module")
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as opened:
        summarise_with(opened.backend.app, ScriptedSummariser(then=terse))  # type: ignore[attr-defined]
        yield opened


taking_summaries = st.tuples(pipelines(max_size=3).map(json.loads), st.integers(0, 3)).map(
    lambda drawn: {"steps": [*drawn[0]["steps"][: drawn[1]], {"step": "summary"}, *drawn[0]["steps"][drawn[1] :]]}
)
"""Pipelines with the step summary somewhere among the others."""


SINGLE_KINDS = [kind for kind in KINDS if "user" not in kind and "call" not in kind]


def answered_calls(drawn: tuple[int, str, Any, list[Move]]) -> list[Move]:
    """A step: calls with all their results; and what came between."""
    count, text, shape, others = drawn
    calls = Move("calls", pick=count - 1, text=text, shape=shape)
    return [calls, *others, *[Move("result_late_first", text=text, shape=shape)] * count]


steps = st.tuples(
    st.integers(1, 3), st.sampled_from(TEXTS), st.sampled_from(SHAPES), st.lists(moves(SINGLE_KINDS), max_size=1)
).map(answered_calls)
other_moves = st.one_of(moves(SINGLE_KINDS), moves(SINGLE_KINDS), moves(["calls", "user", "function_call"]))
long_loops = st.lists(st.one_of(steps, steps, other_moves.map(lambda move: [move])), min_size=6, max_size=24).map(
    lambda drawn: played([Move("user"), *(move for each in drawn for move in each)])
)
"""Histories of few loops with many steps, in disorder."""


def filled(log: Turnlog, history: History, size: int, rounds: list[int]) -> Session:
    """The history in batches; after some of them closed loops are summarised."""
    session = log.sessions.create()
    for at, start in enumerate(range(0, len(history), size)):
        batch = history[start : start + size]
        for item in batch:
            meta = {"pin": item.pin, "status": "interrupted" if item.interrupted else "complete"}
            session.append(item.body, meta=[meta], format=item.format, lenient=True)
        if at in rounds:
            session.compress(keep_loops=at % 2, max_tokens=64)
    return session


def built(session: Session, policy: Any, format: Format, budget: int) -> WindowAnswer:
    try:
        return session.context(policy=policy, format=format, budget=budget)
    except BudgetTooSmallError as error:
        return session.context(policy=policy, format=format, budget=int(error.details["needed"]))


def recounted(window: WindowAnswer, format: Format) -> int:
    return WINDOW_OVERHEAD + sum(count_message(CODECS[format].parse(message), COUNTER) for message in window.messages)


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
    assert [message.body for message in session.messages()] == [item.body for item in history], "nothing is lost"
    summary = session.summary()
    if summary is not None:
        check_cover(session, summary, window)


@settings(laws, max_examples=examples(60))
@given(
    short,
    st.integers(1, 9),
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    STEPS["summary"],
    st.sampled_from(("digest_when_full", "loops", "recent")),
    st.sampled_from(FORMATS),
    st.one_of(st.just(1_000_000), st.integers(200, 3000)),
)
def test_a_summary_is_valid_and_counted_as_anyone_s_message_in_every_format(
    log: Turnlog, history: History, size: int, rounds: list[int], told: Any, step: str, format: Any, budget: int
) -> None:
    """W1, W3, W6: by every rule of its provider, within what is charged, and no more named as stable than is."""
    policy = {"steps": [{"step": "summary", **told}, {"step": step}]}
    session = filled(log, history, size, rounds)
    head = session.info().head
    window = built(session, policy, format, budget)
    if format != "turnlog":
        assert lint(window.messages, format=format) == []
    own = COUNTER.count(window.system) + 4 if isinstance(window.system, str) else 0
    assert own + recounted(window, format) <= window.tokens
    if any(part.kind == "summary" for part in window.manifest.parts):
        where = {"system": window.system if format in FENCING else None}.get(told.get("as", "user"))
        assert "summary of exchanges" in str(where or window.messages)
    positions = [message.position for message in session.messages()]
    codec = [CODECS[item.format].parse(item.body).role for item in history]
    at = next((at for at in range(len(codec) - 1, 0, -1) if codec[at] == "assistant"), 0)
    if at and window.prefix.reason != "first" and budget == 1_000_000:
        earlier = session.context(policy=policy, format=format, budget=budget, at=positions[at] - 1)
        asked = Asked(json.dumps(policy), format=format)
        assert window.prefix.stable_tokens <= Real.of(earlier, window, asked).tokens  # type: ignore[arg-type]
    assert session.info().head == head


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_whose_message_it_is(log: Turnlog, role: str, format: Any) -> None:
    session = log.sessions.create(system="Be brief.", recall="never")
    for number in range(6):
        session.append(
            {"role": "user", "content": f"Question {number}, " * 40}, {"role": "assistant", "content": "Answer. " * 40}
        )
    session.compress(keep_loops=1)
    step = {"step": "summary", "as": role, "label": "Before </turnlog-data>:"}
    window = session.context(policy={"steps": [step]}, format=format)
    values = [message for message in window.messages if "summary of exchanges" in json.dumps(message)]
    if role == "system" and format in FENCING:
        assert values == []
        assert str(window.system).startswith("Be brief.\n\n<turnlog-data")
        text = str(window.system)
    else:
        assert [item["role"] for item in values] == [role]
        text = json.dumps(values)
    assert "Before " in text
    assert text.count("</turnlog-data>") == 1, "a label can't close the fence"
    if format != "turnlog":
        assert lint(window.messages, format=format) == []


def test_in_every_preset_it_is_the_user_s_and_its_label_is_in_its_language(log: Turnlog) -> None:
    for policy in PRESETS.values():
        for step in policy.steps:
            assert not isinstance(step, Summary) or (step.as_, step.label) == ("user", None)
    app = log.backend.app  # type: ignore[attr-defined]
    before = app.summariser
    summarise_with(app, app.extracts)
    try:
        session = log.sessions.create(recall="never")
        for number in range(6):
            session.append(
                {"role": "user", "content": f"第{number}个问题：" + "我想订去东京的机票，" * 20},
                {"role": "assistant", "content": "好的，已经为您查到三个航班。" * 20},
            )
        session.compress(keep_loops=1)
        first = session.context().messages[0]
        assert first["role"] == "user"
        assert str(first["content"]).splitlines()[1] == "前文摘要："
        own = session.context(policy={"steps": [{"step": "summary", "label": "此前："}]}).messages[0]
        assert str(own["content"]).splitlines()[1] == "此前："
        none = session.context(policy={"steps": [{"step": "summary", "label": ""}]}).messages[0]
        assert "前文摘要" not in str(none["content"])
    finally:
        summarise_with(app, before)


@settings(laws, max_examples=examples(100))
@given(
    long_loops,
    st.integers(2, 5),
    st.lists(st.integers(2, 9), min_size=3, max_size=6),
    st.sampled_from((127_400, 127_600, 127_800)),
    st.sampled_from(("default", "run_loops", "classic", "full")),
    st.sampled_from(FORMATS),
)
def test_a_summary_of_steps_of_the_open_loop_keeps_the_laws(
    log: Turnlog, history: History, size: int, rounds: list[int], reserve: int, policy: Any, format: Any
) -> None:
    """In every format: no call without its result, what the user said is there, nothing is lost, and W11."""
    session = log.sessions.create(policy={"steps": [{"step": "summary"}]}, output_reserve=reserve)
    sent: WindowAnswer | None = None
    for at, start in enumerate(range(0, len(history), size)):
        for entry in history[start : start + size]:
            if CODECS[entry.format].parse(entry.body).role == "assistant" and policy != "full":
                sent = appended_to(sent, built(session, policy, format, 1_500), format)
            meta = {"pin": entry.pin, "status": "interrupted" if entry.interrupted else "complete"}
            session.append(entry.body, meta=[meta], format=entry.format, lenient=True)
        if at in rounds:
            session.compress(max_tokens=64)
    window = built(session, policy, format, 1_500)
    if format != "turnlog":
        assert lint(window.messages, format=format) == []
    assert recounted(window, format) <= window.tokens
    assert window.tokens == sum(window.manifest.totals.values()) + WINDOW_OVERHEAD
    assert [message.body for message in session.messages()] == [item.body for item in history], "nothing is lost"
    summary = session.summary()
    if summary is not None and policy != "full":
        check_cover(session, summary, window)
        check_parted(session, history, summary, window)


def appended_to(before: WindowAnswer | None, window: WindowAnswer, format: Format) -> WindowAnswer:
    """W11: a window of the same epoch begins with the one before."""
    if before is None or before.manifest.epoch.id != window.manifest.epoch.id or window.prefix.reason == "first":
        return window
    asked = Asked(format=format)
    old = Blocks(without_frame(before.messages, asked)).flat()
    assert Blocks(window.messages).flat()[: len(old)] == old
    return window


def check_parted(session: Session, history: History, summary: SummaryAnswer, window: WindowAnswer) -> None:
    """A summary ends between steps, as they were when it was made, and the user's messages of the open loop stay."""
    places = {message.position: at for at, message in enumerate(session.messages(), start=1)}
    last = max(at for position, at in places.items() if position <= summary.last)
    plain = plainly_paired(history[:last])
    loops = {places[message.position]: message.loop or 0 for message in session.messages()}
    if loops[last] <= summary.last_loop:
        return
    for position in (position for position in plain.calls if loops[position] == loops[last]):
        assert set(plain.unanswered(position)) <= plain.hosted, "a covered call has its result, which is covered too"
    shown = {places[part.first] for part in window.manifest.parts if part.kind == "message" and part.first in places}
    if "summary" in {part.kind for part in window.manifest.parts} and loops[last] == max(loops.values()):
        for at, item in enumerate(history[:last], start=1):
            if (
                loops[at] == loops[last]
                and CODECS[item.format].parse(item.body).role == "user"
                and not item.interrupted
            ):
                assert at in shown, "what the user said stays while the loop is open"


def check_cover(session: Session, summary: SummaryAnswer, window: WindowAnswer) -> None:
    """W5: what the summary covers, then what is rendered; with a summary that has no room, the line says how much."""
    info = session.info()
    positions = [message.position for message in session.messages()]
    covered = [position for position in positions if position <= summary.last]
    assert summary.messages == len(covered)
    assert all(loop.loop > summary.last_loop for loop in session.loops() if loop.first > summary.last)
    assert summary.last_loop < info.loops, "the open loop is never covered whole"
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
    # Results alone are nobody's turn, whoever the format names as their author: an orphan is never sent, pinned or not. Nor is
    # reasoning without the item that it belongs to.
    parsed = {message.position: CODECS[message.format].parse(message.body) for message in session.messages()}
    for position in pinned & set(covered):
        if parsed[position].role in ("user", "assistant") and parsed[position].given_role != REASONING:
            assert position in parts, f"the pinned message {position} is gone"
