"""A graph's state into a session and back: equal, validated, told in the history, appended once."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from tests.effort import FEWEST, boundaries, examples
from tests.support.graph_states import bodies, graph_state, messages, session_of
from turnlog.agents.graph_state.conversion import load_graph_state, save_graph_state
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import HeadMismatchError, NotFoundError, SessionEndedError, TurnlogError


def without_told(state: dict[str, Any]) -> dict[str, Any]:
    """A state without what conversions say of themselves."""
    metadata = {
        name: value
        for name, value in state.get("metadata", {}).items()
        if name not in ("snapshot_id", "history_id", "validation_errors")
    }
    values = {name: value for name, value in state.items() if name != "metadata"}
    return values | ({"metadata": metadata} if metadata else {})


def test_a_state_comes_back_as_it_went_in(harness: Any) -> None:
    log = harness.log()
    session, state = session_of(log), graph_state(metadata={"mine": 1})
    given = copy.deepcopy(state)
    saved = save_graph_state(session, state)
    assert state == given, "the caller's state is not touched"
    assert without_told(saved.state) == given
    assert without_told(load_graph_state(session).state) == given
    assert bodies(session) == given["full_messages"]
    agent = session.agent("main").state
    fields = ("iteration", "max_iterations", "run_id", "scratchpad", "tools")
    assert {name: agent[name] for name in fields} == {name: given[name] for name in fields}
    window = session.context(format="openai_chat")
    assert window.messages[0]["content"].startswith("You find things.")


def test_one_call_validates_names_the_state_it_saved_and_is_in_the_history(harness: Any) -> None:
    log = harness.log()
    session = session_of(log)
    session.append({"role": "user", "content": "before"})
    saved = save_graph_state(session, graph_state())
    result = saved.state["metadata"]
    assert result == {"snapshot_id": saved.snapshot_id, "history_id": saved.history_id, "validation_errors": []}
    snapshot = session.snapshot("pre_execution")
    assert (snapshot.snapshot_id, snapshot.kind, snapshot.agent_id) == (saved.snapshot_id, "ref", "main")
    assert snapshot.content.message_count == 4 and snapshot.content.state["agents"]["main"]["iteration"] == 2
    (entry,) = session.history(action="state_conversion", agent="main")
    assert entry.history_id == saved.history_id
    assert entry.metadata["snapshot_id"] == saved.snapshot_id and entry.metadata["direction"] == "to_session"
    assert entry.metadata["appended"] == [saved.first, saved.last] == [3, 5]
    loaded = load_graph_state(session)
    back = next(session.history(action="state_conversion"))
    assert (back.history_id, back.metadata["direction"]) == (loaded.history_id, "from_session")
    assert loaded.state["metadata"]["snapshot_id"] == loaded.snapshot_id != saved.snapshot_id


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"iteration": 11}, "iteration_above_maximum", "/iteration"),
        ({"iteration": "2"}, "wrong_type", "/iteration"),
        ({"run_id": 7}, "wrong_type", "/run_id"),
        ({"tools": {}}, "wrong_type", "/tools"),
        ({"agent_id": ""}, "agent_id_missing", "/agent_id"),
        ({"agent_id": "a/b"}, "invalid_id", "/agent_id"),
        ({"messages": None, "full_messages": None}, "messages_not_list", "/messages"),
        ({"full_messages": {}}, "wrong_type", "/full_messages"),
        (
            {"full_messages": [{"role": "tool", "tool_call_id": "c9", "content": ""}]},
            "result_without_call",
            "/full_messages/0",
        ),
        ({"full_messages": [7]}, "wrong_type", "/full_messages/0"),
        ({"full_messages": [{"content": "nobody's"}]}, "invalid_message", "/full_messages/0"),
        ({"context": []}, "wrong_type", "/context"),
        ({"last_content": 1}, "wrong_type", "/last_content"),
        ({"compression_applied": "no"}, "wrong_type", "/compression_applied"),
        ({"their_own": {"when": math.inf}}, "not_stored", "/their_own/when"),
        ({"their_own": object()}, "not_stored", "/their_own"),
        ({7: "seven"}, "not_stored", "/7"),
        ({"system_prompt": "x" * 1_000_001}, "invalid_system", "/system_prompt"),
        ({"system_prompt": "\ud83d"}, "invalid_system", "/system_prompt"),
    ],
)
def test_a_problem_is_told_and_stops_nothing(change: dict[Any, Any], code: str, pointer: str) -> None:
    with Turnlog.open("memory://") as log:
        session = session_of(log)
        saved = save_graph_state(session, {**graph_state(errors=["an older one"]), **change})
        agent = session.agent("main").state
        assert "their_own" in change or agent["graph"]["values"]["their_own"] == graph_state()["their_own"]
        assert (code, pointer) in [(problem.code, problem.pointer) for problem in saved.problems]
        result = saved.state["metadata"]["validation_errors"]
        assert saved.state["errors"][0] == "an older one" and saved.state["errors"][1]["errors"] == result != []
        again = save_graph_state(session, saved.state)
        assert again.state["errors"] == saved.state["errors"], "each problem once"
        loaded = load_graph_state(session, handlers=saved.handlers)
        for name, value in change.items():
            if name not in ("messages", "full_messages") or not isinstance(value, list):
                assert loaded.state[name] == value, "also what is wrong comes back"
        listed = [str(problem) for failure in loaded.state["errors"][1:] for problem in failure["errors"]]
        assert len({*listed}) == len(listed)
        entry = next(session.history(action="state_conversion"))
        assert entry.diff is None
        saving, *_ = [
            item for item in session.history(action="state_conversion") if item.metadata["direction"] == "to_session"
        ]
        assert saving.metadata["type"] == "validation_failed" and saving.metadata["errors"] == result
        assert saving.metadata["timestamp"]


def test_a_field_that_was_right_once_does_not_hide_what_is_wrong_now(log: Turnlog) -> None:
    session = session_of(log)
    save_graph_state(session, graph_state(iteration=3))
    save_graph_state(session, graph_state(iteration=99))
    assert load_graph_state(session).state["iteration"] == 99
    assert "iteration" not in session.agent("main").state


def test_full_messages_win_and_a_compressed_list_is_never_appended(log: Turnlog) -> None:
    session, full = session_of(log), messages(40)
    short = [{"role": "system", "content": "Summary: 38 messages"}, *full[-2:]]
    state = graph_state(
        messages=short, full_messages=full, compression_applied=True, conversation_summary="38 messages"
    )
    for _ in range(3):
        save_graph_state(session, state)
        assert bodies(session) == full
    back = load_graph_state(session).state
    assert (back["messages"], back["full_messages"]) == (short, full)
    session.append({"role": "user", "content": "from elsewhere"})
    back = load_graph_state(session).state
    assert back["messages"] == [*short, {"role": "user", "content": "from elsewhere"}]
    assert len(back["full_messages"]) == 41


@pytest.mark.parametrize("kept", [1, 2, 5, 20])
def test_of_a_compressed_list_only_what_the_log_does_not_hold_is_appended(log: Turnlog, kept: int) -> None:
    session, full = session_of(log), messages(20)
    state = {"messages": full, "compression_applied": False}
    save_graph_state(session, state)
    new = [{"role": "user", "content": "new"}, {"role": "assistant", "content": "newer"}]
    short = [{"role": "system", "content": "Summary"}, *full[-kept:], *new]
    for _ in range(2):
        saved = save_graph_state(session, {"messages": short, "compression_applied": True})
        assert saved.problems == () and bodies(session) == [*full, *new]
    assert load_graph_state(session).state["messages"] == short


def test_a_compressed_list_that_shares_nothing_with_the_log_is_not_appended_and_that_is_told(log: Turnlog) -> None:
    session = session_of(log)
    save_graph_state(session, {"messages": messages(4)})
    short = [{"role": "system", "content": "Summary of all"}]
    saved = save_graph_state(session, {"messages": short, "compression_applied": True})
    assert [problem.code for problem in saved.problems] == ["messages_not_aligned"]
    assert bodies(session) == messages(4) and load_graph_state(session).state["messages"] == short


def test_of_messages_with_ids_only_new_ones_are_appended_behind_what_others_said(log: Turnlog) -> None:
    session, first, reply = session_of(log), HumanMessage("Hello", id="1"), AIMessage("Hi", id="2")
    save_graph_state(session, {"messages": [first, reply]})
    session.append({"role": "user", "content": "Somebody else"})
    short = [first, SystemMessage("Summary", id="3"), reply, HumanMessage("Bye", id="4")]
    for _ in range(2):
        save_graph_state(session, {"messages": short, "compression_applied": True})
        assert [body["content"] for body in bodies(session)] == ["Hello", "Hi", "Somebody else", "Bye"]


def test_a_list_of_new_messages_alone_goes_behind_what_is_there(log: Turnlog) -> None:
    session = session_of(log)
    save_graph_state(session, {"messages": messages(4)})
    save_graph_state(session, {"messages": [{"role": "user", "content": "a fresh run"}]})
    assert bodies(session) == [*messages(4), {"role": "user", "content": "a fresh run"}]


def test_an_older_state_than_the_log_adds_nothing(log: Turnlog) -> None:
    session = session_of(log)
    save_graph_state(session, {"messages": messages(9)})
    assert save_graph_state(session, {"messages": messages(5)}).first is None
    assert bodies(session) == messages(9)


@pytest.mark.parametrize("again", ["message 0", "message 2", "message 4"])
def test_a_fresh_run_may_begin_with_words_that_were_said_before(log: Turnlog, again: str) -> None:
    """In the run that was saved before, it is the message that was said then."""
    session, said, fresh = session_of(log), messages(6), [{"role": "user", "content": again}]
    save_graph_state(session, {"messages": said, "run_id": "r-1"})
    for _ in range(2):
        save_graph_state(session, {"messages": fresh, "run_id": "r-1"})
        assert bodies(session) == said
    save_graph_state(session, {"messages": fresh, "run_id": "r-2"})
    assert bodies(session) == [*said, *fresh]


def test_without_a_run_id_a_list_that_the_log_begins_with_is_an_older_state(log: Turnlog) -> None:
    session, said = session_of(log), messages(6)
    save_graph_state(session, {"messages": said})
    save_graph_state(session, {"messages": said[:1]})
    assert bodies(session) == said
    save_graph_state(session, {"messages": said[2:3]})
    assert bodies(session) == [*said, said[2]], "what may be new is kept"


def test_siblings_that_appended_in_another_order_are_not_appended_again(log: Turnlog) -> None:
    session = session_of(log)
    user, *branches = (
        {"role": role, "content": text} for role, text in zip(("user", *["assistant"] * 3), "uabc", strict=True)
    )
    session.append(user, branches[1], branches[2], branches[0])
    for order in (branches, branches[::-1]):
        save_graph_state(session, {"messages": [user, *order]})
        assert len(bodies(session)) == 4


def test_the_same_words_said_twice_are_two_messages(log: Turnlog) -> None:
    session, said = session_of(log), [{"role": "user", "content": "ok"}, {"role": "assistant", "content": "ok"}]
    for count in range(1, 7):
        save_graph_state(session, {"messages": (said * 3)[:count]})
    assert bodies(session) == said * 3


def watch(session: Session, before: Callable[[str], object]) -> None:
    """Call ``before`` with the name of each operation of the session's."""
    backend = session.backend
    call = backend.call
    backend.call = lambda operation, **more: (before(operation), call(operation, **more))[1]  # type: ignore[assignment, func-returns-value]


