"""A middleware of LangChain's agents (v1) over the log: https://docs.langchain.com/oss/python/langchain/middleware.

    from turnlog.integrations.langchain import TurnlogMiddleware

    agent = create_agent(model, tools, middleware=[TurnlogMiddleware(log, budget=30_000)], checkpointer=saver)
    agent.invoke({"messages": [HumanMessage("Hello")]}, {"configurable": {"thread_id": "support-42"}})

What the agent's state says is appended once, as LangChain has it; the model is sent the session's window instead of all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import is_
from typing import Annotated, Any, NotRequired, TypeVar, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.runtime import Runtime

from turnlog.agents.graph_state.aligning import append_new, tell_edited, tell_removed
from turnlog.agents.graph_state.messages import KEPT, GraphMessage, given_of, is_removal, said
from turnlog.agents.graph_state.window_messages import FORMAT, Shown, room, with_changes
from turnlog.client.model import Session, Turnlog
from turnlog.client.parts import GivenPolicy
from turnlog.core.errors import InvalidInputError
from turnlog.engines.system import RandomIds
from turnlog.windows.recall import recall_tools

_RECALLED = "recalled"
_BEFORE = 50
"""So many messages before the newest that was appended are looked at again: others may have been put between."""
_MOST = 1_000
_IDS = RandomIds()
T = TypeVar("T")
K = TypeVar("K")
Messages = Sequence[BaseMessage]
Request = ModelRequest[Any]


class State(AgentState[Any]):
    """An agent's state, with a name for the run that is nowhere else."""

    turnlog_run: NotRequired[Annotated[str, PrivateStateAttr]]


