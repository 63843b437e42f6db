"""Asking for a summary when an append crosses the trigger of its session's policy. No model is called, nothing waits.

The commit says in its header that it asks; then the job is sent, with ids only. Ended in between, a later append asks again.
Segments are asked for likewise, by position: whatever was asked for and got lost, the next job of the session does too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from turnlog.contracts.summaries import CompressSession
from turnlog.domain.compression import Asked
from turnlog.domain.errors import UnavailableError
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import encode_json
from turnlog.domain.segments import completes_stretch
from turnlog.domain.session import Settings
from turnlog.log.attempts import read_attempts
from turnlog.log.headers import Header, short_hash
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.log.totals import totals_since_summary
from turnlog.services.budgets import room_of
from turnlog.services.idempotency import raw_request_key
from turnlog.services.jobs import StartJobs
from turnlog.windows.policy import policy_of
from turnlog.windows.reach import KEEP_LOOPS
from turnlog.windows.triggers import Trigger, is_crossed

Compression: TypeAlias = Literal["none", "queued", "off"]
_OPTIONS = CompressSession()


class AskForSummaries:
    """Decides for each append, from its own header alone, and sends the job of the one that asks."""

    def __init__(self, log: SessionLog, start_job: StartJobs, models: Mapping[str, int] | None = None) -> None:
        self._log = log
        self._start_job = start_job
        self._models = models

    def asked(self, header: Header, settings: Settings) -> Asked | None:
        """What the header of a commit that is about to be written says of requests."""
        trigger = trigger_of(settings)
        loop = header.flow.loop.number
        if trigger is None or (header.asked and not header.asked.allows_another(loop=loop, now_ms=header.time_ms)):
            return header.asked
        totals = totals_since_summary(header)
        if totals.past.loops <= KEEP_LOOPS or not is_crossed(trigger, totals, room_of(header, settings, self._models)):
            return header.asked
        return Asked(loop, header.time_ms)

    def send(self, owner: Owner, session_id: str, header: Header, settings: Settings) -> Compression:
        """After the commit is durable. Again for the same commit: nothing new. An outage is left to a later append."""
        asked = header.asked
        if trigger_of(settings) is None:
            return "off"
        if asked is None or asked.time_ms != header.time_ms:
            return "none"
        key = raw_request_key(f"turnlog asked {session_id} {header.first}", "asked", {})
        with suppress(UnavailableError):
            if read_attempts(self._log.items, SessionKeys(owner, session_id)).is_off(asked.loop):
                return "off"
            self._start_job(owner, "compress", session_id, _OPTIONS.model_dump(exclude={"mode"}), key)
        return "queued"


class AskForSegments:
    """Sends the job of the append that completes a stretch of the log, or comes first after the commit that did."""

    def __init__(self, start_job: StartJobs) -> None:
        self._start_job = start_job

    def send(self, owner: Owner, session_id: str, header: Header, before: Header) -> None:
        """After the commit is durable. Again for the same commit: the same job. An outage is left to the next stretch."""
        first = header.first
        if before.last + 1 == first and before.kind != header.kind:
            # State changes and summaries ask for nothing themselves.
            first = before.first
        if not completes_stretch(first, header.last):
            return
        job_id = f"{header.time_ms:013d}-{short_hash(f'seal {session_id} {header.first}').hex()}"
        with suppress(UnavailableError):
            self._start_job(owner, "seal", session_id, {}, job_id=job_id)


def trigger_of(settings: Settings) -> Trigger | None:
    """When sessions with these settings ask. Of a long policy META has the trigger alone, so nothing else is read of it."""
    policy: Any = settings.policy
    if isinstance(policy, str):
        return policy_of(policy).compress
    found = policy.get("compress")
    return Trigger.model_validate_json(encode_json(found)) if found is not None else None


def answered(header: Header) -> Asked | None:
    """What the header of a summary's commit says of requests: the cool-down begins."""
    loop = header.flow.loop.number
    return replace(header.asked, loop=loop, is_answered=True) if header.asked else Asked(loop, header.time_ms, True)
