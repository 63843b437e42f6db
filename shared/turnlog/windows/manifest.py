"""The manifest of a window: each part, whether it is in, the reason, and its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.windows.budgets import Budget
from turnlog.windows.prices import (
    LINE_TOKENS,
    NOTHING_SAID_TOKENS,
    has_evicted,
    is_evicted,
    loops_tokens,
    notes_tokens,
    says_nothing,
)
from turnlog.windows.text import summary_tokens
from turnlog.windows.view import Loop, Unit, WindowDraft

PartKind: TypeAlias = Literal["system", "tools", "summary", "older", "loop", "message", "omission_notice"]
PartLevel: TypeAlias = Literal["whole", "digest", "stub", "out"]


@lazy_dataclass(frozen=True, slots=True)
class ManifestPart:
    """A part of the window.

    ``first`` and ``last`` are positions, None for a part that is not in the log. ``tokens`` is what the part takes of the budget.
    The part ``older`` stands for all loops up to ``loop``, of which only pinned messages are sent.
    """

    kind: PartKind
    level: PartLevel
    tokens: int
    loop: int | None = None
    first: int | None = None
    last: int | None = None
    reason: str | None = None
    refs: tuple[str, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class Manifest:
    """The parts of a window, the tokens of each kind of part, and the budget."""

    budget: Budget
    parts: tuple[ManifestPart, ...]
    totals: dict[str, int]


def manifest_of(
    view: WindowDraft, budget: Budget, *, system_tokens: int, tools_tokens: int, frame_tokens: int = 0
) -> Manifest:
    """Return the manifest with parts in the order in which they are sent; messages that are never sent come last.

    ``frame_tokens`` are those of the neutral messages that the format needs.
    """
    costs = loops_tokens(view.loops)
    parts = list(_parts(view, costs, system_tokens, tools_tokens, frame_tokens))
    lines = sum(part.tokens for part in parts if part.kind == "omission_notice")
    totals = {"system": system_tokens, "tools": tools_tokens, "whole": 0, "digest": 0, "omission_notice": lines}
    totals["summary"] = summary_tokens(view.summary, view.wording.label)
    totals["system"] += sum(unit.tokens for unit in view.preamble)
    for loop in view.loops:
        totals["digest" if loop.level == "digest" else "whole"] += costs[loop.number]
    return Manifest(budget, tuple(parts), totals)


def _parts(
    view: WindowDraft, costs: Mapping[int, int], system_tokens: int, tools_tokens: int, frame: int
) -> Iterator[ManifestPart]:
    if system_tokens:
        yield ManifestPart("system", "whole", system_tokens)
    if tools_tokens:
        yield ManifestPart("tools", "whole", tools_tokens)
    tellers = _tellers(view)
    for unit in view.preamble:
        yield from _messages(unit, None, tellers)
    if view.summary is not None:
        first, last = view.summary.first, view.summary.last
        yield ManifestPart(
            "summary",
            "whole",
            summary_tokens(view.summary, view.wording.label),
            None,
            first,
            last,
            view.summary_reason or None,
        )
    yield from _lines(view, frame)
    notes = notes_tokens(view.loops)
    for loop in view.loops:
        yield _loop(loop, costs[loop.number])
        for unit in loop.units:
            yield from _messages(unit, loop, tellers, note=notes.get((loop.number, unit.position), 0))
    for entry, reason in view.set_aside:
        yield ManifestPart("message", "out", 0, entry.loop or None, entry.position, entry.position, reason)


def _lines(view: WindowDraft, frame: int) -> Iterator[ManifestPart]:
    """Yield the parts that say what is not shown, and the frame around the messages."""
    if view.unread:
        before = [entry.position for unit in view.preamble for entry in unit.entries]
        before += [view.summary.last] if view.summary is not None else []
        last = next((loop.first - 1 for loop in view.loops if loop.number >= view.oldest), None)
        yield ManifestPart("older", "out", 0, view.oldest - 1, max(before, default=0) + 1, last, view.unread_reason)
    if frame:
        yield ManifestPart("omission_notice", "whole", frame, reason="frame")
    if has_evicted(view):
        yield ManifestPart("omission_notice", "whole", LINE_TOKENS, reason="left_out")
    if says_nothing(view):
        yield ManifestPart("omission_notice", "whole", NOTHING_SAID_TOKENS, reason="nothing_said")


def _loop(loop: Loop, tokens: int) -> ManifestPart:
    refs = tuple(str(answer.ref) for unit in loop.units for answer in unit.answers)
    reason = loop.reason or None
    return ManifestPart("loop", loop.level, tokens, loop.number, loop.first, loop.last, reason, refs)


def _tellers(view: WindowDraft) -> dict[int, Unit]:
    """Return the unit that lists each message with only results, by position.

    A message with results for several units is listed with one that is sent, if there is one.
    """
    tellers = dict[int, Unit]()
    placed = [(unit, True) for unit in view.preamble]
    placed += [(unit, not is_evicted(loop, unit)) for loop in view.loops for unit in loop.units]
    for unit, _ in sorted(placed, key=lambda pair: not pair[1]):
        for entry in unit.entries[len(unit.said) :]:
            if entry.facts.role == "tool":
                tellers.setdefault(entry.position, unit)
    return tellers


def _messages(unit: Unit, loop: Loop | None, tellers: Mapping[int, Unit], note: int = 0) -> Iterator[ManifestPart]:
    """Yield the parts of the unit's messages. In a loop that is not whole, only those that differ from the loop's level.

    ``note`` is the tokens of the note that is sent in the unit's place.
    """
    is_summed_up, number = loop is not None and loop.level != "whole", loop.number if loop else None
    is_apart = unit.pinned or unit.level == "out" or not is_summed_up
    results = [entry for entry in unit.entries[len(unit.said) :] if tellers.get(entry.position) is unit]
    level: PartLevel = unit.level if is_apart or loop is None else loop.level
    is_in, stubs = level == "whole", {stub.position: stub for stub in unit.stubs}
    if is_apart:
        refs = tuple(str(answer.ref) for answer in unit.answers)
        companions = [entry for entry in unit.group if entry is not unit.entry]
        others = [*companions, *([] if unit.is_folded else results)]
        tokens = unit.tokens - sum(
            stubs[entry.position].tokens if entry.position in stubs else entry.cost for entry in others
        )
        settled = any(answer.entry is None for answer in unit.answers)
        origin = unit.entry.event.envelope.origin
        reason = unit.reason or ("pinned" if is_summed_up else "settled" if settled else origin)
        yield ManifestPart(
            "message", level, tokens if is_in else note, number, unit.position, unit.position, reason, refs
        )
        for entry in companions:
            yield ManifestPart(
                "message", level, entry.cost if is_in else 0, number, entry.position, entry.position, reason
            )
    for entry in results:
        is_late = entry.loop != unit.entry.loop
        if not is_apart and not is_late:
            continue
        refs = tuple(
            str(answer.ref) for answer in unit.answers if answer.entry and answer.entry.position == entry.position
        )
        if is_in and entry.position in stubs:
            stub = stubs[entry.position]
            yield ManifestPart(
                "message", "stub", stub.tokens, number, entry.position, entry.position, stub.reason, refs
            )
            continue
        tokens = entry.cost if is_in and not unit.is_folded else 0
        reason = unit.reason or ("late_result" if is_late else "pinned" if is_summed_up else None)
        yield ManifestPart("message", level, tokens, number, entry.position, entry.position, reason, refs)
