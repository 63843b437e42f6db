"""Conversations of Pydantic AI (2.68) over the log: https://ai.pydantic.dev/conversations/.

    from turnlog.integrations.pydantic_ai import TurnlogConversationStore, TurnlogWindow

    store = TurnlogConversationStore(log)
    agent = Agent(model, tools=tools, capabilities=[TurnlogWindow(store, budget=30_000)])
    conversation = await store.load("support-42") or Conversation(conversation_id="support-42")
    await store.save(await agent.run("Hello", conversation=conversation))

The messages of a conversation are messages of a session; a branch rewinds it and a fork forks it. With `TurnlogWindow` messages are
in the log before the model is called, and the model is sent the session's window.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from turnlog.client import GivenPolicy
from turnlog.client.async_calls import run_to_end
from turnlog.client.documents import Document, Documents
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import DocumentChangedError, HeadMismatchError, NotFoundError
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.integrations import originals
from turnlog.integrations.originals import Limits, Originals
from turnlog.integrations.sessions import session_id_of

_MESSAGE = TypeAdapter[ModelMessage](ModelMessage)


def _to_body(message: ModelMessage) -> JsonObject:
    blocks, calls, results = list[JsonValue](), list[JsonValue](), list[JsonValue]()
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            calls.append(originals.tool_call(part.tool_call_id, part.tool_name, part.args_as_dict()))
        elif isinstance(part, ToolReturnPart):
            failed = part.outcome != "success"
            results.append(originals.tool_result(part.tool_call_id, part.model_response_str(), is_error=failed))
        elif isinstance(part, RetryPromptPart) and part.tool_name is not None:
            results.append(originals.tool_result(part.tool_call_id, part.model_response(), is_error=True))
        elif isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            blocks += [_block(item) for item in part.content]
        elif isinstance(content := getattr(part, "content", None), str):
            blocks.append(originals.text_block(content, is_thinking=isinstance(part, ThinkingPart)))
    role = "assistant" if isinstance(message, ModelResponse) else "tool" if results else "user"
    return originals.body_of(role, blocks, calls, results)


def _block(item: Any) -> JsonObject:
    if isinstance(item, BinaryContent):
        return originals.media_block(item.media_type, item.data)
    return originals.text_block(item if isinstance(item, str) else str(getattr(item, "url", item)))


def _from_body(body: Mapping[str, Any], names: Mapping[str, str]) -> ModelMessage:
    blocks = originals.blocks_of(body)
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if body["role"] == "assistant":
        calls = [ToolCallPart(call["name"], call["args"], call["id"]) for call in body.get("tool_calls") or ()]
        return ModelResponse([*(TextPart(text) for text in texts), *calls])
    results = [
        ToolReturnPart(names.get(result["tool_call_id"], "tool"), result["result"], result["tool_call_id"])
        for result in body.get("tool_results") or ()
    ]
    media = [
        BinaryContent(base64.b64decode(block["data"]), media_type=block["media_type"])
        for block in blocks
        if block.get("data")
    ]
    said = [*texts, *media] if media else "\n".join(texts)
    return ModelRequest([*results, *([UserPromptPart(said)] if said else [])])


MESSAGES = Originals[ModelMessage](
    "pydantic_ai",
    dump=lambda message: _MESSAGE.dump_python(message, mode="json"),
    load=_MESSAGE.validate_python,
    to_body=_to_body,
    from_body=_from_body,
)
_INDEX = session_id_of("pydantic-ai")
_RECORDS, _PLACES = "records/", "places/"
_RECORD = TypeAdapter(ConversationRecord)


class TurnlogConversationStore(ConversationStore):
    """Stores the conversations of one owner, each in a session that has its id where that is a session id.

    A conversation that another writer has saved raises `ConversationConflict`. Deleting a conversation deletes its record; what was
    said stays in the log until `Session.erase`, because forks may share it. `load` also returns what a run that was
    killed had said. New sessions get ``settings`` of `Sessions.create`.
    """

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        self._log = log
        self._settings = {"recall": "never", **settings}

    def session(self, conversation_id: str) -> Session:
        """Return the session of a conversation, for windows, search and summaries."""
        return self._log.sessions.of(session_id_of(conversation_id))

    async def load(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> Conversation | None:
        conversation = await super().load(conversation_id, limit=limit, scope=scope)
        if conversation is not None:
            conversation.messages.extend(await asyncio.to_thread(self._unsaved, conversation_id))
            return conversation
        if scope is not None or await self.read_record(conversation_id) is not None:
            return None
        unsaved = await asyncio.to_thread(self._unsaved, conversation_id)
        return Conversation(conversation_id=conversation_id, messages=unsaved) if unsaved else None

    # ------------------------------------------------------------ the primitives of a store

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        document = await asyncio.to_thread(self._get, _RECORDS + session_id_of(conversation_id))
        return _RECORD.validate_json(document.data) if document is not None else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        documents = await asyncio.to_thread(lambda: list(self._index().list(_RECORDS)))
        records = [_RECORD.validate_json(document.data) for document in documents]
        records = [record for record in records if scope is None or record.scope == scope]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await run_to_end(lambda: self._write(record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        record = await self.read_record(conversation_id)
        if record is None or record.revision != expected_revision:
            raise ConversationConflict(conversation_id)

        def delete() -> None:
            self._index().delete([_RECORDS + session_id_of(conversation_id)])
            self.session(conversation_id).rewind(1)

        await run_to_end(delete)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        (entry,) = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return await asyncio.to_thread(self._history, head_id, limit)

    # ------------------------------------------------------------ blocking work, called in a thread

    def keep(self, conversation_id: str, messages: Sequence[ModelMessage]) -> Session:
        """Append the messages that the session does not have, and return it. Messages that differ from the session's branch off.

        Raises `ConversationConflict` when the session has messages after all of these: another run has said them.
        """
        session = self._log.sessions.get_or_create(session_id_of(conversation_id), **self._settings)
        try:
            MESSAGES.extend(session, messages)
        except HeadMismatchError as error:
            raise ConversationConflict(conversation_id) from error
        return session

    def _write(self, record: ConversationRecord, entries: Sequence[ConversationEntry], expected: str | None) -> None:
        conversation_id = record.conversation_id
        name = _RECORDS + session_id_of(conversation_id)
        before = self._get(name)
        if (_RECORD.validate_json(before.data).revision if before is not None else None) != expected:
            raise ConversationConflict(conversation_id)
        base = entries[0].parent_id if entries else record.head_id
        place = self._place(base)
        if base is not None and place is None:
            raise ConversationConflict(conversation_id)
        try:
            session = self._session_at(conversation_id, place)
            messages = [entry.message for entry in entries]
            after = place["position"] if place is not None else 0
            positions = MESSAGES.extend(session, messages, after=after, drop_rest=True)
            index = self._log.sessions.get_or_create(_INDEX, **self._settings).documents
            places = {
                _PLACES + entry.id: {"session": session.id, "position": position, "parent": entry.parent_id}
                for entry, position in zip(entries, positions, strict=True)
            }
            index.put_many({key: json.dumps(value).encode() for key, value in places.items()})
            originals.put_json(index, name, _RECORD.dump_python(record, mode="json"), before)
        except (HeadMismatchError, DocumentChangedError) as error:
            raise ConversationConflict(conversation_id) from error

    def _session_at(self, conversation_id: str, place: Mapping[str, Any] | None) -> Session:
        """Return the session of a conversation; one that begins in another conversation is a fork of its session."""
        session_id = session_id_of(conversation_id)
        if place is not None and place["session"] != session_id and not self._log.sessions.exists(session_id):
            return self._log.sessions.of(place["session"]).fork(session_id, at=place["position"])
        return self._log.sessions.get_or_create(session_id, **self._settings)

    def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        entries, messages = list[ConversationEntry](), dict[str, dict[int, ModelMessage]]()
        entry_id = head_id
        while entry_id is not None and (limit is None or len(entries) < limit):
            place = self._place(entry_id)
            if place is None:
                raise LookupError(entry_id)
            session_id, position = place["session"], place["position"]
            if position not in messages.setdefault(session_id, {}):
                page = self._log.sessions.of(session_id).page(order="desc", before=position + 1, format=MESSAGES.format)
                messages[session_id] |= {stored.position: MESSAGES.message(stored.body) for stored in page.messages}
            message = messages[session_id][position]
            entries.append(ConversationEntry(id=entry_id, parent_id=place["parent"], message=message))
            entry_id = place["parent"]
        return entries[::-1]

    def _unsaved(self, conversation_id: str) -> list[ModelMessage]:
        """Return the messages of a run that was not saved: those behind the conversation's head."""
        record = self._get(_RECORDS + session_id_of(conversation_id))
        place = self._place(_RECORD.validate_json(record.data).head_id) if record is not None else None
        with suppress(NotFoundError):
            stored = MESSAGES.stored(self.session(conversation_id))
            return [message for position, message in stored if place is None or position > place["position"]]
        return []

    def _place(self, entry_id: str | None) -> dict[str, Any] | None:
        return (
            originals.read_json(self._log.sessions.of(_INDEX).documents, _PLACES + entry_id)
            if entry_id is not None
            else None
        )

    def _index(self) -> Documents:
        return self._log.sessions.get_or_create(_INDEX, **self._settings).documents

    def _get(self, key: str) -> Document | None:
        with suppress(NotFoundError):
            return self._log.sessions.of(_INDEX).documents.get(key)
        return None


@dataclass
class TurnlogWindow(AbstractCapability[Any]):
    """Appends the run's messages to the log before each model call, and sends the model the window of the conversation.

    ``budget``, ``policy`` and ``output_reserve`` are those of `Session.context`. The run's own history stays whole.
    """

    store: TurnlogConversationStore
    budget: int | None = None
    policy: GivenPolicy | None = None
    output_reserve: int | None = None
    _limits: Limits = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._limits = Limits(self.budget, self.policy, self.output_reserve)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        messages, parameters = list(request_context.messages), request_context.model_request_parameters
        system = "\n\n".join(part.content for part in parameters.instruction_parts or [])
        tools = [originals.function_tool(tool.name, tool.parameters_json_schema) for tool in parameters.function_tools]
        session = await run_to_end(lambda: self.store.keep(ctx.conversation_id or "", messages))
        window = await asyncio.to_thread(MESSAGES.window, session, self._limits, system=system, tools=tools)
        summary: list[ModelMessage] = [ModelRequest([SystemPromptPart(window.system)])] if window.system else []
        request_context.messages = [*summary, *window.messages]
        return request_context
