"""Runs: what a model says is done and kept, wherever it stops it goes on, and nothing a model or a tool does breaks the log."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from tests.agents import events
from tests.agents.scripts import FORMATS, TOOLS, Script, calls, says
from tests.conftest import Harness
from tests.effort import boundaries
from tests.support.pictures import png
from turnlog import lint
from turnlog.agents import Hooks, Reply, RequestedCall, Tool
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.providers.blocks import legal_tool_name
from turnlog.sessions.context_models import WindowAnswer


@pytest.fixture
def session(harness: Harness) -> Session:
    return harness.log().sessions.create("s", tools=TOOLS)


def results(session: Session) -> list[tuple[str, bool]]:
    """What the tools have answered, and whether it is an error."""
    loops = [call for loop in session.loops() for call in loop.tool_calls]
    return [(str(session.recall(call.ref).content), bool(call.is_error)) for call in loops]


def find(q: str) -> dict[str, str]:
    return {"found": q}


@pytest.mark.parametrize("format", FORMATS)
def test_a_course_in_every_providers_shape(session: Session, format: Any) -> None:
    model = Script(
        calls(("c1", "find", {"q": "a"}), ("c2", "find", {"q": "b"}), format=format),
        calls(("c3", "recall_tool_call", {"ref": "4.0"}), format=format),
        says("Here it is.", format),
    )
    with session.run(model, {"find": find}, format=format) as run:
        outcome = run.send("Where is it?")
    assert (outcome.status, outcome.text, outcome.iterations) == ("final", "Here it is.", 3)
    for window in model.windows:
        answer = lint([*window.messages], format=format)
        assert answer.valid, answer.problems
    first, second, third = results(session)
    assert (first, second) == (('{"found": "a"}', False), ('{"found": "b"}', False))
    assert third[0].startswith("4.0 find") and not third[1]
    assert "tool_recalled" in {entry.action for entry in session.history()}
    newest = list(session.messages())[-1]
    assert newest.finish_reason in ("stop", "completed", "end_turn")
    state = session.agent().state
    assert (state["run_id"], state["iteration"], state["max_iterations"]) == (outcome.run_id, 3, 20)


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_that_recalls_an_image_sees_it(session: Session, format: Any) -> None:
    block = {"type": "image", "media_type": "image/png", "data": png(640, 480)}
    session.append({"role": "user", "content": [block], "author": "me"}, {"role": "assistant", "content": "seen"})
    model = Script(calls(("c1", "recall_tool_call", {"ref": "2"}), format=format), says("I see it.", format))
    with session.run(model, {}, format=format) as run:
        assert run.send("Look again.").status == "final"
    assert [json.dumps(window.messages).count(block["data"]) for window in model.windows] == [1, 2]
    assert all(lint([*window.messages], format=format).valid for window in model.windows)


def test_what_a_model_gets_wrong_it_reads(session: Session) -> None:
    def breaks(q: str) -> None:
        raise RuntimeError(f"no {q}{', never' * 500}")

    model = Script(
        calls(("c1", "nothing", {}), ("c2", "find", {"z": 1}), ("c3", "find", "[1]"), ("c4", "delete", {"q": "x"})),
        calls(("c5", "recall_tool_call", "{}"), ("c6", "find", "")),
        says("Sorry."),
    )
    with session.run(model, {"find": find, "delete": breaks}) as run:
        assert run.send("Go").status == "final"
    values = dict(zip(("c1", "c2", "c3", "c4", "c5", "c6"), results(session), strict=True))
    # Loops are newest first, and there is one.
    assert all(is_error for _, is_error in values.values())
    assert values["c1"][0] == "There is no tool 'nothing'. Tools: delete, find."
    assert "do not fit" in values["c2"][0] and values["c3"][0] == "The arguments are not a JSON object."
    assert values["c4"][0] == f"RuntimeError: no x{', never' * 500}"[:2_000]
    assert "give the ref" in values["c5"][0]
    assert lint([*model.windows[-1].messages], format="openai_chat").valid


def test_a_result_that_no_append_takes_is_an_error_for_the_model(session: Session) -> None:
    tools: dict[str, Any] = {"find": lambda q: "x" * 40_000_000}
    with session.run(Script(calls(("c1", "find", {"q": "a"})), says("Too much.")), tools) as run:
        assert run.send("Go").text == "Too much."
    ((text, is_error),) = results(session)
    assert is_error and text.startswith("The result of 40,000,002 bytes is too large.")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("reason", ["length", "max_tokens", "max_output_tokens"])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_the_last_call_of_a_reply_that_a_limit_cut_off_is_not_executed(
    session: Session, format: Any, reason: str, is_resumed: bool
) -> None:
    executed = list[str]()
    said = calls(("c1", "find", {"q": "a"}), ("c2", "delete", {}), format=format)
    reply = Reply(said if isinstance(said, list) else [said], None, reason)

    def delete(q: str = "all") -> None:
        executed.append(q)

    options: dict[str, Any] = {"tools": {"find": lambda q: executed.append(q), "delete": delete}, "format": format}
    if is_resumed:
        metas = [{"finish_reason": reason} for _ in reply.messages]
        session.append({"role": "user", "content": "Go"})
        session.append(*reply.messages, meta=metas, format=format)
    model = Script(*([] if is_resumed else [reply]), says("Done.", format))
    with session.run(model, **options) as run:
        assert (run.resume() if is_resumed else run.send("Go")).text == "Done."
    assert executed == ([] if format == "openai_responses" else ["a"]), "an item of Responses is a message of its own"
    text, is_error = results(session)[-1]
    assert is_error and "cut off at its token limit" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"order": {"number": 7}, "others": [{"number": 8}]}, "7 [8]"),
        ({"order": None, "others": []}, "None []"),
        (
            {"order": {"number": "many"}},
            "The arguments do not fit: order.number: Input should be a valid integer",
        ),
        ({"order": 3}, "The arguments do not fit: order"),
        ({"order": {"number": 7}, "plain": {"number": "1"}}, "7 [] {'number': '1'}"),
    ],
)
def test_arguments_that_are_annotated_as_models_are_models(session: Session, arguments: Any, text: str) -> None:
    def total(order: Order | None, others: Annotated[list[Order], "more"] = [], plain: Any = None) -> str:  # noqa: B006
        values = (order.number if order else None, [other.number for other in others], plain)
        return " ".join(str(value) for value in values if value is not None or value is values[0])

    session.run(Script(calls(("c1", "total", arguments)), says("Done")), {"total": total}).send("Go")
    ((result, is_error),) = results(session)
    assert result.startswith(text) and is_error == text.startswith("The arguments")


def test_a_tool_whose_annotations_can_t_be_read_is_called_with_json(session: Session) -> None:
    def total(order: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(order["number"])

    session.run(Script(calls(("c1", "total", {"order": {"number": 7}})), says("Done")), {"total": total}).send("Go")
    assert results(session) == [("7", False)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make_name", [str, legal_tool_name])
def test_a_tool_that_is_offered_by_a_legal_name_is_executed(harness: Harness, format: Any, make_name: Any) -> None:
    own, executed = "github.search", list[str]()
    session = harness.log().sessions.create("s", tools=[{"type": "function", "function": {"name": own}}])

    def search(q: str) -> str:
        executed.append(q)
        if q == "b":
            raise KeyboardInterrupt
        return q

    said = [calls((id, make_name(own), {"q": id}), format=format) for id in "ab"]
    script, tools = (
        Script(*said, says("Done.", format)),
        {own: Tool(search, verify=lambda call: f"{call.name} was executed")},
    )
    with session.run(script, tools, format=format, approve=[own]) as run:
        outcome = run.send("Search")
    assert outcome.status == "pending" and outcome.pending and outcome.pending["name"] == own and executed == []
    session.decide_pending("approve")
    with session.run(script, tools, format=format) as run:
        with pytest.raises(KeyboardInterrupt):
            run.resume()
        assert run.resume().text == "Done."
    assert executed == ["a", "b"] and results(session) == [("a", False), ("github.search was executed", False)]
    assert lint([*script.windows[-1].messages], format=format).valid


def test_arguments_that_a_stream_has_broken_off_reach_no_function(session: Session) -> None:
    executed, call = list[Any](), calls(("c1", "find", {"_raw": '{"path": "/tm'}), format="anthropic")
    with session.run(
        Script(call, says("Done.", "anthropic")), {"find": lambda **given: executed.append(given)}, format="anthropic"
    ) as run:
        assert run.send("Go").text == "Done."
    assert executed == [] and results(session) == [("The arguments are not a JSON object.", True)]


CUSTOM_CALLS: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "[1] ls"}}],
    },
    "openai_responses": {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "[1] ls"},
}


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("format", CUSTOM_CALLS)
def test_a_custom_tool_is_called_with_its_text(session: Session, format: Any, is_resumed: bool) -> None:
    texts = list[str]()
    options: Any = {"tools": {"shell": texts.append}, "format": format}
    with session.run(Script(CUSTOM_CALLS[format], says("Done.", format)), **options, approve=["shell"]) as run:
        assert run.send("Go").status == "pending"
        session.decide_pending("approve")
        outcome = run.resume() if not is_resumed else None
    if is_resumed:
        with session.run(Script(says("Done.", format)), **options) as run:
            outcome = run.resume()
    assert outcome is not None and outcome.text == "Done." and texts == ["[1] ls"]
    assert results(session) == [("", False)]


def test_a_resumed_call_has_its_arguments_whole(session: Session) -> None:
    text = "lang " * 150_000
    with session.run(Script(calls(("c1", "find", {"q": text}))), {"find": find}, approve=["find"]) as run:
        assert run.send("Go").status == "pending"
    session.decide_pending("approve")
    lengths = list[int]()
    tools: Any = {"find": lambda q: lengths.append(len(q))}
    with session.run(Script(says("Done.")), tools, budget=500_000) as run:
        assert run.resume().text == "Done."
    assert lengths == [len(text)]


def found_by_provider(call_id: str, *, stop_reason: str = "end_turn", parts: slice = slice(None)) -> dict[str, Any]:
    """Claude's answer about a search that the provider ran, or some of its blocks."""
    content = [
        {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []},
        {"type": "text", "text": "Nothing."},
    ]
    return {"type": "message", "role": "assistant", "content": content[parts], "stop_reason": stop_reason}


