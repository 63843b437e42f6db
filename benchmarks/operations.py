"""What each operation costs: requests, capacity, bytes and own CPU time by a session's length, and how handlers start.

    make bench                                          # the table
    python benchmarks/operations.py --json FILE         # everything, with versions
    python benchmarks/operations.py --quick             # a short look

Figures with a limit in the project's budgets are marked ok or OVER. Machines differ: compare own times only with those
of the same machine. Requests and capacity are the same everywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.engines import dynamo  # noqa: E402
from benchmarks.handlers import Start, handler_names, import_costs, measure_starts  # noqa: E402
from benchmarks.measuring import Row, measure  # noqa: E402
from benchmarks.progress import say  # noqa: E402
from benchmarks.scenarios import operations  # noqa: E402

LENGTHS = (10, 100, 1_000, 10_000)
QUICK_LENGTHS = (10, 100)
_PACKAGES = ("turnlog", "boto3", "botocore", "pydantic", "aws-lambda-powertools", "tiktoken", "moto")


@dataclass
class Report:
    """A whole run."""

    rows: list[Row]
    starts: list[Start]
    first_requests_on: str
    note: str
    import_costs_ms: dict[str, float]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def over(self) -> list[str]:
        """All that is over its budget."""
        values = [f"{row.operation}, {row.messages:,} messages: {why}" for row in self.rows for why in row.over]
        return values + [f"{start.name}: {why}" for start in self.starts for why in start.over]

    def as_json(self) -> dict[str, Any]:
        return {
            "versions": self.versions,
            "note": self.note,
            "operations": [asdict(row) for row in self.rows],
            "handlers": {
                "first_requests_on": self.first_requests_on,
                "starts": [asdict(start) for start in self.starts],
            },
            "import_costs_ms": self.import_costs_ms,
            "over": self.over,
        }


def run(*, quick: bool, only_moto: bool = False, handlers: bool = True, lengths: Sequence[int] = ()) -> Report:
    """Run all measures; ``quick`` takes fewer runs of shorter sessions."""
    lengths = lengths or (QUICK_LENGTHS if quick else LENGTHS)
    with dynamo(only_moto=only_moto) as engine:
        rows = measure(operations(), lengths, engine, runs=2 if quick else 21, say=say)
        note = engine.note
    starts, target, costs = list[Start](), "not measured", dict[str, float]()
    if handlers:
        names = handler_names()[:1] if quick else handler_names()
        starts, target = measure_starts(runs=1 if quick else 5, names=names, say=say)
        costs = import_costs("api.append")
    say("")
    return Report(rows, starts, target, note, costs, versions())


def versions() -> dict[str, str]:
    """Return the versions that the figures are of. No host names."""
    values = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": _commit(),
    }
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            values[package] = importlib.metadata.version(package)
    return values


def _commit() -> str:
    """Return the commit, with a plus when the files differ from it."""
    try:
        named = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return named.stdout.strip()


def show(report: Report) -> None:
    """Print the tables, plain when there is no rich."""
    print(" · ".join(f"{name} {version}" for name, version in report.versions.items()))
    print(report.note)
    _table(
        "Operations by length of the session (ms of CPU; own = without the engine; bytes are bodies)",
        ("operation", "messages", "requests", "RCU", "WCU", "index", "sent", "received", "own ms", "handler", "budget"),
        [_operation_cells(row) for row in report.rows],
    )
    if report.starts:
        _table(
            f"Handlers in fresh processes (ms of CPU, wall in brackets); first requests on {report.first_requests_on}",
            ("handler", "import", "ready", "against boto3", "first request", "second", "budget"),
            [_start_cells(start) for start in report.starts],
        )
        dearest = [f"{name} {cost:.0f}" for name, cost in list(report.import_costs_ms.items())[:12]]
        print("Import of api.append by package, ms of their own modules: " + ", ".join(dearest))
    print("Over budget: " + ("; ".join(report.over) or "nothing"))


def _operation_cells(row: Row) -> list[str]:
    requests = " + ".join(f"{count} {name}" for name, count in sorted((row.requests or {}).items()))
    if row.error is not None:
        return [row.operation, f"{row.messages:,}", row.error, *[""] * 8]
    return [
        row.operation,
        f"{row.messages:,}",
        requests or "-",
        *(_number(value, "g") for value in (row.read_units, row.write_units, row.index_write_units)),
        *(_number(value, ",") for value in (row.sent_bytes, row.received_bytes)),
        *(_number(value, ".2f") for value in (row.own_ms, row.handler_ms)),
        _mark(row.over, has_budget=row.has_budget),
    ]


def _start_cells(start: Start) -> list[str]:
    return [
        start.name,
        f"{start.import_ms:.0f} ({start.import_wall_ms:.0f})",
        f"{start.ready_ms:.0f} ({start.ready_wall_ms:.0f})",
        f"{start.ratio:.2f} x" if start.ratio is not None else "1",
        _number(start.first_request_ms, ".1f"),
        _number(start.second_request_ms, ".1f"),
        _mark(start.over, has_budget=start.ratio is not None),
    ]


def _mark(over: list[str], *, has_budget: bool) -> str:
    return "OVER: " + ", ".join(over) if over else ("ok" if has_budget else "")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(title: str, names: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(names, *lines, strict=True)]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(title)
        for line in (names, *lines):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for at, name in enumerate(names):
        table.add_column(name, justify="left" if at in (0, len(names) - 1) else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    Console(width=max(80, sum(widths) + 2 * len(widths)), highlight=False).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs of shorter sessions, one handler")
    parser.add_argument("--moto", action="store_true", help="moto, also where dynoxide is installed")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything to FILE")
    options = parser.parse_args()
    report = run(quick=options.quick, only_moto=options.moto)
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
