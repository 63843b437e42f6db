"""Lines of an export at their borders: the last value that is taken and the first that is refused, each with right hashes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from turnlog.core.errors import CorruptError, InvalidInputError
from turnlog.core.events import (
    CreateEvent,
    Envelope,
    Event,
    ForkEvent,
    MessageEvent,
    NoteEvent,
    RewindEvent,
    SettingsEvent,
    StateEvent,
)
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.limits import MAX_POSITION
from turnlog.core.loops import Flow
from turnlog.core.positions import VisibleRanges
from turnlog.core.session_settings import SCHEMA_VERSION, SessionSettings
from turnlog.core.times import DAY_MS, LAST_MS
from turnlog.log.headers import GENESIS, Header, chain_hash, hashed_header, header_attributes
from turnlog.log.keys import commit_sort_key
from turnlog.log.lines import payload_content, stored_line
from turnlog.log.packing import line_digest
from turnlog.log.payloads import digest_of
from turnlog.snapshots.exchange import check_shape, commit_line, commit_of, position_in
from turnlog.snapshots.segment_format import SegmentWriter, read_segment

PREVIOUS = b"p" * 16
LATEST_MS = LAST_MS // 2
LATEST_DAYS = LATEST_MS // DAY_MS
HEADER = Header(first=5, last=5, kind="m", time_ms=1_000, nonce=b"nonce---", flow=Flow())


def said(position: int, text: str = "hi", **changes: Any) -> MessageEvent:
    body: JsonObject = {"role": "user", "content": text}
    return replace(MessageEvent(position, "openai_chat", 1, Envelope(), body), **changes)


def line_of(
    header: Header, events: Sequence[Event], *, lines: Sequence[Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the line of a commit; whatever is in it, its hash is right."""
    parsed = lines if lines is not None else [stored_line(event, None) for event in events]
    item: dict[str, Any] = {**header_attributes(header), **more}
    covered = hashed_header(commit_sort_key(header.first), item)
    digests = [line_digest(encode_json(line)) for line in parsed]
    item["h"] = chain_hash(PREVIOUS if header.first > 1 else GENESIS, covered, digests)
    return {
        "position": header.first,
        "header": {name: value for name, value in item.items() if not isinstance(value, bytes)},
        "bytes": {name: value.hex() for name, value in item.items() if isinstance(value, bytes)},
        "events": [json.loads(encode_json(line)) for line in parsed],
    }


def taken(line: dict[str, Any]) -> bool:
    previous = PREVIOUS if line["position"] != 1 else GENESIS
    try:
        sealed = commit_of(json.dumps(line), previous=previous)
    except InvalidInputError as error:
        assert error.error_code == "bad_export"
        assert f"commit {line['position']}" in str(error.detail)
        return False
    assert commit_line(sealed, lambda payload: b"") == line, "what was read is written alike"
    assert commit_of(line, previous=previous) == sealed, "also parsed already"
    return True


@pytest.mark.parametrize(
    ("position", "is_one"),
    [
        (1, True),
        (MAX_POSITION, True),
        (0, False),
        (MAX_POSITION + 1, False),
        (True, False),
        ("1", False),
        (None, False),
    ],
)
def test_a_line_has_a_position(position: Any, is_one: bool) -> None:
    for source in ({"position": position, "more": 1}, json.dumps({"position": position, "more": 1})):
        if is_one:
            assert position_in(source) == (position, {"position": position, "more": 1})
        else:
            with pytest.raises(InvalidInputError, match="no commit") as raised:
                position_in(source)
            assert raised.value.error_code == "bad_export"


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", "[" * 10_000, '"position"', "{}"])
def test_no_other_text_is_a_line(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no commit"):
        position_in(text)


@pytest.mark.parametrize(("count", "is_taken"), [(0, False), (1, True), (26, True), (27, False)])
def test_a_commit_has_one_to_26_events(count: int, is_taken: bool) -> None:
    header = replace(HEADER, last=4 + count)
    assert taken(line_of(header, [said(5 + index) for index in range(count)])) is is_taken


@pytest.mark.parametrize(("last", "is_taken"), [(5, False), (6, True), (7, False)])
def test_a_commit_ends_with_its_last_event(last: int, is_taken: bool) -> None:
    assert taken(line_of(replace(HEADER, last=last), [said(5), said(6)])) is is_taken


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({"time_ms": 0}, True),
        ({"time_ms": -1}, False),
        ({"time_ms": LATEST_MS}, True),
        ({"time_ms": LATEST_MS + 1}, False),
        ({"idle_ms": LATEST_MS}, True),
        ({"idle_ms": LATEST_MS + 1}, False),
        ({"idle_ms": -1}, False),
        ({"ttl_days": LATEST_DAYS}, True),
        ({"ttl_days": LATEST_DAYS + 1}, False),
        ({"ttl_days": -1}, False),
        ({"last_state": 5}, True),
        ({"last_state": 6}, False),
        ({"last_state": -1}, False),
        ({"last_settings": 5}, True),
        ({"last_settings": 6}, False),
        ({"ended": 5}, True),
        ({"ended": 6}, False),
        ({"rewound": 5}, True),
        ({"rewound": 6}, False),
        ({"redacted": 5}, True),
        ({"redacted": 6}, False),
        ({"view": VisibleRanges(((1, 2),), 5)}, True),
        ({"view": VisibleRanges(((1, 2),), 6)}, False),
        ({"view": VisibleRanges(((1, 6),), 5)}, False),
        ({"view": VisibleRanges(((6, 6),), 5)}, False),
        ({"view": VisibleRanges(((1, 2),), 5, True)}, True),
        ({"view": VisibleRanges((), 5, True)}, False),
    ],
    ids=str,
)
def test_a_header_names_times_and_positions_that_there_can_be(changes: dict[str, Any], is_taken: bool) -> None:
    assert taken(line_of(replace(HEADER, **changes), [said(5)])) is is_taken