@pytest.mark.parametrize(
    ("format", "answer"),
    [
        ("anthropic", found_by_provider("srvtoolu_1")),
        (
            "openai_responses",
            [
                {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
                *says("Nothing.", "openai_responses")["output"],
            ],
        ),
        (
            "openai_responses",
            [
                {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
                {"type": "shell_call_output", "call_id": "c1", "output": []},
                {"type": "tool_search_call", "call_id": None, "arguments": {}, "execution": "server"},
                {"type": "tool_search_output", "call_id": None, "tools": [], "execution": "server"},
                *says("Nothing.", "openai_responses")["output"],
            ],
        ),
    ],
)
def test_what_the_provider_ran_is_not_executed_again(session: Session, format: Any, answer: Any) -> None:
    with session.run(Script(answer), {"find": find}, format=format) as run:
        outcome = run.send("Where is it?")
    assert (outcome.status, outcome.text, outcome.iterations) == ("final", "Nothing.", 1)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_answer_that_the_provider_has_paused_is_continued(session: Session, is_resumed: bool) -> None:
    paused = found_by_provider("srvtoolu_1", stop_reason="pause_turn", parts=slice(1))
    model = Script(paused, found_by_provider("srvtoolu_1", parts=slice(1, None)))
    run = session.run(model, {"find": find}, format="anthropic", max_iterations=1 if is_resumed else 2)
    outcome = run.send("Where is it?")
    if is_resumed:
        assert outcome.status == "max_iterations"
        outcome = session.run(model, {"find": find}, format="anthropic", max_iterations=2).resume()
    assert (outcome.status, outcome.text, outcome.iterations) == ("final", "Nothing.", 2)
    assert model.windows[1].messages[-1] == {"role": "assistant", "content": paused["content"]}
    assert lint(session.context(format="anthropic").messages, format="anthropic").valid


def test_no_function_is_stored(session: Session) -> None:
    with session.run(Script(says("Hi")), {"find": find}) as run:
        run.send("Hello")
    assert "function" not in str(session.state().state)


def test_it_is_not_called_more_often_than_it_may_and_goes_on_when_it_may(session: Session) -> None:
    again = [calls((f"c{at}", "find", {"q": "x"})) for at in range(3)]
    with session.run(Script(*again), {"find": find}, max_iterations=2) as run:
        outcome = run.send("Go")
    assert (outcome.status, outcome.iterations) == ("max_iterations", 2)
    assert len(results(session)) == 2, "what was called is answered"
    refused = session.run(Script(), max_iterations=2).resume()
    assert (refused.status, refused.run_id) == ("max_iterations", outcome.run_id)
    more = session.run(Script(says("Done")), {"find": find}, max_iterations=3).resume()
    assert (more.status, more.iterations, more.run_id) == ("final", 3, outcome.run_id)
    assert session.run(Script()).resume().status == "idle"
    fresh = session.run(Script(says("Hello"))).send("Hi")
    assert fresh.iterations == 1 and fresh.run_id != outcome.run_id


class Order(BaseModel):
    number: int


@dataclass
class Place:
    shelf: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([Order(number=7)], '[{"number": 7}]'),
        ({"place": Place("B"), "day": date(2026, 1, 31)}, '{"place": {"shelf": "B"}, "day": "2026-01-31"}'),
        (Order(number=7), '{"number": 7}'),
        (b"\xfb\xff", '"+/8="'),
        (
            {"data": b"\xff", "text": b"ok", "order": Order(number=7)},
            '{"data": "/w==", "text": "ok", "order": {"number": 7}}',
        ),
    ],
)
def test_models_within_a_result_reach_the_model_as_json(session: Session, value: object, text: str) -> None:
    model = Script(calls(("c1", "find", {"q": "x"})), says("Done"))
    session.run(model, {"find": lambda q: value}).send("Go")
    assert results(session) == [(text, False)]


