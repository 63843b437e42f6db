"""What template.yaml makes, read off its expanded form: the promises of the design that a deployment must keep."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from tests.conftest import ROOT
from tests.iam import is_met
from tests.support.templates import WORKERS, template
from turnlog.http.logs import METRICS, NAMESPACE
from turnlog.ports import QUEUES
from turnlog.routing import ROUTES, function_of
from turnlog.settings import PREFIX, Settings

pytest.importorskip("samtranslator")

from turnlog.server.stack import Template, referred
from turnlog.testing.aws import create_table

FUNCTIONS = re.findall(
    r"^  (\w+(?:Function|Worker)):$", (ROOT / "template.yaml").read_text(encoding="utf-8"), re.MULTILINE
)
"""Read from the text: the names of tests do not wait for the expanded template."""
OPEN = {"GET /v1/health", "GET /v1/openapi.json"}
SENDERS = {
    "SessionsFunction": {"offload"},
    "AppendFunction": {"compress"},
    "CompressFunction": {"compress"},
    "CompressWorker": {"compress"},  # what one job has no time for is another's
    "MessagesFunction": {"compress"},  # sessions whose words are not known are read by a job
    "BuildContextFunction": {"compress"},  # the same, where a window recalls from the user's other sessions
    "SnapshotFunction": {"snapshot", "erase"},  # what a deleted snapshot leaves is the eraser's
    "EraseFunction": {"erase"},
    "RetentionWorker": {"erase", "offload"},
    "EraseWorker": {"erase"},  # a second pass, and what one part has no time for
    "OffloadWorker": {"offload"},  # while the memory engine is down
    "ExportFunction": {"snapshot"},  # which needs the same rights
}
INDEXES = {
    "SessionsFunction": ["activity"],
    "MessagesFunction": ["activity"],
    "BuildContextFunction": ["activity"],
    "CompressWorker": ["activity"],
    "RetentionWorker": ["expiry"],
}
SCHEDULED = {"RetentionWorker"}
SUMMARISERS = {"CompressFunction", "CompressWorker", "OffloadWorker"}
TRACES = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
"""Of the log of X-Ray, which has no resources: what IAM can limit them to is `*`."""
FORBIDDEN = {"dynamodb:Scan", "sqs:PurgeQueue"}
ERASER = "EraseWorker"
REMEMBERERS = {
    "SessionsFunction": {"RetrieveMemoryRecords", "ListMemoryRecords"},
    "BuildContextFunction": {"RetrieveMemoryRecords"},
    "MemoryFunction": {"ListMemoryRecords", "BatchDeleteMemoryRecords"},
    "OffloadWorker": {"ListEvents", "CreateEvent"},
    "EraseWorker": {"ListSessions", "ListEvents", "DeleteEvent", "ListMemoryRecords", "BatchDeleteMemoryRecords"},
}
"""Functions that ask long-term memory, and what of AgentCore."""
FORGETS = {"bedrock-agentcore:BatchDeleteMemoryRecords", "bedrock-agentcore:DeleteEvent"}
"""What a person has forgotten is not the log's."""
DELETES = {
    "dynamodb:BatchWriteItem",  # it deletes too, and IAM can't tell
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
}
KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d"


def of_type(kind: str) -> dict[str, Any]:
    return dict(template().of_type(kind))


def functions() -> dict[str, Any]:
    return of_type("AWS::Lambda::Function")


def statements(function: str) -> list[dict[str, Any]]:
    """What a function's role allows. Conditional statements are included, but for those of tenant isolation, which is another
    variant: test_tenant_roles.py."""
    role = template().resources[functions()[function]["Role"]["Fn::GetAtt"][0]]["Properties"]
    documents = [policy["PolicyDocument"] for policy in role["Policies"]]
    entries = [item for document in documents for item in document["Statement"]]
    entries = [entry for entry in entries if entry.get("Fn::If", [""])[0] != "IsolatesTenants"]
    values = [entry["Fn::If"][1] if "Fn::If" in entry else entry for entry in entries]
    return [{**item, "Action": _list(item["Action"]), "Resource": _list(item["Resource"])} for item in values]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def value_of(value: Any) -> Any:
    """A parameter's default for its reference."""
    return template().parameters[value["Ref"]] if isinstance(value, dict) else value


# ------------------------------------------------------------ routes and functions


def test_the_routes_are_the_route_table() -> None:
    assert set(template().routes) == {f"{route.method} {route.path}" for route in ROUTES}
    handlers = {route: functions()[function]["Handler"] for route, function in template().routes.items()}
    assert handlers == {
        f"{route.method} {route.path}": f"api.{function_of(route.resource)}.handler" for route in ROUTES
    }


