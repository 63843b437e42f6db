"""`with_state`: a node between two conversions, sync or async, whatever part of the state it returns."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.graph_states import CALL, bodies, graph_state, messages, session_of
from turnlog.agents.graph_state.conversion import load_graph_state, save_graph_state, validate_graph_state, with_state
from turnlog.app import make_application
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.engines import SystemClock
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

REPLY = {"role": "assistant", "content": "Aisle 4."}


@pytest.fixture
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as made:
        yield made


def run_sync(node: Callable[[Any], Any], state: Any, session: Any, **more: Any) -> Any:
    return with_state(node, session, **more)(state)


def run_async(node: Callable[[Any], Any], state: Any, session: Any, **more: Any) -> Any:
    async def waiting(state: Any) -> Any:
        await asyncio.sleep(0)
        return node(state)

    return asyncio.run(with_state(waiting, session, **more)(state))


EITHER = pytest.mark.parametrize("run", [run_sync, run_async])


def problem_types(errors: list[Any]) -> list[str]:
    return [problem["type"] for failure in errors for problem in failure["errors"]]


@EITHER
@pytest.mark.parametrize("whole", [False, True])
def test_what_a_node_is_given_and_what_it_says_is_in_the_log_once(log: Turnlog, run: Any, whole: bool) -> None:
    session, state = session_of(log), graph_state()
    seen = list[Any]()

    def node(given: dict[str, Any]) -> dict[str, Any]:
        seen.append(given)
        return {"messages": [*given["messages"], REPLY] if whole else [REPLY], "iteration": 3, "finish_reason": "stop"}

    answer = run(node, state, session, snapshot_after="post_execution")
    assert bodies(session) == [*state["full_messages"], REPLY]
    assert {name: seen[0][name] for name in state} == state and seen[0]["metadata"]["validation_errors"] == []
    assert set(answer) == {"messages", "iteration", "finish_reason", "metadata"}, (
        "a part of the state, and what is told"
    )
    assert answer["messages"][-1] == REPLY and len(answer["messages"]) == (4 if whole else 1)
    entries = list(session.history(action="state_conversion"))
    assert answer["metadata"]["history_id"] == entries[0].history_id and len(entries) == 2
    assert answer["metadata"]["snapshot_id"] == session.snapshot("pre_execution").snapshot_id
    before = session.snapshot("pre_execution").content
    assert [message.body for message in before.messages] == state["full_messages"], (
        "a restore has what the node was given"
    )
    assert before.state["agents"]["main"]["iteration"] == 2
    assert len(session.snapshot("post_execution").content.messages) == 4
    back = load_graph_state(session).state
    assert (back["iteration"], back["finish_reason"], back["messages"][-1]) == (3, "stop", REPLY)
    again = run(lambda item: None, {**state, "messages": back["messages"], "full_messages": back["messages"]}, session)
    assert set(again) == {"metadata"} and len(bodies(session)) == 4


@EITHER
def test_a_result_of_a_call_that_an_earlier_message_made_is_no_problem(log: Turnlog, run: Any) -> None:
    session = session_of(log)
    state = {
        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    }
    result = {"role": "tool", "tool_call_id": "c1", "content": "aisle 4"}
    assert "errors" not in run(lambda item: {"messages": [result]}, state, session)
    orphan = {"role": "tool", "tool_call_id": "c9", "content": "?"}
    answer = run(lambda item: {"messages": [orphan]}, {"messages": [*state["messages"], result]}, session)
    (failure,) = answer["errors"]
    assert (failure["type"], datetime.fromisoformat(failure["timestamp"]).tzinfo) == ("validation_failed", UTC)
    problem = {"type": "result_without_call", "path": "/messages/3", "message": "a result without a call"}
    assert failure["errors"] == [problem] == answer["metadata"]["validation_errors"]
    assert bodies(session) == [*state["messages"], result, orphan]
    again = {"messages": [*state["messages"], result, orphan], "errors": answer["errors"]}
    assert "errors" not in run(lambda item: None, again, session), "a problem is listed once, also by later nodes"


@EITHER
def test_problems_of_what_came_in_and_of_what_went_out_are_in_the_answer(log: Turnlog, run: Any) -> None:
    session = session_of(log)
    state = {"messages": messages(1), "iteration": 11, "max_iterations": 10, "errors": ["older"]}
    answer = run(lambda item: {"context": 7}, state, session)
    values = [validation_error["type"] for validation_error in answer["metadata"]["validation_errors"]]
    assert values == ["iteration_above_maximum", "wrong_type"]
    assert answer["errors"][0] == "older" and problem_types(answer["errors"][1:]) == values
    added = run(lambda item: {"context": 7}, state, session, reducers={"errors": operator.add})
    assert problem_types(added["errors"]) == values, "a graph that adds them up gets the new ones"


@EITHER
def test_a_node_that_compresses_keeps_the_log_whole(log: Turnlog, run: Any) -> None:
    session, full = session_of(log), messages(30)
    short = [{"role": "system", "content": "Summary"}, *full[-3:]]
    values = {"messages": full, "compression_applied": False}
    answer = run(
        lambda state: {"messages": short, "compression_applied": True, "conversation_summary": "S"}, values, session
    )
    assert bodies(session) == full
    state = {**values, **answer}
    answer = run(lambda state: {"messages": [*state["messages"], REPLY]}, state, session)
    assert bodies(session) == [*full, REPLY]
    assert load_graph_state(session).state["messages"] == [*short, REPLY]


@EITHER
def test_a_full_list_that_the_node_left_as_it_was_hides_nothing(log: Turnlog, run: Any) -> None:
    session, full = session_of(log), messages(130)
    run(lambda state: {"messages": [REPLY]}, {"messages": full, "full_messages": full}, session)
    assert bodies(session) == [*full, REPLY]
    assert session.agent("main").state["graph"]["view"] is None
    back = load_graph_state(session).state
    assert back["messages"] == back["full_messages"] == [*full, REPLY]


@EITHER
def test_what_a_node_raises_is_raised_and_its_state_was_saved(log: Turnlog, run: Any) -> None:
    session = session_of(log)

    def node(state: Any) -> Any:
        raise KeyError("of the node's own")

    with pytest.raises(KeyError, match="of the node's own"):
        run(node, graph_state(), session)
    assert len(bodies(session)) == 3 and session.snapshot("pre_execution").content.message_count == 3


def test_thirty_nodes_leave_ten_snapshots_each_with_its_input_and_those_of_others_stay(log: Turnlog) -> None:
    session, state = session_of(log), {"messages": messages(1), "iteration": 0}
    session.create_snapshot("pre_execution", agent_id="main", pinned=True)
    session.create_snapshot("mine")
    node = with_state(lambda item: {"messages": [REPLY]}, session, snapshot_after="post_execution")
    for number in range(30):
        state = {"messages": [*state["messages"], {"role": "user", "content": f"{number}?"}], "iteration": number}
        answer = node(state)
        state["messages"] += answer["messages"]
    names = [snapshot.name for snapshot in session.snapshots()]
    assert {name: names.count(name) for name in names} == {"pre_execution": 11, "post_execution": 10, "mine": 1}
    fork = session.restore_snapshot(answer["metadata"]["snapshot_id"], as_="fork", session_id="f")
    assert fork.messages == 60
    back = load_graph_state(log.sessions.get("f")).state
    assert back["messages"][-1] == {"role": "user", "content": "29?"} and back["iteration"] == 29


@EITHER
def test_shorthand_messages_are_kept(log: Turnlog, run: Any) -> None:
    """As LangGraph takes them: a text is the user's, a pair is a role and a text."""
    session, said = session_of(log), ["hello", ("ai", "hi"), ["human", "?"]]
    whole = [("user", "hello"), ("assistant", "hi"), ("user", "?"), ("assistant", "!")]
    answer = run(lambda item: {"messages": ("ai", "!")}, {"messages": said}, session)
    assert answer["messages"] == ("ai", "!") and "errors" not in answer
    assert bodies(session) == [{"role": role, "content": text} for role, text in whole]
    assert load_graph_state(session).state["messages"] == bodies(session)
    run(lambda item: {"messages": ["and", ("ai", "so on")]}, {"messages": [*said, ("ai", "!")]}, session)
    assert [body["content"] for body in bodies(session)] == ["hello", "hi", "?", "!", "and", "so on"]
    short = {"messages": [("system", "Summary"), ("ai", "so on"), "new"], "compression_applied": True}
    save_graph_state(session, short)
    assert bodies(session)[-1] == {"role": "user", "content": "new"} and len(bodies(session)) == 7
    assert [message["content"] for message in load_graph_state(session).state["messages"]] == [
        "Summary",
        "so on",
        "new",
    ]


