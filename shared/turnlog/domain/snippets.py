"""Snippets: the part of a text that has most of what was looked for, in one line, with what matches marked."""

from __future__ import annotations

from collections.abc import Sequence

MARK_BEGIN, MARK_END = "⟦", "⟧"
"""In a snippet they stand around a match and nowhere else: where a text has them, it is shown with plain brackets."""
SNIPPET_CHARS = 240
_PLAIN = str.maketrans({MARK_BEGIN: "[", MARK_END: "]"})


def snippet(text: str, spans: Sequence[tuple[int, int]], *, size: int = SNIPPET_CHARS) -> str:
    """``size`` characters of a text and the marks around the spans in them; ``spans`` are in order and apart from each other."""
    start = _best(text, spans, size)
    end, at = min(len(text), start + size), start
    parts = list[str]()
    for first, last in spans:
        if last <= start or first >= end:
            continue
        begin, until = max(first, start), min(last, end)
        parts += [text[at:begin].translate(_PLAIN), MARK_BEGIN, text[begin:until].translate(_PLAIN), MARK_END]
        at = until
    parts.append(text[at:end].translate(_PLAIN))
    shown = " ".join("".join(parts).split())
    return f"{'...' if start else ''}{shown}{'...' if end < len(text) else ''}"


def _best(text: str, spans: Sequence[tuple[int, int]], size: int) -> int:
    """Where to begin so that most different matches are shown: a little before the first of them."""
    words = [text[first:last].lower() for first, last in spans]
    most, best, until = 0, 0, 0
    counts = dict[str, int]()
    for at, (first, _) in enumerate(spans):
        while until < len(spans) and spans[until][1] <= first + size * 5 // 6:
            counts[words[until]] = counts.get(words[until], 0) + 1
            until += 1
        shown = len(counts)
        if shown > most:
            most, best = shown, first
        if until > at:
            counts[words[at]] -= 1
            if not counts[words[at]]:
                del counts[words[at]]
        else:
            until = at + 1
    return 0 if len(text) <= size else max(0, min(best - size // 6, len(text) - size))
