"""The stack of template.yaml on ministack, deployed by the SAM CLI, with IAM enforced; and principals that may call it.

`make e2e` builds it first. What the emulator can't do is left out of what is deployed to it (`adapted`), and the routes, which it
does not read off an API's body, are made from the expanded template (`_make_routes`). Everything else is as AWS gets it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session, get_session

from tests.certificates import make_certificate
from tests.conftest import ROOT
from tools.emulators import MINISTACK, Emulator, running
from turnlog import Aws, Turnlog
from turnlog.server.stack import Template, expand

REGION = "eu-central-1"
STACK = "turnlog-e2e"
BUILD = ROOT / ".aws-sam" / "host" / "build"
SAM = ROOT / ".venv-sam" / "bin" / "sam"
ARCHITECTURE = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
RECORDED = ROOT / "tests" / "template" / "deployed_stack.json"
"""What holds data in a stack that was deployed by an earlier template.yaml: tests/template/test_in_place.py."""
KEPT = "kept-over-the-update"
"""What an item, an object and a message have as their key, name and body, written before the update."""
_DEPLOY_SECONDS = 300
_INVOKE = "execute-api:Invoke"


def server(certificate: Path | None = None) -> Emulator:
    """ministack with IAM enforced, over TLS: without it the queues and the bucket refuse everything."""
    trusted = {
        "USE_SSL": "1",
        **dict.fromkeys(("MINISTACK_SSL_CERT", "MINISTACK_SSL_KEY", "AWS_CA_BUNDLE"), str(certificate)),
    }
    return replace(
        MINISTACK,
        # Of the runtime's Python: functions run in it.
        executable=ROOT / ".venv-ministack" / "bin" / "python",
        variable="TURNLOG_TEST_E2E_MINISTACK",
        environment=lambda port: {
            **{name: value for name, value in MINISTACK.environment(port).items() if name != "SERVICES"},
            **trusted,
            "MINISTACK_REGION": REGION,
            "AUTH": "true",
            "STATE_DIR": str(certificate and certificate.with_name("state")),
        },
        ready=None,
    )


class DeployFailedError(Exception):
    """What the SAM CLI said."""


def adapted(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A template without what ministack refuses or fails at; and what that was.

    It knows no metric math in alarms, and it takes the concurrency of an event source, a parameter, for text.
    """
    left_out, resources = [], dict[str, Any]()
    for name, resource in document["Resources"].items():
        value = resource.get("Properties", {})
        if resource["Type"] == "AWS::CloudWatch::Alarm" and "Metrics" in value:
            left_out.append(name)
            continue
        events = {
            source: {**event, "Properties": {k: v for k, v in event["Properties"].items() if k != "ScalingConfig"}}
            for source, event in value.get("Events", {}).items()
        }
        left_out += [
            f"{name}.ScalingConfig"
            for event in value.get("Events", {}).values()
            if "ScalingConfig" in event["Properties"]
        ]
        resources[name] = {**resource, "Properties": {**value, "Events": events}} if events else resource
    return {**document, "Resources": resources}, left_out


@dataclass(frozen=True)
class Principal:
    """An IAM user with a key. Turnlog sees the user ``iam-user/NAME``."""

    name: str
    session: Session

    def open(self, url: str) -> Turnlog:
        return Turnlog.open(
            url,
            aws=Aws(region=REGION, service="execute-api", session=self.session),
            timeout_seconds=60,
            deadline_seconds=180,
        )


class Deployed:
    """The stack. ``admin`` is the account's root, which may do anything. ``before`` has physical ids before the update."""

    def __init__(self, endpoint: str, certificate: Path, template: Template) -> None:
        self.before = dict[str, str]()
        self.endpoint = endpoint
        self.certificate = certificate
        self.template = template
        self.admin = _session("test", "test")
        self._principals = dict[str, Principal]()

    def client(self, service: str, session: Session | None = None) -> Any:
        return (session or self.admin).create_client(
            service, region_name=REGION, endpoint_url=self.endpoint, verify=str(self.certificate)
        )

    @cached_property
    def ids(self) -> dict[str, str]:
        """Physical ids by logical id."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK)
        result = (stackresourcesummary for page in pages for stackresourcesummary in page["StackResourceSummaries"])
        return {item["LogicalResourceId"]: item["PhysicalResourceId"] for item in result}

    @cached_property
    def outputs(self) -> dict[str, str]:
        (stack,) = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    @property
    def api_id(self) -> str:
        return self.ids["Api"]

    @property
    def url(self) -> str:
        """Where the API answers: by path, as nothing resolves the emulator's host names."""
        return f"{self.endpoint}/_aws/execute-api/{self.api_id}/$default"

    def principal(self, name: str, *, may_call: bool = True) -> Principal:
        """A user of this name, who may call the API or nothing at all."""
        if name not in self._principals:
            iam = self.client("iam")
            iam.create_user(UserName=name)
            if may_call:
                resource = f"arn:aws:execute-api:{REGION}:*:{self.api_id}/*"
                iam.put_user_policy(UserName=name, PolicyName="calls", PolicyDocument=_allowing(_INVOKE, resource))
            key = iam.create_access_key(UserName=name)["AccessKey"]
            self._principals[name] = Principal(name, _session(key["AccessKeyId"], key["SecretAccessKey"]))
        return self._principals[name]

    @contextlib.contextmanager
    def without(self, function: str, sid: str) -> Iterator[None]:
        """The function's role without one statement of its policy."""
        iam, role = self.client("iam"), self.ids[self._role_of(function)]
        (name,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
        document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        kept = [item for item in document["Statement"] if item["Sid"] != sid]
        assert len(kept) == len(document["Statement"]) - 1, f"{role} has no statement {sid}"
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps({**document, "Statement": kept}))
        try:
            yield
        finally:
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document))

    def credentials_of(self, function: str) -> Session:
        """Credentials of a function's role, as Lambda gives it."""
        arn = self.client("iam").get_role(RoleName=self.ids[self._role_of(function)])["Role"]["Arn"]
        result = self.client("sts").assume_role(RoleArn=arn, RoleSessionName="e2e")["Credentials"]
        return _session(result["AccessKeyId"], result["SecretAccessKey"], result["SessionToken"])

    def _role_of(self, function: str) -> str:
        role: str = self.template.resources[function]["Properties"]["Role"]["Fn::GetAtt"][0]
        return role


