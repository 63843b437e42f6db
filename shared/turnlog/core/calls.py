"""Tool calls in a log: their refs, outlines of messages, and the pairing of calls with their results.

An outline holds what pairing, loop borders and digests need of a message. It is made from a `Message`, or read from the
card of a payload that is stored out of line, whose texts are cut.

A call id can't serve as a key: in real transcripts ids are empty, repeat within a session and recur in others. A ref is the
call's place, ``<position>.<index>``. It is short, unique in its session and never changes.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Literal, TypeAlias

from turnlog.core.errors import InvalidInputError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Message, Role, ToolResult

_REF = re.compile(r"([1-9][0-9]{0,11})\.(0|[1-9][0-9]{0,5})")
_LONG_ID = 64
CARD_CHARS, CARD_NAME = 700, 128
"""Characters of a message's text, and of its results together, that a card has; and of a name."""


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """A tool call's place: the position of its message and the call's index in it."""

    position: int
    index: int

    def __str__(self) -> str:
        return f"{self.position}.{self.index}"

    @property
    def made_id(self) -> str:
        """The call id that is sent when the original one can't be."""
        return f"call_{self.position}_{self.index}"


def is_ref(text: str) -> bool:
    return _REF.fullmatch(text) is not None


def parse_ref(text: str, *, pointer: str = "/ref") -> Ref:
    """Return the ref in a text, or raise `InvalidInputError`."""
    match = _REF.fullmatch(text)
    if match is None:
        # The text itself is not quoted: it may be content.
        raise InvalidInputError.at(pointer, "a ref is <position>.<index>, as in 12.0", "invalid_ref")
    return Ref(int(match[1]), int(match[2]))


def result_key(result: ToolResult) -> str:
    """Return the key of the call that a result names; empty when it names none."""
    return "" if result.by_name else id_key(result.tool_call_id)


def id_key(call_id: str) -> str:
    """Return a call id as keys hold it: unchanged, or hashed when it is long. A call without an id has an empty key."""
    if len(call_id) <= _LONG_ID:
        return call_id
    return "sha256:" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@lazy_dataclass(frozen=True, slots=True)
class CallOutline:
    """A tool call in an outline. ``key`` is the call id, or a hash of a long one; empty when the call has no id.

    ``hosted``: the provider runs the tool.
    """

    key: str
    name: str
    arguments: str
    hosted: bool = False


@lazy_dataclass(frozen=True, slots=True)
class ResultOutline:
    """A tool result in an outline.

    ``text`` is the result's text, or only its beginning when the outline comes from a card. ``chars`` is the length of
    the whole text. ``by_name`` marks a legacy ``function`` message, which names its function and no call id.
    """

    key: str
    name: str
    by_name: bool
    is_error: bool
    text: str = ""
    chars: int = 0


@lazy_dataclass(frozen=True, slots=True)
class MessageOutline:
    """The parts of a message that pairing, loops and digests need.

    ``head`` is the text, or only its beginning when the outline comes from a card. ``chars`` is the length of the whole
    text. ``given_role`` is the role as the caller wrote it. ``has_closing``: the message has the results of all its calls, and
    says something behind them. ``compacts``: see `Message`; None when the outline comes from a card that does not say it.
    """

    role: Role
    head: str
    chars: int
    calls: tuple[CallOutline, ...] = ()
    results: tuple[ResultOutline, ...] = ()
    ledger: tuple[str, ...] = ()
    given_role: str = ""
    name: str = ""
    has_closing: bool = False
    compacts: bool | None = False

    @property
    def is_reply(self) -> bool:
        """Whether the message can be the last of its loop: the assistant's, with no call that something must follow."""
        return self.role == "assistant" and (self.has_closing or not self.calls)


