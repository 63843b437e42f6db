"""What faults were tried: tests tell it, and `make faults` writes docs/contributing/faults.md and tools/faults_tried.json."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FAULT = "fault"
"""Of a test's report: (kind, operation, engine, tried)."""

KINDS: Mapping[str, str] = {
    "no answer before": "each request of a call in turn never takes effect; then the call is repeated",
    "no answer after": "each request takes effect, but its answer is lost; then the call is repeated",
    "throttled": "30 % of all requests are throttled",
    "denied": "a KMS key or a permission is gone; then it is restored and the call repeated",
    "unprocessed": "DynamoDB processes only a part of every batch",
    "clock": "the clock jumps a day back, or thirty years ahead, before the call is repeated",
    "damaged": "an item has a wrong byte, an attribute of another type, or one missing",
    "newer": "an item has a newer version",
    "blob": "a blob is cut short, exchanged or gone",
    "bomb": "a small value unpacks to more than the memory",
    "dead letter": "a job fails five times, becomes a dead letter and is redriven",
    "full disk": "the disk is full after some bytes; then there is space again",
    "worker ends": "the worker ends before or after each request of a job",
    "at once": "a second operation runs at the same time, in every order of conflicting requests",
}
"""Kind -> what is done."""


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
        for name, item in report.user_properties:
            if name == FAULT:
                kind, operation, engine, tried = item
                cell = self.cells[kind, operation]
                cell.tried += tried
                cell.survived += tried if report.passed else 0
                cell.engines.add(engine)

    def page(self, *, commit: str, command: str) -> str:
        """docs/contributing/faults.md."""
        kinds = [kind for kind in KINDS if any(match == kind for match, _ in self.cells)]
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
            "*Survived*: the call had its effect once, or raised a typed error and had its effect when it was repeated. Nothing",
            "was lost, doubled or half written. Damaged data was read from its source, or a typed error named the item. Without",
            "`ARGS=--full` a sample runs: every request on SQLite, some on moto, and a third of the damages.",
            "",
            "| kind | what is done | operations | tried | lost |",
            "|---|---|---:|---:|---:|",
        ]
        for kind in kinds:
            cells = [cell for (match, _), cell in self.cells.items() if match == kind]
            tried, survived = sum(cell.tried for cell in cells), sum(cell.survived for cell in cells)
            lines.append(f"| {kind} | {KINDS[kind]} | {len(cells)} | {tried:,} | {tried - survived:,} |")
        return "\n".join([*lines, "", "Each operation: [tools/faults_tried.json](../../tools/faults_tried.json).", ""])

    def operations(self) -> str:
        """Return JSON of each kind and operation: how many faults were tried, and how many of them lost something."""
        kinds = {kind: dict[str, list[int]]() for kind in KINDS if any(match == kind for match, _ in self.cells)}
        for (kind, operation), cell in sorted(self.cells.items()):
            kinds[kind][operation] = [cell.tried, cell.tried - cell.survived]
        lines = (f"{json.dumps(kind)}: {json.dumps(counts)}" for kind, counts in kinds.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"


def commit_id() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    done = subprocess.run([git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
