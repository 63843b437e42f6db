"""Documents of a session, beside its log: one item each. The content of a large document is in the blob store.

One put writes a whole document. A deleted document leaves a tombstone for two days, so that a writer with an old revision is
refused. Earlier contents of a large document stay in the blob store until the session is erased.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from turnlog.core.errors import CorruptError, DocumentChangedError, InvalidInputError, MalformedError
from turnlog.core.events import DOCUMENTS_WRITTEN, NoteEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.limits import PAGE_BYTES
from turnlog.core.models import Cursors
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.core.times import DAY_MS, LAST_MS, milliseconds_of
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import attribute, check_version, following, item_name
from turnlog.log.keys import DOCUMENTS, SessionKeys, item_at
from turnlog.log.packing import pack, unpack
from turnlog.log.payloads import in_parallel
from turnlog.log.request_keys import raw_request_key
from turnlog.ports import Absent, AttributeValue, BlobStore, Clock, Condition, Equal, Item, ItemTable, Query
from turnlog.sessions.document_models import (
    Document,
    DocumentDeletion,
    DocumentsAnswer,
    DocumentWrite,
    NewDocument,
    ReadDocuments,
    WriteDocuments,
    WrittenDocument,
    WrittenDocuments,
    base64_chars,
    check_document_key,
)
from turnlog.sessions.session_log import SessionLog, check_active

if TYPE_CHECKING:
    from turnlog.snapshots.export_routes import ExportedDocument


INLINE_BYTES = 256 * 1024
"""Largest packed content stored in an item; larger ones are blobs. An item of this size costs less than one more request."""
_FIELDS_BYTES = 128
"""Size of a document in an answer without key and data: the names of its fields, its revision and its time."""
_TOMBSTONE_SECONDS = 2 * DAY_MS // 1000
_LAST = "\U0010ffff"
_NEXT = "\x01"
"""A key and this are above the key and below every other greater key, since keys are printable."""
_PARALLEL, _TRIES = 8, 20
READING_MS = 5_000
"""Time in which requests with the same `reading` token skip the check that the session exists."""
_READINGS = Cursors(secrets.token_bytes(32))
"""Signs `reading` tokens. The key is this process's own: another process checks the session again."""


