"""A picture of what appends, windows and searches in one process take by the length of the session. Hand-made SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from benchmarks.load.chart import SPOKEN, STYLE, text
from benchmarks.peers.embedded import TURNLOG, Measure

WIDTH, HEIGHT = 880, 290
_PANELS = ("append", "window of 8,000 tokens", "next search")
_LEFT, _WIDTH, _TOP, _BOTTOM = 60, 210, 70, 240


def chart(measures: Sequence[Measure]) -> str:
    """Return the picture as SVG, for light and dark."""
    panels = [[line for line in measures if line.what == what] for what in _PANELS]
    lines = [line for index, panel in enumerate(panels) for line in _panel(24 + 285 * index, panel)]
    result = "; ".join(_told(line) for panel in panels for line in panel)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {SPOKEN}>',
            '<title id="title">Turnlog in process beside its peers</title>',
            f'<desc id="desc">CPU by messages of the session. {escape(result)}.</desc>',
            STYLE,
            f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


def _told(line: Measure) -> str:
    values = ", ".join(f"{value:.3g} ms at {size:,}" for size, value in line.values.items())
    return f"{line.what}, {line.system}: {values}"


def _panel(left: float, lines: Sequence[Measure]) -> Iterator[str]:
    """Draw one panel: both axes in powers of ten."""
    values = [value for line in lines for value in line.values.values() if value > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    sizes = list(lines[0].values)
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def x_of(size: int) -> float:
        return left + _LEFT + (math.log10(size) - first) / max(1, last - first) * (_WIDTH - 20)

    def y_of(value: float) -> float:
        return _BOTTOM - (math.log10(value) - low) / max(1, high - low) * (_BOTTOM - _TOP)

    yield text(left, 28, f"{lines[0].what}, CPU", "t b")
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        yield f'<line class="grid" x1="{left + _LEFT}" y1="{y:.1f}" x2="{left + _LEFT + _WIDTH - 20}" y2="{y:.1f}"/>'
        yield text(left + _LEFT - 6, y + 4, f"{10.0**power:,g} ms", "m s", "end")
    for size in sizes:
        yield text(x_of(size), _BOTTOM + 18, f"{size:,}", "m s", "middle")
    for index, line in enumerate(lines):
        kind = "one" if line.system == TURNLOG else "two"
        points = [(x_of(size), y_of(value)) for size, value in line.values.items() if value > 0]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline class="{kind} line" points="{joined}" style="fill:none"/>'
        yield from (f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
        yield f'<circle class="{kind}" cx="{left + 6 + 95 * index:.1f}" cy="46" r="5"/>'
        yield text(left + 16 + 95 * index, 50, line.system, "m s")
