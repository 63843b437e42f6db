"""Redact a message: nobody can read it once the request is answered; a job erases everything made of it, and checks again later.

The message is overwritten in the log, and then in everything that was made of it. Traces can be in the session that stores it
and in all its forks: copies in forks' bases, summaries, segments, full snapshots, payloads, exports. Each step repeats only what
is not done, so an interrupted run continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.events import REDACT, MessageEvent, NoteEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_POSITION
from turnlog.core.messages import Message, neutral
from turnlog.jobs.models import Job
from turnlog.jobs.worker import Later, StartJobs
from turnlog.log.caches import reflected_position
from turnlog.log.commit import VERIFIED, Commit, stored_lines
from turnlog.log.commit_items import MAX_EVENTS, Forks, first_position, with_lines
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import attribute, following, item_name, short_hash
from turnlog.log.keys import BLOB_PLACE, SessionKeys, answers_prefix, commit_sort_key, export_blob
from turnlog.log.lines import Redacted, place_left, redacted_message
from turnlog.log.packing import line_digest, pack, unpack
from turnlog.log.request_keys import RequestKey, raw_request_key
from turnlog.log.tombstones import is_slot_tombstone
from turnlog.memory.hand_over import OffloadCopies
from turnlog.ports import BlobStore, Equal, Item, Key, MemoryEngine, Query, get_item, pages
from turnlog.privacy.erase import WORK_MS, plus, purge_after_last_pass, receipt, second_pass, until_due
from turnlog.privacy.fence_and_delete import Erasure
from turnlog.privacy.redacted_archives import RedactedParts
from turnlog.providers import Turn
from turnlog.providers.registry import codec_of
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.segments import Segments

NOTED_SESSIONS = 100
"""Sessions in which a request notes a redaction: some 10 requests each. The job does the rest."""

_COUNTS: JsonObject = {"commits": 0, "parts": 0, "blobs": 0, "memories": 0}


class Redaction:
    """Redacts messages of an engine's sessions."""

    def __init__(self, log: SessionLog, blobs: BlobStore, forks: Forks, parts: RedactedParts) -> None:
        self._log = log
        self._items = log.items
        self._blobs = blobs
        self._forks = forks
        self._parts = parts

    def find(self, keys: SessionKeys, position: int) -> tuple[Redacted, SessionKeys]:
        """Return the redaction to apply, and the keys of the log that has the message; else raise `NotFoundError`."""
        commit = self._log.commits.find_holding(keys, position)
        if commit is None or position > (commit.until or commit.header.last):
            raise _no_message(position)
        home = keys.home(commit.home)
        item = get_item(self._items, home.commit(commit.header.first))
        if item is None:
            raise _no_message(position)
        line = stored_lines(item)[position - commit.header.first]
        (event,) = self._log.commits.whole(keys, [(commit, position)])
        if not isinstance(event, MessageEvent):
            raise _no_message(position)
        if event.redacted:
            return Redacted(position, line_digest(line), line, is_done=True), home
        return Redacted(position, line_digest(line), redacted_message(line, *_neutral_body(event))), home

    def family(self, keys: SessionKeys, home: SessionKeys, position: int) -> list[SessionKeys]:
        """Return the sessions that have or may have the message: the one that stores it, and all its forks."""
        sessions = dict[str, SessionKeys]()
        waiting = [SessionKeys(home.owner, home.session_id)]
        if home.is_base:
            # The session that the fork began from is erased or expired, and may have full snapshots.
            begin = self._log.commits.begin(waiting[0])
            parent = begin.lines[0].get("of") if begin is not None else None
            waiting += [SessionKeys(home.owner, parent)] if isinstance(parent, str) else []
        while waiting:
            current = waiting.pop()
            if current.session_id in sessions:
                continue
            sessions[current.session_id] = current
            waiting += [child for child in self._forks.forks_of(current) if self._may_share(child, position)]
        sessions.setdefault(keys.session_id, keys)
        return [sessions[session_id] for session_id in sorted(sessions)]

    def overwrite(self, keys: SessionKeys, redacted: Redacted, *, alone: bool = False) -> int:
        """Overwrite the message, and every summary of it, in one log; return the number of commits. ``alone``: no summary."""
        high = commit_sort_key(redacted.position if alone else redacted.noted)
        items = self._commits(keys, commit_sort_key(max(1, redacted.position - MAX_EVENTS + 1)), high)
        return sum(self._overwrite_item(item, redacted) for item in items)

    def clear(self, keys: SessionKeys, redacted: Redacted) -> JsonObject:
        """Erase everything in one session that was made of the message; return counts. Nothing of it is left there."""
        commits = 0
        if self.has(keys, redacted):
            # After an erasure of the parent has copied the text, later summaries may have it too.
            commits = self.overwrite(keys.base, redacted, alone=True)
            if redacted.is_done and not commits:
                redacted = replace(redacted, noted=self.noted_at(keys, redacted))
            commits += self.overwrite(keys, redacted) + self.overwrite(keys.base, redacted)
            self._clear_cached_summary(keys, redacted)
        self._items.delete_many([keys.words])
        parts, blobs = self._parts.replace(keys, redacted)
        for place in self._places(keys, redacted):
            blobs += self._delete_payload(keys, place)
        answers = answers_prefix(keys.owner, keys.session_id)
        for name in (export_blob(keys.owner, keys.session_id), export_blob(keys.owner, ""), answers):
            blobs += self._blobs.erase(name)
        return {"commits": commits, "parts": parts, "blobs": blobs, "memories": 0}

    # ------------------------------------------------------------ the log

    def _overwrite_item(self, item: Item, redacted: Redacted) -> int:
        """Overwrite the message in one item; return 1 if the item changed, else 0."""
        while not is_slot_tombstone(item):
            first, lines = first_position(item), stored_lines(item)
            new_lines = redacted.redact_lines(lines, first)
            if new_lines == lines:
                return 0
            lost = self._items.put(with_lines(item, new_lines), condition=Equal("b", item["b"]))
            VERIFIED.forget(item)
            if lost is None:
                return 1
            if lost.existing is None:
                return 0
            item = lost.existing
        return 0

    def has(self, keys: SessionKeys, redacted: Redacted) -> bool:
        """Return whether the message is in the session's log, as far as the log can still be read."""
        with suppress(NotFoundError):
            if (commit := self._log.commits.find_holding(keys, redacted.position)) is None:
                return False
            item = get_item(self._items, keys.home(commit.home).commit(commit.header.first))
            if item is not None and not is_slot_tombstone(item):
                return line_digest(stored_lines(item)[redacted.position - commit.header.first]) == redacted.digest
        return False

    def noted_at(self, keys: SessionKeys, redacted: Redacted) -> int:
        """Return the position of the redaction's entry in a log; `MAX_POSITION` without one."""
        pages, stamp = self._log.commits.stored.on(keys, redacted.position), _request(redacted).stamp
        entries = (item for items in pages for item in items if item.get("ik") == stamp)
        return next(map(first_position, entries), MAX_POSITION)

    def _clear_cached_summary(self, keys: SessionKeys, redacted: Redacted) -> None:
        while (item := self._log.caches.read(keys.summary)) is not None:
            line = unpack(attribute(item, "b", bytes), item=item_name(item))
            (new_line,) = redacted.redact_lines([line], reflected_position(item))
            new_item = {**item, "b": pack(new_line)}
            if new_line == line or self._items.put(new_item, condition=Equal("b", item["b"])) is None:
                return

    def _places(self, keys: SessionKeys, redacted: Redacted) -> list[str]:
        """Return the places of payloads that held redacted text."""
        places = {place_left(redacted.line)}
        for log_keys in (keys, keys.base):
            for item in self._commits(log_keys, commit_sort_key(redacted.position), commit_sort_key(redacted.noted)):
                if item.get("k") == "y":
                    places.update(map(place_left, stored_lines(item)))
        return sorted(places - {""})

    def _delete_payload(self, keys: SessionKeys, place: str) -> int:
        if place.startswith(BLOB_PLACE):
            return sum(self._blobs.erase(log_keys.payload_blob(place)) for log_keys in (keys, keys.base))
        self._items.delete_many([Key(log_keys.partition, place) for log_keys in (keys, keys.base)])
        return 0

    # ------------------------------------------------------------ forks

    def is_shared(self, child: SessionKeys, position: int) -> bool:
        """Return whether a fork has a redacted message of its parent; False when the fork can't be read."""
        with suppress(NotFoundError, CorruptError):
            return self._may_share(child, position) and self.find(child, position)[0].is_done
        return False

    def _may_share(self, child: SessionKeys, position: int) -> bool:
        """Return whether a fork has or may have a position of its parent's log."""
        item = get_item(self._items, child.commit(1))
        if item is None:
            return False
        return is_slot_tombstone(item) or ("fp" in item and first_position(item) > position)

    def _commits(self, keys: SessionKeys, low: str, high: str) -> Iterator[Item]:
        """Yield the session's own commits."""
        for items in pages(self._items, Query(keys.partition, low, high)):
            yield from (item for item in items if not is_slot_tombstone(item) and "fp" not in item)


