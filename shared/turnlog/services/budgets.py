"""Budgets are in the provider's tokens; windows are counted in ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from turnlog.contracts.builds import BudgetAnswer
from turnlog.domain.errors import BudgetTooSmallError
from turnlog.domain.session import DEFAULT_OUTPUT_RESERVE, Settings
from turnlog.log.headers import Header
from turnlog.windows.models import Budget, budget_for
from turnlog.windows.steps import Room


def effective(budget: BudgetAnswer) -> Budget:
    """The budget in our tokens: never more than the provider would count as the budget."""
    return Budget(max(1, budget.tokens * 100 // _percent(budget)), budget.source)


def room_of(header: Header, settings: Settings, models: Mapping[str, int] | None) -> Room:
    """The budget of a session's window that names none, in our tokens, and what system text, tools and summary take of it."""
    reserve = settings.output_reserve if settings.output_reserve is not None else DEFAULT_OUTPUT_RESERVE
    found = budget_for(budget=None, model=settings.model, output_reserve=reserve, own=models)
    summary = header.summary.own_tokens if header.summary is not None else 0
    fixed = settings.system_tokens + settings.tools_tokens + summary
    return Room(int(found.tokens / header.calibration.factor), fixed)


@contextmanager
def counted_by_the_provider(budget: BudgetAnswer) -> Iterator[None]:
    """Inside it `BudgetTooSmallError` is about our tokens; outside about the budget's."""
    try:
        yield
    except BudgetTooSmallError as error:
        percent = _percent(budget)
        if percent == 100:
            raise
        needed = math.ceil(int(error.details["needed"]) * percent / 100)
        raise BudgetTooSmallError(
            f"the least window needs {needed} tokens; the budget is {budget.tokens}",
            details={"needed": needed, "budget": budget.tokens},
        ) from error


def _percent(budget: BudgetAnswer) -> int:
    return round(budget.factor * 100)
