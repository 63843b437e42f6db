"""What is known of a person: merged, replaced, counted, capped, forgotten; by pages, whatever others do at the same time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.conftest import Harness
from tests.explorer import ScheduleRun, explore
from tests.support.offloads import Recorder, embedded_memory
from tests.support.steps import fresh
from turnlog.core.errors import ConflictError, MalformedError
from turnlog.core.identity import Owner
from turnlog.core.memory import Memory, MemoryFact, Offloaded, SpokenMessage
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import OwnerKeys
from turnlog.memory.embedded import (
    MAX_FACTS,
    MAX_PART_FACTS,
    EmbeddedMemory,
    least_worth,
    memories_of,
    normal,
)
from turnlog.memory.facts import SentenceFacts
from turnlog.ports import (
    MAX_ITEM_BYTES,
    BlobStore,
    Condition,
    Equal,
    Item,
    ItemTable,
    Key,
    Lost,
    item_size_bytes,
)
from turnlog.testing.contracts.memory import part_of

SQLITE = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
"""What is decided above the engines is tried on one of them."""
ADA = Owner.of("acme", "ada")


def fact(text: str, subject: str = "", *, position: int = 2, time_ms: int = 1_000) -> MemoryFact:
    return MemoryFact("entity", text, subject, position, time_ms)


def from_session(fact: MemoryFact, session_id: str) -> tuple[str, MemoryFact]:
    return session_id, fact


def part(session_id: str, number: int = 1) -> Offloaded:
    return part_of(ADA, session_id, [], first=number)


def texts(memories: EmbeddedMemory) -> list[str]:
    return [item.text for item in memories.read(ADA)]


def test_said_again_is_confirmed_and_said_otherwise_replaces() -> None:
    result = [
        from_session(fact("I live in Lisbon", "home", time_ms=1), "s1"),
        from_session(fact("i live in  LISBON!", "home", time_ms=2), "s2"),
        from_session(fact("I live in Porto", "home", time_ms=3), "s3"),
        from_session(fact("I have a dog", time_ms=4), "s3"),
    ]
    for order in itertools.permutations(result):
        outcome = memories_of(order, normal)
        assert [(item.text, item.session_id, item.confirmations, item.replaced_by) for item in outcome] == [
            ("I have a dog", "s3", 1, None),
            ("I live in Porto", "s3", 1, None),
            ("i live in  LISBON!", "s2", 2, "i live in porto"),
        ]


def test_said_again_after_something_else_it_is_in_force_again() -> None:
    values = [from_session(fact(f"I live in {city}", "home", time_ms=at), f"s{at}") for at, city in enumerate("ABA")]
    assert [(item.text, item.replaced_by) for item in memories_of(values, normal)] == [
        ("I live in A", None),
        ("I live in B", "i live in a"),
    ]


def test_a_denial_replaces_what_it_denies_and_nothing_else() -> None:
    said = ("I live in Porto", "I live in Berlin now", "I moved to Rome", "I don't live in Berlin", "I'm vegetarian")
    messages = [SpokenMessage(at, "user", text, at) for at, text in enumerate((*said, "I am no longer vegetarian"))]
    values = [from_session(item, "s") for item in SentenceFacts().facts(messages).facts]
    for order in (values, values[::-1]):
        outcome = {item.text: item.replaced_by for item in memories_of(order, normal)}
        assert outcome == {
            "I live in Porto": "i moved to rome",
            "I live in Berlin now": "i moved to rome",
            "I moved to Rome": None,
            "I don't live in Berlin": None,
            "I'm vegetarian": "i am no longer vegetarian",
            "I am no longer vegetarian": None,
        }
    again = from_session(fact("I am vegetarian", time_ms=9), "s2")
    outcome = {item.text: item.replaced_by for item in memories_of([*values, again], normal)}
    assert (outcome["I am no longer vegetarian"], outcome["I am vegetarian"]) == ("i am vegetarian", None)
    values = [from_session(fact(text, subject, time_ms=at), "s") for at, (text, subject) in enumerate(
        (("我住在上海", "home"), ("我现在不住在上海", "我住在上海")))]  # fmt: skip
    assert [item.replaced_by for item in memories_of(values, normal)] == [None, "我现在不住在上海"]


def test_the_same_message_twice_confirms_nothing() -> None:
    result = [from_session(fact("I have a dog"), "s1")] * 3
    assert [item.confirmations for item in memories_of(result, normal)] == [1]


def test_what_goes_first_is_what_was_replaced_then_the_least_confirmed_then_the_oldest() -> None:
    result = [
        from_session(fact("old home", "home", time_ms=9), "s1"),
        from_session(fact("new home", "home", time_ms=10), "s1"),
        from_session(fact("twice", time_ms=1), "s1"),
        from_session(fact("twice", time_ms=2), "s2"),
        from_session(fact("once", time_ms=3), "s1"),
    ]
    outcome = memories_of(result, normal)
    assert [item.text for item in least_worth(outcome, 4)] == ["old home", "once", "new home", "twice"]
    assert least_worth(outcome, -3) == []


def test_a_person_has_at_most_so_many_facts_and_the_newest_stay(harness: Harness) -> None:
    memories = embedded_memory(harness.app.engine.items)
    for number in range(0, MAX_FACTS + 150, 50):
        facts = [fact(f"I have {number + at} cats", time_ms=number + at) for at in range(50)]
        assert memories.add(part(f"s{number}"), facts) == 50
    result = texts(memories)
    assert len(result) == MAX_FACTS
    assert result[0] == f"I have {MAX_FACTS + 149} cats" and result[-1] == "I have 150 cats"
    assert memories.add(part("s0"), [fact("I have 0 cats")]) == 0, "nor is what went made again"


@SQLITE
def test_an_item_is_small_whatever_is_said(harness: Harness) -> None:
    memories = embedded_memory(harness.app.engine.items)
    facts = [fact("".join(chr(0x4E00 + (at * 7919 + n * 104729) % 20_000) for n in range(1_000))) for at in range(150)]
    assert memories.add(part("s"), facts) == MAX_PART_FACTS
    (item,) = harness.app.engine.items.get_many([OwnerKeys(ADA).memories("s", part("s").id)]).values()
    assert item_size_bytes(item) < MAX_ITEM_BYTES / 3
    assert {len(text) for text in texts(memories)} == {300}


@SQLITE
def test_pages_are_stable_while_others_are_added_and_forgotten(harness: Harness) -> None:
    log, memories = harness.log(), embedded_memory(harness.app.engine.items)
    memories.add(part("s"), [fact(f"fact {at}", time_ms=at // 3, position=at) for at in range(20)])
    seen, cursor = list[str](), None
    while True:
        page = log.memory_page(limit=4, cursor=cursor)
        seen += [memory.text for memory in page.memories]
        memories.add(part(f"new{len(seen)}"), [fact(f"later {len(seen)}", time_ms=10_000)])
        log.forget(page.memories[0].memory_id)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [f"fact {at}" for at in reversed(range(20))]


class Asked(Recorder):
    """An engine with a memory that fits and another, which keeps what it was asked."""

    asked: tuple[str, int, float] | None = None

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        self.asked = question, limit, timeout_seconds
        return [Memory(id="m1", text="tea", created_ms=1, score=0.5), Memory(id="m2", text="a dog", created_ms=2)]


@SQLITE
def test_words_find_the_memories_that_fit_in_one_page(harness: Harness) -> None:
    harness.app.memory = engine = Asked()
    page = harness.log().memory_page(limit=7, q="x" * 1_001)
    assert engine.asked == ("x" * 1_000, 7, 10.0)
    assert ([memory.memory_id for memory in page.memories], page.engine, page.next_cursor) == (["m1"], "recorder", None)
    assert harness.log().memory_page(q=" ").memories == [], "without words it is the list"


@SQLITE
def test_t2_a_cursor_is_bound_to_its_caller(harness: Harness) -> None:
    memories = embedded_memory(harness.app.engine.items)
    memories.add(part("s"), [fact(f"fact {at}", position=at) for at in range(5)])
    cursor = harness.log().memory_page(limit=2).next_cursor
    assert cursor is not None
    for wrong, log in ((cursor, harness.log(user="bob")), ("x", harness.log()), (cursor + "AAAA", harness.log())):
        with pytest.raises(MalformedError):
            log.memory_page(cursor=wrong)


def test_t1_nobody_sees_or_forgets_another_s(harness: Harness) -> None:
    mine, other = harness.log(), harness.log(user="bob")
    embedded_memory(harness.app.engine.items).add(part("s"), [fact("I have a dog")])
    (result,) = mine.memory()
    assert list(other.memory()) == []
    assert other.forget(result.memory_id) == mine.forget("unknown").model_copy(update={"memory_id": result.memory_id})
    assert list(mine.memory()) == [result]
    assert list(harness.log(tenant="umbrella").memory()) == []
    mine.forget(result.memory_id)
    assert list(mine.memory()) == []


@SQLITE
def test_v1_what_reading_and_keeping_take(harness: Harness) -> None:
    memories = embedded_memory(harness.app.engine.items)
    for number in range(20):
        memories.add(part(f"s{number}"), [fact(f"fact {number} {at}", position=at) for at in range(10)])
    spent = list[int]()
    for ask in (
        lambda: memories.read(ADA),
        lambda: memories.add(part("new"), [fact("new")]),
        lambda: memories.remember(part("new")),
        lambda: memories.add(part("new"), [fact("new")]),
    ):
        before = harness.faults.calls
        ask()
        spent.append(harness.faults.calls - before)
    assert spent == [1, 3, 1, 2]


@SQLITE
def test_a_forgotten_fact_is_known_by_its_message_in_the_session_and_by_its_words_in_a_copy(harness: Harness) -> None:
    items = harness.app.engine.items
    memories, dog, other_words = embedded_memory(items), fact("I have a dog"), fact("Owns a dog")
    memories.add(part("s"), [dog, fact("I have a cat", position=4)])
    (item,) = items.get_many([OwnerKeys(ADA).memories("s", part("s").id)]).values()
    items.put({name: value for name, value in item.items() if name != "f"})  # as version 0.1.0 has stored it
    memories.forget(ADA, [item.id for item in memories.read(ADA) if item.text == "I have a dog"])
    added = [memories.add(part(name, 5), [made]) for name, made in (("s", other_words), ("copy", dog))]
    assert added == [0, 0] and texts(memories) == ["I have a cat"]
    assert memories.add(part("s", 7), [fact("I have a dog", time_ms=2_000)]) == 1, "said again later"
    assert memories.add(part("other"), [other_words]) == 1


class RacingTable(SqliteItemTable):
    """A table in which another process changes a part before each of the next ``races`` writes of its remaining facts."""

    races = 0

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        if isinstance(condition, Equal) and self.races:
            self.races -= 1
            (stored,) = self.get_many([Key(str(item["pk"]), str(item["sk"]))]).values()
            super().put({**stored, "n": int(str(stored["n"])) + 1})
        return super().put(item, condition=condition)


@pytest.mark.parametrize("races", [9, 10])
def test_forgetting_wins_against_nine_changes_of_others_and_then_says_to_try_again(races: int) -> None:
    table = RacingTable(SqliteDatabase(MEMORY))
    memories = embedded_memory(table)
    memories.add(part("s"), [fact("I have a dog"), fact("I have a cat", position=4)])
    ids = [item.id for item in memories.read(ADA) if item.text == "I have a dog"]
    table.races = races
    if races < 10:
        memories.forget(ADA, ids)
        assert texts(memories) == ["I have a cat"]
    else:
        with pytest.raises(ConflictError) as raised:
            memories.forget(ADA, ids)
        assert raised.value.retry_after_seconds == 1


def test_d2_every_order_of_keeping_forgetting_and_erasing() -> None:
    """What is kept at the same time is kept; what is forgotten stays forgotten, though it be told again."""

    def prepare(items: Any) -> None:
        embedded_memory(items).add(part("s", 1), [fact("I have a dog"), fact("I have a cat", position=4)])

    def make() -> tuple[ItemTable, BlobStore]:
        items, blobs = fresh(lambda _log: None)()
        prepare(items)
        return items, blobs

    def keeping(items: ItemTable, _: BlobStore) -> Any:
        embedded_memory(items).add(part("s", 9), [fact("I have a bird", position=10)])
        return embedded_memory(items).add(part("s", 1), [fact("I have a dog"), fact("I have a cat", position=4)])

    def forgetting(items: ItemTable, _: BlobStore) -> Any:
        memories = embedded_memory(items)
        memories.forget(ADA, [item.id for item in memories.read(ADA) if item.text == "I have a dog"])

    def erasing(items: ItemTable, _: BlobStore) -> Any:
        return embedded_memory(items).erase(ADA, "s", position=4)

    def check(run: ScheduleRun, items: ItemTable, _: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)], run.results
        assert texts(embedded_memory(items)) == ["I have a bird"]

    assert explore([keeping, forgetting, erasing], make, check, max_preemptions=2, only_conflicts=True) > 2
