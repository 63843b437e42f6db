"""Summarisers: extracts without a model, or any chat model with a prompt, a bounded number of tries, and checks of its answer.

The extract quotes the question, the called tools and the answer of each loop, shortened. All other words of it are in the
language of the conversation.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache, lru_cache
from importlib.resources import files
from string import Template
from typing import Literal, TypeAlias

from turnlog.core.errors import SummaryRefusedError, UnavailableError
from turnlog.core.json_values import sendable_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import seconds_left
from turnlog.core.scripts import Script, main_script, script_shares
from turnlog.core.summaries import LoopText, Summarised, SummaryRequest
from turnlog.ports import ChatModel, Clock, IdSource, ModelAnswer, Prompt, TokenCounter
from turnlog.providers.blocks import fenced
from turnlog.summaries.passages import Passages, Stretch
from turnlog.windows.text import one_line

_INDENT = "   "
_SCRIPT_CHARS = 4_000
"""Newest characters that tell the language of an extract's own words."""
_EXTRACT_CHARS = 300
"""Characters kept of each text that is quoted from its beginning."""
_LABEL = re.compile(r"(\d+)(?:-(\d+))?(?:\.|(:)(?= |$)) ?")
_TRUNCATED = re.compile(r"\.{3}\[truncated \d+ characters\]")
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

    name = "extractive-4"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._cost = lru_cache(maxsize=20_000)(lambda word: counter.count(f" {word}"))

    def summarise(self, request: SummaryRequest) -> Summarised:
        return Summarised(self._text(request), self.name)

    def _text(self, request: SummaryRequest) -> str:
        script = main_script(request.all_text[-_SCRIPT_CHARS:])
        words = _WORDS.get(script, _ENGLISH) if script else _ENGLISH
        earlier = [line for text in (*request.parts, request.previous) for line in text.split("\n") if line.strip()]
        lines = [line for loop in request.loops for line in _extract_lines(loop, words)]
        text = "\n".join([*earlier, *lines])
        if self._counter.count(text) <= request.max_tokens:
            return text
        stretches = [*_stretches_of(earlier), *(_stretch_of(loop, words) for loop in request.loops)]
        passages, room = Passages(stretches, self._cost), request.max_tokens
        while room > 0:
            text = passages.within(room)
            excess = self._counter.count(text) - request.max_tokens
            if excess <= 0:
                return text
            room -= excess + 1
        return ""


def _extract_lines(loop: LoopText, words: _Words) -> Iterator[str]:
    """Yield a loop's lines: ``12. question``, then the tools, then the reply."""
    yield f"{loop.number}. {one_line(loop.asked, _EXTRACT_CHARS, words.more)}".rstrip()
    if loop.calls:
        yield f"{_INDENT}{words.tools}{_tools(loop, words)}"
    if loop.reply:
        yield f"{_INDENT}-> {one_line(loop.reply, _EXTRACT_CHARS, words.more)}"
    elif loop.interrupted:
        yield f"{_INDENT}-> {words.no_reply}"


def _stretch_of(loop: LoopText, words: _Words) -> Stretch:
    calls = (f"{words.tools}{_tools(loop, words)}",) if loop.calls else ()
    texts = (" ".join(_TRUNCATED.sub("", text).split()) for text in (loop.asked, *calls, loop.reply))
    return Stretch(loop.number, loop.number, tuple(texts))


def _stretches_of(lines: Sequence[str]) -> list[Stretch]:
    """Return the stretches that earlier summaries tell of, by the numbers at the beginning of lines; a line without one goes on.

    A colon stands behind the numbers of an extract.
    """
    stretches = list[Stretch]()
    for line in lines:
        label, last = _LABEL.match(line), stretches[-1].last if stretches else 0
        if label is not None and int(label[1]) > last:
            first = int(label[1])
            stretches.append(
                Stretch(first, max(first, int(label[2] or 0)), (line[label.end() :],), label[3] is not None)
            )
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


