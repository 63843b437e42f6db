"""Exports: a session, or all that a person has, as a file; and what brings one back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnlog.core.models import Answer, Body, JsonObjectField
from turnlog.sessions.document_models import MAX_WRITTEN, Key

FORMAT, FORMAT_VERSION = "turnlog-export", 2
READ_VERSIONS = (1, FORMAT_VERSION)
"""Version 1 has no documents."""
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


class ExportedDocument(Body):
    """A line of ``documents.jsonl``. ``data`` is base64."""

    key: Key
    data: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    updated_at: Annotated[str, Field(max_length=64)]


class ImportCommits(Body):
    """Some commits of an exported session, in order: lines of its ``log.jsonl``; when all are here, documents: those of its
    ``documents.jsonl``. ``head`` and ``hash`` are those of the whole, from the manifest. The session is seen when its last commit
    is here, with ``more`` when a later request without it has come."""

    head: Annotated[int, Field(ge=1, le=999_999_999_999)]
    hash: Hash
    commits: Annotated[list[str | JsonObjectField], Field(max_length=1_000)] = Field(
        default_factory=list, description="Lines as text, or what they say: a long one is shorter so"
    )
    documents: Annotated[list[ExportedDocument], Field(max_length=MAX_WRITTEN)] = Field(default_factory=list)
    more: bool = Field(default=False, description="Documents follow: the session is not seen yet")


class Imported(Answer):
    """``status``: ``partial`` until all is here; ``existing`` when the session has been there before, up to the head at
    least."""

    session_id: str
    status: Literal["partial", "imported", "existing"]
    position: int
