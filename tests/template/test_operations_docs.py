"""docs/reference/operations.md says what each function may do: exactly what the template's roles grant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnlog.server.stack import expand, template_path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "operations.md"
BASICS = frozenset({"logs:CreateLogStream", "logs:PutLogEvents"})
_SERVICES = {"dynamodb": "table", "s3": "bucket", "sqs": "queue", "bedrock": "model", "bedrock-agentcore": "memory"}


def statements(role: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for policy in role["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            condition, given = statement["Fn::If"][:2] if "Fn::If" in statement else ("", statement)
            if condition not in ("HasKmsKey", "IsTraced", "IsolatesTenants"):  # the same for all; another variant
                yield given


def row(name: str, resources: dict[str, Any]) -> str:
    """``| SessionsFunction | table: GetItem ... |``"""
    role = resources[resources[name]["Properties"]["Role"]["Fn::GetAtt"][0]]
    return f"| `{name}` | {rights(role) or 'its log, as every function'} |"


def rights(role: dict[str, Any]) -> str:
    """``table: GetItem ...``; a star is for a condition, which all have that are of a tenant."""
    is_of_tenants = role.get("Condition") == "IsolatesTenants"
    found = defaultdict[str, set[str]](set)
    for statement in statements(role):
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        for action in set(actions) - BASICS:
            service, _, verb = action.partition(":")
            star = "\\*" if "Condition" in statement and not is_of_tenants else ""
            found[_SERVICES[service]].add(f"{verb}{star}")
    return "; ".join(f"{what}: {', '.join(sorted(found[what]))}" for what in _SERVICES.values() if what in found)


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    found: dict[str, Any] = expand(template_path()).document["Resources"]
    return found


def test_the_page_says_what_each_function_may_do(resources: dict[str, Any]) -> None:
    functions = [name for name, one in resources.items() if one["Type"] == "AWS::Lambda::Function"]
    rows = [row(name, resources) for name in functions]
    text = PAGE.read_text(encoding="utf-8")
    assert [one for one in rows if one not in text] == []
    assert text.count("\n| `") >= len(rows) > 8


def test_the_page_says_what_each_role_of_tenants_may_do_and_for_whom(resources: dict[str, Any]) -> None:
    takers = defaultdict[str, list[str]](list)
    for name, one in sorted(resources.items()):
        taken = one["Properties"].get("Environment", {}).get("Variables", {}).get("TURNLOG_TENANT_ROLE_ARN")
        if one["Type"] == "AWS::Lambda::Function" and taken is not None:
            takers[taken["Fn::If"][1]["Fn::GetAtt"][0]].append(f"`{name}`")
    text = PAGE.read_text(encoding="utf-8")
    rows = [f"| `{role}` | {', '.join(names)} | {rights(resources[role])} |" for role, names in takers.items()]
    assert [one for one in rows if one not in text] == []
    assert len(rows) == len([name for name, one in resources.items() if one.get("Condition") == "IsolatesTenants"])
    direct = {name for name, one in resources.items() if "#turnlog" in str(one)}
    assert all(f"`{name.removesuffix('Role')}`" in text for name in direct)


def test_the_page_says_what_to_do_when_an_alarm_goes(resources: dict[str, Any]) -> None:
    alarms = [name for name, one in resources.items() if one["Type"] == "AWS::CloudWatch::Alarm"]
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in alarms if f"\n| `{name}` | " not in text] == []
    assert len(alarms) >= 3
