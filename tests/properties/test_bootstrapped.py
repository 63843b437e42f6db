"""The laws of windows for sessions that were begun with what memory knows, over histories with all the disorder of real ones, and
memories that say anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.building import COUNTER, Asked, Stored, as_bytes, recounted, stored, texts, window
from tests.properties.histories import FORMATS, Format, History, disorderly
from tests.support.window_laws import asked, assert_valid, built, laws
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.events import Envelope, MessageEvent
from turnlog.core.memory import Memory
from turnlog.log.reading import Located
from turnlog.memory.bootstrap import MAX_CHARS, memories_text
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import count_message

NOON = 1_763_683_200_000
MARKS = (
    "</turnlog-data>",
    "<turnlog-data kind='x'>",
    "<|im_start|>",
    "[INST]",
    "\n",
    "\u2028",
    "System:",
    "住在里斯本",
)
said = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=12)), min_size=1, max_size=8).map(" ".join)
memories = st.lists(st.builds(lambda text: Memory("m", text, NOON), said), min_size=1, max_size=4)


def begun(held: Stored, known: list[Memory]) -> Stored:
    """The same history in a session that was begun with memories: their message stands before the first."""
    body = {"role": "user", "content": memories_text(known)}
    tokens = count_message(CODECS["turnlog"].parse(body), COUNTER)
    event = MessageEvent(0, "turnlog", tokens, Envelope(pin=True, origin="memory"), body)
    flow = replace(held.flow, tokens=held.flow.tokens + tokens, messages=held.flow.messages + 1)
    return Stored(held.history, (Located(event, 0, 0), *held.sources), flow)


@pytest.mark.parametrize("format", FORMATS)
@laws
@given(disorderly(), asked, memories)
def test_windows_are_valid_within_the_budget_and_begin_with_it(
    format: Format, history: History, wanted: Asked, known: list[Memory]
) -> None:
    held, wanted = begun(stored(history), known), replace(wanted, format=format)
    try:
        outcome = window(held, wanted)
        assert recounted(outcome, wanted) <= outcome.tokens <= wanted.budget
    except BudgetTooSmallError:
        outcome = built(held, wanted)
    if format != "turnlog":
        assert_valid(outcome, format)
    result = memories_text(known)
    assert texts(outcome).count(result) == 1
    (part,) = [part for part in outcome.manifest.parts if part.kind == "message" and part.first == 0]
    assert (part.level, part.reason) == ("whole", "memory")
    assert as_bytes(built(held, wanted)) == as_bytes(outcome)


@laws
@given(disorderly(), asked, memories)
def test_all_else_is_as_in_a_session_that_was_not(history: History, wanted: Asked, known: list[Memory]) -> None:
    """With as much more of a budget as it takes, where nothing presses."""
    held, wanted = stored(history), replace(wanted, policy="full", budget=10_000_000, format="turnlog")
    plain, result = window(held, wanted), window(begun(held, known), wanted)
    if held.sources:
        rest = [message for message in result.messages if message.get("content") != memories_text(known)]
        left = [message for message in plain.messages if "nothing has been said" not in str(message.get("content"))]
        assert rest == left


@laws
@given(memories)
def test_nothing_that_a_memory_says_ends_its_line_or_the_fence(known: list[Memory]) -> None:
    text = memories_text(known)
    assert text.count("<turnlog-data") == text.count("</turnlog-data>") == 1
    assert text.startswith("<turnlog-data kind=") and text.endswith("\n</turnlog-data>")
    inside = text.splitlines()[1:-1]
    lines = [line for line in inside if line.startswith("- 2025-11-21: ")]
    assert len(lines) == len(known)
    assert len(inside) - len(lines) in (0, 1), "but for the label, which comes first"
    assert len(inside) == len(lines) or inside[0].endswith(("：", ":"))
    assert max(map(len, lines)) <= 2 * MAX_CHARS + 60
    for mark in ("<|", "|>", "[INST]"):
        assert mark not in text
