"""What the session's course depends on, of one message: enough to pair calls, find loops and build digests.

Facts are taken from a `Message`, or from the card of a payload that is stored out of line; both give the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Message, Role, ToolResult
from turnlog.core.refs import Ref, call_key, result_key


@lazy_dataclass(frozen=True, slots=True)
class CallFact:
    key: str
    name: str
    arguments: str


@lazy_dataclass(frozen=True, slots=True)
class ResultFact:
    """``text`` is the result's beginning (all of it for a message at hand), ``chars`` its length."""

    key: str
    name: str
    by_name: bool
    is_error: bool
    text: str = ""
    chars: int = 0


@lazy_dataclass(frozen=True, slots=True)
class MessageOutline:
    """``chars`` is the length of the text; ``head`` its beginning (all of it for a message at hand)."""

    role: Role
    head: str
    chars: int
    calls: tuple[CallFact, ...] = ()
    results: tuple[ResultFact, ...] = ()
    ledger: tuple[str, ...] = ()
    given_role: str = ""
    name: str = ""


def outline_of(message: Message) -> MessageOutline:
    """The facts of a message, but for its ledger, which is read where it is needed.

    A message of an unknown role is never sent, so what it calls or answers pairs with nothing.
    """
    text, is_known = message.text, message.role != "unknown"
    return MessageOutline(
        role=message.role,
        head=text,
        chars=len(text),
        calls=tuple(CallFact(call_key(call), call.name, call.arguments) for call in message.tool_calls if is_known),
        results=tuple(_result_fact(result) for result in message.tool_results if is_known),
        given_role=message.given_role,
        name=message.name,
    )


def _result_fact(result: ToolResult) -> ResultFact:
    text = result.text
    return ResultFact(result_key(result), result.name, result.by_name, result.is_error, text, len(text))


OPEN_CALLS_KEPT = 16
_KEY_BYTES = 6
_ENTRY_BYTES = 4 + 2 + _KEY_BYTES + _KEY_BYTES


@lazy_dataclass(frozen=True, slots=True)
class UnansweredCall:
    """A call without a result: its ref and 6-byte hashes of its id and its name (``b""``: it has none)."""

    ref: Ref
    id_hash: bytes
    name_hash: bytes


def open_call(ref: Ref, *, key: str, name: str) -> UnansweredCall:
    return UnansweredCall(ref, _hash(key), _hash(name))


@lazy_dataclass(frozen=True, slots=True)
class OpenCalls:
    """The open calls in order of their refs. ``more`` counts the newest ones, which a header had no room for."""

    calls: tuple[UnansweredCall, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.calls) or self.more > 0

    def opened(self, calls: Sequence[UnansweredCall]) -> OpenCalls:
        return OpenCalls(self.calls + tuple(calls), self.more)

    def encode(self) -> tuple[bytes, int]:
        """For a header: the oldest 16 in 18 bytes each, and the count of the others."""
        kept = self.calls[:OPEN_CALLS_KEPT]
        data = b"".join(
            call.ref.position.to_bytes(4, "big")
            + min(call.ref.index, 65535).to_bytes(2, "big")
            + call.id_hash.ljust(_KEY_BYTES, b"\0")
            + call.name_hash.ljust(_KEY_BYTES, b"\0")
            for call in kept
        )
        return data, self.more + len(self.calls) - len(kept)

    @classmethod
    def decode(cls, data: bytes, more: int) -> OpenCalls:
        if len(data) % _ENTRY_BYTES:
            raise ValueError("open calls are cut short")
        return cls(tuple(_decode(data[at : at + _ENTRY_BYTES]) for at in range(0, len(data), _ENTRY_BYTES)), more)


