"""Reading a log by positions, by view and by time: whatever is asked, it is what a plain list of the commits says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pytest

from tests.support.memory import memory
from turnlog.core.calls import OpenCalls, Ref, UnansweredCall, call_hash
from turnlog.core.errors import CorruptError, InvalidInputError, NotFoundError
from turnlog.core.events import NoteEvent
from turnlog.core.identity import Owner
from turnlog.core.times import milliseconds_of, rfc3339
from turnlog.engines.files import MemoryBlobStore
from turnlog.log import reading
from turnlog.log.commit import VERIFIED, Commit
from turnlog.log.commit_items import first_position
from turnlog.log.commits import CommitLog, Draft, Tail
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.payloads import Payloads
from turnlog.log.reading import commit_at, header_of_moment, newest_pages, position_at, position_of_moment
from turnlog.log.request_keys import RequestKey
from turnlog.log.tombstones import slot_tombstone
from turnlog.ports import Condition, Item, Lost
from turnlog.testing.fixed import FixedClock, SequentialIds

OWNER = Owner.of("acme", "ada")
REQUEST = RequestKey(b"k" * 16, b"p" * 16)


class Room:
    """A session, a reader of its log, and what was rewound: position of the rewind -> position that it went back to."""

    def __init__(self) -> None:
        log, self.items, blobs = memory()
        self.clock: FixedClock = log.backend.app.clock  # type: ignore[attr-defined]
        self.session = log.sessions.create("s", recall="never")
        self.log = CommitLog(self.items, Payloads(self.items, blobs), self.clock, SequentialIds(500))
        self.rewinds = dict[int, int]()

    @property
    def keys(self) -> SessionKeys:
        return SessionKeys(OWNER, self.session.id)

    @property
    def header(self) -> Header:
        return self.log.tail(self.keys).header

    def say(self, *sizes: int) -> None:
        for size in sizes:
            self.clock.advance(1)
            self.session.append(*({"role": "user", "content": f"{size}"} for _ in range(size)))

    def rewind(self, to: int) -> None:
        self.session.rewind(to)
        self.rewinds[self.session.info().head] = to

    def visible(self) -> set[int]:
        visible = set[int]()
        for position in range(1, self.header.last + 1):
            to = self.rewinds.get(position)
            visible = {item for item in visible if to is None or item <= to} | {position}
        return visible

    def commits(self) -> list[Commit]:
        """Return all commits, oldest first."""
        return self.log.range(self.keys, 1, self.header.last)


def plain(room: Room) -> None:
    room.say(1, 3, 2, 4, 1)


def rewound(room: Room) -> None:
    plain(room)
    room.rewind(7)
    room.say(2, 1)
    room.rewind(14)
    room.say(3)
    room.rewind(14)
    room.say(2, 2)


def rewound_often(room: Room) -> None:
    """More often than a header has room for."""
    for _ in range(20):
        room.say(2, 1)
        room.rewind(room.header.last - 1)
    room.say(2)


def all_rewound(room: Room) -> None:
    room.say(3, 2)
    room.rewind(1)


BUILDS: dict[str, Callable[[Room], None]] = {
    "plain": plain,
    "rewound": rewound,
    "rewound often": rewound_often,
    "all rewound": all_rewound,
}


@pytest.fixture(params=BUILDS)
def room(request: pytest.FixtureRequest) -> Room:
    room = Room()
    BUILDS[request.param](room)
    return room


def shown(commits: Sequence[Commit]) -> list[int]:
    """Return the positions in view of commits."""
    return [
        position
        for commit in commits
        for position in range(commit.header.first, (commit.until or commit.header.last) + 1)
    ]


# ------------------------------------------------------------ by view


@pytest.mark.parametrize("limit", [None, 1, 2, 7])
def test_pages_in_view_are_the_positions_in_view_from_both_ends(room: Room, limit: int | None) -> None:
    visible, header = room.visible(), room.header
    for first in range(1, header.last + 1):
        wanted = {position for position in visible if position >= first}
        back = list(room.log.in_view(room.keys, header, first=first, limit=limit))
        on = list(room.log.in_view_on(room.keys, header, first=first, limit=limit))
        for pages in (back[::-1], on):
            positions = [position for page in pages for position in shown(page)]
            assert positions == sorted(set(positions)), "each once and in order"
            assert set(positions) >= wanted
            assert set(positions) <= visible
            assert all(0 < len(page) <= (limit or len(page)) for page in pages)


@pytest.mark.parametrize("count", [None, 1, 2, 3, 4])
def test_what_was_read_already_is_not_read_again(
    room: Room, monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    header, lasts, back = room.header, list[int](), room.log.stored.back
    wanted = [position for page in room.log.in_view(room.keys, header) for position in shown(page)]
    read = next(back(room.keys, limit=count))

    def noted(keys: SessionKeys, last: int, *args: Any, **options: Any) -> Any:
        if "fork" in options:
            lasts.append(last)
        return back(keys, last, *args, **options)

    monkeypatch.setattr(room.log.stored, "back", noted)
    pages = list(room.log.in_view(room.keys, header, read=read))
    assert sorted(position for page in pages for position in shown(page)) == sorted(wanted)
    assert all(last < first_position(read[-1]) for last in lasts)


def test_pages_of_a_changing_size_cut_what_was_read_already(room: Room) -> None:
    sizes = chain([2, 1, 3], repeat(4))
    read = next(room.log.stored.back(room.keys))
    pages = list(room.log.in_view(room.keys, room.header, read=read, limit=lambda _: next(sizes)))
    assert {position for page in pages for position in shown(page)} == room.visible()
    assert len(pages[0]) <= 2


def test_pages_hold_no_more_than_a_size_wants_of_what_is_read(room: Room) -> None:
    for read in (room.log.in_view, room.log.in_view_on):
        pages = list(read(room.keys, room.header, limit=lambda items: 2 if items else 5))
        assert {position for page in pages for position in shown(page)} == room.visible()
        assert max(map(len, pages)) <= 2


def test_the_newest_pages_are_those_in_view(room: Room) -> None:
    wanted = list(room.log.in_view(room.keys, room.header))
    assert [shown(page) for page in newest_pages(room.log, room.keys, pages=None)] == [shown(page) for page in wanted]
    assert len(list(newest_pages(room.log, room.keys, pages=1))) == 1
    first = next(newest_pages(room.log, room.keys, pages=1, first_limit=1))
    assert shown(first) == shown(wanted[0])[-len(shown(first)) :] and len(first) == 1
    with pytest.raises(NotFoundError):
        next(newest_pages(room.log, SessionKeys(OWNER, "nobody"), pages=1))


# ------------------------------------------------------------ by position


def test_a_position_is_in_the_commit_that_holds_it(room: Room) -> None:
    commits, head = room.commits(), room.header.last
    holders = {
        position: commit for commit in commits for position in range(commit.header.first, commit.header.last + 1)
    }
    for position in range(1, head + 1):
        assert room.log.find_holding(room.keys, position) == holders[position]
        begins = holders[position].header.first == position
        assert room.log.get(room.keys, position) == (holders[position] if begins else None)
        assert commit_at(room.log, room.keys, position)["sk"] == commit_sort_key(holders[position].header.first)
    assert room.log.find_holding(room.keys, head + 1) is None
    assert room.log.find_holding(SessionKeys(OWNER, "nobody"), 1) is None
    with pytest.raises(InvalidInputError) as raised:
        commit_at(room.log, room.keys, head + 1, pointer="/p")
    assert (raised.value.details, raised.value.problems[0].pointer) == ({"head": head}, "/p")
    begins = [commit.header.first for commit in commits]
    assert room.log.at(room.keys, begins) == commits
    with pytest.raises(CorruptError) as damaged:
        room.log.at(room.keys, [begins[-1], head + 1])
    assert damaged.value.details["item"] == commit_sort_key(head + 1)


@pytest.fixture
def plain_room() -> Room:
    room = Room()
    plain(room)
    return room


def lose(room: Room, position: int) -> None:
    room.items.delete_many([room.keys.commit(position)])


@pytest.mark.parametrize(
    ("lost", "first", "last", "named"),
    [(3, 1, 12, 3), (3, 3, 12, 3), (3, 5, 12, 3), (3, 4, 5, 4), (12, 1, 12, 12), (12, 12, 12, 12), (6, 3, 11, 6)],
)
def test_d4_the_first_missing_position_of_a_range_is_named(
    plain_room: Room, lost: int, first: int, last: int, named: int
) -> None:
    """Commits begin at 1, 2, 3, 6, 8 and 12."""
    if lost == 12:
        plain_room.session.record("later")
    lose(plain_room, lost)
    for read in (
        lambda: plain_room.log.range(plain_room.keys, first, last),
        lambda: list(plain_room.log.stored_on(plain_room.keys, first, last)),
    ):
        with pytest.raises(CorruptError) as raised:
            read()
        assert raised.value.details["item"] == commit_sort_key(named)


@pytest.mark.parametrize("lost", [1, 2, 3, 6, 8])
def test_d4_a_commit_that_is_missing_in_view_is_told(plain_room: Room, lost: int) -> None:
    header = plain_room.header
    lose(plain_room, lost)
    for limit in (None, 1):
        for read in (plain_room.log.in_view, plain_room.log.in_view_on):
            with pytest.raises(CorruptError):
                list(read(plain_room.keys, header, limit=limit))


def test_d4_a_log_that_lost_its_end_is_told_by_its_caches(plain_room: Room) -> None:
    header = plain_room.header
    meta: Item = {"pk": "p", "sk": "D#META", "pos": header.last}
    plain_room.log.check_reached(plain_room.keys, header, [])
    plain_room.log.check_reached(plain_room.keys, header, [meta])
    plain_room.log.check_reached(plain_room.keys, header, [{**meta, "pos": 1_000_000_000_000}])
    with pytest.raises(CorruptError) as raised:
        plain_room.log.check_reached(plain_room.keys, header, [meta, {**meta, "pos": header.last + 1}])
    assert raised.value.details["item"] == commit_sort_key(header.last + 1)
    with pytest.raises(CorruptError, match="attribute 'pos'"):
        plain_room.log.check_reached(plain_room.keys, header, [{**meta, "pos": "1"}])


def test_a_log_whose_end_was_erased_is_not_there(plain_room: Room) -> None:
    key = plain_room.keys.commit(plain_room.header.first)
    plain_room.items.put(slot_tombstone(key, bytes(16), now_ms=1))
    for read in (
        plain_room.log.tail,
        lambda keys: position_at(plain_room.log, keys, 0),
        lambda keys: commit_at(plain_room.log, keys, 12),
        lambda keys: next(newest_pages(plain_room.log, keys, pages=1)),
    ):
        with pytest.raises(NotFoundError):
            read(plain_room.keys)


# ------------------------------------------------------------ by request


def note(room: Room, request: RequestKey | None = None) -> Any:
    def compose(tail: Tail) -> Draft:
        header = following(tail.header, kind="h", events=1, now_ms=room.clock.now_ms())
        return Draft(header, (NoteEvent(header.first, "noted", None, None),))

    return room.log.write(room.keys, compose, request)


def test_a3_a_write_says_whether_its_commit_was_there_before(plain_room: Room) -> None:
    before = plain_room.header
    first = note(plain_room, REQUEST)
    assert (first.repeated, first.tail.header) == (False, before)
    assert note(plain_room).repeated is False
    again = note(plain_room, REQUEST)
    assert (again.repeated, again.commit.header.first) == (True, first.commit.header.first)


def test_a3_the_commit_of_a_request_is_found_between_two_positions(plain_room: Room) -> None:
    made = note(plain_room, REQUEST).commit.header.first
    note(plain_room)
    head, log, keys = plain_room.header.last, plain_room.log, plain_room.keys
    for first, last in ((1, head), (made, made), (made, head), (12, made)):
        commit = log.made_by(keys, REQUEST, first, last)
        assert commit is not None and commit.header.first == made
    for first, last in ((1, made - 1), (made + 1, head)):
        assert log.made_by(keys, REQUEST, first, last) is None
    lose(plain_room, 3)
    with pytest.raises(CorruptError):
        log.made_by(keys, REQUEST, 1, head)
    with pytest.raises(CorruptError) as raised:
        log.made_by(keys, REQUEST, 1, 5)
    assert raised.value.details["item"] == commit_sort_key(3)
    assert log.made_by(keys, REQUEST, 6, head) is not None


def test_a3_a_record_that_goes_while_it_is_read_tells_nothing() -> None:
    """The engine deletes it by its ttl between the refused put and the answer."""

    class Table:
        def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
            return Lost(None)

    table: Any = Table()
    log = CommitLog(table, Payloads(table, MemoryBlobStore()), FixedClock(), SequentialIds())
    assert log.begin_request(SessionKeys(OWNER, "s"), REQUEST, head=9) == 0


# ------------------------------------------------------------ by time


@pytest.mark.parametrize("near", [1, 2, 3, 64])
def test_the_position_at_a_time_is_the_newest_until_then(
    room: Room, monkeypatch: pytest.MonkeyPatch, near: int
) -> None:
    monkeypatch.setattr(reading, "NEAR", near)
    ends = [(commit.header.time_ms, commit.header.last) for commit in room.commits()]
    assert position_at(room.log, room.keys, ends[0][0] - 1) is None
    for time_ms, _ in ends:
        for moment in (time_ms - 1, time_ms, time_ms + 1):
            wanted = max((last for end_ms, last in ends if end_ms <= moment), default=None)
            assert position_at(room.log, room.keys, moment) == wanted
    assert position_at(room.log, room.keys, 10**15) == ends[-1][1]
    with pytest.raises(NotFoundError):
        position_at(room.log, SessionKeys(OWNER, "nobody"), 10**15)


def test_the_header_of_a_moment_is_that_of_the_commit_or_of_its_part(room: Room) -> None:
    commits = room.commits()
    for commit in commits:
        header = commit.header
        assert header_of_moment(room.log, room.keys, header.last) == header
        assert header_of_moment(room.log, room.keys, rfc3339(header.time_ms)) == header
        for position in range(header.first, header.last):
            part = header_of_moment(room.log, room.keys, position)
            assert part.last == position
            assert header.flow.messages - part.flow.messages == header.last - position
    with pytest.raises(InvalidInputError) as raised:
        position_of_moment(room.log, room.keys, "soon", pointer="/p")
    assert raised.value.problems[0].pointer == "/p"
    with pytest.raises(NotFoundError):
        position_of_moment(room.log, SessionKeys(OWNER, "nobody"), 1)
    early = rfc3339(commits[0].header.time_ms - 1)
    assert milliseconds_of(early) < commits[0].header.time_ms
    with pytest.raises(InvalidInputError, match="newer than"):
        position_of_moment(room.log, room.keys, early)


def test_d4_a_moment_inside_a_commit_needs_the_commit_before(plain_room: Room) -> None:
    lose(plain_room, 2)
    with pytest.raises(CorruptError) as raised:
        header_of_moment(plain_room.log, plain_room.keys, 4)
    assert raised.value.details["item"] == commit_sort_key(2)


def test_what_is_remembered_of_a_written_commit_is_what_is_stored(plain_room: Room) -> None:
    """The header of a commit that this process wrote is not read back; of 20 open calls an item lists 16."""

    def compose(tail: Tail) -> Draft:
        header = following(tail.header, kind="h", events=1, now_ms=plain_room.clock.now_ms())
        calls = [
            UnansweredCall(Ref(header.first, index), call_hash(f"c{index}"), call_hash("f")) for index in range(20)
        ]
        flow = replace(header.flow, open_calls=OpenCalls(tuple(calls)))
        return Draft(replace(header, flow=flow), (NoteEvent(header.first, "noted", None, None),))

    written = plain_room.log.write(plain_room.keys, compose).commit.header
    remembered = plain_room.log.tail(plain_room.keys).header
    VERIFIED.clear()
    assert plain_room.log.tail(plain_room.keys).header == remembered == written
    assert (len(written.flow.open_calls.calls), written.flow.open_calls.more) == (16, 4)