def _neutral_body(event: MessageEvent) -> tuple[str, JsonObject]:
    """Return format and body of an emptied message, in its own format where that has one body for it."""
    if event.body is None:
        raise CorruptError("a message without body", item=commit_sort_key(event.position))
    message = neutral(codec_of(event.format).parse(event.body, is_error=event.envelope.is_error))
    turn = Turn.with_own_ids(message)
    for format in (event.format, "turnlog"):
        bodies = codec_of(format).bodies(turn)
        if len(bodies) == 1 and _is_same(codec_of(format).parse(bodies[0]), message):
            return format, bodies[0]
    return event.format, {"role": message.given_role or message.role, "content": None}


def _is_same(parsed: Message, message: Message) -> bool:
    """Return whether both messages have the same role, calls and results, as windows see them."""
    calls, message_calls = ([(call.id, call.name) for call in each.tool_calls] for each in (parsed, message))
    results, message_results = ([result.tool_call_id for result in each.tool_results] for each in (parsed, message))
    return (parsed.role, calls, results) == (message.role, message_calls, message_results)


def _request(redacted: Redacted) -> RequestKey:
    """Return the key of the redaction's entry."""
    key = f"turnlog redact {redacted.position} {redacted.digest.hex()}"
    return RequestKey(short_hash(key), short_hash("redact{}"))


