"""Borders of plain values: JSON, times, ids, positions, leases and steps of work, each at its border and one behind it."""

from __future__ import annotations

import json
import math
from collections import UserList, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from turnlog.core import json_values, times
from turnlog.core.errors import (
    InvalidInputError,
    MalformedError,
    RunActiveError,
    RunLostError,
    TooLargeError,
    TooMuchWorkError,
    UnavailableError,
)
from turnlog.core.identity import (
    Owner,
    check_agent_id,
    check_session_id,
    correlated,
    correlation_id,
    correlation_of,
    owner_of_ids,
    safe_id,
    served_tenant,
    serving,
)
from turnlog.core.limits import (
    MAX_ANSWER_BYTES,
    MAX_EVENT_BODY_BYTES,
    MAX_POSITION,
    MAX_RESPONSE_BYTES,
    Work,
    batches,
    check_time,
    event_bytes,
    fits_as_text,
    seconds_left,
    with_deadline,
)
from turnlog.core.messages import REDACTED, Message, Text, Thinking, ToolCall, ToolResult, neutral
from turnlog.core.models import Answer, At, Cursors, JsonObjectField
from turnlog.core.positions import (
    SEGMENT_POSITIONS,
    VisibleRanges,
    completes_stretch,
    last_of_stretch,
    stretch_of,
    subtract,
)
from turnlog.core.run_lease import RunLease, acquired, current, renewed
from turnlog.core.summaries import COOL_DOWN_LOOPS, LEASE_MS, CompressionRequest, Spent

# --- JSON


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("[" * 32 + "]" * 32, None),
        ('{"a":' * 32 + "1" + "}" * 32, None),
        ("1e308", 1e308),
        ('"\\ud83d"', "\ud83d"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_json_at_a_border_is_read_from_bytes_and_from_objects(text: str, value: Any) -> None:
    parsed = json_values.parse_strict_json(text.encode())
    assert parsed == json_values.parse_strict_json(text)
    assert value is None or parsed == value
    assert json_values.checked_json(parsed) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616",
        "-9223372036854775809",
        "9" * 30,
        "[" * 33 + "]" * 33,
        "[" * 100_000,
        '{"a":' * 33 + "1" + "}" * 33,
        "1e309",
        "-1e309",
        "NaN",
        "Infinity",
        "-Infinity",
        '{"a":1,"a":2}',
        "[1,]",
        "",
    ],
)
def test_json_behind_a_border_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        json_values.parse_strict_json(text)


def test_bytes_that_are_not_plain_utf_8_are_refused_with_the_reason() -> None:
    with pytest.raises(MalformedError, match="at byte 2"):
        json_values.parse_strict_json(b'"a\xff"')
    with pytest.raises(MalformedError, match="byte order mark"):
        json_values.parse_strict_json(b"\xef\xbb\xbf{}")


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("[]", 1), ("[1,[2]]", 4), ('{"a":{"b":[1,2]}}', 5)])
def test_each_value_of_a_body_is_counted(text: str, count: int) -> None:
    value = json_values.parse_strict_json(text, max_values=count)
    assert json_values.checked_json(value) is value
    with pytest.raises(TooLargeError, match=f"a body of {count} JSON values"):
        json_values.parse_strict_json(text, max_values=count - 1)


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (object(), ""),
        ({"a": 1, "b/~": [0, (1, {"x": b""})]}, "/b~1~0/1/1/x"),
        (MappingProxyType({"a": {1}}), "/a"),
        ({"a": [1, math.nan]}, "/a/1"),
        ({"a": {"b": 2**64}}, "/a/b"),
        ({"a": [{1: 2}]}, "/a/0"),
        ({"a": [datetime(2026, 1, 31, tzinfo=UTC)]}, "/a/0"),
    ],
)
def test_an_object_that_is_no_json_is_refused_with_its_place(value: object, pointer: str) -> None:
    with pytest.raises(MalformedError) as raised:
        json_values.checked_json(value)
    assert [problem.pointer for problem in raised.value.problems] == [pointer]
    assert ("base64" in raised.value.detail) == (pointer == "/b~1~0/1/1/x")
    assert ("such as 2026-01-31T12:00:00Z" in raised.value.detail) == ("datetime" in raised.value.detail)


