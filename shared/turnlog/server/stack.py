"""Deploys ``template.yaml`` without AWS: the SAM translator expands it, and an emulator's CloudFormation creates its resources.

    template = expand(template_path())                      # offline: functions, routes and event sources
    stack = deploy(template, make_clients(REGION))          # table, bucket and queues, and resolved variables

The template's own table, bucket and queues are created. Each function gets the environment of the template, which CloudFormation
resolves as outputs of the stack.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.engines.aws_clients import Clients
from turnlog.server.template import REGION, TEMPLATE, Template, expand, referred, template_path, text_of

__all__ = [
    "NOT_MADE",
    "REGION",
    "TEMPLATE",
    "EventSource",
    "Function",
    "Resource",
    "Stack",
    "Template",
    "deploy",
    "expand",
    "template_path",
]

STACK = "turnlog"
MAX_BATCH = 10

NOT_MADE: Mapping[str, str] = {
    "AWS::ApiGatewayV2::Api": "the local server answers",
    "AWS::ApiGatewayV2::ApiMapping": "the local server answers",
    "AWS::ApiGatewayV2::Authorizer": "who calls comes from headers",
    "AWS::ApiGatewayV2::DomainName": "the local server answers",
    "AWS::ApiGatewayV2::Stage": "the local server answers",
    "AWS::CloudWatch::Alarm": "nothing is notified on this machine",
    "AWS::CloudWatch::CompositeAlarm": "nothing is notified on this machine",
    "AWS::CloudWatch::Dashboard": "not shown on this machine",
    "AWS::Events::Rule": "nothing is scheduled on this machine",
    "AWS::IAM::ManagedPolicy": "moto checks no permissions",
    "AWS::IAM::Policy": "moto checks no permissions",
    "AWS::IAM::Role": "moto checks no permissions",
    "AWS::Lambda::Alias": "the handler runs in this process",
    "AWS::Lambda::EventInvokeConfig": "the handler runs in this process",
    "AWS::Lambda::EventSourceMapping": "the poller calls the worker",
    "AWS::Lambda::Function": "the handler runs in this process",
    "AWS::Lambda::LayerVersion": "the package is already importable",
    "AWS::Lambda::Permission": "moto checks no permissions",
    "AWS::Lambda::Version": "the handler runs in this process",
    "AWS::Logs::LogGroup": "logs go to this process's stderr",
    "AWS::Logs::MetricFilter": "not shown on this machine",
    "AWS::S3::BucketPolicy": "moto's CloudFormation has none",
    "AWS::SNS::Subscription": "nothing is notified on this machine",
    "AWS::SNS::Topic": "nothing is notified on this machine",
    "AWS::SNS::TopicPolicy": "nothing is notified on this machine",
    "AWS::SQS::QueuePolicy": "moto checks no permissions",
    "AWS::Scheduler::Schedule": "nothing is scheduled on this machine",
}
"""Resource types that are not created in the emulator, and why. `deploy` creates all other types, or fails."""

_NAME_PROPERTIES = {
    "AWS::DynamoDB::Table": "TableName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SQS::Queue": "QueueName",
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that CloudFormation created: logical id, type and physical name."""

    logical_id: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """A Lambda function of the template. ``environment`` is as CloudFormation resolved it."""

    name: str
    handler: str
    environment: Mapping[str, str]

    @property
    def resource(self) -> str:
        """The resource whose routes or jobs the function serves: the module of its handler, such as ``append``."""
        return self.handler.split(".")[-2] if self.handler.count(".") == 2 else ""


