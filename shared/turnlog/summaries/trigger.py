"""Asking for a summary when an append crosses the trigger of its session's policy. No model is called, nothing waits.

The commit says in its header that it asks; then the job is sent, with ids only. Ended in between, a later append asks again.
Segments are asked for likewise, by position: whatever was asked for and got lost, the next job of the session does too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from turnlog.core.errors import UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import completes_stretch
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import CompressionRequest
from turnlog.jobs.worker import StartJobs
from turnlog.log.headers import Header, short_hash
from turnlog.log.idempotency import raw_request_key
from turnlog.log.keys import SessionKeys
from turnlog.ports import Item, ItemTable
from turnlog.sessions.context_requests import room_of
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.models import CompressSession
from turnlog.windows.digest_steps import Crossing, Loops
from turnlog.windows.keep_newest import Recent
from turnlog.windows.policy import Policy, policy_of
from turnlog.windows.steps import Room
from turnlog.windows.triggers import Counted, Totals, Trigger, any_crossed, is_crossed


def totals_since_summary(header: Header) -> Totals:
    """The totals at a header. Messages before the first loop count as everything, never as past."""
    flow, summary = header.flow, header.summary
    past_loops = max(0, flow.loop.number - 1)
    if summary is None:
        return Totals(
            Counted(past_loops, flow.messages, flow.tokens),
            Counted(past_loops, flow.closed.messages, flow.closed.tokens),
        )
    # A summary covers from the beginning on: messages before the first loop are among what it covers.
    closed_messages, closed_tokens = flow.lead.messages + flow.closed.messages, flow.lead.tokens + flow.closed.tokens
    loops = past_loops - summary.loop
    return Totals(
        Counted(loops, flow.messages - summary.messages, flow.tokens - summary.tokens),
        Counted(loops, max(0, closed_messages - summary.messages), max(0, closed_tokens - summary.tokens)),
    )


MAX_FAILURES, MAX_USELESS = 3, 2
REST_LOOPS = 10
"""After useless attempts a session is left alone until it has so many loops more."""


@lazy_dataclass(frozen=True, slots=True)
class Attempts:
    """``failures``: what trying again can't mend; ``useless``: nothing to cover, or nothing saved. ``loop``: the open loop then."""

    failures: int = 0
    useless: int = 0
    loop: int = 0

    def is_off(self, loop: int) -> bool:
        """Whether an append to this loop leaves the session alone."""
        if self.failures >= MAX_FAILURES:
            return True
        return self.useless >= MAX_USELESS and loop < self.loop + REST_LOOPS

    def failed(self, loop: int) -> Attempts:
        return replace(self, failures=self.failures + 1, loop=loop)

    def saved_nothing(self, loop: int) -> Attempts:
        return replace(self, useless=self.useless + 1, loop=loop)


def read_attempts(items: ItemTable, keys: SessionKeys) -> Attempts:
    """The attempts since the newest summary, in one request."""
    item = items.get_many([keys.attempts]).get(keys.attempts)
    return Attempts(_int(item, "f"), _int(item, "u"), _int(item, "lo")) if item is not None else Attempts()


def write_attempts(items: ItemTable, keys: SessionKeys, attempts: Attempts) -> None:
    """Two workers at once may lose a count: the session is tried once more then."""
    key = keys.attempts
    items.put(
        {"pk": key.pk, "sk": key.sk, "f": attempts.failures, "u": attempts.useless, "lo": attempts.loop},
        condition=None,
    )


def _int(item: Item, name: str) -> int:
    value = item.get(name)
    return value if isinstance(value, int) else 0


KEEP_LOOPS = 2
"""So many closed loops no summary covers, unless a caller says otherwise."""


@lazy_dataclass(frozen=True, slots=True)
class Reach:
    """Of a policy's windows at a position: ``past`` is all that closed loops have, with ``lead``, which stands before the first
    loop; ``total`` is the log's running total of tokens, ``summary`` what the summary may take in the window."""

    policy: Policy
    room: Room
    lead: Counted
    past: Counted
    total: int
    summary: int

    @property
    def keep_loops(self) -> int:
        """The newest closed loops that no summary covers."""
        whole = [step.whole for step in self.policy.steps if isinstance(step, Loops)]
        return max([KEEP_LOOPS, *whole])

    @property
    def is_endless(self) -> bool:
        """Whether the windows show all that was ever said, so that there is no border to end at yet."""
        return not self.covers(1, self.lead.messages, self.lead.tokens)

    def covers(self, loop: int, messages: int, tokens: int) -> bool:
        """Whether a closed loop is for the summary, with so much of the log before it. Where no step says so, every one is."""
        said = [
            self._says(step, loop, messages, tokens)
            for step in self.policy.steps
            if isinstance(step, Crossing | Recent)
        ]
        return not said or any(said)

    def _says(self, step: Crossing | Recent, loop: int, messages: int, tokens: int) -> bool:
        if isinstance(step, Crossing):
            return tokens < step.border(self.total, self.room, self.summary)
        # From this loop on: whether it is more than what stays, or would be left out of again.
        rest = Counted(self.past.loops - loop + 1, self.past.messages - messages, self.past.tokens - tokens)
        is_over = (step.messages is not None and rest.messages > step.messages) or (
            step.tokens is not None and rest.tokens > step.tokens
        )
        return is_over or (step.once is not None and any_crossed(step.once, rest, budget=self.room.tokens))


Compression: TypeAlias = Literal["none", "queued", "off"]
_OPTIONS = CompressSession()


class AskForSummaries:
    """Decides for each append, from its own header alone, and sends the job of the one that asks."""

    def __init__(self, log: SessionLog, start_job: StartJobs, models: Mapping[str, int] | None = None) -> None:
        self._log = log
        self._start_job = start_job
        self._models = models

    def asked(self, header: Header, settings: SessionSettings) -> CompressionRequest | None:
        """What the header of a commit that is about to be written says of requests."""
        trigger = trigger_of(settings)
        loop = header.flow.loop.number
        if trigger is None or (header.asked and not header.asked.allows_another(loop=loop, now_ms=header.time_ms)):
            return header.asked
        totals = totals_since_summary(header)
        if totals.past.loops <= KEEP_LOOPS or not is_crossed(trigger, totals, room_of(header, settings, self._models)):
            return header.asked
        return CompressionRequest(loop, header.time_ms)

    def send(self, owner: Owner, session_id: str, header: Header, settings: SessionSettings) -> Compression:
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


def trigger_of(settings: SessionSettings) -> Trigger | None:
    """When sessions with these settings ask. Of a long policy META has the trigger alone, so nothing else is read of it."""
    policy: Any = settings.policy
    if isinstance(policy, str):
        return policy_of(policy).compress
    found = policy.get("compress")
    return Trigger.model_validate_json(encode_json(found)) if found is not None else None


def answered(header: Header) -> CompressionRequest | None:
    """What the header of a summary's commit says of requests: the cool-down begins."""
    loop = header.flow.loop.number
    return (
        replace(header.asked, loop=loop, is_answered=True)
        if header.asked
        else CompressionRequest(loop, header.time_ms, True)
    )
