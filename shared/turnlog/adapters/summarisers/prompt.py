"""What a model is told: the rules in ``prompt.txt``, and the history as a record, quoted as data in flat text.

No tool blocks: they would need a tool configuration. What was said is put on one line each, so that no line of the record
begins as its author likes, and in a fence that it can't close.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from string import Template

from turnlog.codecs.fences import fenced
from turnlog.domain.language import Script, main_script
from turnlog.domain.summaries import LoopText, SummaryRequest
from turnlog.domain.values import dataclass
from turnlog.ports import TokenCounter

MAX_RECORD_TOKENS = 48_000
"""The most that a model is given of a history."""
_WIDTHS = ((600, 40), (300, 20), (160, 8), (80, 3))
"""Characters of a text, and calls of a loop, from the most generous to the least."""
_CALL_CHARS = 160
_LANGUAGES: dict[Script, str] = {
    "chinese": "Write in Chinese (请用中文书写), as the person and the agent do.",
    "japanese": "Write in Japanese (日本語で書いてください), as the person and the agent do.",
    "korean": "Write in Korean (한국어로 쓰세요), as the person and the agent do.",
}
_SAME_LANGUAGE = "Write in the language that the person and the agent speak in the record."
_AIM = 0.7
"""A model counts badly: it is asked for so much of what there is room for."""
_WORDS_PER_TOKEN, _CHARACTERS_PER_TOKEN = 0.75, 1.3


@dataclass(frozen=True, slots=True)
class Prompt:
    """``system`` are the instructions, ``record`` is data. ``record_tokens`` are those of what stands in the record."""

    system: str
    record: str
    record_tokens: int


def prompt_for(request: SummaryRequest, counter: TokenCounter) -> Prompt | None:
    """The prompt; None when the history is too long for one even in its shortest form."""
    system = _system(request)
    for width, calls in _WIDTHS:
        told = "\n".join(line for loop in request.loops for line in _lines(loop, width, calls))
        tokens = sum(counter.count(text) for text in (request.previous, *request.parts, told))
        if tokens <= MAX_RECORD_TOKENS:
            return Prompt(system, "\n\n".join(_fenced(request, told)), tokens)
    return None


def _fenced(request: SummaryRequest, told: str) -> Iterator[str]:
    if request.previous:
        yield fenced("summary of what came before", request.previous)
    for at, part in enumerate(request.parts, start=1):
        yield fenced(f"record of the conversation, part {at} of {len(request.parts)}", part)
    if told or not request.parts:
        yield fenced("record of the conversation", told)


def _system(request: SummaryRequest) -> str:
    script = main_script(request.said)
    room = request.max_tokens * _AIM
    limit = f"{max(10, round(room * _WORDS_PER_TOKEN, -1)):.0f} words"
    if script in _LANGUAGES:
        limit = f"{max(20, round(room * _CHARACTERS_PER_TOKEN, -1)):.0f} characters"
    language = _LANGUAGES.get(script, _SAME_LANGUAGE) if script else _SAME_LANGUAGE
    return _rules().substitute(language=language, limit=limit)


@cache
def _rules() -> Template:
    return Template(files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8").strip())


def _lines(loop: LoopText, width: int, calls: int) -> Iterator[str]:
    yield f"exchange {loop.number}, asked: {_line(loop.asked, width)}".rstrip()
    for call in loop.calls[:calls]:
        yield f"exchange {loop.number}, called: {_line(call, _CALL_CHARS)}"
    if len(loop.calls) > calls:
        yield f"exchange {loop.number}, called: {len(loop.calls) - calls} more"
    if loop.reply:
        yield f"exchange {loop.number}, answered: {_line(loop.reply, width)}"
    elif loop.interrupted:
        yield f"exchange {loop.number} was interrupted before an answer"


def _line(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[:width] + "..."
