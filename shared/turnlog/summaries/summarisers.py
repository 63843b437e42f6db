"""Summarisers: extracts without a model, or any chat model with a prompt, a bounded number of tries, and checks of its answer.

The extract quotes the question, the called tools and the answer of each loop, shortened. All other words of it are in the
language of the conversation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from string import Template

from turnlog.core.errors import SummaryRefusedError, UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import seconds_left
from turnlog.core.scripts import Script, main_script
from turnlog.core.summaries import LoopText, Summarised, SummaryRequest
from turnlog.ports import ChatModel, Clock, IdSource, ModelAnswer, Prompt, TokenCounter
from turnlog.providers.blocks import fenced
from turnlog.summaries.checks import Reason, refusal
from turnlog.summaries.passages import Stretch, quoted

_INDENT = "   "
_EXTRACT_CHARS = 300
"""Characters kept of each text that is quoted from its beginning."""
_LABEL = re.compile(r"(\d+)(?:-(\d+))?\. ?")
MAX_RECORD_TOKENS = 48_000
"""Tokens of a history that a model gets at most."""
_WIDTHS = ((600, 40), (300, 20), (160, 8), (80, 3))
"""Characters of each text and calls of each loop; smaller ones are tried when the record is too long."""
_CALL_CHARS = 160
_LANGUAGES: dict[Script, str] = {
    "chinese": "Write in Chinese (请用中文书写), as the person and the agent do.",
    "japanese": "Write in Japanese (日本語で書いてください), as the person and the agent do.",
    "korean": "Write in Korean (한국어로 쓰세요), as the person and the agent do.",
}
_SAME_LANGUAGE = "Write in the language that the person and the agent speak in the record."
_AIM = 0.7
"""Share of the available tokens that the prompt names as the limit, because models count badly."""
_WORDS_PER_TOKEN, _CHARACTERS_PER_TOKEN = 0.75, 1.3
MAX_TRIES = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 5.0
_RETRY_SHARE = 0.25
"""Share of the time-out within which another try may begin; a later try could end after the caller has given up."""
_MAX_TOKEN_CHARS = 64
"""Characters of a token, at most, in any readable text."""
_ROOM_TOKENS, _USUAL_LIMIT = 1_024, 4_096
"""Tokens for a model's reasoning, and the output limit that most models accept."""


@lazy_dataclass(frozen=True, slots=True)
class _Words:
    """The summary's own words in one language."""

    tools: str
    no_reply: str
    error: str
    more: str = "..."
    comma: str = ", "


_ENGLISH = _Words("tools: ", "(no reply)", " (error)")
_WORDS: dict[Script, _Words] = {
    "chinese": _Words("工具：", "（无回复）", "（出错）", "……", "、"),
    "japanese": _Words("ツール：", "（返答なし）", "（エラー）", "……", "、"),
    "korean": _Words("도구: ", "(답변 없음)", " (오류)"),
}


class ExtractiveSummariser:
    """Implements `Summariser` without a model.

    Texts are quoted as far as they fit. Otherwise each stretch of the history has its share of the tokens, for the passages that
    say most: names, numbers, rare words and what is said for the first time.
    """

    name = "extractive-3"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def summarise(self, request: SummaryRequest) -> Summarised:
        return Summarised(self._text(request), self.name)

    def _text(self, request: SummaryRequest) -> str:
        script = main_script(request.all_text)
        words = _WORDS.get(script, _ENGLISH) if script else _ENGLISH
        earlier = [line for text in (*request.parts, request.previous) for line in text.split("\n") if line.strip()]
        lines = [line for loop in request.loops for line in _extract_lines(loop, words)]
        text = "\n".join([*earlier, *lines])
        if self._counter.count(text) <= request.max_tokens:
            return text
        stretches = [*_stretches_of(earlier), *(_stretch_of(loop, words) for loop in request.loops)]
        room = request.max_tokens
        while room > 0:
            text = quoted(stretches, room, self._counter)
            excess = self._counter.count(text) - request.max_tokens
            if excess <= 0:
                return text
            room -= excess + 1
        return ""


def _extract_lines(loop: LoopText, words: _Words) -> Iterator[str]:
    """Yield a loop's lines: ``12. question``, then the tools, then the reply."""
    yield f"{loop.number}. {_short(loop.asked, words)}".rstrip()
    if loop.calls:
        yield f"{_INDENT}{words.tools}{_tools(loop, words)}"
    if loop.reply:
        yield f"{_INDENT}-> {_short(loop.reply, words)}"
    elif loop.interrupted:
        yield f"{_INDENT}-> {words.no_reply}"


def _stretch_of(loop: LoopText, words: _Words) -> Stretch:
    calls = (f"{words.tools}{_tools(loop, words)}",) if loop.calls else ()
    return Stretch(loop.number, loop.number, tuple(" ".join(text.split()) for text in (loop.asked, *calls, loop.reply)))


def _stretches_of(lines: Sequence[str]) -> list[Stretch]:
    """Return the stretches that earlier summaries tell of, by the numbers at the beginning of lines; a line without one goes on."""
    stretches = list[Stretch]()
    for line in lines:
        label, last = _LABEL.match(line), stretches[-1].last if stretches else 0
        if label is not None and int(label[1]) > last:
            stretches.append(Stretch(int(label[1]), int(label[2] or label[1]), (line[label.end() :],)))
        elif stretches:
            stretches[-1] = replace(stretches[-1], texts=(*stretches[-1].texts, line.strip()))
        else:
            stretches.append(Stretch(1, 1, (line,)))
    return stretches