@pytest.mark.parametrize(
    ("until", "is_taken"), [(4, False), (5, True), (6, True), (7, False), (8, False), ("5", False)]
)
def test_a_commit_is_shared_up_to_a_position_inside_it(until: Any, is_taken: bool) -> None:
    line = line_of(replace(HEADER, last=7), [said(5), said(6), said(7)], fu=until)
    assert taken(line) is is_taken
    if is_taken:
        assert commit_of(line, previous=PREVIOUS).commit.until == until


def settings_of(**changes: Any) -> list[tuple[str, Event]]:
    settings = SessionSettings(**changes)
    return [
        ("c", CreateEvent(1, "s", settings)),
        ("p", SettingsEvent(5, settings, ("title",))),
        ("f", ForkEvent(5, "s", "of", 3, settings, ())),
    ]


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({}, True),
        ({"ttl_days": LATEST_DAYS}, True),
        ({"ttl_days": LATEST_DAYS + 1}, False),
        ({"ttl_days": -1}, False),
        ({"inactive_after_minutes": LATEST_DAYS * 1440}, True),
        ({"inactive_after_minutes": LATEST_DAYS * 1440 + 1}, False),
        ({"model": "m"}, True),
        ({"model": ""}, False),
    ],
    ids=str,
)
def test_settings_have_days_and_a_model_that_there_can_be(changes: dict[str, Any], is_taken: bool) -> None:
    for kind, event in settings_of(**changes):
        header = replace(HEADER, first=event.position, last=event.position, kind=kind)
        assert taken(line_of(header, [event])) is is_taken


@pytest.mark.parametrize(
    ("event", "is_taken"),
    [
        (StateEvent(5, "put_state", None, 4, 2, None, {"a": 1}), True),
        (StateEvent(5, "put_state", None, 5, 2, None, {"a": 1}), False),
        (RewindEvent(5, 4, ((1, 4),)), True),
        (RewindEvent(5, 5, ((1, 4),)), False),
        (RewindEvent(5, 4, ((1, 5),)), False),
        (RewindEvent(5, 4, ((5, 4),)), False),
        (ForkEvent(5, "s", "of", 4, SessionSettings(), ()), True),
        (ForkEvent(5, "s", "of", 5, SessionSettings(), ()), False),
        (NoteEvent(5, "noted", None, {"a": 1}), True),
    ],
    ids=str,
)
def test_an_event_names_positions_before_it(event: Event, is_taken: bool) -> None:
    kind = {StateEvent: "s", RewindEvent: "r", ForkEvent: "f", NoteEvent: "h"}[type(event)]
    assert taken(line_of(replace(HEADER, kind=kind), [event])) is is_taken


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({}, True),
        ({"tokens": True}, False),
        ({"tokens": "1"}, False),
        ({"format": "html"}, False),
        ({"body": {"role": 5}}, False),
        ({"opens_loop": 1}, True),
        ({"opens_loop": True}, False),
    ],
    ids=str,
)
def test_a_message_has_the_types_of_its_fields(changes: dict[str, Any], is_taken: bool) -> None:
    assert taken(line_of(HEADER, [said(5, **changes)])) is is_taken


def test_a_message_has_a_body() -> None:
    line = stored_line(said(5), None)
    for changed in ({**line, "b": None}, {name: value for name, value in line.items() if name != "b"}):
        assert not taken(line_of(HEADER, [], lines=[changed]))


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("zz", 1, True),
        ("zzzz", "text", True),
        ("zzzzz", 1, False),
        ("Z", 1, False),
        ("z1", 1, False),
        ("", 1, False),
        *((name, 1, False) for name in ("pk", "sk", "b", "ttl", "mk", "fp", "bs", "fa", "mat")),
        ("zz", True, False),
        ("zz", None, False),
        ("zz", 1.5, False),
        ("zz", [], False),
    ],
)
def test_a_header_has_names_and_values_that_a_table_stores(name: str, value: Any, is_taken: bool) -> None:
    """Attributes of later versions too, and none that Turnlog writes beside the header."""
    assert taken(line_of(HEADER, [said(5)], **{name: value})) is is_taken