def test_long_lists_are_appended_once_and_only_the_end_of_the_log_is_read(log: Turnlog) -> None:
    session, said = session_of(log), messages(260)
    save_graph_state(session, {"messages": said[:250]})
    read = list[str]()
    watch(session, read.append)
    save_graph_state(session, {"messages": said})
    assert read.count("read_messages") == 1 and bodies(session) == said


def test_handlers_are_never_stored_and_are_put_back(log: Turnlog) -> None:
    def on_token(token: str) -> str:
        return token

    class Tracer:
        def __call__(self) -> None: ...

    session, tracer = session_of(log), Tracer()
    state = graph_state(
        callback_meta={"on_token": on_token, "trace": "t-1", "all": [tracer, 2]}, tools=[on_token, {"name": "find"}]
    )
    state["handler"] = tracer
    saved = save_graph_state(session, state)
    assert saved.problems == (), "what is called is no data"
    assert "on_token" not in str(session.state().state) and "Tracer" not in str(session.state().state)
    loaded = load_graph_state(session, handlers=saved.handlers).state
    assert without_told(loaded) == state
    assert loaded["callback_meta"]["on_token"] is on_token and loaded["handler"] is tracer
    bare = load_graph_state(session).state
    assert bare["callback_meta"] == {"trace": "t-1", "all": [None, 2]} and "handler" not in bare


