"""The benchmark of summaries judges right: small conversations whose figures are known by hand, samples, and real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.replay.loading import load_transcripts, sample_of
from benchmarks.summaries.__main__ import main
from benchmarks.summaries.judging import Moment
from benchmarks.summaries.open_loops import POLICIES, long_ones
from benchmarks.summaries.open_loops import run as run_open_loops
from benchmarks.summaries.rows import Row, sum_of
from benchmarks.summaries.running import Plan, row_of, run
from benchmarks.summaries.table import as_json, limits_of, tables
from benchmarks.windows.table import markdown, plain
from tests.conftest import SAMPLES
from tests.support.chat_messages import called, result, said, user
from turnlog.cli.transcripts import Transcript, read_transcripts
from turnlog.summaries.routes import Fact, SummaryAnswer

PR_SESSIONS, PR_MESSAGES = 24, 40
LONG = "Would you please tell me all about it, and take your time. " * 12


def turn(number: int, answer: str = "{}", **arguments: Any) -> list[dict[str, Any]]:
    call_id = f"c{number}"
    return [
        user(f"{number}. {LONG}"),
        called(call_id, **arguments),
        result(call_id, answer),
        said(f"Done {number}. {LONG}"),
    ]


def talk(*turns: list[dict[str, Any]]) -> Transcript:
    return Transcript("one", "made-up", [message for turn in turns for message in turn])


def test_a_value_of_a_summarised_loop_is_kept_by_the_facts_alone() -> None:
    row = row_of(talk(turn(1, '{"order": "W5199551"}'), turn(2), turn(3, order="W5199551")), Plan(keep_loops=0))
    assert (row.sessions, row.summarised, row.made, row.loops, row.messages) == (1, 1, 2, 2, 8)
    assert row.calls == 2, "the first call has no summary before it"
    for lost in (row.identifiers, row.leaves):
        assert (lost.needed, lost.alone, lost.with_facts, lost.without_facts) == (1, 1, 0, 1)
        assert (lost.with_ratio, lost.without_ratio) == (0, 1)
    assert not row.causes
    assert 0 < row.fact_tokens < row.summary_tokens < row.source_tokens


def test_a_value_that_the_rest_of_the_window_has_is_not_lost() -> None:
    again = user(f"It is W5199551. {LONG}")
    row = row_of(talk(turn(1, '{"order": "W5199551"}'), turn(2), [again, *turn(3, order="W5199551")[1:]]), Plan(0))
    assert (row.identifiers.needed, row.identifiers.alone) == (1, 0)
    assert (row.identifiers.with_facts, row.identifiers.without_facts) == (0, 0)


def test_what_is_lost_has_a_cause() -> None:
    """A single digit is no value to the ledger; what was only said is in the text as far as that goes."""
    deep = [user(LONG * 2 + " Its colour is aubergine."), *turn(1, '{"bags": 7}')[1:]]
    row = row_of(talk(deep, turn(2), turn(3, bags=7, colour="aubergine")), Plan(keep_loops=0))
    assert (row.leaves.needed, row.leaves.with_facts) == (1, 1)
    assert row.causes == {"not extracted": 1, "only said": 1}
    crowded = json.dumps({"ids": [f"ITEM-{at:04d}" for at in range(90)]})
    row = row_of(
        talk(turn(1, crowded), turn(2, crowded.replace("ITEM", "LINE")), turn(3, one="ITEM-0001")), Plan(0, 200)
    )
    assert row.causes == {"no room": 1}


def test_a_call_that_is_made_again_word_for_word_is_counted_apart() -> None:
    row = row_of(talk(turn(1, order="W5199551"), turn(2), turn(3, order="W5199551")), Plan(keep_loops=0))
    assert (row.again.needed, row.identifiers.needed, row.leaves.needed) == (1, 0, 0)


def test_the_newest_loops_are_not_summarised_and_need_nothing() -> None:
    row = row_of(talk(turn(1, '{"order": "W5199551"}'), turn(2), turn(3, order="W5199551")), Plan(keep_loops=2))
    assert (row.made, row.summarised, row.calls, row.source_tokens) == (0, 0, 0, 0)


def test_a_window_without_its_summary_is_an_error_and_not_a_figure() -> None:
    summary = SummaryAnswer(
        position=9, first=2, last=5, first_loop=1, last_loop=1, text="told", facts=[Fact(position=3, value="A-1001")],
        tokens=5, source_tokens=50, messages=4, base=None, summariser="x", created_at="",
    )  # fmt: skip
    with pytest.raises(ValueError, match="does not have the summary"):
        Moment(summary, [user("a")], [user("b")])


def test_rows_are_sums_and_shown_beside_their_limits() -> None:
    outcome = talk(turn(1, '{"order": "W5199551"}'), turn(2), turn(3, order="W5199551"))
    rows = run(
        [outcome, replace(outcome, source="other"), Transcript("e", "empty", [])], Plan(0), say=lambda text: None
    )
    total = sum_of(rows.values())
    assert (total.sessions, total.summarised, total.identifiers.needed) == (3, 2, 2)
    shown = list(tables(rows))
    assert [table.title for table in shown] == ["2 of 3 sessions summarised", "Limits"]
    assert [row[0] for row in shown[0].rows] == ["made-up", "other", "all 3 sources"]
    assert "| other |" in markdown(shown[0]) and "100.0%" in plain(shown[0])
    assert [limit.ok for limit in limits_of(rows)] == [True, True]
    written = as_json(rows, sample=None)
    assert written["total"]["identifiers"] == {
        "needed": 2, "alone": 2, "with_facts": 0, "without_facts": 2,
        "with_ratio": 0.0, "without_ratio": 1.0, "alone_ratio": 0.0,
    }  # fmt: skip
    assert next(tables({"empty": Row(sessions=1)})).title == "0 of 1 sessions summarised"


def test_the_command_writes_everything_and_fails_over_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value, figures = tmp_path / "talk.json", tmp_path / "figures.json"
    value.write_text(
        json.dumps({"id": "t", "messages": talk(turn(1, '{"bags": 7}'), turn(2), turn(3, bags=7)).messages})
    )
    asked = [str(value), "--processes", "1", "--keep-loops", "0", "--json", str(figures), "--markdown"]
    assert main(asked) == 1, "a single digit is lost"
    assert "| leaves lost with facts | 100.0% | 5.0% | OVER |" in capsys.readouterr().out
    assert json.loads(figures.read_text(encoding="utf-8"))["total"]["causes"] == {"not extracted": 1}
    assert main([str(tmp_path / "nothing.json")]) == 2
    assert "no file" in capsys.readouterr().err


def test_the_samples_keep_what_their_calls_need() -> None:
    chosen = [
        read_transcript
        for read_transcript in read_transcripts([SAMPLES])
        if read_transcript.source in ("support-agent", "travel-agent-zh")
    ]
    rows = run(chosen, Plan(), say=lambda text: None)
    total = sum_of(rows.values())
    assert total.summarised == 2 and total.identifiers.needed > 30
    assert total.identifiers.without_ratio is not None and total.identifiers.without_ratio > 0.3
    assert all(limit.ok for limit in limits_of(rows)), limits_of(rows)


def test_real_conversations_keep_what_their_calls_need(real_data: ModuleType) -> None:
    """A fixed sample of those that call tools in many loops, their first messages, every past loop summarised."""
    chosen = [session for session in _sessions(real_data) if session.source in ("tau-bench", "tau2-bench", "x-risawoz")]
    sample = [replace(item, messages=item.messages[:PR_MESSAGES]) for item in sample_of(chosen, PR_SESSIONS)]
    total = sum_of(run(sample, Plan(keep_loops=0), say=lambda text: None).values())
    for lost in (total.identifiers, total.leaves):
        assert lost.needed > 30
        assert lost.without_ratio is not None and lost.without_ratio > 0.3
        assert lost.with_ratio is not None and lost.with_ratio <= 0.05


@pytest.mark.full
@pytest.mark.parametrize("keep_loops", [0, 2])
def test_all_real_conversations_keep_what_their_calls_need(real_data: ModuleType, keep_loops: int) -> None:
    rows = run(_sessions(real_data), Plan(keep_loops), processes=2, say=lambda text: None)
    assert all(limit.ok for limit in limits_of(rows)), limits_of(rows)


def _sessions(real_data: ModuleType) -> list[Transcript]:
    path = Path(str(real_data.__file__))
    return load_transcripts([path.parent / "dev"], path)


# ---------------------------------------------------------------- inside a loop


@pytest.mark.full
def test_one_long_loop_is_summarised_between_its_steps_and_judged_by_what_its_calls_take() -> None:
    steps = [
        body
        for number in range(60)
        for body in (called(f"c{number}", path=f"src/part_{number // 50:03d}.py"), result(f"c{number}", LONG * 2))
    ]
    long = Transcript("long", "made-up", [user("Go on until all is read."), *steps])
    short = Transcript("short", "made-up", [user("Hello"), said("Hi")])
    assert list(long_ones([long, short], 4_000)) == [long]
    figures = {name: run_open_loops([long], policy, 4_000) for name, policy in POLICIES.items()}
    assert {figure.windows for figure in figures.values()} == {60}
    assert {figure.needed for figure in figures.values()} == {58}, "each path is said by a call before"
    assert figures["summaries"].summaries >= 2 and figures["notes"].summaries == figures["stubs"].summaries == 0
    assert figures["summaries"].tokens < figures["notes"].tokens
    assert figures["summaries"].lost == 0
