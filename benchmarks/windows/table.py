"""The rows as tables, for a terminal and in Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.windows.judging import LARGE_TOKENS
from benchmarks.windows.limits import Limit, budget_text, limits_of, totals
from benchmarks.windows.rows import Row
from benchmarks.windows.running import Rows

HEADS = (
    "policy",
    "windows",
    "tokens",
    "cost",
    "invalid",
    "by cut",
    "no task",
    "no window",
    "over",
    "identifiers lost",
    "leaves lost",
    "said ones",
    "ms",
    "p95",
)
NOTES = (
    "tokens, cost: against full history at the same calls; cost with a prompt cache: read 0.1, write 1.25, 1,024 tokens at least.",
    "invalid: a provider refuses the window; by cut: and does not refuse full history as it is.",
    "no task: not all that the user asked in the current loop is there. no window: none fits. over: larger than the budget.",
    "lost: tool calls whose arguments take a value from before that the window no longer has, of those that take one.",
    "said ones: the same of leaves that were said, not only written by the model into an earlier call.",
    "broken: the window does not begin as that of the call before; behind it why, as Turnlog says (baselines say nothing).",
    "of the result: its tokens that are sent; of the budget: what windows without all of it say they take; counted: do take.",
    "ms, p95: process time of building one window.",
)


@dataclass(frozen=True, slots=True)
class Table:
    """The first column is text, the others are numbers."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(rows: Rows, *, by_source: bool = True) -> Iterator[Table]:
    """Yield a table per source and budget, then those of all sources."""
    sources = list(dict.fromkeys(cell.source for cell in rows))
    budgets = list(dict.fromkeys(cell.budget for cell in rows))
    if by_source and len(sources) > 1:
        for source in sources:
            for budget in budgets:
                values = {cell.policy: row for cell, row in rows.items() if cell[::2] == (source, budget)}
                if values and any(row.calls for row in values.values()):
                    yield _table(source, budget, values)
    everything = totals(rows)
    for budget in budgets:
        title = f"all {len(sources)} sources" if len(sources) > 1 else sources[0]
        yield _table(title, budget, {key[0]: row for key, row in everything.items() if key[1] == budget})
    yield from _large_results(everything)
    yield from _breaks(everything)
    limits = limits_of(rows)
    if limits:
        yield Table("Limits", ("what", "measured", "limit", ""), [_limit_cells(limit) for limit in limits])


def as_json(rows: Rows, **described: Any) -> dict[str, Any]:
    """Everything, described by what was run."""
    return {
        **described,
        "rows": [{**cell._asdict(), **row.as_json()} for cell, row in rows.items()],
        "totals": [
            {"policy": policy, "budget": budget, **row.as_json()} for (policy, budget), row in totals(rows).items()
        ],
        "limits": [{**asdict(item), "ok": item.ok} for item in limits_of(rows)],
    }


def markdown(table: Table) -> str:
    rule = "|---|" + "---:|" * (len(table.heads) - 1)
    lines = ["| " + " | ".join(cells) + " |" for cells in (table.heads, *table.rows)]
    return "\n".join([f"**{table.title}**", "", lines[0], rule, *lines[1:]])


def plain(table: Table) -> str:
    widths = [max(len(row[at]) for row in (table.heads, *table.rows)) for at in range(len(table.heads))]
    rows = (table.heads, tuple("-" * width for width in widths), *table.rows)
    return "\n".join([table.title, *(_line(row, widths) for row in rows)])


def show(table: Table) -> None:
    """Print the tables, by rich where there is one."""
    try:
        from rich.console import Console
        from rich.table import Table as Rich
    except ImportError:
        print(plain(table))
        return
    made = Rich(title=table.title, title_justify="left", box=None, pad_edge=False)
    for at, head in enumerate(table.heads):
        made.add_column(head, justify="right" if at else "left", no_wrap=True)
    for row in table.rows:
        made.add_row(*row)
    width = sum(max(map(len, column)) + 2 for column in zip(table.heads, *table.rows, strict=True))
    Console(width=max(80, width), highlight=False).print(made)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=True)
    return "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(pairs)).rstrip()


def _large_results(everything: dict[tuple[str, int | None], Row]) -> Iterator[Table]:
    lines = [
        (
            f"{policy}, {budget_text(budget)}",
            f"{row.large_calls:,}",
            percent(row.large_ratio),
            f"{row.cut_windows:,}",
            percent(row.charged_ratio),
            percent(row.use_ratio),
        )
        for (policy, budget), row in everything.items()
        if row.large_calls and budget is not None
    ]
    if lines:
        heads = ("policy", "calls", "of the result", "not whole", "of the budget", "counted")
        yield Table(f"Right after a tool result of {LARGE_TOKENS:,} tokens or more", heads, lines)


def _breaks(everything: dict[tuple[str, int | None], Row]) -> Iterator[Table]:
    reasons = sorted({reason for row in everything.values() for reason in row.breaks})
    lines = [
        (
            f"{policy}, {budget_text(budget)}",
            f"{row.windows:,}",
            f"{row.broken:,}",
            *(f"{row.breaks[reason]:,}" if row.breaks[reason] else "" for reason in reasons),
        )
        for (policy, budget), row in everything.items()
        if row.broken
    ]
    if lines:
        yield Table("Breaks of what the call before was sent", ("policy", "windows", "broken", *reasons), lines)


def _table(name: str, budget: int | None, rows: dict[str, Row]) -> Table:
    first = next(iter(rows.values()))
    needed = f"{first.identifiers_needed:,} and {first.leaves_needed:,} of {first.tool_calls:,} tool calls take a value"
    most = max(rows.values(), key=lambda row: row.windows)
    if most.windows != first.windows:
        needed = (
            f"{most.identifiers_needed:,} and {most.leaves_needed:,} of {most.tool_calls:,} tool calls take a value"
        )
    title = f"{name}, {budget_text(budget)}: {first.sessions:,} sessions, {first.calls:,} model calls; {needed}"
    return Table(title, HEADS, [_cells(policy, row) for policy, row in rows.items()])


def _cells(policy: str, row: Row) -> tuple[str, ...]:
    return (
        policy,
        f"{row.windows:,}",
        percent(row.token_ratio),
        percent(row.cost_ratio),
        *(f"{count:,}" if count else "" for count in _counts(row)),
        percent(row.identifiers_ratio),
        percent(row.leaves_ratio),
        percent(row.said_ratio),
        _ms(row.median_ms),
        _ms(row.p95_ms),
    )


def _counts(row: Row) -> tuple[int, ...]:
    return (row.invalid, row.cut_invalid, row.without_task, row.too_small, row.over_budget)


def _limit_cells(limit: Limit) -> tuple[str, ...]:
    is_count = limit.limit == 0
    shown = [f"{value:,.0f}" if is_count else percent(value) for value in (limit.measured, limit.limit)]
    return (limit.what, *shown, "ok" if limit.ok else "OVER")


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}" if abs(ratio) < 10 else f"{ratio:.0%}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