class DocumentStore:
    """Reads and writes documents of sessions. Callers check that the session exists."""

    def __init__(self, items: ItemTable, blobs: BlobStore, clock: Clock) -> None:
        self._items = items
        self._blobs = blobs
        self._clock = clock

    def get_many(self, keys: SessionKeys, document_keys: Sequence[str]) -> tuple[list[Document], list[str]]:
        """Return the documents that exist, and the keys that were left unread because the page was full."""
        places = [keys.document(key) for key in document_keys]
        items = self._items.get_many(places)
        documents, next_key = self._read(keys, [items[place] for place in places if place in items])
        if next_key is None:
            return documents, []
        return documents, list(document_keys[document_keys.index(next_key) + 1 :])

    def page(self, keys: SessionKeys, selection: ReadDocuments) -> tuple[list[Document], str | None]:
        """Return a page of a range: at most ``limit`` documents and about 1 MB as they are stored, and the ``after`` of the next.

        Keys are in the order of their UTF-8 bytes.
        """
        prefix, descending = DOCUMENTS + (selection.prefix or ""), selection.order == "desc"
        after = DOCUMENTS + selection.after if selection.after is not None else None
        until = DOCUMENTS + selection.until if selection.until is not None else None
        # In descending order there is no greatest key below ``after``: read that document too, and drop it.
        low, high = (until, after) if descending else (after and after + _NEXT, until)
        low, high = max(prefix, low or ""), min(prefix + _LAST, high or prefix + _LAST)
        limit = selection.limit + (descending and after is not None)
        page = self._items.query(Query(keys.partition, low, high, descending=descending, limit=limit))
        items = page.items[1:] if page.items and key_of(page.items[0]) == selection.after else page.items
        documents, next_key = self._read(keys, items[: selection.limit])
        if next_key is None and items and (page.next is not None or len(items) > selection.limit):
            next_key = key_of(items[: selection.limit][-1])
        return documents, next_key

    def write(self, keys: SessionKeys, writing: DocumentWrite) -> Document | None:
        """Write the document; return None when its condition fails. Writing the same revision twice has one effect."""
        item = self._item(keys, writing)
        condition: Condition | None = None
        if writing.if_revision is not None:
            condition = Equal("n", writing.if_revision) if writing.if_revision else Absent()
        for _ in range(_TRIES):
            conflict = self._items.put(item, condition=condition)
            stored = item if conflict is None else conflict.existing or {}
            if conflict is None or stored.get("n") == writing.revision:
                return Document(writing.key, writing.data, writing.revision, attribute(stored, "t", int))
            is_gone = conflict.existing is None or is_deleted(conflict.existing)
            if writing.if_revision or not is_gone:
                return None
            condition = Absent() if conflict.existing is None else Equal("n", attribute(conflict.existing, "n", str))
        return None

    def write_many(self, keys: SessionKeys, writings: Sequence[DocumentWrite]) -> list[Document | None]:
        """Write documents in parallel; return None for each whose condition fails. Not atomic."""
        return in_parallel(lambda writing: self.write(keys, writing), writings, threads=_PARALLEL)

    def delete(self, keys: SessionKeys, deletions: Sequence[DocumentDeletion], revision: str) -> list[str]:
        """Delete documents, also those that do not exist; return the keys of those whose condition fails."""
        ttl = self._clock.now_ms() // 1000 + _TOMBSTONE_SECONDS

        def put(deletion: DocumentDeletion) -> bool:
            item = item_at(keys.document(deletion.key), {"v": SCHEMA_VERSION, "n": revision, "x": 1, "ttl": ttl})
            condition = Equal("n", deletion.if_revision) if deletion.if_revision is not None else None
            winner = self._items.put(item, condition=condition)
            return winner is None or winner.existing is None or is_deleted(winner.existing)

        deleted = in_parallel(put, deletions, threads=_PARALLEL)
        return [deletion.key for deletion, is_gone in zip(deletions, deleted, strict=True) if not is_gone]

    def every(self, keys: SessionKeys) -> Iterator[Document]:
        """Yield all documents of a session in order of their keys, with one page in memory at a time."""
        after: str | None = None
        while True:
            documents, after = self.page(keys, ReadDocuments(after=after, limit=100))
            yield from documents
            if after is None:
                return

    # ------------------------------------------------------------ steps

    def _item(self, keys: SessionKeys, writing: DocumentWrite) -> dict[str, AttributeValue]:
        packed = pack(writing.data, beside=writing.key.encode())
        updated_ms = self._clock.now_ms() if writing.updated_ms is None else writing.updated_ms
        item = item_at(keys.document(writing.key), {"v": SCHEMA_VERSION, "n": writing.revision, "t": updated_ms})
        if len(packed) <= INLINE_BYTES:
            return item | {"b": packed}
        name = f"{hashlib.sha256(writing.key.encode()).hexdigest()[:24]}-{writing.revision}"
        self._blobs.put(keys.document_blob(name), packed)
        return item | {"bn": name}

    def _read(self, keys: SessionKeys, items: Iterable[Item]) -> tuple[list[Document], str | None]:
        """Return the documents of items, and the last key that was read when the page was full before the end."""
        documents, size = list[Document](), 0
        for item in items:
            check_version(item)
            if is_deleted(item):
                continue
            document = self._document(keys, item)
            size += base64_chars(len(document.data)) + len(document.key.encode()) + _FIELDS_BYTES
            if documents and size > PAGE_BYTES:
                return documents, documents[-1].key
            documents.append(document)
        return documents, None

    def _document(self, keys: SessionKeys, item: Item) -> Document:
        name, key, packed = item_name(item), key_of(item), item.get("b")
        if not isinstance(packed, bytes):
            packed = self._blobs.get(keys.document_blob(attribute(item, "bn", str)))
        if packed is None:
            raise CorruptError("the content of a document is missing", item=name)
        data = unpack(packed, item=name, beside=key.encode())
        return Document(key, data, attribute(item, "n", str), attribute(item, "t", int))


def key_of(item: Item) -> str:
    """Return the document key of an item."""
    return item_name(item)[len(DOCUMENTS) :]


def is_deleted(item: Item) -> bool:
    """Return whether the item is the tombstone of a deleted document."""
    return "x" in item


class GetDocuments:
    """Use case: read documents by their keys, or a range of them."""

    def __init__(self, log: SessionLog, documents: DocumentStore) -> None:
        self._log = log
        self._documents = documents

    def __call__(self, owner: Owner, session_id: str, body: ReadDocuments) -> DocumentsAnswer:
        _check_selection(body)
        keys = SessionKeys(owner, session_id)
        reading = self._reading_token(keys, body.reading)
        if body.keys is None:
            documents, after = self._documents.page(keys, body)
            return DocumentsAnswer(documents=documents, next=after, reading=reading)
        documents, unread = self._documents.get_many(keys, list(dict.fromkeys(body.keys)))
        return DocumentsAnswer(documents=documents, unread=unread, reading=reading)

    def _reading_token(self, keys: SessionKeys, reading: str | None) -> str:
        """Return the reading token while it is fresh, else check the session and return a new one."""
        now, scope = self._log.clock.now_ms(), f"documents {keys.partition}"
        if reading is not None:
            with suppress(MalformedError):
                if 0 <= now - int(_READINGS.read(reading, scope=scope)["t"]) < READING_MS:
                    return reading
        self._log.commits.tail(keys)
        return _READINGS.write({"t": str(now)}, scope=scope)


