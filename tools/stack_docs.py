"""What the stack makes, by kind of resource: a table of docs/how-to/deploy.md, made of template.yaml."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from turnlog.server.stack import expand, template_path

_MARKED = re.compile(r"(<!-- stack; made by `make docs` -->\n).*?(<!-- end -->)", re.S)
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
    """Kind, how many, what it costs, and what stays of it when the stack is deleted. Not what only a parameter asks for."""
    counts = Counter(one["Type"] for one in resources.values() if one.get("Condition", "HasAlarms") in _BY_DEFAULT)
    kept = {one["Type"] for one in resources.values() if one.get("DeletionPolicy") == "Retain"}
    named = sorted(counts, key=lambda kind: (list(_COSTS).index(kind) if kind in _COSTS else len(_COSTS), kind))
    return [
        (kind.removeprefix("AWS::"), counts[kind], _COSTS.get(kind, "nothing"), "stays" if kind in kept else "goes")
        for kind in named
    ]


def with_stack(page: str) -> str:
    """The page with its table made again."""
    rows = ["| makes | | costs | when the stack is deleted |", "|---|---:|---|---|"]
    rows += [
        f"| `{kind}` | {count} | {cost} | {end} |"
        for kind, count, cost, end in kinds(expand(template_path()).document["Resources"])
    ]
    return _MARKED.sub(lambda found: f"{found[1]}{chr(10).join(rows)}\n{found[2]}", page)
