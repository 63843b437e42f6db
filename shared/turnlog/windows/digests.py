"""Digests of past loops: their text, and the most tokens that they can take.

A digest has the beginnings of the user's messages and of the final reply, the pinned messages, and a note on the calls.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from turnlog.core.events import HEAD_TOKEN_CHARS
from turnlog.core.lazy_dataclass import Lasting, lazy_dataclass, once, once_for_all
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.blocks import fenced
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.ledger import chosen, is_name, is_said
from turnlog.windows.text import NO_REPLY, one_line, truncation_mark, value_cost
from turnlog.windows.view import CallResult, Entry, Loop, Note, Unit, out

MAX_LINES = 20
MAX_MESSAGE_CHARS = 500
LEDGER_PER_LOOP = 200
NO_FINAL_REPLY = "no_reply"
"""The reason in the manifest for a loop that is out because it has no final reply."""
_ARGUMENT_CHARS, _ERROR_CHARS, _NAME_CHARS = 120, 120, 64
_VALUES = "values: "
_bound_of_head = lru_cache(maxsize=4096)(upper_bound_tokens)
"""The most tokens of the beginning of a text. The windows of an epoch ask for the same ones again."""


def note_of(
    title: str,
    units: Sequence[Unit],
    *,
    shown: str,
    max_values: int,
    max_lines: int = MAX_LINES,
    closing: str = "",
    outcome_chars: int = 0,
) -> Note | None:
    """Return the note of units; None when there is nothing to say. ``shown`` is the text that is sent beside it.

    ``outcome_chars`` is the number of characters of each result, and of each message without calls, in the note. The note has
    lines for the newest ``max_lines`` calls. Values that calls took as arguments come first.
    """
    lines = [line for unit in units for line in _lines(unit, outcome_chars)]
    if len(lines) > max_lines:
        lines = [f"({len(lines) - max_lines} earlier calls)", *lines[len(lines) - max_lines :]]
    if closing:
        lines.append(closing)
    # Turnlog adds the refs and counts: a value that equals one of them still has to be listed.
    said = "\n".join((shown, *(line.partition(" ")[2] for line in lines)))
    names = _names(units)
    by_use = sorted(_values(units), key=lambda value: value not in names)
    values = chosen((value for value in by_use if not is_said(value, said)), max_values, names=names)
    if not lines and not values:
        return None
    fixed = upper_bound_tokens(fenced(title, "\n".join([*lines, _VALUES]))) + MESSAGE_OVERHEAD
    return Note(title, tuple(lines), tuple(values), fixed)


def note_text(note: Note, said: Container[str]) -> str:
    """Return the note as it is sent, without the values in ``said``, which earlier notes have."""
    values = [value for value in note.values if value not in said]
    lines = [*note.lines, *([_VALUES + ", ".join(values)] if values else [])]
    return fenced(note.title, "\n".join(lines))


class Tally:
    """The tokens of a growing set of notes. A value that several notes have counts once."""

    def __init__(self) -> None:
        self._values = set[str]()

    def cost(self, *notes: Note) -> int:
        """Return the tokens that notes would add to the total."""
        values = {value for note in notes for value in note.values}
        return sum(note.fixed for note in notes) + sum(map(value_cost, values - self._values))

    def add(self, *notes: Note) -> int:
        """Add notes; return the tokens that they add to the total."""
        cost = self.cost(*notes)
        self._values.update(*(note.values for note in notes))
        return cost


def bare_note(title: str, steps: int) -> Note:
    """Return a note that says only how many steps are left out. All such notes of a loop are charged the same."""
    return Note(title, (_bare_line(steps),), (), _bare_tokens(title))


@once_for_all
def steps_note(
    units: Sequence[Unit], title: str, shown: str, max_values: int, max_lines: int, outcome_chars: int
) -> Note:
    """Return the note on some steps of a long loop. Charged at least as much as a bare note."""
    note = note_of(title, units, shown=shown, max_values=max_values, max_lines=max_lines, outcome_chars=outcome_chars)
    if note is None:
        return bare_note(title, len(units))
    return replace(note, fixed=max(note.fixed, _bare_tokens(title)))


def _bare_line(steps: int) -> str:
    return f"({steps} earlier step{'s' * (steps != 1)})"


def _bare_tokens(title: str) -> int:
    return upper_bound_tokens(fenced(title, _bare_line(999_999_999))) + MESSAGE_OVERHEAD


def _lines(unit: Unit, outcome_chars: int) -> Iterator[str]:
    """Yield a line for each call, e.g. ``3.0 get_order {"id": "A17"}``.

    The line of a failed call ends with ``-> error:`` and the error's beginning.
    """
    calls = {entry.position: entry.outline.calls for entry in unit.said}
    for answer in sorted(unit.answers, key=lambda answer: answer.ref):
        call = calls[answer.ref.position][answer.ref.index]
        what = f"{one_line(call.name, _NAME_CHARS)} {one_line(call.arguments, _ARGUMENT_CHARS)}".rstrip()
        yield f"{answer.ref} {what}{_outcome(answer, outcome_chars)}"
    if outcome_chars and not unit.answers and unit.entry.outline.head:
        yield f"{unit.position} said: {one_line(unit.entry.outline.head, outcome_chars)}"


def _outcome(answer: CallResult, chars: int) -> str:
    if answer.entry is None:
        return " -> no result"
    result = answer.entry.outline.results[answer.index]
    if result.is_error:
        return f" -> error: {one_line(result.text, _ERROR_CHARS)}".rstrip(": ")
    return f" -> {one_line(result.text, chars)}".rstrip(" ->") if chars else ""


def _values(units: Sequence[Unit]) -> Iterator[str]:
    """Yield the values of the units that have calls, in order, each value once."""
    entries = (entry for unit in units if unit.answers for entry in unit.entries)
    yield from dict.fromkeys(value for entry in entries for value in entry.values())


def _names(units: Sequence[Unit]) -> set[str]:
    """Return the values of calls' arguments that can name something."""
    entries = (entry for unit in units for entry in unit.said if entry.facts.calls)
    return {value for entry in entries for value in entry.values() if is_name(value)}


