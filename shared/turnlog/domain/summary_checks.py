"""Whether a model's answer may stand for a part of a conversation. What is refused is never stored nor shown.

A refusal names a reason and never the text. An answer is data whatever it says: it is shown fenced, in the user role; the
checks keep out what would break the summary's form or carry another text into it.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from turnlog.domain.language import main_script, script_shares

Reason: TypeAlias = Literal[
    "empty",
    "cut_off",
    "filtered",
    "source_too_long",
    "too_long",
    "not_shorter",
    "role_markers",
    "orders",
    "wrong_language",
    "echo",
]
"""``cut_off``: the model ran into its limit; ``filtered``: the provider or the model declined; ``source_too_long``: there is
more to be summarised than a model is given."""

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
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_CLEAR_SHARE, _LEAST_SHARE = 0.7, 0.3
_ECHO_CHARS = 60


def refusal(
    text: str, *, tokens: int, max_tokens: int, source_tokens: int, said: str, instructions: str
) -> Reason | None:
    """Why the text is no summary of a source, or None.

    ``said`` is what the source says in words, ``instructions`` what the model was told to do.
    """
    if not text.strip():
        return "empty"
    if tokens > max_tokens:
        return "too_long"
    if tokens >= source_tokens:
        return "not_shorter"
    if _ROLE.search(text):
        return "role_markers"
    if _repeats(text, instructions):
        return "echo"
    if _ORDERS.search(_SENTENCE_END.sub("\n", text)):
        return "orders"
    if not _keeps_language(text, said):
        return "wrong_language"
    return None


def _keeps_language(text: str, said: str) -> bool:
    """A history in two languages may be told in either."""
    spoken, shares, told = main_script(said), script_shares(said), script_shares(text)
    if spoken is None or shares[spoken] < _CLEAR_SHARE or not told:
        return True
    return told.get(spoken, 0.0) >= _LEAST_SHARE


def _repeats(text: str, instructions: str) -> bool:
    """Whether a stretch of the instructions stands in the text, spaces and line ends aside."""
    flat, told = " ".join(text.split()), " ".join(instructions.split())
    starts = [0, *(found.end() for found in re.finditer(" ", told))]
    return any(told[start : start + _ECHO_CHARS] in flat for start in starts if start + _ECHO_CHARS <= len(told))
