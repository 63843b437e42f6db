"""A Strands `ConversationManager` over the log: the model receives the session's window, and the log stores everything."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AgentInitializedEvent, BeforeToolsEvent, HookRegistry
from strands.middleware import InvokeModelStage
from strands.tools.tools import PythonAgentTool
from strands.types.content import Message, Messages, SystemPrompt

from turnlog.agents.graph_state.aligning import append_new
from turnlog.agents.graph_state.messages import GraphMessage, Identity
from turnlog.client import GivenPolicy
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.json_values import canonical_json
from turnlog.integrations.originals import Limits, limited_window, tokens_of_system
from turnlog.integrations.sessions import stored_ids
from turnlog.integrations.strands.repository import FORMAT, body_of, decode_message, meta_of
from turnlog.sessions.context_models import WindowAnswer
from turnlog.windows.request import recall_tools

if TYPE_CHECKING:
    from strands import Agent
    from strands.middleware.stages import InvokeModelContext


_SHRINK = 0.7
"""Share of the last window's messages, in tokens, that the next one may take after the model refused it as too large."""
_STATE = "most_tokens"


class TurnlogConversationManager(ConversationManager):
    """Appends an agent's messages to a session and sends the model the session's window.

    Each message is stored once, before the model is called or a tool runs, also beside a `TurnlogRepository`. The agent's system
    prompt and tools count in the window; without ``budget`` the model's own limit applies. ``agent.messages`` keeps the newest
    messages: ``keep`` of them or a few more, beginning with a user message.

    With ``recall`` the agent gets the two tools that bring back what a window leaves out. Without it, a session that other code
    creates needs ``recall="never"``. A window shows the messages of all agents of its session; give agents that must not see each
    other a ``session_id`` each.
    """

    def __init__(
        self,
        log: Turnlog,
        session_id: str,
        *,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        output_reserve: int | None = None,
        keep: int = 40,
        recall: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._log = log
        self._session_id = session_id
        self._id_of = stored_ids(log)
        self._limits = Limits(budget=budget, policy=policy, output_reserve=output_reserve)
        self._keep = max(1, keep)
        self._recall = recall
        self._settings = settings if recall else {"recall": "never", **settings}
        self._most: int | None = None
        """The most tokens that a window may take beside the agent's system prompt; None for as many as the limits allow."""
        self._sent: WindowAnswer | None = None
        self._done = dict[str, dict[str, bytes]]()
        self._newest = dict[str, int | None]()
        """Position of each agent's question or result in the log, when it is the agent's newest message."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._begun)
        registry.add_callback(BeforeToolsEvent, self._before_tools)

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Append new messages to the log, then drop all but the newest from the agent's list."""
        self._sync(agent)
        messages = agent.messages
        cuts = range(len(messages) - self._keep, 0, -1)
        questions = (index for index in cuts if messages[index]["role"] == "user")
        cut = next((at for at in questions if not any("toolResult" in block for block in messages[at]["content"])), 0)
        self.removed_message_count += cut
        del messages[:cut]

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the next windows smaller. Raises ``e`` when no smaller window is possible."""
        system, tools = agent.system_prompt, agent.tool_registry.get_all_tool_specs()
        window = self._sent or self._window(agent, system, tools)
        fixed = window.manifest.totals["system"] + window.manifest.totals["tools"]
        before, self._most = self._most, fixed + int((window.tokens - fixed) * _SHRINK)
        try:
            self._window(agent, system, tools)
        except BudgetTooSmallError as error:
            least = cast("int", error.details["needed"])
            self._most = least if least < window.tokens else before
            if least >= window.tokens and e is not None:
                raise e from error

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), _STATE: self._most}

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Continue from the saved state of this or another conversation manager; the log has the removed messages."""
        self.removed_message_count = state.get("removed_message_count", 0)
        self._most = state.get(_STATE)
        return None

    def _begun(self, event: AgentInitializedEvent) -> None:
        agent = event.agent
        self._log.sessions.get_or_create(self._id_of(self._session_id), **self._settings)
        if self._recall:
            for tool in _tools(self._session()):
                agent.tool_registry.register_tool(tool)
        agent.add_middleware(InvokeModelStage.Input, self._before_model)

    async def _before_tools(self, event: BeforeToolsEvent) -> None:
        await asyncio.to_thread(self._sync, event.agent)

    async def _before_model(self, context: InvokeModelContext) -> InvokeModelContext:
        return await asyncio.to_thread(self._with_window, context)

    def _session(self) -> Session:
        return self._log.sessions.of(self._id_of(self._session_id))

    def _sync(self, agent: Agent) -> None:
        """Append new messages of the agent to the log, and redact messages there that the agent has changed."""
        done = self._done.setdefault(agent.agent_id, {})
        listed = [_to_graph_message(message, agent.agent_id) for message in agent.messages]
        said = {message.identity.id: message.identity.body for message in listed if message.identity.id is not None}
        now = {name: hashlib.sha256(body).digest() for name, body in said.items()}
        changed = {name for name, digest in now.items() if name in done and done[name] != digest}
        if changed:
            self._redact(changed)
        new = [message for message in listed if message.identity.id not in done]
        if new:
            aligned, _ = append_new(self._session(), new)
            last = new[-1].identity
            self._newest[agent.agent_id] = aligned.position(last) if last.role == "user" else None
        self._done[agent.agent_id] = now

    def _redact(self, ids: set[str]) -> None:
        session, remaining = self._session(), set(ids)
        for message in session.messages(order="desc", in_view=True):
            if message.id in remaining:
                session.redact(message.position)
                remaining.discard(message.id)
            if not remaining:
                return

    def _with_window(self, context: InvokeModelContext) -> InvokeModelContext:
        agent = cast("Agent", context.agent)
        self._sync(agent)
        newest = self._newest.get(agent.agent_id)
        window = self._window(agent, context.system_prompt, context.tool_specs, newest)
        self._sent = window
        brought = {tool["toolSpec"]["name"] for tool in window.tools}
        messages = [decode_message(message) for message in window.messages]
        if messages and context.messages:
            added = _added(context.messages, agent.messages)
            messages[-1] = cast("Message", {**messages[-1], "content": [*messages[-1]["content"], *added]})
        tools = [tool for tool in context.tool_specs if tool["name"] in brought or not Session.handles(tool["name"])]
        system = _joined(context.system_prompt, window.system)
        return context.replace(messages=messages, system_prompt=system, tool_specs=tools)

    def _window(
        self, agent: Agent, system: SystemPrompt, tools: Sequence[Any], newest: int | None = None
    ) -> WindowAnswer:
        limits, model_limit = self._limits, agent.model.context_window_limit
        if self._most is not None:
            most = self._most + tokens_of_system(_text(system))
            limit = limits.budget if limits.budget is not None else model_limit
            limits = replace(limits, budget=min(most, limit or most))
        own_tools = [
            {"toolSpec": dict(tool)} for tool in tools if not self._recall or not Session.handles(tool["name"])
        ]
        return limited_window(
            self._session(),
            limits,
            FORMAT,
            system=_text(system),
            tools=own_tools,
            model_limit=model_limit,
            newest=newest,
        )


def _to_graph_message(message: Mapping[str, Any], agent_id: str) -> GraphMessage:
    body, kept = body_of(message)
    meta = meta_of(message, kept, agent_id)
    return GraphMessage(body, meta, Identity(meta.get("id"), canonical_json(body), body.get("role")))


def _added(sent: Messages, own: Messages) -> list[Any]:
    """Return content blocks that Strands appended to the newest message for this call only."""
    last = own[-1]["content"] if own else []
    blocks = sent[-1]["content"]
    return list(blocks[len(last) :]) if blocks[: len(last)] == last else []


def _text(system: SystemPrompt) -> str:
    if isinstance(system, str):
        return system
    return "\n".join(block["text"] for block in system or [] if "text" in block)


def _joined(system: SystemPrompt, more: Any) -> SystemPrompt:
    if not more:
        return system
    if not system:
        return str(more)
    return f"{system}\n\n{more}" if isinstance(system, str) else [*system, {"text": more}]


def _tools(session: Session) -> list[PythonAgentTool]:
    def answered(tool_use: Any, **more: Any) -> Any:
        answer = session.execute_tool(
            tool_use["name"], tool_use["input"], call_id=tool_use["toolUseId"], format="bedrock_converse"
        )
        (block,) = decode_message(answer.message)["content"]
        return {"status": "success", **block["toolResult"]}

    specs = [cast("dict[str, Any]", tool["toolSpec"]) for tool in recall_tools(FORMAT)]
    return [PythonAgentTool(spec["name"], cast("Any", spec), answered) for spec in specs]