@lazy_dataclass(frozen=True, slots=True)
class Piece(Lasting):
    """A part of a digest: a whole unit (a pin), or a message's text cut to ``limit`` characters."""

    unit: Unit
    limit: int | None
    tokens: int


@once
def digest_pieces(loop: Loop) -> tuple[Piece, ...]:
    """Return the pieces of a loop's digest: the user's messages, the final reply, and pinned units."""
    reply = final_reply(loop)
    pieces = list[Piece]()
    for unit in loop.units:
        entry = unit.entry
        if unit.level == "out":
            continue
        if unit.pinned:
            pieces.append(Piece(unit, None, unit.tokens))
        elif unit is reply or (entry.facts.role == "user" and entry.facts.head):
            pieces.append(_cut_piece(unit, loop.max_message_chars))
    return tuple(pieces)


def with_note(loop: Loop, *, max_values: int, max_lines: int = MAX_LINES) -> Loop:
    """Return the loop's digest with its note, if there is something to note."""
    pieces = digest_pieces(loop)
    shown = "\n".join(piece.unit.entry.outline.head[: piece.limit] for piece in pieces)
    pinned = {piece.unit.position for piece in pieces if piece.limit is None}
    units = [unit for unit in loop.units if unit.answers and unit.level == "whole" and unit.position not in pinned]
    if not units:
        return replace(loop, notes=()) if loop.notes else loop
    closing = NO_REPLY if final_reply(loop) is None else ""
    title = f"notes on exchange {loop.number}"
    note = note_of(title, units, shown=shown, max_values=max_values, max_lines=max_lines, closing=closing)
    return replace(loop, notes=(note,) if note is not None else ())


def tells_something(digest: Loop) -> bool:
    """Return whether a digest has anything besides its pinned messages."""
    return bool(digest.notes) or any(piece.limit is not None for piece in digest_pieces(digest))


@once
def shown_pieces(loop: Loop) -> tuple[Piece, ...]:
    """Return the pieces that are sent of a loop at its level; of a loop that is out, its pinned units."""
    if loop.level == "digest":
        return digest_pieces(loop)
    units = (unit for unit in loop.units if (unit.pinned if loop.level == "out" else unit.level == "whole"))
    return tuple(Piece(unit, None, unit.tokens) for unit in units)


@once
def sent_parts(loop: Loop) -> Sequence[Piece | Note]:
    """Return the pieces and notes that are sent of a loop, in order."""
    notes, parts = list(loop.notes), list[Piece | Note]()
    for piece in shown_pieces(loop):
        while notes and notes[0].at is not None and notes[0].at < piece.unit.position:
            parts.append(notes.pop(0))
        parts.append(piece)
    return parts + notes


@once
def final_reply(loop: Loop) -> Unit | None:
    """Return the loop's last assistant message that has text and no calls; None when there is none."""
    replies = [
        unit for unit in loop.units if unit.level == "whole" and unit.entry.facts.is_reply and unit.entry.facts.head
    ]
    return replies[-1] if replies else None


def _cut_piece(unit: Unit, limit: int) -> Piece:
    entry, event, facts = unit.entry, unit.entry.event, unit.entry.facts
    if facts.calls:
        mark = _bound_of_head(truncation_mark(facts.chars))
        return Piece(unit, limit, _text_tokens(facts.head[:limit], entry) + mark)
    if facts.chars <= limit:
        # A card does not say how many blocks become the one text, and a body that was read changes nothing.
        return Piece(unit, limit, entry.cost if event.facts is None else _text_tokens(facts.head, entry))
    mark = _bound_of_head(truncation_mark(facts.chars - limit))
    if limit == HEAD_TOKEN_CHARS and event.head_tokens is not None:
        return Piece(unit, limit, event.head_tokens + mark + _text_tokens("", entry))
    # A card's head may be shorter than the cut: then the body is read, and the plan made again.
    return Piece(unit, limit, _text_tokens(facts.head[:limit], entry) + mark)


def _text_tokens(text: str, entry: Entry) -> int:
    """Return the most that a message of that text takes, with its author's name."""
    return _bound_of_head(text) + _bound_of_head(entry.facts.name) + MESSAGE_OVERHEAD


def digest(loop: Loop, reason: str, max_message_chars: int = MAX_MESSAGE_CHARS, ledger: int = LEDGER_PER_LOOP) -> Loop:
    """Return a whole loop as a digest; out, when its digest would have nothing but pinned messages.

    A loop that is a digest or out is returned as it is.
    Texts are cut to their first ``max_message_chars`` characters; the note has at most ``ledger`` values.
    """
    return as_digest(loop, reason, max_message_chars, ledger) if loop.level == "whole" else loop


def as_digest(loop: Loop, reason: str, max_chars: int, max_values: int, max_lines: int = MAX_LINES) -> Loop:
    """Return a loop as a digest of a size; out, when the digest would say nothing."""
    digest = replace(loop, level="digest", reason=reason, max_message_chars=max_chars)
    digest = with_note(digest, max_values=max_values, max_lines=max_lines)
    return digest if tells_something(digest) else out(loop, reason)


def is_dropped(loop: Loop, interrupted: Literal["mark", "drop"]) -> bool:
    """Return whether a step with this setting leaves the loop out, for the reason `NO_FINAL_REPLY`."""
    return interrupted == "drop" and loop.level == "whole" and final_reply(loop) is None
