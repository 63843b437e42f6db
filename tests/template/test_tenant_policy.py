"""docs/operations.md has a policy for a program of one tenant: it permits what the library asks for, and no other tenant's keys."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import pytest
from botocore.client import BaseClient

from tests.conftest import ROOT, Harness, moto_harness
from turnlog import Turnlog
from turnlog.domain.identity import Owner

Asked: TypeAlias = tuple[str, str]
"""An action, and the partition or the object that it is for."""

PAGE = ROOT / "docs" / "operations.md"
TENANTS = ("a", "ab", "b", "b#U", "https://idp.example/x", "*", "?")
_ACTIONS = {"HeadObject": "GetObject", "ListObjectsV2": "ListBucket"}


def statements() -> list[dict[str, Any]]:
    (text,) = re.findall(r"```json\n(\{\n  \"Version\".*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


def permitted(tenant_id: str, asked: Asked) -> bool:
    """As IAM reads the policy for a session with this tag: ``*`` and ``?`` of a tag's value stand for themselves."""
    action, name = asked
    for one in statements():
        if action in one["Action"]:
            patterns = (
                one["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
                if action.startswith("dynamodb:")
                else [one["Resource"].removeprefix("arn:aws:s3:::BUCKET/")]
            )
            if any(_like(name, pattern, tenant_id) for pattern in patterns):
                return True
    return False


def _like(name: str, pattern: str, tenant_id: str) -> bool:
    return fnmatchcase(name, pattern.replace("${aws:PrincipalTag/tenant}", re.sub(r"([*?\[])", r"[\1]", tenant_id)))


class Recorded:
    """What a client of AWS is asked for, by the names that a policy knows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = set[Asked]()
        inner, asked = BaseClient._make_api_call, self.asked

        def record(client: Any, operation: str, params: dict[str, Any]) -> Any:
            service = client.meta.service_model.service_name
            action = f"{service}:{_ACTIONS.get(operation, operation)}"
            names = _partitions(operation, params) if service == "dynamodb" else [params.get("Key", "")]
            asked.update((action, name) for name in names)
            return inner(client, operation, params)

        monkeypatch.setattr(BaseClient, "_make_api_call", record)


def _partitions(operation: str, params: dict[str, Any]) -> Iterator[str]:
    if operation == "Query":
        yield next(
            value["S"] for name, value in params["ExpressionAttributeValues"].items() if _is_partition(name, params)
        )
    elif operation == "BatchGetItem":
        yield from (key["pk"]["S"] for table in params["RequestItems"].values() for key in table["Keys"])
    else:
        yield (params.get("Key") or params["Item"])["pk"]["S"]


def _is_partition(name: str, params: dict[str, Any]) -> bool:
    return re.search(rf"= {name}\b", params["KeyConditionExpression"]) is not None


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with moto_harness(monkeypatch) as made:
        yield made


def test_a_program_of_one_tenant_has_what_it_needs_and_no_more(moto: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    list(moto.log("somebody", "else").sessions.list())  # the page says that one list comes first
    recorded = Recorded(monkeypatch)
    ids = {Owner.of(name, "ada").tenant_id for name in TENANTS}
    assert len(ids) == len(TENANTS)
    for tenant in ("a", "*"):  # as it is in keys, and by its digest
        recorded.asked.clear()
        work(moto.log(tenant, "ada"))
        own = Owner.of(tenant, "ada").tenant_id
        asked = {one for one in recorded.asked if not one[0].startswith("sqs:")}
        assert {"dynamodb:PutItem", "dynamodb:Query", "s3:PutObject", "s3:GetObject"} <= {action for action, _ in asked}
        assert [one for one in sorted(asked) if not permitted(own, one)] == []
        private = {one for one in asked if one[1] != "#turnlog"}
        assert [(other, one) for other in ids - {own} for one in sorted(private) if permitted(other, one)] == []


def work(log: Turnlog) -> None:
    """What such a program does, with something in each place."""
    session = log.sessions.create("s")
    for number in range(3):
        session.append({"role": "user", "content": f"{number}"}, {"role": "assistant", "content": "x" * 400})
    session.append({"role": "user", "content": secrets.token_hex(40_000)})
    session.append({"role": "assistant", "content": "That is long."})
    session.context()
    session.compress(keep_loops=1)
    session.create_snapshot("n", kind="full")
    session.snapshot("n")
    session.documents.put("d", secrets.token_bytes(40_000))
    assert session.documents.get("d")
    assert len(list(session.messages())) == 8
    assert [one.session_id for one in log.sessions.list()] == ["s"]
    log.search("x")
    session.fork("f").append({"role": "user", "content": "other"})
    session.rewind(to=3)


def test_the_policy_refuses_other_tenants_and_what_only_the_eraser_may() -> None:
    assert permitted("a", ("dynamodb:Query", "T#a#U#ada#S#s"))
    assert not permitted("a", ("dynamodb:Query", "T#ab#U#ada#S#s"))
    assert not permitted("a", ("dynamodb:PutItem", "#turnlog"))
    assert not permitted("a", ("s3:GetObject", "ab/ada/s/payload/1"))
    actions = {action for one in statements() for action in one["Action"]}
    assert actions == {f"dynamodb:{verb}" for verb in ("GetItem", "BatchGetItem", "Query", "PutItem")} | {
        "s3:GetObject",
        "s3:PutObject",
    }
    assert all(one["Condition"]["Null"] and set(one["Condition"]["Null"].values()) == {"false"} for one in statements())