def outline_of(message: Message) -> MessageOutline:
    """Return the outline of a message, without its ledger.

    Calls and results of a message with an unknown role are left out: such a message is never sent, so they pair with
    nothing.
    """
    text = message.text
    calls, results = (message.tool_calls, message.tool_results) if message.role != "unknown" else ((), ())
    return MessageOutline(
        role=message.role,
        head=text,
        chars=len(text),
        calls=tuple(CallOutline(id_key(call.id), call.name, call.arguments, call.hosted) for call in calls),
        results=tuple(map(_result_outline, results)),
        given_role=message.given_role,
        name=message.name,
        has_closing=message.closing > 0,
        compacts=message.compacts,
    )


def _result_outline(result: ToolResult) -> ResultOutline:
    text = result.text
    return ResultOutline(result_key(result), result.name, result.by_name, result.is_error, text, len(text))


MAX_LISTED_CALLS = 16
_KEY_BYTES = 6
_ENTRY = Struct(f">IH{_KEY_BYTES}s{_KEY_BYTES}s")
"""An open call in a header: its position, its index, and the hashes of its id and its name, of zeros when it has none."""
_NO_KEY = bytes(_KEY_BYTES)


@lazy_dataclass(frozen=True, slots=True)
class UnansweredCall:
    """A call without a result: its ref, and 6-byte hashes of its id and its name (``b""`` when it has none)."""

    ref: Ref
    id_hash: bytes
    name_hash: bytes


def unanswered_calls(position: int, outline: MessageOutline) -> list[UnansweredCall]:
    """Return the calls of the message at a position, before any result."""
    return [
        UnansweredCall(Ref(position, index), call_hash(call.key), call_hash(call.name))
        for index, call in enumerate(outline.calls)
    ]


@lazy_dataclass(frozen=True, slots=True)
class OpenCalls:
    """The open calls, ordered by ref. ``more`` counts the newest calls, which did not fit into a header."""

    calls: tuple[UnansweredCall, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.calls) or self.more > 0

    def opened(self, calls: Sequence[UnansweredCall]) -> OpenCalls:
        return OpenCalls(self.calls + tuple(calls), self.more) if calls else self

    def listed(self) -> OpenCalls:
        """Return the open calls as a header holds them: the oldest 16, and the count of the others."""
        if len(self.calls) <= MAX_LISTED_CALLS:
            return self
        return OpenCalls(self.calls[:MAX_LISTED_CALLS], self.more + len(self.calls) - MAX_LISTED_CALLS)

    def encode(self) -> bytes:
        """Encode the calls for a header, in 18 bytes each."""
        return b"".join(
            _ENTRY.pack(call.ref.position, min(call.ref.index, 65535), call.id_hash, call.name_hash)
            for call in self.calls
        )

    @classmethod
    def decode(cls, data: bytes, more: int) -> OpenCalls:
        if len(data) % _ENTRY.size:
            raise ValueError("open calls are cut short")
        calls = (
            UnansweredCall(Ref(position, index), id_hash.replace(_NO_KEY, b""), name_hash.replace(_NO_KEY, b""))
            for position, index, id_hash, name_hash in _ENTRY.iter_unpack(data)
        )
        return cls(tuple(calls), more)


