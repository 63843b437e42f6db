"""Kinds of jobs, and the queues that they go through."""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from turnlog.core.identity import is_correlation_id

JobKind: TypeAlias = Literal[
    "compress", "snapshot", "seal", "index", "sweep", "restore", "export", "erase", "erase_user", "redact", "offload"
]
JobStatus: TypeAlias = Literal["queued", "done", "failed"]
QUEUES: dict[str, tuple[JobKind, ...]] = {
    "compress": ("compress", "seal", "index"),
    "snapshot": ("snapshot", "restore", "export"),
    "erase": ("erase", "erase_user", "sweep", "redact"),
    "offload": ("offload",),
}
"""The kinds of job that go through each queue, to the worker of the same name."""
JOB_KINDS: tuple[JobKind, ...] = tuple(kind for kinds in QUEUES.values() for kind in kinds)


def correlation_of(body: str) -> str | None:
    """Return the correlation id in a queue message, or None. Works for any text, so logs have the id before parsing fails."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    value = message.get("correlation_id") if isinstance(message, dict) else None
    return value if is_correlation_id(value) else None
