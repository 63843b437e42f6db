"""What faults were tried: tests tell it, and docs/contributing/faults.md is made of it (`make faults`)."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAULT = "fault"
"""Of a test's report: (kind, operation, engine, tried)."""

KINDS: Mapping[str, str] = {
    "no answer before": "a request never takes effect, at each call in turn; then the same call again",
    "no answer after": "the same, but the request took effect and its answer is lost",
    "throttled": "30 % of all requests are throttled",
    "denied": "a KMS key is off, or a permission gone; then restored, and the same call again",
    "unprocessed": "DynamoDB takes a part of every batch and leaves the other keys unprocessed",
    "clock": "the clock jumps a day back or thirty years ahead between a call and the same call again",
    "damaged": "an item of the kind is damaged: a byte, an attribute of another type, one that is missing",
    "newer": "an item of the kind is of a newer version",
    "blob": "a blob of the kind is cut short, is another, or is gone",
    "bomb": "something small that unpacks to more than there is memory for",
    "dead letter": "a job that failed five times is a dead letter, and is redriven",
    "full disk": "the disk is full after so many bytes; then there is space again",
    "worker ends": "the worker ends in the middle of a job, before and after each request",
    "at once": "a second operation at the same time, in every order of requests that conflict",
}
"""Kind -> what is done."""
TABLES = (
    ("no answer before", "no answer after", "throttled", "denied", "unprocessed", "clock", "full disk", "at once"),
    ("damaged", "newer", "blob", "bomb", "dead letter", "worker ends"),
)
"""Kinds of a table of the page: those of requests, those of what is stored and of jobs."""


@dataclass
class Told:
    """Faults of one kind on one operation."""

    tried: int = 0
    survived: int = 0
    engines: set[str] = field(default_factory=set)


@dataclass
class FaultReport:
    """Gathers what the tests of a run have told. A test that fails has survived none of its faults."""

    cells: dict[tuple[str, str], Told] = field(default_factory=lambda: defaultdict(Told))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call":
            return
        for name, told in report.user_properties:
            if name == FAULT:
                kind, operation, engine, tried = told
                cell = self.cells[kind, operation]
                cell.tried += tried
                cell.survived += tried if report.passed else 0
                cell.engines.add(engine)

    def page(self, *, commit: str, command: str) -> str:
        """docs/contributing/faults.md."""
        kinds = [kind for kind in KINDS if any(found == kind for found, _ in self.cells)]
        tried = sum(cell.tried for cell in self.cells.values())
        survived = sum(cell.survived for cell in self.cells.values())
        lines = [
            "# Faults",
            "",
            "<!-- Written by `make faults` from what the tests tell; do not edit. -->",
            "",
            f"**{tried:,} faults tried, {survived:,} survived, {tried - survived:,} lost something**,",
            "on SQLite and on moto (DynamoDB, S3, SQS).",
            f"By `{command}` at commit `{commit}`.",
            "",
            "*Survived*: the call was done, once, or ended in a typed error and was done when it was made again; nothing half",
            "written, nothing twice, nothing lost. What is damaged was read from what is not, or told by a typed error that names",
            "the item. Each is asserted by the test that has told it.",
            "Without `ARGS=--full` it is a sample: on SQLite every call of an operation fails in turn, on moto some do; of what",
            "can be damaged every third is.",
            "",
            "| kind | what is done | operations | tried | lost |",
            "|---|---|---:|---:|---:|",
        ]
        for kind in kinds:
            cells = [cell for (found, _), cell in self.cells.items() if found == kind]
            tried, survived = sum(cell.tried for cell in cells), sum(cell.survived for cell in cells)
            lines.append(f"| {kind} | {KINDS[kind]} | {len(cells)} | {tried:,} | {tried - survived:,} |")
        lines += [
            "",
            "## By operation",
            "",
            "How many were tried; with `+ n lost` where a test has failed.",
            "",
        ]
        shown = {place: _shown(cell) for place, cell in self.cells.items()}
        return "\n".join([*lines, *by_operation(shown)])


def by_operation(shown: Mapping[tuple[str, str], str]) -> list[str]:
    """Return the lines of the tables of operations, of (kind, operation) -> what is shown there."""
    lines = list[str]()
    for kinds in TABLES:
        lines += [f"| operation | {' | '.join(kinds)} |", "|---" + "|---:" * len(kinds) + "|"]
        for operation in sorted({operation for kind, operation in shown if kind in kinds}):
            row = [operation, *(shown.get((kind, operation), "") for kind in kinds)]
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return lines


def commit_id() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    done = subprocess.run([git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _shown(cell: Told) -> str:
    lost = cell.tried - cell.survived
    return f"{cell.tried:,}" + (f" + {lost:,} lost" if lost else "")


def cells_of(page: Path) -> dict[tuple[str, str], str]:
    """(Kind, operation) -> what the page shows of it."""
    cells = dict[tuple[str, str], str]()
    kinds = list[str]()
    for line in page.read_text(encoding="utf-8").partition("## By operation")[2].splitlines():
        operation, *row = [cell.strip() for cell in line.strip("|").split("|")]
        if operation == "operation":
            kinds = row
        elif row and not operation.startswith("---"):
            cells |= {(kind, operation): shown for kind, shown in zip(kinds, row, strict=True) if shown}
    return cells