class TurnlogMiddleware(AgentMiddleware[State, Any, Any]):
    """The log of an agent's conversation, and its windows.

    ``session_id`` is the session's, or a function of the configurables of a run; without it a run's ``thread_id`` is. A session
    that is not there is made, with ``settings`` of `Sessions.create`. ``budget``, ``policy`` and ``output_reserve`` are those of
    `Session.context`; without a budget the model's profile says it. With ``recall`` the agent has the two tools that bring back
    what a window leaves out.

    With a checkpointer the thread goes on where it stopped. Without one, a run that is given no messages goes on where the log
    stops.
    """

    state_schema = State

    def __init__(
        self,
        log: Turnlog,
        session_id: str | Callable[[Mapping[str, Any]], str] | None = None,
        *,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        output_reserve: int | None = None,
        recall: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = _tools() if recall else []
        self._log = log
        self._session_id = session_id
        self._budget, self._policy, self._reserve = budget, policy, output_reserve
        self._settings = settings if recall else {"recall": "never", **settings}
        self._shown = Shown()
        self._done = dict[tuple[str, str], Messages]()
        self._sent = dict[str, dict[str, int]]()
        self._restored = set[str]()

    # ------------------------------------------------------------ hooks

    def before_agent(self, state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return self._begun(state, self._session())

    async def abefore_agent(self, state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return await asyncio.to_thread(self._begun, state, self._session())

    def before_model(self, state: State, runtime: Runtime[Any]) -> None:
        self._keep(state, self._session())

    async def abefore_model(self, state: State, runtime: Runtime[Any]) -> None:
        await asyncio.to_thread(self._keep, state, self._session())

    def after_agent(self, state: State, runtime: Runtime[Any]) -> None:
        self._ended(state, self._session())

    async def aafter_agent(self, state: State, runtime: Runtime[Any]) -> None:
        await asyncio.to_thread(self._ended, state, self._session())

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage:
        given = self._before_call(request, self._session())
        return given if isinstance(given, AIMessage) else self._after_call(given[1], handler(given[0]))

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | AIMessage:
        given = await asyncio.to_thread(self._before_call, request, self._session())
        return given if isinstance(given, AIMessage) else self._after_call(given[1], await handler(given[0]))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        answer = self._before_tool(request, self._session())
        return handler(request) if answer is None else answer

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        answer = await asyncio.to_thread(self._before_tool, request, self._session())
        return await handler(request) if answer is None else answer

    # ------------------------------------------------------------ what they do, in a thread where they are async

    def _session(self) -> Session:
        """The session of the run that asks."""
        given = get_config().get("configurable", {})
        own = self._session_id
        session_id = own(given) if callable(own) else own or given.get("thread_id")
        if not session_id:
            raise InvalidInputError("no session: give TurnlogMiddleware a session_id, or the run a thread_id")
        return self._log.sessions.of(str(session_id))

    def _begun(self, state: State, session: Session) -> dict[str, Any]:
        """A run begins; one that is given nothing, with what is open at the log's end."""
        self._log.sessions.get_or_create(session.id, **self._settings)
        update: dict[str, Any] = {"turnlog_run": _IDS.new_id()}
        if state["messages"]:
            return update
        found = list[BaseMessage]()
        for one in session.messages(order="desc", in_view=True):
            if one.status == "complete":
                made = given_of(one) if KEPT in (one.metadata or {}) else None
                if not isinstance(made, BaseMessage):
                    return update
                found.append(made)
                if made.type == "human":
                    break
        newest = found[0] if found else None
        if newest is None or (isinstance(newest, AIMessage) and not newest.tool_calls):
            return update
        if isinstance(newest, AIMessage) and newest.id is not None:
            self._restored.add(newest.id)
        return {**update, "messages": found[::-1]}

    def _ended(self, state: State, session: Session) -> None:
        self._keep(state, session)
        self._done.pop((session.id, state.get("turnlog_run", "")), None)

    def _keep(self, state: Any, session: Session) -> None:
        """Appends what the log does not have of the state's messages, and tells what was changed or removed of what it has."""
        messages, run = list[BaseMessage](state["messages"]), (session.id, state.get("turnlog_run", ""))
        before = self._done.get(run)
        if before is not None and len(before) == len(messages) and all(map(is_, before, messages)):
            return
        listed = [self._said(session, one) for one in _newest(messages, before)]
        aligned, _ = append_new(session, listed, is_compressed=False, is_same_run=lambda: None, options=self._options)
        tell_edited(session, listed, aligned)
        tell_removed(session, before or (), messages)
        for one in messages:
            self._sent.pop(one.id or "", None)
        _put(self._done, run, messages)

    def _options(self, batch: Sequence[GraphMessage]) -> Mapping[str, Any]:
        """The window that the reply in a batch was made of."""
        found = [self._sent[one.identity.id] for one in batch if one.identity.id in self._sent]
        return found[0] if len(found) == 1 else {}

    def _said(self, session: Session, message: BaseMessage) -> GraphMessage | None:
        """The message as the log keeps it; None for what nobody has said."""
        if is_removal(message) or message.additional_kwargs.get("lc_source") == "summarization":
            return None
        made, problems = said(message, "")
        if made is None:
            raise InvalidInputError("a message of the agent can't be kept", problems=problems)
        if (
            isinstance(message, ToolMessage)
            and isinstance(message.artifact, Mapping)
            and session.handles(message.name or "")
        ):
            made.meta["recalled"] = list(message.artifact.get(_RECALLED, ()))
        self._shown.learn(session.id, made.body, message.model_copy())
        return made

    def _before_call(self, request: Request, session: Session) -> tuple[Request, Mapping[str, int]] | AIMessage:
        """The request with the window in place of the messages; or the reply, where the log has it and its calls are open."""
        messages = request.state["messages"]
        last = messages[-1] if messages else None
        if isinstance(last, AIMessage) and last.id in self._restored:
            self._restored.discard(last.id)
            return last
        self._keep(request.state, session)
        own = {tool.name for tool in self.tools}
        tools = [one for one in request.tools if _name(one) not in own]
        window = session.context(
            format=FORMAT,
            policy=self._policy,
            tools=[one if isinstance(one, dict) else convert_to_openai_tool(one) for one in tools],
            **self._room(request),
        )
        brought = {one.get("function", {}).get("name") for one in window.tools}
        tools += [one for one in request.tools if _name(one) in own & brought]
        shown, system = self._shown.objects(session, window), request.system_message
        while shown and isinstance(shown[0], SystemMessage):
            system = _joined(system, shown.pop(0))
        shown = with_changes(shown, messages, request.messages)
        sent = {"position": window.head, "tokens": window.tokens}
        return request.override(messages=cast("list[AnyMessage]", shown), system_message=system, tools=tools), sent

    def _room(self, request: Request) -> dict[str, Any]:
        """What the window may have beside the agent's own system text."""
        system = request.system_message.text if request.system_message is not None else ""
        profile = getattr(request.model, "profile", None)
        limit = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
        return room(budget=self._budget, reserve=self._reserve, system=system, limit=limit)

    def _after_call(self, window: Mapping[str, int], response: ModelResponse[Any]) -> ModelResponse[Any]:
        """Remembers the window of a reply, and what the provider counted, for when the reply is appended."""
        for one in response.result:
            if isinstance(one, AIMessage) and one.id is not None:
                sent: dict[str, Any] = {"window": dict(window)}
                if one.usage_metadata is not None:
                    sent["usage"] = {name: one.usage_metadata[name] for name in ("input_tokens", "output_tokens")}
                _put(self._sent, one.id, sent)
        return response

    def _before_tool(self, request: ToolCallRequest, session: Session) -> ToolMessage | None:
        """The call is in the log before the tool runs. Those of the recall tools are answered here."""
        if isinstance(request.state, Mapping) and "messages" in request.state:
            self._keep(request.state, session)
        call = request.tool_call
        if not self.tools or not session.handles(call["name"]):
            return None
        answer = session.execute_tool(call["name"], call["args"], call_id=call["id"])
        return ToolMessage(
            answer.text,
            tool_call_id=call["id"],
            name=call["name"],
            status="error" if answer.is_error else "success",
            artifact={_RECALLED: list(answer.recalled)},
        )


def _newest(messages: Messages, before: Messages | None) -> Messages:
    """Those that may be new: all of them, where nobody knows what was looked at before."""
    last = before[-1].id if before else None
    at = next((at for at in reversed(range(len(messages))) if messages[at].id == last), None)
    return messages if at is None else messages[max(0, at - _BEFORE) :]


def _joined(system: SystemMessage | None, more: BaseMessage) -> SystemMessage:
    """One system text: not every provider takes two."""
    if system is None:
        return SystemMessage(more.content)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{more.text}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": more.text}]})


def _name(tool: BaseTool | dict[str, Any]) -> str:
    return str(tool.get("name", "")) if isinstance(tool, dict) else tool.name


def _tools() -> list[BaseTool]:
    """The two tools, as LangChain lists them; what executes them is `wrap_tool_call`."""

    def answered_before(**given: Any) -> str:
        raise InvalidInputError("TurnlogMiddleware answers this tool in an agent that it is a middleware of")

    return [
        StructuredTool.from_function(
            answered_before,
            name=one["function"]["name"],
            description=one["function"]["description"],
            args_schema=one["function"]["parameters"],
        )
        for one in cast("list[dict[str, Any]]", recall_tools(FORMAT))
    ]


def _put(known: dict[K, T], key: K, value: T) -> None:
    known.pop(key, None)
    known[key] = value
    while len(known) > _MOST:
        known.pop(next(iter(known)), None)
