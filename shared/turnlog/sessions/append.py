"""Append messages to a session: two requests to the engine, one of them a write; two more if it asks for a summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from turnlog.core.calls import MessageOutline, OpenCalls, Ref, pair
from turnlog.core.errors import HeadMismatchError, InvalidInputError, LoopUnfinishedError, Problem, RunActiveError
from turnlog.core.events import RUN, Event, MessageEvent, Notes, StateEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_WINDOW_MESSAGES
from turnlog.core.loops import Arrival, Disorder, Flow, accept, repeated_ids
from turnlog.core.messages import ToolCall
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import CompressionRequest
from turnlog.log.caches import CurrentSettings
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail, WriteResult
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import located, newest_commits, newest_within
from turnlog.log.request_keys import request_key
from turnlog.ports import TokenCounter
from turnlog.providers.registry import CODECS
from turnlog.providers.unknown_content import unknown_content
from turnlog.sessions.incoming import (
    MAX_CALLS,
    USAGE_IGNORED,
    Incoming,
    calibration_after,
    message_event,
    recalls,
    sent_after,
    understand_batch,
)
from turnlog.sessions.message_models import Appended, AppendMessages, CallRef, Compression, Warning
from turnlog.sessions.runs import has_inbox, hash_of_run, held_lease, lease_after
from turnlog.sessions.session_log import SessionLog, check_active
from turnlog.sessions.state import has_pending, run_event
from turnlog.sessions.state_store import SessionState, state_at, write_state_cache
from turnlog.windows.view import OF_ITEMS

if TYPE_CHECKING:
    from turnlog.summaries.trigger import AskForSegments, AskForSummaries, SummaryTrigger

_UNKNOWN_CONTENT = "unknown_content"
_REWOUND = "rewound"
"""Noted as the epoch of a window that was built before a rewind: no later window begins as it did."""
_LEFT_UNDONE = frozenset({"consecutive_user", "open_calls"})
"""Warnings of a message that say how the loop before it ended."""


@lazy_dataclass(frozen=True, slots=True)
class AppendToSession:
    """Use case: append messages in one commit. Messages are ordered by position; a repeated idempotency key has one effect.

    ``snapshots`` is called after each append to a session with a snapshot policy.
    """

    log: SessionLog
    counter: TokenCounter
    ask: AskForSummaries
    ask_segments: AskForSegments
    snapshots: Callable[[Owner, str, Header, Header, SessionSettings], None]

    def __call__(self, owner: Owner, session_id: str, body: AppendMessages, *, key: str | None = None) -> Appended:
        keys = SessionKeys(owner, session_id)
        request = request_key(key, "append", body)
        batch = understand_batch(body, self.counter)
        append = AppendWrite(self.log, keys, body, batch, self.ask)
        written = self.log.commits.write(keys, append.compose, request)
        if written.repeated:
            answered = _with_calls(self.log.commits.events(keys, [written.commit]))
        else:
            append.write_caches(written)
            answered = [
                (event, incoming.message.tool_calls)
                for event, incoming in zip(written.events, batch, strict=False)  # a state event may be the last
                if isinstance(event, MessageEvent)
            ]
        header, before = written.commit.header, written.tail.header
        if (summaries := append.summaries) is None:
            settings = self.log.short_settings(keys, written.tail).settings
            summaries = self.ask.trigger(header, settings, written.tail.meta)
        compression = self.ask.send(owner, session_id, header, summaries)
        self.ask_segments.send(owner, session_id, header, before)
        if summaries.settings.snapshots is not None:
            self.snapshots(owner, session_id, header, before, summaries.settings)
        in_view = self.log.commits.view(keys, before, header.first).shows(header.first)
        return _answer(written.commit, answered, compression, in_view)


class AppendWrite:
    """The write of one append: composes its commit from the end of the log, then updates the caches.

    The log calls `compose` again when another writer takes the position first.
    """

    def __init__(
        self,
        log: SessionLog,
        keys: SessionKeys,
        body: AppendMessages,
        batch: list[Incoming],
        ask: AskForSummaries | None = None,
        *,
        action: str = RUN,
    ) -> None:
        """Store the request. Without ``ask``, the append requests no summary; the next one does.

        ``action`` is the action that the history shows for the state event of the append.
        """
        self._log = log
        self._ask = ask
        self._action = action
        self._keys = keys
        self._body = body
        self._batch = batch
        self._current: CurrentSettings | None = None
        self.summaries: SummaryTrigger | None = None
        """The trigger and the attempts at the end of the log. Set by `compose` if the append may request a summary."""
        self.state: SessionState | None = None
        """The state after the append; None when the append does not change it. Set by `compose`."""

    def compose(self, tail: Tail) -> Draft:
        """Return the commit to write after ``tail``, or raise to refuse the append."""
        header = tail.header
        self._current = self._log.short_settings(self._keys, tail)
        check_active(header)
        if self._body.if_head not in (None, header.last):
            message = f"the head is {header.last}, not {self._body.if_head}"
            raise HeadMismatchError(message, details={"head": header.last})
        settings = self._current.settings
        first = header.last + 1
        time_ms = max(self._log.clock.now_ms(), header.time_ms + 1)
        lease = lease_after(self._body.lease, header.lease, position=first, time_ms=time_ms)
        timed_out = not header.pending and time_ms - header.time_ms > settings.loop_timeout_seconds * 1000
        timed_out = timed_out or self._body.loop == "new"
        arrivals = self._arrivals(first, timed_out)
        has_results = any(arrival.facts.results for arrival in arrivals)
        before = all_open_calls(self._log, self._keys, header) if has_results else header.flow.open_calls
        if self._body.parent is not None:
            flow, opens, warnings = header.flow, [0] * len(arrivals), list[Disorder]()
        else:
            listed = header.flow
            flow = listed if before is listed.open_calls else replace(listed, open_calls=before)
            flow, opens, warnings = self._fold(flow, arrivals, header)
        run, active = self._run_after(header, flow, timed_out)
        warnings += active
        sent = sent_after(self._body, header, time_ms)
        calibration, ignored = calibration_after(self._body, header, opens_loop=any(opens))
        warnings += ignored
        state_event, problems = self._state_event(header, first + len(arrivals), before, flow)
        warnings += problems
        if settings.strict and self._body.parent is None:
            _refuse(header, arrivals, warnings)
        if lease is None and flow.loop.final and self.state is not None and has_inbox(self.state, self._body.run):
            lease = lease_after(self._body.lease, header.lease, position=first, time_ms=time_ms, keeps=True)
        has_tools = settings.recall != "never" and self._action == RUN
        recalled = recalls(arrivals, self._batch, before, tail, has_tools=has_tools)
        notes = self._notes(warnings, rewound=header.rewound)
        events: list[Event] = [
            message_event(incoming, position, opens_loop, recalled.get(position), notes if position == first else None)
            for position, (incoming, opens_loop) in enumerate(zip(self._batch, opens, strict=True), first)
        ]
        if state_event is not None:
            events.append(state_event)
        new = replace(
            following(header, kind="m", events=len(events), now_ms=time_ms),
            flow=flow,
            last_state=state_event.position if state_event is not None else header.last_state,
            run=run,
            sent=sent,
            calibration=calibration,
            pending=has_pending(self.state) if self.state is not None else header.pending,
            lease=lease,
        )
        if self._ask is not None:
            self.summaries = self._ask.trigger(new, settings, tail.meta)
            if self.summaries.is_due(new):
                new = replace(new, asked=CompressionRequest(flow.loop.number, time_ms))
        return Draft(new, tuple(events), [incoming.encoded for incoming in self._batch])

    def write_caches(self, written: WriteResult) -> None:
        """Update the caches after the commit. The commit is durable: readers repair a cache that could not be written."""
        if self.state is not None:
            write_state_cache(self._log, self._keys, self.state)
        self._log.refresh_listing(self._keys, written.tail, written.commit.header, current=self._current)

    def _arrivals(self, first: int, timed_out: bool) -> list[Arrival]:
        return [
            Arrival(
                position=first + index,
                index=index,
                message=incoming.message,
                facts=incoming.facts,
                tokens=incoming.tokens,
                interrupted=incoming.envelope.status == "interrupted",
                timed_out=timed_out and index == 0,
                joins=self._body.loop == "join",
                continues=index > 0 and _is_item(incoming) and _is_item(self._batch[index - 1]),
            )
            for index, incoming in enumerate(self._batch)
        ]

    def _fold(self, flow: Flow, arrivals: Sequence[Arrival], header: Header) -> tuple[Flow, list[int], list[Disorder]]:
        """Return the flow after all messages, the loop that each message opens (0: none), and the warnings."""
        warnings, opens, unmatched = list[Disorder](), list[int](), list[tuple[Arrival, int]]()
        before = flow.open_calls
        for arrival, incoming in zip(arrivals, self._batch, strict=True):
            accepted = accept(flow, arrival)
            flow = accepted.flow
            opens.append(accepted.opens_loop)
            warnings.extend(accepted.warnings)
            warnings.extend(
                Disorder(_UNKNOWN_CONTENT, arrival.position, f"/messages/{arrival.index}{pointer}", name)
                for name, pointer in incoming.unknown.items()
            )
            unmatched.extend((arrival, result_index) for result_index in accepted.unmatched)
        warnings.extend(repeated_ids(arrivals, before))
        if unmatched:
            ids = _read_open_loop(self._log, self._keys, header)[1] if header.flow.loop.number else set[str]()
            for arrival, result_index in unmatched:
                ids |= {
                    call.key for earlier in arrivals[: arrival.index + 1] for call in earlier.facts.calls if call.key
                }
                code = "second_result" if arrival.facts.results[result_index].key in ids else "orphan_result"
                pointer = f"/tool_results/{result_index}" if result_index else ""
                warnings.append(Disorder(code, arrival.position, f"/messages/{arrival.index}{pointer}"))
        warnings.sort(key=lambda warning: (warning.position, warning.code, warning.pointer))
        return flow, opens, warnings

    def _run_after(self, header: Header, flow: Flow, timed_out: bool) -> tuple[bytes, list[Disorder]]:
        """Return the hash of the newest loop's run, and a warning when the open loop has another active run.

        It is the request's run; without one, the run of the open loop while that loop is the newest.
        """
        loop, run_id = header.flow.loop, self._body.run_id
        if run_id is None or self._body.parent is not None:
            return header.run if flow.loop.number == loop.number else b"", []
        run = hash_of_run(run_id)
        is_running = bool(header.run) and loop.number > 0 and not (loop.final or timed_out)
        is_other = is_running and run != header.run
        return run, [Disorder("run_active", header.last + 1, "/run_id")] if is_other else []

    def _state_event(
        self, header: Header, position: int, before: OpenCalls, flow: Flow
    ) -> tuple[StateEvent | None, list[Disorder]]:
        """Return the state event of the append, if there is one, and the problems of the agent's state as warnings."""
        self.state = None
        run = cast("JsonObject | None", self._body.run)
        if run is None and not header.pending:
            return None, []
        still_open = {call.ref for call in flow.open_calls.calls}
        answered = [call for call in before.calls if call.ref not in still_open]
        if run is None and not answered:
            return None, []
        state = state_at(self._log, self._keys, header.last_state)
        change = run_event(run, answered, state, position=position, action=self._action)
        if change is None:
            return None, []
        event, self.state, problems = change
        return event, [Disorder(problem.code, position, f"/run{problem.pointer}") for problem in problems]

    def _notes(self, warnings: Sequence[Disorder], *, rewound: int) -> Notes | None:
        usage, window = self._body.usage, self._body.window
        if not warnings and usage is None and window is None:
            return None
        return Notes(
            warnings=tuple((warning.code, warning.position, warning.pointer) for warning in warnings),
            usage=(usage.input_tokens, usage.output_tokens) if usage else None,
            window=(window.position, window.tokens) if window else None,
            epoch=(window.epoch if window.position >= rewound else _REWOUND) if window else None,
        )


