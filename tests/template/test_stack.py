"""template.yaml, expanded and read: pure, nothing is deployed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support import templates
from turnlog.core.errors import InvalidInputError
from turnlog.routing import ROUTES
from turnlog.server import stack as stack_module
from turnlog.server.stack import (
    NOT_CREATED,
    Template,
    expand,
    need_extra,
    referred,
    template_path,
    wiring_problems,
)

SMALL = """
Transform: AWS::Serverless-2016-10-31
Parameters:
  Counter: {Type: String, Default: estimate}
  Days: {Type: Number, Default: 7}
  Traced: {Type: String, Default: true}
Resources:
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: functions/
      Handler: workers.compress.handler
      Runtime: python3.13
"""


ALIASED = """
Transform: AWS::Serverless-2016-10-31
Resources:
  Api:
    Type: AWS::Serverless::HttpApi
    Properties:
      DefinitionBody:
        openapi: 3.0.1
        paths:
          /a: { get: &Open { security: [] } }
          /b: { get: *Open }
  A: &Function
    Type: AWS::Serverless::Function
    Properties: &Code { CodeUri: functions/, Handler: a.handler, Runtime: python3.13, Events: {
      Get: { Type: HttpApi, Properties: { ApiId: !Ref Api, Method: get, Path: /a } } } }
  B:
    <<: *Function
    Properties: { <<: *Code, Handler: b.handler, Events: {
      Get: { Type: HttpApi, Properties: { ApiId: !Ref Api, Method: get, Path: /b } } } }
"""


@pytest.fixture
def template() -> Template:
    return templates.template()


def _expanded(folder: Path, text: str, **parameters: str) -> Template:
    path = folder / "template.yaml"
    path.write_text(text, encoding="utf-8")
    return expand(path, parameters)


def test_the_checkout_has_the_template() -> None:
    assert template_path() == ROOT / "template.yaml"


def test_a_wheel_has_the_template_beside_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages" / "turnlog" / "local"
    installed.mkdir(parents=True)
    monkeypatch.setattr(stack_module, "__file__", str(installed / "stack.py"))
    # What stands somewhere above an installed package is not ours.
    (tmp_path / "template.yaml").write_text("")
    with pytest.raises(InvalidInputError) as caught:
        template_path()
    assert caught.value.error_code == "no_template"
    (installed / "template.yaml").write_text("")
    assert template_path() == installed / "template.yaml"


def test_an_alias_is_a_copy(tmp_path: Path) -> None:
    """The translator writes each route's function into its path, also where YAML has one object in two places."""
    assert _expanded(tmp_path, ALIASED).routes == {"GET /a": "A", "GET /b": "B"}


def test_the_template_and_the_route_table_agree(template: Template) -> None:
    assert wiring_problems(template) == []
    assert template.routes.keys() == {f"{route.method} {route.path}" for route in ROUTES}


def test_what_is_wired_wrongly_is_named(template: Template) -> None:
    paths: Any = next(dict(api) for _, api in template.of_type("AWS::ApiGatewayV2::Api"))["Body"]["paths"]
    changed = dict(paths)
    changed["/v1/health"] = paths["/v1/sessions"] | {"get": paths["/v1/window"]["post"]}
    del changed["/v1/window"]
    resources = {
        **template.resources,
        "Api": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"Body": {"paths": changed}}},
    }
    assert wiring_problems(Template({"Resources": resources})) == [
        "GET /v1/health goes to api.build_context.handler, not to api.health.handler",
        "POST /v1/health is in the template only",
        "POST /v1/window is not in the template",
    ]


def test_every_type_of_the_template_is_made_or_has_a_reason_not_to_be(template: Template) -> None:
    kinds = {resource["Type"] for resource in template.resources.values()}
    assert kinds == NOT_CREATED.keys() | {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue"}
    assert all(NOT_CREATED.values())


def test_the_queues_and_their_workers(template: Template) -> None:
    values = {
        source["FunctionName"]: (source["EventSourceArn"], source["FunctionResponseTypes"])
        for source in template.sources.values()
    }
    # The poller acknowledges what is not among the failures: without them, a failed job would be lost.
    assert values == {
        "CompressWorker": ({"Fn::GetAtt": ["CompressQueue", "Arn"]}, ["ReportBatchItemFailures"]),
        "SnapshotWorker": ({"Fn::GetAtt": ["SnapshotQueue", "Arn"]}, ["ReportBatchItemFailures"]),
        "EraseWorker": ({"Fn::GetAtt": ["EraseQueue", "Arn"]}, ["ReportBatchItemFailures"]),
        "OffloadWorker": ({"Fn::GetAtt": ["OffloadQueue", "Arn"]}, ["ReportBatchItemFailures"]),
    }


def test_parameters_have_their_defaults_and_can_be_given(tmp_path: Path) -> None:
    assert _expanded(tmp_path, SMALL).parameters == {"Counter": "estimate", "Days": "7", "Traced": "true"}
    assert _expanded(tmp_path, SMALL, Counter="o200k_base").parameters["Counter"] == "o200k_base"
    with pytest.raises(InvalidInputError, match="no parameter Nope"):
        _expanded(tmp_path, SMALL, Nope="1")


def test_a_template_that_is_none_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="can't be expanded") as caught:
        _expanded(tmp_path, SMALL.replace("Handler: workers.compress.handler", ""))
    assert caught.value.error_code == "invalid_template"


@pytest.mark.parametrize("missing", ["moto", "samtranslator"])
def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(
        stack_module, "find_spec", lambda name: None if name == missing else importlib.util.find_spec(name)
    )
    with pytest.raises(InvalidInputError) as caught:
        need_extra()
    assert caught.value.detail == f"the moto engine needs {missing}: pip install 'turnlog[moto]'"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ({"Ref": "Table"}, ["Table"]),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, ["Queue"]),
        ({"Fn::Sub": "a ${Table} ${Queue.Arn} ${!Literal} ${AWS::Region}"}, ["Table", "Queue"]),
        ({"Fn::Sub": ["${Given}", {"Given": {"Ref": "Bucket"}}]}, ["Given", "Bucket"]),
        ({"Fn::If": ["IsProd", {"Ref": "A"}, [{"Ref": "B"}]]}, ["A", "B"]),
        ("Table", []),
    ],
)
def test_what_an_expression_refers_to(expression: object, names: list[str]) -> None:
    assert list(referred(expression)) == names
