"""What the stack makes, a table of docs/how-to/deploy.md, and what its roles may do, lists of docs/reference/operations.md."""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from turnlog.server.stack import expand, template_path

_MARKED = re.compile(r"(<!-- stack; made by `make docs` -->\n).*?(<!-- end -->)", re.S)
_RIGHTS = re.compile(r"(<!-- rights of (functions|tenants); made by `make docs` -->\n).*?(<!-- end -->)", re.S)
_BASICS = frozenset({"logs:CreateLogStream", "logs:PutLogEvents"})
_SERVICES = {"dynamodb": "table", "s3": "bucket", "sqs": "queue", "bedrock": "model", "bedrock-agentcore": "memory"}
_COSTS = {
    "AWS::DynamoDB::Table": "by request and GB; point-in-time recovery by GB",
    "AWS::S3::Bucket": "by request and GB; payloads over 32 KiB, segments, snapshots, exports",
    "AWS::Lambda::Function": "by call and time",
    "AWS::ApiGatewayV2::Api": "by call",
    "AWS::SQS::Queue": "by request; Lambda polls those with a worker",
    "AWS::Logs::LogGroup": "by GB",
    "AWS::CloudWatch::Alarm": "each month",
    "AWS::CloudWatch::Dashboard": "each month",
}
"""Of all other kinds: nothing."""
_BY_DEFAULT = {"HasAlarms", "HasDashboard"}
"""Conditions of resources that are there unless a parameter leaves them out."""


def kinds(resources: Mapping[str, Any]) -> list[tuple[str, int, str, str]]:
    """List the kinds of resources that no parameter must ask for: kind, number, cost, and whether they outlive the stack."""
    counts = Counter(
        resource["Type"] for resource in resources.values() if resource.get("Condition", "HasAlarms") in _BY_DEFAULT
    )
    kept = {resource["Type"] for resource in resources.values() if resource.get("DeletionPolicy") == "Retain"}
    named = sorted(counts, key=lambda kind: (list(_COSTS).index(kind) if kind in _COSTS else len(_COSTS), kind))
    return [
        (kind.removeprefix("AWS::"), counts[kind], _COSTS.get(kind, "nothing"), "stays" if kind in kept else "goes")
        for kind in named
    ]


def with_stack(page: str) -> str:
    """Return the page with its table made again."""
    rows = ["| makes | | costs | when the stack is deleted |", "|---|---:|---|---|"]
    rows += [f"| `{kind}` | {count} | {cost} | {end} |" for kind, count, cost, end in kinds(_resources())]
    return _MARKED.sub(lambda item: f"{item[1]}{chr(10).join(rows)}\n{item[2]}", page)


def with_rights(page: str) -> str:
    """Return the page with its lists of rights made again."""
    resources = _resources()
    lists = {"functions": function_rights(resources), "tenants": tenant_rights(resources)}
    return _RIGHTS.sub(lambda item: f"{item[1]}{_wrapped(lists[item[2]])}\n{item[3]}", page)


@cache
def _resources() -> Mapping[str, Any]:
    resources: Mapping[str, Any] = expand(template_path()).document["Resources"]
    return resources


def function_rights(resources: Mapping[str, Any]) -> list[str]:
    """List what functions may do by their own roles, as ``- `LintFunction`, `HealthFunction`: table: GetItem ...``."""
    functions = [name for name, resource in resources.items() if resource["Type"] == "AWS::Lambda::Function"]
    roles = {name: resources[resources[name]["Properties"]["Role"]["Fn::GetAtt"][0]] for name in functions}
    holders = defaultdict[str, list[str]](list)
    for name, role in roles.items():
        holders[rights(role) or "its log, as every function"].append(f"`{name}`")
    return [f"- {', '.join(names)}: {allowed}" for allowed, names in holders.items()]


def tenant_rights(resources: Mapping[str, Any]) -> list[str]:
    """List what each role of tenants may do, and for which functions."""
    takers = defaultdict[str, list[str]](list)
    for name, resource in sorted(resources.items()):
        role = resource["Properties"].get("Environment", {}).get("Variables", {}).get("TURNLOG_TENANT_ROLE_ARN")
        if resource["Type"] == "AWS::Lambda::Function" and role is not None:
            takers[role["Fn::If"][1]["Fn::GetAtt"][0]].append(f"`{name}`")
    return [f"- `{role}` for {', '.join(names)}: {rights(resources[role])}" for role, names in takers.items()]


def rights(role: Mapping[str, Any]) -> str:
    """Return ``table: GetItem ...; bucket: ...``; a star is for a condition, which all have that are of a tenant."""
    is_of_tenants = role.get("Condition") == "IsolatesTenants"
    verbs = defaultdict[str, set[str]](set)
    for statement in _statements(role):
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        for action in set(actions) - _BASICS:
            service, _, verb = action.partition(":")
            star = "\\*" if "Condition" in statement and not is_of_tenants else ""
            verbs[_SERVICES[service]].add(f"{verb}{star}")
    return "; ".join(f"{what}: {', '.join(sorted(verbs[what]))}" for what in _SERVICES.values() if what in verbs)


def _statements(role: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the statements of a role but those that all have, and another variant's."""
    for policy in role["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            condition, inner = statement["Fn::If"][:2] if "Fn::If" in statement else ("", statement)
            if condition not in ("HasKmsKey", "IsTraced", "IsolatesTenants"):
                yield inner


def _wrapped(items: list[str]) -> str:
    return "\n".join(textwrap.fill(item, 120, subsequent_indent="  ", break_on_hyphens=False) for item in items)