@pytest.mark.parametrize(
    "value", [{1: 2}, [math.nan], [-math.inf], 2**64, -(2**63) - 1, {"\ud83d\ude00": 1, "\U0001f600": 2}]
)
def test_an_object_behind_a_border_of_json_is_refused(value: object) -> None:
    with pytest.raises(MalformedError):
        json_values.checked_json(value)
    deep: list[Any] = []
    for _ in range(32):
        deep = [deep]
    with pytest.raises(MalformedError, match="deeper than 32"):
        json_values.checked_json(deep)
    json_values.checked_json(deep[0])


def test_other_sequences_and_mappings_become_lists_and_objects() -> None:
    assert json_values.checked_json({"a": (MappingProxyType({"b": ()}), 1)}) == {"a": [{"b": []}, 1]}
    assert json_values.checked_json(deque([UserList([1]), deque()])) == [[1], []]


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x"), {1}, iter([1])])
def test_bytes_and_what_has_no_order_are_no_lists(value: object) -> None:
    with pytest.raises(MalformedError, match="is not JSON, at '/a'"):
        json_values.checked_json({"a": value})


@pytest.mark.parametrize(
    ("value", "joined", "sent"),
    [
        (("\ud83d\ude00", "é"), ["\U0001f600", "é"], ["\U0001f600", "é"]),
        ({"\ud83d\ude00": None}, {"\U0001f600": None}, {"\U0001f600": None}),
        ({"a": ["\ud83d", True, 1.5]}, {"a": ["\ud83d", True, 1.5]}, {"a": ["\ufffd", True, 1.5]}),
        ({"é\ude00": "x\ude00"}, {"é\ude00": "x\ude00"}, {"é\ufffd": "x\ufffd"}),
    ],
)
def test_pairs_of_surrogates_are_joined_and_half_of_one_is_never_sent(value: Any, joined: Any, sent: Any) -> None:
    assert json_values.checked_json(value) == joined
    assert json_values.sendable_json(joined) == sent
    assert json_values.sendable_json_text(joined) == json_values.encode_json(sent).decode()
    assert json.loads(json_values.encode_json(value)) == joined
    assert json.loads(json_values.encode_ascii_json(value)) == joined
    assert json_values.copied_json(joined) == joined and json_values.copied_json(joined) is not joined


def test_equal_values_have_one_canonical_form() -> None:
    assert json_values.canonical_json({"b": "é", "a": [1, None]}) == b'{"a":[1,null],"b":"\\u00e9"}'


@pytest.mark.parametrize("encode", [json_values.encode_json, json_values.encode_ascii_json, json_values.canonical_json])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_json_is_never_stored(encode: Callable[[object], bytes], value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode([value])


# --- times


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00:01.5z", 1_500),
        ("1970-01-01t00:00:00.123999999+00:00", 123),
        ("1970-01-01T01:00:00.01+01:30", -1_799_990),
        ("9999-12-31T23:59:59.999Z", times.LAST_MS),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
    ],
)
def test_a_time_is_milliseconds_since_1970(text: str, ms: int) -> None:
    assert times.milliseconds_of(text) == ms == times.milliseconds_of(times.rfc3339(ms))
    assert times.rfc3339(ms).endswith("Z") and len(times.rfc3339(ms)) == 24


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-11-21",
        "2025-11-21T00:00:00",
        "2025-11-21T00:00Z",
        "2025-11-21T00:00:00.Z",
        "2025-13-01T00:00:00Z",
        "2025-11-21T00:00:00.1234567890Z",
        "٢025-11-21T00:00:00Z",
        " 2025-11-21T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-00:01",
    ],
)
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        times.milliseconds_of(text)


def test_a_time_of_a_caller_may_lack_its_zone_and_is_kept_in_bounds() -> None:
    noon = datetime(2025, 11, 21, 12, tzinfo=UTC)
    assert times.read_time("2025-11-21T12:00") == times.read_time("2025-11-21T13:00:00+01:00") == noon
    assert times.read_time("soon") is None
    assert times.caller_time("2025-11-21 12:00", 5) == noon
    assert times.caller_time("soon", 5) == times.caller_time(None, 5) == datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)
    west, east = (timezone(timedelta(hours=hours)) for hours in (-1, 1))
    for moment, ms in (
        (datetime(1970, 1, 3, 0, 0, 1, 999, UTC), 2 * 86_400_000 + 1_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), -1),
        (datetime.max.replace(tzinfo=UTC), times.LAST_MS),
        (datetime(9999, 12, 31, 23, 59, tzinfo=west), times.LAST_MS),
        (datetime(1, 1, 1, tzinfo=east), -62_135_596_800_000),
    ):
        assert times.milliseconds_since_epoch(moment) == ms
    assert (times.MINUTE_MS, times.DAY_MS) == (60_000, 86_400_000)


