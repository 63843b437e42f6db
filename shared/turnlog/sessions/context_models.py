"""Models of windows: context calls, their answers, manifests and builds."""

from __future__ import annotations

from html import escape
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from turnlog.core.limits import MAX_POSITION, MAX_WINDOW_MESSAGES
from turnlog.core.models import Answer, At, Body, FormatName, GivenText, JsonObjectField, ProviderJson
from turnlog.core.window_parts import (
    Breakpoint,
    BudgetSource,
    EpochAnswer,
    OthersCalls,
    PrefixAnswer,
    RecalledMessage,
    WindowPart,
)
from turnlog.sessions.message_models import REF_PATTERN
from turnlog.sessions.models import Model, OutputReserve, Tools

MAX_QUERY_CHARS = 1_000
Breakpoints: TypeAlias = Literal["suggest", "apply"]


class BudgetAnswer(Answer):
    """The tokens of a window's budget, and where the number comes from.

    ``factor``: the provider's tokens for each token that we count, learned from reported usage. Left out when it is 1.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    tokens: int
    source: BudgetSource
    factor: float = 1.0

    # No return type: with one its JSON Schema would be an object of anything.
    @model_serializer(mode="wrap")
    def _without_default_factor(self, serialize: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        return {name: value for name, value in serialize(self).items() if name != "factor" or value != 1}


class GivenBudget(Body):
    """The budget of a ``build`` that is sent back."""

    tokens: int = Field(ge=1, le=100_000_000)
    source: BudgetSource
    factor: float = Field(default=1.0, ge=0.5, le=3)


class _Build(BaseModel):
    renderer: int = Field(description="Version of the renderer")
    position: int = Field(ge=1, le=MAX_POSITION)
    commit: str = Field(max_length=64, description="Hash of the commit with that position; only this log has it")
    clock: str = Field(max_length=64, description="The commit's time; ages of messages are measured from it")
    policy: JsonObjectField = Field(description="The policy's body; later changes of its preset have no effect")
    format: str = Field(max_length=64)
    model: Model | None
    summary: int | None = Field(description="Position of the summary that was current")
    tools: str | None = Field(max_length=64, description="SHA-256 of the call's own tools; null: the session's")
    include_current_loop: bool
    answer_open_calls: bool
    others_calls: OthersCalls = "text"
    breakpoints: Breakpoints = "suggest"
    query: str | None = Field(default=None, max_length=MAX_QUERY_CHARS)
    elsewhere: str = Field(
        default="", max_length=64, description="A fingerprint of what is recalled from other sessions or by meaning"
    )


class Build(_Build, Answer):
    """A record of how a window was built. Send it back with a context call to get the same window again.

    Later messages, summaries and settings do not change that window.
    """

    budget: BudgetAnswer


class GivenBuild(_Build, Body):
    """The ``build`` of a manifest, sent back unchanged."""

    budget: GivenBudget


class WindowOptions(Body):
    """Options of a window: policy, format, budget, tools and breakpoints."""

    policy: str | JsonObjectField | None = Field(default=None, description="A preset's name or a policy's body")
    format: FormatName = "openai_chat"
    budget: int | None = Field(default=None, ge=1, le=100_000_000, description="All that is sent, in tokens")
    model: Model | None = None
    tools: Tools | None = None
    output_reserve: OutputReserve | None = None
    include_current_loop: bool = True
    answer_open_calls: bool = Field(
        default=False, description="Answer open calls with a neutral text instead of leaving them out"
    )
    others_calls: OthersCalls = Field(
        default="text",
        description="Calls of tools that the request does not offer: as text, or as calls. Without tools all are calls",
    )
    breakpoints: Breakpoints = Field(
        default="suggest",
        description="Prompt-cache breakpoints: named in the manifest, or applied to messages, system and tools too",
    )
    query: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description="What the step recall looks for, in place of the user's message",
    )


class ParentWindow(Body):
    """An agent that works within a call of another: its window has what it has said and been told within that call.

    ``others``: what else it has of the loops before the call: ``nothing``, the ``answers`` (requests and final replies), or
    ``all``. ``system`` replaces the session's system text.
    """

    ref: Annotated[str, Field(pattern=REF_PATTERN)]
    agent_id: str = Field(min_length=1, max_length=128)
    others: Literal["nothing", "answers", "all"] = "nothing"
    system: str | None = Field(default=None, max_length=1_000_000)


class BuildContext(WindowOptions):
    """A request for the window of the next model call. Fields that are left out come from the session's settings."""

    at: At | None = Field(
        default=None, description="Build the window as if the log ended at this position, or time (RFC 3339)"
    )
    build: GivenBuild | None = Field(default=None, description="A manifest's build: the same window again")
    parent: ParentWindow | None = Field(default=None, description="The window of an agent within a call of another")


