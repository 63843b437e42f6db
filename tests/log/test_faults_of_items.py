"""D4: whatever item of the table, or blob, is damaged, of a newer version, cut short or gone: a reader gives the same answer as
before, or a typed error that names the item. Nothing else is raised, and nothing is left out in silence.
"""

from __future__ import annotations

import bz2
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.conftest import sqlite_harness
from tests.effort import is_full
from tests.support.damaged_items import (
    BLOBS,
    FEW,
    KEYS,
    KINDS,
    OTHER_FORMS,
    READERS,
    Built,
    build,
    items_by_kind,
)
from turnlog.core import positions as borders
from turnlog.core.errors import NewerSchemaError
from turnlog.log.commit import VERIFIED
from turnlog.log.packing import CHECKSUM, MAX_UNPACKED_BYTES
from turnlog.ports import MAX_ITEM_BYTES


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(borders, "SEGMENT_POSITIONS", FEW)
        with sqlite_harness(tmp_path_factory.mktemp("built")) as harness:
            yield build(harness)


def test_d4_every_kind_of_item_is_there(built: Built) -> None:
    assert set(items_by_kind(built)) == set(KINDS.values())
    assert {blob_kind(name) for name in built.blobs} == set(BLOBS)
    assert len(bomb()) < MAX_ITEM_BYTES


def damages(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A byte, a type, and one that is missing, of each attribute."""
    for name, value in item.items():
        if name in KEYS:
            continue
        if isinstance(value, bytes) and value:
            yield f"a byte of {name}", {**item, name: value[:-1] + bytes([value[-1] ^ 1])}
            yield f"{name} cut short", {**item, name: value[: len(value) // 2]}
        yield f"another type of {name}", {**item, name: "x" if not isinstance(value, str) else 7}
        if name not in OTHER_FORMS.get(str(item["sk"])[:2], ()):
            yield f"no {name}", {key: entry for key, entry in item.items() if key != name}


@pytest.mark.parametrize("kind", KINDS.values())
def test_d4_a_damaged_item_is_told_by_its_name_or_made_again(
    built: Built, kind: str, tells: Callable[..., None]
) -> None:
    tried, wrong = 0, list[str]()
    for item in items_by_kind(built)[kind][:: 1 if is_full() else 5]:
        for what, damaged in list(damages(item))[:: 1 if is_full() else 3]:
            built.harness.app.engine.items.write_many([damaged])
            # An entry of a segment names it by its digest: what is told then is the segment that is not there.
            names = (str(item["sk"]), "seg/") if kind == "entry of a segment" else (str(item["sk"]),)
            wrong += [f"{item['sk']}, {what}: {entry}" for entry in built.wrong_about(damaged, *names)]
            built.restore()
            tried += 1
    tells("damaged", kind, tried)
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS.values())
def test_d4_another_type_and_nothing_are_told_without_a_checksum_too(built: Built, kind: str) -> None:
    """Items of before have none. Readers tell the item, or answer as before when they do not need the attribute."""
    wrong = list[str]()
    for item in items_by_kind(built)[kind][:: 1 if is_full() else 5]:
        plain = {name: value for name, value in item.items() if name != CHECKSUM}
        for what, damaged in damages(plain):
            if what.startswith(("another type", "no ")):
                built.harness.app.engine.items.write_many([damaged])
                wrong += [f"{item['sk']}, {what}: {entry}" for entry in built.wrong_about(damaged, str(item["sk"]))]
                built.restore()
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS.values())
def test_d4_a_newer_item_is_refused_by_name(built: Built, kind: str, tells: Callable[..., None]) -> None:
    """What has no version of its own is never newer: it says no more than a hash beside it allows."""
    wrong, result = list[str](), 0
    versioned = [item for item in items_by_kind(built)[kind] if "v" in item]
    for item in versioned[:1]:
        built.harness.app.engine.items.write_many([{**item, "v": 99}])
        for reader, read in READERS.items():
            VERIFIED.clear()
            try:
                if read(built.harness.log()) != built.said[reader]:
                    wrong.append(f"{reader} says something else")
            except NewerSchemaError as error:
                result += 1
                if error.item != item["sk"]:
                    wrong.append(f"{reader}: {error}")
        built.restore()
        tells("newer", kind)
    assert wrong == []
    assert result > 0 or not versioned, "somebody reads it"


@pytest.mark.parametrize("kind", ["payload", "seg", "snap", "index", "doc"])
def test_d4_a_blob_that_is_cut_short_another_or_gone_is_told_by_its_name(
    built: Built, kind: str, tells: Callable[..., None]
) -> None:
    store, (name, *_) = built.harness.app.engine.blobs, [name for name in built.blobs if blob_kind(name) == kind]
    data, wrong, result = built.blobs[name], list[str](), 0
    at = len(data) // 2
    harms = {
        "cut": data[:-9],
        "half": data[:at],
        "empty": b"",
        "byte": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
        "other": b"x" * 90,
        "gone": None,
        "bomb": segment_bomb(data) if kind == "seg" else bomb(),
    }
    for what, harmed in harms.items():
        store.erase(name)
        if harmed is not None:
            store.put(name, harmed)
        items = list(built.wrong(name, f"blob:{'/'.join(name.split('/')[3:])}", "K#large"))
        wrong += [f"{what}: {item}" for item in items]
        result += len(items) == 0
        store.put(name, data)
        built.restore()
    tells("blob", BLOBS[kind], len(harms) - 1)
    tells("bomb", BLOBS[kind])
    assert wrong == []


def segment_bomb(data: bytes) -> bytes:
    """The segment's own head and hashes, and a body of one line that never ends."""
    body = 14 + int.from_bytes(data[6:10], "big") + int.from_bytes(data[10:14], "big")
    return data[:body] + bz2.compress(b"0" * (2 * MAX_UNPACKED_BYTES))


@cache
def bomb() -> bytes:
    """A quarter of a gigabyte in a quarter of a megabyte, packed as items and blobs are."""
    return bytes([1]) + b"\0\0\0\0" + zlib.compress(b"0" * (8 * MAX_UNPACKED_BYTES), 9)


@pytest.mark.parametrize("kind", ["commit", "payload", "document", "snapshot", "job", "cache of the settings"])
def test_a_bomb_in_an_item_is_told_with_little_memory(built: Built, kind: str, tells: Callable[..., None]) -> None:
    wrong = list[str]()
    item = next(item for item in reversed(items_by_kind(built)[kind]) if isinstance(item.get("b"), bytes))
    built.harness.app.engine.items.write_many([{**item, "b": bomb()}])
    tracemalloc.start()
    wrong += list(built.wrong(str(item["sk"])))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    built.restore()
    tells("bomb", kind)
    assert wrong == []
    assert peak < 3 * MAX_UNPACKED_BYTES


def blob_kind(name: str) -> str:
    return name.split("/")[3]