def test_a_text_that_no_table_stores_is_refused() -> None:
    assert not taken(line_of(HEADER, [said(5)]) | {"header": {"zz": "\ud83d"}})


def test_lines_are_not_escaped_but_for_those_that_were_stored_so() -> None:
    line = line_of(HEADER, [said(5, "😀")])
    assert taken(line)
    assert not any(taken(line | {"escaped": escaped}) for escaped in ([0], 5, [[]], True))


def test_d5_a_newer_commit_says_so() -> None:
    line = line_of(replace(HEADER, version=SCHEMA_VERSION + 1), [said(5)])
    with pytest.raises(InvalidInputError, match="commit 5") as raised:
        commit_of(line, previous=PREVIOUS)
    assert raised.value.error_code == "newer_export"


def test_the_hash_is_of_what_is_there_and_of_the_commit_before() -> None:
    line = line_of(HEADER, [said(5)])
    assert taken(line)
    with pytest.raises(InvalidInputError, match="chain hash"):
        commit_of(line, previous=b"q" * 16)
    for changed in (
        {**line, "events": [{**line["events"][0], "t": 2}]},
        {**line, "header": {**line["header"], "t": 1_001}},
        {**line, "bytes": {**line["bytes"], "n": "00"}},
        {**line, "position": 6},
    ):
        assert not taken(changed)


# ------------------------------------------------------------ payloads

PLACE = "R#000000000005~6e6f6e63652d2d2d00"


def line_with_payload(place: str = PLACE, **changes: Any) -> dict[str, Any]:
    content = payload_content(said(5, "long"))
    fields = {"size": len(content), "digest": digest_of(content), **changes}
    stored = {"k": "m", "f": "openai_chat", "t": 1, "@": [place, fields["size"], fields["digest"]]}
    line = line_of(HEADER, [], lines=[stored])
    return {**line, "payloads": {place: json.loads(content)}}


def test_a_payload_is_the_one_that_its_event_names() -> None:
    assert taken(line_with_payload())
    assert taken(line_with_payload("R#000000000005~6e6f6e63652d2d2d99"))
    for wrong in (
        line_with_payload(size=1),
        line_with_payload(digest="s:" + "0" * 32),
        {**line_with_payload(), "payloads": {}},
        {**line_with_payload(), "payloads": {PLACE: {"b": {"role": "user", "content": "lung"}}}},
        {**line_with_payload(), "payloads": {**line_with_payload()["payloads"], PLACE[:-1] + "1": {}}},
        {**line_of(HEADER, [said(5)]), "payloads": {PLACE: {}}},
        line_with_payload("R#5~6e6f6e63652d2d2d00"),
        line_with_payload(PLACE + "0"),
        line_with_payload("../x"),
    ):
        assert not taken(wrong)


# ------------------------------------------------------------ shapes


@pytest.mark.parametrize(
    ("value", "expected", "fits"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (None, int | None, True),
        ("a", int | None, False),
        ((1, 2), tuple[int, ...], True),
        ((1, "2"), tuple[int, ...], False),
        ((1, "2"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ([1, 2], tuple[int, int], False),
        ({"a": object}, dict[str, Any], True),
        ([], dict[str, Any], False),
        ([1], list[str], True),
        (VisibleRanges(((1, 2),), 3), VisibleRanges, True),
        (VisibleRanges(((1, True),), 3), VisibleRanges, False),
        (VisibleRanges((), "3"), VisibleRanges | None, False),  # type: ignore[arg-type]
        (None, VisibleRanges | None, True),
        (5, VisibleRanges | None, False),
    ],
    ids=str,
)
def test_a_value_has_the_type_that_its_field_declares(value: object, expected: Any, fits: bool) -> None:
    if fits:
        check_shape(value, expected, name="field")
        return
    with pytest.raises(Exception, match="field") as raised:
        check_shape(value, expected, name="field")
    assert type(raised.value).__name__ == "MalformedError"


# ------------------------------------------------------------ segments


@pytest.mark.parametrize(("last", "is_read"), [(1, False), (2, True), (3, False)])
def test_d4_a_commit_in_a_segment_has_the_events_of_its_positions(last: int, is_read: bool) -> None:
    """Also where every hash is right."""
    lines = [encode_json(stored_line(said(position), None)) for position in (1, 2)]
    item: dict[str, Any] = {
        "sk": commit_sort_key(1),
        **header_attributes(replace(HEADER, first=1, last=last, kind="c", flow=Flow(messages=2, tokens=2))),
    }
    item["h"] = chain_hash(GENESIS, hashed_header(commit_sort_key(1), item), list(map(line_digest, lines)))
    writer = SegmentWriter(GENESIS)
    writer.add(item, lines, {})
    data = writer.finish()
    if is_read:
        (sealed,) = read_segment(data, name="seg")
        assert (sealed.item, sealed.lines) == (item, tuple(lines))
        return
    with pytest.raises(CorruptError, match="events of its positions") as raised:
        list(read_segment(data, name="seg"))
    assert raised.value.details["item"] == "seg"