class BuildWindow(WindowOptions):
    """A request for a window over a list of messages. Nothing is stored."""

    messages: list[JsonObjectField] = Field(max_length=MAX_WINDOW_MESSAGES)
    input_format: FormatName | None = Field(default=None, description="Recognised when left out")
    system: str | None = Field(default=None, max_length=1_000_000)


class ManifestAnswer(Answer):
    """A description of a window: its parts, their tokens, and how to build it again.

    ``breakpoints``: at most four, counting those that messages or tools have already. Empty for providers that cache
    automatically. ``recalled``: the messages in the part of that name. ``build`` is null for a window over a list of messages, and
    for one of an agent within a call of another, which ``parent`` names: it can't be built again from a log.
    """

    position: int
    budget: BudgetAnswer
    parts: list[WindowPart]
    recalled: list[RecalledMessage]
    totals: dict[str, int]
    breakpoints: list[Breakpoint]
    epoch: EpochAnswer
    build: Build | None = None
    parent: ParentWindow | None = None

    def __repr__(self) -> str:
        return (
            f"<Manifest: {len(self.parts)} parts, {self._size()}, position {self.position}, epoch {self.epoch.id[:8]}>"
        )

    __str__ = __repr__

    def _size(self) -> str:
        from turnlog.providers.token_rules import WINDOW_OVERHEAD  # what only shows a window needs it

        return f"{WINDOW_OVERHEAD + sum(self.totals.values()):,} of {self.budget.tokens:,} tokens"

    def _repr_html_(self) -> str:
        """Return the picture of `turnlog context` for a notebook: a bar for each part that is not within a loop."""
        shown = [part for part in self.parts if part.kind not in ("message", "block") or part.loop is None]
        largest = max([part.tokens for part in shown], default=0) or 1
        rows = "".join(_row(part, largest) for part in shown)
        return f"<table>{rows}</table><p>{escape(self._size())} (budget {escape(self.budget.source)})</p>"


_COLOURS = {"whole": "#2a9d4a", "digest": "#c9a400", "stub": "#e8d44d", "out": "#bbb"}


def _row(part: WindowPart, largest: int) -> str:
    """Return a row of a notebook's table: label, positions, level, bar and tokens of a part."""
    label = part.kind if part.loop is None else f"{part.kind} {part.loop}"
    positions = "" if part.first is None else f"{part.first}–{part.last}"
    width = max(1, round(part.tokens / largest * 200)) if part.tokens else 0
    bar = f'<div style="width:{width}px;height:0.8em;background:{_COLOURS[part.level]}"></div>'
    cells = (label, positions, part.level, bar, f"{part.tokens:,}", part.reason or "")
    return f"<tr>{''.join(f'<td>{cell if cell is bar else escape(cell)}</td>' for cell in cells)}</tr>"


class OpenCall(Answer):
    """A tool call at the end of the log that has no result. The window leaves it out together with its message."""

    ref: str
    call_id: GivenText
    name: GivenText


class WindowAnswer(Answer):
    """A window: messages, system text and tools to send to the model.

    ``tokens`` is an upper bound for all of them; ``head`` is the position that the window was built at. ``system`` is a list of
    blocks when breakpoints are applied to it. ``requires_tool_config``: the messages contain tool blocks, so Bedrock Converse
    needs a tool configuration for ``tool_names``. ``summary_stale``: the policy uses summaries, and the window leaves out
    messages that no summary covers yet.
    """

    messages: list[ProviderJson]
    system: str | list[ProviderJson] | None
    tools: list[ProviderJson]
    requires_tool_config: bool
    tool_names: list[GivenText]
    open_calls: list[OpenCall]
    tokens: int
    prefix: PrefixAnswer
    manifest: ManifestAnswer
    head: int
    summary_stale: bool

    def __repr__(self) -> str:
        size = f"{self.tokens:,} of {self.manifest.budget.tokens:,} tokens"
        return f"<Window: {len(self.messages)} messages, {len(self.tools)} tools, {size}, head {self.head}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return the manifest's picture for a notebook."""
        return f"<p>{escape(repr(self))}</p>{self.manifest._repr_html_()}"
