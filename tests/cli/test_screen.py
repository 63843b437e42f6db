"""What commands print, without an engine: texts in a line, numbers, bars, listings that fit, messages and windows."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from turnlog.cli.screen import (
    Column,
    bar_of,
    counted,
    facts_table,
    format_number,
    listing,
    message_text,
    one_line,
    positions_text,
    short_time,
)
from turnlog.cli.window_tables import window_table
from turnlog.core.window_parts import EpochAnswer, PartKind, PartLevel, PrefixAnswer, WindowPart
from turnlog.sessions.context_models import BudgetAnswer, ManifestAnswer, WindowAnswer


def printed(grid: RenderableType, width: int = 200) -> list[str]:
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(grid, soft_wrap=True)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_text_in_a_line_has_its_limit_with_the_ellipsis() -> None:
    assert one_line("abcde", 5) == "abcde"
    assert one_line("abcdef", 5) == "abcd…"
    assert one_line(" a\n\tb\x1b ", 9) == r"a b\u001b"


def test_counts_numbers_times_and_positions() -> None:
    assert [counted(count, "try", "tries") for count in (0, 1, 1_200)] == ["0 tries", "1 try", "1,200 tries"]
    assert counted(2, "job") == "2 jobs"
    assert [format_number(number) for number in (None, 0, 12_345)] == ["–", "0", "12,345"]
    assert short_time("2026-01-31T12:34:56.789Z") == "2026-01-31 12:34"
    ranges = [(None, 3), (3, None), (3, 3), (3, 5)]
    assert [positions_text(first, last) for first, last in ranges] == ["", "3", "3", "3–5"]


@pytest.mark.parametrize(
    ("value", "largest", "bar"),
    [
        (0, 8, ""),
        (-1, 8, ""),
        (1, 0, ""),
        (1, 10**6, "▏"),
        (1, 16, "▎"),
        (7, 8, "███▌"),
        (8, 8, "████"),
        (9, 8, "████"),
    ],
)
def test_a_bar_is_drawn_in_eighths_and_any_value_is_seen(value: int, largest: int, bar: str) -> None:
    assert bar_of(value, largest, 4) == bar


LISTED = [
    Column("id", lambda item: item["id"]),
    Column("tokens", lambda item: item["tokens"], "right", rank=2),
    Column("title", lambda item: item["title"], rank=1, is_text=True),
]
ITEMS = [
    {"id": "first-session", "tokens": 1_200, "title": "An order that is late"},
    {"id": "s", "tokens": None, "title": ""},
]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (44, ["id             tokens  title", "first-session   1,200  An order that is late", "s                   –"]),
        (43, ["id             tokens  title", "first-session   1,200  An order that is la…", "s                   –"]),
        (35, ["id             tokens  title", "first-session   1,200  An order th…", "s                   –"]),
        (34, ["id             title", "first-session  An order that is l…", "s"]),
        (27, ["id             title", "first-session  An order th…", "s"]),
        (21, ["id             tokens", "first-session   1,200", "s                   –"]),
        (20, ["id", "first-session", "s"]),
        (5, ["id", "first-session", "s"]),
    ],
)
def test_a_listing_cuts_texts_then_leaves_out_columns_and_never_an_id(width: int, lines: list[str]) -> None:
    assert printed(listing(LISTED, ITEMS, width), width) == lines


def test_facts_have_no_heading_and_a_line_each() -> None:
    assert printed(facts_table({"session": "s", "error": "a\nb"})) == ["session  s", "error    a b"]


CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ({"role": "user", "content": "a\nb", "name": "ada"}, ["2  user (ada)", "  a", "  b"]),
        ({"role": "user", "content": "x" * 600}, ["2  user", "  " + "x" * 600]),
        ({"role": "user", "content": "x" * 601}, ["2  user", "  " + "x" * 600 + " … [1 more characters]"]),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, ["2  assistant", '  → find({"q": 1})']),
        ({"role": "tool", "tool_call_id": "c", "content": "ok"}, ["2  tool", "  ← ok"]),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]},
            ["2  user", "  [1 part without text]"],
        ),
        ({"role": "user", "content": 7}, ['2  {"role": "user", "content": 7}']),
    ],
)
def test_a_message_is_its_role_text_calls_and_results(body: dict[str, Any], lines: list[str]) -> None:
    assert message_text(body, heading="2").plain == "\n".join([*lines, ""])


def test_a_message_in_full_is_not_cut() -> None:
    assert message_text({"role": "user", "content": "x" * 601}, heading="2", is_full=True).plain.endswith(
        "x" * 601 + "\n"
    )


def part(
    kind: PartKind,
    loop: int | None,
    places: tuple[int, int] | None,
    level: PartLevel,
    tokens: int,
    reason: str | None = None,
) -> WindowPart:
    first, last = places or (None, None)
    return WindowPart(kind, loop, first, last, level, tokens, reason, ())


PARTS = [
    part("system", None, None, "whole", 100),
    part("message", None, (2, 2), "whole", 50),
    part("older", 3, (3, 20), "out", 0),
    part("loop", 4, (21, 30), "out", 0, "budget"),
    part("message", 4, (25, 25), "out", 0, "budget"),
    part("loop", 5, (31, 40), "out", 0, "budget"),
    part("loop", 6, (41, 60), "digest", 200, "high_mark"),
    part("loop", 7, (61, 80), "whole", 400),
    part("message", 7, (62, 62), "whole", 90),
    part("message", 7, (63, 63), "out", 0, "orphan_result"),
    part("block", 7, (64, 64), "out", 0, "audio"),
    part("block", 7, (65, 65), "out", 0, "audio"),
]


def table_of(prefix: PrefixAnswer, *, factor: float = 1.0) -> list[str]:
    manifest = ManifestAnswer(
        position=80,
        budget=BudgetAnswer(tokens=1_000, source="given", factor=factor),
        parts=PARTS,
        recalled=[],
        totals={},
        breakpoints=[],
        epoch=EpochAnswer(id="abcdefghijkl", since=3),
    )
    window = WindowAnswer(
        messages=[{}, {}],
        system=None,
        tools=[{}],
        requires_tool_config=False,
        tool_names=[],
        open_calls=[],
        tokens=750,
        prefix=prefix,
        manifest=manifest,
        head=80,
        summary_stale=False,
    )
    return printed(window_table(window), 150)


def test_a_window_is_a_row_for_each_part_and_a_bar_of_its_budget() -> None:
    lines = table_of(PrefixAnswer(stable_tokens=500, broke_at=12, reason="stub"), factor=1.2)
    rows = [re.split(r" {2,}", line) for line in lines]
    bar = "█" * 40
    assert rows[:11] == [
        ["part", "positions", "level", "tokens", "why"],
        ["system", "whole", "█" * 10, "100"],
        ["before loop 1", "2", "whole", "█" * 5, "50"],
        ["to loop 3", "3–20", "out", "0"],
        ["loops 4–5", "21–40", "out", "0", "budget"],
        ["loop 6", "41–60", "digest", "█" * 20, "200", "high_mark"],
        ["border", "before 61", "─" * 40],
        ["loop 7", "61–80", "whole", bar, "400", "1 message out"],
        ["1 message", "out", "0", "orphan_result"],
        ["blocks in 2 messages", "out", "0", "audio"],
        [""],
    ]
    assert lines[11:15] == [
        "█" * 65 + "░" * 7 + "  750 of 1,000 tokens (90%, budget given, counted x 1.2 by the provider)",
        "▔" * 43 + " 500 tokens unchanged since the last call; broken at 12: stub",
        "2 messages, 1 tool, head 80",
        "epoch abcdefgh since 3, border before 61",
    ]


def test_a_window_says_what_it_shares_with_the_call_before() -> None:
    whole = table_of(PrefixAnswer(stable_tokens=750, broke_at=None, reason=None))
    assert whole[11:13] == [
        "█" * 54 + "░" * 18 + "  750 of 1,000 tokens (75%, budget given)",
        "▔" * 54 + " 750 tokens unchanged since the last call",
    ]
    assert table_of(PrefixAnswer(stable_tokens=0, broke_at=None, reason="first"))[12] == "no call before"
    tools = table_of(PrefixAnswer(stable_tokens=0, broke_at="tools", reason="tools"))
    assert tools[12] == "0 tokens unchanged since the last call; broken at tools: tools"