def all_open_calls(log: SessionLog, keys: SessionKeys, header: Header) -> OpenCalls:
    """Return the open calls at ``header``. It lists a limited number of them; when it lists only some, read the open loop."""
    listed_calls, start = header.flow.open_calls, header.flow.loop.start
    if not listed_calls.more:
        return listed_calls
    older = tuple(call for call in listed_calls.calls if call.ref.position < start)
    calls, _ = _read_open_loop(log, keys, header)
    return OpenCalls(older + tuple(call for call in calls.calls if call.ref.position >= start))


def _read_open_loop(log: SessionLog, keys: SessionKeys, header: Header) -> tuple[OpenCalls, set[str]]:
    """Read the open loop, as much of it as a window considers; return its open calls, and the ids of all its calls."""
    commits, start = list[Commit](), max(1, header.flow.loop.start)
    for page in log.commits.in_view(keys, header, first=start):
        commits[:0] = page
        if sum(len(commit.lines) for commit in commits) > MAX_WINDOW_MESSAGES:
            break
    read = located(log.commits, keys, newest_commits(commits, events=MAX_WINDOW_MESSAGES))
    messages = list[tuple[int, MessageOutline]]()
    for message in newest_within(
        read, max_messages=MAX_WINDOW_MESSAGES, max_calls=MAX_CALLS, loop_start=header.flow.loop.start
    ):
        if message.event.envelope.status == "complete" and message.event.envelope.parent is None:
            messages.append((message.event.position, message.facts))
    ids = {call.key for _, facts in messages for call in facts.calls if call.key}
    return pair(messages).open, ids


