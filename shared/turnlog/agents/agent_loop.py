"""The agent loop as a generator: it yields steps to perform and receives their values, without waiting for anything.

One implementation serves threads and asyncio. What a run knows is in the log and in the agent's execution state, so another
process can continue it. The commit of a reply says that a call of its tools begins, before one does: ``begun`` of the execution
state. So a later process knows which call may have had an effect: the first one without a result.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from turnlog.agents.functions import (
    NEEDS_ASYNC,
    Effect,
    ExecutedCall,
    ExecutingCall,
    NotExecutedError,
    Reply,
    RequestedCall,
    RunResult,
    bind_call,
    error_text,
    events_of,
    failure_of,
    is_stream,
    reply_of,
    text_of,
)
from turnlog.agents.run_log import PAUSES, LoopStep, RunLog, RunPlan, Step, StreamEvents, inbox_of
from turnlog.agents.streams import StreamedReply
from turnlog.core.agent_state import pending_of
from turnlog.core.errors import InvalidInputError, RunActiveError, RunLostError, UnavailableError
from turnlog.core.json_values import encode_json
from turnlog.core.messages import Media
from turnlog.providers.registry import codec_of
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import MAX_APPEND_BYTES
from turnlog.telemetry import INPUT, MODEL, OUTPUT, span

_MAX_RESULT_BYTES = MAX_APPEND_BYTES - 64 * 1024
"""An append refuses more than `MAX_APPEND_BYTES`, with what is beside the text."""
_CUT_OFF = "This call was not executed: the reply was cut off at its token limit. Call again, with less text."
_REDACTED = "This call is not executed: its arguments have been redacted. Call again if it is still needed."


class AgentLoop:
    """The loop of one agent in a session: window, model, reply, tools, again. ``run`` is its record in the log."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.run = RunLog(plan)

    # ------------------------------------------------------------ entry points

    def send(self, messages: Sequence[Mapping[str, Any]]) -> Step:
        """Begin a new run with these messages, or send them to the run that has the session."""
        agent, plan, parent = (yield from self.run.read()), self.plan, self.plan.parent
        if parent is not None and (plan.session.id, plan.agent_id) in parent.answered:
            reason = "another message needs an agent or child of its own"
            message = f"agent {plan.agent_id!r} has answered within this call: {reason}"
            raise InvalidInputError(message, code="second_message")
        if parent is not None and agent.get("parent") == parent.call.key:
            return (yield from self._with_lease(self._resume()))  # the call is tried again
        waiting = plan.on_busy is not None and inbox_of(agent)
        while True:
            self.run.begin()
            self.run.head = None  # nothing before its first commit can cancel a new run
            try:
                if waiting:
                    yield LoopStep(self.run.take)
                else:
                    yield self._append(messages)
            except RunActiveError as error:
                if "token" not in error.details or self.plan.on_busy in (None, "reject"):
                    raise
                if (yield from self.run.send_to_inbox(messages, self.plan.on_busy)):
                    return RunResult("queued", "", 0)
            except (CancelledError, KeyboardInterrupt):
                yield from self.run.release()  # the append ran to its end
                raise
            else:
                return (yield from self._with_lease(self._behind_inbox(messages) if waiting else self._continue()))

    def _behind_inbox(self, messages: Sequence[Mapping[str, Any]]) -> Step:
        """Answer the messages that a run which died has left in the inbox, then these."""
        if not ((yield from self.run.next_turn()) and (yield from self.run.send_to_inbox(messages, "enqueue"))):
            yield self._append(messages)
        return (yield from self._continue())

    def _append(self, messages: Sequence[Mapping[str, Any]]) -> LoopStep:
        # An agent's own session begins a loop, whatever the fork has left open.
        options: dict[str, Any] = {"loop": "new"} if self.plan.parent is not self.plan.caller else {}
        return self.run.append([dict(message) for message in messages], run=self.run.state(), **options)

    def resume(self) -> Step:
        """Continue the newest run where it stopped."""
        return (yield from self._with_lease(self._resume(takes=self.plan.on_busy is not None)))

    def _resume(self, *, takes: bool = False) -> Step:
        if takes:
            yield LoopStep(self.run.take)
        agent = yield from self.run.read()
        if agent.get("cancelled_run") == self.run.run_id:
            return self.run.result("cancelled")
        pending = pending_of(agent)
        if pending is not None and pending.get("decision") is None:
            return self.run.result("pending", pending=pending)
        self.run.begun = agent.get("begun") is True
        approved = str(pending.get("ref")) if pending is not None and pending["decision"] == "approve" else ""
        calls, is_late = yield from self.run.open_calls(approved)
        later = (yield from self.run.later_answer(approved)) if is_late else None
        if calls:
            waiting = yield from self._execute(calls, approved, begun=self.run.begun)
            if waiting is not None:
                return self.run.result("pending", pending=waiting)
            if later is not None:  # the next message's window has the late result
                self.run.reply = Reply([later.body], None, later.finish_reason)
                return self.run.result("idle")
        elif not (yield from self.run.is_unanswered()) and not (yield from self.run.next_turn()):
            return (yield from self._idle())
        return (yield from self._continue())

    def _idle(self) -> Step:
        """Return the result of a run that was over, with its last reply. Within a call it is final."""
        newest = yield from self.run.newest()
        if newest is not None and newest.origin is None:
            self.run.reply = Reply([newest.body], None, newest.finish_reason)
        return self.run.result("idle" if self.plan.parent is None else "final")

    def _with_lease(self, steps: Step) -> Step:
        """Perform the steps of a run, then give the session back, also after an error."""
        try:
            result = yield from steps
        except RunLostError as error:
            self.run.token = None
            for hook in self.plan.hooks:
                yield _user_call(hook.on_lease_lost, error)
            raise
        except GeneratorExit:
            raise
        except BaseException:  # a tool may call `sys.exit`
            yield from self.run.release()
            raise
        yield from self.run.release()
        if (parent := self.plan.parent) is not None:
            parent.run.add_usage(self.run.usage)
            parent.children.pop(self.plan.session.id, None)
            parent.answered.add((self.plan.session.id, self.plan.agent_id))
        return result

    # ------------------------------------------------------------ the loop

    def _continue(self) -> Step:
        """Call the model and its tools until the model answers, a call waits, the limit is reached, or the run is cancelled."""
        while self.run.iterations < self.run.max_iterations:
            if (result := (yield from self._model_call())) is not None:
                return result
        return self.run.result("max_iterations")

    def _model_call(self) -> Step:
        """Call the model once, append its reply, and execute its calls. Return the run's result, or None to go on."""
        plan = self.plan
        window = yield plan.context()
        if (news := (yield from self.run.news(window.head))) is not None:
            return self.run.result("cancelled") if news == "cancelled" else None
        for hook in plan.hooks:
            window = (yield _user_call(hook.before_model, window)) or window
        reply = yield from self._reply(window)
        calls, head = yield from self._append_reply(reply, window)
        if not calls:
            is_paused = reply.finish_reason in PAUSES
            goes_on = is_paused or (self.run.token is not None and (yield from self.run.next_turn()))
            return None if goes_on else self.run.result("final")
        if (news := (yield from self.run.news(head, "interrupt"))) is not None:
            return self.run.result("cancelled") if news == "cancelled" else None
        waiting = yield from self._execute(calls)
        return self.run.result("pending", pending=waiting) if waiting is not None else None

    def _reply(self, window: WindowAnswer) -> Step:
        attributes = self.plan.span_attributes("chat")
        with span(f"chat {attributes[MODEL]}" if attributes[MODEL] else "chat", attributes) as note:
            reply: Reply = yield from self._model_reply(window)
            usage = reply.usage or {}
            reasons = [reply.finish_reason] if reply.finish_reason else None
            note({INPUT: usage.get("input_tokens"), OUTPUT: usage.get("output_tokens")})
            note({"gen_ai.response.finish_reasons": reasons})
            return reply

    def _model_reply(self, window: WindowAnswer) -> Step:
        plan = self.plan
        value = events_of((yield _user_call(plan.model, window)), plan.format)
        if is_stream(value):
            return (yield from self._streamed(value))
        reply = reply_of(value, plan.format)
        if (failure := failure_of(value, reply)) is not None:
            yield from self._interrupted(reply.messages)
            raise UnavailableError(": ".join(filter(None, ("the model's answer has failed", failure))))
        if not reply.messages:
            raise InvalidInputError(f"the model gave no message (finish: {reply.finish_reason})", code="empty_reply")
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
            yield from self._interrupted(reply.accumulated.messages)
            raise
        reply.check()
        accumulated = reply.accumulated
        if accumulated.is_broken or accumulated.finish_reason is None:
            yield from self._interrupted(accumulated.messages)
            texts = ("the model's stream ended before its answer was complete", accumulated.error_text)
            raise UnavailableError(": ".join(filter(None, texts)), code="broken_stream")
        return Reply(accumulated.messages, accumulated.usage, accumulated.finish_reason)

    def _interrupted(self, messages: Sequence[Mapping[str, Any]]) -> Step:
        """Append a partial reply as interrupted: it is kept, and is in no window."""
        if messages:
            yield self.run.append(messages, [{"status": "interrupted"}] * len(messages), run=self.run.state())

    def _append_reply(self, reply: Reply, window: WindowAnswer) -> Step:
        """Append the reply, with the run's count of model calls and the provider's token counts; return its calls and the head.

        Calls that the provider runs, or that the reply answers itself, are not among them.
        """
        plan, messages = self.plan, [dict(message) for message in reply.messages]
        for hook in plan.hooks:
            replacement = yield _user_call(hook.after_model, messages)
            messages = [dict(message) for message in replacement] if replacement is not None else messages
        self.run.iterations += 1
        self.run.reply = Reply(messages, reply.usage, reply.finish_reason)
        parsed = [codec_of(plan.format).parse(message) for message in messages]
        answered = {result.tool_call_id for message in parsed for result in message.tool_results}
        requested = [
            (offset, index)
            for offset, message in enumerate(parsed)
            for index, call in enumerate(message.tool_calls)
            if not call.hosted and call.id not in answered
        ]
        self.run.begun = any(plan.has_effect(parsed[offset].tool_calls[index].name) for offset, index in requested)
        meta = [{"finish_reason": reply.finish_reason} if reply.finish_reason else {} for _ in messages]
        options: dict[str, Any] = {"release": not (requested or reply.finish_reason in PAUSES)}
        if plan.caller is None:
            options["window"] = window
        if reply.usage is not None:
            self.run.add_usage(reply.usage)
            options["usage"] = {name: count for name, count in reply.usage.items() if name != "cost"} or None
        appended = yield self.run.append(messages, meta, run=self.run.state(), **options)
        first, reason = appended[0].first, reply.finish_reason
        calls = [
            plan.requested(first + offset, parsed[offset].tool_calls, index, reason) for offset, index in requested
        ]
        return calls, appended[-1].head

    # ------------------------------------------------------------ tools

    def _execute(self, calls: Sequence[RequestedCall], approved: str = "", *, begun: bool = False) -> Step:
        """Execute calls, append their results, and return the first call that waits for a decision.

        That call and later ones that need an approval stay open, and so do later ones with their ids or with none: their results
        would go to the first open call. ``approved`` is the ref of a call that has it. The result of a tool that may have an
        effect is appended before another call begins. ``begun``: the first of these calls may have begun in another process;
        nothing behind it is executed until its outcome is known.
        """
        results, waiting, open_ids = list[ExecutedCall](), None, set[str]()
        for number, call in enumerate(calls):
            needs_none = call.ref == approved or call.is_cut
            if call.id in open_ids or (not needs_none and (yield from self.plan.asks(call))):
                waiting = waiting or {"call_id": call.id, "ref": call.ref, "name": call.name}
                open_ids |= {call.id, ""}
                continue
            if call.is_cut:
                results.append(ExecutedCall(call, _CUT_OFF, is_error=True))
                continue
            has_effect = self.plan.has_effect(call.name)
            executed = (yield from self._outcome(call)) if has_effect and begun else Effect.NONE
            begun = begun and not has_effect
            if executed is Effect.UNKNOWN:
                waiting = {"call_id": call.id, "ref": call.ref, "name": call.name, "effect": "unknown"}
                break
            if executed is Effect.NONE:
                executed = yield from self._traced_call(call, has_effect=has_effect)
            results.append(executed)
            if has_effect and number + 1 < len(calls):
                yield self.run.append_results(results)
                results = []
        return (yield from self._end_calls(results, waiting))

    def _end_calls(self, results: Sequence[ExecutedCall], waiting: Mapping[str, Any] | None) -> Step:
        """Append the last results, and what waits for a decision in the same commit; return what waits."""
        if waiting is None:
            if results:
                yield self.run.append_results(results)
            return None
        self.run.begun = False
        # Clears the decision of the action before, over which this one is merged.
        action = {"decision": None, "reason": None, "effect": None, **waiting}
        if results:
            yield self.run.append_results(results, run={**self.run.state(), "pending_action": action}, release=True)
        else:
            yield self.run.patch({"pending_action": action, "begun": None})
        return dict(waiting)

    def _outcome(self, call: RequestedCall) -> Step:
        """Return the result of a call that may have begun in another process, or an `Effect`, as the tool's ``verify`` finds it."""
        verify = self.plan.tools[call.name].verify
        if verify is None:
            return Effect.UNKNOWN
        finding = yield LoopStep(partial(verify, call), by_session=False, call=self._executing(call))
        return finding if isinstance(finding, Effect) else ExecutedCall(call, text_of(finding))

    def _traced_call(self, call: RequestedCall, *, has_effect: bool) -> Step:
        names = {"gen_ai.tool.name": call.name, "gen_ai.tool.type": "function", "gen_ai.tool.call.id": call.id}
        attributes = {**self.plan.span_attributes("execute_tool"), **names}
        with span(f"execute_tool {call.name}", attributes) as note:
            executed = yield from self._execute_call(call, has_effect=has_effect)
            note({"error.type": "tool_error" if executed.is_error else None})
            return executed

    def _execute_call(self, call: RequestedCall, *, has_effect: bool) -> Step:
        """Execute a call by a hook, the session or its handler, and return its result. An error of a tool is a result, too."""
        if call.is_redacted:
            return ExecutedCall(call, _REDACTED, is_error=True)
        plan, is_error, meta, media = self.plan, False, None, tuple[Media, ...]()
        executing = self._executing(call)
        if has_effect and not self.run.begun:
            self.run.begun = True  # no reply's commit has said so
            yield self.run.patch({"begun": True})
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
            text, is_error = yield from self._call_handler(call, executing)
        yield from self.run.add_children(executing)
        for hook in plan.hooks:
            replacement = yield _user_call(hook.after_tool, call, text, is_error)
            text = text_of(replacement) if replacement is not None else text
        if (size := len(encode_json(text))) > _MAX_RESULT_BYTES:
            text, is_error = f"The result of {size:,} bytes is too large. The limit is {_MAX_RESULT_BYTES:,}.", True
        return ExecutedCall(call, text, is_error, meta, media)

    def _call_handler(self, call: RequestedCall, executing: ExecutingCall) -> Step:
        """Call a tool's handler; return its text, or that of its error, and whether it is an error."""
        tools = self.plan.tools
        try:
            handler = bind_call(tools[call.name].function if call.name in tools else None, call, sorted(tools))
            return text_of((yield LoopStep(handler, by_session=False, call=executing))), False
        except NotExecutedError as error:
            return str(error), True
        except Exception as error:
            if isinstance(error, InvalidInputError) and error.error_code == NEEDS_ASYNC:
                raise
            return error_text(error), True

    def _executing(self, call: RequestedCall) -> ExecutingCall:
        return ExecutingCall(call, self.plan.session.id, self.plan.agent_id, self.run, {}, set())


def _user_call(function: Callable[..., Any], *arguments: Any) -> LoopStep:
    return LoopStep(partial(function, *arguments), by_session=False)
