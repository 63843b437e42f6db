"""What is held against a class or a schema: every type of events, headers and execution states, and a name for what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.agent_state import agent_of, pending_of, run_patch, validate
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.events import Envelope, KeptMessage, MessageEvent, Notes, Payload, StateEvent, SummaryEvent
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import Branch
from turnlog.snapshots.exchange import check_shape

MESSAGE = MessageEvent(
    1,
    "openai_chat",
    3,
    Envelope(),
    {"role": "user"},
    payload=Payload("R#1", 3, "ab"),
    notes=Notes((("a", 1, "/b"),), (1, 2)),
)
SUMMARY = SummaryEvent(
    *(9, 2, 3, 1, 1, 0, "ab", "text", ((2, "A-1"),), 3, 4, 2, "extractive"),
    kept=(KeptMessage(2, 2),),
    tree=(Branch(0, 9),),
)
STATE = StateEvent(4, "patch", [{"op": "add"}], 0, 1, keys_after=("a",))


def of(event: Any, **change: Any) -> Any:
    values = {name: getattr(event, name) for name in type(event).__slots__} | change
    return type(event)(**values)


@pytest.mark.parametrize("value", [MESSAGE, SUMMARY, STATE, of(STATE, patch={"a": 1}), SessionSettings(title="\ud83d")])
def test_what_is_as_its_class_says_is_taken(value: Any) -> None:
    check_shape(value, type(value))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (of(MESSAGE, tokens="3"), "tokens"),
        (of(MESSAGE, tokens=True), "tokens"),
        (of(MESSAGE, tokens=3.0), "tokens"),
        (of(MESSAGE, body=["role"]), "body"),
        (of(MESSAGE, envelope=None), "envelope"),
        (of(MESSAGE, envelope=Envelope(pin=1)), "envelope.pin"),  # type: ignore[arg-type]
        (of(MESSAGE, envelope=Envelope(status="lost")), "envelope.status"),  # type: ignore[arg-type]
        (of(MESSAGE, payload=Payload("R#1", None, "ab")), "payload.size_bytes"),  # type: ignore[arg-type]
        (of(MESSAGE, notes=Notes((("a", "1", "/b"),))), "notes.warnings"),  # type: ignore[arg-type]
        (of(MESSAGE, notes=Notes((), (1, 2, 3))), "notes.usage"),  # type: ignore[arg-type]
        (of(SUMMARY, facts=((2,),)), "facts"),
        (of(SUMMARY, kept=(KeptMessage(2, None),)), "kept.position"),  # type: ignore[arg-type]
        (of(SUMMARY, tree=(None,)), "tree"),
        (of(STATE, patch="x"), "patch"),
        (of(STATE, keys_after=["a"]), "keys_after"),
        (SessionSettings(recall="sometimes"), "recall"),  # type: ignore[arg-type]
        (SessionSettings(tools=("x",)), "tools"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_is_named(value: Any, name: str) -> None:
    with pytest.raises(MalformedError, match=rf"^{name} is not of type "):
        check_shape(value, type(value))


CALLS: list[Any] = [
    {"role": "assistant", "tool_calls": [{"id": "a"}, 7]},
    {"role": "tool", "tool_call_id": "a"},
    {"role": "user", "tool_calls": 7, "tool_call_id": "b"},
]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"iteration": 0, "max_iterations": 0},
        {"iteration": 10, "max_iterations": 10},
        {"iteration": 10, "max_iterations": None, "name": None, "inbox": None, "tools": None, "other": object()},
        {"pending_action": {}, "tools": [], "errors": [], "llm_config": {}, "response_format": {}, "inbox": {}},
        {"pending_action": {"call_id": "a", "ref": None}},
        {"messages": []},
        {"messages": CALLS},
    ],
)
def test_an_execution_state_as_its_schema_says_has_no_problem(state: dict[str, Any]) -> None:
    assert validate({"agent_id": "main", **state}) == []


@pytest.mark.parametrize(
    ("state", "code", "pointer"),
    [
        ({"agent_id": ""}, "agent_id_missing", "/agent_id"),
        ({"agent_id": 7}, "agent_id_missing", "/agent_id"),
        *(({name: -1}, "wrong_type", f"/{name}") for name in ("iteration", "max_iterations")),
        *(({name: True}, "wrong_type", f"/{name}") for name in ("iteration", "max_iterations", "name", "run_id")),
        *(
            ({name: []}, "wrong_type", f"/{name}")
            for name in ("pending_action", "inbox", "response_format", "llm_config")
        ),
        *(({name: {}}, "wrong_type", f"/{name}") for name in ("tools", "errors")),
        *(({"pending_action": {name: 7}}, "wrong_type", f"/pending_action/{name}") for name in ("call_id", "ref")),
        ({"iteration": 11, "max_iterations": 10}, "iteration_above_maximum", "/iteration"),
        ({"messages": None}, "messages_not_list", "/messages"),
        ({"messages": [*CALLS, 7]}, "wrong_type", "/messages/3"),
        ({"messages": [*CALLS, {"role": "tool", "tool_call_id": "b"}]}, "result_without_call", "/messages/3"),
        ({"messages": CALLS[1::-1]}, "result_without_call", "/messages/0"),
    ],
)
def test_a_problem_of_an_execution_state_is_named_with_its_place(
    state: dict[str, Any], code: str, pointer: str
) -> None:
    assert [(problem.code, problem.pointer) for problem in validate({"agent_id": "main", **state})] == [(code, pointer)]


def test_what_is_no_execution_state_is_none() -> None:
    waiting: Any = {"call_id": "a"}
    assert pending_of({"pending_action": waiting}) == waiting
    assert pending_of({"pending_action": []}) is pending_of({}) is pending_of([]) is pending_of(None) is None
    assert agent_of({"agents": {"main": {}, "other": 7}}, "main") == {}
    assert (
        agent_of({"agents": {"other": 7}}, "other") is agent_of({"agents": 7}, "main") is agent_of({}, "main") is None
    )


def test_a_run_without_an_agent_is_that_of_the_main_one() -> None:
    assert run_patch({"iteration": 1}) == ("main", {"iteration": 1, "agent_id": "main"})
    assert run_patch({"agent_id": "other"}) == ("other", {"agent_id": "other"})
    for agent_id in (7, "", "a/b"):
        with pytest.raises(InvalidInputError) as raised:
            run_patch({"agent_id": agent_id})
        assert raised.value.problems[0].pointer == "/run/agent_id"
