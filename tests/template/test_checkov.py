"""mk/checkov.yaml: what `make checkov` says nothing of has a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from tests.conftest import ROOT

CONFIG = ROOT / "mk" / "checkov.yaml"
_ENTRY = re.compile(r"  - (CKV2?_AWS_\d+)")
_SHORTEST = 60
"""Characters of a reason: an id alone, or "not needed", is none."""


def reasons(text: str) -> dict[str, str]:
    """What stands above each entry, and below the one before."""
    result, above = dict[str, str](), list[str]()
    for line in text.splitlines():
        if entry := _ENTRY.fullmatch(line):
            result[entry[1]], above = " ".join(above), []
        elif line.startswith("  # "):
            above.append(line.removeprefix("  # "))
        else:
            above = []
    return result


def test_each_check_that_is_skipped_has_a_reason() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    result = reasons(text)
    assert sorted(result) == sorted(yaml.safe_load(text)["skip-check"])
    assert [check for check, reason in result.items() if len(reason) < _SHORTEST] == []
    assert len(set(result.values())) == len(result)


def test_nothing_else_makes_checkov_silent() -> None:
    """No comment in the template, no soft failure: what is skipped stands in one place."""
    assert set(yaml.safe_load(CONFIG.read_text(encoding="utf-8"))) == {"framework", "compact", "quiet", "skip-check"}
    template = (ROOT / "template.yaml").read_text(encoding="utf-8")
    assert "checkov" not in template


def test_no_key_stands_beside_a_merged_one_of_its_name() -> None:
    """YAML lets it override the merged one. checkov takes it for a duplicate, reads nothing, and calls that a success."""
    root = yaml.compose((ROOT / "template.yaml").read_text(encoding="utf-8"))
    assert list(overridden(root)) == []
    assert list(overridden(yaml.compose("a: &a {x: 1}\nb: {<<: *a, x: 2}"))) == ["x at line 2"]


def overridden(node: yaml.Node | None) -> Iterator[str]:
    """Yield the keys of mappings that are in a merged mapping too."""
    children = list[yaml.Node]()
    if isinstance(node, yaml.MappingNode):
        merged = {name for key, value in node.value if key.value == "<<" for name in names_of(value)}
        for key, value in node.value:
            children.append(value)
            if key.value in merged:
                yield f"{key.value} at line {key.start_mark.line + 1}"
    elif isinstance(node, yaml.SequenceNode):
        children += node.value
    for child in children:
        yield from overridden(child)


def names_of(node: yaml.Node) -> set[str]:
    """Return the keys of a mapping, or of several that are merged, with those that are merged into them."""
    if isinstance(node, yaml.SequenceNode):
        return {name for child in node.value for name in names_of(child)}
    assert isinstance(node, yaml.MappingNode)
    own = {key.value for key, _ in node.value} - {"<<"}
    return own.union(*(names_of(value) for key, value in node.value if key.value == "<<"))


def test_an_entry_without_a_comment_has_no_reason() -> None:
    text = "skip-check:\n  # why\n  - CKV_AWS_1\n  - CKV_AWS_2\n"
    assert reasons(text) == {"CKV_AWS_1": "why", "CKV_AWS_2": ""}
