"""However a range of a log is read, it is the commits that hold it, each once and in order: also through forks of forks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import Harness, sqlite_harness
from turnlog.core.identity import Owner
from turnlog.core.limits import MAX_POSITION
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.commit import VERIFIED, read_commit, stored_lines
from turnlog.log.commit_items import (
    CommitItems,
    Forks,
    as_shared,
    first_position,
    is_tombstone,
    parent_of,
    shared_of,
    shared_position,
)
from turnlog.log.keys import SessionKeys
from turnlog.log.packing import REDACTED_LINE
from turnlog.log.payloads import Payloads
from turnlog.log.tombstones import slot_tombstone
from turnlog.ports import Item, ItemTable, Key, Page, Query

OWNER = Owner.of("acme", "ada")
FORKS = {
    "none": [],
    "at its end": [None],
    "inside": [4],
    "of one another": [6, 9, 4],
    "at one position": [5, 5],
    "inside one commit": [7, 6],
    "at the beginning": [1, 2],
}


@pytest.fixture(params=FORKS)
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Harness, SessionKeys]]:
    """A session with commits of 1 to 4 events, forked at these positions, with commits behind each fork."""
    with sqlite_harness(tmp_path) as harness:
        session = harness.log().sessions.create("0")
        for size in (1, 3, 2, 4):
            session.append(*({"role": "user", "content": f"{size}"} for _ in range(size)))
        for number, at in enumerate(FORKS[request.param], 1):
            session = session.fork(f"{number}", at=at)
            session.append(*({"role": "user", "content": "a"} for _ in range(number)))
            session.append({"role": "user", "content": "b"})
        yield harness, SessionKeys(OWNER, session.id)


def spans(items: Sequence[Item]) -> list[tuple[int, int]]:
    return [(first_position(item), int(str(item["l"]))) for item in items]


def flat(pages: Iterator[Sequence[Item]]) -> list[Item]:
    return [item for page in pages for item in page]


def test_a_short_log_of_forks_is_read_by_one_request_for_each_session(keys: tuple[Harness, SessionKeys]) -> None:
    harness, of = keys
    before = harness.faults.calls
    assert flat(CommitItems(harness.app.engine.items).on(of, 1))
    assert harness.faults.calls - before == 1 + int(of.session_id)


def test_each_range_is_read_by_its_commits(keys: tuple[Harness, SessionKeys]) -> None:
    harness, of = keys
    items = CommitItems(harness.app.engine.items)
    stored = spans(flat(items.on(of, 1)))
    head = stored[-1][1]
    shared = [first_position(item) - 1 for item in flat(items.on(of, 1)) if "fp" in item]
    whole = [(first, min([last, *(end for end in shared if first <= end)])) for first, last in stored]
    assert [position for first, last in whole for position in range(first, last + 1)] == list(range(1, head + 1))
    for first in range(1, head + 1):
        for last in range(first, head + 1):
            wanted = [span for span in stored if span[0] <= last and span[1] >= first]
            for limit in (None, 1, 2):
                on = spans(flat(items.on(of, first, last, limit=limit)))
                back = spans(flat(items.back(of, last, first, limit=limit)))[::-1]
                assert [span for span in on if span[1] >= first] == wanted, (first, last, limit)
                assert [span for span in back if span[1] >= first] == wanted, (first, last, limit)
                assert on == sorted(set(on)) and back == sorted(set(back)), "each once, in order"


def test_each_slot_is_found_by_its_position(keys: tuple[Harness, SessionKeys]) -> None:
    harness, of = keys
    items = CommitItems(harness.app.engine.items)
    stored = flat(items.on(of, 1))
    begins = {first_position(item): item for item in stored}
    head = spans(stored)[-1][1]
    assert items.slots(of, range(1, head + 2)) == begins
    for position in range(1, head + 2):
        assert items.slots(of, [position]) == {at: item for at, item in begins.items() if at == position}
    assert items.slots(of, []) == {}


def test_the_first_page_back_has_its_own_limit(keys: tuple[Harness, SessionKeys]) -> None:
    harness, of = keys
    items = CommitItems(harness.app.engine.items)
    pages = list(items.back(of, limit=1, first_limit=2))
    assert len(pages[0]) <= 2 and all(len(page) == 1 for page in pages[1:])
    assert spans([item for page in pages for item in page])[::-1] == spans(flat(items.on(of, 1)))


# ------------------------------------------------------------ a parent that is erased meanwhile


class Stale(SqliteItemTable):
    """A table whose reader sees the fork's first commit as it was at first, and later as it is."""

    def __init__(self, inner: ItemTable, fork: Item) -> None:
        self._inner, self._fork, self.key = inner, fork, Key(str(fork["pk"]), str(fork["sk"]))
        self.is_stale = True

    def _seen(self, item: Item) -> Item:
        if (item["pk"], item["sk"]) != (self.key.pk, self.key.sk) or not self.is_stale:
            return item
        self.is_stale = False
        return self._fork

    def query(self, query: Query) -> Page:
        page = self._inner.query(query)
        return Page(tuple(map(self._seen, page.items)), page.next)

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        return {key: self._seen(item) for key, item in self._inner.get_many(keys, consistent=consistent).items()}


