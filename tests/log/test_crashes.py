"""A2, A3, D1: an answer lost or a crash at every call, and every order of two writers' requests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import boundaries, is_full
from tests.explorer import Crash, Crashed, ScheduleRun, explore
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import TurnlogError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

LARGE = {"role": "tool", "tool_call_id": "c1", "content": "".join(f"{at:05x}" for at in range(3_000))}
HUGE = {"role": "tool", "tool_call_id": "c2", "content": "".join(f"{at * 7919:09x}" for at in range(12_000))}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call_id in ("c1", "c2")
    ],
}
KEYS = SessionKeys(Owner.of("acme", "ada"), "s")
STEPS: dict[str, Callable[[Turnlog], Any]] = {
    "create": lambda log: log.sessions.create("s", system="Be brief.", state={"a": 1}, idempotency_key="create").id,
    "create with a made id": lambda log: log.sessions.create(idempotency_key="made").id,
    "append small": lambda log: Session(log._backend, "base").append(
        {"role": "user", "content": "hi"}, idempotency_key="small"
    ),
    "append with payloads": lambda log: Session(log._backend, "base").append(
        CALLS, LARGE, HUGE, idempotency_key="large"
    ),
    "append with run": lambda log: Session(log._backend, "base").append(
        {"role": "user", "content": "hi"}, run={"iteration": 1}, idempotency_key="run"
    ),
    "patch agent": lambda log: Session(log._backend, "base").patch_agent({"iteration": 2}, idempotency_key="patch"),
    "put state": lambda log: Session(log._backend, "base").put_state({"n": 1}, idempotency_key="put"),
    "put a large state": lambda log: Session(log._backend, "base").put_state(
        {"n": 1, "x": HUGE["content"]}, idempotency_key="put"
    ),
    "patch state": lambda log: Session(log._backend, "base").patch_state(
        [{"op": "add", "path": "/n", "value": 1}], if_version=0, idempotency_key="patch"
    ),
    "refuse": lambda log: Session(log._backend, "base").decide_pending("reject", reason="no", idempotency_key="refuse"),
    "approve": lambda log: Session(log._backend, "base").decide_pending("approve", idempotency_key="approve"),
    "append what waited": lambda log: Session(log._backend, "base").append(RESULT, idempotency_key="result"),
    "put documents": lambda log: [
        one.revision
        for one in log._backend.call(
            "put_documents",
            path={"session_id": "base"},
            body={"put": [{"key": "a", "data": "QQ==", "if_absent": True}], "then": [{"key": "b", "data": "QQ=="}]},
            idempotency_key="documents",
        ).documents
    ],
    "record": lambda log: Session(log._backend, "base").record("handed_over", idempotency_key="record"),
    "update": lambda log: Session(log._backend, "base").update(
        title="New", system="x" * 3_000, idempotency_key="update"
    ),
    "update with payloads": lambda log: Session(log._backend, "base").update(
        title="New", system=HUGE["content"], idempotency_key="update"
    ),
    "end": lambda log: Session(log._backend, "base").end(idempotency_key="end"),
    "end without a key": lambda log: Session(log._backend, "base").end(),
    "reset": lambda log: Session(log._backend, "base").reset(idempotency_key="reset").info(),
    "rewind": lambda log: Session(log._backend, "base").rewind(1, idempotency_key="rewind"),
    "fork": lambda log: Session(log._backend, "base").fork("fork", at=2, title="Fork", idempotency_key="fork").info(),
    "fork with a made id": lambda log: (
        Session(log._backend, "base").fork(system="x" * 3_000, idempotency_key="fork").info()
    ),
    "compress": lambda log: Session(log._backend, "base").compress(idempotency_key="compress"),
    "compress as a job": lambda log: Session(log._backend, "base").compress(mode="async", idempotency_key="job"),
    "snapshot": lambda log: Session(log._backend, "base").create_snapshot("a name", idempotency_key="snapshot"),
    "snapshot of an unused name": lambda log: Session(log._backend, "base").create_snapshot(
        "a name", if_name_absent=True, idempotency_key="snapshot"
    ),
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}
REFUSAL = {
    "role": "tool",
    "tool_results": [{"tool_call_id": "c1", "result": "This action was rejected. Reason: no", "is_error": True}],
}
WAITING = ("refuse", "approve", "append what waited")
LONG = [{"role": ("user", "assistant")[at % 2], "content": f"{at} " + "something to say " * 40} for at in range(10)]


def begin(log: Turnlog, step: str) -> None:
    """What is there before a step."""
    base = log.sessions.create("base")
    base.append({"role": "user", "content": "before"})
    if step.startswith("compress"):
        base.append(*LONG)
    if step in WAITING:
        base.append(CALLS, run={"pending_action": {"call_id": "c1"}})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a2_a3_a_fault_at_every_call_then_the_same_call_again_has_one_effect(
    harness: Any, step: str, when: str, tells: Callable[..., None]
) -> None:
    """The step is tried in sessions of its own, one for each of its calls; the clean run says how many there are."""
    perform = STEPS[step]
    calls, wanted, tried = 0, [0], list[int]()
    for at in wanted:
        log = harness.log(user=f"user-{at}")
        begin(log, step)
        started = harness.faults.calls
        if at == 0:
            answer = perform(log)
            calls = harness.faults.calls - started
            wanted += boundaries(calls, harness.name)
        else:
            harness.faults.fail(at, when)
            with contextlib.suppress(UnavailableError):
                perform(log)
            assert not harness.faults.is_pending, "the fault was never met: the step makes fewer calls than before"
            tried.append(at)
            answer = perform(log)
        assert perform(log) == answer
        check(log, step)
    tells(f"no answer {when}", step, len(tried))
    assert tried == boundaries(calls, harness.name) and calls > 0


def check(log: Turnlog, step: str) -> None:
    listed = {session.session_id for session in log.sessions.list()}
    assert len(listed) == (2 if step.startswith(("create", "reset", "fork")) else 1)
    bodies = [message.body for message in Session(log._backend, "base").messages()]
    added = {
        "append small": [{"role": "user", "content": "hi"}],
        "append with payloads": [CALLS, LARGE, HUGE],
        "append with run": [{"role": "user", "content": "hi"}],
        "refuse": [REFUSAL],
        "append what waited": [RESULT],
    }.get(step, [])
    before = LONG if step.startswith("compress") else [CALLS] if step in WAITING else []
    assert bodies == [{"role": "user", "content": "before"}, *before, *added]
    base = Session(log._backend, "base")
    if step == "compress":
        assert base.info().head == 13, "exactly one summary"
        assert base.summary().position == 13
    if step == "compress as a job":
        assert len(list(log.jobs())) == 1
    if step.startswith("snapshot"):
        (only,) = base.snapshots()
        assert base.snapshot("a name").snapshot_id == only.snapshot_id
    if step in WAITING:
        pending = base.agent().state.get("pending_action")
        assert pending == ({"call_id": "c1", "decision": "approve"} if step == "approve" else None)
        assert base.info().head == (5 if step == "approve" else 6)
    if "state" in step:
        assert base.state().state.get("n") == (None if step == "create" else 1)
        assert base.info().head == 3
    if step.startswith("update"):
        assert base.info().head == 3
        assert [one.title for one in (base.info(), *log.sessions.list())] == ["New", "New"]
        assert base.context(budget=10**6).messages[0]["role"] == "system"
    if step.startswith("end"):
        assert base.info().head == 3
        assert [one.status for one in (base.info(), *log.sessions.list())] == ["ended", "ended"]
    if step == "reset":
        assert base.info().head == 3
        assert {(one.status, one.reset_of) for one in log.sessions.list()} == {("ended", None), ("active", "base")}
    if step == "rewind":
        assert (base.info().head, base.info().messages, list(base.messages(in_view=True))) == (3, 0, [])
    if step.startswith("fork"):
        (fork,) = (Session(log._backend, one) for one in listed if one != "base")
        assert [(one.position, one.body["content"]) for one in fork.messages()] == [(2, "before")]
        assert (fork.info().head, fork.info().forked_from, base.info().head) == (3, "base", 2)
    if step == "record":
        assert [entry.action for entry in base.history()] == ["handed_over", "message_added", "create"]
    if step == "append with run":
        assert Session(log._backend, "base").agent().state["iteration"] == 1
    if step == "patch agent":
        assert Session(log._backend, "base").agent().state["iteration"] == 2


# ------------------------------------------------------------ every order


def application(items: ItemTable, blobs: BlobStore, ids: SequentialIds) -> Turnlog:
    engine = Engine("explored", items, blobs, None, lambda: None)
    app = Application(engine, Settings(token_counter="estimate"), clock=FixedClock(), ids=ids)
    return Turnlog(InProcessBackend(app, Owner.of("acme", "ada")))


def fresh(prepare: Callable[[Turnlog], Any]) -> Callable[[], tuple[ItemTable, BlobStore]]:
    def make() -> tuple[ItemTable, BlobStore]:
        items, blobs = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore()
        prepare(application(items, blobs, SequentialIds()))
        return items, blobs

    return make


def appending(
    start: int, *contents: str, key: str | None = None, if_head: int | None = None
) -> Callable[[ItemTable, BlobStore], Any]:
    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        session = Session(application(items, blobs, SequentialIds(start))._backend, "s")
        return session.append(
            *({"role": "user", "content": text} for text in contents), idempotency_key=key, if_head=if_head
        )

    return operation


def contents(items: ItemTable, blobs: BlobStore) -> list[tuple[int, str]]:
    session = Session(application(items, blobs, SequentialIds(10**9))._backend, "s")
    return [(message.position, message.body["content"]) for message in session.messages()]


def acknowledged_and_whole(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> list[tuple[int, str]]:
    """What every schedule must leave: acknowledged batches whole and in place, no gap, nothing twice."""
    stored = contents(items, blobs)
    assert [position for position, _ in stored] == list(range(2, 2 + len(stored)))
    for result in run.results:
        assert not isinstance(result, Exception) or isinstance(result, TurnlogError), result
        if not isinstance(result, BaseException):
            assert {position for position, _ in stored} >= set(range(result.first, result.last + 1))
    assert len({text for _, text in stored}) == len(stored), "a message is stored twice"
    return stored


def test_every_order_of_two_appends_keeps_both() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        assert sorted(text for _, text in stored) == ["a1", "a2", "b1"]
        assert [text for _, text in stored if text[0] == "a"] == ["a1", "a2"]

    operations = [appending(1000, "a1", "a2"), appending(2000, "b1")]
    tried = explore(operations, fresh(lambda log: log.sessions.create("s")), check)
    assert tried >= 6  # at least the orders of two requests each


def test_every_order_of_three_appends_keeps_all() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        assert sorted(text for _, text in stored) == ["a", "b", "c"]

    operations = [appending(1000, "a"), appending(2000, "b"), appending(3000, "c")]
    assert explore(operations, fresh(lambda log: log.sessions.create("s")), check, max_preemptions=2) >= 20


def test_every_order_of_the_same_request_twice_stores_it_once() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        assert stored == [(2, "x")]
        assert run.results[0] == run.results[1]

    operations = [appending(1000, "x", key="k"), appending(2000, "x", key="k")]
    assert explore(operations, fresh(lambda log: log.sessions.create("s")), check) >= 20


def test_a3_every_order_of_two_attempts_and_another_writer_stores_the_request_once() -> None:
    """The record of the key, the commit and the other writer's commits come in any order."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        assert sorted(text for _, text in stored) == ["a", "b", "x"]
        assert run.results[0] == run.results[1]
        again = appending(9000, "x", key="k")(items, blobs)
        assert again == run.results[0]

    def others(items: ItemTable, blobs: BlobStore) -> Any:
        appending(3000, "a")(items, blobs)
        return appending(4000, "b")(items, blobs)

    operations = [appending(1000, "x", key="k"), appending(2000, "x", key="k"), others]
    most = 3 if is_full() else 2
    assert explore(operations, fresh(lambda log: log.sessions.create("s")), check, max_preemptions=most) >= 50


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a3_every_order_of_an_attempt_that_crashes_its_retry_and_another_writer(at: int, after: bool) -> None:
    """The attempt ends before or after its read of the log's end, its record, its commit."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        assert sorted(text for _, text in stored) == ["b", "x"]
        assert isinstance(run.results[0], Crashed) or run.results[0] == run.results[1]
        again = appending(9000, "x", key="k")(items, blobs)
        assert again == run.results[1]

    operations = [appending(1000, "x", key="k"), appending(2000, "x", key="k"), appending(3000, "b")]
    crash, begin = Crash(0, at, after), fresh(lambda log: log.sessions.create("s"))
    assert explore(operations, begin, check, crash=crash, max_preemptions=2) >= 20


def test_a4_every_order_of_two_payloads_under_one_key_stores_one() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        assert [text for _, text in stored] in (["x"], ["y"])
        refused = [result for result in run.results if isinstance(result, TurnlogError)]
        assert [error.error_code for error in refused] == ["idempotency_mismatch"]

    operations = [appending(1000, "x", key="k"), appending(2000, "y", key="k")]
    explore(operations, fresh(lambda log: log.sessions.create("s")), check)


def test_every_order_of_two_appends_on_one_head_lets_one_win() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        refused = [result for result in run.results if isinstance(result, TurnlogError)]
        assert len(stored) == 1
        assert [error.error_code for error in refused] == ["head_mismatch"]

    operations = [appending(1000, "a", if_head=1), appending(2000, "b", if_head=1)]
    explore(operations, fresh(lambda log: log.sessions.create("s")), check)


@pytest.mark.parametrize("after", [False, True])
def test_every_order_with_a_crash_at_every_request_of_one_writer(after: bool) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        stored = acknowledged_and_whole(run, items, blobs)
        texts = [text for _, text in stored]
        assert "b" in texts
        assert texts.count("a1") == texts.count("a2"), "a batch is seen in part"
        again = appending(5000, "a1", "a2", key="a")(items, blobs)
        assert [text for _, text in contents(items, blobs)].count("a1") == 1
        assert again.last - again.first == 1

    operations = [appending(1000, "a1", "a2", key="a"), appending(2000, "b")]
    for at in (1, 2, 3, 4, 5):
        explore(operations, fresh(lambda log: log.sessions.create("s")), check, crash=Crash(0, at, after))


def test_every_order_of_two_creators_makes_one_session() -> None:
    def creating(start: int, key: str) -> Callable[[ItemTable, BlobStore], Any]:
        def operation(items: ItemTable, blobs: BlobStore) -> Any:
            return (
                application(items, blobs, SequentialIds(start)).sessions.create("s", title=key, idempotency_key=key).id
            )

        return operation

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        log = application(items, blobs, SequentialIds(10**9))
        failed = [result for result in run.results if isinstance(result, Exception)]
        assert [error.error_code for error in failed] == ["session_exists"]  # type: ignore[attr-defined]
        assert [session.session_id for session in log.sessions.list()] == ["s"]
        winner = "ab"[[isinstance(result, Exception) for result in run.results].index(False)]
        assert log.sessions.get("s").info().title == winner

    operations = [creating(1000, "a"), creating(2000, "b")]
    explore(operations, fresh(lambda log: None), check, max_preemptions=2)


def test_the_explorer_finds_a_planted_lost_update() -> None:
    """The explorer itself can fail: an append that overwrites its slot is caught."""

    class Careless:
        def __init__(self, inner: ItemTable) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def put(self, item: Any, *, condition: Any = None) -> Any:
            return self._inner.put(item)

    def careless(start: int, text: str) -> Callable[[ItemTable, BlobStore], Any]:
        inner = appending(start, text)
        return lambda items, blobs: inner(Careless(items), blobs)  # type: ignore[arg-type]

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert sorted(text for _, text in acknowledged_and_whole(run, items, blobs)) == ["a", "b"]

    with pytest.raises(AssertionError):
        explore([careless(1000, "a"), careless(2000, "b")], fresh(lambda log: log.sessions.create("s")), check)


def test_a_crash_is_never_caught_by_the_code_it_ends() -> None:
    assert not issubclass(Crashed, Exception)


def compressing(start: int, key: str | None = None) -> Callable[[ItemTable, BlobStore], Any]:
    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        return Session(application(items, blobs, SequentialIds(start))._backend, "s").compress(
            keep_loops=1, idempotency_key=key
        )

    return operation


def _long(log: Turnlog) -> None:
    log.sessions.create("s").append(*LONG)


def test_every_order_of_an_append_and_a_summary_keeps_both() -> None:
    """S1: a summary that loses its slot to an append takes the next one."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        log = application(items, blobs, SequentialIds(10**9))
        session = Session(log._backend, "s")
        for result in run.results:
            assert not isinstance(result, BaseException), result
        assert [message.body["content"] for message in session.messages()][-1] == "new"
        summary = session.summary()
        assert summary is not None
        assert summary.last_loop in (3, 4), "of the log with the append or before it"
        assert session.info().head == 13
        window = session.context(budget=10_000)
        assert [part.kind for part in window.manifest.parts].count("summary") == 1

    assert explore([appending(1000, "new"), compressing(2000)], fresh(_long), check) >= 6