def _is_item(incoming: Incoming) -> bool:
    """Return whether a message is an item of an assistant's answer."""
    return incoming.codec.format in OF_ITEMS and incoming.facts.role == "assistant"


def _refuse(header: Header, arrivals: Sequence[Arrival], warnings: Sequence[Disorder]) -> None:
    """Raise the error of a strict session for messages in disorder.

    Usage that was ignored is not disorder, nor is what a loop that timed out left undone before the message that opens the next.
    """
    late = {arrival.position for arrival in arrivals if arrival.timed_out and arrival.facts.role == "user"}
    warnings = [
        warning
        for warning in warnings
        if warning.code != USAGE_IGNORED and not (warning.position in late and warning.code in _LEFT_UNDONE)
    ]
    if any(warning.code == "run_active" for warning in warnings):
        raise RunActiveError("another run is active in the open loop")
    loop = header.flow.loop
    for arrival in arrivals:
        facts = arrival.facts
        if facts.role == "user" and loop.has_user and not loop.final and not (arrival.timed_out or arrival.joins):
            raise LoopUnfinishedError(f"loop {loop.number} has no final reply yet")
        loop = loop.after(arrival)
    if warnings:
        problems = [Problem(warning.code, warning.pointer, warning.message) for warning in warnings]
        raise InvalidInputError(f"the session is strict: {problems[0].message}", code="disorder", problems=problems)


