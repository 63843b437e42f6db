"""How much a window may have beside what a framework itself sends."""

from __future__ import annotations

from typing import Any

from turnlog.domain.session import DEFAULT_OUTPUT_RESERVE
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.build import system_cost


def room(*, budget: int | None, reserve: int | None, system: str, limit: int | None) -> dict[str, Any]:
    """Arguments of `Session.context`: the budget, or what the model's ``limit`` leaves beside the reserve for its output, without
    the framework's own system text; where neither is known, a reserve that has the text in it."""
    own = system_cost(upper_bound_tokens(system)) if system else 0
    kept = DEFAULT_OUTPUT_RESERVE if reserve is None else reserve
    if budget is not None:
        return {"budget": max(1, budget - own)}
    return {"budget": max(1, limit - kept - own)} if limit else {"output_reserve": kept + own}
