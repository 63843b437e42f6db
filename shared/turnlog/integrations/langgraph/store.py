"""A LangGraph store (langgraph-checkpoint 4.3) over documents: https://docs.langchain.com/oss/python/langgraph/stores.

    from turnlog.integrations.langgraph import TurnlogStore

    graph = builder.compile(checkpointer=TurnlogSaver(log), store=TurnlogStore(log))

The items of a store are documents of one session. Without an embedder, a search ranks items by the words of the query.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)
from langgraph.store.memory import InMemoryStore

from turnlog.client.documents import Document
from turnlog.client.model import Turnlog
from turnlog.core.errors import DocumentChangedError, InvalidInputError
from turnlog.engines import SystemClock
from turnlog.integrations.langgraph.threads import STORE, short
from turnlog.integrations.sessions import KeptDocuments
from turnlog.sessions.document_models import MAX_READ, MAX_WRITTEN

_MAX_LABEL, _MAX_KEY = 60, 120
_MS_PER_MINUTE = 60_000
_NOW_MS = SystemClock().now_ms
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")
Stored = dict[str, Any]
Match = tuple[Document, Stored]
"""An item that was read: its document, and the JSON in it."""
_Vectors = Mapping[str, Sequence[float]]


class TurnlogStore(BaseStore):
    """A LangGraph store in the session ``session_id``, which is created with ``settings`` of `Sessions.create`.

    Values are JSON. A search reads all items below its namespace, a megabyte a request. With ``index`` (LangGraph's own
    configuration) values are embedded when they are put, and ranked by meaning. Expired items (``ttl``, minutes) are never
    returned; `sweep_ttl` deletes them. With ``ttl_days`` all items expire together, so many days after the newest was written.
    Calls of one batch that read see what was there before the batch.
    """

    supports_ttl = True

    def __init__(
        self,
        log: Turnlog,
        session_id: str = "langgraph-store",
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        now_ms: Callable[[], int] = _NOW_MS,
        **settings: Any,
    ) -> None:
        self._documents, self._now_ms = KeptDocuments(log, session_id, **settings), now_ms
        self.ttl_config, self.index_config = ttl, index
        self._fields = list((index or {}).get("fields") or ["$"])
        self._embedder: Any = ensure_embeddings(index["embed"]) if index is not None else None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations, queries, texts = self._begin(ops)
        by_query = {query: self._embedder.embed_query(query) for query in queries}
        by_text = dict(zip(texts, self._embedder.embed_documents(texts) if texts else (), strict=True))
        return self._do(operations, by_query, by_text)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        operations, queries, texts = self._begin(ops)
        by_query = {query: await self._embedder.aembed_query(query) for query in queries}
        by_text = dict(zip(texts, await self._embedder.aembed_documents(texts) if texts else (), strict=True))
        return await asyncio.to_thread(self._do, operations, by_query, by_text)

    def sweep_ttl(self) -> int:
        """Delete expired items, except those that are put again meanwhile. Returns how many there were."""
        now = self._now_ms()
        listed = self._documents.list(STORE)
        expired = [(item.key, item.revision) for item in listed if _expires(json.loads(item.data)) <= now]
        for start in range(0, len(expired), MAX_READ):
            part = dict(expired[start : start + MAX_READ])
            with suppress(DocumentChangedError):
                self._documents.delete(part, if_revisions=part)
        return len(expired)

    def _begin(self, ops: Iterable[Op]) -> tuple[list[Op], list[str], list[str]]:
        """Check operations, and return them with the queries and the texts of values that are to be embedded."""
        ops = list(ops)
        for op in ops:
            validate_op_namespace(op)
        queries = [op.query for op in ops if isinstance(op, SearchOp) and op.query and self._embedder is not None]
        return ops, queries, [text for op in ops if isinstance(op, PutOp) for text in self._texts(op)]

    def _texts(self, op: PutOp) -> list[str]:
        if self._embedder is None or op.value is None or op.index is False:
            return []
        paths = [(path, tokenize_path(path)) for path in (self._fields if op.index is None else op.index)]
        return [text for path, parts in paths for text in get_text_at_path(op.value, path if path == "$" else parts)]

    def _do(self, operations: Sequence[Op], by_query: _Vectors, by_text: _Vectors) -> list[Result]:
        answers: list[Result] = [None if isinstance(op, PutOp) else self._read(op, by_query) for op in operations]
        self._put({(op.namespace, op.key): op for op in operations if isinstance(op, PutOp)}, by_text)
        return answers

    def _read(self, op: GetOp | SearchOp | ListNamespacesOp, vectors: _Vectors) -> Result:
        if isinstance(op, GetOp):
            matches = self._get([(op.namespace, op.key)])
            self._refresh(op.refresh_ttl, matches)
            return next((_item(stored) for _, stored in matches), None)
        return self._search(op, vectors) if isinstance(op, SearchOp) else _in_memory(self._list(())).batch([op])[0]

    def _get(self, names: Iterable[tuple[tuple[str, ...], str]]) -> list[Match]:
        return self._unexpired(self._documents.get_many([_key(*name) for name in names]).values())

    def _list(self, prefix: tuple[str, ...]) -> list[Match]:
        return self._unexpired(self._documents.list(_folder(prefix)))

    def _unexpired(self, documents: Iterable[Document]) -> list[Match]:
        now = self._now_ms()
        matches = ((document, json.loads(document.data)) for document in documents)
        return [(document, stored) for document, stored in matches if _expires(stored) > now]

    def _search(self, op: SearchOp, vectors: _Vectors) -> list[SearchItem]:
        matches = self._list(op.namespace_prefix)
        if op.filter:
            filtered = _in_memory(matches).search((), filter=op.filter, limit=len(matches))
            names = {(item.namespace, item.key) for item in filtered}
            matches = [match for match in matches if _name(match[1]) in names]
        scores: Sequence[float | None] = [None] * len(matches)
        if op.query:
            scores = self._scores(op.query, [stored for _, stored in matches], vectors)
            order = sorted(range(len(matches)), key=lambda index: -(scores[index] or 0.0))
            matches, scores = [matches[index] for index in order], [scores[index] for index in order]
        page = slice(op.offset, op.offset + op.limit)
        self._refresh(op.refresh_ttl, matches[page])
        return [
            SearchItem(**_item(stored).dict() | {"namespace": tuple(stored["namespace"])}, score=score)
            for (_, stored), score in zip(matches[page], scores[page], strict=True)
        ]

    def _scores(self, query: str, items: Sequence[Stored], vectors: _Vectors) -> list[float | None]:
        if self._embedder is None:
            words = set(_words(query))
            texts = (json.dumps([stored["key"], stored["value"]], ensure_ascii=False) for stored in items)
            return [len(words & set(_words(text))) / max(1, len(words)) for text in texts]
        from turnlog.search.session import cosine_similarity  # few stores have an embedder

        vector = vectors[query]
        return [
            max((cosine_similarity(vector, own) for own in stored.get("vectors", ())), default=None) for stored in items
        ]

    def _put(self, ops: Mapping[tuple[tuple[str, ...], str], PutOp], vectors: _Vectors) -> None:
        before, now = {document.key: stored for document, stored in self._get(ops)}, self._now_ms()
        by_key = {_key(*name): op for name, op in ops.items()}
        new = {
            key: self._stored(op, before.get(key), now, vectors) for key, op in by_key.items() if op.value is not None
        }
        gone = [key for key, op in by_key.items() if op.value is None and key in before]
        self._documents.put_many({key: _dumped(stored) for key, stored in new.items()})
        self._documents.delete(gone)

    def _stored(self, op: PutOp, before: Stored | None, now: int, vectors: _Vectors) -> Stored:
        stored: Stored = {"namespace": op.namespace, "key": op.key, "value": op.value, "updated": now, "read": now}
        stored["created"] = before["created"] if before is not None else now
        if op.ttl is not None:
            stored["ttl"] = op.ttl
        if texts := self._texts(op):
            stored["vectors"] = [vectors[text] for text in texts]
        return stored

    def _refresh(self, is_wanted: bool, matches: Iterable[Match]) -> None:
        """Let the time of items that expire begin again, unless they were changed or deleted since they were read."""
        expiring = [match for match in matches if "ttl" in match[1]] if is_wanted else []
        for start in range(0, len(expiring), MAX_WRITTEN):
            part, now = expiring[start : start + MAX_WRITTEN], self._now_ms()
            documents = {document.key: _dumped({**stored, "read": now}) for document, stored in part}
            with suppress(DocumentChangedError):
                self._documents.put_many(
                    documents, if_revisions={document.key: document.revision for document, _ in part}
                )


def _folder(namespace: Sequence[str]) -> str:
    return STORE + "".join(f"{short(label, _MAX_LABEL)}/" for label in namespace)


def _key(namespace: Sequence[str], key: str) -> str:
    return f"{_folder(namespace)}/{short(key, _MAX_KEY)}"


def _dumped(stored: Stored) -> bytes:
    value, name = stored["value"], f"{stored['key'][:80]!r} in {'/'.join(stored['namespace'])[:80]!r}"
    if not isinstance(value, dict):
        raise InvalidInputError(f"the value of {name} must be an object, not {type(value).__name__}")
    try:
        return json.dumps(stored, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the value of {name} is not JSON: {error}") from error


def _expires(stored: Stored) -> float:
    """Return when an item expires, in milliseconds."""
    return stored["read"] + stored["ttl"] * _MS_PER_MINUTE if "ttl" in stored else math.inf


def _item(stored: Stored) -> Item:
    created, updated = (datetime.fromtimestamp(stored[name] / 1000, UTC) for name in ("created", "updated"))
    namespace, key = _name(stored)
    return Item(value=stored["value"], key=key, namespace=namespace, created_at=created, updated_at=updated)


def _name(stored: Stored) -> tuple[tuple[str, ...], str]:
    return tuple(stored["namespace"]), stored["key"]


def _in_memory(matches: Iterable[Match]) -> InMemoryStore:
    """Return items in LangGraph's store in memory, which applies filters and lists namespaces."""
    store = InMemoryStore()
    store.batch([PutOp(*_name(stored), stored["value"]) for _, stored in matches])
    return store


def _words(text: str) -> list[str]:
    return cast("list[str]", _WORD.findall(text.casefold()))
