"""The lease of a session: one run has it, an append with another token is refused, and the time of the log decides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Harness
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import (
    ConflictError,
    IdempotencyMismatchError,
    InvalidInputError,
    RunActiveError,
    RunLostError,
    SessionEndedError,
)
from turnlog.core.identity import Owner
from turnlog.engines import Engine, make_engine
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
def session(harness: Harness) -> Session:
    return harness.log().sessions.create("s")


def test_a_run_has_the_session_until_another_takes_it_after_its_time(harness: Harness, session: Session) -> None:
    first = session.acquire("one", seconds=60)
    with pytest.raises(RunActiveError) as busy:
        session.acquire("two", seconds=60)
    assert (busy.value.retry_after_seconds, busy.value.details) == (60, {"token": first.token})
    harness.clock.advance(59)
    session.append(HELLO, lease={"token": first.token})  # an append renews
    harness.clock.advance(59)
    with pytest.raises(RunActiveError):
        session.append(HELLO, lease={"holder": "two"})
    harness.clock.advance(1)
    session.append(HELLO, lease={"token": first.token})  # nobody has taken it over
    harness.clock.advance(60)
    second = session.append(HELLO, lease={"holder": "two", "seconds": 5}).lease
    assert second is not None and second.token > first.token and second.holder == "two"
    head = session.info().head
    for write in (
        lambda: session.append(HELLO, lease={"token": first.token}),
        lambda: session.renew(first.token),
        lambda: session.release(first.token),
        lambda: session.patch_agent({"iteration": 1}, lease=first.token),
    ):
        with pytest.raises(RunLostError):
            write()
    assert session.info().head == head, "nothing of a lost run is written"
    assert session.renew(second.token, seconds=7).token == second.token
    session.release(second.token)
    with pytest.raises(RunLostError, match="no run has the session"):
        session.append(HELLO, lease={"token": second.token})
    assert {entry.action for entry in session.history()} >= {"run_acquired", "run_renewed", "run_released"}
    (released,) = session.history(action="run_released")
    assert released.metadata is not None
    assert (released.metadata["token"], released.metadata["holder"]) == (second.token, "two")


def test_a_lease_without_a_time_is_for_two_minutes(harness: Harness, session: Session) -> None:
    session.append(HELLO, lease={"holder": "one"})
    harness.clock.advance(119)
    with pytest.raises(RunActiveError):
        session.append(HELLO, lease={"holder": "two"})
    harness.clock.advance(2)
    assert session.append(HELLO, lease={"holder": "two"}).lease is not None


@pytest.mark.parametrize(
    "lease",
    [
        {},
        {"holder": "a", "token": 1},
        {"holder": "a b"},
        {"token": 0},
        {"token": 1, "seconds": 0},
        {"holder": "a", "release": True},
    ],
)
def test_a_request_for_a_lease_names_one_holder_or_token(session: Session, lease: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        session.append(HELLO, lease=lease)
    assert session.info().messages == 0


def test_a_repeated_append_takes_the_session_once(session: Session) -> None:
    answers = [session.append(HELLO, lease={"holder": "one"}, idempotency_key="key").lease for _ in range(2)]
    assert answers[0] == answers[1] and session.info().messages == 1


def test_forks_and_rewinds_leave_the_lease_behind(session: Session) -> None:
    token = session.acquire("one").token
    session.append(HELLO, lease={"token": token})
    fork = session.fork(session_id="f")
    assert fork.append(HELLO, lease={"holder": "two"}).lease is not None
    session.rewind(to=1)
    with pytest.raises(RunLostError):
        session.append(HELLO, lease={"token": token})
    session.acquire("three")
    session.end()
    with pytest.raises(SessionEndedError):
        session.acquire("three")


def test_messages_for_a_run_wait_in_the_log_and_only_while_one_has_the_session(
    harness: Harness, session: Session
) -> None:
    with pytest.raises(ConflictError) as nobody:
        session.send_to_run(HELLO)
    assert nobody.value.error_code == "no_run"
    lease = session.acquire("one", seconds=60)
    with pytest.raises(InvalidInputError):
        session.send_to_run({"role": "usr", "content": "x"})
    places = [session.send_to_run(HELLO, mode=mode, idempotency_key=mode).position for mode in ("steer", "enqueue")]
    assert session.send_to_run(HELLO, mode="steer", idempotency_key="steer").position == places[0]
    with pytest.raises(IdempotencyMismatchError):
        session.send_to_run(HELLO, mode="steer", agent_id="other", idempotency_key="steer")
    inbox = session.agent().state["inbox"]
    assert [inbox[str(place)]["mode"] for place in places] == ["steer", "enqueue"] and len(inbox) == 2
    final = {"role": "assistant", "content": "Hi"}
    release = {"token": lease.token, "release": True}
    kept = session.append(final, run={"iteration": 1}, lease=release)
    assert kept.lease is not None, "messages wait"
    taken = {"inbox": {str(place): None for place in places}}
    session.append(HELLO, run=taken, lease={"token": lease.token})
    assert session.append(final, run={"iteration": 2}, lease=release).lease is None
    session.acquire("one", seconds=60)
    harness.clock.advance(61)
    with pytest.raises(ConflictError, match="no run has the session"):
        session.send_to_run(HELLO)


def test_a_lease_that_rides_on_appends_makes_no_request_of_its_own(moto: Harness) -> None:
    session = moto.log().sessions.create("s")
    token = None
    for lease in ({"holder": "run-0123456789"}, {}, {}, {"release": True}):
        with moto.meter.measure() as spent:
            held = session.append(HELLO, lease=lease if "holder" in lease else {"token": token, **lease}).lease
        token = held.token if held is not None else token
        assert dict(spent.requests) == {"Query": 1, "PutItem": 1}
        assert spent.write_units == 1 and spent.read_units <= 1
    with moto.meter.measure() as spent:
        session.acquire("other")
    assert dict(spent.requests) == {"Query": 1, "PutItem": 1}


class Process:
    """One of several processes on the same session, with a clock of its own."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.clock = FixedClock()
        app = Application(engine, Settings(), clock=self.clock, ids=SequentialIds(number * 10**6))
        self.log = Turnlog(InProcessBackend(app, Owner.of("acme", "ada")))
        self.session = self.log.sessions.of("s")
        self.name, self.token = f"process-{number}", 0

    def act(self, step: str) -> str | None:
        """Do one thing, and return what was appended, if anything was."""
        try:
            if step == "take":
                self.token = self.session.acquire(self.name, seconds=60).token
            elif step == "append" and self.token:
                text = f"{self.name} {self.token}"
                self.session.append({"role": "user", "content": text}, lease={"token": self.token})
                return text
            elif step == "release" and self.token:
                self.session.release(self.token)
        except (RunActiveError, RunLostError):
            return None
        return None


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["take", "append", "append", "release", "pause"]), st.integers(-7200, 7200)
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(STEPS)
def test_d2_whatever_their_clocks_say_no_two_holders_append_in_turns(steps: list[tuple[int, str, int]]) -> None:
    """Once another run has taken the session, nothing of the run before lands."""
    engine = make_engine(Settings(engine="memory://"), clock=FixedClock(), ids=SequentialIds(9 * 10**6))
    try:
        processes = [Process(engine, number) for number in (1, 2, 3)]
        processes[0].log.sessions.create("s")
        landed = list[str]()
        for number, step, seconds in steps:
            process = processes[number]
            if step == "pause":
                process.clock.advance(seconds)  # a pause, or a clock that is set
            elif (text := process.act(step)) is not None:
                landed.append(text)
        stored = [str(message.body["content"]) for message in processes[0].session.messages()]
        assert stored == landed, "what is refused is not stored"
        tokens = [int(text.split(" ")[1]) for text in stored]
        assert tokens == sorted(tokens)
    finally:
        engine.close()
