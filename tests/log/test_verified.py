"""Commits are decoded once in a process, and what differs from what was read before is verified anew."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.core.errors import CorruptError, NewerSchemaError
from turnlog.log.commit import VerifiedItems, checked_chain, event_at, read_commit
from turnlog.log.keys import COMMITS_TO, SessionKeys, commit_sort_key
from turnlog.ports import Item, Query


@pytest.fixture
def items() -> list[Item]:
    """The commits of a session."""
    with Turnlog.open("memory://") as log:
        session = log.sessions.create(system="Be brief.")
        for number in range(40):
            session.append({"role": ("user", "assistant")[number % 2], "content": f"{number} " + "word " * number * 20})
        return commits_of(log, session.id)


def commits_of(log: Turnlog, session_id: str) -> list[Item]:
    backend: Any = log.backend
    query = Query(SessionKeys(backend.owner, session_id).partition, commit_sort_key(1), COMMITS_TO)
    return [dict(item) for item in backend.app.engine.items.query(query).items]


def test_what_was_read_before_is_the_same_object(items: list[Item]) -> None:
    known = VerifiedItems()
    first = [known.read(item) for item in items]
    assert all(entry is known.read(dict(item)) for entry, item in zip(first, items, strict=True))


@pytest.mark.parametrize("name", ["l", "t", "n", "ct", "ol", "k", "b", "v"])
def test_an_item_that_was_changed_since_is_found_out(items: list[Item], name: str) -> None:
    known, item = VerifiedItems(), items[20]
    known.read(item)
    changed: dict[str, Any] = {
        "l": 999,
        "t": int(item["t"]) + 1,
        "n": b"another!",
        "ct": "1 1",
        "ol": "1 2 u",
        "k": "?",
        "b": bytes(item["b"])[:-1] + b"\0",  # type: ignore[arg-type]
        "v": 99,
    }
    with pytest.raises((CorruptError, NewerSchemaError)):
        known.read({**item, name: changed[name]})
    assert known.read(item).header.first == 21


def test_of_a_commit_that_is_read_in_part_only_the_lines_at_the_positions_are_parsed() -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create()
        session.append(*({"role": "user", "content": f"{number} \ud800 ü"} for number in range(25)))
        _, item = commits_of(log, session.id)
    complete, part = read_commit(item), read_commit(item, {5, 26, 99})
    assert (part.header, part.home) == (complete.header, complete.home)
    assert [position for position in range(2, 27) if part.line(position)] == [5, 26]
    assert [event_at(part, position, {}) for position in (5, 26)] == [
        event_at(complete, position, {}) for position in (5, 26)
    ]
    with pytest.raises(CorruptError):
        read_commit({**item, "b": bytes(item["b"])[:-1] + b"\0"}, {5})


def test_a_hash_that_does_not_follow_is_found_out_though_both_were_read_before(items: list[Item]) -> None:
    checked_chain(items)
    with pytest.raises(CorruptError, match="chain hash"):
        checked_chain([*items[:10], {**items[10], "h": bytes(16)}])
    with pytest.raises(CorruptError, match="commits are missing"):
        checked_chain([items[3], items[5]])


def test_what_a_reader_does_to_a_message_is_not_seen_by_the_next(items: list[Item]) -> None:
    once = read_commit(items[5])
    once.lines[0]["b"]["content"] = "changed"
    assert read_commit(items[5]).lines[0]["b"]["content"] != "changed"


def test_memory_is_bounded_and_the_newest_stay(items: list[Item]) -> None:
    known = VerifiedItems(max_bytes=20_000)
    kept = known.read(items[0])
    for item in items[1:]:
        known.read(item)
        assert known.read(items[0]) is kept and known.size_bytes <= 20_000
    assert known.read(items[1]) is not None and 0 < known.size_bytes <= 20_000
    known.clear()
    assert known.size_bytes == 0
    result = VerifiedItems(max_bytes=0)
    assert result.read(items[0]).header.first == 1 and result.size_bytes == 0


def test_threads_read_at_once(items: list[Item]) -> None:
    known, wrong = VerifiedItems(max_bytes=30_000), list[object]()

    def read() -> None:
        for _ in range(20):
            for item in items:
                if known.read(item).header.first != int(str(item["sk"])[2:]):
                    wrong.append(item)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 0 < known.size_bytes <= 30_000


def test_a_cleared_and_a_forgotten_cache_hold_nothing(items: list[Item]) -> None:
    cache = VerifiedItems()
    read = [cache.read(item) for item in items[:2]]
    both = cache.size_bytes
    cache.forget(items[0])
    cache.forget(items[0])
    assert 0 < cache.size_bytes < both
    assert cache.read(items[1]) is read[1]
    cache.clear()
    assert cache.size_bytes == 0
    assert cache.read(items[1]) is not read[1]


def test_the_commits_that_were_read_longest_ago_go_first(items: list[Item]) -> None:
    measured = VerifiedItems()
    for item in items[1:4]:
        measured.read(item)
    known = VerifiedItems(measured.size_bytes)
    read = [known.read(item) for item in items[:4]]
    assert known.size_bytes == measured.size_bytes, "exactly full"
    assert [known.read(item) is verified for item, verified in zip(items[1:4], read[1:], strict=True)] == [True] * 3
    assert known.read(items[0]) is not read[0]
