"""From a fitted view to the turns that a codec renders, and the manifest of what became of every message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from turnlog.codecs.base import Codec, Turn
from turnlog.codecs.registry import CODECS
from turnlog.domain.events import MessageEvent
from turnlog.domain.messages import Message, Text, ToolResult
from turnlog.domain.refs import Ref
from turnlog.windows.digests import Piece, digest_pieces, pinned_pieces
from turnlog.windows.fit import has_evicted
from turnlog.windows.text import SETTLEMENT, cut, left_out_line, truncation_mark, user_call_text
from turnlog.windows.view import Entry, Loop, Unit, View


def pieces_of(loop: Loop) -> tuple[Piece, ...]:
    """What is sent of a loop."""
    if loop.level == "digest":
        return digest_pieces(loop)
    if loop.level == "out":
        return pinned_pieces(loop)
    return tuple(Piece(unit, None, unit.tokens) for unit in loop.units if unit.level == "whole")


def missing_bodies(view: View) -> list[MessageEvent]:
    """The messages whose payloads must be fetched before `turns` can be called."""
    wanted = dict[int, MessageEvent]()
    for piece in _all_pieces(view):
        for entry in piece.unit.entries if piece.limit is None else (piece.unit.entry,):
            if entry.message is None and not _fits_in_head(piece, entry):
                wanted[entry.position] = entry.event
    return list(wanted.values())


def turns(view: View, codec: Codec, bodies: Mapping[int, Entry]) -> list[Turn]:
    """The window's messages in a valid order. ``bodies`` has the entries that `missing_bodies` asked for, with messages."""
    return list(_Renderer(codec, bodies).turns(view))


class _Renderer:
    def __init__(self, codec: Codec, bodies: Mapping[int, Entry]) -> None:
        self._codec = codec
        self._bodies = bodies
        self._used: set[str] = set()
        self._ids: dict[Ref, str] = {}

    def turns(self, view: View) -> Iterator[Turn]:
        for unit in view.preamble:
            yield from self._unit(unit)
        if has_evicted(view):
            yield _line(left_out(view))
        for loop in view.loops:
            for piece in pieces_of(loop):
                yield from self._unit(piece.unit) if piece.limit is None else self._cut(piece)

    def _unit(self, unit: Unit) -> Iterator[Turn]:
        entry = self._full(unit.entry)
        message = _message(entry)
        if unit.entry.facts.role == "user" and message.tool_calls:
            yield self._user_calls(unit, message)
            return
        call_ids = tuple(self._call_id(Ref(entry.position, at), call.id) for at, call in enumerate(message.tool_calls))
        own = tuple(self._made_result_id(entry, at) for at in range(len(message.tool_results)))
        yield _turn(entry, message, call_ids, own)
        yield from self._results(unit)

    def _results(self, unit: Unit) -> Iterator[Turn]:
        answered = [answer for answer in unit.answers if answer.entry is not None]
        for position in dict.fromkeys(answer.entry.position for answer in answered if answer.entry):
            here = [answer for answer in answered if answer.entry is not None and answer.entry.position == position]
            assert here[0].entry is not None  # noqa: S101 - `answered` has only such
            entry = self._full(here[0].entry)
            message = _message(entry)
            here.sort(key=lambda answer: answer.index)
            ids = tuple(self._ids[answer.ref] for answer in here)
            if len(here) == len(message.tool_results):
                yield _turn(entry, message, (), ids)
            else:
                # The message answers calls of other messages too: its results are sent where each belongs.
                some = tuple(message.tool_results[answer.index] for answer in here)
                yield Turn(Message("tool", tool_results=some), result_ids=ids)
        settled = [answer.ref for answer in unit.answers if answer.entry is None]
        for ref in settled:
            result = ToolResult(self._ids[ref], (Text(SETTLEMENT),))
            yield Turn(Message("tool", tool_results=(result,)), result_ids=(self._ids[ref],))

    def _user_calls(self, unit: Unit, message: Message) -> Turn:
        results = dict[int, str]()
        for answer in unit.answers:
            if answer.entry is not None:
                results[answer.ref.index] = _message(self._full(answer.entry)).tool_results[answer.index].text
        calls = [(call, results.get(at)) for at, call in enumerate(unit.entry.facts.calls)]
        whole = [
            (replace(fact, arguments=message.tool_calls[at].arguments), text) for at, (fact, text) in enumerate(calls)
        ]
        text = "\n\n".join(part for part in (message.text, user_call_text(whole)) if part)
        return Turn(Message("user", (Text(text),), name=message.name))

    def _cut(self, piece: Piece) -> Iterator[Turn]:
        entry, limit = piece.unit.entry, piece.limit
        assert limit is not None  # noqa: S101 - the caller has looked
        if _fits_in_head(piece, entry):
            text, name = entry.facts.head, entry.facts.name
            if entry.facts.chars > limit:
                text = cut_head(text, limit, entry.facts.chars)
        else:
            entry = self._full(entry)
            message = _message(entry)
            if entry.facts.chars <= limit and all(isinstance(block, Text) for block in message.content):
                yield _turn(entry, message, (), ())
                return
            text, name = cut(message.text, limit), message.name
        yield Turn(Message(entry.facts.role, (Text(text),), name=name))

    def _call_id(self, ref: Ref, given: str) -> str:
        """The given id where the provider takes it and no call of this window has it, else one made of the ref."""
        wanted = given if self._codec.legal_id(given) and given not in self._used else ref.made_id
        call_id, again = wanted, 1
        while call_id in self._used:
            again += 1
            call_id = f"{ref.made_id}_{again}"
        self._used.add(call_id)
        self._ids[ref] = call_id
        return call_id

    def _made_result_id(self, entry: Entry, at: int) -> str:
        return f"result_{entry.position}_{at}"

    def _full(self, entry: Entry) -> Entry:
        return entry if entry.message is not None else self._bodies[entry.position]


