"""Large results without their middle: within the room, beginning and end as they were, and a mark that says what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import COUNTER, Asked, stored, window
from tests.properties.histories import Body, Format, Given
from turnlog import Turnlog
from turnlog.core.token_bounds import lower_bound_tokens, upper_bound_tokens
from turnlog.windows import stubs as large_results
from turnlog.windows.assembly import assemble
from turnlog.windows.plan import entry_of
from turnlog.windows.stubs import (
    LEAST_TOKENS,
    STRETCH_CHARS,
    LeastTokens,
    capped_tokens,
    cut_middle,
    cut_results,
    results_tokens,
    stub_overhead,
    stub_results,
)
from turnlog.windows.view import Entry, Unit, pinned

MARK = re.compile(
    r"\n\[\.\.\. (\d+) characters(?:, lines (\d+) to (\d+))? left out here; ref (\d+\.\d+) has the whole result \.\.\.\]\n"
)
LINES = "\n".join(f"line {number} of the log at /srv/app/{number}.py" for number in range(1, 400))
ROWS = json.dumps([{"id": number, "tags": ["a", "b"]} for number in range(400)], separators=(",", ":"))
WORDS = "the quick brown fox jumps over the lazy dog " * 120
LETTERS = "abcdefghij" * 500
CHINESE = "天地玄黄，宇宙洪荒。" * 300
TEXTS = {
    "lines": LINES,
    "rows": ROWS,
    "words": WORDS,
    "letters": LETTERS,
    "chinese": CHINESE,
    "words, then chinese": WORDS + CHINESE,
    "chinese, then words": CHINESE + WORDS,
    "chinese between words": WORDS + CHINESE + WORDS,
    "words between chinese": CHINESE + WORDS + CHINESE,
}
laws = settings(max_examples=examples(200), deadline=None, derandomize=not is_full())


def parts(text: str, shown: str) -> tuple[str, str, re.Match[str]]:
    """Return what stands before and behind the mark, which are the beginning and the end of the text, and the mark."""
    mark = MARK.search(shown)
    assert mark is not None
    head, tail = shown[: mark.start()], shown[mark.end() :]
    assert text.startswith(head) and text.endswith(tail)
    assert len(head) + len(tail) + int(mark[1]) == len(text)
    return head, tail, mark


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_fits_exactly_is_whole_and_with_a_token_less_it_is_cut(name: str) -> None:
    text = TEXTS[name]
    bound = upper_bound_tokens(text)
    assert cut_middle(text, bound, "3.0") == (text, bound)
    shown, tokens = cut_middle(text, bound - 1, "3.0")
    parts(text, shown)
    assert upper_bound_tokens(shown) == tokens <= bound - 1


@pytest.mark.parametrize("text", ["yes", *TEXTS.values()])
def test_a_text_that_fits_is_whole_however_many_tokens_its_message_takes(text: str) -> None:
    bound = upper_bound_tokens(text)
    room = max(bound, LEAST_TOKENS)
    assert large_results.cut_of_counted(text, room, "3.0", 2 * room) == (text, bound)


@laws
@given(st.sampled_from(sorted(TEXTS)), st.integers(60, 2_000))
def test_a_cut_text_has_room_and_says_what_is_missing(name: str, tokens: int) -> None:
    text = TEXTS[name]
    shown, bound = cut_middle(text, tokens, "12.1")
    assert upper_bound_tokens(shown) == bound <= tokens
    if shown == text:
        return
    head, tail, mark = parts(text, shown)
    assert mark[4] == "12.1"
    middle = text[len(head) : len(text) - len(tail)]
    if middle.count("\n") > 1:
        assert (int(mark[2]), int(mark[3])) == (head.count("\n") + 1, head.count("\n") + 1 + middle.count("\n"))
    else:
        assert mark[2] is None


@laws
@given(st.sampled_from(sorted(TEXTS)), st.integers(200, 900))
def test_most_of_the_room_is_used_and_more_of_it_by_the_beginning(name: str, tokens: int) -> None:
    text = TEXTS[name]
    shown, bound = cut_middle(text, tokens, "3.0")
    head, tail, _ = parts(text, shown)
    assert bound >= 0.45 * tokens
    assert len(head) >= len(tail) > 0


@laws
@given(st.integers(200, 2_000))
def test_lines_and_elements_stay_whole(tokens: int) -> None:
    head, tail, _ = parts(LINES, cut_middle(LINES, tokens, "3.0")[0])
    assert head.endswith("\n") and tail.startswith("line ")
    head, tail, _ = parts(ROWS, cut_middle(ROWS, tokens, "3.0")[0])
    assert head.endswith("},") and tail.startswith("{")


def test_without_room_for_any_of_it_there_is_the_mark_alone() -> None:
    shown, tokens = cut_middle(WORDS, 5, "3.0")
    assert MARK.fullmatch(shown)
    assert tokens == upper_bound_tokens(shown)


def test_two_lines_are_too_few_to_be_numbered() -> None:
    for text, numbered in (
        ("a " * 900 + "\n" + "b " * 900, False),
        ("a " * 600 + "\n" + "c " * 600 + "\n" + "b " * 600, True),
    ):
        mark = MARK.search(cut_middle(text, 100, "3.0")[0])
        assert mark is not None and (mark[2] is not None) == numbered


# ---------------------------------------------------------------- units


def unit_of(*results: str | list[Body]) -> Unit:
    """Return the unit of a message with a call for each result."""
    calls: list[Body] = [
        {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for number in range(len(results))
    ]
    history = [
        Given({"role": "user", "content": "go"}),
        Given({"role": "assistant", "content": None, "tool_calls": calls}),
        *(Given({"role": "tool", "tool_call_id": f"c{at}", "content": text}) for at, text in enumerate(results)),
    ]
    held = stored(history)
    view = assemble([entry_of(source) for source in held.sources], total=held.total)
    return view.loops[0].units[1]


def unit_of_one_message(texts: Sequence[str]) -> Unit:
    """Return the unit of a message of Anthropic's with a call for each result, which one message has."""
    ids = [f"c{number}" for number in range(len(texts))]
    calls: list[Body] = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in ids]
    results = zip(ids, texts, strict=True)
    blocks: list[Body] = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in results]
    said = [("user", "go"), ("assistant", calls), ("user", blocks)]
    held = stored([Given({"role": role, "content": content}, "anthropic") for role, content in said])
    return assemble([entry_of(source) for source in held.sources], total=held.total).loops[0].units[1]


