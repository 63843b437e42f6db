"""Expands ``template.yaml`` and deploys it without AWS, by the SAM translator and an emulator's CloudFormation.

    template = expand(template_path())                      # offline: functions, routes and event sources
    template.routes["POST /v1/sessions"]                    # "SessionsFunction"
    wiring_problems(template)                               # []: its routes and handlers are those of the route table
    stack = deploy(template, Clients(REGION))          # table, bucket and queues, and resolved variables

The template's own table, bucket and queues are created. Each function gets the environment of the template, which CloudFormation
resolves as outputs of the stack.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.engines.aws_clients import Clients
from turnlog.routing import ROUTES, function_of

TEMPLATE = "template.yaml"
REGION = "eu-central-1"

_NEEDED = ("moto", "samtranslator", "yaml")
_ELSEWHERE = "s3://not-on-this-machine/code.zip"
_CODE_PROPERTIES = {"AWS::Serverless::Function": "CodeUri", "AWS::Serverless::LayerVersion": "ContentUri"}
_SUBSTITUTED = re.compile(r"\$\{([A-Za-z0-9]+)(?:\.\w+)?\}")


@dataclass(frozen=True, slots=True)
class Template:
    """An expanded template. ``routes`` maps ``METHOD /path`` to the logical id of a function."""

    document: Mapping[str, Any]
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> Mapping[str, Any]:
        resources: Mapping[str, Any] = self.document["Resources"]
        return resources

    def of_type(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield logical id and properties of each resource of a type."""
        for name, resource in self.resources.items():
            if resource["Type"] == kind:
                yield name, resource.get("Properties", {})

    @property
    def handlers(self) -> dict[str, str]:
        return {name: str(properties["Handler"]) for name, properties in self.of_type("AWS::Lambda::Function")}

    @property
    def routes(self) -> dict[str, str]:
        return {
            f"{method.upper()} {path}": self._function_of(call["x-amazon-apigateway-integration"]["uri"])
            for _, api in self.of_type("AWS::ApiGatewayV2::Api")
            for path, methods in api.get("Body", {}).get("paths", {}).items()
            for method, call in methods.items()
            if "x-amazon-apigateway-integration" in call
        }

    @property
    def sources(self) -> dict[str, Mapping[str, Any]]:
        """Event source mappings by logical id; ``FunctionName`` is the function's logical id."""
        return {
            name: {**properties, "FunctionName": self._function_of(properties["FunctionName"])}
            for name, properties in self.of_type("AWS::Lambda::EventSourceMapping")
        }

    def _function_of(self, expression: object) -> str:
        functions = dict(self.of_type("AWS::Lambda::Function"))
        return next(name for name in referred(expression) if name in functions)


def need_extra() -> None:
    """Raise `InvalidInputError` that says what to install when the extra ``moto`` is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f"the moto engine needs {', '.join(missing)}: pip install 'turnlog[moto]'", code="extra_needed"
        )


def template_path() -> Path:
    """Return the path of the checkout's template, or of the one in the installed package."""
    here = Path(__file__).resolve()
    root = here.parents[3]
    checkout = [root / TEMPLATE] if here.parents[2].name == "shared" else []
    for path in (*checkout, here.parent / TEMPLATE):
        if path.is_file():
            return path
    raise InvalidInputError(f"no {TEMPLATE}: neither in {str(root)!r} nor in the package", code="no_template")


def expand(path: Path, parameters: Mapping[str, str] | None = None) -> Template:
    """Expand a SAM template to plain CloudFormation, without network. Missing parameters get their defaults."""
    need_extra()
    from boto3 import Session
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator
    from samtranslator.yaml_helper import yaml_parse

    # An alias is one object in two places, and the translator changes objects.
    source = json.loads(json.dumps(yaml_parse(path.read_text(encoding="utf-8"))))
    values = _parameters(source, parameters or {})
    # The translator warns about usage metrics that it could not send to AWS.
    logging.getLogger("samtranslator.metrics").setLevel(logging.ERROR)
    _put_code_elsewhere(source)
    try:
        translator = Translator({}, Parser(), boto_session=Session(region_name=REGION))
        document = translator.translate(source, values)
    except InvalidDocumentException as error:
        causes = "; ".join(cause.message for cause in error.causes)
        raise InvalidInputError(f"{str(path)!r} can't be expanded: {causes}", code="invalid_template") from error
    return Template(document, values)


