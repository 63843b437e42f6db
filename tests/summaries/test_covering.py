"""What a summary is made from: the closed loops in short, their values, and the messages that stay in windows."""

from __future__ import annotations

import pytest

from tests.properties.building import Stored, out_of_line, stored
from tests.properties.histories import Body, Given
from turnlog.core.summaries import LoopText
from turnlog.summaries.covering import ASKED_CHARS, Coverage, Facts, chosen_facts, cover
from turnlog.windows.steps import Pin


def said(role: str, content: str) -> Given:
    return Given({"role": role, "content": content})


def calling(*calls: tuple[str, str, str]) -> Given:
    listed = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": text}} for key, name, text in calls
    ]
    return Given({"role": "assistant", "content": None, "tool_calls": listed})


def result(call_id: str, content: str) -> Given:
    body: Body = {"role": "tool", "tool_call_id": call_id, "content": content}
    return Given(body)


HISTORY = [
    said("system", "Be brief."),
    said("user", "Where is order A-1001?"),
    calling(("a", "look_up", '{"order": "A-1001"}'), ("b", "look_up", '{"order": "B-2002"}')),
    result("a", '{"parcel": "P-3003"}'),
    result("b", "[error] no such order"),
    said("assistant", "It is in parcel P-3003."),
    said("user", "And the other?"),
    said("user", "Go on."),
    calling(("c", "look_up", '{"order": "A-1001", "parcel": "D-4004"}')),
    said("user", "Never mind."),
]


def covered(history: list[Given], first: int = 1, last: int | None = None, **options: object) -> Coverage:
    held = stored(history)
    made = [cover(each.sources[first - 1 : last], **options) for each in (held, out_of_line(held))]  # type: ignore[arg-type]
    assert made[0] == made[1], "messages whose payloads are stored separately are told in the same way"
    return made[0]


def tokens(held: Stored, *positions: int) -> int:
    return sum(held.sources[position - 1].event.tokens for position in positions)


def test_a_loop_is_told_by_what_was_asked_called_and_replied() -> None:
    made = covered(HISTORY)
    assert made.loops[0] == LoopText(
        1,
        "Where is order A-1001?",
        "It is in parcel P-3003.",
        ('look_up {"order": "A-1001"}', 'look_up {"order": "B-2002"} -> error'),
    )
    assert [loop.number for loop in made.loops] == list(range(1, len(made.loops) + 1))
    last = made.loops[-1]
    assert (last.reply, last.interrupted) == ("", True)
    assert [call for loop in made.loops for call in loop.calls][2:] == [
        'look_up {"order": "A-1001", "parcel": "D-4004"} -> no result'
    ]
    asked = " / ".join(loop.asked for loop in made.loops)
    assert asked == "Where is order A-1001? / And the other? / Go on. / Never mind."


def test_steps_of_an_open_loop_are_told_eight_at_a_time_without_its_task() -> None:
    steps = [said("assistant", f"step {number}") for number in range(1, 9)]
    history = [said("user", "Go."), calling(("a", "f", "{}")), result("a", "done"), *steps]
    made = covered(history, open_loop=1)
    first = " / ".join(f"step {number}" for number in range(1, 8))
    assert made.loops == (LoopText(1, "", first, ("f {}",)), LoopText(1, "", "step 8"))
    assert (made.parted, made.kept) == ((1,), ()), "the task stays until the loop is covered whole"
    pinned = covered(history, open_loop=1, pins=[Pin(first_user=True)])
    assert (pinned.parted, pinned.kept) == ((), (1,))
    held = stored(history)
    assert made.saved == pinned.saved == held.total - tokens(held, 1)


def test_values_come_once_with_their_first_position_in_the_order_of_their_last() -> None:
    assert covered(HISTORY).facts == ((3, "B-2002"), (4, "P-3003"), (2, "A-1001"), (9, "D-4004"))


def test_what_users_and_assistants_say_has_values_too() -> None:
    talk = [
        said("user", "I am here with Alice Smith since 7 May 2023, for $1,200.50 and order ORD-17. It is 10:30 am."),
        said("assistant", "Good. You saw 《活着》 in New York, 3月5日, 300元; write to ada@example.com."),
    ]
    values = [value for _, value in covered(talk).facts]
    assert values[:5] == ["Alice Smith", "7 May 2023", "$1,200.50", "ORD-17", "10:30 am"]
    assert values[5:] == ["《活着》", "New York", "3月5日", "300元", "ada@example.com"]


