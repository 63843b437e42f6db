"""A commit as it is stored: an item that is verified when it is read, and a process-wide cache of read and written items.

A commit changes only when it is redacted. An item that is read again is compared with the cached one byte by byte, which is
much cheaper than its checksum, digests and header. An item with any difference is verified again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.events import Event, MessageEvent, Payload
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import Stretch
from turnlog.log.fork_lock import fork_lock
from turnlog.log.headers import GENESIS, Header, attribute, chain_hash, hashed_header, item_name, log_key, read_header
from turnlog.log.keys import commit_sort_key
from turnlog.log.packing import count_content, decoding, line_digest, unpack
from turnlog.log.read_lines import payload_of, read_event
from turnlog.log.tombstones import is_slot_tombstone
from turnlog.ports import Item

MAX_BYTES = 8 * 1024 * 1024
_OVERHEAD_BYTES = 2 * 1024
"""Estimated memory of a commit's objects, without their contents."""


@lazy_dataclass(frozen=True, slots=True)
class Verified:
    """The contents of a commit's item after its checksum was checked. ``content`` are the stored lines of its events."""

    header: Header
    content: bytes
    covered: bytes
    digests: tuple[bytes, ...]


class VerifiedItems:
    """A thread-safe cache of the items that were read last, with ``max_bytes`` of memory together."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._found: OrderedDict[tuple[object, object], tuple[Item, Verified, int]] = OrderedDict()
        self._bytes = 0
        self._lock = fork_lock()

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def read(self, item: Item) -> Verified:
        """Return the verified contents of an item. Raises a `CorruptError` or `NewerSchemaError` that names the item."""
        key = (item.get("pk"), item.get("sk"))
        with self._lock:
            known = self._found.get(key)
            if known is not None:
                self._found.move_to_end(key)
        if known is not None and known[0] == item:
            count_content(known[1].content)
            return known[1]
        verified = _verify(item)
        self.keep(dict(item), verified)
        return verified

    def keep(self, item: Item, verified: Verified) -> None:
        """Remember an item that was verified or written here, so that it is not verified when it is read again."""
        key = item.get("pk"), item.get("sk")
        size = 2 * (len(verified.content) + len(verified.covered)) + _OVERHEAD_BYTES
        with self._lock:
            before = self._found.pop(key, None)
            self._bytes += size - (before[2] if before is not None else 0)
            self._found[key] = (item, verified, size)
            while self._bytes > self._max_bytes:
                self._bytes -= self._found.popitem(last=False)[1][2]

    def forget(self, item: Item) -> None:
        """Remove an item from the cache, because it is being erased."""
        with self._lock:
            known = self._found.pop((item.get("pk"), item.get("sk")), None)
            self._bytes -= known[2] if known is not None else 0

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
            self._bytes = 0


def _verify(item: Item) -> Verified:
    name, header = item_name(item), read_header(item)
    covered = hashed_header(log_key(item), item)
    content = unpack(attribute(item, "b", bytes), item=name, beside=covered)
    lines = content.split(b"\n")
    if len(lines) != header.last - header.first + 1:
        raise CorruptError(f"a commit of positions {header.first} to {header.last} has {len(lines)} events", item=name)
    if "fp" in item:
        _check_pointer(item, lines[0])
    return Verified(header, content, covered, tuple(map(line_digest, lines)))


def _check_pointer(item: Item, line: bytes) -> None:
    """Compare a fork's link to its parent, which no checksum covers, with the fork's event.

    Raises `CorruptError` on a difference. The link is empty after the parent was erased, when the fork has its own base.
    """
    with decoding(item_name(item)):
        event = json.loads(line)
        if item["fa"] != event["at"] or item.get("bs") not in ("", event["of"]):
            raise CorruptError("a fork's link to its parent differs from its event", item=item_name(item))


VERIFIED = VerifiedItems()
"""The cache of this process."""


@lazy_dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a session. ``lines`` are the stored lines of its events; `CommitLog.events` turns them into events.

    ``home`` is the partition that the commit is stored in; a fork's older commits are in the partition of another session.
    ``until`` is the position of the last event in view, or None when all are.
    """

    header: Header
    lines: tuple[dict[str, Any], ...]
    home: str = field(default="", compare=False)
    until: int | None = None

    @property
    def payloads(self) -> tuple[Payload, ...]:
        """The addresses of the out-of-line payloads."""
        return tuple(payload for payload in map(self.payload_of, self.lines) if payload is not None)

    @property
    def settings_payload(self) -> Payload | None:
        """The out-of-line payload of the first event, which holds the settings; None when they are in the commit."""
        return self.payload_of(self.lines[0])

    def payload_of(self, line: dict[str, Any]) -> Payload | None:
        """Return the address of a line's out-of-line payload, or None."""
        payload = payload_of(line)
        return replace(payload, home=self.home) if payload is not None else None

    def line(self, position: int) -> dict[str, Any]:
        """Return the stored line of the event at a position."""
        return self.lines[position - self.header.first]


