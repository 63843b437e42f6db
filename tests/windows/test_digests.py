"""The digest of a past loop: what was asked and replied, cut; a line for each call; values; and what it takes at the most."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.properties.building import COUNTER, Stored, out_of_line, stored
from tests.properties.histories import Body, Given
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.assembly import assemble
from turnlog.windows.digests import MAX_LINES, Tally, digest, digest_pieces, note_text, steps_note
from turnlog.windows.plan import entry_of
from turnlog.windows.prices import bare_tokens
from turnlog.windows.render import placed_turns
from turnlog.windows.view import Loop, Note


def said(role: str, content: str, **extra: object) -> Given:
    return Given({"role": role, "content": content, **extra})


def calling(name: str, arguments: str, *, count: int = 1) -> Given:
    calls: list[Body] = [
        {"id": f"{name}{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number in range(count)
    ]
    return Given({"role": "assistant", "content": None, "tool_calls": calls})


def result(call_id: str, content: str) -> Given:
    return Given({"role": "tool", "tool_call_id": call_id, "content": content})


def loop_of(*history: Given, cards: bool = False) -> Loop:
    held: Stored = stored(history)
    held = out_of_line(held) if cards else held
    view = assemble([entry_of(source) for source in held.sources], total=held.total)
    (loop,) = view.loops
    return loop


def note_of(*history: Given, ledger: int = 100) -> Note:
    (note,) = digest(loop_of(*history), "past_loop", ledger=ledger).notes
    return note


def lines(*history: Given) -> list[str]:
    return list(note_of(*history).lines)


DONE = said("assistant", "done")


@pytest.mark.parametrize(("chars", "shown"), [(120, "y" * 120), (121, "y" * 120 + "...")])
def test_a_line_has_the_call_with_its_ref_and_the_beginning_of_its_arguments(chars: int, shown: str) -> None:
    history = [said("user", "go"), calling("f", "y" * chars), result("f0", "ok"), DONE]
    assert lines(*history) == [f"2.0 f {shown}"]


@pytest.mark.parametrize(("chars", "shown"), [(64, "n" * 64), (65, "n" * 64 + "...")])
def test_a_long_name_is_cut(chars: int, shown: str) -> None:
    history = [said("user", "go"), calling("n" * chars, "{}"), result("n" * chars + "0", "ok"), DONE]
    assert lines(*history) == [f"2.0 {shown} {{}}"]


@pytest.mark.parametrize(("chars", "shown"), [(120, "z" * 120), (121, "z" * 120 + "...")])
def test_a_failed_call_is_told_with_the_beginning_of_its_error(chars: int, shown: str) -> None:
    failed = Given(
        {"role": "tool", "tool_results": [{"tool_call_id": "f0", "result": "z" * chars, "is_error": True}]}, "turnlog"
    )
    history = [said("user", "go"), calling("f", "{}"), failed, DONE]
    assert lines(*history) == [f"2.0 f {{}} -> error: {shown}"]


def test_a_call_without_a_result_is_told_so() -> None:
    history = [said("user", "go"), calling("f", "{}"), said("assistant", "well?"), said("assistant", "done")]
    assert lines(*history) == ["2.0 f {} -> no result"]


def test_spaces_and_newlines_of_arguments_become_a_space() -> None:
    history = [said("user", "go"), calling("f", ' {\n\t"q" :  1}'), result("f0", "ok"), DONE]
    assert lines(*history) == ['2.0 f { "q" : 1}']


@pytest.mark.parametrize(("count", "earlier"), [(20, 0), (21, 1), (45, 25)])
def test_the_newest_twenty_calls_have_a_line_and_the_number_of_the_others(count: int, earlier: int) -> None:
    results = [result(f"f{number}", "ok") for number in range(count)]
    outcome = lines(said("user", "go"), calling("f", "{}", count=count), *results, DONE)
    newest = [f"2.{number} f {{}}" for number in range(earlier, count)]
    assert outcome == ([f"({earlier} earlier calls)"] if earlier else []) + newest


def test_a_loop_without_a_final_reply_says_so_behind_its_calls() -> None:
    history = [said("user", "go"), calling("f", "{}"), result("f0", "ok")]
    assert lines(*history) == ["2.0 f {}", "(interrupted: no final reply)"]
    assert lines(*history, DONE) == ["2.0 f {}"]
    assert digest(loop_of(said("user", "go")), "past_loop").notes == (), "without calls there is nothing to note"


def test_values_that_the_texts_have_already_are_not_repeated() -> None:
    history = [
        said("user", "Where is A-1001?"),
        calling("f", '{"order": "A-1001"}'),
        result("f0", '["B-2002", "A-1001"]'),
    ]
    assert note_of(*history, said("assistant", "At C-3003.")).values == ("B-2002",)
    assert note_of(*history, said("assistant", "It is B-2002.")).values == ()


def test_a_ref_says_no_value() -> None:
    """Turnlog adds the refs of calls: a value that is written like one is listed all the same."""
    history = [said("user", "go"), calling("f", "{}"), result("f0", "[2.0, 20]"), DONE]
    assert note_of(*history).values == ("2.0", "20")


@pytest.mark.parametrize("ledger", [0, 1, 2, 3, 4])
def test_at_most_as_many_values_as_the_step_allows(ledger: int) -> None:
    history = [said("user", "go"), calling("f", "{}"), result("f0", '["plain", "A-1001", "B-2002"]'), DONE]
    assert len(note_of(*history, ledger=ledger).values) == min(3, ledger)
    assert note_of(*history, ledger=2).values == ("A-1001", "B-2002"), "identifiers before other values"


def test_what_a_call_took_as_an_argument_comes_before_what_results_list() -> None:
    listed = json.dumps([f"A-{number}" for number in range(50)])
    written = calling("write", json.dumps({"text": "x " * 100, "file": "docs/plan.md"}))
    history = [
        said("user", "go"),
        calling("list", "{}"),
        result("list0", listed),
        written,
        result("write0", "ok"),
        DONE,
    ]
    values = note_of(*history, ledger=10).values
    assert values[0] == "docs/plan.md" and values[1:] == tuple(f"A-{number}" for number in range(9))


@pytest.mark.parametrize("cards", [False, True])
@pytest.mark.parametrize("limit", [1, 499, 500, 501])
def test_long_texts_are_cut_and_charged_with_at_least_what_they_take(limit: int, cards: bool) -> None:
    text = "The quick brown fox. " * 24
    assert len(text) == 504
    loop = loop_of(said("user", text, name="ada"), said("assistant", text[:500]), cards=cards)
    short = digest(loop, "past_loop", limit)
    asked, replied = digest_pieces(short)
    cut = text[:limit] + f"...[truncated {504 - limit} characters]"
    assert asked.tokens >= COUNTER.count(cut) + COUNTER.count("ada") + MESSAGE_OVERHEAD
    assert asked.tokens <= 2 * COUNTER.count(cut) + 20
    assert replied.tokens >= COUNTER.count(text[: min(limit, 500)]) + MESSAGE_OVERHEAD
    assert bare_tokens(short) == asked.tokens + replied.tokens
    assert {asked.limit, replied.limit} == {limit}


def test_a_text_as_long_as_the_limit_costs_what_was_counted() -> None:
    loop = loop_of(said("user", "a b c d"), said("assistant", "e f g h i"))
    short = digest(loop, "past_loop", 7)
    assert digest_pieces(short)[0].tokens == loop.units[0].entry.cost
    assert digest_pieces(short)[1].tokens > loop.units[1].entry.cost, "with the mark of what is cut"


def test_a_note_counts_its_text_and_each_value_that_no_note_before_it_has() -> None:
    history = [said("user", "go"), calling("f", '{"a": "A-1001"}'), result("f0", '["B-2002"]'), DONE]
    first, second = note_of(*history), note_of(*history)
    tally = Tally()
    alone = tally.add(first)
    assert alone >= COUNTER.count(note_text(first, [])) + MESSAGE_OVERHEAD
    assert tally.cost(second) == tally.add(second) == second.fixed, "its values are said already"
    assert Tally().add(first, second) == alone + second.fixed


@pytest.mark.parametrize(
    ("steps", "text"), [(1, "(1 earlier step)"), (2, "(2 earlier steps)"), (3, "(3 earlier steps)")]
)
def test_steps_of_which_nothing_is_told_are_counted(steps: int, text: str) -> None:
    loop = loop_of(said("user", "go"), *(said("assistant", "on it") for _ in range(steps)))
    note = steps_note(loop.units[1:], "earlier steps", "", 0, 0, 0)
    assert note.lines == (text,)
    assert note.fixed >= COUNTER.count(note_text(note, [])) + MESSAGE_OVERHEAD


def test_steps_are_told_with_the_beginnings_of_their_results_and_texts() -> None:
    history = [
        said("user", "go"),
        calling("f", "{}"),
        result("f0", "it is done now"),
        said("assistant", "I look further"),
    ]
    note = steps_note(loop_of(*history).units[1:], "earlier steps", "", 0, MAX_LINES, 7)
    assert note.lines == ("2.0 f {} -> it is d...", "4 said: I look ...")
    short = steps_note(loop_of(*history).units[1:], "earlier steps", "", 0, MAX_LINES, 20)
    assert short.lines == ("2.0 f {} -> it is done now", "4 said: I look further")
    none = steps_note(loop_of(*history).units[1:], "earlier steps", "", 0, MAX_LINES, 0)
    assert none.lines == ("2.0 f {}",)


def test_arguments_as_json_are_one_line() -> None:
    text = json.dumps({"q": "a", "n": 1}, indent=2)
    assert lines(said("user", "go"), calling("f", text), result("f0", "ok"), DONE) == ['2.0 f { "q": "a", "n": 1 }']


def test_a_short_message_with_a_card_is_the_same_in_a_digest_whether_its_body_was_read_or_not() -> None:
    """A plan may read it, and then find that it does not fit."""
    held = stored([Given({"role": "user", "content": [{"type": "text", "text": text} for text in ("one", "two")]})])
    (whole,), (card,) = held.sources, out_of_line(held).sources
    made = list[tuple[int, object]]()
    for event in (card.event, replace(card.event, body=whole.event.body)):
        view = assemble([entry_of(replace(card, event=event))], total=held.total)
        view = replace(view, loops=tuple(digest(loop, "max_loops") for loop in view.loops))
        (piece,), (placed,) = digest_pieces(view.loops[0]), placed_turns(view, CODECS["openai_chat"])
        made.append((piece.tokens, CODECS["openai_chat"].bodies(placed.turn)))
    assert made[0] == made[1] and made[0][1] == [{"role": "user", "content": "one\ntwo"}]
