"""The report as tables, for a terminal and in Markdown, and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.jobs import Described, Failure
from benchmarks.peers.meter import Spent
from benchmarks.peers.prices import DOLLARS, GET, NOTE, PUT
from benchmarks.peers.runs import SCHEDULES, Costs, Losses, Sample
from benchmarks.peers.turns import PROFILES


@dataclass(frozen=True, slots=True)
class Table:
    """The first column is text, the others are numbers."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Report:
    """All that was measured."""

    costs: list[Costs]
    losses: list[Losses]
    failures: list[Failure]
    systems: list[Described]
    harness: dict[str, str]
    sizes: tuple[int, ...]

    def tables(self) -> list[Table]:
        made = list[Table]()
        for profile in PROFILES:
            costs = [cost for cost in self.costs if cost.profile == profile.name]
            made.append(_dollars(profile.title, costs, self.sizes))
            made.append(_details(profile.title, costs))
        return [*made, _lost(self.losses)]

    def notes(self) -> list[str]:
        lines = [f"{system.name} ({_versions(system.versions)}). One turn: {system.turn}" for system in self.systems]
        lines += [f"Not measured: {failure.system} {failure.part}: {failure.reason}" for failure in self.failures]
        silent = sorted({cost.system for cost in self.costs if cost.breaks_silently})
        lines += [f"{name}: the refusal of a turn is logged, the call returns as if it were stored." for name in silent]
        proven = sorted({cost.system for cost in self.costs if cost.bulk_is_same})
        differ = sorted({f"{cost.system} ({cost.profile})" for cost in self.costs if cost.bulk_is_same is False})
        lines.append(f"Filled in bulk between sizes; a turn then cost the same as after turns: {', '.join(proven)}.")
        lines += [f"Bulk and turns DIFFER: {name}." for name in differ]
        lines += [
            "Turnlog reads consistently, its peers eventually (half the units a byte). Index writes are write units.",
            NOTE + " " + ", ".join(f"{name} ${price * 1e6:g} a million" for name, price in DOLLARS.items()) + ".",
            f"On moto, in process: {_versions(self.harness)}, Python {platform.python_version()}.",
            "Capacity by the formulas of the DynamoDB guide, items up to 409,600 bytes.",
        ]
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "versions": {name: version for system in self.systems for name, version in system.versions.items()}
            | self.harness,
            "python": platform.python_version(),
            "dollars": dict(DOLLARS),
            "turns": {system.name: system.turn for system in self.systems},
            "costs": [
                {
                    "system": cost.system,
                    "profile": cost.profile,
                    "breaks_at_messages": cost.breaks_at,
                    "breaks_silently": cost.breaks_silently,
                    "bulk_is_same": cost.bulk_is_same,
                    "samples": [_sample_json(cost, sample) for sample in cost.samples],
                }
                for cost in self.costs
            ],
            "losses": [
                {"system": loss.system, "schedule": loss.schedule, "acknowledged": loss.acknowledged, "lost": loss.lost}
                for loss in self.losses
            ],
            "failures": [
                {"system": failure.system, "part": failure.part, "reason": failure.reason} for failure in self.failures
            ],
        }


def markdown(table: Table) -> str:
    rule = "|---|" + "---:|" * (len(table.heads) - 1)
    lines = ["| " + " | ".join(cells) + " |" for cells in (table.heads, *table.rows)]
    return "\n".join([f"**{table.title}**", "", lines[0], rule, *lines[1:]])


def plain(table: Table) -> str:
    widths = [max(len(row[at]) for row in (table.heads, *table.rows)) for at in range(len(table.heads))]
    lines = [table.title]
    for row in (table.heads, tuple("-" * width for width in widths), *table.rows):
        cells = [
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _dollars(title: str, costs: Sequence[Costs], sizes: Sequence[int]) -> Table:
    rows = list[tuple[str, ...]]()
    for cost in costs:
        values = {sample.messages: sample for sample in cost.samples}
        limit = "" if cost.breaks_at is None else f"{cost.breaks_at:,}"
        kept = [f"{values[size].turn.dollars * 1000:.4f}" if size in values else "refused" for size in sizes]
        rows.append((cost.system if cost.turn_reads else f"{cost.system}, process kept", *kept, limit))
        if not cost.turn_reads:
            new = [f"{_cold(cost, values[size]) * 1000:.4f}" if size in values else "refused" for size in sizes]
            rows.append((f"{cost.system}, new process", *new, limit))
    heads = ("dollars per 1,000 turns, session of ... messages", *(f"{size:,}" for size in sizes), "refused from")
    return Table(title, heads, rows)


def _details(title: str, costs: Sequence[Costs]) -> Table:
    rows = [
        (cost.system, f"{sample.messages:,}", *_spent(sample.turn), *_spent(sample.restore), f"{sample.given:,}")
        for cost in costs
        for sample in cost.samples
    ]
    spent = ("DDB", "RRU", "WRU", "PUT", "GET", "KB", "$/1,000")
    heads = ("system", "messages", *(f"turn {name}" if name == "DDB" else name for name in spent))
    heads += tuple(f"restore {name}" if name == "DDB" else name for name in spent)
    return Table(f"{title}: one turn, and one restore by a new process", (*heads, "given"), rows)


def _spent(spent: Spent) -> tuple[str, ...]:
    numbers = (spent.dynamodb, spent.read_units, spent.write_units, spent.s3(PUT), spent.s3(GET))
    return (*(f"{number:,g}" for number in numbers), f"{spent.bytes_moved / 1000:,.0f}", f"{spent.dollars * 1000:.4f}")


def _lost(losses: Sequence[Losses]) -> Table:
    rows = list[tuple[str, ...]]()
    for system in dict.fromkeys(loss.system for loss in losses):
        values = {loss.schedule: loss for loss in losses if loss.system == system}
        cells = [
            f"{values[schedule].lost} of {values[schedule].acknowledged}" if schedule in values else ""
            for schedule in SCHEDULES
        ]
        rows.append((system, *cells))
    title = "Two writers, a new process each a turn, one's whole turn inside the other's: acknowledged messages lost"
    return Table(title, ("the one's turn falls ...", *SCHEDULES), rows)


def _cold(costs: Costs, sample: Sample) -> float:
    return sample.turn.dollars + (0.0 if costs.turn_reads else sample.restore.dollars)


def _sample_json(costs: Costs, sample: Sample) -> dict[str, Any]:
    return {
        "messages": sample.messages,
        "turn": _spent_json(sample.turn),
        "restore": _spent_json(sample.restore),
        "messages_given": sample.given,
        "dollars_in_a_new_process": _cold(costs, sample),
    }


def _spent_json(spent: Spent) -> dict[str, Any]:
    return {
        "requests": dict(spent.requests),
        "read_units": spent.read_units,
        "write_units": spent.write_units,
        "bytes_moved": spent.bytes_moved,
        "dollars": spent.dollars,
    }


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
