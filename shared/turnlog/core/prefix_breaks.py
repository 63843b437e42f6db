"""Reasons why a window does not begin with the same messages as the window before."""

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
    "open_call",
    "settled",
    "late_result",
    "crossing",
    "past_loop",
    "age",
    "evicted",
    "stub",
    "fold",
    "joined",
]
"""The reasons:

- ``first``: there was no window before.
- ``tools``, ``policy``, ``system``: the session's tools, its policy or its system text changed.
- ``budget``: the budget changed, or the parts that are cut to fit it.
- ``summary``: there is a new summary.
- ``not_read``: older messages are no longer read.
- ``open_call``: a call that waited for its result is sent. ``settled``: it is sent with a neutral result.
- ``late_result``: a result replaces another one.
- ``crossing``: loops became digests at the high mark. ``past_loop``: a loop became a digest because it ended.
- ``age``: a loop was left out because of its age. ``evicted``: because of another limit, or by a custom step.
- ``stub``: results were cut. ``fold``: steps of a long loop were replaced by a note.
- ``joined``: the format merges new messages with messages that were sent before, and renders them differently.
"""
