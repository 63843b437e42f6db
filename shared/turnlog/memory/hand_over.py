"""Hand a session to long-term memory once it has ended or fallen silent. A job does the work; nobody waits for it.

A note is stored before the commit that ends the session. After any later failure (the queue, the worker, an engine that is
down for days), the schedule of retention finds the note and asks for the job again.

A log is handed over in parts, one by one. Progress and note are two items without contents. A part begins with one
conditional put, so parts never overlap. A second process, or one after a crash, hands over the same part under the same id.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from turnlog.core.calls import outline_of
from turnlog.core.errors import ConflictError, CorruptError, NotFoundError, UnavailableError
from turnlog.core.events import Envelope
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import Offloaded, OffloadReason, SpokenMessage
from turnlog.core.positions import Stretch
from turnlog.core.times import DAY_MS, milliseconds_since_epoch, rfc3339
from turnlog.jobs.models import Job
from turnlog.jobs.worker import Later, OutageError, StartJobs
from turnlog.log.commit import Commit, checked_chain
from turnlog.log.commits import CommitLog
from turnlog.log.headers import Header, attribute, item_name, short_hash
from turnlog.log.keys import SessionKeys, item_at
from turnlog.log.packing import json_in, pack
from turnlog.log.reading import Located, located, message_time, searchable_text
from turnlog.log.tombstones import due_index
from turnlog.ports import Absent, AttributeValue, BlobStore, Condition, Equal, Item, ItemTable, MemoryEngine
from turnlog.sessions.session_log import SessionLog

_PAGE_COMMITS = 64
_ENVELOPE = tuple(field.name for field in fields(Envelope) if field.name not in ("status", "created_at"))
NOTED_MS = 15 * 60 * 1000
"""Delay before the schedule looks at a note: by then the job should have run."""
SETTLES_MS = 60_000
"""Time after which a note without its commit is dropped: the request that wrote the note is over."""
AGAIN_MS = DAY_MS
MAX_WAITS = 100
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 30, 900
"""Waits for an engine that is down, each longer than the last, a day in total. After them, tries of the queue count."""
_TRIES = 5
_GONE: JsonObject = {"status": "gone"}
_log = logging.getLogger("turnlog")


@lazy_dataclass(frozen=True, slots=True)
class OffloadProgress:
    """Progress of handing over: everything up to ``done`` is handed over.

    The part behind it, up to ``end``, is under way when ``end`` is greater. ``receipt`` belongs to the newest finished part.
    All zeros: nothing has been handed over.
    """

    done: int = 0
    end: int = 0
    receipt: JsonObject | None = None


@lazy_dataclass(frozen=True, slots=True)
class OffloadNote:
    """A note, stored before the commit that ends a session, so that a schedule finds it. ``nonce`` is its writer's."""

    nonce: bytes
    reason: str
    noted_ms: int


class Offloads:
    """Reads and writes the progress of handing each session over to long-term memory, and the note that a hand-over is due."""

    def __init__(self, items: ItemTable) -> None:
        self._items = items

    def read(self, keys: SessionKeys) -> tuple[OffloadProgress, OffloadNote | None]:
        """Return the progress and the note of a session. One request."""
        items = self._items.get_many([keys.offloaded, keys.offload_due])
        note_item = items.get(keys.offload_due)
        return _progress_in(items.get(keys.offloaded)), read_note(note_item) if note_item is not None else None

    def note(self, keys: SessionKeys, note: OffloadNote, *, due_ms: int) -> None:
        """Store the note of a session that is about to end. The schedule looks at it at ``due_ms``."""
        self._items.put(_note_item(keys, note) | due_index(keys, due_ms))

    def put_off(self, keys: SessionKeys, note: OffloadNote, *, due_ms: int | None) -> None:
        """Postpone a note to ``due_ms``, or drop it with None, unless another process has written a new note."""
        index = due_index(keys, due_ms) if due_ms is not None else {}
        self._items.put(_note_item(keys, note) | index, condition=Equal("n", note.nonce))

    def exchange(self, keys: SessionKeys, before: OffloadProgress, after: OffloadProgress) -> OffloadProgress:
        """Store the progress after ``before``; return what is stored, which may be another process's."""
        item = item_at(keys.offloaded, {"pos": after.done, "end": after.end, "st": _state(after)})
        if after.receipt is not None:
            item["b"] = pack(encode_json(after.receipt))
        condition: Condition = Equal("st", _state(before)) if before.end else Absent()
        lost = self._items.put(item, condition=condition)
        return after if lost is None else _progress_in(lost.existing)


