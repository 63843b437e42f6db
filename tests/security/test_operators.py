"""An operator lists the sessions of all users of its tenant, by a right of its own; nobody else does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Harness
from tests.http.events import event
from tests.support.erasing import message_of
from tests.support.jobs import deliver
from turnlog.core.errors import ConflictError, MalformedError
from turnlog.core.identity import Owner
from turnlog.http.lambda_api import make_handler
from turnlog.log.keys import OwnerKeys
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.routing import ROUTES
from turnlog.settings import Settings

TENANT, OTHER_TENANT = "111122223333", "444455556666"


def ask(
    harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
    query: dict[str, str],
    *,
    claims: dict[str, Any] | None = None,
    role: str = "ops",
    headers: dict[str, str] | None = None,
    **settings: Any,
) -> tuple[int, dict[str, Any]]:
    """Ask for a list as a role, or as the bearer of a token with these claims. Return status and body."""
    authorizer: dict[str, Any] = {"iam": {"userArn": f"arn:aws:sts::{TENANT}:assumed-role/{role}/pod"}}
    if claims is not None:
        authorizer, settings = (
            {"jwt": {"claims": {"tenant": TENANT, "sub": "ops", **claims}}},
            {**settings, "identity": "jwt"},
        )
    monkeypatch.setattr(harness.app, "settings", Settings(**settings))
    made = event("GET", "/v1/sessions", query=query, headers=headers, authorizer=authorizer)
    answer = make_handler(ROUTES, harness.app)(made, None)
    return answer["statusCode"], json.loads(answer["body"])


def users_with_sessions(harness: Harness) -> list[tuple[str, str]]:
    """Create sessions of some users, and return (user, id) of the tenant's in the order of a list."""
    for user, count in (("bob", 3), ("ada", 2), ("eve@example.com", 1)):
        for number in range(count):
            harness.clock.advance(1)
            harness.log(TENANT, user).sessions.create(f"{user[:3]}-{number}", title=f"of {user}")
    harness.log(OTHER_TENANT, "ada").sessions.create("foreign")
    ordered = [("ada", "ada-1"), ("ada", "ada-0"), ("bob", "bob-2"), ("bob", "bob-1"), ("bob", "bob-0")]
    return [*ordered, ("eve@example.com", "eve-0")]


def named(sessions: Any) -> list[tuple[str, str]]:
    return [(session.user, session.session_id) for session in sessions]


def test_the_sessions_of_every_user_are_listed_page_by_page(harness: Harness) -> None:
    expected = users_with_sessions(harness)
    sessions = harness.log(TENANT, "ops").sessions
    assert named(sessions.list(user="*")) == expected
    assert named(sessions.list(user="bob")) == [item for item in expected if item[0] == "bob"]
    assert named(sessions.list(user="nobody")) == named(sessions.list()) == []
    for limit in (1, 2, 4, 6):
        pages, cursor = list[Any](), None
        while True:
            page = sessions.page(user="*", limit=limit, cursor=cursor)
            assert len(page.sessions) <= limit
            pages, cursor = pages + page.sessions, page.next_cursor
            if cursor is None:
                break
        assert named(pages) == expected
    harness.log(TENANT, "bob").sessions.get("bob-1").end()
    assert named(sessions.list(user="*", status="ended")) == [("bob", "bob-1")]


@pytest.mark.usefixtures("by_bucket")
def test_imported_and_forked_sessions_are_listed_and_erased_users_are_not(harness: Harness, tmp_path: Any) -> None:
    source = harness.log(TENANT, "ada").sessions.create("one")
    source.append({"role": "user", "content": "hi"})
    source.export(tmp_path / "one.zip")
    harness.log(TENANT, "zoe").sessions.import_(tmp_path / "one.zip")
    sessions = harness.log(TENANT, "ops").sessions
    assert named(sessions.list(user="*")) == [("ada", "one"), ("zoe", "one")]
    job = harness.log(TENANT, "ada").erase_me()
    with pytest.raises(ConflictError):
        harness.log(TENANT, "ada").sessions.create("two")
    for _ in range(2):
        assert deliver(harness, message_of(job, "ada", TENANT)) == set()
        harness.clock.advance(SECOND_PASS_SECONDS)
    assert named(sessions.list(user="*")) == [("zoe", "one")]
    users = harness.app.engine.items.get_many([OwnerKeys(Owner.of(TENANT, name)).user for name in ("ada", "zoe")])
    assert [item["n"] for item in users.values()] == ["zoe"]


GRANTED: list[dict[str, Any]] = [
    {"operator_principals": ("ops",)},
    {"operator_principals": (f"arn:aws:iam::{TENANT}:role/ops",)},
    {"claims": {"scope": "openid turnlog:operator"}, "operator_scope": "turnlog:operator"},
    {"claims": {"scp": "[read turnlog:operator]"}, "operator_scope": "turnlog:operator"},
]
REFUSED: list[dict[str, Any]] = [
    {},
    {"role": "app", "operator_principals": ("ops",)},
    {"operator_principals": (f"arn:aws:iam::{OTHER_TENANT}:role/ops",)},
    {"operator_scope": "turnlog:operator"},
    {"operator_principals": ("ops",), "delegating_principals": ("ops",), "headers": {"X-Turnlog-User": "eve"}},
    {"claims": {"scope": "openid"}, "operator_scope": "turnlog:operator"},
    {"claims": {"scope": "turnlog:operators"}, "operator_scope": "turnlog:operator"},
    {"claims": {"scope": "turnlog:operator"}},
    {"claims": {"scope": ""}},
    {"claims": {}, "operator_principals": ("ops",)},
]


@pytest.mark.parametrize("grant", GRANTED, ids=str)
def test_an_operator_sees_its_own_tenant_alone(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, grant: dict[str, Any]
) -> None:
    expected = users_with_sessions(harness)
    status, body = ask(harness, monkeypatch, {"user": "*"}, **grant)
    assert (status, [(session["user"], session["session_id"]) for session in body["sessions"]]) == (200, expected)


@pytest.mark.parametrize("grant", REFUSED, ids=str)
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_nobody_else_lists_the_sessions_of_other_users(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, grant: dict[str, Any]
) -> None:
    users_with_sessions(harness)
    for user in ("*", "ada"):
        status, body = ask(harness, monkeypatch, {"user": user}, **grant)
        assert (status, body["code"]) == (403, "operator_only")
    mine = "eve" if "headers" in grant else grant.get("role", "ops")
    assert ask(harness, monkeypatch, {"user": mine}, **grant) == (200, {"sessions": [], "next_cursor": None})


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_cursor_of_every_user_is_bound_to_its_tenant_and_filter(harness: Harness) -> None:
    users_with_sessions(harness)
    cursor = harness.log(TENANT, "ops").sessions.page(user="*", limit=1).next_cursor
    for tenant, query in ((OTHER_TENANT, {"user": "*"}), (TENANT, {}), (TENANT, {"user": "*", "status": "ended"})):
        with pytest.raises(MalformedError):
            harness.log(tenant, "ops").sessions.page(cursor=cursor, **query)


def test_a_user_is_checked_in_once(harness: Harness) -> None:
    sessions = harness.log(TENANT, "ada").sessions
    costs = list[int]()
    for number in range(3):
        before = harness.faults.calls
        sessions.create(f"s{number}")
        costs.append(harness.faults.calls - before)
    assert costs[0] == costs[1] + 1 and costs[1] == costs[2]
