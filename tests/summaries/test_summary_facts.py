"""Facts through the rounds of a session, on both engines: what names something is there after many results full of dates."""

from __future__ import annotations

import json
from typing import Any


def turn(number: int, answer: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"Question {number}. " + "Please look at this for me. " * 20},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(answer)},
        {"role": "assistant", "content": "Here it is, as you have asked for it. " * 20},
    ]


def test_an_id_outlasts_rounds_of_dates_and_amounts(log: Any) -> None:
    session = log.sessions.create("s")
    session.append(*turn(1, {"payment": "gift_card_7480005", "booked": "2024-05-01T09:08:54Z"}))
    for number in range(2, 9):
        times = [f"2024-05-{day:02d}T0{number}:10:{day:02d}Z" for day in range(1, 29)]
        session.append(*turn(number, {"times": times, "prices": [f"{number}{day}.99" for day in range(28)]}))
        session.compress(keep_loops=1, max_tokens=400)
    summary = session.summary()
    assert summary.last_loop == 6
    assert summary.tokens <= 400
    assert (4, "gift_card_7480005") in [(fact.position, fact.value) for fact in summary.facts]
    assert "2024-05-01T09:08:54Z" not in {fact.value for fact in summary.facts}


def test_facts_take_the_room_that_the_text_leaves(log: Any) -> None:
    """Half of the tokens are kept for them; they get more where there is more."""
    session = log.sessions.create("s")
    for number in range(1, 4):
        session.append(*turn(number, {"ids": [f"ORDER-{number}-{at:03d}" for at in range(60)]}))
    session.append({"role": "user", "content": "And now?"})
    summary = session.compress(keep_loops=0, max_tokens=1_000).summary
    assert summary.tokens <= 1_000
    assert summary.tokens >= 0.45 * summary.source_tokens or summary.tokens > 950
    result = sum(len(fact.value) for fact in summary.facts) / len(summary.text)
    assert result > 1


def test_a_summary_does_not_grow_for_its_facts_beyond_half_of_what_it_covers(log: Any) -> None:
    session = log.sessions.create("s")
    session.append(*turn(1, {"ids": [f"ORDER-{at:03d}" for at in range(40)]}))
    session.append({"role": "user", "content": "And now?"})
    summary = session.compress(keep_loops=0, max_tokens=8_000).summary
    assert len(summary.facts) == 40, "they have their share of the tokens asked for, whatever is covered"
    assert summary.tokens < summary.source_tokens
