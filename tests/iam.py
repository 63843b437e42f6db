"""IAM as far as the template uses it: what a role's statements say to a request, and requests of botocore in its words.

Resources go by their logical ids: ``Table``, ``Table/index/activity``, ``Bucket``, ``Bucket/<name of an object>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnlog.server.stack import Template

_NO_VALUE = {"Ref": "AWS::NoValue"}
_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def resolved(template: Template) -> Mapping[str, Any]:
    """The template's resources as its parameters have them: conditions are decided, and what there is no value for is left out."""
    conditions = template.document["Conditions"]

    def value_of(value: Any) -> Any:
        if isinstance(value, list):
            return [item for item in map(value_of, value) if item != _NO_VALUE]
        if not isinstance(value, dict):
            return value
        if "Fn::If" in value:
            condition, then, otherwise = value["Fn::If"]
            return value_of(then if is_met(conditions[condition], template) else otherwise)
        return {key: result for key, item in value.items() if (result := value_of(item)) != _NO_VALUE}

    there = {
        name: resource
        for name, resource in template.resources.items()
        if "Condition" not in resource or is_met(conditions[resource["Condition"]], template)
    }
    return {name: value_of(item) for name, item in there.items()}


def is_met(condition: Any, template: Template) -> bool:
    """Whether a condition of the template, or an assertion of one of its rules, is true with the template's parameters."""
    ((name, value),) = condition.items()
    if name == "Fn::Equals":
        left, right = (_text(entry, template.parameters) for entry in value)
        return left == right
    if name == "Fn::Not":
        return not is_met(value[0], template)
    assert name == "Condition", f"no condition that is known here: {condition}"
    return is_met(template.document["Conditions"][value], template)


def _text(value: Any, parameters: Mapping[str, str]) -> str:
    if isinstance(value, dict) and "Fn::Join" in value:
        return _text(value["Fn::Join"][1], parameters)
    return parameters[value["Ref"]] if isinstance(value, dict) else str(value)


