"""Chat history of LlamaIndex (0.14) in the log: https://developers.llamaindex.ai/python/framework/.

    from turnlog.integrations.llama_index import TurnlogChatStore, TurnlogMemory

    memory = TurnlogMemory.from_defaults(TurnlogChatStore(log), "support-42", budget=30_000)
    await FunctionAgent(llm=llm, tools=tools).run("Hello", memory=memory)

A key of the store is a session. With the memory the model is sent the session's window.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import BaseMemory
from llama_index.core.storage.chat_store.base import BaseChatStore

from turnlog.client import GivenPolicy
from turnlog.client.async_calls import to_end
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import NotFoundError
from turnlog.integrations import originals
from turnlog.integrations.originals import Limits, Originals, Part
from turnlog.integrations.sessions import SessionIndex

_KEYS = "keys/"
_MEDIA = {
    "image": ("image", "image_mimetype", "image/png"),
    "audio": ("audio", "format", "mp3"),
    "video": ("video", "video_mimetype", "video/mp4"),
    "document": ("data", "document_mimetype", "application/octet-stream"),
}
"""Type of a block of media -> its fields with the data and their type, and the usual type."""
_ROLES = {
    **dict.fromkeys((MessageRole.SYSTEM, MessageRole.DEVELOPER), "system"),
    **dict.fromkeys((MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL), "assistant"),
}


class TurnlogChatStore(BaseChatStore):
    """Stores chat messages by key, each key in a session of its own that has its name where that is a session id.

    `set_messages` appends what is new; where an earlier message differs, or one is deleted, the session is rewound to the one
    before it, and the log keeps what was there. New sessions get ``settings`` of `Sessions.create`.
    """

    _log: Turnlog = PrivateAttr()
    _settings: dict[str, Any] = PrivateAttr()
    _index: SessionIndex = PrivateAttr()

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        super().__init__()
        self._log = log
        self._settings = {"recall": "never", **settings}
        self._index = SessionIndex(log, "llama-index", self._settings)

    @classmethod
    def class_name(cls) -> str:
        return "TurnlogChatStore"

    def session(self, key: str) -> Session:
        """Return the session of a key, for windows, search and summaries."""
        return self._log.sessions.of(self._index.id_of(key))

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        MESSAGES.extend(self._created(key), messages, drop_rest=True)

    def get_messages(self, key: str) -> list[ChatMessage]:
        return [message for _, message in MESSAGES.stored(self.session(key))]

    def add_message(self, key: str, message: ChatMessage) -> None:
        self.add_messages(key, [message])

    def add_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
        """Append messages."""
        MESSAGES.append(self._created(key), [MESSAGES.body(message) for message in messages])

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Remove all messages from view and return them. `Session.erase` deletes what the log keeps."""
        listed = _KEYS + self._index.id_of(key)
        if self._index.get(listed) is None:
            return None
        messages = self.get_messages(key)
        with suppress(NotFoundError):  # it has expired
            self.session(key).rewind(1)
        self._index.delete([listed])
        return messages

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        messages = self.get_messages(key)
        if not -len(messages) <= idx < len(messages):
            return None
        message = messages.pop(idx)
        self.set_messages(key, messages)
        return message

    def delete_last_message(self, key: str) -> ChatMessage | None:
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        return [document.data.decode("utf-8", "surrogatepass") for document in self._index.list_living(_KEYS)]

    def _created(self, key: str) -> Session:
        """Return the session of a key; create and list it with its first message."""
        session = self.session(key)
        if not originals.has_messages(session):
            self._index.put_many({_KEYS + session.id: key.encode("utf-8", "surrogatepass")})
            return self._log.sessions.get_or_create(session.id, **self._settings)
        return session


class TurnlogMemory(BaseMemory):
    """A memory of an agent: `get` returns the session's window, `get_all` all messages.

    ``budget``, ``policy`` and ``output_reserve`` are those of `Session.context`; keep room for the system prompt, the tools and
    what one run says, which LlamaIndex puts behind the window until the run is over. A saved workflow ``Context`` is without its
    memory: give it to the next run again.
    """

    _store: TurnlogChatStore = PrivateAttr()
    _key: str = PrivateAttr()
    _limits: Limits = PrivateAttr()

    def __init__(self, store: TurnlogChatStore, key: str, limits: Limits) -> None:
        super().__init__()
        self._store, self._key, self._limits = store, key, limits

    @classmethod
    def class_name(cls) -> str:
        return "TurnlogMemory"

    @classmethod
    def from_defaults(  # type: ignore[override]
        cls,
        store: TurnlogChatStore,
        key: str,
        *,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        output_reserve: int | None = None,
    ) -> TurnlogMemory:
        """Return the memory of one key of a store."""
        return cls(store, key, Limits(budget=budget, policy=policy, output_reserve=output_reserve))

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        raise TypeError(
            "a TurnlogMemory holds an open log, which can't be saved; give the memory to the next run again"
        )

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        session = self._store.session(self._key)
        if not originals.has_messages(session):
            return []
        window = MESSAGES.window(session, self._limits)
        summary = [ChatMessage(window.system, role=MessageRole.SYSTEM)] if window.system else []
        return [*summary, *window.messages]

    def get_all(self) -> list[ChatMessage]:
        return self._store.get_messages(self._key)

    def put(self, message: ChatMessage) -> None:
        self._store.add_message(self._key, message)

    def put_messages(self, messages: list[ChatMessage]) -> None:
        if messages:
            self._store.add_messages(self._key, messages)

    aput_messages = to_end(put_messages)

    def set(self, messages: list[ChatMessage]) -> None:
        self._store.set_messages(self._key, messages)

    def reset(self) -> None:
        self._store.delete_messages(self._key)