def read_note(item: Item) -> OffloadNote:
    """Return the note that an item holds."""
    nonce, reason, noted_ms = item.get("n"), item.get("r"), item.get("c")
    if not isinstance(nonce, bytes) or not isinstance(reason, str) or not isinstance(noted_ms, int):
        raise CorruptError("a note of an offload is damaged", item=item_name(item))
    return OffloadNote(nonce, reason, noted_ms)


def _note_item(keys: SessionKeys, note: OffloadNote) -> dict[str, AttributeValue]:
    return item_at(keys.offload_due, {"n": note.nonce, "r": note.reason, "c": note.noted_ms})


def _progress_in(item: Item | None) -> OffloadProgress:
    if item is None:
        return OffloadProgress()
    receipt = json_in(item) if "b" in item else None
    return OffloadProgress(attribute(item, "pos", int), attribute(item, "end", int), receipt)


def _state(progress: OffloadProgress) -> str:
    return f"{progress.done} {progress.end}"


def copied_lines(log: CommitLog, keys: SessionKeys, header: Header) -> Iterator[bytes]:
    """Yield a line for each message of the full history up to a header, with rewound ones marked. Always the same bytes."""
    stretches = log.view(keys, header).up_to(header.last)
    for items in log.stored_on(keys, 1, header.last, limit=_PAGE_COMMITS):
        for commit in checked_chain(items):
            for message in located(log, keys, [commit], fetch=True):
                yield encode_json(_line(message, stretches)) + b"\n"


def spoken_messages(log: CommitLog, keys: SessionKeys, header: Header, *, first: int) -> Iterator[SpokenMessage]:
    """Yield the visible messages at a header from a position on, as text; without redacted, interrupted and empty ones."""
    for commits in log.in_view_on(keys, header, first=first, limit=_PAGE_COMMITS):
        for commit in commits:
            yield from _said(log, keys, commit, first)


def _said(log: CommitLog, keys: SessionKeys, commit: Commit, first: int) -> Iterator[SpokenMessage]:
    for entry in located(log, keys, [commit], fetch=True):
        message, event = entry.message, entry.event
        if event.position < first or event.redacted or event.envelope.status != "complete" or message is None:
            continue
        if event.envelope.parent is not None or event.envelope.origin is not None:
            continue  # an agent has said it to another, or Turnlog added it, for example from memory
        text = searchable_text(entry, message, outline_of(message)).strip()
        if message.role != "unknown" and text:
            yield SpokenMessage(event.position, message.role, text, milliseconds_since_epoch(message_time(entry)))


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