def test_every_route_is_signed_but_the_open_two() -> None:
    (api,) = of_type("AWS::ApiGatewayV2::Api").values()
    security = {
        f"{method.upper()} {path}": call.get("security")
        for path, methods in api["Body"]["paths"].items()
        for method, call in methods.items()
    }
    asked = {"Fn::If": ["UsesJwt", [{"Jwt": []}], [{"AWS_IAM": []}]]}
    assert {route for route, match in security.items() if match != asked} == OPEN
    assert all(security[route] is None for route in OPEN)
    condition, jwt, iam = api["Body"]["components"]["securitySchemes"]["Fn::If"]
    assert (condition, set(jwt), set(iam)) == ("UsesJwt", {"Jwt"}, {"AWS_IAM"})
    assert jwt["Jwt"]["x-amazon-apigateway-authorizer"]["jwtConfiguration"] == {
        "issuer": {"Ref": "JwtIssuer"},
        "audience": {"Ref": "JwtAudience"},
    }
    assert iam["AWS_IAM"]["x-amazon-apigateway-authtype"] == "awsSigv4"
    document = template().document
    assert document["Conditions"]["UsesJwt"] == {"Fn::Equals": [{"Ref": "Authorizer"}, "Jwt"]}
    assert document["Rules"]["JwtHasAnIssuer"]["RuleCondition"] == document["Conditions"]["UsesJwt"]
    assert {route.name for route in ROUTES if f"{route.method} {route.path}" in OPEN} == {"health", "openapi"}
    (stage,) = of_type("AWS::ApiGatewayV2::Stage").values()
    assert set(stage["RouteSettings"]) == OPEN
    assert {"ThrottlingRateLimit", "ThrottlingBurstLimit"} <= set(stage["DefaultRouteSettings"])


def test_access_logs_are_json_without_contents() -> None:
    (stage,) = of_type("AWS::ApiGatewayV2::Stage").values()
    fields = set(json.loads(stage["AccessLogSettings"]["Format"]).values())
    assert fields <= {
        "$context.requestId",
        "$context.requestTimeEpoch",
        "$context.routeKey",
        "$context.status",
        "$context.responseLength",
        "$context.responseLatency",
        "$context.integrationLatency",
        "$context.integrationStatus",
        "$context.error.responseType",
    }


def test_every_function_has_a_handler_that_imports() -> None:
    assert list(functions()) == FUNCTIONS
    for name, function in functions().items():
        module, _, attribute = function["Handler"].rpartition(".")
        assert callable(getattr(importlib.import_module(module), attribute)), name
    handlers = {function["Handler"] for function in functions().values()}
    root = ROOT / "functions"
    modules = {path for path in root.glob("*/*.py") if path.stem != "__init__"}
    assert handlers == {f"{path.parent.name}.{path.stem}.handler" for path in modules}


def test_runtime_architecture_and_layers() -> None:
    layers = of_type("AWS::Lambda::LayerVersion")
    for name, function in functions().items():
        assert function["Runtime"] == "python3.13", name
        assert [value_of(architecture) for architecture in function["Architectures"]] == ["arm64"], name
        assert {layer["Ref"] for layer in function["Layers"] if "Ref" in layer} == set(layers), name
        assert function["Timeout"] <= 29 or name in {*WORKERS, *SCHEDULED}, f"{name}: API Gateway waits 30 s"
    assert all(layer["CompatibleRuntimes"] == ["python3.13"] for layer in layers.values())


TELEMETRY_LAYER = "arn:aws:lambda:eu-central-1:615299751070:layer:AWSOpenTelemetryDistroPython:16"


def test_telemetry_is_a_layer_and_its_script_and_none_without_its_parameter() -> None:
    off = {"Ref": "AWS::NoValue"}
    for name, function in functions().items():
        (layer,) = [layer["Fn::If"] for layer in function["Layers"] if "Fn::If" in layer]
        assert layer == ["HasTelemetry", {"Ref": "TelemetryLayerArn"}, off], name
        variables = function["Environment"]["Variables"]
        assert variables["TURNLOG_TELEMETRY"] == {"Fn::If": ["HasTelemetry", "opentelemetry", "off"]}, name
        assert variables["AWS_LAMBDA_EXEC_WRAPPER"] == {"Fn::If": ["HasTelemetry", "/opt/otel-instrument", off]}, name
    condition = template().document["Conditions"]["HasTelemetry"]
    assert template().parameters["TelemetryLayerArn"] == "" and not is_met(condition, template())
    assert is_met(condition, Template(template().document, {"TelemetryLayerArn": TELEMETRY_LAYER}))


def test_every_variable_is_a_setting() -> None:
    for name, function in functions().items():
        variables = function["Environment"]["Variables"]
        known = {PREFIX + field.upper() for field in Settings.model_fields}
        assert {variable for variable in variables if variable.startswith(PREFIX)} <= known, name
        resolved = {variable: _resolved(value) for variable, value in variables.items() if variable.startswith(PREFIX)}
        if isolated := resolved.pop("TURNLOG_TENANT_ROLE_ARN", ""):
            condition, arn, otherwise = variables["TURNLOG_TENANT_ROLE_ARN"]["Fn::If"]
            assert (condition, arn["Fn::GetAtt"][1], otherwise) == ("IsolatesTenants", "Arn", ""), isolated
        assert variables["TURNLOG_IDENTITY"] == {"Fn::If": ["UsesJwt", "jwt", "iam"]}, "as the routes' authoriser"
        made = Settings.from_environment(resolved)
        assert (made.tenant_claim, made.user_claim) == ("tenant", "sub")


