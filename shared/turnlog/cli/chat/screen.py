"""Input and output of a chat: a terminal, piped lines, or JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.console import Console, RenderableType

from turnlog.cli.screen import console, plain, print_json

PROMPT = "you> "


class Screen:
    """Reads lines and writes answers. ``is_person``: input is a terminal, so questions can be asked.

    With ``json``, only the values of `answer` are written.
    """

    def __init__(self, *, json: bool = False) -> None:
        self.is_person = sys.stdin.isatty() and not json
        self._json = json
        self._is_mid_line = False
        if self.is_person:
            with suppress(ImportError):
                import readline  # noqa: F401 - adds line editing and history to `input`

    def line(self, prompt: str = PROMPT) -> str | None:
        """Read the next line, joined with the following one while it ends with a backslash; None at the end of input."""
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

    def write_reply(self, text: str) -> None:
        """Write a piece of the model's answer."""
        if not self._json and text:
            safe = plain(text)
            sys.stdout.write(safe)
            sys.stdout.flush()
            self._is_mid_line = not safe.endswith("\n")

    def note(self, text: str, style: str = "dim") -> None:
        """Write a line that is not part of the model's answer."""
        self.show(lambda out: out.print(plain(text), style=style, soft_wrap=True))

    def print(self, renderable: RenderableType) -> None:
        self.show(lambda out: out.print(renderable))

    def show(self, write: Callable[[Console], None]) -> None:
        """Write output for people only; nothing with ``json``."""
        if not self._json:
            self.end_line()
            write(console())

    def answer(self, value: Any) -> None:
        """Write one JSON value as a line, only with ``json``."""
        if self._json:
            print_json(value, indent=None)

    def end_line(self) -> None:
        if self._is_mid_line:
            sys.stdout.write("\n")
            self._is_mid_line = False
