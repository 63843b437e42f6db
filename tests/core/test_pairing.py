"""Which result belongs to which call: each sentence of "A tool call id is not a key", on the smallest history that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.core import calls as pairing_module
from turnlog.core.calls import (
    MAX_LISTED_CALLS,
    CallOutline,
    MessageOutline,
    OpenCalls,
    OpenIndex,
    Pairing,
    Ref,
    ResultOutline,
    id_key,
    outline_of,
    pair,
    parse_ref,
    result_key,
    unanswered_calls,
)
from turnlog.core.errors import InvalidInputError
from turnlog.core.messages import Message, ToolCall, ToolResult


def calls(*ids: str, name: str = "f") -> MessageOutline:
    return MessageOutline("assistant", "", 0, calls=tuple(CallOutline(value, name, "{}") for value in ids))


def results(*ids: str) -> MessageOutline:
    return MessageOutline(
        "tool", "", 0, results=tuple(ResultOutline(value, "", by_name=False, is_error=False) for value in ids)
    )


def function(name: str) -> MessageOutline:
    return MessageOutline("tool", "", 0, results=(ResultOutline("", name, by_name=True, is_error=False),))


def paired(*messages: MessageOutline) -> Pairing:
    return pair((at + 1, facts) for at, facts in enumerate(messages))


def answers(pairing: Pairing) -> dict[str, str]:
    """``call ref -> result place``, as text."""
    return {str(call): f"{place[0]}.{place[1]}" for call, place in sorted(pairing.result_of.items())}


def open_refs(pairing: Pairing) -> list[str]:
    return [str(call.ref) for call in pairing.open.calls]


def test_a_call_gets_a_ref_from_its_position_and_its_index_from_0() -> None:
    assert open_refs(paired(calls("a", "b"), calls("c"))) == ["1.0", "1.1", "2.0"]


def test_a_result_belongs_to_the_call_of_its_id() -> None:
    result = paired(calls("a", "b"), results("b"), results("a"))
    assert answers(result) == {"1.0": "3.0", "1.1": "2.0"}
    assert result.call_of == {(2, 0): Ref(1, 1), (3, 0): Ref(1, 0)}
    assert open_refs(result) == []


def test_of_several_messages_with_an_open_call_of_its_id_the_newest() -> None:
    result = paired(calls("a"), calls("a"), results("a"))
    assert answers(result) == {"2.0": "3.0"}
    assert open_refs(result) == ["1.0"]


def test_and_in_it_the_first_such_call() -> None:
    assert answers(paired(calls("x", "a", "a"), results("a"), results("a"))) == {"1.1": "2.0", "1.2": "3.0"}


def test_an_answered_call_is_not_open_so_an_older_one_is_next() -> None:
    assert answers(paired(calls("a"), calls("a"), results("a"), results("a"))) == {"1.0": "4.0", "2.0": "3.0"}


def test_an_empty_id_is_no_id_the_newest_message_with_open_calls_in_order() -> None:
    result = paired(calls("", ""), calls("", ""), results(""), results(""), results(""))
    assert answers(result) == {"1.0": "5.0", "2.0": "3.0", "2.1": "4.0"}


def test_a_result_without_an_id_takes_a_call_that_has_one() -> None:
    assert answers(paired(calls("a"), results(""))) == {"1.0": "2.0"}


def test_a_result_with_an_id_does_not_take_a_call_without_one() -> None:
    result = paired(calls(""), results("a"))
    assert (answers(result), result.orphans, open_refs(result)) == ({}, [(2, 0)], ["1.0"])


def test_a_function_message_goes_by_name() -> None:
    result = paired(calls("", name="f"), calls("", name="g"), function("f"), function("nobody"))
    assert answers(result) == {"1.0": "3.0"}
    assert result.orphans == [(4, 0)]


def test_a_function_message_without_a_name_goes_by_order() -> None:
    assert answers(paired(calls("a"), function(""))) == {"1.0": "2.0"}


def test_a_second_result_for_a_call_takes_the_place_of_the_first() -> None:
    result = paired(calls("a"), results("a"), results("a"))
    assert answers(result) == {"1.0": "3.0"}
    assert result.call_of == {(2, 0): Ref(1, 0), (3, 0): Ref(1, 0)}


def test_a_result_for_an_id_that_comes_again_belongs_to_the_open_call() -> None:
    result = paired(calls("a"), results("a"), calls("a"), results("a"))
    assert answers(result) == {"1.0": "2.0", "3.0": "4.0"}


def test_a_result_before_its_call_is_an_orphan() -> None:
    result = paired(results("a"), calls("a"))
    assert (result.orphans, open_refs(result)) == ([(1, 0)], ["2.0"])


def test_a_message_with_calls_and_results_answers_itself_first() -> None:
    both = MessageOutline("assistant", "", 0, calls("a").calls, results("a", "b").results)
    result = paired(calls("a", "b"), both)
    assert answers(result) == {"1.1": "2.1", "2.0": "2.0"}
    assert open_refs(result) == ["1.0"]


def test_several_results_in_one_message_may_belong_to_several() -> None:
    assert answers(paired(calls("a"), calls("b"), results("b", "a", "c"))) == {"1.0": "3.1", "2.0": "3.0"}


def test_calls_that_were_open_before_take_results_too() -> None:
    before = paired(calls("a", "b"), results("a")).open
    result = pair([(9, results("b"))], before=before)
    assert answers(result) == {"1.1": "9.0"}


OUTLINES = st.one_of(
    st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=3).map(lambda ids: calls(*ids)),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=3).map(lambda ids: results(*ids)),
    st.just(function("f")),
)


@given(st.lists(OUTLINES, max_size=12), st.integers(0, 12))
def test_a_pairing_goes_on_behind_what_is_paired(messages: list[MessageOutline], at: int) -> None:
    numbered = list(enumerate(messages, start=1))
    assert pair(numbered[at:], behind=pair(numbered[:at])) == pair(numbered)


def test_an_unknown_role_calls_and_answers_nothing() -> None:
    message = Message("unknown", tool_calls=(ToolCall("a", "f", "{}"),), tool_results=(ToolResult("b", ()),))
    assert (outline_of(message).calls, outline_of(message).results) == ((), ())


def test_ids_of_any_length_and_kind_are_told_apart() -> None:
    long, longer, odd = "x" * 64, "x" * 65, "\ud83d"
    result = paired(calls(_key(long), _key(longer), odd), results(odd), results(_key(longer)), results(_key(long)))
    assert answers(result) == {"1.0": "4.0", "1.1": "3.0", "1.2": "2.0"}


def _key(call_id: str) -> str:
    key = id_key(call_id)
    assert key == result_key(ToolResult(call_id, ()))
    assert len(key) <= 64
    return key


def many(count: int) -> OpenCalls:
    return paired(calls(*(f"id-{at}" for at in range(count)))).open


@pytest.mark.parametrize("count", [0, 1, MAX_LISTED_CALLS - 1, MAX_LISTED_CALLS])
def test_a_headers_form_of_open_calls_reads_back_equal(count: int) -> None:
    assert OpenCalls.decode(many(count).encode(), 0) == many(count)


def test_a_header_keeps_the_oldest_16_and_counts_the_rest() -> None:
    listed = many(47).listed()
    result = OpenCalls.decode(listed.encode(), listed.more)
    assert (result.calls, result.more) == (many(16).calls, 31)
    assert result
    assert not OpenCalls()


@pytest.mark.parametrize(("index", "kept"), [(65_535, 65_535), (65_536, 65_535), (10**6, 65_535)])
def test_a_header_has_two_bytes_for_the_place_of_a_call_in_its_message(index: int, kept: int) -> None:
    (call,) = many(1).calls
    stored = OpenCalls((replace(call, ref=Ref(call.ref.position, index)),)).encode()
    assert OpenCalls.decode(stored, 0).calls[0].ref == Ref(call.ref.position, kept)


def test_open_calls_that_are_cut_short_are_an_error() -> None:
    with pytest.raises(ValueError, match="cut short"):
        OpenCalls.decode(b"\0" * 17, 0)


@pytest.mark.parametrize("text", ["7.0", "12.46", "999999999999.999999"])
def test_a_ref_reads_back_equal(text: str) -> None:
    assert str(parse_ref(text)) == text
    assert parse_ref("7.0").made_id == "call_7_0"


@pytest.mark.parametrize("text", ["", "7", "0.1", "7.01", "07.1", "7.-1", "7.1 ", "٧.1", "call_7_1"])
def test_what_is_no_ref_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        parse_ref(text)
    assert raised.value.problems[0].pointer == "/ref"


def test_refs_are_in_order_of_place() -> None:
    result: Sequence[Ref] = [Ref(10, 0), Ref(9, 11), Ref(9, 2)]
    assert [str(ref) for ref in sorted(result)] == ["9.2", "9.11", "10.0"]


@pytest.mark.parametrize("order", ["as called", "backwards", "without ids", "of one id", "by name"])
def test_pairing_takes_work_by_what_is_said(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 results, each in a message of its own, of 10,000 calls in one message."""
    count, looks = 10_000, Counter[str]()
    keys = {"without ids": "", "of one id": "same"}

    class Looked(set[int]):
        def __contains__(self, place: object) -> bool:
            looks["answered"] += 1
            return super().__contains__(place)

    class Counted(OpenIndex):
        def __init__(self, before: OpenCalls) -> None:
            super().__init__(before)
            self._answered = Looked()

    monkeypatch.setattr("turnlog.core.calls.OpenIndex", Counted)
    asked = MessageOutline(
        "assistant", "", 0, calls=tuple(CallOutline(keys.get(order, f"c{n}"), f"f{n}", "{}") for n in range(count))
    )
    said = [asked]
    for n in range(count) if order != "backwards" else range(count - 1, -1, -1):
        answer = ResultOutline(keys.get(order, f"c{n}"), f"f{n}", by_name=order == "by name", is_error=False)
        said.append(MessageOutline("tool", "", 0, results=(answer,)))
    pairing = paired(*said)
    assert not pairing.open and not pairing.orphans and len(pairing.result_of) == count
    assert looks["answered"] < 8 * count


@pytest.mark.parametrize(("since", "is_late"), [(0, True), (2, True), (3, False), (4, False), (9, False)])
def test_a_result_is_out_of_order_behind_an_open_call_of_its_own_loop(since: int, is_late: bool) -> None:
    index = OpenIndex(OpenCalls((*unanswered_calls(2, calls("a")), *unanswered_calls(4, calls("b")))))
    (result,) = results("b").results
    call = index.find(result)
    assert call is not None and index.is_out_of_order(call, result, since=since) is is_late


def test_disorder_of_many_results_takes_work_by_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    count, hashed = 3_000, Counter[str]()
    made = pairing_module.call_hash

    def counted(text: str) -> bytes:
        hashed[text] += 1
        return made(text)

    monkeypatch.setattr(pairing_module, "call_hash", counted)
    ids = [f"c{n}" for n in range(count)]
    pairing = paired(calls(*ids), results(*reversed(ids)))
    assert not pairing.open and hashed.total() < 5 * count
