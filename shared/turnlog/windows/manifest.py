"""The manifest of a window: each part, whether it is in, the reason, and its tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from turnlog.core.lazy_dataclass import lazy_dataclass, once
from turnlog.core.messages import Message, Opaque, Thinking
from turnlog.core.window_parts import PartKind, PartLevel, RecalledMessage, WindowPart
from turnlog.providers.blocks import kind_of, placeholder_text
from turnlog.providers.registry import CODECS
from turnlog.windows.budgets import Budget
from turnlog.windows.digests import Tally
from turnlog.windows.prefix import RenderedWindow
from turnlog.windows.prices import (
    LINE_TOKENS,
    NOTHING_SAID_TOKENS,
    bare_tokens,
    frame_tokens,
    has_evicted,
    is_evicted,
    says_nothing,
)
from turnlog.windows.request import WindowRequest
from turnlog.windows.stubs import answers_in
from turnlog.windows.view import Entry, Loop, RecalledPart, Unit, WindowDraft, unit_out


@lazy_dataclass(frozen=True, slots=True)
class Manifest:
    """The parts of a window, the tokens of each kind of part, and the budget. ``recalled``: the messages that came back."""

    budget: Budget
    parts: tuple[WindowPart, ...]
    totals: dict[str, int]
    recalled: tuple[RecalledMessage, ...] = ()


def manifest_of(window: RenderedWindow) -> Manifest:
    """Return the manifest with parts in the order in which they are sent; messages that are never sent come last."""
    view, request, tally = window.plan.view, window.request, Tally()
    # A value is charged to the first note that has it.
    notes = [tuple(map(tally.add, loop.notes)) for loop in view.loops]
    parts = [*_parts(view, notes, request), *_lost_blocks(window)]
    totals = {
        "system": request.system_tokens + view.preamble_tokens,
        "tools": request.tools_tokens,
        "whole": 0,
        "digest": 0,
        "omission_notice": sum(part.tokens for part in parts if part.kind == "omission_notice"),
        "summary": view.summary_tokens,
    }
    if view.recalled:
        totals["recalled"] = sum(part.tokens for part in view.recalled)
    for loop, costs_of_notes in zip(view.loops, notes, strict=True):
        kind = "digest" if loop.level == "digest" else "whole"
        totals[kind if loop.number else "system"] += bare_tokens(loop) + sum(costs_of_notes)
    return Manifest(
        request.budget, tuple(parts), totals, tuple(message for part in view.recalled for message in part.messages)
    )


def _parts(view: WindowDraft, notes: Sequence[tuple[int, ...]], request: WindowRequest) -> Iterator[WindowPart]:
    """Yield the parts in order. ``notes`` are the tokens of each loop's notes."""
    if request.system_tokens:
        yield _unlogged("system", request.system_tokens)
    if request.tools_tokens:
        yield _unlogged("tools", request.tools_tokens)
    unit_of_results, are_apart = _units_of_all_results(view)
    for unit in view.preamble:
        yield from _messages(unit, None, unit_of_results)
    if view.summary is not None:
        first, last = view.summary.first, view.summary.last
        yield WindowPart("summary", None, first, last, "whole", view.summary_tokens, view.summary_reason or None, ())
    yield from _lines(view, frame_tokens(request.format))
    recalled = {part.loop: part for part in view.recalled}
    late = [entry.position for unit in view.preamble for entry in unit.behind]
    late += (position for loop in view.loops for position in _late_results(loop))
    for loop, costs_of_notes in zip(view.loops, notes, strict=True):
        sent = tuple(position for position in late if loop.first < position < loop.last)
        if loop.number in recalled:
            yield _recalled(recalled[loop.number])
        if are_apart:
            yield from _loop_parts(loop, costs_of_notes, sent)
        else:
            yield from _parts_of(loop, costs_of_notes, unit_of_results, sent)
    for entry, reason in view.set_aside:
        yield _message(entry.position, entry.loop or None, "out", 0, reason)


def _lost_blocks(window: RenderedWindow) -> Iterator[WindowPart]:
    """Yield a part for each type of blocks of a whole message that are not sent, not even as text.

    Another format has no place for them, or in their own format they have no legal form.
    """
    view, format = window.plan.view, window.request.format
    own = [block for unit in view.preamble for block in _own_blocks(unit, format)]
    own += [block for loop in view.loops for block in _own_in(loop, format)]
    sent = window.sent if any(entry.event.format == format for entry, _ in own) else {}
    for entry, kinds in own:
        is_own, lost = entry.event.format == format, Counter(kinds)
        for body in sent.get(entry.position, ()) if is_own else ():
            lost -= Counter(_own_kinds(CODECS[format].parse(body), format, is_own=True))
        for kind in lost:
            yield WindowPart("block", entry.loop or None, entry.position, entry.position, "out", 0, kind, ())


@once
def _own_in(loop: Loop, format: str) -> Sequence[tuple[Entry, Sequence[str]]]:
    """Return the messages that are sent whole of a loop and have blocks of their provider, with the types of these."""
    units = [unit for unit in loop.units if unit.pinned or loop.level == "whole"]
    return [block for unit in units for block in _own_blocks(unit, format)]


