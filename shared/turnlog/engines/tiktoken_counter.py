"""A token counter with tiktoken and the vocabulary that ships with Turnlog."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken


_CHUNK = 65_536
"""Characters of a text that is encoded in one call; a longer text is cut into chunks."""
_LONGEST_CHUNK = 262_144
"""Characters after which a text is cut even without a safe place: tiktoken's pattern fails on 10**6 spaces."""
_FORCED_CUT_TOKENS = 8
"""Tokens added for each such cut. The largest error seen is 3."""

_SAFE_CUT = re.compile(
    r"(?<=\S)(?=[ \t])"
    r"|(?<=[A-Za-z0-9])(?=[\r\n])"
    r"|(?<=[A-Za-z])(?=[!-&(-@\[-`{-~])"
    r"|(?<=[0-9])(?=[!-/:-~])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])(?=[!-&(-@\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
)
"""Places where the encoding's pattern always ends a piece, so that a cut does not change the count."""

_lock = threading.Lock()
_encodings: list[tiktoken.Encoding] = []


class TiktokenCounter:
    """`TokenCounter` by o200k_base: exact, with special tokens read as plain text. Never uses the network.

    The first count of the process loads the vocabulary (0.3 s, 80 MB), which all counters and threads share. A lone surrogate
    counts as U+FFFD, as providers receive it. Time is linear in the length, about 1 s for a million characters. A text with no
    safe place to cut for 200,000 characters (spaces, or one endless word) counts up to 8 tokens too many per 262,144 characters,
    never too few.
    """

    @property
    def name(self) -> str:
        return "o200k_base"

    def count(self, text: str) -> int:
        encode = _encoding().encode_ordinary
        if len(text) <= _CHUNK:
            return len(encode(text))
        return sum(len(encode(chunk)) + extra for chunk, extra in _chunks(_without_surrogates(text)))


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
        return _encodings[0]


def _without_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, as tiktoken does; done before chunks are cut, which could split a pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _chunks(text: str, *, size: int = _CHUNK, longest: int = _LONGEST_CHUNK) -> Iterator[tuple[str, int]]:
    """Yield a text in chunks of ``size`` to ``longest`` characters, each with the tokens to add for the cut after it."""
    start = 0
    while len(text) - start > size:
        match = _SAFE_CUT.search(text, start + size, min(start + longest, len(text)))
        end, extra = (match.start(), 0) if match else (start + longest, _FORCED_CUT_TOKENS)
        if end >= len(text):
            break
        yield text[start:end], extra
        start = end
    yield text[start:], 0