# --- ids

AGENT = ["a", "A_-9", "x" * 64]
NO_AGENT: list[Any] = [None, 5, "", "x" * 65, "a b", "a/b", "é", "h_x", "a\n"]
SESSION = ["a", "a/b.c", "a@b:+-_", "x" * 256, "a/h_x"]
NO_SESSION: list[Any] = [None, 5, "", "x" * 257, "h_x", "/a", "a/", "a//b", ".a", "a/.b", "a b", "é", "a\n"]


@pytest.mark.parametrize(
    ("check", "legal", "illegal"), [(check_agent_id, AGENT, NO_AGENT), (check_session_id, SESSION, NO_SESSION)]
)
def test_an_id_is_taken_or_refused_with_its_place(
    check: Callable[..., str], legal: list[str], illegal: list[Any]
) -> None:
    assert [check(text) for text in legal] == legal
    for text in illegal:
        with pytest.raises(InvalidInputError) as raised:
            check(text, pointer="/there")
        assert [problem.pointer for problem in raised.value.problems] == ["/there"]


def test_an_owner_has_safe_ids_that_stand_for_themselves_and_for_nobody_else() -> None:
    names = ["a", "x" * 64, "x" * 65, "x" * 66, "h_a", "a b", "é", "\ud83d", "arn:aws:iam::1:role/a"]
    ids = [safe_id(name) for name in names]
    assert ids[:2] == names[:2] and len(set(ids)) == len(names)
    assert all(len(text) == 42 and text.startswith("h_") for text in ids[2:])
    owner = owner_of_ids(ids[2], "a")
    assert (owner.tenant, owner.user, owner.tenant_id, owner.user_id) == (ids[2], "a", ids[2], "a")
    for wrong in (("a/b", "a"), ("a", ""), ("a", "x" * 65)):
        with pytest.raises(InvalidInputError):
            owner_of_ids(*wrong)
    for wrong in (("a", "\ud83d"), ("\ud83d", "a")):
        with pytest.raises(InvalidInputError, match="half a character"):
            Owner.of(*wrong)
    with pytest.raises(InvalidInputError):
        safe_id("")


def test_a_block_has_its_tenant_and_its_correlation_id_and_gives_them_back() -> None:
    with serving("acme"), correlated("x" * 128):
        with serving(None), correlated(None):
            assert served_tenant() is correlation_id() is None
        assert (served_tenant(), correlation_id()) == ("acme", "x" * 128)
    assert served_tenant() is correlation_id() is None
    for wrong in ("x" * 129, "", "a b", "a\n"):
        with pytest.raises(InvalidInputError):
            correlated(wrong)
    with pytest.raises(ValueError, match="id of a tenant"):
        serving("a*")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"correlation_id":"a.b:c/+=@-"}', "a.b:c/+=@-"),
        ('{"correlation_id":"a b"}', None),
        ('{"correlation_id":7}', None),
        *((text, None) for text in ("{}", "[]", "7", "{", "", "[" * 100_000)),
    ],
)
def test_the_correlation_id_of_any_text_is_legal_or_none(body: str, found: str | None) -> None:
    assert correlation_of(body) == found


@pytest.mark.parametrize("value", [1, MAX_POSITION, "", "x" * 64])
def test_a_place_in_a_log_is_a_position_or_a_short_text(value: int | str) -> None:
    assert TypeAdapter(At).validate_python(value) == value