@once
def _own_blocks(unit: Unit, format: str) -> Sequence[tuple[Entry, Sequence[str]]]:
    if unit.level != "whole":
        return ()
    whole = [entry for entry in unit.entries if entry.message is not None and unit.stub_at(entry.position) is None]
    kinds = [_own_kinds(entry.message, format, is_own=entry.event.format == format) for entry in whole if entry.message]
    return [block for block in zip(whole, kinds, strict=True) if block[1]]


def _own_kinds(message: Message, format: str, *, is_own: bool) -> list[str]:
    """Return the types of blocks that only a message's provider has; for another format, without those that are sent as text."""
    own = Opaque if format == "turnlog" else Opaque | Thinking
    blocks = (block for block in message.blocks if isinstance(block, own))
    return [kind_of(block) for block in blocks if is_own or not placeholder_text(block)]


def _lines(view: WindowDraft, frame: int) -> Iterator[WindowPart]:
    """Yield the parts that say what is not shown, and the frame around the messages."""
    before = [entry.position for unit in view.preamble for entry in unit.entries]
    if view.compacted_to > max(before, default=0):
        yield WindowPart("older", None, max(before, default=0) + 1, view.compacted_to, "out", 0, "compaction", ())
    if view.unread:
        before += [view.summary.last] if view.summary is not None else []
        last = next((loop.first - 1 for loop in view.loops if loop.number >= view.oldest), None)
        first = max(before, default=0) + 1
        yield WindowPart("older", view.oldest - 1 or None, first, last, "out", 0, view.unread_reason, ())
    if frame:
        yield _unlogged("omission_notice", frame, "frame")
    if has_evicted(view):
        yield _unlogged("omission_notice", LINE_TOKENS, "left_out")
    if says_nothing(view):
        yield _unlogged("omission_notice", NOTHING_SAID_TOKENS, "nothing_said")


@once
def _late_results(loop: Loop) -> Sequence[int]:
    """Return the positions of the loop's results that stand in later loops, unless a note describes their calls."""
    units = (unit for unit in loop.units if unit.level != "digest")
    return [entry.position for unit in units for entry in unit.behind if entry.loop != loop.number]


@once
def _loop_parts(loop: Loop, notes: tuple[int, ...], late: tuple[int, ...]) -> Sequence[WindowPart]:
    """Return the parts of a loop whose results are its own."""
    return tuple(_parts_of(loop, notes, _units_of_results_in(loop), late))


def _parts_of(
    loop: Loop, notes: Sequence[int], unit_of_results: Mapping[int, Unit], late: Sequence[int]
) -> Iterator[WindowPart]:
    """Yield the part of a loop and those of its messages.

    ``notes`` are the tokens of its notes, ``late`` the positions of other loops' results in it.

    Messages before the first loop have no part but their own, with the level of each.
    """
    if not loop.number:
        units = loop.units if loop.level == "whole" else [unit_out(unit, loop.reason) for unit in loop.units]
        yield from (part for unit in units for part in _messages(unit, None, unit_of_results))
        return
    refs = tuple(ref for unit in loop.units if unit.level != "digest" for ref in _refs(unit))
    cost = bare_tokens(loop) + sum(notes)
    yield WindowPart("loop", loop.number, loop.first, loop.last, loop.level, cost, loop.reason or None, refs)
    note_tokens = {note.at: tokens for note, tokens in zip(loop.notes, notes, strict=True)}
    own = (entry.position for unit in loop.units if unit.level != "digest" for entry in unit.entries)
    sent = sorted([*late, *own])
    stretches = _stretches(loop, sent)
    for units, following in zip_longest(stretches, stretches[1:]):
        if units[0].level == "digest":
            end = following[0].position if following else loop.last + 1
            last = min([end, *(position for position in sent if position > units[-1].position)]) - 1
            listed = [entry for unit in units for entry in (*unit.said, *_listed(unit, unit_of_results))]
            yield from _folded(units[0], listed, last, note_tokens.get(units[0].position, 0))
        else:
            yield from _messages(units[0], loop, unit_of_results)


def _stretches(loop: Loop, sent: Sequence[int]) -> list[list[Unit]]:
    """Return the units of a loop in lists: one for each unit, and one for the steps of a note between which nothing is sent."""
    begins, stretches = {note.at for note in loop.notes}, list[list[Unit]]()
    for unit in loop.units:
        before = stretches[-1][-1] if stretches else unit
        is_parted = bisect_right(sent, before.position) < bisect_right(sent, unit.position)
        if stretches and unit.level == before.level == "digest" and unit.position not in begins and not is_parted:
            stretches[-1].append(unit)
        else:
            stretches.append([unit])
    return stretches


def _folded(unit: Unit, entries: Sequence[Entry], last: int, note: int) -> Iterator[WindowPart]:
    """Yield the part of the steps in a note of ``note`` tokens, and those of their results behind ``last``."""
    loop, positions = unit.entry.loop, sorted(entry.position for entry in entries)
    border = bisect_right(positions, last)
    yield WindowPart("message", loop, positions[0], positions[border - 1], "digest", note, unit.reason, ())
    yield from (_message(position, loop, "digest", 0, unit.reason) for position in positions[border:])


