"""Agents within a call of another, in its session or in one of their own: no loop is broken, and a crash loses nothing of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from tests.agents.scripts import TOOLS, Script, calls, says
from tests.conftest import Harness
from turnlog import lint
from turnlog.agents import Reply, Tool, current_call
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, RunLostError

ALL = [
    *TOOLS,
    *(
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("ask_sub", "first", "second")
    ),
]
ASK = calls(("k", "ask_sub", {"question": "what is X?"}))
FIND = calls(("k", "find", {"q": "X"}))  # the same id as the caller's


@pytest.fixture(params=[False, True], ids=["lenient", "strict"])
def session(request: pytest.FixtureRequest, harness: Harness) -> Session:
    session = harness.log().sessions.create("s", tools=ALL, strict=request.param)
    session.append({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"})
    return session


def text_of(window: Any) -> str:
    return json.dumps([*window.messages, window.system])


@pytest.mark.parametrize("policy", ["default", "run_loops", "classic"])
def test_a_run_within_a_call_leaves_the_callers_loop_whole(session: Session, policy: str) -> None:
    sub, executed = Script(FIND, says("sub says 42")), list[str]()
    main = Script(ASK, says("The answer is 42."))

    def ask_sub(question: str) -> str:
        tools = {"find": lambda q: executed.append(current_call().key) or "42"}
        return session.run(sub, tools, agent_id="sub", system="You find.").send(question).text

    outcome = session.run(main, {"ask_sub": ask_sub}, policy=policy, on_busy="reject").send("Please compute X")
    assert (outcome.text, executed) == ("The answer is 42.", ["s/10.0"])
    first, second = sub.windows
    assert [message["role"] for message in first.messages] == ["system", "user"] and "Hello" not in text_of(second)
    assert "You find." in text_of(first) and first.manifest.parent is not None
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool"]
    assert "sub says 42" in text_of(main.windows[1]) and "what is X?" not in json.dumps(main.windows[1].messages[-1])
    assert main.windows[1].messages[-1] == {"role": "tool", "tool_call_id": "k", "content": "sub says 42"}
    for window in (*sub.windows, *main.windows):
        assert lint([*window.messages], format="openai_chat").valid
    loop, _ = session.loops()
    assert (loop.status, loop.user_message, loop.reply) == ("closed", "Please compute X", "The answer is 42.")
    assert [call.name for call in loop.tool_calls] == ["ask_sub"]
    (nested,) = loop.nested
    assert (nested.parent, nested.agent_id, nested.status) == (loop.tool_calls[0].ref, "sub", "closed")
    assert (nested.user_message, nested.reply) == ("what is X?", "sub says 42")
    assert [call.name for call in nested.tool_calls] == ["find"]
    later = session.context(policy=policy)
    assert "what is X?" not in text_of(later).replace('{\\"question\\": \\"what is X?\\"}', "")
    entries = [entry for entry in session.history(agent="sub") if "parent" in entry.metadata]
    assert {entry.metadata["parent"] for entry in entries} == {nested.parent} and len(entries) == 4
    assert session.info().loops == 2 and session.info().messages == 6, "messages within a call are not counted"
    assert outcome.usage == {"input_tokens": 18, "output_tokens": 6}


@pytest.mark.parametrize(
    ("others", "seen"), [("nothing", []), ("answers", ["Hello", "Hi!"]), ("all", ["Hello", "Hi!"])]
)
def test_an_agent_within_a_call_sees_of_others_what_it_is_told_to(
    session: Session, others: str, seen: list[str]
) -> None:
    sub = Script(says("done"))

    def ask_sub(question: str) -> str:
        return session.run(sub, agent_id="sub", others=others).send(question).text

    session.run(Script(ASK, says("Done.")), {"ask_sub": ask_sub}).send("Go")
    spoken = [message["content"] for message in sub.windows[0].messages if message["role"] != "system"]
    assert spoken == [*seen, *(["Go"] if seen else []), "what is X?"]
    assert lint([*sub.windows[0].messages], format="openai_chat").valid
    sent = sub.windows[0]
    assert sent.manifest.parent is not None
    session.append({"role": "user", "content": "Later"})
    again = session.context(at=sent.head, parent=sent.manifest.parent.model_dump())
    assert (again.messages, again.tokens) == (sent.messages, sent.tokens), "as it was then"


@pytest.mark.parametrize("others", ["answers", "all"])
def test_an_agent_within_a_call_is_sent_no_thinking_of_its_caller(harness: Harness, others: Any) -> None:
    """It was made behind the calls and results of the caller's loops, and under the caller's breaks."""
    session, steps = harness.log().sessions.create(tools=[{"name": "find", "input_schema": {"type": "object"}}]), 0
    asked = list[Any]()

    def thinking(number: int) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "hm", "signature": f"SIG{number}"}

    def caller(window: Any) -> dict[str, Any]:
        nonlocal steps
        steps += 1
        name = {1: "find", 3: "research"}.get(steps)
        call = {"type": "tool_use", "id": f"toolu_{steps}", "name": name, "input": {}}
        return {"role": "assistant", "content": [thinking(steps), call if name else {"type": "text", "text": "Done."}]}

    def sub(window: Any) -> dict[str, Any]:
        asked.append(window)
        if len(asked) == 1:
            call = {"type": "tool_use", "id": "toolu_sub", "name": "find", "input": {}}
            return {"role": "assistant", "content": [thinking(9), call]}
        return {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}

    def research() -> str:
        run = session.run(sub, {"find": lambda: "x"}, agent_id="sub", others=others, format="anthropic")
        return run.send("look").text

    tools = {"find": lambda: "x", "research": Tool(research, idempotent=True)}
    for text in ("first", "second"):
        session.run(caller, tools, format="anthropic").send(text)
    first, second = (str(window.messages) for window in asked)
    assert "Done." in first and "SIG" not in first
    assert "SIG9" in second and "SIG2" not in second
    assert asked[1].messages[: len(asked[0].messages)] == asked[0].messages and asked[1].prefix.broke_at is None


@pytest.mark.parametrize("way", ["threads", "asyncio"])
def test_agents_side_by_side_within_one_call(session: Session, way: str) -> None:
    scripts = {name: Script(FIND, says(f"{name} is done")) for name in ("left", "right")}
    tools = {"find": lambda q: "found"}

    def ask(name: str) -> str:
        return session.run(scripts[name], tools, agent_id=name).send(f"Do it, {name}").text

    def ask_both(question: str) -> str:
        with ThreadPoolExecutor() as pool:
            return "; ".join(
                future.result() for future in [pool.submit(copy_context().run, ask, name) for name in scripts]
            )

    async def ask_both_async(question: str) -> str:
        async def one(name: str) -> str:
            return (await session.run_async(scripts[name], tools, agent_id=name).send(f"Do it, {name}")).text

        return "; ".join(await asyncio.gather(*map(one, scripts)))

    model = Script(ASK, says("Both are."))
    if way == "threads":
        outcome = session.run(model, {"ask_sub": ask_both}).send("Go")
    else:
        outcome = asyncio.run(session.run_async(model, {"ask_sub": ask_both_async}).send("Go"))
    assert outcome.text == "Both are." and "left is done; right is done" in text_of(model.windows[1])
    for name, script in scripts.items():
        assert [message["role"] for message in script.windows[1].messages][-3:] == ["user", "assistant", "tool"]
        assert not any(
            f"Do it, {other}" in text_of(window) for window in script.windows for other in scripts if other != name
        )
    nested = next(iter(session.loops())).nested
    assert {(loop.agent_id, loop.status, loop.reply) for loop in nested} == {
        ("left", "closed", "left is done"),
        ("right", "closed", "right is done"),
    }


def test_what_a_run_within_a_call_may_not_do(harness: Harness, session: Session) -> None:
    errors = list[str]()

    def ask_sub(question: str) -> str:
        for options in ({}, {"agent_id": "sub", "approve": {"find"}}):
            with pytest.raises(InvalidInputError) as refused:
                session.run(Script(), **options)
            errors.append(refused.value.error_code)
        harness.clock.advance(121)
        session.acquire("thief")
        with pytest.raises(RunLostError):
            session.run(Script(), agent_id="sub").send(question)
        return "lost"

    with pytest.raises(RunLostError):
        session.run(Script(ASK), {"ask_sub": ask_sub}, on_busy="reject").send("Go")
    assert errors == ["same_agent", "cannot_wait"]


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("place", ["session", "child", "fork"])
@pytest.mark.parametrize("moment", ["model", "tool", "end"])
def test_a_parent_that_goes_on_takes_its_agents_with_it(
    harness: Harness, session: Session, place: str, moment: str
) -> None:
    """Two workers, killed in the second; another process resumes the parent alone."""
    done, dies = list[str](), [moment]

    def die(at: str) -> None:
        if dies == [at]:
            dies.clear()
            raise Killed

    def worker(name: str) -> Callable[[str], str]:
        def find(q: str) -> str:
            if name == "second":
                die("tool")
            done.append(current_call().key)
            return "42"

        def model(window: Any) -> Any:
            if window.messages[-1]["role"] == "tool":
                return says(f"{name} says 42")
            if name == "second":
                die("model")
            return FIND

        def ask(question: str) -> str:
            own = session if place == "session" else session.child(name, fork=place == "fork", tools=TOOLS)
            text = own.run(model, {"find": Tool(find, idempotent=True)}, agent_id=name).send(question).text
            if name == "second":
                die("end")
            return text

        return ask

    both = calls(("a", "first", {"question": "A?"}), ("b", "second", {"question": "B?"}))
    tools = {name: Tool(worker(name), idempotent=True) for name in ("first", "second")}
    with pytest.raises(Killed):
        session.run(Script(both), tools).send("Go")
    model = Script(says("Done."))
    outcome = session.run(model, tools).resume()
    assert (outcome.status, outcome.text) == ("final", "Done.")
    assert "first says 42" in text_of(model.windows[0]) and "second says 42" in text_of(model.windows[0])
    assert len(set(done)) == 2 == len(done), "no effect is repeated"
    assert outcome.usage == {"input_tokens": 27, "output_tokens": 9}, "each answer is counted once"
    (loop, _) = session.loops()
    assert loop.status == "closed" and loop.reply == "Done."
    if place == "session":
        assert [nested.user_message for nested in loop.nested] == ["A?", "B?"]
    else:
        ref = loop.tool_calls[1].ref
        child = harness.log().sessions.get(f"s/{ref}/second")
        metadata = child.info().metadata
        assert metadata is not None and metadata["parent"] == {"session_id": "s", "ref": ref}
        asked = ["Hello", "Go", "B?"] if place == "fork" else ["B?"]
        assert [message.body["content"] for message in child.messages() if message.body["role"] == "user"] == asked
        assert [message.body["role"] for message in child.messages()][-4:] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("place", ["session", "child"])
def test_tokens_and_cost_of_agents_are_summed_up_to_the_caller(harness: Harness, session: Session, place: str) -> None:
    def costly(text: str) -> Reply:
        answer = {"role": "assistant", "content": text}
        return Reply([answer], {"input_tokens": 10, "output_tokens": 5, "cost": 0.25})

    def ask(question: str) -> str:
        own = session if place == "session" else session.child("sub")
        return own.run(Script(costly("42")), agent_id="sub").send(question).text

    outcome = session.run(Script(ASK, costly("It is 42.")), {"ask_sub": ask}).send("Go")
    assert outcome.usage == {"input_tokens": 20, "output_tokens": 10, "cost": 0.5}
    if place == "child":
        own = harness.log().sessions.get(f"s/{next(session.loops()).tool_calls[0].ref}/sub")
        assert [message.body["content"] for message in own.messages()] == ["what is X?", "42"], "it begins empty"
    assert session.agent().state["usage"] == outcome.usage, "another process knows it"


@pytest.mark.parametrize("place", ["session", "child"])
def test_a_second_message_of_a_call_to_an_agent_is_refused_and_not_lost(session: Session, place: str) -> None:
    """After a crash nobody could tell which of the two the agent was working on."""

    def ask(question: str) -> str:
        own = session if place == "session" else session.child("sub")
        own.run(Script(says("One.")), agent_id="sub").send("First")
        with pytest.raises(InvalidInputError, match="has answered within this call") as refused:
            own.run(Script(says("Two.")), agent_id="sub").send("Second")
        assert refused.value.error_code == "second_message"
        other = session if place == "session" else session.child("other")
        return other.run(Script(says("Two.")), agent_id="other").send("Second").text

    model = Script(ASK, says("Done."))
    assert session.run(model, {"ask_sub": ask}).send("Go").text == "Done."
    assert model.windows[1].messages[-1]["content"] == "Two."


def test_a_child_s_settings_are_those_of_a_session(session: Session) -> None:
    def ask(question: str) -> str:
        with pytest.raises(InvalidInputError, match="metadata"):
            session.child("sub", metadata="x")
        metadata = session.child("sub", metadata=None, title=None).info().metadata
        return ", ".join(metadata or ())

    model = Script(ASK, says("Done."))
    assert session.run(model, {"ask_sub": ask}).send("Go").text == "Done."
    assert model.windows[1].messages[-1]["content"] == "parent"
