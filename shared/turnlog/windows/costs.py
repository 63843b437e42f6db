"""Upper bounds of the tokens that the parts of a view take, from stored counts and without a tokeniser."""

from __future__ import annotations

from collections.abc import Iterable

from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.digests import Tally, pieces_tokens, pinned_pieces, shown_pieces
from turnlog.windows.summaries import summary_tokens
from turnlog.windows.text import NOTHING_SAID, left_out_line
from turnlog.windows.view import Loop, Unit, WindowDraft

_LONGEST_LINE = left_out_line(loops=999_999_999_999, messages=999_999_999_999)
LINE_TOKENS = upper_bound_tokens(_LONGEST_LINE) + MESSAGE_OVERHEAD
NOTHING_SAID_TOKENS = upper_bound_tokens(NOTHING_SAID) + MESSAGE_OVERHEAD


def bare_tokens(loop: Loop) -> int:
    """Return the most that a loop takes at its level, without its notes: notes share their values."""
    if loop.level == "digest":
        return pieces_tokens(loop)
    if loop.level == "out":
        return sum(piece.tokens for piece in pinned_pieces(loop))
    return sum(unit.tokens for unit in loop.units if unit.level == "whole")


def loops_tokens(loops: Iterable[Loop]) -> dict[int, int]:
    """Return the most tokens that each loop takes with its notes, by loop number.

    A value is charged to the first loop that notes it.
    """
    tally = Tally()
    return {loop.number: bare_tokens(loop) + tally.add(*loop.notes) for loop in loops}


def notes_tokens(loops: Iterable[Loop]) -> dict[tuple[int, int | None], int]:
    """Return the most tokens that each note takes, by its loop and the position before which it is sent."""
    tally = Tally()
    return {(loop.number, note.at): tally.add(note) for loop in loops for note in loop.notes}


def past_tokens(loops: Iterable[Loop]) -> int:
    """Return the most tokens that the loops take together."""
    return sum(loops_tokens(loops).values())


def is_evicted(loop: Loop, unit: Unit) -> bool:
    """Return whether a unit that could be sent is neither shown nor digested, nor covered by a summary."""
    return unit.level == "out" or (loop.level == "out" and not unit.pinned and not loop.is_covered)


def has_evicted(view: WindowDraft) -> bool:
    """Return whether something that could be sent is neither shown nor digested."""
    return bool(view.unread) or any(is_evicted(loop, unit) for loop in view.loops for unit in loop.units)


def says_nothing(view: WindowDraft) -> bool:
    """Return whether the view has no message at all, which no provider accepts."""
    is_empty = (
        not view.preamble and view.summary is None and not any(shown_pieces(loop) or loop.notes for loop in view.loops)
    )
    return is_empty and not view.has_system and not has_evicted(view)


def message_tokens(view: WindowDraft) -> int:
    """Return the most that the view's messages take, with the summary and the line about omitted messages."""
    if says_nothing(view):
        return NOTHING_SAID_TOKENS
    preamble = sum(unit.tokens for unit in view.preamble) + summary_tokens(view.summary, view.wording.label)
    return preamble + past_tokens(view.loops) + (LINE_TOKENS if has_evicted(view) else 0)
