"""The budgets of the code base hold, and what a change moves is found: the layer's contents, the language of new code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.house import (
    PACKAGE,
    RIDDLE,
    Budget,
    Source,
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
    "files": 308,
    "lines": 70_116,
    "resources that it makes": 167,
    "statements of its roles": 160,
    "different statements": 66,
}
"""Figures that are not at their limit yet, or below it: none may rise. Lower one when a change makes it smaller."""
NEVER_SHIPPED = ("agents", "cli", "client", "importers", "integrations", "server", "testing", "upkeep")
"""Packages that no Lambda function imports."""


@cache
def modules() -> dict[Path, Source]:
    return {source.path: source for source in sources()}


@pytest.mark.parametrize(
    "measured",
    [lambda: budgets(list(modules().values())), docs_budgets, template_budgets],
    ids=["code", "docs", "template"],
)
def test_no_figure_of_the_house_gets_worse(measured: Callable[[], list[Budget]]) -> None:
    worse = [budget for budget in measured() if not holds(budget)]
    assert worse == [], "\n".join(place for budget in worse for place in (budget.name, *budget.places[:20]))


def holds(budget: Budget) -> bool:
    """Say whether a figure is at its limit, or at the ceiling that it has today."""
    ceiling = CEILINGS.get(budget.name, budget.limit)
    return budget.value >= budget.limit if budget.at_least else budget.value <= ceiling


def test_a_riddle_and_a_private_name_are_seen() -> None:
    text = 'def f(found):\n    """Of what is asked."""\n    one = found\n    return one\n'
    module = Source(ROOT / "x.py", text, ast.parse(text))
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
    stack: list[ast.AST] = [modules()[path].tree]
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
    for path in modules():
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
    for source in modules().values():
        for _, text in first_lines(source):
            text.encode("utf-8")
        (ast.get_docstring(source.tree) or "").encode("utf-8")


ALL_RULES = "test_lint_mutants.py"
"""It tries the cases of every format's rules through the route and the command; nothing else reads another module's tests."""
REACHING = {
    "tests/engines/test_sqlite_waiting.py",  # writes that wait for their transaction
    "tests/log/everything.py",  # rows and files of an engine, as they are stored
    "tests/support/quick_moto.py",  # shortcuts of moto and of its guard
    "tests/support/token_texts.py",  # tiktoken's pieces
}
"""The only modules that read names with an underscore of somebody else: suites of engines, and helpers for a third party."""
UNDERSCORED = {"_exit", "_replace", "_repr_html_"}
"""Public names of Python and IPython that begin with an underscore."""


@cache
def names_of_tests() -> list[tuple[Path, ast.ImportFrom | ast.Attribute]]:
    """Return what tests import by name and the attributes that they read, each with its module."""
    return [
        (path, node)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom | ast.Attribute)
    ]


def test_no_test_module_imports_another() -> None:
    importing = [
        f"{path.name} from {module}"
        for path, node in names_of_tests()
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests")
        for module in (f"{node.module}.{alias.name}" for alias in node.names)
        if ".test_" in module and path.name != ALL_RULES
    ]
    assert importing == [], "helpers of several modules go to tests/support"


def test_only_a_few_modules_reach_into_private_names() -> None:
    reaching = {path.relative_to(ROOT).as_posix() for path, node in names_of_tests() if private_reaches(node)}
    assert reaching == REACHING


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from a import _b, c", ["_b"]),
        ("a.b._c.d = 1", ["_c"]),
        ("self._a.b + cls._c", []),
        ("a.__dict__, os._exit(1), a._replace(b=1)", []),
    ],
)
def test_a_private_reach_is_seen(code: str, names: list[str]) -> None:
    nodes = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom | ast.Attribute))
    assert [name for node in nodes for name in private_reaches(node)] == names


def private_reaches(node: ast.ImportFrom | ast.Attribute) -> list[str]:
    """Return the private names that are imported, or the private attribute of another object that is read or set."""
    if isinstance(node, ast.ImportFrom):
        names = [alias.name for alias in node.names]
    else:
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        names = [] if is_own else [node.attr]
    return [name for name in names if name.startswith("_") and not name.startswith("__") and name not in UNDERSCORED]


OWN_MODULES = {
    Path(f"{name}/__init__.py")
    for name in (
        "cli/chat",
        "importers",
        "integrations/langgraph",
        "integrations/strands",
        "providers",
        "testing/contracts",
    )
}
"""Packages that import modules of their own. No other package imports these lazily, in a thread of its own."""


def test_a_package_imports_no_module_of_its_own() -> None:
    """Else two threads can fail with an `ImportError`: one that loads the package, and one that loads the module."""
    importing = set[Path]()
    for path, source in modules().items():
        place = path.relative_to(PACKAGE)
        name = ".".join(("turnlog", *place.parent.parts))
        nodes = (node for node in source.tree.body if isinstance(node, ast.ImportFrom))
        if path.name == "__init__.py" and any(f"{node.module}.".startswith(f"{name}.") for node in nodes):
            importing.add(place)
    assert importing == OWN_MODULES
