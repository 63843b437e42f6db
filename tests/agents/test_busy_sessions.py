"""A user who sends while a run works, runs that lose their session, and calls whose process ended: nothing is done twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

import pytest

from tests.agents.scripts import TOOLS, Script, calls, says
from tests.conftest import Harness
from tests.effort import is_full
from turnlog.agents import Effect, Hooks, RequestedCall, RunResult, Tool, current_call
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, LoopUnfinishedError, RunActiveError, RunLostError, UnavailableError
from turnlog.sessions.context_models import WindowAnswer

FIND = calls(("c1", "find", {"q": "a"}))


@pytest.fixture(params=[False, True], ids=["lenient", "strict"])
def session(request: pytest.FixtureRequest, harness: Harness) -> Session:
    return harness.log().sessions.create("s", tools=TOOLS, strict=request.param)


def said(session: Session) -> list[str]:
    """Each message's role, with its text if it has one, in the order of the log."""
    return [f"{message.body['role']} {message.body.get('content') or ''}".strip() for message in session.messages()]


def meanwhile(session: Session, on_busy: Any, text: str, outcomes: list[Any]) -> Callable[[], None]:
    """A second request of the same user, which comes while the first one's run works."""

    def send() -> None:
        try:
            outcomes.append(session.run(Script(), on_busy=on_busy).send(text).status)
        except RunActiveError as error:
            outcomes.append(error)

    return send


def left_by_a_run_that_died(harness: Harness, mode: Any, **settings: Any) -> Session:
    """Return a session in which two messages wait for a run whose process has ended."""
    session = harness.log().sessions.create("s", tools=TOOLS, **settings)
    session.append({"role": "user", "content": "A?"}, run={"agent_id": "main"}, lease={"holder": "h"})
    for text in ("B?", "C?"):
        assert session.run(Script(), on_busy=mode).send(text).status == "queued"
    harness.clock.advance(seconds=121)
    return session


class Moments:
    """A model and a tool that let something happen once: while the model is asked the first time, or the tool works."""

    def __init__(self, moment: str, then: Callable[[], None], *script: Any) -> None:
        self.script, self.executed = Script(*script), list[str]()
        self._moment, self._then = moment, then

    def model(self, window: WindowAnswer) -> Any:
        self._happen("model")
        return self.script(window)

    def find(self, q: str) -> str:
        self.executed.append(current_call().key)
        self._happen("tool")
        return q

    def _happen(self, moment: str) -> None:
        if moment == self._moment:
            self._moment = ""
            Context().run(self._then)  # of another request: it is not within the tool's call


@pytest.mark.parametrize("moment", ["model", "tool"])
def test_a_message_that_is_enqueued_is_the_next_turn(session: Session, moment: str) -> None:
    outcomes = list[Any]()
    run = Moments(moment, meanwhile(session, "enqueue", "And B?", outcomes), FIND, says("A."), says("B."))
    outcome = session.run(run.model, {"find": run.find}, on_busy="enqueue").send("A?")
    assert (outcomes, outcome.status, outcome.text, outcome.iterations) == (["queued"], "final", "B.", 1)
    assert said(session) == ["user A?", "assistant", "tool a", "assistant A.", "user And B?", "assistant B."]
    assert len(run.executed) == 1 and [loop.status for loop in session.loops()] == ["closed", "closed"]
    assert "inbox" not in session.agent().state or session.agent().state["inbox"] == {}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("moment", ["model", "tool"])
