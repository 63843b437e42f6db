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
import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import Conversation, ModelMessage, ModelRequest, ModelRequestContext, ModelResponse, RunContext
from pydantic_ai import messages as types
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from turnlog.agents.graph_state.messages import Newest
from turnlog.client import python_json
from turnlog.client.async_calls import reads, run_to_end, writes
from turnlog.client.documents import Document
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import DocumentChangedError, HeadMismatchError
from turnlog.core.json_values import canonical_json
from turnlog.integrations import originals
from turnlog.integrations.originals import Limits, Originals, Part
from turnlog.integrations.sessions import SessionIndex

_NEVER_SENT = (types.InstructionBaselinePart, types.ModelSettingsDeltaPart)
_TYPES_OF_URLS = {"image-url": "image/*", "audio-url": "audio/*"}
_MESSAGE = TypeAdapter[ModelMessage](ModelMessage)
_dump, _load = partial(_MESSAGE.dump_python, mode="json"), _MESSAGE.validate_python
_RECORDS, _PLACES = "records/", "places/"
_EARLIER = 100  # entries before it that a stored entry names at most; they are read with one request
_MAX_KEPT = 50
_RECORD = TypeAdapter(ConversationRecord)


def _to_parts(message: ModelMessage) -> tuple[str, list[Part]]:
    parts = list[Part]()
    for part in message.parts:
        if isinstance(part, types.ToolCallPart):
            parts.append(originals.tool_call(part.tool_call_id, part.tool_name, part.args_as_dict()))
        elif isinstance(part, types.ToolReturnPart):
            text, failed = part.model_response_str(), part.outcome != "success"
            result = originals.tool_result(part.tool_call_id, text, is_error=failed)
            parts += originals.result_parts(result, [block for file in part.files for block in _media(file)])
        elif isinstance(part, types.RetryPromptPart):  # Pydantic AI loads it as a part of another class
            parts += _to_parts(_load(_dump(ModelRequest([part]))))[1]
        elif isinstance(part, types.UserPromptPart) and not isinstance(part.content, str):
            parts += [block for item in part.content for block in _blocks(item)]
        elif isinstance(content := getattr(part, "content", None), str):
            parts.append(originals.text_block(content, is_thinking=isinstance(part, types.ThinkingPart)))
            parts += _media(getattr(part, "audio", None))  # of speech, whose content is its transcript
        elif not isinstance(part, _NEVER_SENT):
            parts += _other_parts(part)
    return "assistant" if isinstance(message, ModelResponse) else "user", parts


def _other_parts(part: Any) -> list[Part]:
    if isinstance(part, types.NativeToolReturnPart):
        files = [block for file in part.files for block in _media(file)]
        return [*originals.other_parts(part.part_kind, [part.tool_name, part.model_response_str()]), *files]
    if isinstance(part, types.FilePart):
        return _media(part.content)
    return originals.other_parts(part.part_kind, json.loads(python_json(part)))


def _blocks(item: Any) -> list[Part]:
    """Return the blocks of what a user has sent."""
    if isinstance(item, types.BinaryContent):
        return [originals.media_block(item.media_type, item.data)]
    said = getattr(item, "url", None) or getattr(item, "file_id", item)
    return [originals.text_block(str(said)), *_media(item)]


def _media(item: Any) -> list[Part]:
    """Return the block of a file; nothing for other content."""
    if isinstance(item, types.BinaryContent):
        return [originals.added_media(item.media_type, item.data)]
    if isinstance(item, types.UploadedFile):
        return [originals.added_media(item.media_type, file_id=item.file_id)]
    if isinstance(item, types.FileUrl):
        return [originals.added_media(_TYPES_OF_URLS.get(item.kind), url=item.url)]
    return []


def _file(block: Part) -> Any:
    if "data" in block:
        return types.BinaryContent(base64.b64decode(block["data"]), media_type=block.get("media_type") or "")
    kinds = {"image": types.ImageUrl, "audio": types.AudioUrl}
    return kinds.get(block["type"], types.DocumentUrl)(block["url"])


