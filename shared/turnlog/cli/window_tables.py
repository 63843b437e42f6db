"""Tables of windows: the parts of one with their bars, and the parts that differ between two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias, cast

from rich.console import Group, RenderableType
from rich.text import Text

from turnlog.cli.screen import bar_of, counted, format_number, positions_text, table
from turnlog.core.window_parts import WindowPart
from turnlog.sessions.context_models import WindowAnswer

_LEVEL_STYLES = {"whole": "green", "digest": "yellow", "stub": "bright_yellow", "out": "bright_black"}
_FIXED = "cyan"
_STABLE, _BROKEN = "blue", "red"
_NEVER_SENT = frozenset(
    {"interrupted", "unknown_role", "orphan_result", "superseded_result", "open_call", "reasoning_alone"}
)
"""Reasons of messages that are in no window, whatever its border."""
_BAR_WIDTH, _TOTAL_WIDTH = 40, 72
ChangeKind: TypeAlias = Literal["came", "went", "level", "tokens"]
_Key: TypeAlias = tuple[str, int | str | None, int]
_CHANGE_STYLES: Mapping[str | None, str] = {"came": "green", "went": "red", "level": "yellow", "tokens": "bright_black"}


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    positions: str
    level: str
    tokens: int
    style: str
    reason: str
    first: int | None = None


def _border(parts: Sequence[WindowPart]) -> int | None:
    """Return the first position behind the newest part that is summarised, cut or left out; None when every part is whole."""
    following, kinds = None, ("summary", "older", "loop", "message")
    for part in reversed([part for part in parts if part.kind in kinds and part.first]):
        is_late = part.kind == "message" and part.loop is None
        if part.level != "whole" or part.kind == "summary":
            if part.reason in _NEVER_SENT or is_late:
                continue
            return following
        following = part.first
    return None


def window_table(window: WindowAnswer, *, title: str | None = None) -> RenderableType:
    """Return a window as a table of its parts in sending order, and a bar of the total within the budget."""
    manifest = window.manifest
    rows = list(_rows(manifest.parts))
    largest = max((row.tokens for row in rows), default=0)
    headings = [("part", "left"), ("positions", "left"), ("level", "left"), ("", "left")]
    grid = table(title, [*headings, ("tokens", "right"), ("why", "left")])
    border = _border(manifest.parts)
    for row in rows:
        if border is not None and row.first is not None and row.first >= border:
            grid.add_row("border", f"before {border}", "", Text("─" * _BAR_WIDTH, style="dim"), "", "")
            border = None
        bar = Text(bar_of(row.tokens, largest, _BAR_WIDTH), style=row.style)
        level = Text(row.level, style=row.style)
        grid.add_row(row.label, row.positions, level, bar, format_number(row.tokens), Text(row.reason, style="dim"))
    return Group(grid, Text(), _total(window, rows))


def _total(window: WindowAnswer, rows: Sequence[_Row]) -> Text:
    budget = window.manifest.budget
    line, used = Text(), 0
    for row in rows:
        # Round at the borders of the parts, so that the bar has the length of the rounded sum.
        start, used = used, used + row.tokens
        scale = budget.factor / budget.tokens * _TOTAL_WIDTH
        columns = round(used * scale) - round(start * scale)
        line.append("█" * columns, style=row.style)
    line.append("░" * max(0, _TOTAL_WIDTH - len(line.plain)), style="bright_black")
    share = window.tokens * budget.factor / budget.tokens
    learned = f", counted x {budget.factor:g} by the provider" if budget.factor != 1 else ""
    line.append(f"  {format_number(window.tokens)} of {format_number(budget.tokens)} tokens ")
    line.append(f"({share:.0%}, budget {budget.source}{learned})\n")
    line.append(_stable(window))
    sizes = f"{counted(len(window.messages), 'message')}, {counted(len(window.tools), 'tool')}"
    line.append(f"\n{sizes}, head {window.head}\n", style="dim")
    epoch, border = window.manifest.epoch, _border(window.manifest.parts)
    line.append(f"epoch {epoch.id[:8]} since {epoch.since}", style="dim")
    line.append(f", border before {border}\n" if border is not None else ", no border\n", style="dim")
    for name, style in (("system, tools", _FIXED), *_LEVEL_STYLES.items()):
        line.append("■ ", style=style).append(f"{name}  ", style="dim")
    return line


def _stable(window: WindowAnswer) -> Text:
    """Return a line under the part of the bar that equals the previous call's window, with the reason where it ends."""
    prefix, budget = window.prefix, window.manifest.budget
    if prefix.reason == "first":
        return Text("no call before", style="dim")
    columns = round(prefix.stable_tokens * budget.factor / budget.tokens * _TOTAL_WIDTH)
    line = Text("▔" * columns + " " * bool(columns), style=_STABLE)
    line.append(f"{format_number(prefix.stable_tokens)} tokens unchanged since the last call", style="dim")
    if prefix.reason is not None:
        where = "" if prefix.broke_at is None else f" at {prefix.broke_at}"
        line.append(f"; broken{where}: {prefix.reason}", style=_BROKEN)
    return line