_SPOKEN_BY = (
    r"human|user|assistant|system|developer|tool|ai|用户|使用者|助手|助理|系统|系統"
    r"|ユーザー|アシスタント|システム|사용자|어시스턴트|시스템"
)
_ROLE = re.compile(
    rf"^[ \t>#*_\-\[(]*(?:{_SPOKEN_BY})[ \t*_\])]*[:：]"  # "User:", "**Assistant**:", "[System]:", "用户："
    rf"|^#+[ \t]*(?:{_SPOKEN_BY})[ \t]*$"
    r"|<\|[a-z_]{2,40}\|>"  # ChatML and Llama 3
    r"|</?\s*(?:system|user|assistant|human|developer|tool|instructions?|turn)\b[^>\n]{0,80}>"
    r"|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<\\?\s*/?\s*turnlog-data",
    re.IGNORECASE | re.MULTILINE,
)
_ORDERS = re.compile(
    r"^[^\w\n]*(?:please\s+|now\s+)?(?:ignore|disregard|forget|override)\s+(?:(?:all|any|the|your|these|of)\s+){0,3}"
    r"(?:previous|prior|above|earlier|preceding|foregoing|system)\b"
    r"|^[^\w\n]*(?:请|請)?(?:忽略|无视|無視|忘记|忘記)[^\n。]{0,8}(?:以上|之前|前面|先前|上述|所有)[^\n。]{0,8}(?:指令|指示|提示|说明|規則|规则)"
    r"|^[^\w\n]*you\s+(?:are\s+now|must\s+now)\b",
    re.IGNORECASE | re.MULTILINE,
)
_SMUGGLED = re.compile("[\U000e0000-\U000e007f]")
"""Unicode's tag characters: people don't see them, and models read them as letters."""
_THINKING = re.compile(r"</?\s*(?:think(?:ing)?|thought|reasoning)\b", re.IGNORECASE)
_DECLINED = re.compile(
    r"^[^\w\n]*(?:(?:i['’]?m|i am|we['’]?re|we are) (?:(?:very|so|really|truly) )?(?:sorry|afraid|unable|not able)"
    r"|sorry,|my apologies|i apologi[sz]e"
    r"|(?:sorry,? |unfortunately,? )?(?:i|we) (?:can['’]?t|cannot|can not|won['’]?t|couldn['’]?t|do not|don['’]?t)\b"
    r"|as an? (?:ai|artificial|(?:large )?language model)\b"
    r"|(?:非常|很|十分)?(?:抱歉|对不起|對不起|不好意思)|我[^\n。，]{0,12}(?:无法|無法|不能|不便)"
    r"|(?:作为|作為|身为)[^\n。，]{0,12}(?:ai|人工智能|模型)"
    r"|(?:大変)?(?:申し訳|すみません|恐れ入りますが)|죄송|미안"
    r"|je suis (?:vraiment )?désolée?|je ne (?:peux|suis)|désolée?,|lo siento|no puedo|es tut mir leid"
    r"|ich kann (?:das|dir|ihnen|dabei)|mi dispiace|non posso|desculpe|não posso|извините|к сожалению, я)",
    re.IGNORECASE | re.MULTILINE,
)
"""Beginnings of lines in which a model speaks of itself and declines. A summary tells of "the agent"."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_CLEAR_SHARE, _LEAST_SHARE = 0.7, 0.3
_ECHO_CHARS = 60

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_FILLERS = frozenset("\u115f\u1160\u3164\u2800")
_LIST_NUMBER = re.compile(r"^[^\w\n]*\d{1,3}[.)]\s", re.MULTILINE)
_NAME = re.compile(
    r"[a-z][a-z0-9+.-]*://[a-z0-9_.~:/?#@!$&*+,;=%-]+"  # URL, in lower case
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # e-mail
    r"|(?<!\w)(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}"  # path
    r"|[A-Za-z0-9_#][A-Za-z0-9_.,:#/+-]*"  # token; only those with a digit count
)
_NUMBER = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")
_RUN = re.compile(r"\d+")
_MEASURE = re.compile(r"#?\d[\d.,:/+-]*[a-z]{0,3}")
"""A number or several with at most a short unit: 10:30, 2026-11-23, 15kg, 7th."""
_HASH = re.compile(r"[0-9a-f-]{7,}")
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve"
_MONTHS = "january february march april may june july august september october november december"
_NUMBER_WORDS = {
    word: Decimal(number)
    for words in (_NUMBERS.split(), _MONTHS.split(), "一二三四五六七八九十")
    for number, word in enumerate(words, start=1)
}
_WORD = re.compile(r"[a-z]+|[一二三四五六七八九十]")

Reason: TypeAlias = Literal[
    "empty",
    "cut_off",
    "filtered",
    "source_too_long",
    "too_long",
    "not_shorter",
    "thinking",
    "role_markers",
    "orders",
    "declined",
    "wrong_language",
    "echo",
    "ungrounded",
]
"""Reasons to refuse an answer. ``cut_off``: the model ran into its limit. ``filtered``: the provider or the model declined.
``source_too_long``: the history is too long for a model, so none was called. ``thinking``: the answer has the model's thinking.
``declined``: the model says that it can't help. ``ungrounded``: an identifier or number stands nowhere in the record."""


