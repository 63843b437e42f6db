"""A picture of a report: how long appends wait, what processes on one file do together, memory over a long run. Hand-made SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from xml.sax.saxutils import escape

Document: TypeAlias = Mapping[str, Any]
Draw: TypeAlias = Callable[[float], Iterator[str]]
"""Draws a part below a height."""
WIDTH, LEFT, RIGHT = 880, 190, 850
_ROW, _HEAD, _GAP, _MEMORY = 22, 56, 26, 150
SPOKEN = 'role="img" aria-labelledby="title desc"'
_SERIES = {"embedded": "one", "moto": "two"}
STYLE = """<style>
  .card{fill:#fbfcfe;stroke:#d5dbe5}
  .one{fill:#4f81c7;stroke:#4f81c7}
  .two{fill:#c59318;stroke:#c59318}
  .span{stroke-width:2;stroke-opacity:.45}
  .line{fill:none;stroke-width:2}
  .grid{stroke:#d5dbe5;stroke-width:1}
  .t{fill:#1e2733}
  .m{fill:#58657a}
  text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:13px}
  .t.b{font-weight:600}
  .s{font-size:11.5px}
  @media (prefers-color-scheme: dark){
    .card{fill:#161b23;stroke:#323c4b}
    .one{fill:#5b8fd8;stroke:#5b8fd8}
    .two{fill:#cf9f2c;stroke:#cf9f2c}
    .line{fill:none}
    .grid{stroke:#323c4b}
    .t{fill:#e8edf4}
    .m{fill:#a3b0c2}
  }
</style>"""


def chart(document: Document) -> str:
    """Return the picture of what `table.as_json` gives, as SVG, for light and dark. What was not run is not in it."""
    lines, top, result = list[str](), 20.0, list[str]()
    for part in (_waits(document["cells"]), _shares(document["processes"]), _memory(document["endurance"])):
        if part is not None:
            height, draw, said = part
            lines += draw(top)
            result.append(said)
            top += height + _GAP
    size = f'viewBox="0 0 {WIDTH} {top:g}" width="{WIDTH}" height="{top:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {SPOKEN}>',
            '<title id="title">Turnlog under load</title>',
            f'<desc id="desc">{escape(" ".join(result))}</desc>',
            STYLE,
            f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{top - 2:g}" rx="12"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


def _waits(cells: Sequence[Document]) -> tuple[float, Draw, str] | None:
    rows = [(cell, list(cell["quantiles"]["append"].values())) for cell in cells if "append" in cell["quantiles"]]
    if not rows:
        return None
    least = 10.0 ** math.floor(math.log10(min(times[0] for _, times in rows) * 1000))
    most = 10.0 ** math.ceil(math.log10(max(times[-1] for _, times in rows) * 1000))
    height = _HEAD + _ROW * len(rows) + 24

    def x_of(seconds: float) -> float:
        share = math.log10(seconds * 1000 / least) / math.log10(most / least)
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, share))

    def draw(top: float) -> Iterator[str]:
        yield text(24, top + 14, "How long an append waits, over HTTP: p50, p90, p99 and the slowest", "t b")
        yield text(24, top + 34, "sessions x writers x readers of each session, all at once", "m s")
        yield from _legend(600, top + 30, [item for item in _SERIES if any(row[0]["engine"] == item for row in rows)])
        lower = top + _HEAD + _ROW * len(rows)
        for power in range(round(math.log10(least)), round(math.log10(most)) + 1):
            x = x_of(10.0**power / 1000)
            yield f'<line class="grid" x1="{x:.1f}" y1="{top + _HEAD - 8:g}" x2="{x:.1f}" y2="{lower:g}"/>'
            yield text(x, lower + 16, f"{10.0**power:,g} ms", "m s", "middle")
        for at, (cell, times) in enumerate(rows):
            y, kind = top + _HEAD + _ROW * at + 8, _SERIES[cell["engine"]]
            yield text(LEFT - 12, y + 4, cell["name"], "t s", "end")
            ends = f'x1="{x_of(times[0]):.1f}" y1="{y:g}" x2="{x_of(times[-1]):.1f}" y2="{y:g}"'
            yield f'<line class="{kind} span" {ends}/>'
            for radius, seconds in zip((5, 4, 3, 2), times, strict=True):
                yield f'<circle class="{kind}" cx="{x_of(seconds):.1f}" cy="{y:g}" r="{radius}"/>'

    result = "; ".join(f"{item['engine']} {item['name']}: half within {times[0] * 1000:.0f} ms" for item, times in rows)
    return height, draw, f"Appends over HTTP. {result}."


def _shares(directs: Sequence[Document]) -> tuple[float, Draw, str] | None:
    if not directs:
        return None
    most = max(1.0, *(direct["ratio"] for direct in directs))
    height = _HEAD + _ROW * len(directs)

    def draw(top: float) -> Iterator[str]:
        yield text(24, top + 14, "Processes on one SQLite file: appends a second, against one process", "t b")
        yield text(24, top + 34, "behind the bar: p50 and p99 of the wait for the lock", "m s")
        for at, direct in enumerate(directs):
            y, kind = top + _HEAD + _ROW * at, "two" if direct["same_session"] else "one"
            count = f"{direct['processes']} process{'es' if direct['processes'] > 1 else ''}"
            place = (
                "one session"
                if direct["same_session"]
                else "a session each"
                if direct["processes"] > 1
                else "a session"
            )
            yield text(LEFT - 12, y + 12, f"{count}, {place}", "t s", "end")
            width = (RIGHT - LEFT - 190) * direct["ratio"] / most
            yield f'<rect class="{kind}" x="{LEFT}" y="{y + 2:g}" width="{width:.1f}" height="12" rx="2"/>'
            lock = f"{direct['lock'][0] * 1000:.2g} and {direct['lock'][2] * 1000:.3g} ms" if direct["lock"] else ""
            yield text(LEFT + width + 8, y + 12, f"{direct['ratio']:.2f} x   {lock}", "m s")

    result = "; ".join(
        f"{direct['processes']}, {'one session' if direct['same_session'] else 'a session each'}: {direct['ratio']:.2f}"
        for direct in directs
    )
    return height, draw, f"Processes on one file, against one. {result}."


def _memory(endurances: Sequence[Document]) -> tuple[float, Draw, str] | None:
    if not endurances:
        return None
    x_most = max(endurance["operations"] for endurance in endurances)
    y_most = 50.0 * math.ceil(
        max(held["rss_bytes"] for endurance in endurances for held in endurance["samples"]) / 2**20 / 50
    )
    height = _HEAD + _MEMORY + 24

    def draw(top: float) -> Iterator[str]:
        upper, lower = top + _HEAD, top + _HEAD + _MEMORY
        yield text(
            24, top + 14, "Memory of a server over ever new sessions, that are made, filled, read and erased", "t b"
        )
        yield text(24, top + 34, "MB resident; moto keeps its table in memory", "m s")
        for step in range(round(y_most / 50) + 1):
            y = lower - _MEMORY * step * 50 / y_most
            yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>'
            yield text(LEFT - 8, y + 4, f"{step * 50}", "m s", "end")
        for endurance in endurances:
            places = [
                (
                    LEFT + (RIGHT - LEFT) * held["operations"] / x_most,
                    lower - _MEMORY * held["rss_bytes"] / 2**20 / y_most,
                )
                for held in endurance["samples"]
            ]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline class="{_SERIES[endurance["engine"]]} line" style="fill:none" points="{points}"/>'
        yield from _legend(600, upper - 26, [endurance["engine"] for endurance in endurances])
        yield text(LEFT, lower + 18, "0", "m s", "middle")
        yield text(RIGHT, lower + 18, f"{x_most:,} operations", "m s", "end")

    memory = [[sample["rss_bytes"] / 2**20 for sample in endurance["samples"]] for endurance in endurances]
    changes = (
        f"{endurance['engine']}: {sizes[0]:.0f} to {sizes[-1]:.0f} MB"
        for endurance, sizes in zip(endurances, memory, strict=True)
    )
    return height, draw, f"Memory over {x_most:,} operations. {'; '.join(changes)}."


def _legend(x: float, y: float, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield f'<circle class="{_SERIES[name]}" cx="{x:g}" cy="{y:g}" r="5"/>'
        yield text(x + 12, y + 4, name, "m s")
        x += 100


def text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
