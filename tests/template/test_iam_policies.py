"""What IAM refuses when a stack is deployed: each policy of each role, for every combination of parameters, tried offline."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("samtranslator")
from moto.iam.policy_validation import IAMPolicyDocumentValidator, IAMTrustPolicyDocumentValidator

from tests.iam import resolved
from tests.support.templates import template
from turnlog.server.stack import Template, referred

CFN_LINT = find_spec("cfnlint")
"""Imported it would cost each process a second: only its data are read."""
pytestmark = pytest.mark.skipif(CFN_LINT is None, reason="cfn-lint is not installed")
INLINE_CHARACTERS = 10_240
"""Of all inline policies of one role, without white space."""
TRUST_CHARACTERS = 2_048
"""Of a trust policy; an account may ask for more, but has to ask."""
DESCRIPTION_CHARACTERS = 1_000
STACK = "s" * 60
"""A long stack name: the longer an ARN, the longer the policy."""
ARN = {"partition": "aws-us-gov", "region": "ap-southeast-2", "account": "111122223333"}
_MODEL = (
    "arn:aws-us-gov:bedrock:ap-southeast-2:111122223333:inference-profile/apac.anthropic.claude-sonnet-4-20250514-v1:0"
)
VALUES = {
    "TenantIsolation": ("false", "transition", "true"),
    "Tracing": ("Active", "PassThrough"),
    "KmsKeyArn": ("", "arn:aws-us-gov:kms:ap-southeast-2:111122223333:key/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"),
    "SummaryModel": ("", "m"),
    "SummaryModelArns": ("", ",".join([_MODEL] * 12)),
    "RerankModel": ("", "amazon.titan-embed-text-v2:0"),
    "MemoryArn": ("", "arn:aws-us-gov:bedrock-agentcore:ap-southeast-2:111122223333:memory/turnlog_memory-Ab12Cd34Ef"),
}
"""Of the parameters that a condition asks for and that a role depends on: each value that makes a difference."""
VARIANTS = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]


def variant(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the roles as CloudFormation would send them to IAM: conditions decided, references replaced by names."""
    made = Template(template().document, {**template().parameters, **parameters})
    roles = {name: item for name, item in resolved(made).items() if item["Type"] == "AWS::IAM::Role"}
    return {name: literal(role["Properties"], made) for name, role in roles.items()}


