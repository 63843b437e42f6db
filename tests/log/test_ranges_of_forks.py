"""However a range of a log is read, it is the commits that hold it, each once and in order: also through forks of forks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import Harness, sqlite_harness
from turnlog.core.identity import Owner
from turnlog.log.commit_items import CommitItems, first_position
from turnlog.log.keys import SessionKeys
from turnlog.ports import Item

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