def test_the_stored_limit_counts_unless_the_caller_names_one(session: Session) -> None:
    again = [calls((f"c{at}", "find", {"q": "x"})) for at in range(3)]
    session.patch_agent({"max_iterations": 2})
    outcome = session.run(Script(*again), {"find": find}).send("Go")
    assert (outcome.status, outcome.iterations) == ("max_iterations", 2)
    assert session.run(Script(*again), {"find": find}, max_iterations=1).send("Go").iterations == 1
    session.patch_agent({"iteration": 0, "max_iterations": 0})
    assert session.run(Script()).send("Go").status == "max_iterations", "no model call is allowed"


@pytest.mark.parametrize("moment", ["model", "tool"])
def test_another_process_cancels_a_run_at_its_next_step(harness: Harness, session: Session, moment: str) -> None:
    executed = list[str]()

    def cancel() -> None:
        harness.log().sessions.get("s").cancel_run()

    def execute(q: str) -> str:
        executed.append(q)
        if moment == "tool":
            cancel()
        return q

    def ask(window: WindowAnswer) -> Any:
        if moment == "model":
            cancel()
        return model(window)

    model = Script(calls(("c1", "find", {"q": "a"})), says("never asked"))
    outcome = session.run(ask, {"find": execute}).send("Go")
    assert (outcome.status, outcome.iterations) == ("cancelled", 1)
    assert executed == ([] if moment == "model" else ["a"])
    assert harness.log().sessions.get("s").run(Script(), {"find": execute}).resume().status == "cancelled"
    assert session.run(Script(says("Hi"))).send("Again").status == "final", "a new run is another one"