class OpenIndex:
    """A mutable index of open calls that finds the call of a result quickly, however many calls are open.

    Calls are ordered by ref. An answered call stays in its list and is skipped, so no list is searched twice.
    """

    def __init__(self, before: OpenCalls) -> None:
        self._calls = list(before.calls)
        self._more = before.more
        self._answered = set[int]()
        self._groups: dict[_Key, dict[bytes, list[UnansweredCall]]] = {}
        # Key, value and the position of a message -> index in the group of its first call that may be open.
        self._heads: dict[tuple[_Key, bytes, int], int] = {}
        self._oldest = {"any": 0, "with an id": 0}

    def opened(self, calls: Sequence[UnansweredCall]) -> None:
        self._calls += calls
        for key, groups in self._groups.items():
            for call in calls:
                groups[_value(call, key)].append(call)

    def find(self, result: ResultOutline) -> UnansweredCall | None:
        """Return the call that the result belongs to, or None."""
        if result.by_name and result.name:
            return self._oldest_match("name", call_hash(result.name))
        return self._oldest_match("id", call_hash(result.key)) if result.key else self._oldest_match("order", b"")

    def mark_answered(self, call: UnansweredCall) -> None:
        self._answered.add(id(call))

    def is_out_of_order(self, call: UnansweredCall, result: ResultOutline, *, since: int = 0) -> bool:
        """Return whether a call of an earlier message, at the position ``since`` or later, is still open.

        Calls of one message are parallel: their results may come in any order. A result without an id is paired by order;
        for it only earlier calls with an id count.
        """
        scope = "any" if result.key else "with an id"
        index = self._oldest[scope]
        while (
            id(self._calls[index]) in self._answered
            or self._calls[index].ref.position < since
            or not (result.key or self._calls[index].id_hash)
        ):
            index += 1
            if index == len(self._calls):
                break
        self._oldest[scope] = min(index, len(self._calls) - 1)
        return index < len(self._calls) and self._calls[index].ref.position < call.ref.position

    def calls(self) -> OpenCalls:
        """Return the calls that are still open."""
        return OpenCalls(tuple(call for call in self._calls if id(call) not in self._answered), self._more)

    def _oldest_match(self, key: _Key, value: bytes) -> UnansweredCall | None:
        """Return the first open call with this value in the newest message that has one, or None."""
        if key not in self._groups:
            self._groups[key] = defaultdict(list)
            for call in self._calls:
                self._groups[key][_value(call, key)].append(call)
        group = self._groups[key].get(value)
        while group and id(group[-1]) in self._answered:
            group.pop()
        if not group:
            return None
        newest = group[-1].ref.position
        index = self._heads.get((key, value, newest))
        if index is None:
            index = bisect_left(group, newest, key=lambda call: call.ref.position)
        while id(group[index]) in self._answered:
            index += 1
        self._heads[key, value, newest] = index
        return group[index]


_Key: TypeAlias = Literal["id", "name", "order"]


def _value(call: UnansweredCall, key: _Key) -> bytes:
    return call.id_hash if key == "id" else call.name_hash if key == "name" else b""


@lazy_dataclass(frozen=True, slots=True)
class Pairing:
    """Tool calls and results of a range of messages, paired.

    ``call_of`` maps a result's place (position, index) to its call. ``result_of`` maps a call to its newest result.
    ``open`` are the calls without a result, ``orphans`` the results without a call. ``answered`` has the newest answered call of
    each id.
    """

    call_of: Mapping[tuple[int, int], Ref]
    result_of: Mapping[Ref, tuple[int, int]]
    open: OpenCalls
    orphans: Sequence[tuple[int, int]]
    answered: Mapping[bytes, Ref]


def pair(
    messages: Iterable[tuple[int, MessageOutline]], *, before: OpenCalls | None = None, behind: Pairing | None = None
) -> Pairing:
    """Pair results with calls in (position, outline) items, in order.

    ``before`` are calls that were open already; ``behind`` is the pairing of all earlier messages, which the result includes.
    """
    known = behind or Pairing({}, {}, before or OpenCalls(), (), {})
    index, answered, orphans = OpenIndex(known.open), dict(known.answered), list(known.orphans)
    call_of, result_of = dict(known.call_of), dict(known.result_of)
    for position, outline in messages:
        if outline.calls:
            index.opened(unanswered_calls(position, outline))
        for number, result in enumerate(outline.results):
            place, call = (position, number), index.find(result)
            if call is not None:
                index.mark_answered(call)
                ref = answered[call.id_hash] = call.ref
            elif result.key and (earlier := answered.get(call_hash(result.key))) is not None:
                ref = earlier
            else:
                orphans.append(place)
                continue
            call_of[place], result_of[ref] = ref, place
    return Pairing(call_of, result_of, index.calls(), orphans, answered)


def call_hash(text: str) -> bytes:
    """Return the hash by which an unanswered call remembers its key or its name; empty for an empty text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES] if text else b""
