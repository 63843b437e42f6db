"""What a session has grown by since its summary in force, from the newest header alone: what triggers are asked about."""

from __future__ import annotations

from turnlog.log.headers import Header
from turnlog.windows.triggers import Counted, Totals


def totals_since_summary(header: Header) -> Totals:
    """The totals at a header. Messages before the first loop count as everything, never as past."""
    flow, summary = header.flow, header.summary
    past_loops = max(0, flow.loop.number - 1)
    if summary is None:
        return Totals(
            Counted(past_loops, flow.messages, flow.tokens),
            Counted(past_loops, flow.closed.messages, flow.closed.tokens),
        )
    # A summary covers from the beginning on: messages before the first loop are among what it covers.
    closed_messages, closed_tokens = flow.lead.messages + flow.closed.messages, flow.lead.tokens + flow.closed.tokens
    loops = past_loops - summary.loop
    return Totals(
        Counted(loops, flow.messages - summary.messages, flow.tokens - summary.tokens),
        Counted(loops, max(0, closed_messages - summary.messages), max(0, closed_tokens - summary.tokens)),
    )
