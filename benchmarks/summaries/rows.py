"""The figures of summaries: sums over sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

METRICS = ("identifiers", "leaves")


@dataclass(slots=True)
class Lost:
    """Tool calls that take a value from summarised loops, and those of them that lack one: with facts, and without them.

    ``alone``: calls that take one which stands nowhere but in summarised loops, so that only the summary can have it.
    """

    needed: int = 0
    alone: int = 0
    with_facts: int = 0
    without_facts: int = 0

    @property
    def with_ratio(self) -> float | None:
        return _ratio(self.with_facts, self.needed)

    @property
    def without_ratio(self) -> float | None:
        return _ratio(self.without_facts, self.needed)

    @property
    def alone_ratio(self) -> float | None:
        return _ratio(self.with_facts, self.alone)

    def add(self, other: Lost) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def as_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("with_ratio", "without_ratio", "alone_ratio"):
            ratio = getattr(self, name)
            values[name] = None if ratio is None else round(ratio, 4)
        return values


@dataclass(slots=True)
class Row:
    """Sums. ``loops``, ``messages`` and ``source_tokens`` are covered by the summaries in force at the end, which take
    ``summary_tokens``, ``fact_tokens`` of them for values; ``made`` counts rounds, ``calls`` the tool calls behind a summary.

    ``identifiers`` and ``leaves`` are of calls that are not made again word for word; ``again`` of those that are, of both
    kinds of values. ``causes``: why values are lost with facts, of the first.
    """

    sessions: int = 0
    summarised: int = 0
    made: int = 0
    loops: int = 0
    messages: int = 0
    source_tokens: int = 0
    summary_tokens: int = 0
    fact_tokens: int = 0
    calls: int = 0
    identifiers: Lost = field(default_factory=Lost)
    leaves: Lost = field(default_factory=Lost)
    again: Lost = field(default_factory=Lost)
    causes: Counter[str] = field(default_factory=Counter)

    @property
    def saved_tokens(self) -> int:
        return self.source_tokens - self.summary_tokens

    def add(self, other: Row) -> None:
        for item in fields(self):
            mine, its = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, Lost):
                mine.add(its)
            else:
                setattr(self, item.name, mine + its)

    def as_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: value.as_json() for name, value in values.items() if isinstance(value, Lost)}
        return {**values, "saved_tokens": self.saved_tokens, "causes": dict(sorted(self.causes.items()))}


def sum_of(rows: Iterable[Row]) -> Row:
    total = Row()
    for row in rows:
        total.add(row)
    return total


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
