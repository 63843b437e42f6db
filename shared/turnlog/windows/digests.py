"""What a past loop's digest says, and the most tokens that it can take.

The user's messages and the final reply, each cut to its beginning, what is pinned, and a note on the calls between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from turnlog.domain.events import HEAD_TOKEN_CHARS
from turnlog.domain.values import dataclass
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.notes import note_of
from turnlog.windows.text import NO_REPLY, truncation_mark
from turnlog.windows.view import Entry, Loop, Note, Unit

MESSAGE_OVERHEAD = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a digest: a unit whole (a pin), or a message's text cut to ``limit`` characters."""

    unit: Unit
    limit: int | None
    tokens: int


def digest_pieces(loop: Loop) -> tuple[Piece, ...]:
    """The user's messages and the final reply of a loop, and what is pinned in it."""
    reply = final_reply(loop)
    pieces = list[Piece]()
    for unit in loop.units:
        entry = unit.entry
        if unit.level == "out":
            continue
        if unit.pinned:
            pieces.append(Piece(unit, None, unit.tokens))
        elif unit is reply or _is_asked(unit):
            pieces.append(_cut_piece(unit, entry, loop.max_message_chars))
    return tuple(pieces)


def pieces_tokens(loop: Loop) -> int:
    """The most that a digest takes without its note."""
    return sum(piece.tokens for piece in digest_pieces(loop))


def with_note(loop: Loop, *, max_values: int) -> Loop:
    """The digest with its note, where there is something to note."""
    pieces = digest_pieces(loop)
    shown = "\n".join(_shown(piece) for piece in pieces)
    pinned = {piece.unit.position for piece in pieces if piece.limit is None}
    units = [unit for unit in loop.units if unit.level == "whole" and unit.position not in pinned]
    closing = NO_REPLY if final_reply(loop) is None and any(unit.answers for unit in units) else ""
    title = f"notes on exchange {loop.number}"
    note = note_of(title, units, shown=shown, max_values=max_values, closing=closing)
    return replace(loop, notes=(note,) if note is not None else ())


def _shown(piece: Piece) -> str:
    head = piece.unit.entry.facts.head
    return head if piece.limit is None else head[: piece.limit]


def pinned_pieces(loop: Loop) -> tuple[Piece, ...]:
    """What stays of a loop that is out."""
    return tuple(Piece(unit, None, unit.tokens) for unit in loop.units if unit.pinned)


def shown_pieces(loop: Loop) -> tuple[Piece, ...]:
    """What is sent of a loop at its level."""
    if loop.level == "digest":
        return digest_pieces(loop)
    if loop.level == "out":
        return pinned_pieces(loop)
    return tuple(Piece(unit, None, unit.tokens) for unit in loop.units if unit.level == "whole")


def told(loop: Loop) -> Iterator[Piece | Note]:
    """What is sent of a loop, its notes among the pieces, in order."""
    notes = list(loop.notes)
    for piece in shown_pieces(loop):
        while notes and notes[0].at is not None and notes[0].at < piece.unit.position:
            yield notes.pop(0)
        yield piece
    yield from notes


def final_reply(loop: Loop) -> Unit | None:
    """The loop's last assistant message without calls that says something."""
    replies = [
        unit
        for unit in loop.units
        if unit.level == "whole"
        and unit.entry.facts.role == "assistant"
        and not unit.entry.facts.calls
        and unit.entry.facts.head
    ]
    return replies[-1] if replies else None


def _is_asked(unit: Unit) -> bool:
    return unit.entry.facts.role == "user" and bool(unit.entry.facts.head)


def _cut_piece(unit: Unit, entry: Entry, limit: int) -> Piece:
    event, facts = entry.event, entry.facts
    if facts.chars <= limit:
        # Of a card alone it is not known how many blocks become the one text.
        is_known = entry.message is not None
        return Piece(unit, limit, entry.cost if is_known else _text_tokens(facts.head, entry))
    mark = upper_bound_tokens(truncation_mark(facts.chars - limit))
    if limit == HEAD_TOKEN_CHARS and event.head_tokens is not None:
        return Piece(unit, limit, event.head_tokens + mark + _text_tokens("", entry))
    # A card's head may be shorter than the cut: then the body is read, and the plan made again.
    return Piece(unit, limit, _text_tokens(facts.head[:limit], entry) + mark)


def _text_tokens(text: str, entry: Entry) -> int:
    """The most that a message of that text takes, with its author's name."""
    return upper_bound_tokens(text) + upper_bound_tokens(entry.facts.name) + MESSAGE_OVERHEAD
