"""Models of messages: what an append sends and gets, leases and inboxes of runs, pages of messages and of run loops."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from turnlog.core.limits import MAX_APPEND_MESSAGES, MAX_POSITION
from turnlog.core.models import (
    TIME_CHARS,
    Answer,
    Body,
    FormatName,
    GivenText,
    JsonObjectField,
    ListAnswer,
    LoopStatus,
    MessageStatus,
    Name,
)

MAX_APPEND_BYTES = 32 * 1024 * 1024
"""Size of all messages of an append together, as JSON. Over HTTP a request's body has a lower limit."""
MAX_TOKENS = 100_000_000
MAX_LEASE_SECONDS = 24 * 60 * 60


REF_PATTERN = r"^[1-9][0-9]{0,11}\.(0|[1-9][0-9]{0,5})$"
Place: TypeAlias = Annotated[str, Field(pattern=REF_PATTERN)] | Annotated[int, Field(ge=1, le=MAX_POSITION)]
"""A call by its ref, or a message by its position."""
InboxMode: TypeAlias = Literal["enqueue", "steer", "interrupt"]
Compression: TypeAlias = Literal["none", "queued", "off", "no_worker"]


class Meta(Body):
    """Metadata stored with one message.

    ``created_at`` is the caller's own time (RFC 3339), stored as given. ``recalled`` belongs to a result of the recall tools: it
    lists the calls and messages that they have brought back, for the history.
    """

    id: Name | None = None
    status: MessageStatus = "complete"
    created_at: Annotated[str, Field(min_length=1, max_length=TIME_CHARS)] | None = None
    author: Name | None = None
    pin: bool = False
    metadata: JsonObjectField | None = None
    finish_reason: Name | None = None
    is_error: bool | None = None
    recalled: list[Place] | None = Field(default=None, max_length=64)


class WindowUsed(Body):
    """The window that was sent to the model: ``position`` and ``tokens`` of the context answer, and the id of its ``epoch``.

    With the epoch, later windows know what the reply's signed thinking is bound to, even when calls have different budgets.
    """

    position: int = Field(ge=1)
    tokens: int = Field(ge=0, le=MAX_TOKENS)
    epoch: str | None = Field(default=None, min_length=1, max_length=64)


class Usage(Body):
    """Token counts reported by the provider. ``input_tokens`` is all input, including tokens read from a cache."""

    input_tokens: int = Field(ge=0, le=MAX_TOKENS)
    output_tokens: int = Field(ge=0, le=MAX_TOKENS)


class LeaseRequest(Body):
    """Take, renew or release the session for one run.

    With ``holder`` the run takes it, for ``seconds`` (120): 409 ``run_active`` while another run has it. With ``token`` it is
    renewed, or released with ``release``: 409 ``run_lost`` when another run has taken it.
    """

    holder: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")] | None = None
    token: int | None = Field(default=None, ge=1, le=MAX_POSITION)
    seconds: int | None = Field(default=None, ge=1, le=MAX_LEASE_SECONDS)
    release: bool = Field(default=False, description="A final reply keeps the lease while messages wait in the inbox")

    @model_validator(mode="after")
    def _names_one(self) -> LeaseRequest:
        if (self.holder is None) == (self.token is None):
            raise ValueError("a lease request names either a holder or a token")
        if self.release and self.token is None:
            raise ValueError("release needs the token of the lease")
        return self


class HeldLease(Answer):
    """The lease of a run: later appends of the run name its ``token``."""

    token: int
    holder: str
    expires_at: str


class LeaseAnswer(Answer):
    """The lease after a request, null when it was released. ``head`` is the newest position."""

    lease: HeldLease | None
    head: int


class SendToRun(Body):
    """Messages for the run that has the session.

    ``enqueue``: the run takes them as its next turn. ``steer``: they join its loop before its next model call. ``interrupt``: it
    stops its loop and takes them. 409 ``no_run`` when no run has the session.
    """

    messages: list[JsonObjectField] = Field(min_length=1, max_length=MAX_APPEND_MESSAGES)
    mode: InboxMode = "enqueue"
    format: FormatName | None = Field(default=None, description="Recognised when left out")


class SentToRun(Answer):
    """The place of messages in an agent's inbox: ``position`` is its key in ``inbox`` of the execution state."""

    agent_id: str
    position: int
    mode: InboxMode


