"""Detection of a text's script, and snippets of text with marked matches.

A script stands for a language here; languages that share a script (English and French) are not distinguished.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

Script: TypeAlias = Literal[
    "latin", "chinese", "japanese", "korean", "cyrillic", "greek", "arabic", "hebrew", "devanagari", "thai"
]

_UNIT = re.compile(
    r"(?P<han>[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
    r"|(?P<kana>[\u3041-\u30ff\uff66-\uff9d])"
    r"|(?P<korean>[\u1100-\u11ff\uac00-\ud7af])"
    r"|(?P<latin>[A-Za-z0-9\u00c0-\u024f\u1e00-\u1eff_./\\@:='+-]+)"
    r"|(?P<cyrillic>[\u0400-\u052f]+)"
    r"|(?P<greek>[\u0370-\u03ff]+)"
    r"|(?P<arabic>[\u0600-\u06ff]+)"
    r"|(?P<hebrew>[\u0590-\u05ff]+)"
    r"|(?P<devanagari>[\u0900-\u097f]+)"
    r"|(?P<thai>[\u0e00-\u0e7f]+)"
)
_WEIGHTS = {"han": 0.6, "kana": 0.4, "korean": 0.4, "thai": 1.5}
"""Words per character on average. In other scripts a run of letters is one word."""
_KANA_SHARE = 0.1
"""The least share of kana in a Japanese text; Chinese has none."""
_LEAST_WORDS = 2.0


def script_shares(text: str) -> dict[Script, float]:
    """Return each script's share of the words, or nothing for fewer than two words.

    Identifiers, paths, numbers and addresses are not counted as words.
    """
    weights = defaultdict[str, float](float)
    for match in _UNIT.finditer(text):
        kind = match.lastgroup or ""
        if kind != "latin" or _is_word(match[0]):
            weights[kind] += _WEIGHTS.get(kind, 1.0)
    han, kana = weights.pop("han", 0.0), weights.pop("kana", 0.0)
    weights["japanese" if kana > _KANA_SHARE * (han + kana) else "chinese"] = han + kana
    total = sum(weights.values())
    if total < _LEAST_WORDS:
        return {}
    return {cast("Script", kind): weight / total for kind, weight in weights.items() if weight}


def main_script(text: str) -> Script | None:
    """Return the script of most words, or None for fewer than two words."""
    shares = script_shares(text)
    return max(shares, key=lambda script: shares[script], default=None)


def _is_word(run: str) -> bool:
    letters = run.strip("_./\\@:='+-").replace("'", "").replace("-", "")
    return letters.isalpha()


MARK_BEGIN, MARK_END = "⟦", "⟧"
"""Marks around a match in a snippet. The same characters in the text itself are shown as plain brackets."""
SNIPPET_CHARS = 240
_PLAIN = str.maketrans({MARK_BEGIN: "[", MARK_END: "]"})


def snippet(text: str, spans: Sequence[tuple[int, int]], *, size: int = SNIPPET_CHARS) -> str:
    """Return about ``size`` characters of a text with marks around the spans in it.

    ``spans`` are in order and do not overlap.
    """
    start = _best(text, spans, size)
    end, position = min(len(text), start + size), start
    parts = list[str]()
    for first, last in spans:
        if last <= start or first >= end:
            continue
        begin, until = max(first, start), min(last, end)
        parts += [text[position:begin].translate(_PLAIN), MARK_BEGIN, text[begin:until].translate(_PLAIN), MARK_END]
        position = until
    parts.append(text[position:end].translate(_PLAIN))
    excerpt = " ".join("".join(parts).split())
    return f"{'...' if start else ''}{excerpt}{'...' if end < len(text) else ''}"


def _best(text: str, spans: Sequence[tuple[int, int]], size: int) -> int:
    """Return the start of the excerpt with the most different matches, a little before the first of them."""
    words = [text[first:last].lower() for first, last in spans]
    highest, best, until = 0, 0, 0
    counts = dict[str, int]()
    for index, (first, _) in enumerate(spans):
        while until < len(spans) and spans[until][1] <= first + size * 5 // 6:
            counts[words[until]] = counts.get(words[until], 0) + 1
            until += 1
        shown = len(counts)
        if shown > highest:
            highest, best = shown, first
        if until > index:
            counts[words[index]] -= 1
            if not counts[words[index]]:
                del counts[words[index]]
        else:
            until = index + 1
    return 0 if len(text) <= size else max(0, min(best - size // 6, len(text) - size))
