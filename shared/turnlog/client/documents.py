"""Documents of a session: bytes by key, for what a framework keeps beside the conversation.

They are no part of the log: no window, search, fork or snapshot has them. They are exported, imported and erased with their
session.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from turnlog.client.backend import Backend, Paged, SessionResource, given
from turnlog.core.errors import InvalidInputError
from turnlog.core.times import milliseconds_of
from turnlog.sessions.document_models import (
    MAX_DATA_CHARS,
    MAX_LISTED,
    MAX_READ,
    MAX_WRITTEN,
    Document,
    DocumentAnswer,
    DocumentsAnswer,
    WrittenDocuments,
)

_Place: TypeAlias = "tuple[str | None, int | None]"
"""Behind which key the next page begins, and how many are wanted still."""

__all__ = ["Document", "DocumentCalls", "DocumentReading", "Documents"]


class DocumentReading:
    """Reads that belong together. That the session is there is asked at the first one, and again after 5 seconds."""

    def __init__(self, backend: Backend, path: Mapping[str, str]) -> None:
        self._backend = backend
        self._path = path
        self._reading: str | None = None

    def get(self, key: str) -> Document | None:
        """The document; None when there is none."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """Those that there are: a request for each 100 keys, and for each 4 MiB."""
        left, found = list(dict.fromkeys(keys)), dict[str, Document]()
        while left:
            answer = self._read({"keys": left[:MAX_READ]})
            found |= {one.key: _document(one) for one in answer.documents}
            left = [*answer.unread, *left[MAX_READ:]]
        return found

    def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        until: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int | None = None,
    ) -> Paged[Document]:
        """Documents whose keys begin with ``prefix``, in order of their UTF-8 bytes: those behind ``after``, up to ``until`` and
        it too, both as the order goes; a request for each page of about 1 MB as they are stored."""

        def fetch(place: _Place | None) -> tuple[Sequence[Document], _Place | None]:
            begin, left = place or (after, limit)
            if left is not None and left <= 0:
                return (), None
            fields = {"prefix": prefix, "after": begin, "until": until, "limit": min(left or MAX_LISTED, MAX_LISTED)}
            answer = self._read(given(fields) | {"order": order})
            found = tuple(map(_document, answer.documents))
            left = left - len(found) if left is not None else None
            return found, (answer.next, left) if answer.next is not None and left != 0 else None

        return Paged(fetch)

    def _read(self, body: Mapping[str, Any]) -> DocumentsAnswer:
        whole = given({**body, "reading": self._reading})
        answer: DocumentsAnswer = self._backend.call("get_documents", path=self._path, body=whole)
        self._reading = answer.reading
        return answer


class Documents:
    """The documents of a session. A reading sees every writing that has returned; `NotFoundError` when there is no such session."""

    def __init__(self, backend: Backend, path: Mapping[str, str]) -> None:
        self._backend = backend
        self._path = path

    def reading(self) -> DocumentReading:
        """For several reads in a row: they ask once whether the session is there."""
        return DocumentReading(self._backend, self._path)

    def get(self, key: str) -> Document | None:
        """The document; None when there is none."""
        return self.reading().get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """As `DocumentReading.get_many`."""
        return self.reading().get_many(keys)

    def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        until: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int | None = None,
    ) -> Paged[Document]:
        """As `DocumentReading.list`."""
        return self.reading().list(prefix, after=after, until=until, order=order, limit=limit)

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_revision: str | None = None,
        key: str | None = None,
    ) -> Document:
        """Writes a document of up to 3 MiB, whole. `DocumentChangedError` with ``if_absent`` when there is one, with
        ``if_revision`` when it has another revision. ``key`` is the idempotency key."""
        entry = _entry(name, data) | given({"if_revision": if_revision}) | ({"if_absent": True} if if_absent else {})
        one = self._write({"put": [entry]}, key=key).documents[0]
        return Document(name, data, one.revision, milliseconds_of(one.updated_at))

    def put_many(
        self, documents: Mapping[str, bytes], *, then: Mapping[str, bytes] | None = None, key: str | None = None
    ) -> None:
        """Writes documents in any order, and those of ``then`` when all others are there: what is named before what names it.

        Together not atomic. A request for each 25 documents, and for each 3 MiB.
        """
        parts = list(document_batches([_entry(*one) for one in documents.items()]))
        last = [_entry(*one) for one in (then or {}).items()]
        if len(list(document_batches(last))) > 1:
            raise InvalidInputError(f"documents of one request, {MAX_WRITTEN} or 3 MiB, are written then, and no more")
        if last and (not parts or len(list(document_batches([*parts[-1], *last]))) > 1):
            parts.append([])
        for at, part in enumerate(parts):
            body = {"put": part, "then": last if at == len(parts) - 1 else []}
            self._write(body, key=f"{key}-{at}" if key is not None else None)

    def delete(self, names: Iterable[str], *, key: str | None = None) -> None:
        """There are no such documents any more, whether or not there were. A request for each 100."""
        left = list(dict.fromkeys(names))
        for start in range(0, len(left), MAX_READ):
            part = left[start : start + MAX_READ]
            self._write({"delete": part}, key=f"{key}-{start}" if key is not None else None)

    def _write(self, body: Mapping[str, Sequence[Any]], *, key: str | None) -> WrittenDocuments:
        answer: WrittenDocuments = self._backend.call("put_documents", path=self._path, body=body, key=key)
        return answer


class DocumentCalls(SessionResource):
    """What a session has beside its log."""

    @property
    def documents(self) -> Documents:
        """Bytes by key, erased with the session."""
        return Documents(self._backend, self._path)


def document_batches(entries: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """What one request takes each."""
    batch, chars = list[dict[str, Any]](), 0
    for entry in entries:
        chars += len(entry["data"])
        if batch and (len(batch) == MAX_WRITTEN or chars > MAX_DATA_CHARS):
            yield batch
            batch, chars = [], len(entry["data"])
        batch.append(entry)
    if batch:
        yield batch


def _entry(key: str, data: bytes) -> dict[str, Any]:
    return {"key": key, "data": base64.b64encode(data).decode("ascii")}


def _document(answer: DocumentAnswer) -> Document:
    return Document(answer.key, base64.b64decode(answer.data), answer.revision, milliseconds_of(answer.updated_at))