class ParentCall(Body):
    """The call of another agent within which an agent's run says something, and that agent."""

    ref: Annotated[str, Field(pattern=REF_PATTERN)]
    agent_id: Name


class AppendMessages(Body):
    """An append of 1 to 25 messages in one commit: all of them are stored, or none."""

    messages: list[JsonObjectField] = Field(min_length=1, max_length=MAX_APPEND_MESSAGES)
    meta: list[Meta] | None = Field(default=None, description="One entry per message")
    format: FormatName | None = Field(default=None, description="Recognised when left out")
    if_head: int | None = Field(default=None, ge=0, description="Append only while this is the head")
    run: JsonObjectField | None = Field(default=None, description="{agent_id, ...patch} of the agent's execution state")
    window: WindowUsed | None = None
    usage: Usage | None = None
    run_id: Name | None = None
    lease: LeaseRequest | None = None
    loop: Literal["join", "new"] | None = Field(
        default=None,
        description="join: the messages stay in the open loop; new: they open one, even if it is unfinished",
    )
    parent: ParentCall | None = Field(
        default=None, description="The messages are those of an agent that works within this call, and in no loop"
    )
    lenient: bool = Field(
        default=False,
        description="Store a message whose role no provider has, or that says nothing in its format; windows leave it out",
    )


class CallRef(Answer):
    """A tool call and its name in the log: ``ref`` is ``position.index``."""

    position: int
    index: int
    call_id: GivenText
    ref: str


class Warning(Answer):
    """A message out of order that was stored all the same. ``pointer`` is a JSON pointer into the request."""

    code: str
    position: int
    pointer: str
    message: str


class Appended(Answer):
    """The result of an append.

    ``first`` and ``last`` are positions of its messages; ``head`` is the newest event's. ``tokens`` counts all its messages.
    ``lease`` is that of the run that has the session after the append.
    """

    first: int
    last: int
    head: int
    loop: int | None
    tokens: int
    refs: list[CallRef]
    compression: Compression
    warnings: list[Warning]
    lease: HeldLease | None = None


class StoredMessage(Answer):
    """A message of the history.

    ``body`` is the message as it was appended, or converted to the requested format. ``created_at`` is the caller's time, else
    the log's. ``origin`` is ``memory`` for the message of memories that a session begins with, null for all others. ``parent`` is
    the ref of the call within which the agent ``agent_id`` has said it.
    """

    position: int
    loop: int | None
    format: str
    body: JsonObjectField
    tokens: int
    created_at: str
    status: MessageStatus
    id: str | None = None
    author: str | None = None
    pin: bool = False
    metadata: JsonObjectField | None = None
    finish_reason: str | None = None
    is_error: bool | None = None
    redacted: bool = False
    origin: Literal["memory"] | None = None
    parent: str | None = None
    agent_id: str | None = None


class MessagePage(ListAnswer):
    """A page of messages. Positions may skip, since other events have positions too.

    ``next`` is the position to continue from, or null.
    """

    messages: list[StoredMessage]
    next: int | None


class LoopCall(Answer):
    """A tool call of a run loop. ``tokens`` and ``is_error`` belong to its result."""

    ref: str
    call_id: GivenText
    name: GivenText
    arguments: Any
    called_at: str
    is_error: bool | None
    tokens: int


class NestedLoop(Answer):
    """The loop of an agent within a call: it ends with the call's result. ``parent`` is the call's ref."""

    parent: str
    agent_id: str
    status: LoopStatus
    first: int
    last: int
    user_message: GivenText | None
    reply: GivenText | None
    tool_calls: list[LoopCall]
    tokens: int


class LoopAnswer(Answer):
    """A run loop: one user message, with all model and tool calls up to the final reply. ``tokens`` counts all its messages.

    ``nested``: the loops of other agents within its calls, whose messages are not among its own.

    ``partial``: the loop is so long that only its newest messages were read, about 10,000; all fields are of these.
    """

    loop: int
    status: LoopStatus
    started_at: str
    ended_at: str | None
    first: int
    last: int
    user_message: GivenText | None
    reply: GivenText | None
    tool_calls: list[LoopCall]
    tokens: int
    partial: bool = False
    nested: list[NestedLoop] = Field(default_factory=list)


class LoopPage(Answer):
    """A page of run loops, newest first. ``next`` is the ``before`` of the next page, or null."""

    loops: list[LoopAnswer]
    next: int | None
