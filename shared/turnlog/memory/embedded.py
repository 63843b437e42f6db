"""The embedded memory engine: facts in Turnlog's own table, one item for each part of a session, in the person's partition.

The facts of a part are written once, so a part that is handed over again changes nothing, even after facts of it were
forgotten. Parts of different sessions never share an item. Readers merge the facts into a person's memories: repeated facts
confirm, contradicting ones replace.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from turnlog.core.errors import ConflictError, InvalidInputError
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import Memory, MemoryFact, MemoryPage, Offloaded
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.headers import attribute, check_version, item_name, short_hash
from turnlog.log.keys import OwnerKeys, item_at
from turnlog.log.packing import decoding, json_in, pack
from turnlog.ports import Absent, Equal, Item, ItemTable, Key, Query, SearchEngine, TermDocuments, get_item, pages

if TYPE_CHECKING:
    from turnlog.memory.facts import MakeFacts

_WORDS = re.compile(r"\w+(?:['’.@+-]\w+)*")
_I_AM = re.compile(r"\bi['’]?m\b")
_ASIDE = re.compile(r"\b(?:currently|now|still|also|actually|just|really)\b|现在|目前|已经|一直|平时")
MAX_PART_FACTS = 100
"""Facts per part; the first ones are kept. Packed they take a few KB."""
MAX_FACTS = 500
"""Facts per person. Beyond it, replaced facts are deleted first, then the least confirmed, then the oldest."""
MAX_TEXT_CHARS, MAX_SUBJECT_CHARS = 300, 80
_TRIES = 10
SessionFact = tuple[str, MemoryFact]
"""The id of a session, and a fact of it."""


def _order(statement: SessionFact) -> tuple[int, int, str, str]:
    """Return a key that sorts facts by time."""
    session_id, fact = statement
    return fact.time_ms, fact.position, session_id, fact.text


def normal(text: str) -> str:
    """Return a text without case, punctuation and extra spaces, so that equal statements compare equal."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold())) or text.strip()


def claim_of(text: str) -> str:
    """Return a normal text without words such as ``currently``. A denial has the claim that it denies as its subject."""
    return " ".join(_ASIDE.sub(" ", _I_AM.sub("i am", normal(text))).split())[:MAX_SUBJECT_CHARS]


def memories_of(statements: Iterable[SessionFact], id_of: Callable[[str], str]) -> list[Memory]:
    """Return one memory for each distinct fact, newest first. ``id_of`` makes an id of a normal text.

    The order of ``statements`` does not matter.
    """
    by_text = dict[str, list[SessionFact]]()
    for statement in sorted(statements, key=_order):
        by_text.setdefault(normal(statement[1].text), []).append(statement)
    subjects, current = {repeats[-1][1].subject for repeats in by_text.values()} - {""}, dict[str, str]()
    about = {text: [repeats[-1][1].subject, claim_of(text)] for text, repeats in by_text.items()}
    for text, repeats in by_text.items():
        for subject in subjects.intersection(about[text]):
            if subject not in current or _order(by_text[current[subject]][-1]) < _order(repeats[-1]):
                current[subject] = text
    memories = list[Memory]()
    for text, repeats in by_text.items():
        session_id, fact = repeats[-1]
        winner = next((winner for subject in about[text] if (winner := current.get(subject, text)) != text), text)
        memories.append(
            Memory(
                id=id_of(text),
                text=fact.text,
                created_ms=fact.time_ms,
                kind=fact.kind,
                session_id=session_id,
                position=fact.position,
                replaced_by=id_of(winner) if winner != text else None,
                confirmations=len({(other_id, other.position) for other_id, other in repeats}),
                facts=tuple(repeats),
            )
        )
    return sorted(memories, key=newest_first, reverse=True)


def newest_first(memory: Memory) -> tuple[int, int, str]:
    """Return a memory's sort key in a list, which also marks where a page of the list ends."""
    return memory.created_ms, memory.position or 0, memory.id


