"""Where a content is stored by its size, what a card of a large message holds, and what a missing payload says."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from hashlib import sha256

import pytest

from turnlog.core.calls import CARD_CHARS, CallOutline, MessageOutline, ResultOutline
from turnlog.core.errors import CorruptError
from turnlog.core.events import Payload
from turnlog.core.identity import Owner
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import SessionKeys
from turnlog.log.packing import pack
from turnlog.log.payloads import (
    Payloads,
    PreparedPayload,
    digest_of,
    in_parallel,
    is_blob,
    make_card,
    read_card,
    shortened,
)

KEYS = SessionKeys(Owner.of("acme", "ada"), "s1")
OTHER = SessionKeys(Owner.of("acme", "ada"), "s2")
NONCE = b"nonce---"
PREFIX_BYTES = 5
KB = 1024


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def payloads() -> Payloads:
    return Payloads(SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore())


def prepared(payloads: Payloads, content: bytes, index: int = 0) -> PreparedPayload | None:
    return payloads.prepare(KEYS, content, position=7, nonce=NONCE, index=index)


# ------------------------------------------------------------ places


def test_a_content_is_large_when_it_has_over_2_kb_packed_and_not_packed(payloads: Payloads) -> None:
    assert prepared(payloads, noise(2 * KB)) is None, "2 KB, although it has five bytes more packed"
    assert prepared(payloads, noise(2 * KB + 1))
    assert prepared(payloads, b"a" * 100_000) is None
    texts = (noise(size, seed).hex().encode() for size in range(1_750, 1_850) for seed in range(4))
    by_size = {len(pack(text)): text for text in texts}
    assert prepared(payloads, by_size[2 * KB]) is None
    assert prepared(payloads, by_size[2 * KB + 1])


@pytest.mark.parametrize(("size", "in_blob"), [(32 * KB - PREFIX_BYTES - 1, False), (32 * KB - PREFIX_BYTES, True)])
def test_a_payload_is_a_blob_from_32_kb_packed(payloads: Payloads, size: int, in_blob: bool) -> None:
    content = noise(size)
    payload = prepared(payloads, content)
    assert is_blob(payload.payload) is in_blob
    assert (payload.blob_name is not None) is in_blob
    assert payload.payload.size_bytes == size
    assert payload.payload.digest == digest_of(content) == "s:" + sha256(content).hexdigest()[:32]
    assert payload.payload.place.startswith("blob:" if in_blob else "R#")
    payloads.store([payload])
    assert payloads.fetch(KEYS, [payload.payload]) == {payload.payload.place: content}


@pytest.mark.parametrize(
    "sizes", [[], [3_000], [3_000] * 3, [40_000], [40_000] * 3, [3_000, 40_000, 3_000, 40_000]], ids=str
)
def test_any_number_of_payloads_is_stored_and_fetched_each_with_its_own_content(
    payloads: Payloads, sizes: list[int]
) -> None:
    contents = [noise(size, seed) for seed, size in enumerate(sizes)]
    stored = [prepared(payloads, content, index) for index, content in enumerate(contents)]
    payloads.store(stored)
    places = [payload.payload.place for payload in stored]
    assert len(set(places)) == len(sizes)
    assert payloads.fetch(KEYS, [payload.payload for payload in stored]) == dict(zip(places, contents, strict=True))


@pytest.mark.parametrize("size", [3_000, 40_000])
def test_d4_a_missing_and_a_foreign_payload_are_told_apart_by_name(payloads: Payloads, size: int) -> None:
    payload = prepared(payloads, noise(size)).payload
    for read in (lambda: payloads.fetch(KEYS, [payload]), lambda: payloads.copy(OTHER, [homed(payload)])):
        with pytest.raises(CorruptError, match="missing") as raised:
            read()
        assert raised.value.details["item"] == payload.place
    payloads.store([prepared(payloads, noise(size, 2))])
    with pytest.raises(CorruptError, match="not the one its commit names") as raised:
        payloads.fetch(KEYS, [payload])
    assert raised.value.details["item"] == payload.place


def homed(payload: Payload) -> Payload:
    return Payload(payload.place, payload.size_bytes, payload.digest, KEYS.partition)


def test_a_copy_is_read_without_the_original_and_from_the_same_place(payloads: Payloads) -> None:
    contents = [noise(3_000), noise(40_000), noise(3_000, 2)]
    stored = [prepared(payloads, content, index) for index, content in enumerate(contents)]
    payloads.store(stored)
    payloads.copy(OTHER, [homed(payload.payload) for payload in stored])
    read = payloads.fetch(OTHER, [payload.payload for payload in stored])
    assert [read[payload.payload.place] for payload in stored] == contents


def test_a_copy_of_blobs_alone_leaves_the_items(payloads: Payloads) -> None:
    stored = [prepared(payloads, noise(3_000), 0), prepared(payloads, noise(40_000), 1)]
    payloads.store(stored)
    payloads.copy_blobs(OTHER, [homed(payload.payload) for payload in stored])
    assert payloads.fetch(OTHER, [stored[1].payload])
    with pytest.raises(CorruptError, match="missing"):
        payloads.fetch(OTHER, [stored[0].payload])


# ------------------------------------------------------------ cards


def call_at(index: int, arguments: str = "{}") -> CallOutline:
    return CallOutline(f"c{index}", "look_up", arguments)


def result_at(index: int, text: str = "42") -> ResultOutline:
    return ResultOutline(f"c{index}", "look_up", False, False, text, len(text))


@pytest.mark.parametrize(("count", "has_card"), [(64, True), (65, False)])
def test_a_message_with_over_64_calls_or_results_has_no_card(count: int, has_card: bool) -> None:
    calls = MessageOutline("assistant", "", 0, calls=tuple(call_at(index) for index in range(count)))
    results = MessageOutline("tool", "", 0, results=tuple(result_at(index) for index in range(count)))
    assert (make_card(calls) is not None) is has_card
    assert (make_card(results) is not None) is has_card


@pytest.mark.parametrize("length", [128, 129])
def test_names_in_a_card_have_up_to_128_characters(length: int) -> None:
    name = "n" * length
    facts = MessageOutline(
        "tool",
        "",
        0,
        calls=(CallOutline("c", name, ""),),
        results=(ResultOutline("c", name, False, False),),
        given_role=name,
        name=name,
    )
    card = make_card(facts)
    assert card is not None
    read = read_card(card)
    assert {read.calls[0].name, read.results[0].name, read.given_role, read.name} == {"n" * 128}


@pytest.mark.parametrize("results", [0, 1, 2, 3])
def test_a_card_has_700_characters_of_the_text_and_divides_them_among_results(results: int) -> None:
    text = "".join(str(index % 10) for index in range(CARD_CHARS + 1))
    facts = MessageOutline("tool", text, len(text), results=tuple(result_at(index, text) for index in range(results)))
    card = make_card(facts)
    assert card is not None
    read = read_card(card)
    assert (CARD_CHARS, read.head, read.chars) == (700, text[:700], 701)
    assert [(result.text, result.chars) for result in read.results] == [(text[: 700 // max(1, results)], 701)] * results


@pytest.mark.parametrize(
    ("count", "chars", "kept"), [(1, 200, 200), (1, 201, 201), (30, 400, 201), (40, 400, 61), (64, 400, 61)]
)
def test_arguments_in_a_card_are_shortened_as_far_as_its_size_needs(count: int, chars: int, kept: int) -> None:
    facts = MessageOutline("assistant", "", 0, calls=tuple(call_at(index, "a" * chars) for index in range(count)))
    card = make_card(facts)
    assert card is not None
    assert {len(call.arguments) for call in read_card(card).calls} == {kept}


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("is_error", [False, True])
def test_a_card_keeps_both_flags_of_a_result(by_name: bool, is_error: bool) -> None:
    facts = MessageOutline(
        "tool", "", 0, results=(ResultOutline("c", "f", by_name, is_error, "x", 1),), given_role="function"
    )
    card = make_card(facts)
    assert card is not None
    assert card["o"] == [["c", "f", by_name + 2 * is_error, "x", 1]]
    assert read_card(card) == facts


def test_a_text_is_shortened_only_when_it_is_longer() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc…"


# ------------------------------------------------------------ threads

_READER = ContextVar("reader", default="nobody")


@pytest.mark.parametrize("sequential", [0, 4, 5])
def test_work_in_threads_keeps_the_order_and_the_context_of_the_caller(sequential: int) -> None:
    token = _READER.set("ada")
    try:
        results = in_parallel(lambda item: (item, _READER.get()), range(5), threads=2, sequential=sequential)
    finally:
        _READER.reset(token)
    assert results == [(item, "ada") for item in range(5)]


def test_the_first_error_of_threads_is_raised() -> None:
    def fail(item: int) -> int:
        if item in (2, 4):
            raise ValueError(item)
        return item

    work: Callable[[int], int] = fail
    with pytest.raises(ValueError, match="2"):
        in_parallel(work, range(5), threads=3)
