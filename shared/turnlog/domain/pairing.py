"""Which result belongs to which call.

A result belongs to the newest message that has an open call of its id, and in it to the first such call. An empty id is
no id: the newest message with open calls, in order. A ``function`` message names its function: the newest message with an
open call of that name. A message's own calls are open to its own results. A second result for a call replaces the first
in windows; the log keeps both.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import field

from turnlog.domain.facts import Facts, ResultFact
from turnlog.domain.refs import Ref
from turnlog.domain.values import dataclass

OPEN_CALLS_KEPT = 16
_KEY_BYTES = 6
_ENTRY_BYTES = 4 + 2 + _KEY_BYTES + _KEY_BYTES


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result: its ref and 6-byte hashes of its id and its name (``b""``: it has none)."""

    ref: Ref
    id_hash: bytes
    name_hash: bytes


def open_call(ref: Ref, *, key: str, name: str) -> OpenCall:
    return OpenCall(ref, _hash(key), _hash(name))


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """The open calls in order of their refs. ``more`` counts the newest ones, which a header had no room for."""

    calls: tuple[OpenCall, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.calls) or self.more > 0

    def opened(self, calls: Sequence[OpenCall]) -> OpenCalls:
        return OpenCalls(self.calls + tuple(calls), self.more)

    def find(self, result: ResultFact) -> OpenCall | None:
        """The call that the result belongs to, or None."""
        matching = [call for call in self.calls if _matches(call, result)]
        if not matching:
            return None
        newest = max(call.ref.position for call in matching)
        return next(call for call in matching if call.ref.position == newest)

    def answered(self, call: OpenCall) -> OpenCalls:
        return OpenCalls(tuple(other for other in self.calls if other.ref != call.ref), self.more)

    def is_out_of_order(self, call: OpenCall, result: ResultFact) -> bool:
        """Whether a call before this one is still open; for a result without an id, which is paired by order, one with an id."""
        return any(other.ref < call.ref and (result.key or other.id_hash) for other in self.calls)

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


def pair(messages: Iterable[tuple[int, Facts]], *, before: OpenCalls | None = None) -> Pairing:
    """Pairs the results among the given (position, facts), in order. ``before``: calls that were open already."""
    pairing = Pairing(open=before or OpenCalls())
    answered: dict[bytes, Ref] = {}
    for position, facts in messages:
        if facts.calls:
            pairing.open = pairing.open.opened(
                [open_call(Ref(position, at), key=call.key, name=call.name) for at, call in enumerate(facts.calls)]
            )
        for index, result in enumerate(facts.results):
            _pair_result(pairing, answered, (position, index), result)
    return pairing


def _pair_result(pairing: Pairing, answered: dict[bytes, Ref], place: tuple[int, int], result: ResultFact) -> None:
    call = pairing.open.find(result)
    if call is not None:
        pairing.open = pairing.open.answered(call)
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


def _matches(call: OpenCall, result: ResultFact) -> bool:
    if result.by_name and result.name:
        return call.name_hash == _hash(result.name)
    if not result.key:
        return True
    return call.id_hash == _hash(result.key)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES] if text else b""


def _decode(data: bytes) -> OpenCall:
    return OpenCall(
        Ref(int.from_bytes(data[:4], "big"), int.from_bytes(data[4:6], "big")),
        _unpad(data[6 : 6 + _KEY_BYTES]),
        _unpad(data[6 + _KEY_BYTES :]),
    )


def _unpad(data: bytes) -> bytes:
    return b"" if data == bytes(_KEY_BYTES) else data
