"""Documents of a session: bytes by key, for data that a framework keeps beside the conversation.

Documents are not part of the log: windows, search, forks and snapshots do not contain them. They are exported, imported and
erased with their session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from turnlog.client import Backend, OwnerResource, Paged
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import without_none
from turnlog.core.limits import batches
from turnlog.routing import read_body
from turnlog.sessions.document_models import (
    MAX_DOCUMENT_BYTES,
    MAX_LISTED,
    MAX_READ,
    MAX_WRITTEN,
    Document,
    DocumentsAnswer,
    ReadDocuments,
    WriteDocuments,
    WrittenDocuments,
    base64_chars,
)

_Place: TypeAlias = "tuple[str | None, int | None]"
"""The key after which the next page begins, and the number of documents still to return."""

__all__ = ["Document", "DocumentReading", "Documents"]


class DocumentReading(OwnerResource):
    """Reads of documents that belong together. The session's existence is checked at the first read, and again after 5 seconds."""

    def __init__(self, backend: Backend, path: Mapping[str, str]) -> None:
        super().__init__(backend)
        self._path = path
        self._reading: str | None = None

    def get(self, key: str) -> Document | None:
        """Return a document, or None."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """Return the documents that exist, by key. Makes a request for each 100 keys and each 4 MiB."""
        unread, documents, reading = _unique(keys), dict[str, Document](), self._begin()
        while unread:
            answer = reading._read({"keys": unread[:MAX_READ]})
            documents |= {document.key: document for document in answer.documents}
            unread = [*answer.unread, *unread[MAX_READ:]]
        return documents

    def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        until: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int | None = None,
    ) -> Paged[Document]:
        """Iterate over documents whose keys begin with ``prefix``, ordered by the UTF-8 bytes of their keys.

        The range begins after ``after`` and ends with ``until``, in the direction of ``order``. Makes a request for each page
        of about 1 MB of stored data.
        """
        reading = self._begin()

        def fetch(place: _Place | None) -> tuple[Sequence[Document], _Place | None]:
            begin, left = place or (after, limit)
            if left is not None and left <= 0:
                return (), None
            fields = {"prefix": prefix, "after": begin, "until": until, "limit": min(left or MAX_LISTED, MAX_LISTED)}
            answer = reading._read(without_none(fields) | {"order": order})
            left = left - len(answer.documents) if left is not None else None
            return answer.documents, (answer.next, left) if answer.next is not None and left != 0 else None

        return Paged(fetch)

    def _begin(self) -> DocumentReading:
        return self

    def _read(self, body: Mapping[str, Any]) -> DocumentsAnswer:
        reading = read_body(without_none({**body, "reading": self._reading}), ReadDocuments)
        answer = self._call(DocumentsAnswer, "get_documents", body=reading)
        self._reading = answer.reading
        return answer


class Documents(DocumentReading):
    """The documents of a session. Reads see every write that has returned, and raise `NotFoundError` without a session."""

    def reading(self) -> DocumentReading:
        """Return an object for several reads in a row: together they check once that the session exists."""
        return DocumentReading(self.backend, self._path)

    _begin = reading

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_revision: str | None = None,
        idempotency_key: str | None = None,
    ) -> Document:
        """Write a document of up to 3 MiB, whole.

        Raises `DocumentChangedError` with ``if_absent`` when the document exists, with ``if_revision`` when its revision
        differs.
        """
        entry = _entry(name, data) | without_none({"if_revision": if_revision, "if_absent": if_absent or None})
        written = self._write({"put": [entry]}, idempotency_key=idempotency_key).documents[0]
        return Document(name, data, written.revision, written.updated_at)

    def put_many(
        self,
        documents: Mapping[str, bytes],
        *,
        then: Mapping[str, bytes] | None = None,
        if_revisions: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Write documents in any order, then those of ``then``, which may refer to the others.

        Makes a request for each 25 documents and each 3 MiB; together the requests are not atomic. The documents of ``then``
        must fit one request. With ``if_revisions``, documents named there are written only if they have these revisions:
        `DocumentChangedError` is raised when all others of the request are written.
        """
        revisions = if_revisions or {}
        entries = [
            _entry(name, data) | without_none({"if_revision": revisions.get(name)}) for name, data in documents.items()
        ]
        parts = list(document_batches(entries))
        last = [_entry(*item) for item in (then or {}).items()]
        if len(list(document_batches(last))) > 1:
            raise InvalidInputError(f"then has more than one request takes: {MAX_WRITTEN} documents or 3 MiB")
        if last and (not parts or len(list(document_batches([*parts[-1], *last]))) > 1):
            parts.append([])
        for index, part in enumerate(parts):
            body = {"put": part, "then": last if index == len(parts) - 1 else []}
            self._write(body, idempotency_key=f"{idempotency_key}-{index}" if idempotency_key is not None else None)

    def delete(
        self,
        names: Iterable[str],
        *,
        if_revisions: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Delete documents; missing ones are no error. Makes a request for each 100 names.

        With ``if_revisions``, documents named there are deleted only if they have these revisions: `DocumentChangedError` is
        raised when all others of the request are deleted.
        """
        unique, revisions = _unique(names), if_revisions or {}
        entries = [{"key": name, "if_revision": revisions[name]} if name in revisions else name for name in unique]
        for start in range(0, len(entries), MAX_READ):
            part = entries[start : start + MAX_READ]
            self._write(
                {"delete": part}, idempotency_key=f"{idempotency_key}-{start}" if idempotency_key is not None else None
            )

    def _write(self, body: Mapping[str, Sequence[Any]], *, idempotency_key: str | None) -> WrittenDocuments:
        writing = read_body(body, WriteDocuments)
        return self._call(WrittenDocuments, "put_documents", body=writing, idempotency_key=idempotency_key)


def document_batches(entries: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Return batches of entries that one request takes each. Data is bytes, or base64."""

    def chars_of(entry: dict[str, Any]) -> int:
        return base64_chars(len(entry["data"])) if isinstance(entry["data"], bytes) else len(entry["data"])

    return batches(entries, chars_of, max_size=base64_chars(MAX_DOCUMENT_BYTES), max_count=MAX_WRITTEN)


def _entry(key: str, data: bytes) -> dict[str, Any]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInputError(f"document {key!r} must be bytes, not {type(data).__name__}")
    return {"key": key, "data": bytes(data)}


def _unique(names: Iterable[str]) -> list[str]:
    if isinstance(names, str | bytes):
        raise InvalidInputError(f"{names[:80]!r} is one name; give the names in a list")
    return list(dict.fromkeys(names))
