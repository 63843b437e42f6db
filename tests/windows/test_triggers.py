"""Triggers: what is crossed, by how much of what; and that they are valid in a policy's body, or refused at the right place."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from turnlog.core.errors import InvalidInputError
from turnlog.windows.policy import PRESETS, Policy, policy_of
from turnlog.windows.steps import Summary
from turnlog.windows.triggers import Clause, Counted, Totals, Trigger, is_crossed
from turnlog.windows.view import Room

ROOM = Room(tokens=1000, fixed=100)


def crossed(*clauses: Clause, counts: Any = "all", everything: Counted, past: Counted | None = None) -> bool:
    totals = Totals(everything, past or everything, Counted(0, 0, 0))
    return is_crossed(Trigger(any=clauses, counts=counts), totals, ROOM)


@pytest.mark.parametrize(
    ("clause", "below", "above"),
    [
        (Clause(messages_over=30), Counted(9, 30, 900), Counted(0, 31, 0)),
        (Clause(tokens_over=3000), Counted(9, 99, 3000), Counted(0, 1, 3001)),
        (Clause(loops_over=10), Counted(10, 99, 900), Counted(11, 0, 0)),
        (Clause(fraction_over=0.8), Counted(99, 999, 700), Counted(0, 0, 701)),
        (Clause(fraction_over=1.0), Counted(99, 999, 900), Counted(0, 0, 901)),
        (Clause(messages_over=0), Counted(9, 0, 9), Counted(0, 1, 0)),
    ],
)
def test_a_limit_is_crossed_by_more_than_it(clause: Clause, below: Counted, above: Counted) -> None:
    assert not crossed(clause, everything=below)
    assert crossed(clause, everything=above)


def test_one_clause_of_several_is_enough() -> None:
    clauses = (Clause(messages_over=30), Clause(tokens_over=3000), Clause(fraction_over=0.8))
    assert not crossed(*clauses, everything=Counted(5, 30, 700))
    assert crossed(*clauses, everything=Counted(5, 31, 100))
    assert crossed(*clauses, everything=Counted(5, 3, 701))


def test_past_counts_neither_the_current_loop_nor_system_text() -> None:
    everything, past = Counted(2, 40, 5000), Counted(2, 20, 800)
    limits = Clause(messages_over=20), Clause(tokens_over=800), Clause(fraction_over=0.8)
    assert crossed(*limits, everything=everything, past=past)
    assert not crossed(*limits, counts="past", everything=everything, past=past)
    assert crossed(*limits, counts="past", everything=everything, past=Counted(2, 21, 0))
    assert crossed(Clause(fraction_over=0.8), counts="past", everything=everything, past=Counted(1, 1, 801))


def test_the_presets_that_take_a_summary_have_a_trigger_and_no_other_has() -> None:
    assert {name for name, preset in PRESETS.items() if preset.compress} == {
        name for name, preset in PRESETS.items() if preset.takes_summary
    }
    assert PRESETS["default"].compress == Trigger(any=(Clause(fraction_over=0.8),))


def test_a_trigger_of_a_body_reads_back_equal_and_has_what_was_said_and_no_more() -> None:
    compress = {"any": [{"messages_over": 30}, {"tokens_over": 3000}, {"fraction_over": 0.8}], "counts": "past"}
    policy = policy_of({"steps": [{"step": "summary"}], "compress": compress})
    assert policy == Policy(
        steps=(Summary(),),
        compress=Trigger(
            any=(Clause(messages_over=30), Clause(tokens_over=3000), Clause(fraction_over=0.8)), counts="past"
        ),
    )
    assert policy.model_dump(mode="json")["compress"] == compress
    assert policy_of(policy.model_dump(mode="json")) == policy


def test_a_body_without_a_trigger_is_valid_as_it_was() -> None:
    assert policy_of({"steps": [{"step": "summary"}]}).compress is None


CLAUSES = "a clause has exactly one of messages_over, tokens_over, loops_over, fraction_over"


@pytest.mark.parametrize(
    ("compress", "place", "message"),
    [
        ([], "", "object"),
        ({}, "/any", "is missing"),
        ({"any": []}, "/any", "a trigger has at least one clause"),
        ({"any": [{"messages_over": 1}] * 9}, "/any", "at most 8"),
        ({"any": [{}]}, "/any/0", CLAUSES),
        ({"any": [{"tokens_over": 1}, {"messages_over": 1, "tokens_over": 2}]}, "/any/1", CLAUSES),
        ({"any": [{"words_over": 1}]}, "/any/0/words_over", "unknown field"),
        ({"any": [{"messages_over": "30"}]}, "/any/0/messages_over", "integer"),
        ({"any": [{"messages_over": -1}]}, "/any/0/messages_over", "is less than 0"),
        ({"any": [{"fraction_over": 80}]}, "/any/0/fraction_over", "is more than 1"),
        ({"any": [{"messages_over": 1}], "counts": "new"}, "/counts", "'all' or 'past'"),
        ({"any": [{"messages_over": 1}], "all": []}, "/all", "unknown field"),
    ],
)
def test_what_is_no_trigger_is_refused_at_its_place(compress: Any, place: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        policy_of({"steps": [{"step": "summary"}], "compress": compress})
    assert caught.value.error_code == "invalid_policy"
    assert [(problem.pointer, message in problem.message) for problem in caught.value.problems] == [
        ("/policy/compress" + place, True)
    ]


def test_a_trigger_whose_summaries_no_step_would_show_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="compress needs the step summary") as caught:
        policy_of({"steps": [{"step": "turns"}], "compress": {"any": [{"messages_over": 1}]}})
    assert [problem.pointer for problem in caught.value.problems] == ["/policy/compress"]


LIMITS = [
    ("messages_over", 0, 1_000_000, 1),
    ("tokens_over", 0, 100_000_000, 1),
    ("loops_over", 0, 1_000_000, 1),
    ("fraction_over", 0.001, 1.0, 0.001),
]


@pytest.mark.parametrize(("name", "lowest", "highest", "step"), LIMITS)
def test_a_limit_has_bounds(name: str, lowest: float, highest: float, step: float) -> None:
    for value in (lowest, highest):
        assert getattr(Clause.model_validate({name: value}), name) == value
    for value in (lowest - step, highest + step):
        with pytest.raises(ValueError, match=r"(greater|less) than"):
            Clause.model_validate({name: value})


@pytest.mark.parametrize(
    ("clause", "is_valid"),
    [
        ({"messages_over": 1}, True),
        ({"fraction_over": 0.5}, True),
        ({}, False),
        ({"messages_over": 1, "tokens_over": 2}, False),
        ({"messages_over": None}, False),
        ({"messages_over": -1}, False),
        ({"fraction_over": 0}, False),
        ({"other": 1}, False),
    ],
    ids=str,
)
def test_the_schema_takes_the_clauses_that_are_taken(clause: dict[str, Any], is_valid: bool) -> None:
    assert Draft202012Validator(Clause.model_json_schema()).is_valid(clause) is is_valid
    if is_valid:
        Clause.model_validate(clause)
        return
    with pytest.raises(ValueError, match="Clause"):
        Clause.model_validate({name: value for name, value in clause.items() if value is not None})
