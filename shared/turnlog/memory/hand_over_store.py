"""Store the progress of handing a session to long-term memory, and the note that it is due: two items without contents.

A log is cut into parts that are handed over one by one. Each cut is one conditional put, so parts never overlap. A second
process, or one after a crash, hands over the same part under the same id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta

from turnlog.core.calls import outline_of
from turnlog.core.errors import CorruptError
from turnlog.core.events import Envelope
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import SpokenMessage
from turnlog.core.positions import Stretch
from turnlog.core.times import rfc3339
from turnlog.log.commit import Commit, checked_chain
from turnlog.log.commits import CommitLog
from turnlog.log.headers import Header, item_name
from turnlog.log.keys import SessionKeys
from turnlog.log.packing import pack, unpack_json
from turnlog.log.reading import Located, located, said_at, shown_text
from turnlog.log.tombstones import due_index
from turnlog.ports import Absent, AttributeValue, Condition, Equal, Item, ItemTable


@lazy_dataclass(frozen=True, slots=True)
class Cut:
    """Progress of handing over: everything up to ``done`` is handed over.

    The part behind it, up to ``end``, is under way when ``end`` is greater. ``receipt`` belongs to the newest finished part.
    All zeros: nothing has been handed over.
    """

    done: int = 0
    end: int = 0
    receipt: JsonObject | None = None


@lazy_dataclass(frozen=True, slots=True)
class Due:
    """A note, stored before the commit that ends a session, so that a schedule finds it. ``nonce`` is its writer's."""

    nonce: bytes
    reason: str
    noted_ms: int


class Offloads:
    """Reads and writes progress and notes."""

    def __init__(self, items: ItemTable) -> None:
        self._items = items

    def read(self, keys: SessionKeys) -> tuple[Cut, Due | None]:
        """Return the progress and the note of a session. One request."""
        items = self._items.get_many([keys.offloaded, keys.offload_due])
        due = items.get(keys.offload_due)
        return _cut(items.get(keys.offloaded)), read_due(due) if due is not None else None

    def cut(self, keys: SessionKeys, before: Cut, end: int) -> Cut:
        """Begin the part from ``before.done`` to ``end``; return the progress, which another process may have changed."""
        return self._exchange(keys, before, Cut(before.done, end, before.receipt))

    def finish(self, keys: SessionKeys, before: Cut, receipt: JsonObject) -> Cut:
        """Mark the part as handed over; return the progress."""
        return self._exchange(keys, before, Cut(before.end, before.end, receipt))

    def note(self, keys: SessionKeys, due: Due, *, due_ms: int) -> None:
        """Store the note of a session that is about to end. The schedule looks at it at ``due_ms``."""
        self._items.put(_due_item(keys, due) | due_index(keys, due_ms))

    def put_off(self, keys: SessionKeys, due: Due, *, due_ms: int | None) -> None:
        """Postpone a note to ``due_ms``, or drop it with None, unless another process has written a new note."""
        item = _due_item(keys, due)
        if due_ms is not None:
            item |= due_index(keys, due_ms)
        self._items.put(item, condition=Equal("n", due.nonce))

    def _exchange(self, keys: SessionKeys, before: Cut, after: Cut) -> Cut:
        key = keys.offloaded
        item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "pos": after.done, "end": after.end}
        item["st"] = _state(after)
        if after.receipt is not None:
            item["b"] = pack(encode_json(after.receipt))
        condition: Condition = Equal("st", _state(before)) if before.end else Absent()
        lost = self._items.put(item, condition=condition)
        return after if lost is None else _cut(lost.existing)


def read_due(item: Item) -> Due:
    """Return the note that an item holds."""
    nonce, reason, noted_ms = item.get("n"), item.get("r"), item.get("c")
    if not isinstance(nonce, bytes) or not isinstance(reason, str) or not isinstance(noted_ms, int):
        raise CorruptError("a note of an offload is damaged", item=item_name(item))
    return Due(nonce, reason, noted_ms)


def _due_item(keys: SessionKeys, due: Due) -> dict[str, AttributeValue]:
    key = keys.offload_due
    return {"pk": key.pk, "sk": key.sk, "n": due.nonce, "r": due.reason, "c": due.noted_ms}


def _cut(item: Item | None) -> Cut:
    if item is None:
        return Cut()
    done, end, packed = item.get("pos"), item.get("end"), item.get("b")
    if not isinstance(done, int) or not isinstance(end, int):
        raise CorruptError("a mark of an offload is damaged", item=item_name(item))
    receipt = unpack_json(packed, item=item_name(item)) if isinstance(packed, bytes) else None
    return Cut(done, end, receipt)


def _state(cut: Cut) -> str:
    return f"{cut.done} {cut.end}"


_PAGE_COMMITS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENVELOPE = tuple(field.name for field in fields(Envelope) if field.name not in ("status", "created_at"))


def copied_lines(log: CommitLog, keys: SessionKeys, header: Header) -> Iterator[bytes]:
    """Yield a line for each message of the full history up to a header, with rewound ones marked. Always the same bytes."""
    stretches = log.view(keys, header).up_to(header.last)
    for items in log.stored_on(keys, 1, header.last, limit=_PAGE_COMMITS):
        for commit in checked_chain(items):
            for message in located(log, keys, [commit], fetch=True):
                yield encode_json(_line(message, stretches)) + b"\n"


def said_in(log: CommitLog, keys: SessionKeys, header: Header, *, first: int) -> Iterator[SpokenMessage]:
    """Yield the visible messages at a header from a position on, as text; without redacted, interrupted and empty ones."""
    for commits in log.in_view_on(keys, header, first=first, limit=_PAGE_COMMITS):
        for commit in commits:
            yield from _said(log, keys, commit, first)


def _said(log: CommitLog, keys: SessionKeys, commit: Commit, first: int) -> Iterator[SpokenMessage]:
    for entry in located(log, keys, [commit], fetch=True):
        message, event = entry.message, entry.event
        if event.position < first or event.redacted or event.envelope.status != "complete" or message is None:
            continue
        if event.envelope.origin is not None:
            continue  # nobody said it in this session: Turnlog added it, for example from memory
        text = shown_text(entry, outline_of(message)).strip()
        if message.role != "unknown" and text:
            yield SpokenMessage(
                event.position, message.role, text, (said_at(entry) - _EPOCH) // timedelta(milliseconds=1)
            )


def _line(entry: Located, stretches: tuple[Stretch, ...]) -> JsonObject:
    event, envelope, message = entry.event, entry.event.envelope, entry.message
    position = event.position
    line: JsonObject = {
        "position": position,
        "loop": entry.loop or None,
        "role": message.role if message is not None else "unknown",
        "format": event.format,
        "body": event.body,
        "tokens": event.tokens,
        "created_at": envelope.created_at or rfc3339(entry.time_ms),
        "status": envelope.status,
        "in_view": any(first <= position <= last for first, last in stretches),
    }
    default = Envelope()
    line |= {name: getattr(envelope, name) for name in _ENVELOPE if getattr(envelope, name) != getattr(default, name)}
    return line | ({"redacted": True} if event.redacted else {})
