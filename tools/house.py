"""Print budgets of code, documentation and template.yaml beside their limits: size, language, duplication of names.

    python tools/house.py           # the table
    python tools/house.py --list    # and each place that counts against a limit of language

`tests/docs/test_house.py` holds each figure at or below its ceiling, so a figure can only get better.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "shared" / "turnlog"
TEMPLATE = ROOT / "template.yaml"
SMALL_LINES = 60
LONGEST_LINE = 132
LONGEST_PROSE_LINE = 140
LONGEST_PAGE = 1_500
RIDDLE = re.compile(r"(Of|What|The same|Whoever|How|It)\b")
PRIVATE_LOCALS = frozenset({"one", "found", "given", "told"})
FEATURES = ("memory", "summaries", "snapshots")


@dataclass(frozen=True)
class Source:
    """A parsed Python file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return every node of the tree; several budgets look at them."""
        return list(ast.walk(self.tree))


@dataclass(frozen=True)
class Budget:
    """A measured figure, the limit it is to reach, and the places that count against it."""

    name: str
    value: float
    limit: float
    at_least: bool = False
    places: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def sources(folder: Path = PACKAGE) -> list[Source]:
    """Return every Python file below ``folder``."""
    files = sorted(folder.rglob("*.py"))
    return [Source(path, text, ast.parse(text)) for path in files for text in [path.read_text(encoding="utf-8")]]


def budgets(files: list[Source]) -> list[Budget]:
    """Measure every budget over the files of the package."""
    modules = [source.lines for source in files if source.path.name != "__init__.py"]
    classes = class_names(files)
    docstrings = [(place, text) for source in files for place, text in first_lines(source)]
    riddles = tuple(f"{place}: {text}" for place, text in docstrings if RIDDLE.match(text))
    private = tuple(place for source in files for place in private_locals(source))
    long_lines = tuple(place for source in files for place in lines_over(source, LONGEST_LINE))
    return [
        Budget("files", len(files), 290),
        Budget("lines", sum(source.lines for source in files), 48_000),
        Budget("lines of the median file", statistics.median(modules), 130, at_least=True),
        Budget("files under 60 lines, % ", share(sum(lines < SMALL_LINES for lines in modules), len(modules)), 12),
        Budget("class names with several meanings", len(classes), 5, places=tuple(classes)),
        Budget("docstrings that begin like a riddle, %", share(len(riddles), len(docstrings)), 1, places=riddles),
        Budget("locals called one, found, given, told", len(private), 0, places=private),
        Budget(f"lines over {LONGEST_LINE} characters", len(long_lines), 0, places=long_lines),
        *(Budget(f"packages that hold a part of {name}", len(packages_of(name)), 4) for name in FEATURES),
    ]


def docs_budgets(root: Path = ROOT) -> list[Budget]:
    """Measure the documentation: words of the README and of the pages, decisions, long lines of Markdown sources."""
    pages = [path for path in (root / "docs").rglob("*.md") if not {"adr", "zh-CN"} & set(path.parts)]
    decisions = list((root / "docs").rglob("adr/0*.md"))
    written = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]
    long_lines = tuple(
        f"{path.relative_to(root)}:{number}"
        for path in sorted(written)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(without_addresses(line)) > LONGEST_PROSE_LINE
    )
    too_long = tuple(
        f"{path.relative_to(root)}: {words(path)}"
        for path in sorted(pages)
        if words(path) > LONGEST_PAGE and not {"reference", "contributing"} & set(path.parts)
    )
    return [
        Budget("words in README.md", words(root / "README.md"), 1_500),
        Budget("words in docs, without decisions and translations", sum(map(words, pages)), 45_000),
        Budget(f"pages over {LONGEST_PAGE} words that are no reference", len(too_long), 0, places=too_long),
        Budget("decisions (ADRs)", len(decisions), 25),
        Budget(f"lines of Markdown over {LONGEST_PROSE_LINE} characters", len(long_lines), 0, places=long_lines),
    ]


def words(page: Path) -> int:
    """Count the words of a page, those of examples too: what has a letter or a digit. Bars of tables are no words."""
    return sum(any(map(str.isalnum, word)) for word in page.read_text(encoding="utf-8").split())


def without_addresses(line: str) -> str:
    """Return a line without the addresses of its links and without bare URLs."""
    return re.sub(r"\]\([^)\s]*\)|https?://\S+", "]()", line)


def template_budgets(template: Path = TEMPLATE) -> list[Budget]:
    """Measure template.yaml: its lines, and the resources and statements of roles that SAM expands it to."""
    from samtranslator.yaml_helper import yaml_parse

    from turnlog.server.stack import expand

    text = template.read_text(encoding="utf-8")
    resources = expand(template).resources
    repeated = repeated_statements(yaml_parse(text)["Resources"])
    return [
        Budget("lines of template.yaml", len(text.splitlines()), 1_300),
        Budget("resources that it makes", len(resources), 167),
        Budget("statements of its roles", sum(1 for _ in statements(resources)), 192),
        Budget(
            "different statements",
            len({json.dumps(statement, sort_keys=True) for statement in statements(resources)}),
            71,
        ),
        Budget("statements written more than once", len(repeated), 0, places=tuple(repeated)),
    ]


def repeated_statements(resources: Mapping[str, Any]) -> list[str]:
    """List statements of roles whose text stands more than once in the source; an alias is the object that it names."""
    written = {id(statement): json.dumps(statement, sort_keys=True) for statement in statements(resources)}
    texts = list(written.values())
    return sorted({text for text in texts if texts.count(text) > 1})


def statements(resources: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the statements of all roles, conditional ones too."""
    for resource in resources.values():
        if resource["Type"] == "AWS::IAM::Role":
            for policy in resource["Properties"]["Policies"]:
                yield from policy["PolicyDocument"]["Statement"]


