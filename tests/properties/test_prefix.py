"""The prefix that a window names is one: both windows are built and rendered, and compared as bytes.

Never more is named than is really there, in no format; and it is named as broken exactly where it is, with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import (
    AMPLE,
    COUNTER,
    PRESETS,
    TOOLS,
    Asked,
    Stored,
    first,
    stored,
    window,
    window_by_cards,
)
from tests.properties.histories import FORMATS, Body, History, disorderly, orderly, orderly_in, sample_histories
from tests.properties.own_steps import Whim, registered
from tests.properties.pipelines import STEPS, pipelines
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.json_values import encode_json
from turnlog.core.window_parts import BreakReason
from turnlog.providers.alternation import CONTINUE
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import count_message, count_tools
from turnlog.windows.build import Window, system_cost

REASONS = frozenset(get_args(BreakReason))
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
)
Build = Callable[[Stored, Asked], Window]


@dataclass(frozen=True)
class Blocks:
    """A window's messages as a provider's cache sees them: one block after the other, each with what stands around it."""

    messages: Sequence[Body]

    def flat(self) -> list[tuple[int, bytes, bytes]]:
        """(message, what is in it besides its content, block)."""
        found = list[tuple[int, bytes, bytes]]()
        for at, message in enumerate(self.messages):
            content = message.get("content")
            around = encode_json({**message, "content": isinstance(content, list)})
            blocks = content if isinstance(content, list) else [content]
            found += [(at, around, encode_json(block)) for block in blocks]
        return found

    def beginning(self, blocks: int) -> Iterator[Body]:
        """The messages cut behind so many blocks."""
        for message in self.messages:
            content = message.get("content")
            size = len(content) if isinstance(content, list) else 1
            if blocks <= 0:
                return
            yield (
                message if size <= blocks or not isinstance(content, list) else {**message, "content": content[:blocks]}
            )
            blocks -= size


@dataclass(frozen=True)
class Real:
    """What two windows really have in common, in tokens, and whether that is all of the earlier one."""

    tokens: int
    is_whole: bool

    @classmethod
    def of(cls, old: Window, new: Window, wanted: Asked) -> Real:
        codec, tokens = CODECS[wanted.format], count_tools(new.tools, COUNTER)
        if old.tools != new.tools:
            return cls(0, is_whole=False)
        if old.system != new.system:
            return cls(tokens, is_whole=False)
        tokens += system_cost(COUNTER.count(new.system)) if isinstance(new.system, str) else 0
        before = Blocks(without_frame(old.messages, wanted)).flat()
        pairs = zip(before, Blocks(new.messages).flat(), strict=False)
        shared = next(
            (at for at, (one, other) in enumerate(pairs) if one != other),
            min(len(before), len(Blocks(new.messages).flat())),
        )
        tokens += sum(count_message(codec.parse(one), COUNTER) for one in Blocks(new.messages).beginning(shared))
        return cls(tokens, shared == len(before))


def without_frame(messages: Sequence[Body], wanted: Asked) -> Sequence[Body]:
    """Without the neutral line that some formats demand behind an assistant message."""
    is_framed = (
        wanted.format in ("anthropic", "bedrock_converse") and len(messages) > 1 and CONTINUE in str(messages[-1])
    )
    return messages[:-1] if is_framed and messages[-2]["role"] == "assistant" else messages


def before_the_answer(history: History) -> int | None:
    """How many messages there were when the newest assistant message was asked for; the items of one answer are one."""
    roles = [CODECS[one.format].parse(one.body).role for one in history]
    at = next((at for at in range(len(roles) - 1, -1, -1) if roles[at] == "assistant"), None)
    while at and history[at].format == history[at - 1].format == "openai_responses" and roles[at - 1] == "assistant":
        at -= 1
    return at


def built(build: Build, held: Stored, wanted: Asked) -> tuple[Window, Asked]:
    """The window, with more budget where none fits."""
    for _ in range(3):
        try:
            return build(held, wanted), wanted
        except BudgetTooSmallError as error:
            wanted = replace(wanted, budget=int(error.details["needed"]))
    raise AssertionError("what is needed is never enough")


def assert_prefix(held: Stored, wanted: Asked, build: Build = window, *, exact: bool = True) -> Window:
    """``exact``: all bodies are at hand, so nothing has to be assumed as broken."""
    now, wanted = built(build, held, wanted)
    found, count = now.prefix, before_the_answer(held.history)
    assert found.reason is None or found.reason in REASONS
    assert (found.reason is None) <= (found.broke_at is None)
    if count is None:
        assert (found.stable_tokens, found.broke_at, found.reason) == (0, None, "first")
        return now
    try:
        then = build(first(held, count), wanted)
    except BudgetTooSmallError:
        return now
    real = Real.of(then, now, wanted)
    assert found.stable_tokens <= real.tokens
    if found.reason is None:
        assert real.is_whole, f"{found} of {real}"
    return now


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
    found = assert_prefix(stored(history), Asked("default", budget, format)).prefix
    assert found.reason in (None, "first", "crossing", "budget", "large_result")
    found = assert_prefix(stored(history), Asked("default", format=format)).prefix
    assert found.reason in (None, "first")


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


@pytest.mark.parametrize(("name", "history"), [pytest.param(*one, id=one[0]) for one in sample_histories()])
def test_W6_holds_along_the_projects_own_conversations(name: str, history: History) -> None:
    for at, wanted in enumerate(REAL_ASKED):
        assert_at_every_call(stored(history), wanted, step=max(4, len(history) // 12), start=at)


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
