"""Recall: what a loop is about, found among the messages that the window leaves out,
as a part of the window before the loop.

The part depends on the loop's question, on the log before the epoch, and on what the epoch's base shows of it. It may take what is
set aside and what else is free when the question comes. It stays before its loop, the same in all later windows, so these only
append. When messages or a newer part need its room, it leaves, and an epoch begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache
from itertools import islice, takewhile
from typing import Literal, NamedTuple, TypeAlias

from pydantic import Field

from turnlog.core.calls import Ref
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Text
from turnlog.core.times import caller_time
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.core.window_parts import RecalledMessage
from turnlog.providers.blocks import escaped, fenced
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.breaks import EpochStart
from turnlog.windows.digests import shown_pieces
from turnlog.windows.ledger import chosen, is_said
from turnlog.windows.steps import Step
from turnlog.windows.stubs import beginning
from turnlog.windows.text import one_line, summary_body, truncation_mark, value_cost
from turnlog.windows.view import Entry, Loop, RankedBy, RecalledPart, Room, WindowDraft, is_whole, never_sent

MAX_QUESTION_CHARS = 400
_LEAST_CHARS = 20
"""A shorter question is asked with the user's message before it."""
LAST_MESSAGES = 3
"""Messages before the user's that are a part of the query ``last_messages``."""
MAX_HITS = 128
MAX_LOOPS = 64
"""Loops that have their parts in a window: a process that has not made them searches for each."""
_SENTENCE = re.compile(r"[^.!?…。！？؟\n]+[.!?…。！？؟]*")
_QUESTION_MARKS = "?？؟"
_ONLY_ASKING = 0.95
"""A text only asks when at least this share of it is questions."""
_LEAST_ASKED = 0.2
"""The sixth power of the share of a text that asks counts as this at least."""
_KIND = "recalled from earlier"
_FENCE_TOKENS = upper_bound_tokens(fenced(_KIND, "")) + MESSAGE_OVERHEAD
_LEAST_TOKENS, SHARE_OF_MESSAGE = 120, 4
"""What a message may take of the part: a fourth, or the least where that is more."""
_TYPICAL_TOKENS = 24
"""Tokens of a short message: a part asks for as many messages as would fit."""
_VALUES, _MAX_VALUES, _NAME_CHARS = " values: ", 20, 64
_JOINTS = 4
"""What joining a counted text with its line may add beyond the overhead in its count, where it begins or ends otherwise than a
sentence does."""


class RecallMessages(Step):
    """Where something is left out, messages that are about a loop's question come back as one fenced part before the loop.

    For a user's message that only asks, ``share`` of the room that a summary leaves is set aside, but at most ``tokens`` (null:
    no such limit). A later message that only asks may take it over; for others something comes back in what is left of it.
    While nothing comes back for a message that only asks, ``in_passing`` of the room is set aside for the others. Messages come
    with up to ``neighbours`` on either side.

    Nothing is recalled when the best message has less than ``min_score`` of the score that the question could have. A message
    that does not only ask needs more: twice as much when nine tenths of it are sentences with a question mark, at most five times.
    With ``questions_only`` nothing is recalled for a message without such a sentence. ``query`` is what is searched for: what the
    ``user`` says at the loop's beginning, or that with the ``last_messages`` before it.

    With the scope ``user`` the part, of the current loop only, has messages, summaries and titles of the user's other sessions,
    and facts of long-term memory, too; also where this session is sent whole. Then ``share`` is always set aside. Nothing that came
    behind the question is searched.
    """

    step: Literal["recall"] = "recall"
    share: float = Field(default=0.5, gt=0, le=0.6)
    tokens: int | None = Field(default=4_000, ge=_LEAST_TOKENS, le=1_000_000)
    in_passing: float = Field(default=0.15, ge=0, le=0.6)
    neighbours: int = Field(default=3, ge=0, le=3)
    min_score: float = Field(default=0.05, ge=0, lt=1)
    questions_only: bool = False
    query: Literal["user", "last_messages"] = "user"
    scope: Literal["session", "user"] = "session"

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return view

    def reserve(self, view: WindowDraft, room: int) -> int:
        """Return the tokens that are set aside of the room that a summary leaves for messages; 0 for too little room.

        For this session alone they are no more than its earlier loops have.
        """
        room -= view.summary_tokens
        earlier = view.loops[-1].before - sum(unit.entry.event.tokens for unit in view.preamble) if view.loops else 0
        most = min(int(self.share * room), self.tokens or room)
        tokens = most if self.scope == "user" else min(most, earlier)
        return tokens if tokens >= _LEAST_TOKENS else 0

    def ways(self, query: str | None) -> Iterator[RecallWay]:
        """Yield the ways to recall in the order to try them, also for a caller's query: the first that finds something is used.

        What a query or other sessions bring back differs for each loop, so the same room is set aside for all loops.
        """
        if query is not None or self.scope == "user":
            yield RecallWay(self, "all")
            return
        yield RecallWay(self, "only_asking")
        yield RecallWay(self.model_copy(update={"share": min(self.share, self.in_passing)}), "in_passing")


