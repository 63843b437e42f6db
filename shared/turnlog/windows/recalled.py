"""Recall: what the current loop is about, found among the messages that the window leaves out, as one part of the window.

The part depends on the loop's question, on the log before the loop, and on what the epoch shows of it. So all windows of a loop
within an epoch have the same part. When the next loop begins, the part of the loop before leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from pydantic import Field

from turnlog.core.calls import Ref
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Text
from turnlog.core.times import caller_time
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.blocks import escaped, fenced
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.digests import shown_pieces, value_cost
from turnlog.windows.ledger import chosen, is_said
from turnlog.windows.steps import Room, Step
from turnlog.windows.stubs import beginning
from turnlog.windows.text import summary_body, truncation_mark
from turnlog.windows.view import Entry, RecalledMessage, RecalledPart, Unit, WindowDraft, is_whole, never_sent

MAX_QUESTION_CHARS = 400
_LEAST_CHARS = 20
"""A shorter question is asked with the user's message before it."""
MAX_HITS = 128
_KIND = "recalled from earlier in this conversation"
_FENCE_TOKENS = upper_bound_tokens(fenced(_KIND, "")) + MESSAGE_OVERHEAD
_LEAST_TOKENS, _SHARE_OF_MESSAGE = 120, 4
"""What a message may take of the part: a fourth, or the least where that is more."""
_TYPICAL_TOKENS = 24
"""Tokens of a short message: a part asks for as many messages as would fit."""
_VALUES, _MAX_VALUES = " values: ", 20
_JOINTS = 4
"""What joining a counted text with its line may add beyond the overhead in its count, where it begins or ends otherwise than a
sentence does."""


class RecallMessages(Step):
    """Where something is left out, messages that are about the current loop's question come back as one fenced part.

    The part takes at most ``share`` of the room for messages, and at most ``tokens``; null: no such limit. That room is set aside
    whatever is found. Messages come with up to ``neighbours`` on either side. Nothing is recalled when the best message has less
    than ``min_score`` of the score that the question could have.
    """

    step: Literal["recall"] = "recall"
    share: float = Field(default=0.4, gt=0, le=0.6)
    tokens: int | None = Field(default=2_400, ge=_LEAST_TOKENS, le=1_000_000)
    neighbours: int = Field(default=3, ge=0, le=3)
    min_score: float = Field(default=0.06, ge=0, lt=1)

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return view

    def reserve(self, view: WindowDraft, room: int) -> int:
        """Return the tokens that are set aside of a room for messages; 0 where there is no question or too little room.

        No more than earlier loops have.
        """
        earlier = view.loops[-1].before - sum(unit.entry.event.tokens for unit in view.preamble) if view.loops else 0
        tokens = min(int(self.share * room), self.tokens or room, earlier)
        return tokens if tokens >= _LEAST_TOKENS and any(unit.entry.facts.head for unit in _asking(view)) else 0


@lazy_dataclass(frozen=True, slots=True)
class RecallSearch:
    """A search for messages before a position. ``shown`` are positions of messages that the window has already.

    At most ``limit`` messages are wanted, with their neighbours.
    """

    question: str
    before: int
    shown: frozenset[int]
    limit: int
    neighbours: int
    min_score: float


@lazy_dataclass(frozen=True, slots=True)
class RecallHit:
    """A message that a search has found, or a neighbour of one. ``refs`` name the calls that its results answer."""

    entry: Entry
    score: float
    refs: tuple[Ref, ...]


Recaller: TypeAlias = Callable[[RecallSearch], "Sequence[RecallHit] | None"]
"""Returns messages, best first, neighbours behind theirs; None when no index can be read in time."""


