"""The report of `make full`, docs/contributing/full.md, of the JUnit file that pytest writes.

python tools/full_report.py build/full.xml docs/contributing/full.md [--commit ID] [--again FILE]

`--again` is the JUnit file of what had failed, mended and run again with `--full`: the page says how that ended, at HEAD.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.faults import commit_id  # noqa: E402

_SLOWEST = 5
_FEW = 10
"""Reasons of fewer skipped tests are counted together."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One test of the run. ``outcome`` is passed, skipped or failed; ``why`` the reason of a skip."""

    name: str
    outcome: str
    seconds: float
    why: str = ""

    @property
    def function(self) -> str:
        """The test without its parameters."""
        return self.name.partition("[")[0]


def read(path: Path) -> tuple[str, list[Ran]]:
    """Return when the run began, and its tests. The file is our own pytest's."""
    root = ET.parse(path).getroot()  # noqa: S314
    suite = root if root.tag == "testsuite" else next(iter(root))
    return suite.get("timestamp", "")[:16].replace("T", " "), [_ran(case) for case in suite.iter("testcase")]


def _ran(case: ET.Element) -> Ran:
    module = case.get("classname", "").split(".")
    skipped, name = case.find("skipped"), f"{'/'.join(module)}.py::{case.get('name')}"
    failed = case.find("failure") is not None or case.find("error") is not None
    outcome = "failed" if failed else "skipped" if skipped is not None else "passed"
    why = re.sub(r"\s+", " ", (skipped.get("message") or "")) if skipped is not None else ""
    return Ran(name, outcome, float(case.get("time") or 0), why)


def page(began: str, tests: Sequence[Ran], *, commit: str, again: Mapping[str, str], now: str) -> str:
    """Return docs/contributing/full.md."""
    counts = Counter(test.outcome for test in tests)
    minutes = sum(test.seconds for test in tests) / 60
    lines = [
        "# The long run",
        "",
        "<!-- Written by `make full`; do not edit. -->",
        "",
        f"**{counts['passed']:,} tests passed, {counts['failed']:,} failed, {counts['skipped']:,} were skipped**",
        f"by `make full` at commit `{commit}`, begun {began} on Python {platform.python_version()}:",
        f"{minutes:,.0f} minutes of tests by the clock of a machine that may be busy.",
        "",
        "`make full` does what [`make pr`](../../CONTRIBUTING.md) does a part of: every test on SQLite and on moto, 16 times",
        "the examples of each property, a fault at every call on both engines, more orders of writers, every real conversation",
        "where they are, and long tests.",
    ]
    failed = {test.name: test.function for test in tests if test.outcome == "failed"}
    if failed:
        ends = Counter((function, again.get(name, "not run again")) for name, function in failed.items())
        lines += ["", "## Failed", "", f"| test | failed | at `{now}` |", "|---|---:|---|"]
        lines += [f"| `{_short(function)}` | {count} | {end} |" for (function, end), count in sorted(ends.items())]
    reasons = Counter(_reason(test.why) for test in tests if test.outcome == "skipped")
    common = {why: count for why, count in reasons.items() if count >= _FEW}
    lines += ["", "## Skipped", "", "| why | tests |", "|---|---:|"]
    lines += [f"| {why} | {count:,} |" for why, count in sorted(common.items(), key=lambda item: (-item[1], item[0]))]
    if len(common) < len(reasons):
        rest = reasons.total() - sum(common.values())
        lines += [f"| {len(reasons) - len(common)} other reasons | {rest:,} |"]
    slowest = Counter[str]()
    for entry in tests:
        slowest[entry.function] += entry.seconds
    lines += ["", "## Longest", "", "| test, with all its parameters | minutes |", "|---|---:|"]
    lines += [f"| `{_short(name)}` | {seconds / 60:,.1f} |" for name, seconds in slowest.most_common(_SLOWEST)]
    return "\n".join([*lines, ""])


def _short(name: str) -> str:
    """Return a test's name without the parts that all names have."""
    return name.removeprefix("tests/").replace(".py::", "::")


def _reason(why: str) -> str:
    """Return a reason without what is of one machine: a path, an address."""
    return re.sub(r"(?<![\w`])/[\w./-]+", "...", why).replace("|", "\\|") or "no reason given"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("junit", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--commit", help="the commit that was tested; HEAD without it")
    parser.add_argument("--again", type=Path, help="what had failed, run again at HEAD")
    outcome = parser.parse_args(arguments)
    began, tests = read(outcome.junit)
    again = {item.name: item.outcome for item in read(outcome.again)[1]} if outcome.again else {}
    result = page(began, tests, commit=outcome.commit or commit_id(), again=again, now=commit_id())
    outcome.page.write_text(result, encoding="utf-8")
    print(f"{len(tests):,} tests: {outcome.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
