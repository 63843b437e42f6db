"""Detection of a text's script.

A script stands for a language here; languages that share a script (English and French) are not distinguished.
"""

from __future__ import annotations

import re
from collections import defaultdict
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
