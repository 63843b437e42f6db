"""A commit's header: each part is stored under its own attribute and read back equal, and its limits hold at their borders."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from turnlog.core.calls import OpenCalls, Ref, UnansweredCall, call_hash
from turnlog.core.errors import CorruptError, NewerSchemaError
from turnlog.core.loops import Amount, Flow, LoopState
from turnlog.core.positions import VisibleRanges
from turnlog.core.run_lease import RunLease
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.core.summaries import CompressionRequest
from turnlog.core.times import DAY_MS
from turnlog.log.headers import (
    MAX_PINNED,
    Covered,
    Header,
    Sent,
    chain_hash,
    following,
    hashed_header,
    header_attributes,
    listed,
    read_header,
)
from turnlog.log.keys import commit_sort_key
from turnlog.ports import Item
from turnlog.providers.token_rules import Calibration

PLAIN = Header(first=7, last=9, kind="m", time_ms=1_000, nonce=b"n" * 8, flow=Flow())
FULL = Header(
    first=7,
    last=9,
    kind="m",
    time_ms=2_000,
    nonce=b"n" * 8,
    flow=Flow(
        loop=LoopState(3, 6, has_user=True, answered=True, final=True),
        open_calls=OpenCalls((UnansweredCall(Ref(6, 1), call_hash("id"), call_hash("look_up")),), more=2),
        messages=11,
        tokens=120,
        previous_role="user",
        lead=Amount(1, 2),
        closed=Amount(3, 4),
    ),
    idempotency=b"i" * 32,
    last_state=2,
    last_settings=4,
    last_frame=3,
    run=b"r" * 6,
    pending=True,
    summary=Covered(position=5, last=4, loop=2, messages=8, tokens=90, own_tokens=13),
    sent=Sent(6, 1_900),
    calibration=Calibration(130, (110, 120)),
    asked=CompressionRequest(2, 1_800, is_answered=True),
    ended=9,
    ttl_days=30,
    idle_ms=1_700,
    view=VisibleRanges(((1, 2),), 4),
    rewound=4,
    redacted=3,
    pinned=((1, 2), (7, 8)),
    lease=RunLease(5, 60, 62_000, "request-7"),
)


def item_of(header: Header, **changes: Any) -> Item:
    item: dict[str, Any] = {
        "pk": "p",
        "sk": commit_sort_key(header.first),
        "h": header.hash,
        **header_attributes(header),
    }
    return item | changes


def test_every_part_of_a_header_is_read_back() -> None:
    defaults = {part.name for part in fields(Header) if getattr(FULL, part.name) == getattr(PLAIN, part.name)}
    assert defaults == {"first", "last", "kind", "nonce", "hash", "version"}, (
        "the full header has something of each part"
    )
    assert read_header(item_of(FULL)) == FULL
    assert read_header(item_of(PLAIN)) == PLAIN


def test_a_header_is_stored_in_these_attributes() -> None:
    """Logs of years ago are read by these names and forms, and the chain hash covers them."""
    attributes = header_attributes(FULL)
    assert {name: value for name, value in attributes.items() if name not in ("oc", "vw")} == {
        "v": SCHEMA_VERSION,
        "k": "m",
        "l": 9,
        "t": 2_000,
        "n": b"n" * 8,
        "ct": "11 120",
        "ol": "3 6 uaf",
        "ik": b"i" * 32,
        "om": 2,
        "pr": "user",
        "lt": "1 2 3 4",
        "ls": 2,
        "lc": 4,
        "lf": 3,
        "rn": b"r" * 6,
        "pa": 1,
        "en": 9,
        "xd": 30,
        "it": 1_700,
        "rw": 4,
        "rd": 3,
        "sm": "5 4 2 8 90 13",
        "ws": "6 1900",
        "cf": "130 110 120",
        "ca": "2 1800 1",
        "pn": "1.2 7.8",
        "le": "5 60 62000 request-7",
    }
    assert set(header_attributes(PLAIN)) == {"v", "k", "l", "t", "n", "ct", "ol"}


@pytest.mark.parametrize(("settings", "frame", "stored"), [(1, 1, {}), (4, 4, {"lc": 4}), (2, 1, {"lc": 2, "lf": 1})])
def test_the_newest_settings_are_stored_when_they_are_not_the_first(
    settings: int, frame: int, stored: dict[str, int]
) -> None:
    header = replace(PLAIN, last_settings=settings, last_frame=frame)
    attributes = header_attributes(header)
    assert {name: attributes[name] for name in ("lc", "lf") if name in attributes} == stored
    assert read_header(item_of(header)) == header


@pytest.mark.parametrize("part", [(1, 0, 0, 0), (0, 0, 0, 1)])
def test_totals_of_loops_are_stored_when_any_is_not_zero(part: tuple[int, int, int, int]) -> None:
    header = replace(PLAIN, flow=replace(PLAIN.flow, lead=Amount(*part[:2]), closed=Amount(*part[2:])))
    assert read_header(item_of(header)) == header


@pytest.mark.parametrize("name", [*header_attributes(FULL), "h"])
def test_d4_an_attribute_of_another_type_is_damage(name: str) -> None:
    item = item_of(FULL)
    for value in ("1", 1, b"1"):
        if type(value) is not type(item[name]):
            with pytest.raises(CorruptError):
                read_header(item | {name: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"lt": "1 2 3"},
        {"lt": "1 2 3 4 5"},
        {"k": "x"},
        {"pn": "7"},
        {"pn": "7.8.9"},
        {"pn": "7.8 "},
        {"pn": "a.b"},
        {"pn": "--"},
        {"ct": "11"},
        {"sm": "5 4 2 8"},
        {"ws": "6"},
        {"v": 0},
        {"l": None},
    ],
    ids=str,
)
def test_d4_a_damaged_attribute_names_the_item(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptError) as raised:
        read_header(item_of(FULL, **changes))
    assert raised.value.details["item"] == commit_sort_key(7)


def test_d4_a_header_of_the_next_version_is_newer_and_not_damaged() -> None:
    read_header(item_of(FULL, v=SCHEMA_VERSION))
    with pytest.raises(NewerSchemaError):
        read_header(item_of(FULL, v=SCHEMA_VERSION + 1, k="unknown"))


def test_a_summary_of_an_older_header_has_no_tokens_of_its_own() -> None:
    assert Covered.decode("5 4 2 8 90") == Covered(5, 4, 2, 8, 90, own_tokens=0)


# ------------------------------------------------------------ pins


@pytest.mark.parametrize(
    ("pinned", "stored"),
    [(None, None), ((), "-"), (((3, 4),), "3.4"), (((3, 4), (3, 5), (12, 12)), "3.4 3.5 12.12")],
)
def test_pins_are_stored_by_commit_and_position(pinned: tuple[tuple[int, int], ...] | None, stored: str | None) -> None:
    """No pins at all and pins that are not listed differ, because only with the second a window must look for them."""
    header = replace(PLAIN, pinned=pinned)
    assert header_attributes(header).get("pn") == stored
    assert read_header(item_of(header)).pinned == pinned


def test_a_header_lists_pins_up_to_its_limit_and_none_behind_it() -> None:
    header = replace(PLAIN, pinned=())
    full = listed(header, range(1, MAX_PINNED + 1))
    assert full.pinned == tuple((7, position) for position in range(1, MAX_PINNED + 1))
    assert listed(header, range(1, MAX_PINNED + 2)).pinned is None
    assert listed(full, []).pinned == full.pinned
    over = listed(full, [8])
    assert over.pinned is None
    assert listed(over, [9]).pinned is None, "a log with too many pins does not begin to list the newest alone"


def test_pins_are_listed_in_the_order_of_the_log() -> None:
    assert listed(replace(PLAIN, pinned=((1, 2),)), [8, 9]).pinned == ((1, 2), (7, 8), (7, 9))


# ------------------------------------------------------------ the next header


def test_the_next_header_begins_behind_the_last_position_and_keeps_the_state() -> None:
    after = following(replace(FULL, hash=b"h" * 16), kind="s", events=3, now_ms=5_000)
    changed = {
        part.name: getattr(after, part.name)
        for part in fields(Header)
        if getattr(after, part.name) != getattr(FULL, part.name)
    }
    assert changed == {
        "first": 10,
        "last": 12,
        "kind": "s",
        "time_ms": 5_000,
        "nonce": b"",
        "idempotency": b"",
        "idle_ms": 0,
    }


@pytest.mark.parametrize(("now_ms", "expected"), [(0, 2_001), (2_000, 2_001), (2_001, 2_001), (2_002, 2_002)])
def test_times_of_commits_increase_by_a_millisecond_at_least(now_ms: int, expected: int) -> None:
    assert following(FULL, kind="m", events=1, now_ms=now_ms).time_ms == expected


def test_status_and_expiry_follow_the_newest_activity() -> None:
    assert (PLAIN.status, PLAIN.active_ms, PLAIN.expires_ms) == ("active", 1_000, None)
    idle = replace(PLAIN, idle_ms=400, ttl_days=2)
    assert (idle.status, idle.active_ms, idle.expires_ms) == ("inactive", 400, 400 + 2 * DAY_MS)
    assert replace(idle, ended=9).status == "ended"


# ------------------------------------------------------------ the chain


def test_the_chain_covers_each_attribute_of_the_header_and_none_beside_it() -> None:
    item = item_of(FULL)
    covered = hashed_header("C#7", item)
    for name in header_attributes(FULL):
        assert hashed_header("C#7", {**item, name: "other"}) != covered, name
    for name in ("pk", "sk", "h", "b", "fp", "bs", "fa", "fu"):
        assert hashed_header("C#7", {**item, name: "other"}) == covered, name
    assert hashed_header("C#8", item) != covered


def test_the_chain_hash_is_16_bytes_of_the_previous_hash_the_header_and_the_events() -> None:
    """Recorded: a log of years ago must still verify."""
    assert hashed_header("C#7", {"l": 9, "k": "m", "n": b"\x01\xff"}) == b'["C#7",{"k":"m","l":9,"n":"01ff"}]'
    assert chain_hash(b"p", b"h", [b"d", b"e"]).hex() == "a048b84a703feadfda09a83e19c1703a"