def wiring_problems(template: Template) -> list[str]:
    """Return the differences between the template's routes and handlers and the route table; empty when they agree."""
    problems = []
    expected = {route.key: f"api.{function_of(route.resource)}.handler" for route in ROUTES}
    handlers = template.handlers
    served = {route: handlers[function] for route, function in template.routes.items()}
    for route in sorted(expected.keys() | served.keys()):
        if route not in served:
            problems.append(f"{route} is not in the template")
        elif route not in expected:
            problems.append(f"{route} is in the template only")
        elif served[route] != expected[route]:
            problems.append(f"{route} goes to {served[route]}, not to {expected[route]}")
    return problems


def referred(expression: object) -> Iterator[str]:
    """Yield every logical id that an expression names by Ref, GetAtt or Sub, including parameters and pseudo parameters."""
    if isinstance(expression, Mapping):
        for key, value in expression.items():
            if key == "Ref" and isinstance(value, str):
                yield value
            elif key == "Fn::GetAtt":
                yield str(value[0])
            elif key == "Fn::Sub":
                text = value[0] if isinstance(value, list) else value
                yield from _SUBSTITUTED.findall(text)
                yield from referred(value[1]) if isinstance(value, list) else ()
            else:
                yield from referred(value)
    elif isinstance(expression, list):
        for item in expression:
            yield from referred(item)


def text_of(value: object) -> str:
    """Return a parameter's or variable's value as the text that CloudFormation uses."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parameters(source: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, str]:
    declared: Mapping[str, Any] = source.get("Parameters") or {}
    unknown = values.keys() - declared.keys()
    if unknown:
        raise InvalidInputError(f"the template has no parameter {', '.join(sorted(unknown))}", code="invalid_template")
    return {name: text_of(declaration["Default"]) for name, declaration in declared.items()} | dict(values)


def _put_code_elsewhere(source: dict[str, Any]) -> None:
    """Replace code folders by an S3 address: the translator refuses folders, which `sam build` and `sam deploy` replace."""
    shared: Any = source.get("Globals", {}).get("Function")
    if isinstance(shared, dict) and "CodeUri" in shared:
        shared["CodeUri"] = _ELSEWHERE
    for resource in source["Resources"].values():
        name = _CODE_PROPERTIES.get(resource.get("Type", ""))
        if name is not None:
            resource.setdefault("Properties", {})[name] = _ELSEWHERE


STACK = "turnlog"

NOT_CREATED: Mapping[str, str] = {
    "AWS::ApiGatewayV2::Api": "the local server answers",
    "AWS::ApiGatewayV2::Stage": "the local server answers",
    "AWS::CloudWatch::Alarm": "nothing is notified on this machine",
    "AWS::CloudWatch::Dashboard": "not shown on this machine",
    "AWS::Events::Rule": "nothing is scheduled on this machine",
    "AWS::IAM::Role": "moto checks no permissions",
    "AWS::Lambda::EventSourceMapping": "the poller calls the worker",
    "AWS::Lambda::Function": "the handler runs in this process",
    "AWS::Lambda::LayerVersion": "the package is already importable",
    "AWS::Lambda::Permission": "moto checks no permissions",
    "AWS::Logs::LogGroup": "logs go to this process's stderr",
    "AWS::Logs::MetricFilter": "not shown on this machine",
    "AWS::S3::BucketPolicy": "moto's CloudFormation has none",
    "AWS::SQS::QueuePolicy": "moto checks no permissions",
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
        return self.handler.split(".")[1]


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployed template. ``queues`` maps the functions that queues invoke to the URLs of these."""

    resources: tuple[Resource, ...]
    functions: Mapping[str, Function]
    routes: Mapping[str, str]
    queues: Mapping[str, str]


