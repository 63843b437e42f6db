"""Merge facts from many sessions into a person's memories: repeated facts confirm, contradicting ones replace. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import Memory, MemoryFact

_WORDS = re.compile(r"\w+(?:['’.@+-]\w+)*")


@lazy_dataclass(frozen=True, slots=True)
class SessionFact:
    """A fact, and the session that it came from."""

    fact: MemoryFact
    session_id: str

    @property
    def order(self) -> tuple[int, int, str, str]:
        """A key that sorts facts by time."""
        fact = self.fact
        return fact.time_ms, fact.position, self.session_id, fact.text


def normal(text: str) -> str:
    """Return a text without case, punctuation and extra spaces, so that equal statements compare equal."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold())) or text.strip()


def memories_of(statements: Iterable[SessionFact], id_of: Callable[[str], str]) -> list[Memory]:
    """Return one memory for each distinct fact, newest first. ``id_of`` makes an id of a normal text.

    The order of ``statements`` does not matter.
    """
    by_text = dict[str, list[SessionFact]]()
    for statement in statements:
        by_text.setdefault(normal(statement.fact.text), []).append(statement)
    newest = {text: max(repeats, key=lambda repeat: repeat.order) for text, repeats in by_text.items()}
    current = dict[str, str]()
    for text, statement in newest.items():
        subject = statement.fact.subject
        if subject and (subject not in current or newest[current[subject]].order < statement.order):
            current[subject] = text
    memories = list[Memory]()
    for text, statement in newest.items():
        winner = current.get(statement.fact.subject, text)
        memories.append(
            Memory(
                id=id_of(text),
                text=statement.fact.text,
                created_ms=statement.fact.time_ms,
                kind=statement.fact.kind,
                session_id=statement.session_id,
                position=statement.fact.position,
                replaced_by=id_of(winner) if winner != text else None,
                confirmations=len({(other.session_id, other.fact.position) for other in by_text[text]}),
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
