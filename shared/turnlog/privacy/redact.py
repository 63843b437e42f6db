"""Redact a message: nobody can read it once the request is answered; a job erases everything made of it, and checks again later."""

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
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import following
from turnlog.log.keys import SessionKeys
from turnlog.log.lines import Redacted
from turnlog.log.request_keys import raw_request_key
from turnlog.memory.hand_over import OffloadCopies
from turnlog.ports import MemoryEngine
from turnlog.privacy.erase_session import SECOND_PASS_SECONDS, WORK_MS, due_options, mark_of, purge_mark, receipt
from turnlog.privacy.erasure import Erasure
from turnlog.privacy.redaction import Counts, Redaction
from turnlog.sessions.session_log import SessionLog


class RedactMessages:
    """Redact a message. The receipt says how far the erasing of everything made of it is."""

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
        """Start the job and overwrite the message. The job is queued first: after a crash in between, the worker overwrites."""
        keys = SessionKeys(owner, session_id)
        request = raw_request_key(key, f"redact {session_id}", {"position": position})
        self._log.commits.tail(keys)
        redacted, home = self._redaction.find(keys, position)
        is_noted = redacted.is_done
        options: JsonObject = {"first": self._erasure.identity(keys), "position": position, "told": is_noted}
        job = self._start_job(owner, "redact", session_id, options, request)
        self._redaction.overwrite(home, redacted, alone=True)
        if not is_noted:
            self._note(keys, redacted)
        return job

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        """Do a part of the job's work; return the receipt after the second pass.

        Sessions that share the message are cleared one after the other, in the order of their ids.
        """
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
        for member in family if not ("not_before" in options or options["told"]) else ():
            with suppress(NotFoundError):
                self._note(member, redacted)
        for member in family:
            if member.session_id <= after:
                continue
            done = asdict(self._clear(member, redacted))
            counts = {name: cast("int", counts.get(name, 0)) + count for name, count in done.items()}
            if member is not family[-1] and self._log.clock.now_ms() - now >= WORK_MS:
                return Later(receipt("redacting", counts), {**options, "counts": counts, "after": member.session_id})
        if "not_before" in options:
            self._erasure.purging.after_last_pass(mark_of(options, counts))
            return receipt("redacted", counts)
        first = {name: value for name, value in options.items() if name != "after"}
        first["purge"] = purge_mark(self._erasure, counts)
        return Later(receipt("redacting", counts), due_options(first, counts, now), SECOND_PASS_SECONDS)

    def _clear(self, keys: SessionKeys, redacted: Redacted) -> Counts:
        """Erase everything made of the message in one session, with copies and memories; return the counts."""
        done = self._redaction.clear(keys, redacted)
        blobs = self._copies.renew(keys)
        memories = sum(
            engine.erase(keys.owner, keys.session_id, position=redacted.position) for engine in self._memories
        )
        return done.plus(Counts(blobs=blobs, memories=memories))

    def _note(self, keys: SessionKeys, redacted: Redacted) -> None:
        """Add the redaction to a session's history.

        The new header drops a summary that covers the message. A summary that is being made of the old text can't be
        published afterwards.
        """
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
            self._log.refresh_listing(keys, written.tail, written.commit.header)