def literal(value: Any, made: Template) -> Any:
    """Replace Ref, GetAtt and Sub by values of the length and form that AWS gives them."""
    if isinstance(value, list):
        return [literal(entry, made) for entry in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"}:
        return _reference(value["Ref"], made)
    if set(value) == {"Fn::GetAtt"}:
        return _arn(value["Fn::GetAtt"][0], made)
    if set(value) == {"Fn::Sub"}:
        return re.sub(r"\$\{(!?)([^}]+)\}", lambda match: _substituted(match, made), value["Fn::Sub"])
    return {key: literal(entry, made) for key, entry in value.items()}


def _substituted(match: re.Match[str], made: Template) -> str:
    if match[1]:
        return f"${{{match[2]}}}"
    name, _, attribute = match[2].partition(".")
    return str(_arn(name, made) if attribute == "Arn" else _reference(name, made))


def _reference(name: str, made: Template) -> Any:
    pseudo = {
        "AWS::Partition": ARN["partition"],
        "AWS::Region": ARN["region"],
        "AWS::AccountId": ARN["account"],
        "AWS::URLSuffix": "amazonaws.com",
        "AWS::StackName": STACK,
    }
    if name in pseudo:
        return pseudo[name]
    result = made.parameters[name]
    declared = made.document["Parameters"][name]["Type"]
    return result.split(",") if declared == "CommaDelimitedList" else result


def _arn(name: str, made: Template) -> str:
    partition, region, account = ARN.values()
    physical = f"{STACK}-{name}-A1B2C3D4E5F6"
    forms = {
        "AWS::DynamoDB::Table": f"dynamodb:{region}:{account}:table/{physical}",
        "AWS::S3::Bucket": f"s3:::{physical.lower()[:63]}",
        "AWS::SQS::Queue": f"sqs:{region}:{account}:{physical[:80]}",
        "AWS::IAM::Role": f"iam::{account}:role/{physical[-64:]}",
    }
    resource = made.resources[name]
    if resource["Type"] == "AWS::Logs::LogGroup":
        group = literal(resource["Properties"]["LogGroupName"], made)
        return f"arn:{partition}:logs:{region}:{account}:log-group:{group}:*"
    return f"arn:{partition}:{forms[resource['Type']]}"


def refusals(role: Mapping[str, Any]) -> Iterator[str]:
    """Yield what IAM would refuse of a role, in its words or ours."""
    inline = [(policy["PolicyName"], policy["PolicyDocument"]) for policy in role.get("Policies", [])]
    if len(role.get("ManagedPolicyArns", [])) > 10:
        yield "more than 10 managed policies"
    if len({name for name, _ in inline}) < len(inline):
        yield "two inline policies have one name"
    for name, document in inline:
        yield from _validated(IAMPolicyDocumentValidator, document)
        yield from (f"{name}: {problem}" for problem in _statement_problems(document))
    if (size := sum(_size(document) for _, document in inline)) > INLINE_CHARACTERS:
        yield f"inline policies of {size} characters"
    trust = role["AssumeRolePolicyDocument"]
    yield from _validated(IAMTrustPolicyDocumentValidator, trust)
    if (size := _size(trust)) > TRUST_CHARACTERS:
        yield f"a trust policy of {size} characters"
    if (
        not re.fullmatch(r"[\t\n\r -~\xa1-\xff]*", text := role.get("Description", ""))
        or len(text) > DESCRIPTION_CHARACTERS
    ):
        yield "a description that IAM does not take"


def _validated(validator: type[IAMPolicyDocumentValidator], document: Mapping[str, Any]) -> Iterator[str]:
    try:
        validator(json.dumps(document)).validate()
    except Exception as error:
        yield str(error)


def _size(document: Mapping[str, Any]) -> int:
    return len(re.sub(r"\s", "", json.dumps(document, separators=(",", ":"))))


@cache
def service(name: str) -> Mapping[str, Any]:
    """Return actions and resources of a service, as AWS lists them for its policies; cfn-lint ships the list."""
    assert CFN_LINT is not None and CFN_LINT.origin is not None
    text = (Path(CFN_LINT.origin).parent / "data/AdditionalSpecs/Policies.json").read_text(encoding="utf-8")
    result: Mapping[str, Any] = json.loads(text)[name]
    return result


def _statement_problems(document: Mapping[str, Any]) -> Iterator[str]:
    sids = [statement["Sid"] for statement in document["Statement"]]
    yield from (f"Sid {sid!r} is there twice" for sid in {sid for sid in sids if sids.count(sid) > 1})
    yield from (f"Sid {sid!r} is not alphanumeric" for sid in sids if not re.fullmatch(r"[A-Za-z0-9]+", sid))
    for statement in document["Statement"]:
        resources = _list(statement["Resource"])
        if not all(resources) or not resources:
            yield f"{statement['Sid']} has no resource, or an empty one"
        for action in _list(statement["Action"]):
            yield from _action_problems(action, resources)
        yield from _condition_problems(statement["Sid"], statement.get("Condition", {}))


def _condition_problems(sid: str, conditions: Mapping[str, Any]) -> Iterator[str]:
    """`ForAllValues` is true also of a request without the key: AWS asks for `Null` beside it where it allows."""
    asked = conditions.get("Null", {})
    for operator, keys in conditions.items():
        for key in keys:
            if operator.startswith("ForAllValues:") and asked.get(key) != "false":
                yield f"{sid} allows a request without {key}"


def _action_problems(action: str, resources: list[str]) -> Iterator[str]:
    name, _, verb = action.partition(":")
    known = service(name)
    if verb.lower() not in known["Actions"]:
        yield f"{action} is no action of AWS"
        return
    kinds = known["Actions"][verb.lower()].get("Resources", [])
    forms = [_pattern(form) for kind in kinds for form in known["Resources"][kind]["ARNFormats"]]
    for resource in resources:
        if resource != "*" and not any(form.fullmatch(resource) for form in forms):
            yield f"{action} is never asked for {resource}"
        if resource == "*" and kinds:
            yield f"{action} can be limited to a resource"


def _pattern(form: str) -> re.Pattern[str]:
    """Return the pattern of ``arn:${Partition}:dynamodb:${Region}:${Account}:table/.*``."""
    parts = re.split(r"(\$\{\w+\}|\.\*)", form)
    return re.compile(
        "".join("[^:]*" if part.startswith("$") else part if part == ".*" else re.escape(part) for part in parts)
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_the_variants_are_all_that_roles_depend_on() -> None:
    """Each condition that decides about a role is decided both ways by `VALUES`."""
    document = template().document
    roles = json.dumps(
        {name: resource for name, resource in template().resources.items() if resource["Type"] == "AWS::IAM::Role"}
    )
    used = {*re.findall(r'"Fn::If": \["(\w+)"', roles), *re.findall(r'"Condition": "(\w+)"', roles)}
    asked = {
        name
        for condition in used
        for name in re.findall(r'"Ref": "(\w+)"', json.dumps(document["Conditions"][condition]))
    }
    assert asked <= set(VALUES) and used


@pytest.mark.parametrize("isolation", VALUES["TenantIsolation"])
def test_iam_takes_every_role_of_every_variant(isolation: str) -> None:
    seen, problems = set[str](), set[tuple[str, str]]()
    for parameters in VARIANTS:
        if parameters["TenantIsolation"] == isolation:
            for name, role in variant(parameters).items():
                text = json.dumps(role)
                if text not in seen:
                    seen.add(text)
                    problems |= {(name, problem) for problem in refusals(role)}
    assert sorted(problems) == []


def test_no_variant_refers_to_what_it_does_not_make() -> None:
    """CloudFormation refuses a reference to a resource whose condition is false."""
    for parameters in VARIANTS:
        made = Template(template().document, {**template().parameters, **parameters})
        resources = resolved(made)
        names = set(referred(list(resources.values()))) & template().resources.keys()
        outputs = set(referred(made.document["Outputs"])) & template().resources.keys()
        assert names | outputs <= resources.keys(), parameters


def test_what_iam_refuses_is_noticed() -> None:
    """The check above sees what it is for."""
    statement = {"Sid": "Read", "Effect": "Allow", "Action": "dynamodb:GetItem", "Resource": _arn("Table", template())}
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }

    def found(*statements: Mapping[str, Any]) -> str:
        document = {"Version": "2012-10-17", "Statement": list(statements)}
        role = {"Policies": [{"PolicyName": "inline", "PolicyDocument": document}], "AssumeRolePolicyDocument": trust}
        return "; ".join(refusals(role))

    assert found(statement) == ""
    assert "twice" in found(statement, statement)
    assert "not alphanumeric" in found({**statement, "Sid": "Read-it"})
    assert "no action of AWS" in found({**statement, "Action": "dynamodb:ReadItem"})
    assert "is never asked for" in found({**statement, "Resource": "arn:aws:s3:::bucket"})
    assert "can be limited" in found({**statement, "Resource": "*"})
    assert "Syntax errors" in found({**statement, "Condition": {"StringIs": {"aws:SourceVpc": "x"}}})
    keys = {"dynamodb:LeadingKeys": ["#turnlog"]}
    assert "without dynamodb:LeadingKeys" in found({**statement, "Condition": {"ForAllValues:StringEquals": keys}})
    assert "characters" in found(*({**statement, "Sid": f"Read{number}"} for number in range(100)))
