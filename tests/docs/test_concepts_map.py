"""The map of concepts names routes, calls, tests and other libraries' classes that are there, and leaves no route out."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from turnlog.client import model
from turnlog.routing import ROUTES

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "concepts-map.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^- \*\*([^*]+)\*\* \(([^)]*)\):\s+((?:.+)(?:\n  [^ -].*)*)\n  - (.+)\n  - (.+)\n  - \[(\w+)\]\(\.\./\.\./(tests/[\w/.]+)\)$",
    re.M,
)
IDEAS = ROW.findall(PAGE)
MAPPED, _, LIBRARIES = PAGE.partition("\n## Names of other libraries\n")
FOREIGN = re.findall(r"^\|[^|]*\| `([\w.]+)` \|", LIBRARIES, re.M)


def named(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def found(name: str) -> object:
    """What a dotted name stands for: a member of the object model, or of a module."""
    owner, _, member = name.rpartition(".")
    if owner in ("Session", "Sessions", "Turnlog"):
        return getattr(getattr(model, owner), member)
    return getattr(importlib.import_module(owner), member)


def test_every_row_is_read() -> None:
    rows = [line for line in MAPPED.splitlines() if line.startswith("- ")]
    assert len(IDEAS) == len(rows) > 40


def test_every_route_is_on_the_map_and_no_other() -> None:
    shown = {item.replace("…", "/v1/sessions/{session_id}") for row in IDEAS for item in named(row[3])}
    assert shown == {f"{route.method} {route.path}" for route in ROUTES}


@pytest.mark.parametrize("name", sorted({item for row in IDEAS for item in named(row[4])}))
def test_every_call_is_there(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize(("name", "file"), [row[5:] for row in IDEAS])
def test_every_test_is_there(name: str, file: str) -> None:
    assert re.search(rf"^(async )?def test_{name}\(", (ROOT / file).read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("name", FOREIGN)
def test_every_name_of_another_library_is_there(name: str) -> None:
    assert found(name) is not None


def test_every_library_that_adapters_are_for_is_named() -> None:
    libraries = {name.partition(".")[0] for name in FOREIGN}
    assert {"agents", "langchain", "langgraph", "strands"} <= libraries