class WithToDict:
    """A state of a framework that is no mapping."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def to_dict(self) -> dict[str, Any]:
        return self._values


@EITHER
def test_a_state_may_be_an_object_with_to_dict_and_others_are_refused(log: Turnlog, run: Any) -> None:
    session = session_of(log)
    run(lambda item: {"messages": [REPLY]}, WithToDict(messages=messages(1), iteration=2), session)
    assert bodies(session) == [*messages(1), REPLY] and session.agent("main").state["iteration"] == 2
    for wrong in (7, object(), "text", [1], WithToDict, None):
        for use in (validate_graph_state, lambda state: save_graph_state(session, state)):
            with pytest.raises(InvalidInputError, match="is no state") as refused:
                use(wrong)
            assert refused.value.error_code == "not_a_state"
    assert len(bodies(session)) == 2


def test_a_state_is_validated_without_a_session() -> None:
    state = graph_state(iteration=11, full_messages=[], messages=[("ai", "hi"), 7, {"content": "x"}], dump={1})
    result = copy.deepcopy(state)
    problems = validate_graph_state(state)
    assert [(problem["type"], problem["path"]) for problem in problems] == [
        ("wrong_type", "/messages/1"),
        ("invalid_message", "/messages/2"),
        ("iteration_above_maximum", "/iteration"),
        ("not_stored", "/dump"),
    ]
    assert all(set(problem) == {"type", "path", "message"} for problem in problems) and state == result
    assert validate_graph_state(graph_state()) == []


@EITHER
def test_handlers_reach_the_node_and_are_not_stored(log: Turnlog, run: Any) -> None:
    session, seen = session_of(log), list[Any]()

    def handler() -> str:
        return "called"

    run(lambda state: seen.append(state["callback_meta"]["h"]()), graph_state(callback_meta={"h": handler}), session)
    assert seen == ["called"] and "handler" not in str(session.state().state)


@dataclasses.dataclass
class DataState:
    messages: list[Any]
    iteration: int = 1


class ModelState(BaseModel):
    messages: list[Any]
    iteration: int = 1


@dataclasses.dataclass(frozen=True)
class Command:
    """As a graph framework's: where to go, and a part of the state."""

    goto: str
    update: Any = None


