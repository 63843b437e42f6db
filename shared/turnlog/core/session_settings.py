"""A session's settings, status and defaults."""

from __future__ import annotations

from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import Recall

SCHEMA_VERSION = 1
DEFAULT_LOOP_TIMEOUT_SECONDS = 3600
DEFAULT_OUTPUT_RESERVE = 4096

WINDOW_SETTINGS = frozenset({"system", "tools", "model", "policy", "output_reserve", "recall"})
"""Settings that change how windows begin."""


@lazy_dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings of a session. Each change is a commit, so any old window can be built again.

    ``system_tokens`` and ``tools_tokens`` are counted when the system text and the tools are set. ``snapshots`` says when
    the session makes snapshots by itself (None means never). ``bootstrap`` holds the request to long-term memory at the
    session's beginning, and its outcome. ``policy`` is a preset's name or a checked policy body. The defaults are those of
    stored sessions that lack the field; new sessions may get others. For example, a session from before the recall tools
    has ``recall="never"``.
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
    inactive_after_minutes: int | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    snapshots: JsonObject | None = None
    bootstrap: JsonObject | None = None
