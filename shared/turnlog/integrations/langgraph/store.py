"""A LangGraph store (langgraph-checkpoint 4.3) over documents: https://docs.langchain.com/oss/python/langgraph/stores.

    from turnlog.integrations.langgraph import TurnlogStore

    graph = builder.compile(checkpointer=TurnlogSaver(log), store=TurnlogStore(log))

The items of a store are documents of one session. Without an embedder, a search ranks items by the words of the query.
"""

from __future__ import annotations

import asyncio
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
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

from turnlog.client.documents import Documents
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.engines import SystemClock
from turnlog.integrations.langgraph.threads import short

_ROOT = "lgs/"
_MAX_LABEL, _MAX_KEY = 60, 120
_MS_PER_MINUTE = 60_000
_NOW_MS = SystemClock().now_ms
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": lambda value, other: float(value) > float(other),
    "$gte": lambda value, other: float(value) >= float(other),
    "$lt": lambda value, other: float(value) < float(other),
    "$lte": lambda value, other: float(value) <= float(other),
}
Stored = dict[str, Any]


class TurnlogStore(BaseStore):
    """A LangGraph store in the session ``session_id``, which is created with ``settings`` of `Sessions.create`.

    Values are JSON. A search reads all items below its namespace, a megabyte a request. With ``index`` (LangGraph's own
    configuration) values are embedded when they are put, and ranked by meaning. Expired items (``ttl``, minutes) are never
    returned; `sweep_ttl` deletes them. Calls of one batch that read see what was there before the batch.
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
        self._log, self._session_id, self._settings, self._now_ms = log, session_id, settings, now_ms
        self.ttl_config, self.index_config = ttl, index
        self._fields = list((index or {}).get("fields") or ["$"])
        self._embedder = ensure_embeddings(index["embed"]) if index is not None else None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        for op in operations:
            validate_op_namespace(op)
        answers: list[Result] = [None if isinstance(op, PutOp) else self._read(op) for op in operations]
        self._put({(op.namespace, op.key): op for op in operations if isinstance(op, PutOp)})
        return answers

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete expired items, and return their number."""
        now = self._now_ms()
        expired = [key for key, stored in self._list(()) if _expires(stored) <= now]
        if expired:
            self._documents.delete(expired)
        return len(expired)

    # ------------------------------------------------------------ reading

    @property
    def _documents(self) -> Documents:
        return self._log.sessions.of(self._session_id).documents

    def _read(self, op: GetOp | SearchOp | ListNamespacesOp) -> Result:
        if isinstance(op, GetOp):
            stored = self._get([(op.namespace, op.key)])
            self._refresh(op.refresh_ttl, stored)
            return next((_item(value) for value in stored.values()), None)
        return self._search(op) if isinstance(op, SearchOp) else self._namespaces(op)

    def _get(self, names: Iterable[tuple[tuple[str, ...], str]]) -> dict[str, Stored]:
        """Return the items that are there, by their documents' keys."""
        with suppress(NotFoundError):
            documents = self._documents.get_many([_key(*name) for name in names])
            stored = {key: json.loads(document.data) for key, document in documents.items()}
            return {key: value for key, value in stored.items() if _expires(value) > self._now_ms()}
        return {}

    def _list(self, prefix: tuple[str, ...]) -> Iterator[tuple[str, Stored]]:
        with suppress(NotFoundError):
            for document in self._documents.list(_folder(prefix)):
                yield document.key, json.loads(document.data)

    def _living(self, prefix: tuple[str, ...]) -> list[tuple[str, Stored]]:
        now = self._now_ms()
        return [(key, stored) for key, stored in self._list(prefix) if _expires(stored) > now]

    def _search(self, op: SearchOp) -> list[SearchItem]:
        matches = [
            (key, stored)
            for key, stored in self._living(op.namespace_prefix)
            if all(_matches(stored["value"].get(name), wanted) for name, wanted in (op.filter or {}).items())
        ]
        scores: Sequence[float | None] = [None] * len(matches)
        if op.query:
            scores = self._scores(op.query, [stored for _, stored in matches])
            order = sorted(range(len(matches)), key=lambda index: -(scores[index] or 0.0))
            matches, scores = [matches[index] for index in order], [scores[index] for index in order]
        page = slice(op.offset, op.offset + op.limit)
        self._refresh(op.refresh_ttl, dict(matches[page]))
        return [
            SearchItem(**_item(stored).dict() | {"namespace": tuple(stored["namespace"])}, score=score)
            for (_, stored), score in zip(matches[page], scores[page], strict=True)
        ]

    def _scores(self, query: str, items: Sequence[Stored]) -> list[float | None]:
        if self._embedder is None:
            words = set(_words(query))
            return [len(words & set(_words(_text(stored)))) / max(1, len(words)) for stored in items]
        vector = self._embedder.embed_query(query)
        return [max((_cosine(vector, own) for own in stored.get("vectors", ())), default=None) for stored in items]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        every = {tuple(stored["namespace"]) for _, stored in self._living(())}
        kept = [name for name in every if all(_fits(condition, name) for condition in op.match_conditions or ())]
        return sorted({name[: op.max_depth] for name in kept})[op.offset : op.offset + op.limit]

    # ------------------------------------------------------------ writing

    def _put(self, ops: Mapping[tuple[tuple[str, ...], str], PutOp]) -> None:
        if not ops:
            return
        before, now = self._get(ops), self._now_ms()
        new = {
            _key(*name): self._stored(op, before.get(_key(*name)), now)
            for name, op in ops.items()
            if op.value is not None
        }
        gone = [_key(*name) for name, op in ops.items() if op.value is None and _key(*name) in before]
        if new:
            self._write(new)
        if gone:
            self._documents.delete(gone)

    def _write(self, items: Mapping[str, Stored]) -> None:
        data = {key: _dumped(key, stored) for key, stored in items.items()}
        try:
            self._documents.put_many(data)
        except NotFoundError:
            self._log.sessions.get_or_create(self._session_id, **self._settings)
            self._documents.put_many(data)

    def _stored(self, op: PutOp, before: Stored | None, now: int) -> Stored:
        stored: Stored = {"namespace": op.namespace, "key": op.key, "value": op.value, "updated": now, "read": now}
        stored["created"] = before["created"] if before is not None else now
        if op.ttl is not None:
            stored["ttl"] = op.ttl
        if self._embedder is not None and op.index is not False:
            paths = self._fields if op.index is None else op.index
            texts = [
                text
                for path in paths
                for text in get_text_at_path(op.value, path if path == "$" else tokenize_path(path))
            ]
            stored["vectors"] = self._embedder.embed_documents(texts) if texts else []
        return stored

    def _refresh(self, is_wanted: bool, items: Mapping[str, Stored]) -> None:
        """Let the time of items that expire begin again."""
        expiring = {key: {**stored, "read": self._now_ms()} for key, stored in items.items() if "ttl" in stored}
        if is_wanted and expiring:
            self._write(expiring)


