"""A LangChain agent middleware (v1) over the log: https://docs.langchain.com/oss/python/langchain/middleware.

    from turnlog.integrations.langchain import TurnlogMiddleware

    agent = create_agent(model, tools, middleware=[TurnlogMiddleware(log, budget=30_000)], checkpointer=saver)
    agent.invoke({"messages": [HumanMessage("Hello")]}, {"configurable": {"thread_id": "support-42"}})

Each message of the agent's state is appended to the session once. The model receives the session's window instead of all messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import is_
from typing import Annotated, Any, NotRequired, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr, ToolCallRequest
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.runtime import Runtime

from turnlog.agents.graph_state.aligning import append_new, leave_branch, record_edits, record_removals
from turnlog.agents.graph_state.messages import (
    FORMAT,
    GRAPH_METADATA,
    GraphMessage,
    Newest,
    WindowObjects,
    is_removal,
    original_message,
    to_graph_message,
    with_changes,
)
from turnlog.client import GivenPolicy
from turnlog.client.async_calls import in_thread
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.engines import RandomIds
from turnlog.integrations.originals import Limits, function_tool, limited_window
from turnlog.integrations.sessions import stored_ids
from turnlog.windows.request import recall_tools

_RECALLED = "recalled"
_BEFORE = 50
"""Messages before the newest appended one that are compared again, because an agent may insert messages between."""
_MAX_KNOWN = 1_000
_IDS = RandomIds()
Messages = Sequence[BaseMessage]
Request = ModelRequest[Any]


class State(AgentState[Any]):
    """The agent's state plus ``turnlog_run``, an id of the run that only this middleware sees."""

    turnlog_run: NotRequired[Annotated[str, PrivateStateAttr]]