def left_out(view: View) -> str:
    """The line that declares what is neither shown nor digested."""
    loops = [
        loop
        for loop in view.loops
        if loop.level == "out" or (loop.units and all(unit.level == "out" for unit in loop.units))
    ]
    messages = sum(
        len(unit.entries)
        for loop in view.loops
        for unit in loop.units
        if (loop.level == "out" and not unit.pinned) or unit.level == "out"
    )
    return left_out_line(loops=len(loops), messages=messages + view.unread)


def cut_head(head: str, limit: int, chars: int) -> str:
    """As `cut`, from a text's beginning and its length."""
    return head[:limit] + truncation_mark(chars - limit)


def _all_pieces(view: View) -> Iterator[Piece]:
    for unit in view.preamble:
        yield Piece(unit, None, unit.tokens)
    for loop in view.loops:
        yield from pieces_of(loop)


def _fits_in_head(piece: Piece, entry: Entry) -> bool:
    """Whether a cut text can be made from the card alone."""
    return (
        piece.limit is not None
        and entry.message is None
        and (len(entry.facts.head) >= piece.limit or len(entry.facts.head) == entry.facts.chars)
    )


def _message(entry: Entry) -> Message:
    assert entry.message is not None  # noqa: S101 - fetched before rendering
    return entry.message


def _turn(entry: Entry, message: Message, call_ids: Sequence[str], result_ids: Sequence[str]) -> Turn:
    return Turn(message, entry.event.format, entry.event.body, tuple(call_ids), tuple(result_ids))


def _line(text: str) -> Turn:
    return Turn(Message("user", (Text(text),)))


def parsed(entry: Entry, event: MessageEvent) -> Entry:
    """The entry with the message of a fetched event."""
    assert event.body is not None  # noqa: S101 - fetched
    message = CODECS[event.format].parse(event.body, is_error=event.envelope.is_error)
    return replace(entry, event=event, message=message)
