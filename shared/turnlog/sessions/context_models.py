"""Windows."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from turnlog.core.models import MAX_POSITION, Answer, At, Body, FormatName, GivenText, JsonObjectField
from turnlog.core.prefix_breaks import BreakReason
from turnlog.sessions.models import Model, OutputReserve, Tools

Breakpoints: TypeAlias = Literal["suggest", "apply"]
BudgetSource: TypeAlias = Literal["given", "model", "default"]


class BudgetAnswer(Answer):
    """All that may be sent, and how that was found.

    ``factor``: the provider counts so many tokens for one of ours, by what was learned of its usage. Left out where it is 1.
    """

    tokens: int
    source: BudgetSource
    factor: float = 1.0

    # No return type: with one its JSON Schema would be an object of anything.
    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        return {name: value for name, value in whole(self).items() if name != "factor" or value != 1}


class GivenBudget(Body):
    tokens: int = Field(ge=1, le=100_000_000)
    source: BudgetSource
    factor: float = Field(default=1.0, ge=0.5, le=3)


class _Build(BaseModel):
    renderer: int = Field(description="Version of the renderer")
    position: int = Field(ge=1, le=MAX_POSITION)
    commit: str = Field(max_length=64, description="Hash of the commit with that position: of this log and no other")
    clock: str = Field(
        max_length=64, description="The commit's time; ages are measured inside the log, by no other clock"
    )
    policy: JsonObjectField = Field(description="The policy's body, whatever its preset says later")
    format: str = Field(max_length=64)
    model: Model | None
    summary: int | None = Field(description="Position of the summary in force")
    tools: str | None = Field(max_length=64, description="SHA-256 of the call's own tools; null: the session's")
    include_current_loop: bool
    settle: bool
    breakpoints: Breakpoints = "suggest"


class Build(_Build, Answer):
    """What a window was made of. Sent back with a context call it gives the same window, whatever has come since."""

    budget: BudgetAnswer


class GivenBuild(_Build, Body):
    """A ``build`` of a manifest, as it was."""

    budget: GivenBudget


class WindowOptions(Body):
    """How a window is built."""

    policy: str | JsonObjectField | None = Field(default=None, description="A preset's name or a policy's body")
    format: FormatName = "openai_chat"
    budget: int | None = Field(default=None, ge=1, le=100_000_000, description="All that is sent, in tokens")
    model: Model | None = None
    tools: Tools | None = None
    output_reserve: OutputReserve | None = None
    include_current_loop: bool = True
    settle: bool = Field(default=False, description="Answer open calls with a neutral text instead of leaving them out")
    breakpoints: Breakpoints = Field(
        default="suggest",
        description="Prompt-cache breakpoints: named in the manifest, or applied to messages, system and tools too",
    )


class BuildContext(WindowOptions):
    """The window for the next model call. What is left out is as the session has it."""

    at: At | None = Field(default=None, description="As if the log ended at this position, or time (RFC 3339)")
    build: GivenBuild | None = Field(default=None, description="A manifest's build: the same window again")


class BuildWindow(WindowOptions):
    """A window over a list of messages; nothing is stored."""

    messages: list[JsonObjectField] = Field(max_length=20_000)
    input_format: FormatName | None = Field(default=None, description="Recognised when left out")
    system: str | None = Field(default=None, max_length=1_000_000)


class WindowPart(Answer):
    kind: Literal["system", "tools", "summary", "loop", "message", "line"]
    loop: int | None
    first: int | None
    last: int | None
    level: Literal["whole", "digest", "stub", "out", "unread"]
    tokens: int
    reason: str | None
    refs: list[str]


class Breakpoint(Answer):
    """A prompt-cache breakpoint in the provider's form, and where it belongs in the answer: a JSON pointer.

    Anthropic: the members of ``form`` are set on the block there. Bedrock Converse: ``form`` is a block of its own, inserted
    there, one after the other. A string that is content or the system text is one block of text.
    """

    pointer: str
    form: JsonObjectField


class ManifestAnswer(Answer):
    """``breakpoints``: at most four with those that the messages or tools have already; none where the provider caches by itself.

    ``build`` is null for a window over a list of messages: there is no log to build it from again.
    """

    position: int
    budget: BudgetAnswer
    parts: list[WindowPart]
    totals: dict[str, int]
    breakpoints: list[Breakpoint]
    build: Build | None = None


class OpenCall(Answer):
    """A call without a result at the log's end; it is left out with its message."""

    ref: str
    call_id: GivenText
    name: GivenText


class PrefixAnswer(Answer):
    """How much of the window is as the model call before was sent it: what a prompt cache can still have.

    Compared with the window of the same call at the position before the newest assistant message. ``stable_tokens`` are of the
    beginning, in the order tools, system text, messages: never more than are really the same. ``broke_at`` is what came first
    of the window before and is not there any more, a position or a part; null when all of it is still there.
    """

    stable_tokens: int
    broke_at: int | Literal["tools", "system", "summary", "line"] | None
    reason: BreakReason | None = Field(description="Why it broke; null when it did not")


class WindowAnswer(Answer):
    """What to send. ``tokens`` is an upper bound of all of it; ``head`` the position that it was built at.

    ``system`` is a list of blocks where breakpoints are applied, in the formats that have a field for it and breakpoints.
    ``requires_tool_config``: tool blocks are in the messages; ``tool_names`` are the tools in them, for a caller who has to
    describe them (Bedrock Converse).
    ``summary_stale``: the policy takes summaries, and something is left out that no summary covers yet.
    """

    messages: list[JsonObjectField]
    system: str | list[JsonObjectField] | None
    tools: list[JsonObjectField]
    requires_tool_config: bool
    tool_names: list[GivenText]
    open_calls: list[OpenCall]
    tokens: int
    prefix: PrefixAnswer
    manifest: ManifestAnswer
    head: int
    summary_stale: bool
