"""What a talk reads and writes: lines of a person at a terminal, lines of a pipe, or JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.console import Console, RenderableType

from turnlog.cli.screen import console, plain, print_json

PROMPT = "you> "


class Screen:
    """``is_person``: somebody sits there, and can be asked. With ``json`` only what `answer` is given is written."""

    def __init__(self, *, json: bool = False) -> None:
        self.is_person = sys.stdin.isatty() and not json
        self._json = json
        self._is_mid_line = False
        if self.is_person:
            with suppress(ImportError):
                import readline  # noqa: F401 - lines can be edited and had again

    def line(self, prompt: str = PROMPT) -> str | None:
        """The next line, one that ends with a backslash with the one behind it; None at the end."""
        lines = list[str]()
        while True:
            text = self._line(prompt if not lines else "...> ")
            if text is None:
                return "\n".join(lines) if lines else None
            if not text.endswith("\\"):
                return "\n".join([*lines, text])
            lines.append(text[:-1])

    def _line(self, prompt: str) -> str | None:
        if self.is_person:
            try:
                return input(prompt)
            except EOFError:
                sys.stdout.write("\n")
                return None
        text = sys.stdin.readline()
        return text.rstrip("\r\n") if text else None

    def said(self, text: str) -> None:
        """A part of what the model says."""
        if not self._json and text:
            safe = plain(text)
            sys.stdout.write(safe)
            sys.stdout.flush()
            self._is_mid_line = not safe.endswith("\n")

    def note(self, text: str, style: str = "dim") -> None:
        """A line beside it."""
        self.show(lambda out: out.print(plain(text), style=style, soft_wrap=True))

    def print(self, what: RenderableType) -> None:
        self.show(lambda out: out.print(what))

    def show(self, write: Callable[[Console], None]) -> None:
        """What is for people alone."""
        if not self._json:
            self.end_line()
            write(console())

    def answer(self, value: Any) -> None:
        """What is for scripts alone: one JSON value a line."""
        if self._json:
            print_json(value, indent=None)

    def end_line(self) -> None:
        if self._is_mid_line:
            sys.stdout.write("\n")
            self._is_mid_line = False