def test_a_run_that_ends_with_an_error_gives_the_session_back(
    session: Session, moment: str, error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error

    run = Moments(moment, fail, FIND, says("A."))
    with suppress(error):  # what a tool cannot do is told to the model
        session.run(run.model, {"find": run.find}, on_busy="reject").send("A?")
    session.release(session.acquire("another").token)


@pytest.mark.parametrize("moment", ["model", "tool"])
def test_a_message_that_steers_joins_the_loop_at_its_next_step(session: Session, moment: str) -> None:
    outcomes = list[Any]()
    run = Moments(moment, meanwhile(session, "steer", "Only in Berlin.", outcomes), FIND, says("A."))
    assert session.run(run.model, {"find": run.find}, on_busy="steer").send("A?").text == "A."
    assert outcomes == ["queued"]
    assert said(session) == ["user A?", "assistant", "tool a", "user Only in Berlin.", "assistant A."]
    (loop,) = session.loops()
    assert (loop.status, loop.user_message) == ("closed", "A?\nOnly in Berlin.")
    assert "Only in Berlin." in str(run.script.windows[1].messages)


@pytest.mark.parametrize("moment", ["model", "tool"])
def test_a_message_that_interrupts_comes_in_place_of_what_the_run_does(session: Session, moment: str) -> None:
    outcomes = list[Any]()
    run = Moments(moment, meanwhile(session, "interrupt", "Stop. B?", outcomes), FIND, says("B."))
    outcome = session.run(run.model, {"find": run.find}, on_busy="interrupt").send("A?")
    assert (outcomes, outcome.text, outcome.iterations) == (["queued"], "B.", 1)
    tool = ["tool a"] if moment == "tool" else []
    assert said(session) == ["user A?", "assistant", *tool, "user Stop. B?", "assistant B."]
    assert len(run.executed) == len(tool), "no tool begins after the interruption"
    assert [loop.status for loop in session.loops()] == ["closed", "interrupted"]


@pytest.mark.parametrize("moment", ["model", "tool"])
def test_a_message_that_is_rejected_is_not_stored(session: Session, moment: str) -> None:
    outcomes = list[Any]()
    run = Moments(moment, meanwhile(session, "reject", "A?", outcomes), FIND, says("A."), says("Again."))
    assert session.run(run.model, {"find": run.find}, on_busy="reject").send("A?").text == "A."
    assert [type(outcome) for outcome in outcomes] == [RunActiveError]
    assert said(session) == ["user A?", "assistant", "tool a", "assistant A."]
    assert session.run(run.model, on_busy="reject").send("B?").text == "Again.", "the session has been given back"


@pytest.mark.parametrize("mode", ["enqueue", "steer", "interrupt"])
def test_a_message_to_an_agent_is_not_left_with_the_run_of_another(harness: Harness, mode: Any) -> None:
    session, outcomes = harness.log().sessions.create("s"), list[Any]()

    def ask_clerk() -> None:
        with pytest.raises(RunActiveError, match="'boss'") as refused:
            session.run(Script(), agent_id="clerk", on_busy=mode).send("For the clerk")
        outcomes.append(refused.value)

    run = Moments("model", ask_clerk, says("Done."))
    assert session.run(run.model, agent_id="boss", on_busy=mode).send("For the boss").text == "Done."
    assert len(outcomes) == 1 and said(session) == ["user For the boss", "assistant Done."]
    outcome = session.run(Script(says("Here.")), agent_id="clerk", on_busy=mode).send("For the clerk")
    assert outcome.text == "Here."


def test_a_message_that_waits_keeps_the_format_that_it_was_sent_in(session: Session) -> None:
    body = {"role": "user", "content": [{"type": "text", "text": "And B?"}]}

    def send() -> None:
        session.send_to_run(body, format="anthropic")

    run = Moments("tool", send, FIND, says("A."), says("B."))
    assert session.run(run.model, {"find": run.find}, on_busy="enqueue").send("A?").text == "B."
    assert [message.format for message in session.messages() if message.body == body] == ["anthropic"]


def test_a_message_for_a_run_that_ends_meanwhile_begins_a_run(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, send_to_run = [session.acquire("another").token], Session.send_to_run

    def late(self: Session, *messages: Any, **options: Any) -> Any:
        assert options["idempotency_key"], "a client repeats it after a lost answer"
        while held:
            self.release(held.pop())
        return send_to_run(self, *messages, **options)

    monkeypatch.setattr(Session, "send_to_run", late)
    outcome = session.run(Script(says("A.")), on_busy="enqueue").send("A?")
    assert (outcome.status, said(session)) == ("final", ["user A?", "assistant A."])


def test_what_waits_is_taken_by_the_run_that_goes_on_after_a_crash(
    harness: Harness, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = list[Any]()

    def break_after() -> None:
        meanwhile(session, "enqueue", "B?", outcomes)()
        raise SystemExit

    run = Moments("model", break_after, says("A."), says("B."))
    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr(Session, "release", lambda *_: None)
        session.run(run.model, on_busy="enqueue").send("A?")
    with pytest.raises(RunActiveError):
        session.run(run.model, on_busy="enqueue").resume()
    harness.clock.advance(121)
    assert session.run(run.model, on_busy="enqueue").resume().text == "B."
    assert said(session) == ["user A?", "assistant A.", "user B?", "assistant B."]


@pytest.mark.parametrize(
    ("mode", "turns"),
    [
        ("enqueue", ["user B?", "assistant 1.", "user C?", "assistant 2.", "user D?", "assistant 3."]),
        ("steer", ["user B?", "user C?", "assistant 1.", "user D?", "assistant 2."]),
        ("interrupt", ["user B?", "user C?", "assistant 1.", "user D?", "assistant 2."]),
    ],
)
def test_what_was_sent_to_a_run_that_died_is_answered_before_the_next_message(
    harness: Harness, mode: Any, turns: list[str]
) -> None:
    session = left_by_a_run_that_died(harness, mode)
    outcome = session.run(Script(says("1."), says("2."), says("3.")), on_busy=mode).send("D?")
    assert (outcome.status, outcome.text) == ("final", turns[-1].removeprefix("assistant "))
    assert said(session) == ["user A?", *turns]
    assert not session.agent().state.get("inbox")
    session.release(session.acquire("another").token)  # the run has given the session back


def test_a_strict_session_refuses_a_message_to_a_run_that_died_before_its_answer(harness: Harness) -> None:
    session = left_by_a_run_that_died(harness, "enqueue", strict=True)
    with pytest.raises(LoopUnfinishedError):
        session.run(Script(), on_busy="enqueue").send("D?")
    assert said(session) == ["user A?"]
    assert session.run(Script(says("0."), says("1."), says("2.")), on_busy="enqueue").resume().text == "2."
    assert said(session) == ["user A?", "assistant 0.", "user B?", "assistant 1.", "user C?", "assistant 2."]


def test_a_run_that_waits_or_fails_or_stops_gives_the_session_back(session: Session) -> None:
    def free() -> bool:
        session.release(session.acquire("probe").token)
        return True

    tools = {"find": lambda q: q}
    assert (
        session.run(Script(FIND), tools, approve={"find"}, on_busy="reject").send("A?").status == "pending" and free()
    )
    session.decide_pending("approve")
    assert (
        session.run(Script(), tools, max_iterations=1, on_busy="reject").resume().status == "max_iterations" and free()
    )
    with pytest.raises(ZeroDivisionError):
        session.run(Script(ZeroDivisionError()), tools, max_iterations=9, on_busy="reject").resume()
    assert free()
    run = session.run_async(Script(says("Done")), tools, on_busy="reject")
    assert asyncio.run(run.resume()).status == "final" and run.lease is None and free()


def test_a_run_that_has_lost_its_session_appends_nothing_more(harness: Harness, session: Session) -> None:
    lost = list[str]()

    class Watch(Hooks):
        def on_lease_lost(self, error: RunLostError) -> None:
            lost.append(error.error_code)

    def pause(q: str) -> str:
        harness.clock.advance(61)
        other.append(Context().run(take_over))
        return q

    def take_over() -> RunResult:
        tools = {"find": Tool(pause, verify=lambda call: "b")}
        return session.run(Script(says("Mine.")), tools, on_busy="reject").resume()

    other = list[Any]()
    with pytest.raises(RunLostError):
        session.run(Script(FIND), {"find": pause}, on_busy="reject", lease_seconds=60, hooks=[Watch()]).send("A?")
    assert lost == ["run_lost"] and other[0].text == "Mine."
    assert said(session) == ["user A?", "assistant", "tool b", "assistant Mine."]


def test_a_run_whose_session_is_rewound_ends_and_says_so(session: Session) -> None:
    tools = {"find": lambda q: session.rewind(2).session_id}
    with pytest.raises(RunLostError, match="no run has the session"):
        session.run(Script(FIND), tools, on_busy="reject").send("A?")
    assert [message.body["content"] for message in session.messages(in_view=True)] == ["A?"]


# ------------------------------------------------------------ effects once


class Killed(BaseException):
    """The end of a process: nothing of it runs on."""


class Payments:
    """A service that pays, and knows by key what it has paid. ``dies`` tells at which of its steps the process ends."""

    def __init__(self, dies: str = "") -> None:
        self.paid, self.dies = list[str](), dies

    def pay(self, q: str) -> str:
        self._die("before")
        self.paid.append(current_call().key)
        self._die("after")
        return f"paid {q}"

    def verify(self, call: RequestedCall) -> Any:
        return "paid, as the service says" if call.key in self.paid else Effect.NONE

    def _die(self, moment: str) -> None:
        if self.dies == moment:
            self.dies = ""
            raise Killed


TWICE = calls(("c1", "find", {"q": "5"}), ("c2", "find", {"q": "7"}))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("way", ["verify", "person", "idempotent"])
def test_a_call_that_had_begun_is_never_repeated_blindly(session: Session, way: str, moment: str) -> None:
    service = Payments(moment)
    tool = {
        "verify": Tool(service.pay, verify=service.verify),
        "person": Tool(service.pay),
        "idempotent": Tool(service.pay, idempotent=True),
    }[way]
    with pytest.raises(Killed):
        session.run(Script(TWICE), {"find": tool}).send("Pay 5 and 7")
    paid = list(service.paid)
    outcome = session.run(Script(says("Paid.")), {"find": tool}).resume()
    if way == "person":
        assert outcome.status == "pending" and outcome.pending is not None
        assert outcome.pending["effect"] == "unknown" and service.paid == paid, "nothing is executed behind it"
        session.decide_pending("reject")
        outcome = session.run(Script(says("Paid.")), {"find": tool}).resume()
        assert "not known whether" in str(list(session.messages())[2].body)
    assert outcome.status == "final"
    keys = [service.paid.count(f"s/4.{index}") for index in (0, 1)]
    assert (
        keys
        == {
            "verify": [1, 1],
            "person": [len(paid), 1],
            "idempotent": [1 + len(paid), 1],
        }[way]
    )


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_ended_at_any_request_no_effect_is_repeated(harness: Harness, when: str) -> None:
    """The process ends at each request that a run makes, and in each tool; others go on, with a verifier, until it is done."""
    requests, at, step = 1, 1, 1 if is_full() else 2 if harness.name == "sqlite" else 5
    while at <= requests:
        service, session = Payments(), harness.log(user=f"u{when}{at}").sessions.create("s", tools=TOOLS)
        tools, script = {"find": Tool(service.pay, verify=service.verify)}, [TWICE, says("Done")]
        harness.faults.fail(at, when)
        before, status = harness.faults.calls, ""
        for _ in range(5):
            try:
                roles = [message.body["role"] for message in session.messages()]
                run = session.run(Script(*script[roles.count("assistant") :]), tools, on_busy="reject")
                status = (run.resume() if roles else run.send("Pay")).status
                break
            except UnavailableError:
                harness.faults.clear()
            except RunActiveError:
                harness.clock.advance(121)
        requests = max(requests, harness.faults.calls - before if at == 1 else 0)
        harness.faults.clear()
        assert status in ("final", "idle"), (at, status)
        assert [message.body["role"] for message in session.messages()] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
        assert sorted(key.split(".")[1] for key in service.paid) == ["0", "1"], at
        at += step


def test_outside_of_a_tool_there_is_no_current_call(session: Session) -> None:
    for call in (current_call, lambda: session.child("helper")):
        with pytest.raises(InvalidInputError, match="work in tools of a run, fork elsewhere") as caught:
            call()
        assert caught.value.error_code == "no_current_call"
    keys = list[str]()

    async def find(q: str) -> str:
        await asyncio.sleep(0)
        keys.append(current_call().key)
        return q

    asyncio.run(session.run_async(Script(FIND, says("Done")), {"find": find}).send("A?"))
    assert keys == ["s/4.0"]


@pytest.mark.parametrize("begins", ["send", "resume"])
def test_a_task_that_is_cancelled_while_it_takes_the_session_gives_it_back(
    session: Session, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """A write runs to its end in its thread, so the run has the session when the cancellation is raised."""
    name = "append" if begins == "send" else "acquire"
    taking, goes_on, take = threading.Event(), threading.Event(), getattr(type(session), name)

    def slow(self: Session, *arguments: Any, **options: Any) -> Any:
        taking.set()
        goes_on.wait(10)
        return take(self, *arguments, **options)

    async def model(window: WindowAnswer) -> Any:
        return says("Done.")

    async def cancel() -> None:
        run = session.run_async(model, on_busy="reject")
        task = asyncio.create_task(run.send("go") if begins == "send" else run.resume())
        await asyncio.to_thread(taking.wait, 10)
        task.cancel()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    session.append({"role": "user", "content": "go"})
    with monkeypatch.context() as patched:
        patched.setattr(type(session), name, slow)
        asyncio.run(cancel())
    assert session.run(Script(says("Done.")), on_busy="reject").resume().text == "Done."
