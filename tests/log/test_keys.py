"""Every key and blob name of a session, an owner or a tenant is in its own place: what is there is read, listed and erased."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.log.keys import (
    COMMITS_FROM,
    COMMITS_TO,
    SEGMENTS_FROM,
    SEGMENTS_TO,
    OwnerKeys,
    SessionKeys,
    TenantKeys,
    answers_prefix,
    commit_sort_key,
    export_blob,
    export_prefix,
    is_record_id,
    owner_blobs,
    position_of,
)
from turnlog.ports import Key

ADA, BOB, OTHER = Owner.of("acme", "ada"), Owner.of("acme", "bob"), Owner.of("globex", "ada")
RECORD_ID = "1700000000000-abc"
HASH, NONCE = bytes(range(16)), b"12345678"
IDS = ["s", "t", "base", "s/base", "s/seg", "S", "ada@example.com", "a:b", "a.b", "a+b", "x" * 256, "x" * 255 + "y"]
SESSIONS = [
    SessionKeys(owner, name, is_base=base) for owner in (ADA, BOB, OTHER) for name in IDS for base in (False, True)
]


def keys_of(session: SessionKeys) -> dict[str, Key]:
    """Return every key in a session's partition."""
    return {
        "meta": session.meta,
        "system": session.system,
        "state": session.state,
        "summary": session.summary,
        "offloaded": session.offloaded,
        "offload_due": session.offload_due,
        "document": session.document("notes"),
        "words": session.words,
        "recalled": session.recalled(7, "Where is it?"),
        "segment": session.segment(7),
        "request": session.request(HASH),
        "commit": session.commit(7),
        "payload": session.payload(7, NONCE, 1),
        "fork": session.fork("child"),
        "snapshot": session.snapshots.record(RECORD_ID),
        "snapshot by name": session.snapshots.name("before"),
        "snapshot by request": session.snapshots.request(HASH),
    }


def blobs_of(session: SessionKeys) -> dict[str, str]:
    """Return every blob name of a session."""
    return {
        "offload": session.offload_blob,
        "document": session.document_blob("name"),
        "segment": session.segment_blob(1, 7, "ab"),
        "index": session.index_blob(1, 7, "ab"),
        "snapshot": session.snapshot_blob(RECORD_ID),
        "payload": session.blob(7, NONCE, 1),
        "payload at its place": session.payload_blob("blob:payload/x"),
    }


def owner_keys(owner: Owner) -> Iterator[Key]:
    keys = OwnerKeys(owner)
    yield from (keys.erasing, keys.directory("s"), keys.memories("s", "part"))
    yield from (keys.jobs.record(RECORD_ID), keys.jobs.name("name"), keys.jobs.request(HASH))


def test_all_keys_of_a_session_are_in_its_partition_and_no_two_are_the_same() -> None:
    for session in SESSIONS:
        keys = keys_of(session)
        assert {key.pk for key in keys.values()} == {session.partition}
        assert len({key.sk for key in keys.values()}) == len(keys)
        assert all(session.partition not in key.sk for key in keys.values())
        assert session.directory in owner_keys(session.owner) or session.session_id != "s"
    places = [session.partition for session in SESSIONS] + [OwnerKeys(owner).partition for owner in (ADA, BOB, OTHER)]
    places += [TenantKeys("acme").spending("2026-11-21").pk, TenantKeys("globex").spending("2026-11-21").pk]
    assert len(set(places)) == len(places)


def test_d5_what_is_stored_is_found_by_every_later_version() -> None:
    """A key of another form would lose what is there: these are the keys of stored data."""
    session, owner = SessionKeys(ADA, "s"), OwnerKeys(ADA)
    assert session.partition == "T#acme#U#ada#S#s"
    assert session.base.partition == "T#acme#U#ada#S#s#base"
    assert {name: key.sk for name, key in keys_of(session).items()} == {
        "meta": "D#META",
        "system": "E#SYS",
        "state": "S#STATE",
        "summary": "E#SUM",
        "offloaded": "O#DONE",
        "offload_due": "O#DUE",
        "document": "K#notes",
        "words": "S#WORDS",
        "recalled": "Q#000000000007~26dc",
        "segment": "G#000000000007",
        "request": "I#000102030405060708090a0b0c0d0e0f",
        "commit": "C#000000000007",
        "payload": "R#000000000007~313233343536373801",
        "fork": "F#child",
        "snapshot": "P#1700000000000-abc",
        "snapshot by name": "P#@6db7d803e74f1ffa7d8f5adc0bf95b3e15bf4c83",
        "snapshot by request": "P#~000102030405060708090a0b0c0d0e0f",
    }
    assert blobs_of(session) == {
        "offload": "acme/ada/s/offload/messages.jsonl.gz",
        "document": "acme/ada/s/doc/name",
        "segment": "acme/ada/s/seg/000000000001-000000000007-ab",
        "index": "acme/ada/s/index/000000000001-000000000007-ab",
        "snapshot": "acme/ada/s/snap/1700000000000-abc",
        "payload": "acme/ada/s/payload/000000000007-313233343536373801",
        "payload at its place": "acme/ada/s/payload/x",
    }
    assert owner.memories("s", "part").sk == "M#s#37a680133bd09342f934afb8dd2c7d9e1b624da5"
    assert TenantKeys("acme").spending("2026-11-21") == Key("T#acme", "B#2026-11-21")