def refusal(
    text: str, *, tokens: int, max_tokens: int, source_tokens: int, source_text: str, instructions: str, record: str
) -> Reason | None:
    """Return the reason why a text is no summary of a source, or None if the text passes all checks.

    ``source_text`` is the text that people and the agent wrote in the source; ``instructions`` is the prompt's system text;
    ``record`` is all that the model was given of the source. Nothing hides behind invisible characters.
    """
    if tokens > max_tokens:
        return "too_long"
    shown = visible(text)
    checks: tuple[tuple[Reason, Callable[[], object]], ...] = (
        ("empty", lambda: not any(map(str.isalnum, shown))),
        ("not_shorter", lambda: tokens >= source_tokens),
        ("thinking", lambda: _THINKING.search(shown)),
        ("role_markers", lambda: _ROLE.search(shown)),
        ("echo", lambda: _repeats(shown, instructions)),
        ("orders", lambda: _ORDERS.search(_SENTENCE_END.sub("\n", shown)) or _SMUGGLED.search(text)),
        ("declined", lambda: _DECLINED.search(shown)),
        ("wrong_language", lambda: not _keeps_language(shown, source_text)),
        ("ungrounded", lambda: any(invented(shown, record))),
    )
    return next((reason for reason, fails in checks if fails()), None)


def visible(text: str) -> str:
    """Return the text in compatibility form, without characters that show nothing: zero-width, format, control, filler."""
    if text.isascii() and text.isprintable():
        return text
    normal = unicodedata.normalize("NFKC", text)
    return "".join(
        char
        for char in normal
        if char in "\n\t\r" or not (char in _FILLERS or unicodedata.category(char) in _HIDDEN_CATEGORIES)
    )


def invented(text: str, record: str) -> Iterator[str]:
    """Yield the identifiers and numbers of a text that stand nowhere in a record, and host with path of such URLs.

    A number is compared by its value: 1,200.00 is 1200. A whole number up to the record's lines may count what was done.
    """
    record = visible(record).casefold()
    numbers, lines = {*_values(_NUMBER, record), *_values(_RUN, record)}, record.count("\n") + 1
    numbers |= {_NUMBER_WORDS[word] for word in _WORD.findall(record) if word in _NUMBER_WORDS}
    for match in _NAME.finditer(_LIST_NUMBER.sub("", text).casefold()):
        name = match[0].split("://", 1)[-1].strip(".,:/+-?!;*")
        is_name = "@" in name or "://" in match[0] or match[0][0] in "/~." or any(map(str.isdecimal, name))
        if not is_name or (name.isdecimal() and Decimal(name) <= lines):
            continue
        is_measure = _MEASURE.fullmatch(name) and numbers.issuperset(_values(_NUMBER, name))
        if not is_measure and not _stands(name, record):
            yield name


def _stands(name: str, record: str) -> bool:
    """Return whether the record has the name, no Latin letter or digit beside it; of a hash or UUID the beginning is enough."""
    end = "" if _HASH.fullmatch(name) else "(?![a-z0-9])"
    return re.search(f"(?<![a-z0-9]){re.escape(name)}{end}", record) is not None


def _values(pattern: re.Pattern[str], text: str) -> Iterator[Decimal]:
    return (Decimal(match[0].replace(",", "")) for match in pattern.finditer(text))


def _keeps_language(text: str, source_text: str) -> bool:
    """Return whether a text is in the main script of the source; if the source has no clear main script, any text is."""
    spoken, source_shares, text_shares = main_script(source_text), script_shares(source_text), script_shares(text)
    if spoken is None or source_shares[spoken] < _CLEAR_SHARE or not text_shares:
        return True
    return text_shares.get(spoken, 0.0) >= _LEAST_SHARE


