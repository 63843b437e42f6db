"""Messages of a session, the windows built from them, their summaries, and agent loops over them."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from turnlog.client import (
    GivenMessage,
    GivenPolicy,
    Paged,
    SessionResource,
    is_plain_message,
    parts_of,
    plain_messages,
    policy_field,
    sent_settings,
)
from turnlog.core.agent_state import DEFAULT_AGENT
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.json_values import without_none
from turnlog.core.limits import MAX_APPEND_MESSAGES
from turnlog.core.models import FormatName
from turnlog.core.window_parts import OthersCalls
from turnlog.jobs.models import Job
from turnlog.sessions.context_models import Breakpoints, Build, WindowAnswer
from turnlog.sessions.message_models import (
    Appended,
    HeldLease,
    InboxMode,
    LeaseAnswer,
    LoopAnswer,
    LoopPage,
    MessagePage,
    SentToRun,
    StoredMessage,
)
from turnlog.summaries.routes import Compressed, SummaryAnswer

if TYPE_CHECKING:
    from turnlog.agents.functions import Hooks, Tool
    from turnlog.agents.run_log import Approval, OnBusy, RunPlan
    from turnlog.agents.runs import AsyncRun, Run
    from turnlog.agents.streams import AsyncSessionStream, SessionStream
    from turnlog.client.model import Session


E = TypeVar("E")


class ConversationCalls(SessionResource):
    """Calls for messages, streams, windows, run loops and summaries."""

    def append(  # noqa: PLR0913
        self,
        *messages: GivenMessage,
        meta: Sequence[Mapping[str, Any]] | None = None,
        format: str | None = None,
        if_head: int | None = None,
        run: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        window: WindowAnswer | Mapping[str, Any] | None = None,
        usage: Mapping[str, int] | None = None,
        lease: Mapping[str, Any] | None = None,
        loop: Literal["join", "new"] | None = None,
        parent: Mapping[str, str] | None = None,
        lenient: bool = False,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append 1 to 25 messages in one commit. All are stored, or none; the answer has their positions, and warnings.

        A message is JSON in a provider's format, or an object: of the libraries of OpenAI and Anthropic, or of LangChain. A
        complete answer of a provider, its object or its JSON, is taken as its messages, with its token counts as ``usage`` and
        its ``finish_reason`` as ``meta``. Without ``format``, it is recognised. ``meta`` has an object for each message: ``id``,
        ``author``, ``created_at`` (RFC 3339), ``pin`` (in every window), ``status`` (``interrupted``: in none), ``finish_reason``,
        ``is_error``, ``metadata``.

        Repeated with the same ``idempotency_key``, a call has one effect and the same answer. ``if_head`` is the expected head:
        the append is refused with a `HeadMismatchError` when the log ends elsewhere. ``run`` changes the execution state of its
        ``agent_id`` in the same commit, as `patch_agent` does; ``run_id`` names the run in the history. ``window`` is the one that
        a reply was made by, from `context`: later windows then know what the reply's signed thinking is bound to. ``lease`` takes,
        renews or releases the session for one run, in the same commit: ``{"holder": …, "seconds": …}``, ``{"token": …}``, or
        ``{"token": …, "release": True}``. With the token of a lost lease, the append raises `RunLostError`. With ``loop="join"``
        the messages stay in the open loop, with ``"new"`` they open one even if it is unfinished. ``parent``, the ``ref`` of a
        call and the ``agent_id`` of an agent that works within it, keeps the messages out of the session's loops. ``lenient``
        stores messages with a role that no provider has, or with content only in fields of another format; windows leave these out.
        """
        if len(messages) > MAX_APPEND_MESSAGES:
            message = (
                f"append takes at most {MAX_APPEND_MESSAGES} messages, not {len(messages)}; extend takes any number"
            )
            raise InvalidInputError.at("/messages", message)
        if not all(map(is_plain_message, messages)):
            from turnlog.agents.functions import given_messages

            converted = given_messages(messages, format)
            messages, format = tuple(converted.reply.messages), format or converted.format
            meta = meta if meta is not None or not any(converted.metas) else converted.metas
            usage = usage if usage is not None else cast("Mapping[str, int] | None", converted.reply.usage)
        if isinstance(window, WindowAnswer):
            window = {"position": window.head, "tokens": window.tokens, "epoch": window.manifest.epoch.id}
        fields = {
            "messages": list(messages),
            "meta": meta,
            "format": format,
            "if_head": if_head,
            "run": run,
            "run_id": run_id,
            "window": window,
            "usage": usage,
            "lease": lease,
            "loop": loop,
            "parent": parent,
            "lenient": lenient or None,
        }
        return self._call(Appended, "append_messages", body=without_none(fields), idempotency_key=idempotency_key)

    def extend(
        self,
        messages: Iterable[GivenMessage],
        *,
        meta: Iterable[Mapping[str, Any]] | None = None,
        format: str | None = None,
        if_head: int | None = None,
        lenient: bool = False,
        idempotency_key: str | None = None,
    ) -> list[Appended]:
        """Append any number of messages, such as a history from elsewhere, in as many commits as they take.

        A message that is refused ends the call: the commits before it stay. Others may write between two commits; with
        ``if_head``, the session's head before the first one, `HeadMismatchError` is raised then. Repeated with its
        ``idempotency_key``, a call that failed goes on where it stopped. The other options are those of `append`.
        """
        history, metas, key = list(messages), list(meta or ()), idempotency_key
        if metas and len(metas) != len(history):
            raise InvalidInputError.at("/meta", f"meta has {len(metas)} entries for {len(history)} messages")
        answers = list[Appended]()
        for part in parts_of(history, metas):
            answer = self.append(
                *history[part],
                meta=metas[part] or None,
                format=format,
                if_head=if_head,
                lenient=lenient,
                idempotency_key=f"{key}-{part.start}" if isinstance(key, str) else key,
            )
            answers.append(answer)
            if_head = answer.head if if_head is not None else None
        return answers

    def stream(
        self,
        events: Iterable[E],
        *,
        format: FormatName | None = None,
        on_break: Literal["keep", "drop"] = "keep",
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> SessionStream[E]:
        """Pass a model's stream through, and append the message that its events make up when it ends.

            with session.stream(client.chat.completions.create(..., stream=True)) as stream:
                for chunk in stream:
                    show(chunk)          # stream.text and stream.partial hold the reply so far

        ``events`` are objects of the provider's library, or their JSON: OpenAI Chat and Responses, Anthropic, and Bedrock's
        ConverseStream (``response["stream"]``). Without ``format`` the events decide; events in another format raise
        `InvalidInputError`. A stream that breaks or is left early is appended with status ``interrupted``: kept, and in no
        window. With ``on_break="drop"`` it is not appended. ``meta`` and ``options`` are those of `append`. Saving a stream
        twice appends it once.
        """
        from turnlog.agents.streams import SessionStream

        return SessionStream(events, self.append, format, on_break, meta, options)

    def stream_async(
        self,
        /,
        events: AsyncIterable[E],
        *,
        format: FormatName | None = None,
        on_break: Literal["keep", "drop"] = "keep",
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncSessionStream[E]:
        """Pass a model's stream through, for ``async with`` and ``async for``. On cancellation, the partial reply is appended
        first.
        """
        from turnlog.agents.streams import AsyncSessionStream

        return AsyncSessionStream(events, self.append, format, on_break, meta, options)

    def context(  # noqa: PLR0913
        self,
        *,
        format: str | None = None,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        output_reserve: int | None = None,
        include_current_loop: bool | None = None,
        answer_open_calls: bool | None = None,
        others_calls: OthersCalls | None = None,
        breakpoints: Breakpoints | None = None,
        query: str | None = None,
        at: int | str | None = None,
        build: Build | Mapping[str, Any] | None = None,
        parent: Mapping[str, Any] | None = None,
    ) -> WindowAnswer:
        """Build the window for the next model call: ``messages``, ``system`` and ``tools`` that the provider of ``format`` takes.

        All together has at most ``budget`` tokens, by default the context size of ``model`` less ``output_reserve`` tokens for the
        answer. Options that are left out come from the session. Raises `BudgetTooSmallError`, with ``details["needed"]``, when
        nothing fits. ``manifest`` of the answer says what is in, in what form, and what is left out.

        ``answer_open_calls`` answers calls without a result with a neutral text; else they are left out.
        ``breakpoints="apply"`` sets the provider's prompt-cache breakpoints, so the window can be sent as it is. ``at`` builds
        the window as if the log ended at that position or time (RFC 3339). ``others_calls="calls"`` does not turn calls of tools
        that are not offered into text. ``query`` is what the policy's step recall looks for, in place of the user's message.
        ``build``, the ``build`` of a manifest, builds that window again. ``parent`` builds that of an agent within a call: the
        call's ``ref``, the ``agent_id``, what it sees of ``others`` (``nothing``, ``answers``, ``all``), its ``system`` text.
        """
        fields = {
            "format": format,
            "budget": budget,
            "policy": policy_field(policy),
            "model": model,
            "tools": tools,
            "output_reserve": output_reserve,
            "include_current_loop": include_current_loop,
            "answer_open_calls": answer_open_calls,
            "others_calls": others_calls,
            "breakpoints": breakpoints,
            "query": query,
            "at": at,
            "build": build.model_dump(mode="json") if isinstance(build, Build) else build,
            "parent": parent,
        }
        return self._call(WindowAnswer, "build_context", body=without_none(fields))

    def page(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
        format: str | None = None,
        at: int | str | None = None,
        in_view: bool = False,
    ) -> MessagePage:
        """Return one page of the full history: up to ``limit`` messages (1 to 100) after or before a position.

        ``next`` of the answer continues in the same order; None at the end. ``format`` converts the messages. With ``in_view``,
        messages that rewinds took out of view are left out. With ``at``, the page has the messages that were in view at that
        position or time (RFC 3339).
        """
        query = {"after": after, "before": before, "limit": limit, "order": order, "format": format, "at": at}
        query["in_view"] = "true" if in_view else None
        return self._call(MessagePage, "read_messages", query=query)

    def messages(
        self,
        *,
        order: Literal["asc", "desc"] = "asc",
        format: str | None = None,
        at: int | str | None = None,
        in_view: bool = False,
    ) -> Paged[StoredMessage]:
        """Iterate over the full history page by page. The options are those of `page`."""

        def fetch(place: int | None) -> tuple[Sequence[StoredMessage], int | None]:
            after, before = (place, None) if order == "asc" else (None, place)
            page = self.page(after=after, before=before, order=order, format=format, at=at, in_view=in_view)
            return page.messages, page.next

        return Paged(fetch)

    def loops(self) -> Paged[LoopAnswer]:
        """Iterate over run loops, newest first, page by page."""

        def fetch(before: int | None) -> tuple[Sequence[LoopAnswer], int | None]:
            page = self._call(LoopPage, "read_loops", query={"before": before})
            return page.loops, page.next

        return Paged(fetch)

    def compress(
        self,
        *,
        mode: Literal["sync", "async"] = "sync",
        keep_loops: int | None = None,
        max_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> Compressed | Job:
        """Summarise closed run loops but the newest ``keep_loops``, in at most ``max_tokens``. Windows then begin with the summary.

        Returns a job with ``mode="async"``, and when the work takes longer than one request may.
        """
        fields = {"mode": mode, "keep_loops": keep_loops, "max_tokens": max_tokens}
        answer: Compressed | Job = self.backend.call(
            "compress_session", path=self._path, body=without_none(fields), idempotency_key=idempotency_key
        )
        return answer

    def summary(self) -> SummaryAnswer | None:
        """Return the current summary, or None."""
        try:
            return self._call(SummaryAnswer, "get_summary")
        except NotFoundError as error:
            if error.error_code != "no_summary":
                raise
            return None

    def discard_summary(self, *, idempotency_key: str | None = None) -> Job:
        """Discard the current summary; a job makes a new one from the history.

        The log keeps the discarded summary for windows of earlier moments (``at``). Until the job is done, windows have no
        summary.
        """
        return self._call(Job, "discard_summary", idempotency_key=idempotency_key)


class RunCalls(SessionResource):
    """Calls that start an agent loop, in a thread or in asyncio, take the session for one, or send messages to one."""

    def child(self, /, name: str, *, fork: bool = False, **settings: Any) -> Session:
        """Return the session of an agent that works for the tool call that is executed: the same in every try of the call.

        Its id is ``<session id>/<ref>/<name>``, and its ``metadata.parent`` names the call. A run in it that is sent its message
        again goes on where it stopped. What it uses is counted in the caller's run; of runs in other processes, the newest of each
        agent. With ``fork`` the session begins as this one was before the call. ``settings`` are those of `Sessions.create`.
        Raises `InvalidInputError` outside of a tool.
        """
        from turnlog.agents.functions import current_call, executing_call

        call, executing = current_call(), executing_call()
        sent = without_none(sent_settings(settings))
        fields = {"session_id": f"{call.key}/{name}", "if_exists": "return", "metadata": {}, **sent}
        if isinstance(fields["metadata"], Mapping):  # else the request is refused
            fields["metadata"] = {**fields["metadata"], "parent": {"session_id": self.id, "ref": call.ref}}
        if fork:
            fields["fork"] = {"session_id": self.id, "at": int(call.ref.partition(".")[0]) - 1}
        info = self.backend.call("create_session", body=fields)
        child = cast("Session", type(self)(self.backend, info.session_id))
        if executing is not None:
            executing.children[child.id] = child.state
        return child

    def acquire(self, holder: str, *, seconds: int = 120, idempotency_key: str | None = None) -> HeldLease:
        """Take the session for one run, until ``seconds`` after its newest append or renewal.

        Raises `RunActiveError` while another holder has it. Appends that name the lease's ``token`` raise `RunLostError` when
        the session has been taken over.
        """
        return cast("HeldLease", self._lease({"holder": holder, "seconds": seconds}, idempotency_key).lease)

    def renew(self, token: int, *, seconds: int | None = None, idempotency_key: str | None = None) -> HeldLease:
        """Renew a lease, by default for as long as before. Raises `RunLostError` when the session has been taken over."""
        body = without_none({"token": token, "seconds": seconds})
        return cast("HeldLease", self._lease(body, idempotency_key).lease)

    def release(self, token: int, *, idempotency_key: str | None = None) -> None:
        """Give the session back. Raises `RunLostError` when it has been taken over."""
        self._lease({"token": token, "release": True}, idempotency_key)

    def _lease(self, body: Mapping[str, Any], idempotency_key: str | None) -> LeaseAnswer:
        return self._call(LeaseAnswer, "lease_session", body=body, idempotency_key=idempotency_key)

    def send_to_run(
        self,
        *messages: GivenMessage,
        mode: InboxMode = "enqueue",
        format: str | None = None,
        agent_id: str = DEFAULT_AGENT,
        idempotency_key: str | None = None,
    ) -> SentToRun:
        """Send messages, as `append` takes them, to the run that has the session.

        The run takes them as its next turn (``enqueue``), into its loop before its next model call (``steer``), or in place of
        what it does (``interrupt``). Raises `ConflictError`, code ``no_run``, when no run has the session.
        """
        plain, format = plain_messages(messages, format)
        body = without_none({"messages": plain, "mode": mode, "format": format})
        path = {"agent_id": agent_id}
        return self._call(SentToRun, "send_to_run", path=path, body=body, idempotency_key=idempotency_key)

    def run(  # noqa: PLR0913
        self,
        model: Callable[[WindowAnswer], Any],
        tools: Mapping[str, Callable[..., Any] | Tool] | None = None,
        *,
        format: FormatName = "openai_chat",
        agent_id: str = DEFAULT_AGENT,
        max_iterations: int | None = None,
        approve: Approval = (),
        hooks: Sequence[Hooks] = (),
        author: str | None = None,
        on_busy: OnBusy | None = None,
        lease_seconds: int = 120,
        **window: Any,
    ) -> Run:
        """Return a run of an agent in this session: window, model, reply, tools, again.

            with session.run(model=ask, tools={"find_order": find_order}) as run:
                outcome = run.send("Where is my order?")

        ``model`` takes the window, and returns a message, its provider's answer, or its stream. ``tools`` are functions by
        name, called with the arguments as keywords, or with a custom tool's text; an error becomes a result that the model
        reads. A `Tool` says whether its calls may be repeated after a crash. The session executes the recall tools. Calls of
        the tools in ``approve`` (names, or a function of a `RequestedCall`) wait for a decision (`decide_pending`).
        ``max_iterations`` limits the model calls between two messages of the user; without it the value in the agent's
        execution state counts, else 20. ``hooks`` are called around model and tool calls: see `Hooks`. `cancel_run` ends the
        run from another process.

        Several agents of a session have an ``agent_id`` each, and an ``author``, which their messages name. A run that a tool of
        another run starts works within that call: its messages are in no loop of the session, and its windows have nothing but
        them, or what ``others`` says (see `context`); ``system`` is its system text.

        With ``on_busy`` the run has the session to itself while it works, and up to ``lease_seconds`` after its last append when
        its process ends: see `acquire`. A message that comes meanwhile is refused with a `RunActiveError` (``reject``), or sent to
        the run that has the session (`send_to_run`): ``enqueue``, ``steer``, ``interrupt``. ``window`` are options of `context`:
        ``budget``, ``policy``, and ``model_name`` for its ``model``.
        """
        from turnlog.agents.runs import Run

        options = (format, agent_id, max_iterations, approve, hooks, author, on_busy, lease_seconds)
        return Run(self._plan(model, tools, window, *options))

    def run_async(  # noqa: PLR0913
        self,
        /,
        model: Callable[[WindowAnswer], Any],
        tools: Mapping[str, Callable[..., Any] | Tool] | None = None,
        *,
        format: FormatName = "openai_chat",
        agent_id: str = DEFAULT_AGENT,
        max_iterations: int | None = None,
        approve: Approval = (),
        hooks: Sequence[Hooks] = (),
        author: str | None = None,
        on_busy: OnBusy | None = None,
        lease_seconds: int = 120,
        **window: Any,
    ) -> AsyncRun:
        """Return a run for asyncio. The model, the tools, the hooks and ``approve`` may be async or not. See `run`."""
        from turnlog.agents.runs import AsyncRun

        options = (format, agent_id, max_iterations, approve, hooks, author, on_busy, lease_seconds)
        return AsyncRun(self._plan(model, tools, window, *options))

    def _plan(
        self,
        model: Callable[[WindowAnswer], Any],
        tools: Mapping[str, Callable[..., Any] | Tool] | None,
        window: Mapping[str, Any],
        *options: Any,
    ) -> RunPlan:
        """Return the parameters of a run. ``options`` are those of `RunPlan` from ``format`` on."""
        from turnlog.agents.functions import Tool, executing_call
        from turnlog.agents.run_log import RunPlan

        if not isinstance(tools, Mapping | None):
            raise InvalidInputError(f"tools are functions by name, {{'find': find}}, not a {type(tools).__name__}")
        if not callable(model):
            raise InvalidInputError(f"model is a function of the window, not a {type(model).__name__}")
        own_tools = {name: tool if isinstance(tool, Tool) else Tool(tool) for name, tool in (tools or {}).items()}
        plan = RunPlan(cast("Session", self), model, own_tools, context_options(window), *options)
        parent = executing_call()
        if parent is not None and parent.session_id == self.id:
            _check_nested(parent.agent_id, plan.agent_id, plan.approve)
            return replace(plan, parent=parent, on_busy=None)
        return replace(plan, parent=parent if parent and self.id.startswith(f"{parent.call.key}/") else None)


def context_options(window: Mapping[str, Any]) -> dict[str, Any]:
    """Return the window options of a run under their names in `Session.context`: ``model_name`` is its ``model``."""
    return {("model" if name == "model_name" else name): value for name, value in window.items()}


def _check_nested(parent: str, agent_id: str, approve: Approval) -> None:
    """Raise `InvalidInputError` for a run within a call of its own agent, or one whose calls wait for a decision."""
    if parent == agent_id:
        message = f"a run within a call of agent {parent!r} in the same session needs an agent_id of its own"
        raise InvalidInputError(message, code="same_agent")
    if approve:
        message = "a run within a call in the same session can't wait for a decision; use session.child()"
        raise InvalidInputError(message, code="cannot_wait")