def test_an_undisturbed_run_reads_the_execution_state_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, real = list[str](), Session.agent
    monkeypatch.setattr(Session, "agent", lambda self, agent_id: reads.append(agent_id) or real(self, agent_id))
    again = [calls((f"c{at}", "find", {"q": "x"})) for at in range(3)]
    assert session.run(Script(*again, says("Done")), {"find": find}).send("Go").iterations == 4
    assert reads == ["main"]


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_call_that_needs_it_waits_for_a_decision_in_another_process(
    harness: Harness, session: Session, decision: Any
) -> None:
    deleted = list[str]()
    tools = {"find": find, "delete": lambda q: deleted.append(q)}
    many = calls(("c1", "find", {"q": "a"}), ("c2", "delete", {"q": "b"}), ("c3", "delete", {"q": "c"}))
    with session.run(Script(many), tools, approve={"delete"}) as run:
        outcome = run.send("Clean up")
    assert outcome.status == "pending" and deleted == []
    assert outcome.pending is not None and (outcome.pending["call_id"], outcome.pending["name"]) == ("c2", "delete")

    def other(*said: Any) -> Any:
        elsewhere = harness.log().sessions.get("s")
        return elsewhere.run(Script(*said), tools, approve=lambda call: call.name == "delete")

    assert other().resume().status == "pending", "it waits until it is decided"
    session.decide_pending(decision, reason="policy")
    second = other().resume()
    assert second.status == "pending" and second.pending is not None and second.pending["call_id"] == "c3"
    assert deleted == (["b"] if decision == "approve" else [])
    session.decide_pending(decision)
    done = other(says("Done")).resume()
    assert (done.status, done.iterations, done.run_id) == ("final", 2, outcome.run_id)
    assert deleted == (["b", "c"] if decision == "approve" else [])
    result = results(session)
    assert [is_error for _, is_error in result] == [False, decision == "reject", decision == "reject"]
    assert decision == "approve" or result[1][0] == "This action was rejected. Reason: policy"
    assert session.agent().state.get("pending_action") is None


@pytest.mark.parametrize("decision", ["approve", "reject"])
@pytest.mark.parametrize(("call_id", "next_id"), [("c1", "c1"), ("", ""), ("c1", "")])
def test_a_call_whose_result_would_go_to_a_waiting_call_is_executed_behind_it(
    session: Session, call_id: str, next_id: str, decision: Any
) -> None:
    executed = list[str]()
    tools = {name: lambda q, name=name: executed.append(f"{name} {q}") or name for name in ("pay", "mail")}
    both = calls((call_id, "pay", {"q": "a"}), (next_id, "mail", {"q": "b"}))
    with session.run(Script(both, says("Done")), tools, approve={"pay"}) as run:
        assert run.send("Pay").status == "pending" and executed == []
        session.decide_pending(decision)
        assert run.resume().status == "final"
    assert executed == (["pay a", "mail b"] if decision == "approve" else ["mail b"])
    assert [is_error for _, is_error in results(session)] == [decision == "reject", False]
    assert results(session)[1][0] == "mail"


@pytest.mark.parametrize("needs_decision", [True, False])
def test_an_async_function_may_say_which_calls_wait(session: Session, needs_decision: bool) -> None:
    async def approve(call: RequestedCall) -> bool:
        return needs_decision

    model, tools = Script(calls(("c1", "find", {"q": "a"})), says("Done")), {"find": Tool(find, idempotent=True)}
    with pytest.raises(InvalidInputError, match="run_async"):
        session.run(model, tools, approve=approve).send("Go")
    outcome = asyncio.run(session.run_async(model, tools, approve=approve).resume())
    assert outcome.status == ("pending" if needs_decision else "final")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_call_that_is_approved_late_is_executed(session: Session, format: Any, is_answered: bool) -> None:
    """Late: the user has said something else since."""
    executed = list[str]()
    tools = {"delete": lambda q: executed.append(q)}
    options: dict[str, Any] = {"tools": tools, "format": format, "approve": ["delete"]}
    with session.run(Script(calls(("c1", "delete", {"q": "a"}), format=format)), **options) as run:
        assert run.send("Delete it").status == "pending"
    model = Script(says("It rains.", format)) if is_answered else Script(UnavailableError("down"))
    with session.run(model, **options) as run, nullcontext() if is_answered else pytest.raises(UnavailableError):
        run.send("What is the weather?")
    session.decide_pending("approve")
    model = Script(says("It is sunny.", format))
    with session.run(model, **options) as run:
        outcome = run.resume()
    assert (outcome.status, outcome.text) == (("idle", "It rains.") if is_answered else ("final", "It is sunny."))
    assert executed == ["a"] and "pending_action" not in session.agent().state
    model = Script(says("Yes.", format))
    with session.run(model, **options) as run:
        assert run.send("Is it deleted?").text == "Yes." and executed == ["a"]
    assert lint([*model.windows[0].messages], format=format).valid


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("is_approved", [True, False])
def test_a_call_whose_arguments_were_redacted_is_not_executed(session: Session, format: Any, is_approved: bool) -> None:
    executed = list[str]()
    tools = {"delete": Tool(lambda path="/": executed.append(path), idempotent=True)}
    script = Script(calls(("c1", "delete", {"path": "old"}), format=format), says("Sorry.", format))
    with session.run(script, tools, format=format, approve=["delete"]) as run:
        assert run.send("Delete it").status == "pending"
    (call,) = session.context(format=format).open_calls
    session.redact(int(call.ref.partition(".")[0]))
    if is_approved:
        session.decide_pending("approve")
    else:  # as after the end of a process
        session.patch_agent({"pending_action": None})
    with session.run(script, tools, format=format) as run:
        assert run.resume().text == "Sorry."
    assert executed == []
    ((text, is_error),) = results(session)
    assert is_error and "arguments have been redacted" in text
    assert lint([*script.windows[-1].messages], format=format).valid