def _with_calls(events: Sequence[Event]) -> list[tuple[MessageEvent, Sequence[ToolCall]]]:
    """Return the messages among the events of an earlier commit, each with its tool calls."""
    return [
        (event, CODECS[event.format].parse(event.body).tool_calls if event.body is not None else ())
        for event in events
        if isinstance(event, MessageEvent)
    ]


def _answer(
    commit: Commit, messages: Sequence[tuple[MessageEvent, Sequence[ToolCall]]], compression: Compression, in_view: bool
) -> Appended:
    header = commit.header
    return Appended(
        first=header.first,
        last=messages[-1][0].position,
        head=header.last,
        loop=header.flow.loop.number or None,
        tokens=sum(event.tokens for event, _ in messages),
        refs=[
            CallRef(position=event.position, index=index, call_id=call.id, ref=str(Ref(event.position, index)))
            for event, calls in messages
            for index, call in enumerate(calls)
        ],
        compression=compression,
        lease=held_lease(header.lease),
        warnings=_warnings([event for event, _ in messages], in_view),
    )


def _warnings(messages: Sequence[MessageEvent], in_view: bool) -> list[Warning]:
    """Return the warnings of an append, which its first message holds. Names of unknown content are read from the bodies."""
    notes, names = messages[0].notes, dict[tuple[str, str], str]()
    warnings = [*(notes.warnings if notes is not None else ())]
    if not in_view:
        warnings.append(("not_in_view", messages[0].position, ""))
    if any(code == _UNKNOWN_CONTENT for code, _, _ in warnings):
        for index, event in enumerate(messages):
            contents = unknown_content(event.body, event.format) if event.body is not None else {}
            names |= {(_UNKNOWN_CONTENT, f"/messages/{index}{pointer}"): name for name, pointer in contents.items()}
    return [
        Warning(
            code=code,
            position=position,
            pointer=pointer,
            message=Disorder(code, position, pointer, names.get((code, pointer), "")).message,
        )
        for code, position, pointer in warnings
    ]
