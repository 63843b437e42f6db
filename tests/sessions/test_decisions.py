"""Actions that wait for a decision: approved they run, refused the refusal is the call's result; one commit ends the waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.explorer import Crash, ScheduleRun, explore
from tests.support.steps import application, fresh
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import ConflictError, IdempotencyMismatchError, InvalidInputError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.ports import BlobStore, ItemTable
from turnlog.settings import Settings
from turnlog.testing.fixed import SequentialIds


def calls(*call_ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "delete", "arguments": "{}"}}
            for call_id in call_ids
        ],
    }


def result(call_id: str, content: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "delete it"}


def waiting(log: Turnlog, session_id: str = "s", **pending: Any) -> Session:
    session = log.sessions.create(session_id, recall="never")
    session.append(USER, calls("c1"), run={"pending_action": {"call_id": "c1", "what": "delete", **pending}})
    return session


@pytest.fixture
def here() -> Turnlog:
    """In memory: for what no engine has a part in."""
    return application(*fresh(lambda log: None)(), SequentialIds())


def test_an_approved_action_waits_for_its_result_which_ends_it_in_its_own_commit(log: Turnlog) -> None:
    session = waiting(log)
    decided = session.decide_pending("approve", reason="go on")
    assert decided.refusal is None
    assert decided.state["pending_action"] == {
        "call_id": "c1",
        "what": "delete",
        "decision": "approve",
        "reason": "go on",
    }
    head = session.append(result("c1")).head
    assert session.agent().state == {"agent_id": "main"}
    assert session.agent().version == head
    newest = session.history_page(limit=2).entries
    assert [(entry.action, entry.first) for entry in newest] == [("run", head), ("tool_result", head - 1)]
    assert newest[0].created_at == newest[1].created_at, "one commit"
    assert session.context().open_calls == []


def test_a_refusal_is_the_result_of_its_call_in_one_commit_with_the_end(log: Turnlog) -> None:
    session = waiting(log)
    decided = session.decide_pending("reject", reason="not on a Friday")
    assert decided.state == {"agent_id": "main"}
    assert decided.refusal == decided.version - 1 == session.info().head - 1
    refusal = list(session.messages())[-1]
    assert refusal.position == decided.refusal
    (value,) = refusal.body["tool_results"]
    assert value == {
        "tool_call_id": "c1",
        "result": "This action was rejected. Reason: not on a Friday",
        "is_error": True,
    }
    window = session.context(format="openai_chat")
    assert window.messages[-1] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "[error] This action was rejected. Reason: not on a Friday",
    }
    assert window.open_calls == []
    assert [entry.action for entry in session.history_page(limit=2).entries] == ["reject", "tool_result"]
    assert [warning.code for warning in session.append(result("c1")).warnings] == ["second_result"]


def test_of_several_calls_the_named_one_is_refused_and_the_others_stay_open(here: Turnlog) -> None:
    session = here.sessions.create("s")
    refs = session.append(USER, calls("c1", "c2", "c1")).refs
    session.patch_agent({"pending_action": {"ref": refs[1].ref}})
    assert session.decide_pending("reject").refusal is not None
    assert [call.ref for call in session.context().open_calls] == [refs[0].ref, refs[2].ref]


@pytest.mark.parametrize("by", ["call_id", "ref"])
def test_any_of_many_parallel_calls_can_be_refused(log: Turnlog, by: str) -> None:
    """A header lists 16 open calls."""
    session = log.sessions.create("s", recall="never")
    refs = session.append(USER, calls(*(f"c{number}" for number in range(20)))).refs
    session.patch_agent({"pending_action": {by: getattr(refs[18], by)}})
    decided = session.decide_pending("reject")
    assert decided.refusal is not None and decided.state == {"agent_id": "main"}
    assert refs[18].ref not in {call.ref for call in session.context().open_calls}
    assert [warning.code for warning in session.append(result("c18")).warnings] == ["second_result"]


def test_a_result_of_another_call_ends_nothing(here: Turnlog) -> None:
    session = here.sessions.create("s")
    session.append(USER, calls("c1", "c2"), run={"pending_action": {"call_id": "c2"}})
    session.append(result("c1"))
    assert session.agent().state["pending_action"] == {"call_id": "c2"}
    session.append(result("c2"), run={"pending_action": {"what": "the next"}, "iteration": 1})
    assert session.agent().state == {
        "agent_id": "main",
        "iteration": 1,
        "pending_action": {"call_id": "c2", "what": "the next"},
    }


def test_an_agent_says_itself_what_becomes_of_its_action(here: Turnlog) -> None:
    session = here.sessions.create("s")
    session.append(USER, calls("c1", "c2"), run={"agent_id": "a", "pending_action": {"call_id": "c1"}})
    session.patch_agent({"pending_action": {"call_id": "c2"}}, agent_id="b")
    session.append(result("c1"), result("c2"), run={"agent_id": "c", "iteration": 1})
    assert session.state().state["agents"] == {
        "a": {"agent_id": "a"},
        "b": {"agent_id": "b"},
        "c": {"agent_id": "c", "iteration": 1},
    }


@pytest.mark.parametrize(
    "pending", [{"what": "x"}, {"call_id": "unknown"}, {"ref": "99.0"}, {"ref": "nonsense"}, {"call_id": ""}]
)
def test_an_action_that_names_no_open_call_is_marked(here: Turnlog, pending: dict[str, Any]) -> None:
    session = here.sessions.create("s")
    session.append(USER, calls("c1"), run={"pending_action": pending})
    decided = session.decide_pending("reject", reason="no")
    assert decided.refusal is None
    assert decided.state["pending_action"] == {**pending, "decision": "reject", "reason": "no"}
    with pytest.raises(ConflictError, match="already decided"):
        session.decide_pending("approve")
    assert len(list(session.messages())) == 2
    session.append({"role": "assistant", "content": "Then not."}, run={"pending_action": None})
    assert "pending_action" not in session.agent().state


def test_what_can_not_be_decided(here: Turnlog) -> None:
    session = waiting(here)
    for wrong in ({}, {"decision": "maybe"}, {"decision": "approve", "why": "x"}, {"decision": "reject", "reason": 1}):
        with pytest.raises(InvalidInputError):
            session.backend.call("decide_pending", path={"session_id": "s", "agent_id": "main"}, body=wrong)
    with pytest.raises(NotFoundError):
        session.decide_pending("approve", agent_id="other")
    session.decide_pending("approve")
    for decision in ("approve", "reject"):
        with pytest.raises(ConflictError) as caught:
            session.decide_pending(decision)  # type: ignore[arg-type]
        assert caught.value.error_code == "already_decided"
    session.append(result("c1"))
    with pytest.raises(ConflictError) as caught:
        session.decide_pending("reject")
    assert caught.value.error_code == "nothing_pending"


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_key_decides_once(log: Turnlog, decision: Any) -> None:
    session = waiting(log)
    answer = session.decide_pending(decision, idempotency_key="k")
    head = session.info().head
    assert session.decide_pending(decision, idempotency_key="k") == answer
    session.append(result("c1"))
    assert session.decide_pending(decision, idempotency_key="k") == answer
    with pytest.raises(IdempotencyMismatchError):
        session.decide_pending(decision, reason="other", idempotency_key="k")
    assert session.info().head == head + (2 if decision == "approve" else 1)


def test_an_action_survives_a_restart_and_the_loop_does_not_time_out(harness: Any, log: Turnlog) -> None:
    waiting(log)
    harness.clock.advance(30 * 24 * 3600)
    again = Application(harness.app.engine, Settings(), clock=harness.clock, ids=SequentialIds(10**7))
    session = Session(InProcessBackend(again, Owner.of("acme", "ada")), "s")
    assert session.agent().state["pending_action"]["what"] == "delete"
    assert next(session.loops()).status == "open"
    session.decide_pending("approve")
    harness.clock.advance(30 * 24 * 3600)
    assert next(session.loops()).status == "open", "it waits for its result still"
    assert session.append(result("c1")).loop == 1
    harness.clock.advance(3601)
    assert next(session.loops()).status == "interrupted"


def test_a_strict_session_takes_the_refusal_and_refuses_the_late_result(here: Turnlog) -> None:
    session = here.sessions.create("s", strict=True)
    session.append(USER, calls("c1"), run={"pending_action": {"call_id": "c1"}})
    session.decide_pending("reject")
    with pytest.raises(InvalidInputError):
        session.append(result("c1"))


def test_a_refusal_in_every_format_is_valid(here: Turnlog) -> None:
    session = waiting(here)
    session.decide_pending("reject")
    session.append({"role": "user", "content": "then what?"})
    for format in ("openai_chat", "openai_responses", "anthropic", "bedrock_converse"):
        window = session.context(format=format, policy="full")
        assert here.lint(window.messages, format=format).valid, format


# ------------------------------------------------------------ every order


def doing(start: int, act: Callable[[Session], Any]) -> Callable[[ItemTable, BlobStore], Any]:
    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        return act(application(items, blobs, SequentialIds(start)).sessions.of("s"))

    return operation


def test_every_order_of_a_refusal_and_the_result_answers_the_call_once_first() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
        refusal, appended = run.results
        assert not isinstance(appended, BaseException), appended
        assert "pending_action" not in session.agent().state
        answers = [message for message in session.messages() if message.body["role"] == "tool"]
        if isinstance(refusal, BaseException):
            assert isinstance(refusal, ConflictError) and refusal.error_code == "nothing_pending"
            assert len(answers) == 1 and appended.warnings == []
        else:
            assert [answer.position for answer in answers] == [refusal.refusal, appended.first]
            assert [warning.code for warning in appended.warnings] == ["second_result"]

    operations = [
        doing(1000, lambda session: session.decide_pending("reject")),
        doing(2000, lambda session: session.append(result("c1"))),
    ]
    assert explore(operations, fresh(waiting), check, max_preemptions=2) >= 6


def test_every_order_of_two_decisions_lets_the_first_one_count() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
        failed = [result for result in run.results if isinstance(result, BaseException)]
        assert len(failed) == 1 and isinstance(failed[0], ConflictError), run.results
        assert failed[0].error_code in ("nothing_pending", "already_decided")
        actions = [entry.action for entry in session.history()]
        assert actions.count("approve") + actions.count("reject") == 1

    operations = [
        doing(1000, lambda session: session.decide_pending("reject")),
        doing(2000, lambda session: session.decide_pending("approve")),
    ]
    assert explore(operations, fresh(waiting), check, max_preemptions=2) >= 6


@pytest.mark.parametrize("after", [False, True])
def test_a_refusal_that_crashes_anywhere_is_whole_or_not_there(after: bool) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
        answers = [message for message in session.messages() if message.body["role"] == "tool"]
        assert len(answers) == (0 if "pending_action" in session.agent().state else 1)
        again = (
            application(items, blobs, SequentialIds(5_000))
            .sessions.of("s")
            .decide_pending("reject", idempotency_key="k")
        )
        assert "pending_action" not in again.state
        refused = [message for message in session.messages() if message.body["role"] == "tool"]
        assert [message.position for message in refused] == [again.refusal]
        assert session.state().state == {"n": 1, "agents": {"main": {"agent_id": "main"}}}

    operations = [
        doing(1000, lambda session: session.decide_pending("reject", idempotency_key="k")),
        doing(2000, lambda session: session.patch_state({"n": 1})),
    ]
    for at in range(1, 7):
        explore(operations, fresh(waiting), check, crash=Crash(0, at, after), max_preemptions=1)