def deploy(template: Template, clients: Clients) -> Stack:
    """Create the template's resources by CloudFormation, with fixed names for those that have none, and return the stack.

    Raises `InvalidInputError` for an invalid template, and `UnavailableError` when the emulator did not create everything.
    """
    resources_to_create, requested = _created_resources(template), _Outputs()
    roles = {role for role, _ in template.of_type("AWS::IAM::Role")}
    variables = {
        function: {
            variable: requested.add(_with_role_arns(value, roles))
            for variable, value in properties.get("Environment", {}).get("Variables", {}).items()
        }
        for function, properties in template.of_type("AWS::Lambda::Function")
    }
    sources = template.sources.values()
    arns = {source["FunctionName"]: requested.add(source["EventSourceArn"]) for source in sources}
    dangling = {reference for part in (resources_to_create, requested.outputs) for reference in referred(part)} & (
        template.resources.keys() - resources_to_create.keys()
    )
    if dangling:
        raise InvalidInputError(
            f"the template refers to what the emulator does not make: {', '.join(sorted(dangling))}",
            code="invalid_template",
        )
    resources, outputs = _create(template, resources_to_create, requested.outputs, clients)
    # A variable that is AWS::NoValue has no output.
    resolved = {
        function: {variable: outputs[key] for variable, key in keys.items() if key in outputs}
        for function, keys in variables.items()
    }
    return Stack(
        resources=resources,
        functions={
            function: Function(function, handler, resolved[function]) for function, handler in template.handlers.items()
        },
        routes=template.routes,
        queues={
            function: clients.sqs.get_queue_url(QueueName=outputs[key].rpartition(":")[2])["QueueUrl"]
            for function, key in arns.items()
        },
    )


def _with_role_arns(expression: Any, roles: Collection[str]) -> Any:
    """Replace references to roles in an expression by ARNs: roles are not created, and moto lets any caller assume any role."""
    if isinstance(expression, list):
        return [_with_role_arns(item, roles) for item in expression]
    if not isinstance(expression, dict):
        return expression
    target = expression.get("Fn::GetAtt")
    if isinstance(target, list) and target[0] in roles:
        return {"Fn::Sub": f"arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:role/{STACK}-{target[0]}"}
    return {key: _with_role_arns(value, roles) for key, value in expression.items()}


class _Outputs:
    """Expressions for CloudFormation to resolve as outputs, each once."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}

    def add(self, expression: object) -> str:
        """Add an expression and return the key of its output."""
        value = expression if isinstance(expression, dict) else text_of(expression)
        key = self._keys.setdefault(json.dumps(value), f"Value{len(self._keys)}")
        self.outputs[key] = {"Value": value}
        return key


def _create(
    template: Template, resources_made: Mapping[str, Any], outputs: Mapping[str, Any], clients: Clients
) -> tuple[tuple[Resource, ...], dict[str, str]]:
    document = {key: value for key, value in template.document.items() if key != "Transform"}
    body = json.dumps({**document, "Resources": resources_made, "Outputs": outputs}, separators=(",", ":"))
    client = clients.open("cloudformation", read_timeout_seconds=60)
    parameters = [{"ParameterKey": key, "ParameterValue": value} for key, value in template.parameters.items()]
    client.create_stack(StackName=STACK, TemplateBody=body, Parameters=parameters)
    stack = client.describe_stacks(StackName=STACK)["Stacks"][0]
    if stack["StackStatus"] != "CREATE_COMPLETE":
        raise UnavailableError(f"the stack is {stack['StackStatus']}", code="not_deployed")
    entries = client.describe_stack_resources(StackName=STACK)["StackResources"]
    by_id = {entry["LogicalResourceId"]: entry for entry in entries if "LogicalResourceId" in entry}
    left_out = resources_made.keys() - by_id.keys()
    if left_out:
        kinds = ", ".join(f"{key} ({resources_made[key]['Type']})" for key in sorted(left_out))
        raise UnavailableError(f"the emulator did not make {kinds}", code="not_deployed")
    resources = tuple(
        Resource(key, str(resources_made[key]["Type"]), str(by_id[key]["PhysicalResourceId"])) for key in resources_made
    )
    return resources, {output["OutputKey"]: str(output["OutputValue"]) for output in stack.get("Outputs", [])}


def _created_resources(template: Template) -> dict[str, Any]:
    """Return the resources to create, each with a name that is the same for the same template."""
    resources: dict[str, Any] = {}
    for logical_id, resource in template.resources.items():
        if resource["Type"] in NOT_CREATED:
            continue
        resources[logical_id] = dict(resource)
        property_name = _NAME_PROPERTIES.get(resource["Type"])
        if property_name is not None:
            properties = {property_name: f"{STACK}-{logical_id.lower()}", **resource.get("Properties", {})}
            resources[logical_id]["Properties"] = properties
    return resources
