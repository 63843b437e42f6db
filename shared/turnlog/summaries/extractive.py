"""A summariser without a model: it quotes the question, the called tools and the answer of each loop, shortened.

All other words of the summary are in the language of the conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.summaries import LoopText, Summarised, SummaryRequest
from turnlog.core.text import Script, main_script
from turnlog.ports import TokenCounter

_INDENT = "   "
_WIDTHS = (300, 160, 80, 40)
"""Characters kept of each text; a smaller width is tried when the summary is too long."""


@lazy_dataclass(frozen=True, slots=True)
class _Words:
    """The summary's own words in one language."""

    tools: str
    no_reply: str
    error: str
    left_out: str = "[...]"
    more: str = "..."
    comma: str = ", "


_ENGLISH = _Words("tools: ", "(no reply)", " (error)")
_WORDS: dict[Script, _Words] = {
    "chinese": _Words("工具：", "（无回复）", "（出错）", "[……]", "……", "、"),
    "japanese": _Words("ツール：", "（返答なし）", "（エラー）", "[……]", "……", "、"),
    "korean": _Words("도구: ", "(답변 없음)", " (오류)"),
}


class ExtractiveSummariser:
    """Implements `Summariser` without a model.

    If the loops don't fit into the tokens, texts are cut shorter. If they still don't fit, the oldest lines of each part are left
    out, and a line says so.
    """

    name = "extractive-2"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def summarise(self, request: SummaryRequest) -> Summarised:
        return Summarised(self._text(request), self.name)

    def _text(self, request: SummaryRequest) -> str:
        script = main_script(request.said)
        words = _WORDS.get(script, _ENGLISH) if script else _ENGLISH
        previous = request.previous.splitlines()
        for width in _WIDTHS:
            parts = [[_cut(line, width, words) for line in part.splitlines()] for part in request.parts]
            lines = [*previous, *(line for loop in request.loops for line in _lines(loop, width, words))]
            text = "\n".join([*(line for part in parts for line in part), *lines])
            if self._counter.count(text) <= request.max_tokens:
                return text
        share = request.max_tokens // max(1, len(parts) + bool(lines))
        groups = [*parts, lines] if lines else parts
        return "\n".join(self._newest(group, share, words.left_out) for group in groups)

    def _newest(self, lines: list[str], max_tokens: int, mark: str) -> str:
        """Return the newest lines that fit into ``max_tokens``; ``mark`` stands for the lines that are left out."""
        if self._counter.count("\n".join(lines)) < max_tokens:
            return "\n".join(lines)
        costs = [self._counter.count(line) + 1 for line in lines]
        left, first = max_tokens - self._counter.count(mark) - 1, len(lines)
        while first and costs[first - 1] <= left:
            first -= 1
            left -= costs[first]
        while first < len(lines) - 1 and lines[first].startswith(_INDENT):
            first += 1  # leave out the rest of a loop whose first line is left out
        return "\n".join([mark, *lines[first:]])


def _lines(loop: LoopText, width: int, words: _Words) -> Iterator[str]:
    """Yield a loop's lines: ``12. question``, then the tools, then the reply."""
    yield f"{loop.number}. {_short(loop.asked, width, words)}".rstrip()
    if loop.calls:
        yield f"{_INDENT}{words.tools}{_tools(loop, words)}"
    if loop.reply:
        yield f"{_INDENT}-> {_short(loop.reply, width, words)}"
    elif loop.interrupted:
        yield f"{_INDENT}-> {words.no_reply}"


def _tools(loop: LoopText, words: _Words) -> str:
    counts = Counter[str]()
    for call in loop.calls:
        name, _, rest = call.partition(" ")
        counts[name + words.error if rest.endswith("-> error") else name] += 1
    return words.comma.join(f"{name} x{count}" if count > 1 else name for name, count in counts.items())


def _cut(line: str, width: int, words: _Words) -> str:
    """Cut the end of a line that an earlier summary has; its number or label stays."""
    limit = width + len(_INDENT) + len(words.tools)
    return line if len(line) <= limit + len(words.more) else line[:limit] + words.more


def _short(text: str, width: int, words: _Words) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[:width] + words.more
