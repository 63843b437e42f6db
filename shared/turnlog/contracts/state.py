"""The session's state."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from turnlog.contracts.base import Answer, Body, JsonObjectField

ACTION_PATTERN = r"^[A-Za-z][A-Za-z0-9_.:-]{0,63}$"
Action: TypeAlias = Annotated[str, Field(pattern=ACTION_PATTERN)]
Version: TypeAlias = Annotated[int, Field(ge=0)]


class ReplaceState(Body):
    """The whole state in place of the one before."""

    state: JsonObjectField
    action: Action | None = Field(default=None, description="What history tells (state_change)")
    if_version: Version | None = Field(default=None, description="409 unless this is the state's version")


class StateAnswer(Answer):
    """``version`` is the position of the newest state event, 0 before the first."""

    state: JsonObjectField
    version: int
