"""The step `stub_tool_results`: old long results are cut to their beginnings, the newest stay."""

from __future__ import annotations

import json

import pytest

from tests.properties.building import Asked, as_bytes, stored, texts, window, window_by_cards
from tests.properties.histories import Given, Move, played
from turnlog.windows.build import Window

LONG = "the quick brown fox jumps over the lazy dog at /srv/app/main.py. " * 12
POLICY = {"steps": [{"step": "stub_tool_results", "keep_newest": 2, "over_tokens": 100}]}


def built(turns: int, policy: object = POLICY, *, result: str = LONG, fate: str = "") -> Window:
    moves = list[Move]()
    for number in range(turns):
        moves += [
            Move("user", text=f"{number}"),
            Move("calls"),
            Move("result_late_first", text=result, pick=1, fate=fate if number == 0 else ""),
            Move("assistant", text="done"),
        ]
    return window(stored(played(moves)), Asked(json.dumps(policy)))


def stubs(found: Window) -> list[int | None]:
    return [part.first for part in found.manifest.parts if part.level == "stub"]


def test_the_newest_results_stay_whole() -> None:
    result = built(4)
    assert stubs(result) == [3, 7]
    assert {part.reason for part in result.manifest.parts if part.level == "stub"} == {"stub_tool_results"}
    assert texts(result).count(LONG.strip()) == 2


def test_short_results_stay_whole() -> None:
    assert stubs(built(4, result="short")) == []


def test_pinned_results_stay_whole() -> None:
    assert stubs(built(4, fate="pinned")) == [7]


def test_none_is_kept_where_none_is_to_be_kept() -> None:
    assert stubs(built(2, {"steps": [{"step": "stub_tool_results", "keep_newest": 0}]})) == [3, 7]


def test_the_beginning_is_as_long_as_asked() -> None:
    short = {"steps": [{"step": "stub_tool_results", "keep_newest": 0, "preview_tokens": 0}]}
    assert "quick brown" not in texts(built(1, short))
    assert "[shortened; ref 2.0]" in texts(built(1, short))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [40, 99, 100, 101, 349, 350, 351, 699, 700, 701, 5_000])
def test_a_stub_is_the_same_whether_the_result_is_stored_separately_or_not(count: int, size: int) -> None:
    """Of several results in one message too, whose card has an equal part of each."""
    calls = [{"id": f"c{number}", "name": "f", "args": {}} for number in range(count)]
    results = [{"tool_call_id": f"c{number}", "result": ("ab c" * 2_000)[:size]} for number in range(count)]
    history = [
        Given({"role": "user", "content": "go"}, "turnlog"),
        Given({"role": "assistant", "content": None, "tool_calls": calls}, "turnlog"),
        Given({"role": "tool", "tool_results": results}, "turnlog"),
    ]
    step = {"step": "stub_tool_results", "keep_newest": 0, "over_tokens": 0, "preview_tokens": 1000}
    held, asked = stored(history), Asked(json.dumps({"steps": [step]}), format="turnlog")
    assert as_bytes(window(held, asked)) == as_bytes(window_by_cards(held, asked))


def test_a_digest_is_made_of_the_whole_result_all_the_same() -> None:
    both = {"steps": [*POLICY["steps"], {"step": "loops"}]}
    assert "/srv/app/main.py" in texts(built(4, both))
