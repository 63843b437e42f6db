"""Kinds of jobs, and the queues that they go through."""

from __future__ import annotations

from typing import Literal, TypeAlias

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