def _resolved(value: Any) -> str:
    if isinstance(value, dict) and "Fn::If" in value:
        return _resolved(value["Fn::If"][1])
    return str(value_of(value)) if not isinstance(value, dict) or "Ref" in value else "memory://"


def test_engines_name_the_table_the_bucket_and_the_queues_that_are_sent_to() -> None:
    for name, function in functions().items():
        engine = function["Environment"]["Variables"]["TURNLOG_ENGINE"]["Fn::Sub"]
        queues = "".join(f"&{kind}_queue=${{{kind.title()}Queue}}" for kind in QUEUES if kind in SENDERS.get(name, ()))
        assert engine == "dynamodb://${Table}?bucket=${Bucket}" + queues, name


# ------------------------------------------------------------ permissions


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_role_has_inline_statements_without_wildcards(function: str) -> None:
    role = template().resources[functions()[function]["Role"]["Fn::GetAtt"][0]]["Properties"]
    assert not role.get("ManagedPolicyArns")
    assert [other for other, item in functions().items() if item["Role"] == functions()[function]["Role"]] == [function]
    for statement in statements(function):
        assert statement["Effect"] == "Allow"
        assert not any("*" in action for action in statement["Action"]), statement
        assert not FORBIDDEN & set(statement["Action"]), statement
        deletes = {item for item in statement["Action"] if "Delete" in item or "BatchWrite" in item} - {
            "sqs:DeleteMessage"
        }
        forgets = FORGETS if function in (ERASER, "MemoryFunction") else set()
        assert deletes <= (DELETES | forgets if function == ERASER else forgets), statement
        if set(statement["Action"]) == TRACES:
            continue
        for resource in statement["Resource"]:
            assert isinstance(resource, dict), f"{resource!r} is no reference to a resource of this template"
            # Objects have no other name than the bucket's with a wildcard.
            named = {"Fn::Sub": "${Bucket.Arn}/*"}, {"Fn::Sub": "${Bucket.Arn}/~exports/*"}
            assert "*" not in json.dumps(resource) or resource in named, statement


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_traced_and_may_be(function: str) -> None:
    document = template().document
    assert document["Conditions"]["IsTraced"] == {"Fn::Equals": [{"Ref": "Tracing"}, "Active"]}
    result = functions()[function]
    assert result["TracingConfig"] == {"Mode": {"Ref": "Tracing"}} and template().parameters["Tracing"] == "Active"
    (policy,) = template().resources[result["Role"]["Fn::GetAtt"][0]]["Properties"]["Policies"]
    asked = [entry["Fn::If"] for entry in policy["PolicyDocument"]["Statement"] if "xray" in json.dumps(entry)]
    assert [(condition, set(then["Action"]), then["Resource"], other) for condition, then, other in asked] == [
        ("IsTraced", TRACES, "*", {"Ref": "AWS::NoValue"})
    ], "without traces there is no right to make them"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_who_may_do_what(function: str) -> None:
    granted = {
        (action, json.dumps(statement["Resource"]))
        for statement in statements(function)
        for action in statement["Action"]
    }
    actions = {action for action, _ in granted}
    queues = {
        load["Fn::GetAtt"][0]
        for action, resource in granted
        if action == "sqs:SendMessage"
        for load in json.loads(resource)
    }
    assert queues == {f"{kind.title()}Queue" for kind in SENDERS.get(function, ())}
    received = {resource.split('"')[3] for action, resource in granted if action == "sqs:ReceiveMessage"}
    assert received == ({f"{WORKERS[function].title()}Queue"} if function in WORKERS else set())
    assert ("sqs:DeleteMessage" in actions) == (function in WORKERS)
    assert ("s3:GetObject" in actions) <= ("s3:ListBucket" in actions), "a missing object would look like a denied one"
    on_index = [resource for action, resource in granted if "/index/" in resource]
    assert [resource.rpartition("/")[2].rstrip('"}]') for resource in on_index] == INDEXES.get(function, [])
    assert {"logs:CreateLogStream", "logs:PutLogEvents"} <= actions


def test_who_makes_summaries_may_ask_the_one_model() -> None:
    """Only while a model is given: without one there is no such right."""
    values = {"Fn::Sub": "arn:${AWS::Partition}:bedrock:${AWS::Region}::foundation-model/${SummaryModel}"}
    for name, function in functions().items():
        role = template().resources[function["Role"]["Fn::GetAtt"][0]]["Properties"]
        granted = [
            entry
            for entry in _entries(role)
            if "bedrock:" in json.dumps(entry) and entry["Fn::If"][0] != "HasRerankModel"
        ]
        variables = function["Environment"]["Variables"]
        assert ("TURNLOG_SUMMARY_MODEL" in variables) is bool(granted) is (name in SUMMARISERS), name
        for entry in granted:
            condition, statement, otherwise = entry["Fn::If"]
            assert (condition, otherwise) == ("HasSummaryModel", {"Ref": "AWS::NoValue"})
            assert statement["Action"] == "bedrock:InvokeModel"
            assert statement["Resource"] == {"Fn::If": ["HasSummaryModelArns", {"Ref": "SummaryModelArns"}, values]}
    conditions = template().document["Conditions"]
    assert conditions["HasSummaryModel"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "SummaryModel"}, ""]}]}


