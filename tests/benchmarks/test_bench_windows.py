"""The benchmark of windows judges right: small conversations whose figures are known by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.windows.__main__ import main
from benchmarks.windows.baselines import baseline_of
from benchmarks.windows.caching import cost, shared_messages
from benchmarks.windows.chart import chart
from benchmarks.windows.histories import History, loops_of
from benchmarks.windows.judging import Moment
from benchmarks.windows.limits import limits_of
from benchmarks.windows.rows import Row
from benchmarks.windows.running import Cell, Plan, rows_of, run
from benchmarks.windows.table import as_json, markdown, plain, tables
from benchmarks.windows.values import identifiers_of, leaves_of, stands
from tests.support.chat_messages import called, result, said, user
from turnlog.cli.transcripts import Transcript, read_transcripts

SAMPLES = Path(__file__).parent.parent.parent / "examples" / "conversations"


def history(*messages: dict[str, Any], system: str | None = None) -> History:
    return History(Transcript("one", "made-up", list(messages), system))


REFUND = (
    user("What is in order W5199551? The blue one."),
    called("c1", order="W5199551"),
    result("c1", '{"items": ["mug"], "total": 54.04, "path": "a\\nb"}'),
    said("A mug."),
    user("Refund it."),
    called("c2", order="W5199551", amount=54.04, colour="blue", new="4711-X"),
    result("c2", "done"),
    said("Refunded."),
)


def row_of(*messages: dict[str, Any], policy: str, budget: int | None = None, system: str | None = None) -> Row:
    transcript = Transcript("one", "made-up", list(messages), system)
    return rows_of(transcript, Plan((policy,), (budget,)))[Cell("made-up", policy, budget)]


# ------------------------------------------------------------ values


def test_identifiers_are_tokens_with_a_digit_addresses_and_paths() -> None:
    text = "see #W-51995 (ada@mail.example.org), src/app.py ~/notes and/or v1.2 10:30 订单88231号 hello x=token9"
    assert identifiers_of(json.dumps({"what": text, "n": 123456, "deep": [{"k1234": True}]})) == [
        "W-51995",
        "ada@mail.example.org",
        "src/app.py",
        "~/notes",
        "88231",
        "token9",
        "123456",
    ]
    assert identifiers_of("not JSON: A1234") == ["A1234"]


def test_leaves_are_strings_and_numbers_as_written() -> None:
    assert leaves_of('{"a": 1.50, "b": ["x", {"c": 7}], "d": true, "e": null, "f": " ", "g": "x"}') == [
        "1.50",
        "x",
        "7",
    ]
    assert leaves_of({"a": 2}) == ["2"]
    assert leaves_of("{broken") == leaves_of(None) == []


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("A1234", "order #A1234.", True),
        ("A1234", "order BA1234", False),
        ("A1234", "A12345 and A1234", True),
        ("5", "5.99", False),
        ("5", "it is 5.", True),
        ("99", "5.99", False),
        ("北京", "我想去北京玩", True),
        ("a\nb", '{"x": "a\\nb"}', True),
        ("W5199", '{"x": "first\\nW5199"}', True),
        ('say "hi"', '{"x": "say \\"hi\\""}', True),
        ("é", '{"x": "\\u00e9"}', True),
        ("/etc/app", "open /etc/app/main.conf", True),
    ],
)
def test_a_value_stands_where_it_is_a_whole_word(value: str, text: str, expected: bool) -> None:
    assert stands(value, text) is expected


def test_what_a_call_needs() -> None:
    moment = Moment(history(*REFUND, system="Colours: green"), 5)
    (need,) = moment.needs
    assert need.identifiers == ("W5199551", "54.04")
    assert need.leaves == ("W5199551", "54.04", "blue")  # 4711-X is new


def test_identifiers_must_have_been_said_and_leaves_may_stand_anywhere() -> None:
    moment = Moment(history(user("Go."), called("c1", id="A-1001"), system="Use A-1001."), 1)
    assert (moment.identifiers_needed, moment.leaves_needed, moment.either_needed) == (0, 1, 1)


def test_leaves_that_only_the_model_wrote_are_told_apart() -> None:
    again = (user("Go."), called("c1", q="my words"), result("c1", "none"), user("And?"), called("c2", q="my words"))
    row = row_of(*again, policy="last-1")
    assert (row.leaves_needed, row.leaves_lost, row.said_needed, row.said_lost) == (1, 1, 0, 0)
    said_row = row_of(*REFUND, policy="last-1")
    assert (said_row.said_needed, said_row.said_lost) == (2, 1)


# ------------------------------------------------------------ windows judged


def test_full_history_loses_nothing() -> None:
    row = row_of(*REFUND, policy="full-history")
    assert (row.calls, row.windows, row.tool_calls) == (4, 4, 2)
    assert (row.identifiers_needed, row.leaves_needed, row.either_needed) == (2, 2, 2)
    assert (row.identifiers_lost, row.leaves_lost, row.either_lost, row.invalid, row.without_task) == (0, 0, 0, 0, 0)
    assert row.token_ratio == row.cost_ratio == 1


def test_the_last_message_loses_values_task_and_pairs() -> None:
    row = row_of(*REFUND, policy="last-1")
    # Before each reply: the question, an orphan result, the second question without the order, an orphan result.
    assert (row.windows, row.invalid, row.cut_invalid, row.without_task) == (4, 2, 2, 2)
    assert (row.identifiers_lost, row.leaves_lost) == (1, 1)


def test_user_and_reply_lose_what_only_a_result_said() -> None:
    window = baseline_of("user+reply")(history(*REFUND), 5, None)  # type: ignore[misc]
    assert window == [0, 3, 4]
    row = row_of(*REFUND, policy="user+reply")
    assert (row.invalid, row.without_task, row.identifiers_lost, row.leaves_lost) == (0, 0, 1, 1)


def test_disorder_of_the_history_is_told_from_that_of_the_cut() -> None:
    disorder = (user("a"), result("nowhere", "b"), said("c"))
    full, own = (row_of(*disorder, policy=policy) for policy in ("full-history", "full"))
    assert (full.invalid, full.cut_invalid, own.invalid) == (1, 0, 0)


def test_a_single_character_is_counted_apart() -> None:
    row = row_of(user("Two bags, 2."), said("Yes."), user("Book."), called("c1", bags=2), policy="last-1")
    assert (row.leaves_needed, row.leaves_lost, row.identifiers_needed, row.only_short_lost) == (1, 1, 0, 1)


def test_presets_keep_rules_task_and_budget() -> None:
    for policy in ("default", "run_loops", "turns", "tokens", "buffer", "full", "turns(1)"):
        row = row_of(*REFUND, policy=policy, system="You are kind.")
        assert (row.windows, row.invalid, row.without_task, row.over_budget) == (4, 0, 0, 0), policy
        assert len(row.build_ms) == 4
    least = row_of(*REFUND, policy="full", budget=12)
    assert (least.windows, least.too_small, least.tool_calls, least.token_ratio) == (0, 4, 0, None)


def test_what_is_over_the_budget_is_counted() -> None:
    row = row_of(*REFUND, policy="full-history", budget=40)
    sizes = history(*REFUND).sizes
    assert row.over_budget == sum(3 + sum(sizes[:upto]) > 40 for upto in (1, 3, 5, 7)) > 0


def test_last_tokens_drop_from_the_front_and_may_keep_the_system() -> None:
    outcome = history(*REFUND, system="You are kind.")
    budget = 3 + sum(outcome.sizes[2:5])
    assert baseline_of("last-tokens")(outcome, 5, budget) == [2, 3, 4]  # type: ignore[misc]
    assert baseline_of("last-tokens")(outcome, 5, budget - 1) == [3, 4]  # type: ignore[misc]
    kept = baseline_of("last-tokens+system")(outcome, 5, budget)  # type: ignore[misc]
    assert kept is not None
    assert kept[0] == outcome.system
    assert baseline_of("last-tokens")(outcome, 5, 3) is None  # type: ignore[misc]
    assert baseline_of("last-2+system")(outcome, 5, None) == [outcome.system, 3, 4]  # type: ignore[misc]


def test_the_task_is_what_was_asked_before_the_first_answer() -> None:
    outcome = history(said("Hello."), user("a"), user("b"), said("c"), user("d"))
    assert [outcome.task(upto) for upto in range(1, 6)] == [[], ["a"], ["a", "b"], ["a", "b"], ["d"]]
    assert Moment(history(user("a"), user("b"), said("c")), 2).judge([1]).has_lost_task


def test_loops_are_divided_as_at_append() -> None:
    for transcript in read_transcripts([SAMPLES]):
        outcome = History(transcript)
        assert loops_of(outcome.bodies) == [source.loop for source in outcome.sources], transcript.id


# ------------------------------------------------------------ the prompt cache


def test_cost_by_hand() -> None:
    assert cost([500, 500], None) == 1_000  # too small for the cache
    assert cost([1_000, 1_000], None) == 2_500  # all written
    assert cost([1_000, 1_000, 400], 2) == 2_000 * 0.1 + 400 * 1.25
    assert cost([1_000, 1_000, 400], 1) == 2_400 * 1.25  # the common prefix is too small to be read
    assert cost([900, 100], 1, before=200) == 1_100 * 0.1 + 100 * 1.25
    assert cost([1_100], 1, behind=3) == pytest.approx(110 + 3.75)
    assert shared_messages([1, 2, 3], [1, 2, 4, 5]) == 2
    assert shared_messages([1, 2], [1, 2, 3]) == 2


def test_cost_of_a_session_by_hand() -> None:
    long = "word " * 1_200
    messages = (user(long), said("One."), user("Two?"), said("Three."))
    outcome = history(*messages)
    first, reply, second, _ = outcome.sizes
    full = row_of(*messages, policy="full-history")
    expected = (first + 3) * 1.25 + first * 0.1 + (reply + second + 3) * 1.25
    assert full.fitting_cost == full.fitting_full_cost == pytest.approx(expected)
    assert full.beyond_cost == 0
    last = row_of(*messages, policy="last-1", budget=100)
    # The second window begins otherwise, and it is too small for the cache.
    assert last.beyond_cost == pytest.approx((first + 3) * 1.25 + second + 3)
    assert (last.over_budget, last.fitting_cost) == (1, 0)


def test_a_window_is_compared_by_its_bytes() -> None:
    outcome = history(user("a"), said("b"), user("a"))
    assert outcome.numbers == [0, 1, 0]
    assert outcome.messages.number({"content": "a", "role": "user"}) == 0


# ------------------------------------------------------------ the whole


def test_rows_are_sums_by_source_and_show_their_limits() -> None:
    transcripts = [Transcript("a", "x", list(REFUND)), Transcript("b", "y", list(REFUND)), Transcript("c", "y", [])]
    plan = Plan(("default", "run_loops", "user+reply", "last-1"), (None, 60))
    rows = run(transcripts, plan, say=lambda text: None)
    assert rows[Cell("y", "last-1", None)].sessions == 2
    assert rows[Cell("y", "last-1", None)].calls == 4
    shown = list(tables(rows))
    assert [table.title.split(":")[0] for table in shown] == [
        "x, no budget",
        "x, 60",
        "y, no budget",
        "y, 60",
        "all 2 sources, no budget",
        "all 2 sources, 60",
        "Breaks of what the call before was sent",
        "Limits",
    ]
    assert all("last-1" in plain(table) and "| last-1 |" in markdown(table) for table in shown[:-2])
    limits = {limit.what: limit for limit in limits_of(rows)}
    assert limits["invalid windows of all policies"].ok
    assert limits["default, no budget: cost where it fits"].measured == 1


def test_the_picture_labels_every_policy_and_no_label_covers_another() -> None:
    names = ("default", "full", "run_loops", "buffer", "full-history", "last-20", "last-tokens", "user+reply")
    rows = {
        Cell("x", name, budget): Row(
            sessions=1, calls=10, too_small=at % 2, fitting_cost=100 + at // 2 * 3, fitting_full_cost=100,
            either_needed=100, either_lost=at // 2, cut_invalid=at % 3,
        )
        for at, name in enumerate(names)
        for budget in (None, 8_000)
    }  # fmt: skip
    drawn = chart(rows)
    root = ElementTree.fromstring(drawn)  # noqa: S314 - our own
    labels = [item for item in root.iter("{http://www.w3.org/2000/svg}text") if item.get("class") == "t c"]
    outcome = " ".join(label.text or "" for label in labels)
    assert all(len(re.findall(rf"(?<![\w-]){re.escape(name)}(?![\w+-])", outcome)) == 2 for name in names)
    boxes = [(float(label.get("x", 0)), float(label.get("y", 0)), len(label.text or "") * 6.6) for label in labels]
    for at, (x, y, width) in enumerate(boxes):
        assert 0 <= x <= x + width <= 880
        assert not any(abs(y - other_y) < 11 and x < other_x + other and other_x < x + width
                       for other_x, other_y, other in boxes[:at])  # fmt: skip
    assert "prefers-color-scheme: dark" in drawn


@pytest.mark.full
def test_breaks_are_counted_as_bytes_and_turnlog_says_why_of_each() -> None:
    transcripts = read_transcripts([SAMPLES / "support-agent.json"])
    names = ("default", "run_loops", "turns(2)", "buffer", "last-20")
    rows = run(transcripts, Plan(names, (None, 8_000)), say=lambda text: None)
    for cell, row in rows.items():
        outcome = row.broken if cell.policy != "last-20" else 0
        assert sum(row.breaks.values()) == outcome, cell
    (digests,) = (row for cell, row in rows.items() if cell[1:] == ("run_loops", None))
    assert digests.breaks["past_loop"] > 0
    (table,) = (table for table in tables(rows) if table.title.startswith("Breaks"))
    assert "past_loop" in table.heads
    assert sum(total["breaks"].get("past_loop", 0) for total in as_json(rows)["totals"]) > 0


def test_the_command_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = tmp_path / "talk.json"
    outcome.write_text(json.dumps({"id": "t", "messages": list(REFUND)}), encoding="utf-8")
    figures, picture, policy = tmp_path / "f.json", tmp_path / "p.svg", tmp_path / "newest.json"
    policy.write_text('{"steps": [{"step": "turns", "n": 0}]}', encoding="utf-8")
    asked = [
        str(outcome),
        "--policy",
        "default",
        str(policy),
        "last-1",
        "--budget",
        "none",
        "8,000",
        "--processes",
        "1",
    ]
    assert main([*asked, "--json", str(figures), "--svg", str(picture), "--markdown"]) == 0
    assert "| last-1 | 4 |" in capsys.readouterr().out
    written = json.loads(figures.read_text(encoding="utf-8"))
    assert [(total["policy"], total["budget"]) for total in written["totals"]][::2] == [
        ("default", None),
        ("last-1", None),
        (str(policy), 8_000),
    ]
    assert written["totals"][2]["identifiers_lost"] == 1
    ElementTree.parse(picture)  # noqa: S314 - our own
    assert main([str(outcome), "--policy", "newest"]) == 2
    assert "is not one of" in capsys.readouterr().err
