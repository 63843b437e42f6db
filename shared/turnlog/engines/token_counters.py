"""Exact token counts by the vocabulary that ships with Turnlog."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from turnlog.core.json_values import sendable_text
from turnlog.engines.piece_counter import PieceCounter
from turnlog.log.fork_lock import fork_lock

if TYPE_CHECKING:
    import tiktoken


_CHUNK, _LONGEST_CHUNK = 14_336, 16_384
"""Characters of a text that is encoded in one call. A longer text is cut at the first safe place after `_CHUNK` characters, or at
`_LONGEST_CHUNK` where none is safe. A longer word takes more time for each of its letters, three times as much with 262,144."""
_FORCED_CUT_TOKENS = 8
"""Tokens added for each cut at a place that is not safe. The largest error seen is 3; `_forced_cut` avoids larger ones."""

_SAFE_CUT = (
    r"(?<=\S)(?=[ \t])"
    r"|(?<=[^\W_])(?=[!-&(-/:-@\[-`{-~\r\n])"
    r"|(?<=[A-Za-z])(?=[0-9])"
    r"|(?<=[0-9])(?=[A-Za-z])"
    r"|(?<=[a-z][a-z])(?=[A-Z])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])(?=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
)
"""Places where the encoding's pattern always ends a piece, so that a cut does not change the count. Two small letters before a
capital: one alone may be the begin of a contraction (``'lL``)."""


_lock = fork_lock()
_encodings: list[tiktoken.Encoding] = []


class TiktokenCounter:
    """`TokenCounter` by o200k_base: exact, with special tokens read as plain text. Never uses the network.

    The first texts of a process are counted by `PieceCounter`. When these have many different words, tiktoken is loaded (0.3 s,
    80 MB) and shared by all counters and threads; it counts the same. A lone surrogate counts as U+FFFD, as providers receive it.
    Time is linear in the length: 20 ns a byte of prose, at most some 180 ns. A stretch with no safe place to cut in 2,048
    characters (spaces, or one endless word) counts up to 12 tokens too many per 16,384 characters, never too few.
    """

    name = "o200k_base"

    def count(self, text: str) -> int:
        text = sendable_text(text)  # as tiktoken does, but before chunks are cut, which could split a pair
        if len(text) <= _LONGEST_CHUNK:
            return _count(text)
        return sum(_count(chunk) + extra for chunk, extra in chunks_of(text))


def _count(text: str) -> int:
    if not _encodings and (tokens := _pieces().count(text)) is not None:
        return tokens
    return len(_encoding().encode_ordinary(text))


@cache
def _pieces() -> PieceCounter:
    return PieceCounter()


def _encoding() -> tiktoken.Encoding:
    with _lock:
        if not _encodings:
            import tiktoken

            import turnlog_vocabulary as vocabulary

            _encodings.append(
                tiktoken.Encoding(
                    vocabulary.NAME,
                    pat_str=vocabulary.PATTERN,
                    mergeable_ranks=vocabulary.mergeable_ranks(),
                    special_tokens=vocabulary.SPECIAL_TOKENS,
                )
            )
            _pieces.cache_clear()
        return _encodings[0]


@cache
def _safe_cut() -> re.Pattern[str]:
    return re.compile(_SAFE_CUT)


def chunks_of(text: str, *, size: int = _CHUNK, longest: int = _LONGEST_CHUNK) -> Iterator[tuple[str, int]]:
    """Yield a text in chunks of ``size`` to ``longest`` characters, each with the tokens to add for the cut after it."""
    start = 0
    while len(text) - start > size:
        match = _safe_cut().search(text, start + size, min(start + longest, len(text)))
        if match is None and len(text) - start <= longest:
            break
        end, extra = (match.start(), 0) if match else (_forced_cut(text, start, start + longest), _FORCED_CUT_TOKENS)
        yield text[start:end], extra
        start = end
    yield text[start:], 0


def _forced_cut(text: str, start: int, end: int) -> int:
    """Return ``end``, or up to two characters less in a run of numerals, which the pattern groups by three from their first."""
    first = start + len(text[start:end].rstrip("0123456789"))
    while first > start and unicodedata.category(text[first - 1]).startswith("N"):
        first -= 1
    return max(start + 1, end - (end - first) % 3)
