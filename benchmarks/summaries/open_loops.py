"""One long loop in small windows: with summaries between its steps, against notes on steps alone and stubs of results.

    python -m benchmarks.summaries.open_loops FOLDER --loader load.py     # --budget 8000 32000

Of conversations with a loop that is larger than the budget. Windows are built before each answer, and jobs are done as they come.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.replay.loading import load_transcripts
from benchmarks.windows.histories import calls_in, sources_of, text_of
from benchmarks.windows.table import Table, show
from benchmarks.windows.values import identifiers_of, stands
from turnlog.app import make_application
from turnlog.cli.transcripts import Transcript
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.identity import Owner
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

_RESERVE = 8_192
POLICIES: dict[str, Any] = {
    "summaries": "default",
    "notes": {"steps": [{"step": "summary"}, {"step": "digest_when_full"}]},
    "stubs": {"steps": [{"step": "stub_tool_results"}, {"step": "digest_when_full"}]},
}


@dataclass(slots=True)
class Figures:
    """Sums over windows. ``lost``: calls that take an identifier which was said before and is not in the window, of ``needed``."""

    windows: int = 0
    tokens: int = 0
    needed: int = 0
    lost: int = 0
    breaks: int = 0
    summaries: int = 0


def run(transcripts: Sequence[Transcript], policy: Any, budget: int) -> Figures:
    """Return the figures of conversations under a policy and a budget."""
    figures = Figures()
    for transcript in transcripts:
        settings = Settings(engine="memory://", models={"small": budget + _RESERVE})
        app = make_application(settings, clock=FixedClock(), ids=SequentialIds())
        with Turnlog(InProcessBackend(app, Owner.of("bench", "bench"))) as log:
            _add(figures, log, transcript, policy)
    return figures


def _add(figures: Figures, log: Turnlog, transcript: Transcript, policy: Any) -> None:
    options: dict[str, Any] = {"model": "small", "output_reserve": _RESERVE, "recall": "never", "policy": policy}
    session = log.sessions.create(system=transcript.system, tools=transcript.tools or None, **options)
    epoch, summary_to, said = "", None, ""
    for body in transcript.messages:
        if body.get("role") == "assistant" and said:
            window = session.context(format="openai_chat")
            figures.windows, figures.tokens = figures.windows + 1, figures.tokens + window.tokens
            figures.breaks += window.manifest.epoch.id != epoch
            epoch, shown = window.manifest.epoch.id, "\n".join(map(text_of, window.messages))
            for function in calls_in(body):
                values = [value for value in identifiers_of(function.get("arguments")) if stands(value, said)]
                figures.needed += bool(values)
                figures.lost += any(not stands(value, shown) for value in values)
        session.append(body)
        log.run_jobs()
        said += "\n" + text_of(body)
        newest = session.info().summary_to
        figures.summaries += newest != summary_to
        summary_to = newest


def long_ones(transcripts: Sequence[Transcript], budget: int) -> Iterator[Transcript]:
    """Yield the conversations with a loop that is larger than a budget."""
    for transcript in transcripts:
        tokens = dict[int, int]()
        for source in sources_of(transcript.messages):
            tokens[source.loop] = tokens.get(source.loop, 0) + source.event.tokens
        if max(tokens.values(), default=0) > budget:
            yield transcript


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    parser.add_argument("--loader", type=Path, metavar="FILE.py", help="its iter_sessions(path) gives conversations")
    parser.add_argument("--budget", nargs="+", type=int, default=[32_000, 8_000])
    options = parser.parse_args(arguments)
    transcripts = load_transcripts(options.paths, options.loader)
    for budget in options.budget:
        long = list(long_ones(transcripts, budget))
        rows = list[tuple[str, ...]]()
        for name, policy in POLICIES.items():
            made = run(long, policy, budget)
            cells = (made.windows, made.tokens, made.lost, made.needed, made.breaks, made.summaries)
            rows.append((name, *(f"{cell:,}" for cell in cells)))
        heads = ("earlier steps", "windows", "tokens", "calls that lack a value", "of", "epochs", "summaries")
        show(Table(f"{len(long)} conversations with a loop over {budget:,} tokens", heads, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
