"""Reads template.yaml: expands it offline with the SAM translator, and finds its functions, routes and event sources.

template = expand(template_path())
template.routes["POST /v1/sessions"]        # "SessionsFunction"
wiring_problems(template)                   # []: its routes and handlers are those of the route table
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnlog.core.errors import InvalidInputError
from turnlog.http.route_table import ROUTES

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
        """Return the function that an expression of an ARN or a name refers to, directly or by an alias."""
        for name in referred(expression):
            resource = self.resources.get(name, {})
            if resource.get("Type") == "AWS::Lambda::Function":
                return name
            if resource.get("Type") in ("AWS::Lambda::Alias", "AWS::Lambda::Version"):
                return self._function_of(resource["Properties"]["FunctionName"])
        raise InvalidInputError(f"no function of the template is meant by {expression!r}", code="invalid_template")


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
    import yaml
    from boto3 import Session
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator
    from samtranslator.yaml_helper import yaml_parse

    try:
        source = yaml_parse(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InvalidInputError(f"{str(path)!r} is not YAML: {error}", code="invalid_template") from error
    if not isinstance(source, dict) or not isinstance(source.get("Resources"), dict):
        raise InvalidInputError(f"{str(path)!r} has no resources", code="invalid_template")
    values = _parameters(source, parameters or {})
    # The translator warns about usage metrics that it could not send to AWS.
    logging.getLogger("samtranslator.metrics").setLevel(logging.ERROR)
    _put_code_elsewhere(source)
    try:
        translator = Translator({}, Parser(), boto_session=Session(region_name=REGION))
        document = translator.translate(source, dict(values))
    except InvalidDocumentException as error:
        causes = "; ".join(cause.message for cause in error.causes)
        raise InvalidInputError(f"{str(path)!r} can't be expanded: {causes}", code="invalid_template") from error
    return Template(document, values)


def wiring_problems(template: Template) -> list[str]:
    """Return the differences between the template's routes and handlers and the route table; empty when they agree."""
    problems = []
    expected = {f"{route.method} {route.path}": f"api.{route.resource}.handler" for route in ROUTES}
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
                yield str(value[0]) if isinstance(value, list) else str(value).partition(".")[0]
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
    missing = [name for name, declaration in declared.items() if name not in values and "Default" not in declaration]
    if missing:
        raise InvalidInputError(f"the template's parameter {', '.join(missing)} has no value", code="invalid_template")
    return {
        name: values[name] if name in values else text_of(declaration["Default"])
        for name, declaration in declared.items()
    }


def _put_code_elsewhere(source: dict[str, Any]) -> None:
    """Replace code folders by an S3 address: the translator refuses folders, which `sam build` and `sam deploy` replace."""
    shared: Any = source.get("Globals", {}).get("Function")
    if isinstance(shared, dict) and "CodeUri" in shared:
        shared["CodeUri"] = _ELSEWHERE
    for resource in source["Resources"].values():
        name = _CODE_PROPERTIES.get(resource.get("Type", ""))
        if name is not None:
            resource.setdefault("Properties", {})[name] = _ELSEWHERE
