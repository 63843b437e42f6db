"""A summariser without a model: of each loop what was asked, what was answered and which tools were called, verbatim in short.

It takes words from the conversation only, so it speaks its language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from turnlog.domain.summaries import LoopText, SummaryRequest
from turnlog.ports import TokenCounter

_INDENT = "   "
_WIDTHS = (300, 160, 80, 40)
"""Characters that are kept of a text, from the most generous to the least."""


class ExtractiveSummariser:
    """Implements `Summariser`. When all loops have no room, texts are cut shorter; then the oldest lines go, and a line says so."""

    name = "extractive-1"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def summarise(self, request: SummaryRequest) -> str:
        previous = request.previous.splitlines()
        for width in _WIDTHS:
            lines = [*previous, *(line for loop in request.loops for line in _lines(loop, width))]
            text = "\n".join(lines)
            if self._counter.count(text) <= request.max_tokens:
                return text
        return self._newest(lines, request.max_tokens)

    def _newest(self, lines: list[str], max_tokens: int) -> str:
        """The newest lines that there is room for."""
        costs = [self._counter.count(line) + 1 for line in lines]
        mark = "[...]"
        left, first = max_tokens - self._counter.count(mark) - 1, len(lines)
        while first and costs[first - 1] <= left:
            first -= 1
            left -= costs[first]
        while first < len(lines) - 1 and lines[first].startswith(_INDENT):
            first += 1  # a loop goes whole
        return "\n".join([mark, *lines[first:]])


def _lines(loop: LoopText, width: int) -> Iterator[str]:
    """``12. what was asked``, then the tools, then the reply."""
    yield f"{loop.number}. {_short(loop.asked, width)}".rstrip()
    if loop.calls:
        yield f"{_INDENT}tools: {_tools(loop)}"
    if loop.reply:
        yield f"{_INDENT}-> {_short(loop.reply, width)}"
    elif loop.interrupted:
        yield f"{_INDENT}-> (no reply)"


def _tools(loop: LoopText) -> str:
    counts = Counter[str]()
    for call in loop.calls:
        name, _, rest = call.partition(" ")
        counts[f"{name} (error)" if rest.endswith("-> error") else name] += 1
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in counts.items())


def _short(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[:width] + "..."
