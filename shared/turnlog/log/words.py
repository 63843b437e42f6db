"""Which words a session has, in one small item beside its log: enough to tell which of an owner's sessions to look into.

A word is kept as three bytes of a hash, in one of four classes by how often it stands there. So two words may look the same: what
is found so is looked up in the session itself. A cache: what is missing or behind is made anew, and no answer is made of it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from turnlog.domain.values import dataclass
from turnlog.log.keys import SessionKeys
from turnlog.log.tombstones import is_cache_tombstone
from turnlog.ports import AttributeValue, Item, ItemTable, Less

VERSION = 1
MAX_WORDS = 30_000
"""Of a session; rarer ones are left out."""
_BYTES = 3
_CLASSES = ((8, "w8"), (4, "w4"), (2, "w2"), (1, "w1"))
"""How often a word stands there at least, and the attribute that has such words."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a session as of a position, read at a time. ``length`` counts all of them, repeated ones too."""

    position: int
    read_ms: int
    length: int
    classes: tuple[bytes, ...]

    @classmethod
    def of(cls, counts: Mapping[str, int], *, position: int, read_ms: int) -> Words:
        found: list[list[bytes]] = [[] for _ in _CLASSES]
        often = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MAX_WORDS]
        for word, count in often:
            found[next(at for at, (least, _) in enumerate(_CLASSES) if count >= least)].append(word_hash(word))
        return cls(position, read_ms, sum(counts.values()), tuple(b"".join(sorted(one)) for one in found))

    def count(self, hashed: bytes) -> int:
        """How often a word stands there, at least; 0 for one that does not."""
        for (least, _), words in zip(_CLASSES, self.classes, strict=True):
            at = words.find(hashed)
            while at >= 0 and at % _BYTES:
                at = words.find(hashed, at + 1)
            if at >= 0:
                return least
        return 0


def word_hash(word: str) -> bytes:
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:_BYTES]


class SessionWords:
    """Reads and writes what is known of sessions' words."""

    def __init__(self, items: ItemTable, engine: str) -> None:
        """``engine`` is the name of the search engine that has cut the words."""
        self._items = items
        self._engine = engine

    def read(self, sessions: Sequence[SessionKeys]) -> dict[str, Words]:
        """By session; those of another engine or version are as if they were not there."""
        found = self._items.get_many([keys.words for keys in sessions], consistent=False)
        read = {keys.session_id: found.get(keys.words) for keys in sessions}
        return {
            session_id: words
            for session_id, item in read.items()
            if item is not None and (words := self._read(item)) is not None
        }

    def write(self, keys: SessionKeys, words: Words) -> None:
        """Unless what is there was read later, or the session has been erased."""
        classes: dict[str, AttributeValue] = {
            name: found for (_, name), found in zip(_CLASSES, words.classes, strict=True) if found
        }
        place: dict[str, AttributeValue] = {"pk": keys.words.pk, "sk": keys.words.sk, "pos": words.position}
        item = {**place, "v": VERSION, "e": self._engine, "c": words.read_ms, "n": words.length, **classes}
        self._items.put(item, condition=Less("c", words.read_ms + 1))

    def _read(self, item: Item) -> Words | None:
        if is_cache_tombstone(item) or (item.get("v"), item.get("e")) != (VERSION, self._engine):
            return None
        position, read_ms, length = item.get("pos"), item.get("c"), item.get("n")
        classes = [item.get(name, b"") for _, name in _CLASSES]
        if not isinstance(position, int) or not isinstance(read_ms, int) or not isinstance(length, int):
            return None
        return Words(position, read_ms, length, tuple(one for one in classes if isinstance(one, bytes)))
