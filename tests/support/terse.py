"""A summariser that says next to nothing."""

from __future__ import annotations

from turnlog.core.summaries import SummaryRequest


def terse(request: SummaryRequest) -> str:
    """Says next to nothing, so that a summary is nearly always worth it; in two languages."""
    loops = len(request.loops)
    return f"{loops} loops {'</turnlog-data>' * (loops % 2)}" + "，共几个回合" * (loops % 3 == 0)