class PutDocuments:
    """Use case: write and delete documents. Refuses an ended session, and conditions that fail.

    In a session with ``ttl_days`` this is activity: an entry of the history says so when a day, or a quarter of its days, has
    passed since the newest one.
    """

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
        deletions = [DocumentDeletion(key=item) if isinstance(item, str) else item for item in body.delete]
        for index, deletion in enumerate(deletions):
            check_document_key(deletion.key, pointer=f"/delete/{index}")
        if not (first or then or deletions):
            raise _invalid("", "nothing is to be written or deleted")
        check_distinct([*(writing.key for writing in (*first, *then)), *(deletion.key for deletion in deletions)])
        tail = self._log.commits.tail(keys)
        check_active(tail.header)
        self._prolong(keys, tail)
        written = [*self._write(keys, first), *self._write(keys, then)]
        for changed_key in self._documents.delete(keys, deletions, _revision(salt, "", b"")):
            raise _changed(changed_key, "has another revision")
        return WrittenDocuments(documents=list(map(_written_answer, written)))

    def _prolong(self, keys: SessionKeys, tail: Tail) -> None:
        """Commit that documents are written, when the session expires and its newest activity is not recent."""
        header, now = tail.header, self._log.clock.now_ms()
        if not header.ttl_days or now - header.active_ms < min(DAY_MS, header.ttl_days * DAY_MS // 4):
            return
        new = following(header, kind="h", events=1, now_ms=now)
        draft = Draft(new, (NoteEvent(new.first, DOCUMENTS_WRITTEN, None, None),))
        commit = self._log.commits.put(keys, draft, nonce=self._log.ids.nonce(), previous=header.hash)
        if commit is not None:  # otherwise another writer's commit is the activity
            self._log.refresh_listing(keys, tail, commit.header)

    def _write(self, keys: SessionKeys, writings: Sequence[DocumentWrite]) -> list[Document]:
        written = self._documents.write_many(keys, writings)
        documents = list[Document]()
        for document, writing in zip(written, writings, strict=True):
            if document is None:
                raise _changed(writing.key, "already exists" if not writing.if_revision else "has another revision")
            documents.append(document)
        return documents


def _check_selection(body: ReadDocuments) -> None:
    """Raise `InvalidInputError` for keys beside a range, and for a key that no document has."""
    ends = {"prefix": body.prefix, "after": body.after, "until": body.until}
    named = [name for name, value in ends.items() if value is not None]
    if body.keys is not None and (named or body.order != "asc"):
        raise _invalid(f"/{named[0] if named else 'order'}", "send either keys or a range, not both")
    for name, value in [*ends.items(), *((f"keys/{index}", key) for index, key in enumerate(body.keys or ()))]:
        if value:
            check_document_key(value, pointer=f"/{name}")


def exported_writing(document: ExportedDocument, pointer: str) -> DocumentWrite:
    """Return the write that imports an exported document. It never replaces a document."""
    key = check_document_key(document.key, pointer=f"{pointer}/key")
    updated_ms = exported_ms(document.updated_at, f"{pointer}/updated_at")
    return DocumentWrite(key, document.data, document.revision, "", updated_ms)


def exported_ms(text: str, pointer: str) -> int:
    """Return the time of an exported line in milliseconds. Raises `InvalidInputError` for any other text."""
    with suppress(ValueError, OverflowError):
        if 0 <= (time_ms := milliseconds_of(text)) <= LAST_MS:
            return time_ms
    raise _invalid(pointer, "not a time of RFC 3339 from 1970 on")


def _writing(document: NewDocument, salt: bytes, pointer: str) -> DocumentWrite:
    if document.if_absent and document.if_revision is not None:
        raise _invalid(f"{pointer}/if_revision", "a document can't be absent and have a revision")
    key = check_document_key(document.key, pointer=f"{pointer}/key")
    revision = _revision(salt, key, document.data)
    return DocumentWrite(key, document.data, revision, "" if document.if_absent else document.if_revision)


def check_distinct(keys: Sequence[str]) -> None:
    """Raise `InvalidInputError` when a request names a document twice: it would not be clear which content wins."""
    if len(set(keys)) < len(keys):
        raise _invalid("", "a document is named twice")


def _revision(salt: bytes, key: str, data: bytes) -> str:
    """Return the revision of a write. A repeated request has the same salt, and so gets the same revision."""
    return hashlib.sha256(b"\0".join((salt, key.encode(), hashlib.sha256(data).digest()))).hexdigest()[:16]


def document_line(document: Document) -> JsonObject:
    """Return the fields of a document's line in an export."""
    return {**_written_answer(document).model_dump(), "data": base64.b64encode(document.data).decode("ascii")}


def _written_answer(document: Document) -> WrittenDocument:
    return WrittenDocument(key=document.key, revision=document.revision, updated_at=document.updated_at)


def _changed(key: str, reason: str) -> DocumentChangedError:
    return DocumentChangedError(f"document {key[:80]!r} {reason}", details={"key": key})


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError.at(pointer, message, "invalid_document")
