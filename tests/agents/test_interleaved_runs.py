"""D2: two runs over one session in every order of their requests, models and tools: no effect twice, and no loop in another's.

One may end anywhere, and the other's clock may be ahead, so that it takes the session over early. Each of them works whole
after each request of the other, in `make full` also a part of it, and on moto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import pytest

from tests.agents.scripts import TOOLS, calls, says
from tests.conftest import Harness
from tests.effort import is_full
from tests.explorer import Crash, Crashed, ScheduleRun, explore, run_schedule
from turnlog.agents import Effect, RequestedCall, Tool, current_call
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import RunActiveError, RunLostError
from turnlog.core.identity import Owner
from turnlog.engines import Engine, make_engine
from turnlog.ports import BlobStore, Item, ItemTable, Key
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

OWNER = Owner.of("acme", "ada")


@dataclass
class Stage:
    """Schedules on an engine, each with a session and a service of its own."""

    app: Application
    on_moto: bool = False
    number: int = 0
    paid: list[str] = field(default_factory=list)

    @property
    def session(self) -> Session:
        return Turnlog(InProcessBackend(self.app, OWNER)).sessions.of(f"s{self.number}")

    def make(self) -> tuple[ItemTable, BlobStore]:
        self.number, self.paid = self.number + 1, []
        Turnlog(InProcessBackend(self.app, OWNER)).sessions.create(f"s{self.number}", tools=TOOLS)
        return self.app.engine.items, self.app.engine.blobs

    def runner(
        self,
        name: str,
        *,
        on_busy: str,
        verify: bool = False,
        ahead: int = 0,
        resumes: bool = False,
        renews: bool = False,
    ) -> Any:
        """A process that sends a message or resumes. A model call and an effect are requests too, so that each order is tried."""

        def operation(items: ItemTable, blobs: BlobStore) -> str:
            clock, ids = FixedClock(), SequentialIds(sum(map(ord, name)) * 10**6)
            clock.advance(ahead)
            app = Application(
                Engine("e", items, blobs, None, lambda: None), Settings(token_counter="estimate"), clock=clock, ids=ids
            )
            session = Turnlog(InProcessBackend(app, OWNER)).sessions.of(f"s{self.number}")
            service = _Service(items, self.number, self.paid)

            def pay(q: str) -> str:
                if renews and run.lease is not None:
                    session.renew(run.lease)
                return service.pay()

            tools = {"find": Tool(pay, verify=service.verify if verify else None)}
            run = session.run(_model(name, service), tools, on_busy=on_busy)  # type: ignore[arg-type]
            try:
                outcome = run.resume() if resumes and session.info().messages else run.send(f"pay for {name}")
            except (RunActiveError, RunLostError) as error:
                return error.error_code
            return outcome.status

        return operation

    def check(self, *, turns: int | None = None) -> list[str]:
        """Return the roles of the log, after checking that no effect is doubled and no loop is in another's."""
        assert len(set(self.paid)) == len(self.paid), self.paid
        messages = list(self.session.messages())
        roles = [str(message.body["role"]) for message in messages]
        names = [str(message.author) for message in messages if message.author]
        assert len({*names}) == len([name for name, _ in groupby(names)]), "each process has one stretch of the log"
        answered = [m.body["tool_call_id"] for m in messages if m.body["role"] == "tool"]
        called = [call["id"] for m in messages for call in m.body.get("tool_calls") or []]
        assert len(set(answered)) == len(answered) and set(answered) <= set(called)
        for before, role in pairwise(roles):
            assert (before, role) != ("assistant", "assistant"), roles
            assert role != "tool" or before == "assistant", roles
        if turns is not None:
            assert roles.count("user") == turns
        return roles


def each_order(
    stage: Stage, operations: Sequence[Any], check: Callable[[ScheduleRun], None], *, alike: bool = False
) -> int:
    """Let each of two operations work after each request of the other, and return the number of orders.

    Of two that are alike, `make pr` interrupts one."""
    tried = 0
    for first, other in ((0, 1),) if alike and not is_full() else ((0, 1), (1, 0)):
        requests, number = 1, 0
        while number < requests:
            run, _ = run_schedule([operations[other], operations[first]], *stage.make(), [1] * number + [0])
            requests, number = run.requests[1], number + 1
            run.results = run.results[::-1] if first == 0 else run.results
            check(run)
            tried += 1
    if is_full() and not stage.on_moto:  # on moto an order takes half a second of CPU
        tried += explore(operations, stage.make, lambda run, *_: check(run), max_preemptions=1)
    return tried