def least_worth(memories: Iterable[Memory], count: int) -> list[Memory]:
    """Return the ``count`` memories to delete first: replaced ones, then the least confirmed, then the oldest."""
    ranked = sorted(
        memories, key=lambda memory: (memory.replaced_by is None, memory.confirmations, *newest_first(memory))
    )
    return ranked[: max(0, count)]


@lazy_dataclass(frozen=True, slots=True)
class _Part:
    """A stored item with the facts of one part of a session, and the digests of those that were forgotten."""

    key: Key
    revision: int
    facts: Sequence[MemoryFact]
    forgotten: Sequence[str] = ()

    @property
    def session_id(self) -> str:
        return self.key.sk.split("#")[1]

    def digests(self, fact: MemoryFact) -> list[str]:
        """Return two digests of a fact: of its place in this session, and of its place and words, which copies of it share."""
        place = f"{self.key.pk} {fact.position} {fact.time_ms} "
        return [short_hash(place + name).hex() for name in (self.session_id, normal(fact.text))]


class EmbeddedMemory:
    """Implements `MemoryEngine`: rules or a model make facts, and a search engine ranks them."""

    name = "embedded"

    def __init__(self, items: ItemTable, make: MakeFacts, search: SearchEngine) -> None:
        self._items = items
        self._make = make
        self._search = search

    def remember(self, part: Offloaded) -> int:
        """Make and store the facts of a part; return their number. A part that has facts already costs no model call."""
        item = get_item(self._items, _key_of(part))
        if item is not None:
            return len(_part(item).facts)
        return self.add(part, self._make(part.owner.tenant_id, part.read_messages()).facts)

    def add(self, part: Offloaded, facts: Sequence[MemoryFact]) -> int:
        """Store the facts of a part, without forgotten ones, unless it is stored already; return the number of stored facts."""
        forgotten = {digest for other in self._parts(part.owner) for digest in other.forgotten}
        facts = [
            replace(fact, text=fact.text[:MAX_TEXT_CHARS], subject=fact.subject[:MAX_SUBJECT_CHARS])
            for fact in facts[:MAX_PART_FACTS]
        ]
        new = _Part(_key_of(part), 1, facts)
        new = replace(new, facts=[fact for fact in facts if forgotten.isdisjoint(new.digests(fact))])
        lost = self._items.put(_item(new), condition=Absent())
        if lost is not None:
            return len(_part(lost.existing).facts) if lost.existing is not None else 0
        self._trim(part.owner)
        return len(new.facts)

    def read(self, owner: Owner) -> list[Memory]:
        """Return all memories of a person, newest first."""
        return memories_of(_facts_in(self._parts(owner)), _id_of(owner))

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """Return memories that share words with the question, best first; then the others, the most often confirmed first.

        One query to the table.
        """
        memories = [memory for memory in self.read(owner) if memory.replaced_by is None]
        memories.sort(key=lambda memory: (memory.confirmations, *newest_first(memory)), reverse=True)
        ranked = self._ranked(memories, question)
        rows = {row for row, _ in ranked}
        rest = [memory for row, memory in enumerate(memories) if row not in rows]
        return [*(replace(memories[row], score=round(score, 4)) for row, score in ranked), *rest][:limit]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """Return a page of memories, newest first. ``after`` is the ``next`` of the page before."""
        memories = self.read(owner)
        if after is not None:
            place = _place(after)
            memories = [memory for memory in memories if newest_first(memory) < place]
        shown = tuple(memories[:limit])
        following = ".".join(map(str, newest_first(shown[-1]))) if len(memories) > limit else None
        return MemoryPage(shown, following)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        """Delete memories from every session they came from."""
        ids, id_of = set(memory_ids), _id_of(owner)
        self._keep(self._parts(owner), lambda fact: id_of(normal(fact.text)) not in ids, forgets=True)

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        """Delete the facts of an owner, a session or a message; return their number."""
        if session_id is not None and position is not None:
            return self._keep(self._parts(owner, session_id), lambda fact: fact.position != position)
        parts = list(self._parts(owner, session_id))
        self._items.delete_many([part.key for part in parts])
        return sum(len(part.facts) for part in parts)

    def _trim(self, owner: Owner) -> None:
        """Delete the least valuable facts of a person beyond `MAX_FACTS`."""
        parts = list(self._parts(owner))
        if sum(len(part.facts) for part in parts) <= MAX_FACTS:
            return
        id_of = _id_of(owner)
        memories = memories_of(_facts_in(parts), id_of)
        dropped_ids = {memory.id for memory in least_worth(memories, len(memories) - MAX_FACTS)}
        # Equal facts are one memory, so there may be fewer memories than facts; then nothing is deleted.
        self._keep(parts, lambda fact: id_of(normal(fact.text)) not in dropped_ids)

    def _keep(self, parts: Iterable[_Part], is_kept: Callable[[MemoryFact], bool], *, forgets: bool = False) -> int:
        return sum(self._keep_of(part, is_kept, forgets=forgets) for part in parts)

    def _keep_of(self, part: _Part, is_kept: Callable[[MemoryFact], bool], *, forgets: bool) -> int:
        """Delete facts from a part; return their number. An empty part stays, or its facts would be made again."""
        for _ in range(_TRIES):
            remaining = [fact for fact in part.facts if is_kept(fact)]
            if len(remaining) == len(part.facts):
                return 0
            removed = [fact for fact in part.facts if forgets and not is_kept(fact)]
            forgotten = [*part.forgotten, *(digest for fact in removed for digest in part.digests(fact))]
            new = _Part(part.key, part.revision + 1, remaining, forgotten)
            lost = self._items.put(_item(new), condition=Equal("n", part.revision))
            if lost is None:
                return len(part.facts) - len(remaining)
            if lost.existing is None:
                return 0
            part = _part(lost.existing)
        raise ConflictError("another process changes the same memories; try again", retry_after_seconds=1)

    def _parts(self, owner: Owner, session_id: str | None = None) -> Iterator[_Part]:
        keys = OwnerKeys(owner)
        for items in pages(self._items, Query(keys.partition, *keys.memory_bounds(session_id))):
            yield from map(_part, items)

    def _ranked(self, memories: Sequence[Memory], question: str) -> list[tuple[int, float]]:
        """Return the index and score of memories that share words with the question, best first."""
        if not question.strip() or not memories:
            return []
        terms = self._search.terms([memory.text for memory in memories])
        return self._search.rank(TermDocuments.from_terms(terms), question).rows


