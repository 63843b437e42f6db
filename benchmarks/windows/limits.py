"""The project's budgets for windows, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.windows.baselines import baseline_of
from benchmarks.windows.rows import Row, sum_of
from benchmarks.windows.running import Rows

IDENTIFIERS, LEAVES = 0.02, 0.05
TOKENS_ABOVE = 0.05
COST_FITTING, COST_BEYOND, BEYOND_BUDGET = 1.05, 0.5, 24_000
LOST_UNDER_BUDGET = 0.02


@dataclass(frozen=True, slots=True)
class Limit:
    """One figure beside its limit."""

    what: str
    measured: float
    limit: float

    @property
    def ok(self) -> bool:
        return self.measured <= self.limit


def limits_of(rows: Rows) -> list[Limit]:
    """Return every limit that the rows say something about."""
    return list(_limits({key: row for key, row in totals(rows).items() if row.windows}))


def totals(rows: Rows) -> dict[tuple[str, int | None], Row]:
    """Return the rows of all sources together, by policy and budget."""
    keys = dict.fromkeys((cell.policy, cell.budget) for cell in rows)
    return {key: sum_of(row for cell, row in rows.items() if (cell.policy, cell.budget) == key) for key in keys}


def budget_text(budget: int | None) -> str:
    return "no budget" if budget is None else f"{budget:,}"


def _limits(rows: dict[tuple[str, int | None], Row]) -> Iterator[Limit]:
    own = {key: row for key, row in rows.items() if baseline_of(key[0]) is None}
    if own:
        yield Limit("invalid windows of all policies", sum(row.invalid for row in own.values()), 0)
        yield Limit("windows over their budget, all policies", sum(row.over_budget for row in own.values()), 0)
    digests, plain = rows.get(("run_loops", None)), rows.get(("user+reply", None))
    if digests is not None:
        yield from _lost("run_loops, no budget", digests, IDENTIFIERS, LEAVES)
    if digests is not None and plain is not None and digests.token_ratio is not None and plain.token_ratio is not None:
        yield Limit("run_loops: tokens above user+reply", digests.token_ratio - plain.token_ratio, TOKENS_ABOVE)
    for (policy, budget), row in own.items():
        if policy != "default":
            continue
        name = f"default, {budget_text(budget)}"
        if row.fitting_cost_ratio is not None:
            yield Limit(f"{name}: cost where it fits", row.fitting_cost_ratio, COST_FITTING)
        if row.beyond_cost_ratio is not None and budget == BEYOND_BUDGET:
            yield Limit(f"{name}: cost where it does not fit", row.beyond_cost_ratio, COST_BEYOND)
        if budget is not None:
            yield from _lost(name, row, LOST_UNDER_BUDGET, LOST_UNDER_BUDGET)


def _lost(name: str, row: Row, identifiers: float, leaves: float) -> Iterator[Limit]:
    if row.identifiers_ratio is not None:
        yield Limit(f"{name}: identifiers lost", row.identifiers_ratio, identifiers)
    if row.leaves_ratio is not None:
        yield Limit(f"{name}: argument leaves lost", row.leaves_ratio, leaves)
