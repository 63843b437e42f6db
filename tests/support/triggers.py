"""Sessions whose policy asks for a summary, and what a summariser says."""

from __future__ import annotations

from typing import Any

from tests.support.scripted import Outcome, ScriptedSummariser, summarise_with
from tests.support.talks import turn
from turnlog.client.model import Session

POLICY = {
    "steps": [{"step": "summary"}, {"step": "loops", "max": 3}],
    "compress": {"any": [{"loops_over": 3}]},
}


def asks(session: Session, turns: int, *, first: int = 1) -> list[int]:
    """Appends turns, a message each time; the numbers of the turns in which one of them asked."""
    return [
        number
        for number in range(first, first + turns)
        for message in turn(number)
        if session.append(message).compression == "queued"
    ]


def script(harness: Any, *outcomes: Outcome) -> ScriptedSummariser:
    summariser = ScriptedSummariser(outcomes)
    summarise_with(harness.app, summariser)
    return summariser