def _facts_in(parts: Iterable[_Part]) -> Iterator[SessionFact]:
    return ((part.session_id, fact) for part in parts for fact in part.facts)


def _id_of(owner: Owner) -> Callable[[str], str]:
    """Return a function from a normal text to its memory's id. Ids are stable, and differ between owners."""
    prefix = f"{owner.tenant_id} {owner.user_id} "
    return lambda text: short_hash(prefix + text).hex()[:24]


def _item(part: _Part) -> Item:
    rows = [[fact.kind, fact.text, fact.subject, fact.position, fact.time_ms] for fact in part.facts]
    forgotten = " ".join(part.forgotten)
    return item_at(part.key, {"v": SCHEMA_VERSION, "n": part.revision, "b": pack(encode_json(rows)), "f": forgotten})


def _part(item: Item) -> _Part:
    name = item_name(item)
    check_version(item)
    rows = json_in(item)
    with decoding(name):
        facts = tuple(MemoryFact(*row) for row in rows)
    return _Part(Key(str(item["pk"]), name), attribute(item, "n", int), facts, str(item.get("f", "")).split())


def _key_of(part: Offloaded) -> Key:
    return OwnerKeys(part.owner).memories(part.session_id, part.id)


def _place(after: str) -> tuple[int, int, str]:
    created, _, rest = after.partition(".")
    position, _, memory_id = rest.partition(".")
    if not (created.isdecimal() and position.isdecimal() and memory_id):
        raise InvalidInputError("the cursor is no place in a list of memories", code="malformed")
    return int(created), int(position), memory_id