@pytest.mark.parametrize("ref", ["99.0", "2.0", "3.0", "3.7", "nonsense"])
def test_an_approved_action_that_names_no_open_call_executes_nothing(session: Session, ref: str) -> None:
    """Position 2 is the user's message, and call 3.0 has its result."""
    executed = list[str]()
    options: dict[str, Any] = {"tools": {"delete": lambda q: executed.append(q)}}
    with session.run(Script(calls(("c1", "delete", {"q": "a"})), says("Done.")), **options) as run:
        run.send("Delete it")
    session.patch_agent({"pending_action": {"ref": ref}})
    session.decide_pending("approve")
    with session.run(Script(), **options) as run:
        assert (run.resume().status, executed) == ("idle", ["a"])


def test_names_of_calls_that_wait_are_not_given_as_one_text(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="approve must be a list, not 'repay'"):
        session.run(Script(says("Hi")), {"pay": find}, approve="repay")


@pytest.mark.parametrize("option", ["approve", "hooks"])
def test_what_is_no_list_is_refused_before_the_question_is_stored(session: Session, option: str) -> None:
    head = session.info().head
    with pytest.raises(InvalidInputError, match=f"{option} must be a list, not 5"):
        session.run(Script(says("Hi")), **{option: 5}).send("Go")  # type: ignore[arg-type]
    assert session.info().head == head


@pytest.mark.parametrize("format", FORMATS)
def test_approve_names_tools_of_the_run_or_of_the_window(session: Session, format: Any) -> None:
    executed = list[str]()
    script = Script(calls(("c1", "delete_all", {}), format=format), says("Done.", format))
    options: dict[str, Any] = {"tools": {"delete_all": lambda: executed.append("all")}, "format": format}
    with pytest.raises(InvalidInputError, match=r"approve names 'delete-all', which .* of the run\. Tools: delete"):
        session.run(script, **options, approve=["delete-all"]).send("Go")
    assert script.windows == [] and executed == []
    names = ["delete_all", "find", "recall_tool_call"]  # the run's, the session's, the windows'
    assert session.run(script, **options, approve=names).resume().status == "pending"
    session.decide_pending("approve")
    with pytest.raises(InvalidInputError, match="approve names 'fnd'"):
        session.run(script, **options, approve=["fnd"]).resume()
    assert executed == [] and session.run(script, **options, approve=names).resume().text == "Done."


def test_hooks_see_everything_and_may_put_other_things_in_its_place(session: Session) -> None:
    seen = list[str]()

    class Watch(Hooks):
        def before_model(self, window: Any) -> Any:
            seen.append("before_model")
            return window.model_copy(update={"messages": [*window.messages, {"role": "user", "content": "hooked"}]})

        def after_model(self, messages: Sequence[Any]) -> Any:
            seen.append("after_model")
            return [{**messages[0], "content": "changed"}] if messages[0].get("content") else None

        def before_tool(self, call: RequestedCall) -> Any:
            seen.append(f"before {call.id} {call.ref}")
            return {"cached": True} if call.id == "c2" else None

        def after_tool(self, call: RequestedCall, result: str, is_error: bool) -> Any:
            seen.append(f"after {call.id} {result}")
            return result.upper()

    model = Script(calls(("c1", "find", {"q": "a"}), ("c2", "find", {"q": "b"})), says("said"))
    with session.run(model, {"find": find}, hooks=[Watch()]) as run:
        outcome = run.send("Go")
    assert outcome.text == "changed" and [text for text, _ in results(session)] == [
        '{"FOUND": "A"}',
        '{"CACHED": TRUE}',
    ]
    assert model.windows[0].messages[-1]["content"] == "hooked"
    first, second = next(iter(session.loops())).tool_calls
    assert seen == [
        "before_model",
        "after_model",
        f"before c1 {first.ref}",
        'after c1 {"found": "a"}',
        f"before c2 {second.ref}",
        'after c2 {"cached": true}',
        "before_model",
        "after_model",
    ]


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_model_that_streams(session: Session, is_broken: bool) -> None:
    seen = list[Any]()

    class Watch(Hooks):
        def on_event(self, event: Any) -> Any:
            seen.append(event)

    many = list(events.chat({"role": "assistant", "content": "Hello"}, list))
    result = many[:4] if is_broken else many
    run = session.run(Script(lambda: iter(result)), hooks=[Watch()])
    if not is_broken:
        assert run.send("Hi").text == "Hello"
        assert list(session.messages())[-1].status == "complete"
    else:
        with pytest.raises(UnavailableError, match="ended before"):
            run.send("Hi")
        broken = list(session.messages())[-1]
        assert (broken.body, broken.status) == ({"role": "assistant", "content": "Hel"}, "interrupted")
        assert session.run(Script(says("Hello"))).resume().text == "Hello"
    assert seen == result


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_whose_connection_breaks_is_kept_and_its_error_goes_on(session: Session, is_async: bool) -> None:
    seen, many = list[Any](), list(events.chat({"role": "assistant", "content": "Hello"}, list))[:4]

    class Watch(Hooks):
        def on_event(self, event: Any) -> Any:
            return self.note(event) if is_async else seen.append(event)

        async def note(self, event: Any) -> None:
            await asyncio.sleep(0)
            seen.append(event)

    def stream() -> Iterator[Any]:
        yield from many
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        if is_async:
            asyncio.run(session.run_async(Script(stream), hooks=[Watch()]).send("Hi"))
        else:
            session.run(Script(stream), hooks=[Watch()]).send("Hi")
    assert seen == many
    broken = list(session.messages())[-1]
    assert (broken.body, broken.status) == ({"role": "assistant", "content": "Hel"}, "interrupted")
    assert session.run(Script(says("Hello"))).resume().text == "Hello"


