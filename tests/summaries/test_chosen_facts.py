"""Which facts a summary keeps: names before measures before other scalars, and of each what is still in use."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from turnlog.summaries.covering import Facts, chosen_facts, seen
from turnlog.windows.ledger import is_identifier

NAMES = (
    "CF-2501-03358",
    "W5199551",
    "3694871183",
    "ada@mail.example.org",
    "/srv/app/main.py",
    "gift_card_7480005",
    "10.0.0.12",
)
MEASURES = ("2026-03-03T19:22:41Z", "2026-03-03", "2025-09", "09:00-17:00", "16:00:00", "108.17", "24.12.2026")
WORDS = ("economy", "Kim", "250", "true love")
values = st.one_of(st.sampled_from(NAMES + MEASURES + WORDS), st.text(min_size=1, max_size=12))
facts = st.lists(st.tuples(st.integers(1, 99), values), max_size=40)


def cost(facts: Facts) -> int:
    """As a counter counts, which joins what stands side by side."""
    return len(", ".join(value for _, value in facts)) // 3 + 1


def values_of(found: Facts) -> list[str]:
    return [value for _, value in found]


def test_a_value_that_comes_again_is_in_use_and_keeps_its_first_place() -> None:
    assert seen([(2, "A-1001"), (2, "B-2002")], [(5, "C-3003"), (6, "A-1001")]) == (
        (2, "B-2002"),
        (5, "C-3003"),
        (2, "A-1001"),
    )


def test_of_two_names_that_which_was_seen_last_stays() -> None:
    known = seen([(2, "A-1001"), (3, "B-2002"), (4, "A-1001")])
    assert chosen_facts(known, 3, lambda some: 3 * len(some)) == ((2, "A-1001"),)


def test_names_stay_before_measures_and_these_before_other_scalars() -> None:
    """However many dates and amounts come after an id: they can't find it again."""
    known = seen([(1, value) for value in (*NAMES, *WORDS, *MEASURES)])
    for most in range(len(known) + 1):
        kept = chosen_facts(known, 2 * most, lambda some: 2 * len(some))
        assert len(kept) == most
        assert values_of(kept) == [*WORDS, *MEASURES, *NAMES][len(known) - most :]


@pytest.mark.parametrize("value", MEASURES)
def test_measures_that_the_ledger_takes_for_identifiers_name_nothing(value: str) -> None:
    assert is_identifier(value)
    assert values_of(chosen_facts(((1, "X-12345"), (2, value)), 2, lambda some: 2 * len(some))) == ["X-12345"]


@given(facts, facts, st.integers(-5, 200))
@settings(max_examples=examples(300))
def test_what_is_chosen_has_room_and_nothing_more_would(older: Facts, newer: Facts, room: int) -> None:
    known = seen(older, newer)
    kept = chosen_facts(known, room, cost)
    assert not kept or cost(kept) <= room
    assert set(kept) <= set(known)
    assert len({value for _, value in kept}) == len(kept)
    ranked = chosen_facts(known, 10**6, cost)
    assert sorted(ranked) == sorted(known)
    assert kept == ranked[len(ranked) - len(kept) :], "the last of the order stay"
    assert kept == ranked or cost(ranked[len(ranked) - len(kept) - 1 :]) > room or 2 * len(kept) + 2 > room


@given(facts, facts, facts, st.integers(0, 60))
@settings(max_examples=examples(300))
def test_rounds_after_each_other_choose_as_one_would(one: Facts, two: Facts, three: Facts, room: int) -> None:
    """Where values cost the same, going in rounds loses nothing but what comes again after it was dropped."""

    def each_two(some: Facts) -> int:
        return 2 * len(some)

    fresh = [fact for fact in three if fact[1] not in {value for _, value in (*one, *two)}]
    rounds = chosen_facts(seen(chosen_facts(seen(one, two), room, each_two), fresh), room, each_two)
    assert rounds == chosen_facts(seen(one, two, fresh), room, each_two)