RecallFor: TypeAlias = Literal["all", "only_asking", "in_passing"]
"""The user's messages that recall something: all; those from the first one that only asks; or those that do more than ask."""


class RecallWay(NamedTuple):
    """A step with the room that it may take, and the messages that something comes back for."""

    step: RecallMessages
    messages: RecallFor


@lazy_dataclass(frozen=True, slots=True)
class Question:
    """A question to search for: its text, when it was asked, and the position of its last message.

    Nothing is found when the best message has less than ``min_score`` of the highest score. ``only_asks``: nothing else is said.
    """

    text: str
    day: date
    position: int
    min_score: float
    time_ms: int = 0
    only_asks: bool = True


@lazy_dataclass(frozen=True, slots=True)
class RecallSearch:
    """A search for messages before a position. ``shown`` are positions of messages that the window has already.

    At most ``limit`` messages are wanted for each question, with their neighbours, that fill ``room`` tokens. With ``of_user`` the
    user's other sessions are searched, too, and scores are shares of the highest score that the question could have.
    """

    questions: tuple[Question, ...]
    before: int
    shown: frozenset[int]
    limit: int
    neighbours: int
    of_user: bool = False
    room: float = float("inf")


@lazy_dataclass(frozen=True, slots=True)
class RecallHit:
    """A message that a search has found, or a neighbour of one. ``refs`` name the calls that its results answer.

    ``place`` says in words where it was said, when that was elsewhere: in the session ``session_id``, or None for a memory.
    """

    entry: Entry
    score: float
    refs: tuple[Ref, ...] = ()
    place: str = ""
    session_id: str | None = None
    ranked: RankedBy = ""


Recaller: TypeAlias = Callable[[RecallSearch], "Sequence[Sequence[RecallHit]] | None"]
"""Returns messages for each question, best first; None when no index can be read in time."""


@lazy_dataclass(frozen=True, slots=True)
class RecalledParts:
    """The parts of an epoch's loops up to one of them. A part stays before its loop until a newer one needs its room.

    ``search`` is without questions; ``reserve`` is set aside for all parts; for messages that only ask, from the first part on.
    ``asked`` has the question of each loop, None where nothing is searched for it. ``breaks`` are where parts came or left.
    """

    search: RecallSearch
    reserve: int
    messages: RecallFor
    asked: tuple[Question | None, ...] = ()
    parts: tuple[RecalledPart, ...] = ()
    breaks: tuple[EpochStart, ...] = ()

    def begins(self, search: RecallSearch, reserve: int, asked: tuple[Question | None, ...]) -> bool:
        """Return whether the same search in the same room has these questions first."""
        return (self.search, self.reserve, self.asked) == (search, reserve, asked[: len(self.asked)])

    def with_next(
        self, view: WindowDraft, loop: Loop, question: Question | None, hits: Sequence[RecallHit]
    ) -> RecalledParts:
        """Return the parts with that of the next loop. Where it does not fit beside the others, these leave."""
        made = replace(self, asked=(*self.asked, question))
        parts, breaks = self.parts, self.breaks
        if question is None:
            return made
        if question.position > loop.first:
            breaks = (*breaks, EpochStart(question.position, "recall", _place(loop)))
        there = {message.position for part in parts for message in part.messages}
        newer = [hit for hit in hits if hit.place or hit.entry.position not in there]
        taken = sum(part.tokens for part in parts)
        may_replace = question.only_asks or self.messages == "in_passing"
        part = _part(view, loop, newer, self.reserve if may_replace else self.reserve - taken)
        if part is not None and parts and part.tokens + taken > self.reserve:
            breaks = (*breaks, EpochStart(loop.first, "recall", parts[0].place))
            part, parts = _part(view, loop, hits, self.reserve), ()
        if part is None:
            return replace(made, breaks=breaks)
        if not self.parts and self.messages == "only_asking":
            breaks = (*breaks, EpochStart(question.position, "recall", "base"))
        return replace(made, parts=(*parts, part), breaks=breaks)


