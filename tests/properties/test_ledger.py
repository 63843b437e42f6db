"""The value ledger: what stood in the calls and results of a digested loop is in the window, verbatim."""

from __future__ import annotations

import json
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from turnlog import build_window
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.windows.digests import Tally, note_text
from turnlog.windows.ledger import chosen
from turnlog.windows.view import Note

some = settings(
    max_examples=examples(150), derandomize=not is_full(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
identifiers = st.from_regex(
    r"[A-Z]{2,4}-[0-9]{3,6}|[a-z]{3,8}[0-9]{2}@[a-z]{3,6}\.[a-z]{2,3}|/[a-z]{2,6}/[a-z0-9]{2,8}", fullmatch=True
)
scalars = st.one_of(identifiers, st.integers(10, 10**9), st.floats(1, 1e6, allow_nan=False).map(lambda x: round(x, 2)))
objects = st.dictionaries(st.sampled_from("abcdefg"), scalars, min_size=1, max_size=5)


def history(loops: list[tuple[dict[str, object], dict[str, object], bool]]) -> list[dict[str, object]]:
    messages = list[dict[str, object]]()
    for at, (arguments, result, is_error) in enumerate(loops):
        call = {"id": f"call{at}", "type": "function", "function": {"name": "act", "arguments": json.dumps(arguments)}}
        content = ("[error] " if is_error else "") + json.dumps(result)
        messages += [
            {"role": "user", "content": "please go on"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call{at}", "content": content},
            {"role": "assistant", "content": "done"},
        ]
    return [*messages, {"role": "user", "content": "and now?"}]


def leaves(value: dict[str, object]) -> set[str]:
    return {item if isinstance(item, str) else json.dumps(item) for item in value.values()}


@some
@given(st.lists(st.tuples(objects, objects, st.booleans()), min_size=1, max_size=10))
def test_every_scalar_of_a_digested_loop_is_in_the_window(
    loops: list[tuple[dict[str, object], dict[str, object], bool]],
) -> None:
    window = build_window(history(loops), policy="run_loops")
    text = "\n".join(str(message["content"]) for message in window.messages)
    for arguments, result, is_error in loops:
        for value in leaves(arguments) | (leaves(result) if not is_error else set()):
            assert re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text.replace('\\"', '"')), value
    assert text.count("<turnlog-data kind='notes on exchange") == len(loops)


@some
@given(st.lists(st.tuples(objects, objects), min_size=2, max_size=8))
def test_a_value_is_said_once(loops: list[tuple[dict[str, object], dict[str, object]]]) -> None:
    given = [(arguments, result, False) for arguments, result in loops]
    window = build_window(history([*given, *given]), policy={"steps": [{"step": "loops", "max": None}]})
    said = [
        value
        for message in window.messages
        for line in str(message["content"]).splitlines()
        if line.startswith("values: ")
        for value in line.removeprefix("values: ").split(", ")
    ]
    assert len(said) == len(set(said))


notes = st.builds(
    lambda lines, values: Note(
        "notes", tuple(lines), tuple(dict.fromkeys(values)), upper_bound_tokens("\n".join(lines)) + 40
    ),
    st.lists(st.text("ab 1", max_size=8), max_size=3),
    st.lists(st.sampled_from([f"V-{at}" for at in range(9)]), max_size=6),
)


@some
@given(st.lists(notes, max_size=8), st.randoms(use_true_random=False))
def test_a_tally_is_what_its_notes_take_and_others_have_a_cost_alone(given: list[Note], random: object) -> None:
    tally, total, kept = Tally(), 0, list[Note]()
    for note in given:
        cost = tally.cost(note)
        assert cost >= note.fixed
        if random.random() < 0.6:  # type: ignore[attr-defined]
            kept.append(note)
            total += tally.add(note)
            assert total == Tally().add(*kept) == Tally().add(*kept[:-1]) + cost


def test_a_value_of_an_earlier_note_is_left_out_and_content_can_not_close_the_fence() -> None:
    note = Note("notes", ("3.0 f </turnlog-data>",), ("A-1", "B-2"), 0)
    text = note_text(note, ["A-1"])
    assert text == "<turnlog-data kind='notes'>\n3.0 f <\\/turnlog-data>\nvalues: B-2\n</turnlog-data>"


def test_where_there_is_no_room_for_all_identifiers_stay_before_other_values() -> None:
    values = ["yes", "12", "order-A-3417", "blue", "ada@example.org", "99"]
    assert chosen(values, 6) == values
    assert chosen(values, 2) == ["order-A-3417", "ada@example.org"]
    assert chosen(values, 4) == ["yes", "12", "order-A-3417", "ada@example.org"]
