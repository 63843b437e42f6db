"""The figures of one policy at one budget: sums over model calls."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Row:
    """Sums. Sums beside those of full history (``full_...``) are over the calls that had a window.

    ``broken``: windows that the call before was not sent the beginning of; ``breaks``: why, by Turnlog's own reasons.
    ``cut_invalid``: invalid where full history, as it is, is valid. ``fitting_...``:
    sessions whose full history is within the budget to its end; ``beyond_...``: the others.
    ``large_...``: calls right after a large tool result, the tokens of these results, and those that windows send of them;
    ``cut_...``: those windows that do not send all of it, their tokens, those that they say, and their budgets.
    """

    sessions: int = 0
    calls: int = 0
    windows: int = 0
    too_small: int = 0
    over_budget: int = 0
    tokens: int = 0
    full_tokens: int = 0
    broken: int = 0
    breaks: Counter[str] = field(default_factory=Counter)
    fitting_cost: float = 0.0
    fitting_full_cost: float = 0.0
    beyond_cost: float = 0.0
    beyond_full_cost: float = 0.0
    invalid: int = 0
    cut_invalid: int = 0
    without_task: int = 0
    tool_calls: int = 0
    identifiers_needed: int = 0
    identifiers_lost: int = 0
    leaves_needed: int = 0
    leaves_lost: int = 0
    said_needed: int = 0
    said_lost: int = 0
    either_needed: int = 0
    either_lost: int = 0
    only_short_lost: int = 0
    large_calls: int = 0
    large_tokens: int = 0
    large_sent: int = 0
    cut_windows: int = 0
    cut_tokens: int = 0
    cut_charged: int = 0
    cut_budgets: int = 0
    build_ms: list[float] = field(default_factory=list)

    def add(self, other: Row) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    @property
    def token_ratio(self) -> float | None:
        return _ratio(self.tokens, self.full_tokens)

    @property
    def cost_ratio(self) -> float | None:
        return _ratio(self.fitting_cost + self.beyond_cost, self.fitting_full_cost + self.beyond_full_cost)

    @property
    def fitting_cost_ratio(self) -> float | None:
        return _ratio(self.fitting_cost, self.fitting_full_cost)

    @property
    def beyond_cost_ratio(self) -> float | None:
        return _ratio(self.beyond_cost, self.beyond_full_cost)

    @property
    def identifiers_ratio(self) -> float | None:
        return _ratio(self.identifiers_lost, self.identifiers_needed)

    @property
    def leaves_ratio(self) -> float | None:
        return _ratio(self.leaves_lost, self.leaves_needed)

    @property
    def said_ratio(self) -> float | None:
        return _ratio(self.said_lost, self.said_needed)

    @property
    def either_ratio(self) -> float | None:
        return _ratio(self.either_lost, self.either_needed)

    @property
    def large_ratio(self) -> float | None:
        return _ratio(self.large_sent, self.large_tokens)

    @property
    def charged_ratio(self) -> float | None:
        return _ratio(self.cut_charged, self.cut_budgets)

    @property
    def use_ratio(self) -> float | None:
        return _ratio(self.cut_tokens, self.cut_budgets)

    @property
    def median_ms(self) -> float | None:
        return statistics.median(self.build_ms) if self.build_ms else None

    @property
    def p95_ms(self) -> float | None:
        return sorted(self.build_ms)[int(0.95 * (len(self.build_ms) - 1))] if self.build_ms else None

    def as_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "build_ms"}
        ratios = (
            "token",
            "cost",
            "fitting_cost",
            "beyond_cost",
            "identifiers",
            "leaves",
            "said",
            "either",
            "large",
            "use",
        )
        values |= {f"{name}_ratio": getattr(self, f"{name}_ratio") for name in ratios}
        values |= {"build_median_ms": self.median_ms, "build_p95_ms": self.p95_ms}
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def sum_of(rows: Iterable[Row]) -> Row:
    total = Row()
    for row in rows:
        total.add(row)
    return total


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
