"""What `make mcp-conformance` makes of the suite's results, and that the page lists which scenarios apply."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def tool() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("mcp_conformance", ROOT / "tools" / "mcp_conformance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


def found(tool: Any) -> dict[str, dict[str, list[dict[str, Any]]]]:
    names = (*tool.APPLIES, *tool.DOES_NOT)
    passed = ("x", tool.MESSAGES)
    return {
        version: {name: [{"id": item, "status": "SUCCESS"} for item in passed] for name in names}
        for version in tool.SPECIFICATIONS
    }


def test_the_page_says_what_applies_and_why_the_rest_does_not(tool: Any) -> None:
    page = (ROOT / "docs" / "contributing" / "mcp-conformance.md").read_text(encoding="utf-8")
    assert tool.table() in page and tool.VERSION in page
    assert not set(tool.APPLIES) & set(tool.DOES_NOT)


def test_a_check_that_fails_is_told_and_fails(tool: Any) -> None:
    whole = found(tool)
    assert tool.report(whole)[1]
    whole[tool.SPECIFICATIONS[0]]["ping"].append({"id": "late", "status": "FAILURE", "errorMessage": "no pong"})
    lines, is_right = tool.report(whole)
    assert not is_right and f"FAILED {tool.SPECIFICATIONS[0]} ping: late: no pong" in lines and lines[-1] == "failed"


def test_messages_are_checked_in_scenarios_that_do_not_apply(tool: Any) -> None:
    whole = found(tool)
    name = next(iter(tool.DOES_NOT))
    whole[tool.SPECIFICATIONS[0]][name][0]["status"] = "FAILURE"
    assert tool.report(whole)[1]
    whole[tool.SPECIFICATIONS[0]][name][1]["status"] = "FAILURE"
    assert not tool.report(whole)[1]


def test_a_scenario_that_was_not_run_fails(tool: Any) -> None:
    whole = found(tool)
    for item in whole.values():
        del item["ping"]
    lines, is_right = tool.report(whole)
    assert not is_right and "FAILED ping was not run" in lines


def test_an_installation_that_fetches_nothing_fails(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "installed", lambda: False)
    assert tool.main("install") == 1
    monkeypatch.setattr(tool, "installed", lambda: True)
    assert tool.main("install") == 0
