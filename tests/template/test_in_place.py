"""An update of a deployed stack keeps its data: table, bucket, queues and their policies stay, and outputs keep their names.

`deployed_stack.json` is what template.yaml made, with its defaults, before ADR 50. Do not make it again: it stands for stacks in
use. `make e2e` deploys it onto the emulator and updates it to the template of today.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.iam import resolved
from tests.support.templates import template

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("deployed_stack.json").read_text(encoding="utf-8"))
HOLDS_DATA = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue"}


@cache
def today() -> dict[str, Any]:
    return dict(resolved(template()))


def replacing(kind: str) -> set[str]:
    """Return the properties whose change makes CloudFormation replace a resource, by AWS's schemas, which cfn-lint ships."""
    manager = pytest.importorskip("cfnlint.schema.manager").PROVIDER_SCHEMA_MANAGER
    schema = manager.get_resource_schema("us-east-1", kind).schema
    paths = [*schema.get("createOnlyProperties", []), *schema.get("conditionalCreateOnlyProperties", [])]
    return {path.split("/")[2] for path in paths}


@pytest.mark.parametrize("name", RECORDED["Resources"])
def test_an_update_replaces_and_removes_nothing_that_holds_data(name: str) -> None:
    """Removing a policy of a queue takes the queue's policy away, also when another resource has just set it."""
    before, now = RECORDED["Resources"][name], today()[name]
    kept = ("Type", "DeletionPolicy", "UpdateReplacePolicy")
    assert [now.get(key) for key in kept] == [before.get(key) for key in kept]
    for key in replacing(before["Type"]):
        assert now["Properties"].get(key) == before["Properties"].get(key), key


def test_the_indexes_of_the_table_stay() -> None:
    """CloudFormation makes an index again whose key or projection changes; meanwhile nothing is listed."""
    before, now = (
        {
            globalsecondaryindex["IndexName"]: globalsecondaryindex
            for globalsecondaryindex in resources["Table"]["Properties"]["GlobalSecondaryIndexes"]
        }
        for resources in (RECORDED["Resources"], today())
    )
    assert {name: now[name] for name in before} == before


def test_what_holds_data_is_recorded() -> None:
    holding = {name for name, item in today().items() if item["Type"] in HOLDS_DATA}
    assert holding <= set(RECORDED["Resources"]), "a new one: record it once it is released"
    assert len(holding) == 10


def test_an_output_keeps_its_name_and_what_it_names() -> None:
    outputs = template().document["Outputs"]
    changed = {name for name, output in RECORDED["Outputs"].items() if outputs[name]["Value"] != output["Value"]}
    assert changed == {"DashboardName"}, "the dashboard made way for the parameter of its name"
    assert today()["Api"]["Type"] == "AWS::ApiGatewayV2::Api"


def test_a_change_that_replaces_is_seen() -> None:
    assert replacing("AWS::DynamoDB::Table") >= {"TableName", "KeySchema"}
    assert replacing("AWS::SQS::Queue") == {"QueueName", "FifoQueue"}
    assert "BucketName" in replacing("AWS::S3::Bucket")
