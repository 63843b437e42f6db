"""The report of `make full`: what failed and what was skipped is on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import full_report

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="pytest" timestamp="2026-11-22T09:16:30.5+00:00">
<testcase classname="tests.sessions.test_fork" name="test_a[sqlite]" time="30.0" />
<testcase classname="tests.sessions.test_fork" name="test_a[moto]" time="90.0">
<failure message="x">secret of a machine</failure></testcase>
{skipped}
<testcase classname="tests.docs.test_docs" name="test_c" time="1.0"><error message="setup" /></testcase>
<testcase classname="tests.docs.test_docs" name="test_d" time="0.0"><skipped message="a rare reason" /></testcase>
</testsuite></testsuites>
""".replace(
    "{skipped}",
    """<testcase classname="tests.sessions.test_fork" name="test_b" time="0.0">
<skipped type="pytest.skip" message="no data in /home/me/x | here">where</skipped></testcase>"""
    * 10,
)


@pytest.fixture
def page(tmp_path: Path) -> str:
    junit, made = tmp_path / "full.xml", tmp_path / "full.md"
    junit.write_text(JUNIT, encoding="utf-8")
    again = tmp_path / "again.xml"
    again.write_text(JUNIT.replace('<error message="setup" />', ""), encoding="utf-8")
    options = ["--commit", "abc1234", "--again", str(again)]
    assert full_report.main([str(junit), str(made), *options]) == 0
    return made.read_text(encoding="utf-8")


def test_the_page_counts_what_was_run(page: str) -> None:
    assert (
        "**1 tests passed, 2 failed, 11 were skipped**" in page and "commit `abc1234`, begun 2026-11-22 09:16" in page
    )
    assert "| `sessions/test_fork::test_a` | 2.0 |" in page, "with all its parameters"


def test_what_failed_is_named(page: str) -> None:
    failed = page.partition("## Failed")[2].partition("## Skipped")[0]
    rows = re.findall(r"^\| `(\S+)` \| (\d+) \| (\w+) \|$", failed, re.M)
    assert rows == [("docs/test_docs::test_c", "1", "passed"), ("sessions/test_fork::test_a", "1", "failed")]


def test_nothing_of_a_machine_is_on_the_page(page: str) -> None:
    assert (
        "| no data in ... \\| here | 10 |\n| 1 other reasons | 1 |" in page
        and "/home" not in page
        and "secret" not in page
    )
