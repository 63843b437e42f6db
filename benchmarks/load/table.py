"""The figures as tables, for a terminal and in Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.load.direct import Direct
from benchmarks.load.endurance import Endurance
from benchmarks.load.processes import Held
from benchmarks.load.recording import QUANTILES, quantiles
from benchmarks.load.running import Outcome
from benchmarks.windows.table import Table

NOTES = (
    "sessions x writers x readers: of each session, each with a connection of its own. Clients and servers share the machine.",
    "p50 p90 p99 max: milliseconds of a call as its caller waits for it, with all its retries. window: within 8,000 tokens.",
    "if_head: appends that name the head their writer knows. 409: answers; each was sent again by its key, with the head it told.",
    "429, 503: answers; the client tries again. errors: calls that failed for good, requests without an answer, other 5xx.",
    "lost: acknowledged and not there at the end. wrong: moved, twice, never sent, gaps in positions, readers that differ.",
    "memory: resident, of all servers together, at the start and after each quarter of the time. files: open at the end.",
)
_KINDS = ("append", "append, if_head", "window", "page", "list")


@dataclass(frozen=True, slots=True)
class Report:
    """All that was run."""

    outcomes: list[Outcome]
    directs: list[Direct]
    endurances: list[Endurance]

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing wrong, no error. Whether memory is flat is said beside its figures."""
        runs: list[Outcome | Direct] = [*self.outcomes, *self.directs]
        return all(run.ok for run in runs) and not any(endurance.errors for endurance in self.endurances)


def tables(report: Report) -> Iterator[Table]:
    for engine in dict.fromkeys(outcome.engine for outcome in report.outcomes):
        outcomes = [outcome for outcome in report.outcomes if outcome.engine == engine]
        yield _counts(engine, outcomes)
        yield _times(engine, outcomes)
    for same_session in (False, True):
        directs = [direct for direct in report.directs if direct.same_session is same_session]
        if directs:
            yield _directs(same_session, directs)
    if report.endurances:
        yield _endurances(report.endurances)


def as_json(report: Report, **described: Any) -> dict[str, Any]:
    """Everything but single calls, described by what was run."""
    return {
        **described,
        "ok": report.ok,
        "cells": [_cell(outcome) for outcome in report.outcomes],
        "processes": [
            {**asdict(direct), "rate": direct.rate, "ratio": ratio(direct, report.directs)} for direct in report.directs
        ],
        "endurance": [
            {
                "engine": endurance.engine,
                "operations": endurance.operations,
                "errors": endurance.errors,
                "slope_bytes_per_1000": endurance.slope,
                "is_flat": endurance.is_flat,
                "samples": [{"operations": at, **asdict(held)} for at, held in endurance.samples],
            }
            for endurance in report.endurances
        ],
    }


def ratio(direct: Direct, directs: Sequence[Direct]) -> float:
    """Return its appends a second against those of one process."""
    match = next(each for each in directs if each.processes == 1 and each.same_session is direct.same_session)
    return direct.rate / match.rate


def _cell(outcome: Outcome) -> dict[str, Any]:
    return {
        "engine": outcome.engine,
        "name": outcome.cell.name,
        **asdict(outcome.cell),
        "seconds": outcome.seconds,
        "requests": outcome.requests,
        "errors": outcome.errors,
        "said": dict(outcome.records.errors),
        "counts": dict(outcome.records.counts),
        "checked": asdict(outcome.checked),
        "calls": {kind: len(seconds) for kind, seconds in outcome.records.seconds.items()},
        "quantiles": {
            kind: dict(zip(map(str, QUANTILES), quantiles(seconds), strict=True))
            for kind, seconds in outcome.records.seconds.items()
        },
        "held": [asdict(item) for item in outcome.held],
    }


def _counts(engine: str, outcomes: Sequence[Outcome]) -> Table:
    heads = ("sessions x writers x readers", "clients", "requests", "a second", "appends", "409", "429", "503")
    return Table(
        f"turnlog serve, {engine}: counts",
        (*heads, "errors", "lost", "wrong", "memory, MB", "files"),
        [
            (
                outcome.cell.name,
                f"{outcome.cell.clients:,}",
                f"{outcome.requests:,}",
                f"{outcome.requests / outcome.seconds:,.0f}",
                f"{sum(map(len, outcome.records.acknowledged.values())):,}",
                *(f"{outcome.records.counts[status]:,}" for status in ("409", "429", "503")),
                f"{outcome.errors:,}",
                f"{outcome.checked.lost:,}",
                f"{sum(asdict(outcome.checked).values()) - outcome.checked.lost:,}",
                " ".join(f"{_mb(held):.0f}" for held in outcome.held),
                str(outcome.held[-1].files if outcome.held[-1].files is not None else "-"),
            )
            for outcome in outcomes
        ],
    )


def _times(engine: str, outcomes: Sequence[Outcome]) -> Table:
    return Table(
        f"turnlog serve, {engine}: p50 p90 p99 max, ms",
        ("sessions x writers x readers", *_KINDS),
        [
            (outcome.cell.name, *(ms(quantiles(outcome.records.seconds.get(kind, ()))) for kind in _KINDS))
            for outcome in outcomes
        ],
    )


def _directs(same_session: bool, directs: Sequence[Direct]) -> Table:
    heads = ("processes", "appends", "a second", "ratio", "lost slots", "409", "errors", "lost", "wrong")
    return Table(
        f"processes on one SQLite file, no server, {'one session' if same_session else 'a session each'}",
        (*heads, "append: p50 p90 p99 max, ms", "wait for the lock", "commit"),
        [
            (
                str(direct.processes),
                f"{direct.appends:,}",
                f"{direct.rate:,.0f}",
                f"{ratio(direct, directs):.2f}",
                f"{direct.lost_slots:,}",
                f"{direct.conflicts:,}",
                f"{direct.errors:,}",
                f"{direct.checked.lost:,}",
                f"{sum(asdict(direct.checked).values()) - direct.checked.lost:,}",
                *(ms(times) for times in (direct.append, direct.lock, direct.commit)),
            )
            for direct in directs
        ],
    )


def _endurances(endurances: Sequence[Endurance]) -> Table:
    heads = ("engine", "operations", "memory, MB: warm", "half", "end", "KB more a 1,000 of the last half", "flat")
    return Table(
        "one server, session after session: create, 6 appends, window, page, erase",
        (*heads, "files: warm", "end", "errors"),
        [
            (
                endurance.engine,
                f"{endurance.operations:,}",
                *(
                    f"{_mb(held):.1f}"
                    for held in (endurance.samples[0][1], endurance.last_half[0][1], endurance.samples[-1][1])
                ),
                f"{endurance.slope / 1024:,.1f}",
                {None: "-", True: "yes", False: "NO"}[endurance.is_flat],
                *(
                    str(held.files if held.files is not None else "-")
                    for held in (endurance.samples[0][1], endurance.samples[-1][1])
                ),
                f"{endurance.errors:,}",
            )
            for endurance in endurances
        ],
    )


def ms(seconds: Sequence[float]) -> str:
    return " ".join(f"{second * 1000:.3g}" if second < 1 else f"{second * 1000:,.0f}" for second in seconds) or "-"


def _mb(held: Held) -> float:
    return held.rss_bytes / 2**20
