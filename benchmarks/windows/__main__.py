"""Windows on conversations: a window before each model call, by policy and budget, beside plain baselines.

    make bench-windows                                  # the project's own conversations
    make bench-windows ARGS='FOLDER --loader load.py --budget none 32000 8000 --json FILE --svg FILE'

Nothing is stored: the windows come from the pure core. Exit 1 when a policy makes a window that providers refuse, or one
over its budget.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.operations import versions
from benchmarks.progress import say
from benchmarks.replay.loading import load_transcripts, sample_of
from benchmarks.windows.builders import default_names, policy_named
from benchmarks.windows.chart import chart
from benchmarks.windows.limits import limits_of
from benchmarks.windows.running import Plan, run
from benchmarks.windows.table import NOTES, as_json, markdown, show, tables
from turnlog.cli.transcripts import Transcript
from turnlog.core.errors import TurnlogError

SAMPLES = Path(__file__).parent.parent.parent / "examples" / "conversations"


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    start = time.monotonic()
    try:
        for name in options.policy:
            policy_named(name)
        transcripts = _chosen(options)
        plan = Plan(tuple(dict.fromkeys(options.policy)), tuple(dict.fromkeys(options.budget)))
        rows = run(transcripts, plan, processes=min(options.processes, len(transcripts)), say=say)
    except TurnlogError as error:
        print(f"error: {error.detail}", file=sys.stderr)
        return 2
    say("")
    for table in tables(rows, by_source=not options.total):
        if options.markdown:
            print(markdown(table) + "\n")
        else:
            show(table)
            print()
    for note in NOTES:
        print(f"- {note}")
    messages = sum(len(transcript.messages) for transcript in transcripts)
    ran = {"conversations": len(transcripts), "messages": messages, "sample": options.sample, "versions": versions()}
    print(f"- {len(transcripts):,} conversations, {messages:,} messages, {time.monotonic() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(as_json(rows, **ran), indent=1) + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(chart(rows), encoding="utf-8")
    is_wrong = any(not limit.ok for limit in limits_of(rows) if limit.limit == 0)
    return 1 if is_wrong else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.windows", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, default=[SAMPLES], metavar="FILE_OR_FOLDER")
    parser.add_argument("--loader", type=Path, metavar="FILE.py", help="its iter_sessions(path) gives conversations")
    parser.add_argument("--source", action="append", metavar="NAME", help="only conversations of this source")
    parser.add_argument("--policy", nargs="+", default=list(default_names()), metavar="P", help="presets, NAME.json")
    parser.add_argument("--budget", nargs="+", type=_budget, default=[None, 8_000], metavar="N", help="tokens, or none")
    parser.add_argument("--sample", type=int, metavar="N", help="a fixed sample of N, from every source")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--total", action="store_true", help="no tables by source")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture here")
    parser.add_argument("--markdown", action="store_true", help="print tables for a README")
    return parser.parse_args(arguments)


def _budget(text: str) -> int | None:
    return None if text == "none" else int(text.replace(",", "").replace("_", ""))


def _chosen(options: argparse.Namespace) -> list[Transcript]:
    result = load_transcripts(options.paths, options.loader)
    if options.source:
        result = [item for item in result if item.source in options.source]
    return sample_of(result, options.sample) if options.sample else result


if __name__ == "__main__":
    sys.exit(main())
