"""A2, A3, D1: an answer lost or a crash at every call, and every order of two writers' requests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import boundaries, is_full
from tests.explorer import Crash, Crashed, ScheduleRun, explore
from tests.support.steps import (
    LARGE,
    LONG,
    STEPS,
    appending,
    application,
    begin,
    check,
    contents,
    fresh,
)
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import TurnlogError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.testing.fixed import SequentialIds

KEYS = SessionKeys(Owner.of("acme", "ada"), "s")


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


# ------------------------------------------------------------ every order


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
    assert (
        explore(
            operations,
            fresh(lambda log: log.sessions.create("s")),
            check,
            max_preemptions=most,
        )
        >= 50
    )


@pytest.mark.parametrize(
    ("at", "after"),
    [
        *((1, False), (2, True), (3, True)),
        *(pytest.param(at, after, marks=pytest.mark.full) for at, after in ((1, True), (2, False), (3, False))),
    ],
)
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
        return (
            application(items, blobs, SequentialIds(start)).sessions.of("s").compress(keep_loops=1, idempotency_key=key)
        )

    return operation


def _long(log: Turnlog) -> None:
    log.sessions.create("s").append(*LONG)


def test_every_order_of_an_append_and_a_summary_keeps_both() -> None:
    """S1: a summary that loses its slot to an append takes the next one."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        log = application(items, blobs, SequentialIds(10**9))
        session = log.sessions.of("s")
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
        session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
        assert all(not isinstance(result, BaseException) for result in run.results), run.results
        assert sorted(result.status for result in run.results) == ["published", "unchanged"]
        assert session.info().head == 12
        assert session.summary().base is None

    most = 2 if is_full() else 1
    assert explore([compressing(1000), compressing(2000)], fresh(_long), check, max_preemptions=most) >= 6


def test_a3_every_order_of_the_same_compression_twice_publishes_one_summary_and_answers_it_to_both() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
        assert all(not isinstance(result, BaseException) for result in run.results), run.results
        assert run.results[0] == run.results[1]
        assert run.results[0].status == "published"
        assert session.info().head == 12

    most = 2 if is_full() else 1
    assert explore([compressing(1000, "k"), compressing(2000, "k")], fresh(_long), check, max_preemptions=most) >= 6


def test_a5_every_order_of_two_large_changes_leaves_the_state_and_settings_that_were_answered() -> None:
    """A change that is made again for another slot is stored again: what it says depends on what came before it."""

    def changing(start: int, change: Callable[[Session], Any]) -> Callable[[ItemTable, BlobStore], Any]:
        return lambda items, blobs: change(application(items, blobs, SequentialIds(start)).sessions.of("s"))

    def stated(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        newest = max(run.results, key=lambda answer: answer.version)
        items.delete_many([KEYS.state])
        assert application(items, blobs, SequentialIds(10**9)).sessions.of("s").state() == newest

    def updated(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        items.delete_many([KEYS.meta, KEYS.system])
        session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
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
