"""The history of agents of the Microsoft Agent Framework (1.23) in the log: https://learn.microsoft.com/agent-framework/.

    from turnlog.integrations.agent_framework import TurnlogHistoryProvider

    history = TurnlogHistoryProvider(log, budget=30_000)
    agent = Agent(client, tools=tools, context_providers=[history], require_per_service_call_history_persistence=True)
    await agent.run("Hello", session=agent.create_session(session_id="support-42"))

A session of the framework is a session of the log. The model is sent its window: with per-service-call persistence, as above, for
each model call; without it, the window before a run and then all that the run says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from agent_framework import AgentSession, Content, HistoryProvider, Message, SessionContext, SupportsAgentRun

from turnlog.client import GivenPolicy, python_json
from turnlog.client.async_calls import reads, writes
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.integrations import originals
from turnlog.integrations.originals import Limits, Originals, Part
from turnlog.integrations.sessions import session_id_of, sync_log
from turnlog.windows.text import SETTLEMENT


class TurnlogHistoryProvider(HistoryProvider):
    """Stores what goes into each model call and what comes out of it, and loads the session's window.

    ``budget``, ``policy`` and ``output_reserve`` are those of `Session.context`; keep room in the budget for the agent's
    instructions and tools. Messages are in the log before the model is called. New sessions get ``settings`` of `Sessions.create`.
    """

    def __init__(
        self,
        log: Turnlog,
        *,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        output_reserve: int | None = None,
        source_id: str = "turnlog",
        **settings: Any,
    ) -> None:
        super().__init__(source_id)
        self._log = sync_log(log)
        self._limits = Limits(budget=budget, policy=policy, output_reserve=output_reserve)
        self._settings = {"recall": "never", **settings}

    def session(self, session_id: str | None) -> Session:
        """Return the session of the log. Raises `InvalidInputError` without an id."""
        if not session_id:
            raise InvalidInputError("no session: run the agent with an AgentSession that has a session_id")
        return self._log.sessions.of(session_id_of(session_id))

    def all_messages(self, session_id: str) -> list[Message]:
        """Return all messages of a session, where `get_messages` returns its window."""
        return [message for _, message in MESSAGES.stored(self.session(session_id))]

    @reads
    def get_messages(
        self,
        /,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,
        newest: int | None = None,
        **kwargs: Any,
    ) -> list[Message]:
        """Return the session's window, up to the position of a run's newest message; nothing for a session that is new."""
        session = self.session(session_id)
        if not originals.has_messages(session):
            return []
        window = MESSAGES.window(session, self._limits, newest=newest)
        return [*([Message("system", [window.system])] if window.system else []), *window.messages]

    @writes
    def save_messages(
        self,
        /,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        positions: list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append messages in one piece, even when the caller is cancelled, and their positions to ``positions``."""
        session = self._log.sessions.get_or_create(self.session(session_id).id, **self._settings)
        appended = MESSAGES.append(session, [MESSAGES.body(message) for message in messages])
        if positions is not None:
            positions += appended

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Append what goes in, and replace it and the history by the window."""
        positions = list[int]()
        if context.input_messages:
            await self.save_messages(context.session_id, context.input_messages, positions=positions)
        said = [content for message in context.input_messages for content in message.contents]
        answers = [content.function_call for content in said if content.type == "function_approval_response"]
        approved = {str(call.call_id) for call in answers if call is not None}
        messages = await self.get_messages(context.session_id, newest=positions[-1] if positions else None)
        window = _without_settlements(messages, approved)
        newest = window[-1:] if context.input_messages else []
        context.input_messages[:] = newest
        context.extend_messages(self, window[: len(window) - len(newest)])

    async def after_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Append what came out; what went in is in the log."""
        if context.response is not None and context.response.messages:
            await self.save_messages(context.session_id, context.response.messages)


def _without_settlements(window: list[Message], approved: set[str]) -> list[Message]:
    """Return a window in which approved calls, and others of the same reply, have no neutral results: they are executed now."""
    waiting = set[str]()
    for message in window:
        ids = {str(content.call_id) for content in message.contents if content.type == "function_call"}
        waiting |= ids if ids & approved else set()

    def is_settlement(content: Content) -> bool:
        return content.type == "function_result" and content.call_id in waiting and content.result == SETTLEMENT

    return [message for message in window if not any(map(is_settlement, message.contents))]


def _to_parts(message: Message) -> tuple[str, list[Part]]:
    parts = list[Part]()
    for content in message.contents:
        if content.type == "function_call":
            parts.append(originals.tool_call(content.call_id, content.name, content.arguments))
        elif content.type == "function_result":
            value, failed = json.loads(python_json(content.result)), content.exception is not None
            result = originals.tool_result(content.call_id, value, is_error=failed)
            parts += originals.result_parts(result, [part for item in content.items or () for part in _added(item)])
        elif content.type == "text_reasoning":
            parts.append(originals.text_block(content.text or "", is_thinking=True))
        elif content.type == "data" and content.uri is not None:
            media_type, _, data = content.uri.removeprefix("data:").partition(";base64,")
            parts.append(originals.media_block(media_type, data))
        elif content.text is not None:
            parts.append(originals.text_block(content.text))
        else:
            parts += _added(content)
    return str(message.role), parts


def _added(content: Content) -> list[Part]:
    """Return the parts of content that bodies of earlier versions lack; nothing for text, which a result has."""
    if content.type in ("data", "uri", "hosted_file") and (content.uri or content.file_id):
        if content.uri is None:
            return [originals.added_media(content.media_type, file_id=str(content.file_id))]
        media_type, separator, data = content.uri.removeprefix("data:").partition(";base64,")
        if separator:
            return [originals.added_media(media_type, data)]
        return [originals.added_media(content.media_type, url=content.uri)]
    return [] if content.type in ("text", "usage") else originals.other_parts(content.type, _json_of(content))


def _json_of(value: Message | Content) -> JsonObject:
    return cast("JsonObject", json.loads(python_json(value.to_dict())))


def _from_parts(role: str, parts: Sequence[Part]) -> Message:
    contents = list[Content]()
    for part in parts:
        match part:
            case {"type": "text", "text": text}:
                contents.append(Content.from_text(text))
            case {"media_type": media_type, "data": str(data)}:
                contents.append(Content.from_uri(f"data:{media_type};base64,{data}", media_type=media_type))
            case {"id": call_id, "name": name, "args": arguments}:
                contents.append(Content.from_function_call(call_id, name, arguments=arguments))
            case {"media_type": media_type, "url": str(url)}:
                contents.append(Content.from_uri(url, media_type=media_type))
            case {"tool_call_id": call_id, "result": result}:
                media = _from_parts(role, part.get("media") or ()).contents
                shown = [Content.from_text(str(result)), *media] if media else result
                contents.append(Content.from_function_result(call_id, result=shown))
    return Message(role, contents)


MESSAGES = Originals[Message](
    "agent_framework",
    dump=_json_of,
    load=Message.from_dict,
    to_parts=_to_parts,
    from_parts=_from_parts,
    content_of=lambda message: message.contents,
)
