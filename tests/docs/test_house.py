"""The budgets of the code base hold, and what a change moves is found: the layer's contents, the language of new code."""

from __future__ import annotations

import ast
import re

import pytest

from tests.conftest import ROOT
from tools.house import (
    PACKAGE,
    RIDDLE,
    Budget,
    budgets,
    docs_budgets,
    first_lines,
    private_locals,
    repeated_statements,
    sources,
    template_budgets,
    without_addresses,
)

CEILINGS = {
    "files": 290,
    "lines": 63_573,
    "resources that it makes": 165,
    "statements of its roles": 167,
    "different statements": 66,
}
"""Figures that are not at their limit yet, or below it: none may rise. Lower one when a change makes it smaller."""
NEVER_SHIPPED = ("agents", "cli", "client", "importers", "integrations", "server", "testing", "upkeep")
"""Packages that no Lambda function imports."""


BUDGETS = [*budgets(sources()), *docs_budgets(), *template_budgets()]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.name)
def test_no_figure_of_the_house_gets_worse(budget: Budget) -> None:
    ceiling = CEILINGS.get(budget.name, budget.limit)
    assert budget.value >= budget.limit if budget.at_least else budget.value <= ceiling, "\n".join(budget.places[:20])


def test_a_riddle_and_a_private_name_are_seen() -> None:
    source = ast.parse('def f(found):\n    """Of what is asked."""\n    one = found\n    return one\n')
    module = type("Source", (), {"tree": source, "path": ROOT / "x.py", "text": ""})()
    assert [text for _, text in first_lines(module) if RIDDLE.match(text)] == ["Of what is asked."]
    assert sorted(place.split(" ")[1] for place in private_locals(module)) == ["found", "one"]


def test_addresses_make_no_line_long() -> None:
    line = "see [the page](../a/very/long/path.md) and https://example.com/a/very/long/address"
    assert without_addresses(line) == "see [the page]() and ]()"


def test_a_statement_that_is_written_twice_is_seen() -> None:
    read, send = ({"Sid": sid, "Effect": "Allow"} for sid in ("Read", "Send"))

    def role(*statements: object) -> dict[str, object]:
        return {"Type": "AWS::IAM::Role", "Properties": {"Policies": [{"PolicyDocument": {"Statement": statements}}]}}

    assert repeated_statements({"A": role(read, send), "B": role(read)}) == [], "an alias is one object"
    assert len(repeated_statements({"A": role(read, send), "B": role(dict(read))})) == 1


def left_out() -> set[str]:
    """Names that shared/Makefile removes from the layer."""
    recipe = (ROOT / "shared" / "Makefile").read_text(encoding="utf-8")
    return set(re.search(r"rm -rf ((?:[\w/.]+ ?)+)", recipe)[1].split())  # type: ignore[index]


def test_every_package_is_shipped_or_left_out_by_name() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages & left_out() == set(NEVER_SHIPPED)
    assert all((PACKAGE / name).exists() for name in left_out())


def imported_names(name: str) -> set[str]:
    """Return the modules of the package that a module imports, at any level, but for typing."""
    path = PACKAGE / (name.replace(".", "/") + ".py")
    path = path if path.exists() else PACKAGE / name.replace(".", "/") / "__init__.py"
    names = set[str]()
    stack: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turnlog."):
            module = str(node.module).removeprefix("turnlog.")
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        stack.extend(ast.iter_child_nodes(node))
    return {name for name in names if (PACKAGE / (name.replace(".", "/") + ".py")).exists()}


def test_no_shipped_module_imports_what_is_left_out() -> None:
    """Everything must be there but the use cases and engines that no function asks for: ``app.py`` and ``engines`` name them."""
    missing = set[str]()
    removed = {name.removesuffix(".py").replace("/", ".") for name in left_out()}
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if module in {"app", "engines.__init__", "__init__"} or any(
            module == name or module.startswith(name + ".") for name in removed
        ):
            continue
        for name in imported_names(module.removesuffix(".__init__")):
            if any(name == gone or name.startswith(gone + ".") for gone in removed):
                missing.add(f"{module} -> {name}")
    assert missing == set()


def test_no_docstring_has_a_surrogate() -> None:
    """Python 3.13, which the functions run, compiles no file with one."""
    for source in sources():
        for _, text in first_lines(source):
            text.encode("utf-8")
        (ast.get_docstring(source.tree) or "").encode("utf-8")
