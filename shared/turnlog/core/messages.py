"""The one understanding of a message, whatever provider's shape it came in.

The log keeps a body as given; a codec turns it into a `Message` when it is read. A `Message` knows what windows need to
know (who speaks, the text, the calls and the results) and carries everything else along as opaque blocks.
"""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "unknown"]


@lazy_dataclass(frozen=True, slots=True)
class Text:
    text: str


@lazy_dataclass(frozen=True, slots=True)
class Media:
    """An image, a file or a sound. ``data`` is base64; otherwise ``url`` or ``file_id`` says where it is."""

    kind: Literal["image", "file", "audio"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    detail: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning. Travels unmodified with its message or is dropped with a reason, never edited."""

    text: str
    signature: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class Opaque:
    """A block that we do not know, as given in ``format``. Rendered only in that format."""

    format: str
    value: JsonValue


Block: TypeAlias = Text | Media | Thinking | Opaque


@lazy_dataclass(frozen=True, slots=True)
class ToolCall:
    """``id`` may be empty and need not be unique (real transcripts!): the log's name of a call is its ref.

    ``arguments`` is JSON text as the model wrote it; it need not be valid.
    """

    id: str
    name: str
    arguments: str

    def arguments_object(self) -> JsonObject | None:
        """The arguments when they are a JSON object, else None."""
        try:
            value = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


@lazy_dataclass(frozen=True, slots=True)
class ToolResult:
    """``by_name``: a legacy ``function`` message, which names its function instead of a call id."""

    tool_call_id: str
    content: tuple[Block, ...]
    name: str = ""
    is_error: bool = False
    by_name: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content)


@lazy_dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    name: str = ""
    given_role: str = ""

    @property
    def text(self) -> str:
        """What a person would read: text blocks joined by newlines; no thinking, media or opaque blocks."""
        return text_of(self.content)


def text_of(blocks: tuple[Block, ...]) -> str:
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text  # nearly always, and not copied
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


REDACTED = "[redacted]"


def neutral(message: Message) -> Message:
    """Who spoke, which tools were called by which ids, and which calls were answered; nothing else."""
    calls = tuple(ToolCall(call.id, call.name, "{}") for call in message.tool_calls)
    text = (Text(REDACTED),)
    results = tuple(
        ToolResult(one.tool_call_id, text, one.name, one.is_error, one.by_name) for one in message.tool_results
    )
    content = text if message.content or not (calls or results) else ()
    return Message(message.role, content, calls, results, given_role=message.given_role)
