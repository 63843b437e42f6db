"""The load benchmark in its smallest form: nothing is lost, and its checker sees it when something is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.load.chart import chart
from benchmarks.load.checking import OTHER, Checked, Reading, check
from benchmarks.load.clients import id_of, message
from benchmarks.load.direct import Direct, Share, append_share
from benchmarks.load.endurance import Endurance, run_endurance
from benchmarks.load.grid import Cell, cell, grid
from benchmarks.load.processes import Held, held
from benchmarks.load.recording import Records, quantiles
from benchmarks.load.running import Outcome, all_of, run_cell
from benchmarks.load.table import Report, as_json, tables
from benchmarks.windows.table import plain
from turnlog import Turnlog

SMALLEST = Cell(sessions=1, writers=2, readers=1, appends=10, reads=4)


@pytest.mark.network
@pytest.mark.parametrize("engine", ["embedded", pytest.param("moto", marks=pytest.mark.full)])
def test_a1_a_load_loses_nothing_and_a_loss_would_be_seen(engine: str) -> None:
    """A server of its own; the clients are threads of this process."""
    outcome = run_cell(engine, SMALLEST, processes=0)
    assert outcome.checked == Checked()
    assert not outcome.records.errors
    assert outcome.errors == 0
    assert outcome.ok
    acknowledged = sorted(outcome.records.acknowledged["s0"], key=lambda item: item[1])
    assert len(acknowledged) == 2 * 10
    assert len(outcome.readings) == (3 if engine == "embedded" else 2)
    for reading in outcome.readings:
        assert [(name, at) for at, name in reading["s0"]] == acknowledged
    seconds = outcome.records.seconds
    assert len(seconds["append"]) + len(seconds["append, if_head"]) == 20
    assert outcome.records.counts["requests"] >= 20 + 4
    assert all(item.rss_bytes > 0 for item in outcome.held)

    whole = list(outcome.readings[0]["s0"])
    assert check(outcome.records, outcome.sent, [{"s0": whole}]).is_clean
    assert check(outcome.records, outcome.sent, [{"s0": whole[:-1]}]).lost == 1
    without = check(outcome.records, outcome.sent, [{"s0": whole[:5] + whole[6:]}])
    assert without.lost == 1
    assert not replace(outcome, checked=without).ok


MESSAGES = [(2, "s/0/0"), (3, "s/1/0"), (4, "s/0/1")]
SENT = {"s": {"s/0/0", "s/1/0", "s/0/1", "s/1/1"}}


def _checked(*readings: list[tuple[int, str]], seen: tuple[tuple[int, str], ...] = ()) -> Checked:
    records = Records()
    records.acknowledged["s"] = [(name, position) for position, name in MESSAGES]
    records.seen["s"] = set(seen)
    read: list[Reading] = [{"s": reading} for reading in readings]
    return check(records, SENT, read)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (MESSAGES, Checked()),
        ([*MESSAGES, (5, "s/1/1")], Checked()),  # it had no answer, and may be there
        (MESSAGES[:2], Checked(lost=1)),
        ([], Checked(lost=3)),
        ([MESSAGES[0], (3, "s/0/1"), (4, "s/1/0")], Checked(moved=2)),
        ([*MESSAGES, (5, "s/1/0")], Checked(twice=1, moved=1)),
        ([*MESSAGES, (5, "s/1/1"), (6, "s/1/1")], Checked(twice=1)),
        ([*MESSAGES, (5, "other")], Checked(strange=1)),
        ([*MESSAGES, (6, "s/1/1")], Checked(gaps=1)),
        ([*MESSAGES, (5, OTHER), (6, "s/1/1")], Checked()),  # a summary
        ([*MESSAGES[:2], (4, OTHER)], Checked(lost=1)),
        ([MESSAGES[1], MESSAGES[0], MESSAGES[2]], Checked(gaps=2)),
    ],
)
def test_the_checker_counts_each_kind_of_damage(reading: list[tuple[int, str]], expected: Checked) -> None:
    assert _checked(reading) == expected


def test_the_checker_compares_readers() -> None:
    late = [*MESSAGES, (5, "s/1/1")]
    assert _checked(MESSAGES, MESSAGES) == Checked()
    assert _checked(MESSAGES, late).differing == 1
    assert _checked(MESSAGES, seen=((3, "s/1/0"),)) == Checked()
    assert _checked(MESSAGES, seen=((3, "s/0/1"),)).differing == 1
    assert check(Records(), {}, [{"s": MESSAGES}]).strange == 3  # a session that nobody wrote


def test_what_is_no_message_is_known_by_the_history() -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        for at in range(3):
            session.append(message(f"s/0/{at}", at))
            session.record("noted")
        session.append(message("s/0/3", 3))
        expected = [(2, "s/0/0"), (3, OTHER), (4, "s/0/1"), (5, OTHER), (6, "s/0/2"), (7, OTHER), (8, "s/0/3")]
        assert all_of(log, "s") == all_of(log, "s", "desc") == expected


def test_a_message_carries_its_id() -> None:
    assert {id_of(message(f"s0/1/{at}", at)) for at in range(40)} == {f"s0/1/{at}" for at in range(40)}
    assert id_of({"content": None}) == id_of("text") == ""


def test_quantiles_are_measured_values() -> None:
    assert quantiles([]) == ()
    assert quantiles([3.0]) == (3.0,) * 4
    assert quantiles([float(number) for number in range(1, 101)]) == (50, 90, 99, 100)


def test_every_cell_is_bounded() -> None:
    for engine in ("embedded", "moto"):
        for value in [*grid(engine), *grid(engine, quick=True)]:
            assert value.appends >= 2
            assert (value.reads >= 2) == (value.readers > 0)
            assert value.sessions * (value.writers * value.appends + value.readers * value.reads) < 10_000
    assert max(item.clients for item in grid("embedded")) > 100, "more than one server took once"
    assert any(item.servers == 2 for item in grid("embedded"))
    assert cell(8, 4, 4, appends=640).name == "8 x 4 x 4"


def test_one_process_on_a_file_tells_what_it_has_done(tmp_path: Path) -> None:
    share = Share(str(tmp_path / "turnlog.db"), "s", 0, 5)
    with Turnlog.open(f"sqlite:///{share.file}", tenant="load", user="me") as log:
        log.sessions.create("s")
    records = append_share(share)
    assert [position for _, position in records.acknowledged["s"]] == [2, 3, 4, 5, 6]
    assert len(records.seconds["append"]) == 5
    # The record of the key, and the commit.
    assert len(records.seconds["lock"]) == len(records.seconds["commit"]) == 10
    assert not records.errors and not records.counts["lost slots"]


@pytest.mark.full
@pytest.mark.network
def test_a_long_run_is_sampled() -> None:
    run = run_endurance("embedded", 40)
    assert run.errors == 0
    assert [at for at, _ in run.samples] == [0, 20, 40]
    assert run.is_flat is None, "too short to tell"


def _grown(sizes: list[int], files: list[int]) -> Endurance:
    pairs = zip(sizes, files, strict=True)
    samples = [(at * 1_000, Held(size, count)) for at, (size, count) in enumerate(pairs)]
    return Endurance("embedded", samples[-1][0], samples, 0)


def test_growth_and_files_that_stay_open_are_told() -> None:
    mb = 2**20
    flat = [100 * mb, 140 * mb, 141 * mb, 140 * mb, 141 * mb, 140 * mb, 141 * mb]
    assert _grown(flat, [20] * 7).is_flat is True
    leak = [100 * mb + at * mb for at in range(7)]
    assert _grown(leak, [20] * 7).is_flat is False
    assert _grown(leak, [20] * 7).slope == pytest.approx(mb)
    assert _grown(flat, [20, 20, 20, 20, 22, 24, 26]).is_flat is False


def test_what_a_process_holds() -> None:
    import os

    assert held(os.getpid()).rss_bytes > 2**20
    with pytest.raises(ProcessLookupError):
        held(2**22 + 1)


def _report() -> Report:
    records = Records()
    records.seconds["append"] = [0.001, 0.002, 0.5]
    records.counts.update({"requests": 3, "409": 1})
    records.acknowledged["s"] = [(name, position) for position, name in MESSAGES]
    records.begun, records.ended = 10.0, 12.0
    result = Outcome("moto", SMALLEST, records.plain(), Checked(), [Held(2**20, 7)] * 5, [], {})
    times = (0.001, 0.002, 0.003, 0.004)
    directs = [
        Direct(count, same, 10, seconds, 0, 0, 0, times, times, times, Checked())
        for same in (False, True)
        for count, seconds in ((1, 1.0), (2, 0.5))
    ]
    return Report([result], directs, [_grown([100 * 2**20] * 5, [20] * 5)])


def test_the_report_as_tables_json_and_picture() -> None:
    report = _report()
    assert report.ok
    shown = "\n".join(map(plain, tables(report)))
    assert "turnlog serve, moto" in shown
    assert "2.00" in shown, "two processes took half of the time"
    content = json.loads(json.dumps(as_json(report, quick=True)))
    assert content["ok"] is True
    assert content["cells"][0]["quantiles"]["append"] == {"50": 0.002, "90": 0.5, "99": 0.5, "100": 0.5}
    assert content["endurance"][0]["is_flat"] is True
    drawn = chart(content)
    ElementTree.fromstring(drawn)  # noqa: S314 - our own
    assert drawn.count("<polyline") == 1
    assert chart(as_json(Report([], [], []))).startswith("<svg")
    lost = replace(report.outcomes[0], checked=Checked(lost=1))
    assert not Report([lost], [], []).ok
