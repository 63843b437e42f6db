"""T1, T2, V2: nothing of another owner is reached, and contents stay out of logs and errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.session_routes import BODIES, CANARY, QUERIES, SESSION_ROUTES
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, MalformedError, NotFoundError, TurnlogError
from turnlog.core.identity import Owner
from turnlog.core.models import Cursors
from turnlog.log.keys import SessionKeys
from turnlog.routing import HttpRequest, call

OTHERS = [
    ("acme", "bob"),
    ("other", "ada"),
    ("acme", "ada2"),
    ("acme", "Ada"),
    ("acme#U#ada", "x"),
    ("acme", "ada#S#s"),
]


@pytest.mark.parametrize("owner", OTHERS)
def test_t1_every_route_answers_another_owner_as_if_the_session_were_not_there(
    harness: Any, owner: tuple[str, str]
) -> None:
    mine = harness.log("acme", "ada").sessions.create("shared-id")
    mine.append({"role": "user", "content": CANARY}, run={"iteration": 1, "pending_action": {"tool": "x"}})
    mine.create_snapshot("named")
    mine.documents.put("mine", CANARY.encode())
    before = mine.info(), mine.state(), mine.history_page(), list(mine.documents.list())
    for route in SESSION_ROUTES:
        answers = []
        for session_id in ("shared-id", "not-there"):
            path = {"session_id": session_id, "agent_id": "main", "snapshot": "named", "position": "2"}
            request = HttpRequest(Owner.of(*owner), path, QUERIES.get(route.name, {}), BODIES.get(route.name))
            # An import makes a session of the caller's own, whoever else has one of that id: this one is of nothing.
            with pytest.raises(InvalidInputError if route.name == "import_session" else NotFoundError) as caught:
                call(harness.app, route, request)
            said = str(caught.value).replace(session_id, "ID")
            answers.append((caught.value.error_code, said, caught.value.details))
        assert answers[0] == answers[1], route.name
        assert [message.body["content"] for message in mine.messages()] == [CANARY], route.name
        now = mine.info(), mine.state(), mine.history_page(), list(mine.documents.list())
        assert now == before, route.name
    assert not list(harness.log(*owner).sessions.list())


def test_t1_every_route_with_a_session_is_in_the_matrix() -> None:
    assert {route.name for route in SESSION_ROUTES} == {
        "get_session",
        "update_session",
        "end_session",
        "erase_session",
        "redact_message",
        "rewind_session",
        "diff_session",
        "reset_session",
        "lease_session",
        "send_to_run",
        "append_messages",
        "read_messages",
        "read_loops",
        "build_context",
        "get_agent",
        "patch_agent",
        "decide_pending",
        "get_state",
        "put_state",
        "patch_state",
        "put_documents",
        "get_documents",
        "read_history",
        "record_history",
        "compress_session",
        "get_summary",
        "discard_summary",
        "create_snapshot",
        "list_snapshots",
        "get_snapshot",
        "delete_snapshot",
        "restore_snapshot",
        "export_session",
        "import_session",
        "recall",
        "search_session",
    }


def test_t1_lists_hold_the_caller_s_sessions_only(harness: Any) -> None:
    for at, owner in enumerate([("acme", "ada"), *OTHERS]):
        harness.log(*owner).sessions.create(f"s{at}", title=f"{owner}")
    for at, owner in enumerate([("acme", "ada"), *OTHERS]):
        assert [session.session_id for session in harness.log(*owner).sessions.list()] == [f"s{at}"]


def test_t1_distinct_owners_never_share_a_partition() -> None:
    names = ["a", "A", "h_x", "x" * 65, "a#b", "auth0|1", "arn:aws:iam::1:role/x", "é", "e\u0301", "a b", "😀", "0"]
    partitions = {SessionKeys(Owner.of(tenant, user), "s").partition for tenant in names for user in names}
    assert len(partitions) == len(names) ** 2


@pytest.mark.parametrize(("tenant", "user"), [("\ud800", "ada"), ("acme", "ada\udc00")])
def test_t1_half_a_character_in_the_name_of_an_owner_is_refused(tenant: str, user: str) -> None:
    with pytest.raises(InvalidInputError):
        Turnlog.open("memory://", tenant=tenant, user=user)


@pytest.mark.parametrize("bad", ["", "a" * 257, "a b", "a//b", "../x", "a#b", "h_abc", "é", "a\n", "S#x", "*"])
def test_t1_an_illegal_session_id_is_refused_everywhere(log: Turnlog, bad: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: log.sessions.create(bad),
        lambda: log.sessions.get(bad),
        lambda: log.sessions.of(bad).append({"role": "user", "content": "x"}),
        lambda: log.sessions.of(bad).context(),
    ]
    for make in calls:
        with pytest.raises(InvalidInputError):
            make()


def test_t2_a_cursor_is_bound_to_its_caller_and_filter(harness: Any) -> None:
    mine, other = harness.log("acme", "ada"), harness.log("acme", "bob")
    for at in range(5):
        mine.sessions.create(f"s{at}")
        harness.clock.advance(1)
    first = mine.sessions.page(limit=2)
    assert first.next_cursor is not None
    with pytest.raises(MalformedError):
        other.sessions.page(limit=2, cursor=first.next_cursor)
    with pytest.raises(MalformedError):
        mine.sessions.page(limit=2, cursor=first.next_cursor, status="active")
    for wrong in ("x", "", "é", first.next_cursor[:-2], first.next_cursor + "AAAA", "A" * 400):
        with pytest.raises(MalformedError):
            mine.sessions.page(limit=2, cursor=wrong)
    result, cursor = [], None
    while True:
        page = mine.sessions.page(limit=2, cursor=cursor)
        result += [session.session_id for session in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert result == ["s4", "s3", "s2", "s1", "s0"]


def test_t2_a_cursor_of_another_secret_is_refused() -> None:
    cursor = Cursors(b"one").write({"pk": "p"}, scope="x")
    assert Cursors(b"one").read(cursor, scope="x") == {"pk": "p"}
    with pytest.raises(MalformedError):
        Cursors(b"two").read(cursor, scope="x")


def test_v2_contents_never_reach_logs_or_errors(harness: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log = harness.log()
    session = log.sessions.create("s", system=CANARY, metadata={"m": CANARY}, title=CANARY)
    session.append({"role": "user", "content": CANARY}, idempotency_key="k")
    fitted = log.sessions.create("fitted", state_schema={"properties": {"a": {"const": 1}}})
    attempts: list[Callable[[], Any]] = [
        lambda: session.append({"role": "user", "content": CANARY + "2"}, idempotency_key="k"),
        lambda: session.append({"role": 7, "content": CANARY}),
        lambda: session.append({"role": "user", "content": {"x": CANARY}}),
        lambda: session.append({"role": "user", "content": CANARY}, if_head=99),
        lambda: session.append({"role": "user", "content": CANARY * 3_000_000}),
        lambda: session.append({"role": "user", "content": CANARY, "n": float("nan")}),
        lambda: session.append({"role": "user", "content": CANARY}, meta=[{"status": CANARY}]),
        lambda: session.patch_agent({"iteration": CANARY}),
        lambda: session.put_state({"agents": {"main": {"iteration": CANARY}}}),
        lambda: session.put_state({"a": CANARY}, if_version=9),
        lambda: session.patch_state([{"op": "test", "path": "", "value": CANARY}]),
        lambda: session.patch_state([{"op": "remove", "path": f"/{CANARY}"}]),
        lambda: fitted.put_state({"a": CANARY}),
        lambda: session.documents.put("x", CANARY.encode(), if_revision="none"),
        lambda: session.documents.put("x", CANARY.encode() * 1_000_000),
        lambda: session.backend.call(
            "put_documents", path={"session_id": session.id}, body={"put": [{"key": "x", "data": CANARY}]}
        ),
        lambda: session.decide_pending("reject", reason=CANARY),
        lambda: session.record("x", metadata={"m": CANARY * 10_000}),
        lambda: session.update(title=CANARY * 50),
        lambda: session.context(budget=1),
        lambda: session.recall(CANARY),
        lambda: session.recall("2.0", pattern=f"({CANARY}"),
        lambda: session.recall("2.0", pointer=CANARY),
        lambda: session.search(CANARY * 1_000),
        lambda: log.search(CANARY * 1_000),
        lambda: log.sessions.create("s", system=CANARY),
        lambda: harness.log("acme", "bob").sessions.get("s"),
    ]
    for attempt in attempts:
        with pytest.raises(TurnlogError) as caught:
            attempt()
        shown = f"{caught.value} {caught.value.details} {caught.value.problems}"
        assert CANARY not in shown
    assert CANARY not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("turnlog"))


def test_the_backend_of_one_owner_takes_no_other(harness: Any) -> None:
    backend = InProcessBackend(harness.app, Owner.of("acme", "ada"))
    with pytest.raises(InvalidInputError):
        backend.call("create_session", body={"session_id": "s", "tenant": "other"})
