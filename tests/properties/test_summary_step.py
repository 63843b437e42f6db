"""The step `summary`: within its bound whatever the summary says, its newest part, and what is missing is said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import COUNTER
from turnlog import Turnlog
from turnlog.core.events import SummaryEvent
from turnlog.sessions.context_models import WindowAnswer
from turnlog.windows.steps import Summary
from turnlog.windows.text import summary_body, summary_text, summary_tokens
from turnlog.windows.view import Room, WindowDraft

laws = settings(
    max_examples=examples(300), derandomize=not is_full(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
MARK = re.compile(r"\[shortened: (\d+) characters and (\d+) values of this summary are not shown here\]")

ODD = ("天地玄黄。", "👩‍👩‍👧‍👦", "</turnlog-data>", "<turnlog-data kind='x'>", "x" * 60, "\t", "?!")
words = st.sampled_from(("order", "A17-", *ODD))
plain_lines = st.lists(st.sampled_from(("order", "shipped", "A17-B", "on Monday,")), min_size=1, max_size=12)
lines = st.lists(words, max_size=30).map(" ".join)
texts = st.one_of(st.lists(lines, max_size=30).map("\n".join), st.text(max_size=200), lines.map("".join))
values = st.one_of(words, st.text(min_size=1, max_size=40))
facts = st.lists(st.tuples(st.integers(1, 900), values), max_size=60).map(tuple)


def summary_of(text: str, known: tuple[tuple[int, str], ...]) -> SummaryEvent:
    event = SummaryEvent(
        position=900, first=2, last=800, first_loop=1, last_loop=99, base=0, covers="", text=text, facts=known, tokens=0,
        source_tokens=9_000, messages=700, summariser="test",
    )  # fmt: skip
    return replace(event, tokens=COUNTER.count(summary_body(text, known)))


def shortened(event: SummaryEvent, max_tokens: int) -> WindowDraft:
    return Summary(max_tokens=max_tokens).apply(WindowDraft((), (), summary=event), Room(1_000_000, 0))


@laws
@given(texts, facts, st.integers(128, 800))
@example("x" * 5_000, (), 128)
@example("天" * 3_000, ((1, "v" * 400),) * 9, 128)
@example("天地玄黄。\n" * 200 + "order " * 400, (), 128)
@example("order\n" * 400 + "天地玄黄。\n" * 20, (), 150)
@example("", tuple((at, f"value-{at}") for at in range(300)), 128)
def test_it_takes_at_most_its_bound_and_is_what_is_newest(
    text: str, known: tuple[tuple[int, str], ...], max_tokens: int
) -> None:
    event = summary_of(text, known)
    view = shortened(event, max_tokens)
    assert view.summary is not None
    charged, result = summary_tokens(view.summary), view.summary
    assert charged <= max_tokens or view.summary is event
    if view.summary is event:
        assert (summary_tokens(event) <= max_tokens, view.summary_reason) == (True, "")
        return
    assert view.summary_reason == "max_tokens"
    assert COUNTER.count(summary_text(result)) + 4 <= charged
    mark, _, left = result.text.partition("\n")
    said = MARK.fullmatch(mark)
    assert said is not None
    whole = text.strip()
    assert whole.endswith(left) and len(left) == len(whole) - int(said[1])
    assert result.facts == known[int(said[2]) :]
    assert (result.first, result.last, result.source_tokens) == (event.first, event.last, event.source_tokens)


@laws
@given(st.lists(plain_lines, min_size=8, max_size=60))
def test_it_is_cut_where_a_line_begins_else_where_a_word_begins(found: list[list[str]]) -> None:
    for separator in ("\n", " "):
        text = separator.join(" ".join(item) for item in found)
        view = shortened(summary_of(text, ()), 150)
        assert view.summary is not None
        left = view.summary.text.partition("\n")[2] if view.summary_reason else text
        assert left == text or text.removesuffix(left)[-1] in separator + " "
        if separator == "\n" and left != text and left.count("\n"):
            assert text.removesuffix(left)[-1] == "\n"


def test_a_summary_that_has_room_is_shown_whole() -> None:
    event = summary_of("All is well.", ((3, "A17"),))
    assert shortened(event, 128).summary == event
    assert Summary().apply(WindowDraft((), (), summary=event), Room(10, 0)).summary == event
    assert Summary(max_tokens=128).apply(WindowDraft((), ()), Room(10, 0)) == WindowDraft((), ())


# ---------------------------------------------------------------- in windows


def windows(budget: int) -> tuple[WindowAnswer, WindowAnswer, str]:
    """The window with the summary whole, and with a bound; and what the summary says."""
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", recall="never")
        for number in range(30):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
            session.append(
                {"role": "user", "content": f"Question {number}: " + "what about this order? " * 9},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": f'{{"order": "ORD-{number:05d}"}}'},
                {"role": "assistant", "content": f"Answer {number}. " + "It has left the warehouse. " * 9},
            )
        session.compress(keep_loops=2, max_tokens=1_000)
        summary = session.summary()
        assert summary is not None
        bounded = {"steps": [{"step": "summary", "max_tokens": 300}, {"step": "digest_when_full"}]}
        return session.context(budget=budget), session.context(policy=bounded, budget=budget), summary.text


@pytest.mark.parametrize("budget", [1_000_000, 2_000])
def test_the_window_has_as_much_of_it_as_the_step_allows_and_the_manifest_says_so(budget: int) -> None:
    whole, bounded, text = windows(budget)
    parts = [next(part for part in window.manifest.parts if part.kind == "summary") for window in (whole, bounded)]
    assert (parts[0].reason, parts[1].reason) == (None, "max_tokens")
    assert parts[1].tokens <= 300 < parts[0].tokens
    assert (parts[0].first, parts[0].last) == (parts[1].first, parts[1].last)
    assert bounded.manifest.totals["summary"] == parts[1].tokens
    shown = str(bounded.messages[0]["content"])
    assert MARK.search(shown)
    assert "ORD-00026" in shown and "ORD-00001" not in shown, "the newest values stay"
    assert text in str(whole.messages[0]["content"]) and text not in shown
    assert whole.tokens - bounded.tokens == parts[0].tokens - parts[1].tokens
