"""What `make e2e` does not deploy: what the page says, and nothing else; and the template with tokens in place of signatures."""

from __future__ import annotations

from typing import Any

from samtranslator.yaml_helper import yaml_parse

from tests.conftest import ROOT
from tests.e2e_aws.deployed import adapted
from tests.support.templates import template
from turnlog.server.stack import wiring_problems

WORKERS = ("CompressWorker", "SnapshotWorker", "EraseWorker", "OffloadWorker")
FORMULAS = ("TableThrottlesAlarm", "FunctionThrottlesAlarm")


def test_the_emulator_gets_all_but_what_the_page_names() -> None:
    document = yaml_parse((ROOT / "template.yaml").read_text(encoding="utf-8"))
    made, left_out = adapted(document)
    assert sorted(left_out) == sorted([*FORMULAS, *(f"{name}.ScalingConfig" for name in WORKERS)])
    page = (ROOT / "docs" / "reference" / "operations.md").read_text(encoding="utf-8")
    assert f"alarms of a formula ({', '.join(f'`{name}`' for name in FORMULAS)})" in page
    assert "`MaximumConcurrency`" in page
    resources: dict[str, Any] = document["Resources"]
    assert set(resources) - set(made["Resources"]) == set(FORMULAS)
    assert {name for name, resource in made["Resources"].items() if resource != resources[name]} == set(WORKERS)
    assert {name: item for name, item in made.items() if name != "Resources"} == {
        name: item for name, item in document.items() if name != "Resources"
    }


def test_the_template_expands_with_tokens_too() -> None:
    values = {"Authorizer": "Jwt", "JwtIssuer": "https://idp.example", "JwtAudience": "turnlog"}
    expanded = template(**values)
    assert values.items() <= dict(expanded.parameters).items()
    assert wiring_problems(expanded) == []
