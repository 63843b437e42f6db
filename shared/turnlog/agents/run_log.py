"""The plan of a run, and its record: what it appends to the session's log and keeps in the agent's execution state.

Its methods return steps to perform, or are generators of steps: see `turnlog.agents.agent_loop`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from turnlog.agents.functions import (
    ExecutedCall,
    ExecutingCall,
    Hooks,
    Reply,
    RequestedCall,
    RunResult,
    RunStatus,
    Tool,
)
from turnlog.agents.streams import mapping_or_empty
from turnlog.client import parts_of
from turnlog.client.finding import result_message
from turnlog.core.agent_state import agents_of
from turnlog.core.calls import is_ref
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError, TurnlogError
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Text, ToolCall, ToolResult
from turnlog.engines import RandomIds
from turnlog.providers.blocks import legal_tool_name, nested_tools, tool_name
from turnlog.providers.registry import codec_of
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import Appended, StoredMessage
from turnlog.telemetry import AGENT, CONVERSATION, MODEL, OPERATION, PROVIDER, PROVIDERS

if TYPE_CHECKING:
    from turnlog.client.model import Session

DEFAULT_MAX_ITERATIONS = 20
PAUSES = ("pause_turn", "compaction")
"""Finish reasons with which a provider wants to be called again (https://platform.claude.com/docs/en/api/handling-stop-reasons)."""
CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded", "incomplete"})
"""Finish reasons of a reply that a limit has cut off. The last call of such a message may lack a part of its arguments."""
_IDS = RandomIds()
OnBusy: TypeAlias = Literal["enqueue", "reject", "interrupt", "steer"]
Approval = Collection[str] | Callable[[RequestedCall], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A step to perform: a call of the session, which may block; with ``by_session=False`` a user's function, sync or async."""

    function: Callable[[], Any]
    by_session: bool = True
    call: ExecutingCall | None = None


@dataclass(frozen=True, slots=True)
class StreamEvents:
    """A step to perform: read the events of a stream. ``handlers`` returns the functions, sync or async, to call for an event."""

    events: Any
    handlers: Callable[[Any], Sequence[Callable[[], Any]]]


Step = Generator[LoopStep | StreamEvents, Any, Any]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The parameters of a run. See `Session.run`."""

    session: Session
    model: Callable[[WindowAnswer], Any]
    tools: Mapping[str, Tool]
    window: Mapping[str, Any]
    format: str
    agent_id: str
    max_iterations: int | None
    approve: Approval
    hooks: Sequence[Hooks]
    author: str | None
    on_busy: OnBusy | None
    lease_seconds: int
    parent: ExecutingCall | None = None

    def __post_init__(self) -> None:
        limit = cast("object", self.max_iterations)
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise InvalidInputError(f"max_iterations is {limit!r}; it is an integer from 1")
        for name, value in (("approve", () if callable(self.approve) else self.approve), ("hooks", self.hooks)):
            if isinstance(value, str) or not isinstance(value, Collection):
                raise InvalidInputError(f"{name} must be a list, not {value!r:.64}")
        if self.on_busy not in (None, *get_args(OnBusy)):
            raise InvalidInputError(f"on_busy is {self.on_busy!r}; it is one of {', '.join(get_args(OnBusy))}")
        known = {*signature(self.session.context).parameters, "others", "system"}
        if unknown := [name for name in self.window if name not in known]:
            raise TypeError(f"a run has no option {unknown[0]!r}")

    @property
    def caller(self) -> ExecutingCall | None:
        """The call of another agent in the same session that the run works within, or None."""
        parent = self.parent
        return parent if parent is not None and parent.session_id == self.session.id else None

    @property
    def place(self) -> JsonObject | None:
        """The call and the agent that messages of the run name, when it works within a call."""
        return {"ref": self.caller.call.ref, "agent_id": self.agent_id} if self.caller is not None else None

    def own_name(self, name: str) -> str:
        """Return the run's own name of a tool that windows offer under a legal name."""
        if name in self.tools:
            return name
        return next((own for own in self.tools if legal_tool_name(own) == legal_tool_name(name)), name)

    def asks(self, call: RequestedCall) -> Generator[LoopStep, Any, bool]:
        """Return whether a call needs a decision."""
        if callable(self.approve):
            return bool((yield LoopStep(partial(self.approve, call), by_session=False)))
        return legal_tool_name(call.name) in map(legal_tool_name, self.approve)

    def has_effect(self, name: str) -> bool:
        """Return whether a repeated call of a tool may have a second effect."""
        tool = self.tools.get(self.own_name(name))
        return tool is not None and not tool.idempotent

    def requested(
        self, position: int, calls: Sequence[ToolCall], index: int, finish_reason: str | None
    ) -> RequestedCall:
        """Return one of the calls of a message that the log has at ``position``."""
        call, ref = calls[index], f"{position}.{index}"
        is_cut = finish_reason in CUT_OFF and index == len(calls) - 1
        key, name = f"{self.session.id}/{ref}", self.own_name(call.name)
        return RequestedCall(ref, call.id, name, call.arguments, key, is_text=call.is_text, is_cut=is_cut)

    def span_attributes(self, operation: str) -> dict[str, Any]:
        """Return the attributes of a span of the run."""
        place = {CONVERSATION: self.session.id, AGENT: self.agent_id}
        return {OPERATION: operation, MODEL: self.window.get("model"), PROVIDER: PROVIDERS.get(self.format), **place}

    def context(self) -> LoopStep:
        """Return the step that builds the window of the next model call."""
        options = dict(self.window)
        if self.place is not None:
            own = {name: options.pop(name) for name in ("others", "system") if name in options}
            options["parent"] = {**self.place, **own}
        return LoopStep(lambda: self._with_known_names(self.session.context(format=self.format, **options)))

    def _with_known_names(self, window: WindowAnswer) -> WindowAnswer:
        """Return the window. Raises `InvalidInputError` when ``approve`` names a tool that neither the window nor the run has."""
        offered = [tool_name(inner) for tool in window.tools for inner in (tool, *nested_tools(tool))]
        known = set(map(legal_tool_name, (*self.tools, *offered)))
        for name in () if callable(self.approve) else self.approve:
            if legal_tool_name(name) not in known and not self.session.handles(name):
                tools = ", ".join(sorted({*self.tools, *filter(None, offered)})) or "none"
                raise InvalidInputError(f"approve names {name!r}, which is no tool of the run. Tools: {tools}")
        return window


@dataclass(slots=True)
class RunLog:
    """The record of a run in the session's log: its messages, its place in the agent's execution state, and its lease.

    ``token`` is that of the lease, None without one. ``begun`` says whether a call that may have an effect has begun. ``reply``
    is the run's newest one. ``usage`` sums the tokens and the cost of its replies, and of runs within its calls. ``head`` is the
    position up to which the run knows the log; None before its first commit.
    """

    plan: RunPlan
    run_id: str = ""
    iterations: int = 0
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    token: int | None = None
    begun: bool = False
    reply: Reply | None = None
    usage: dict[str, float] = field(default_factory=dict)
    _stored_usage: dict[str, float] = field(default_factory=dict)
    head: int | None = -1

    def begin(self) -> None:
        """Begin a new run; it is in the log with its first append."""
        self.run_id, self.iterations, self.reply, self.begun = _IDS.new_id(), 0, None, False
        self.usage, self._stored_usage = {}, {}

    def add_usage(self, usage: Mapping[str, float]) -> None:
        """Count what a model call, or a run within one of this run's calls, has used."""
        for name, count in usage.items():
            self.usage[name] = self.usage.get(name, 0) + count

    def add_children(self, executing: ExecutingCall) -> Step:
        """Count what runs of other processes have used in the child sessions of the call that has ended."""
        for read in executing.children.values():
            for agent in agents_of((yield LoopStep(read)).state).values():
                self.add_usage(_usage_of(agent))

    def result(self, status: RunStatus, *, pending: Mapping[str, Any] | None = None) -> RunResult:
        """Return the result of the run as it is."""
        reply, codec = self.reply, codec_of(self.plan.format)
        messages = tuple(dict(message) for message in reply.messages) if reply is not None else ()
        text = "\n".join(filter(None, (codec.parse(message).text for message in messages)))
        reason = reply.finish_reason if reply is not None else None
        usage = dict(self.usage) or None
        return RunResult(status, self.run_id, self.iterations, messages, text, reason, pending, usage)

    # ------------------------------------------------------------ the execution state

    def read(self) -> Step:
        """Return the agent's execution state, and take over its run and its limit."""
        agent = yield from self.agent()
        self.run_id = self.run_id or str(agent.get("run_id") or "") or _IDS.new_id()
        iteration = agent.get("iteration")
        self.iterations = iteration if isinstance(iteration, int) else 0
        self.usage, self._stored_usage = _usage_of(agent), _usage_of(agent)
        limits = (self.plan.max_iterations, agent.get("max_iterations"), DEFAULT_MAX_ITERATIONS)
        self.max_iterations = next(limit for limit in limits if isinstance(limit, int))
        return agent

    def agent(self) -> Step:
        """Return the agent's execution state, empty when the session has no such agent yet."""
        try:
            return (yield LoopStep(partial(self.plan.session.agent, self.plan.agent_id))).state
        except NotFoundError as error:
            if error.error_code != "not_found":
                raise
            return {}

    def state(self) -> dict[str, Any]:
        """Return the fields of the execution state that go with an append."""
        self._stored_usage = dict(self.usage)
        return {
            "agent_id": self.plan.agent_id,
            "run_id": self.run_id,
            "iteration": self.iterations,
            "max_iterations": max(self.max_iterations, self.iterations),
            "begun": self.begun or None,
            "usage": dict(self.usage) or None,
            "parent": self.plan.parent.call.key if self.plan.parent is not None else None,
        }

    def patch(self, fields: Mapping[str, Any]) -> LoopStep:
        """Return the step that changes the agent's execution state by a JSON Merge Patch."""
        return LoopStep(partial(self.plan.session.patch_agent, fields, agent_id=self.plan.agent_id, lease=self.token))

    # ------------------------------------------------------------ messages of others

    def send_to_inbox(self, messages: Sequence[Mapping[str, Any]], mode: OnBusy) -> Step:
        """Send messages to the run that has the session, this one or another; return whether one has it."""
        plan, key = self.plan, _IDS.new_id()
        send = partial(
            plan.session.send_to_run,
            *messages,
            mode=cast("Any", mode),
            format=plan.format,
            agent_id=plan.agent_id,
            idempotency_key=key,
        )
        try:
            yield LoopStep(send)
        except ConflictError as error:
            if error.error_code != "no_run":
                raise
            return False
        return True

    def news(self, head: int, *modes: str) -> Step:
        """Return ``cancelled`` when `Session.cancel_run` has named this run, ``messages`` after messages for it were appended.

        Takes a read only where commits of others precede ``head``. ``modes`` are those of the messages to take, by default
        ``interrupt`` and ``steer``.
        """
        if head == self.head:
            return None
        agent = yield from self.agent()
        if agent.get("cancelled_run") == self.run_id:
            return "cancelled"
        modes = modes or ("interrupt", "steer")
        waiting = {entry["mode"] for _, entry in inbox_of(agent)}
        if waiting.intersection(modes):
            self.head = head
            yield from self._take_messages(agent, *modes)
            return "messages"
        if "steer" not in waiting:
            self.head = head
        return None

    def _take_messages(self, agent: JsonObject, *modes: str) -> Step:
        """Append the messages that wait in the agent's inbox with these modes."""
        entries = [(place, entry) for place, entry in inbox_of(agent) if entry["mode"] in modes]
        interrupts = any(entry["mode"] == "interrupt" for _, entry in entries)
        if interrupts:
            self.begin()
        for number, (place, entry) in enumerate(entries):
            loop = "new" if interrupts and number == 0 else "join"
            yield self._append_entry(place, entry, loop=loop)

    def next_turn(self) -> Step:
        """Append the oldest messages of the agent's inbox as a new turn; return whether there are any."""
        entries = inbox_of((yield from self.agent()))
        if not entries:
            return False
        self.begin()
        yield self._append_entry(*entries[0])
        return True

    def _append_entry(self, place: str, entry: JsonObject, **options: Any) -> LoopStep:
        run, messages = {**self.state(), "inbox": {place: None}}, cast("list[JsonObject]", entry["messages"])
        return self.append(messages, run=run, format=entry.get("format"), **options)

    # ------------------------------------------------------------ reading

    def open_calls(self, approved: str) -> Step:
        """Return the calls of this agent that the log has no result of, and whether the ``approved`` one is late.

        The user has said something behind a late call, so a window gives it a neutral result. A window leaves all other calls open.
        """
        plan = self.plan
        window = yield plan.context()
        calls = list[RequestedCall]()
        refs = [open_call.ref for open_call in window.open_calls]
        is_late = is_ref(approved) and approved not in refs and (yield from self._lacks_result(approved))
        for ref in [*refs, *([approved] if is_late else [])]:
            position, _, index = ref.partition(".")
            page = yield LoopStep(partial(plan.session.page, after=int(position) - 1, limit=1))
            message = page.messages[0]
            if plan.author is None or message.author in (None, plan.author):
                made = codec_of(message.format).parse(message.body).tool_calls
                call = plan.requested(message.position, made, int(index), message.finish_reason)
                calls.append(replace(call, is_redacted=message.redacted))
        return calls, is_late

    def _lacks_result(self, ref: str) -> Step:
        """Return whether the log has a call with this ref, and no result of it."""
        recalled = yield LoopStep(partial(self.plan.session.recall, ref))
        return recalled.found and recalled.name is not None and recalled.content is None and recalled.media is None

    def later_answer(self, approved: str) -> Step:
        """Return the model's answer to a later message of the user than the one that led to the approved call, or None."""
        newest, position = (yield from self.newest()), int(approved.partition(".")[0])
        page = yield LoopStep(partial(self.plan.session.page, after=position - 1, limit=1))
        is_later = newest is not None and newest.loop != page.messages[0].loop
        return newest if is_later and codec_of(newest.format).parse(newest.body).role == "assistant" else None

    def is_unanswered(self) -> Step:
        """Return whether the newest message in view expects an answer of the model."""
        newest = yield from self.newest()
        if newest is None or newest.origin is not None:
            return False  # a message from long-term memory, which nobody sent
        if newest.status == "interrupted" or newest.finish_reason in PAUSES:
            return True
        return codec_of(newest.format).parse(newest.body).role in ("user", "tool")

    def newest(self) -> Step:
        """Return the newest message in view, of a run within a call the newest of its own; None without one."""
        session, limit, before = self.plan.session, 100 if self.plan.caller is not None else 1, None
        while True:
            page = yield LoopStep(partial(session.page, order="desc", limit=limit, in_view=True, before=before))
            newest = next(filter(self._is_own, page.messages), None)
            if newest is not None or page.next is None:
                return newest
            before = page.next

    def _is_own(self, message: StoredMessage) -> bool:
        caller = self.plan.caller
        if caller is None:
            return message.parent is None
        return (message.parent, message.agent_id) == (caller.call.ref, self.plan.agent_id)

    # ------------------------------------------------------------ appending

    def append(
        self,
        messages: Sequence[Mapping[str, Any]],
        meta: Sequence[Mapping[str, Any]] = (),
        *,
        release: bool = False,
        **options: Any,
    ) -> LoopStep:
        """Append messages in one commit, or in several when they do not fit one. ``options`` are those of `Session.append`.

        All commits have the ``format``, only the first one the other options. It takes or renews the run's lease; with
        ``release`` the last one gives it back.
        """
        plan, key, holder = self.plan, _IDS.new_id(), _IDS.new_id()
        author = {"author": plan.author} if plan.author is not None else {}
        metas = [{**author, **own} for own in meta or [{}] * len(messages)]
        more: dict[str, Any] = {"format": options.pop("format", plan.format)}
        if plan.place is not None:
            more["parent"] = plan.place

        def append() -> list[Appended]:
            answers = list[Appended]()
            for part in parts_of(messages, metas):
                answer = plan.session.append(
                    *messages[part],
                    meta=metas[part],
                    run_id=self.run_id,
                    lease=self._lease(holder, release=release and part.stop >= len(messages)),
                    idempotency_key=f"{key}-{part.start}",
                    **(options if not part.start else {}),
                    **more,
                )
                if plan.on_busy is not None:
                    self.token = answer.lease.token if answer.lease is not None else None
                if self.head is None or answer.first == self.head + 1:
                    self.head = answer.head
                answers.append(answer)
            return answers

        return LoopStep(append)

    def append_results(self, results: Sequence[ExecutedCall], **options: Any) -> LoopStep:
        """Append the results of calls, a message of the format each. Windows group them as the provider requires."""
        messages, metas = list[JsonObject](), list[Mapping[str, Any]]()
        for executed in results:
            content: tuple[Block, ...] = (Text(executed.text), *executed.media)
            result = ToolResult(executed.call.id, content, executed.call.name, executed.is_error)
            body, meta = result_message(result, self.plan.format)
            messages.append(body)
            metas.append({**(executed.meta or {}), **meta})
        if self.usage != self._stored_usage:  # runs within the calls have taken tokens
            options.setdefault("run", self.state())
        return self.append(messages, metas, **options)

    def _lease(self, holder: str, *, release: bool) -> JsonObject | None:
        """Return what an append says of the lease. ``holder`` takes it when the run does not have it."""
        if self.plan.caller is not None:
            token = self.plan.caller.run.token
            return {"token": token} if token is not None else None
        if self.plan.on_busy is None:
            return None
        if self.token is None:
            return {"holder": holder, "seconds": self.plan.lease_seconds}
        return {"token": self.token, **({"release": True} if release else {})}

    def take(self) -> None:
        """Take the session's lease for the run."""
        self.token = self.plan.session.acquire(_IDS.new_id(), seconds=self.plan.lease_seconds).token

    def release(self) -> Step:
        """Give the session back if the run has it. Without an answer the lease expires."""
        token, self.token = self.token, None
        if token is not None:
            with suppress(TurnlogError):
                yield LoopStep(partial(self.plan.session.release, token))


def _usage_of(agent: JsonValue) -> dict[str, float]:
    counts = mapping_or_empty(mapping_or_empty(agent).get("usage"))
    return {name: count for name, count in counts.items() if isinstance(count, int | float)}


def inbox_of(agent: JsonObject) -> list[tuple[str, Any]]:
    """Return the entries of an agent's inbox, oldest first, each with its place."""
    return sorted(mapping_or_empty(agent.get("inbox")).items(), key=lambda entry: int(entry[0]))
