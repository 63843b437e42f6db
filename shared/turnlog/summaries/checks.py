"""Checks of a model's answer: whether it is a summary, in the language of its source, and of nothing but its source."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Literal, TypeAlias

from turnlog.core.scripts import main_script, script_shares
from turnlog.windows.ledger import is_said

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
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # e-mail
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
    return "".join(char for char in normal if char in "\n\t\r" or not _is_hidden(char))


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or char in _FILLERS


def invented(text: str, record: str) -> Iterator[str]:
    """Yield the identifiers and numbers of a text that stand nowhere in a record.

    A number is compared by its value: 1,200.00 is 1200. A whole number up to the record's lines may count what was done.
    """
    record = visible(record).casefold()
    numbers, lines = {*_values(_NUMBER, record), *_values(_RUN, record)}, record.count("\n") + 1
    numbers |= {_NUMBER_WORDS[word] for word in _WORD.findall(record) if word in _NUMBER_WORDS}
    for match in _NAME.finditer(_LIST_NUMBER.sub("", text).casefold()):
        name = match[0].strip(".,:/+-")
        if not _is_name(name, match[0]) or (name.isdecimal() and Decimal(name) <= lines):
            continue
        is_measure = _MEASURE.fullmatch(name) and numbers.issuperset(_values(_NUMBER, name))
        if not is_measure and not _stands(name, record):
            yield name


def _is_name(name: str, token: str) -> bool:
    return "@" in name or token[0] in "/~." or any(map(str.isdecimal, name))


def _stands(name: str, record: str) -> bool:
    """Return whether the record has the name as a whole; of a hash or UUID the beginning is enough."""
    is_beginning = _HASH.fullmatch(name) is not None and re.search(rf"(?<!\w){name}", record) is not None
    return is_beginning or is_said(name, record)


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
