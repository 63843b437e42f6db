"""The benchmark of one process: what it measures of Turnlog, its growth and its picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peers import embedded, served
from benchmarks.peers.embedded import TURNLOG, Measure
from benchmarks.peers.embedded_chart import chart
from benchmarks.peers.table import markdown

MEASURES = [
    Measure(what, "ms", system, {10: 1.0, 1_000: 2.0, 100_000: 200.0}, goal)
    for what in ("append", "window of 8,000 tokens", "next search")
    for system, goal in ((TURNLOG, "at most 5"), ("a peer", ""))
]


def test_the_table_has_growth_and_goals_beside_the_values() -> None:
    assert MEASURES[0].exponent == pytest.approx(1.0)
    assert Measure("append", "ms", TURNLOG, {10: 1.0, 1_000: 2.0}).exponent is None
    shown = markdown(embedded.table(MEASURES))
    assert "| append, ms | Turnlog | 1 | 2 | 200 | 1.00 | at most 5 |" in shown


def test_the_picture_has_a_line_for_each_system_and_says_its_values() -> None:
    picture = ElementTree.fromstring(chart(MEASURES))  # noqa: S314 - our own picture
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    assert tags.count("polyline") == 6
    assert "append, Turnlog: 1 ms at 10, 2 ms at 1,000, 200 ms at 100,000" in chart(MEASURES)


def test_turnlog_is_measured_at_each_size(tmp_path: Path) -> None:
    lines = list(embedded.measures_of_turnlog(tmp_path, 10))
    assert [what for what, *_ in lines] == [
        "append",
        "window of 8,000 tokens",
        "first search, nothing sealed",
        "first search",
        "next search",
        "window that recalls, first of a loop",
    ]
    assert all(value > 0 for *_, value, _goal in lines)
    assert embedded.file_of_turnlog(2) > 0


@pytest.mark.network
def test_both_servers_answer_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_SECONDS", 0.5)
    monkeypatch.setattr(served, "_RUNS", 1)
    (_, appends, windows, _), (_, inserts, _, _) = served.table().rows
    assert all(float(rate.replace(",", "")) > 0 for rate in (appends, windows, inserts))