def _to_parts(message: ChatMessage) -> tuple[str, list[Part]]:
    if message.role == MessageRole.TOOL:
        call_id = message.additional_kwargs.get("tool_call_id")
        result = originals.tool_result(str(call_id or ""), message.content or "")
        return "tool", originals.result_parts(result, [part for block in message.blocks for part in _added(block)])
    parts = list[Part]()
    for block in message.blocks:
        if isinstance(block, TextBlock):
            parts.append(originals.text_block(block.text))
        elif isinstance(block, ThinkingBlock):
            parts.append(originals.text_block(block.content or "", is_thinking=True))
        elif isinstance(block, ToolCallBlock):
            parts.append(originals.tool_call(block.tool_call_id, block.tool_name, block.tool_kwargs))
        elif isinstance(block, ImageBlock) and isinstance(block.image, bytes):
            image = block.image.decode("ascii")  # LlamaIndex holds base64
            parts.append({"type": "image", "media_type": block.image_mimetype or "image/png", "data": image})
        else:
            parts += _added(block)
    has_calls = any("args" in part for part in parts)
    for call in [] if has_calls else message.additional_kwargs.get("tool_calls") or []:
        function = _field(call, "function")
        parts.append(originals.tool_call(_field(call, "id"), _field(function, "name"), _field(function, "arguments")))
    return _ROLES.get(message.role, "user"), parts


def _added(block: Any) -> list[Part]:
    """Return the parts of a block that bodies of earlier versions lack; nothing for text, which a result has."""
    if isinstance(block, TextBlock | CachePoint):
        return []
    if block.block_type in _MEDIA:
        name, type_name, usual = _MEDIA[block.block_type]
        data, media_type = getattr(block, name), getattr(block, type_name) or usual
        media_type = media_type if "/" in media_type else f"audio/{media_type}"
        if isinstance(data, bytes):  # LlamaIndex holds base64
            return [originals.added_media(media_type, data.decode("ascii"))]
        return [originals.added_media(media_type, url=str(block.url or block.path or ""))]
    if isinstance(block, CitableBlock | CitationBlock):
        cited = block.content if isinstance(block, CitableBlock) else [block.cited_content]
        texts = [block.title, block.source, *(item.text for item in cited if isinstance(item, TextBlock))]
        return [*originals.other_parts(block.block_type, texts), *(part for item in cited for part in _added(item))]
    return originals.other_parts(block.block_type, block.model_dump(mode="json", exclude_none=True))


def _field(value: Any, name: str) -> Any:
    """Return a field of a tool call: an object of OpenAI's library, or what was an object before it was stored."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _from_parts(role: str, parts: Sequence[Part]) -> ChatMessage:
    blocks, results = list[Any](), list[Part]()
    for part in parts:
        match part:
            case {"type": "text", "text": text}:
                blocks.append(TextBlock(text=text))
            case {"type": "image", "media_type": media_type, "data": str(data)}:
                blocks.append(ImageBlock(image=base64.b64decode(data), image_mimetype=media_type))
            case {"type": "file", "media_type": media_type, "data": str(data)}:
                blocks.append(DocumentBlock(data=base64.b64decode(data), document_mimetype=media_type))
            case {"id": call_id, "name": name, "args": arguments}:
                blocks.append(ToolCallBlock(tool_call_id=call_id, tool_name=name, tool_kwargs=arguments))
            case {"tool_call_id": _}:
                results.append(part)
    if results:
        kept, text = {"tool_call_id": results[0]["tool_call_id"]}, "\n".join(str(part["result"]) for part in results)
        media = _from_parts("user", [block for part in results for block in part.get("media") or ()]).blocks
        return ChatMessage([TextBlock(text=text), *media, *blocks], role=MessageRole.TOOL, additional_kwargs=kept)
    return ChatMessage(blocks, role=MessageRole(role))


MESSAGES = Originals[ChatMessage](
    "llama_index",
    dump=lambda message: message.model_dump(mode="json", exclude_none=True),
    load=ChatMessage.model_validate,
    to_parts=_to_parts,
    from_parts=_from_parts,
    content_of=lambda message: message.blocks or message.additional_kwargs,
    is_exact=True,
)