@pytest.mark.parametrize("value", [0, MAX_POSITION + 1, True, 1.0, None, "x" * 65])
def test_another_value_is_no_place_in_a_log(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(At).validate_python(value)


def test_a_free_object_may_have_any_member() -> None:
    free: TypeAdapter[dict[str, Any]] = TypeAdapter(JsonObjectField)
    assert free.json_schema() == {"type": "object", "additionalProperties": True}
    assert free.validate_python({"\ud83d": [1]}) == {"\ud83d": [1]}
    with pytest.raises(ValidationError):
        free.validate_python([])


def test_a_cursor_is_read_as_written_and_only_for_its_own_requests() -> None:
    cursors, place = Cursors(b"secret"), {"k": "é/+", "n": "1"}
    cursor = cursors.write(place, scope="a")
    assert cursors.read(cursor, scope="a") == place
    altered = cursor[:9] + ("A" if cursor[9] != "A" else "B") + cursor[10:]
    damaged = [altered, *(cursor[:length] for length in range(len(cursor))), "é", "%%%%"]
    for wrong, reader, scope in (
        *((text, cursors, "a") for text in damaged),
        (cursor, cursors, "b"),
        (cursor, Cursors(b"s"), "a"),
    ):
        with pytest.raises(MalformedError) as raised:
            reader.read(wrong, scope=scope)
        assert raised.value.error_code == "bad_cursor"


def test_an_answer_is_read_by_the_names_of_its_fields_alone() -> None:
    class Found(Answer):
        count: int

    assert Found(count=3)["count"] == 3
    with pytest.raises(KeyError):
        Found(count=3)["model_fields"]


def test_an_emptied_message_keeps_its_role_its_ids_and_its_names_alone() -> None:
    calls, results = (ToolCall("a", "f", '{"q":1}'),), (ToolResult("b", (Text("x"), Text("y")), "g", True, True),)
    emptied = neutral(Message("assistant", (Text("x"), Thinking("y")), calls, results, "ada", "assistant", 1, True))
    redacted = (Text(REDACTED),)
    assert emptied == Message(
        "assistant",
        redacted,
        (ToolCall("a", "f", "{}"),),
        (ToolResult("b", redacted, "g", True, True),),
        given_role="assistant",
    )
    assert neutral(Message("assistant", (), calls)).content == neutral(Message("tool", (), (), results)).content == ()
    assert neutral(Message("user")).content == redacted


# --- positions


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=12))
def test_a_view_shows_what_no_rewind_took_out(steps: list[tuple[int, int]]) -> None:
    """``steps``: how many messages come before each rewind, and how far it goes back in what is visible."""
    view, shown, head = VisibleRanges(), list[int](), 0
    for count, back in steps:
        shown += range(head + 1, head + count + 1)
        head += count
        to = shown[-1 - back] if back < len(shown) else 0
        shown = [position for position in shown if position <= to]
        head += 1
        view = view.rewound(to, at=head)
        shown.append(head)
    assert [position for position in range(1, head + 1) if view.shows(position)] == shown
    ranges = view.up_to(head)
    assert [position for first, last in ranges for position in range(first, last + 1)] == shown
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges)), "neighbours are one stretch"
    assert not view.encode() or VisibleRanges.decode(view.encode()) == view
    for last in range(head + 1):
        inside = [position for first, end in view.up_to(last) for position in range(first, end + 1)]
        assert inside == [position for position in shown if position <= last]


sets = st.sets(st.integers(1, 20))


def _stretches(positions: set[int]) -> list[tuple[int, int]]:
    firsts = sorted(position for position in positions if position - 1 not in positions)
    return list(zip(firsts, sorted(position for position in positions if position + 1 not in positions), strict=True))


@given(sets, sets)
def test_stretches_without_others_are_a_difference_of_sets(positions: set[int], others: set[int]) -> None:
    rest = subtract(_stretches(positions), _stretches(others))
    assert {position for first, last in rest for position in range(first, last + 1)} == positions - others


@pytest.mark.parametrize("stretch", [0, 1, 7])
def test_a_segment_stretch_is_completed_by_the_commit_that_has_its_last_position(stretch: int) -> None:
    last = last_of_stretch(stretch)
    assert last == (stretch + 1) * SEGMENT_POSITIONS
    assert [stretch_of(position) for position in (last - SEGMENT_POSITIONS + 1, last, last + 1)] == [stretch] * 2 + [
        stretch + 1
    ]
    commits = [(last - 1, last - 1), (last - 1, last), (last, last), (last, last + 9), (last + 1, last + 1)]
    assert [completes_stretch(*commit) for commit in commits] == [False, True, True, True, False]


# --- work and time


def test_work_may_take_its_limit_and_no_step_more() -> None:
    work = Work("it", limit=10)
    work.spend()
    work.spend(9)
    assert (work.steps, work.left) == (10, 0)
    with pytest.raises(TooMuchWorkError, match="it takes more than 10 steps") as raised:
        work.spend()
    assert raised.value.details == {"limit": 10}


def test_what_may_take_as_long_as_is_left_is_begun() -> None:
    assert seconds_left() == math.inf
    with with_deadline(lambda: 5.0):
        check_time(5.0, "it")
        with pytest.raises(UnavailableError, match=r"5\.0 s were left") as raised:
            check_time(5.1, "it")
    assert (raised.value.error_code, raised.value.retry_after_seconds) == ("deadline", 1)
    with with_deadline(lambda: -1.0), pytest.raises(UnavailableError, match=r" 0\.0 s were left"):
        check_time(0.0, "it")


