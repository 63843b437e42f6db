"""The agent loop as a generator: it yields steps to perform and receives their values, without waiting for anything.

One implementation serves threads and asyncio. What a run knows is in the log and in the agent's execution state, so another
process can continue it. A call is executed again when its process ended before its result was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from turnlog.agents.functions import (
    ExecutedCall,
    Handler,
    Hooks,
    NotExecutedError,
    Reply,
    RequestedCall,
    RunResult,
    bind_call,
    error_text,
    events_of,
    is_stream,
    reply_of,
    text_of,
)
from turnlog.agents.streams import Accumulator, accumulator, as_mapping
from turnlog.client import parts_of
from turnlog.client.finding import handles, result_message
from turnlog.core.agent_state import pending_of
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.messages import Block, Media, Message, Text, ToolResult
from turnlog.providers import Turn
from turnlog.providers.registry import codec_of
from turnlog.search.models import Recalled
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import Appended
from turnlog.telemetry import CONVERSATION, INPUT, MODEL, OPERATION, OUTPUT, PROVIDER, PROVIDERS, span

if TYPE_CHECKING:
    from turnlog.client.model import Session


DEFAULT_MAX_ITERATIONS = 20

Approval = Collection[str] | Callable[[RequestedCall], bool]


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A step to perform: a call of the session's, which may block, or with ``by_session=False`` a function of the user, sync or
    async.
    """

    function: Callable[[], Any]
    by_session: bool = True


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
    tools: Mapping[str, Handler]
    format: str
    agent_id: str
    max_iterations: int | None
    approve: Approval
    hooks: Sequence[Hooks]
    author: str | None
    window: Mapping[str, Any]
    new_id: Callable[[], str]