def with_body(event: MessageEvent, place: str, content: bytes) -> MessageEvent:
    """Return the message with the body from its out-of-line payload, which is stored at ``place``."""
    with decoding(place):
        parts = json.loads(content)
        envelope = replace(event.envelope, metadata=parts["md"]) if "md" in parts else event.envelope
        if not isinstance(parts["b"], dict):
            raise TypeError("b")
        return replace(event, body=parts["b"], envelope=envelope)


def clipped(commit: Commit, stretches: Sequence[Stretch]) -> Commit:
    """Return the commit limited to the stretch of visible positions that it begins in."""
    header = commit.header
    end = next((last for first, last in stretches if first <= header.first <= last), header.last)
    return replace(commit, until=end) if header.last > end else commit


def read_commit(item: Item, only: Collection[int] | None = None) -> Commit:
    """Return the commit in an item after checking its checksum. With ``only``, lines at other positions are empty.

    Raises a `CorruptError` that names the item, or `NotFoundError` when the commit was erased.
    """
    return _commit(item, _read_verified(item), only)


def header_in(item: Item) -> Header:
    """Return the header in a commit's item after checking the checksum over header and body."""
    return _read_verified(item).header


def _read_verified(item: Item) -> Verified:
    if is_slot_tombstone(item):
        raise NotFoundError("the session has been deleted")
    return VERIFIED.read(item)


def _commit(item: Item, verified: Verified, only: Collection[int] | None = None) -> Commit:
    header, content = verified.header, verified.content
    if only is not None:
        stored = enumerate(content.split(b"\n"), header.first)
        content = b"\n".join(line if position in only else b"{}" for position, line in stored)
    with decoding(item_name(item)):
        lines = tuple(json.loads(f"[{content.decode('utf-8', 'surrogatepass').replace(chr(10), ',')}]"))
    until = item.get("fu")
    return Commit(header, lines, str(item["pk"]), until if isinstance(until, int) else None)


def checked_chain(items: Sequence[Item]) -> list[Commit]:
    """Return the commits in items that are in order of position.

    Raises `CorruptError` for a gap between positions, or a hash that does not follow from the commit before.
    """
    commits = list[Commit]()
    for item in items:
        verified = _read_verified(item)
        header = verified.header
        before = commits[-1].header if commits else None
        if before is not None and before.last + 1 != header.first:
            raise CorruptError(
                f"commits are missing between positions {before.last} and {header.first}", item=item_name(item)
            )
        previous = before.hash if before is not None else (GENESIS if header.first == 1 else None)
        if previous is not None and chain_hash(previous, verified.covered, verified.digests) != header.hash:
            # Nothing shows the hash of the first commit that is read, unless it is the log's first: either may be damaged.
            is_first_shown = len(commits) != 1 or commits[0].header.first == 1
            names = [item_name(each) for each in ([item] if is_first_shown else items[:2])]
            raise CorruptError("the chain hash does not follow from the commit before", item=" or ".join(names))
        commits.append(_commit(item, verified))
    return commits


def stored_lines(item: Item) -> list[bytes]:
    """Return the stored lines of a commit's events, byte for byte."""
    return _read_verified(item).content.split(b"\n")


def events_of(commit: Commit, contents: Mapping[str, bytes]) -> list[Event]:
    """Return the events in view of a commit. ``contents`` has the fetched payloads by place; other payloads stay out of line."""
    header = commit.header
    positions = range(header.first, min(header.last, commit.until or header.last) + 1)
    with decoding(commit_sort_key(header.first)):
        return [_event(commit, position, contents) for position in positions]


def event_at(commit: Commit, position: int, contents: Mapping[str, bytes]) -> Event:
    with decoding(commit_sort_key(commit.header.first)):
        return _event(commit, position, contents)


def _event(commit: Commit, position: int, contents: Mapping[str, bytes]) -> Event:
    line = commit.line(position)
    payload = commit.payload_of(line) if "@" in line else None
    parts = json.loads(contents[payload.place]) if payload is not None and payload.place in contents else None
    return read_event(line, position=position, payload=payload, parts=parts)
