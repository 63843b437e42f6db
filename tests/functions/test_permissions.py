"""Every AWS call that a function makes is one that its role allows, and a role allows little else.

The functions run once, with tenant isolation, which is the stricter variant: what is asked of AWS is the same without it, but for
the credentials. `tests.functions.deployment` refuses what the roles do not allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import boto3
import pytest

from tests.functions.deployment import Deployment, deployed, noise, use
from tests.iam import allows, like, resolved, statements
from tests.support.templates import template
from turnlog.core.identity import serving
from turnlog.log.keys import SessionKeys
from turnlog.server.stack import REGION

TENANT = "111122223333"
"""Who calls in the events."""
EVERYTHING = {
    "KmsKeyArn": "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d",
    "SummaryModel": "m",
    "SummaryModelArns": "arn:aws:bedrock:eu-central-1::foundation-model/m",
    "RerankModel": "amazon.titan-embed-text-v2:0",
    "MemoryArn": "arn:aws:bedrock-agentcore:eu-central-1:111122223333:memory/turnlog_memory-Ab12Cd34Ef",
}
"""Parameters with which every right is there."""
IMPLICIT = {
    "logs:CreateLogStream",  # the Lambda service writes logs and receives messages with the role
    "logs:PutLogEvents",
    "xray:PutTraceSegments",  # and traces
    "xray:PutTelemetryRecords",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "kms:Decrypt",  # by DynamoDB, S3 and SQS, when there is a key
    "kms:GenerateDataKey",
    "s3:ListBucket",  # S3 asks for it when the object of a GetObject is missing
}
_NO_CARD = "a message without a card is read whole by a summary"
_LARGE_SUMMARY = "a summary of more than 32 KB packed is a blob"
_NO_MODEL = "moto has no models: tests/summarisers asks one over HTTP"
_LOST = "large settings of a silent session are a blob, read when their cache is lost"
_NO_AGENTCORE = "the embedded engine runs here: tests/memories asks AgentCore over HTTP"
_EMBEDDINGS = "arn:${AWS::Partition}:bedrock:${AWS::Region}::foundation-model/${RerankModel}"
NOT_RUN_HERE = {
    **{
        (function, f"bedrock-agentcore:{action}", "MemoryArn"): _NO_AGENTCORE
        for function, actions in {
            "SessionsFunction": ("RetrieveMemoryRecords", "ListMemoryRecords"),
            "BuildContextFunction": ("RetrieveMemoryRecords",),
            "MemoryFunction": ("ListMemoryRecords", "BatchDeleteMemoryRecords"),
            "OffloadWorker": ("ListEvents", "CreateEvent"),
            "EraseWorker": (
                *("ListSessions", "ListEvents", "DeleteEvent"),
                *("ListMemoryRecords", "BatchDeleteMemoryRecords"),
            ),
        }.items()
        for action in actions
    },
    ("RetentionWorker", "s3:GetObject", "Bucket/*"): _LOST,
    **{
        (
            function,
            "bedrock:InvokeModel",
            _EMBEDDINGS,
        ): "moto has no models: tests/search/test_reranking asks one over HTTP"
        for function in ("MessagesFunction", "BuildContextFunction")
    },
    ("CompressFunction", "dynamodb:BatchGetItem", "Table"): _NO_CARD,
    ("CompressFunction", "s3:GetObject", "Bucket/*"): _NO_CARD,
    ("CompressFunction", "s3:PutObject", "Bucket/*"): _LARGE_SUMMARY,
    ("CompressWorker", "s3:GetObject", "Bucket/*"): _NO_CARD,
    ("CompressWorker", "sqs:SendMessage", "CompressQueue"): "more to cover than one job has time for",
    ("CompressFunction", "bedrock:InvokeModel", "SummaryModelArns"): _NO_MODEL,
    ("CompressWorker", "bedrock:InvokeModel", "SummaryModelArns"): _NO_MODEL,
    ("OffloadWorker", "bedrock:InvokeModel", "SummaryModelArns"): _NO_MODEL,
}
"""What is allowed for paths that these runs don't take, and why."""


@cache
def resources(isolation: str) -> Mapping[str, Any]:
    return resolved(template(**EVERYTHING, TenantIsolation=isolation))


def role_of(function: str, isolation: str = "false") -> Mapping[str, Any]:
    result: Mapping[str, Any] = resources(isolation)[
        resources(isolation)[function]["Properties"]["Role"]["Fn::GetAtt"][0]
    ]
    return result


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with deployed({"TenantIsolation": "true"}) as made:
        use(made)
        yield made


def test_every_call_is_allowed(deployment: Deployment) -> None:
    assert len(deployment.iam.calls) > 500
    assert deployment.iam.refused == []


def test_every_call_is_allowed_without_isolation_too(deployment: Deployment) -> None:
    asked = {
        (call.function, str(call.asked)): call for call in deployment.iam.calls if call.asked.action != "sts:AssumeRole"
    }
    refused = [call for call in asked.values() if not allows(role_of(call.function), call.asked)]
    assert refused == []


