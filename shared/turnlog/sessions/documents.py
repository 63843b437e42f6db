"""Read and write documents of a session."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnlog.core.errors import DocumentChangedError, InvalidInputError, MalformedError, Problem, TooLargeError
from turnlog.core.identity import Owner
from turnlog.core.models import Cursors
from turnlog.core.times import LAST_MS, milliseconds_of, rfc3339
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import raw_request_key
from turnlog.sessions.document_models import (
    MAX_DATA_CHARS,
    MAX_DOCUMENT_BYTES,
    Document,
    DocumentAnswer,
    DocumentsAnswer,
    NewDocument,
    ReadDocuments,
    WriteDocuments,
    Writing,
    WrittenDocument,
    WrittenDocuments,
    check_document_key,
)
from turnlog.sessions.document_store import DocumentStore, Range
from turnlog.sessions.session_log import SessionLog, check_active

if TYPE_CHECKING:
    from turnlog.snapshots.export_models import ExportedDocument

READING_MS = 5_000
"""Time in which requests with the same `reading` token skip the check that the session exists."""
_READINGS = Cursors(secrets.token_bytes(32))
"""Signs `reading` tokens. The key is this process's own: another process checks the session again."""


class GetDocuments:
    """Use case: read documents by their keys, or a range of them."""

    def __init__(self, log: SessionLog, documents: DocumentStore) -> None:
        self._log = log
        self._documents = documents

    def __call__(self, owner: Owner, session_id: str, body: ReadDocuments) -> DocumentsAnswer:
        keys, selection = SessionKeys(owner, session_id), _wanted(body)
        reading = self._reading_token(keys, body.reading)
        if isinstance(selection, Range):
            page = self._documents.page(keys, selection)
            return DocumentsAnswer(
                documents=list(map(document_answer, page.documents)), next=page.next, reading=reading
            )
        documents, unread = self._documents.get_many(keys, selection)
        return DocumentsAnswer(documents=list(map(document_answer, documents)), unread=unread, reading=reading)

    def _reading_token(self, keys: SessionKeys, reading: str | None) -> str:
        """Return the reading token while it is fresh, else check the session and return a new one."""
        now, scope = self._log.clock.now_ms(), f"documents {keys.partition}"
        if reading is not None:
            try:
                if 0 <= now - int(_READINGS.read(reading, scope=scope)["t"]) < READING_MS:
                    return reading
            except MalformedError:
                pass
        self._log.commits.tail(keys)
        return _READINGS.write({"t": str(now)}, scope=scope)


class PutDocuments:
    """Use case: write and delete documents. Refuses an ended session, and conditions that fail."""

    def __init__(self, log: SessionLog, documents: DocumentStore) -> None:
        self._log = log
        self._documents = documents

    def __call__(
        self, owner: Owner, session_id: str, body: WriteDocuments, *, key: str | None = None
    ) -> WrittenDocuments:
        keys, request = SessionKeys(owner, session_id), raw_request_key(key, "documents", {})
        salt = request.key_hash if request is not None else self._log.ids.nonce()
        first = [_writing(document, salt, f"/put/{index}") for index, document in enumerate(body.put)]
        then = [_writing(document, salt, f"/then/{index}") for index, document in enumerate(body.then)]
        deleted_keys = [
            check_document_key(document_key, pointer=f"/delete/{index}")
            for index, document_key in enumerate(body.delete)
        ]
        if not (first or then or deleted_keys):
            raise _invalid("", "nothing is to be written or deleted")
        check_distinct([*(writing.key for writing in first), *(writing.key for writing in then), *deleted_keys])
        check_active(self._log.commits.tail(keys).header)
        written = [*self._write(keys, first), *self._write(keys, then)]
        if deleted_keys:
            self._documents.delete(keys, deleted_keys, _revision(salt, "", b""))
        return WrittenDocuments(documents=list(map(_written_answer, written)))

    def _write(self, keys: SessionKeys, writings: Sequence[Writing]) -> list[Document]:
        if not writings:
            return []
        written = self._documents.write_many(keys, writings)
        documents = list[Document]()
        for document, writing in zip(written, writings, strict=True):
            if document is None:
                reason = "already exists" if not writing.if_revision else "has another revision"
                raise DocumentChangedError(f"document {writing.key[:80]!r} {reason}", details={"key": writing.key})
            documents.append(document)
        return documents


def _wanted(body: ReadDocuments) -> Range | list[str]:
    """Return the range or the keys that a request names, or raise `InvalidInputError`."""
    range_fields = [name for name in ("prefix", "after", "until") if getattr(body, name) is not None]
    if body.keys is not None:
        if range_fields or body.order != "asc":
            raise _invalid(f"/{range_fields[0] if range_fields else 'order'}", "send either keys or a range, not both")
        return [check_document_key(key, pointer=f"/keys/{index}") for index, key in enumerate(dict.fromkeys(body.keys))]
    for name in range_fields:
        if value := getattr(body, name):
            check_document_key(value, pointer=f"/{name}")
    return Range(body.prefix or "", body.after, body.until, body.order == "desc", body.limit)


def exported_writing(document: ExportedDocument, pointer: str) -> Writing:
    """Return the write that imports an exported document. It never replaces a document."""
    key = check_document_key(document.key, pointer=f"{pointer}/key")
    try:
        updated_ms = milliseconds_of(document.updated_at)
    except (ValueError, OverflowError):
        updated_ms = -1
    if not 0 <= updated_ms <= LAST_MS:
        raise _invalid(f"{pointer}/updated_at", "not a time of RFC 3339 from 1970 on")
    return Writing(key, _data(document.data, pointer), document.revision, "", updated_ms)


def _data(text: str, pointer: str) -> bytes:
    if len(text) > MAX_DATA_CHARS:
        raise TooLargeError(f"a document has at most {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _invalid(f"{pointer}/data", "data is not base64") from error


def _writing(document: NewDocument, salt: bytes, pointer: str) -> Writing:
    data = _data(document.data, pointer)
    if document.if_absent and document.if_revision is not None:
        raise _invalid(f"{pointer}/if_revision", "a document can't be absent and have a revision")
    key = check_document_key(document.key, pointer=f"{pointer}/key")
    return Writing(key, data, _revision(salt, key, data), "" if document.if_absent else document.if_revision)


def check_distinct(keys: Sequence[str]) -> None:
    """Raise `InvalidInputError` when a request names a document twice: it would not be clear which content wins."""
    if len(set(keys)) < len(keys):
        raise _invalid("", "a document is named twice")


def _revision(salt: bytes, key: str, data: bytes) -> str:
    """Return the revision of a write. A repeated request has the same salt, and so gets the same revision."""
    return hashlib.sha256(b"\0".join((salt, key.encode(), hashlib.sha256(data).digest()))).hexdigest()[:16]


def document_answer(document: Document) -> DocumentAnswer:
    """Return a document as the API sends it."""
    data = base64.b64encode(document.data).decode("ascii")
    time = rfc3339(document.updated_ms)
    return DocumentAnswer(key=document.key, data=data, revision=document.revision, updated_at=time)


def _written_answer(document: Document) -> WrittenDocument:
    return WrittenDocument(key=document.key, revision=document.revision, updated_at=rfc3339(document.updated_ms))


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_document", pointer, message)])
