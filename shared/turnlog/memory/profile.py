"""What is known of a person, out of facts from many sessions: said again is confirmed, said otherwise is replaced. Pure."""

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
        fact = self.fact
        return fact.time_ms, fact.position, self.session_id, fact.text


def normal(text: str) -> str:
    """Equal for texts that say the same in the same words: no case, no punctuation, no spaces more than one."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold())) or text.strip()


def memories_of(told: Iterable[SessionFact], id_of: Callable[[str], str]) -> list[Memory]:
    """One memory for each thing that was said, newest first. ``id_of`` makes an id of a normal text.

    The order of ``told`` does not matter: equal facts, however they were gathered, give equal memories.
    """
    same = dict[str, list[SessionFact]]()
    for one in told:
        same.setdefault(normal(one.fact.text), []).append(one)
    newest = {text: max(found, key=lambda one: one.order) for text, found in same.items()}
    in_force = dict[str, str]()
    for text, one in newest.items():
        subject = one.fact.subject
        if subject and (subject not in in_force or newest[in_force[subject]].order < one.order):
            in_force[subject] = text
    made = list[Memory]()
    for text, one in newest.items():
        winner = in_force.get(one.fact.subject, text)
        made.append(
            Memory(
                id=id_of(text),
                text=one.fact.text,
                created_ms=one.fact.time_ms,
                kind=one.fact.kind,
                session_id=one.session_id,
                position=one.fact.position,
                replaced_by=id_of(winner) if winner != text else None,
                confirmations=len({(other.session_id, other.fact.position) for other in same[text]}),
            )
        )
    return sorted(made, key=newest_first, reverse=True)


def newest_first(memory: Memory) -> tuple[int, int, str]:
    """The order of a list of memories, and where a page of it ends."""
    return memory.created_ms, memory.position or 0, memory.id


def least_worth(memories: Iterable[Memory], count: int) -> list[Memory]:
    """So many that go when there are too many: those that were replaced, then the least confirmed, of equals the oldest."""
    ranked = sorted(memories, key=lambda one: (one.replaced_by is None, one.confirmations, *newest_first(one)))
    return ranked[: max(0, count)]
