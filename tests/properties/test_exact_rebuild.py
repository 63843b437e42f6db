"""W8: a window's ``build`` gives the same bytes again, whatever has come since; and the window at any moment of the past is
the one that a shorter log would have given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import PRESETS
from tests.properties.histories import DISORDERLY, Format, History, moves, played
from tests.properties.pipelines import options_made, pipelines
from tests.support.as_json import as_json
from tests.support.scripted import ScriptedSummariser, summarise_with
from tests.support.terse import terse
from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.core.errors import BudgetTooSmallError
from turnlog.log.keys import SessionKeys
from turnlog.sessions.context_models import WindowAnswer

laws = settings(
    max_examples=examples(75),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
KINDS = [kind for kind in DISORDERLY if kind not in ("calls_of_long_ids", "many_calls")]
CHANGES: tuple[dict[str, Any], ...] = (
    {"system": "Answer in verse.", "policy": "turns(1)"},
    {"tools": None, "title": "Renamed"},
    {"policy": {"steps": [{"step": "loops", "max": 1}]}, "system": None},
    {"tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "f"}}], "output_reserve": 9},
)
FORMATS: tuple[Format, ...] = ("openai_chat", "turnlog", "anthropic", "bedrock_converse")
Options = dict[str, Any]
histories = st.lists(moves(KINDS), min_size=6, max_size=40).map(played)
options = st.fixed_dictionaries(
    {
        "policy": st.one_of(
            st.sampled_from((*PRESETS, "turns(1)", "messages(5)")), st.one_of(pipelines(), options_made).map(json.loads)
        ),
        "format": st.sampled_from(FORMATS),
        "budget": st.one_of(st.just(1_000_000), st.integers(200, 3000)),
    },
    optional={
        "answer_open_calls": st.booleans(),
        "include_current_loop": st.booleans(),
        "model": st.just("gpt-4o"),
        "breakpoints": st.sampled_from(("suggest", "apply")),
    },
)


@pytest.fixture(scope="module")
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as opened:
        summarise_with(opened.backend.app, ScriptedSummariser(then=terse))  # type: ignore[attr-defined]
        yield opened


def built(session: Session, asked: Options, at: int | None = None) -> WindowAnswer:
    try:
        return session.context(**asked, at=at)
    except BudgetTooSmallError as error:
        return session.context(**{**asked, "budget": int(error.details["needed"])}, at=at)


def append(session: Session, batch: History, used: WindowAnswer | None, ratio: int) -> None:
    """One commit of messages of one format."""
    notes: Options = {}
    if used is not None and used.tokens:
        tokens = used.tokens
        notes = {
            "window": {"position": used.head, "tokens": tokens},
            "usage": {"input_tokens": tokens * ratio // 100, "output_tokens": 1},
        }
    meta = [{"pin": item.pin, "status": "interrupted" if item.interrupted else "complete"} for item in batch]
    bodies = [item.body for item in batch]
    formats = {item.format for item in batch}
    if len(formats) == 1:
        session.append(*bodies, meta=meta, format=formats.pop(), lenient=True, **notes)
        return
    for entry, own in zip(batch, meta, strict=True):
        session.append(entry.body, meta=[own], format=entry.format, lenient=True, **notes)


def without_caches(log: Turnlog, session: Session) -> None:
    keys = SessionKeys(log.backend.owner, session.id)  # type: ignore[attr-defined]
    log.backend.app.engine.items.delete_many([keys.meta, keys.system, keys.summary, keys.state])  # type: ignore[attr-defined]


@laws
@given(
    histories,
    st.lists(st.integers(1, 6), min_size=1, max_size=10),
    st.lists(options, min_size=1, max_size=4),
    st.lists(st.integers(1, 8), max_size=3),
    st.lists(st.integers(40, 320), min_size=1, max_size=10),
    st.booleans(),
)
def test_W8_a_build_gives_the_same_bytes_whatever_has_come_since(
    log: Turnlog,
    history: History,
    sizes: list[int],
    asked: list[Options],
    rounds: list[int],
    ratios: list[int],
    lose_caches: bool,
) -> None:
    session = log.sessions.create(system="Be brief." if len(history) % 2 else None, tools=[{"type": "web_search"}])
    windows, start, turn = [built(session, item) for item in asked], 0, 0
    while start < len(history):
        size = sizes[turn % len(sizes)]
        append(session, history[start : start + size], windows[-1], ratios[turn % len(ratios)])
        start, turn = start + size, turn + 1
        if turn in rounds:
            session.compress(keep_loops=turn % 2, max_tokens=64)
            session.update(**CHANGES[turn % len(CHANGES)])
        windows.append(built(session, asked[turn % len(asked)]))
    if lose_caches:
        without_caches(log, session)
    for window in windows:
        assert window.manifest.build is not None
        budget = window.manifest.budget
        assert window.tokens * round(budget.factor * 100) <= budget.tokens * 100
        again = session.context(build=window.manifest.build)
        assert as_json(again) == as_json(window)
        assert as_json(session.context(build=json.loads(as_json(again))["manifest"]["build"])) == as_json(window)


@laws
@given(histories, st.integers(2, 9), options)
def test_at_any_position_is_what_a_log_that_ends_there_gives(
    log: Turnlog, history: History, size: int, asked: Options
) -> None:
    """Inside commits too: one session is appended in batches, the other message by message and asked after each."""
    whole, part = log.sessions.create(), log.sessions.create()
    for start in range(0, len(history), size):
        append(whole, history[start : start + size], None, 100)
    for item in history:
        append(part, (item,), None, 100)
        position = part.info().head
        wanted, result = built(part, asked), built(whole, asked, at=position)
        for window in (wanted, result):
            assert window.manifest.build is not None
        assert _but_its_commit(result) == _but_its_commit(wanted)


@laws
@given(histories, st.integers(1, 9), options)
def test_the_least_budget_that_an_error_names_is_enough(
    log: Turnlog, history: History, size: int, asked: Options
) -> None:
    """However little of the log had been read when it was too small."""
    session = log.sessions.create()
    for start in range(0, len(history), size):
        append(session, history[start : start + size], None, 100)
    window = built(session, {**asked, "budget": 150})
    assert window.tokens <= window.manifest.budget.tokens


PINNED_CALL: Options = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
LOOK: Options = {"role": "user", "content": "Look at order W-10023, and tell me what is wrong."}
OPENED: list[Options] = [{"role": "user", "content": f"Question {number}"} for number in range(20)]


@pytest.mark.parametrize(
    "messages",
    [
        [*OPENED, {"role": "assistant", "content": None, "tool_calls": [PINNED_CALL]}, OPENED[0], "result"],
        [{**OPENED[0], "pin": True}, LOOK, *OPENED[1:8], {**LOOK, "content": "the lazy dog " * 100}, *OPENED[1:4]],
    ],
    ids=["a pinned result of an earlier loop's call", "a pinned opening of a long loop"],
)
def test_the_least_budget_counts_what_is_pinned_far_back(log: Turnlog, messages: list[Any]) -> None:
    session = log.sessions.create()
    for message in messages:
        body = {"role": "tool", "tool_call_id": "c1", "content": "found " * 250} if message == "result" else message
        body, pin = {name: value for name, value in body.items() if name != "pin"}, message == "result" or "pin" in body
        session.append(body, meta=[{"pin": pin}])
    with pytest.raises(BudgetTooSmallError) as raised:
        session.context(budget=100)
    window = session.context(budget=int(raised.value.details["needed"]))
    assert window.tokens <= int(raised.value.details["needed"])


REAL_ASKED: tuple[Options, ...] = tuple(
    {"policy": policy, "format": (*FORMATS, "openai_responses")[at % 5], "budget": (1_000_000, 4_000, 2_000)[at % 3]}
    for at, policy in enumerate(PRESETS)
)


def test_W8_and_W9_hold_at_model_calls_of_a_sample_of_real_conversations(
    log: Turnlog, real_histories: list[tuple[str, History]]
) -> None:
    turn = 0
    for name, history in real_histories if is_full() else real_histories[::3]:
        session, windows = log.sessions.create(system="You are an agent."), []
        answered = [at for at, item in enumerate(history) if at and item.body.get("role") == "assistant"]
        start = 0
        for end in (*answered[:: max(1, len(answered) // 3)], len(history)):
            for at in range(start, end, 25):
                append(session, history[at : min(at + 25, end)], windows[-1] if windows else None, 110)
            start, turn = end, turn + 1
            windows.append(built(session, REAL_ASKED[turn % len(REAL_ASKED)]))
        for window in windows:
            assert as_json(session.context(build=window.manifest.build)) == as_json(window), name
        later = [json.dumps(built(session, item).tools) for item in REAL_ASKED]
        for at, window in enumerate(windows, turn - len(windows) + 1):
            assert json.dumps(window.tools) in ("[]", later[at % len(REAL_ASKED)]), "recall tools that came have stayed"
        for form in {item["format"] for item in REAL_ASKED}:
            kinds = {tools for tools, item in zip(later, REAL_ASKED, strict=True) if item["format"] == form}
            assert len(kinds - {"[]"}) <= 1, "they are the same"


def _but_its_commit(window: WindowAnswer) -> str:
    answer = window.model_dump(mode="json")
    for name in ("commit", "clock"):
        del answer["manifest"]["build"][name]
    return json.dumps(answer)
