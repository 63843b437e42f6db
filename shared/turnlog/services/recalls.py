"""Which of the messages that are appended answer the recall tools: reading moves no head, so this commit is what tells of it.

It asks nothing of the engine: open calls are in the newest header, and the newest commit, with a call's arguments, is what an
append has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from turnlog.codecs.registry import CODECS
from turnlog.domain.errors import CorruptError, InvalidInputError
from turnlog.domain.events import MessageEvent, Recall
from turnlog.domain.flow import Arrival
from turnlog.domain.messages import Message
from turnlog.domain.pairing import OpenCalls, open_call, pair
from turnlog.domain.recall_calls import RECALL_TOOL, SEARCH_TOOL, ArgumentsError, asked_for, ref_of
from turnlog.domain.refs import Ref
from turnlog.log.commits import Tail, events_of, read_commit
from turnlog.services.incoming import Incoming

_NAMES = (RECALL_TOOL, SEARCH_TOOL)
_HASHES = frozenset(open_call(Ref(1, 0), key="", name=name).name_hash for name in _NAMES)


def recalls(
    arrivals: Sequence[Arrival], given: Sequence[Incoming], before: OpenCalls, tail: Tail, *, has_tools: bool
) -> Mapping[int, Recall]:
    """By position. What was recalled is as the caller says, else as the calls ask by ref, where their arguments are at hand.

    ``has_tools``: the session's windows have our tools. Without them only what the caller says counts: a tool of one of the names
    may be its own.
    """
    told = {arrival.position: one.recalled for arrival, one in zip(arrivals, given, strict=True)}
    if not any(arrival.facts.results for arrival in arrivals):
        return {}
    ours = {call.ref for call in before.calls if call.name_hash in _HASHES}
    ours |= {
        Ref(one.position, at) for one in arrivals for at, call in enumerate(one.facts.calls) if call.name in _NAMES
    }
    if not (ours and has_tools) and all(places is None for places in told.values()):
        return {}
    answered: dict[int, list[Ref]] = {}
    complete = ((one.position, one.facts) for one in arrivals if not one.interrupted)
    for (position, _), ref in sorted(pair(complete, before=before).call_of.items()):
        if ref in ours:
            answered.setdefault(position, []).append(ref)
    found = dict[int, Recall]()
    messages = _AtHand(arrivals, given, tail)
    for position, places in told.items():
        refs = answered.get(position, [])
        if places is not None or (refs and has_tools):
            asked = dict.fromkeys(place for ref in refs for place in messages.asked(ref)) if places is None else places
            found[position] = Recall(tuple(map(str, refs)), tuple(asked))
    return found


class _AtHand:
    """The messages of a request, and of the newest commit before it."""

    def __init__(self, arrivals: Sequence[Arrival], given: Sequence[Incoming], tail: Tail) -> None:
        self._given = {arrival.position: one.message for arrival, one in zip(arrivals, given, strict=True)}
        self._tail = tail
        self._older: dict[int, Message] | None = None

    def asked(self, ref: Ref) -> Iterable[str]:
        """The refs that a call names in its arguments."""
        message = self._given.get(ref.position)
        if message is None and ref.position >= self._tail.header.first:
            if self._older is None:
                self._older = dict(_messages(self._tail))
            message = self._older.get(ref.position)
        if message is None or ref.index >= len(message.tool_calls):
            return
        call = message.tool_calls[ref.index]
        if call.name != RECALL_TOOL:
            return
        try:
            places = asked_for(call.name, call.arguments).places
        except ArgumentsError:
            return
        yield from (found for found in map(ref_of, places) if found is not None)


def _messages(tail: Tail) -> Iterator[tuple[int, Message]]:
    """Those of the newest commit whose bodies it has. One that is damaged is its readers' to tell."""
    try:
        for event in events_of(read_commit(tail.item), {}):
            if isinstance(event, MessageEvent) and event.body is not None:
                yield event.position, CODECS[event.format].parse(event.body)
    except (CorruptError, InvalidInputError):
        return