def test_the_answer_of_converse_stream_is_read_as_the_stream_that_it_holds(session: Session) -> None:
    many = events.converse({"role": "assistant", "content": [{"text": "Hello"}]}, list)
    assert session.run(Script({"stream": many}), format="bedrock_converse").send("Hi").text == "Hello"
    with pytest.raises(InvalidInputError, match="streams asynchronously"):
        session.run(Script(lambda: aiter_of("x"))).send("Hi")


async def aiter_of(event: Any) -> Any:
    yield event


def test_a_run_is_sent_a_text_a_message_or_several_and_tells_its_run(session: Session) -> None:
    run = session.run(Script(says("1"), says("2"), says("3")))
    assert (run.run_id, run.iterations) == ("", 0)
    for value in ("a", {"role": "user", "content": "b"}, [{"role": "user", "content": text} for text in "cd"]):
        outcome = run.send(value)
        assert (run.run_id, run.iterations) == (outcome.run_id, 1)
    assert [message.body["content"] for message in session.messages()] == ["a", "1", "b", "2", "c", "d", "3"]


def test_results_before_a_call_that_waits_are_kept_with_it(session: Session) -> None:
    """The session is given back, and nothing is said to have begun that was not."""
    many = calls(("c1", "find", {"q": "a"}), ("c2", "find", {"q": "b"}), ("c3", "delete", {"q": "c"}))
    tools = {"find": Tool(find, idempotent=True), "delete": lambda q: "deleted"}
    outcome = session.run(Script(many), tools, approve={"delete"}, on_busy="reject").send("Go")
    assert outcome.status == "pending" and outcome.pending is not None and outcome.pending["call_id"] == "c3"
    assert results(session)[:2] == [('{"found": "a"}', False), ('{"found": "b"}', False)]
    state = session.agent().state
    assert "begun" not in state and state["pending_action"] == {"call_id": "c3", "ref": "4.2", "name": "delete"}
    session.release(session.acquire("another").token)
    session.decide_pending("approve")
    assert session.run(Script(says("Done")), tools, on_busy="reject").resume().text == "Done"


def test_any_function_may_be_a_tool_and_any_value_its_result(session: Session) -> None:
    """A built-in function has no signature to compare the arguments with."""
    circle = list[Any]()
    circle.append(circle)
    many = calls(("c1", "builtin", {"q": "a"}), ("c2", "circle", {}), ("c3", "circle", "{"))
    session.run(Script(many, says("Done")), {"builtin": dict, "circle": lambda: circle}).send("Go")
    result = [('{"q": "a"}', False), ("[[...]]", False), ("The arguments are not a JSON object.", True)]
    assert results(session) == result


def test_a_stream_that_breaks_leaves_all_that_it_has_said(session: Session) -> None:
    """Also more messages than one append takes."""
    items = [
        {"type": "function_call", "call_id": f"c{at}", "name": "find", "arguments": '{"q": "a"}'} for at in range(30)
    ]
    values = [
        response
        for response in events.responses(items, lambda text: [text])
        if response["type"] != "response.completed"
    ]
    with pytest.raises(UnavailableError, match="ended before"):
        session.run(Script(lambda: iter(values)), format="openai_responses").send("Hi")
    kept = [message for message in session.messages() if message.status == "interrupted"]
    assert [item.body["call_id"] for item in kept] == [f"c{at}" for at in range(30)]


@pytest.mark.parametrize("event", ["response.failed", "error"])
def test_an_answer_of_responses_that_has_failed_says_why(session: Session, event: str) -> None:
    """Its library raises no error."""
    error = {"code": "server_error", "message": "The model is overloaded."}
    whole = {"object": "response", "status": "failed", "output": [], "error": error}
    run = session.run(Script(whole), format="openai_responses")
    with pytest.raises(UnavailableError, match=r"answer has failed: The model is overloaded\."):
        run.send("Hi")
    partial = {**whole, "output": says("Hel", "openai_responses")["output"], "error": None}
    with pytest.raises(UnavailableError, match=r"answer has failed$"):
        session.run(Script(partial), format="openai_responses").resume()
    assert [message.status for message in session.messages()] == ["complete", "interrupted"]
    fields = {"response": whole} if event == "response.failed" else error
    run = session.run(Script(lambda: iter([{"type": event, **fields}])), format="openai_responses")
    with pytest.raises(UnavailableError, match=r"ended before .*: The model is overloaded\."):
        run.resume()


def test_an_error_that_a_gateway_sends_without_choices_is_told(session: Session) -> None:
    answers = iter([{"choices": None, "error": {"code": 429, "message": "Slow down."}}, {"choices": None}])
    run = session.run(lambda window: next(answers))
    with pytest.raises(UnavailableError, match=r"answer has failed: Slow down\."):
        run.send("hi")
    with pytest.raises(InvalidInputError, match="gave no message"):
        run.resume()


def test_an_error_of_a_tool_that_has_no_text_is_a_result(session: Session) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def look_up() -> None:
        raise MuteError

    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    answers = iter(
        [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "assistant", "content": "ok"}]
    )
    assert session.run(lambda window: next(answers), {"look_up": look_up}).send("hi").status == "final"
    assert "MuteError: an error without a text" in str([message.body for message in session.messages()])


PROVIDER_ERRORS: dict[str, dict[str, Any]] = {
    "openai_chat": {"error": {"message": "Rate limit: retry in 20 s.", "code": 429}},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Rate limit: retry in 20 s."}},
    "bedrock_converse": {"throttlingException": {"message": "Rate limit: retry in 20 s."}},
}