def test_agents_have_states_of_their_own_and_fields_of_others_stay(log: Turnlog) -> None:
    session = session_of(log)
    session.patch_agent({"pending_action": {"call_id": "c1"}, "llm_config": {"model": "m"}})
    save_graph_state(session, graph_state(iteration=1))
    save_graph_state(session, graph_state(iteration=5), agent_id="critic")
    save_graph_state(session, graph_state(iteration=6, agent_id="third"))
    assert [load_graph_state(session, agent_id=name).state["iteration"] for name in ("main", "critic", "third")] == [
        1,
        5,
        6,
    ]
    assert session.agent("main").state["llm_config"] == {"model": "m"}
    assert len(bodies(session)) == 3
    session.patch_agent({"iteration": 7})
    assert load_graph_state(session).state["iteration"] == 7, "what was changed in Turnlog comes back"


def test_after_a_rewind_the_state_is_the_one_of_then_and_goes_on_from_there(log: Turnlog) -> None:
    session = session_of(log)
    save_graph_state(session, {"messages": messages(4), "iteration": 1})
    then = session.info().head
    save_graph_state(session, {"messages": messages(6), "iteration": 2})
    session.rewind(then)
    back = load_graph_state(session).state
    assert (back["messages"], back["iteration"]) == (messages(4), 1)
    other = {"role": "user", "content": "another way"}
    save_graph_state(session, {**back, "messages": [*back["messages"], other]})
    assert load_graph_state(session).state["messages"] == [*messages(4), other]
    assert bodies(session) == [*messages(6), other], "the log keeps what was taken out of view"


