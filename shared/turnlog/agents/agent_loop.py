"""The course of a run, without waiting for anything: it asks for what is to be done, and is told what came of it.

So there is one for threads and for asyncio. What a run knows is in the log and in the agent's execution state: another process goes
on where this one has stopped. A call is executed again when its process ended before its result was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from turnlog.agents.replies import Reply, events_of, is_stream, reply_of
from turnlog.agents.streams import accumulator
from turnlog.agents.streams.base import Accumulator, plain
from turnlog.agents.tools import (
    Handler,
    Hooks,
    NotExecutedError,
    RequestedCall,
    Result,
    RunResult,
    error_text,
    prepared,
    text_of,
)
from turnlog.client.finding import handles
from turnlog.client.parts import parts_of
from turnlog.core.agent_state import pending_of
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.messages import Message, Text, ToolResult
from turnlog.providers.base import Turn
from turnlog.providers.registry import codec_of
from turnlog.search.models import Recalled
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import Appended

if TYPE_CHECKING:
    from turnlog.client.model import Session


Approval = Collection[str] | Callable[[RequestedCall], bool]
_SAYS_ERROR = ("anthropic", "bedrock_converse", "turnlog")


@dataclass(frozen=True, slots=True)
class LoopStep:
    """To be done: ``own`` are calls of the session's, which may wait; others are the caller's functions, sync or async."""

    what: Callable[[], Any]
    own: bool = True


@dataclass(frozen=True, slots=True)
class Each:
    """Events to be read, each given to ``to``; its answer is awaited where it is async."""

    events: Any
    to: Callable[[Any], Sequence[Callable[[], Any]]]


Step = Generator[LoopStep | Each, Any, Any]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run is made of. See `Session.run`."""

    session: Session
    model: Callable[[WindowAnswer], Any]
    tools: Mapping[str, Handler]
    format: str
    agent_id: str
    max_iterations: int
    approve: Approval
    hooks: Sequence[Hooks]
    author: str | None
    window: Mapping[str, Any]
    new_id: Callable[[], str]


