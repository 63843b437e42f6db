"""docs/reference/operations.md says what each function may do: exactly what the template's roles grant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.templates import template
from tools.stack_docs import function_rights, tenant_rights

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "operations.md"


def text() -> str:
    """Return the page on one line."""
    return " ".join(PAGE.read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    result: dict[str, Any] = template().document["Resources"]
    return result


def test_the_page_says_what_each_function_may_do(resources: dict[str, Any]) -> None:
    items = function_rights(resources)
    assert [item for item in items if f"{item} " not in text()] == [], "run `make docs`"
    assert len(items) > 8


def test_the_page_says_what_each_role_of_tenants_may_do_and_for_whom(resources: dict[str, Any]) -> None:
    items = tenant_rights(resources)
    assert [item for item in items if f"{item} " not in text()] == [], "run `make docs`"
    assert len(items) == len(
        [name for name, resource in resources.items() if resource.get("Condition") == "IsolatesTenants"]
    )
    direct = {name for name, resource in resources.items() if "#turnlog" in str(resource)}
    assert all(f"`{name.removesuffix('Role')}`" in text() for name in direct)


def test_the_page_says_what_to_do_when_an_alarm_goes(resources: dict[str, Any]) -> None:
    alarms = [name for name, resource in resources.items() if resource["Type"] == "AWS::CloudWatch::Alarm"]
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in alarms if f"\n| `{name}` | " not in text] == []
    assert len(alarms) >= 3
