"""Models of documents: bytes that a session stores by key, beside its log."""

from __future__ import annotations

import base64
from dataclasses import field
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from turnlog.core.errors import InvalidInputError, TooLargeError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import Answer, Body
from turnlog.core.times import milliseconds_of, rfc3339

MAX_WRITTEN, MAX_READ, MAX_LISTED = 25, 100, 10_000
MAX_DOCUMENT_BYTES = 3 * 1024 * 1024
MAX_KEY_BYTES = 512
Key: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_KEY_BYTES)]
Revision: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
Reading: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]


def _from_base64(data: object) -> object:
    """Return the bytes of base64; anything else as it is. Raises `TooLargeError` for more than a document has."""
    if isinstance(data, str) and len(data) <= base64_chars(MAX_DOCUMENT_BYTES):
        try:
            data = base64.b64decode(data, validate=True)
        except ValueError as error:
            raise ValueError("data is not base64") from error
    if isinstance(data, str | bytes) and len(data) > MAX_DOCUMENT_BYTES:
        raise TooLargeError(f"a document has at most {MAX_DOCUMENT_BYTES:,} bytes")
    return data


def base64_chars(size: int) -> int:
    """Return the number of characters that base64 has for ``size`` bytes."""
    return -(-size // 3) * 4


Base64: TypeAlias = Annotated[
    bytes,
    BeforeValidator(_from_base64),
    PlainSerializer(lambda data: base64.b64encode(data).decode("ascii"), return_type=str),
    WithJsonSchema({"type": "string"}),
]
"""Bytes of a document: base64 in JSON, and bytes where no JSON is made, as in process."""


Moment: TypeAlias = Annotated[
    int,
    BeforeValidator(lambda moment: milliseconds_of(moment) if isinstance(moment, str) else moment),
    PlainSerializer(rfc3339, return_type=str),
    WithJsonSchema({"type": "string"}),
]
"""A time in milliseconds: RFC 3339 in JSON."""


class NewDocument(Body):
    """A document to write. ``data`` is base64."""

    key: Key = Field(description="1 to 512 bytes of printable UTF-8")
    data: Base64 = Field(description="Base64 of up to 3 MiB")
    if_absent: bool = Field(default=False, description="409 if the document exists")
    if_revision: Revision | None = Field(default=None, description="409 unless this is its revision")


class DocumentDeletion(Body):
    """A document to delete. A missing one is ignored."""

    key: Key
    if_revision: Revision | None = Field(default=None, description="409 if it has another revision")


class WriteDocuments(Body):
    """Documents to write and delete. ``put`` is written first, ``then`` after all of it, and ``delete`` is done last."""

    put: Annotated[list[NewDocument], Field(max_length=MAX_WRITTEN)] = Field(default_factory=list)
    then: Annotated[list[NewDocument], Field(max_length=MAX_WRITTEN)] = Field(default_factory=list)
    delete: Annotated[list[Key | DocumentDeletion], Field(max_length=MAX_READ)] = Field(default_factory=list)


class ReadDocuments(Body):
    """Documents to read: either ``keys``, or a range in order of the keys' bytes.

    In descending order ``after`` is the upper end of the range and ``until`` the lower one.
    """

    keys: Annotated[list[Key], Field(min_length=1, max_length=MAX_READ)] | None = None
    prefix: Annotated[str, Field(max_length=MAX_KEY_BYTES)] | None = None
    after: Key | None = Field(default=None, description="Start after this key")
    until: Key | None = Field(default=None, description="Stop after this key")
    order: Literal["asc", "desc"] = "asc"
    limit: int = Field(default=MAX_LISTED, ge=1, le=MAX_LISTED)
    reading: Reading | None = Field(
        default=None,
        description="`reading` of the answer that this request continues; saves checking the session again",
    )


class WrittenDocument(Answer):
    """A document that was written. ``revision`` changes with each write."""

    key: str
    revision: str
    updated_at: Moment


class WrittenDocuments(Answer):
    """The documents that were written, in the order of the request."""

    documents: list[WrittenDocument]


@lazy_dataclass(frozen=True, slots=True)
class Document:
    """A document with its content. ``data`` is base64 in JSON. ``revision`` is opaque and changes with each write."""

    key: str
    data: Base64 = field(repr=False)
    revision: str
    updated_at: Moment

    @property
    def updated_ms(self) -> int:
        """Time of the write in milliseconds."""
        return self.updated_at


class DocumentsAnswer(Answer):
    """Documents, in at most about 4 MiB of JSON.

    ``next`` is the ``after`` of the next request for a range. ``unread`` are the keys that did not fit: request them again.
    Send ``reading`` with a request that continues within 5 seconds, so that the session is not checked again.
    """

    documents: list[Document]
    next: str | None = None
    unread: list[str] = Field(default_factory=list)
    reading: str


@lazy_dataclass(frozen=True, slots=True)
class DocumentWrite:
    """A document to store. ``if_revision``: replace only this revision; an empty text: write only if the document is absent.

    ``updated_ms`` is the original time of an imported document; None for the time of the write.
    """

    key: str
    data: bytes = field(repr=False)
    revision: str
    if_revision: str | None = None
    updated_ms: int | None = None


def check_document_key(key: str, *, pointer: str = "/key") -> str:
    """Return ``key`` when it is valid, else raise `InvalidInputError` with ``pointer``."""
    if not 0 < len(key.encode("utf-8", "surrogatepass")) <= MAX_KEY_BYTES or not key.isprintable():
        message = f"key {key[:80]!r} is empty, longer than {MAX_KEY_BYTES} bytes, or not printable"
        raise InvalidInputError.at(pointer, message, "invalid_key")
    return key
