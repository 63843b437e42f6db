"""The manifest: of one window, what is in, what is out, why, and how many tokens each part takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from turnlog.windows.fit import LINE_TOKENS, has_evicted, loop_tokens
from turnlog.windows.models import Budget
from turnlog.windows.view import Loop, Unit, View

PartKind: TypeAlias = Literal["system", "tools", "loop", "message", "line"]
PartLevel: TypeAlias = Literal["whole", "digest", "out", "unread"]


@dataclass(frozen=True, slots=True)
class Part:
    """``first`` and ``last`` are positions; None where a part is not in the log. ``tokens`` is what it takes of the budget."""

    kind: PartKind
    level: PartLevel
    tokens: int
    loop: int | None = None
    first: int | None = None
    last: int | None = None
    reason: str | None = None
    refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    budget: Budget
    parts: tuple[Part, ...]
    totals: dict[str, int]


def manifest_of(view: View, budget: Budget, *, system_tokens: int, tools_tokens: int) -> Manifest:
    """Parts in the order in which they are sent; what was set aside comes last."""
    parts = list(_parts(view, system_tokens, tools_tokens))
    totals = {"system": system_tokens, "tools": tools_tokens, "whole": 0, "digest": 0}
    totals["system"] += sum(unit.tokens for unit in view.preamble)
    for loop in view.loops:
        totals["digest" if loop.level == "digest" else "whole"] += loop_tokens(loop)
    return Manifest(budget, tuple(parts), totals)


def _parts(view: View, system_tokens: int, tools_tokens: int) -> Iterator[Part]:
    if system_tokens:
        yield Part("system", "whole", system_tokens)
    if tools_tokens:
        yield Part("tools", "whole", tools_tokens)
    for unit in view.preamble:
        yield _message(unit, None)
    if view.unread:
        yield Part("message", "unread", 0, reason="not_read")
    if has_evicted(view):
        yield Part("line", "whole", LINE_TOKENS, reason="left_out")
    for loop in view.loops:
        yield _loop(loop)
        if loop.level == "whole":
            for unit in loop.units:
                yield _message(unit, loop.number)
        else:
            yield from (_message(unit, loop.number, pinned=True) for unit in loop.units if unit.pinned)
    for entry, reason in view.set_aside:
        yield Part("message", "out", 0, entry.loop or None, entry.position, entry.position, reason)


def _loop(loop: Loop) -> Part:
    refs = tuple(str(answer.ref) for unit in loop.units for answer in unit.answers)
    reason = loop.reason or None
    return Part("loop", loop.level, loop_tokens(loop), loop.number, loop.first, loop.last, reason, refs)


def _message(unit: Unit, loop: int | None, *, pinned: bool = False) -> Part:
    last = max(entry.position for entry in unit.entries)
    refs = tuple(str(answer.ref) for answer in unit.answers)
    level: PartLevel = "out" if unit.level == "out" else "whole"
    settled = any(answer.entry is None for answer in unit.answers)
    reason = "pinned" if pinned else unit.reason or ("settled" if settled else None)
    return Part("message", level, unit.tokens if level == "whole" else 0, loop, unit.position, last, reason, refs)