class TurnlogMiddleware(AgentMiddleware[State, Any, Any]):
    """Appends an agent's messages to a session and sends the model the session's window.

    ``session_id`` is an id, or a function from a run's configurables to one; by default it is the run's ``thread_id``. A missing
    session is created with ``settings`` of `Sessions.create`. ``budget``, ``policy`` and ``output_reserve`` are those of
    `Session.context`; without a budget the model's profile decides. With ``recall`` the agent gets the two tools that bring back
    what a window leaves out.

    With a checkpointer, a thread continues where it stopped, or where time travel went: messages of another branch leave the view
    of its session. Without one, a run that starts without messages continues from the end of the log.
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
        self._id_of = stored_ids(log)
        self._session_id = session_id
        self._limits = Limits(budget=budget, policy=policy, output_reserve=output_reserve)
        self._settings = settings if recall else {"recall": "never", **settings}
        self._window_objects = WindowObjects()
        self._done = Newest[tuple[str, str], tuple[Messages, int | None]](_MAX_KNOWN)
        self._ends = Newest[str, tuple[int, str | None]](_MAX_KNOWN)
        self._sent = Newest[str, dict[str, int]](_MAX_KNOWN)
        self._begun = Newest[str, bool](_MAX_KNOWN)
        self._restored = set[str]()

    def before_agent(self, state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return self._begin_run(state, self._session())

    def before_model(self, state: State, runtime: Runtime[Any]) -> None:
        self._keep(state, self._session())

    def after_agent(self, state: State, runtime: Runtime[Any]) -> None:
        session = self._session()
        self._keep(state, session)
        self._done.pop((session.id, state.get("turnlog_run", "")), None)
        self._begun.pop(state.get("turnlog_run", ""), None)

    abefore_agent = in_thread(before_agent)
    abefore_model = in_thread(before_model)
    aafter_agent = in_thread(after_agent)

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage:
        prepared = self._before_call(request)
        return prepared if isinstance(prepared, AIMessage) else self._after_call(prepared[1], handler(prepared[0]))

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | AIMessage:
        prepared = await asyncio.to_thread(self._before_call, request)
        if isinstance(prepared, AIMessage):
            return prepared
        return self._after_call(prepared[1], await handler(prepared[0]))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        answer = self._before_tool(request)
        return handler(request) if answer is None else answer

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        answer = await asyncio.to_thread(self._before_tool, request)
        return await handler(request) if answer is None else answer

    # ------------------------------------------------------------ work of the hooks; async hooks call it in a thread

    def _session(self) -> Session:
        """Return the session of the current run. Raises `InvalidInputError` when neither option nor run names one."""
        configurable = get_config().get("configurable", {})
        own = self._session_id
        session_id = own(configurable) if callable(own) else own or configurable.get("thread_id")
        if not session_id:
            raise InvalidInputError("no session: give TurnlogMiddleware a session_id, or the run a thread_id")
        return self._log.sessions.of(self._id_of(str(session_id)))

    def _begin_run(self, state: State, session: Session) -> dict[str, Any]:
        """Return the state update that begins a run.

        A run without messages gets those since the newest user message, if the last one still waits for an answer.
        """
        self._log.sessions.get_or_create(session.id, **self._settings)
        update: dict[str, Any] = {"turnlog_run": _IDS.new_id()}
        self._begun[update["turnlog_run"]] = True
        if state["messages"]:
            return update
        restored = list[BaseMessage]()
        for stored in session.messages(order="desc", in_view=True):
            if stored.status == "complete":
                message = original_message(stored) if GRAPH_METADATA in (stored.metadata or {}) else None
                if not isinstance(message, BaseMessage):
                    return update
                restored.append(message)
                if message.type == "human":
                    break
        newest = restored[0] if restored else None
        if newest is None or (isinstance(newest, AIMessage) and not newest.tool_calls):
            return update
        if isinstance(newest, AIMessage) and newest.id is not None:
            self._restored.add(newest.id)
        return {**update, "messages": restored[::-1]}

    def _keep(self, state: Any, session: Session) -> int | None:
        """Append new messages of the state to the log, and report messages that were edited or removed.

        Returns the position of the state's newest message in the log; None for a reply.
        """
        messages, run = list[BaseMessage](state["messages"]), (session.id, state.get("turnlog_run", ""))
        before, position = self._done.get(run, (None, None))
        if before is not None and len(before) == len(messages) and all(map(is_, before, messages)):
            return position
        newest = self._newest(session, messages, before)
        listed = [self._graph_message(session, message) for message in newest]
        if before is None and len(newest) == len(messages) and self._session_id is None and _is_thread():
            leave_branch(session, listed)
        last = next((message.identity for message in reversed(listed) if message is not None), None)
        # A run that goes on in another process has its question in the log, maybe in the words of before a middleware.
        is_first = before is None and run[1] in self._begun
        is_question = is_first and last is not None and last.role == "user"
        aligned, _ = append_new(session, listed, is_last_new=is_question, options=self._options)
        record_edits(session, listed, aligned)
        record_removals(session, before or (), messages)
        for message in messages:
            self._sent.pop(message.id or "", None)
        position = aligned.position(last) if last is not None and last.role != "assistant" else None
        self._done[run] = messages, position
        self._ends[session.id] = aligned.head, messages[-1].id if messages else None
        return position

    def _newest(self, session: Session, messages: Messages, before: Messages | None) -> Messages:
        """Return messages that may be new: those since `_BEFORE` messages before the last known one, or all.

        Without messages of the run ``before``, the last one of another run is known while nobody else writes to the log.
        """
        head, last_id = self._ends.get(session.id, (0, None))
        if before:
            last_id = before[-1].id
        elif last_id is not None and session.info().head != head:
            return messages
        index = next((index for index in reversed(range(len(messages))) if messages[index].id == last_id), None)
        return messages if index is None else messages[max(0, index - _BEFORE) :]

    def _options(self, batch: Sequence[GraphMessage]) -> Mapping[str, Any]:
        """Return the append options of a batch: window and usage of its reply, when it has exactly one."""
        windows = [window for message in batch if (window := self._sent.get(message.identity.id or ""))]
        return windows[0] if len(windows) == 1 else {}

    def _graph_message(self, session: Session, message: BaseMessage) -> GraphMessage | None:
        """Return the message as the log stores it; None for removals and for summaries that LangChain inserted."""
        if is_removal(message) or message.additional_kwargs.get("lc_source") == "summarization":
            return None
        graph_message, problems = to_graph_message(message, "")
        if graph_message is None:
            raise InvalidInputError("a message of the agent can't be kept", problems=problems)
        artifact = message.artifact if isinstance(message, ToolMessage) else None
        if isinstance(artifact, Mapping) and session.handles(message.name or ""):
            graph_message.meta["recalled"] = list(artifact.get(_RECALLED, ()))
        self._window_objects.learn(session.id, graph_message.body, message.model_copy())
        return graph_message

    def _before_call(self, request: Request) -> tuple[Request, Mapping[str, int]] | AIMessage:
        """Return the request with the window as its messages, and the window's position and size.

        When the last message was restored from the log with open calls, return that reply and call no model.
        """
        messages, session = request.state["messages"], self._session()
        last = messages[-1] if messages else None
        if isinstance(last, AIMessage) and last.id in self._restored:
            self._restored.discard(last.id)
            return last
        newest = self._keep(request.state, session)
        own = {tool.name for tool in self.tools}
        tools = [tool for tool in request.tools if _name(tool) not in own]
        profile, system = getattr(request.model, "profile", None), request.system_message
        limit = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
        text = system.text if system is not None else ""
        schemas = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools]
        schemas += _output_tools(request)
        window = limited_window(
            session, self._limits, FORMAT, system=text, tools=schemas, model_limit=limit, newest=newest
        )
        brought = {tool.get("function", {}).get("name") for tool in window.tools}
        tools += [tool for tool in request.tools if _name(tool) in own & brought]
        shown = self._window_objects.objects(session, window)
        while shown and isinstance(shown[0], SystemMessage):
            system = _joined(system, shown.pop(0))
        shown = with_changes(shown, messages, request.messages)
        sent = {"position": window.head, "tokens": window.tokens}
        return request.override(messages=cast("list[AnyMessage]", shown), system_message=system, tools=tools), sent

    def _after_call(self, window: Mapping[str, int], response: ModelResponse[Any]) -> ModelResponse[Any]:
        """Remember the window of a reply and the provider's token counts until the reply is appended."""
        for message in response.result:
            if isinstance(message, AIMessage) and message.id is not None:
                sent: dict[str, Any] = {"window": dict(window)}
                if message.usage_metadata is not None:
                    sent["usage"] = {name: message.usage_metadata[name] for name in ("input_tokens", "output_tokens")}
                self._sent[message.id] = sent
        return response

    def _before_tool(self, request: ToolCallRequest) -> ToolMessage | None:
        """Append the call before its tool runs. Calls of the recall tools are answered here; None for other tools."""
        session = self._session()
        if isinstance(request.state, Mapping) and "messages" in request.state:
            self._keep(request.state, session)
        call = request.tool_call
        if not self.tools or not session.handles(call["name"]):
            return None
        answer = session.execute_tool(call["name"], call["args"], call_id=call["id"])
        return ToolMessage(
            answer.message["content"],
            tool_call_id=call["id"],
            name=call["name"],
            status="error" if answer.is_error else "success",
            artifact={_RECALLED: list(answer.recalled)},
        )