@dataclass(frozen=True, slots=True)
class EventSource:
    """A queue that invokes a function with at most ``batch`` jobs at once."""

    function: str
    queue_url: str
    dead_letter_url: str
    batch: int


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployed template."""

    resources: tuple[Resource, ...]
    functions: Mapping[str, Function]
    routes: Mapping[str, str]
    sources: tuple[EventSource, ...]


def deploy(template: Template, clients: Clients, *, name: str = STACK) -> Stack:
    """Create the template's resources by CloudFormation, with fixed names for those that have none, and return the stack.

    Raises `InvalidInputError` for an invalid template, and `UnavailableError` when the emulator did not create everything.
    """
    made, requested = _made(template, name), _Outputs()
    roles = {role for role, _ in template.of_type("AWS::IAM::Role")}
    variables = {
        function: {
            variable: requested.add(_with_role_arns(value, roles, name))
            for variable, value in properties.get("Environment", {}).get("Variables", {}).items()
        }
        for function, properties in template.of_type("AWS::Lambda::Function")
    }
    arns = {source: requested.add(properties["EventSourceArn"]) for source, properties in template.sources.items()}
    dangling = {reference for part in (made, requested.outputs) for reference in referred(part)} & (
        template.resources.keys() - made.keys()
    )
    if dangling:
        raise InvalidInputError(
            f"the template refers to what the emulator does not make: {', '.join(sorted(dangling))}",
            code="invalid_template",
        )
    resources, outputs = _create(template, made, requested.outputs, clients, name)
    resolved = {
        function: {
            variable: outputs[key] for variable, key in keys.items() if key in outputs
        }  # AWS::NoValue has no output
        for function, keys in variables.items()
    }
    return Stack(
        resources=resources,
        functions={
            function: Function(function, handler, resolved[function]) for function, handler in template.handlers.items()
        },
        routes=template.routes,
        sources=tuple(
            _source(clients, outputs[arns[source]], str(properties["FunctionName"]), int(properties["BatchSize"]))
            for source, properties in template.sources.items()
        ),
    )


def _with_role_arns(expression: Any, roles: Collection[str], stack: str) -> Any:
    """Replace references to roles in an expression by ARNs: roles are not created, and moto lets any caller assume any role."""
    if isinstance(expression, list):
        return [_with_role_arns(item, roles, stack) for item in expression]
    if not isinstance(expression, dict):
        return expression
    target = expression.get("Fn::GetAtt")
    if isinstance(target, list) and target[0] in roles:
        return {"Fn::Sub": f"arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:role/{stack}-{target[0]}"}
    return {key: _with_role_arns(value, roles, stack) for key, value in expression.items()}


class _Outputs:
    """Expressions for CloudFormation to resolve as outputs, each once."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}

    def add(self, expression: object) -> str:
        """Add an expression and return the key of its output."""
        value = expression if isinstance(expression, dict) else text_of(expression)
        key = self._keys.setdefault(json.dumps(value, sort_keys=True), f"Value{len(self._keys)}")
        self.outputs[key] = {"Value": value}
        return key


def _create(
    template: Template, resources_made: Mapping[str, Any], outputs: Mapping[str, Any], clients: Clients, name: str
) -> tuple[tuple[Resource, ...], dict[str, str]]:
    document = {key: value for key, value in template.document.items() if key != "Transform"}
    body = json.dumps({**document, "Resources": resources_made, "Outputs": outputs}, separators=(",", ":"))
    client = clients.open("cloudformation", read_timeout_seconds=60)
    parameters = [{"ParameterKey": key, "ParameterValue": value} for key, value in template.parameters.items()]
    client.create_stack(StackName=name, TemplateBody=body, Parameters=parameters)
    stack = client.describe_stacks(StackName=name)["Stacks"][0]
    if stack["StackStatus"] != "CREATE_COMPLETE":
        raise UnavailableError(f"the stack is {stack['StackStatus']}", code="not_deployed")
    entries = client.describe_stack_resources(StackName=name)["StackResources"]
    by_id = {entry["LogicalResourceId"]: entry for entry in entries if "LogicalResourceId" in entry}
    conditional = {key for key, resource in resources_made.items() if "Condition" in resource}
    left_out = resources_made.keys() - by_id.keys() - conditional
    if left_out:
        kinds = ", ".join(f"{key} ({resources_made[key]['Type']})" for key in sorted(left_out))
        raise UnavailableError(f"the emulator did not make {kinds}", code="not_deployed")
    resources = tuple(
        Resource(key, str(resources_made[key]["Type"]), str(by_id[key]["PhysicalResourceId"]))
        for key in resources_made
        if key in by_id
    )
    return resources, {output["OutputKey"]: str(output["OutputValue"]) for output in stack.get("Outputs", [])}


def _source(clients: Clients, arn: str, function: str, batch: int) -> EventSource:
    url = clients.sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]
    attributes = clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
    policy = json.loads(attributes.get("Attributes", {}).get("RedrivePolicy", "{}"))
    if not policy:
        raise InvalidInputError(f"the queue of {function} has no dead-letter queue", code="invalid_template")
    dead = clients.sqs.get_queue_url(QueueName=str(policy["deadLetterTargetArn"]).rpartition(":")[2])["QueueUrl"]
    return EventSource(function, url, dead, min(batch, MAX_BATCH))


def _made(template: Template, name: str) -> dict[str, Any]:
    """Return the resources to create, each with a name that is the same for the same template."""
    made: dict[str, Any] = {}
    for logical_id, resource in template.resources.items():
        if resource["Type"] in NOT_MADE:
            continue
        made[logical_id] = dict(resource)
        property_name = _NAME_PROPERTIES.get(resource["Type"])
        if property_name is not None:
            properties = {property_name: f"{name}-{logical_id.lower()}", **resource.get("Properties", {})}
            made[logical_id]["Properties"] = properties
    for resource in made.values():
        before = resource.pop("DependsOn", [])
        waits = [key for key in ([before] if isinstance(before, str) else before) if key in made]
        if waits:
            resource["DependsOn"] = waits
    return made
