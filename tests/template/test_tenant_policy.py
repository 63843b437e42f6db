"""The policy for a program of one tenant, which Operations names: it permits what the library asks, and no other's keys."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from tests.conftest import ROOT, Harness, moto_harness
from tests.iam import Asked, allows, asked
from turnlog import Turnlog
from turnlog.core.identity import Owner

POLICY = ROOT / "docs" / "reference" / "tenant-policy.json"
TENANTS = ("a", "ab", "b", "b#U", "https://idp.example/x", "*", "?")


def statements() -> list[dict[str, Any]]:
    text = POLICY.read_text(encoding="utf-8")
    text = text.replace("arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE", "Table").replace("arn:aws:s3:::BUCKET", "Bucket")
    result: list[dict[str, Any]] = json.loads(text)["Statement"]
    return result


@cache
def role() -> Mapping[str, Any]:
    return {"Properties": {"Policies": [{"PolicyDocument": {"Statement": statements()}}]}}


def permitted(tenant_id: str, one: Asked) -> bool:
    return allows(role(), one, {"tenant": tenant_id})


class Recorded:
    """What DynamoDB and S3 are asked for, in the words of IAM."""

    def __init__(self, moto: Harness) -> None:
        self.asked = dict[str, Asked]()
        for client in (moto.clients.dynamodb, moto.clients.s3):
            client.meta.events.register("before-parameter-build", self._record)

    def _record(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        service = model.service_model.service_name
        self.asked |= {str(item): item for item in asked(service, model.name, params)}


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with moto_harness(monkeypatch) as made:
        yield made


def test_a_program_of_one_tenant_has_what_it_needs_and_no_more(moto: Harness) -> None:
    list(moto.log("somebody", "else").sessions.list())  # the page says that one list comes first
    recorded = Recorded(moto)
    ids = {Owner.of(name, "ada").tenant_id for name in TENANTS}
    assert len(ids) == len(TENANTS)
    for tenant in ("a", "*"):  # as it is in keys, and by its digest
        recorded.asked.clear()
        work(moto.log(tenant, "ada"))
        own = Owner.of(tenant, "ada").tenant_id
        calls = list(recorded.asked.values())
        assert {"dynamodb:PutItem", "dynamodb:Query", "s3:PutObject", "s3:GetObject"} <= {call.action for call in calls}
        assert [call for call in calls if not permitted(own, call)] == []
        private = [call for call in calls if call.keys.get("dynamodb:LeadingKeys") != ["#turnlog"]]
        assert [(other, item) for other in ids - {own} for item in private if permitted(other, item)] == []


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
    assert [item.session_id for item in log.sessions.list()] == ["s"]
    log.search("x")
    session.fork("f").append({"role": "user", "content": "other"})
    session.rewind(to=3)


def test_the_policy_refuses_other_tenants_and_what_only_the_eraser_may() -> None:
    def items(action: str, *keys: str) -> Asked:
        return Asked(f"dynamodb:{action}", "Table", {"dynamodb:LeadingKeys": keys})

    assert permitted("a", items("Query", "T#a#U#ada#S#s"))
    assert not permitted("a", items("Query", "T#ab#U#ada#S#s"))
    assert not permitted("a", items("BatchGetItem", "T#a#U#ada#S#s", "T#ab#U#ada#S#s"))
    assert not permitted("a", items("PutItem", "#turnlog"))
    assert not permitted("a", Asked("s3:GetObject", "Bucket/ab/ada/s/payload/1"))
    assert not permitted("a", Asked("s3:ListBucket", "Bucket", {"s3:prefix": ["ab/ada/"]}))
    assert not permitted("a", Asked("s3:ListBucket", "Bucket"))
    actions = {action for statement in statements() for action in statement["Action"]}
    assert actions == {f"dynamodb:{verb}" for verb in ("GetItem", "BatchGetItem", "Query", "PutItem")} | {
        "s3:GetObject",
        "s3:PutObject",
        "s3:ListBucket",
    }
    assert all(
        statement["Condition"]["Null"] and set(statement["Condition"]["Null"].values()) == {"false"}
        for statement in statements()
    )
