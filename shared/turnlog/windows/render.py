"""Renders a fitted view to the turns that a codec takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from turnlog.core.calls import Ref
from turnlog.core.events import MessageEvent
from turnlog.core.json_values import JsonObject, sendable_text
from turnlog.core.lazy_dataclass import Lasting, lazy_dataclass, once
from turnlog.core.messages import Block, Media, Message, Text, ToolCall, ToolResult
from turnlog.providers import Codec, Turn
from turnlog.providers.blocks import result_text, without_thinking
from turnlog.providers.hosted_calls import with_result_text
from turnlog.windows.digests import Piece, note_text, sent_parts, shown_pieces
from turnlog.windows.prices import has_evicted, is_evicted, says_nothing
from turnlog.windows.stubs import answers_in
from turnlog.windows.text import NOTHING_SAID, SETTLEMENT, calls_text, left_out_line, summary_text, truncation_mark
from turnlog.windows.view import CallResult, Entry, Note, Stub, Unit, WindowDraft

Place: TypeAlias = int | Literal["summary", "line"]


def missing_bodies(view: WindowDraft) -> list[MessageEvent]:
    """Return the messages whose payloads must be fetched before the view can be rendered."""
    shown: list[tuple[Unit, int | None]] = [(unit, None) for unit in view.preamble]
    shown += [(piece.unit, piece.limit) for loop in view.loops for piece in shown_pieces(loop)]
    wanted = dict[int, MessageEvent]()
    for unit, limit in shown:
        for entry in unit.entries if limit is None else (unit.entry,):
            if entry.message is None and not _is_known(unit, entry, limit):
                wanted[entry.position] = entry.event
    return list(wanted.values())


def _is_known(unit: Unit, entry: Entry, limit: int | None) -> bool:
    """Return whether a card has all that is sent: stubs of all results, or the first ``limit`` characters; None for no limit."""
    stub, facts = unit.stub_at(entry.position), entry.facts
    has_beginning = limit is not None and (len(facts.head) >= limit or len(facts.head) == facts.chars)
    return has_beginning or (stub is not None and bool(stub.texts))


def placed_turns(view: WindowDraft, codec: Codec) -> list[PlacedTurn]:
    """Return the window's turns in a valid order, each with its message. All bodies must be there (see `missing_bodies`)."""
    return _joined(_Renderer(codec).turns(view), codec)


def unsigned(placed_turns: Iterable[PlacedTurn], codec: Codec, last: int) -> Iterator[PlacedTurn]:
    """Yield the turns without the signed thinking of messages up to a position. A message of thinking alone is left out.

    It was made behind another beginning, and the provider refuses it behind this one
    (https://platform.claude.com/docs/en/build-with-claude/preserved-thinking).
    """
    for item in placed_turns:
        entry, turn = item.entry, item.turn
        # Only a message in its own format is sent with its thinking.
        if entry is None or entry.position > last or turn.body is None or turn.format != codec.format:
            yield item
            continue
        body = without_thinking(turn.body)
        if body is turn.body:
            yield item
        elif body.get("content"):
            yield replace(item, turn=replace(turn, body=body))


def _joined(placed_turns: Iterable[PlacedTurn], codec: Codec) -> list[PlacedTurn]:
    """Return the turns; results and rest of one message that follow each other are joined again.

    Only in the message's own format, which can send it as it was appended.
    """
    joined = list[PlacedTurn]()
    for item in placed_turns:
        last, entry = joined[-1] if joined else None, item.entry
        if last and entry and _are_halves(last, item) and entry.event.format == codec.format:
            call_ids = last.turn.call_ids + item.turn.call_ids
            result_ids = last.turn.result_ids + item.turn.result_ids
            joined[-1] = PlacedTurn(_turn(entry, _message(entry), call_ids, result_ids), entry)
        else:
            joined.append(item)
    return joined


def _are_halves(first: PlacedTurn, second: PlacedTurn) -> bool:
    if second.part == "all":
        return False
    are_halves = (first.part, second.part) in (("results", "rest"), ("rest", "results"))
    # Those of a message with calls of the provider's tools are parted where the provider's own shapes can't be sent, and those of a
    # message that goes on behind its results stay apart from its closing.
    facts = first.entry.facts if first.entry is not None else None
    is_joinable = facts is not None and not facts.has_closing and not any(call.hosted for call in facts.calls)
    return are_halves and is_joinable and first.place == second.place and second.entry is not None


