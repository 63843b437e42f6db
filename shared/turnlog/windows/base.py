"""The base of an epoch: what a window sends of the part before the border.

Older loops are digests in four sizes, the newest with the most room. The loop that contains the border keeps its user messages
whole; its steps before the border become notes. The base depends on nothing behind the border, so it stays the same for the whole
epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from turnlog.core.lazy_dataclass import lazy_dataclass, once
from turnlog.windows.digests import MAX_LINES, NO_FINAL_REPLY, Tally, as_digest, bare_note, is_dropped, steps_note
from turnlog.windows.prices import LINE_TOKENS, bare_tokens
from turnlog.windows.steps import DigestWhenFull
from turnlog.windows.view import Loop, Note, Unit, WindowDraft, out, pinned_tokens

DIGESTED, DROPPED, FOLDED = "high_mark", "digests_full", "fold"
"""Reasons in the manifest: a loop is a digest, a loop is left out, a step is told in a note."""
_SHARE = 0.6
"""Share of the room left that one loop or note may take, so that older ones get something too."""


class Size(NamedTuple):
    """A size of a digest: characters of each message, values, and lines about calls."""

    chars: int
    values: int
    lines: int


SIZES = (Size(500, 100, MAX_LINES), Size(200, 40, 10), Size(80, 15, 5), Size(40, 12, 0))
NOTE_SIZES = (Size(120, 100, MAX_LINES), Size(0, 60, MAX_LINES), Size(0, 40, MAX_LINES), Size(0, 40, 0))
"""Sizes of the notes on steps of the parted loop; ``chars`` are those of each result."""


@lazy_dataclass(frozen=True, slots=True)
class Border:
    """The first unit of the tail: the index of its loop, and its index in the loop. The tail may be empty."""

    loop: int
    unit: int = 0


def least_tokens(view: WindowDraft, border: Border) -> int:
    """Return the least that a base takes: pinned messages, the parted loop's user messages, and the lines about what is missing."""
    tokens = LINE_TOKENS + sum(map(pinned_tokens, view.loops[: border.loop]))
    if border.unit:
        loop = view.loops[border.loop]
        units = loop.units[: border.unit]
        tokens += sum(unit.tokens for unit in units if unit.level == "whole" and not is_step(unit))
        tokens += bare_note(_title(loop), 1).fixed if any(map(is_step, units)) else 0
    return tokens


def is_step(unit: Unit) -> bool:
    """Return whether the unit is a step of an agent's loop, which a note may replace."""
    return unit.level == "whole" and not unit.pinned and unit.entry.facts.role == "assistant"


def folded(loop: Loop, steps: Sequence[Unit], notes: tuple[Note, ...]) -> Loop:
    """Return the loop with notes in the place of some steps."""
    positions = {unit.position for unit in steps}
    units = tuple(_told(unit) if unit.position in positions else unit for unit in loop.units)
    return replace(loop, units=units, notes=notes)


@once
def _told(unit: Unit) -> Unit:
    """Return the step as a digest: a note tells it."""
    return replace(unit, level="digest", reason=FOLDED)


def bare_fold(loop: Loop) -> Loop:
    """Return the loop with all its steps in one note that says only how many they are."""
    steps = [unit for unit in loop.units if is_step(unit)]
    if not steps:
        return loop
    return folded(loop, steps, (replace(bare_note(_title(loop), len(steps)), at=steps[0].position),))


class Base:
    """The loops of a view, those before a border as they are sent in a room, which is filled with the newest part first.

    ``left`` is what is left of the room. ``is_full``: older loops have no room.
    """

    def __init__(self, view: WindowDraft, border: Border, room: int, step: DigestWhenFull) -> None:
        """Fill ``room`` tokens, which are at least `least_tokens`."""
        self.left = room - least_tokens(view, border)
        self.is_full = False
        self._tally = Tally()
        loops = list(view.loops)
        if border.unit:
            loops[border.loop] = self._parted(loops[border.loop], border.unit)
        for index in reversed(range(border.loop)):
            loops[index] = self._past(loops[index], step, is_oldest=index == 0)
        self.loops = tuple(loops)

    def _parted(self, loop: Loop, count: int) -> Loop:
        """Return the loop with the steps among its first ``count`` units in notes of up to `MAX_LINES` steps.

        The oldest steps may share a note without content.
        """
        units_before, title = loop.units[:count], _title(loop)
        steps = [unit for unit in units_before if is_step(unit)]
        shown = "\n".join(unit.entry.outline.head for unit in units_before if unit.entry.facts.role == "user")
        notes = list[Note]()
        while steps_left := steps[: max(0, len(steps) - len(notes) * MAX_LINES)]:
            units = steps_left[-MAX_LINES:]
            note = self._note(title, units, shown, is_oldest=units[0] is steps[0])
            if note is None:
                bare = bare_note(title, len(steps_left))
                self._tally.add(bare)
                notes.append(replace(bare, at=steps_left[0].position))
                break
            notes.append(replace(note, at=units[0].position))
        return folded(loop, steps, tuple(reversed(notes)))

    def _note(self, title: str, units: Sequence[Unit], shown: str, *, is_oldest: bool) -> Note | None:
        """Return the largest note on some steps that its share of the room allows; None when not even the smallest fits."""
        for size in NOTE_SIZES:
            note = steps_note(units, title, shown, size.values, size.lines, size.chars)
            if self._has_room(0, [note], is_oldest=is_oldest or size is NOTE_SIZES[-1]):
                return note
        return None

    def _has_room(self, tokens: int, notes: Sequence[Note], *, is_oldest: bool) -> bool:
        """Return whether tokens and notes fit into their share of the room; then they have it. The oldest may take all."""
        cost = tokens + self._tally.cost(*notes)
        if cost > self.left * (1 if is_oldest else _SHARE):
            return False
        self._tally.add(*notes)
        self.left -= cost
        return True

    def _past(self, loop: Loop, step: DigestWhenFull, *, is_oldest: bool) -> Loop:
        """Return a past loop as the largest digest that its share of the room allows.

        The first loop that does not fit in the smallest size is out, and so are all before it.
        """
        if loop.level == "out" or self.is_full:
            return out(loop, DROPPED)
        if is_dropped(loop, step.interrupted):
            return out(loop, NO_FINAL_REPLY)
        for size in SIZES:
            digest = resized(loop, size, step.max_message_chars, step.ledger)
            if digest.level != "digest":
                return digest
            tokens = bare_tokens(digest) - pinned_tokens(loop)
            if self._has_room(tokens, digest.notes, is_oldest=is_oldest or size is SIZES[-1]):
                return digest
        self.is_full = True
        return out(loop, DROPPED)


@once
def resized(loop: Loop, size: Size, max_chars: int, max_values: int) -> Loop:
    """Return a loop as a digest of at most a size; out, when the digest would say nothing.

    A digest of a whole loop has at most ``max_chars`` characters of each message and ``max_values`` values. A loop that is a digest
    already keeps its reason, and gets no larger.
    """
    is_digest = loop.level == "digest"
    chars = min(size.chars, loop.max_message_chars if is_digest else max_chars)
    values = min(size.values, sum(len(note.values) for note in loop.notes) if is_digest else max_values)
    return as_digest(loop, loop.reason if is_digest else DIGESTED, chars, values, size.lines)


def _title(loop: Loop) -> str:
    return f"notes on earlier steps of exchange {loop.number}"
