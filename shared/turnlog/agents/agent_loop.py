"""The agent loop as a generator: it yields steps to perform and receives their values, without waiting for anything.

One implementation serves threads and asyncio. What a run knows is in the log and in the agent's execution state, so another
process can continue it. The commit of a reply says that a call of its tools begins, before one does: ``begun`` of the execution
state. So a later process knows which call may have had an effect: the first one without a result.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from turnlog.agents.functions import (
    NEEDS_ASYNC,
    Effect,
    ExecutedCall,
    ExecutingCall,
    Hooks,
    NotExecutedError,
    Reply,
    RequestedCall,
    RunResult,
    RunStatus,
    Tool,
    bind_call,
    error_text,
    events_of,
    is_stream,
    reply_of,
    text_of,
)
from turnlog.agents.streams import StreamedReply
from turnlog.client import parts_of
from turnlog.client.finding import result_message
from turnlog.core.agent_state import agents_of, pending_of
from turnlog.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    RunActiveError,
    RunLostError,
    TurnlogError,
)
from turnlog.core.json_values import JsonObject, JsonValue, encode_json
from turnlog.core.messages import Block, Media, Message, Text, ToolResult
from turnlog.engines import RandomIds
from turnlog.providers import Turn
from turnlog.providers.registry import codec_of
from turnlog.search.models import Recalled
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import Appended, StoredMessage
from turnlog.telemetry import AGENT, CONVERSATION, INPUT, MODEL, OPERATION, OUTPUT, PROVIDER, PROVIDERS, span

if TYPE_CHECKING:
    from turnlog.client.model import Session


DEFAULT_MAX_ITERATIONS = 20
_IDS = RandomIds()
OnBusy: TypeAlias = Literal["enqueue", "reject", "interrupt", "steer"]
Approval = Collection[str] | Callable[[RequestedCall], bool]


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A step to perform: a call of the session's, which may block, or with ``by_session=False`` a function of the user, sync or
    async.
    """

    function: Callable[[], Any]
    by_session: bool = True
    call: ExecutingCall | None = None


@dataclass(frozen=True, slots=True)
class StreamEvents:
    """A step to perform: read the events of a stream. ``handlers`` returns the functions to call for an event; they may be
    async.
    """

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
        if isinstance(self.approve, str):
            raise InvalidInputError(f"approve={self.approve!r} is a text; give the names in a list: [{self.approve!r}]")
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