def _recalled(part: RecalledPart) -> WindowPart:
    if not part.messages:
        return WindowPart("recalled", part.loop, None, None, "out", 0, "skipped", ())
    own: list[int | None] = [message.position for message in part.messages if not message.place] or [None]
    return WindowPart("recalled", part.loop, own[0], own[-1], "whole", part.tokens, part.ranked or None, ())


def _unlogged(kind: PartKind, tokens: int, reason: str | None = None) -> WindowPart:
    """Return a part that is sent whole and is not in the log."""
    return WindowPart(kind, None, None, None, "whole", tokens, reason, ())


def _message(
    position: int, loop: int | None, level: PartLevel, tokens: int, reason: str | None, refs: tuple[str, ...] = ()
) -> WindowPart:
    return WindowPart("message", loop, position, position, level, tokens, reason, refs)


@once
def _refs(unit: Unit) -> tuple[str, ...]:
    return tuple(str(answer.ref) for answer in unit.answers) if unit.answers else ()


def _units_of_all_results(view: WindowDraft) -> tuple[Mapping[int, Unit], bool]:
    """Return the unit of each message with only results, and whether each such message belongs to one loop."""
    preamble = [(unit, False) for unit in view.preamble]
    each = [_units_of_results(preamble), *map(_units_of_results_in, view.loops)]
    unit_of_results = {position: unit for own in each for position, unit in own.items()}
    if len(unit_of_results) == sum(map(len, each)):
        return unit_of_results, True
    return _units_of_results(
        [*preamble, *((unit, is_evicted(loop, unit)) for loop in view.loops for unit in loop.units)]
    ), False


@once
def _units_of_results_in(loop: Loop) -> Mapping[int, Unit]:
    return _units_of_results((unit, is_evicted(loop, unit)) for unit in loop.units)


def _units_of_results(units: Iterable[tuple[Unit, bool]]) -> Mapping[int, Unit]:
    """Return the unit that lists each message with only results, by position. ``units`` are said to be left out or not.

    A message with results for several units is listed with one that is sent, if there is one.
    """
    sent, left_out = dict[int, Unit](), dict[int, Unit]()
    for unit, is_left_out in units:
        for entry in unit.behind:
            if entry.facts.role == "tool":
                (left_out if is_left_out else sent).setdefault(entry.position, unit)
    return left_out | sent


def _listed(unit: Unit, unit_of_results: Mapping[int, Unit]) -> list[Entry]:
    """Return the messages with results that a unit lists."""
    return [entry for entry in unit.behind if unit_of_results.get(entry.position) is unit]


def _messages(unit: Unit, loop: Loop | None, unit_of_results: Mapping[int, Unit]) -> Sequence[WindowPart]:
    """Return the parts of the unit's messages. In a loop that is not whole, only those that differ from the loop's level."""
    listed = tuple(entry.position for entry in _listed(unit, unit_of_results))
    if loop is None:
        return _message_parts(unit, None, "whole", listed)
    return _message_parts(unit, loop.number, loop.level, listed)


@once
def _message_parts(
    unit: Unit, number: int | None, loop_level: PartLevel, listed: tuple[int, ...]
) -> Sequence[WindowPart]:
    """Return the parts of a unit's messages; ``listed`` are the positions of its messages with results that are among them."""
    is_summed_up, parts = loop_level != "whole", list[WindowPart]()
    is_apart = unit.pinned or unit.level == "out" or not is_summed_up
    results = [entry for entry in unit.behind if entry.position in listed]
    level: PartLevel = unit.level if is_apart else loop_level
    is_in = level == "whole"
    if is_apart:
        refs = _refs(unit)
        companions = [entry for entry in unit.group if entry is not unit.entry]
        tokens = unit.tokens
        for entry in (*companions, *results):
            stub = unit.stub_at(entry.position)
            tokens -= stub.tokens if stub is not None else entry.cost
        settled = "settled" if unit.is_waiting else unit.entry.event.envelope.origin
        shape = "calls_as_text" if unit.calls_as_text else settled
        reason = unit.reason or ("pinned" if is_summed_up else shape)
        parts.append(_message(unit.position, number, level, tokens if is_in else 0, reason, refs))
        parts += [_message(entry.position, number, level, entry.cost if is_in else 0, reason) for entry in companions]
    for entry in results:
        is_late = entry.loop != unit.entry.loop
        if not is_apart and not is_late:
            continue
        refs = tuple(str(answer.ref) for answer in answers_in(unit, entry))
        stub = unit.stub_at(entry.position)
        if is_in and stub is not None:
            parts.append(_message(entry.position, number, "stub", stub.tokens, stub.reason, refs))
            continue
        tokens = entry.cost if is_in else 0
        reason = unit.reason or ("late_result" if is_late else "pinned" if is_summed_up else None)
        parts.append(_message(entry.position, number, level, tokens, reason, refs))
    return parts
