"""Reasons why a window does not begin with the same messages as the window before: a new epoch began."""

from __future__ import annotations

from typing import Literal, TypeAlias

BreakReason: TypeAlias = Literal[
    "first",
    "tools",
    "system",
    "policy",
    "budget",
    "summary",
    "not_read",
    "redaction",
    "late_result",
    "unprompted",
    "crossing",
    "large_result",
    "past_loop",
    "stub",
]
"""The reasons:

- ``first``: there was no window before.
- ``tools``, ``policy``, ``system``: the session's tools, its policy or its system text changed.
- ``budget``: the budget changed, or it hardly holds the newest messages.
- ``summary``: there is a new summary.
- ``not_read``: all that was read is sent, and older messages are not read any more.
- ``redaction``: a message was redacted.
- ``late_result``: a result replaces the neutral text, or the result, that was sent for its call.
- ``unprompted``: an answer came that nothing prompted, so it sends no thinking, nor does any answer before it.
- ``crossing``: the border between digests and whole messages moved. ``large_result``: results that filled the window shrank.
- ``past_loop``: a loop ended, and the policy sends past loops otherwise. ``stub``: the policy shortened an older result.
"""
