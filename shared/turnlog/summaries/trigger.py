"""Request a summary when an append crosses the trigger of its session's policy. No model is called, and the append does not wait.

The commit's header records the request; then its job is started. A session has one such job at a time; if the process ends
before it is started, a later append requests again. Segments are requested likewise: the session's next job covers a lost one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from turnlog.core.errors import UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.loops import Amount, Flow
from turnlog.core.positions import completes_stretch
from turnlog.core.session_settings import DEFAULT_OUTPUT_RESERVE, SessionSettings
from turnlog.core.summaries import CompressionRequest
from turnlog.jobs.worker import StartJobs
from turnlog.log.headers import Header, short_hash
from turnlog.ports import Equal, Item, ItemTable
from turnlog.sessions.message_models import Compression
from turnlog.summaries.routes import CompressSession
from turnlog.windows.budgets import budget_for
from turnlog.windows.policy import Policy, stored_policy
from turnlog.windows.steps import DigestWhenFull, Loops, Recent
from turnlog.windows.triggers import Counted, Totals, Trigger, any_crossed, is_crossed
from turnlog.windows.view import Room


def totals_since_summary(header: Header) -> Totals:
    """Return the loops, messages and tokens that no summary covers: in total, in closed loops, and in the open loop.

    Messages before the first loop count in total only.
    """
    flow, summary = header.flow, header.summary
    loops = max(0, flow.loop.number - 1) - (summary.loop if summary is not None else 0)
    lead = flow.lead if flow.loop.number else Amount(flow.messages, flow.tokens)
    closed = Amount(lead.messages + flow.closed.messages, lead.tokens + flow.closed.tokens)
    # A summary covers the log from its beginning: also the messages before the first loop.
    covered = Amount(summary.messages, summary.tokens) if summary is not None else lead
    border = Amount(max(covered.messages, closed.messages), max(covered.tokens, closed.tokens))
    everything = (flow.messages, flow.tokens) if summary is None else _behind(covered, flow)
    return Totals(
        Counted(loops, *everything), Counted(loops, *_behind(covered, border)), Counted(0, *_behind(border, flow))
    )


def room_of(header: Header, settings: SessionSettings, models: Mapping[str, int] | None) -> Room:
    """Return the budget of a session's windows by default, and the part of it that system text, tools and summary take.

    Both are in our tokens.
    """
    reserve = settings.output_reserve if settings.output_reserve is not None else DEFAULT_OUTPUT_RESERVE
    budget = budget_for(budget=None, model=settings.model, output_reserve=reserve, own=models)
    summary = header.summary.own_tokens if header.summary is not None else 0
    fixed = settings.system_tokens + settings.tools_tokens + summary
    return Room(int(budget.tokens / header.calibration.factor), fixed)


def _behind(before: Amount, after: Amount | Flow) -> tuple[int, int]:
    return after.messages - before.messages, after.tokens - before.tokens


_ATTEMPTS = "tr"
MAX_FAILURES, MAX_USELESS = 3, 2
REST_LOOPS = 10
"""After `MAX_USELESS` useless attempts, the number of further loops before a session's appends request a summary again."""


@lazy_dataclass(frozen=True, slots=True)
class Attempts:
    """The failed and useless attempts to summarise a session since its newest summary.

    ``failures`` counts attempts that failed for good. ``useless`` counts attempts whose summary would not have been smaller.
    ``loop`` is the loop that was open at the last attempt. ``ended_ms`` is the newest request whose job ended without a summary.
    """

    failures: int = 0
    useless: int = 0
    loop: int = 0
    ended_ms: int = 0

    def is_off(self, loop: int) -> bool:
        """Return whether an append to this loop must not start a job."""
        if self.failures >= MAX_FAILURES:
            return True
        return self.useless >= MAX_USELESS and loop < self.loop + REST_LOOPS

    def failed(self, loop: int) -> Attempts:
        """Return the attempts with another failure."""
        return replace(self, failures=self.failures + 1, loop=loop)

    def saved_nothing(self, loop: int) -> Attempts:
        """Return the attempts with another useless one."""
        return replace(self, useless=self.useless + 1, loop=loop)


