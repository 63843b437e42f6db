"""Budgets are in the provider's tokens; windows are counted in ours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from turnlog.contracts.builds import BudgetAnswer
from turnlog.domain.errors import BudgetTooSmallError
from turnlog.windows.models import Budget


def effective(budget: BudgetAnswer) -> Budget:
    """The budget in our tokens: never more than the provider would count as the budget."""
    return Budget(max(1, budget.tokens * 100 // _percent(budget)), budget.source)


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
