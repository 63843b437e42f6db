"""Summaries that a log holds."""

from __future__ import annotations

from typing import Any

from turnlog.core.events import SummaryEvent
from turnlog.core.identity import Owner
from turnlog.log.keys import SessionKeys


def summaries(harness: Any) -> list[SummaryEvent]:
    log, keys = harness.app.log, SessionKeys(Owner.of("acme", "ada"), "s")
    events = log.commits.events(keys, log.commits.range(keys, 1, log.commits.tail(keys).header.last))
    return [event for event in events if isinstance(event, SummaryEvent)]