def _is_thread() -> bool:
    """Return whether the agent is the graph of a thread with a checkpointer: its state then has all that the thread said."""
    configurable = get_config().get("configurable", {})
    is_subgraph = "|" in configurable.get("checkpoint_ns", "")
    return configurable.get("__pregel_checkpointer") is not None and not is_subgraph


def _joined(system: SystemMessage | None, more: BaseMessage) -> SystemMessage:
    """Join two system texts into one, because not every provider accepts two."""
    if system is None:
        return SystemMessage(more.content)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{more.text}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": more.text}]})


def _output_tools(request: Request) -> list[JsonObject]:
    """Return the tools by whose calls the model gives structured output, which LangChain offers beside those of the request."""
    strategy = request.response_format
    offered = ToolStrategy(strategy.schema) if isinstance(strategy, AutoStrategy) else strategy
    specs = getattr(offered, "schema_specs", ())  # those of a ToolStrategy
    return [function_tool(spec.name, [spec.description, spec.json_schema]) for spec in specs]


def _name(tool: BaseTool | dict[str, Any]) -> str:
    return str(tool.get("name", "")) if isinstance(tool, dict) else tool.name


def _tools() -> list[BaseTool]:
    """Return the two recall tools as LangChain lists them. `wrap_tool_call` executes them."""

    def refuse_direct_call(**arguments: Any) -> str:
        raise InvalidInputError("TurnlogMiddleware answers this tool in an agent that it is a middleware of")

    return [
        StructuredTool.from_function(
            refuse_direct_call,
            name=schema["function"]["name"],
            description=schema["function"]["description"],
            args_schema=schema["function"]["parameters"],
        )
        for schema in cast("list[dict[str, Any]]", recall_tools(FORMAT))
    ]
