"""The step `stub_tool_results`: old long results are cut to their beginnings, the newest stay."""

from __future__ import annotations

import json

from tests.properties.building import Asked, stored, texts, window
from tests.properties.histories import Move, played
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
    found = built(4)
    assert stubs(found) == [3, 7]
    assert {part.reason for part in found.manifest.parts if part.level == "stub"} == {"stub_tool_results"}
    assert texts(found).count(LONG.strip()) == 2


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


def test_a_digest_is_made_of_the_whole_result_all_the_same() -> None:
    both = {"steps": [*POLICY["steps"], {"step": "loops"}]}
    assert "/srv/app/main.py" in texts(built(4, both))