def _repeats(text: str, instructions: str) -> bool:
    """Return whether a text repeats `_ECHO_CHARS` characters of the instructions; white space is not compared."""
    flat, rules = " ".join(text.split()), " ".join(instructions.split())
    starts = [0, *(match.end() for match in re.finditer(" ", rules))]
    return any(rules[start : start + _ECHO_CHARS] in flat for start in starts if start + _ECHO_CHARS <= len(rules))


def prompt_for(request: SummaryRequest, counter: TokenCounter) -> Prompt | None:
    """Return the prompt for a summary, or None if the history exceeds `MAX_RECORD_TOKENS` even in its shortest form."""
    system = _system(request)
    for width, calls in _WIDTHS:
        loops = "\n".join(line for loop in request.loops for line in _lines(loop, width, calls))
        tokens = sum(counter.count(text) for text in (request.previous, *request.parts, loops))
        if tokens <= MAX_RECORD_TOKENS:
            return Prompt(system, sendable_text("\n\n".join(_fenced(request, loops))), tokens)
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
    yield f"exchange {loop.number}, asked: {one_line(loop.asked, width)}".rstrip()
    for call in loop.calls[:calls]:
        yield f"exchange {loop.number}, called: {one_line(call, _CALL_CHARS)}"
    if len(loop.calls) > calls:
        yield f"exchange {loop.number}, called: {len(loop.calls) - calls} more"
    if loop.reply:
        yield f"exchange {loop.number}, answered: {one_line(loop.reply, width)}"
    elif loop.interrupted:
        yield f"exchange {loop.number} was interrupted before an answer"


@lazy_dataclass(frozen=True, slots=True)
class ModelSummariser:
    """Implements `Summariser` on a chat model. Outages are retried within the time-out; an answer that fails the checks is not.

    ``timeout_seconds`` bounds one try. All tries together end within 1.25 times that and a pause.
    """

    model: ChatModel
    counter: TokenCounter
    clock: Clock
    ids: IdSource
    timeout_seconds: float

    @property
    def name(self) -> str:
        return self.model.name

    def summarise(self, request: SummaryRequest) -> Summarised:
        """Implement `Summariser`; `SummaryRefusedError` names the tokens that the refused answer cost."""
        prompt = prompt_for(request, self.counter)
        if prompt is None:
            raise _refused("source_too_long", self.name, 0, 0)
        # Room for reasoning is added, up to a limit that most models accept.
        tokens = request.max_tokens
        answer = self._tried(prompt, max(tokens, min(2 * tokens + _ROOM_TOKENS, _USUAL_LIMIT)))
        text = answer.text.strip()
        # Counting the tokens of megabytes would take long; an answer of that size is too long anyway.
        is_short = len(text) <= request.max_tokens * _MAX_TOKEN_CHARS
        tokens = self.counter.count(text) if is_short else request.max_tokens + 1
        spent_in, spent_out = answer.input_tokens, answer.output_tokens
        if spent_in is None:
            spent_in = self.counter.count(prompt.system) + self.counter.count(prompt.record)
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
        started, tries = self.clock.now_ms(), 0
        while True:
            try:
                return self.model.answer(prompt, max_tokens=max_tokens)
            except UnavailableError as error:
                tries += 1
                pause = self._pause_seconds(error, tries)
                late = (self.clock.now_ms() - started) / 1000 + pause > self.timeout_seconds * _RETRY_SHARE
                if tries >= MAX_TRIES or late or pause >= seconds_left():
                    raise
            self.clock.sleep(pause)

    def _pause_seconds(self, error: UnavailableError, tries: int) -> float:
        """Return the pause before the next try: it doubles with each try, has jitter, and respects the provider's Retry-After."""
        own: float = _FIRST_PAUSE_SECONDS * 2 ** (tries - 1) * (0.5 + self.ids.jitter())
        return max(min(own, _LONGEST_PAUSE_SECONDS), error.retry_after_seconds or 0)


def _refused(reason: Reason, name: str, input_tokens: int, output_tokens: int) -> SummaryRefusedError:
    return SummaryRefusedError(
        f"the answer of {name} is no summary: {reason}",
        details={"reason": reason, "input_tokens": input_tokens, "output_tokens": output_tokens},
    )