class AskForOffloads:
    """Starts the job that hands a session over. With ``is_on`` False it starts none."""

    def __init__(self, log: SessionLog, offloads: Offloads, start_job: StartJobs, *, is_on: bool) -> None:
        self._log = log
        self._offloads = offloads
        self._start_job = start_job
        self._is_on = is_on

    def note(self, keys: SessionKeys, reason: OffloadReason) -> None:
        """Store the note. Call it before the commit that ends the session."""
        if self._is_on:
            now = self._log.clock.now_ms()
            self._offloads.note(keys, OffloadNote(self._log.ids.nonce(), reason, now), due_ms=now + NOTED_MS)

    def send(self, keys: SessionKeys, header: Header, reason: OffloadReason) -> None:
        """Start the job after the commit is durable. Repeated, it is the same job. After an outage the schedule starts it."""
        if self._is_on:
            with suppress(UnavailableError):
                self._start(keys, header, reason)

    def again(self, keys: SessionKeys, header: Header | None) -> str:
        """Start the job again for a note that the schedule found, or drop a note that needs nothing more.

        ``header`` is the log's newest; None when the session no longer exists. Returns the outcome as a field name of
        `RetentionCounts`; empty when no job was started.
        """
        progress, note = self._offloads.read(keys)
        if note is None:
            return ""
        now = self._log.clock.now_ms()
        if header is not None and self._is_on and not is_at_rest(header):
            is_over = now - note.noted_ms >= SETTLES_MS
            self._offloads.put_off(keys, note, due_ms=None if is_over else now + NOTED_MS)
            return ""
        if header is None or not self._is_on or progress.done >= (header.ended or header.last):
            self._offloads.put_off(keys, note, due_ms=None)
            return ""
        job = self._start(keys, header, cast("OffloadReason", note.reason))
        # A failed job waits for an operator, who finds it among the jobs.
        self._offloads.put_off(keys, note, due_ms=None if job.status == "failed" else now + AGAIN_MS)
        return "offloaded"

    def _start(self, keys: SessionKeys, header: Header, reason: OffloadReason) -> Job:
        options: JsonObject = {"last": header.last, "hash": header.hash.hex(), "reason": reason}
        job_id = f"{header.time_ms:013d}-{short_hash(f'offload {keys.session_id} {header.hash.hex()}').hex()}"
        return self._start_job(keys.owner, "offload", keys.session_id, options, job_id=job_id)


class OffloadSessions:
    """Work of a job: copy all messages of a session beside it, and pass the engine what no earlier job has passed."""

    def __init__(self, log: SessionLog, offloads: Offloads, copies: OffloadCopies, memory: MemoryEngine | None) -> None:
        self._log = log
        self._offloads = offloads
        self._copies = copies
        self._memory = memory

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        """Do a part of the job's work; the receipt says what was handed over, without contents.

        Does nothing for a session that no longer exists, and nothing twice. When the engine is down, the job is queued again
        with a delay, which does not count as a failed try.
        """
        keys = SessionKeys(owner, session_id)
        if self._memory is None:
            return {"status": "off"}
        if not options:
            return _GONE  # when the session was erased, so were the options of its jobs
        last = cast("int", options["last"])
        header = self._header(keys, last)
        if header is None or header.hash.hex() != options["hash"]:
            return _GONE
        progress, note = self._offloads.read(keys)
        try:
            done = self._hand_over_parts(self._memory, keys, progress, last, cast("OffloadReason", options["reason"]))
        except OutageError as outage:
            return _later(options, outage.error)
        if done is None:
            return _GONE
        self._settle(keys, note, done)
        return done.receipt if done.end == last and done.receipt is not None else {"status": "repeated"}

    def _hand_over_parts(
        self, memory: MemoryEngine, keys: SessionKeys, progress: OffloadProgress, last: int, reason: OffloadReason
    ) -> OffloadProgress | None:
        """Pass the engine the log up to position ``last``, part by part; return the progress, or None without the session."""
        for _ in range(_TRIES):
            if progress.done >= last:
                return progress
            if progress.end <= progress.done:
                after = OffloadProgress(progress.done, last, progress.receipt)
            elif (receipt := self._hand_over(memory, keys, progress, reason)) is not None:
                after = OffloadProgress(progress.end, progress.end, receipt)
            else:
                return None
            progress = self._offloads.exchange(keys, progress, after)
        raise ConflictError("another process hands over the same session; try again", retry_after_seconds=1)

    def _header(self, keys: SessionKeys, position: int) -> Header | None:
        """Return the header of the commit that ends at a position, in a session that exists; else None."""
        try:
            self._log.commits.tail(keys)
            commit = self._log.commits.find_holding(keys, position)
        except NotFoundError:
            return None
        return commit.header if commit is not None and commit.header.last == position else None

    def _hand_over(
        self, memory: MemoryEngine, keys: SessionKeys, progress: OffloadProgress, reason: OffloadReason
    ) -> JsonObject | None:
        header, begin = self._header(keys, progress.end), self._log.commits.begin(keys)
        if header is None or begin is None:
            return None
        first = progress.done + 1 if progress.done else begin.header.first
        copy = self._copies.write(keys, header)
        part = self._part(keys, begin, header, first, reason)
        messages = sum(1 for _ in part.read_messages())
        if self._header(keys, progress.end) is None:
            return None  # erased while it was read
        try:
            memories = memory.remember(part) if messages else 0
        except UnavailableError as error:
            raise OutageError(error) from error
        stretch: JsonObject = {"first": first, "last": header.last, "messages": messages, "memories": memories}
        copied: JsonObject = {"copied": copy.messages, "size_bytes": copy.size_bytes}
        return {"status": "offloaded", "reason": reason, "engine": memory.name, **stretch, **copied}

    def _part(self, keys: SessionKeys, begin: Commit, header: Header, first: int, reason: OffloadReason) -> Offloaded:
        names = f"offload {keys.session_id} {begin.header.hash.hex()} {header.hash.hex()} {first}-{header.last}"
        return Offloaded(
            id=short_hash(names).hex(),
            owner=keys.owner,
            session_id=keys.session_id,
            first=first,
            last=header.last,
            ended_ms=header.active_ms,
            reason=reason,
            read_messages=lambda: spoken_messages(self._log.commits, keys, header, first=first),
        )

    def _settle(self, keys: SessionKeys, note: OffloadNote | None, progress: OffloadProgress) -> None:
        """Drop the note when the schedule has nothing left to do: the log has ended, or its silence was handed over."""
        tail = self._log.commits.find_tail(keys)
        if tail is None:
            return
        newest = tail.header
        is_known = bool(newest.ended) or (note is not None and note.reason == "inactive" and is_at_rest(newest))
        if note is not None and is_known and progress.done >= (newest.ended or newest.last):
            with suppress(UnavailableError):
                self._offloads.put_off(keys, note, due_ms=None)