@dataclass(slots=True)
class AgentLoop:
    """One agent's course in a session."""

    plan: RunPlan
    run_id: str = ""
    iterations: int = 0
    _last: Reply | None = field(default=None)

    # ------------------------------------------------------------ entrances

    def send(self, messages: Sequence[Mapping[str, Any]]) -> Step:
        """A new run begins with these messages."""
        yield from self._read()
        self.run_id, self.iterations, self._last = self.plan.new_id(), 0, None
        given = [dict(one) for one in messages]
        yield self._append(given, run=self._state())
        return (yield from self._go_on())

    def resume(self) -> Step:
        """The newest run goes on, where it has stopped."""
        agent = yield from self._read()
        pending = pending_of(agent)
        if pending is not None and pending.get("decision") is None:
            return self._outcome("pending", pending=pending)
        calls = yield from self._open_calls()
        if calls:
            approved = str(pending.get("ref")) if pending is not None and pending["decision"] == "approve" else ""
            waiting = yield from self._execute(calls, approved)
            if waiting is not None:
                return self._outcome("pending", pending=waiting)
        elif not (yield from self._is_unanswered()):
            return self._outcome("idle")
        return (yield from self._go_on())

    # ------------------------------------------------------------ the loop

    def _go_on(self) -> Step:
        plan = self.plan
        while True:
            if self.iterations >= plan.max_iterations:
                return self._outcome("max_iterations")
            window = yield LoopStep(lambda: plan.session.context(format=plan.format, **plan.window))
            for hook in plan.hooks:
                window = (yield _user(hook.before_model, window)) or window
            reply = yield from self._reply(window)
            appended = yield from self._keep(reply, window)
            calls = self._calls(reply, appended)
            if not calls:
                return self._outcome("final")
            waiting = yield from self._execute(calls, "")
            if waiting is not None:
                return self._outcome("pending", pending=waiting)

    def _reply(self, window: WindowAnswer) -> Step:
        plan = self.plan
        value = events_of((yield _user(plan.model, window)), plan.format)
        if is_stream(value):
            return (yield from self._streamed(value))
        reply = reply_of(value, plan.format)
        if not reply.messages:
            raise InvalidInputError("the model has answered nothing", code="empty_reply")
        return reply

    def _streamed(self, events: Any) -> Step:
        plan, said = self.plan, accumulator(self.plan.format)

        def take(event: Any) -> Sequence[Callable[[], Any]]:
            said.add(plain(event))
            return [_bound(hook.on_event, event) for hook in plan.hooks]

        try:
            yield Each(events, take)
        except BaseException:
            yield from self._interrupted(said)
            raise
        if said.is_broken or said.finish_reason is None:
            yield from self._interrupted(said)
            raise InvalidInputError("the model's stream ended before its answer did", code="broken_stream")
        return Reply(said.messages, said.usage, said.finish_reason)

    def _interrupted(self, said: Accumulator) -> Step:
        """What was said is kept, marked, and in no window."""
        messages = said.messages
        if messages:
            yield self._append(messages, meta=[{"status": "interrupted"}] * len(messages), run=self._state())

    def _keep(self, reply: Reply, window: WindowAnswer) -> Step:
        """The reply is in the log, with the count of its call and what the provider has counted."""
        plan, messages = self.plan, [dict(one) for one in reply.messages]
        for hook in plan.hooks:
            instead = yield _user(hook.after_model, messages)
            messages = [dict(one) for one in instead] if instead is not None else messages
        self.iterations += 1
        self._last = Reply(messages, reply.usage, reply.finish_reason)
        meta = [{"finish_reason": reply.finish_reason} if reply.finish_reason else {} for _ in messages]
        options: dict[str, Any] = {"window": {"position": window.head, "tokens": window.tokens}}
        if reply.usage is not None:
            options["usage"] = dict(reply.usage)
        return (yield self._append(messages, meta=meta, run=self._state(), **options))

    # ------------------------------------------------------------ tools

    def _calls(self, reply: Reply, appended: Sequence[Appended]) -> list[RequestedCall]:
        """The calls of a reply by their refs in the log."""
        codec, position = codec_of(self.plan.format), appended[0].first
        assert self._last is not None  # noqa: S101 - it was just kept
        return [
            RequestedCall(f"{position + at}.{index}", call.id, call.name, call.arguments)
            for at, body in enumerate(self._last.messages)
            for index, call in enumerate(codec.parse(dict(body)).tool_calls)
        ]

    def _execute(self, calls: Sequence[RequestedCall], approved: str) -> Step:
        """Executes calls and appends their results in one commit. Of those that need an approval the first one waits, which is
        returned; it and the others stay open."""
        results, waiting = list[Result](), None
        for call in calls:
            if call.ref != approved and self._needs_approval(call):
                waiting = waiting or call
                continue
            results.append((yield from self._executed(call)))
        options, pending = dict[str, Any](), None
        if waiting is not None:
            pending = {"call_id": waiting.id, "ref": waiting.ref, "name": waiting.name}
            # Merged over an action that was decided, whose decision is not this one's.
            waits = {"decision": None, "reason": None, **pending}
            options["run"] = {**self._state(), "pending_action": waits}
        if results:
            messages, meta = self._told(results)
            yield self._append(messages, meta=meta, **options)
        elif waiting is not None:
            agent_id, session = self.plan.agent_id, self.plan.session
            yield LoopStep(lambda: session.patch_agent({"pending_action": waits}, agent_id=agent_id))
        return pending

    def _needs_approval(self, call: RequestedCall) -> bool:
        approve = self.plan.approve
        return approve(call) if callable(approve) else call.name in approve

    def _executed(self, call: RequestedCall) -> Step:
        plan, is_error, meta = self.plan, False, None
        text: str | None = None
        for hook in plan.hooks:
            instead = (yield _user(hook.before_tool, call)) if text is None else None
            text = text_of(instead) if instead is not None else text
        if text is None and call.name not in plan.tools and handles(call.name):
            execute = plan.session.execute_tool
            answer = yield LoopStep(
                lambda: execute(call.name, call.arguments, call_id=call.id, format=plan.format)  # type: ignore[arg-type]
            )
            text, is_error, meta = answer.text, answer.is_error, answer.meta
        elif text is None:
            try:
                text = text_of(
                    (yield LoopStep(prepared(plan.tools.get(call.name), call, sorted(plan.tools)), own=False))
                )
            except NotExecutedError as error:
                text, is_error = str(error), True
            except Exception as error:  # noqa: BLE001 - whatever a tool raises, the model is told
                text, is_error = error_text(error), True
        for hook in plan.hooks:
            instead = yield _user(hook.after_tool, call, text, is_error)
            text = text_of(instead) if instead is not None else text
        return Result(call, text, is_error, meta)

    def _told(self, results: Sequence[Result]) -> tuple[list[JsonObject], list[dict[str, Any]]]:
        """Results as messages of the format, one each, and what is kept beside them: windows put them together as a provider
        wants it."""
        codec, says_error = codec_of(self.plan.format), self.plan.format in _SAYS_ERROR
        messages, metas = list[JsonObject](), list[dict[str, Any]]()
        for one in results:
            result = ToolResult(
                one.call.id, (Text(one.text),), name=one.call.name, is_error=one.is_error and says_error
            )
            turn = Turn(Message("tool", tool_results=(result,)), result_ids=(one.call.id,))
            messages += codec.bodies(turn)
            meta = dict(one.meta or {})
            metas.append(meta | ({"is_error": True} if one.is_error and not says_error else {}))
        return messages, metas

    # ------------------------------------------------------------ the log

    def _read(self) -> Step:
        """The agent's execution state, and the run that it is in."""
        session, agent_id = self.plan.session, self.plan.agent_id
        try:
            agent = (yield LoopStep(lambda: session.agent(agent_id))).state
        except NotFoundError as error:
            if error.error_code != "not_found":
                raise
            agent = {}
        self.run_id = self.run_id or str(agent.get("run_id") or "") or self.plan.new_id()
        iteration = agent.get("iteration")
        self.iterations = iteration if isinstance(iteration, int) else 0
        return agent

    def _open_calls(self) -> Step:
        """Calls of this agent without a result, as the log has them."""
        plan = self.plan
        window = yield LoopStep(lambda: plan.session.context(format=plan.format, **plan.window))
        calls = list[RequestedCall]()
        for one in window.open_calls:
            found, author = yield LoopStep(_bound(_called, plan.session, one.ref))
            if plan.author is None or author in (None, plan.author):
                given = found.arguments
                text = given if isinstance(given, str) else encode_json(given).decode()
                calls.append(RequestedCall(one.ref, one.call_id, one.name, text))
        return calls

    def _is_unanswered(self) -> Step:
        """Whether the newest message in view is one that a model answers."""
        session = self.plan.session
        page = yield LoopStep(lambda: session.page(order="desc", limit=1, in_view=True))
        if not page.messages or page.messages[0].origin is not None:
            return False  # what a session was begun with is said by nobody
        newest = page.messages[0]
        if newest.status == "interrupted":
            return True
        return codec_of(newest.format).parse(newest.body).role in ("user", "tool")

    def _append(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> LoopStep:
        """In one commit; an answer of more messages than one takes in several, the first of which has the options."""
        plan, key = self.plan, self.plan.new_id()
        metas = [dict(one) for one in options.pop("meta", None) or [{} for _ in messages]]
        if plan.author is not None:
            metas = [{"author": plan.author, **one} for one in metas]
        options |= {"run_id": self.run_id}

        def append() -> list[Appended]:
            done = list[Appended]()
            for part in parts_of(messages, metas):
                more = {**(options if not part.start else {"run_id": self.run_id}), "key": f"{key}-{part.start}"}
                done.append(plan.session.append(*messages[part], meta=metas[part], format=plan.format, **more))
            return done

        return LoopStep(append)

    def _state(self) -> dict[str, Any]:
        return {
            "agent_id": self.plan.agent_id,
            "run_id": self.run_id,
            "iteration": self.iterations,
            "max_iterations": max(self.plan.max_iterations, self.iterations),
        }

    def _outcome(
        self,
        status: Literal["final", "pending", "max_iterations", "idle"],
        *,
        pending: Mapping[str, Any] | None = None,
    ) -> RunResult:
        reply, codec = self._last, codec_of(self.plan.format)
        messages = tuple(dict(one) for one in reply.messages) if reply is not None else ()
        text = "\n".join(filter(None, (codec.parse(one).text for one in messages)))
        reason = reply.finish_reason if reply is not None else None
        return RunResult(status, self.run_id, self.iterations, messages, text, reason, pending)


def user_message(text: str, format: str) -> JsonObject:
    """A text of the user's as a message of the format."""
    (body,) = codec_of(format).bodies(Turn(Message("user", (Text(text),))))
    return body


def _called(session: Session, ref: str) -> tuple[Recalled, str | None]:
    """A call in the log, and who has made it."""
    position = int(ref.split(".", maxsplit=1)[0])
    page = session.page(after=position - 1, limit=1)
    return session.recall(ref, max_tokens=100_000), page.messages[0].author if page.messages else None


def _bound(function: Callable[..., Any], *given: Any) -> Callable[[], Any]:
    return lambda: function(*given)


def _user(function: Callable[..., Any], *given: Any) -> LoopStep:
    return LoopStep(_bound(function, *given), own=False)
