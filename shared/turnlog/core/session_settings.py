"""A session's settings and the execution state of its agents' runs, as values."""

from __future__ import annotations

from typing import Literal, TypeAlias

from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass

SCHEMA_VERSION = 1
DEFAULT_LOOP_TIMEOUT_SECONDS = 3600
DEFAULT_OUTPUT_RESERVE = 4096

SessionStatus: TypeAlias = Literal["active", "inactive", "ended"]
"""Inactive: nothing was said for as long as its settings allow. The next append makes it active again."""
Recall: TypeAlias = Literal["always", "never"]
"""Whether windows have the recall tools: from the first one on, or never."""
MessageStatus: TypeAlias = Literal["complete", "interrupted"]


@lazy_dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is created with; each change is a commit, so any old window can be built again.

    Tokens of the system text and the tool schemas are counted when they are set.
    ``snapshots`` says when the session makes snapshots by itself (None: never). ``bootstrap`` is what was asked of long-term
    memory when it began, and what came of that.
    ``policy`` is a preset's name or a policy's body, already checked. A default here is what a stored session has that
    does not name the field: ``recall`` is never in those from before there were recall tools, whatever new ones get.
    """

    title: str | None = None
    system_tokens: int = 0
    tools_tokens: int = 0
    system: str | None = None
    model: str | None = None
    tools: tuple[JsonObject, ...] = ()
    output_reserve: int | None = None
    policy: str | JsonObject = "default"
    metadata: JsonObject | None = None
    strict: bool = False
    recall: Recall = "never"
    loop_timeout_seconds: int = DEFAULT_LOOP_TIMEOUT_SECONDS
    state_schema: JsonObject | None = None
    reset_of: str | None = None
    ttl_days: int | None = None
    inactive_after_days: int | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    snapshots: JsonObject | None = None
    bootstrap: JsonObject | None = None
