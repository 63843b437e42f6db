"""Going back in a session, and comparing two of its moments."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from turnlog.contracts.base import Answer, At, Body
from turnlog.contracts.messages import StoredMessage


class RewindSession(Body):
    """``to`` is the last position that stays in view, also one that an earlier rewind has taken out of it."""

    to: At = Field(description="The last position in view, or a time (RFC 3339)")
    if_head: int | None = Field(default=None, ge=1, description="Only while this is the head")


class Stretch(Answer):
    """Positions ``first`` to ``last``."""

    first: int
    last: int


class Diff(Answer):
    """From one moment to another: the messages that came into view, in order, and the stretches of positions that left it.

    ``state`` is a JSON Patch that makes the one state of the other. ``settings`` names those that differ, ``summary_from`` and
    ``summary_to`` are the positions of the summaries in force. ``next`` is the ``after`` of the next page of messages.
    """

    from_position: int
    to_position: int
    messages: list[StoredMessage]
    next: int | None
    left: list[Stretch]
    state: list[Any]
    settings: list[str]
    summary_from: int | None
    summary_to: int | None
