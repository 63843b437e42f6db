"""Epochs: how a view that is larger than the budget becomes a window, and since when windows have begun in the same way.

A border divides the view. What lies before it is shortened or left out (the base, `turnlog.windows.base`), what lies behind it is
sent whole (the tail). Borders stand only at certain places of the log, far apart, so the windows of many calls share frame, base
and border: an epoch. Within an epoch a window begins with the whole window of the call before and only appends.

Which epoch a window belongs to follows from the log and the request alone. Nothing is stored, and two builders agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise

from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.lazy_dataclass import lazy_dataclass, once
from turnlog.windows.base import SIZES, Base, Border, bare_fold, least_tokens, resized
from turnlog.windows.breaks import NEVER_BROKEN, EpochStart, turns_of
from turnlog.windows.digests import LEDGER_PER_LOOP, MAX_MESSAGE_CHARS, Tally
from turnlog.windows.prices import LINE_TOKENS, bare_tokens, message_tokens, takes_line
from turnlog.windows.steps import DigestWhenFull
from turnlog.windows.stubs import capped_tokens, cut_results, results_tokens, stub_results
from turnlog.windows.view import OLDER_TOO, Entry, Loop, Unit, WindowDraft, is_item, is_whole, out, pinned_alone

GIANT, MARGIN = 0.25, 0.04
"""Shares of the room for messages: what the results of one step take at least before they are cut, and what a cut result leaves
free for the next steps."""


@lazy_dataclass(frozen=True, slots=True)
class ViewLimits:
    """The tokens that a view may take: ``room`` for its messages, which ``step`` divides between base and tail.

    ``reserve`` tokens of the room are set aside where anything is left out; ``of_whole`` tokens, while the view is sent as it is.
    ``reads_room``: every message that could fill the room must be read.
    """

    room: int
    step: DigestWhenFull
    reserve: int = 0
    of_whole: int = 0
    reads_room: bool = False


@lazy_dataclass(frozen=True, slots=True)
class FittedView:
    """A view within the budget, and the breaks that the budget caused. ``is_final``: no older message would change them.

    ``reserve`` is the number of tokens that are set aside, where something is left out.
    """

    view: WindowDraft
    breaks: tuple[EpochStart, ...] = ()
    is_final: bool = True
    reserve: int = 0


@lazy_dataclass(frozen=True, slots=True)
class _Element:
    """A unit of a whole loop, or a loop that a step has lowered: a place where the border may be.

    ``tokens`` counts results as far as they are never cut shorter; ``more`` is what they take beyond that. ``saved`` is what a
    digest's note takes less behind the notes of all elements before it, which have some of its values. ``waits_behind`` is the
    position of a message whose call has no result: it waited until the next turn came. 0 for others.
    """

    before: int
    position: int
    last: int
    tokens: int
    more: int = 0
    saved: int = 0
    waits_behind: int = 0


def fit(view: WindowDraft, limits: ViewLimits, compactions: Sequence[int] | None) -> FittedView:
    """Return the view within its limits.

    ``compactions`` are the positions of messages in which their provider has summarised all before, newest first; None for a
    format without such messages. While one fits with all behind it, it is the base. Raises `BudgetTooSmallError` when the view does
    not fit; the error's detail ``needed`` counts messages only.
    """
    if compactions:
        epoch = _Epoch(replace(view, summary=None), ViewLimits(limits.room, limits.step))
        compacted = next((made for position in compactions if (made := epoch.compaction(position)) is not None), None)
        if isinstance(compacted, FittedView):
            return compacted
        if compacted:
            fitted = _fit_all(view, limits)
            return replace(fitted, breaks=(*fitted.breaks, EpochStart(compacted, "compaction", "base")))
    return _fit_all(view, replace(limits, reads_room=compactions is not None))


def _fit_all(view: WindowDraft, limits: ViewLimits) -> FittedView:
    """Return the view within its limits, with all that was read."""
    room = limits.room
    if message_tokens(view) <= room - limits.of_whole:
        return FittedView(view, (), not _is_open(view), limits.of_whole)
    # Older messages matter where all that was read fits without the line about what was not.
    fits_without_line = _is_open(view) and message_tokens(view) - LINE_TOKENS <= room - limits.of_whole
    for fitted in _Epoch(view, limits).candidates():
        if message_tokens(fitted.view) <= room - fitted.reserve:
            return replace(fitted, is_final=fitted.is_final and not fits_without_line)
    if limits.reserve:
        # A part that is left out here may have been in the window before.
        fitted = _fit_all(view, replace(limits, reserve=0, of_whole=0))
        return FittedView(fitted.view, (*fitted.breaks, EpochStart(view.last, "budget", "base")), fitted.is_final)
    breaks = (EpochStart(view.last, "budget", "base"),)
    smallest = min(_least_views(view), key=message_tokens)
    if message_tokens(smallest) > room:
        # Where even the user's messages of the current loop are too many, the oldest but for the first go, behind all past loops
        # and system messages that need not stay.
        shorter = _with_fewer_messages(smallest.with_past(out(loop, "budget") for loop in smallest.past), room)
        smallest = min(shorter, smallest, key=message_tokens)
    needed = message_tokens(smallest)
    if needed > room:
        raise BudgetTooSmallError(f"the least window needs {needed} tokens of messages", details={"needed": needed})
    # Messages before a loop that is out for the budget are out too.
    is_final = not _is_open(view) or not (_is_open(smallest) or fits_without_line)
    return FittedView(smallest, breaks, is_final)


def is_lowered(view: WindowDraft) -> bool:
    """Return whether the policy sends less than everything, of what has been read and of what is older."""
    loops = [loop for loop in view.loops if loop.number >= view.oldest]
    is_older_out = bool(view.unread) and not _is_open(view)
    return is_older_out or view.summary is not None or not all(map(is_whole, loops))


def _is_open(view: WindowDraft) -> bool:
    """Return whether older messages could be sent. They could not when the policy leaves out the oldest loop that was read."""
    oldest = next((loop for loop in view.loops if loop.number >= view.oldest), None)
    return view.is_open and (oldest is None or oldest.level != "out" or oldest.reason not in OLDER_TOO)


class _Epoch:
    """The border of a view, its base, and its tail, within limits. Preamble and summary have their tokens before the rest."""

    def __init__(self, view: WindowDraft, limits: ViewLimits) -> None:
        self.view, self.step, self._limits = view, limits.step, limits
        room = limits.room - view.preamble_tokens - view.summary_tokens
        self.room, self.whole_room = room - limits.reserve, room - limits.of_whole
        # What is set aside may differ between loops; where large results are cut must not.
        self._margin = int(MARGIN * room)
        self.elements, self._starts = list[_Element](), list[int]()
        for elements in _elements(view, max(1, int(GIANT * room))):
            self._starts.append(len(self.elements))
            self.elements += elements
        waiting = [index for index, element in enumerate(self.elements) if element.waits_behind]
        turns = [position for position, _ in turns_of(view)] if waiting else []
        for index in waiting:
            element = self.elements[index]
            behind = bisect_right(turns, element.waits_behind)
            self.elements[index] = replace(element, last=max([element.last, *turns[behind : behind + 1]]))
        self._totals = [0, *accumulate(element.tokens for element in self.elements)]
        self._all_totals = [0, *accumulate(element.tokens - element.saved for element in self.elements)]
        self._has_late = any(later.last < element.last for element, later in pairwise(self.elements))
        room = self.room
        size = self._size = max(1.0, (self.step.high - self.step.low) * room)
        self._short = self.step.low * room / 2
        first = (1 - self.step.low) * room
        self._cells = [int(max(0.0, element.before - first + size) // size) for element in self.elements]
        starts = zip(view.loops, self._starts, strict=True)
        oldest = next((start for loop, start in starts if loop.number >= view.oldest), 0)
        self._oldest = oldest if oldest < len(self.elements) else 0
        self._is_open = _is_open(view)
        self._is_read = not limits.reads_room or self._tail(self._oldest) > self.room

    def compaction(self, position: int) -> FittedView | int | None:
        """Return the view from the message at a position on, in which its provider has summarised all before.

        Where that does not fit, return the position since when; None when the message is not sent whole, or can't be first. Before
        an item of OpenAI stay pinned messages, calls that waited for results, and the users' messages that OpenAI returns with it
        (https://developers.openai.com/api/docs/guides/compaction). Nothing may stand before a block of Anthropic.
        """
        own = self._index_of(position)
        if own is None:
            return None
        index = next(index for index, element in enumerate(self.elements) if index == own or element.last > position)
        is_of_items = any(map(is_item, self._leaders(own)))
        while index and is_of_items and any(entry.facts.role == "user" for entry in self._leaders(index - 1)):
            index -= 1
        border = self._place(index)
        loops = self.view.loops[: border.loop]
        pinned = [pinned_alone(loop, "compaction") for loop in loops if any(unit.pinned for unit in loop.units)]
        parted = [unit for unit in self.view.loops[border.loop].units[: border.unit] if unit.pinned]
        if not is_of_items and (index < own or pinned or parted):
            return None
        room = self.room - sum(loop.tokens for loop in pinned) - sum(unit.tokens for unit in parted)
        overflow = self._overflow(index, room)
        if overflow:
            return overflow
        loops, shrunk = self._with_cuts(self.view.loops, index, self.elements[index:], room)
        units = (*parted, *loops[border.loop].units[border.unit :])
        first = min(entry.position for entry in units[len(parted)].said)
        parted_from = min(entry.position for entry in units[0].said)
        view = replace(
            self.view,
            loops=(*pinned, replace(loops[border.loop], units=units, first=parted_from), *loops[border.loop + 1 :]),
            set_aside=tuple((entry, reason) for entry, reason in self.view.set_aside if entry.position >= first),
            unread=0,
            is_open=False,
            oldest=loops[border.loop].number,
            compacted_to=first - 1,
        )
        return FittedView(view, (EpochStart(self.elements[own].last, "compaction", "base"), shrunk))

    def _index_of(self, position: int) -> int | None:
        """Return the index of the unit that says the message at a position; None when it is not sent whole."""
        for loop, start in zip(self.view.loops, self._starts, strict=True):
            if loop.level == "whole" and loop.first <= position <= loop.last:
                for index, unit in enumerate(loop.units):
                    if unit.level == "whole" and any(entry.position == position for entry in unit.said):
                        return start + index
        return None

    def _leaders(self, index: int) -> Sequence[Entry]:
        """Return the message that leads the unit of an element; nothing for a lowered loop."""
        place = self._place(index)
        loop = self.view.loops[place.loop]
        return [loop.units[place.unit].entry] if loop.level == "whole" else []

    def candidates(self) -> Iterator[FittedView]:
        """Yield the view behind its border; then, where a note saves more than the tail, with an empty tail."""
        if not self.view.loops:
            return
        border, empty = self._border(), len(self.elements)
        if border is not None:
            yield self._fitted(border)
        if self.view.loops[-1].level == "whole" and border != empty and self._base_room(empty) <= self.room:
            yield self._fitted(empty)

    def _border(self) -> int | None:
        """Return the index of the first element of the tail; None when no border lets the tail fit."""
        fitting = self._least_fitting() if self._is_open else chain([0], self._least_fitting())
        return next(
            (index for index in fitting if self._tail(index) + self._base_room(index) <= self._room(index)), None
        )

    def _room(self, index: int) -> int:
        return self.room if index else self.whole_room

    def _base_room(self, index: int) -> int:
        """Return the tokens for the base: its share of the room, or the least that it takes. Without a border it is only a line.

        Behind a very large message the tail is short at first; the base has the room until the tail has grown.
        """
        if not index or self._tail(index) > self._short:
            return self._usual_base(index)
        return max(int((1 - self.step.low) * self.room), self._usual_base(index))

    def _usual_base(self, index: int) -> int:
        if not index:
            return LINE_TOKENS if takes_line(self.view) else 0
        return max(int((1 - self.step.high) * self.room), least_tokens(self.view, self._place(index)))

    def _fitted(self, index: int) -> FittedView:
        """Return the view with its tail behind the element at ``index``."""
        room = self._base_room(index)
        base = Base(self.view, self._place(index), room, self.step) if index else None
        taken = room - base.left if base is not None else room
        # Behind no border, all notes stand in the tail, and none says again what one before it says.
        tail = self.elements[index:]
        if not index:
            tail = [replace(element, tokens=element.tokens - element.saved) for element in tail]
        loops = base.loops if base is not None else self.view.loops
        loops, shrunk = self._with_cuts(loops, index, tail, self._room(index) - taken)
        view = replace(self.view, loops=loops)
        start, is_full = self._start(index), base is None or base.is_full
        is_final = not self._is_open or (start is not None and is_full and self._is_read)
        return FittedView(
            view, (start or NEVER_BROKEN, shrunk), is_final, self._limits.reserve if index else self._limits.of_whole
        )

    def _with_cuts(
        self, loops: tuple[Loop, ...], index: int, tail: Sequence[_Element], room: int
    ) -> tuple[tuple[Loop, ...], EpochStart]:
        """Return the loops with the tail's large results cut so that it fits ``room``, and since when they have been that small."""
        missing, shrunk = _cuts(tail, room, self._margin)
        sent = list(loops)
        for offset, tokens in missing.items():
            place = self._place(index + offset)
            units = list(sent[place.loop].units)
            units[place.unit] = cut_results(units[place.unit], results_tokens(units[place.unit]) - tokens)
            sent[place.loop] = replace(sent[place.loop], units=tuple(units))
        return tuple(sent), shrunk

    def _start(self, index: int) -> EpochStart | None:
        """Return since when this border has been in use: since the tail behind the border before it became too large.

        Until there is a border the tail has all the room. None when too little has been read to know.
        """
        if not index:
            return NEVER_BROKEN
        if index == len(self.elements):
            return EpochStart(self.view.loops[-1].last, "crossing", "base")
        position = self._overflow_before(index)
        if position is None:
            return None
        # Where more is read, no line about older messages may be needed.
        line = 0 if self._is_open else self._usual_base(0)
        without_border = self._overflow(self._oldest if self._is_open else 0, self.whole_room - line)
        if self._is_open and not 0 < without_border <= position:
            return None
        position = max(position, without_border)
        # Before the first message of the tail came, the border was elsewhere.
        since = max(position, self.elements[index].last, self._overflow(index, self._short))
        return EpochStart(since, "crossing", "base")

    def _overflow_before(self, index: int) -> int | None:
        """Return the position with which no border before an element fitted any more; None when too little has been read to know.

        An earlier border may have fitted longer, as its base has fewer messages of the parted loop. None takes less than its share.
        """
        position, most = 0, self.room - int((1 - self.step.high) * self.room)
        for place in range(index - 1, 0, -1):
            if 0 < self._overflow(place, most) <= position:
                return position
            if self._is_place(place):
                position = max(position, self._overflow(place, self.room - self._usual_base(place)))
        return None if self._is_open else max(position, self._overflow(0, self.room - self._usual_base(0)))

    def _overflow(self, index: int, room: float) -> int:
        """Return the position with which the tail behind an element became larger than ``room``; 0 when it is not.

        A tail that begins earlier became so no later, also where results came late.
        """
        totals = self._totals if index else self._all_totals
        if not self._has_late:
            behind = bisect_right(totals, totals[index] + room)
            return self.elements[behind - 1].last if behind < len(totals) else 0
        for place in sorted(range(index, len(self.elements)), key=lambda place: self.elements[place].last):
            room -= totals[place + 1] - totals[place]
            if room < 0:
                return self.elements[place].last
        return 0

    def _least_fitting(self) -> Iterator[int]:
        """Yield the places for a border at which the tail fits beside a base of the usual size, the oldest first."""
        taken, fitting = 0, list[int]()
        room = self.room - int((1 - self.step.high) * self.room)
        for index in range(len(self.elements) - 1, -1, -1):
            taken += self.elements[index].tokens
            if taken > room:
                break
            if self._is_place(index):
                fitting.append(index)
        return reversed(fitting)

    def _is_place(self, index: int) -> bool:
        """Return whether a border may stand before an element: on a grid over running totals, or beside a very large element."""
        if index <= self._oldest:
            return not index and not self._is_open
        before, element = self.elements[index - 1], self.elements[index]
        if max(before.tokens, element.tokens) > self._size / 2:
            return True
        return self._cells[index - 1] != self._cells[index]

    def _tail(self, index: int) -> int:
        return self._totals[-1] - self._totals[index] if index else self._all_totals[-1]

    def _place(self, index: int) -> Border:
        if index < len(self.elements):
            loop = bisect_right(self._starts, index) - 1
            return Border(loop, index - self._starts[loop])
        last = len(self.view.loops) - 1
        return Border(last, len(self.view.loops[last].units))


def _elements(view: WindowDraft, cap: int) -> Iterator[Sequence[_Element]]:
    tally = Tally()
    for loop in view.loops:
        if loop.level != "whole":
            notes = Tally().add(*loop.notes)
            saved = notes - tally.add(*loop.notes)
            yield (_Element(loop.before, loop.first, loop.last, bare_tokens(loop) + notes, saved=saved),)
        else:
            yield _elements_of(loop, cap)


@once
def _elements_of(loop: Loop, cap: int) -> Sequence[_Element]:
    return [_element_of(unit, cap) for unit in loop.units]


@once
def _element_of(unit: Unit, cap: int) -> _Element:
    last = max(entry.position for entry in unit.entries)
    tokens = capped_tokens(unit, cap) if unit.level == "whole" else 0
    more = unit.tokens - tokens if unit.level == "whole" else 0
    waits_behind = unit.said[-1].position if unit.is_waiting else 0
    return _Element(unit.before, unit.position, last, tokens, more, waits_behind=waits_behind)


def _cuts(tail: Sequence[_Element], room: int, margin: int) -> tuple[dict[int, int], EpochStart]:
    """Return the tokens that units with large results leave out, by their index in the tail, and since when.

    In order of the log: a large result gets what is free when it comes, and keeps it while that fits. When something new does
    not fit beside it, all large results so far shrink at once to the least that they take. When that was last is the second value.
    """
    taken, sent, start = 0, dict[int, int](), NEVER_BROKEN
    for index, element in enumerate(tail):
        free = room - taken - element.tokens
        shrinking = [place for place, more in sent.items() if more]
        if free < element.more and shrinking:
            taken -= sum(sent.values())
            sent, start = dict.fromkeys(sent, 0), EpochStart(element.last, "large_result", tail[shrinking[0]].position)
            free = room - taken - element.tokens
        if element.more:
            sent[index] = element.more if element.more <= free else max(0, free - margin)
        taken += element.tokens + sent.get(index, 0)
    return {index: tail[index].more - more for index, more in sent.items() if more < tail[index].more}, start


def _least_views(view: WindowDraft) -> Iterator[WindowDraft]:
    """Yield small forms of a view, for budgets that are hardly enough: the newest step short, then all steps in a bare note."""
    if not view.loops:
        yield view
        return
    digests = view.with_past(
        loop if loop.level == "out" else resized(loop, SIZES[-1], MAX_MESSAGE_CHARS, LEDGER_PER_LOOP)
        for loop in view.past
    )
    for past in (view, digests, view.with_past(out(loop, "budget") for loop in view.past)):
        current = view.loops[-1]
        if current.level != "whole":
            yield past
            continue
        stubs = replace(current, units=tuple(stub_results(unit, "stub", over_tokens=0) for unit in current.units))
        yield past.with_current(stubs)
        yield past.with_current(bare_fold(stubs))


def _with_fewer_messages(view: WindowDraft, room: int) -> WindowDraft:
    """Return the view with as many of the current loop's user messages as fit: the first, and the newest.

    Before one of them is left out, system messages are that need not stay.
    """
    if not view.loops or view.loops[-1].level != "whole":
        return view
    loop = view.loops[-1]
    units = [unit for unit in loop.units if unit.level == "whole" and not unit.pinned]
    system = [unit for unit in units if unit.entry.facts.role == "system" and not view.keeps_system]
    users = [unit for unit in units if unit.entry.facts.role == "user"]
    excess, dropped = message_tokens(view) - room + (0 if takes_line(view) else LINE_TOKENS), set[int]()
    for unit in (*system, *users[1:-1]):
        if excess > 0:
            dropped.add(unit.position)
            excess -= unit.tokens
    if not dropped:
        return view
    units = [replace(unit, level="out", reason="budget") if unit.position in dropped else unit for unit in loop.units]
    return view.with_current(replace(loop, units=tuple(units)))
