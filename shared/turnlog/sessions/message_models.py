"""Messages: appending them, and paging through the full history."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from turnlog.core.models import MAX_POSITION, Answer, Body, FormatName, GivenText, JsonObjectField, Name

MAX_MESSAGES = 25
MAX_APPEND_BYTES = 4 * 1024 * 1024
"""Of the messages of an append, as JSON."""
MAX_TOKENS = 100_000_000


Place: TypeAlias = (
    Annotated[str, Field(pattern=r"^[1-9][0-9]{0,11}\.(0|[1-9][0-9]{0,5})$")]
    | Annotated[int, Field(ge=1, le=MAX_POSITION)]
)
"""A call by its ref, or a message by its position."""


class Meta(Body):
    """What is kept beside one message. ``created_at`` is the caller's own time (RFC 3339), kept as given. ``recalled`` is for a
    result of the recall tools: what these brought back, for the history."""

    id: Name | None = None
    status: Literal["complete", "interrupted"] = "complete"
    created_at: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    author: Name | None = None
    pin: bool = False
    metadata: JsonObjectField | None = None
    finish_reason: Name | None = None
    is_error: bool | None = None
    recalled: list[Place] | None = Field(default=None, max_length=64)


class WindowUsed(Body):
    """The window that the model was sent: ``position`` and ``tokens`` of the context answer."""

    position: int = Field(ge=1)
    tokens: int = Field(ge=0, le=MAX_TOKENS)


class Usage(Body):
    """What the provider counted. ``input_tokens`` is all input, what it read from a cache included."""

    input_tokens: int = Field(ge=0, le=MAX_TOKENS)
    output_tokens: int = Field(ge=0, le=MAX_TOKENS)


class AppendMessages(Body):
    """One commit of 1 to 25 messages: all of it is kept, or nothing."""

    messages: list[JsonObjectField] = Field(min_length=1, max_length=MAX_MESSAGES)
    meta: list[Meta] | None = Field(default=None, description="One entry per message")
    format: FormatName | None = Field(default=None, description="Recognised when left out")
    if_head: int | None = Field(default=None, ge=0, description="Append only while this is the head")
    run: JsonObjectField | None = Field(default=None, description="{agent_id, ...patch} of the agent's execution state")
    window: WindowUsed | None = None
    usage: Usage | None = None
    run_id: Name | None = None


class CallRef(Answer):
    """The log's name of a tool call: ``ref`` = position.index."""

    position: int
    index: int
    call_id: GivenText
    ref: str


class Warning(Answer):
    """Disorder that was kept. ``pointer`` is a JSON pointer into the request."""

    code: str
    position: int
    pointer: str
    message: str


class Appended(Answer):
    """``first`` and ``last`` are the messages' positions; ``head`` the newest event's. ``tokens`` is of the batch."""

    first: int
    last: int
    head: int
    loop: int | None
    tokens: int
    refs: list[CallRef]
    compression: Literal["none", "queued", "off"]
    warnings: list[Warning]


class StoredMessage(Answer):
    """``body`` is what was given, or the message in the format asked for. ``created_at`` is the caller's time, else the log's.

    ``origin``: nobody has said it. ``memory``: the session was begun with it.
    """

    position: int
    loop: int | None
    format: str
    body: JsonObjectField
    tokens: int
    created_at: str
    status: Literal["complete", "interrupted"]
    id: str | None = None
    author: str | None = None
    pin: bool = False
    metadata: JsonObjectField | None = None
    finish_reason: str | None = None
    is_error: bool | None = None
    redacted: bool = False
    origin: Literal["memory"] | None = None


class MessagePage(Answer):
    """Messages only, so positions may skip. ``next`` is the position to go on from, or null."""

    messages: list[StoredMessage]
    next: int | None


class LoopCall(Answer):
    ref: str
    call_id: GivenText
    name: GivenText
    arguments: Any
    called_at: str
    is_error: bool | None
    tokens: int


class LoopAnswer(Answer):
    """One run loop. ``tokens`` is of all its messages; a call's ``tokens`` of its result."""

    loop: int
    status: Literal["open", "closed", "interrupted"]
    started_at: str
    ended_at: str | None
    first: int
    last: int
    user_message: GivenText | None
    reply: GivenText | None
    tool_calls: list[LoopCall]
    tokens: int


class LoopPage(Answer):
    """Newest first; ``next`` is the ``before`` of the next page, or null."""

    loops: list[LoopAnswer]
    next: int | None