@contextlib.contextmanager
def deployed(folder: Path) -> Iterator[Deployed]:
    """The built template, deployed on an emulator that lives as long as the block. ``folder`` is for files on the way."""
    from samtranslator.yaml_helper import yaml_parse

    built = BUILD / "template.yaml"
    document, left_out = adapted(yaml_parse(built.read_text(encoding="utf-8")))
    print(f"not on the emulator: {', '.join(left_out)}")
    # Beside the one that was built: the paths of its code are relative.
    source = BUILD / "emulated.json"
    source.write_text(json.dumps(document), encoding="utf-8")
    certificate = make_certificate(folder)
    with running(server(certificate)) as plain, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        endpoint = plain.replace("http://", "https://")
        stack = Deployed(endpoint, certificate, expand(built, {"Architecture": ARCHITECTURE}))
        _begin(stack)
        _deploy(source, endpoint, folder, certificate)
        _make_routes(stack)
        yield stack


def _begin(stack: Deployed) -> None:
    """Make the stack that is updated: what holds data, as an earlier template made it, with something in each."""
    resources = json.loads(RECORDED.read_text(encoding="utf-8"))["Resources"]
    client = stack.client("cloudformation")
    client.create_stack(StackName=STACK, TemplateBody=json.dumps({"Resources": resources}))
    client.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1})
    stack.before = stack.ids
    del stack.ids  # they are read again once it is updated
    item = {"pk": {"S": KEPT}, "sk": {"S": KEPT}}
    stack.client("dynamodb").put_item(TableName=stack.before["Table"], Item=item)
    stack.client("s3").put_object(Bucket=stack.before["Bucket"], Key=KEPT, Body=KEPT.encode())
    stack.client("sqs").send_message(QueueUrl=stack.before["EraseDeadLetters"], MessageBody=KEPT)


def _deploy(source: Path, endpoint: str, folder: Path, certificate: Path) -> None:
    command = [str(SAM), "deploy", "--template-file", str(source), "--stack-name", STACK, "--resolve-s3"]
    command += ["--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset", "--no-progressbar"]
    command += ["--parameter-overrides", f"Architecture={ARCHITECTURE}"]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "SAM_CLI_TELEMETRY": "0",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_CA_BUNDLE": str(certificate),
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_DEPLOY_SECONDS, check=False
    )
    if ran.returncode:
        raise DeployFailedError(ran.stdout[-4_000:] + ran.stderr[-2_000:])


def _make_routes(stack: Deployed) -> None:
    """What API Gateway reads off the body of the API: each route with its function and who may call it."""
    api = stack.client("apigatewayv2")
    functions = stack.client("lambda")
    ((_, properties),) = stack.template.of_type("AWS::ApiGatewayV2::Api")
    integrations = dict[str, str]()
    for route, function in stack.template.routes.items():
        if function not in integrations:
            arn = functions.get_function(FunctionName=stack.ids[function])["Configuration"]["FunctionArn"]
            made = api.create_integration(
                ApiId=stack.api_id, IntegrationType="AWS_PROXY", IntegrationUri=arn, PayloadFormatVersion="2.0"
            )
            integrations[function] = made["IntegrationId"]
        method, path = route.split(" ")
        security = properties["Body"]["paths"][path][method.lower()].get("security")
        signed = security is not None and security["Fn::If"][2] == [{"AWS_IAM": []}]
        api.create_route(
            ApiId=stack.api_id,
            RouteKey=route,
            Target=f"integrations/{integrations[function]}",
            AuthorizationType="AWS_IAM" if signed else "NONE",
        )


def _allowing(action: str, resource: str) -> str:
    statement = {"Effect": "Allow", "Action": action, "Resource": resource}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _session(key: str, secret: str, token: str | None = None) -> Session:
    session = get_session()
    session.set_credentials(key, secret, token)
    return session