def recalled_in(
    view: WindowDraft,
    way: RecallWay,
    reserve: int,
    since: int,
    recaller: Recaller,
    memory: RecalledParts | None,
    *,
    query: str | None = None,
) -> tuple[RecalledParts, tuple[EpochStart, ...]]:
    """Return the parts recalled for the loops of an epoch, and the breaks since which windows have had these parts.

    ``reserve`` is the room of all parts in tokens. ``since`` is the position from which the window's base holds. A loop's part
    depends on its question and on what the base shows, so all windows of the epoch have the same part. When the log cannot be
    searched, a part without text says so. ``memory`` is what came back for an earlier window.
    """
    step, of_user = way.step, way.step.scope == "user"
    loops, breaks = _current_loop(view) if of_user or query is not None else _loops_since(view, since)
    # In the epoch before, something else may have been recalled, and room set aside.
    breaks = (*breaks, EpochStart(since, "recall", "base"))
    asked = _asked_in(way, tuple(_question(view, loop, step, query) for loop in loops))
    if asked[0] is None and len(loops) > 1 and not is_whole(loops[0]):
        # The epoch began in that loop: what it lacks now is searched for later questions.
        loops, asked = loops[1:], asked[1:]
    limit = min(MAX_HITS, max(1, reserve // _TYPICAL_TOKENS))
    scope = RecallSearch((), loops[0].first, _shown(view, loops[0]), limit, step.neighbours, of_user, reserve)
    known = memory if memory is not None and memory.begins(scope, reserve, asked) else None
    # What other sessions have may be erased at any time, so it is searched for each window.
    made = known if known is not None and not of_user else RecalledParts(scope, reserve, way.messages)
    count = len(made.asked)
    questions = tuple(question for question in asked[count:] if question is not None)
    results = recaller(replace(scope, questions=questions)) if questions else ()
    if results is None:
        last = view.loops[-1]
        mark, start = RecalledPart(last.number, last.first, "", 0, ()), EpochStart(last.last, "recall", "base")
        # Without room, it is no beginning of what the next window recalls.
        return RecalledParts(scope, 0, way.messages, parts=(mark,)), (start,)
    hits = iter(results)
    for loop, question in zip(loops[count:], asked[count:], strict=True):
        made = made.with_next(view, loop, question, next(hits) if question is not None else ())
    if of_user and known is not None and [part.text for part in known.parts] != [part.text for part in made.parts]:
        breaks = (*breaks, EpochStart(loops[-1].last, "recall", "base"))
    return made, (*breaks, *made.breaks)


def _loops_since(view: WindowDraft, since: int) -> tuple[Sequence[Loop], tuple[EpochStart, ...]]:
    """Return the loops of an epoch that may have a part: those since its first window, `MAX_LOOPS` at most.

    The second value says since when the loops before them have none.
    """
    begin = next((index for index in range(len(view.loops) - 1, 0, -1) if view.loops[index].first <= since), 0)
    first, current = view.loops[begin], view.loops[-1]
    oldest = current.number - (current.number - first.number) % MAX_LOOPS
    loops = [loop for loop in view.loops[begin:] if loop.number >= oldest]
    breaks = () if loops[0] is first else (EpochStart(loops[0].first, "recall", _place(first)),)
    return loops, breaks


def _current_loop(view: WindowDraft) -> tuple[Sequence[Loop], tuple[EpochStart, ...]]:
    """Return the current loop, the only one for which a caller's query recalls, and since when the loop before it has no part."""
    current, before = view.loops[-1], view.loops[-2:-1]
    return [current], tuple(EpochStart(current.first, "recall", _place(loop)) for loop in before)


def _place(loop: Loop) -> int:
    """Return the position before which a loop's part stands."""
    return loop.units[0].position if loop.units else loop.first


def _question(view: WindowDraft, loop: Loop, step: RecallMessages, query: str | None) -> Question | None:
    """Return what the user says at a loop's beginning: the newest message, with those before it while it is short.

    A long text is cut to its beginning and its end, because the question may stand at either. With ``last_messages`` the
    messages before it come first.
    """
    opening = takewhile(lambda unit: unit.entry.facts.role != "assistant", loop.units if loop.level == "whole" else ())
    entries = [unit.entry for unit in opening if unit.entry.facts.role == "user" and unit.entry.loop == loop.number]
    if not entries:
        return None
    newest, text = entries[-1], ""
    if query is not None:
        return Question(query, _day_of(newest), newest.position, step.min_score, newest.time_ms)
    for entry in reversed(entries):
        text = f"{entry.facts.head}\n{text}".strip()
        if len(text) >= _LEAST_CHARS:
            break
    asked = _share_asked(text)
    if not text or (step.questions_only and not asked):
        return None
    half = MAX_QUESTION_CHARS // 2
    if len(text) > MAX_QUESTION_CHARS:
        text = f"{text[:half]} {text[len(text) - half + 1 :]}"
    if step.query == "last_messages":
        text = "\n".join((*_said_before(view, loop), text))
    min_score = step.min_score / max(_LEAST_ASKED, asked**6)
    return Question(text, _day_of(newest), newest.position, min_score, newest.time_ms, asked >= _ONLY_ASKING)


def _asked_in(way: RecallWay, questions: tuple[Question | None, ...]) -> tuple[Question | None, ...]:
    """Return the questions of loops that are searched for in this way, None in place of the others."""
    if way.messages == "in_passing":
        return tuple(None if question is None or question.only_asks else question for question in questions)
    places = (place for place, question in enumerate(questions) if question is not None and question.only_asks)
    first = next(places, len(questions)) if way.messages == "only_asking" else 0
    return (*[None] * first, *questions[first:])


def _said_before(view: WindowDraft, loop: Loop) -> list[str]:
    """Return the beginnings of the newest texts that user and assistant said before a loop, oldest first."""
    earlier = (before for before in reversed(view.loops) if before.number < loop.number)
    entries = (entry for before in earlier for unit in reversed(before.units) for entry in reversed(unit.said))
    texts = (entry.facts.head[: MAX_QUESTION_CHARS // 2] for entry in entries if entry.facts.head)
    return list(islice(texts, LAST_MESSAGES))[::-1]


def _share_asked(text: str) -> float:
    """Return the share of a text's characters that are sentences with a question mark. Small talk asks in passing, if at all."""
    sentences = [match[0].strip() for match in _SENTENCE.finditer(text)]
    asked = sum(len(sentence) for sentence in sentences if sentence.endswith(tuple(_QUESTION_MARKS)))
    return asked / max(1, sum(map(len, sentences)))


def _shown(view: WindowDraft, first: Loop) -> frozenset[int]:
    """Return the positions of messages before a loop that the window sends whole."""
    pieces = [piece for loop in view.loops if loop.number < first.number for piece in shown_pieces(loop)]
    units = (*view.preamble, *(piece.unit for piece in pieces if piece.limit is None))
    cut = ((piece.unit, piece.limit) for piece in pieces if piece.limit is not None)
    uncut = (unit.position for unit, limit in cut if unit.entry.facts.chars <= limit)
    positions = (*uncut, *(entry.position for unit in units for entry in unit.entries))
    return frozenset(position for position in positions if position < first.first)


# ------------------------------------------------------------ the part


@lazy_dataclass(frozen=True, slots=True)
class _Line:
    """A recalled message as it is sent, and the most tokens that it takes."""

    hit: RecallHit
    day: str
    text: str
    tokens: int


def _part(view: WindowDraft, loop: Loop, hits: Sequence[RecallHit], room: int) -> RecalledPart | None:
    """Return the messages that fit, in order of position; None when none does."""
    most = max(_LEAST_TOKENS, room // SHARE_OF_MESSAGE)
    said = [summary_body(view.summary.text, ())] if view.summary is not None else []
    said += [unit.entry.facts.head for unit in view.preamble]
    heads = _shown_heads(view, loop) if any(hit.place for hit in hits) else set[str]()
    lines, days, left = list[_Line](), {""}, room - _FENCE_TOKENS
    for hit in hits:
        if left < _TYPICAL_TOKENS / 2:
            break
        if hit.entry.event.tokens > left and _is_sent_as_counted(hit.entry, most):
            continue
        line = _line(hit, most)
        cost = line.tokens + (0 if line.day in days else _tokens_of(f"{line.day}\n"))
        head = hit.entry.facts.head
        if cost > left or not _may_return(hit.entry, said) or (hit.place and head and head in heads):
            continue
        heads.add(head)
        days.add(line.day)
        lines.append(line)
        left -= cost
    # A day that returns, because callers gave times out of order, has another line.
    for count in range(len(lines), 0, -1):
        # The lines of this session come last, and those of each place in order.
        shown = sorted(lines[:count], key=lambda line: (not line.hit.place, line.hit.place, line.hit.entry.position))
        text, tokens = _written(shown)
        if tokens <= room:
            costs = [(line.hit, line.tokens) for line in shown]
            messages = tuple(
                RecalledMessage(hit.entry.position, hit.score, cost, hit.place, hit.session_id) for hit, cost in costs
            )
            ranked = max(line.hit.ranked for line in shown)
            return RecalledPart(loop.number, _place(loop), fenced(_KIND, text), tokens, messages, ranked)
    return None


def _shown_heads(view: WindowDraft, until: Loop) -> set[str]:
    """Return the beginnings of the texts that are sent before a loop. Forks and copies of the session have the same texts."""
    pieces = (piece for loop in view.loops if loop.number < until.number for piece in shown_pieces(loop))
    return {entry.facts.head for piece in pieces for entry in piece.unit.entries}


def _may_return(entry: Entry, said: Sequence[str]) -> bool:
    """Return whether the message was sent in a session's own loops, and neither the summary nor the preamble says it."""
    head = entry.facts.head
    is_of_agent = entry.event.envelope.parent is not None
    return not never_sent(entry) and not is_of_agent and not (head and any(head in text for text in said))


def _written(lines: Sequence[_Line]) -> tuple[str, int]:
    """Return the lines below their days, and the most tokens that they take in a fence.

    An empty line stands where messages between two of them are missing.
    """
    text, tokens, day, last = "", _FENCE_TOKENS, "", 0
    for line in lines:
        position = line.hit.entry.position
        text += "\n\n" if last and position > last + 1 else "\n"
        if line.day not in ("", day):
            text += f"{line.day}\n"
            tokens += _tokens_of(f"{line.day}\n")
        text += line.text
        tokens += line.tokens
        day, last = line.day, position
    return text.strip("\n"), tokens


@lru_cache(maxsize=256)
def _tokens_of(text: str) -> int:
    """Return the most tokens of a day or of a name, which many lines have."""
    return upper_bound_tokens(text)


def _line(hit: RecallHit, most: int) -> _Line:
    """Return a message in at most about ``most`` tokens: its text, its calls, and its results with their values."""
    entry, facts = hit.entry, hit.entry.facts
    has_time = entry.time_ms or entry.event.envelope.created_at  # the messages of a list have no time
    day = " ".join(filter(None, (_day_of(entry).isoformat() if has_time else "", escaped(hit.place))))
    said = one_line(facts.name or facts.role, _NAME_CHARS, "") + ": "
    if _is_sent_as_counted(entry, most):
        # The count of a message with a name has the name.
        is_plain = facts.head[:1].isalnum() and not facts.head[-1:].isspace()
        tokens = entry.event.tokens + (0 if facts.name else _tokens_of(said)) + (0 if is_plain else _JOINTS)
        return _Line(hit, day, said + facts.head, tokens)
    parts = [said + _short(facts.head, facts.chars, most)] if facts.head else []
    for index, call in enumerate(facts.calls):
        ref = f"{Ref(entry.position, index)} " * (not hit.place)
        name = one_line(call.name, _NAME_CHARS, "")
        parts.append(f"{ref}{name} {_short(call.arguments, 0, most // 2)}")
    for index, result in enumerate(facts.results):
        ref = str(hit.refs[index]) if index < len(hit.refs) else str(entry.position) * (not hit.place)
        parts.append(f"{ref} -> {_short(result.text, result.chars, most // len(facts.results))}")
    shown = "\n".join(parts)
    values = chosen((value for value in entry.values() if not is_said(value, shown)), _MAX_VALUES)
    if shown and values and sum(map(value_cost, values)) <= most:
        shown += f"{_VALUES}{', '.join(values)}"
    text = escaped(shown)
    return _Line(hit, day, text, upper_bound_tokens(f"{text}\n"))


def _day_of(entry: Entry) -> date:
    return caller_time(entry.event.envelope.created_at, entry.time_ms).date()


def _is_sent_as_counted(entry: Entry, most: int) -> bool:
    """Return whether a message comes back in the words that were counted: one text of at most ``most`` tokens."""
    facts, content = entry.facts, entry.message.content if entry.message is not None else ()
    is_text = not facts.calls and not facts.results and len(content) == 1 and isinstance(content[0], Text)
    return entry.event.tokens <= most and is_text and escaped(facts.head) == facts.head


def _short(text: str, chars: int, most: int) -> str:
    """Return the beginning of a text of ``chars`` characters in about ``most`` tokens, with a mark of what is missing."""
    shown, _ = beginning(text, most)
    return shown + truncation_mark(max(chars, len(text)) - len(shown))
