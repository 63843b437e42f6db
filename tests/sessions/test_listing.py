"""The list of sessions by status, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog.app import Application
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.identity import Owner
from turnlog.log.caches import LISTING_MS
from turnlog.log.keys import SessionKeys
from turnlog.ports import Item, Lost
from turnlog.sessions import read as read_session
from turnlog.settings import Settings
from turnlog.testing.fixed import SequentialIds

ASK = {"role": "user", "content": "And now?"}


def _some(harness: Harness, count: int, ended: set[int]) -> None:
    log = harness.log()
    for at in range(count):
        session = log.sessions.create(f"s{at}")
        if at in ended:
            session.end()
        harness.clock.advance(1)


def _pages(harness: Harness, status: str, limit: int) -> tuple[list[str], int]:
    """What all pages have, and how many there are."""
    result, cursor, pages = list[str](), None, 0
    while True:
        page = harness.log().sessions.page(limit=limit, cursor=cursor, status=status)  # type: ignore[arg-type]
        assert len(page.sessions) <= limit
        assert {session.status for session in page.sessions} <= {status}
        result += [session.session_id for session in page.sessions]
        cursor, pages = page.next_cursor, pages + 1
        if cursor is None:
            return result, pages


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_each_status_is_listed_once_newest_first(harness: Harness, limit: int) -> None:
    _some(harness, 7, ended={0, 3, 4})
    assert _pages(harness, "ended", limit)[0] == ["s4", "s3", "s0"]
    assert _pages(harness, "active", limit)[0] == ["s6", "s5", "s2", "s1"]
    harness.clock.advance(2 * LISTING_MS / 1000)
    assert _pages(harness, "ended", limit)[0] == ["s4", "s3", "s0"], "settled entries say the same"
    harness.log().sessions.get("s6").end()
    assert _pages(harness, "ended", limit)[0][0] == "s6"
    assert _pages(harness, "active", limit)[0] == ["s5", "s2", "s1"]


@pytest.mark.parametrize(
    "wake",
    [
        lambda session: session.append({"role": "user", "content": "I am back"}),
        lambda session: session.put_state({"back": True}),
        lambda session: session.end(),
    ],
    ids=["append", "state", "end"],
)
def test_a_change_of_status_is_in_the_list_at_once(harness: Harness, wake: Callable[[Session], Any]) -> None:
    """Other changes may take five minutes to be there, so that a busy session costs no write to the list for each append."""
    session = harness.log().sessions.create("s", inactive_after_minutes=2880)
    assert _pages(harness, "active", 10)[0] == ["s"]
    harness.clock.advance(3 * 24 * 3600)
    assert harness.app.retain_sessions().timed_out == 1
    assert _pages(harness, "inactive", 10)[0] == ["s"]
    harness.clock.advance(60)
    wake(session)
    assert session.info().status != "inactive"
    assert _pages(harness, session.info().status, 10)[0] == ["s"]
    assert _pages(harness, "inactive", 10)[0] == []


def test_a_filter_looks_through_so_many_then_says_where_to_go_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_session, "_FILTERED_ITEMS", 2)
    monkeypatch.setattr(read_session, "_MAX_PAGES", 2)
    _some(harness, 11, ended={0, 1, 2})
    first = harness.log().sessions.page(limit=1, status="ended")
    assert first.sessions == [] and first.next_cursor is not None
    result, pages = _pages(harness, "ended", 1)
    assert result == ["s2", "s1", "s0"] and pages > 3
    assert [item.session_id for item in harness.log().sessions.list(status="ended")] == ["s2", "s1", "s0"]


def test_what_the_list_tells_of_long_settings_is_whole_whatever_wrote_its_entry(harness: Harness) -> None:
    session = harness.log().sessions.create(
        "s", metadata={"x": "y" * 2_000}, policy={"steps": [{"step": "loops", "max": 1}]}
    )
    result = session.info().metadata, session.info().policy
    for touch in (
        lambda: session.append(ASK),
        lambda: session.put_state({}),
        lambda: session.update(title="New"),
        session.end,
    ):
        harness.clock.advance(LISTING_MS / 1000)
        touch()
        (listed,) = harness.log().sessions.list()
        assert (listed.metadata, listed.policy) == result


def test_a_filter_judges_a_late_entry_by_the_log(harness: Harness) -> None:
    session, keys, table = (
        harness.log().sessions.create("s"),
        SessionKeys(Owner.of("acme", "ada"), "s"),
        harness.app.items,
    )
    entry = table.get_many([keys.directory])[keys.directory]
    session.end()
    table.put(entry)
    harness.clock.advance(LISTING_MS / 1000)
    assert _pages(harness, "active", 10)[0] == []


def test_a_cursor_is_of_its_filter(harness: Harness) -> None:
    _some(harness, 4, ended={0, 1})
    sessions = harness.log().sessions
    cursors = [sessions.page(limit=1, status=status).next_cursor for status in ("active", "ended", None)]  # type: ignore[arg-type]
    for own, cursor in zip(("active", "ended", None), cursors, strict=True):
        assert cursor is not None
        for status in ("active", "ended", None):
            if status == own:
                sessions.page(limit=1, status=status, cursor=cursor)  # type: ignore[arg-type]
                continue
            with pytest.raises(MalformedError) as caught:
                sessions.page(limit=1, status=status, cursor=cursor)  # type: ignore[arg-type]
            assert caught.value.error_code == "bad_cursor"
    with pytest.raises(InvalidInputError):
        sessions.page(status="creating")  # type: ignore[arg-type]


def test_cursors_are_signed_with_one_secret_of_the_table(harness: Harness) -> None:
    again = Application(harness.app.engine, Settings(), clock=harness.clock, ids=SequentialIds(10**7))
    secret = harness.app.log.cursor_secret()
    assert len(secret) >= 32
    assert again.log.cursor_secret() == secret


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_the_entry_is_written_once_in_five_minutes_and_when_the_status_changes(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, written = harness.app.engine.items, list[str]()
    put = table.put

    def noted(item: Item, **options: Any) -> Lost | None:
        written.extend([str(item["st"])] if str(item["sk"]).startswith("S#") else [])
        return put(item, **options)

    harness.clock.advance((LISTING_MS - harness.clock.now_ms() % LISTING_MS) / 1000)  # the begin of five minutes
    session = harness.log().sessions.create("s", inactive_after_minutes=1440)
    monkeypatch.setattr(table, "put", noted)
    for seconds, wanted in (
        (1, []),
        (1, []),
        (290, []),
        (10, ["active"]),
        (1, []),
        (2 * LISTING_MS / 1000, ["active"]),
    ):
        harness.clock.advance(seconds)
        written.clear()
        session.append({"role": "user", "content": "hi"})
        assert written == wanted
    written.clear()
    session.end()
    assert written == ["ended"]


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize("settings", [{}, {"system": "Be brief."}, {"metadata": {"a": "b" * 800}}])
def test_settings_are_read_from_their_caches_and_without_them_from_the_log(
    harness: Harness, settings: dict[str, Any]
) -> None:
    session = harness.log().sessions.create("s", **settings)
    keys, sessions, table = SessionKeys(Owner.of("acme", "ada"), "s"), harness.app.log, harness.app.items
    session.append({"role": "user", "content": "hi"})
    tail = sessions.commits.tail(keys)
    wanted = sessions.settings_from_log(keys, tail.header)
    system = table.get_many([keys.system]).get(keys.system)
    before = harness.faults.calls
    assert sessions.settings(keys, tail.header, tail.meta, system) == wanted
    assert harness.faults.calls == before, "all is known"
    assert sessions.settings(keys, tail.header, tail.meta) == wanted
    assert harness.faults.calls == before + (system is not None)
    table.delete_many([keys.meta, keys.system])
    for meta, cached in ((None, None), (tail.meta, None), (None, system)):
        assert sessions.settings(keys, tail.header, meta, cached) == wanted
    assert table.get_many([keys.meta])[keys.meta] == tail.meta, "they are written again"