@lazy_dataclass(frozen=True, slots=True)
class PlacedTurn(Lasting):
    """A turn and the message that it comes from.

    A message with results and other content is sent in two turns: its ``results`` behind their calls, the ``rest`` in its place.
    What the message says behind the results of its own calls is its ``closing``.
    ``where``: the source of a turn without a message, as a position or the name of a part.
    """

    turn: Turn
    entry: Entry | None = None
    part: Literal["all", "some results", "results", "rest", "closing"] = "all"
    where: Place = "line"

    @property
    def place(self) -> Place:
        return self.entry.position if self.entry is not None else self.where


class _Renderer:
    """Makes turns from a view; keeps the call ids that the window has used."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._used: set[str] = set()

    def turns(self, view: WindowDraft) -> Iterator[PlacedTurn]:
        for unit in view.preamble:
            yield from self._unit(unit)
        if view.summary is not None:
            text = Text(summary_text(view.summary, view.summary_label))
            yield PlacedTurn(Turn(Message(view.summary_role, (text,))), where="summary")
        if has_evicted(view):
            yield _line(left_out(view))
        if says_nothing(view):
            yield _line(NOTHING_SAID)
        said = set[str]()
        recalled = {part.loop: _line(part.text, part.place) for part in view.recalled if part.text}
        for loop in view.loops:
            if loop.number in recalled:
                yield recalled[loop.number]
            for piece in sent_parts(loop):
                if isinstance(piece, Note):
                    yield _line(note_text(piece, said), piece.at or loop.last)
                    said.update(piece.values)
                elif piece.limit is None:
                    yield from self._unit(piece.unit)
                else:
                    yield _cut(piece, piece.limit)

    def _unit(self, unit: Unit) -> Sequence[PlacedTurn]:
        if not unit.answers or unit.calls_as_text:
            return _placed_turns_of(unit, self._codec)
        ids = [
            self._call_id(Ref(entry.position, index), call.id)
            for entry in unit.said
            for index, call in enumerate(_message(entry).tool_calls)
        ]
        return _placed_turns_of(unit, self._codec, *ids)

    def _call_id(self, ref: Ref, call_id: str) -> str:
        """Return the call's own id when the provider accepts it and the window has not used it, otherwise one made from the ref."""
        call_id = sendable_text(call_id)
        wanted = call_id if self._codec.legal_id(call_id) and call_id not in self._used else ref.made_id
        sent_id, again = wanted, 1
        while sent_id in self._used:
            again += 1
            sent_id = f"{ref.made_id}_{again}"
        self._used.add(sent_id)
        return sent_id


@once
def _placed_turns_of(unit: Unit, codec: Codec, *ids: str) -> Sequence[PlacedTurn]:
    """Return the turns of a unit. ``ids`` are the call ids to send, in order; none when the calls are not sent as calls."""
    return tuple(_UnitTurns(unit, codec, ids).placed_turns())


