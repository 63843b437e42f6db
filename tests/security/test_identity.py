"""Which owner a caller is: the kind of an IAM principal is part of it, and what was stored under plain names stays its owner's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Harness
from tests.http.events import event
from turnlog.core.errors import ForbiddenError, InvalidInputError, UnauthorizedError
from turnlog.core.identity import Owner
from turnlog.http.lambda_api import identify, make_handler
from turnlog.routing import ROUTES
from turnlog.settings import Settings

ACCOUNT = "111122223333"
SESSION_OF_ROLE = f"arn:aws:sts::{ACCOUNT}:assumed-role/ada/pod-7f9c"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/service/ada"
USER = f"arn:aws:iam::{ACCOUNT}:user/people/ada"

Call = Callable[..., tuple[int, dict[str, Any]]]


def owner_of(arn: object, person: str | None = None, **settings: Any) -> Owner:
    headers = {} if person is None else {"X-Turnlog-User": person}
    made = event("GET", "/v1/sessions", headers=headers, authorizer={"iam": {"userArn": arn}})
    return identify(made, Settings(**settings)).owner


@pytest.fixture
def call(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Call:
    """A request through the handlers, signed by the principal of an ARN, to functions with these settings."""

    def called(arn: str, method: str, path: str, body: Any = None, **settings: Any) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(harness.app, "settings", Settings(**settings))
        made = event(method, path, body=body, authorizer={"iam": {"userArn": arn}})
        answer = make_handler(ROUTES, harness.app)(made, None)
        return answer["statusCode"], json.loads(answer["body"])

    return called


def test_a_user_and_a_role_of_one_name_are_two_owners(call: Call) -> None:
    for arn in (SESSION_OF_ROLE, USER):
        assert call(arn, "POST", "/v1/sessions", {"session_id": "s", "title": arn})[0] == 201
    for arn in (SESSION_OF_ROLE, USER):
        (session,) = call(arn, "GET", "/v1/sessions")[1]["sessions"]
        assert session["title"] == arn
    assert owner_of(ROLE) == owner_of(SESSION_OF_ROLE) == Owner.of(ACCOUNT, "ada"), "whatever its path and session are"
    assert owner_of(USER) == Owner.of(ACCOUNT, "iam-user/ada")


def test_what_was_stored_under_a_plain_name_is_the_role_s_or_the_named_user_s_and_never_both(
    harness: Harness, call: Call
) -> None:
    """Before kinds, a role and a user of the name `ada` both wrote as the owner `ada`."""
    harness.log(ACCOUNT, "ada").sessions.create("old")
    path = "/v1/sessions/old"
    assert (call(SESSION_OF_ROLE, "GET", path)[0], call(USER, "GET", path)[0]) == (200, 404)
    users: dict[str, Any] = {"plain_iam_users": ("ada",)}
    assert (call(SESSION_OF_ROLE, "GET", path, **users)[0], call(USER, "GET", path, **users)[0]) == (404, 200)
    assert owner_of(SESSION_OF_ROLE, **users) == Owner.of(ACCOUNT, "iam-role/ada")
    assert owner_of(USER.replace("/ada", "/bob"), **users) == Owner.of(ACCOUNT, "iam-user/bob")


@pytest.mark.parametrize("plain", [(), ("ada",), ("bob",), ("ada", "iam-user")])
def test_no_two_principals_and_no_person_share_an_owner(plain: tuple[str, ...]) -> None:
    names = ("ada", "bob", "iam-user", "iam-role", "h_x", "a+b", "ADA")
    arns = [arn.replace("/ada", f"/{name}") for arn in (SESSION_OF_ROLE, USER) for name in names]
    owners = [owner_of(arn, plain_iam_users=plain) for arn in arns]
    assert len({owner.user_id for owner in owners}) == len(arns)
    for name in (*(owner.user for owner in owners if "/" in owner.user), *plain, "boss"):
        with pytest.raises(ForbiddenError):
            owner_of(ROLE.replace("/ada", "/boss"), name, delegating_principals=("boss",), plain_iam_users=plain)


def test_delegation_is_for_roles() -> None:
    for entry in ("ada", ROLE, f"arn:aws:iam::{ACCOUNT}:role/ada"):
        delegating: dict[str, Any] = {"delegating_principals": (entry,)}
        for arn in (SESSION_OF_ROLE, ROLE):
            assert owner_of(arn, "Zoë <zoe@example.com>", **delegating) == Owner.of(ACCOUNT, "Zoë <zoe@example.com>")
        for arn in (USER, SESSION_OF_ROLE.replace("/ada/", "/adam/"), SESSION_OF_ROLE.replace("/ada/", "/adams/ada")):
            with pytest.raises(ForbiddenError):
                owner_of(arn, "zoe", **delegating)
        with pytest.raises(ForbiddenError):
            owner_of(USER, "zoe", **delegating, plain_iam_users=("ada",))
    other = SESSION_OF_ROLE.replace(ACCOUNT, "444455556666")
    assert owner_of(other, "zoe", delegating_principals=("ada",)).tenant == "444455556666", "inside its own account"
    with pytest.raises(ForbiddenError):
        owner_of(other, "zoe", delegating_principals=(ROLE,))


@pytest.mark.parametrize("person", ["ada", "bob", "iam-user/ada", "iam-role/ada", "iam-user/", "", "  "])
def test_a_person_can_be_no_principal(person: str) -> None:
    """Applications pass on names that people have chosen."""
    settings: dict[str, Any] = {"delegating_principals": (ROLE,), "plain_iam_users": ("bob",)}
    with pytest.raises(ForbiddenError):
        owner_of(SESSION_OF_ROLE, person, **settings)
    assert owner_of(SESSION_OF_ROLE, "ada@example.com", **settings).user == "ada@example.com"


@pytest.mark.parametrize(
    "arn",
    [
        f"arn:aws:iam::{ACCOUNT}:root",
        f"arn:aws:sts::{ACCOUNT}:federated-user/ada",
        f"arn:aws:iam::{ACCOUNT}:group/ada",
        f"arn:aws:iam::{ACCOUNT}:oidc-provider/idp.example/ada",
        f"arn:aws:sts::{ACCOUNT}:assumed-role/ada",
        f"arn:aws:sts::{ACCOUNT}:user/ada",
        f"arn:aws:iam::{ACCOUNT}:assumed-role/ada/x",
        f"arn:aws:iam::{ACCOUNT}:user/",
        f"{USER}\n",
        f"x{USER}",
        "arn:aws:iam::12345678901２:user/ada",
        "arn:aws:iam::aws:user/ada",
        ACCOUNT,
        "ada",
        "",
        None,
        7,
    ],
)
def test_who_is_neither_a_role_nor_an_iam_user_owns_nothing(arn: object) -> None:
    for settings in ({}, {"delegating_principals": ("ada",), "plain_iam_users": ("ada",)}):
        with pytest.raises(UnauthorizedError):
            owner_of(arn, **settings)


def test_no_token_delegates() -> None:
    """Its user may be a name that its bearer has chosen."""
    made = event(
        "GET",
        "/v1/sessions",
        headers={"X-Turnlog-User": "bob"},
        authorizer={"jwt": {"claims": {"tenant": ACCOUNT, "sub": "ada"}}},
    )
    with pytest.raises(ForbiddenError):
        identify(made, Settings(identity="jwt", delegating_principals=("ada",)))


@pytest.mark.parametrize(
    ("variable", "good", "bad"),
    [
        (
            "TURNLOG_DELEGATING_PRINCIPALS",
            ["ada", f"ada, {ROLE}", "a+b=c.d@e-f"],
            [USER, SESSION_OF_ROLE, "*", "a/b", f"{ROLE}/"],
        ),
        ("TURNLOG_PLAIN_IAM_USERS", ["ada", "ada,bob@example.com"], [USER, "*", "a/b", "iam-user/ada"]),
    ],
)
def test_a_setting_names_principals_of_its_kind(variable: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        assert getattr(Settings.from_environment({variable: text}), variable.removeprefix("TURNLOG_").lower())
    for text in bad:
        with pytest.raises(InvalidInputError, match=variable):
            Settings.from_environment({variable: text})
