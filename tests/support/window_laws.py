"""Laws of windows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import (
    AMPLE,
    PRESETS,
    TOOLS,
    Asked,
    Stored,
    recounted,
    texts,
    window,
)
from tests.properties.histories import (
    FORMATS,
    Given,
    History,
)
from tests.properties.pipelines import options_made, pipelines
from tests.properties.plain_pairing import plainly_paired, role_of
from tests.properties.plain_rules import RULES
from tests.properties.shapes import whole_characters
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.window_parts import WindowPart
from turnlog.linter.rules import FORMATS as LINTED
from turnlog.linter.rules import lint
from turnlog.windows.build import Window

laws = settings(
    max_examples=examples(150),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


policies = st.one_of(
    st.sampled_from(PRESETS),
    st.builds("{}({})".format, st.sampled_from(("turns", "messages")), st.integers(0, 12)),
    st.builds("tokens({})".format, st.integers(0, 3000)),
    pipelines(),
    options_made,
)


budgets = st.one_of(st.just(AMPLE), st.integers(1, 400), st.integers(100, 6000))


asked = st.builds(
    Asked,
    policy=policies,
    budget=budgets,
    format=st.sampled_from(FORMATS),
    answer_open_calls=st.booleans(),
    system=st.sampled_from((None, "You are a helpful agent.", "")),
    tools=st.sampled_from(((), TOOLS)),
    others_calls=st.sampled_from(("calls", "text")),
)


def built(held: Stored, wanted: Asked) -> Window:
    """The window; with the least budget that the error names where the one asked for is too small."""
    try:
        return window(held, wanted)
    except BudgetTooSmallError as error:
        return window(held, replace(wanted, budget=int(error.details["needed"])))


def assert_valid(found: Window, format: str) -> None:
    if format in RULES:
        RULES[format](found.messages)
    if format in LINTED:
        assert lint(found.messages, format=format) == []


def without_notes(text: str) -> str:
    """What is sent but for notes and what is recalled, which tell of calls that are not sent."""
    return re.sub(r"<turnlog-data kind='(?:notes|recalled) .*?</turnlog-data>", "", text, flags=re.S)


def assert_pairs_are_kept(history: History, wanted: Asked, found: Window) -> None:
    plain, sent = plainly_paired(history), without_notes(texts(found))
    waiting = list[tuple[int, int]]()
    for position, count in plain.calls.items():
        calls = [(position, at) for at in range(count)]
        is_in = {mark_of("call", call) in sent for call in calls} | {
            mark_of("result", plain.result_of[call]) in sent or f"[shortened; ref {call[0]}.{call[1]}]" in sent
            for call in calls
            if call in plain.result_of
        }
        assert len(is_in) == 1, f"calls of message {position} and their results are in and out"
        if plain.is_left_out(position, answer_open_calls=wanted.answer_open_calls):
            assert is_in == {False}, f"message {position} waits for results and is sent"
            waiting += plain.unanswered(position)
    sent_results = {(int(p), int(at)) for p, at in re.findall(r"result#(\d+)\.(\d+);", sent)}
    assert sent_results <= set(plain.result_of.values()), "a result that belongs to no call, or was replaced, is sent"
    assert [(ref.position, ref.index) for ref in found.open_calls] == waiting


def mark_of(kind: str, place: tuple[int, int]) -> str:
    return f"{kind}#{place[0]}.{place[1]};"


def assert_budget_is_hard(held: Stored, wanted: Asked) -> None:
    try:
        result = window(held, wanted)
    except BudgetTooSmallError as error:
        needed = int(error.details["needed"])
        assert needed > wanted.budget == error.details["budget"]
        wanted = replace(wanted, budget=needed)
        result = window(held, wanted)
        with pytest.raises(BudgetTooSmallError) as raised:
            window(held, replace(wanted, budget=needed - 1))
        assert raised.value.details["needed"] == needed
    assert recounted(result, wanted) <= result.tokens <= wanted.budget


def assert_task_is_in(held: Stored, found: Window) -> None:
    said = [str(content_of(message)) for message in found.messages if message.get("role") == "user"]
    positions = task(held)
    left_out = {part.first for part in found.manifest.parts if part.kind == "message" and part.reason == "budget"}
    if left_out & set(positions):
        # Where nothing else fits, the first and the newest stay.
        assert not left_out & {positions[0], positions[-1]}
        positions = [position for position in positions if position not in left_out]
    for position in positions:
        text = whole_characters(_text(held.at(position)))
        assert not text.strip() or any(text in item for item in said), (
            f"user message {position} of the current loop is not in"
        )


def task(held: Stored) -> list[int]:
    """The user messages of the current loop before its first assistant message."""
    result = list[int]()
    current = held.sources[-1].loop if held.sources else 0
    for source in held.sources:
        position = source.event.position
        value, role = held.at(position), role_of(held.at(position))
        if source.loop != current or not current or value.interrupted:
            continue
        if role == "assistant":
            break
        if role == "user":
            result.append(position)
    return result


def content_of(message: Mapping[str, object]) -> str:
    content = message["content"]
    if isinstance(content, list):
        return "\n".join(text for part in content if (text := str(part.get("text", ""))).strip())
    return str(content or "")


def _text(given: Given) -> str:
    content = given.body.get("content") or ""
    if isinstance(content, list):
        return "\n".join(
            part["text"]
            for part in content
            if isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"].strip()
        )
    return str(content)


def assert_no_silent_hole(held: Stored, found: Window) -> None:
    parts = found.manifest.parts
    loops = {part.loop: part for part in parts if part.kind == "loop"}
    older = next((part for part in parts if part.kind == "older"), None)
    folded = [part for part in parts if part.reason == "fold"]
    result = Counter(part.first for part in parts if part.kind == "message" and part not in folded)
    for source in held.sources:
        position = source.event.position
        loop = loops.get(source.loop or None)
        coarse = [part for part in (loop, older, *folded) if part is not None and part.level != "whole"]
        is_summed_up = any(_covers(part, position) for part in coarse)
        assert result[position] == 1 or (is_summed_up and result[position] == 0), (
            f"message {position} is told {result[position]} times; its loop is {loop}"
        )
    for part in parts:
        assert part.level == "whole" or part.kind == "loop" or part.reason, f"{part} is not whole and has no reason"
        assert part.kind != "message" or part.first == part.last or part in folded
        is_sent = part.kind == "message" and part.level in ("whole", "stub")
        assert not is_sent or not any(_covers(fold, part.first or 0) for fold in folded)
    assert 3 + sum(part.tokens for part in finest(parts)) == found.tokens
    assert found.manifest.totals == _totals(parts)
    is_line = any(
        "not shown here]" in content_of(message) for message in found.messages if message.get("role") == "user"
    )
    assert is_line == any(part.kind == "omission_notice" and part.reason == "left_out" for part in parts)
    # A loop that a step has left out is there all the same when all its messages are pinned, or not sent for another reason.
    shown = {
        position
        for part in parts
        if part.kind == "message" and part.first is not None and not _is_evicted(part, held)
        for position in range(part.first, (part.last or part.first) + 1)
    }
    pinned = {
        part.loop
        for part in parts
        if part.kind == "loop" and part.first is not None and part.last is not None
        if shown.issuperset(range(part.first, part.last + 1))
    }
    assert is_line == any(_is_evicted(part, held) for part in parts if part.kind != "loop" or part.loop not in pinned)


def finest(parts: tuple[WindowPart, ...]) -> list[WindowPart]:
    """Every part but those that are told again in a finer one, or within a coarser one."""
    loops = {part.loop: part for part in parts if part.kind == "loop"}
    return [
        part
        for part in parts
        if not (part.kind == "loop" and part.level == "whole")
        and not (part.kind == "message" and part.loop in loops and loops[part.loop].level != "whole")
    ]


def _totals(parts: tuple[WindowPart, ...]) -> dict[str, int]:
    totals = {"system": 0, "tools": 0, "summary": 0, "whole": 0, "digest": 0, "omission_notice": 0}
    totals |= {part.kind: 0 for part in parts if part.kind == "recalled"}
    for part in finest(parts):
        loop = next((item for item in parts if item.kind == "loop" and item.loop == part.loop), None)
        kind = {
            "older": "omission_notice",
            "message": "whole" if loop else "system",
            "block": "whole",  # no tokens: a word about what is not sent
            "loop": "whole" if part.level == "out" else part.level,
        }
        totals[kind.get(part.kind, part.kind)] += part.tokens
    return totals


LEFT_OUT = frozenset(
    ("turns", "messages", "tokens", "max_loops", "max_age", "no_reply", "budget", "digests_full", "whim")
)


def _is_evicted(part: WindowPart, held: Stored) -> bool:
    if part.kind == "message":
        # Of messages before the first loop there is no digest.
        reasons = LEFT_OUT | {"high_mark", "past_loop"} if part.loop is None else LEFT_OUT
        return part.level == "out" and part.reason in reasons
    return part.kind in ("loop", "older") and part.level == "out"


def _covers(loop: WindowPart, position: int) -> bool:
    return loop.first is not None and loop.last is not None and loop.first <= position <= loop.last


def assert_laws(held: Stored, wanted: Asked) -> None:
    result = built(held, wanted)
    assert_valid(result, wanted.format)
    assert_pairs_are_kept(held.history, wanted, result)
    assert_task_is_in(held, result)
    assert_no_silent_hole(held, result)
    assert recounted(result, wanted) <= result.tokens <= result.manifest.budget.tokens
