"""The history of a session: what was done, newest first."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from turnlog.contracts.base import Answer, Body, JsonObjectField
from turnlog.contracts.state import Action

MAX_ENTRIES = 1_000


class RecordHistory(Body):
    """An entry of the caller's own; nothing changes."""

    action: Action
    agent_id: str | None = None
    metadata: JsonObjectField | None = None


class HistoryEntry(Answer):
    """``history_id`` is the position of the event in the log, as text. ``first`` and ``last`` are the positions that it is about.

    ``diff`` of a change of the state is what was applied: an object is a Merge Patch, a list is a JSON Patch. ``metadata`` of
    one has ``old_state_keys`` and ``new_state_keys``, the first 100 of each; null in entries from before they were kept.
    """

    history_id: str
    agent_id: str | None
    action: str
    created_at: str
    first: int
    last: int
    diff: JsonObjectField | list[Any] | None
    metadata: JsonObjectField


class HistoryPage(Answer):
    """``next`` is the ``before`` of the next page; null at the end. A page with few entries or none may have a next one."""

    entries: list[HistoryEntry]
    next: int | None = Field(description="`before` of the next page; null at the end")