@pytest.mark.parametrize("format", PROVIDER_ERRORS)
def test_an_error_that_a_provider_streams_is_told_and_may_be_tried_again(session: Session, format: Any) -> None:
    message = says("Hello", format)
    message = message["choices"][0]["message"] if format == "openai_chat" else message
    message = message["output"]["message"] if format == "bedrock_converse" else message
    make = {"openai_chat": events.chat, "anthropic": events.anthropic, "bedrock_converse": events.converse}[format]
    first = list(make(message, lambda text: [text]))[:2]
    with pytest.raises(UnavailableError, match=r"ended before .*: Rate limit: retry in 20 s\.") as caught:
        session.run(Script(lambda: iter([*first, PROVIDER_ERRORS[format]])), format=format).send("Hi")
    assert caught.value.error_code == "broken_stream"


def test_a_stream_in_another_format_than_that_of_the_run_is_refused(session: Session) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
    many = list(events.anthropic(message, lambda text: [text]))
    with pytest.raises(InvalidInputError, match="in format 'anthropic', not 'openai_chat'"):
        session.run(Script(lambda: iter(many))).send("Hi")


def test_a_model_that_fails_leaves_a_session_that_goes_on(session: Session) -> None:
    with pytest.raises(ZeroDivisionError):
        session.run(Script(ZeroDivisionError())).send("Hi")
    for nothing in ([], Reply([]), {"choices": []}):
        with pytest.raises(InvalidInputError, match="no message"):
            session.run(Script(nothing)).resume()
    with pytest.raises(InvalidInputError, match="2 choices"):
        session.run(Script({"choices": [{}, {}]})).resume()
    for wrong in ("text", 3):
        with pytest.raises(InvalidInputError, match="a model must return"):
            session.run(Script(wrong)).resume()
    assert session.run(Script(says("Hello"))).resume().text == "Hello"
    assert [message.body["content"] for message in session.messages()] == ["Hi", "Hello"]


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (
            {"input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 5},
            {"input_tokens": 9, "output_tokens": 3},
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.5},
            {"input_tokens": 9, "output_tokens": 3, "cost": 0.5},
        ),
        ({"input_tokens": 9.0, "output_tokens": 3}, {"input_tokens": 9, "output_tokens": 3}),
        ({"cost": 0.5}, {"cost": 0.5}),
        ({"cost": float("inf")}, None),
        ({"cost": 10**400}, None),
        ({"total_tokens": 12}, None),
        ({"input_tokens": -1, "output_tokens": 3}, None),
        ({"input_tokens": float("nan"), "output_tokens": 3}, None),
    ],
)
def test_a_reply_is_kept_whatever_its_usage_says(
    session: Session, usage: dict[str, float], counted: dict[str, float] | None
) -> None:
    outcome = session.run(Script(Reply([{"role": "assistant", "content": "Hello"}], usage))).send("Hi")
    assert (outcome.text, outcome.usage) == ("Hello", counted)


def test_a_reply_holds_messages_in_any_form_that_a_model_may_return(session: Session) -> None:
    message: Any = {"role": "assistant", "content": "Hello"}
    for messages in (message, [message], iter([message]), says("Hello"), [says("Hello")]):
        assert session.run(Script(Reply(messages, {"cost": 0.5}))).send("Hi").text == "Hello"
    assert list(session.messages())[-1].finish_reason == "stop"
    with pytest.raises(InvalidInputError, match="a model must return"):
        session.run(Script(Reply("Hello"))).send("Hi")  # type: ignore[arg-type]


def test_a_stream_of_texts_is_refused(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="an event must be a mapping"):
        session.run(Script(lambda: iter(["Hel", "lo"]))).send("Hi")