def test_results_that_fit_exactly_stay_and_with_a_token_less_the_largest_is_cut() -> None:
    unit = unit_of(WORDS, "short", LINES)
    tokens = results_tokens(unit)
    assert tokens == unit.tokens - unit.entry.cost
    assert cut_results(unit, tokens) is unit
    assert capped_tokens(unit, tokens) == unit.tokens
    cut = cut_results(unit, tokens - 1)
    assert [stub.position for stub in cut.stubs] == [5], "the lines are the largest"
    assert cut.tokens < unit.tokens


@laws
@given(st.integers(450, 6_000))
def test_small_results_stay_whole_and_large_ones_share_what_is_left(room: int) -> None:
    unit = unit_of(WORDS, "short", LINES, "also short")
    cut = cut_results(unit, room)
    stubs = {stub.position: stub for stub in cut.stubs}
    assert not {4, 6} & set(stubs)
    costs = {entry.position: entry.cost for entry in unit.entries[1:]}
    sent = {position: stubs[position].tokens if position in stubs else cost for position, cost in costs.items()}
    assert sum(sent.values()) <= room or not stubs
    assert cut.tokens == unit.entry.cost + sum(sent.values())
    assert capped_tokens(unit, room) <= unit.entry.cost + room
    assert cut.tokens <= capped_tokens(unit, room)
    share = -(-(room - costs[4] - costs[6]) // 2)
    for position, stub in stubs.items():
        assert stub.tokens <= max(share, room - sum(costs.values()) + costs[position])
        ((_, text),) = stub.texts
        assert stub.tokens >= COUNTER.count(text) + 4


def test_a_result_gets_at_least_what_a_mark_is_worth() -> None:
    unit = unit_of(WORDS, LINES)
    assert capped_tokens(unit, 1) == unit.entry.cost + 2 * (LEAST_TOKENS + stub_overhead(""))
    small = unit_of("word " * 50)
    assert capped_tokens(small, 1) == small.tokens


@laws
@given(
    st.lists(st.sampled_from([*TEXTS.values(), "short", ""]), min_size=1, max_size=12),
    st.integers(1, 3_000),
    st.booleans(),
)
def test_cut_results_take_no_more_than_was_planned(texts: list[str], room: int, in_one_message: bool) -> None:
    unit = unit_of_one_message(texts) if in_one_message else unit_of(*texts)
    assert cut_results(unit, room).tokens <= capped_tokens(unit, room) <= max(unit.tokens, 1)


@pytest.mark.parametrize("format", ["anthropic", "openai_chat"])
def test_the_newest_result_is_sent_behind_a_step_with_many(format: Format) -> None:
    history = [Given({"role": "user", "content": "Check all orders."})]
    for step, count in enumerate([10] + [1] * 30):
        ids = [f"c{step}-{number}" for number in range(count)]
        text = "it has left the warehouse " * (60 if count > 1 else 5)
        if format == "anthropic":
            calls = [{"type": "tool_use", "id": call_id, "name": "find", "input": {}} for call_id in ids]
            results = [{"type": "tool_result", "tool_use_id": call_id, "content": text + call_id} for call_id in ids]
            history += [
                Given({"role": role, "content": blocks}, format)
                for role, blocks in (("assistant", calls), ("user", results))
            ]
        else:
            functions = [
                {"id": call_id, "type": "function", "function": {"name": "find", "arguments": "{}"}} for call_id in ids
            ]
            history += [Given({"role": "assistant", "content": None, "tool_calls": functions})]
            history += [Given({"role": "tool", "tool_call_id": call_id, "content": text + call_id}) for call_id in ids]
        held = stored(history)
        newest = held.sources[-1].event.position
        parts = window(held, Asked("default", 2_000, format=format)).manifest.parts
        assert any(part.first == newest and part.level in ("whole", "stub") for part in parts), step


@pytest.mark.parametrize(("calls", "words", "budget"), [(30, 500, 4_000), (60, 300, 8_000)])
def test_results_of_many_calls_at_once_share_the_room(calls: int, words: int, budget: int) -> None:
    """The model has seen none of them yet."""
    function = {"name": "get_order", "arguments": '{"id": "A-17"}'}
    called = [{"id": f"c{number}", "type": "function", "function": function} for number in range(calls)]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": WORDS[: 5 * words]} for call in called]
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        session.append({"role": "user", "content": "Check all my orders."})
        session.append({"role": "assistant", "content": None, "tool_calls": called})
        for first in range(0, calls, 25):
            session.append(*results[first : first + 25])
        window = session.context(budget=budget)
    assert sum(message["role"] == "tool" for message in window.messages) == calls
    assert 0.85 * budget <= window.tokens <= budget


@pytest.mark.parametrize("budget", [8_000, 1_000_000])
def test_a_window_looks_at_each_of_many_results_a_few_times(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, position = list[int](), Entry.position.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Entry, "position", property(lambda entry: seen.append(1) or position(entry)))
    counts = list[int]()
    for calls in (50, 400):
        function = {"name": "f", "arguments": "{}"}
        called = [{"id": f"c{number}", "type": "function", "function": function} for number in range(calls)]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in called]
        with Turnlog.open("memory://") as log:
            session = log.sessions.create("s")
            session.append({"role": "user", "content": "Go"}, {"role": "assistant", "tool_calls": called})
            session.extend(results)
            seen.clear()
            session.context(budget=budget)
        counts.append(len(seen))
    assert counts[1] < 12 * counts[0]