def with_recalled(view: WindowDraft, step: RecallMessages, room: int, recaller: Recaller) -> WindowDraft:
    """Return the view with the part that the step recalls in ``room`` tokens, or with its mark that none was in time."""
    loop = view.loops[-1]
    limit = min(MAX_HITS, max(1, room // _TYPICAL_TOKENS))
    query = RecallSearch(_question(view), loop.first, _shown(view), limit, step.neighbours, step.min_score)
    hits = recaller(query)
    if hits is None:
        part: RecalledPart | None = RecalledPart(loop.number, "", 0, ())
    else:
        part = _part(view, [hit for hit in hits if not never_sent(hit.entry)], room)
    return view.with_recalled(part)


def start_of(view: WindowDraft, step: RecallMessages, room: int, reserve: int) -> tuple[int, int | None]:
    """Return the position of the question's last message, and the first position where the windows of the loop before differ.

    What was recalled for that loop stood before its first message. None: all may differ, as less room was set aside.
    """
    before = replace(view, loops=view.past)
    is_alike = bool(before.loops) and is_whole(before.loops[-1]) and step.reserve(before, room) == reserve
    return _asking(view)[-1].position, before.loops[-1].units[0].position if is_alike else None


def _asking(view: WindowDraft) -> Sequence[Unit]:
    """Return the user's messages in the current loop."""
    loop = view.loops[-1] if view.loops else None
    if loop is None or loop.level != "whole":
        return ()
    return [unit for unit in loop.units if unit.entry.facts.role == "user" and unit.entry.loop == loop.number]


def _question(view: WindowDraft) -> str:
    """Return the user's newest message, with those before it while it is short.

    Of a long text it is the beginning and the end, because the question may stand at either.
    """
    text = ""
    for unit in reversed(_asking(view)):
        text = f"{unit.entry.facts.head}\n{text}".strip()
        if len(text) >= _LEAST_CHARS:
            break
    if len(text) <= MAX_QUESTION_CHARS:
        return text
    half = MAX_QUESTION_CHARS // 2
    return f"{text[:half]} {text[len(text) - half + 1 :]}"


def _shown(view: WindowDraft) -> frozenset[int]:
    """Return the positions of messages before the current loop that the window sends whole."""
    units = [*view.preamble]
    cut = set[int]()
    for loop in view.past:
        for piece in shown_pieces(loop):
            if piece.limit is None:
                units.append(piece.unit)
            elif piece.unit.entry.facts.chars <= piece.limit:
                cut.add(piece.unit.position)
    return frozenset(cut | {entry.position for unit in units for entry in unit.entries})


# ------------------------------------------------------------ the part


@lazy_dataclass(frozen=True, slots=True)
class _Line:
    """A recalled message as it is sent, and the most tokens that it takes."""

    hit: RecallHit
    day: str
    text: str
    tokens: int


def _part(view: WindowDraft, hits: Sequence[RecallHit], room: int) -> RecalledPart | None:
    """Return the messages that fit, in order of position; None when none does."""
    most = max(_LEAST_TOKENS, room // _SHARE_OF_MESSAGE)
    summary = summary_body(view.summary.text, ()) if view.summary is not None else ""
    lines, days, left = list[_Line](), set[str](), room - _FENCE_TOKENS
    for hit in hits:
        line = _line(hit, most)
        cost = line.tokens + (0 if line.day in days else _day_tokens(line.day))
        if cost > left or (hit.entry.facts.head and hit.entry.facts.head in summary):
            continue
        days.add(line.day)
        lines.append(line)
        left -= cost
    # A day that returns, because callers gave times out of order, has another line.
    while lines and _tokens(_in_order(lines)) > room:
        lines.pop()
    if not lines:
        return None
    shown = _in_order(lines)
    messages = tuple(RecalledMessage(line.hit.entry.position, line.hit.score, line.tokens) for line in shown)
    return RecalledPart(view.loops[-1].number, fenced(_KIND, _text(shown)), _tokens(shown), messages)


def _in_order(lines: Sequence[_Line]) -> list[_Line]:
    return sorted(lines, key=lambda line: line.hit.entry.position)


def _days(lines: Sequence[_Line]) -> Iterator[str]:
    """Yield the day of each line where it differs from the line's before, otherwise an empty text."""
    before = ""
    for line in lines:
        yield line.day if line.day != before else ""
        before = line.day


def _tokens(lines: Sequence[_Line]) -> int:
    days = sum(_day_tokens(day) for day in _days(lines) if day)
    return _FENCE_TOKENS + days + sum(line.tokens for line in lines)


def _text(lines: Sequence[_Line]) -> str:
    """Return the lines below their days, with an empty line where messages between two of them are missing."""
    text, last = "", 0
    for day, line in zip(_days(lines), lines, strict=True):
        position = line.hit.entry.position
        text += ("\n\n" if last and position > last + 1 else "\n") + (f"{day}\n{line.text}" if day else line.text)
        last = position
    return text.strip("\n")


def _day_tokens(day: str) -> int:
    return upper_bound_tokens(f"{day}\n")


def _line(hit: RecallHit, most: int) -> _Line:
    """Return a message in at most about ``most`` tokens: its text, its calls, and its results with their values."""
    entry, facts = hit.entry, hit.entry.facts
    day = caller_time(entry.event.envelope.created_at, entry.time_ms).date().isoformat()
    said = f"{_one_line(facts.name or facts.role)}: "
    is_counted = not facts.calls and not facts.results and _is_one_text(entry) and escaped(facts.head) == facts.head
    if is_counted and entry.event.tokens <= most:
        # The count of a message with a name has the name.
        is_plain = facts.head[:1].isalnum() and not facts.head[-1:].isspace()
        tokens = entry.event.tokens + (0 if facts.name else upper_bound_tokens(said)) + (0 if is_plain else _JOINTS)
        return _Line(hit, day, said + facts.head, tokens)
    parts = [said + _short(facts.head, facts.chars, most)] if facts.head else []
    for index, call in enumerate(facts.calls):
        parts.append(f"{Ref(entry.position, index)} {_one_line(call.name)} {_short(call.arguments, 0, most // 2)}")
    for index, result in enumerate(facts.results):
        ref = str(hit.refs[index]) if index < len(hit.refs) else str(entry.position)
        parts.append(f"{ref} -> {_short(result.text, result.chars, most // len(facts.results))}")
    shown = "\n".join(parts)
    values = chosen((value for value in entry.values() if not is_said(value, shown)), _MAX_VALUES)
    if values and sum(map(value_cost, values)) <= most:
        parts[-1:] = [f"{part}{_VALUES}{', '.join(values)}" for part in parts[-1:]]
    text = escaped("\n".join(parts))
    return _Line(hit, day, text, upper_bound_tokens(f"{text}\n"))


def _is_one_text(entry: Entry) -> bool:
    message = entry.message
    return message is not None and len(message.content) == 1 and isinstance(message.content[0], Text)


def _short(text: str, chars: int, most: int) -> str:
    """Return the beginning of a text of ``chars`` characters in about ``most`` tokens, with a mark of what is missing."""
    shown, _ = beginning(text, most)
    missing = max(chars, len(text)) - len(shown)
    return shown + truncation_mark(missing) if missing > 0 else shown


def _one_line(text: str) -> str:
    return " ".join(text.split())[:64]