@lazy_dataclass(frozen=True, slots=True)
class CopySize:
    """The size of a copy of a session's messages that `OffloadCopies` has written."""

    messages: int
    size_bytes: int


class OffloadCopies:
    """Copies of all messages, one for each session; a newer copy replaces the older one."""

    def __init__(self, log: SessionLog, blobs: BlobStore, offloads: Offloads) -> None:
        self._log = log
        self._blobs = blobs
        self._offloads = offloads

    def write(self, keys: SessionKeys, header: Header) -> CopySize:
        """Store the copy of the history up to a header. It is streamed, and its bytes are the same every time."""
        count = 0
        with TemporaryFile() as file:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                for line in copied_lines(self._log.commits, keys, header):
                    packed.write(line)
                    count += 1
            size = file.tell()
            file.seek(0)
            self._blobs.put(keys.offload_blob, cast("BinaryIO", file))
        return CopySize(count, size)

    def renew(self, keys: SessionKeys) -> int:
        """Erase all versions of the copy and write it again from the log; return the number of erased versions.

        After a crash in between there is no copy; a repeated call writes it.
        """
        progress, _ = self._offloads.read(keys)
        if not progress.end:
            return 0
        erased = self._blobs.erase(keys.offload_blob)
        with suppress(NotFoundError):
            self._log.commits.tail(keys)
            commit = self._log.commits.find_holding(keys, progress.end)
            if commit is not None:
                self.write(keys, commit.header)
        return erased


def is_at_rest(header: Header) -> bool:
    """Return whether a session has ended or is marked inactive."""
    return header.status != "active"


def _later(options: JsonObject, error: UnavailableError) -> Later:
    waits = cast("int", options.get("waits", 0))
    if waits >= MAX_WAITS:
        raise error
    wait = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**waits)
    wait = max(wait, min(error.retry_after_seconds or 0, _LONGEST_WAIT_SECONDS))
    return Later(
        {"status": "waiting", "reason": error.error_code, "waits": waits + 1}, {**options, "waits": waits + 1}, wait
    )
