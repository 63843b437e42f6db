"""Runs policies and baselines over conversations: a window before each model call, judged; sums by source."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.windows.builders import builder_of
from benchmarks.windows.caching import cost, shared_messages
from benchmarks.windows.histories import History
from benchmarks.windows.judging import Moment
from benchmarks.windows.rows import Row
from turnlog.cli.transcripts import Transcript
from turnlog.providers.token_rules import WINDOW_OVERHEAD

Rows = dict["Cell", Row]


class Cell(NamedTuple):
    """What a row is of. ``budget`` None: none."""

    source: str
    policy: str
    budget: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of every conversation."""

    policies: tuple[str, ...]
    budgets: tuple[int | None, ...]


def run(transcripts: Sequence[Transcript], plan: Plan, *, processes: int = 1, say: Callable[[str], None]) -> Rows:
    """Return the rows by source, policy and budget."""
    result = Rows()
    for done, rows in enumerate(_all(transcripts, plan, processes), 1):
        for cell, row in rows.items():
            result.setdefault(cell, Row()).add(row)
        say(f"{done} of {len(transcripts)} conversations")
    order = {name: at for at, name in enumerate(plan.policies)}
    return dict(
        sorted(
            result.items(), key=lambda item: (item[0].source, plan.budgets.index(item[0].budget), order[item[0].policy])
        )
    )


def _all(transcripts: Sequence[Transcript], plan: Plan, processes: int) -> Iterator[Rows]:
    # The longest first: none of them is left alone at the end.
    ordered = sorted(transcripts, key=lambda transcript: -len(transcript.messages))
    if processes <= 1:
        yield from (rows_of(item, plan) for item in ordered)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for job in as_completed([pool.submit(rows_of, item, plan) for item in ordered]):
            yield job.result()


def rows_of(transcript: Transcript, plan: Plan) -> Rows:
    """Build all windows of one conversation, and return its rows."""
    history = History(transcript)
    cells = {
        Cell(history.source, name, budget): _Series(history, name, budget)
        for name in plan.policies
        for budget in plan.budgets
    }
    full = _Prices(history)
    for upto in history.calls():
        moment = Moment(history, upto)
        full_cost = full.next(moment.full)
        for series in cells.values():
            series.take(moment, full_cost)
    return {cell: series.row for cell, series in cells.items()}


class _Prices:
    """The cost of a session's calls, each after the one before."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._previous: list[int] | None = None
        self.is_broken = False

    def next(self, window: list[int]) -> float:
        shared = None if self._previous is None else shared_messages(self._previous, window)
        self.is_broken = self._previous is not None and shared != len(self._previous)
        self._previous = window
        sizes = [self._history.messages.sizes[number] for number in window]
        return cost(sizes, shared, before=self._history.tools_tokens, behind=WINDOW_OVERHEAD)


class _Series:
    """One policy at one budget through a session."""

    def __init__(self, history: History, policy: str, budget: int | None) -> None:
        self.row = Row(sessions=1)
        self._history, self._budget = history, budget
        self._builder = builder_of(history, policy, budget)
        self._prices = _Prices(history)
        whole = WINDOW_OVERHEAD + history.tools_tokens + history.tokens(history.full(len(history.bodies)))
        self._fits = budget is None or whole <= budget

    def take(self, moment: Moment, full_cost: float) -> None:
        row = self.row
        row.calls += 1
        made = self._builder(moment.upto)
        if made is None:
            row.too_small += 1
            return
        window = made.numbers
        row.build_ms.append(made.seconds * 1_000)
        row.windows += 1
        verdict, full = moment.judge(window), moment.judge(moment.full)
        row.tokens += verdict.tokens
        row.full_tokens += full.tokens
        row.over_budget += self._budget is not None and verdict.tokens > self._budget
        price = self._prices.next(window)
        row.broken += self._prices.is_broken
        if made.reason not in (None, "first"):
            row.breaks[str(made.reason)] += 1
        if self._fits:
            row.fitting_cost += price
            row.fitting_full_cost += full_cost
        else:
            row.beyond_cost += price
            row.beyond_full_cost += full_cost
        row.invalid += verdict.is_invalid
        row.cut_invalid += verdict.is_invalid and not full.is_invalid
        row.without_task += verdict.has_lost_task
        row.tool_calls += len(moment.needs)
        row.identifiers_needed += moment.identifiers_needed
        row.identifiers_lost += verdict.identifiers
        row.leaves_needed += moment.leaves_needed
        row.leaves_lost += verdict.leaves
        row.said_needed += moment.said_needed
        row.said_lost += verdict.said
        row.either_needed += moment.either_needed
        row.either_lost += verdict.either
        row.only_short_lost += verdict.short
        self._take_large_result(moment, window, verdict.tokens, made.charged)

    def _take_large_result(self, moment: Moment, window: Sequence[int], tokens: int, charged: int | None) -> None:
        row, number = self.row, moment.large_result()
        if number is None:
            return
        size, sent = moment.history.messages.sizes[number], moment.sent_of(number, window)
        row.large_calls += 1
        row.large_tokens += size
        row.large_sent += sent
        if sent < size and self._budget is not None:
            row.cut_windows += 1
            row.cut_tokens += tokens
            row.cut_charged += charged if charged is not None else tokens
            row.cut_budgets += self._budget