class _UnitTurns:
    """Makes the turns of a unit.

    ``_native``: the calls whose results are sent where and as the provider told them, by the place of the result.
    """

    def __init__(self, unit: Unit, codec: Codec, ids: Sequence[str]) -> None:
        self._unit, self._codec = unit, codec
        refs = (Ref(entry.position, index) for entry in unit.said for index in range(len(_message(entry).tool_calls)))
        self._ids = dict(zip(refs, ids, strict=bool(ids)))
        self._native: dict[tuple[int, int], Ref] = {}

    def placed_turns(self) -> Iterator[PlacedTurn]:
        unit, entry = self._unit, self._unit.entry
        message = _message(entry)
        if unit.calls_as_text:
            yield from _as_text(unit)
            return
        if not unit.answers and message.tool_calls:
            # The calls still wait for results; the message is sent only for its text.
            yield PlacedTurn(Turn(replace(message, tool_calls=(), tool_results=())), entry)
            return
        is_native = self._keep_native()
        sent = [self._joined()] if unit.group and entry.event.format != self._codec.format else []
        sent = sent or [self._message(said, is_native=is_native) for said in unit.said]
        yield from sent
        yield from self._results(is_native=is_native)
        if message.closing and sent[0].part == "rest":
            said = Message(message.role, message.content[-message.closing :])
            yield PlacedTurn(Turn(said, entry.event.format), entry, "closing")

    def _message(self, entry: Entry, *, is_native: bool) -> PlacedTurn:
        """Return a message with its calls; without their results, unless the provider told them in it and they stay there."""
        call_ids, message = self._call_ids(entry), _message(entry)
        native = self._native_turn(entry, call_ids) if is_native else None
        if native is not None:
            return native
        if message.tool_results:
            content = message.content[: len(message.content) - message.closing]
            rest = replace(message, content=content, tool_results=())
            return PlacedTurn(Turn(rest, entry.event.format, call_ids=call_ids), entry, "rest")
        is_whole = is_native or self._unit.group or not any(call.hosted for call in message.tool_calls)
        return PlacedTurn(_turn(entry, message, call_ids, ()) if is_whole else Turn(message, call_ids=call_ids), entry)

    def _keep_native(self) -> bool:
        """Return whether calls of the provider's tools are sent as it told them: in its format, with its results or none.

        Notes their results, which are sent in their own place. A result that is cut stays there when its shape can hold a text.
        """
        unit = self._unit
        if unit.entry.event.format != self._codec.format:
            return False
        natives = dict[tuple[int, int], Ref]()
        said = {entry.position: entry for entry in unit.said}
        for answer in unit.answers:
            entry = answer.entry
            if entry is None or not said[answer.ref.position].facts.calls[answer.ref.index].hosted:
                continue
            is_cut = unit.stub_at(entry.position) is not None
            if entry.facts.role != "assistant" or (is_cut and entry.position not in said):
                return False
            if is_cut and _body_with_stubs(unit, entry) is None:
                return False
            natives[entry.position, answer.index] = answer.ref
        self._native |= natives
        return True

    def _native_turn(self, entry: Entry, call_ids: tuple[str, ...]) -> PlacedTurn | None:
        """Return the message with calls and results as the provider told them; None when it has no such results."""
        results = _message(entry).tool_results
        if not results or not all(result.hosted for result in results):
            return None
        refs = [self._native.get((entry.position, index)) for index in range(len(results))]
        # The codec leaves out a result whose call is not sent.
        ids = [
            result.tool_call_id if ref is None else self._ids[ref] for ref, result in zip(refs, results, strict=True)
        ]
        body = _body_with_stubs(self._unit, entry)
        return PlacedTurn(Turn(_message(entry), entry.event.format, body, call_ids, tuple(ids)), entry)

    def _joined(self) -> PlacedTurn:
        """Return the items of an answer as one message, for another format than theirs."""
        unit = self._unit
        messages = [_message(entry) for entry in unit.group]
        call_ids = tuple(call_id for entry in unit.group for call_id in self._call_ids(entry))
        content = tuple(block for message in messages for block in message.content)
        calls = tuple(call for message in messages for call in message.tool_calls)
        return PlacedTurn(Turn(Message("assistant", content, calls), call_ids=call_ids), unit.entry)

    def _call_ids(self, entry: Entry) -> tuple[str, ...]:
        return tuple(self._ids[Ref(entry.position, index)] for index in range(len(_message(entry).tool_calls)))

    def _results(self, *, is_native: bool) -> Iterator[PlacedTurn]:
        unit = self._unit
        entries = {answer.entry.position: answer.entry for answer in unit.answers if answer.entry is not None}
        for position, entry in entries.items():
            here = [answer for answer in answers_in(unit, entry) if (position, answer.index) not in self._native]
            ids, stub = tuple(self._ids[answer.ref] for answer in here), unit.stub_at(position)
            if not here:
                continue
            if stub is not None:
                results = tuple(self._stubbed(entry, here, stub))
                yield PlacedTurn(Turn(Message("tool", tool_results=results), result_ids=ids), where=position)
                continue
            message = _message(entry)
            is_all = len(here) == len(message.tool_results)
            if is_all and message.role == "tool":
                yield PlacedTurn(_turn(entry, message, (), ids), entry)
            else:
                # The message has other content, or results for other messages: each result is sent behind its call.
                some = tuple(message.tool_results[answer.index] for answer in here)
                made = Turn(Message("tool", tool_results=some), entry.event.format, result_ids=ids)
                yield PlacedTurn(made, entry, "results" if is_all else "some results")
        # A provider's call without a result stays as it is in the provider's format: its next answer may have the result.
        said = {entry.position: entry.facts.calls for entry in unit.said}
        waiting = [answer.ref for answer in unit.answers if answer.entry is None]
        settled = [ref for ref in waiting if not (is_native and said[ref.position][ref.index].hosted)]
        for ref in settled:
            result = ToolResult(self._ids[ref], (Text(SETTLEMENT),))
            yield PlacedTurn(Turn(Message("tool", tool_results=(result,)), result_ids=(self._ids[ref],)), unit.entry)

    def _stubbed(self, entry: Entry, answers: Sequence[CallResult], stub: Stub) -> Iterator[ToolResult]:
        texts = dict(stub.texts)
        for answer in answers:
            fact = entry.facts.results[answer.index]
            content = (Text(texts[answer.ref]),)
            yield ToolResult(self._ids[answer.ref], content, fact.name, is_error=fact.is_error, by_name=fact.by_name)


