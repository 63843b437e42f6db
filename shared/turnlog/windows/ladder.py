"""The ladder inside one long loop: tool results to stubs, then the oldest steps to notes, until the view fits.

What the user says, system messages and pins stay. The loop is divided into chunks on a grid over the running totals, so two
builds agree without stored state and a window's beginning stays the same until a whole chunk has to go. The newest part of
the loop is cut only when nothing else helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from turnlog.windows.costs import message_tokens
from turnlog.windows.notes import Tally, bare_note, steps_note
from turnlog.windows.steps import LEDGER_PER_LOOP
from turnlog.windows.stubs import result_entries, stub_results
from turnlog.windows.view import Loop, Note, Unit, View

GRID, TAIL, NOTES, GIANT = 0.3, 0.2, 0.15, 0.5
"""Shares of the room: a chunk, the newest part that is kept as long as possible, the notes, and a result that is cut first."""


def shortened(view: View, room: int, *, newest: bool) -> View:
    """The view with its current loop shortened until it fits ``room``, or as far as it goes. ``newest``: to its very end."""
    loop = view.loops[-1] if view.loops else None
    total = message_tokens(view)
    if loop is None or loop.level != "whole" or total <= room:
        return view
    return view.with_current(_Current(loop, total, room, view.total, _tally(view.past)).shortened(newest=newest))


def least(view: View) -> tuple[View, View]:
    """The current loop with every result as a stub; and all its steps in one note that says nothing of them."""
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
    """The current loop while it is made shorter. ``tokens`` is what the whole view takes."""

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
        """Results of the wanted units to stubs, oldest first, up to the first border at which the view fits."""
        units, last = list(self.loop.units), None
        for at, unit in enumerate(units):
            if not wanted(unit) or not unit.answers:
                continue
            if self._fits and (last is None or is_border(last, unit)):
                break
            units[at] = smaller = stub_results(unit, "stub")
            self.tokens -= unit.tokens - smaller.tokens
            last = unit
        self.loop = replace(self.loop, units=tuple(units))

    def _fold(self, wanted: Callable[[Unit], bool], is_border: Callable[[Unit, Unit], bool]) -> None:
        """The oldest of the wanted steps into notes, up to the first border at which the view fits with its notes."""
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
        """A note for each chunk, the newest first as far as their room goes; one bare note for all older ones."""
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

    def _is_new_chunk(self, one: Unit, other: Unit) -> bool:
        return one.before // self.chunk != other.before // self.chunk

    def _never(self, _one: Unit, _other: Unit) -> bool:
        return False

    def _always(self, _one: Unit, _other: Unit) -> bool:
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
