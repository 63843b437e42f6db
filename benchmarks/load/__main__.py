"""Load on loopback: clients of several processes against `turnlog serve`, and processes that share one SQLite file.

    make bench-load                                     # 6 minutes an engine on 2 busy cores
    make bench-load ARGS='--quick'                      # a short look
    make bench-load ARGS='--engine embedded --part long --operations 50000 --json FILE --svg FILE'

Bounded by the number of requests. Everything is read back at the end: exit 1 when something that was acknowledged is not there
once, in one order for all readers, or when a call failed for good.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.load.chart import chart
from benchmarks.load.direct import PROCESSES, Direct, run_direct
from benchmarks.load.endurance import Endurance, run_endurance
from benchmarks.load.grid import grid
from benchmarks.load.running import Outcome, run_cell
from benchmarks.load.table import NOTES, Report, as_json, tables
from benchmarks.operations import versions
from benchmarks.progress import say
from benchmarks.windows.table import markdown, show

ENGINES, PARTS = ("embedded", "moto"), ("grid", "processes", "long")
_OPERATIONS = {"embedded": 10_000, "moto": 600}
_QUICK_OPERATIONS = 200
_APPENDS, _QUICK_APPENDS = 1_600, 80


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.read:
        return _draw([json.loads(path.read_text(encoding="utf-8")) for path in options.read], options.svg)
    start = time.monotonic()
    report = Report([], [], [])
    with suppress(KeyboardInterrupt):  # what has been run so far is told
        report.outcomes.extend(_outcomes(options))
        report.directs.extend(_directs(options))
        report.endurances.extend(_endurances(options))
    say("")
    for table in tables(report):
        if options.markdown:
            print(markdown(table) + "\n")
        else:
            show(table)
            print()
    for note in NOTES:
        print(f"- {note}")
    print(f"- {time.monotonic() - start:.0f} s")
    for outcome in report.outcomes:
        for said, count in outcome.records.errors.items():
            print(f"! {outcome.engine}, {outcome.cell.name}: {count} x {said}")
    document = as_json(report, versions=versions(), quick=options.quick)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(chart(document), encoding="utf-8")
    return 0 if report.ok else 1


def _draw(documents: Sequence[Mapping[str, Any]], svg: Path | None) -> int:
    """Parts that were run one by one in one picture."""
    parts = {
        name: [row for document in documents for row in document[name]] for name in ("cells", "processes", "endurance")
    }
    (svg or Path("load.svg")).write_text(chart(parts), encoding="utf-8")
    return 0


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    for engine in options.engine if "grid" in options.part else ():
        for cell in grid(engine, quick=options.quick):
            say(f"{engine}: {cell.name}")
            yield run_cell(engine, cell, processes=options.processes)


def _directs(options: argparse.Namespace) -> Iterator[Direct]:
    if "processes" not in options.part or "embedded" not in options.engine:
        return
    appends = _QUICK_APPENDS if options.quick else _APPENDS
    for same_session in (False, True):
        for processes in PROCESSES[:2] if options.quick else PROCESSES:
            say(f"{processes} processes on one file, {'one session' if same_session else 'a session each'}")
            yield run_direct(processes, same_session=same_session, appends=appends)


def _endurances(options: argparse.Namespace) -> Iterator[Endurance]:
    for engine in options.engine if "long" in options.part else ():
        operations = options.operations or (_QUICK_OPERATIONS if options.quick else _OPERATIONS[engine])
        say(f"{engine}: {operations:,} operations")
        yield run_endurance(engine, operations)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="a short look: fewer cells and requests")
    parser.add_argument(
        "--processes", type=int, default=2, metavar="N", help="client processes; 0: threads of this one"
    )
    parser.add_argument("--operations", type=int, metavar="N", help="of the long run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture here")
    parser.add_argument(
        "--read", nargs="+", type=Path, metavar="FILE", help="run nothing: the picture of these, as --json wrote them"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables for a README")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