def _rows(parts: Sequence[WindowPart]) -> Iterator[_Row]:
    out_loops = {part.loop: part.reason for part in parts if part.kind == "loop" and part.level == "out"}
    # A message that is out together with its loop is covered by the loop's row.
    out_messages = (part for part in parts if part.kind == "message" and part.level == "out")
    out = [part for part in out_messages if out_loops.get(part.loop, "") != part.reason]
    out_by_loop = Counter(part.loop for part in out)
    # Lost blocks, and messages of a loop, are in other rows.
    shown = (
        part for part in parts if part.kind not in ("block", "message") or (part.loop is None and part.level != "out")
    )

    def row_of(part: WindowPart) -> object:
        """Return what loops that share a row have in common: those that are out for the same reason."""
        return part.reason if part.kind == "loop" and part.level == "out" and not part.tokens else id(part)

    for _, group in groupby(shown, row_of):
        yield _row(list(group), out_by_loop)
    for reason, count in Counter(part.reason or "" for part in out).items():
        yield _Row(counted(count, "message"), "", "out", 0, _LEVEL_STYLES["out"], reason)
    for kind, count in Counter(part.reason or "" for part in parts if part.kind == "block").items():
        yield _Row(f"blocks in {counted(count, 'message')}", "", "out", 0, _LEVEL_STYLES["out"], kind)


def _row(group: Sequence[WindowPart], out_by_loop: Mapping[int | None, int]) -> _Row:
    """Return the row of a part, or of several loops."""
    first, last, is_loop = group[0], group[-1], group[0].kind == "loop"
    loops = f"loop {first.loop}" if first is last else f"loops {first.loop}–{last.loop}"
    label = {"message": "before loop 1", "older": f"to loop {first.loop}", "loop": loops}.get(first.kind, first.kind)
    style = _LEVEL_STYLES[first.level] if first.kind in ("loop", "omission_notice", "older") else _FIXED
    out = out_by_loop[first.loop] if is_loop else 0
    reason = first.reason or (f"{counted(out, 'message')} out" if out else "")
    positions = positions_text(first.first, last.last)
    return _Row(label, positions, first.level, first.tokens, style, reason, first.first if is_loop else None)


@dataclass(frozen=True, slots=True)
class Change:
    """A part that differs between two windows: None where a window does not have it."""

    before: WindowPart | None
    after: WindowPart | None

    @property
    def part(self) -> WindowPart:
        """The part after the change, or before it when it was removed."""
        return cast("WindowPart", self.after or self.before)

    @property
    def change(self) -> ChangeKind | None:
        """The kind of the change; None when level and tokens are the same."""
        if self.before is None or self.after is None:
            return "came" if self.before is None else "went"
        if self.before.level != self.after.level:
            return "level"
        return "tokens" if self.tokens else None

    @property
    def tokens(self) -> int:
        """The difference in tokens; negative when the part got smaller."""
        before, after = (part.tokens if part is not None else 0 for part in (self.before, self.after))
        return after - before


