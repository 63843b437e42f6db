"""What differs between two windows, as a table: what came, what went, what is told in another form."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from turnlog.contracts.context import WindowAnswer
from turnlog.local.cli.picture import STYLES
from turnlog.local.cli.screen import number, table
from turnlog.local.comparing import Change, compare

_STYLES = {"came": "green", "went": "red", "level": "yellow", "tokens": "bright_black"}


def difference(before: WindowAnswer, after: WindowAnswer, *, title: str | None = None) -> RenderableType:
    """The changes in the order in which the later window is sent, and both totals."""
    changes = compare(before.manifest.parts, after.manifest.parts)
    headings = [("part", "left"), ("positions", "left"), ("change", "left"), ("level", "left"), ("tokens", "right")]
    made = table(title, [*headings, ("why", "left")])
    for one in changes:
        part = one.part
        style = _STYLES[one.change]
        made.add_row(
            f"loop {part.loop}" if part.kind == "loop" else part.kind,
            _positions(one),
            Text(one.change, style=style),
            _levels(one),
            f"{one.tokens:+,}",
            Text(part.reason or "", style="dim"),
        )
    line = Text(f"head {before.head} -> {after.head}: {number(before.tokens)} -> {number(after.tokens)} tokens")
    line.append(f" ({after.tokens - before.tokens:+,})")
    return Group(made, Text(), line) if changes else Group(Text("no difference"), line)


def _positions(change: Change) -> str:
    part = change.part
    if part.first is None:
        return ""
    return str(part.first) if part.last in (None, part.first) else f"{part.first}–{part.last}"


def _levels(change: Change) -> Text:
    levels = [part.level for part in (change.before, change.after) if part is not None]
    shown = Text()
    for at, level in enumerate(dict.fromkeys(levels)):
        shown.append(" -> " if at else "").append(level, style=STYLES.get(level, ""))
    return shown