def test_all_blobs_of_a_session_are_below_its_prefix_and_no_two_are_the_same() -> None:
    for session in SESSIONS:
        names = blobs_of(session)
        assert len(set(names.values())) == len(names)
        assert all(name.startswith(session.blob_prefix) for name in names.values())
        assert session.blob_prefix.startswith(owner_blobs(session.owner)[0])
    for item, other in itertools.permutations(SESSIONS, 2):
        is_own_base = item.base == other
        assert other.blob_prefix.startswith(item.blob_prefix) == is_own_base, "the base of a fork is the fork's"


def test_all_keys_of_an_owner_are_in_the_owners_partition() -> None:
    for owner in (ADA, BOB, OTHER):
        keys = list(owner_keys(owner))
        assert {key.pk for key in keys} == {OwnerKeys(owner).partition}
        assert len(set(keys)) == len(keys)


def test_a_partition_leads_back_to_its_session() -> None:
    for session in SESSIONS:
        assert SessionKeys(session.owner, "another").home(session.partition) == session


@pytest.mark.parametrize("position", [1, 9, 10, 999_999_999_998])
def test_commits_and_segments_sort_by_position(position: int) -> None:
    session = SESSIONS[0]
    assert position_of(session.commit(position).sk) == position == position_of(session.segment(position).sk)
    assert COMMITS_FROM < session.commit(position).sk < session.commit(position + 1).sk < COMMITS_TO
    assert SEGMENTS_FROM < session.segment(position).sk < session.segment(position + 1).sk < SEGMENTS_TO
    assert commit_sort_key(position) == session.commit(position).sk
    payloads = [session.payload(number, NONCE, index).sk for number in (position, position + 1) for index in (0, 1, 10)]
    assert payloads == sorted(payloads)


def test_the_bounds_of_records_hold_records_and_neither_names_nor_requests() -> None:
    records = SESSIONS[0].snapshots
    low, high = records.bounds
    assert low < records.record(RECORD_ID).sk < records.record("9999999999999-z").sk < high
    assert not any(low <= key.sk <= high for key in (records.name("9"), records.request(HASH)))


def test_the_bounds_of_memories_hold_those_of_one_session_or_of_all() -> None:
    keys = OwnerKeys(ADA)
    own, other = keys.memories("s", "part").sk, keys.memories("t", "part").sk
    (low, high), (all_low, all_high) = keys.memory_bounds("s"), keys.memory_bounds()
    assert low < own < high and not low < other < high
    assert all_low < own < all_high and all_low < other < all_high
    assert not all_low < keys.directory("s").sk < all_high


def test_exports_and_answers_are_the_owners() -> None:
    names = [export_blob(ADA, "s"), export_blob(ADA, "t"), export_blob(ADA, "")]
    names += [answers_prefix(ADA, "s"), answers_prefix(ADA, "t"), answers_prefix(ADA, "")]
    assert len(set(names)) == 6
    assert all(name.startswith(export_prefix(ADA)) for name in names)
    assert export_prefix(ADA) == owner_blobs(ADA)[1] not in (export_prefix(BOB), export_prefix(OTHER))
    assert answers_prefix(ADA, "s").startswith(answers_prefix(ADA, ""))


@pytest.mark.parametrize(
    "text", ["", "abc", "170000000000-abc", "1700000000000-", f"1700000000000-{'a' * 51}", RECORD_ID + "#"]
)
def test_an_id_that_can_not_be_a_records_is_not_found(text: str) -> None:
    assert not is_record_id(text)
    assert is_record_id(f"1700000000000-{'a' * 50}")
    for make in (SESSIONS[0].snapshots.record, SESSIONS[0].snapshot_blob):
        with pytest.raises(NotFoundError):
            make(text)


@pytest.mark.parametrize("name", ["", "a#b", "~", "x" * 257, "/a", "a/", "a//b", "a/../b", ".", "h_a", "a b", "a%2Fb"])
def test_an_id_that_could_leave_its_place_makes_no_key(name: str) -> None:
    keys = OwnerKeys(ADA)
    for make in (keys.directory, SESSIONS[0].fork, lambda text: keys.memories(text, "part"), keys.memory_bounds):
        with pytest.raises(InvalidInputError):
            make(name)
    with pytest.raises(InvalidInputError):
        SessionKeys(ADA, name)
    if name:
        for place in (export_blob, answers_prefix):
            with pytest.raises(InvalidInputError):
                place(ADA, name)