def test_a_message_with_a_graph_of_another_program_is_loaded_as_it_is(log: Turnlog) -> None:
    session = session_of(log)
    save_graph_state(session, {"messages": messages(2)})
    session.append({"role": "user", "content": "Hi"}, meta=[{"metadata": {"graph": "a name"}}])
    assert load_graph_state(session).state["messages"] == [*messages(2), {"role": "user", "content": "Hi"}]


def test_no_state_of_a_graph_is_not_found(log: Turnlog) -> None:
    session = session_of(log)
    for prepare in (lambda: None, lambda: session.patch_agent({"iteration": 1})):
        prepare()
        with pytest.raises(NotFoundError):
            load_graph_state(session)


def test_an_ended_session_is_said_to_be(log: Turnlog) -> None:
    session = session_of(log)
    session.end()
    with pytest.raises(SessionEndedError):
        save_graph_state(session, graph_state())


def test_what_a_strict_session_refuses_is_a_problem_and_the_rest_is_kept(log: Turnlog) -> None:
    session = log.sessions.create("s", strict=True)
    orphan = [{"role": "tool", "tool_call_id": "c9", "content": "?"}]
    saved = save_graph_state(session, {"messages": orphan, "iteration": 3})
    assert "disorder" in [problem.code for problem in saved.problems] and bodies(session) == []
    assert session.agent("main").state["iteration"] == 3


@pytest.mark.parametrize(
    ("large", "lost"),
    [
        ({"dump": "x" * (6 * 1024 * 1024)}, ["/dump"]),
        (
            {"dump": "x" * 3_000_000, "tools": [{"name": "y" * 4_000_000}], "context": {"z": "z" * 1_000_000}},
            ["/tools"],
        ),
        ({"dump": [1] * 200_000, "context": {"a": [1] * 100_000}}, ["/dump"]),
    ],
)
def test_values_that_are_too_large_are_problems_and_all_others_are_stored(
    log: Turnlog, large: dict[str, Any], lost: list[str]
) -> None:
    session, state = session_of(log), graph_state(**large, errors=["an older one"])
    save_graph_state(session, graph_state(dump="small"))
    saved = save_graph_state(session, state)
    assert [(problem.code, problem.pointer) for problem in saved.problems] == [
        ("too_large", pointer) for pointer in lost
    ]
    names = {pointer[1:] for pointer in lost}
    loaded = load_graph_state(session).state
    kept = {name: value for name, value in state.items() if name not in {*names, "errors"}}
    assert {name: value for name, value in loaded.items() if name not in ("metadata", "errors")} == kept
    assert loaded["errors"] == saved.state["errors"] and loaded["errors"][0] == "an older one"
    loaded = load_graph_state(session, handlers=saved.handlers).state
    assert all(loaded[name] == state[name] for name in names)