@pytest.mark.parametrize("share", [0.15, 0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_count_of_the_whole_lets_more_of_it_in_than_its_bound(name: str, share: float) -> None:
    unit = unit_of(TEXTS[name])
    room = int(results_tokens(unit) * share)
    cut = cut_results(unit, room)
    ((_, shown),) = cut.stubs[0].texts
    parts(TEXTS[name], shown)
    assert COUNTER.count(shown) + 4 <= cut.stubs[0].tokens <= room
    assert cut.stubs[0].reason == "large_result"
    bounded, _ = cut_middle(TEXTS[name], room - (cut.stubs[0].tokens - upper_bound_tokens(shown)), "2.0")
    assert len(shown) >= 0.9 * len(bounded)


@pytest.mark.parametrize("words", [5, 2_000])
def test_a_cut_result_names_the_images_and_files_that_it_has_lost(words: int) -> None:
    """A picture counts more than its text: the text may fit where the picture does not."""
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 40_000}"}}
    file = {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{'A' * 40_000}", "filename": "a.pdf"}}
    unit = unit_of([{"type": "text", "text": "word " * words}, image, file])
    room = 500
    cut = cut_results(unit, room)
    ((ref, text),) = cut.stubs[-1].texts
    assert text.endswith(f"\n[image, file left out here; ref {ref} has the whole result]")
    assert text.startswith("word " * 5)
    assert cut.stubs[-1].tokens >= COUNTER.count(text) + 4
    assert results_tokens(unit) > room >= sum(stub.tokens for stub in cut.stubs)


def test_pinned_results_and_stubs_are_not_cut() -> None:
    unit = unit_of(WORDS, LINES)
    assert results_tokens(pinned(unit)) == 0
    assert cut_results(pinned(unit), 10) == pinned(unit)
    stubs = stub_results(unit, "stub", whole={4})
    assert [stub.position for stub in stubs.stubs] == [3]
    assert results_tokens(stubs) == unit.entries[2].cost
    assert [stub.position for stub in cut_results(stubs, 300).stubs] == [3, 4]


@laws
@given(
    st.lists(
        st.sampled_from(["a ", "b12\n", "天地", "it's ", "-- ", "...", "x" * 900, " ", "\r\n", "é "]), max_size=60
    ),
    st.lists(st.integers(0, 1_000_000), min_size=2, max_size=2),
)
def test_the_least_tokens_of_a_part_are_those_that_counting_it_gives(pieces: list[str], places: list[int]) -> None:
    text = "".join(pieces)
    borders = [match.start() for match in re.finditer(r"(?<=[A-Za-z0-9])(?=[ \t\r\n])", text)] or [0]
    start, end = sorted(borders[place % len(borders)] for place in places)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(large_results, "STRETCH_CHARS", 25)
        assert LeastTokens(text).between(start, end) == lower_bound_tokens(text[start:end])


def test_a_cut_looks_at_the_whole_of_a_large_result_once_for_each_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, count = list[int](), lower_bound_tokens

    def counted(text: str) -> int:
        seen.append(len(text))
        return count(text)

    monkeypatch.setattr(large_results, "lower_bound_tokens", counted)
    text = "\n".join(f"line {number} of another log" for number in range(40_000))
    cut_results(unit_of(text), 2_000)
    assert sum(seen) < 1.3 * len(text) + 40 * STRETCH_CHARS