def _no_message(position: int) -> NotFoundError:
    return NotFoundError(f"no message at position {position}", code="no_message")


@lazy_dataclass(frozen=True, slots=True)
class RedactMessages:
    """Use case: redact a message. The receipt says how far the erasing of everything made of it is."""

    log: SessionLog
    redaction: Redaction
    erasure: Erasure
    start_job: StartJobs
    copies: OffloadCopies
    memories: Sequence[MemoryEngine]
    facts: MemoryEngine
    segments: Segments

    def __call__(self, owner: Owner, session_id: str, position: int, *, key: str | None = None) -> Job:
        """Erase the facts of the message, start the job, and overwrite the message.

        The job is queued first: after a crash in between, the worker overwrites.
        """
        keys = SessionKeys(owner, session_id)
        request = raw_request_key(key, f"redact {session_id}", {"position": position})
        self.log.commits.tail(keys)
        redacted, home = self.redaction.find(keys, position)
        is_noted, erased = redacted.is_done, 0
        with suppress(CorruptError):  # of a damaged memory, which the job reports
            for session in {keys, home}:  # a fork has no facts of what it shares
                erased += self.facts.erase(owner, session.session_id, position=position)
        options: JsonObject = {"first": self.erasure.identity(keys), "home": home.session_id}
        options |= {"position": position, "told": is_noted, "counts": {**_COUNTS, "memories": erased}}
        job = self.start_job(owner, "redact", session_id, options, request)
        self.redaction.overwrite(home, redacted, alone=True)
        if not is_noted:
            family = sorted(self.redaction.family(keys, home, position), key=lambda member: member not in (keys, home))
            self._note_all(family[:NOTED_SESSIONS], redacted)
        return job

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        """Do a part of the job's work; return the receipt after the second pass.

        Sessions that share the message are cleared one after the other, in the order of their ids.
        """
        keys, now = SessionKeys(owner, session_id), self.log.clock.now_ms()
        counts = cast("JsonObject", options.get("counts", _COUNTS))
        if (early := until_due(self.erasure, options, receipt("redacting", counts), now)) is not None:
            return early
        place = self._find(keys, options)
        if place is None:
            return receipt("gone", counts)
        redacted, home = place
        position, after = redacted.position, cast("str", options.get("after", ""))
        self.redaction.overwrite(home, redacted, alone=True)
        family = self.redaction.family(keys, home, position)
        if not options["told"]:
            noted_at = self.redaction.noted_at
            self._note_all([member for member in family if noted_at(member, redacted) == MAX_POSITION], redacted)
        for member in family:
            if member.session_id <= after:
                continue
            counts = plus(counts, self._clear(member, redacted))
            if member is not family[-1] and self.log.clock.now_ms() - now >= WORK_MS:
                return Later(receipt("redacting", counts), {**options, "counts": counts, "after": member.session_id})
        if "not_before" in options:
            purge_after_last_pass(self.erasure, options, counts)
            return receipt("redacted", counts)
        first = {name: value for name, value in options.items() if name != "after"}
        return second_pass(self.erasure, "redacting", first, counts, now)

    def _find(self, keys: SessionKeys, options: JsonObject) -> tuple[Redacted, SessionKeys] | None:
        """Return the message and the keys of the log that has it; None when neither the session nor its parent has it.

        When a fork is erased, its parent has the message still, redacted by the request.
        """
        if "position" not in options:
            return None  # earlier versions emptied the options when the session was erased
        position = cast("int", options["position"])
        if self.erasure.identity(keys) == options["first"]:
            with suppress(NotFoundError):
                return self.redaction.find(keys, position)
        parent_id = cast("str", options.get("home", keys.session_id))
        if parent_id != keys.session_id:
            with suppress(NotFoundError):
                redacted, home = self.redaction.find(SessionKeys(keys.owner, parent_id), position)
                return (redacted, home) if redacted.is_done else None
        return None

    def _clear(self, keys: SessionKeys, redacted: Redacted) -> JsonObject:
        """Erase everything made of the message in one session, with copies and memories; return the counts."""
        done = plus(self.redaction.clear(keys, redacted), {"blobs": self.copies.renew(keys)})
        erased = [engine.erase(keys.owner, keys.session_id, position=redacted.position) for engine in self.memories]
        return plus(done, {"memories": sum(erased)})

    def _note_all(self, family: Sequence[SessionKeys], redacted: Redacted) -> None:
        for member in family:
            with suppress(NotFoundError):
                self._note(member, redacted)

    def _note(self, keys: SessionKeys, redacted: Redacted) -> None:
        """Add the redaction to a session's history, and mark the segment that has the message.

        The new header drops a summary that covers the message. A summary that is being made of the old text can't be
        published afterwards.
        """
        if not self.redaction.has(keys, redacted):
            return
        position = redacted.position
        self.segments.mark_redacted(keys, position)

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            new = following(header, kind="h", events=1, now_ms=self.log.clock.now_ms())
            new = replace(new, redacted=new.first, idle_ms=header.idle_ms)
            if header.summary is not None and header.summary.last >= position:
                new = replace(new, summary=None, asked=None)
            return Draft(new, (NoteEvent(new.first, REDACT, None, {"position": position}),))

        written = self.log.commits.write(keys, compose, _request(redacted))
        if not written.repeated:
            self.log.refresh_listing(keys, written.tail, written.commit.header)