def test_search_and_windows_may_ask_the_one_embedding_model() -> None:
    """Only while one is given: without it there is no such right."""
    rerank = ("MessagesFunction", "BuildContextFunction")
    for name, function in functions().items():
        role = template().resources[function["Role"]["Fn::GetAtt"][0]]["Properties"]
        granted = [entry for entry in _entries(role) if "RerankModel" in json.dumps(entry)]
        variables = function["Environment"]["Variables"]
        assert ("TURNLOG_RERANK_MODEL" in variables) is bool(granted) is (name in rerank), name
        for entry in granted:
            condition, statement, otherwise = entry["Fn::If"]
            assert (condition, otherwise) == ("HasRerankModel", {"Ref": "AWS::NoValue"})
            assert statement["Action"] == "bedrock:InvokeModel"
            arn = "arn:${AWS::Partition}:bedrock:${AWS::Region}::foundation-model/${RerankModel}"
            assert statement["Resource"] == {"Fn::Sub": arn}
    document = template().document
    assert document["Conditions"]["HasRerankModel"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "RerankModel"}, ""]}]}
    pattern = re.compile(document["Parameters"]["RerankModel"]["AllowedPattern"])
    assert all(
        map(pattern.match, ("", "cohere.embed-v4:0", "amazon.titan-embed-text-v2:0", "cohere.embed-multilingual-v3"))
    )
    assert not any(map(pattern.match, ("*", "amazon.titan-embed*", "amazon.nova-lite-v1:0", "x/titan-embed")))
    profiles = (
        "us.cohere.embed-v4:0",
        "global.cohere.embed-v4:0",
        "arn:aws:bedrock:eu-west-1::foundation-model/cohere.embed-v4:0",
    )
    assert not any(map(pattern.match, profiles)), "its role could not call them"
    time_out = Settings().rerank_timeout_seconds
    assert all(2 * time_out + 3 < functions()[name]["Timeout"] for name in rerank), (
        "the question's vector, then those of what was found"
    )


def _entries(role: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for policy in role["Policies"] for entry in policy["PolicyDocument"]["Statement"]]


@pytest.mark.parametrize("name", ["SummaryModel", "SummaryModelArns"])
def test_a_model_parameter_takes_no_wildcard(name: str) -> None:
    pattern = re.compile(template().document["Parameters"][name]["AllowedPattern"])
    profile = "arn:aws:bedrock:eu-central-1:111122223333:inference-profile/eu.amazon.nova-lite-v1:0"
    foundation = "arn:aws:bedrock:eu-west-1::foundation-model/amazon.nova-lite-v1:0"
    everywhere = "arn:aws:bedrock:::foundation-model/amazon.nova-lite-v1:0"
    assert all(pattern.match(good) for good in ("", profile, foundation, everywhere))
    assert bool(pattern.match("amazon.nova-lite-v1:0")) is (name == "SummaryModel")
    assert not any(pattern.match(bad) for bad in ("*", f"{foundation[:-4]}*", "${Table}", "a b"))


def test_who_asks_agentcore_may_ask_the_one_memory() -> None:
    """Only while one is given, and each function what it does."""
    for name, function in functions().items():
        role = template().resources[function["Role"]["Fn::GetAtt"][0]]["Properties"]
        granted = [entry for entry in _entries(role) if "bedrock-agentcore:" in json.dumps(entry)]
        variables = function["Environment"]["Variables"]
        assert ("TURNLOG_MEMORY_ID" in variables) is bool(granted) is (name in REMEMBERERS), name
        for entry in granted:
            condition, statement, otherwise = entry["Fn::If"]
            assert (condition, otherwise) == ("HasMemoryArn", {"Ref": "AWS::NoValue"})
            assert statement["Resource"] == {"Ref": "MemoryArn"}
            assert {action.partition(":")[2] for action in statement["Action"]} == REMEMBERERS[name]
            assert variables["TURNLOG_MEMORY_ID"] == {"Ref": "MemoryArn"}
    conditions = template().document["Conditions"]
    assert conditions["HasMemoryArn"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "MemoryArn"}, ""]}]}