def _as_text(unit: Unit) -> Iterator[PlacedTurn]:
    """Yield what a unit's messages say before and behind their calls, and between them the calls and results as a user's text.

    An assistant's message would teach the model to write such text in place of calls.
    """
    entry, messages = unit.entry, {said.position: _message(said) for said in unit.said}
    content = tuple(block for message in messages.values() for block in message.content)
    stubs = {ref: text for stub in unit.stubs for ref, text in stub.texts}
    calls, media = list[tuple[Ref, ToolCall, str]](), list[Block]()
    for answer in sorted(unit.answers, key=lambda answer: answer.ref):
        text = stubs.get(answer.ref)
        if text is None and answer.entry is not None:
            result = _message(answer.entry).tool_results[answer.index]
            own = [block for block in result.content if isinstance(block, Media)]
            texts = tuple(block for block in result.content if block not in own)
            text = result_text(replace(result, content=texts or tuple(own[:1])))
            media += own
        call = messages[answer.ref.position].tool_calls[answer.ref.index]
        calls.append((answer.ref, call, SETTLEMENT if text is None else text))
    made = Turn(Message("user", (Text(calls_text(calls)), *media)), entry.event.format)
    spoken = replace(_message(entry), tool_calls=(), tool_results=())
    border = len(content) - spoken.closing
    before, behind = replace(spoken, content=content[:border]), replace(spoken, content=content[border:])
    for turn in (Turn(before), made, Turn(behind)):
        if turn.message.content:
            yield PlacedTurn(turn, entry, "closing")


@once
def _cut(piece: Piece, limit: int) -> PlacedTurn:
    """Return the turn of a message with its text cut to ``limit`` characters; a shorter message is sent as it is."""
    entry, facts, message = piece.unit.entry, piece.unit.entry.facts, piece.unit.entry.message
    if message is not None and entry.event.facts is None and facts.chars <= limit:
        is_alone = not (message.tool_calls or message.tool_results or piece.unit.group)
        if is_alone and all(isinstance(block, Text) for block in message.content):
            return PlacedTurn(_turn(entry, message, (), ()), entry)
    text = facts.head[:limit] + truncation_mark(facts.chars - limit)
    return PlacedTurn(Turn(Message(facts.role, (Text(text),), name=facts.name)), entry)


def left_out(view: WindowDraft) -> str:
    """Return the line that declares what is neither shown nor digested."""
    gone = [(loop, [unit for unit in loop.units if is_evicted(loop, unit)]) for loop in view.loops]
    loops = [loop for loop, units in gone if loop.number and 0 < len(units) == len(loop.units)]
    evicted = {entry.position for _, units in gone for unit in units for entry in unit.entries}
    if not view.unread:
        return left_out_line(loops=len(loops), messages=len(evicted))
    # The same numbers however much was read: loops by their numbers, and messages that are never sent as if not read.
    aside = sum(1 for entry, _ in view.set_aside if evicted and entry.position < max(evicted))
    return left_out_line(loops=len(loops) + older_loops(view), messages=len(evicted) + aside + view.unread)


def older_loops(view: WindowDraft) -> int:
    """Return the number of loops before the oldest one in the view, without those with pinned messages or under the summary."""
    covered = view.summary.last_loop if view.summary is not None else 0
    pinned = sum(covered < loop.number < view.oldest for loop in view.loops)
    return max(0, view.oldest - 1 - covered - pinned)


def _body_with_stubs(unit: Unit, entry: Entry) -> JsonObject | None:
    """Return the body of a message with stubs in place of its results; None when its shape can't hold them."""
    body = entry.event.body
    stub = unit.stub_at(entry.position)
    if stub is None or body is None:
        return body
    texts, results = dict(stub.texts), _message(entry).tool_results
    return with_result_text(
        body,
        {
            answer.index: texts[answer.ref]
            for answer in unit.answers
            if answer.ref in texts and texts[answer.ref] != results[answer.index].text
        },
    )


def _message(entry: Entry) -> Message:
    assert entry.message is not None  # noqa: S101 - fetched before rendering
    return entry.message


def _turn(entry: Entry, message: Message, call_ids: Sequence[str], result_ids: Sequence[str]) -> Turn:
    return Turn(message, entry.event.format, entry.event.body, tuple(call_ids), tuple(result_ids))


def _line(text: str, where: Place = "line") -> PlacedTurn:
    return PlacedTurn(Turn(Message("user", (Text(text),))), where=where)
