"""Summaries of conversations: what they save, and which values the tool calls after them lack, with facts and without.

    make bench-summaries                                  # the project's own conversations
    make bench-summaries ARGS='FOLDER --loader load.py --json FILE'

Each session is summarised after every loop, without a model; dialogues with questions also whole, in a tenth of their tokens.
Exit 1 when more values or answers are lost than the limits say.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.operations import versions
from benchmarks.progress import say
from benchmarks.replay.loading import load_transcripts, sample_of
from benchmarks.summaries.running import Plan, answers_kept, run
from benchmarks.summaries.table import LEAST_KEPT, NOTES, as_json, limits_of, table_of_answers, tables
from benchmarks.windows.table import markdown, show
from turnlog.core.errors import TurnlogError
from turnlog.summaries.routes import CompressSession
from turnlog.summaries.trigger import KEEP_LOOPS

SAMPLES = Path(__file__).parent.parent.parent / "examples" / "conversations"
_DEFAULTS = CompressSession()


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    start = time.monotonic()
    try:
        transcripts = load_transcripts(options.paths, options.loader)
        if options.source:
            transcripts = [transcript for transcript in transcripts if transcript.source in options.source]
        if options.sample:
            transcripts = sample_of(transcripts, options.sample)
        plan = Plan(options.keep_loops, options.max_tokens)
        answers = answers_kept(options.paths, options.loader) if options.loader else None
        rows = run(transcripts, plan, processes=min(options.processes, len(transcripts)), say=say)
    except TurnlogError as error:
        print(f"error: {error.detail}", file=sys.stderr)
        return 2
    say("")
    for table in (*tables(rows), *([table_of_answers(answers)] if answers and answers.dialogues else [])):
        if options.markdown:
            print(markdown(table) + "\n")
        else:
            show(table)
            print()
    for note in NOTES:
        print(note if note.startswith(" ") else f"- {note}")
    messages = sum(len(transcript.messages) for transcript in transcripts)
    print(f"- {len(transcripts):,} conversations, {messages:,} messages, {time.monotonic() - start:.0f} s")
    if options.json:
        ran = {"conversations": len(transcripts), "messages": messages, "versions": versions()}
        asked = {"sample": options.sample, "keep_loops": plan.keep_loops, "max_tokens": plan.max_tokens}
        kept = {"answers": asdict(answers)} if answers else {}
        options.json.write_text(json.dumps(as_json(rows, **ran, **asked, **kept), indent=1) + "\n", encoding="utf-8")
    return 0 if (answers is None or answers.are_kept(LEAST_KEPT)) and all(limit.ok for limit in limits_of(rows)) else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.summaries", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, default=[SAMPLES], metavar="FILE_OR_FOLDER")
    parser.add_argument("--loader", type=Path, metavar="FILE.py", help="its iter_sessions(path) gives conversations")
    parser.add_argument("--source", action="append", metavar="NAME", help="only conversations of this source")
    parser.add_argument("--keep-loops", type=int, default=KEEP_LOOPS, metavar="K", help="newest that stay whole")
    parser.add_argument("--max-tokens", type=int, default=_DEFAULTS.max_tokens, metavar="N", help="of a summary")
    parser.add_argument("--sample", type=int, metavar="N", help="a fixed sample of N, from every source")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--markdown", action="store_true", help="print tables for a README")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