def _from_parts(role: str, parts: Sequence[Part]) -> ModelMessage:
    said, calls_or_results = list[Any](), list[Any]()
    for part in parts:
        match part:
            case {"type": "text", "text": text}:
                said.append(text)
            case {"media_type": _, "data": str()}:
                said.append(_file(part))
            case {"id": call_id, "name": name, "args": arguments}:
                calls_or_results.append(types.ToolCallPart(name, arguments, call_id))
            case {"tool_call_id": call_id, "name": name, "result": result}:
                files = [_file(block) for block in part.get("media") or () if "data" in block or "url" in block]
                calls_or_results.append(types.ToolReturnPart(name, [result, *files] if files else result, call_id))
    texts = [item for item in said if isinstance(item, str)]
    if role == "assistant":
        shown = [types.TextPart(item) if isinstance(item, str) else types.FilePart(item) for item in said]
        return ModelResponse([*shown, *calls_or_results])
    prompt = said if len(texts) < len(said) else "\n".join(texts)
    return ModelRequest([*calls_or_results, *([types.UserPromptPart(prompt)] if prompt else [])])


MESSAGES = Originals[ModelMessage](
    "pydantic_ai",
    dump=_dump,
    load=_load,
    to_parts=_to_parts,
    from_parts=_from_parts,
    content_of=lambda message: message.parts,
)


@dataclass(frozen=True)
class _Kept:
    """The end of a session's log, and a digest of each message that was given when it was written."""

    head: int
    digests: Sequence[bytes]


