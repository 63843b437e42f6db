"""Writing to the terminal: JSON for scripts, tables and colour for people."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 150
"""Columns where the output is no terminal and ``COLUMNS`` is not set: a table in a file should not be cut."""
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def console(*, stderr: bool = False) -> Console:
    """Of the streams as they are now. Without a terminal, or with ``NO_COLOR``, there is no colour."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # A terminal that has no character for it shows a question mark.
        stream.reconfigure(errors="replace")
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDE
    return Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON value; beyond ASCII as it is, or as escapes where the stream or a lone surrogate does not allow it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def plain(text: str, *, lines: bool = True) -> str:
    """The text without what a terminal would obey: a stored message must not steer the screen of who reads it."""
    safe = _UNSAFE.sub("\ufffd", text.replace("\r\n", "\n"))
    return safe if lines else " ".join(safe.split())


def cut(text: str, limit: int) -> str:
    """One line of at most ``limit`` characters."""
    line = plain(text, lines=False)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def table(title: str | None, columns: Sequence[tuple[str, str]]) -> Table:
    """A table of columns (heading, ``left`` or ``right``)."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for heading, justify in columns:
        made.add_column(heading, justify="right" if justify == "right" else "left", no_wrap=justify == "right")
    return made


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def bad(value: int) -> Text:
    """A count that should be 0."""
    return Text(number(value), style="bold red" if value else "green")