@pytest.fixture(params=["tombstones", "gone"])
def moved(
    request: pytest.FixtureRequest, keys: tuple[Harness, SessionKeys]
) -> tuple[CommitItems, Stale, SessionKeys, list[Item]]:
    """A fork whose parent was erased after the reader had read the fork's link to it, and the commits of before."""
    harness, of = keys
    items = harness.app.engine.items
    before = flat(CommitItems(items).on(of, 1))
    fork = items.get_many([of.commit(1)])[of.commit(1)]
    if "fp" not in fork:
        pytest.skip("no fork")
    parent = parent_of(of, fork)
    assert Forks(items, Payloads(items, harness.app.engine.blobs)).make_independent(parent) == 1
    own = [Key(parent.partition, str(item["sk"])) for item in items.query(Query(parent.partition, "C#", "C~")).items]
    items.delete_many(own)
    if request.param == "tombstones":
        items.write_many([slot_tombstone(key, bytes(16), now_ms=1) for key in own])
    table = Stale(items, fork)
    return CommitItems(table), table, of, before


def test_a_fork_is_read_as_before_when_its_parent_is_erased_meanwhile(
    moved: tuple[CommitItems, Stale, SessionKeys, list[Item]],
) -> None:
    items, table, of, before = moved
    stored = spans(before)
    head = stored[-1][1]
    for first in range(1, head + 1):
        for last in range(first, head + 1):
            wanted = [span for span in stored if span[0] <= last and span[1] >= first]
            for limit in (None, 1, 2):
                table.is_stale = True
                on = list(items.on(of, first, last, limit=limit))
                table.is_stale = True
                back = list(items.back(of, last, first, limit=limit))
                for pages in (on, back[::-1]):
                    assert all(page for page in pages)
                    assert all(len(page) <= (limit or len(page)) for page in pages), "also the pages of the copy"
                    assert not is_tombstone(flat(iter(pages)))
                assert [span for span in spans(flat(iter(on))) if span[1] >= first] == wanted, (first, last, limit)
                assert [span for span in spans(flat(iter(back)))[::-1] if span[1] >= first] == wanted, (first, last)


def test_each_slot_of_a_fork_is_found_when_its_parent_is_erased_meanwhile(
    moved: tuple[CommitItems, Stale, SessionKeys, list[Item]],
) -> None:
    items, table, of, before = moved
    for wanted in ([first_position(item) for item in before], *([first_position(item)] for item in before)):
        table.is_stale = True
        slots = items.slots(of, wanted)
        assert sorted(map(first_position, slots.values())) == wanted
        assert not is_tombstone(list(slots.values()))


def test_commits_of_before_a_fork_end_where_the_fork_was_made(keys: tuple[Harness, SessionKeys]) -> None:
    """A fork inside a commit shares its part up to there; the rest is marked as behind the end."""
    harness, of = keys
    items = CommitItems(harness.app.engine.items)
    stored = flat(items.on(of, 1))
    ends = {
        first_position(item): min(int(str(item["l"])), *(shared_of(fork) for fork in stored[index + 1 :]), MAX_POSITION)
        for index, item in enumerate(stored)
    }
    for pages in (items.on(of, 1), items.back(of), iter([list(items.slots(of, list(ends)).values())])):
        read = flat(pages)
        assert {first_position(item): shared_position(item, int(str(item["l"]))) for item in read} == ends
        assert all(("fu" in item) == (ends[first_position(item)] < int(str(item["l"]))) for item in read)


def test_own_commits_of_a_fork_take_one_request_and_a_second_finds_the_fork(
    keys: tuple[Harness, SessionKeys], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, of = keys
    table, asked = harness.app.engine.items, list[Key]()
    own = [item for item in flat(CommitItems(table).on(of, 1)) if item["pk"] == of.partition]
    begins, get_many = [first_position(item) for item in own], table.get_many

    def noted(keys: Sequence[Key], **options: bool) -> dict[Key, Item]:
        asked.append(keys[0])
        return get_many(keys, **options)

    monkeypatch.setattr(table, "get_many", noted)
    is_fork = "fp" in own[0]
    for positions, count in (([], 0), (begins[1:], 1), (begins, 1 + is_fork), ([1, *begins], 1), ([999], 2)):
        asked.clear()
        CommitItems(table).slots(of, positions)
        assert sum(key.pk == of.partition for key in asked) == count, positions


def test_what_a_fork_shares_of_a_commit_is_the_commit_with_the_rest_hidden(keys: tuple[Harness, SessionKeys]) -> None:
    harness, of = keys
    for item in flat(CommitItems(harness.app.engine.items).on(of, 1)):
        first, last = first_position(item), int(str(item["l"]))
        whole = {name: value for name, value in item.items() if name != "fu"}
        assert as_shared(whole) is whole and as_shared(whole, last) is whole
        for end in range(first, last):
            for shared in (
                as_shared(whole, end),
                as_shared({**whole, "fu": end}),
                as_shared({**whole, "fu": end}, last),
            ):
                lines, before = stored_lines(shared), stored_lines(whole)
                assert lines[: end - first + 1] == before[: end - first + 1]
                assert all(line.startswith(REDACTED_LINE) for line in lines[end - first + 1 :])
                assert read_commit(shared).header == read_commit(whole).header
                assert VERIFIED.read(shared).digests == VERIFIED.read(whole).digests, "the chain holds"
