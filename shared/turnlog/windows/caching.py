"""Where a provider's prompt cache should end: at what the next call, or one after the next change, has in common with this.

A call reads what an earlier one has written, and what is written ends at a breakpoint. So there is one behind all that the next
call repeats; one where the window before ended, for many blocks may have come since; one at the border of digests, stubs and
notes, which is what stays when more of them are made; and one behind tools and system text, which other sessions share.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.codecs.base import BEFORE_ALL, End
from turnlog.codecs.breakpoints import KINDS, LOOKBACK_BLOCKS, MIN_TOKENS, Place, breakpoints
from turnlog.windows.prefix import Common, Made
from turnlog.windows.view import Loop, View

_COUNTED = 1.5
"""So many tokens of a provider's may be one of ours."""


def places_of(made: Made, common: Common, *, tokens: int) -> list[Place]:
    """The places for breakpoints, in order; none in a format that has none. ``tokens``: the most that the window takes.

    Where too little stands before one it does nothing, so bounds decide here, and a provider may count more than we do.
    """
    request, ends = made.request, made.rendered.ends
    if request.format not in KINDS or tokens * _COUNTED < MIN_TOKENS:
        return []

    def end_of(turns: int) -> End | None:
        return ends[turns - 1] if turns and ends[turns - 1] != BEFORE_ALL else None

    last, before = end_of(len(made.shares) - _volatile(made)), end_of(common.turns)
    is_far = last is not None and before is not None and _blocks_between(made, before, last) > LOOKBACK_BLOCKS
    fixed = BEFORE_ALL if (request.system_tokens + request.tools_tokens) * _COUNTED >= MIN_TOKENS else None
    borders = [end_of(border) for border in _borders(made)]
    wanted = [last, before if is_far else None, *borders[:1], fixed, *borders[1:], before]
    return breakpoints(made.rendered, wanted, request.format)


def _volatile(made: Made) -> int:
    """How many turns at the end are not what the next call has: calls with neutral results whose own may still come."""
    view, settle = made.settled.view, made.request.settle
    units = view.loops[-1].units if settle and view.loops else ()
    first = None
    for unit in reversed(units):
        if all(answer.entry is not None for answer in unit.answers):
            break
        first = unit.position
    return sum(
        1 for share in made.shares if first is not None and isinstance(share.place, int) and share.place >= first
    )


def _borders(made: Made) -> list[int]:
    """Behind how many turns what is shortened ends: inside the current loop, and before the loops that are whole."""
    view = made.settled.view
    borders = [_border_inside(view.loops[-1])] if view.loops else []
    borders.append(_border_of(view))
    return [_turns_before(made, border) for border in borders if border is not None]


def _border_of(view: View) -> int | None:
    """The first position of the loops that are whole; None where all are, and no summary or line stands before them."""
    whole = [loop.first for loop in _whole(view.loops)]
    is_all = len(whole) == len(view.loops) and view.summary is None and not view.unread
    return None if is_all or not whole else whole[-1]


def _whole(loops: Sequence[Loop]) -> list[Loop]:
    """The newest loops, newest first, as far as they are whole."""
    found = list[Loop]()
    for loop in reversed(loops):
        if loop.level != "whole":
            break
        found.append(loop)
    return found


def _border_inside(loop: Loop) -> int | None:
    """The position behind the last of its units that is not sent whole."""
    shortened = [unit for unit in loop.units if unit.stubs or unit.level != "whole"]
    return max(entry.position for entry in shortened[-1].entries) + 1 if shortened else None


def _turns_before(made: Made, position: int) -> int:
    places = [share.place for share in made.shares]
    return next((at for at, place in enumerate(places) if isinstance(place, int) and place >= position), len(places))


def _blocks_between(made: Made, one: End, other: End) -> int:
    messages = made.rendered.messages

    def count(message: int) -> int:
        content = messages[message].get("content")
        return len(content) if isinstance(content, list) else 1

    return sum(count(at) for at in range(one.message, other.message)) - one.blocks + other.blocks
