"""docs/reference/security.md: each threat names tests that are there, and what is shown here is named there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def rows() -> list[list[str]]:
    """Return threat, defence and tests of each item of the list."""
    section = PAGE.split("## Threats")[1].split("\n## ")[0]
    items = re.findall(r"^- \*\*([^*]+)\*\*: ((?:.+\n)(?:  [^ -].*\n)*)((?:  - .+\n)+)", section, re.M)
    assert len(items) == section.count("\n- ")
    return [[threat, defence.strip(), ", ".join(shown.split("  - ")).strip(", \n")] for threat, defence, shown in items]


def test_every_threat_has_a_defence_and_a_test_that_is_there() -> None:
    assert len(rows()) > 15
    for threat, defence, shown in rows():
        assert threat and defence
        named = NAMED.findall(shown)
        assert named and NAMED.sub("", shown).strip(", \n") == "", threat
        for path, name in named:
            assert name in names_in(path), f"{threat}: {path}::{name}"


def test_every_file_of_security_tests_is_named() -> None:
    named = {path for path, _ in NAMED.findall(PAGE)}
    here = {path.relative_to(ROOT).as_posix() for path in Path(__file__).parent.glob("test_*.py")}
    assert here - {"tests/security/test_threats.py"} <= named


def test_it_can_be_found_and_says_where_to_report() -> None:
    for page in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "SECURITY.md"):
        assert "](docs/reference/security.md)" in (ROOT / page).read_text(encoding="utf-8"), page
    assert "](reference/security.md)" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert "](../../SECURITY.md)" in PAGE