def test_words_that_tell_nothing_are_no_names_but_abbreviations_are() -> None:
    talk = [
        said("user", 'One way: Is it late? "Then I’ll call IT," they said, and I\'d ask Mia in the US.'),
        said("assistant", "Ok."),
    ]
    assert [value for _, value in covered(talk).facts] == ["IT", "Mia", "US"]


def test_the_numbers_are_those_of_the_messages() -> None:
    held, made = stored(HISTORY), covered(HISTORY)
    assert (made.first, made.last, made.messages) == (1, 10, 10)
    assert made.tokens == held.total
    assert made.kept == (1,), "system messages before the first loop stay in windows"
    assert made.saved == held.total - tokens(held, 1)
    part = covered(HISTORY, 2, 6)
    assert (part.first, part.last, part.messages, part.kept) == (2, 6, 5, ())
    assert part.tokens == part.saved == tokens(held, 2, 3, 4, 5, 6)


def test_pinned_messages_stay_with_their_calls_and_results() -> None:
    held = stored(HISTORY)
    made = covered(HISTORY, 2, 6, pins=[Pin(positions=(4,))])
    assert made.kept == (3, 4, 5)
    assert made.saved == tokens(held, 2, 6)
    flagged = [*HISTORY[:5], Given(HISTORY[5].body, pin=True), *HISTORY[6:]]
    assert covered(flagged, 2, 6).kept == (6,)


def test_the_first_user_message_is_pinned_only_where_it_is_the_first() -> None:
    first = Pin(first_user=True)
    assert covered(HISTORY, 2, 6, pins=[first]).kept == (2,)
    assert covered(HISTORY, 7, 8, pins=[first], before=6).kept == ()


@pytest.mark.parametrize(("chars", "missing"), [(ASKED_CHARS, 0), (ASKED_CHARS + 1, 1), (ASKED_CHARS + 90, 90)])
def test_long_texts_are_cut_and_say_so(chars: int, missing: int) -> None:
    text = "x" * chars
    made = covered([said("user", text), said("assistant", text)])
    shown = text[:ASKED_CHARS] + (f"...[truncated {missing} characters]" if missing else "")
    assert made.loops == (LoopText(1, shown, shown),)


@pytest.mark.parametrize(("chars", "missing"), [(120, 0), (121, 1)])
def test_long_arguments_are_cut_and_say_so(chars: int, missing: int) -> None:
    made = covered([said("user", "go"), calling(("a", "f", "y" * chars)), result("a", "done"), said("assistant", "ok")])
    shown = "y" * 120 + (f"...[truncated {missing} characters]" if missing else "")
    assert made.loops[0].calls == (f"f {shown}",)


@pytest.mark.parametrize(
    ("room", "kept"),
    [
        (9, []),
        (10, ["ORD-00017"]),
        (20, ["2024-05-06", "ORD-00017"]),
        (30, ["$12", "2024-05-06", "ORD-00017"]),
        (40, ["blue", "$12", "2024-05-06", "ORD-00017"]),
        (50, ["green", "blue", "$12", "2024-05-06", "ORD-00017"]),
        (999, ["green", "blue", "$12", "2024-05-06", "ORD-00017"]),
        (-5, []),
    ],
)
def test_identifiers_are_kept_longest_then_dates_then_amounts_then_the_newest_of_other_values(
    room: int, kept: list[str]
) -> None:
    facts = ((1, "$12"), (2, "ORD-00017"), (3, "green"), (4, "2024-05-06"), (5, "blue"))
    assert [value for _, value in chosen_facts(facts, room, lambda some: 10 * len(some))] == kept


def test_facts_that_can_t_fit_are_not_counted() -> None:
    counts = list[int]()

    def cost(facts: Facts) -> int:
        counts.append(len(facts))
        return 2 * len(facts)

    assert len(chosen_facts(tuple((number, f"v{number}") for number in range(1_000)), 20, cost)) == 10
    assert max(counts) <= 10, "a fact takes two tokens at least"
