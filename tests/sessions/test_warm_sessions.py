"""A process remembers what it read of a session. Its next window is the one that a process without memory would build."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conftest import Harness
from tests.effort import examples, is_full
from tests.support.cold_windows import cold, window
from turnlog.client.model import Session
from turnlog.core.errors import TurnlogError
from turnlog.core.identity import Owner
from turnlog.core.window_parts import WindowPart
from turnlog.log.keys import SessionKeys
from turnlog.sessions import session_history
from turnlog.sessions.session_history import WarmSessions
from turnlog.windows.plan import WindowPlan
from turnlog.windows.view import Unit

WORDS = "order A17 was shipped from Lyon to Graz on the 4th and the invoice is late because of customs "
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"id": "A17"}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is it?"},
    {"role": "user", "content": WORDS * 8},
    {"role": "assistant", "content": "On its way."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": WORDS * 3},
    {"role": "tool", "tool_call_id": "c1", "content": WORDS * 60},
    {"role": "system", "content": "Be kind."},
]
WINDOWS: list[dict[str, Any]] = [
    {"budget": 900},
    {"budget": 2_500},
    {"budget": 2_500, "format": "anthropic"},
    {"budget": 1_500, "policy": "run_loops"},
    {"budget": 4_000, "policy": "classic"},
    {"budget": 1_500, "policy": "recall"},
    {},
]
appends = st.tuples(st.just("append"), st.lists(st.sampled_from(range(len(MESSAGES))), min_size=1, max_size=4))
pins = st.tuples(st.just("pin"), st.just([0]))
others = st.sampled_from(["rewind", "redact", "system", "policy", "compress", "end_of_loop"]).map(
    lambda name: (name, [0])
)
windows = st.tuples(st.just("window"), st.lists(st.sampled_from(range(len(WINDOWS))), min_size=1, max_size=1))
steps = st.lists(st.one_of(appends, appends, windows, windows, pins, others), min_size=4, max_size=40)


def limit_reading(monkeypatch: pytest.MonkeyPatch, messages: int, calls: int) -> None:
    """Let windows consider so many messages, calls and results; the limit of calls moves on in steps of two positions."""
    monkeypatch.setattr(session_history, "MAX_WINDOW_MESSAGES", messages)
    monkeypatch.setattr(session_history, "MAX_CALLS", calls)
    if calls < 10_000:
        monkeypatch.setattr(session_history, "_LIMIT_STEPS", calls // 4)


def do(session: Session, name: str, numbers: list[int]) -> None:
    if name in ("append", "pin"):
        meta = [{"pin": True} for _ in numbers] if name == "pin" else None
        session.append(*(MESSAGES[number] for number in numbers), meta=meta)
    elif name == "end_of_loop":
        session.append(MESSAGES[2], MESSAGES[0])
    elif name == "rewind":
        session.rewind(to=max(1, session.info().head // 2))
    elif name == "redact":
        session.redact(max(2, session.info().head - 1))
    elif name == "system":
        session.update(system=f"Be brief, {session.info().head} times.")
    elif name == "policy":
        session.update(policy="run_loops" if session.info().head % 2 else "default")
    else:
        session.compress()


@settings(
    max_examples=examples(200),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=steps)
@example(
    steps=[("append", numbers) for numbers in ([0], [0], [0], [2], [0, 1], [1, 5], [0, 0, 0, 1], [0, 0])]
)  # all just fits
@example(
    steps=[("append", numbers) for numbers in ([0], [0], [2, 0, 1, 1], [0, 1, 1, 5])]
)  # past messages take less than the line about them
@example(
    steps=[("rewind", [0]), *(("pin", [0]) for _ in range(3)), ("append", [0, 0, 0, 0]), ("pin", [0])]
)  # what is not read is pinned
@example(
    steps=[("append", numbers) for numbers in ([0], [0] * 4, [0] * 4, [0, 0, 0, 2], [1, 1, 3], [0, 0, 1, 0])]
)  # all is read up to the limit, and little of it is sent
@example(
    steps=[("append", numbers) for numbers in ([0, 2, 0, 0], [0, 2, 1, 5], [1, 0, 1], [0])]
)  # all fits, and what has been read of it does not with the line about the rest
@pytest.mark.parametrize("limits", [(10_000, 10_000), (20, 10_000), (7, 10_000), (10_000, 4)])
def test_a_warm_window_is_the_window_of_a_process_that_remembers_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], steps: Any
) -> None:
    limit_reading(monkeypatch, *limits)
    session = harness.log().sessions.create(system="Be brief.")
    session.append(MESSAGES[0])
    for name, numbers in steps:
        if name != "window":
            with suppress(TurnlogError):
                do(session, name, numbers)
        options = WINDOWS[numbers[0] % len(WINDOWS)]
        assert window(session, **options) == cold(harness, session, **options)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize("loops", [1, 3, 12])
def test_the_budget_that_an_error_names_is_the_least_in_every_process(harness: Harness, loops: int) -> None:
    """Short exchanges take less than the line that says that they are not shown: with few of them, all are sent."""
    session = harness.log().sessions.create(recall="never")
    for _ in range(loops):
        session.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"})
    session.append(MESSAGES[1])
    session.context()
    refused = window(session, budget=4)
    assert refused == cold(harness, session, budget=4)
    needed = refused["details"]["needed"]
    for view in (window(session, budget=needed), cold(harness, session, budget=needed)):
        assert view["tokens"] == needed
    for view in (window(session, budget=needed - 1), cold(harness, session, budget=needed - 1)):
        assert view["details"]["needed"] == needed


QUESTION = {"role": "user", "content": "Which order was shipped from Lyon to Graz?"}
OPTIONS: list[dict[str, Any]] = [
    *WINDOWS[:4],
    *({"budget": 1_500, "policy": policy} for policy in ("recall", "turns(2)", "messages(6)")),
    *({"budget": 20_000, "policy": policy} for policy in ("default", "full")),
]
inputs = st.lists(st.sampled_from((MESSAGES[0], MESSAGES[1], MESSAGES[6], QUESTION)), min_size=1, max_size=3)
calls = st.tuples(inputs, st.sampled_from(("reply", "reply", "call", "open call")), st.booleans())


@settings(
    max_examples=examples(200),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(calls, min_size=4, max_size=25), options=st.sampled_from(OPTIONS))
@pytest.mark.parametrize("harness", ["sqlite", pytest.param("moto", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize("limits", [(20, 10_000), (7, 10_000), (10_000, 4)])
def test_W11_holds_at_the_limit_of_reading(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], steps: Any, options: dict[str, Any]
) -> None:
    """Also where some windows are built by a process that remembers nothing."""
    limit_reading(monkeypatch, *limits)
    session, before = harness.log().sessions.create(system="Be brief."), dict[str, Any]()
    for number, (messages, kind, is_cold) in enumerate(steps):
        session.append(*messages)
        now = cold(harness, session, **options) if is_cold else window(session, **options)
        if before.get("messages") and "prefix" in now and now["prefix"]["reason"] is None:
            assert now["messages"][: len(before["messages"])] == before["messages"]
            assert now["tools"] == before["tools"]
        before = now
        if kind == "reply":
            session.append(MESSAGES[2])
            continue
        call, result = {**CALL, "id": f"c{number}"}, {**MESSAGES[4], "tool_call_id": f"c{number}"}
        session.append({**MESSAGES[3], "tool_calls": [call]})
        if kind == "call":
            session.append(result, MESSAGES[2])
            before = {}


OWNER = Owner.of("acme", "ada")


def keys_of(session: Session) -> SessionKeys:
    return SessionKeys(OWNER, session.id)


def talk(session: Session, count: int) -> None:
    for number in range(count):
        session.append({"role": ("user", "assistant")[number % 2], "content": f"{number}: {WORDS}"})


def test_a_result_whose_call_is_far_back_has_the_same_reason_in_every_process(harness: Harness) -> None:
    session = harness.log().sessions.create(system="Be brief.")
    session.append(MESSAGES[0], MESSAGES[3])
    for _ in range(25):
        session.append(MESSAGES[1], MESSAGES[2])
        window(session, budget=4_000)
    session.append(MESSAGES[0], MESSAGES[2], MESSAGES[4], MESSAGES[4], MESSAGES[0])
    warm = window(session, budget=4_000)
    assert warm == cold(harness, session, budget=4_000)
    results = [part for part in warm["manifest"]["parts"] if part["level"] == "out" and part["kind"] == "message"]
    assert [part["reason"] for part in results] == ["orphan_result", "orphan_result"]


@pytest.mark.parametrize("length", [10, 400 if is_full() else 160])
def test_a_warm_window_reads_what_is_new(moto: Harness, length: int) -> None:
    session = moto.log().sessions.create(system="Be brief.")
    talk(session, length)
    session.context(budget=8_000)
    for _ in range(4):
        talk(session, 2)
        with moto.meter.measure() as spent:
            session.context(budget=8_000)
        assert dict(spent.requests) == {"Query": 1}
        assert spent.read_units <= 2


def test_a_warm_window_of_thousands_of_short_messages_reads_what_is_new(moto: Harness) -> None:
    session = moto.log().sessions.create()
    turn = {"role": "user", "content": "And then?"}, {"role": "assistant", "content": "Then it rained."}
    for _ in range(125):
        session.append(*turn * 12)
    session.context()
    session.append(*turn)
    with moto.meter.measure() as spent:
        session.context()
    assert dict(spent.requests) == {"Query": 1}
    assert spent.read_units <= 2


def test_a_session_that_grows_is_read_anew_now_and_then(harness: Harness) -> None:
    """What is remembered is bounded by what a window reads, however many windows follow."""
    session = harness.log().sessions.create()
    talk(session, 60)
    session.context(budget=1_500)
    for _ in range(30):
        session.append(*({"role": ("user", "assistant")[number % 2], "content": WORDS} for number in range(10)))
        session.context(budget=1_500)
    held = harness.app.build_context.warm_sessions.take(keys_of(session))
    assert held is not None
    assert len(held.messages) <= 1.5 * session_history.FIRST_ITEMS + session_history.LEAST_GROWTH


def test_a_small_window_plans_no_more_after_a_large_one(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    session, counts = harness.log().sessions.create(), list[int]()
    session.append({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Remember Lyon."})
    session.append({"role": "user", "content": "And Graz."}, meta=[{"pin": True}])
    for number in range(0, 600, 20):
        session.append(
            *({"role": ("user", "assistant")[n % 2], "content": f"{n}: {WORDS}"} for n in range(number, number + 20))
        )
    planned = WindowPlan.of

    def counted(*arguments: Any) -> WindowPlan:
        plan = planned(*arguments)
        counts.append(len(plan.entries))
        return plan

    monkeypatch.setattr(WindowPlan, "of", counted)
    expected = cold(harness, session, budget=1_500)
    after_cold = max(counts)
    assert window(session)["messages"]
    counts.clear()
    assert window(session, budget=1_500) == expected
    assert max(counts) <= after_cold


@pytest.mark.parametrize("limits", [(10_000, 10_000), (120, 10_000), (10_000, 120)])
def test_a_window_of_a_long_open_loop_makes_only_what_is_new(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    """Its steps and their parts of the manifest are those of the window before, also at the limits of reading."""
    limit_reading(monkeypatch, *limits)
    monkeypatch.setattr(session_history, "_LIMIT_STEPS", 4)
    session, made = harness.log().sessions.create(), list[object]()

    def steps(count: int) -> None:
        for _ in range(count):
            call = {**CALL, "id": f"c{session.info().head}"}
            session.append({**MESSAGES[3], "tool_calls": [call]}, {**MESSAGES[4], "tool_call_id": call["id"]})

    session.append(MESSAGES[0])
    steps(100)
    for _ in range(3):
        session.context(budget=2_000)
    for kind in (Unit, WindowPart):
        plain = kind.__init__

        def counted(*arguments: Any, plain: Any = plain, **named: Any) -> None:
            made.append(arguments[0])
            plain(*arguments, **named)

        monkeypatch.setattr(kind, "__init__", counted)
    counts = list[int]()
    for _ in range(4):
        steps(1)
        made.clear()
        session.context(budget=2_000)
        counts.append(len(made))
    assert min(counts) <= 60, "of 100 steps"


def test_what_a_caller_does_with_its_window_changes_no_later_one(harness: Harness) -> None:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    session = harness.log().sessions.create(system="Be brief.", tools=[tool])
    session.append({"role": "user", "content": [{"type": "text", "text": "hello"}]})
    before = session.context().model_dump_json()
    window = session.context()
    window.messages[-1]["content"][0]["text"] = "changed"  # type: ignore[index]
    window.tools[0]["function"]["name"] = "changed"  # type: ignore[index]
    assert session.context().model_dump_json() == before


def test_a_message_that_was_redacted_by_another_process_is_in_no_warm_window(harness: Harness) -> None:
    session = harness.log().sessions.create()
    talk(session, 6)
    session.append({"role": "user", "content": "My PIN is 1234."})
    assert "1234" in str(session.context().messages)
    harness.other_process().log().sessions.of(session.id).redact(session.info().head)
    assert "1234" not in str(session.context().messages)


@pytest.mark.parametrize("through_fork", [False, True])
@pytest.mark.parametrize(("pin", "newer"), [(False, 1), (True, 1), (True, 60)])
def test_a_message_that_a_fork_shares_is_in_no_warm_window_after_its_redaction(
    harness: Harness, through_fork: bool, pin: bool, newer: int
) -> None:
    log = harness.log()
    parent = log.sessions.create("parent")
    parent.append({"role": "user", "content": "My PIN is 1234."}, meta=[{"pin": pin}])
    position = parent.info().head
    talk(parent, 2)
    child = parent.fork("child")
    talk(child, newer)
    for session in (parent, child):
        assert "1234" in str(session.context(budget=1_500).messages)
    (child if through_fork else parent).redact(position)
    for session in (parent, child):
        assert "1234" not in str(session.context(budget=1_500).messages)


def test_a_rewind_is_in_the_next_window(harness: Harness) -> None:
    session = harness.log().sessions.create()
    talk(session, 200)
    session.context(budget=1_500)
    session.rewind(to=session.info().head - 3)
    talk(session, 1)
    assert window(session, budget=1_500) == cold(harness, session, budget=1_500)
    assert "199: order" not in str(session.context(budget=1_500).messages)


def test_a_summary_is_in_the_next_window(harness: Harness) -> None:
    session = harness.log().sessions.create()
    talk(session, 40)
    session.context(budget=1_500)
    assert session.compress(keep_loops=1).status == "published"
    assert window(session, budget=1_500) == cold(harness, session, budget=1_500)
    assert any(part.kind == "summary" for part in session.context(budget=1_500).manifest.parts)


def test_other_settings_are_in_the_next_window(harness: Harness) -> None:
    session = harness.log().sessions.create(system="Be brief.")
    talk(session, 4)
    session.context()
    session.update(system="Be long.", metadata={"long": "x" * 2_000})
    assert "Be long." in str(session.context().messages)
    session.update(system="Be kind. " * 200)
    for _ in range(2):
        assert window(session) == cold(harness, session)
        talk(session, 1)


def test_what_is_remembered_of_another_log_is_not_used(harness: Harness) -> None:
    """An id may come back after an erasure, with as many commits."""
    log, warm = harness.log(), harness.app.build_context.warm_sessions
    for number in range(2):
        session = log.sessions.create(f"s{number}")
        session.append(*({"role": "user", "content": f"{number} {index}"} for index in range(4)))
        session.context()
    warm.put(keys_of(session), warm.take(SessionKeys(OWNER, "s0")))
    assert window(session) == cold(harness, session)
    assert "1 3" in str(session.context().messages)


def test_a_session_that_was_erased_has_no_warm_window(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    talk(session, 4)
    session.context()
    session.erase()
    with pytest.raises(TurnlogError):
        session.context()


def test_users_and_tenants_have_their_own(harness: Harness) -> None:
    texts = dict[tuple[str, str], str]()
    for tenant, user in (("acme", "ada"), ("acme", "bob"), ("other", "ada")):
        session = harness.log(tenant, user).sessions.create("s")
        session.append({"role": "user", "content": f"{tenant} {user}"})
        texts[tenant, user] = str(session.context().messages)
    for (tenant, user), text in texts.items():
        assert str(harness.log(tenant, user).sessions.get("s").context().messages) == text
        assert f"{tenant} {user}" in text


def test_threads_on_one_session_get_the_same_windows(harness: Harness) -> None:
    session = harness.log().sessions.create()
    talk(session, 40)
    expected, windows = window(session, budget=1_500), list[object]()

    def build() -> None:
        windows.extend(window(session, budget=1_500) for _ in range(10))

    threads = [Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(windows) == 40
    assert all(each == expected for each in windows)


def test_the_memory_of_a_process_is_bounded(harness: Harness) -> None:
    warm = harness.app.build_context.warm_sessions = WarmSessions(max_bytes=60_000)
    for number in range(6):
        session = harness.log().sessions.create(f"s{number}")
        talk(session, 6)
        session.context()
    held = [warm.take(SessionKeys(OWNER, f"s{number}")) for number in range(6)]
    sizes = [session.size_bytes for session in held if session is not None]
    assert held[0] is None and held[5] is not None
    assert sum(sizes) <= 60_000


@dataclass(frozen=True)
class Sized:
    size_bytes: int


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, 1, 30, 60, 100, 101]))))
def test_a_cache_of_sessions_keeps_the_newest_that_fit(actions: list[tuple[str, int | None]]) -> None:
    """No size: the session is taken out. A list of the sessions, oldest first, is the model."""
    cache, kept = WarmSessions[Sized](max_bytes=100), dict[str, int]()
    for name, size in actions:
        if size is None:
            assert cache.take(SessionKeys(OWNER, name)) == (Sized(kept.pop(name)) if name in kept else None)
            continue
        cache.put(SessionKeys(OWNER, name), Sized(size))
        if size <= 100:
            kept.pop(name, None)
            kept[name] = size
        while sum(kept.values()) > 100:
            del kept[next(iter(kept))]
    assert {name: cache.take(SessionKeys(OWNER, name)) for name in "abcd"} == {
        name: Sized(kept[name]) if name in kept else None for name in "abcd"
    }


def test_windows_of_many_budgets_leave_no_more_than_those_of_a_few(harness: Harness) -> None:
    session = harness.log().sessions.create()
    talk(session, 60)

    def remembered() -> int:
        warm = harness.app.build_context.warm_sessions
        held = warm.take(keys_of(session))
        warm.put(keys_of(session), held)
        assert held is not None and held.memory.assembled
        loops = [loop for assembled in held.memory.assembled for loop in assembled.loops]
        units = [unit for loop in loops for unit in loop.units]
        return sum(len(part.followed) for part in (*loops, *units) if hasattr(part, "followed"))

    counts = list[int]()
    for budget in range(1_000, 5_000, 100):
        session.context(budget=budget)
        counts.append(remembered())
    assert 0 < max(counts) <= 2 * max(counts[:4])