def test_the_webhook_s_secret_is_in_no_parameter() -> None:
    """It is read from Secrets Manager when the stack is deployed, for the functions that sign with it."""
    for name, function in functions().items():
        variables = function["Environment"]["Variables"]
        assert ("TURNLOG_MEMORY_WEBHOOK_SECRET" in variables) is (name in REMEMBERERS), name
        if name in REMEMBERERS:
            condition, secret, otherwise = variables["TURNLOG_MEMORY_WEBHOOK_SECRET"]["Fn::If"]
            assert (condition, otherwise) == ("HasMemoryWebhookSecret", "")
            assert secret == {"Fn::Sub": "{{resolve:secretsmanager:${MemoryWebhookSecretArn}}}"}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "OperatorPrincipals",
            ["", "ops", "arn:aws:iam::111122223333:role/ops/oncall,b"],
            ["*", "arn:aws:iam::111122223333:user/ada"],
        ),
        ("OperatorScope", ["", "turnlog:operator", "turnlog/sessions.read"], ["a b", "[x]"]),
        (
            "DelegatingPrincipals",
            ["", "backend", "a, b", "arn:aws:iam::111122223333:role/ci/backend,b"],
            ["*", "a/b", "arn:aws:iam::111122223333:user/ada", "arn:aws:sts::111122223333:assumed-role/ada/x", "a b"],
        ),
        ("PlainIamUsers", ["", "ada", "ada, bob@example.com"], ["*", "a/b", "arn:aws:iam::111122223333:user/ada"]),
        (
            "TelemetryLayerArn",
            ["", TELEMETRY_LAYER],
            ["*", TELEMETRY_LAYER.removesuffix(":16"), "AWSOpenTelemetryDistroPython"],
        ),
        (
            "MemoryArn",
            ["", "arn:aws:bedrock-agentcore:eu-central-1:111122223333:memory/turnlog_memory-Ab12Cd34Ef"],
            ["*", "turnlog_memory-Ab12Cd34Ef", "arn:aws:bedrock-agentcore:eu-central-1:111122223333:memory/*"],
        ),
        (
            "MemoryNamespace",
            ["/turnlog/{actorId}/{sessionId}/", "/{actorId}/{sessionId}/facts/"],
            ["", "/turnlog/{actorId}/", "/{sessionId}/{actorId}/", "/{actorId}/{sessionId}"],
        ),
        ("MemoryWebhookUrl", ["", "https://memory.example.com/hook"], ["http://x", "https://a?b", "https://u@h", "x"]),
        (
            "MemoryWebhookSecretArn",
            ["", "arn:aws:secretsmanager:eu-central-1:111122223333:secret:memory/hook-AbCdEf"],
            ["*", "hunter2", "arn:aws:secretsmanager:eu-central-1:111122223333:secret:*"],
        ),
    ],
)
def test_a_parameter_takes_what_it_is_for(name: str, good: list[str], bad: list[str]) -> None:
    pattern = re.compile(template().document["Parameters"][name]["AllowedPattern"])
    assert [text for text in good if not pattern.match(text)] == []
    assert [text for text in bad if pattern.match(text)] == []


def test_the_time_of_a_model_fits_its_function() -> None:
    for name in SUMMARISERS:
        value = functions()[name]["Environment"]["Variables"].get("TURNLOG_SUMMARY_TIMEOUT_SECONDS")
        seconds = int(value) if value else Settings().summary_timeout_seconds
        assert seconds * 1.25 + 3 < functions()[name]["Timeout"], name


def test_jobs_may_put_the_cursor_secret_only() -> None:
    (put,) = [statement for statement in statements("JobsFunction") if "dynamodb:PutItem" in statement["Action"]]
    assert put["Condition"] == {
        "Null": {"dynamodb:LeadingKeys": "false"},
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["#turnlog"]},
    }


def test_the_key_is_for_the_services_that_a_function_uses() -> None:
    for name in functions():
        used = {action.partition(":")[0] for statement in statements(name) for action in statement["Action"]} - {
            "logs",
            "xray",
            "kms",
            "bedrock",
            "bedrock-agentcore",
        }
        keys = [statement for statement in statements(name) if "kms:Decrypt" in statement["Action"]]
        via = {
            entry["Fn::Sub"].partition(".")[0]
            for key in keys
            for entry in key["Condition"]["StringEquals"]["kms:ViaService"]
        }
        assert via == used, name
        assert all(key["Resource"] == [{"Ref": "KmsKeyArn"}] for key in keys)


# ------------------------------------------------------------ data and queues


def test_the_table_is_the_one_of_the_tests() -> None:
    table = of_type("AWS::DynamoDB::Table")["Table"]
    with mock_aws():
        import boto3

        client = boto3.client("dynamodb", "eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
        create_table(client, "wanted")
        wanted: Any = client.describe_table(TableName="wanted")["Table"]
        ttl = client.describe_time_to_live(TableName="wanted")["TimeToLiveDescription"]
    assert table["BillingMode"] == wanted["BillingModeSummary"]["BillingMode"]
    assert table["KeySchema"] == wanted["KeySchema"]
    assert _by_name(table["AttributeDefinitions"], "AttributeName") == _by_name(
        wanted["AttributeDefinitions"], "AttributeName"
    )
    fields = ("IndexName", "KeySchema", "Projection")
    indexes = [{field: index[field] for field in fields} for index in wanted["GlobalSecondaryIndexes"]]
    assert _by_name(table["GlobalSecondaryIndexes"], "IndexName") == _by_name(indexes, "IndexName")
    assert table["TimeToLiveSpecification"] == {"AttributeName": ttl["AttributeName"], "Enabled": True}


def _by_name(entries: list[Any], name: str) -> list[Any]:
    return sorted(entries, key=lambda entry: str(entry[name]))


def test_data_is_kept_and_can_be_restored() -> None:
    for name in ("Table", "Bucket"):
        resource = template().resources[name]
        assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain", name
    table = of_type("AWS::DynamoDB::Table")["Table"]
    assert table["PointInTimeRecoverySpecification"] == {
        "PointInTimeRecoveryEnabled": True,
        "RecoveryPeriodInDays": {"Ref": "RecoveryDays"},
    }
    assert table["DeletionProtectionEnabled"] == {"Fn::If": ["IsProtected", True, False]}
    assert template().document["Conditions"]["IsProtected"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "Stage"}, "dev"]}]}


