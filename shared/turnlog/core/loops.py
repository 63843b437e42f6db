"""Borders of run loops, each from a user message to the assistant's final reply.

A user message opens the next loop if the current loop has an assistant message since its first user message, or has timed
out. Otherwise the message joins the current loop. The first message that is not a system message opens loop 1, whatever
its role. System messages before loop 1 belong to no loop. Messages of an interrupted stream change no border.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

from turnlog.core.calls import MAX_LISTED_CALLS, MessageOutline, OpenCalls, OpenIndex, call_hash, unanswered_calls
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Message, Thinking


@lazy_dataclass(frozen=True, slots=True)
class LoopState:
    """The newest loop. ``number`` is 0 before the first; ``start`` is the position of the loop's first message.

    ``answered`` says that the loop has an assistant message since its first user message. ``final`` says that its newest
    assistant message has no calls, so the loop would be `closed` if it ended here.
    """

    number: int = 0
    start: int = 0
    has_user: bool = False
    answered: bool = False
    final: bool = False

    def after(self, arrival: Arrival) -> LoopState:
        """Return the newest loop after one more message. A message that joins opens no loop but the first."""
        role, state = arrival.facts.role, self
        if self.number == 0:
            opens = role != "system"
        else:
            is_due = arrival.timed_out or self.answered
            opens = role == "user" and is_due and not arrival.joins and not arrival.interrupted
        if opens:
            state = LoopState(number=self.number + 1, start=arrival.position)
        if arrival.interrupted or state.number == 0:
            return state
        if role == "user":
            return LoopState(state.number, state.start, True, state.answered, state.final)
        if role == "assistant":
            answered = state.answered or state.has_user
            return LoopState(state.number, state.start, state.has_user, answered, arrival.facts.is_reply)
        return state

    def encode(self) -> str:
        flags = "".join(flag for flag, on in (("u", self.has_user), ("a", self.answered), ("f", self.final)) if on)
        return f"{self.number} {self.start} {flags}"

    @classmethod
    def decode(cls, text: str) -> LoopState:
        number, start, flags = text.split(" ")
        return cls(int(number), int(start), "u" in flags, "a" in flags, "f" in flags)


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
CALL_ITEM = "_call"
OUTPUT_ITEM = "_output"
REASONING = "reasoning"
"""The original role of a message that is one item of OpenAI Responses: it ends so for a call or a result, or is reasoning."""

DISORDER = {
    "orphan_result": "a result that belongs to no call; it is never sent",
    "second_result": "a result for a call that has one; the newest is sent",
    "repeated_id": "the call id names another call of this session",
    "missing_id": "a call or result without an id; it is paired by order",
    "open_calls": "calls are still open; they are sent with a neutral result",
    "result_out_of_order": "a result arrives while an earlier turn's call is open",
    "consecutive_user": "a user message follows a user message",
    "consecutive_assistant": "an assistant message follows an assistant message",
    "assistant_first": "the session begins with an assistant message",
    "system_mid": "a system message after the first message",
    "user_tool_calls": "a user message has tool calls; they are sent as text",
    "empty_content": "the message has no content",
    "unknown_content": "windows may leave out this content, which no rule of its format knows",
    "unknown_role": "the role is stored and never sent",
    "bad_arguments": "arguments are not a JSON object",
    "control_chars": "the text has control characters",
    "run_active": "another run is active in the open loop",
    "wrong_type": "a field of the execution state has the wrong type",
    "messages_not_list": "messages is missing or not a list",
    "result_without_call": "a result without a call in the execution state",
    "iteration_above_maximum": "iteration is above max_iterations",
    "not_in_view": "appended before with this key, and rewound; no window has it",
    "usage_ignored": "usage does not fit the window named with it and is ignored",
}
"""The message of every warning code."""


@lazy_dataclass(frozen=True, slots=True)
class Disorder:
    """A warning about irregular input that was stored nevertheless. ``pointer`` is a JSON pointer into the request.

    ``name`` is that of content that no rule knows.
    """

    code: str
    position: int
    pointer: str
    name: str = ""

    @property
    def message(self) -> str:
        return f"{DISORDER[self.code]}: {self.name}" if self.name else DISORDER[self.code]


_Finding: TypeAlias = tuple[str, str]
"""A warning about one message: its code, and the place within the message."""


class Amount(NamedTuple):
    """A number of messages, and the tokens they take."""

    messages: int = 0
    tokens: int = 0


_NOTHING = Amount()


@lazy_dataclass(frozen=True, slots=True)
class Flow:
    """The state of a conversation that loop borders and warnings depend on.

    ``messages`` and ``tokens`` are the totals in view; ``previous_role`` is the newest message's role as the caller wrote
    it. ``lead`` counts the messages before the first loop, ``closed`` those in loops before the current one; both are as
    of the newest loop border.
    """

    loop: LoopState = field(default_factory=LoopState)
    open_calls: OpenCalls = field(default_factory=OpenCalls)
    messages: int = 0
    tokens: int = 0
    previous_role: str = ""
    lead: Amount = _NOTHING
    closed: Amount = _NOTHING


@lazy_dataclass(frozen=True, slots=True)
class Arrival:
    """A message to be appended: its outline of the whole text (``facts``), its future position, and its index in the request.

    ``timed_out``: a user message opens a loop even if the newest is unfinished. ``joins``: it stays in the newest loop.
    ``continues``: it is an item of the same answer as the message before it.
    """

    position: int
    index: int
    message: Message
    facts: MessageOutline
    tokens: int
    interrupted: bool = False
    timed_out: bool = False
    joins: bool = False
    continues: bool = False


@lazy_dataclass(frozen=True, slots=True)
class Accepted:
    """The result of accepting a message.

    ``opens_loop`` is the number of the loop that the message opens, or 0. ``unmatched`` are indexes of results that
    belong to no open call.
    """

    flow: Flow
    opens_loop: int
    unmatched: tuple[int, ...]
    warnings: tuple[Disorder, ...]


def accept(flow: Flow, arrival: Arrival) -> Accepted:
    """Return the flow after one more message, with the warnings that follow from the flow and the message alone."""
    facts, pointer = arrival.facts, f"/messages/{arrival.index}"
    findings = [*_check_role(flow, arrival), *_check_content(arrival)]
    loop = flow.loop.after(arrival)
    open_calls, unmatched, lead, closed = flow.open_calls, list[int](), flow.lead, flow.closed
    if loop.number != flow.loop.number:
        # The amounts before the first loop, and in the loops since, are as of the message that opens a loop.
        if flow.loop.number:
            closed = Amount(flow.messages - lead.messages, flow.tokens - lead.tokens)
        else:
            lead, closed = Amount(flow.messages, flow.tokens), _NOTHING
        # Calls that a header does not list are found by reading their loop, and only while it is open.
        open_calls = OpenCalls(open_calls.calls[:MAX_LISTED_CALLS])
    if not arrival.interrupted:
        open_calls = open_calls.opened(unanswered_calls(arrival.position, facts))
        open_calls, unmatched, late = _answer(open_calls, facts, since=flow.loop.start)
        findings += [("result_out_of_order", f"/tool_results/{number}" if number else "") for number in late]
    totals = flow.messages + 1, flow.tokens + arrival.tokens
    return Accepted(
        flow=Flow(loop, open_calls, *totals, facts.given_role, lead, closed),
        opens_loop=loop.number if loop.number != flow.loop.number else 0,
        unmatched=tuple(unmatched),
        warnings=tuple([Disorder(code, arrival.position, pointer + place) for code, place in findings]),
    )


def has_open_calls(flow: Flow) -> bool:
    """Return whether a call of the newest loop waits for a result. Calls of earlier loops have their neutral results."""
    return flow.open_calls.more > 0 or any(call.ref.position >= flow.loop.start for call in flow.open_calls.calls)


def repeated_ids(arrivals: Sequence[Arrival], before: OpenCalls) -> list[Disorder]:
    """List warnings of calls whose id occurs earlier in the request or names an open call."""
    seen = {call.id_hash for call in before.calls if call.id_hash}
    warnings = list[Disorder]()
    for arrival in arrivals:
        for number, call in enumerate(arrival.facts.calls):
            id_hash = call_hash(call.key)
            if id_hash and id_hash in seen:
                warnings.append(
                    Disorder("repeated_id", arrival.position, f"/messages/{arrival.index}/tool_calls/{number}")
                )
            seen.add(id_hash)
    return warnings


def _check_role(flow: Flow, arrival: Arrival) -> Iterator[_Finding]:
    facts = arrival.facts
    # The message with long-term memories at a session's beginning leaves no loop and no previous role.
    role, first = facts.role, not (flow.loop.number or flow.previous_role)
    if role == "unknown":
        yield "unknown_role", "/role"
    if role == "system" and not first:
        yield "system_mid", "/role"
    if role == "assistant" and first:
        yield "assistant_first", "/role"
    if role == "user" and flow.previous_role == "user" and not arrival.joins:
        yield "consecutive_user", "/role"
    # An item with another role, such as a call, belongs to the text before it.
    if role == "assistant" and facts.given_role == flow.previous_role == "assistant" and not arrival.continues:
        yield "consecutive_assistant", "/role"
    if role == "user" and arrival.facts.calls:
        yield "user_tool_calls", "/tool_calls"
    is_turn = role == "assistant" or (role == "user" and not arrival.facts.calls and not arrival.facts.results)
    # Calls that are separate messages (OpenAI Responses) are parallel calls of one turn.
    is_parallel = facts.given_role.endswith(CALL_ITEM) and flow.previous_role.endswith(CALL_ITEM)
    if is_turn and has_open_calls(flow) and not (is_parallel or arrival.continues):
        yield "open_calls", ""


def _check_content(arrival: Arrival) -> Iterator[_Finding]:
    message, facts = arrival.message, arrival.facts
    if facts.role in ("user", "assistant", "system"):
        if not (message.tool_calls or message.tool_results or facts.given_role == REASONING) and is_empty(message):
            yield "empty_content", "/content"
    elif facts.role == "tool" and any(
        all(getattr(block, "text", "x") == "" for block in result.content) for result in message.tool_results
    ):
        yield "empty_content", "/content"
    if _CONTROL.search(facts.head) or any(_CONTROL.search(result.text) for result in message.tool_results):
        yield "control_chars", "/content"
    yield from _check_calls(message)


def _check_calls(message: Message) -> Iterator[_Finding]:
    """Yield what is wrong with the ids of calls and results, and the arguments of calls."""
    for index, call in enumerate(message.tool_calls):
        if not call.id:
            yield "missing_id", f"/tool_calls/{index}"
        if not (call.is_text or _is_object(call.arguments)):
            yield "bad_arguments", f"/tool_calls/{index}"
    for index, result in enumerate(message.tool_results):
        if not result.tool_call_id and not result.by_name:
            yield "missing_id", f"/tool_results/{index}" if index else ""


def _answer(open_calls: OpenCalls, facts: MessageOutline, *, since: int) -> tuple[OpenCalls, list[int], list[int]]:
    """Pair results with open calls; turns of the loop that begins at ``since`` are answered in order.

    Return the calls that stay open, and the indexes of results without a call and of results out of order.
    """
    if not facts.results:
        return open_calls, [], []
    index, unmatched, late = OpenIndex(open_calls), list[int](), list[int]()
    for number, result in enumerate(facts.results):
        call = index.find(result)
        if call is None:
            unmatched.append(number)
            continue
        # Parallel calls that are separate messages (OpenAI Responses) have no turn that their positions show.
        is_item = facts.given_role.endswith(OUTPUT_ITEM)
        if not is_item and index.is_out_of_order(call, result, since=since):
            late.append(number)
        index.mark_answered(call)
    return index.calls(), unmatched, late


def is_empty(message: Message) -> bool:
    """Return whether a message has no content besides reasoning."""
    return all(
        getattr(block, "text", "x").strip() == "" for block in message.content if not isinstance(block, Thinking)
    )


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
