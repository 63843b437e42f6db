"""Documents of a session: bytes by key."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import Answer, Body

MAX_WRITTEN, MAX_READ, MAX_LISTED = 25, 100, 10_000
MAX_DOCUMENT_BYTES = 3 * 1024 * 1024
MAX_DATA_CHARS = -(-MAX_DOCUMENT_BYTES // 3) * 4
Key: TypeAlias = Annotated[str, Field(min_length=1, max_length=512)]
Revision: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
Reading: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]


class NewDocument(Body):
    """``data`` is base64."""

    key: Key = Field(description="1 to 512 bytes of printable UTF-8")
    data: str = Field(description="Base64 of up to 3 MiB")
    if_absent: bool = Field(default=False, description="409 if there is one")
    if_revision: Revision | None = Field(default=None, description="409 unless this is its revision")


class WriteDocuments(Body):
    """``then`` is written when all of ``put`` is there, and ``delete`` is done last."""

    put: Annotated[list[NewDocument], Field(max_length=MAX_WRITTEN)] = Field(default_factory=list)
    then: Annotated[list[NewDocument], Field(max_length=MAX_WRITTEN)] = Field(default_factory=list)
    delete: Annotated[list[Key], Field(max_length=MAX_READ)] = Field(default_factory=list)


class ReadDocuments(Body):
    """Either ``keys``, or a range in order of the keys' bytes. ``after`` and ``until`` are as the order goes."""

    keys: Annotated[list[Key], Field(min_length=1, max_length=MAX_READ)] | None = None
    prefix: Annotated[str, Field(max_length=512)] | None = None
    after: Key | None = Field(default=None, description="The last key that is not wanted any more")
    until: Key | None = Field(default=None, description="The last key that is wanted")
    order: Literal["asc", "desc"] = "asc"
    limit: int = Field(default=MAX_LISTED, ge=1, le=MAX_LISTED)
    reading: Reading | None = Field(
        default=None, description="Of an answer a few seconds ago, whose reading this one goes on with"
    )


class WrittenDocument(Answer):
    """``revision`` is another one after each writing."""

    key: str
    revision: str
    updated_at: str


class WrittenDocuments(Answer):
    """In the order of the request."""

    documents: list[WrittenDocument]


class DocumentAnswer(WrittenDocument):
    """``data`` is base64."""

    data: str


class DocumentsAnswer(Answer):
    """``next`` is the key to go on after, and ``unread`` the keys to ask for again: an answer has about 4 MiB. ``reading`` is
    for requests that go on with it: for 5 seconds they need not ask whether the session is there."""

    documents: list[DocumentAnswer]
    next: str | None = None
    unread: list[str] = Field(default_factory=list)
    reading: str


MAX_KEY_BYTES = 512


@lazy_dataclass(frozen=True, slots=True)
class Document:
    """``revision`` is another one after each writing; it tells nothing else. ``updated_ms`` is the time of the writing."""

    key: str
    data: bytes = field(repr=False)
    revision: str
    updated_ms: int


@lazy_dataclass(frozen=True, slots=True)
class Writing:
    """What a document is to be. ``if_revision``: only in place of this one; an empty one: only where there is none.
    ``updated_ms`` is the time of one that was written elsewhere before."""

    key: str
    data: bytes = field(repr=False)
    revision: str
    if_revision: str | None = None
    updated_ms: int | None = None


def check_document_key(key: str, *, pointer: str = "/key") -> str:
    """``key`` when it is a legal one, else `InvalidInputError`."""
    if not 0 < len(key.encode("utf-8", "surrogatepass")) <= MAX_KEY_BYTES or not key.isprintable():
        message = f"key {key[:80]!r} is empty, longer than {MAX_KEY_BYTES} bytes, or not printable"
        raise InvalidInputError(message, problems=[Problem("invalid_key", pointer, message)])
    return key
