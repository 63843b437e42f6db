"""The contract suite of `MemoryEngine`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TypeAlias

from turnlog.core.identity import Owner
from turnlog.core.memory import Memory, Offloaded, SpokenMessage
from turnlog.ports import MemoryEngine

Settle: TypeAlias = Callable[[], None]
"""Waits until the engine has made the memories that it makes in the background."""

ADA, BOB = Owner.of("acme", "ada"), Owner.of("acme", "bob")
OTHER_ADA = Owner.of("umbrella", "ada")
TEA, CITY, DOG = "I prefer green tea over coffee.", "I live in Lisbon.", "My dog is called Rufus."
_START_MS = 1_763_683_200_000


class MemoryEngineContract:
    """Tests of a `MemoryEngine`. Fixtures: ``memory``, an empty engine, and ``settle``, a `Settle`.

    The suite passes plain sentences in which people describe themselves. The engine, or a fake server behind it, must make at least
    one memory of each sentence that contains its key word: tea, Lisbon or Rufus.
    """

    tells_places: bool = True
    """Whether memories name their session and message. An engine that can't tell messages apart names neither."""
    replaces: bool = True
    """Whether a newer memory replaces an older one that contradicts it."""
    counts: bool = True
    """Whether `remember` returns the number of memories made. False for an engine that makes them in the background."""

    def test_what_is_told_is_known_and_listed(self, memory: MemoryEngine, settle: Settle) -> None:
        made = memory.remember(part_of(ADA, "s1", [TEA, CITY, DOG]))
        settle()
        assert made == 3 if self.counts else made == 0
        listed = every(memory, ADA)
        assert len(listed) == len({item.id for item in listed}) >= 3
        for word, position in (("tea", 2), ("Lisbon", 4), ("Rufus", 6)):
            matches = having(listed, word)
            assert matches, word
            if self.tells_places:
                assert {(match.session_id, match.position) for match in matches} == {("s1", position)}
            known = memory.known(ADA, word, limit=10, timeout_seconds=5)
            assert having(known, word), "it is known when it is asked for"
        assert len(memory.known(ADA, "", limit=10, timeout_seconds=5)) >= 3, "asked for nothing, it says what there is"

    def test_the_same_part_again_has_no_further_effect(self, memory: MemoryEngine, settle: Settle) -> None:
        part = part_of(ADA, "s1", [TEA, CITY])
        memory.remember(part)
        settle()
        before = every(memory, ADA)
        for _ in range(2):
            memory.remember(part)
            settle()
            assert every(memory, ADA) == before

    def test_parts_of_a_session_add_up(self, memory: MemoryEngine, settle: Settle) -> None:
        memory.remember(part_of(ADA, "s1", [TEA]))
        memory.remember(part_of(ADA, "s1", [CITY], first=10))
        memory.remember(part_of(ADA, "s2", [DOG]))
        settle()
        assert all(having(every(memory, ADA), word) for word in ("tea", "Lisbon", "Rufus"))

    def test_a_part_in_which_nothing_is_told_makes_nothing(self, memory: MemoryEngine, settle: Settle) -> None:
        assert memory.remember(part_of(ADA, "s1", [])) == 0
        settle()
        assert every(memory, ADA) == []
        assert memory.known(ADA, "tea", limit=5, timeout_seconds=5) == []

    def test_people_are_apart(self, memory: MemoryEngine, settle: Settle) -> None:
        for owner, sentence in ((ADA, TEA), (BOB, CITY), (OTHER_ADA, DOG)):
            memory.remember(part_of(owner, "s1", [sentence]))
        settle()
        assert having(every(memory, ADA), "tea")
        for owner in (BOB, OTHER_ADA):
            assert not having(every(memory, owner), "tea")
            assert not having(memory.known(owner, "tea", limit=9, timeout_seconds=5), "tea")
            memory.forget(owner, [item.id for item in every(memory, ADA)])
            memory.erase(owner, "s1")
            memory.erase(owner)
            assert every(memory, owner) == []
        assert having(every(memory, ADA), "tea"), "nobody forgets or erases another's"

    def test_a_list_in_pages_has_everything_once_newest_first(self, memory: MemoryEngine, settle: Settle) -> None:
        for number, sentence in enumerate((TEA, CITY, DOG)):
            memory.remember(part_of(ADA, f"s{number}", [sentence], time_ms=_START_MS + number * 60_000))
        settle()
        listed = every(memory, ADA)
        assert [item.created_ms for item in listed] == sorted((item.created_ms for item in listed), reverse=True)
        assert every(memory, ADA, limit=1) == listed
        page = memory.page(ADA, limit=2)
        assert len(page.memories) <= 2
        assert page.next is not None or len(listed) <= 2

    def test_known_keeps_to_its_limit(self, memory: MemoryEngine, settle: Settle) -> None:
        memory.remember(part_of(ADA, "s1", [TEA, CITY, DOG]))
        settle()
        for question in ("", "tea"):
            assert len(memory.known(ADA, question, limit=1, timeout_seconds=5)) == 1

    def test_forgotten_is_gone_and_not_made_again(self, memory: MemoryEngine, settle: Settle) -> None:
        part = part_of(ADA, "s1", [TEA, CITY])
        memory.remember(part)
        settle()
        forgotten = having(every(memory, ADA), "tea")
        memory.forget(ADA, [*(item.id for item in forgotten), "unknown-id"])
        memory.forget(ADA, [item.id for item in forgotten])
        for _ in range(2):
            assert not having(every(memory, ADA), "tea")
            assert not having(memory.known(ADA, "tea", limit=9, timeout_seconds=5), "tea")
            assert having(every(memory, ADA), "Lisbon")
            memory.remember(part)
            settle()

    def test_a_session_is_erased_and_no_other(self, memory: MemoryEngine, settle: Settle) -> None:
        memory.remember(part_of(ADA, "s1", [TEA]))
        memory.remember(part_of(ADA, "s1", [DOG], first=10))
        memory.remember(part_of(ADA, "s12", [CITY]))
        settle()
        assert memory.erase(ADA, "s1") >= 1
        left = every(memory, ADA)
        assert not having(left, "tea") and not having(left, "Rufus") and having(left, "Lisbon")
        assert memory.erase(ADA, "s1") == 0
        assert memory.erase(ADA, "never") == 0

    def test_a_message_is_erased(self, memory: MemoryEngine, settle: Settle) -> None:
        part = part_of(ADA, "s1", [TEA, CITY])
        memory.remember(part)
        memory.remember(part_of(ADA, "s2", [DOG]))
        settle()
        assert memory.erase(ADA, "s1", position=2) >= 1
        for _ in range(2):
            left = every(memory, ADA)
            assert not having(left, "tea") and having(left, "Rufus")
            if self.tells_places:
                assert having(left, "Lisbon")
                memory.remember(part)  # an erased memory is not made again
                settle()

    def test_a_person_is_erased_and_no_other(self, memory: MemoryEngine, settle: Settle) -> None:
        for owner in (ADA, BOB):
            memory.remember(part_of(owner, "s1", [TEA]))
            memory.remember(part_of(owner, "s2", [CITY]))
        settle()
        assert memory.erase(ADA) >= 2
        assert every(memory, ADA) == []
        assert memory.known(ADA, "tea", limit=9, timeout_seconds=5) == []
        assert having(every(memory, BOB), "tea") and having(every(memory, BOB), "Lisbon")
        assert memory.erase(ADA) == 0

    def test_a_newer_one_replaces_an_older_and_both_are_listed(self, memory: MemoryEngine, settle: Settle) -> None:
        memory.remember(part_of(ADA, "s1", [CITY]))
        memory.remember(part_of(ADA, "s2", ["I live in Porto."], time_ms=_START_MS + 60_000))
        settle()
        if not self.replaces:
            return
        listed = every(memory, ADA)
        ((old,), (new,)) = having(listed, "Lisbon"), having(listed, "Porto")
        assert (old.replaced_by, new.replaced_by) == (new.id, None)
        known = memory.known(ADA, "where do I live", limit=9, timeout_seconds=5)
        assert having(known, "Porto") and not having(known, "Lisbon")

    def test_any_text_is_taken(self, memory: MemoryEngine, settle: Settle) -> None:
        odd = [
            "\x00\x07 \u2028 \ud83e\udd80 \ud83e",
            "我喜欢喝绿茶。",
            "x" * 200_000,
            '{"a": [1, "' * 500,
            "]]> <b>&amp;",
        ]
        memory.remember(part_of(ADA, "s1", [*odd, CITY]))
        settle()
        assert having(every(memory, ADA), "Lisbon")

    def test_many_parts(self, memory: MemoryEngine, settle: Settle) -> None:
        for number in range(30):
            memory.remember(part_of(ADA, f"s{number}", [f"My cat number {number} is called Mia{number}x."]))
        settle()
        listed = every(memory, ADA, limit=7)
        assert len(listed) == len({item.id for item in listed})
        assert [number for number in range(30) if not having(listed, f"Mia{number}x")] == []


def part_of(
    owner: Owner, session_id: str, sentences: Sequence[str], *, first: int = 1, time_ms: int = _START_MS
) -> Offloaded:
    """Return a part in which a user says the sentences, each answered, from the position after ``first`` on."""

    def read_messages() -> Iterable[SpokenMessage]:
        for index, sentence in enumerate(sentences):
            position = first + 1 + 2 * index
            yield SpokenMessage(position, "user", sentence, time_ms + position)
            yield SpokenMessage(
                position + 1, "assistant", "I see. What else would you like to do?", time_ms + position + 1
            )

    last = first + 2 * len(sentences)
    names = f"{owner.tenant_id} {owner.user_id} {session_id} {first} {sentences}"
    part_id = sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Offloaded(part_id, owner, session_id, first, last, time_ms + last, "ended", read_messages)


def every(memory: MemoryEngine, owner: Owner, *, limit: int = 100) -> list[Memory]:
    """Return all memories of an owner, page by page."""
    memories, after = list[Memory](), None
    while True:
        page = memory.page(owner, limit=limit, after=after)
        memories += page.memories
        after = page.next
        if after is None:
            return memories


def having(memories: Iterable[Memory], word: str) -> list[Memory]:
    return [memory for memory in memories if word in memory.text]