class _Service:
    """A service that pays. Its book is an item, which `verify` reads."""

    def __init__(self, items: ItemTable, number: int, paid: list[str]) -> None:
        self.items, self._number, self._paid = items, number, paid

    def touch(self, name: str) -> None:
        self.items.get_many([Key("#model", name)])

    def pay(self) -> str:
        key = current_call().key
        book: Item = {"pk": f"#paid{self._number}", "sk": key}
        self.items.put(book)
        self._paid.append(key)
        return "paid"

    def verify(self, call: RequestedCall) -> Any:
        key = Key(f"#paid{self._number}", call.key)
        return "paid before" if self.items.get_many([key]) else Effect.NONE


def _model(name: str, service: _Service) -> Callable[[Any], Any]:
    def model(window: Any) -> Any:
        service.touch(name)
        newest = window.messages[-1]
        if newest["role"] == "tool":
            return says("Paid.")
        return calls((f"c{window.head}", "find", {"q": str(newest["content"])}))

    return model


@pytest.fixture(params=["sqlite", pytest.param("moto", marks=pytest.mark.full)])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "moto":
        harness: Harness = request.getfixturevalue("moto")
        yield Stage(harness.app, on_moto=True)
        return
    clock, ids = FixedClock(), SequentialIds(9 * 10**6)
    engine = make_engine(Settings(engine="memory://"), clock=clock, ids=ids)
    yield Stage(Application(engine, Settings(token_counter="estimate"), clock=clock, ids=ids))
    engine.close()


@pytest.mark.parametrize("on_busy", ["reject", "enqueue", "steer", "interrupt"])
def test_d2_a_user_who_sends_twice_pays_as_often_as_is_meant(stage: Stage, on_busy: str) -> None:
    outcomes = set[tuple[str, ...]]()

    def check(run: ScheduleRun) -> None:
        assert not [error for error in run.results if isinstance(error, BaseException)], run
        outcomes.add(tuple(run.results))
        refused = run.results.count("run_active")
        roles = stage.check(turns=2 - refused)
        assert refused == 0 or on_busy == "reject"
        if on_busy in ("reject", "enqueue"):
            assert roles == ["user", "assistant", "tool", "assistant"] * (2 - refused)
        assert stage.session.agent().state.get("inbox") in (None, {}), "nothing is left behind"

    runners = [stage.runner(name, on_busy=on_busy) for name in ("a", "b")]
    assert each_order(stage, runners, check, alike=True) >= 20
    assert ("final", "final") in outcomes
    assert any("run_active" in outcome or "queued" in outcome for outcome in outcomes)


@pytest.mark.parametrize("verify", [False, pytest.param(True, marks=pytest.mark.full)], ids=["person", "verify"])
def test_d2_a_run_that_ends_anywhere_is_taken_over_and_no_effect_is_repeated(stage: Stage, verify: bool) -> None:
    first = stage.runner("a", on_busy="reject", verify=verify)
    second = stage.runner("b", on_busy="reject", verify=verify, ahead=200, resumes=True)
    at, crashed = 0, True
    while crashed:
        at += 1
        for after in (False, True):
            run, _ = run_schedule([first, second], *stage.make(), [], crash=Crash(0, at, after))
            crashed = isinstance(run.results[0], Crashed)
            assert not isinstance(run.results[1], Exception), run.results
            stage.check()
    assert at > 20


def test_d2_a_clock_that_is_ahead_takes_over_early_and_no_effect_is_repeated(stage: Stage) -> None:
    """The slow run's tool may work, or renew, while another has the session: the other does not repeat it, but asks."""
    outcomes = set[tuple[str, ...]]()

    def check(run: ScheduleRun) -> None:
        assert not [error for error in run.results if isinstance(error, BaseException)], run
        outcomes.add(tuple(run.results))
        stage.check()

    first = stage.runner("a", on_busy="reject", renews=True)
    second = stage.runner("b", on_busy="reject", ahead=200, resumes=True)
    assert each_order(stage, [first, second], check) >= 40
    assert ("run_lost", "pending") in outcomes and ("run_lost", "final") in outcomes
