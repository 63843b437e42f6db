"""The rows as tables, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks.summaries.rows import METRICS, Lost, Row, sum_of
from benchmarks.summaries.running import Answers, Rows
from benchmarks.windows.limits import Limit
from benchmarks.windows.table import Table, percent

WITH_FACTS = 0.05
HEADS = (
    "source",
    "sessions",
    "summaries",
    "loops",
    "messages",
    "tokens",
    "summary",
    "saved",
    "calls",
    "identifiers: without",
    "with facts",
    "leaves: without",
    "with facts",
    "again: without",
    "with facts",
)
NOTES = (
    "sessions: those with a summary. loops, messages, tokens: what the summaries in force at the end cover, and they take.",
    "lost: tool calls whose arguments take a value of summarised loops that the window no longer has, of those that take one;",
    "  without facts: of the same windows, the summary's facts struck out.",
    "identifiers: tokens with a digit, addresses, paths; leaves: every string and number of the arguments.",
    "again: calls that summarised loops have word for word; they take every value that they have, and are counted apart.",
)


def tables(rows: Rows) -> Iterator[Table]:
    """Yield a line per source that has summaries, the total, why values are lost, and the limits."""
    shown = {source: row for source, row in rows.items() if row.summarised}
    total = sum_of(rows.values())
    lines = [_cells(source, row) for source, row in (*shown.items(), (f"all {len(rows)} sources", total))]
    yield Table(f"{total.summarised:,} of {total.sessions:,} sessions summarised", HEADS, lines)
    if total.causes:
        causes = [(cause, f"{count:,}") for cause, count in total.causes.most_common()]
        yield Table("Why values are lost with facts", ("cause", "values"), causes)
    limits = [
        (item.what, percent(item.measured), percent(item.limit), "ok" if item.ok else "OVER")
        for item in limits_of(rows)
    ]
    if limits:
        yield Table("Limits", ("what", "measured", "limit", ""), limits)


LEAST_KEPT = 0.6


def table_of_answers(answers: Answers) -> Table:
    """Return how many answers to questions about dialogues survive in extracts of a tenth."""
    rows = [
        (kind, f"{kept:,} of {count:,}", percent(kept / count if count else None))
        for kind, kept, count in (
            ("all words of the answer", answers.words_kept, answers.words),
            ("word for word", answers.verbatim_kept, answers.verbatim),
        )
    ]
    return Table(f"Answers in extracts at a tenth of {answers.dialogues} dialogues", ("judged by", "kept", ""), rows)


def limits_of(rows: Rows) -> list[Limit]:
    total = sum_of(rows.values())
    ratios = {metric: getattr(total, metric).with_ratio for metric in METRICS}
    return [
        Limit(f"{metric} lost with facts", ratio, WITH_FACTS) for metric, ratio in ratios.items() if ratio is not None
    ]


def as_json(rows: Rows, **described: Any) -> dict[str, Any]:
    """Everything, described by what was run."""
    return {
        **described,
        "rows": {source: row.as_json() for source, row in rows.items()},
        "total": sum_of(rows.values()).as_json(),
        "limits": [{**asdict(item), "ok": item.ok} for item in limits_of(rows)],
    }


def _cells(source: str, row: Row) -> tuple[str, ...]:
    counts = (row.summarised, row.made, row.loops, row.messages, row.source_tokens, row.summary_tokens)
    saved = percent(row.saved_tokens / row.source_tokens if row.source_tokens else None)
    lost = [cell for value in (row.identifiers, row.leaves, row.again) for cell in _lost(value)]
    return (source, *(f"{count:,}" for count in counts), saved, f"{row.calls:,}", *lost)


def _lost(lost: Lost) -> tuple[str, str]:
    if not lost.needed:
        return "-", "-"
    return percent(lost.without_ratio), f"{percent(lost.with_ratio)} of {lost.needed:,}"
