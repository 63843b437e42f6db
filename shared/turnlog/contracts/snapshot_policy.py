"""When a session makes snapshots by itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from turnlog.contracts.base import Body

MAX_KEPT = 1_000


class SnapshotPolicy(Body):
    """Snapshots of kind ref that the session makes by itself."""

    every_loops: Annotated[int, Field(ge=1, le=100_000)] = Field(description="One whenever so many loops have ended")
    keep: Annotated[int, Field(ge=1, le=MAX_KEPT)] = Field(
        default=20, description="How many of the newest of them are kept"
    )