def test_nothing_is_allowed_that_is_not_used(deployment: Deployment) -> None:
    used = {(call.function, call.asked.action, call.asked.resource) for call in deployment.iam.calls}
    functions = [name for name, resource in resources("false").items() if resource["Type"] == "AWS::Lambda::Function"]
    idle = sorted(
        (function, action, pattern)
        for function in functions
        for statement in statements(role_of(function))
        for action in statement["Action"]
        for pattern in statement["Resource"]
        if action not in IMPLICIT
        and not any((function, action) == use[:2] and like(use[2], pattern, {}) for use in used)
    )
    idle = [item for item in idle if item not in NOT_RUN_HERE]
    assert not idle, "\n".join(map(str, idle))
    assert len(functions) == 18


# ------------------------------------------------------------ tenant isolation


def test_what_is_a_tenants_is_asked_for_with_its_credentials(deployment: Deployment) -> None:
    """The functions' own are for what is nobody's: the cursor secret, the index of what is due, queues."""
    own = {
        (call.asked.action, call.asked.resource, *call.asked.keys.get("dynamodb:LeadingKeys", ()))
        for call in deployment.iam.calls
        if not call.tenant and call.asked.action.partition(":")[0] in ("dynamodb", "s3")
    }
    due = {item for item in own if item[:2] == ("dynamodb:Query", "Table/index/expiry")}
    assert due and all(key.startswith("X#") for _, _, key in due)
    assert own - due == {("dynamodb:GetItem", "Table", "#turnlog"), ("dynamodb:PutItem", "Table", "#turnlog")}
    signed = [call for call in deployment.iam.calls if call.tenant]
    assert {call.tenant for call in signed} == {TENANT}
    assert all(call.role.startswith("Tenant") for call in signed)


def test_an_object_that_is_missing_is_no_denied_one(deployment: Deployment) -> None:
    """S3 calls it denied, as nobody may list the whole bucket: the store asks whether there is one of that name."""
    body = {"session_id": "lost", "system": noise(70_000)}
    deployment.call("sessions", "POST", "/v1/sessions", 201, body=body)
    bucket = boto3.resource("s3", REGION).Bucket(deployment.bucket)
    (lost,) = bucket.objects.filter(Prefix=f"{TENANT}/agent-backend/lost/")
    lost.delete()
    answer = deployment.call("build_context", "POST", "/v1/sessions/lost/context", 500, body={})
    assert answer["code"] == "corrupt"


@pytest.mark.parametrize("resource", ["append", "messages", "snapshot"])
def test_a_key_of_another_tenant_is_refused_whoever_builds_it(deployment: Deployment, resource: str) -> None:
    """A fault in the log, planted: keys that are another tenant's. IAM compares them with who calls."""
    iam, before = deployment.iam, len(deployment.iam.refused)
    path = "/v1/sessions/support-99"
    asked = {
        "append": ("POST", f"{path}/messages", {"messages": [{"role": "user", "content": "hi"}]}),
        "messages": ("GET", f"{path}/messages", None),
        "snapshot": ("POST", f"{path}/snapshots", {"name": "n"}),
    }
    method, place, body = asked[resource]
    with deployment.patch.context() as patch:
        patch.setattr(SessionKeys, "partition", property(lambda keys: f"T#{TENANT}0#U#ada#S#{keys.session_id}"))
        answer = deployment.call(resource, method, place, 503, body=body)
    assert answer["code"] == "storage_denied"
    refused = iam.refused[before:]
    del iam.refused[before:]
    assert {
        (call.tenant, key[: len(TENANT) + 3]) for call in refused for key in call.asked.keys["dynamodb:LeadingKeys"]
    } == {(TENANT, f"T#{TENANT}0")}


def test_a_blob_of_another_tenant_is_refused(deployment: Deployment) -> None:
    before = len(deployment.iam.refused)
    with deployment.patch.context() as patch:
        patch.setattr(SessionKeys, "blob_prefix", property(lambda keys: f"{TENANT}0/ada/{keys.session_id}/"))
        body = {"session_id": "elsewhere", "system": noise(70_000)}
        answer = deployment.call("sessions", "POST", "/v1/sessions", 503, body=body)
    assert answer["code"] == "storage_denied"
    refused = {(call.asked.action, call.asked.resource.split("/")[1]) for call in deployment.iam.refused[before:]}
    del deployment.iam.refused[before:]
    assert refused == {("s3:PutObject", f"{TENANT}0")}


def test_without_a_tenant_a_function_may_do_nothing(deployment: Deployment) -> None:
    before = len(deployment.iam.refused)
    with deployment.patch.context() as patch:
        patch.setattr("turnlog.routing.serving", lambda _: serving(None))
        answer = deployment.call("messages", "GET", "/v1/sessions/support-99/messages", 503)
    assert answer["code"] == "storage_denied"
    (call,) = deployment.iam.refused[before:]
    del deployment.iam.refused[before:]
    assert (call.role, call.tenant, call.asked.action) == ("MessagesFunctionRole", "", "dynamodb:Query")
