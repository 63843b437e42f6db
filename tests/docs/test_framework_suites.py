"""The frameworks' own tests: what their page says, and that nothing which fails is counted as passed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.suites import run
from tools.suites.run import SUITES, Ran, Suite, explained, section, settled, unexplained_of

PAGE = ROOT / "docs" / "contributing" / "framework-suites.md"
PINS = {
    name.replace("-", "_"): version
    for file in ("constraints.txt", "tools/suites/requirements.txt")
    for name, version in re.findall(r"^([\w-]+)==(\S+)$", (ROOT / file).read_text("utf-8"), re.MULTILINE)
}
SUITE = Suite("x", "pytest", "X", "a store", (), {"has no attribute '_inside'": "looks inside"})


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ") and line.count("|") == 8]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_suite_was_run_in_the_version_that_the_tests_have_and_nothing_is_unexplained() -> None:
    versions = {suite.label: PINS[suite.package.replace("-", "_")] for suite in SUITES}
    assert [row[0] for row in rows()] == [f"{label} {version}" for label, version in versions.items()]
    for row in rows():
        ran, passed, theirs, explained_, others = (int(cell.replace(",", "")) for cell in row[2:])
        assert others == 0 and ran == passed + theirs + explained_ and passed > 80


def test_a_failure_is_explained_by_what_it_says_or_by_its_name_and_by_nothing_else() -> None:
    said = "    asserts '_inside'\nE   AttributeError: 'Y' has no attribute '_inside'"
    assert explained(SUITE, Ran("t", True, said)) == "looks inside"
    assert explained(SUITE, Ran("t", True, "# has no attribute '_inside'\nE   assert 1 == 2")) is None
    named = Suite("x", "x", "X", "", (), {"test_a": "as it is"})
    assert explained(named, Ran("a.py::test_a[1]", True, "")) == "as it is"
    assert explained(named, Ran("a.py::test_a_more", True, "")) is None


def test_what_fails_with_the_frameworks_own_store_too_is_told_apart() -> None:
    ours = [
        Ran("a", False, ""),
        Ran("b", True, "E   anything"),
        Ran("c", True, "E  has no attribute '_inside'"),
        Ran("d[1]", True, "E  lost"),
        Ran("d[2]", True, "E  lost"),
    ]
    row, lines, unexplained = section(SUITE, ours, [Ran("a", True, ""), Ran("b", True, ""), Ran("d[1]", False, "")])
    assert row.endswith("| a store | 5 | 1 | 1 | 1 | 2 |") and unexplained == 2
    assert lines == [
        "- (it fails with the framework's own store too): 1",
        "  - `b`",
        "- **not explained**: 2",
        "  - `d`",
        "- looks inside: 1",
    ]


def test_a_failure_counts_when_the_test_fails_alone_too() -> None:
    ours = [Ran("a", True, "E  busy"), Ran("b", True, "E  lost"), Ran("c", True, "E  has no attribute '_inside'")]
    names = unexplained_of(SUITE, ours, [])
    assert names == {"a", "b"}
    again = [Ran("a", False, ""), Ran("b", True, "E  lost"), Ran("c", False, "")]
    assert [item.failed for item in settled(ours, again, names)] == [False, True, True]


def test_only_tests_that_made_a_store_are_counted(tmp_path: Path) -> None:
    made = '<properties><property name="turnlog_stores" value="{}" /></properties>'
    report = tmp_path / "x.xml"
    report.write_text(
        f"""<testsuites><testsuite>
        <testcase file="tests/a.py" name="none">{made.format(0)}</testcase>
        <testcase file="tests/a.py" name="one">{made.format(1)}</testcase>
        <testcase file="tests/a.py" name="two">{made.format(2)}<failure message="E  x">y</failure></testcase>
        <testcase file="tests/a.py" name="setup">{made.format(1)}<error message="E  z" /></testcase>
        <testcase file="tests/a.py" name="skipped">{made.format(1)}<skipped /></testcase>
        <testcase file="tests/a.py" name="not collected"><error message="E  z" /></testcase>
        </testsuite></testsuites>""",
        "utf-8",
    )
    assert [(item.name, item.failed) for item in run.read_report(report)] == [
        ("a.py::one", False),
        ("a.py::two", True),
        ("a.py::setup", True),
    ]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_its_framework_is_one_of_ours(suite: Suite) -> None:
    assert suite.package.replace("-", "_") in PINS
