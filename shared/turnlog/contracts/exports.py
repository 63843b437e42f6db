"""Exports: a session, or all that a person has, as a file; and what brings one back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnlog.contracts.base import Answer, Body

FORMAT, FORMAT_VERSION = "turnlog-export", 1
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class ExportSession(Body):
    mode: Literal["sync", "async"] = Field(
        default="sync", description="async: a job. A long history is a job in any case"
    )


class Export(Answer):
    """A zip of JSON Lines with a manifest, at ``url`` until ``expires_at``. ``sha256`` is of the file."""

    url: str
    expires_at: str
    size_bytes: int
    sha256: str
    sessions: int
    positions: int


class ImportCommits(Body):
    """Some commits of an exported session, in order: lines of its ``log.jsonl``. ``head`` and ``hash`` are those of the whole,
    from the manifest; the session is seen when the last of them is here."""

    head: Annotated[int, Field(ge=1, le=999_999_999_999)]
    hash: Hash
    commits: Annotated[list[str], Field(min_length=1, max_length=1_000)]


class Imported(Answer):
    """``status``: ``partial`` until the last commit is here; ``existing`` when the session has been there before, up to the head at
    least."""

    session_id: str
    status: Literal["partial", "imported", "existing"]
    position: int