@dataclass(slots=True)
class AgentLoop:
    """The loop of one agent in a session: window, model, reply, tools, again."""

    plan: RunPlan
    run_id: str = ""
    iterations: int = 0
    _max_iterations: int = DEFAULT_MAX_ITERATIONS
    _head: int | None = -1
    _last: Reply | None = field(default=None)

    # ------------------------------------------------------------ entry points

    def send(self, messages: Sequence[Mapping[str, Any]]) -> Step:
        """Begin a new run with these messages."""
        yield from self._read()
        self.run_id, self.iterations, self._last = self.plan.new_id(), 0, None
        self._head = None  # nothing before its first commit can cancel a new run
        yield self._append([dict(message) for message in messages], run=self._state())
        return (yield from self._continue())

    def resume(self) -> Step:
        """Continue the newest run where it stopped."""
        agent = yield from self._read()
        if agent.get("cancelled_run") == self.run_id:
            return self._result("cancelled")
        pending = pending_of(agent)
        if pending is not None and pending.get("decision") is None:
            return self._result("pending", pending=pending)
        calls = yield from self._open_calls()
        if calls:
            approved = str(pending.get("ref")) if pending is not None and pending["decision"] == "approve" else ""
            waiting = yield from self._execute(calls, approved)
            if waiting is not None:
                return self._result("pending", pending=waiting)
        elif not (yield from self._is_unanswered()):
            return self._result("idle")
        return (yield from self._continue())

    # ------------------------------------------------------------ the loop

    def _continue(self) -> Step:
        """Call the model and its tools until the model answers, a call waits, the limit is reached, or the run is cancelled."""
        plan = self.plan
        while True:
            if self.iterations >= self._max_iterations:
                return self._result("max_iterations")
            window = yield LoopStep(lambda: plan.session.context(format=plan.format, **plan.window))
            if (yield from self._is_cancelled(window.head)):
                return self._result("cancelled")
            for hook in plan.hooks:
                window = (yield _user_call(hook.before_model, window)) or window
            reply = yield from self._reply(window)
            appended = yield from self._append_reply(reply, window)
            calls = self._requested_calls(reply, appended)
            if not calls:
                return self._result("final")
            if (yield from self._is_cancelled(appended[-1].head)):
                return self._result("cancelled")
            waiting = yield from self._execute(calls, "")
            if waiting is not None:
                return self._result("pending", pending=waiting)

    def facts(self, operation: str) -> dict[str, Any]:
        """Return the attributes of a span of this run."""
        plan = self.plan
        model = plan.window.get("model")
        return {OPERATION: operation, CONVERSATION: plan.session.id, MODEL: model, PROVIDER: PROVIDERS.get(plan.format)}

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
        plan, accumulated = self.plan, accumulator(self.plan.format)

        def take(event: Any) -> Sequence[Callable[[], Any]]:
            accumulated.add(as_mapping(event))
            return [_partial(hook.on_event, event) for hook in plan.hooks]

        try:
            yield StreamEvents(events, take)
        except BaseException:
            yield from self._interrupted(accumulated)
            raise
        if accumulated.is_broken or accumulated.finish_reason is None:
            yield from self._interrupted(accumulated)
            raise InvalidInputError("the model's stream ended before its answer was complete", code="broken_stream")
        return Reply(accumulated.messages, accumulated.usage, accumulated.finish_reason)

    def _interrupted(self, accumulated: Accumulator) -> Step:
        """Append a partial reply as interrupted: it is kept, and is in no window."""
        messages = accumulated.messages
        if messages:
            yield self._append(messages, meta=[{"status": "interrupted"}] * len(messages), run=self._state())

    def _append_reply(self, reply: Reply, window: WindowAnswer) -> Step:
        """Append the reply, with the run's count of model calls and the provider's token counts."""
        plan, messages = self.plan, [dict(message) for message in reply.messages]
        for hook in plan.hooks:
            replacement = yield _user_call(hook.after_model, messages)
            messages = [dict(message) for message in replacement] if replacement is not None else messages
        self.iterations += 1
        self._last = Reply(messages, reply.usage, reply.finish_reason)
        meta = [{"finish_reason": reply.finish_reason} if reply.finish_reason else {} for _ in messages]
        options: dict[str, Any] = {"window": window}
        if reply.usage is not None:
            options["usage"] = dict(reply.usage)
        return (yield self._append(messages, meta=meta, run=self._state(), **options))

    # ------------------------------------------------------------ tools

    def _requested_calls(self, reply: Reply, appended: Sequence[Appended]) -> list[RequestedCall]:
        """Return the calls of a reply, with their refs in the log."""
        codec, position = codec_of(self.plan.format), appended[0].first
        assert self._last is not None  # noqa: S101 - `_append_reply` has set it
        return [
            RequestedCall(f"{position + offset}.{index}", call.id, call.name, call.arguments)
            for offset, body in enumerate(self._last.messages)
            for index, call in enumerate(codec.parse(dict(body)).tool_calls)
        ]

    def _execute(self, calls: Sequence[RequestedCall], approved: str) -> Step:
        """Execute calls, append their results in one commit, and return the first call that waits for an approval.

        That call and later ones that need an approval stay open.
        """
        results, waiting = list[ExecutedCall](), None
        for call in calls:
            if call.ref != approved and self._needs_approval(call):
                waiting = waiting or call
                continue
            facts = {**self.facts("execute_tool"), "gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
            with span(f"execute_tool {call.name}", facts) as note:
                results.append((yield from self._execute_call(call)))
                note({"error.type": "tool_error" if results[-1].is_error else None})
        options, pending = dict[str, Any](), None
        if waiting is not None:
            pending = {"call_id": waiting.id, "ref": waiting.ref, "name": waiting.name}
            # Clears the decision of the action before, over which this one is merged.
            waits = {"decision": None, "reason": None, **pending}
            options["run"] = {**self._state(), "pending_action": waits}
        if results:
            messages, meta = self._result_messages(results)
            yield self._append(messages, meta=meta, **options)
        elif waiting is not None:
            agent_id, session = self.plan.agent_id, self.plan.session
            yield LoopStep(lambda: session.patch_agent({"pending_action": waits}, agent_id=agent_id))
        return pending

    def _needs_approval(self, call: RequestedCall) -> bool:
        approve = self.plan.approve
        return approve(call) if callable(approve) else call.name in approve

    def _execute_call(self, call: RequestedCall) -> Step:
        """Execute a call by a hook, the session or its handler, and return its result. An error of a tool is a result, too."""
        plan, is_error, meta, media = self.plan, False, None, tuple[Media, ...]()
        text: str | None = None
        for hook in plan.hooks:
            replacement = (yield _user_call(hook.before_tool, call)) if text is None else None
            text = text_of(replacement) if replacement is not None else text
        if text is None and call.name not in plan.tools and handles(call.name):
            execute = plan.session.execute_tool
            answer = yield LoopStep(
                lambda: execute(call.name, call.arguments, call_id=call.id, format=plan.format)  # type: ignore[arg-type]
            )
            text, is_error, meta, media = answer.text, answer.is_error, answer.meta, answer.media
        elif text is None:
            try:
                text = text_of(
                    (yield LoopStep(bind_call(plan.tools.get(call.name), call, sorted(plan.tools)), by_session=False))
                )
            except NotExecutedError as error:
                text, is_error = str(error), True
            except Exception as error:  # noqa: BLE001 - the model reads any error of a tool
                text, is_error = error_text(error), True
        for hook in plan.hooks:
            replacement = yield _user_call(hook.after_tool, call, text, is_error)
            text = text_of(replacement) if replacement is not None else text
        return ExecutedCall(call, text, is_error, meta, media)

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
        self.run_id = self.run_id or str(agent.get("run_id") or "") or self.plan.new_id()
        iteration = agent.get("iteration")
        self.iterations = iteration if isinstance(iteration, int) else 0
        limits = (self.plan.max_iterations, agent.get("max_iterations"), DEFAULT_MAX_ITERATIONS)
        self._max_iterations = next(limit for limit in limits if isinstance(limit, int))
        return agent

    def _agent(self) -> Step:
        """Return the agent's execution state, empty when the session has no such agent yet."""
        session, agent_id = self.plan.session, self.plan.agent_id
        try:
            return (yield LoopStep(lambda: session.agent(agent_id))).state
        except NotFoundError as error:
            if error.error_code != "not_found":
                raise
            return {}

    def _is_cancelled(self, head: int) -> Step:
        """Return whether `Session.cancel_run` has named this run, by a read only where commits of others precede ``head``."""
        if head == self._head:
            return False
        agent = yield from self._agent()
        self._head = head
        return agent.get("cancelled_run") == self.run_id

    def _open_calls(self) -> Step:
        """Return calls of this agent without a result, from the log."""
        plan = self.plan
        window = yield LoopStep(lambda: plan.session.context(format=plan.format, **plan.window))
        calls = list[RequestedCall]()
        for open_call in window.open_calls:
            recalled, author = yield LoopStep(_partial(_recorded_call, plan.session, open_call.ref))
            if plan.author is None or author in (None, plan.author):
                arguments = recalled.arguments
                text = arguments if isinstance(arguments, str) else encode_json(arguments).decode()
                calls.append(RequestedCall(open_call.ref, open_call.call_id, open_call.name, text))
        return calls

    def _is_unanswered(self) -> Step:
        """Return whether the newest message in view expects an answer of the model."""
        session = self.plan.session
        page = yield LoopStep(lambda: session.page(order="desc", limit=1, in_view=True))
        if not page.messages or page.messages[0].origin is not None:
            return False  # a message from long-term memory, which nobody sent
        newest = page.messages[0]
        if newest.status == "interrupted":
            return True
        return codec_of(newest.format).parse(newest.body).role in ("user", "tool")

    def _append(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> LoopStep:
        """Append messages in one commit, or in several when they do not fit one; the first commit takes the options."""
        plan, key = self.plan, self.plan.new_id()
        metas = [dict(meta) for meta in options.pop("meta", None) or [{} for _ in messages]]
        if plan.author is not None:
            metas = [{"author": plan.author, **meta} for meta in metas]
        options |= {"run_id": self.run_id}

        def append() -> list[Appended]:
            answers = list[Appended]()
            for part in parts_of(messages, metas):
                more = {
                    **(options if not part.start else {"run_id": self.run_id}),
                    "idempotency_key": f"{key}-{part.start}",
                }
                answer = plan.session.append(*messages[part], meta=metas[part], format=plan.format, **more)
                if self._head is None or answer.first == self._head + 1:
                    self._head = answer.head
                answers.append(answer)
            return answers

        return LoopStep(append)

    def _state(self) -> dict[str, Any]:
        return {
            "agent_id": self.plan.agent_id,
            "run_id": self.run_id,
            "iteration": self.iterations,
            "max_iterations": max(self._max_iterations, self.iterations),
        }

    def _result(
        self,
        status: Literal["final", "pending", "max_iterations", "cancelled", "idle"],
        *,
        pending: Mapping[str, Any] | None = None,
    ) -> RunResult:
        reply, codec = self._last, codec_of(self.plan.format)
        messages = tuple(dict(message) for message in reply.messages) if reply is not None else ()
        text = "\n".join(filter(None, (codec.parse(message).text for message in messages)))
        reason = reply.finish_reason if reply is not None else None
        return RunResult(status, self.run_id, self.iterations, messages, text, reason, pending)


def user_message(text: str, format: str) -> JsonObject:
    """Return a text of the user as a message of the format."""
    (body,) = codec_of(format).bodies(Turn(Message("user", (Text(text),))))
    return body


def _recorded_call(session: Session, ref: str) -> tuple[Recalled, str | None]:
    """Return a call in the log, and the author of its message."""
    position = int(ref.split(".", maxsplit=1)[0])
    page = session.page(after=position - 1, limit=1)
    return session.recall(ref, max_tokens=100_000), page.messages[0].author if page.messages else None


def _partial(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def _user_call(function: Callable[..., Any], *arguments: Any) -> LoopStep:
    return LoopStep(_partial(function, *arguments), by_session=False)