@given(st.lists(st.integers(0, 12)), st.integers(1, 4))
def test_a_batch_is_as_full_as_its_limits_allow(sizes: list[int], count: int) -> None:
    made = list(batches(sizes, int, max_size=10, max_count=count))
    assert [size for batch in made for size in batch] == sizes
    assert all(batch and len(batch) <= count and (sum(batch) <= 10 or len(batch) == 1) for batch in made)
    assert all(len(batch) == count or sum(batch) + after[0] > 10 for batch, after in pairwise(made))


def test_a_body_may_fill_what_lambda_takes_but_for_the_room_beside_it() -> None:
    """https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html: 6 MB, and 100 bytes more of an answer."""
    room = 64 * 1024
    assert 6 * 1024 * 1024 - room == MAX_EVENT_BODY_BYTES
    assert MAX_RESPONSE_BYTES == 6 * 1024 * 1024 + 100
    assert MAX_ANSWER_BYTES // 3 * 4 <= MAX_RESPONSE_BYTES - room < MAX_ANSWER_BYTES // 3 * 4 + 4
    longest = MAX_RESPONSE_BYTES - room - 2
    assert fits_as_text("x" * longest, longest)
    assert not fits_as_text("x" * (longest + 1), longest + 1)
    assert event_bytes(b'a"\\\n\r\t') == 6 + 5


# --- leases and requests


def test_a_lease_ends_at_its_time_and_a_new_holder_has_a_new_token() -> None:
    lease = acquired(None, "a b", 60, position=7, time_ms=1_000)
    assert lease == RunLease(7, 60, 61_000, "a b") == RunLease.decode(lease.encode())
    with pytest.raises(RunActiveError) as raised:
        acquired(lease, "c", 60, position=8, time_ms=60_999)
    assert (raised.value.details, raised.value.retry_after_seconds) == ({"token": 7}, 1)
    with pytest.raises(RunActiveError) as raised:
        acquired(lease, "c", 60, position=8, time_ms=59_999)
    assert raised.value.retry_after_seconds == 2
    assert acquired(lease, "c", 60, position=8, time_ms=61_000).token == 8
    assert acquired(lease, "a b", 60, position=9, time_ms=2_000).token == 9
    assert renewed(lease, 7, None, time_ms=2_000) == RunLease(7, 60, 62_000, "a b")
    assert renewed(lease, 7, 5, time_ms=2_000) == RunLease(7, 5, 7_000, "a b")
    for held in (None, lease):
        with pytest.raises(RunLostError):
            current(held, 6)


@pytest.mark.parametrize(
    ("answered", "loop", "now", "ended", "long", "allowed"),
    [
        (True, COOL_DOWN_LOOPS, 1, 0, False, True),
        (True, COOL_DOWN_LOOPS - 1, 1, 0, False, False),
        (True, COOL_DOWN_LOOPS - 1, 1, 0, True, True),
        (False, COOL_DOWN_LOOPS, 1, 0, True, True),
        (False, COOL_DOWN_LOOPS, 1, -1, True, False),
        (False, 0, LEASE_MS, -1, False, True),
        (False, 9, LEASE_MS - 1, -1, True, False),
    ],
)
def test_compression_is_requested_again_after_a_while(
    answered: bool, loop: int, now: int, ended: int, long: bool, allowed: bool
) -> None:
    """Loops are counted from the loop of the request, times in milliseconds from its time."""
    request = CompressionRequest(5, 1_000, answered)
    assert CompressionRequest.decode(request.encode()) == request
    assert request.allows_another(5 + loop, 1_000 + now, ended_ms=1_000 + ended, is_long=long) is allowed


def test_a_call_is_reserved_within_the_limit_and_settled_with_its_actual_tokens() -> None:
    spent = Spent(1, 10, 20).reserve(70, limit=100)
    assert spent == Spent(1, 10, 20, 70) and spent.tokens == 100
    assert spent.reserve(1, limit=100) is None
    assert spent.settle(70, input_tokens=1, output_tokens=2) == Spent(2, 11, 22, 0)
    assert spent.settle(70, input_tokens=0, output_tokens=0) == Spent(1, 10, 20, 0)
    assert spent.settle(99, input_tokens=1, output_tokens=0) == Spent(2, 11, 20, 0)
