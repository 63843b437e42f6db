"""What a session's calls cost with the breakpoints of its windows, in a simulated prompt cache.

    make bench-breakpoints                              # the project's own conversations
    make bench-breakpoints ARGS='FOLDER --loader load.py --sample 60 --json FILE'

Beside the cost of the longest prefix that two consecutive calls share (the ideal), and of one breakpoint behind everything.
Exit 1 when ours cost more than 1.1 x the ideal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.operations import versions
from benchmarks.replay.loading import load_transcripts, sample_of
from benchmarks.windows.provider import Provider, Spent, blocks_of, with_last_only
from benchmarks.windows.table import Table, percent, show
from turnlog import build_window
from turnlog.cli.transcripts import Transcript
from turnlog.core.errors import BudgetTooSmallError

SAMPLES = Path(__file__).parent.parent.parent / "examples" / "conversations"
FORMATS = ("anthropic", "bedrock_converse")
HEADS = ("format, policy, budget", "calls", "ideal", "ours", "ours / ideal", "one at the end", "one / ideal")
LIMIT = 1.1


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    transcripts = load_transcripts(options.paths, options.loader)
    transcripts = sample_of(transcripts, options.sample) if options.sample else transcripts
    rows = list[dict[str, Any]]()
    for format in options.format:
        for policy in options.policy:
            for budget in options.budget:
                ours, result = _sums(transcripts, format=format, policy=policy, budget=budget)
                if ours.calls:
                    rows.append(_row(f"{format}, {policy}, {budget or 'default'}", ours, result))
    show(Table("Cost against the same calls without a cache", HEADS, [_cells(row) for row in rows]))
    print(
        f"- {len(transcripts):,} conversations; read 0.1, write 1.25, at least 1,024 tokens, found up to 20 blocks back."
    )
    if options.json:
        options.json.write_text(json.dumps({"versions": versions(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row["ours"] > LIMIT * row["ideal"] for row in rows) else 0


def spent_on(transcript: Transcript, **options: Any) -> tuple[Spent, Spent]:
    """Return the cost of a session's calls: with the breakpoints of its windows, and with one behind everything."""
    ours, result = Provider(), Provider()
    for count, message in enumerate(transcript.messages):
        if not count or message.get("role") != "assistant":
            continue
        try:
            window = build_window(
                transcript.messages[:count],
                system=transcript.system,
                tools=transcript.tools or None,
                breakpoints="apply",
                **options,
            )
        except BudgetTooSmallError:
            continue
        blocks = blocks_of(window)
        ours.call(blocks)
        result.call(with_last_only(blocks))
    return ours.spent, result.spent


def _sums(transcripts: Sequence[Transcript], **options: Any) -> tuple[Spent, Spent]:
    totals = Spent(), Spent()
    for transcript in transcripts:
        for total, spent in zip(totals, spent_on(transcript, **options), strict=True):
            total.add(spent)
    return totals


def _row(name: str, ours: Spent, one: Spent) -> dict[str, Any]:
    return {
        "name": name,
        "calls": ours.calls,
        "ideal": ours.ideal / ours.plain,
        "ours": ours.cost / ours.plain,
        "one": one.cost / one.plain,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["name"],
        f"{row['calls']:,}",
        percent(row["ideal"]),
        percent(row["ours"]),
        f"{row['ours'] / row['ideal']:.2f} x",
        percent(row["one"]),
        f"{row['one'] / row['ideal']:.2f} x",
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.windows.breakpoints",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", type=Path, default=[SAMPLES], metavar="FILE_OR_FOLDER")
    parser.add_argument("--loader", type=Path, metavar="FILE.py", help="its iter_sessions(path) gives conversations")
    parser.add_argument("--sample", type=int, metavar="N", help="a fixed sample of N, from every source")
    parser.add_argument("--format", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--policy", nargs="+", default=["default", "run_loops"], metavar="P")
    parser.add_argument("--budget", nargs="+", type=_budget, default=[None, 8_000], metavar="N", help="tokens, or none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return parser.parse_args(arguments)


def _budget(text: str) -> int | None:
    return None if text == "none" else int(text.replace(",", "").replace("_", ""))


if __name__ == "__main__":
    sys.exit(main())