def statements(role: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Of all policies of a role; actions and resources are lists."""
    assert not role["Properties"].get("ManagedPolicyArns")
    for policy in role["Properties"]["Policies"]:
        for item in policy["PolicyDocument"]["Statement"]:
            yield {
                **item,
                "Action": _list(item["Action"]),
                "Resource": [_named(name) for name in _list(item["Resource"])],
            }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(resource: Any) -> str:
    if isinstance(resource, str):
        return resource
    if "Fn::Sub" in resource:
        return (
            str(resource["Fn::Sub"])
            .replace("${!", "${")
            .replace("${Table.Arn}", "Table")
            .replace("${Bucket.Arn}", "Bucket")
        )
    return str(resource["Fn::GetAtt"][0] if "Fn::GetAtt" in resource else resource["Ref"])


@dataclass(frozen=True)
class Asked:
    """A request as IAM sees it. ``keys`` are those of its conditions; the others are not there."""

    action: str
    resource: str
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)


def allows(role: Mapping[str, Any], asked: Asked, tags: Mapping[str, str] | None = None) -> bool:
    """Whether a session of the role with these tags may do it. There is no Deny in the template's roles."""
    keys = {**asked.keys, **{f"aws:PrincipalTag/{name}": [value] for name, value in (tags or {}).items()}}
    return any(
        statement["Effect"] == "Allow"
        and asked.action in statement["Action"]
        and any(like(asked.resource, pattern, keys) for pattern in statement["Resource"])
        and holds(statement.get("Condition", {}), keys)
        for statement in statements(role)
    )


def may_assume(role: Mapping[str, Any], principal: str, tags: Mapping[str, str]) -> bool:
    """Whether its trust policy lets the role of this logical id take it on with these tags."""
    keys = {f"aws:RequestTag/{name}": [value] for name, value in tags.items()} | (
        {"aws:TagKeys": list(tags)} if tags else {}
    )
    needed = {"sts:AssumeRole"} | ({"sts:TagSession"} if tags else set())
    return any(
        needed <= set(_list(item["Action"]))
        and principal in [_named(name) for name in _list(item["Principal"].get("AWS", []))]
        and holds(item.get("Condition", {}), keys)
        for item in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    )


def holds(conditions: Mapping[str, Any], keys: Mapping[str, Sequence[str]]) -> bool:
    """All conditions of a statement. ``ForAllValues`` is true also of a key that is not there, as in IAM."""
    for operator, wanted in conditions.items():
        for name, patterns in wanted.items():
            values, result = keys.get(name), _list(patterns)
            if operator == "Null":
                is_true = (values is None) == (result == ["true"])
            elif operator.startswith("ForAllValues:"):
                is_true = all(_matches(operator.partition(":")[2], value, result, keys) for value in values or ())
            else:
                is_true = values is not None and len(values) == 1 and _matches(operator, values[0], result, keys)
            if not is_true:
                return False
    return True


def _matches(operator: str, value: str, given: Sequence[str], keys: Mapping[str, Sequence[str]]) -> bool:
    if operator == "StringEquals":
        return value in given
    assert operator == "StringLike", f"no operator that is known here: {operator}"
    return any(like(value, pattern, keys) for pattern in given)


def like(value: str, pattern: str, keys: Mapping[str, Sequence[str]]) -> bool:
    """``*`` and ``?`` of a pattern are wildcards, those of a variable's value stand for themselves. A variable without a value
    matches nothing."""
    expression, end = "", 0
    for item in _VARIABLE.finditer(pattern):
        if item[1] not in keys:
            return False
        (text,) = keys[item[1]]
        expression += _expression(pattern[end : item.start()]) + re.escape(text)
        end = item.end()
    return re.fullmatch(expression + _expression(pattern[end:]), value, re.DOTALL) is not None


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


# ------------------------------------------------------------ requests of botocore

_ACTIONS = {"HeadObject": "GetObject", "ListObjectsV2": "ListBucket", "ListObjectVersions": "ListBucketVersions"}


def asked(service: str, operation: str, params: Mapping[str, Any]) -> list[Asked]:
    """What IAM is asked for a request with these parameters to DynamoDB or S3."""
    if service == "dynamodb":
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        leading = {"dynamodb:LeadingKeys": sorted(set(leading_keys(operation, params)))}
        return [Asked(f"dynamodb:{operation}", f"Table{index}", leading)]
    assert service == "s3", service
    if operation == "DeleteObjects":
        names = [item["Key"] for item in params["Delete"]["Objects"]]
        verbs = {"s3:DeleteObject"} | {
            "s3:DeleteObjectVersion" for item in params["Delete"]["Objects"] if "VersionId" in item
        }
        return [Asked(verb, f"Bucket/{name}") for verb in sorted(verbs) for name in names]
    action = f"s3:{_ACTIONS.get(operation, operation)}"
    if operation.startswith("List"):
        return [Asked(action, "Bucket", {"s3:prefix": [params["Prefix"]]} if "Prefix" in params else {})]
    return [Asked(action, f"Bucket/{params['Key']}")]


def leading_keys(operation: str, params: Mapping[str, Any]) -> Iterator[str]:
    """The partitions that a request to DynamoDB names: those of the index where it asks one."""
    if operation == "Query":
        equal = re.findall(r"= (:\w+)", params["KeyConditionExpression"])
        yield params["ExpressionAttributeValues"][equal[0]]["S"]
    elif operation == "BatchGetItem":
        yield from (key["pk"]["S"] for table in params["RequestItems"].values() for key in table["Keys"])
    elif operation == "BatchWriteItem":
        for requests in params["RequestItems"].values():
            for request in requests:
                yield (request["PutRequest"]["Item"] if "PutRequest" in request else request["DeleteRequest"]["Key"])[
                    "pk"
                ]["S"]
    else:
        yield (params.get("Key") or params["Item"])["pk"]["S"]
