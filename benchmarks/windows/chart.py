"""A picture of the totals: cost (x) against tool calls that lost a value (y), a panel per budget. Hand-made SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from benchmarks.windows.baselines import baseline_of
from benchmarks.windows.limits import budget_text, totals
from benchmarks.windows.rows import Row
from benchmarks.windows.running import Rows

WIDTH, PANEL, TOP, BOTTOM = 880, 300, 88, 40
LEFT, RIGHT = 76, 856
_CHAR, _LINE = 6.6, 13
_RADIUS = 5
_SPOKEN = 'role="img" aria-labelledby="title desc"'
_STYLE = """<style>
  .card{fill:#fbfcfe;stroke:#d5dbe5}
  .own{fill:#4f81c7;stroke:#4f81c7}
  .base{fill:#c59318;stroke:#c59318}
  .own,.base{stroke-width:2}
  .hollow{fill:#fbfcfe}
  .grid{stroke:#d5dbe5;stroke-width:1}
  .one{stroke:#9aa7ba;stroke-width:1;stroke-dasharray:4 3}
  .lead{stroke:#9aa7ba;stroke-width:.8}
  .t{fill:#1e2733}
  .m{fill:#58657a}
  text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:13px}
  .t.b{font-weight:600}
  tspan{font-weight:400}
  .s{font-size:11.5px}
  .c{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:11px}
  @media (prefers-color-scheme: dark){
    .card{fill:#161b23;stroke:#323c4b}
    .own{fill:#5b8fd8;stroke:#5b8fd8}
    .base{fill:#cf9f2c;stroke:#cf9f2c}
    .hollow{fill:#161b23}
    .grid{stroke:#323c4b}
    .one,.lead{stroke:#66748a}
    .t{fill:#e8edf4}
    .m{fill:#a3b0c2}
  }
</style>"""


@dataclass(frozen=True, slots=True)
class Point:
    """A policy in the picture. ``cost`` and ``lost`` are ratios; policies at one place are one point."""

    name: str
    cost: float
    lost: float
    is_own: bool
    is_refused: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def hits(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def chart(rows: Rows) -> str:
    """Return the picture as SVG, for light and dark."""
    values = {budget: _points(rows, budget) for budget in dict.fromkeys(cell.budget for cell in rows)}
    panels = {budget: points for budget, points in values.items() if points}
    height = TOP + PANEL * len(panels) + BOTTOM
    sessions = max((row.sessions for row in totals(rows).values()), default=0)
    size = f'width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {size} {_SPOKEN}>',
        '<title id="title">What windows cost, and what they lose</title>',
        f'<desc id="desc">{escape(_told(panels))}</desc>',
        _STYLE,
        f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="12"/>',
        _text(24, 32, f"Windows of {sessions:,} conversations: what they cost, and what they lose", "t b"),
        *_legend(),
    ]
    for at, (budget, points) in enumerate(panels.items()):
        lines += _panel(budget_text(budget), points, TOP + at * PANEL)
    lines.append(
        _text(
            24,
            height - 16,
            "Cost of the input with a prompt cache (read 0.1, write 1.25); full history is 100 %. Left and low is better.",
            "m s",
        )
    )
    return "\n".join([*lines, "</svg>", ""])


def _points(rows: Rows, budget: int | None) -> list[Point]:
    at_place = dict[tuple[str, str, bool, bool], Point]()
    for (policy, asked), row in totals(rows).items():
        point = _point(policy, row) if asked == budget else None
        if point is None:
            continue
        key = (f"{point.cost:.3f}", f"{point.lost:.3f}", point.is_own, point.is_refused)
        other = at_place.get(key)
        at_place[key] = point if other is None else _joined(other, point)
    return list(at_place.values())


def _point(policy: str, row: Row) -> Point | None:
    if row.cost_ratio is None or row.either_ratio is None:
        return None
    refused = (row.cut_invalid + row.over_budget) > 0
    # A handful among thousands is in the table.
    note = f"{row.too_small / row.calls:.0%} no window" if row.too_small * 200 >= row.calls else ""
    return Point(policy, row.cost_ratio, row.either_ratio, baseline_of(policy) is None, refused, note)


def _joined(one: Point, other: Point) -> Point:
    return Point(f"{one.name}, {other.name}", one.cost, one.lost, one.is_own, one.is_refused, one.note)


def _legend() -> Iterator[str]:
    entries = (
        ("own", "Turnlog's policies"),
        ("base", "plain ways"),
        ("base hollow", "made windows that a provider refuses"),
    )
    x = 30.0
    for kind, text in entries:
        yield f'<circle class="{kind}" cx="{x:g}" cy="54" r="{_RADIUS}"/>'
        yield _text(x + 12, 58, text, "m s")
        x += 44 + len(text) * 6.0


def _panel(name: str, points: Sequence[Point], top: float) -> Iterator[str]:
    upper, lower = top + 30, top + PANEL - 48
    x_step, y_step = (
        _step(max(1.0, *(point.cost for point in points))),
        _step(max(0.05, *(point.lost for point in points))),
    )
    x_most = _above(max(1.0, *(point.cost for point in points)), x_step)
    y_most = _above(max(0.05, *(point.lost for point in points)), y_step)

    def x_of(cost: float) -> float:
        return LEFT + (RIGHT - LEFT - 20) * cost / x_most

    def y_of(lost: float) -> float:
        return lower - (lower - upper) * lost / y_most

    result = f'{escape(name)}<tspan class="m s" dx="10">tool calls that take a value from before and lost one</tspan>'
    yield f'<text class="t b" x="24" y="{top + 12:g}">{result}</text>'
    for number in range(round(y_most / y_step) + 1):
        y = y_of(number * y_step)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>'
        yield _text(LEFT - 8, y + 4, _percent(number * y_step), "m s", "end")
    for number in range(round(x_most / x_step) + 1):
        x = x_of(number * x_step)
        yield f'<line class="grid" x1="{x:.1f}" y1="{lower}" x2="{x:.1f}" y2="{lower + 4}"/>'
        yield _text(x, lower + 18, _percent(number * x_step), "m s", "middle")
    yield f'<line class="one" x1="{x_of(1):.1f}" y1="{upper}" x2="{x_of(1):.1f}" y2="{lower}"/>'
    yield _text(RIGHT, lower + 34, "cost against full history", "m s", "end")
    places = [(x_of(point.cost), y_of(point.lost)) for point in points]
    boxes = [_Box(x - 7, y - 7, x + 7, y + 7) for x, y in places]
    for point, (x, y) in sorted(zip(points, places, strict=True), key=lambda item: item[1]):
        yield from _labelled(point, x, y, boxes, _Box(LEFT - 4, upper - 6, RIGHT + 6, lower + 2))
    for point, (x, y) in zip(points, places, strict=True):
        kind = ("own" if point.is_own else "base") + (" hollow" if point.is_refused else "")
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}"/>'


def _labelled(point: Point, x: float, y: float, boxes: list[_Box], inside: _Box) -> Iterator[str]:
    """Place a point's name at the nearest place that is free; with a line to it when that is not beside it."""
    text = point.name + (f" ({point.note})" if point.note else "")
    width = len(text) * _CHAR
    box, is_near = _free(x, y, width, boxes, inside)
    boxes.append(box)
    if not is_near:
        end = min(max(x, box.left), box.right)
        yield f'<line class="lead" x1="{x:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{(box.top + box.bottom) / 2:.1f}"/>'
    yield _text(box.left, box.bottom - 3, text, "t c")


def _free(x: float, y: float, width: float, boxes: Sequence[_Box], inside: _Box) -> tuple[_Box, bool]:
    for away in range(0, 160, 4):
        for left in (x + 9, x - 9 - width, x - width / 2):
            for side in (-1, 1):
                middle = y + side * (away + (11 if left == x - width / 2 else 0))
                box = _Box(left, middle - _LINE / 2, left + width, middle + _LINE / 2)
                is_in = box.left >= inside.left and box.right <= inside.right and box.top >= inside.top
                if is_in and box.bottom <= inside.bottom and not any(box.hits(other) for other in boxes):
                    return box, away < 8
    return _Box(x + 9, y - _LINE / 2, x + 9 + width, y + _LINE / 2), True


def _step(most: float) -> float:
    """Return a round step of which at most six are needed."""
    least = most / 6
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * value for value in (1, 2, 2.5, 5, 10) if power * value >= least - 1e-12)


def _above(most: float, step: float) -> float:
    return step * math.ceil(most / step - 1e-9)


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.3g} %"


def _told(panels: dict[int | None, list[Point]]) -> str:
    values = [
        f"{budget_text(budget)}: "
        + ", ".join(f"{point.name} costs {point.cost:.0%} and loses {point.lost:.1%}" for point in points)
        for budget, points in panels.items()
    ]
    return "Cost against full history, and share of tool calls that lost a value. " + "; ".join(values) + "."


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