def _tools(loop: LoopText, words: _Words) -> str:
    counts = Counter[str]()
    for call in loop.calls:
        name, _, rest = call.partition(" ")
        counts[name + words.error if rest.endswith("-> error") else name] += 1
    return words.comma.join(f"{name} x{count}" if count > 1 else name for name, count in counts.items())


def _short(text: str, words: _Words) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXTRACT_CHARS else line[:_EXTRACT_CHARS] + words.more


def prompt_for(request: SummaryRequest, counter: TokenCounter) -> Prompt | None:
    """Return the prompt for a summary, or None if the history exceeds `MAX_RECORD_TOKENS` even in its shortest form."""
    system = _system(request)
    for width, calls in _WIDTHS:
        loops = "\n".join(line for loop in request.loops for line in _lines(loop, width, calls))
        tokens = sum(counter.count(text) for text in (request.previous, *request.parts, loops))
        if tokens <= MAX_RECORD_TOKENS:
            return Prompt(system, "\n\n".join(_fenced(request, loops)), tokens)
    return None


def _fenced(request: SummaryRequest, loops: str) -> Iterator[str]:
    if request.previous:
        yield fenced("summary of what came before", request.previous)
    for number, part in enumerate(request.parts, start=1):
        yield fenced(f"record of the conversation, part {number} of {len(request.parts)}", part)
    if loops or not request.parts:
        yield fenced("record of the conversation", loops)


def _system(request: SummaryRequest) -> str:
    script = main_script(request.all_text)
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


class ModelSummariser:
    """Implements `Summariser` on a chat model. Outages are retried within the time-out; an answer that fails the checks is not.

    ``timeout_seconds`` bounds one try. All tries together end within 1.25 times that and a pause.
    """

    def __init__(
        self, model: ChatModel, counter: TokenCounter, clock: Clock, ids: IdSource, *, timeout_seconds: float
    ) -> None:
        self._model = model
        self._counter = counter
        self._clock = clock
        self._ids = ids
        self._timeout_seconds = timeout_seconds

    @property
    def name(self) -> str:
        return self._model.name

    def summarise(self, request: SummaryRequest) -> Summarised:
        """Implement `Summariser`; `SummaryRefusedError` names the tokens that the refused answer cost."""
        prompt = prompt_for(request, self._counter)
        if prompt is None:
            raise _refused("source_too_long", self.name, 0, 0)
        answer = self._tried(prompt, _limit(request.max_tokens))
        text = answer.text.strip()
        # Counting the tokens of megabytes would take long; an answer of that size is too long anyway.
        is_short = len(text) <= request.max_tokens * _MAX_TOKEN_CHARS
        tokens = self._counter.count(text) if is_short else request.max_tokens + 1
        spent_in, spent_out = answer.input_tokens, answer.output_tokens
        if spent_in is None:
            spent_in = self._counter.count(prompt.system) + self._counter.count(prompt.record)
        if spent_out is None:
            spent_out = tokens
        reason: Reason | None = answer.ending if answer.ending != "done" else None
        reason = reason or refusal(
            text,
            tokens=tokens,
            max_tokens=request.max_tokens,
            source_tokens=prompt.record_tokens,
            source_text=request.all_text,
            instructions=prompt.system,
            record=prompt.record,
        )
        if reason is not None:
            raise _refused(reason, self.name, spent_in, spent_out)
        return Summarised(text, self.name, spent_in, spent_out)

    def _tried(self, prompt: Prompt, max_tokens: int) -> ModelAnswer:
        started, tries = self._clock.now_ms(), 0
        while True:
            try:
                return self._model.answer(prompt, max_tokens=max_tokens)
            except UnavailableError as error:
                tries += 1
                pause = self._pause_seconds(error, tries)
                late = (self._clock.now_ms() - started) / 1000 + pause > self._timeout_seconds * _RETRY_SHARE
                if tries >= MAX_TRIES or late or pause >= seconds_left():
                    raise
            self._clock.sleep(pause)

    def _pause_seconds(self, error: UnavailableError, tries: int) -> float:
        """Return the pause before the next try: it doubles with each try, has jitter, and respects the provider's Retry-After."""
        own: float = _FIRST_PAUSE_SECONDS * 2 ** (tries - 1) * (0.5 + self._ids.jitter())
        return max(min(own, _LONGEST_PAUSE_SECONDS), error.retry_after_seconds or 0)


def _limit(max_tokens: int) -> int:
    """Return the output limit of the request: room for reasoning is added, up to `_USUAL_LIMIT`, which most models accept."""
    return max(max_tokens, min(2 * max_tokens + _ROOM_TOKENS, _USUAL_LIMIT))


def _refused(reason: Reason, name: str, input_tokens: int, output_tokens: int) -> SummaryRefusedError:
    return SummaryRefusedError(
        f"the answer of {name} is no summary: {reason}",
        details={"reason": reason, "input_tokens": input_tokens, "output_tokens": output_tokens},
    )