def test_everything_is_encrypted_and_with_a_key_by_that_key() -> None:
    key = {"Fn::If": ["HasKmsKey", {"Ref": "KmsKeyArn"}, {"Ref": "AWS::NoValue"}]}
    assert of_type("AWS::DynamoDB::Table")["Table"]["SSESpecification"]["KMSMasterKeyId"] == key
    (rule,) = of_type("AWS::S3::Bucket")["Bucket"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {
        "SSEAlgorithm": {"Fn::If": ["HasKmsKey", "aws:kms", "AES256"]},
        "KMSMasterKeyID": key,
    }
    for name, queue in of_type("AWS::SQS::Queue").items():
        assert queue["KmsMasterKeyId"] == key, name
        assert queue["SqsManagedSseEnabled"] == {"Fn::If": ["HasKmsKey", {"Ref": "AWS::NoValue"}, True]}, name


def test_the_bucket_is_private_and_forgets_old_versions() -> None:
    bucket = of_type("AWS::S3::Bucket")["Bucket"]
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    rules = {key: value for rule in bucket["LifecycleConfiguration"]["Rules"] for key, value in rule.items()}
    assert rules["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}
    assert rules["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


def test_bucket_and_queues_refuse_what_is_not_tls() -> None:
    refusing = set[str]()
    policies = [*of_type("AWS::S3::BucketPolicy").values(), *of_type("AWS::SQS::QueuePolicy").values()]
    for policy in policies:
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        targets = {target["Ref"] for target in _list(policy.get("Queues") or policy["Bucket"])}
        named = {item["Fn::GetAtt"][0] for item in _list(statement["Resource"]) if "Fn::GetAtt" in item}
        assert named == targets
        refusing |= targets
    assert refusing == {"Bucket", *of_type("AWS::SQS::Queue")}


def test_a_queue_has_dead_letters_with_an_alarm() -> None:
    queues, alarms = of_type("AWS::SQS::Queue"), of_type("AWS::CloudWatch::Alarm")
    watched = {
        metric: {
            alarm["Dimensions"][0]["Value"]["Fn::GetAtt"][0]
            for alarm in alarms.values()
            if alarm.get("MetricName") == metric
        }
        for metric in ("ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage")
    }
    sources = {
        mapping["EventSourceArn"]["Fn::GetAtt"][0]: mapping["FunctionName"] for mapping in template().sources.values()
    }
    dead = set[str]()
    for name, queue in queues.items():
        if "RedrivePolicy" in queue:
            assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
            target = queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
            assert queues[target]["MessageRetentionPeriod"] > queue["MessageRetentionPeriod"], "the time goes on there"
            assert queue["VisibilityTimeout"] >= 6 * functions()[sources[name]]["Timeout"]
            dead.add(target)
    assert dead | set(sources) == set(queues)
    assert watched == {"ApproximateNumberOfMessagesVisible": dead, "ApproximateAgeOfOldestMessage": set(sources)}
    assert all(
        alarm["Threshold"] == 1
        for alarm in alarms.values()
        if alarm.get("MetricName") == "ApproximateNumberOfMessagesVisible"
    )


def test_every_alarm_tells_the_topic_and_asks_for_a_metric_that_there_is() -> None:
    own = {METRICS[name] for name in METRICS}
    for name, alarm in of_type("AWS::CloudWatch::Alarm").items():
        assert alarm["TreatMissingData"] == "notBreaching", name
        assert alarm["AlarmActions"]["Fn::If"] == ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]
        asked = [metric["MetricStat"]["Metric"] for metric in alarm.get("Metrics", []) if "MetricStat" in metric] or [
            alarm
        ]
        for metric in asked:
            if metric["Namespace"] == NAMESPACE:
                assert metric["MetricName"] in own, name
                own.discard(metric["MetricName"])
            dimensions = metric.get("Dimensions", [])
            referred = list(_referred(dimensions)) + [
                dimension["Value"]["Fn::GetAtt"][0] for dimension in dimensions if "Fn::GetAtt" in dimension["Value"]
            ]
            assert all(each in template().resources or each == "AWS::StackName" for each in referred), name
    assert own == set(), "each metric has an alarm"


def test_throttles_of_the_table_and_of_each_index_raise_the_alarm() -> None:
    """The metrics of a table without an index's name do not have the index's throttles."""
    (table,) = of_type("AWS::DynamoDB::Table").values()
    alarm = of_type("AWS::CloudWatch::Alarm")["TableThrottlesAlarm"]
    formula, *metrics = alarm["Metrics"]
    asked = [
        (metric["MetricName"], *(entry["Value"] for entry in metric["Dimensions"][1:]))
        for metric in (metric["MetricStat"]["Metric"] for metric in metrics)
    ]
    indexes = [(), *((index["IndexName"],) for index in table["GlobalSecondaryIndexes"])]
    assert asked == [(name, *index) for index in indexes for name in ("ReadThrottleEvents", "WriteThrottleEvents")]
    assert formula["Expression"] == " + ".join(f"FILL({metric['Id']}, 0)" for metric in metrics)
    assert all(metric["MetricStat"]["Metric"]["Dimensions"][0]["Value"] == {"Ref": "Table"} for metric in metrics)
    assert len(alarm["Metrics"]) <= 10, "more are refused"


def test_a_formula_counts_each_of_its_metrics_once() -> None:
    for name, alarm in of_type("AWS::CloudWatch::Alarm").items():
        if "Metrics" in alarm:
            (formula,) = [metric for metric in alarm["Metrics"] if metric["ReturnData"]]
            others = [metric for metric in alarm["Metrics"] if not metric["ReturnData"]]
            assert re.findall(r"\bm\d\b", formula["Expression"]) == [other["Id"] for other in others], name
            assert len({json.dumps(other["MetricStat"]) for other in others}) == len(others), name


def test_calls_that_are_answered_429_are_counted_from_the_access_log() -> None:
    (result,) = of_type("AWS::Logs::MetricFilter").values()
    (stage,) = of_type("AWS::ApiGatewayV2::Stage").values()
    assert result["LogGroupName"] == {"Ref": stage["AccessLogSettings"]["DestinationArn"]["Fn::GetAtt"][0]}
    (transformation,) = result["MetricTransformations"]
    alarm = of_type("AWS::CloudWatch::Alarm")["ThrottledCallsAlarm"]
    assert [transformation[f"Metric{key}"] for key in ("Namespace", "Name")] == [
        alarm["Namespace"],
        alarm["MetricName"],
    ]
    field, status = re.fullmatch(r'\{ \$\.(\w+) = "(\d+)" \}', result["FilterPattern"]).groups()  # type: ignore[union-attr]
    assert json.loads(stage["AccessLogSettings"]["Format"])[field] == "$context.status" and status == "429"
    assert "DefaultValue" not in transformation and "Dimensions" not in alarm


def test_the_dashboard_shows_what_is_there() -> None:
    (dashboard,) = of_type("AWS::CloudWatch::Dashboard").values()
    text = dashboard["DashboardBody"]["Fn::Sub"]
    named = {name.partition(".")[0] for name in re.findall(r"\$\{([\w:.]+)\}", text)}
    assert named <= {*template().resources, "AWS::StackName", "AWS::Region"}
    widgets = json.loads(text)["widgets"]
    shown = json.dumps(widgets)
    assert all(name in shown for name in METRICS.values())
    assert all(f"${{{queue}.QueueName}}" in shown for queue in of_type("AWS::SQS::Queue"))
    for widget in widgets:
        for namespace, name, *dimensions in _metrics_of(widget["properties"].get("metrics", [])):
            assert "." not in (namespace, name, *dimensions) and len(dimensions) % 2 == 0, name
            indexed = "GlobalSecondaryIndexName" in dimensions
            assert (
                dimensions[::2]
                == {
                    "AWS/ApiGateway": ["ApiId"],
                    "AWS/Lambda": ["FunctionName"],
                    "AWS/DynamoDB": ["TableName", "GlobalSecondaryIndexName"][: 1 + indexed],
                    "AWS/SQS": ["QueueName"],
                    NAMESPACE: ["service"],
                    f"{NAMESPACE}/${{AWS::StackName}}": [],
                }[namespace]
            )
    places = [(widget["x"], widget["y"], widget["width"]) for widget in widgets]
    assert len(set(places)) == len(places) and all(x + width <= 24 for x, _, width in places)


def test_a_name_of_ours_has_the_stacks_in_it_and_that_of_a_dashboard_the_region_too() -> None:
    """So that two stacks of an account never ask for one name. Dashboards are an account's, all other names a region's."""
    keys = {"DashboardName", "LogGroupName", "LayerName", "Name"}
    names = [
        (resource["Type"], json.dumps(value))
        for resource in template().resources.values()
        for key, value in resource.get("Properties", {}).items()
        if key in keys and not set(referred(value)) & template().resources.keys()
    ]
    assert len(names) > 20 and [name for _, name in names if "AWS::StackName" not in name] == []
    assert {kind for kind, name in names if "AWS::Region" in name} == {"AWS::CloudWatch::Dashboard"}


def _metrics_of(rows: list[list[Any]]) -> Iterator[list[str]]:
    """Yield a widget's metrics in full: `.` is the value of the row before in that place, `...` all of them up to there."""
    before = list[str]()
    for row in rows:
        cells = [cell for cell in row if isinstance(cell, str)]
        if cells[0] == "...":
            cells = before[: len(before) - len(cells) + 1] + cells[1:]
        before = [before[index] if cell == "." else cell for index, cell in enumerate(cells)]
        yield before


def test_a_poison_message_does_not_take_its_batch_along() -> None:
    assert {mapping["FunctionName"] for mapping in template().sources.values()} == set(WORKERS)
    for mapping in template().sources.values():
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["BatchSize"] == 1, "test_backlog.py says why"
        assert mapping["ScalingConfig"] == {"MaximumConcurrency": {"Ref": "WorkerConcurrency"}}


def test_a_level_decides_what_is_logged_and_never_what_is_counted() -> None:
    """Lambda's filter drops lines without a level above INFO, and metrics are such lines; its own report is INFO too."""
    for name, function in functions().items():
        logging = {key: value for key, value in function["LoggingConfig"].items() if key != "LogGroup"}
        system = {"Fn::If": ["LogsEachCall", "INFO", "WARN"]}
        assert logging == {"LogFormat": "JSON", "ApplicationLogLevel": "INFO", "SystemLogLevel": system}, name
        assert function["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"] == {"Ref": "LogLevel"}, name
    document = template().document
    assert document["Conditions"]["LogsEachCall"] == {"Fn::Equals": [{"Ref": "LogLevel"}, "INFO"]}
    declared = document["Parameters"]["LogLevel"]
    assert (declared["Default"], declared["AllowedValues"]) == ("INFO", ["INFO", "WARN", "ERROR"])


def test_logs_are_kept_as_long_as_the_parameter_says() -> None:
    groups = of_type("AWS::Logs::LogGroup")
    assert all(group["RetentionInDays"] == {"Ref": "LogRetentionDays"} for group in groups.values())
    (stage,) = of_type("AWS::ApiGatewayV2::Stage").values()
    used = {function["LoggingConfig"]["LogGroup"]["Ref"] for function in functions().values()}
    assert used | {stage["AccessLogSettings"]["DestinationArn"]["Fn::GetAtt"][0]} == set(groups)
    assert len(used) == len(functions())


# ------------------------------------------------------------ the document


def test_every_parameter_is_used_and_described() -> None:
    document = template().document
    used = set(_referred({key: value for key, value in document.items() if key != "Metadata"}))
    assert set(document["Parameters"]) <= used
    assert all(parameter["Description"] for parameter in document["Parameters"].values())
    groups = document["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert {name for group in groups for name in group["Parameters"]} == set(document["Parameters"])


def _referred(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("Ref"), str):
            yield value["Ref"]
        for item in value.values():
            yield from _referred(item)
    elif isinstance(value, list):
        for item in value:
            yield from _referred(item)


def test_it_expands_with_other_parameters() -> None:
    values = {"Stage": "prod", "KmsKeyArn": KEY, "Architecture": "x86_64", "WorkerConcurrency": "10"}
    assert set(template(**values).resources) >= {"Table", "Bucket", "AppendFunction"}


def test_the_environments_of_samconfig() -> None:
    import tomllib

    config = tomllib.loads((ROOT / "samconfig.toml").read_text(encoding="utf-8"))
    parameters = template().document["Parameters"]
    for stage in ("dev", "prod"):
        assert config[stage]["build"]["parameters"] == {"cached": True, "parallel": True}
        deploy = config[stage]["deploy"]["parameters"]
        values = dict(entry.split("=") for entry in deploy["parameter_overrides"].split())
        assert values["Stage"] == stage
        assert set(values) <= set(parameters)
        assert deploy["stack_name"] == f"turnlog-{stage}"
    assert config["prod"]["deploy"]["parameters"]["confirm_changeset"] is True


TOPIC = "arn:aws:sns:eu-central-1:111122223333:turnlog-alarms"


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ({}, []),
        ({"Stage": "staging"}, []),
        ({"Stage": "prod"}, ["ProdTellsSomebody"]),
        ({"Stage": "prod", "AlarmTopicArn": TOPIC}, []),
        ({"Memory": "agentcore"}, ["AgentCoreHasAMemory"]),
        ({"Memory": "agentcore", "MemoryArn": "arn:aws:bedrock-agentcore:x"}, []),
        ({"Memory": "webhook", "MemoryWebhookUrl": "https://memory.example"}, ["WebhookHasAnAddressAndASecret"]),
        (
            {"Memory": "webhook", "MemoryWebhookSecretArn": "arn:aws:secretsmanager:x"},
            ["WebhookHasAnAddressAndASecret"],
        ),
        ({"Authorizer": "Jwt"}, ["JwtHasAnIssuer"]),
        ({"Authorizer": "Jwt", "JwtIssuer": "https://idp.example"}, []),
    ],
)
def test_a_rule_refuses_what_would_not_work(parameters: dict[str, str], refused: list[str]) -> None:
    """CloudFormation tells the description of the rule before it changes anything."""
    made = Template(template().document, {**template().parameters, **parameters})
    broken = [
        name
        for name, rule in made.document["Rules"].items()
        if is_met(rule["RuleCondition"], made)
        and not all(is_met(assertion["Assert"], made) for assertion in rule["Assertions"])
    ]
    assert broken == refused
    assert all(entry["AssertDescription"] for rule in made.document["Rules"].values() for entry in rule["Assertions"])


@pytest.mark.full
def test_cfn_lint_finds_nothing() -> None:
    pytest.importorskip("cfnlint")
    ran = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), "--non-zero-exit-code", "informational", "template.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
