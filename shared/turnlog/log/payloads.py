"""Payloads that are stored out of line: above 2 KB packed in an item beside the commits, from 32 KB packed in the blob store.

A payload is stored before the commit that names it. A payload without a commit is garbage and never visible.

A commit holds a card of each message that is stored out of line. A window is planned from cards and fetches only the payloads
that it renders in full. A card has the first 700 characters of the text, the calls with shortened arguments, the beginnings of
the results, and the ledger. Its size is limited. A message with too many calls has no card (``None``) and is always fetched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from turnlog.core.calls import CARD_CHARS, CARD_NAME, CallOutline, MessageOutline, ResultOutline
from turnlog.core.errors import CorruptError, TooLargeError
from turnlog.core.events import Payload
from turnlog.core.json_values import JsonObject, JsonValue, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.log.headers import attribute
from turnlog.log.keys import BLOB_PLACE, SessionKeys, item_at
from turnlog.log.packing import MAX_UNPACKED_BYTES, pack, unpack
from turnlog.ports import Absent, BlobStore, ItemTable, Key
from turnlog.windows.ledger import EXTRACTOR_VERSION, bounded, ledger_of_facts

INLINE_BYTES = 2 * 1024
BLOB_BYTES = 32 * 1024
_PARALLEL = 8
MAX_CARD_BYTES = 8 * 1024
_MAX_CALLS = 64
_ARGUMENT_CHARS = (200, 60, 16)
_A = TypeVar("_A")
_T = TypeVar("_T")


class Payloads:
    """Stores contents that are too large for a commit, in items or blobs of their own, and reads them back."""

    def __init__(self, items: ItemTable, blobs: BlobStore) -> None:
        self._items = items
        self._blobs = blobs

    def prepare(
        self, keys: SessionKeys, content: bytes, *, position: int, nonce: bytes, index: int
    ) -> PreparedPayload | None:
        """Return the content packed with its future place, without storing it; None when it is small enough for its commit.

        Raises `TooLargeError` for a content that `fetch` would refuse: a message of the largest size with long metadata.
        """
        if len(content) > MAX_UNPACKED_BYTES:
            raise TooLargeError(
                f"a message with its metadata has {len(content):,} bytes; the limit is {MAX_UNPACKED_BYTES:,}"
            )
        if len(content) <= INLINE_BYTES or len(packed := pack(content)) <= INLINE_BYTES:
            return None
        in_blob = len(packed) >= BLOB_BYTES
        key = keys.payload(position, nonce, index)
        name = keys.blob(position, nonce, index)
        place = BLOB_PLACE + name[len(keys.blob_prefix) :] if in_blob else key.sk
        return PreparedPayload(Payload(place, len(content), digest_of(content)), packed, key, name if in_blob else None)

    def store(self, prepared: Sequence[PreparedPayload]) -> None:
        """Store payloads, several in parallel. They are durable when the call returns."""
        in_parallel(self._store_one, prepared, threads=_PARALLEL)

    def content(self, keys: SessionKeys, payload: Payload) -> bytes:
        """Return the content of a payload. Raises `CorruptError` when it is missing or damaged."""
        return self.fetch(keys, [payload])[payload.place]

    def fetch(self, keys: SessionKeys, wanted: Iterable[Payload]) -> dict[str, bytes]:
        """Return the contents by place. Raises `CorruptError` for a missing or damaged payload."""
        payloads = {payload.place: payload for payload in wanted}
        if not payloads:
            return {}
        in_items = [payload for payload in payloads.values() if not is_blob(payload)]
        in_blobs = [payload for payload in payloads.values() if is_blob(payload)]
        packed = dict[str, bytes | None]()
        if in_items:
            by_place = {payload.place: Key(payload.home or keys.partition, payload.place) for payload in in_items}
            items = self._items.get_many(list(by_place.values()))
            packed |= {place: attribute(items[key], "b", bytes) for place, key in by_place.items() if key in items}
        contents = in_parallel(lambda payload: self._get_blob(keys, payload), in_blobs, threads=_PARALLEL)
        packed |= dict(zip((payload.place for payload in in_blobs), contents, strict=True))
        return {place: _checked(payload, packed.get(place)) for place, payload in payloads.items()}

    def copy(self, to: SessionKeys, payloads: Sequence[Payload]) -> None:
        """Copy payloads unchanged to the same places in another partition. Raises `CorruptError` for a missing one."""
        keys = [Key(payload.home, payload.place) for payload in payloads if not is_blob(payload)]
        items = self._items.get_many(keys) if keys else {}
        for key in keys:
            if key not in items:
                raise CorruptError("a payload that a commit names is missing", item=key.sk)
        if items:
            self._items.write_many([{**item, "pk": to.partition} for item in items.values()])
        for payload in payloads:
            if is_blob(payload):
                self._blobs.put(to.payload_blob(payload.place), self._get_blob(to, payload))

    def copy_blobs(self, to: SessionKeys, payloads: Sequence[Payload]) -> None:
        """Copy only the payloads in the blob store to another partition."""
        self.copy(to, [payload for payload in payloads if is_blob(payload)])

    def _get_blob(self, keys: SessionKeys, payload: Payload) -> bytes:
        home = keys.home(payload.home) if payload.home else keys
        data = self._blobs.get(home.payload_blob(payload.place))
        if data is None:
            message = f"a payload that a commit names is missing in {self._blobs.place}"
            raise CorruptError(message, item=payload.place)
        return data

    def _store_one(self, prepared: PreparedPayload) -> None:
        if prepared.blob_name is not None:
            self._blobs.put(prepared.blob_name, prepared.packed)
            return
        # The key has this commit's nonce, so an existing item is from an earlier try of this put whose answer was lost.
        self._items.put(item_at(prepared.key, {"b": prepared.packed}), condition=Absent())


@lazy_dataclass(frozen=True, slots=True)
class PreparedPayload:
    """A packed payload with its place that is not stored yet: in the blob ``blob_name``, or in an item when that is None."""

    payload: Payload
    packed: bytes
    key: Key
    blob_name: str | None


def is_blob(payload: Payload) -> bool:
    """Return whether the payload is in the blob store, not in an item beside the commits."""
    return payload.place.startswith(BLOB_PLACE)


def digest_of(content: bytes) -> str:
    """Return the digest of a content. Its prefix names the algorithm (``s``: SHA-256), so that others can be added."""
    return "s:" + hashlib.sha256(content).hexdigest()[:32]


def _checked(payload: Payload, packed: bytes | None) -> bytes:
    if packed is None:
        raise CorruptError("a payload that a commit names is missing", item=payload.place)
    content = unpack(packed, item=payload.place)
    if digest_of(content) != payload.digest:
        raise CorruptError("a payload is not the one its commit names", item=payload.place)
    return content


def make_card(facts: MessageOutline) -> JsonObject | None:
    """Return the card for a message's outline, of at most `MAX_CARD_BYTES`.

    Returns None when the message has too many calls or results.
    """
    if len(facts.calls) > _MAX_CALLS or len(facts.results) > _MAX_CALLS:
        return None
    ledger = bounded(ledger_of_facts(facts))
    for arguments in _ARGUMENT_CHARS:
        card = _card_with(facts, ledger, arguments)
        if len(encode_json(card)) <= MAX_CARD_BYTES:
            return card
        ledger = ledger[: len(ledger) // 4]
    return None


def read_card(card: dict[str, Any]) -> MessageOutline:
    """Return the outline that a card holds.

    Cards of before do not say of an assistant's message whether it compacts. Only an item of OpenAI says so by its type.
    """
    role, given_role = card["r"], card.get("g", card["r"])
    unsaid = given_role == "compaction" or (None if role == "assistant" else False)
    return MessageOutline(
        role=role,
        head=card.get("x", ""),
        chars=card.get("n", 0),
        calls=tuple(CallOutline(*call) for call in card.get("c", ())),
        results=tuple(
            ResultOutline(key, name, bool(flags & 1), bool(flags & 2), text, chars)
            for key, name, flags, text, chars in card.get("o", ())
        ),
        ledger=tuple(card.get("l", ())),
        given_role=given_role,
        name=card.get("a", ""),
        has_closing=bool(card.get("e")),
        compacts=card.get("k", unsaid),
    )


def _card_with(facts: MessageOutline, ledger: tuple[str, ...], argument_chars: int) -> JsonObject:
    preview = CARD_CHARS // max(1, len(facts.results))
    is_assistant = facts.role == "assistant"
    calls: list[JsonValue] = [
        [call.key, call.name[:CARD_NAME], shortened(call.arguments, argument_chars), *([True] if call.hosted else [])]
        for call in facts.calls
    ]
    results: list[JsonValue] = [
        [result.key, result.name[:CARD_NAME], result.by_name + 2 * result.is_error, result.text[:preview], result.chars]
        for result in facts.results
    ]
    optional: JsonObject = {
        "g": facts.given_role[:CARD_NAME] if facts.given_role != facts.role else "",
        "a": facts.name[:CARD_NAME],
        "e": facts.has_closing,
        "k": bool(facts.compacts) if is_assistant or facts.compacts else None,
        "x": facts.head[:CARD_CHARS],
        "c": calls,
        "o": results,
        "l": list(ledger),
        "lv": EXTRACTOR_VERSION if ledger else None,
    }
    said = {name: value for name, value in optional.items() if value or (name == "k" and value is not None)}
    return {"r": facts.role, "n": facts.chars, **said}


def shortened(text: str, chars: int) -> str:
    """Return the text, cut to ``chars`` characters and an ellipsis when it is longer."""
    return text if len(text) <= chars else text[:chars] + "…"


def in_parallel(work: Callable[[_A], _T], items: Sequence[_A], *, threads: int, sequential: int = 1) -> list[_T]:
    """Return the results of ``work`` for each item, in order, computed in up to ``threads`` threads.

    Up to ``sequential`` items are handled one after the other without threads. Raises the first error, after the calls that
    had begun have ended.
    """
    if len(items) <= sequential:
        return list(map(work, items))
    from concurrent.futures import ThreadPoolExecutor

    # Only one thread at a time can enter a context, so each call has its own copy.
    contexts = [copy_context() for _ in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda context, item: context.run(work, item), contexts, items))
