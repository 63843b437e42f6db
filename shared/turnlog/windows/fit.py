"""Makes a view fit the budget after the policy's steps, or refuses it with the budget that it needs.

The measures, in order: past loops become digests, oldest first; the oldest digests go out while digests take more than their
share; in the current loop results become stubs and steps become notes, except its newest part; the other digests go out; the
newest part is shortened; `BudgetTooSmallError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from turnlog.core.errors import BudgetTooSmallError
from turnlog.windows.costs import LINE_TOKENS, bare_tokens, has_evicted, is_evicted, message_tokens, past_tokens
from turnlog.windows.digests import Tally, bare_note, steps_note
from turnlog.windows.steps import LEDGER_PER_LOOP, MAX_MESSAGE_CHARS, digest, out
from turnlog.windows.stubs import result_entries, stub_results
from turnlog.windows.view import Loop, Note, Unit, WindowDraft

GRID, TAIL, NOTES, GIANT = 0.3, 0.2, 0.15, 0.5
"""Shares of the room: of a chunk, the newest part (shortened last), the notes, and a result that is cut before all others."""


def shortened(view: WindowDraft, room: int, *, newest: bool) -> WindowDraft:
    """Return the view with its current loop shortened until it fits ``room`` tokens, or as far as possible.

    ``newest``: the newest part may be shortened too.
    """
    loop = view.loops[-1] if view.loops else None
    total = message_tokens(view)
    if loop is None or loop.level != "whole" or total <= room:
        return view
    return view.with_current(_Current(loop, total, room, view.total, _tally(view.past)).shortened(newest=newest))


def least(view: WindowDraft) -> tuple[WindowDraft, WindowDraft]:
    """Return two smallest forms of the current loop: with every result as a stub, and with all steps in one bare note."""
    if not view.loops or view.loops[-1].level != "whole":
        return view, view
    loop = _unfolded(view.loops[-1])
    stubs = replace(loop, units=tuple(stub_results(unit, "stub", over_tokens=0) for unit in loop.units))
    steps = [unit for unit in stubs.units if _is_step(unit)]
    if not steps:
        return view.with_current(stubs), view.with_current(stubs)
    bare = replace(bare_note(_title(loop), len(steps)), at=steps[0].position)
    return view.with_current(stubs), view.with_current(_folded(stubs, steps, (bare,)))


@dataclass
class _Current:
    """The current loop while it is being shortened. ``tokens`` is what the whole view takes."""

    loop: Loop
    tokens: int
    room: int
    total: int
    tally: Tally

    def __post_init__(self) -> None:
        self.chunk = max(1.0, GRID * self.room)

    def shortened(self, *, newest: bool) -> Loop:
        self._unfold()
        border = (self.total - TAIL * self.room) // self.chunk * self.chunk
        self._stub(lambda unit: any(entry.cost > GIANT * self.room for entry in result_entries(unit)), self._never)
        self._stub(lambda unit: unit.before < border, self._is_new_chunk)
        self._fold(lambda unit: unit.before < border, self._is_new_chunk)
        if newest:
            self._stub(lambda _: True, self._always)
            self._fold(lambda _: True, self._always)
        return self.loop

    @property
    def _fits(self) -> bool:
        return self.tokens <= self.room

    def _unfold(self) -> None:
        folded = [unit for unit in self.loop.units if unit.level == "digest"]
        if folded:
            self.tokens += sum(unit.tokens for unit in folded) - self.tally.remove(*self.loop.notes)
            self.loop = _unfolded(self.loop)

    def _stub(self, wanted: Callable[[Unit], bool], is_border: Callable[[Unit, Unit], bool]) -> None:
        """Cut the results of the wanted units to stubs, oldest first, up to the first border at which the view fits."""
        units, last = list(self.loop.units), None
        for index, unit in enumerate(units):
            if not wanted(unit) or not unit.answers:
                continue
            if self._fits and (last is None or is_border(last, unit)):
                break
            units[index] = smaller = stub_results(unit, "stub")
            self.tokens -= unit.tokens - smaller.tokens
            last = unit
        self.loop = replace(self.loop, units=tuple(units))

    def _fold(self, wanted: Callable[[Unit], bool], is_border: Callable[[Unit, Unit], bool]) -> None:
        """Replace the oldest wanted steps by notes, up to the first border at which the view fits with its notes."""
        if self._fits:
            return
        self._unfold()
        steps, tokens = list[Unit](), self.tokens + int(NOTES * self.room)
        for unit in self.loop.units:
            if not _is_step(unit) or not wanted(unit):
                continue
            if tokens <= self.room and is_border(steps[-1], unit):
                break
            steps.append(unit)
            tokens -= unit.tokens
        if steps:
            self.tokens -= sum(unit.tokens for unit in steps)
            notes = self._notes(steps)
            self.tokens += self.tally.add(*notes)
            self.loop = _folded(self.loop, steps, notes)

    def _notes(self, steps: Sequence[Unit]) -> tuple[Note, ...]:
        """Return a note for each chunk, newest first while there is room, and one bare note for all older chunks."""
        title, room = _title(self.loop), NOTES * self.room
        shown = "\n".join(unit.entry.facts.head for unit in self.loop.units if unit.entry.facts.role == "user")
        chunks, notes, tally = self._chunks(steps), list[Note](), self.tally.copy()
        bare = bare_note(title, len(steps)).fixed
        while chunks:
            units = chunks[-1]
            note = steps_note(title, units, shown=shown, max_values=LEDGER_PER_LOOP)
            room -= tally.add(note)
            if room < (bare if len(chunks) > 1 else 0):
                break
            notes.append(replace(note, at=units[0].position))
            chunks.pop()
        older = [unit for units in chunks for unit in units]
        if older:
            notes.append(replace(bare_note(title, len(older)), at=older[0].position))
        return tuple(reversed(notes))

    def _chunks(self, steps: Sequence[Unit]) -> list[list[Unit]]:
        chunks = list[list[Unit]]()
        for unit in steps:
            if not chunks or self._is_new_chunk(chunks[-1][-1], unit):
                chunks.append([])
            chunks[-1].append(unit)
        return chunks

    def _is_new_chunk(self, previous: Unit, unit: Unit) -> bool:
        return previous.before // self.chunk != unit.before // self.chunk

    def _never(self, _previous: Unit, _unit: Unit) -> bool:
        return False

    def _always(self, _previous: Unit, _unit: Unit) -> bool:
        return True


def _is_step(unit: Unit) -> bool:
    return unit.level == "whole" and not unit.pinned and unit.entry.facts.role == "assistant"


def _folded(loop: Loop, steps: Iterable[Unit], notes: tuple[Note, ...]) -> Loop:
    positions = {unit.position for unit in steps}
    units = [
        replace(unit, level="digest", reason="fold") if unit.position in positions else unit for unit in loop.units
    ]
    return replace(loop, units=tuple(units), notes=notes)


def _unfolded(loop: Loop) -> Loop:
    units = [replace(unit, level="whole", reason="") if unit.level == "digest" else unit for unit in loop.units]
    return replace(loop, units=tuple(units), notes=())


def _title(loop: Loop) -> str:
    return f"notes on earlier steps of exchange {loop.number}"


def _tally(loops: Iterable[Loop]) -> Tally:
    tally = Tally()
    for loop in loops:
        tally.add(*loop.notes)
    return tally


DIGESTS = 0.2
"""Share of the room for digests. Past loops take more only while the current loop is whole."""


def fit(view: WindowDraft, *, room: int) -> WindowDraft:
    """Return the view within ``room`` tokens of messages.

    Raises `BudgetTooSmallError` when that is impossible; its detail ``needed`` counts messages only.
    """
    if message_tokens(view) <= room:
        return view
    digested = _digested(view, room)
    fitted = _evicted(digested, room, keep=DIGESTS * room)
    fitted = shortened(fitted, room, newest=False)
    fitted = _evicted(fitted, room, keep=0)
    fitted = shortened(fitted, room, newest=True)
    if message_tokens(fitted) <= room:
        return fitted
    # The line about omitted messages may take more than small digests, and a note more than small steps.
    candidates = [
        candidate for past in (digested, _evicted(digested, -1, keep=0)) for candidate in (past, *least(past))
    ]
    smallest = min(candidates, key=message_tokens)
    needed = message_tokens(smallest)
    if needed > room:
        raise BudgetTooSmallError(f"the least window needs {needed} tokens of messages", details={"needed": needed})
    return smallest


def _digested(view: WindowDraft, room: int) -> WindowDraft:
    """Return the view with past loops as digests, oldest first, until it fits."""
    total, past, tally = message_tokens(view), list(view.past), _fit_tally(view)
    for index, loop in enumerate(past):
        if total <= room:
            break
        if loop.level != "whole":
            continue
        smaller = digest(loop, "budget", MAX_MESSAGE_CHARS, LEDGER_PER_LOOP)
        saved = bare_tokens(loop) - bare_tokens(smaller) - tally.add(*smaller.notes)
        if smaller.level == "digest" and saved > 0:
            past[index], total = smaller, total - saved
        else:
            tally.remove(*smaller.notes)
    return view.with_past(past)


def _evicted(view: WindowDraft, room: int, *, keep: float) -> WindowDraft:
    """Return the view with past loops out, oldest first, until it fits or they take at most ``keep`` tokens."""
    total, past, line, tally = message_tokens(view), list(view.past), has_evicted(view), _fit_tally(view)
    if total <= room:
        return view
    taken = past_tokens(past)
    for index, loop in enumerate(past):
        if total <= room or taken <= keep:
            break
        past[index] = smaller = out(loop, "budget")
        saved = bare_tokens(loop) - bare_tokens(smaller) + tally.remove(*loop.notes)
        total, taken = total - saved, taken - saved
        if not line and any(is_evicted(smaller, unit) for unit in smaller.units):
            total, line = total + LINE_TOKENS, True
    return view.with_past(past)


def _fit_tally(view: WindowDraft) -> Tally:
    """Return the tally of all notes of the view."""
    tally = Tally()
    for loop in view.loops:
        tally.add(*loop.notes)
    return tally