def read_attempts(meta: Item | None) -> Attempts:
    """Return the attempts since the newest summary and the newest change of settings. ``meta`` is the item ``D#META``."""
    text = meta.get(_ATTEMPTS, "") if meta is not None else ""
    numbers = text.split() if isinstance(text, str) else []
    return Attempts(*map(int, numbers)) if len(numbers) == 4 and all(map(str.isdecimal, numbers)) else Attempts()


def write_attempts(items: ItemTable, meta: Item, attempts: Attempts) -> None:
    """Store the attempts in ``D#META``, which each append reads.

    Of two workers at once one may lose its count, and a change of settings drops it; the session then gets more attempts.
    """
    text = f"{attempts.failures} {attempts.useless} {attempts.loop} {attempts.ended_ms}"
    items.put({**meta, _ATTEMPTS: text}, condition=Equal("pos", meta["pos"]))


KEEP_LOOPS = 2
"""Number of newest closed loops that no summary covers, unless the caller says otherwise."""


@lazy_dataclass(frozen=True, slots=True)
class Reach:
    """The reach of a summary by a policy at a position: up to the loops that the policy's windows show in full.

    ``lead`` counts the messages before the first loop; ``past`` counts ``lead`` and all closed loops. ``total`` is the log's
    running total of tokens; ``summary`` is the number of tokens that the summary may take in a window.
    """

    policy: Policy
    room: Room
    lead: Counted
    past: Counted
    total: int
    summary: int

    @property
    def steps_border(self) -> float:
        """The running total before which a summary covers steps of the open loop; 0 while that loop is shown in full."""
        border = self.policy.when_full.steps_border(self.total, self.room, self.summary)
        return border if border > self.past.tokens else 0

    @property
    def keep_loops(self) -> int:
        """The number of newest closed loops that no summary covers."""
        shown = [step.whole for step in self.policy.steps if isinstance(step, Loops)]
        return max([KEEP_LOOPS, *shown])

    @property
    def is_endless(self) -> bool:
        """Whether the windows still show the whole log, so that no loop is left for a summary."""
        return not self.covers(1, self.lead.messages, self.lead.tokens)

    def covers(self, loop: int, messages: int, tokens: int) -> bool:
        """Return whether a summary covers a closed loop that has ``messages`` and ``tokens`` of the log before it.

        Without a step that limits it, a summary covers every closed loop; so it does when it covers steps of the open one.
        """
        if tokens < self.steps_border:
            return True
        answers = [
            self._leaves_out(step, loop, messages, tokens)
            for step in self.policy.steps
            if isinstance(step, DigestWhenFull | Recent)
        ]
        return not answers or any(answers)

    def _leaves_out(self, step: DigestWhenFull | Recent, loop: int, messages: int, tokens: int) -> bool:
        if isinstance(step, DigestWhenFull):
            return tokens < step.summary_border(self.total, self.room, self.summary)
        # The closed loops from this one on: do they exceed what the step keeps, or the size at which it cuts again?
        rest = Counted(self.past.loops - loop + 1, self.past.messages - messages, self.past.tokens - tokens)
        is_over = (step.messages is not None and rest.messages > step.messages) or (
            step.tokens is not None and rest.tokens > step.tokens
        )
        return is_over or (step.once is not None and any_crossed(step.once, rest, budget=self.room.tokens))


