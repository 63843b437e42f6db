"""An event is read as it was stored, whatever it has; and a card tells the facts of its message, shortened."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from turnlog.core import events
from turnlog.core.calls import CARD_CHARS, CallOutline, MessageOutline, ResultOutline
from turnlog.core.json_values import encode_json
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import Branch
from turnlog.log.lines import ENVELOPE, encode_line, payload_content, redacted_message, stored_line
from turnlog.log.payloads import MAX_CARD_BYTES, make_card, read_card, shortened
from turnlog.log.read_lines import payload_of, read_event

TEXT = st.text(max_size=9)
NAME, POSITION = st.sampled_from(["a", "b c", "é"]), st.integers(1, 10**12)
JSON = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT, max_size=2), max_size=3)
PAIR = st.tuples(POSITION, POSITION)
STRETCHES = st.lists(PAIR, max_size=3).map(tuple)
NAMES = st.lists(NAME, max_size=3).map(tuple)
SETTINGS = st.builds(
    SessionSettings,
    title=st.none() | TEXT,
    system=st.none() | TEXT,
    strict=st.booleans(),
    ttl_days=st.none() | st.integers(1, 9),
    model=st.none() | NAME,
    system_tokens=st.integers(0, 9),
    tools_tokens=st.integers(0, 9),
    tools=st.lists(JSON, max_size=2).map(tuple),
    output_reserve=st.none() | st.integers(0, 9),
    policy=NAME | JSON,
    metadata=st.none() | JSON,
    recall=st.sampled_from(["auto", "always", "never"]),
    loop_timeout_seconds=st.integers(1, 9),
    state_schema=st.none() | JSON,
    reset_of=st.none() | NAME,
    inactive_after_minutes=st.none() | st.integers(1, 9),
    forked_from=st.none() | NAME,
    forked_at=st.none() | POSITION,
    snapshots=st.none() | JSON,
    bootstrap=st.none() | JSON,
)
NOTES = st.builds(
    lambda warnings, usage, window: events.Notes(warnings, usage, *(window or (None, None))),
    st.lists(st.tuples(NAME, POSITION, TEXT), max_size=2).map(tuple),
    st.none() | PAIR,
    st.none() | st.tuples(PAIR, st.none() | NAME),
).filter(lambda notes: notes != events.Notes())
"""An epoch comes with the window that it is of."""
ENVELOPES = st.builds(
    events.Envelope,
    id=st.none() | TEXT,
    status=st.sampled_from(["complete", "partial", "interrupted"]),
    pin=st.booleans(),
    author=st.none() | TEXT,
    created_at=st.none() | TEXT,
    metadata=st.none() | JSON,
    finish_reason=st.none() | TEXT,
    is_error=st.none() | st.booleans(),
    origin=st.none() | st.just("memory"),
)
MESSAGES = st.builds(
    events.MessageEvent,
    POSITION,
    NAME,
    st.integers(0, 10**6),
    ENVELOPES,
    JSON,
    opens_loop=st.integers(0, 3),
    head_tokens=st.none() | st.integers(0, 9),
    notes=st.none() | NOTES,
    recall=st.none() | st.builds(events.Recall, NAMES, st.lists(NAME | POSITION, max_size=3).map(tuple)),
)
STATES = st.builds(
    events.StateEvent,
    POSITION,
    NAME,
    st.none() | JSON | st.lists(JSON, max_size=2),
    POSITION,
    POSITION,
    agent_id=st.none() | NAME,
    full=st.none() | JSON,
    keys_before=NAMES,
    keys_after=NAMES,
)
SUMMARIES = st.builds(
    events.SummaryEvent,
    POSITION,
    POSITION,
    POSITION,
    POSITION,
    POSITION,
    POSITION,
    TEXT,
    TEXT,
    st.lists(st.tuples(POSITION, TEXT), max_size=2).map(tuple),
    POSITION,
    POSITION,
    POSITION,
    NAME,
    kept=st.lists(st.builds(events.KeptMessage, POSITION, POSITION), max_size=2).map(tuple),
    outline=TEXT,
    level=st.integers(0, 3),
    tree=st.lists(st.builds(Branch, st.integers(0, 3), POSITION), max_size=2).map(tuple),
    parted=st.none() | st.lists(st.builds(events.KeptMessage, POSITION, POSITION), max_size=2).map(tuple),
)
OTHERS = st.one_of(
    st.builds(events.CreateEvent, POSITION, NAME, SETTINGS, st.none() | JSON),
    st.builds(events.SettingsEvent, POSITION, SETTINGS, NAMES),
    st.builds(events.ForkEvent, POSITION, NAME, NAME, POSITION, SETTINGS, STRETCHES),
    st.builds(events.RewindEvent, POSITION, POSITION, STRETCHES, st.none() | NAME),
    st.builds(events.NoteEvent, POSITION, NAME, st.none() | NAME, st.none() | JSON, NAMES),
    st.builds(events.DiscardEvent, POSITION, POSITION),
    st.builds(events.CloseEvent, POSITION),
)
PAYLOAD = events.Payload("R#000000000002~" + "0" * 18, 9, "f" * 32)


def read(event: Any, payload: events.Payload | None) -> Any:
    """Return an event as a reader has it, from its line and its payload in JSON."""
    line = json.loads(encode_json(stored_line(event, payload)))
    assert payload_of(line) == payload
    parts = json.loads(payload_content(event)) if payload is not None else None
    return read_event(line, position=event.position, payload=payload_of(line), parts=parts)


@settings(max_examples=examples(1600), deadline=None)
@given(st.one_of(MESSAGES, STATES, SUMMARIES, OTHERS))
def test_what_is_stored_is_read_back_equal(event: Any) -> None:
    assert read(event, None) == event
    if payload_content(event):
        assert read(event, PAYLOAD) == replace(event, payload=PAYLOAD)


@settings(max_examples=examples(400), deadline=None)
@given(MESSAGES.filter(lambda event: event.notes is not None))
def test_a_redacted_message_keeps_what_its_append_said_of_the_request(event: events.MessageEvent) -> None:
    """Its notes are those of the whole commit: other messages of it have thinking that was made under that epoch."""
    line = redacted_message(encode_line(stored_line(event, None)), "turnlog", {"role": "user", "content": "[redacted]"})
    redacted = read_event(json.loads(line), position=event.position, payload=None, parts=None)
    assert isinstance(redacted, events.MessageEvent) and redacted.notes == event.notes


@settings(max_examples=examples(400), deadline=None)
@given(MESSAGES, st.text(st.characters(), max_size=4))
def test_a_body_that_is_json_already_is_stored_as_it_is(event: events.MessageEvent, text: str) -> None:
    event = replace(event, body={"role": "user", "content": text})
    body = json.dumps(event.body, indent=1).encode()  # nothing in Turnlog encodes with spaces
    line, content = encode_line(stored_line(event, None), body), payload_content(event, body)
    assert body in line and body in content
    assert json.loads(line) == json.loads(encode_json(stored_line(event, None)))
    assert json.loads(content) == json.loads(payload_content(event))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (events.RewindEvent(9, 3, ((1, 3),), None), {"k": "r", "to": 3, "vw": [[1, 3]]}),
        (events.RewindEvent(9, 3, ((1, 3),), "snap"), {"k": "r", "to": 3, "vw": [[1, 3]], "sn": "snap"}),
        (events.CloseEvent(9), {"k": "e"}),
    ],
)
def test_a_line_has_these_names(event: Any, line: Any) -> None:
    """Logs of years ago are read by them."""
    assert stored_line(event, None) == line
    assert read(event, None) == event


@settings(max_examples=examples(800), deadline=None)
@given(MESSAGES)
def test_a_line_of_a_message_has_each_thing_once_and_nothing_that_is_as_in_most(event: events.MessageEvent) -> None:
    """Every byte of a line is paid for by each append."""
    fields = {short for short, name in ENVELOPE.items() if getattr(event.envelope, name) != getattr(PLAIN, name)}
    inline, beside = stored_line(event, None), stored_line(replace(event, payload=PAYLOAD), PAYLOAD)
    assert fields == ENVELOPE.keys() & inline.keys()
    assert fields - {"md"} == ENVELOPE.keys() & beside.keys() and "b" not in beside
    assert ("o" in inline, "h" in inline) == (bool(event.opens_loop), event.head_tokens is not None)


PLAIN = events.Envelope()
FACTS = st.builds(
    MessageOutline,
    role=st.sampled_from(["user", "assistant", "tool"]),
    head=st.text(max_size=40) | st.just("long " * 400),
    chars=st.integers(0, 9_999),
    calls=st.lists(st.builds(CallOutline, NAME, NAME, st.text(max_size=30) | st.just("x" * 300)), max_size=3).map(
        tuple
    ),
    results=st.lists(
        st.builds(
            ResultOutline, NAME, NAME, st.booleans(), st.booleans(), st.text(max_size=30) | st.just("y" * 900), POSITION
        ),
        max_size=3,
    ).map(tuple),
    given_role=st.sampled_from(["user", "developer"]),
    name=st.just("") | NAME,
    compacts=st.booleans(),
)


@settings(max_examples=examples(800), deadline=None)
@given(FACTS)
def test_a_card_tells_the_facts_of_its_message_shortened(facts: MessageOutline) -> None:
    card = make_card(facts)
    assert card is not None
    outcome = read_card(json.loads(encode_json(card)))
    assert ("k" in card) is (facts.role == "assistant" or facts.compacts)
    preview = CARD_CHARS // max(1, len(facts.results))
    calls = tuple(replace(call, arguments=shortened(call.arguments, 200)) for call in facts.calls)
    results = tuple(replace(result, text=result.text[:preview]) for result in facts.results)
    wanted = replace(facts, head=facts.head[:CARD_CHARS], calls=calls, results=results, ledger=outcome.ledger)
    assert outcome == wanted


@pytest.mark.parametrize(("count", "has_card"), [(64, True), (65, False)])
@pytest.mark.parametrize("kind", ["calls", "results"])
def test_a_card_is_bounded(count: int, has_card: bool, kind: str) -> None:
    calls = tuple(CallOutline(f"c{at}", "name", "x" * 9_000) for at in range(count))
    results = tuple(ResultOutline(f"c{at}", "name", False, False, "y" * 9_000, 9_000) for at in range(count))
    facts = (
        MessageOutline("assistant", "", 0, calls=calls)
        if kind == "calls"
        else MessageOutline("tool", "", 0, results=results)
    )
    card = make_card(facts)
    assert (card is not None and len(encode_json(card)) <= MAX_CARD_BYTES) or not has_card
    assert (make_card(facts) is None) or has_card
