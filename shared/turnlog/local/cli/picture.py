"""A window as a picture: a bar per part, coloured by level, and all of it against the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from turnlog.contracts.context import Part, WindowAnswer
from turnlog.local.cli.screen import number, table

STYLES = {"whole": "green", "digest": "yellow", "stub": "bright_yellow", "out": "bright_black", "unread": "magenta"}
_FIXED = "cyan"
_STABLE, _BROKEN = "blue", "red"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR_WIDTH, _TOTAL_WIDTH = 40, 72


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    positions: str
    level: str
    tokens: int
    style: str
    reason: str


def picture(window: WindowAnswer, *, title: str | None = None) -> RenderableType:
    """The parts in the order in which they are sent, the total against the budget, and what is set aside."""
    manifest = window.manifest
    rows = list(_rows(manifest.parts))
    most = max((row.tokens for row in rows), default=0)
    made = table(
        title,
        [
            ("part", "left"),
            ("positions", "left"),
            ("level", "left"),
            ("", "left"),
            ("tokens", "right"),
            ("why", "left"),
        ],
    )
    for row in rows:
        bar = Text(bar_of(row.tokens, most, _BAR_WIDTH), style=row.style)
        level = Text(row.level, style=row.style)
        made.add_row(row.label, row.positions, level, bar, number(row.tokens), Text(row.reason, style="dim"))
    return Group(made, Text(), _total(window, rows))


def bar_of(value: int, most: int, width: int) -> str:
    """A bar of eighths of a column; anything above 0 is seen."""
    if most <= 0 or value <= 0:
        return ""
    eighths = max(1, round(min(value, most) / most * width * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _total(window: WindowAnswer, rows: Sequence[_Row]) -> Text:
    budget = window.manifest.budget
    line, used = Text(), 0
    for row in rows:
        # Rounded at the borders, so that the whole line has the length of the sum.
        start, used = used, used + row.tokens
        scale = budget.factor / budget.tokens * _TOTAL_WIDTH
        columns = round(used * scale) - round(start * scale)
        line.append("█" * columns, style=row.style)
    line.append("░" * max(0, _TOTAL_WIDTH - len(line.plain)), style="bright_black")
    share = window.tokens * budget.factor / budget.tokens
    learned = f", counted x {budget.factor:g} by the provider" if budget.factor != 1 else ""
    line.append(f"  {number(window.tokens)} of {number(budget.tokens)} tokens ")
    line.append(f"({share:.0%}, budget {budget.source}{learned})\n")
    line.append(_stable(window))
    line.append(f"\n{len(window.messages)} messages, {len(window.tools)} tools, head {window.head}\n", style="dim")
    for name, style in (("system, tools", _FIXED), *STYLES.items()):
        line.append("■ ", style=style).append(f"{name}  ", style="dim")
    return line


def _stable(window: WindowAnswer) -> Text:
    """A line under what is as the call before was sent it, to where it ends, and why."""
    prefix, budget = window.prefix, window.manifest.budget
    if prefix.reason == "first":
        return Text("no call before", style="dim")
    columns = round(prefix.stable_tokens * budget.factor / budget.tokens * _TOTAL_WIDTH)
    line = Text("▔" * columns + " " * bool(columns), style=_STABLE)
    line.append(f"{number(prefix.stable_tokens)} tokens as the call before", style="dim")
    if prefix.reason is not None:
        where = "" if prefix.broke_at is None else f" at {prefix.broke_at}"
        line.append(f"; broken{where}: {prefix.reason}", style=_BROKEN)
    return line


def _rows(parts: Sequence[Part]) -> Iterator[_Row]:
    out_loops = {part.loop: part.reason for part in parts if part.kind == "loop" and part.level == "out"}
    # What is out with its whole loop is told by the loop.
    out = [
        part
        for part in parts
        if part.kind == "message" and part.level == "out" and out_loops.get(part.loop, "") != part.reason
    ]
    out_by_loop = Counter(part.loop for part in out)
    waiting: list[Part] = []
    for part in parts:
        if part.kind == "message" and (part.loop is not None or part.level == "out"):
            continue
        is_out_loop = part.kind == "loop" and part.level == "out" and not part.tokens
        if waiting and not (is_out_loop and part.reason == waiting[-1].reason):
            yield _out_loops(waiting)
            waiting = []
        if is_out_loop:
            waiting.append(part)
        elif part.kind == "loop":
            yield _loop(part, out_by_loop[part.loop])
        else:
            yield _single(part)
    if waiting:
        yield _out_loops(waiting)
    for reason, count in Counter(part.reason or "" for part in out).items():
        yield _Row(_messages(count), "", "out", 0, STYLES["out"], reason)


def _single(part: Part) -> _Row:
    labels = {"message": "before loop 1"}
    is_unread = part.level == "unread"
    label = "older, not read" if is_unread else labels.get(part.kind, part.kind)
    style = STYLES[part.level] if part.kind == "line" or is_unread else _FIXED
    return _Row(label, _positions(part.first, part.last), part.level, part.tokens, style, part.reason or "")


def _loop(part: Part, out: int) -> _Row:
    reason = part.reason or (f"{_messages(out)} out" if out else "")
    positions = _positions(part.first, part.last)
    return _Row(f"loop {part.loop}", positions, part.level, part.tokens, STYLES[part.level], reason)


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"


def _out_loops(parts: Sequence[Part]) -> _Row:
    first, last = parts[0], parts[-1]
    label = f"loop {first.loop}" if len(parts) == 1 else f"loops {first.loop}–{last.loop}"
    return _Row(label, _positions(first.first, last.last), "out", 0, STYLES["out"], first.reason or "")


def _positions(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return str(first) if last is None or last == first else f"{first}–{last}"