def _folder(namespace: Sequence[str]) -> str:
    return _ROOT + "".join(f"{short(label, _MAX_LABEL)}/" for label in namespace)


def _key(namespace: Sequence[str], key: str) -> str:
    return f"{_folder(namespace)}/{short(key, _MAX_KEY)}"


def _dumped(key: str, stored: Stored) -> bytes:
    try:
        return json.dumps(stored, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the value of {key[:80]!r} is not JSON: {error}") from error


def _expires(stored: Stored) -> float:
    """Return when an item expires, in milliseconds."""
    return stored["read"] + stored["ttl"] * _MS_PER_MINUTE if "ttl" in stored else math.inf


def _item(stored: Stored) -> Item:
    created, updated = (datetime.fromtimestamp(stored[name] / 1000, UTC) for name in ("created", "updated"))
    return Item(
        value=stored["value"],
        key=stored["key"],
        namespace=tuple(stored["namespace"]),
        created_at=created,
        updated_at=updated,
    )


def _matches(value: Any, wanted: Any) -> bool:
    """Return whether a value is what a filter wants: equal, or within its operators, in nested objects and lists too."""
    if isinstance(wanted, Mapping):
        if any(name.startswith("$") for name in wanted):
            return all(_compared(value, name, other) for name, other in wanted.items())
        return isinstance(value, Mapping) and all(_matches(value.get(name), item) for name, item in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_matches, value, wanted))
    return bool(value == wanted)


def _compared(value: Any, name: str, other: Any) -> bool:
    if name not in _OPERATORS:
        raise ValueError(f"operator {name!r} of a filter is not one of {', '.join(_OPERATORS)}")
    return _OPERATORS[name](value, other)


def _fits(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :] if path else ()
    return len(namespace) >= len(path) and all(own in ("*", label) for own, label in zip(path, part, strict=True))


def _text(stored: Stored) -> str:
    return json.dumps([stored["key"], stored["value"]], ensure_ascii=False)


def _words(text: str) -> list[str]:
    return cast("list[str]", _WORD.findall(text.casefold()))


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(first, second, strict=True))
    sizes = math.hypot(*first) * math.hypot(*second)
    return product / sizes if sizes else 0.0
