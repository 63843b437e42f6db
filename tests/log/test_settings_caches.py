"""The settings beside the log: what META holds, when they have an item of their own, and when that refers to a payload."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog.core.errors import CorruptError, NewerSchemaError
from turnlog.core.events import Payload
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.loops import Amount, Flow, LoopState
from turnlog.core.session_settings import SessionSettings
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log import caches
from turnlog.log.caches import (
    Caches,
    CurrentSettings,
    active_of,
    directory_item,
    due_at,
    is_listing_due,
    is_settled,
    read_meta,
    reflected_position,
    session_id_of,
    status_of,
)
from turnlog.log.headers import Covered, Header, Sent
from turnlog.log.keys import SessionKeys
from turnlog.log.lines import settings_object
from turnlog.log.packing import pack
from turnlog.log.payloads import Payloads
from turnlog.log.read_lines import settings_from
from turnlog.log.tombstones import cache_tombstone, due_index
from turnlog.ports import Item, Key

KEYS = SessionKeys(Owner.of("acme", "ada"), "s1")


class Room:
    def __init__(self) -> None:
        self.payloads = Payloads(SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore())
        self.items = SqliteItemTable(SqliteDatabase(MEMORY))
        self.caches = Caches(self.items, self.payloads)

    def payload(self, settings: SessionSettings) -> Payload:
        """Store the settings as the payload of their commit."""
        content = encode_json({"set": settings_object(settings)})
        prepared = self.payloads.prepare(KEYS, content, position=1, nonce=b"nonce---", index=0)
        self.payloads.store([prepared])
        return prepared.payload

    def written(
        self, settings: SessionSettings, payload: Payload | None, *, position: int = 1, rewound: int = 0
    ) -> Item | None:
        """Write the settings; return the item of their own, if they have one."""
        self.caches.write_settings(KEYS, CurrentSettings(settings, 5, position, payload=payload), rewound=rewound)
        return self.caches.read(KEYS.system)


def settings_of(chars: int, seed: int = 1) -> SessionSettings:
    return SessionSettings(system=random.Random(seed).randbytes(chars // 2 + 1).hex()[:chars])


def packed_bytes(settings: SessionSettings) -> int:
    return len(pack(encode_json({"set": settings_object(settings)})))


LARGER = settings_of(70_000)


@pytest.mark.parametrize(("spare_bytes", "refers"), [(0, False), (-1, True)])
def test_settings_up_to_the_limit_are_in_their_item_and_larger_ones_refer_to_their_commit(
    monkeypatch: pytest.MonkeyPatch, spare_bytes: int, refers: bool
) -> None:
    assert caches.LARGE_BYTES == 32 * 1024
    room = Room()
    payload = room.payload(LARGER)
    monkeypatch.setattr(caches, "LARGE_BYTES", packed_bytes(LARGER) + spare_bytes)
    item = room.written(LARGER, payload)
    assert item is not None
    assert ("at" in item, "b" in item) == (refers, not refers)
    assert room.caches.settings_in(KEYS, item) == LARGER
    if refers:
        assert (item["at"], item["sz"], item["d"]) == (payload.place, payload.size_bytes, payload.digest)
        assert "hm" not in item


def test_large_settings_whose_commit_has_no_payload_are_in_their_item() -> None:
    """A change of one small field has no payload, however large the other settings are."""
    room = Room()
    item = room.written(LARGER, None)
    assert item is not None and "b" in item
    assert room.caches.settings_in(KEYS, item) == LARGER


def test_settings_of_a_fork_refer_to_the_session_that_stores_them() -> None:
    room = Room()
    payload = room.payload(LARGER)
    for home, stored in (("", None), (KEYS.partition, None), ("another", "another")):
        homed = Payload(payload.place, payload.size_bytes, payload.digest, home)
        item = room.written(LARGER, homed, position={"": 1, KEYS.partition: 2, "another": 3}[home])
        assert item is not None
        assert item.get("hm") == stored


@pytest.mark.parametrize("settings", [SessionSettings(), SessionSettings(title="t" * 300, model="m")])
def test_settings_that_fit_into_meta_have_no_item_of_their_own(settings: SessionSettings) -> None:
    room = Room()
    assert room.written(settings, None) is None
    assert room.caches.read(KEYS.meta) is not None


def test_a_cache_is_not_replaced_by_an_earlier_event_but_by_a_rewind_to_it() -> None:
    room = Room()
    new, old = SessionSettings(system="new"), SessionSettings(system="old")
    room.written(new, None, position=9)
    for position in (8, 9):
        item = room.written(old, None, position=position)
        assert item is not None and room.caches.settings_in(KEYS, item) == new
        assert (item["pos"], reflected_position(item)) == (9, 9)
    item = room.written(old, None, position=3, rewound=10)
    assert item is not None and room.caches.settings_in(KEYS, item) == old
    assert (item["pos"], reflected_position(item)) == (10, 3)
    item = room.written(new, None, position=11, rewound=10)
    assert item is not None and "of" not in item


def test_a_cache_that_was_erased_is_not_there_and_not_written_again() -> None:
    room = Room()
    for key in (KEYS.meta, KEYS.system):
        room.items.put(cache_tombstone(key, now_ms=1))
        room.caches.write(key, {"b": b"late"}, position=5, rewound=0)
        assert room.caches.read(key) is None


# ------------------------------------------------------------ entries of the list

DAY_MS = 86_400_000
HEADER = Header(
    first=4,
    last=6,
    kind="m",
    time_ms=1_000_000_000_000,
    nonce=b"n",
    flow=Flow(loop=LoopState(3), messages=5, tokens=70, lead=Amount(0, 0), closed=Amount(0, 0)),
)


@pytest.mark.parametrize(
    ("ttl_days", "inactive_after_minutes", "status", "days"),
    [
        (0, 0, "active", None),
        (7, 0, "active", 7),
        (7, 0, "ended", 7),
        (0, 2 * 1440, "creating", 2),
        (0, 2 * 1440, "active", 2),
        (0, 2 * 1440, "inactive", None),
        (0, 2 * 1440, "ended", None),
        (7, 2 * 1440, "active", 2),
        (7, 2 * 1440, "inactive", 7),
        (2, 7 * 1440, "active", 2),
    ],
)
def test_a_session_is_due_when_it_expires_or_when_it_becomes_inactive(
    ttl_days: int, inactive_after_minutes: int, status: str, days: int | None
) -> None:
    settings = SessionSettings(ttl_days=ttl_days, inactive_after_minutes=inactive_after_minutes)
    assert due_at(settings, 5, status) == (5 + days * DAY_MS if days is not None else None)


def test_settings_that_count_silence_in_days_are_read_in_minutes() -> None:
    assert settings_from({"inactive_after_days": 2}).inactive_after_minutes == 2 * 1440
    assert settings_from({"inactive_after_minutes": 5}).inactive_after_minutes == 5
    assert settings_from({}).inactive_after_minutes is None


def test_an_entry_has_what_a_list_shows_and_no_more() -> None:
    key = KEYS.directory
    entry = directory_item(KEYS, CurrentSettings(SessionSettings(title="t"), 9), HEADER)
    assert entry == {
        "pk": key.pk,
        "sk": key.sk,
        "g1pk": key.pk,
        "g1sk": "1000000000000#s1",
        "st": "active",
        "v": 1,
        "c": 9,
        "a": 1_000_000_000_000,
        "pos": 6,
        "ct": "5 70 3",
        "b": pack(b'{"title":"t"}'),
    }
    assert (status_of(entry), active_of(entry), session_id_of(entry)) == ("active", 1_000_000_000_000, "s1")


def test_an_entry_of_a_session_that_is_being_created_counts_nothing() -> None:
    entry = directory_item(KEYS, CurrentSettings(SessionSettings(inactive_after_minutes=2), 9, missing=2), None)
    assert [entry[name] for name in ("st", "a", "pos", "ct", "g1sk")] == ["creating", 9, 0, "0 0 0", f"{9:013d}#s1"]
    assert {name: entry[name] for name in ("g2pk", "g2sk")} == due_index(KEYS, 9 + 2 * 60_000)
    assert read_meta(entry).missing == 2, "what the caller says is missing stays so"
    assert not {"ok", "sm", "ws"} & set(entry)


def test_an_entry_has_the_summary_the_window_sent_and_whether_it_is_exact() -> None:
    summary, sent = Covered(5, 4, 2, 3, 40), Sent(4, 8)
    header = replace(HEADER, summary=summary, sent=sent, ended=6, ttl_days=1, idle_ms=900_000_000_000)
    entry = directory_item(KEYS, CurrentSettings(SessionSettings(ttl_days=1), 9), header, settled=True)
    assert (entry["sm"], entry["ws"], entry["ok"], entry["st"]) == (summary.encode(), sent.encode(), 1, "ended")
    assert (entry["a"], entry["g1sk"]) == (900_000_000_000, f"{900_000_000_000:013d}#s1"), "the newest activity"
    assert entry["g2sk"] == due_index(KEYS, 900_000_000_000 + DAY_MS)["g2sk"]


@pytest.mark.parametrize(
    ("before_ms", "now_ms", "is_due"),
    [(0, 299_999, False), (299_999, 300_000, True), (300_000, 599_999, False), (300_000, 900_001, True)],
)
def test_the_first_commit_of_each_five_minutes_updates_the_entry(before_ms: int, now_ms: int, is_due: bool) -> None:
    assert is_listing_due(before_ms, now_ms) is is_due
    assert is_settled({"a": before_ms}, now_ms) is not is_due
    assert is_settled({"a": before_ms, "ok": 1}, now_ms)


# ------------------------------------------------------------ META


def meta_of(settings: SessionSettings, **changes: Any) -> Item:
    room = Room()
    room.caches.write_settings(KEYS, CurrentSettings(settings, 5, 3))
    item = {**(room.caches.read(KEYS.meta) or {}), **changes}
    return {name: value for name, value in item.items() if value is not None}


@pytest.mark.parametrize(
    ("settings", "kept", "missing", "has_schema"),
    [
        (SessionSettings(title="t"), SessionSettings(title="t"), 0, False),
        (SessionSettings(title="t", system="s"), SessionSettings(title="t"), 1, False),
        (SessionSettings(title="t", state_schema={"type": "object"}), SessionSettings(title="t"), 1, True),
        (SessionSettings(title="t", metadata={"a": "b" * 700}), SessionSettings(title="t"), 2, False),
        (
            SessionSettings(title="t", policy={"steps": ["x" * 700], "compress": {"mode": "off"}}),
            SessionSettings(title="t", policy={"compress": {"mode": "off"}}),
            2,
            False,
        ),
    ],
)
def test_meta_has_the_short_settings_and_says_which_it_lacks(
    settings: SessionSettings, kept: SessionSettings, missing: int, has_schema: bool
) -> None:
    assert read_meta(meta_of(settings)) == CurrentSettings(kept, 5, 3, missing, has_schema)


@pytest.mark.parametrize(("chars", "missing"), [(0, 0), (1, 2)])
def test_meta_has_settings_of_up_to_700_bytes(chars: int, missing: int) -> None:
    empty = len(encode_json({"metadata": {"a": ""}}))
    settings = SessionSettings(metadata={"a": "b" * (700 - empty + chars)})
    assert read_meta(meta_of(settings)).missing == missing


@pytest.mark.parametrize("early_code", [None, 0, 1, 2])
def test_d5_an_early_meta_says_beside_its_content_what_it_lacks(early_code: int | None) -> None:
    item = meta_of(SessionSettings(title="t"), x=early_code, v=None)
    assert read_meta(item).missing == (early_code or 0)


@pytest.mark.parametrize(
    "changes", [{"b": None}, {"b": "text"}, {"b": pack(b"[]")}, {"c": "5"}, {"pos": b"3"}, {"v": "1"}]
)
def test_d4_a_damaged_meta_is_told_by_its_name(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptError) as raised:
        read_meta(meta_of(SessionSettings(title="t"), **changes))
    assert raised.value.details["item"] == KEYS.meta.sk


def test_d5_a_meta_of_a_newer_version_is_told_as_such() -> None:
    with pytest.raises(NewerSchemaError):
        read_meta(meta_of(SessionSettings(), v=2))


def test_d4_an_entry_without_a_status_is_told_by_its_name() -> None:
    with pytest.raises(CorruptError) as raised:
        status_of({"pk": "p", "sk": "S#s1", "st": 1})
    assert raised.value.details["item"] == "S#s1"


def test_meta_has_these_attributes() -> None:
    meta = meta_of(SessionSettings(state_schema={"type": "object"}))
    assert meta == {"pk": KEYS.partition, "sk": "D#META", "pos": 3, "v": 1, "c": 5, "b": pack(b'{"x":1}'), "ss": 1}


def test_a_damaged_cache_is_made_again(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", system="long " * 300, state={"a": 1})
    session.append({"role": "user", "content": "hi"})
    session.patch_state({"b": 2})
    table: Any = harness.app.engine.items
    readers: dict[str, Callable[[], object]] = {
        "S#STATE": lambda: session.state().state,
        "E#SYS": lambda: session.context().system,
    }
    for name, read in readers.items():
        key = Key("T#acme#U#ada#S#s", name)
        before, said = table.get_many([key])[key], read()
        table.put({**before, "pos": int(before["pos"]) ^ 64})
        assert read() == said, name
        session.patch_state({"c": name})
        session.update(system=f"{name} " * 300)
        assert table.get_many([key])[key]["pos"] != int(before["pos"]) ^ 64, f"{name} was written again"