def share(part: int, whole: int) -> float:
    """Return ``part`` of ``whole`` in percent, to one decimal."""
    return round(100 * part / whole, 1)


def class_names(files: list[Source]) -> list[str]:
    """List names that more than one class of the package has."""
    places = defaultdict[str, list[str]](list)
    for source in files:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place_of(source, node))
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def first_lines(source: Source) -> Iterator[tuple[str, str]]:
    """Yield place and first line of each docstring, of constants too."""
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield place_of(source, node), text.splitlines()[0]


def private_locals(source: Source) -> Iterator[str]:
    """Yield places where a local, a parameter or a loop variable, but no field, has a name of our private language."""
    classes = [node for node in source.nodes if isinstance(node, ast.ClassDef)]
    fields = {id(item.target) for node in classes for item in node.body if isinstance(item, ast.AnnAssign)}
    for node in source.nodes:
        if id(node) in fields:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PRIVATE_LOCALS:
            yield f"{place_of(source, node)} {node.id}"
        elif isinstance(node, ast.arg) and node.arg in PRIVATE_LOCALS:
            yield f"{place_of(source, node)} {node.arg}"


def lines_over(source: Source, limit: int) -> Iterator[str]:
    """Yield places of lines longer than ``limit`` characters."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > limit:
            yield f"{source.path.relative_to(ROOT)}:{number}"


def packages_of(feature: str) -> set[str]:
    """Return the top packages with a file or folder that names the feature."""
    stem = feature.rstrip("s").removesuffix("ie").removesuffix("y")
    found_in = set[str]()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if any(stem in part for part in parts):
            found_in.add(parts[0])
    return found_in


def place_of(source: Source, node: ast.AST) -> str:
    """Return ``file:line`` of a node, relative to the repository."""
    return f"{source.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def main() -> None:
    """Print the table, and with ``--list`` the places."""
    measured = [*budgets(sources()), *docs_budgets(), *template_budgets()]
    width = max(len(budget.name) for budget in measured)
    for budget in measured:
        bound = "at least" if budget.at_least else "at most"
        mark = "" if budget.is_met else "  <-"
        print(f"{budget.name:<{width}}  {budget.value:>9,g}  {bound:>8} {budget.limit:,g}{mark}")
    if "--list" in sys.argv[1:]:
        for budget in measured:
            for place in budget.places:
                print(f"{budget.name}: {place}")


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE.parent))
    main()
