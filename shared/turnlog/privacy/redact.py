"""Redacting a message: from the answer on nobody reads it; a job removes what was made of it, and looks again later."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import cast

from turnlog.core import actions
from turnlog.core.errors import NotFoundError
from turnlog.core.events import NoteEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.jobs.models import Job
from turnlog.jobs.worker import Later, StartJobs
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import following
from turnlog.log.idempotency import raw_request_key
from turnlog.log.keys import SessionKeys
from turnlog.log.redacted_lines import Redacted
from turnlog.memory.hand_over import OffloadCopies
from turnlog.ports import MemoryEngine
from turnlog.privacy.erase_session import SECOND_PASS_SECONDS, WORK_MS, due_options, mark_of, purge_mark, receipt
from turnlog.privacy.erasure import Erasure
from turnlog.privacy.redaction import Counts, Redaction
from turnlog.sessions.session_log import SessionLog


class RedactMessages:
    """The use case: the message says nothing any more, and the receipt says how far the rest is."""

    def __init__(
        self,
        log: SessionLog,
        redaction: Redaction,
        erasure: Erasure,
        start_job: StartJobs,
        copies: OffloadCopies,
        memories: Sequence[MemoryEngine],
    ) -> None:
        self._log = log
        self._redaction = redaction
        self._erasure = erasure
        self._start_job = start_job
        self._copies = copies
        self._memories = memories

    def __call__(self, owner: Owner, session_id: str, position: int, *, key: str | None = None) -> Job:
        """The job. It is in the queue before the message is overwritten: ended in between, the worker overwrites it."""
        keys = SessionKeys(owner, session_id)
        request = raw_request_key(key, f"redact {session_id}", {"position": position})
        self._log.commits.tail(keys)
        redacted, home = self._redaction.find(keys, position)
        is_told = redacted.is_done
        options: JsonObject = {"first": self._erasure.identity(keys), "position": position, "told": is_told}
        job = self._start_job(owner, "redact", session_id, options, request)
        self._redaction.overwrite(home, redacted, alone=True)
        if not is_told:
            self._tell(keys, redacted)
        return job

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        """A part of a job's work; the receipt at the end of the second pass. Sessions one after the other, by their ids."""
        keys, now = SessionKeys(owner, session_id), self._log.clock.now_ms()
        counts = cast("JsonObject", options.get("counts", asdict(Counts())))
        wait_ms = cast("int", options.get("not_before", 0)) - now
        if wait_ms > 0:
            return Later(receipt("redacting", counts), options, -(-wait_ms // 1000))
        position, after = cast("int", options["position"]), cast("str", options.get("after", ""))
        try:
            if self._erasure.identity(keys) != options["first"]:
                return receipt("gone", counts)
            redacted, home = self._redaction.find(keys, position)
        except NotFoundError:
            return receipt("gone", counts)
        self._redaction.overwrite(home, redacted, alone=True)
        family = self._redaction.family(keys, home, position)
        for one in family if not ("not_before" in options or options["told"]) else ():
            with suppress(NotFoundError):
                self._tell(one, redacted)
        for one in family:
            if one.session_id <= after:
                continue
            done = asdict(self._clear(one, redacted))
            counts = {name: cast("int", counts.get(name, 0)) + count for name, count in done.items()}
            if one is not family[-1] and self._log.clock.now_ms() - now >= WORK_MS:
                return Later(receipt("redacting", counts), {**options, "counts": counts, "after": one.session_id})
        if "not_before" in options:
            self._erasure.purging.after_last_pass(mark_of(options, counts))
            return receipt("redacted", counts)
        first = {name: value for name, value in options.items() if name != "after"}
        first["purge"] = purge_mark(self._erasure, counts)
        return Later(receipt("redacting", counts), due_options(first, counts, now), SECOND_PASS_SECONDS)

    def _clear(self, keys: SessionKeys, redacted: Redacted) -> Counts:
        """What was made of the message in one session, and what was handed over of it."""
        done = self._redaction.clear(keys, redacted)
        blobs = self._copies.renew(keys)
        known = sum(engine.erase(keys.owner, keys.session_id, position=redacted.position) for engine in self._memories)
        return done.plus(Counts(blobs=blobs, memories=known))

    def _tell(self, keys: SessionKeys, redacted: Redacted) -> None:
        """The entry in a session's history. No summary that covers the message is in force behind it, and none that is being made
        of what was read before can be published."""
        if not self._redaction.has(keys, redacted):
            return
        position = redacted.position
        request = raw_request_key(f"turnlog redact {position} {redacted.digest.hex()}", "redact", {})

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            new = following(header, kind="h", events=1, now_ms=self._log.clock.now_ms())
            new = replace(new, redacted=new.first, idle_ms=header.idle_ms)
            if header.summary is not None and header.summary.last >= position:
                new = replace(new, summary=None, asked=None)
            return Draft(new, (NoteEvent(new.first, actions.REDACT, None, {"position": position}),))

        written = self._log.commits.write(keys, compose, request)
        if not written.repeated:
            self._log.touch(keys, written.tail, written.commit.header)