def test_every_order_of_two_summaries_publishes_one() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = Session(application(items, blobs, SequentialIds(10**9))._backend, "s")
        assert all(not isinstance(result, BaseException) for result in run.results), run.results
        assert sorted(result.status for result in run.results) == ["published", "unchanged"]
        assert session.info().head == 12
        assert session.summary().base is None

    most = 2 if is_full() else 1
    assert explore([compressing(1000), compressing(2000)], fresh(_long), check, max_preemptions=most) >= 6


def test_a3_every_order_of_the_same_compression_twice_publishes_one_summary_and_answers_it_to_both() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = Session(application(items, blobs, SequentialIds(10**9))._backend, "s")
        assert all(not isinstance(result, BaseException) for result in run.results), run.results
        assert run.results[0] == run.results[1]
        assert run.results[0].status == "published"
        assert session.info().head == 12

    most = 2 if is_full() else 1
    assert explore([compressing(1000, "k"), compressing(2000, "k")], fresh(_long), check, max_preemptions=most) >= 6


def test_a5_every_order_of_two_large_changes_leaves_the_state_and_settings_that_were_answered() -> None:
    """A change that is made again for another slot is stored again: what it says depends on what came before it."""

    def changing(start: int, change: Callable[[Session], Any]) -> Callable[[ItemTable, BlobStore], Any]:
        return lambda items, blobs: change(Session(application(items, blobs, SequentialIds(start))._backend, "s"))

    def stated(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        newest = max(run.results, key=lambda answer: answer.version)
        items.delete_many([KEYS.state])
        assert Session(application(items, blobs, SequentialIds(10**9))._backend, "s").state() == newest

    def updated(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        items.delete_many([KEYS.meta, KEYS.system])
        session = Session(application(items, blobs, SequentialIds(10**9))._backend, "s")
        assert (session.info().title, session.info().metadata) == ("New", {"m": 1})

    states = [
        changing(1000, lambda session: session.put_state({"a": LARGE["content"]})),
        changing(2000, lambda session: session.put_state({"b": LARGE["content"]})),
    ]
    updates = [
        changing(1000, lambda session: session.update(title="New")),
        changing(2000, lambda session: session.update(metadata={"m": 1})),
    ]
    begin = fresh(lambda log: log.sessions.create("s", system=LARGE["content"], state={"c": 1}))
    assert explore(states, begin, stated, max_preemptions=1, only_conflicts=True) > 1
    assert explore(updates, begin, updated, max_preemptions=1, only_conflicts=True) > 1