class SummaryTrigger:
    """The trigger of a session's summaries, and the attempts to make one since the newest: what decides at each append.

    ``trigger`` is None when the policy has none, and when a loop's attempts have turned summaries off.
    """

    def __init__(
        self, settings: SessionSettings, meta: Item | None, loop: int, models: Mapping[str, int] | None = None
    ) -> None:
        """Read the attempts from ``meta``, the item ``D#META``. Of a long policy, ``settings`` have only the trigger.

        ``models`` adds to the table of models and their contexts.
        """
        self.settings = settings
        self._models = models
        self.attempts = read_attempts(meta)
        self.trigger: Trigger | None = None
        policy: Any = settings.policy
        if self.attempts.is_off(loop):
            return
        if isinstance(policy, str):
            self.trigger = stored_policy(policy).compress
        elif (trigger := policy.get("compress")) is not None:
            self.trigger = Trigger.model_validate_json(encode_json(trigger))

    def is_due(self, header: Header) -> bool:
        """Return whether the log crosses the trigger at a header, and no earlier request or attempt keeps it from a request."""
        trigger, asked = self.trigger, header.asked
        if trigger is None:
            return False
        totals, room = totals_since_summary(header), room_of(header, self.settings, self._models)
        if not is_crossed(trigger, totals, room):
            return False
        is_long = trigger.counts == "all" and any_crossed(
            trigger.any, totals.current, budget=room.tokens, fixed=room.fixed
        )
        if not is_long and totals.past.loops <= KEEP_LOOPS:
            return False
        loop, ended_ms = header.flow.loop.number, self.attempts.ended_ms
        return asked is None or asked.allows_another(loop, header.time_ms, ended_ms=ended_ms, is_long=is_long)


_OPTIONS: JsonObject = CompressSession().model_dump(exclude={"mode"})


class AskForSummaries:
    """Reads what decides at each append whether it requests a summary, and starts the job of the request."""

    def __init__(self, start_job: StartJobs, models: Mapping[str, int] | None = None) -> None:
        self._start_job = start_job
        self._models = models

    def trigger(self, header: Header, settings: SessionSettings, meta: Item | None) -> SummaryTrigger:
        """Return the trigger and the attempts of a session for an append to the loop of ``header``. ``meta``: ``D#META``."""
        return SummaryTrigger(settings, meta, header.flow.loop.number, self._models)

    def send(self, owner: Owner, session_id: str, header: Header, summaries: SummaryTrigger) -> Compression:
        """Start the job that a durable commit requests; again for the same commit, the same job.

        If the job can't be started in an outage, a later append requests again.
        """
        if summaries.trigger is None:
            return "off"
        if header.asked is None or header.asked.time_ms != header.time_ms:
            return "none"
        try:
            job_id = _job_id("compress", session_id, header)
            self._start_job(owner, "compress", session_id, _OPTIONS, job_id=job_id)
        except UnavailableError as error:
            return "no_worker" if error.error_code == "no_queue" else "queued"
        return "queued"


class AskForSegments:
    """Starts the job that seals a segment, for the append that completes a stretch of the log or follows the commit that did."""

    def __init__(self, start_job: StartJobs) -> None:
        self._start_job = start_job

    def send(self, owner: Owner, session_id: str, header: Header, before: Header) -> None:
        """Start the sealing job if a durable commit completes a stretch; again for the same commit, the same job.

        If the job can't be started in an outage, the job of the next stretch seals this one too.
        """
        first = header.first
        if before.last + 1 == first and before.kind != header.kind:
            # State changes and summaries start no jobs themselves, so this append does it for the commit before.
            first = before.first
        if not completes_stretch(first, header.last):
            return
        with suppress(UnavailableError):
            self._start_job(owner, "seal", session_id, {}, job_id=_job_id("seal", session_id, header))


def _job_id(kind: str, session_id: str, header: Header) -> str:
    """Return the id of the job that a commit starts: always the same, so no request is needed to claim one."""
    return f"{header.time_ms:013d}-{short_hash(f'{kind} {session_id} {header.first}').hex()}"


def answered(header: Header, *, read: Header, has_more: bool) -> CompressionRequest:
    """Return the compression request for the header of a summary's commit. The summary was made of the log up to ``read``.

    It is answered, so that the cool-down begins. If ``has_more``, it is not: the same job or another one goes on.
    """
    return CompressionRequest(read.flow.loop.number, header.time_ms, not has_more)
