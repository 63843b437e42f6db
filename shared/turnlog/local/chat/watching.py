"""What happens in a run, shown as it happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.client.runs import Call, Hooks
from turnlog.client.streaming import accumulator
from turnlog.client.streaming.base import plain
from turnlog.codecs.registry import codec_of
from turnlog.contracts.context import WindowAnswer
from turnlog.local.chat.screen import Screen
from turnlog.local.cli.screen import cut


class Watch(Hooks):
    """``window`` is that of the newest model call."""

    def __init__(self, format: str, screen: Screen) -> None:
        self.window: WindowAnswer | None = None
        self._format = format
        self._screen = screen
        self._said = accumulator(format)
        self._shown = 0

    def before_model(self, window: WindowAnswer) -> None:
        self.window = window
        self._said, self._shown = accumulator(self._format), 0

    def on_event(self, event: Any) -> None:
        self._said.add(plain(event))
        text = self._said.text
        self._screen.said(text[self._shown :])
        self._shown = len(text)

    def after_model(self, messages: Sequence[Mapping[str, Any]]) -> None:
        if not self._shown:
            self._screen.said("\n".join(codec_of(self._format).parse(dict(one)).text for one in messages))
        self._screen.end_line()

    def before_tool(self, call: Call) -> None:
        self._screen.note(f"→ {call.name}({cut(call.arguments, 300)})", "magenta")

    def after_tool(self, call: Call, result: str, is_error: bool) -> None:
        self._screen.note(f"{'✗' if is_error else '←'} {cut(result, 300)}", "red" if is_error else "dim")