def compare(before: Sequence[WindowPart], after: Sequence[WindowPart]) -> tuple[Change, ...]:
    """Return the changes between two windows in the order of the later one; removed parts keep their place.

    Messages of a loop are compared only when the loop is whole in both windows. Otherwise the loop is compared as one part.
    Parts that are unchanged, or out of both windows, are left out.
    """
    whole_loops = _whole_loops(before) & _whole_loops(after)
    old, new = dict(_keyed(before, whole_loops)), dict(_keyed(after, whole_loops))
    changes = (Change(old.get(key), new.get(key)) for key in _merged(list(old), list(new)))
    return tuple(change for change in changes if change.change is not None)


def _whole_loops(parts: Iterable[WindowPart]) -> set[int | None]:
    return {part.loop for part in parts if part.kind == "loop" and part.level == "whole"}


def _keyed(parts: Iterable[WindowPart], whole_loops: set[int | None]) -> Iterator[tuple[_Key, WindowPart]]:
    """Yield parts with their keys: a loop by its number, a message by its position, a line by its reason.

    A message that is of no loop in one window, and of a loop in the other, has two keys: there it counts among the loop's tokens.
    """
    seen = Counter[tuple[str, int | str | None]]()
    for part in parts:
        if part.kind == "message" and part.loop is not None and part.loop not in whole_loops:
            continue
        name = part.loop if part.kind == "loop" else part.first if part.kind == "message" else None
        kind = "message of a loop" if part.kind == "message" and part.loop is not None else part.kind
        key = (kind, part.reason if part.kind == "omission_notice" else name)
        seen[key] += 1
        yield (*key, seen[key]), part


def _merged(old: Sequence[_Key], new: Sequence[_Key]) -> Iterator[_Key]:
    """Yield the keys of both in the order of ``new``. A key that only ``old`` has follows its predecessor there."""
    known, behind = set(new), dict[_Key | None, list[_Key]]()
    anchor: _Key | None = None
    for key in old:
        if key in known:
            anchor = key
        else:
            behind.setdefault(anchor, []).append(key)
    yield from behind.get(None, ())
    for key in new:
        yield key
        yield from behind.get(key, ())


def difference(before: WindowAnswer, after: WindowAnswer, *, title: str | None = None) -> RenderableType:
    """Return a table of the changes between two windows, in the order of the later one, and both totals."""
    changes = compare(before.manifest.parts, after.manifest.parts)
    headings = [("part", "left"), ("positions", "left"), ("change", "left"), ("level", "left"), ("tokens", "right")]
    grid = table(title, [*headings, ("why", "left")])
    for change in changes:
        part = change.part
        grid.add_row(
            f"loop {part.loop}" if part.kind == "loop" else part.kind,
            positions_text(part.first, part.last),
            Text(change.change or "", style=_CHANGE_STYLES[change.change]),
            _levels(change),
            f"{change.tokens:+,}",
            Text(part.reason or "", style="dim"),
        )
    line = Text(
        f"head {before.head} -> {after.head}: {format_number(before.tokens)} -> {format_number(after.tokens)} tokens"
    )
    line.append(f" ({after.tokens - before.tokens:+,})")
    return Group(grid, Text(), line) if changes else Group(Text("no difference"), line)


def _levels(change: Change) -> Text:
    levels = [part.level for part in (change.before, change.after) if part is not None]
    shown = Text()
    for index, level in enumerate(dict.fromkeys(levels)):
        shown.append(" -> " if index else "").append(level, style=_LEVEL_STYLES.get(level, ""))
    return shown
