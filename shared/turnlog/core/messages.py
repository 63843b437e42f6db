"""Messages in a form that is common to all providers.

The log stores a body unchanged; a codec turns it into a `Message` when it is read. A `Message` has what windows need (role,
text, calls and results) and holds everything else as opaque blocks.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "unknown"]


@lazy_dataclass(frozen=True, slots=True)
class Text:
    """A text. ``options``, also of calls and thinking, are what the AI SDK keeps for a provider."""

    text: str
    options: JsonObject | None = None


@lazy_dataclass(frozen=True, slots=True)
class Media:
    """An image, a file or a sound: ``data`` in base64, or its ``url`` or ``file_id``."""

    kind: Literal["image", "file", "audio"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    detail: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning. It is sent unmodified with its message or left out with a reason, never edited."""

    text: str
    signature: str | None = None
    options: JsonObject | None = None


@lazy_dataclass(frozen=True, slots=True)
class Opaque:
    """A block of an unknown type, unchanged, from a body in ``format``. Rendered only in that format."""

    format: str
    value: JsonValue


Block: TypeAlias = Text | Media | Thinking | Opaque


@lazy_dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a message.

    ``id`` may be empty and need not be unique in real transcripts; the log's own name of a call is its ref.
    ``arguments`` is JSON text as the model wrote it; it need not be valid. ``hosted``: the provider runs the tool, and tells
    call and result within its own answer. ``is_text``: the tool takes a text, which need not be JSON.
    """

    id: str
    name: str
    arguments: str
    hosted: bool = False
    is_text: bool = False
    options: JsonObject | None = None


@lazy_dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool result of a message.

    ``by_name`` marks a legacy ``function`` message, which names its function instead of a call id. ``hosted``: the result of a
    call that the provider ran, told in the assistant's message.
    """

    tool_call_id: str
    content: tuple[Block, ...]
    name: str = ""
    is_error: bool = False
    by_name: bool = False
    hosted: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content)


@lazy_dataclass(frozen=True, slots=True)
class Message:
    """A message in the common form. ``given_role`` is the role as the caller wrote it.

    ``closing``: how many of its last content blocks stand behind the results of its own calls, when it has all of them.
    ``compacts``: its provider wrote in it what stands for all messages before it.
    """

    role: Role
    content: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    name: str = ""
    given_role: str = ""
    closing: int = 0
    compacts: bool = False

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the content, then those of each result."""
        return (*self.content, *(block for result in self.tool_results for block in result.content))

    @property
    def text(self) -> str:
        """The text blocks joined by newlines, without thinking, media and opaque blocks."""
        return text_of(self.content)


def text_of(blocks: tuple[Block, ...]) -> str:
    """Return the text blocks joined by newlines."""
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text  # the usual case; avoids a copy
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


REDACTED = "[redacted]"


def neutral(message: Message) -> Message:
    """Return the message with its contents redacted: only roles, tool names and call ids stay."""
    calls = tuple(ToolCall(call.id, call.name, "{}") for call in message.tool_calls)
    text = (Text(REDACTED),)
    results = tuple(
        ToolResult(result.tool_call_id, text, result.name, result.is_error, result.by_name)
        for result in message.tool_results
    )
    content = text if message.content or not (calls or results) else ()
    return Message(message.role, content, calls, results, given_role=message.given_role)
