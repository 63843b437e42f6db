"""Output of commands: JSON for scripts, tables and colour for people."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import typer
from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from turnlog.core.errors import MalformedError, TurnlogError
from turnlog.core.messages import Message, text_of
from turnlog.providers.registry import recognise

WIDE = 150
"""Columns when the output is no terminal and ``COLUMNS`` is not set, so that tables in files are not cut."""
_JOINED = "[\u0300-\u1fff\u2010-\U0010ffff]"
_HIDDEN = re.compile(
    "(\U0001f3f4[\U000e0030-\U000e007a]{2,6}\U000e007f)|\r(?!\n)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    r"\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
    f"|(?<!{_JOINED})[\u200c\u200d]|[\u200c\u200d](?!{_JOINED})"
)
"""Controls, and characters that are not seen or that move others. The inspector's `HIDDEN` is the same.

Not hidden: the flag of a region, which is the group; joiners within words and emojis.
"""
_GAP, _MIN_TEXT = 2, 12
"""Columns between two cells of a listing, and those that a text keeps at least."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
MAX_CHARS = 600
_ROLES = {"system": "cyan", "user": "bold blue", "assistant": "bold green", "tool": "yellow"}


def console(*, stderr: bool = False) -> Console:
    """Return a console over the current stdout or stderr. Without a terminal, or with ``NO_COLOR``, it prints no colour."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # Characters outside the terminal's encoding become question marks.
        stream.reconfigure(errors="replace")
    width = None if stream.isatty() or os.environ.get("COLUMNS", "").strip("0") else WIDE
    return Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


@contextmanager
def status_line(word: str, *, json: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows its text in one line of a terminal on stderr; elsewhere, and with ``json``, it does nothing."""
    screen = console(stderr=True)
    if json or not screen.is_terminal:
        yield lambda _text: None
        return
    with screen.status(word) as status:
        yield status.update


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON value. Non-ASCII text is escaped only when the stream's encoding or a lone surrogate requires it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def decode_input(data: bytes, name: str) -> str:
    """Return the text of a file or of stdin, without a byte order mark. Raises `MalformedError` when it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(f"{name} is not UTF-8 at byte {error.start}") from error


def plain(text: str, *, lines: bool = True) -> str:
    r"""Return the text with an escape such as ``\u202e`` for each control character and each character that is not seen.

    A stored message must not control the reader's terminal, nor look like another one.
    Without ``lines``, line breaks and runs of white space become single spaces.
    """
    safe = _HIDDEN.sub(_escape, text).replace("\r\n", "\n")
    return safe if lines else " ".join(safe.split())


def _escape(match: re.Match[str]) -> str:
    code = f"{ord(match[0][0]):04x}"
    return match[1] or (rf"\u{code}" if len(code) == 4 else rf"\u{{{code}}}")


def one_line(text: str, limit: int) -> str:
    """Return the text as one line of at most ``limit`` characters."""
    line = plain(text, lines=False)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def table(title: str | None, columns: Sequence[tuple[str, str]]) -> Table:
    """Return an empty table with these columns, each a heading and ``left`` or ``right``.

    The first column, the key of a row, and numbers are never cut; the others are folded when the screen is narrow.
    """
    grid = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for index, (heading, justify) in enumerate(columns):
        is_number = justify == "right"
        grid.add_column(
            heading, justify="right" if is_number else "left", no_wrap=is_number or not index, overflow="fold"
        )
    return grid


def facts_table(facts: Mapping[str, str]) -> Table:
    """Return a table of names and values, without headings."""
    grid = table(None, [("", "left"), ("", "left")])
    grid.show_header = False
    for name, value in facts.items():
        grid.add_row(name, plain(value, lines=False))
    return grid


class Column(NamedTuple):
    """A column of a listing, and its value in the row of an item.

    On a narrow screen, ``is_text`` ones are cut, and ranked ones left out, the highest rank first.
    """

    heading: str
    value: Callable[[Any], str | Text | int | None]
    justify: Literal["left", "right"] = "left"
    rank: int = 0
    is_text: bool = False


def listing(columns: Sequence[Column], items: Iterable[object], width: int) -> Table:
    """Return a table of one line an item, within ``width`` unless its ids are longer. Only texts are cut."""
    values = [[column.value(item) for column in columns] for item in items]
    rows = [[value if isinstance(value, str | Text) else format_number(value) for value in row] for row in values]
    cells = [[column.heading, *(str(row[index]) for row in rows)] for index, column in enumerate(columns)]
    widest = [max(map(cell_len, column)) for column in cells]
    least = [min(size, _MIN_TEXT) if column.is_text else size for column, size in zip(columns, widest, strict=True)]
    shown, left = list[int](), width + _GAP
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        if columns[index].rank == 0 or least[index] + _GAP <= left:
            shown.append(index)
            left -= least[index] + _GAP
    grid = table(None, ())
    texts = sum(columns[index].is_text for index in shown)
    for index in sorted(shown):
        size = min(widest[index], least[index] + max(0, left) // max(1, texts))
        texts -= columns[index].is_text
        left -= size - least[index]
        grid.add_column(columns[index].heading, justify=columns[index].justify, no_wrap=True, width=size)
    for row in rows:
        grid.add_row(*(row[index] for index in sorted(shown)))
    grid.width = width - left  # of what is shown, also where it is more than the screen has
    return grid


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command: an answer for scripts, what people see of it, and the exit code."""

    answer: BaseModel | Mapping[str, Any]
    shown: RenderableType
    exit_code: int = 0

    @property
    def fields(self) -> Mapping[str, Any]:
        """The answer as a JSON object."""
        return self.answer.model_dump(mode="json") if isinstance(self.answer, BaseModel) else self.answer


