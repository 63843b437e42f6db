"""Builds: what a window was made of, so that the same bytes can be made again."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from turnlog.contracts.base import MAX_POSITION, Answer, Body, JsonObjectField
from turnlog.contracts.sessions import Model

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
