"""Tenant isolation: what the roles of tenants allow, whom, and what is left to the functions' own roles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("samtranslator")

from tests.iam import Asked, allows, may_assume, resolved, statements
from tests.support.templates import template
from turnlog.core.identity import Owner

KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d"


@cache
def resources(isolation: str) -> Mapping[str, Any]:
    return resolved(template(KmsKeyArn=KEY, TenantIsolation=isolation))


def functions(isolation: str = "true") -> list[str]:
    return [name for name, resource in resources(isolation).items() if resource["Type"] == "AWS::Lambda::Function"]


def own_role(function: str, isolation: str = "false") -> Mapping[str, Any]:
    result: Mapping[str, Any] = resources(isolation)[own_role_name(function)]
    return result


def test_a_tenants_role_gives_a_function_nothing_that_its_own_has_not_without_it() -> None:
    """But one item in a request of several, and a list of sessions by an index: it may read those items without."""
    alike = {("dynamodb:BatchGetItem", "Table"): ("dynamodb:GetItem", "Table")}
    alike[("dynamodb:Query", "Table/index/activity")] = ("dynamodb:Query", "Table")
    result = resources("true")
    for function, role in tenant_roles().items():
        own = {
            (action, pattern)
            for statement in statements(own_role(function))
            for action in statement["Action"]
            for pattern in statement["Resource"]
        }
        for item in statements(result[role]):
            for action in set(item["Action"]) - {"kms:Decrypt", "kms:GenerateDataKey"}:
                for pattern in item["Resource"]:
                    right = action, re.sub(r"\$\{aws:PrincipalTag/tenant\}/\*$", "*", pattern)
                    whole = right[0], right[1].replace("/~exports/*", "/*")
                    assert {right, whole, alike.get(right)} & own, (function, role, right)
    assert len(tenant_roles()) == 16


def test_with_isolation_no_function_may_reach_a_tenant_by_itself() -> None:
    for function in tenant_roles():
        for item in statements(own_role(function, "true")):
            services = {action.partition(":")[0] for action in item["Action"]}
            assert "s3" not in services, (function, item)
            if "dynamodb" in services and item["Resource"] != ["Table/index/expiry"]:
                assert item["Condition"]["ForAllValues:StringEquals"] == {"dynamodb:LeadingKeys": ["#turnlog"]}, (
                    function
                )
            assert "Table/index/expiry" not in item["Resource"] or function == "RetentionWorker"
    transition = {function: list(statements(own_role(function, "transition"))) for function in tenant_roles()}
    assert all(
        statement in transition[function]
        for function in transition
        for statement in statements(own_role(function, "false"))
    ), "while isolation begins, nothing is taken away"


def tenant_roles(isolation: str = "true") -> dict[str, str]:
    """The logical id of the role that each function is told to take on."""
    return {
        name: variable["Fn::GetAtt"][0]
        for name, resource in resources(isolation).items()
        if resource["Type"] == "AWS::Lambda::Function"
        and (variable := resource["Properties"]["Environment"]["Variables"].get("TURNLOG_TENANT_ROLE_ARN"))
    }


def test_who_may_take_on_a_tenants_role_and_how() -> None:
    result = resources("true")
    roles = {name for name, item in result.items() if item["Type"] == "AWS::IAM::Role"}
    tenants = set(tenant_roles().values())
    assert roles - tenants == {
        own_role_name(function) for function in result if result[function]["Type"] == "AWS::Lambda::Function"
    }
    for role in tenants:
        trusted = {item for item in roles if may_assume(result[role], item, {"tenant": "a"})}
        assert trusted == {own_role_name(function) for function, taken in tenant_roles().items() if taken == role}
        for entry in trusted:
            assert not may_assume(result[role], entry, {})
            assert not may_assume(result[role], entry, {"tenant": "a", "other": "b"})
            assert not may_assume(result[role], entry, {"other": "a"})
    deletes = {
        role
        for role in tenants
        for statement in statements(result[role])
        if "Delete" in str(statement) or "BatchWrite" in str(statement)
    }
    assert deletes == {tenant_roles()["EraseWorker"]} and list(tenant_roles().values()).count(deletes.pop()) == 1
    assert tenant_roles("transition") == tenant_roles()
    assert tenant_roles("false") == {} and not [name for name in resources("false") if name.startswith("Tenant")]


def own_role_name(function: str) -> str:
    return str(resources("true")[function]["Properties"]["Role"]["Fn::GetAtt"][0])


TENANTS = ("a", "ab", "b", "b#U", "https://idp.example/x", "*", "?", "${aws:PrincipalTag/tenant}")


@pytest.mark.parametrize("role", ["Jobs", "Memory", "Mender", "Writer", "Eraser"])
def test_a_role_reaches_one_tenant(role: str) -> None:
    """Whatever tenants are called: their ids in keys hold no wildcard of a policy, and no variable."""
    rights = [
        statement
        for statement in statements(resources("true")[f"Tenant{role}Role"])
        if "kms:Decrypt" not in statement["Action"]
    ]
    ids = [Owner.of(name, "ada").tenant_id for name in TENANTS]
    for own in ids:
        for other in [*ids, "#turnlog", "X#1"]:
            key = other if "#" in other else f"T#{other}#U#ada#S#s"
            for right in rights:
                for action in right["Action"]:
                    for pattern in right["Resource"]:
                        name = pattern.replace("${aws:PrincipalTag/tenant}/*", f"{other}/ada/s/payload/1")
                        prefix = f"{other}/ada/s/" if role != "Jobs" else f"~exports/{other}/"
                        keys = (
                            {"dynamodb:LeadingKeys": [key]}
                            if action.startswith("dynamodb:")
                            else {"s3:prefix": [prefix]}
                            if name == "Bucket"
                            else {}
                        )
                        asked = Asked(action, name, keys)
                        is_own = own == other
                        assert allows(resources("true")[f"Tenant{role}Role"], asked, {"tenant": own}) is is_own, asked
                        assert not allows(resources("true")[f"Tenant{role}Role"], asked, {}), (
                            "a session without the tag"
                        )
                        if action.startswith("dynamodb:"):
                            both = replace(asked, keys={"dynamodb:LeadingKeys": [f"T#{own}", "T#zz"]})
                            assert not allows(resources("true")[f"Tenant{role}Role"], both, {"tenant": own}), "a batch"
                            assert not allows(
                                resources("true")[f"Tenant{role}Role"], replace(asked, keys={}), {"tenant": own}
                            )
                        elif name == "Bucket":
                            whole = replace(asked, keys={})
                            assert not allows(resources("true")[f"Tenant{role}Role"], whole, {"tenant": own}), (
                                "the whole bucket"
                            )


def test_a_tenants_role_names_actions_and_what_begins_with_the_tag() -> None:
    tag = "${aws:PrincipalTag/tenant}"
    places = {"Table", "Table/index/activity", "Bucket", f"Bucket/{tag}/*", f"Bucket/~exports/{tag}/*", "KmsKeyArn"}
    result = resources("true")
    for role in set(tenant_roles().values()):
        assert result[role]["Properties"]["MaxSessionDuration"] == 3600, "the most for a role that a role assumes"
        for statement in statements(result[role]):
            assert set(statement["Resource"]) <= places
            assert not any("*" in action for action in statement["Action"])
            assert not {"dynamodb:Scan", "dynamodb:DeleteItem", "s3:*"} & set(statement["Action"])
            if "kms:Decrypt" not in statement["Action"]:
                assert statement["Condition"]["Null"]["aws:PrincipalTag/tenant"] == "false"
                assert tag in str(
                    [
                        statement["Resource"],
                        statement["Condition"].get("ForAllValues:StringLike"),
                        statement["Condition"].get("StringLike"),
                    ]
                )