@EITHER
@pytest.mark.parametrize("kind", [DataState, ModelState])
def test_states_may_be_dataclasses_or_models(log: Turnlog, run: Any, kind: Any) -> None:
    session, seen = session_of(log), list[Any]()

    def node(state: Any) -> Any:
        seen.append(state)
        return {"iteration": state.iteration + 1, "messages": [REPLY]}

    result = kind(messages=messages(1))
    run(node, result, session)
    assert seen == [result] and bodies(session) == [*messages(1), REPLY]
    assert session.agent("main").state["iteration"] == 2


@EITHER
def test_a_command_goes_where_it_went_and_its_part_of_the_state_is_saved(log: Turnlog, run: Any) -> None:
    session = session_of(log)
    answer = run(lambda state: Command("next", {"messages": [REPLY]}), {"messages": messages(1)}, session)
    assert answer.goto == "next" and answer.update["messages"] == [REPLY] and answer.update["metadata"]["history_id"]
    assert bodies(session) == [*messages(1), REPLY]
    for other in (Command("next"), "a text", [1]):
        assert run(lambda state, other=other: other, {"messages": messages(1)}, session) == other


def test_the_session_may_depend_on_the_state_and_the_node_keeps_its_signature(log: Turnlog) -> None:
    def node(state: dict[str, Any], config: Any, *, writer: Any = None) -> dict[str, Any]:
        """Says hello."""
        return {"messages": [{"role": "assistant", "content": f"{config} {writer}"}]}

    wrapped = with_state(node, lambda state: log.sessions.get_or_create(state["thread"]))
    assert inspect.signature(wrapped) == inspect.signature(node) and wrapped.__doc__ == "Says hello."
    for name in ("a", "b"):
        wrapped({"messages": messages(1), "thread": name}, "c", writer="w")
        assert bodies(log.sessions.get(name)) == [*messages(1), {"role": "assistant", "content": "c w"}]


def test_an_object_that_is_called_may_be_a_node(log: Turnlog) -> None:
    class Sync:
        def __call__(self, state: Any) -> Any:
            return {"messages": [REPLY]}

    class Async:
        async def __call__(self, state: Any) -> Any:
            return {"messages": [REPLY]}

    session = session_of(log)
    with_state(Sync(), session)({"messages": messages(1)})
    asyncio.run(with_state(Async(), log.sessions.create("t"))({"messages": messages(1)}))
    assert bodies(session) == bodies(log.sessions.get("t")) == [*messages(1), REPLY]


@pytest.mark.network
def test_a_service_over_http_holds_it_as_an_engine_does() -> None:
    app = make_application(Settings(engine="memory://", identity="jwt"))
    server = LocalServer(app, SystemClock(), port=0).start()
    try:
        with Turnlog.open(server.url) as log:
            session, state = session_of(log), graph_state(iteration=11, callback_meta={"h": print})
            answer = with_state(lambda item: {"messages": [REPLY]}, session)(state)
            assert problem_types(answer["errors"]) == ["iteration_above_maximum"]
            assert bodies(session) == [*state["full_messages"], REPLY]
            loaded = load_graph_state(session).state
            assert (loaded["iteration"], loaded["their_own"]) == (11, state["their_own"])
            refused = save_graph_state(session, {**state, "dump": "x" * 3_900_000, "more": "y" * 1_000_000})
            assert refused.problems[-1].code == "too_large"
    finally:
        server.stop()
        app.close()
