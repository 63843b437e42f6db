"""The settings beside the log: what META holds, when they have an item of their own, and when that refers to a payload."""

from __future__ import annotations

import random

import pytest

from turnlog.core.events import Payload
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.session_settings import SessionSettings
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log import caches
from turnlog.log.caches import Caches, reflected_position
from turnlog.log.keys import SessionKeys
from turnlog.log.lines import settings_object
from turnlog.log.packing import pack
from turnlog.log.payloads import Payloads
from turnlog.ports import Item

KEYS = SessionKeys(Owner.of("acme", "ada"), "s1")


class Room:
    def __init__(self) -> None:
        self.payloads = Payloads(SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore())
        self.caches = Caches(SqliteItemTable(SqliteDatabase(MEMORY)), self.payloads)

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
        self.caches.write_settings(KEYS, settings, position=position, created_ms=5, payload=payload, rewound=rewound)
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
    assert caches._LARGE_BYTES == 32 * 1024
    room = Room()
    payload = room.payload(LARGER)
    monkeypatch.setattr(caches, "_LARGE_BYTES", packed_bytes(LARGER) + spare_bytes)
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
