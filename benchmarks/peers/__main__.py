"""Turnlog beside its peers.

make bench-peers                                # tables
make bench-peers ARGS='--markdown --json FILE'
make bench-peers ARGS=--windows                 # what a window costs, by the length of the session
make bench-peers ARGS='--embedded --svg FILE'   # in process on SQLite: append, window, search, checkpoints
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.peers import checkpoints, embedded, served, windows
from benchmarks.peers.embedded_chart import chart
from benchmarks.peers.jobs import Failure, describe, run_all
from benchmarks.peers.runs import SIZES, Costs, Losses
from benchmarks.peers.table import Report, markdown, plain


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Turnlog beside its peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--markdown", action="store_true", help="print tables for a README")
    parser.add_argument("--sizes", type=int, nargs="+", help="messages; multiples of 10")
    parser.add_argument("--windows", action="store_true", help="only what a window costs in one process")
    parser.add_argument("--embedded", action="store_true", help="only what takes place in one process, on SQLite")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture of --embedded here")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.windows:
        for table in windows.tables():
            print((markdown if options.markdown else plain)(table) + "\n")
        return 0
    if options.embedded:
        return _embedded(options)
    sizes = options.sizes or list(SIZES)
    start, costs, losses, failures = time.monotonic(), list[Costs](), list[Losses](), list[Failure]()
    for results in run_all(sizes, options.processes):
        costs += [result for result in results if isinstance(result, Costs)]
        losses += [result for result in results if isinstance(result, Losses)]
        failures += [result for result in results if isinstance(result, Failure)]
        print(".", end="", file=sys.stderr, flush=True)
    report = Report(costs, losses, failures, *describe(), tuple(sizes))
    print(f" {time.monotonic() - start:.0f} s", file=sys.stderr)
    render = markdown if options.markdown else plain
    for table in report.tables():
        print(render(table) + "\n")
    for note in report.notes():
        print(f"- {note}")
    if options.json:
        options.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    lost = [loss for loss in losses if loss.system == "Turnlog" and loss.lost]
    return 1 if lost else 0


def _embedded(options: argparse.Namespace) -> int:
    measures = embedded.measure(options.sizes or embedded.SIZES)
    for table in (embedded.table(measures), embedded.first_use(), checkpoints.table(), served.table()):
        print((markdown if options.markdown else plain)(table) + "\n")
    if options.svg:
        options.svg.write_text(chart(measures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
