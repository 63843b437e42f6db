"""Snapshots of kind `ref`: points of the log, listed and read (D6 for a pointer, T1, T2 for these routes)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chat_messages import user
from turnlog.client.model import Session
from turnlog.core.errors import ConflictError, CorruptError, InvalidInputError, MalformedError, NotFoundError
from turnlog.log.keys import SessionKeys

TOOL = {"name": "search", "description": "Searches the web.", "input_schema": {"type": "object"}}


@pytest.fixture
def session(log: Any) -> Session:
    made: Session = log.sessions.create(
        "s", system="Be brief.", model="gpt-4o", tools=[TOOL], state={"mood": "calm"}, metadata={"team": "a"}
    )
    made.append(user("one"), {"role": "assistant", "content": "1"}, run={"iteration": 1})
    return made


def test_d6_a_snapshot_is_the_session_at_one_commit(session: Session) -> None:
    made, info = session.create_snapshot("before", metadata={"why": "test"}), session.info()
    session.append(user("two"), run={"iteration": 2})
    session.patch_agent({"iteration": 3})
    for value in (session.snapshot("before"), session.snapshot(made.snapshot_id)):
        assert value.model_dump(exclude={"content", "parts"}) == made.model_dump()
        assert (value.name, value.kind, value.position, value.metadata) == ("before", "ref", 4, {"why": "test"})
        content = value.content
        assert [message.body["content"] for message in content.messages] == ["one", "1"]
        assert content.next is None
        assert content.state["mood"] == "calm"
        assert content.state["agents"]["main"]["iteration"] == 1
        assert (content.system, content.metadata, content.policy) == ("Be brief.", {"team": "a"}, "default")
        assert (content.model, content.tools) == ("gpt-4o", [TOOL])
        assert (content.message_count, content.loops, content.tokens) == (2, 1, info.tokens)


def test_names_may_repeat_and_stand_for_the_newest(harness: Any, session: Session) -> None:
    first = session.create_snapshot("daily")
    harness.clock.advance(1)
    session.append(user("two"))
    second = session.create_snapshot("daily")
    assert first.snapshot_id != second.snapshot_id
    assert session.snapshot("daily").snapshot_id == second.snapshot_id
    assert session.snapshot(first.snapshot_id).position == 4


def test_if_name_absent(harness: Any, session: Session) -> None:
    first = session.create_snapshot("once", if_name_absent=True, idempotency_key="k")
    assert session.create_snapshot("once", if_name_absent=True, idempotency_key="k") == first
    with pytest.raises(ConflictError) as raised:
        session.create_snapshot("once", if_name_absent=True)
    assert raised.value.error_code == "snapshot_exists"
    assert [snapshot.snapshot_id for snapshot in session.snapshots()] == [first.snapshot_id]


def test_a_name_whose_snapshot_was_never_stored_is_free_after_a_minute(harness: Any, session: Session) -> None:
    items, keys = harness.app.engine.items, SessionKeys(session.backend.owner, "s")  # type: ignore[attr-defined]
    lost = keys.snapshots.name("once")
    items.put({"pk": lost.pk, "sk": lost.sk, "id": "1700000000000-gone", "c": harness.clock.now_ms()})
    with pytest.raises(ConflictError):
        session.create_snapshot("once", if_name_absent=True)
    harness.clock.advance(61)
    made = session.create_snapshot("once", if_name_absent=True)
    assert session.snapshot("once").snapshot_id == made.snapshot_id


def test_pages_newest_first_with_filters(harness: Any, session: Session) -> None:
    made = []
    for at in range(13):
        made.append(session.create_snapshot("odd" if at % 2 else "even", agent_id=f"a{at % 3}"))
        harness.clock.advance(1)
    wanted = [item.snapshot_id for item in reversed(made)]
    call = session.backend.call
    first = call("list_snapshots", path={"session_id": "s"}, query={"limit": 5})
    rest = call("list_snapshots", path={"session_id": "s"}, query={"limit": 100, "cursor": first.next_cursor})
    assert [value.snapshot_id for value in [*first.snapshots, *rest.snapshots]] == wanted
    assert rest.next_cursor is None
    assert [snapshot.snapshot_id for snapshot in session.snapshots(name="odd")] == [
        item.snapshot_id for item in reversed(made) if item.name == "odd"
    ]
    assert {snapshot.agent_id for snapshot in session.snapshots(agent="a1")} == {"a1"}
    with pytest.raises(MalformedError):
        call("list_snapshots", path={"session_id": "s"}, query={"limit": 5, "cursor": first.next_cursor, "name": "odd"})


def test_t1_t2_another_owner_sees_nothing(harness: Any, session: Session) -> None:
    made = session.create_snapshot("mine")
    session.create_snapshot("mine")
    call = session.backend.call
    cursor = call("list_snapshots", path={"session_id": "s"}, query={"limit": 1}).next_cursor
    other = harness.log(user="eve")
    stranger = other.sessions.of("s")
    for attempt in (
        lambda: stranger.snapshot(made.snapshot_id),
        lambda: stranger.snapshot("mine"),
        lambda: list(stranger.snapshots()),
        lambda: stranger.create_snapshot("x"),
    ):
        with pytest.raises(NotFoundError):
            attempt()
    other.sessions.create("s")
    assert list(stranger.snapshots()) == []
    with pytest.raises(MalformedError):
        other.backend.call("list_snapshots", path={"session_id": "s"}, query={"cursor": cursor})


def test_one_put_and_one_more_for_the_name(harness: Any, session: Session) -> None:
    started = harness.faults.calls
    session.create_snapshot()
    assert harness.faults.calls - started == 2, "the tail, and one conditional put"
    started = harness.faults.calls
    session.create_snapshot("named")
    assert harness.faults.calls - started == 3


def test_a_log_that_is_another_one_is_told(harness: Any, session: Session) -> None:
    session.create_snapshot("s1")
    keys = SessionKeys(session.backend.owner, "s")  # type: ignore[attr-defined]
    items = harness.app.engine.items
    commit = dict(items.get_many([keys.commit(2)])[keys.commit(2)])
    items.put(commit | {"h": bytes(16)})
    with pytest.raises(CorruptError):
        session.snapshot("s1")


@pytest.mark.parametrize(
    "body", [{"kind": "half"}, {"keep": 0}, {"name": ""}, {"name": "a/b"}, {"name": "a\n"}, {"agent_id": "ä"}]
)
def test_what_is_not_taken(session: Session, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        session.backend.call("create_snapshot", path={"session_id": "s"}, body=body)
    assert list(session.snapshots()) == []


def test_another_payload_with_the_same_key(session: Session) -> None:
    session.create_snapshot("a", idempotency_key="k")
    with pytest.raises(InvalidInputError) as raised:
        session.create_snapshot("b", idempotency_key="k")
    assert raised.value.error_code == "idempotency_mismatch"


def test_a_long_session_is_read_on_by_its_pages(session: Session) -> None:
    for at in range(6):
        session.append(*(user(f"{at} {index}") for index in range(20)))
    made = session.create_snapshot()
    session.append(user("later"))
    content = session.snapshot(made.snapshot_id).content
    values = [message.body["content"] for message in content.messages]
    assert len(values) == 100
    page = session.page(after=content.next, before=made.position + 1)
    values += [message.body["content"] for message in page.messages]
    assert len(values) == content.message_count == 122
    assert "later" not in values