def test_two_conversions_at_once_append_once(harness: Any) -> None:
    """The second one writes between the first one's look at the log and its append."""
    log = harness.log()
    session = session_of(log)
    other, started = harness.log().sessions.get("s"), list[bool]()

    def meanwhile(operation: str) -> None:
        if operation == "append_messages" and not started:
            started.append(True)
            save_graph_state(other, {"messages": [*messages(3), {"role": "assistant", "content": "theirs"}]})

    watch(session, meanwhile)
    save_graph_state(session, {"messages": messages(3)})
    assert bodies(session) == [*messages(3), {"role": "assistant", "content": "theirs"}]


def test_d1_a_conversion_killed_at_any_call_and_made_again_has_one_effect(harness: Any) -> None:
    state = graph_state()
    save_graph_state(harness.log(user="warm").sessions.create("s"), state)
    clean = harness.log(user="clean").sessions.create("s")
    before = harness.faults.calls
    save_graph_state(clean, state)
    calls, tried = harness.faults.calls - before, 0
    for at in boundaries(calls, harness.name):
        for when in ("before", "after"):
            session = harness.log(user=f"u{at}{when}").sessions.create("s")
            harness.faults.fail(at, when)
            try:
                save_graph_state(session, state)
            except TurnlogError as error:
                assert not isinstance(error, HeadMismatchError)
            tried += not harness.faults.is_pending
            harness.faults.clear()
            save_graph_state(session, state)
            assert bodies(session) == state["full_messages"]
            assert session.agent("main").state["iteration"] == 2
            assert session.context(format="anthropic").system.startswith("You find things.")
    assert tried == 2 * len(boundaries(calls, harness.name)) >= 2 * FEWEST


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([name for name in graph_state() if name not in ("messages", "full_messages")])


@settings(max_examples=examples(60), deadline=None)
@given(
    said=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=6)), max_size=5),
    rest=st.dictionaries(KEYS | st.text(max_size=6), JSON, max_size=6),
)
def test_any_state_comes_back_equal(said: list[tuple[str, str]], rest: dict[str, Any]) -> None:
    given = [{"role": role, "content": text} for role, text in said]
    rest = {
        name: value
        for name, value in rest.items()
        if name not in ("metadata", "errors", "agent_id", "messages", "full_messages")
    }
    rest |= {"compression_applied": None, "conversation_summary": None}
    state = {"messages": given, **rest}
    with Turnlog.open("memory://") as log:
        session = session_of(log)
        for _ in range(2):
            saved = save_graph_state(session, state)
            loaded = load_graph_state(session, handlers=saved.handlers).state
            assert {name: value for name, value in loaded.items() if name not in ("metadata", "errors")} == state
        assert bodies(session) == given


STEP = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 4)),
    st.tuples(st.just("compress"), st.integers(1, 3)),
    st.tuples(st.just("new only"), st.integers(1, 3)),
    st.tuples(st.just("older"), st.integers(2, 5)),
    st.tuples(st.just("full"), st.integers(1, 2)),
)


@settings(max_examples=examples(60), deadline=None)
@given(steps=st.lists(STEP, max_size=8))
def test_however_a_graph_shows_its_messages_each_is_in_the_log_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    said, shown, compressed = list[dict[str, Any]](), list[dict[str, Any]](), False
    with Turnlog.open("memory://") as log:
        session = session_of(log)
        for kind, count in [("say", 2), *steps]:
            new = [{"role": "user", "content": f"{len(said) + at}"} for at in range(count)]
            state: dict[str, Any] = {"compression_applied": compressed}
            if kind == "older":
                save_graph_state(session, {**state, "messages": said[:-1][:count] if len(said) > 2 else said})
                continue
            if kind == "compress":
                shown, compressed = [{"role": "system", "content": f"summary {len(said)}"}, *said[-count:]], True
                new = []
            said, shown = [*said, *new], [*shown, *new]
            if kind == "full":
                state["full_messages"] = said
            given = new if kind == "new only" and not compressed else shown
            saved = save_graph_state(session, {**state, "messages": given, "compression_applied": compressed})
            assert saved.problems == ()
            assert bodies(session) == said
            if kind != "new only":
                assert load_graph_state(session).state["messages"] == (shown if compressed else said)
