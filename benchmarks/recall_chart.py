"""A picture of the evidence that stands in windows, by budget and by what fills them. Hand-made SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.load.chart import SPOKEN, STYLE, text

WIDTH, HEIGHT = 880, 300
_LEFT, _TOP, _BOTTOM = 64, 84, 250
_KINDS = {
    "`recall`": ("one", 1.0),
    "summaries": ("two", 1.0),
    "newest that fit": ("two", 0.6),
    "`default`": ("two", 0.3),
}


def chart(shares: Mapping[tuple[str, int], float], budgets: Sequence[int], questions: int) -> str:
    """Return the picture of shares by policy and budget as SVG, for light and dark."""
    names = [name for name in _KINDS if any((name, budget) in shares for budget in budgets)]
    result = "; ".join(
        f"{name.strip('`')} " + ", ".join(f"{shares[name, budget]:.0%} at {budget:,}" for budget in budgets)
        for name in names
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {SPOKEN}>',
            '<title id="title">How much of what a question is about stands in the window</title>',
            f'<desc id="desc">Share of the evidence of {questions:,} questions: {escape(result)}.</desc>',
            STYLE,
            f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>',
            text(
                24, 30, f"What {questions:,} questions about long dialogues need: how much stands in the window", "t b"
            ),
            *_legend(names),
            *_bars(shares, budgets, names),
            "</svg>",
            "",
        ]
    )


def _legend(names: Sequence[str]) -> Iterator[str]:
    left = 30.0
    for name in names:
        kind, strength = _KINDS[name]
        yield f'<circle class="{kind}" cx="{left:g}" cy="54" r="5" style="opacity:{strength}"/>'
        yield text(left + 12, 58, name.strip("`"), "m s")
        left += 50 + len(name) * 6.2


def _bars(shares: Mapping[tuple[str, int], float], budgets: Sequence[int], names: Sequence[str]) -> Iterator[str]:
    for percent in (0, 50, 100):
        y = _BOTTOM - (_BOTTOM - _TOP) * percent / 100
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:g}" x2="{WIDTH - 24}" y2="{y:g}"/>'
        yield text(_LEFT - 8, y + 4, f"{percent} %", "m s", "end")
    group = (WIDTH - 24 - _LEFT) / len(budgets)
    width = min(44.0, (group - 24) / max(1, len(names)))
    for index, budget in enumerate(budgets):
        middle = _LEFT + group * (index + 0.5)
        yield text(middle, _BOTTOM + 22, f"{budget:,} tokens", "m s", "middle")
        for place, name in enumerate(names):
            share, (kind, strength) = shares[name, budget], _KINDS[name]
            left, height = middle + (place - len(names) / 2) * width, (_BOTTOM - _TOP) * share
            top = _BOTTOM - height
            bar = f'x="{left + 2:.1f}" y="{top:.1f}" width="{width - 4:.1f}" height="{height:.1f}" rx="2"'
            yield f'<rect class="{kind}" {bar} style="opacity:{strength};stroke:none"/>'
            yield text(round(left + width / 2, 1), round(top - 5, 1), f"{share:.0%}", "t s", "middle")