class TurnlogConversationStore(ConversationStore):
    """Stores the conversations of one owner, each in a session that has its id where that is a session id.

    A conversation that another writer has saved raises `ConversationConflict`. Deleting a conversation deletes its record; what was
    said stays in the log until `Session.erase`, because forks may share it. `load` also returns what a run that was
    killed had said. New sessions get ``settings`` of `Sessions.create`.
    """

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        self._log = log
        self._settings = {"recall": "never", **settings}
        self._index = SessionIndex(log, "pydantic-ai", self._settings)
        self._kept = Newest[str, _Kept](_MAX_KEPT)

    def session(self, conversation_id: str) -> Session:
        """Return the session of a conversation, for windows, search and summaries."""
        return self._log.sessions.of(self._index.id_of(conversation_id))

    async def load(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> Conversation | None:
        conversation = await super().load(conversation_id, limit=limit, scope=scope)
        unsaved = await self._unsaved(conversation_id)
        if conversation is not None:
            conversation.messages.extend(unsaved)
        elif unsaved and scope is None and await self.read_record(conversation_id) is None:
            return Conversation(conversation_id=conversation_id, messages=unsaved)
        return conversation

    def keep(
        self, conversation_id: str, messages: Sequence[ModelMessage], history: Sequence[ModelMessage] = ()
    ) -> Session:
        """Append the messages that the session does not have, and return it. Messages that differ from the session's branch off.

        Raises `ConversationConflict` when the session has messages after all of these: another run has said them; and when the
        conversation is saved, and the ``history`` with which the run began has none of its messages.
        """
        session = self._log.sessions.get_or_create(self._index.id_of(conversation_id), **self._settings)
        head, kept = session.info().head, self._kept.get(session.id)
        digests = [hashlib.sha256(canonical_json([*_to_parts(message)])).digest() for message in messages]
        is_continued = kept is not None and kept.head == head and kept.digests == digests[: len(kept.digests)]
        try:
            if kept is not None and is_continued:
                new = [MESSAGES.body(message) for message in messages[len(kept.digests) :]]
                positions = MESSAGES.append(session, new, head)
            else:
                known, begun = [message for _, message in MESSAGES.stored(session)], [*map(_to_parts, history)]
                if self._is_saved(conversation_id) and not any(_to_parts(message) in begun for message in known):
                    raise ConversationConflict(conversation_id)
                positions = _compared(session, known, messages, head)
        except HeadMismatchError as error:
            raise ConversationConflict(conversation_id) from error
        self._kept[session.id] = _Kept(positions[-1] if positions else head, digests)
        return session

    @reads
    def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return self._record(conversation_id)[0]

    @reads
    def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        every = (_RECORD.validate_json(document.data) for document in self._index.list_living(_RECORDS))
        records = [record for record in every if scope is None or record.scope == scope]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    @writes
    def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        conversation_id = record.conversation_id
        before, document = self._record(conversation_id)
        base = new_entries[0].parent_id if new_entries else record.head_id
        place = self._place(base)
        if getattr(before, "revision", None) != expected_revision or (base is not None and place is None):
            raise ConversationConflict(conversation_id)
        try:
            session = self._session_at(conversation_id, place)
            after = place["position"] if place is not None else 0
            positions = MESSAGES.extend(session, [entry.message for entry in new_entries], after=after, drop_rest=True)
            places = _places(session.id, base, place, list(zip(new_entries, positions, strict=True)))
            self._index.put_many({key: canonical_json(value) for key, value in places.items()})
            key, value = _RECORDS + self._index.id_of(conversation_id), _RECORD.dump_python(record, mode="json")
            self._index.replace(key, value, document)
        except (HeadMismatchError, DocumentChangedError) as error:
            raise ConversationConflict(conversation_id) from error

    @writes
    def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        record, _ = self._record(conversation_id)
        if record is None or record.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        self._index.delete([_RECORDS + self._index.id_of(conversation_id)])
        self.session(conversation_id).rewind(1)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return (await self.read_history(entry_id, limit=1))[0]

    @reads
    def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        entries, messages = list[ConversationEntry](), dict[int, ModelMessage]()
        places, entry_id, session = dict[str, Any](), head_id, None
        while entry_id is not None and (limit is None or len(entries) < limit):
            place = places.get(entry_id) or self._place(entry_id)
            if place is None:
                raise LookupError(entry_id)
            for (parent, _), (earlier_id, position) in pairwise(place.get("earlier", ())):
                places[earlier_id] = {**place, "position": position, "parent": parent, "earlier": ()}
            # A fork has the positions before it too, also when the session that it was forked from has expired.
            session, position = session or self._log.sessions.of(place["session"]), place["position"]
            if position not in messages:
                page = session.page(order="desc", before=position + 1, format=MESSAGES.format)
                messages |= {stored.position: MESSAGES.message(stored.body) for stored in page.messages}
            entries.append(ConversationEntry(id=entry_id, parent_id=place["parent"], message=messages[position]))
            entry_id = place["parent"]
        return entries[::-1]

    def _is_saved(self, conversation_id: str) -> bool:
        record, _ = self._record(conversation_id)
        return record is not None and record.head_id is not None

    def _session_at(self, conversation_id: str, place: Mapping[str, Any] | None) -> Session:
        """Return the session of a conversation; one that begins in another conversation is a fork of its session."""
        session_id = self._index.id_of(conversation_id)
        if place is not None and place["session"] != session_id and not self._log.sessions.exists(session_id):
            return self._log.sessions.of(place["session"]).fork(session_id, at=place["position"])
        return self._log.sessions.get_or_create(session_id, **self._settings)

    @reads
    def _unsaved(self, conversation_id: str) -> list[ModelMessage]:
        """Return the messages of a run that was not saved: those behind the conversation's head."""
        record, _ = self._record(conversation_id)
        place = self._place(record.head_id) if record is not None else None
        after = place["position"] if place is not None else 0
        newest = takewhile(lambda stored: stored[0] > after, MESSAGES.newest_first(self.session(conversation_id)))
        return [message for _, message in newest][::-1]

    def _record(self, conversation_id: str) -> tuple[ConversationRecord | None, Document | None]:
        """Return the record of a conversation, and the document that has it."""
        session_id = self._index.id_of(conversation_id)
        document = self._index.get(_RECORDS + session_id)
        if document is None or self._index.is_gone(session_id):
            return None, document
        return _RECORD.validate_json(document.data), document

    def _place(self, entry_id: str | None) -> Any:
        """Return session, position, parent and ancestors of an entry, as `_places` made them; None for one that is not stored."""
        return self._index.read(_PLACES + entry_id) if entry_id is not None else None


def _compared(
    session: Session, known: Sequence[ModelMessage], messages: Sequence[ModelMessage], head: int
) -> list[int]:
    """Append the messages that a session does not have, and return the positions of those behind the last that it has."""
    # A run begins with a history in which Pydantic AI has joined requests that no response separates.
    joined = types.repair_messages(known, repair_last_response=False)
    if [*map(_to_parts, joined)] == [*map(_to_parts, messages[: len(joined)])]:
        return MESSAGES.append(session, [MESSAGES.body(message) for message in messages[len(joined) :]], head)
    return MESSAGES.extend(session, messages, head=head)


def _has_message(wanted: ModelMessage | None, history: Sequence[ModelMessage]) -> bool:
    """Return whether a history has a message, maybe joined with others of its role. Every history has None."""
    role, parts = _to_parts(wanted) if wanted is not None else ("", [])

    def has_parts(message: ModelMessage) -> bool:
        other_role, others = _to_parts(message)
        places = range(max(1, len(others)))
        return role == other_role and any(others[place:][: len(parts) or None] == parts for place in places)

    return wanted is None or any(map(has_parts, history))


def _places(
    session_id: str, base_id: str | None, base: Any, entries: Sequence[tuple[ConversationEntry, int]]
) -> dict[str, Any]:
    """Return the documents of new entries: the session, position and parent of each.

    The last one, and one in `_EARLIER`, also has ids and positions of its ancestors in the session, so that a history is read
    with few requests. ``base`` is the place of the entry before the first.
    """
    chain, places = list[list[Any]](), dict[str, Any]()
    if base is not None and base["session"] == session_id:
        chain = [*base.get("earlier", ()), [base_id, base["position"]]]
    for entry, position in entries:
        place = {"session": session_id, "position": position, "parent": entry.parent_id}
        if len(chain) >= _EARLIER or entry is entries[-1][0]:
            place["earlier"], chain = chain, []
        places[_PLACES + entry.id] = place
        chain.append([entry.id, position])
    return places


@dataclass
class TurnlogWindow(Limits, AbstractCapability[Any]):
    """Appends the run's messages to the log before each model call, and sends the model the window of the conversation.

    ``budget``, ``policy`` and ``output_reserve`` are those of `Session.context`. The run's own history stays whole.
    """

    store: TurnlogConversationStore
    _history: Sequence[ModelMessage] = field(default=(), init=False, repr=False)
    """The messages with which the run began; history processors may leave them out of its requests."""

    async def for_run(self, ctx: RunContext) -> TurnlogWindow:
        window = copy(self)
        window._history = tuple(ctx.messages)
        return window

    async def before_model_request(self, ctx: RunContext, request_context: ModelRequestContext) -> ModelRequestContext:
        messages, parameters = list(request_context.messages), request_context.model_request_parameters
        prompts = {part.content: part for part in _system_prompts(messages)}
        system = "\n\n".join([*(part.content for part in parameters.instruction_parts or []), *prompts])
        tools = [
            originals.function_tool(tool.name, [tool.description, tool.parameters_json_schema])
            for tool in parameters.tool_defs.values()
        ]
        session = await run_to_end(lambda: self.store.keep(ctx.conversation_id or "", messages, self._history))
        window = await asyncio.to_thread(MESSAGES.window, session, self, system=system, tools=tools)
        if not await asyncio.to_thread(_ends_with, messages[-1], window.messages, session):
            raise ConversationConflict(ctx.conversation_id or "")  # another run has said something
        # A system prompt is stored with the question that it came with, which the window may leave out.
        shown = {part.content for part in _system_prompts(window.messages)}
        before = [part for content, part in prompts.items() if content not in shown]
        if window.system:
            before.append(types.SystemPromptPart(window.system))
        request_context.messages = [*([ModelRequest(before)] if before else []), *window.messages]
        return request_context


def _ends_with(message: ModelMessage, window: Sequence[ModelMessage], session: Session) -> bool:
    """Return whether a window ends with a message: in whole, or in another form when it is the newest of the session."""
    if not window or not isinstance(window[-1], ModelRequest):
        return False
    if _has_message(window[-1], [message]):
        return True
    newest = session.page(order="desc", limit=1, in_view=True, format=MESSAGES.format).messages
    return any(_has_message(MESSAGES.message(stored.body), [message]) for stored in newest)


def _system_prompts(messages: Sequence[ModelMessage]) -> list[types.SystemPromptPart]:
    return [part for message in messages for part in message.parts if isinstance(part, types.SystemPromptPart)]