def print_output(output: Output, *, json: bool) -> None:
    """Print the answer as JSON, or what people see of it; then exit, unless the code is 0.

    The terminal wraps long lines, and nothing is cut.
    """
    if json:
        print_json(output.fields)
    else:
        console().print(output.shown, soft_wrap=True)
    if output.exit_code:
        raise typer.Exit(output.exit_code)


def as_json(values: Iterable[BaseModel]) -> list[Any]:
    """Return answers as JSON values."""
    return [value.model_dump(mode="json") for value in values]


def listing_output(
    name: str,
    items: Iterable[BaseModel],
    columns: Sequence[Column],
    *,
    limit: int | None = None,
    also: Mapping[str, Any] = MappingProxyType({}),
) -> Output:
    """Return the first ``limit`` items and whether there are more: a row for each, or JSON with the fields of ``also``.

    ``name`` is what they are, in the plural. Without a limit, all items are returned.
    """
    first = list(items if limit is None else islice(items, limit + 1))
    listed, has_more = first[:limit], limit is not None and len(first) > limit
    grid = listing(columns, listed, console().width)
    more = [Text(f"more than {limit}: --limit", style="dim")] if has_more else []
    answer = {**also, name: as_json(listed), **({"more": has_more} if limit is not None else {})}
    return Output(answer, Group(grid if listed else f"no {name}", *more))


def short_time(time: str) -> str:
    """Return a time of RFC 3339 to the minute, as listings show it."""
    return time[:16].replace("T", " ")


def format_number(value: int | None) -> str:
    """Return a number with thousands separators, or a dash for None."""
    return "–" if value is None else f"{value:,}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as ``1 try`` or ``1,200 tries``; the plural is the noun with an s by default."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def positions_text(first: int | None, last: int | None) -> str:
    """Return a range of positions as tables show it; empty without a first one."""
    if first is None:
        return ""
    return str(first) if last is None or last == first else f"{first}–{last}"


def bar_of(value: int, largest: int, width: int) -> str:
    """Return a bar of up to ``width`` columns, drawn in eighths. A value above 0 is always visible."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(min(value, largest) / largest * width * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def message_text(body: Mapping[str, Any], *, heading: str, is_full: bool = False) -> Text:
    """Return a message for people: heading and role, then its text, cut unless ``is_full``, calls and results."""
    try:
        message = recognise(dict(body)).parse(dict(body))
    except TurnlogError:
        return Text(f"{heading}  {one_line(json.dumps(body), MAX_CHARS)}\n")
    role = one_line(message.given_role or message.role, 40)
    text = Text().append(f"{heading}  ", style="dim").append(role, style=_ROLES.get(message.role, "red"))
    if message.name:
        text.append(f" ({one_line(message.name, 64)})")
    for line, style in _lines(message, None if is_full else MAX_CHARS):
        text.append("\n  ").append(line.replace("\n", "\n  "), style=style)
    return text.append("\n")


def _lines(message: Message, max_chars: int | None) -> Iterator[tuple[str, str]]:
    text = text_of(message.content)
    if text:
        yield _shortened(text, max_chars), ""
    media = sum(1 for block in message.content if not hasattr(block, "text"))
    if media:
        yield f"[{counted(media, 'part')} without text]", "dim"
    for call in message.tool_calls:
        yield f"→ {one_line(call.name, 64)}({one_line(call.arguments, 200)})", "magenta"
    for result in message.tool_results:
        mark = "✗" if result.is_error else "←"
        yield f"{mark} {_shortened(result.text, max_chars)}", "red" if result.is_error else ""


def _shortened(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return plain(text)
    return f"{plain(text[:limit])} … [{len(text) - limit:,} more characters]"