def test_agents_of_one_session_by_their_names(session: Session) -> None:
    planner = session.run(
        Script(calls(("p1", "find", {"q": "x"}))),
        {"find": find},
        agent_id="planner",
        author="planner",
        max_iterations=1,
    )
    assert planner.send("Plan").status == "max_iterations"
    session.append(calls(("w1", "find", {"q": "y"})), meta=[{"author": "worker"}])
    asked = list[str]()
    worker = session.run(
        Script(says("Worked")), {"find": lambda q: asked.append(q)}, agent_id="worker", author="worker"
    )
    assert worker.resume().text == "Worked" and asked == ["y"]
    assert [message.author for message in session.messages()] == [
        "planner",
        "planner",
        "planner",
        "worker",
        "worker",
        "worker",
    ]
    assert session.agent("planner").state["iteration"] == session.agent("worker").state["iteration"] == 1
    assert session.agent("planner").state["run_id"] != session.agent("worker").state["run_id"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_stopped_at_any_call_of_the_store_it_goes_on(harness: Harness, when: str) -> None:
    """What the user said is sent again while it is not there; whatever came after that is gone on with."""

    def course(session: Session, said: list[Any]) -> Any:
        return session.run(Script(*said), {"find": Tool(find, idempotent=True)})

    script = [calls(("c1", "find", {"q": "a"})), says("Done")]
    clean = harness.log(user="clean").sessions.create("s", tools=TOOLS)
    before = harness.faults.calls
    course(clean, list(script)).send("Go")
    for at in boundaries(harness.faults.calls - before, harness.name):
        session = harness.log(user=f"u{when}{at}").sessions.create("s", tools=TOOLS)
        harness.faults.fail(at, when)
        try:
            outcome = course(session, list(script)).send("Go")
        except UnavailableError:
            harness.faults.clear()
            said = list(session.messages())
            left = script[sum(item.body["role"] == "assistant" for item in said) :]
            outcome = course(session, list(left)).resume() if said else course(session, list(left)).send("Go")
        harness.faults.clear()
        roles = [message.body["role"] for message in session.messages()]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert (outcome.status in ("final", "idle"), outcome.text) == (True, "Done")


def test_killed_in_a_tool_another_process_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    script = textwrap.dedent(f"""
        import os
        from tests.agents.scripts import TOOLS, Script, calls
        from turnlog import Turnlog
        session = Turnlog.open({url!r}).sessions.create("s", tools=TOOLS)
        session.run(Script(calls(("c1", "find", {{"q": "a"}}))), {{"find": lambda q: os._exit(7)}}).send("Go")
    """)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 7, ran.stderr
    with Turnlog.open(url) as log:
        session = log.sessions.get("s")
        outcome = session.run(Script(), {"find": find}).resume()
        assert (outcome.status, outcome.pending) == (
            "pending",
            {"call_id": "c1", "ref": "4.0", "name": "find", "effect": "unknown"},
        )
        outcome = session.run(Script(says("Done")), {"find": Tool(find, idempotent=True)}).resume()
        assert outcome.status == "pending", "a person has been asked"
        session.decide_pending("approve")
        outcome = session.run(Script(says("Done")), {"find": find}).resume()
        assert (outcome.status, outcome.text, outcome.iterations) == ("final", "Done", 2)
        assert results(session) == [('{"found": "a"}', False)]


# ------------------------------------------------------------ asyncio


def test_async_functions_and_others_together(session: Session) -> None:
    async def model(window: Any) -> Any:
        await asyncio.sleep(0)
        return (
            says("Done")
            if any(message["role"] == "tool" for message in window.messages)
            else calls(("c1", "find", {"q": "a"}), ("c2", "delete", {"q": "b"}))
        )

    async def delete(q: str) -> str:
        await asyncio.sleep(0)
        return f"deleted {q}"

    async def course() -> Any:
        async with session.run_async(model, {"find": find, "delete": delete}) as run:
            return await run.send("Go")

    assert asyncio.run(course()).text == "Done"
    assert [text for text, _ in results(session)] == ['{"found": "a"}', "deleted b"]


def test_an_async_stream(session: Session) -> None:
    async def stream() -> Any:
        for event in events.chat({"role": "assistant", "content": "Hello"}, list):
            yield event

    assert asyncio.run(session.run_async(Script(stream)).send("Hi")).text == "Hello"


def test_a_cancelled_run_goes_on(session: Session) -> None:
    started = asyncio.Event()

    async def forever(window: Any) -> Any:
        started.set()
        await asyncio.sleep(3600)

    async def course() -> None:
        task = asyncio.create_task(session.run_async(forever).send("Hi"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(course())
    assert session.run(Script(says("Hello"))).resume().text == "Hello"


def test_async_functions_need_an_async_run(session: Session) -> None:
    async def model(window: Any) -> Any:
        return says("never")

    with pytest.raises(InvalidInputError, match="run_async"):
        session.run(model).send("Hi")


def test_an_async_tool_needs_an_async_run(session: Session) -> None:
    """It is a mistake of the program: the model, which can't mend it, does not read it."""

    async def search(q: str) -> str:
        return "never"

    with pytest.raises(InvalidInputError, match="run_async"):
        session.run(Script(calls(("c1", "find", {"q": "a"})), says("Sorry")), {"find": search}).send("Hi")
    assert [message.body["role"] for message in session.messages()] == ["user", "assistant"]


def test_tools_are_functions_by_name(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="by name"):
        session.run(Script(), [find])  # type: ignore[arg-type]


@pytest.mark.parametrize("option", [{"max_iterations": 0}, {"max_iterations": "3"}, {"on_busy": "queue"}])
def test_an_option_that_no_run_can_have_is_refused_before_a_message_is_stored(session: Session, option: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"{next(iter(option))} is "):
        session.run(Script(says("Here it is.")), **option)


def test_an_option_that_no_window_has_is_refused_before_a_message_is_stored(session: Session) -> None:
    with pytest.raises(TypeError, match="no option 'max_turns'"):
        session.run(Script(says("Here it is.")), max_turns=3).send("Find it.")
    assert list(session.messages()) == []


def test_a_run_gives_the_epoch_of_each_window_back(session: Session) -> None:
    """So thinking that was made under another budget is left out of the next window, and the provider accepts it."""
    made_behind, budgets = dict[str, str](), (4_000, 600, 4_000, 600, 900, 4_000)

    def model(window: WindowAnswer) -> dict[str, Any]:
        request: dict[str, Any] = {"system": window.system, "tools": window.tools, "made_behind": made_behind}
        checked = lint(window.messages, format="anthropic", **request)
        assert checked.valid, checked.problems
        assert checked.fingerprint is not None
        signature = f"sig{len(made_behind):03d}"
        made_behind[signature] = checked.fingerprint
        thinking = {"type": "thinking", "thinking": "hm", "signature": signature}
        return {"role": "assistant", "content": [thinking, {"type": "text", "text": f"Answer {len(made_behind)}."}]}

    for number, budget in enumerate(budgets):
        with session.run(model, format="anthropic", budget=budget) as run:
            run.send(f"Question {number}: " + "where is the order that was shipped from Lyon? " * 12)
    assert len(made_behind) == len(budgets)