@dataclass(slots=True)
class AgentLoop:
    """The loop of one agent in a session: window, model, reply, tools, again."""

    plan: RunPlan
    run_id: str = ""
    iterations: int = 0
    token: int | None = None
    _max_iterations: int = DEFAULT_MAX_ITERATIONS
    usage: dict[str, float] = field(default_factory=dict)
    _begun: bool = False
    _stored_usage: dict[str, float] = field(default_factory=dict)
    _head: int | None = -1
    _last: Reply | None = None

    # ------------------------------------------------------------ entry points

    def send(self, messages: Sequence[Mapping[str, Any]]) -> Step:
        """Begin a new run with these messages, or send them to the run that has the session."""
        agent, plan, parent = (yield from self._read()), self.plan, self.plan.parent
        if parent is not None and (plan.session.id, plan.agent_id) in parent.answered:
            reason = "another message needs an agent or child of its own"
            message = f"agent {plan.agent_id!r} has answered within this call: {reason}"
            raise InvalidInputError(message, code="second_message")
        if parent is not None and agent.get("parent") == parent.call.key:
            return (yield from self._with_lease(self._resume()))  # the call is tried again
        while True:
            self._begin_run()
            self._head = None  # nothing before its first commit can cancel a new run
            try:
                # An agent's own session begins a loop, whatever the fork has left open.
                options = {"loop": "new"} if self.plan.parent is not self.plan.caller else {}
                yield self._append([dict(message) for message in messages], run=self._state(), **options)
            except RunActiveError as error:
                if "token" not in error.details or self.plan.on_busy in (None, "reject"):
                    raise
                if (yield from self._send_to_run(messages)):
                    return RunResult("queued", "", 0)
            else:
                return (yield from self._with_lease(self._continue()))

    def resume(self) -> Step:
        """Continue the newest run where it stopped."""
        if self.plan.on_busy is not None:
            take = partial(self.plan.session.acquire, _IDS.new_id(), seconds=self.plan.lease_seconds)
            self.token = (yield LoopStep(take)).token
        return (yield from self._with_lease(self._resume()))

    def _resume(self) -> Step:
        agent = yield from self._read()
        if agent.get("cancelled_run") == self.run_id:
            return self._result("cancelled")
        pending = pending_of(agent)
        if pending is not None and pending.get("decision") is None:
            return self._result("pending", pending=pending)
        self._begun = agent.get("begun") is True
        calls = yield from self._open_calls()
        if calls:
            approved = str(pending.get("ref")) if pending is not None and pending["decision"] == "approve" else ""
            waiting = yield from self._execute(calls, approved, begun=self._begun)
            if waiting is not None:
                return self._result("pending", pending=waiting)
        elif not (yield from self._is_unanswered()) and not (yield from self._next_turn()):
            return (yield from self._idle())
        return (yield from self._continue())

    def _idle(self) -> Step:
        """Return the result of a run that was over, with its last reply. Within a call it is final."""
        newest = yield from self._newest()
        if newest is not None and newest.origin is None:
            self._last = Reply([newest.body], None, newest.finish_reason)
        return self._result("idle" if self.plan.parent is None else "final")

    # ------------------------------------------------------------ the lease, and messages of others

    def _with_lease(self, steps: Step) -> Step:
        """Perform the steps of a run, then give the session back, also after an error."""
        try:
            result = yield from steps
        except RunLostError as error:
            self.token = None
            for hook in self.plan.hooks:
                yield _user_call(hook.on_lease_lost, error)
            raise
        except (Exception, CancelledError, KeyboardInterrupt):
            yield from self._release()
            raise
        yield from self._release()
        if (parent := self.plan.parent) is not None:
            parent.run.add_usage(self.usage)
            parent.children.pop(self.plan.session.id, None)
            parent.answered.add((self.plan.session.id, self.plan.agent_id))
        return result

    def _release(self) -> Step:
        """Give the session back if the run has it. Without an answer the lease expires."""
        token, self.token = self.token, None
        if token is not None:
            with suppress(TurnlogError):
                yield LoopStep(partial(self.plan.session.release, token))

    def _send_to_run(self, messages: Sequence[Mapping[str, Any]]) -> Step:
        """Send messages to the run that has the session; return whether one has it."""
        plan, key = self.plan, _IDS.new_id()
        send = partial(
            plan.session.send_to_run,
            *messages,
            mode=cast("Any", plan.on_busy),
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

    def _take_messages(self, agent: JsonObject, *modes: str) -> Step:
        """Append the messages that wait in the agent's inbox with these modes."""
        entries = [(place, entry) for place, entry in inbox_of(agent) if entry["mode"] in modes]
        interrupts = any(entry["mode"] == "interrupt" for _, entry in entries)
        if interrupts:
            self._begin_run()
        for number, (place, entry) in enumerate(entries):
            loop = "new" if interrupts and number == 0 else "join"
            yield self._append_entry(place, entry, loop=loop)

    def _next_turn(self) -> Step:
        """Append the oldest messages of the agent's inbox as a new turn; return whether there are any."""
        entries = inbox_of((yield from self._agent()))
        if not entries:
            return False
        self._begin_run()
        yield self._append_entry(*entries[0])
        return True

    def _append_entry(self, place: str, entry: JsonObject, **options: Any) -> LoopStep:
        run, messages = {**self._state(), "inbox": {place: None}}, cast("list[JsonObject]", entry["messages"])
        return self._append(messages, run=run, format=entry.get("format"), **options)

    def _begin_run(self) -> None:
        self.run_id, self.iterations, self._last, self._begun = _IDS.new_id(), 0, None, False
        self.usage, self._stored_usage = {}, {}

    def add_usage(self, usage: Mapping[str, float]) -> None:
        """Count what a model call, or a run within one of this run's calls, has used."""
        for name, count in usage.items():
            self.usage[name] = self.usage.get(name, 0) + count

    def _add_children(self, executing: ExecutingCall) -> Step:
        """Count what runs of other processes have used in the child sessions of the call that has ended."""
        for read in executing.children.values():
            for agent in agents_of((yield LoopStep(read)).state).values():
                self.add_usage(_usage_of(agent))

    # ------------------------------------------------------------ the loop

    def _continue(self) -> Step:
        """Call the model and its tools until the model answers, a call waits, the limit is reached, or the run is cancelled."""
        while self.iterations < self._max_iterations:
            if (result := (yield from self._model_call())) is not None:
                return result
        return self._result("max_iterations")

    def _model_call(self) -> Step:
        """Call the model once, append its reply, and execute its calls. Return the run's result, or None to go on."""
        plan = self.plan
        window = yield self._window()
        if (news := (yield from self._news(window.head))) is not None:
            return self._result("cancelled") if news == "cancelled" else None
        for hook in plan.hooks:
            window = (yield _user_call(hook.before_model, window)) or window
        reply = yield from self._reply(window)
        calls, head = yield from self._append_reply(reply, window)
        if not calls:
            goes_on = _is_paused(reply) or (self.token is not None and (yield from self._next_turn()))
            return None if goes_on else self._result("final")
        if (news := (yield from self._news(head, "interrupt"))) is not None:
            return self._result("cancelled") if news == "cancelled" else None
        waiting = yield from self._execute(calls, "")
        return self._result("pending", pending=waiting) if waiting is not None else None

    def _window(self) -> LoopStep:
        plan, options = self.plan, dict(self.plan.window)
        if plan.place is not None:
            own = {name: options.pop(name) for name in ("others", "system") if name in options}
            options["parent"] = {**plan.place, **own}
        return LoopStep(lambda: plan.session.context(format=plan.format, **options))

    def facts(self, operation: str) -> dict[str, Any]:
        """Return the attributes of a span of this run."""
        plan = self.plan
        model = plan.window.get("model")
        place = {CONVERSATION: plan.session.id, AGENT: plan.agent_id}
        return {OPERATION: operation, MODEL: model, PROVIDER: PROVIDERS.get(plan.format), **place}

    def _reply(self, window: WindowAnswer) -> Step:
        """Call the model in a span, and return its reply."""
        facts = self.facts("chat")
        with span(f"chat {facts[MODEL]}" if facts[MODEL] else "chat", facts) as note:
            reply: Reply = yield from self._model_reply(window)
            usage = reply.usage or {}
            reasons = [reply.finish_reason] if reply.finish_reason else None
            note({INPUT: usage.get("input_tokens"), OUTPUT: usage.get("output_tokens")})
            note({"gen_ai.response.finish_reasons": reasons})
            return reply

    def _model_reply(self, window: WindowAnswer) -> Step:
        """Call the model, and return its reply."""
        plan = self.plan
        value = events_of((yield _user_call(plan.model, window)), plan.format)
        if is_stream(value):
            return (yield from self._streamed(value))
        reply = reply_of(value, plan.format)
        if not reply.messages:
            raise InvalidInputError("the model returned no message", code="empty_reply")
        return reply

    def _streamed(self, events: Any) -> Step:
        """Read a stream to its end, and return its reply. A stream that breaks is appended as interrupted."""
        plan, reply = self.plan, StreamedReply(self.plan.format)

        def take(event: Any) -> Sequence[Callable[[], Any]]:
            reply.add(event)
            return [partial(hook.on_event, event) for hook in plan.hooks]

        try:
            yield StreamEvents(events, take)
        except BaseException:
            yield from self._interrupted(reply)
            raise
        reply.check()
        accumulated = reply.accumulated
        if accumulated.is_broken or accumulated.finish_reason is None:
            yield from self._interrupted(reply)
            raise InvalidInputError("the model's stream ended before its answer was complete", code="broken_stream")
        return Reply(accumulated.messages, accumulated.usage, accumulated.finish_reason)

    def _interrupted(self, reply: StreamedReply) -> Step:
        """Append a partial reply as interrupted: it is kept, and is in no window."""
        messages = reply.accumulated.messages
        if messages:
            yield self._append(messages, meta=[{"status": "interrupted"}] * len(messages), run=self._state())

    def _append_reply(self, reply: Reply, window: WindowAnswer) -> Step:
        """Append the reply, with the run's count of model calls and the provider's token counts; return its calls and the head.

        Calls that the provider runs, or that the reply answers itself, are not among them.
        """
        plan, messages = self.plan, [dict(message) for message in reply.messages]
        for hook in plan.hooks:
            replacement = yield _user_call(hook.after_model, messages)
            messages = [dict(message) for message in replacement] if replacement is not None else messages
        self.iterations += 1
        self._last = Reply(messages, reply.usage, reply.finish_reason)
        parsed = [codec_of(plan.format).parse(message) for message in messages]
        answered = {result.tool_call_id for message in parsed for result in message.tool_results}
        requested = [
            (offset, index, call)
            for offset, message in enumerate(parsed)
            for index, call in enumerate(message.tool_calls)
            if not call.hosted and call.id not in answered
        ]
        self._begun = any(self._has_effect(call.name) for _, _, call in requested)
        meta = [{"finish_reason": reply.finish_reason} if reply.finish_reason else {} for _ in messages]
        options: dict[str, Any] = {"release": not (requested or _is_paused(reply))}
        if plan.caller is None:
            options["window"] = window
        if reply.usage is not None:
            self.add_usage(reply.usage)
            options["usage"] = {name: count for name, count in reply.usage.items() if name != "cost"}
        appended = yield self._append(messages, meta=meta, run=self._state(), **options)
        calls = [
            self._requested(f"{appended[0].first + offset}.{index}", call.id, call.name, call.arguments)
            for offset, index, call in requested
        ]
        return calls, appended[-1].head

    # ------------------------------------------------------------ tools

    def _requested(self, ref: str, call_id: str, name: str, arguments: str) -> RequestedCall:
        return RequestedCall(ref, call_id, name, arguments, f"{self.plan.session.id}/{ref}")

    def _execute(self, calls: Sequence[RequestedCall], approved: str, *, begun: bool = False) -> Step:
        """Execute calls, append their results, and return the first call that waits for a decision.

        That call and later ones that need an approval stay open. The result of a tool that may have an effect is appended before
        another call begins. ``begun``: the first of these calls may have begun in another process; nothing behind it is executed
        until its outcome is known.
        """
        results, waiting, approve = list[ExecutedCall](), None, self.plan.approve
        for number, call in enumerate(calls):
            if call.ref != approved and (approve(call) if callable(approve) else call.name in approve):
                waiting = waiting or {"call_id": call.id, "ref": call.ref, "name": call.name}
                continue
            has_effect = self._has_effect(call.name)
            executed = (yield from self._outcome(call)) if has_effect and begun else Effect.NONE
            begun = begun and not has_effect
            if executed is Effect.UNKNOWN:
                waiting = {"call_id": call.id, "ref": call.ref, "name": call.name, "effect": "unknown"}
                break
            if executed is Effect.NONE:
                executed = yield from self._traced_call(call, has_effect=has_effect)
            results.append(executed)
            if has_effect and number + 1 < len(calls):
                yield self._append_results(results)
                results = []
        return (yield from self._end_calls(results, waiting))

    def _end_calls(self, results: Sequence[ExecutedCall], waiting: Mapping[str, Any] | None) -> Step:
        """Append the last results, and what waits for a decision in the same commit; return what waits."""
        if waiting is None:
            if results:
                yield self._append_results(results)
            return None
        self._begun = False
        # Clears the decision of the action before, over which this one is merged.
        action = {"decision": None, "reason": None, "effect": None, **waiting}
        if results:
            yield self._append_results(results, run={**self._state(), "pending_action": action}, release=True)
        else:
            yield self._patch({"pending_action": action, "begun": None})
        return dict(waiting)

    def _append_results(self, results: Sequence[ExecutedCall], **options: Any) -> LoopStep:
        messages, meta = self._result_messages(results)
        if self.usage != self._stored_usage:  # runs within the calls have taken tokens
            options.setdefault("run", self._state())
        return self._append(messages, meta=meta, **options)

    def _outcome(self, call: RequestedCall) -> Step:
        """Return the result of a call that may have begun in another process, or an `Effect`, as the tool's ``verify`` finds it."""
        verify = self.plan.tools[call.name].verify
        if verify is None:
            return Effect.UNKNOWN
        finding = yield LoopStep(partial(verify, call), by_session=False, call=self._executing(call))
        return finding if isinstance(finding, Effect) else ExecutedCall(call, text_of(finding))

    def _has_effect(self, name: str) -> bool:
        tool = self.plan.tools.get(name)
        return tool is not None and not tool.idempotent

    def _traced_call(self, call: RequestedCall, *, has_effect: bool) -> Step:
        """Execute a call in a span, and return its result."""
        names = {"gen_ai.tool.name": call.name, "gen_ai.tool.type": "function", "gen_ai.tool.call.id": call.id}
        facts = {**self.facts("execute_tool"), **names}
        with span(f"execute_tool {call.name}", facts) as note:
            executed = yield from self._execute_call(call, has_effect=has_effect)
            note({"error.type": "tool_error" if executed.is_error else None})
            return executed

    def _execute_call(self, call: RequestedCall, *, has_effect: bool) -> Step:
        """Execute a call by a hook, the session or its handler, and return its result. An error of a tool is a result, too."""
        plan, is_error, meta, media = self.plan, False, None, tuple[Media, ...]()
        executing = self._executing(call)
        if has_effect and not self._begun:
            self._begun = True  # no reply's commit has said so
            yield self._patch({"begun": True})
        text: str | None = None
        for hook in plan.hooks:
            replacement = (yield _user_call(hook.before_tool, call)) if text is None else None
            text = text_of(replacement) if replacement is not None else text
        if text is None and call.name not in plan.tools and plan.session.handles(call.name):
            execute = plan.session.execute_tool
            answer = yield LoopStep(
                lambda: execute(call.name, call.arguments, call_id=call.id, format=plan.format)  # type: ignore[arg-type]
            )
            text, is_error, meta, media = answer.text, answer.is_error, answer.meta, answer.media
        elif text is None:
            try:
                tool = plan.tools.get(call.name)
                handler = bind_call(tool.function if tool is not None else None, call, sorted(plan.tools))
                text = text_of((yield LoopStep(handler, by_session=False, call=executing)))
            except NotExecutedError as error:
                text, is_error = str(error), True
            except Exception as error:
                if isinstance(error, InvalidInputError) and error.error_code == NEEDS_ASYNC:
                    raise
                text, is_error = error_text(error), True
        yield from self._add_children(executing)
        for hook in plan.hooks:
            replacement = yield _user_call(hook.after_tool, call, text, is_error)
            text = text_of(replacement) if replacement is not None else text
        return ExecutedCall(call, text, is_error, meta, media)

    def _executing(self, call: RequestedCall) -> ExecutingCall:
        return ExecutingCall(call, self.plan.session.id, self.plan.agent_id, self, {}, set())

    def _patch(self, fields: Mapping[str, Any]) -> LoopStep:
        return LoopStep(partial(self.plan.session.patch_agent, fields, agent_id=self.plan.agent_id, lease=self.token))

    def _result_messages(self, results: Sequence[ExecutedCall]) -> tuple[list[JsonObject], list[dict[str, Any]]]:
        """Return results as messages of the format, one each, and their metadata.

        Windows group them as the provider requires.
        """
        messages, metas = list[JsonObject](), list[dict[str, Any]]()
        for executed in results:
            content: tuple[Block, ...] = (Text(executed.text), *executed.media)
            result = ToolResult(executed.call.id, content, executed.call.name, executed.is_error)
            body, meta = result_message(result, self.plan.format)
            messages.append(body)
            metas.append({**(executed.meta or {}), **meta})
        return messages, metas

    # ------------------------------------------------------------ the log

    def _read(self) -> Step:
        """Return the agent's execution state, and take over its run and its limit."""
        agent = yield from self._agent()
        self.run_id = self.run_id or str(agent.get("run_id") or "") or _IDS.new_id()
        iteration = agent.get("iteration")
        self.iterations = iteration if isinstance(iteration, int) else 0
        self.usage, self._stored_usage = _usage_of(agent), _usage_of(agent)
        limits = (self.plan.max_iterations, agent.get("max_iterations"), DEFAULT_MAX_ITERATIONS)
        self._max_iterations = next(limit for limit in limits if isinstance(limit, int))
        return agent

    def _agent(self) -> Step:
        """Return the agent's execution state, empty when the session has no such agent yet."""
        try:
            return (yield LoopStep(partial(self.plan.session.agent, self.plan.agent_id))).state
        except NotFoundError as error:
            if error.error_code != "not_found":
                raise
            return {}

    def _news(self, head: int, *modes: str) -> Step:
        """Return ``cancelled`` when `Session.cancel_run` has named this run, ``messages`` after messages for it were appended.

        Takes a read only where commits of others precede ``head``. ``modes`` are those of the messages to take, by default
        ``interrupt`` and ``steer``.
        """
        if head == self._head:
            return None
        agent = yield from self._agent()
        if agent.get("cancelled_run") == self.run_id:
            return "cancelled"
        modes = modes or ("interrupt", "steer")
        waiting = {entry["mode"] for _, entry in inbox_of(agent)}
        if waiting.intersection(modes):
            self._head = head
            yield from self._take_messages(agent, *modes)
            return "messages"
        if "steer" not in waiting:
            self._head = head
        return None

    def _open_calls(self) -> Step:
        """Return calls of this agent without a result, from the log."""
        plan = self.plan
        window = yield self._window()
        calls = list[RequestedCall]()
        for open_call in window.open_calls:
            recalled, author = yield LoopStep(partial(_call_in_log, plan.session, open_call.ref))
            if plan.author is None or author in (None, plan.author):
                arguments = recalled.arguments
                text = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
                calls.append(self._requested(open_call.ref, open_call.call_id, open_call.name, text))
        return calls

    def _is_unanswered(self) -> Step:
        """Return whether the newest message in view expects an answer of the model."""
        newest = yield from self._newest()
        if newest is None or newest.origin is not None:
            return False  # a message from long-term memory, which nobody sent
        if newest.status == "interrupted" or newest.finish_reason in _PAUSES:
            return True
        return codec_of(newest.format).parse(newest.body).role in ("user", "tool")

    def _newest(self) -> Step:
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

    def _append(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> LoopStep:
        """Append messages in one commit, or in several when they do not fit one; the first commit takes the options.

        The commit takes or renews the run's lease; with ``release`` the last one gives it back.
        """
        plan, key = self.plan, _IDS.new_id()
        metas = [dict(meta) for meta in options.pop("meta", None) or [{} for _ in messages]]
        if plan.author is not None:
            metas = [{"author": plan.author, **meta} for meta in metas]
        more: dict[str, Any] = {"parent": plan.place} if plan.place is not None else {}
        format, release, holder = options.pop("format", plan.format), options.pop("release", False), _IDS.new_id()

        def append() -> list[Appended]:
            answers = list[Appended]()
            for part in parts_of(messages, metas):
                answer = plan.session.append(
                    *messages[part],
                    meta=metas[part],
                    format=format,
                    run_id=self.run_id,
                    lease=self._lease(holder, release=release and part.stop >= len(messages)),
                    idempotency_key=f"{key}-{part.start}",
                    **(options if not part.start else {}),
                    **more,
                )
                if plan.on_busy is not None:
                    self.token = answer.lease.token if answer.lease is not None else None
                if self._head is None or answer.first == self._head + 1:
                    self._head = answer.head
                answers.append(answer)
            return answers

        return LoopStep(append)

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

    def _state(self) -> dict[str, Any]:
        self._stored_usage = dict(self.usage)
        return {
            "agent_id": self.plan.agent_id,
            "run_id": self.run_id,
            "iteration": self.iterations,
            "max_iterations": max(self._max_iterations, self.iterations),
            "begun": self._begun or None,
            "usage": dict(self.usage) or None,
            "parent": self.plan.parent.call.key if self.plan.parent is not None else None,
        }

    def _result(self, status: RunStatus, *, pending: Mapping[str, Any] | None = None) -> RunResult:
        reply, codec = self._last, codec_of(self.plan.format)
        messages = tuple(dict(message) for message in reply.messages) if reply is not None else ()
        text = "\n".join(filter(None, (codec.parse(message).text for message in messages)))
        reason = reply.finish_reason if reply is not None else None
        return RunResult(
            status, self.run_id, self.iterations, messages, text, reason, pending, dict(self.usage) or None
        )


_PAUSES = ("pause_turn", "compaction")
"""Finish reasons with which a provider wants to be called again (https://platform.claude.com/docs/en/api/handling-stop-reasons)."""


def _is_paused(reply: Reply) -> bool:
    return reply.finish_reason in _PAUSES


def _usage_of(agent: JsonValue) -> dict[str, float]:
    usage = agent.get("usage") if isinstance(agent, dict) else None
    counts = usage.items() if isinstance(usage, dict) else ()
    return {name: count for name, count in counts if isinstance(count, int | float)}


def inbox_of(agent: JsonObject) -> list[tuple[str, Any]]:
    """Return the entries of an agent's inbox, oldest first, each with its place."""
    inbox = agent.get("inbox")
    return sorted(inbox.items(), key=lambda entry: int(entry[0])) if isinstance(inbox, dict) else []


def user_message(text: str, format: str) -> JsonObject:
    """Return a text of the user as a message of the format."""
    (body,) = codec_of(format).bodies(Turn(Message("user", (Text(text),))))
    return body


def _call_in_log(session: Session, ref: str) -> tuple[Recalled, str | None]:
    """Return a call in the log, and the author of its message."""
    position = int(ref.split(".", maxsplit=1)[0])
    page = session.page(after=position - 1, limit=1)
    return session.recall(ref, max_tokens=100_000), page.messages[0].author if page.messages else None


def _user_call(function: Callable[..., Any], *arguments: Any) -> LoopStep:
    return LoopStep(partial(function, *arguments), by_session=False)