class OpenIndex:
    """The open calls of a log that goes on, changed in place. A result finds its call in time that does not grow with them.

    Calls are in the order of their refs. An answered one is left where it stands and skipped: no list is searched twice.
    """

    def __init__(self, before: OpenCalls) -> None:
        self._calls = list(before.calls)
        self._more = before.more
        self._answered = set[int]()
        self._groups: dict[_Key, dict[bytes, list[UnansweredCall]]] = {}
        self._heads: dict[tuple[_Key, bytes, int], int] = {}
        self._oldest = {"any": 0, "with an id": 0}

    def opened(self, calls: Sequence[UnansweredCall]) -> None:
        self._calls += calls
        for key, groups in self._groups.items():
            for call in calls:
                groups[_value(call, key)].append(call)

    def find(self, result: ResultFact) -> UnansweredCall | None:
        """Return the call that the result belongs to, or None."""
        if result.by_name and result.name:
            return self._found("name", _hash(result.name))
        return self._found("id", _hash(result.key)) if result.key else self._found("order", b"")

    def answered(self, call: UnansweredCall) -> None:
        self._answered.add(id(call))

    def is_out_of_order(self, call: UnansweredCall, result: ResultFact) -> bool:
        """Whether a call before this one is still open; for a result without an id, which is paired by order, one with an id."""
        which = "any" if result.key else "with an id"
        index = self._oldest[which]
        while id(self._calls[index]) in self._answered or not (result.key or self._calls[index].id_hash):
            index += 1
            if index == len(self._calls):
                break
        self._oldest[which] = min(index, len(self._calls) - 1)
        return index < len(self._calls) and self._calls[index].ref < call.ref

    def calls(self) -> OpenCalls:
        """Return those that are open now."""
        if not self._answered:
            return OpenCalls(tuple(self._calls), self._more)
        return OpenCalls(tuple(call for call in self._calls if id(call) not in self._answered), self._more)

    def _found(self, key: _Key, value: bytes) -> UnansweredCall | None:
        """Return the first open call of the newest message that has one."""
        if key not in self._groups:
            self._groups[key] = defaultdict(list)
            for call in self._calls:
                self._groups[key][_value(call, key)].append(call)
        group = self._groups[key].get(value)
        while group and id(group[-1]) in self._answered:
            group.pop()
        if not group:
            return None
        place = key, value, group[-1].ref.position
        index = self._heads.get(place)
        if index is None:
            index = bisect_left(group, place[2], key=lambda call: call.ref.position)
        while id(group[index]) in self._answered:
            index += 1
        self._heads[place] = index
        return group[index]


_Key: TypeAlias = Literal["id", "name", "order"]


def _value(call: UnansweredCall, key: _Key) -> bytes:
    return call.id_hash if key == "id" else call.name_hash if key == "name" else b""


@dataclasses.dataclass(slots=True)
class Pairing:
    """Of a range of messages: ``call_of`` a result (position, index), and ``result_of`` a call (its newest result).

    ``open`` are the calls without a result; ``orphans`` the results without a call; ``seconds`` those that came after
    their call had been answered.
    """

    call_of: dict[tuple[int, int], Ref] = field(default_factory=dict)
    result_of: dict[Ref, tuple[int, int]] = field(default_factory=dict)
    open: OpenCalls = field(default_factory=OpenCalls)
    orphans: list[tuple[int, int]] = field(default_factory=list)
    seconds: list[tuple[int, int]] = field(default_factory=list)


def pair(messages: Iterable[tuple[int, MessageOutline]], *, before: OpenCalls | None = None) -> Pairing:
    """Pairs the results among the given (position, facts), in order. ``before``: calls that were open already."""
    pairing, index = Pairing(), OpenIndex(before or OpenCalls())
    answered: dict[bytes, Ref] = {}
    for position, facts in messages:
        if facts.calls:
            index.opened(
                [open_call(Ref(position, at), key=call.key, name=call.name) for at, call in enumerate(facts.calls)]
            )
        for number, result in enumerate(facts.results):
            _pair_result(pairing, index, answered, (position, number), result)
    pairing.open = index.calls()
    return pairing


def _pair_result(
    pairing: Pairing, index: OpenIndex, answered: dict[bytes, Ref], place: tuple[int, int], result: ResultFact
) -> None:
    call = index.find(result)
    if call is not None:
        index.answered(call)
        pairing.call_of[place] = call.ref
        pairing.result_of[call.ref] = place
        if call.id_hash:
            answered[call.id_hash] = call.ref
        return
    earlier = answered.get(_hash(result.key)) if result.key else None
    if earlier is None:
        pairing.orphans.append(place)
        return
    pairing.seconds.append(place)
    pairing.call_of[place] = earlier
    pairing.result_of[earlier] = place


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES] if text else b""


def _decode(data: bytes) -> UnansweredCall:
    return UnansweredCall(
        Ref(int.from_bytes(data[:4], "big"), int.from_bytes(data[4:6], "big")),
        _unpad(data[6 : 6 + _KEY_BYTES]),
        _unpad(data[6 + _KEY_BYTES :]),
    )


def _unpad(data: bytes) -> bytes:
    return b"" if data == bytes(_KEY_BYTES) else data
