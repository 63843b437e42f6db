"""Breakpoints: valid where they stand, with nothing else changed, and good for what they are for: a cache finds what it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.windows.breakpoints import spent_on
from benchmarks.windows.provider import Spent
from tests.effort import examples, is_full
from tests.properties.building import AMPLE, PRESETS, TOOLS, Asked, Stored, request, stored
from tests.properties.histories import ROOT, SAMPLES, Body, Format, Given, History, disorderly, orderly_in
from tests.support.prefix_laws import built
from turnlog.cli.transcripts import Transcript, read_transcripts
from turnlog.linter.rules import lint
from turnlog.providers.cache_breakpoints import KINDS, MAX_BREAKPOINTS
from turnlog.windows import build as caching
from turnlog.windows.build import Window, build
from turnlog.windows.plan import MessageList

FORMATS: tuple[Format, ...] = ("anthropic", "bedrock_converse")
MARKS = {"anthropic": "cache_control", "bedrock_converse": "cachePoint"}
laws = settings(
    max_examples=examples(150),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
asked = st.builds(
    Asked,
    policy=st.sampled_from((*PRESETS, "turns(1)", "messages(5)")),
    budget=st.one_of(st.just(AMPLE), st.integers(200, 4000)),
    format=st.sampled_from(FORMATS),
    answer_open_calls=st.booleans(),
    system=st.sampled_from((None, "You are an agent.")),
    tools=st.sampled_from(((), TOOLS)),
)


def applied(held: Stored, wanted: Asked) -> Window:
    return build(MessageList(held.sources, held.total), replace(request(wanted, held.sources), apply_breakpoints=True))


def suggested(held: Stored, wanted: Asked) -> Window:
    return build(MessageList(held.sources, held.total), request(wanted, held.sources))


def without_marks(value: Any, format: Format) -> Any:
    """Without the marks, wherever they stand."""
    mark = MARKS[format]
    if isinstance(value, list):
        return [
            without_marks(item, format)
            for item in value
            if not (isinstance(item, dict) and set(item) == {"cachePoint"})
        ]
    if isinstance(value, dict):
        return {key: without_marks(item, format) for key, item in value.items() if key != mark}
    return value


def as_blocks(window: Window, format: Format) -> list[Any]:
    """Messages with every content as blocks, for a marked one is."""
    text = {"anthropic": lambda said: {"type": "text", "text": said}, "bedrock_converse": lambda said: {"text": said}}[
        format
    ]
    listed = [
        {
            **message,
            "content": [text(message["content"])] if isinstance(message["content"], str) else message["content"],
        }
        for message in window.messages
    ]
    system = [text(window.system)] if isinstance(window.system, str) else window.system
    return [without_marks(listed, format), without_marks(system, format), without_marks(window.tools, format)]


def marks_in(value: Any, format: Format) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from marks_in(item, format)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == MARKS[format]:
                yield item
            else:
                yield from marks_in(item, format)


def at(window: Window, pointer: str) -> Any:
    value: Any = {"messages": window.messages, "system": window.system, "tools": window.tools}
    for step in pointer.split("/")[1:]:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def assert_breakpoints(held: Stored, wanted: Asked) -> Window:
    plain, wanted = built(suggested, held, wanted)
    marked = applied(held, wanted)
    assert (marked.tokens, marked.manifest, marked.prefix) == (plain.tokens, plain.manifest, plain.prefix)
    assert marked.breakpoints == plain.breakpoints
    assert as_blocks(marked, wanted.format) == as_blocks(plain, wanted.format), "nothing but marks is added"
    items = list(marks_in([marked.messages, marked.system, marked.tools], wanted.format))
    own = list(marks_in([plain.messages, plain.tools], wanted.format))
    assert len(items) == min(MAX_BREAKPOINTS, len(own) + len(plain.breakpoints))
    assert len(plain.breakpoints) <= max(0, MAX_BREAKPOINTS - len(own))
    for item in marked.breakpoints:
        block = at(marked, item.pointer)
        assert item.form == KINDS[wanted.format].form
        assert item.form.items() <= block.items() if wanted.format == "anthropic" else block == item.form
    assert lint(marked.messages, format=wanted.format) == []
    assert lint(plain.messages, format=wanted.format) == []
    return marked


@laws
@given(disorderly(max_size=40), asked)
def test_W1_a_window_with_breakpoints_is_valid_and_else_the_same(history: History, wanted: Asked) -> None:
    with patch.object(caching, "MIN_TOKENS", 1):
        assert_breakpoints(stored(history), wanted)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("answer_open_calls", [True, False])
def test_W1_a_window_without_a_loop_is_valid(format: Format, answer_open_calls: bool) -> None:
    """Before the first user message there is a system message, or nothing."""
    for history in ([], [Given({"role": "system", "content": "Be brief."})]):
        with patch.object(caching, "MIN_TOKENS", 1):
            assert_breakpoints(
                stored(history), Asked(format=format, answer_open_calls=answer_open_calls, system="Be brief.")
            )


@pytest.mark.parametrize("format", FORMATS)
@settings(laws, max_examples=examples(100))
@given(st.data())
def test_W1_beside_marks_that_the_messages_have_themselves(format: Format, data: st.DataObject) -> None:
    history = data.draw(orderly_in(format))
    with patch.object(caching, "MIN_TOKENS", 1):
        held = stored([marked(item, data.draw(st.sampled_from((None, "5m", "1h")))) for item in history])
        assert_breakpoints(held, Asked(data.draw(st.sampled_from(PRESETS)), format=format, system="Be brief."))


def marked(given: Given, ttl: str | None) -> Given:
    """The message with a mark behind its last block."""
    body = dict(given.body)
    content = body.get("content")
    if ttl is None or not isinstance(content, list) or not content:
        return given
    *others, last = content
    if given.format == "bedrock_converse":
        return replace(given, body={**body, "content": [*content, {"cachePoint": {"type": "default", "ttl": ttl}}]})
    if not isinstance(last, dict) or last.get("type") not in ("text", "tool_use", "tool_result"):
        return given
    block: Body = {**last, "cache_control": {"type": "ephemeral", "ttl": ttl}}
    return replace(given, body={**body, "content": [*others, block]})


# ---------------------------------------------------------------- what they are for


@pytest.mark.parametrize(
    ("format", "policy", "budget"),
    [
        pytest.param("anthropic", "default", None, marks=pytest.mark.full),
        pytest.param("anthropic", "default", 8_000, marks=pytest.mark.full),
        ("anthropic", "run_loops", 8_000),
        pytest.param("bedrock_converse", "default", 8_000, marks=pytest.mark.full),
        pytest.param("bedrock_converse", "run_loops", 8_000, marks=pytest.mark.full),
    ],
)
def test_a_cache_finds_nearly_all_that_two_calls_share_and_the_docs_say_how_much(
    format: Format, policy: str, budget: int | None
) -> None:
    ours, result = Spent(), Spent()
    for transcript in read_transcripts([SAMPLES]):
        pair = spent_on(transcript, format=format, policy=policy, budget=budget)
        for total, spent in zip((ours, result), pair, strict=True):
            total.add(spent)
    assert ours.cost <= 1.06 * ours.ideal
    assert ours.cost <= result.cost
    figures = [f"{100 * part / ours.plain:.1f} %" for part in (ours.ideal, ours.cost, result.cost)]
    row = f"| `{format}`, `{policy}`, {f'{budget:,}' if budget else 'default'} | {' | '.join(figures)} |"
    assert row in (ROOT / "docs" / "reference" / "windows.md").read_text(encoding="utf-8")


def test_many_parallel_calls_do_not_lose_the_cache() -> None:
    """47 calls and their results are more blocks than a provider looks back: the old end has a breakpoint of its own."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "words and words " * 600}]
    for turn in range(4):
        ids = [f"call_{turn}_{number}" for number in range(47)]
        calls = [{"id": item, "type": "function", "function": {"name": "f", "arguments": "{}"}} for item in ids]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": item, "content": f"result of {item}"} for item in ids]
    messages.append({"role": "assistant", "content": "Done."})
    ours, plain = spent_on(Transcript("many", "test", messages), format="anthropic")
    assert ours.cost <= 1.01 * ours.ideal
    assert plain.cost > 1.5 * plain.ideal
