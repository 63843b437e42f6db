"""The session's state: what is put comes back, patches fold as a plain model does, at every position and on both engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.effort import examples
from tests.explorer import ScheduleRun, explore
from tests.support.steps import application, fresh
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import (
    CorruptError,
    IdempotencyMismatchError,
    InvalidInputError,
    MalformedError,
    NotFoundError,
    PatchError,
    TooLargeError,
    TooMuchWorkError,
    TurnlogError,
    VersionMismatchError,
)
from turnlog.core.events import StateEvent
from turnlog.core.identity import Owner
from turnlog.core.json_patch import MAX_STEPS as MAX_PATCH_STEPS
from turnlog.core.json_patch import apply_patch, apply_patches
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.sessions.state_schema import DIALECT, MAX_STEPS, check_state, check_work, state_errors
from turnlog.sessions.state_store import FOLD_STEPS, state_at, write_state_cache
from turnlog.testing.fixed import SequentialIds

ODD: list[dict[str, Any]] = [
    {},
    {"a": None, "b": {"c": None}, "d": [None, {"e": None}]},
    {"你好": "\U0001f600", "e\u0301": "é", "": "", "\u0000": "\u2028"},
    {"lone": "\ud83d", "\ud83d": [1]},
    {"n": [0, -1, 2**63, -(2**63), 2**64 - 1, 1.5, 1e300, -0.0, 1e-7], "t": [True, False]},
    {"$ref": "x", "op": "add", "p": 1, "full": 2, "agents": {}},
    {"deep": json.loads("[" * 29 + "]" * 29)},
]


def same(one: Any, other: Any) -> bool:
    """Equal as JSON text: 1, 1.0 and true are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.fixture
def session(log: Turnlog) -> Session:
    return log.sessions.create("s")


@pytest.fixture
def here() -> Turnlog:
    """In memory: for what no engine has a part in."""
    return application(*fresh(lambda log: None)(), SequentialIds())


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> int:
    """Whole states come often, so that few changes are enough to cross one."""
    monkeypatch.setattr("turnlog.sessions.state_store.FULL_EVERY", 8)
    return 8


# ------------------------------------------------------------ round trips


def test_d3_any_state_comes_back_equal(log: Turnlog, session: Session) -> None:
    assert (session.state().state, session.state().version) == ({}, 0)
    for at, state in enumerate(ODD):
        put = session.put_state(state)
        assert same(put.state, state) and put.version == 2 + at
        assert same(session.state().state, state)
        operations = [{"op": "replace", "path": "", "value": {"x": state}}] if at < len(ODD) - 1 else []
        assert same(log.sessions.create(f"s{at}", state=state).state().state, state)
        patched = log.sessions.of(f"s{at}").patch_state(operations)
        assert same(patched.state, {"x": state} if operations else state)


@pytest.mark.parametrize("size", [10, 60_000])
def test_a_state_is_the_same_from_its_cache_and_from_the_log(here: Turnlog, often: int, size: int) -> None:
    """With its number of changes too, so that a whole state comes every so many changes however it was read."""
    session, keys = here.sessions.create("s"), SessionKeys(Owner.of("acme", "ada"), "s")
    app = here.backend.app  # type: ignore[attr-defined]
    noise = "".join(f"{number * 7919 % 1_000_003:06x}" for number in range(size // 6))
    for number in range(3 * often):
        version = session.patch_state({"n": number, **({"noise": noise} if number == 0 else {})}).version
        cached = state_at(app.log, keys, version)
        app.engine.items.delete_many([keys.state])
        read = state_at(app.log, keys, version)
        assert (read.value, read.version, read.count) == (cached.value, cached.version, cached.count)
        assert read.count == number + 1
        assert (read.base == version) == (read.count % often == 0 or (size > 10 and number == 0))
        write_state_cache(app.log, keys, read)


def test_what_json_does_not_have_is_refused(here: Turnlog) -> None:
    session = here.sessions.create("s")
    for bad in ({"n": 2**64}, {"n": float("nan")}, {"n": {1, 2}}, {1: 2}, {"d": json.loads("[" * 40 + "]" * 40)}):
        with pytest.raises(MalformedError):
            session.put_state(bad)  # type: ignore[arg-type]
        with pytest.raises(MalformedError):
            session.patch_state(bad)  # type: ignore[arg-type]
    assert (session.state().version, session.info().head) == (0, 1)


def test_a_state_of_5_mb_is_kept_and_of_more_is_refused(session: Session) -> None:
    noise = "x" * 1_020_000
    for name in "abcde":
        assert session.patch_state({name: noise}).version
    kept = session.state()
    assert set(kept.state) == set("abcde")
    with pytest.raises(TooLargeError):
        session.patch_state({"f": noise})
    with pytest.raises(TooLargeError):
        session.append({"role": "user", "content": "x"}, run={"scratchpad": noise})
    assert session.state() == kept
    assert session.info().head == 6
    assert session.patch_state({"a": None}).state.keys() == set("bcde")


# ------------------------------------------------------------ patches


def test_a_state_with_more_values_than_a_later_limit_may_change_and_not_grow(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.put_state({"a": 1, "b": 2})
    monkeypatch.setattr("turnlog.sessions.state.MAX_STATE_VALUES", 2)
    assert session.patch_state({"a": 3}).state == {"a": 3, "b": 2}
    with pytest.raises(TooLargeError):
        session.patch_state({"c": 4})
    monkeypatch.setattr("turnlog.sessions.state.MAX_STATE_VALUES", 4)
    assert session.patch_state({"c": 4}).state == {"a": 3, "b": 2, "c": 4}, "as many as the limit"


def test_a_merge_patch_takes_away_and_put_sets_null(session: Session) -> None:
    session.put_state({"a": None, "b": {"c": 1, "d": None}})
    assert session.patch_state({"b": {"c": None}}).state == {"a": None, "b": {"d": None}}
    assert session.patch_state([{"op": "add", "path": "/b/c", "value": None}]).state == {
        "a": None,
        "b": {"c": None, "d": None},
    }
    assert session.patch_state({"a": None}).state == {"b": {"c": None, "d": None}}


def test_a_patch_that_does_not_apply_changes_nothing(here: Turnlog) -> None:
    session = here.sessions.create("s")
    session.put_state({"a": [1, 2]})
    operations = [{"op": "add", "path": "/b", "value": 1}, {"op": "test", "path": "/a/0", "value": 9}]
    with pytest.raises(PatchError) as caught:
        session.patch_state(operations)
    assert [problem.pointer for problem in caught.value.problems] == ["/1/value"]
    for operations in ([{"op": "remove", "path": ""}], [{"op": "replace", "path": "", "value": [1]}]):
        with pytest.raises(PatchError):
            session.patch_state(operations)
    assert (session.state().state, session.info().head) == ({"a": [1, 2]}, 2)


def test_a_state_can_not_be_patched_deeper_than_it_can_be_put(here: Turnlog) -> None:
    session = here.sessions.create("s")
    deepest = json.loads('{"a":' * 31 + "1" + "}" * 31)
    session.put_state(deepest)
    with pytest.raises(InvalidInputError):
        session.patch_state([{"op": "replace", "path": "/a" * 31, "value": []}])
    with pytest.raises(InvalidInputError):
        session.patch_state(json.loads('{"a":' * 32 + "1" + "}" * 32))
    assert session.state().state == deepest


def test_if_version(session: Session) -> None:
    first = session.put_state({"n": 1}, if_version=0)
    session.append({"role": "user", "content": "hi"})
    second = session.patch_state({"n": 2}, if_version=first.version)
    for attempt in (
        lambda: session.put_state({"n": 3}, if_version=0),
        lambda: session.patch_state({"n": 3}, if_version=first.version),
        lambda: session.patch_state([], if_version=session.info().head + 1),
    ):
        with pytest.raises(VersionMismatchError) as caught:
            attempt()
        assert caught.value.details["version"] == second.version
    assert session.state() == second


def test_a_key_has_one_effect_and_one_answer(session: Session) -> None:
    session.put_state({"n": 0})
    add = [{"op": "copy", "from": "/n", "path": "/m"}]
    answers = [
        session.patch_state({"n": 1}, idempotency_key="k1"),
        session.patch_state(add, idempotency_key="k2"),
        session.put_state({"z": 1}, idempotency_key="k3"),
    ]
    head = session.info().head
    session.patch_state({"later": True})
    assert session.patch_state({"n": 1}, idempotency_key="k1") == answers[0]
    assert session.patch_state(add, idempotency_key="k2", if_version=answers[0].version) == answers[1]
    assert session.put_state({"z": 1}, idempotency_key="k3") == answers[2]
    assert session.info().head == head + 1
    for attempt in (
        lambda: session.patch_state({"n": 2}, idempotency_key="k1"),
        lambda: session.patch_state({"n": 1}, idempotency_key="k1", action="other"),
        lambda: session.put_state({"n": 1}, idempotency_key="k1"),
        lambda: session.append({"role": "user", "content": "x"}, idempotency_key="k1"),
    ):
        with pytest.raises(IdempotencyMismatchError):
            attempt()


def test_an_action_is_the_caller_s_own(here: Turnlog) -> None:
    session = here.sessions.create("s")
    assert session.patch_state({"a": 1}, action="state_conversion").version == 2
    for action in ("message_added", "rewind", "summary_published", "run"):
        with pytest.raises(InvalidInputError):
            session.patch_state({"a": 1}, action=action)
        with pytest.raises(InvalidInputError):
            session.put_state({"a": 1}, action=action)
    for action in ("", "1x", "a b", "a" * 65, "ä"):
        with pytest.raises(InvalidInputError):
            session.put_state({}, action=action)
        with pytest.raises(InvalidInputError):
            session.patch_state({}, action=action)


# ------------------------------------------------------------ agents live in it


def test_execution_states_are_validated_where_they_change(here: Turnlog) -> None:
    session = here.sessions.create("s")
    good = {"agent_id": "main", "iteration": 1}
    assert session.put_state({"agents": {"main": good}, "lang": "zh"}).state["agents"] == {"main": good}
    assert session.agent().state == good
    for patch, pointer in (
        ({"agents": {"main": {"iteration": "x"}}}, "/agents/main/iteration"),
        ({"agents": {"main": {"agent_id": None}}}, "/agents/main/agent_id"),
        ({"agents": {"other": {"agent_id": "main"}}}, "/agents/other/agent_id"),
        ({"agents": {"main": {"iteration": 3, "max_iterations": 2}}}, "/agents/main/iteration"),
        ({"agents": [1]}, "/agents"),
        ({"agents": {"main": 1}}, "/agents/main"),
        ({"agents": {"a b": {"agent_id": "a b"}}}, "/agents"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            session.patch_state(patch)
        assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert session.patch_state({"agents": {"main": None}}).state == {"agents": {}, "lang": "zh"}
    with pytest.raises(NotFoundError):
        session.agent()


def test_what_a_loose_append_has_kept_invalid_stands_in_nobody_s_way(here: Turnlog) -> None:
    session = here.sessions.create("s")
    answer = session.append({"role": "user", "content": "go"}, run={"iteration": 5, "max_iterations": 3})
    assert [warning.code for warning in answer.warnings] == ["iteration_above_maximum"]
    assert session.patch_state({"lang": "zh"}).state["lang"] == "zh"
    assert session.patch_state({"agents": {"main": {"name": "x"}}}).version > 0
    for patch in ({"iteration": 6}, {"max_iterations": 2}, {"iteration": "x"}):
        with pytest.raises(InvalidInputError):
            session.patch_agent(patch)
    assert session.patch_agent({"iteration": 3}).state["iteration"] == 3


def test_a_patch_is_refused_for_nothing_that_it_does_not_change(here: Turnlog) -> None:
    session = here.sessions.create("s")
    answer = session.append({"role": "user", "content": "go"}, run={"iteration": "NaN", "tools": {}})
    assert [warning.code for warning in answer.warnings] == ["wrong_type"] * 2
    assert session.patch_agent({"last_model": "x"}).state["iteration"] == "NaN"
    with pytest.raises(InvalidInputError) as caught:
        session.patch_agent({"iteration": "none"})
    assert [problem.pointer for problem in caught.value.problems] == ["/iteration"]
    assert session.patch_agent({"iteration": 1}).state["tools"] == {}


def test_a_session_is_not_created_with_invalid_agents(here: Turnlog) -> None:
    with pytest.raises(InvalidInputError):
        here.sessions.create("bad", state={"agents": {"main": {"iteration": 1}}})
    assert not here.sessions.exists("bad")


def test_an_action_that_is_put_is_pending(log: Turnlog, harness: Any) -> None:
    session = log.sessions.create("waits", loop_timeout_seconds=60)
    session.append({"role": "user", "content": "go"})
    session.put_state({"agents": {"main": {"agent_id": "main", "pending_action": {"what": "x"}}}})
    harness.clock.advance(3600)
    assert next(session.loops()).status == "open"
    session.put_state({})
    harness.clock.advance(61)
    assert next(session.loops()).status == "interrupted"


def test_a_change_shows_in_the_list_and_hides_no_later_append_from_it(
    harness: Any, log: Turnlog, session: Session
) -> None:
    harness.clock.advance(301)
    next(log.sessions.list())  # settled: exact until the next touch
    for change in (
        lambda: session.put_state({"a": 1}),
        lambda: session.patch_agent({"iteration": 1}),
        lambda: session.record("noted"),
    ):
        change()
        assert next(log.sessions.list()) == session.info()
        session.append({"role": "user", "content": "hi"})
        harness.clock.advance(301)
        assert next(log.sessions.list()) == session.info()


# ------------------------------------------------------------ any moment


def grown(session: Session, harness: Any, changes: int) -> list[tuple[int, int, dict[str, Any]]]:
    """Changes of every kind between messages: position, time and state after each commit."""
    model: dict[str, Any] = {}
    seen = [(1, harness.clock.now_ms(), dict(model))]
    for at in range(changes):
        harness.clock.advance(10)
        if at % 4 == 0:
            patch = {f"k{at % 7}": at, "last": None if at % 3 else at}
            model, _ = apply_patch(model, patch)
            session.patch_state(patch)
        elif at % 4 == 1:
            model = {**model, "list": [*model.get("list", []), at]}
            session.put_state(model)
        elif at % 4 == 2:
            model = {**model, "agents": {"main": {"iteration": at, "agent_id": "main"}}}
            session.append(
                {"role": "user", "content": f"{at}"}, {"role": "assistant", "content": "ok"}, run={"iteration": at}
            )
        else:
            model = {**model, f"op{at % 5}": [at]}
            session.patch_state([{"op": "add", "path": f"/op{at % 5}", "value": [at]}])
        seen.append((session.info().head, harness.clock.now_ms(), json.loads(json.dumps(model))))
    return seen


def test_d7_the_state_at_every_position_and_time(harness: Any, session: Session, often: int) -> None:
    seen = grown(session, harness, 2 * often + 2)
    before = (0, {})
    for head, time_ms, state in seen:
        for position in range(before[0] + 1, head):
            assert session.state(at=position).state == before[1], position
        assert session.state(at=head).state == state
        assert session.state(at=iso(time_ms + 9_000 * (head % 2))).state == state
        before = (head, state)
    assert session.state().state == seen[-1][2]
    harness.app.engine.items.delete_many([SessionKeys(session.backend.owner, "s").state])  # type: ignore[attr-defined]
    assert session.state().state == seen[-1][2], "the log alone says the same"


def iso(time_ms: int) -> str:
    from turnlog.core.times import rfc3339

    return rfc3339(time_ms)


def test_a_moment_that_the_log_does_not_have(here: Turnlog) -> None:
    session = here.sessions.create("s")
    for at in (0, 99, "yesterday", "2001-01-01T00:00:00Z", "1e3", 10**14, ""):
        with pytest.raises(InvalidInputError) as caught:
            session.state(at=at)
        assert [problem.pointer for problem in caught.value.problems] == ["/query/at"]
    for at in (1, "2030-01-01T00:00:00Z"):
        with pytest.raises(NotFoundError):
            Session(session.backend, "nobody").state(at=at)


def test_a_snapshot_has_the_state_of_its_position(session: Session) -> None:
    session.put_state({"n": 1})
    session.create_snapshot("one")
    session.patch_state({"n": 2})
    assert session.snapshot("one").content.state == {"n": 1}


@pytest.mark.parametrize("large", [False, True])
def test_a_state_is_folded_from_few_commits_whatever_its_history(
    harness: Any, session: Session, large: bool, often: int
) -> None:
    """V1: read in 2 requests, 4 where it is too large for one item; before the 8th change and after it."""
    noise = "".join(f"{at * 7919 % 999_983:06d}" for at in range(14_000)) if large else ""
    session.put_state({"noise": noise})
    counts = set()
    for at in range(often + 8):
        session.patch_state({f"k{at % 20}": at})
        if at % 4 == 0 or at >= often - 2:
            before = harness.faults.calls
            state = session.state().state
            counts.add(harness.faults.calls - before)
    assert state["noise"] == noise and state["k15"] == 15
    assert counts <= ({3, 4} if large else {2}), counts
    before = harness.faults.calls
    session.patch_state({"last": 1})
    assert harness.faults.calls - before <= (6 if large else 4)


def test_patches_too_large_to_be_kept_beside_a_large_state_make_it_whole_again(session: Session, harness: Any) -> None:
    model: dict[str, Any] = {}
    for at in range(4):
        part = {f"part{at}": "".join(f"{n * (7919 + at) % 999_983:06d}" for n in range(5_000))}
        model |= part
        assert session.patch_state(part).state == model
        assert session.state().state == model
        assert session.state(at=session.info().head).state == model
    before = harness.faults.calls
    session.state()
    assert harness.faults.calls - before <= 4


def test_d4_a_damaged_state_is_a_typed_error(harness: Any, session: Session) -> None:
    session.put_state({"a": 1})
    session.patch_state({"b": 1})
    keys = SessionKeys(session.backend.owner, "s")  # type: ignore[attr-defined]
    harness.app.engine.items.delete_many([keys.state])
    harness.app.engine.items.delete_many([keys.commit(2)])
    with pytest.raises(CorruptError):
        session.state()


# ------------------------------------------------------------ a plain model

NAMES = st.sampled_from(["a", "b", "~/", "x"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(0, 2)
    | st.sampled_from(["", "\ud83d"])
    | st.lists(st.integers(0, 1), max_size=2)
)
OBJECTS = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=3),
    lambda inner: st.dictionaries(NAMES, inner | LEAVES, max_size=3),
    max_leaves=6,
)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "merge", "patch", "append", "forget"]), OBJECTS), max_size=45)


@settings(max_examples=examples(60), deadline=None)
@given(st.none() | OBJECTS, STEPS)
def test_the_fold_of_changes_is_a_plain_model(
    start: dict[str, Any] | None, steps: list[tuple[str, dict[str, Any]]]
) -> None:
    items, blobs = fresh(lambda log: None)()
    log = application(items, blobs, SequentialIds())
    session = log.sessions.create("s", state=start)
    model: dict[str, Any] = start or {}
    seen = {1: model}
    for kind, value in steps:
        if kind == "put":
            model = value
            session.put_state(value)
        elif kind == "merge":
            model, _ = apply_patch(model, value)
            session.patch_state(value)
        elif kind == "patch":
            model = {**model, "p/~": value}
            session.patch_state([{"op": "add", "path": "/p~1~0", "value": value}])
        elif kind == "append":
            session.append({"role": "user", "content": "x"})
        else:
            items.delete_many([SessionKeys(session.backend.owner, "s").state])  # type: ignore[attr-defined]
        seen[session.info().head] = model
        assert same(session.state().state, model)
    for position, state in seen.items():
        assert same(session.state(at=position).state, state)


# ------------------------------------------------------------ several writers


def changing(start: int, change: Callable[[Session], Any]) -> Callable[[ItemTable, BlobStore], Any]:
    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        return change(application(items, blobs, SequentialIds(start)).sessions.of("s"))

    return operation


def of(items: ItemTable, blobs: BlobStore) -> Session:
    return application(items, blobs, SequentialIds(10**9)).sessions.of("s")


def _start(log: Turnlog) -> None:
    log.sessions.create("s", state={"n": 0})


def test_every_order_of_two_patches_keeps_both() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)]
        session = of(items, blobs)
        assert session.state().state == {"n": 0, "a": 1, "b": [2]}
        assert {result.version for result in run.results} == {2, 3}
        for result in run.results:
            assert session.state(at=result.version) == result

    operations = [
        changing(1000, lambda session: session.patch_state({"a": 1})),
        changing(2000, lambda session: session.patch_state([{"op": "add", "path": "/b", "value": [2]}])),
    ]
    assert explore(operations, fresh(_start), check, max_preemptions=2) >= 6


def test_every_order_of_two_writers_on_one_version_lets_one_win() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        refused = [result for result in run.results if isinstance(result, TurnlogError)]
        assert [error.error_code for error in refused] == ["version_mismatch"]
        (won,) = [result for result in run.results if not isinstance(result, BaseException)]
        assert of(items, blobs).state() == won

    operations = [
        changing(1000, lambda session: session.put_state({"n": 1}, if_version=1)),
        changing(2000, lambda session: session.patch_state({"n": 2}, if_version=1)),
    ]
    assert explore(operations, fresh(_start), check, max_preemptions=2) >= 6


def test_every_order_of_an_append_with_run_and_a_patch_keeps_both() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)]
        session = of(items, blobs)
        assert session.state().state == {"n": 5, "agents": {"main": {"iteration": 1, "agent_id": "main"}}}
        assert [message.body["content"] for message in session.messages()] == ["hi"]
        assert session.info().head == 4

    operations = [
        changing(1000, lambda session: session.append({"role": "user", "content": "hi"}, run={"iteration": 1})),
        changing(2000, lambda session: session.patch_state({"n": 5})),
    ]
    assert explore(operations, fresh(_start), check, max_preemptions=2) >= 6


def test_every_order_of_the_same_patch_twice_applies_it_once() -> None:
    add = [{"op": "add", "path": "/l/-", "value": 1}]

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert run.results[0] == run.results[1]
        assert of(items, blobs).state().state == {"l": [1]}

    operations = [
        changing(start, lambda session: session.patch_state(add, idempotency_key="k")) for start in (1000, 2000)
    ]
    assert (
        explore(operations, fresh(lambda log: log.sessions.create("s", state={"l": []})), check, max_preemptions=2) >= 6
    )


# ------------------------------------------------------------ a schema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["lang"],
    "additionalProperties": False,
    "properties": {
        "lang": {"type": "string", "pattern": "^[a-z]{2}$"},
        "cart": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/item"}},
        "pattern": {"type": "string"},
    },
    "$defs": {"item": {"type": "object", "required": ["sku"], "properties": {"n": {"type": "integer", "minimum": 1}}}},
}


def test_a_state_must_fit_its_schema(log: Turnlog) -> None:
    session = log.sessions.create("s", system="Be brief.", state_schema=SCHEMA)
    good = {"lang": "zh", "cart": [{"sku": "a", "n": 1}, {"sku": "a", "n": 2}]}
    assert session.put_state(good).state == good
    for bad, pointer in (
        ({"lang": "zh", "color": "red"}, ""),
        ({}, ""),
        ({"lang": "zho"}, "/lang"),
        ({"lang": "zh", "cart": [{"sku": "a"}, {"n": 0, "sku": "b"}]}, "/cart/1/n"),
        ({"lang": "zh", "cart": [{"n": 1}]}, "/cart/0"),
        ({"lang": "zh", "cart": [{"sku": 1}, {"sku": 1.0}]}, "/cart"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            session.put_state(bad)
        assert caught.value.error_code == "schema_mismatch"
        assert [problem.pointer for problem in caught.value.problems] == [pointer]
    with pytest.raises(InvalidInputError):
        session.patch_state({"lang": None})
    assert session.patch_state([{"op": "remove", "path": "/cart"}]).state == {"lang": "zh"}
    assert session.patch_agent({"iteration": 1}).state["iteration"] == 1, "agents are no part of it"
    assert session.state().state["lang"] == "zh"


def test_a_session_with_a_schema_is_created_with_a_state_that_fits_or_none(here: Turnlog) -> None:
    with pytest.raises(InvalidInputError):
        here.sessions.create("bad", state={"lang": 1}, state_schema=SCHEMA)
    assert not here.sessions.exists("bad")
    assert here.sessions.create("good", state={"lang": "de"}, state_schema=SCHEMA).state().state == {"lang": "de"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"properties": 1},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"$ref": "https://example.com/schema"},
        {"properties": {"a": {"pattern": "(?<=x)y"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"patternProperties": {"(a+)+$": {}}},
        {"properties": {"a": {"unevaluatedProperties": False}}},
        {"$id": "https://example.com/"},
        {"description": "x" * 70_000},
        {"properties": {"properties": {"patternProperties": {"(a+)+$": {}}}}},
        {"allOf": [{}] * 10_000},
        {"type": ["string", *range(10_000)]},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}},
        {"$defs": {"a": {"$anchor": "a", "if": True, "then": {"$ref": "#a"}}}},
        {"dependentSchemas": {"a": {"not": {"$ref": "#"}}}},
    ],
)
def test_a_schema_that_is_not_taken(here: Turnlog, schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        here.sessions.create("s", state_schema=schema)
    assert not here.sessions.exists("s")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"type": "object", "additionalProperties": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        {"properties": {"allOf": {"$ref": "#/$defs/not"}}, "$defs": {"not": {"items": {"$ref": "#/$defs/not"}}}},
        {"const": {"allOf": [{"$ref": "#"}]}, "enum": [{"const": {"allOf": [{"$ref": "#"}]}}]},
        {"$ref": "#/nowhere", "allOf": [{"$ref": "#/allOf/x"}]},
    ],
)
def test_a_schema_that_refers_to_itself_for_other_values_is_taken(here: Turnlog, schema: dict[str, Any]) -> None:
    assert here.sessions.create("s", state_schema=schema).state().version == 0


def test_a_schema_can_not_hang_us(here: Turnlog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.sessions.state_schema.MAX_STEPS", 60_000)
    doubling: dict[str, Any] = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)}
    doubling["d40"] = {"type": "object"}
    for at, schema in enumerate(
        (
            {"$ref": "#/$defs/d0", "$defs": doubling},
            {"$ref": "#/default", "default": {"$ref": "#/default"}},
            {"$ref": "#/$defs/nowhere"},
            {"properties": {"a": {"pattern": "(x+x+)+y"}}},
        )
    ):
        session = here.sessions.create(f"s{at}", state_schema=schema)
        with pytest.raises(InvalidInputError):
            session.put_state({"a": "x" * 400_000})
    wide = here.sessions.create("wide", state_schema={"properties": {"a": {"uniqueItems": True}}})
    assert wide.put_state({"a": [{"n": at} for at in range(20_000)]}).version == 2


REACHED = {"$ref": "#/default"}
COSTLY_SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    "messages with the whole state": ({"anyOf": [{"type": "null"}] * 2_000}, list(range(50_000))),
    "messages with the whole schema": (
        {"properties": {"l": {"contains": {"enum": ["x" * 60_000]}}}},
        list(range(60_000)),
    ),
    "items of any kind": ({"properties": {"l": {"allOf": [{"items": {}}] * 100}}}, list(range(50_000))),
    "properties of any kind": (
        {
            "$defs": {"wide": {"properties": {f"{n:x}": True for n in range(1_000)}}},
            "properties": {"l": {"items": {"allOf": [{"$ref": "#/$defs/wide"}] * 9}}},
        },
        [{f"{n:x}": 0 for n in range(1_000)}] * 100,
    ),
    "missing names": (
        {"properties": {"l": {"contains": {"required": [f"{n:x}" for n in range(9_000)]}}}},
        [{}] * 20_000,
    ),
    "a long reference": (
        {"properties": {"l": {"items": {"$ref": "#/$defs/" + "a" * 30_000}}}, "$defs": {"a" * 30_000: True}},
        list(range(50_000)),
    ),
    "uniqueItems again and again": (
        {"properties": {"l": {"allOf": [{"uniqueItems": True}] * 1_000}}},
        [[n, "x" * 1_000] for n in range(1_000)],
    ),
    "a pattern on much text": ({"properties": {"l": {"items": {"pattern": "(a?b?){1,60}$"}}}}, ["ab" * 500] * 3_000),
    "many patterns on one text": ({"properties": {"l": {"allOf": [{"pattern": "x"}] * 1_000}}}, "ab" * 500_000),
}


@pytest.mark.parametrize("name", COSTLY_SCHEMAS)
def test_a_check_takes_as_many_steps_as_its_limit_and_no_more(here: Turnlog, name: str) -> None:
    schema, value = COSTLY_SCHEMAS[name]
    session = here.sessions.create("s", state_schema=schema)
    with pytest.raises(InvalidInputError) as caught:
        session.put_state({"l": value})
    assert caught.value.error_code in ("too_much_work", "schema_mismatch")
    if caught.value.error_code == "too_much_work":
        assert caught.value.details == {"limit": MAX_STEPS} and str(MAX_STEPS) in caught.value.detail
    assert (session.state().version, session.info().head) == (0, 1)


class Words(str):
    """A text that nobody may copy into a message."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise AssertionError("contents in a message")


def test_what_is_refused_is_not_written_into_messages() -> None:
    quiet = state_errors(
        {"a": Words("x"), "b": [Words("y")]}, {"anyOf": [{"type": "null"}, {"const": 1}]}, check_work()
    )
    assert [error.validator for error in quiet] == ["anyOf"]


def test_enum_and_unique_items_are_linear(here: Turnlog) -> None:
    schema = {"properties": {"l": {"items": {"enum": list(range(4_000))}}, "u": {"uniqueItems": True}}}
    session = here.sessions.create("s", state_schema=schema)
    state = {"l": [3_999] * 40_000, "u": list(range(100_000))}
    assert session.put_state(state).state == state
    work = check_work()
    check_state(state, schema, work)
    assert work.steps < 5 * 140_000


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"enum": [1, "a", None, [1, {"b": 2}]]}, [1.0, "a", None, [1.0, {"b": 2.0}]], [True, "1", False, [True]]),
        ({"enum": [True, 0]}, [True, 0, -0.0], [1, False]),
        ({"const": {"a": [0]}}, [{"a": [0.0]}, {"a": [-0.0]}], [{"a": [False]}, {"a": []}, {}]),
        ({"const": 2**53}, [2.0**53], [2**53 + 1]),
        ({"uniqueItems": True}, [[1, True], [0, False, None], [[1], [True]], ["1", 1]], [[1, 1.0], [[1], [1.0]]]),
        ({"uniqueItems": True}, [[{"a": 1}, {"a": True}]], [[{"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}], [None, None]]),
    ],
)
def test_enum_const_and_unique_items_compare_as_json_does(schema: Any, good: list[Any], bad: list[Any]) -> None:
    reference = Draft202012Validator(schema)
    for value in good:
        assert reference.is_valid(value) and not list(state_errors(value, schema, check_work()))
    for value in bad:
        assert not reference.is_valid(value) and list(state_errors(value, schema, check_work()))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$schema": DIALECT, "pattern": "(a+)+$"}}},
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}}},
        {"$schema": DIALECT, "pattern": "(a+)+$", "properties": {"a": {"$ref": "#"}}},
        {**REACHED, "default": {"properties": {"a": {"patternProperties": {"(a+)+$": False}, "pattern": "^b"}}}},
    ],
)
def test_no_keyword_is_left_to_pythons_patterns(here: Turnlog, schema: dict[str, Any]) -> None:
    """`jsonschema` takes a validator of its own for a part that names a ``$schema``: with 60 letters it would take years."""
    session = here.sessions.create("s", state_schema=schema)
    with pytest.raises(InvalidInputError) as caught:
        session.put_state({"a": "a" * 60 + "b"})
    assert caught.value.error_code == "schema_mismatch"


@pytest.mark.parametrize(
    "part",
    [
        {"minimum": "x", "properties": {"a": {"minLength": "1"}}},
        {"properties": 1},
        {"type": ["nothing"]},
        {"minProperties": "x"},
        {"properties": {"a": {"pattern": "("}}},
        {"allOf": 3},
        {"dependentRequired": [1]},
        {"$ref": DIALECT},
    ],
)
def test_a_reference_to_what_is_no_schema_is_refused(here: Turnlog, part: dict[str, Any]) -> None:
    session = here.sessions.create("s", state_schema={**REACHED, "default": part})
    with pytest.raises(InvalidInputError) as caught:
        session.put_state({"a": "text"})
    assert caught.value.error_code == "invalid_schema"
    assert session.state().version == 0


# ------------------------------------------------------------ what reads cost


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of every fold, as they happen."""
    steps = list[int]()

    def counted(target: Any, patches: Any) -> Any:
        value = apply_patches(target, patches)
        steps.append(value[1])
        return value

    monkeypatch.setattr("turnlog.sessions.state_store.apply_patches", counted)
    return steps


COSTLY_CHANGES: dict[str, tuple[dict[str, Any], Any]] = {
    "many operations": ({"l": []}, [{"op": "add", "path": "/l/-", "value": 1}] * 8_000),
    "adds at the front": ({"l": [0] * 200_000}, [{"op": "add", "path": "/l/0", "value": 1}] * 1_000),
    "a large value added and taken away": (
        {},
        [{"op": "add", "path": "/a", "value": ["x"] * 100_000}, {"op": "remove", "path": "/a"}],
    ),
    "a large value tested": ({"l": [0] * 40_000}, [{"op": "test", "path": "/l", "value": [0] * 40_000}]),
}


@pytest.mark.parametrize("name", COSTLY_CHANGES)
def test_a_read_costs_no_more_because_of_an_earlier_patch(log: Turnlog, folds: list[int], name: str) -> None:
    state, patch = COSTLY_CHANGES[name]
    session = log.sessions.create("s", state=state)
    for n in range(3):
        session.patch_state(patch if n == 1 else [{"op": "add", "path": f"/n{n}", "value": n}])
    expected = {position: copy_of(session.state(at=position).state) for position in range(1, 5)}
    folds.clear()
    for position, value in expected.items():
        assert same(session.state(at=position).state, value)
    assert same(session.state().state, expected[4])
    assert max(folds) < FOLD_STEPS


def test_many_patches_that_are_each_cheap_fold_within_the_limit(here: Turnlog, folds: list[int]) -> None:
    session = here.sessions.create("s", state={"l": [str(n) * 9 for n in range(20_000)]})
    for n in range(20):
        session.patch_state([{"op": "replace", "path": f"/l/{n * 600 + m}", "value": "x"} for m in range(600)])
    for position in range(1, 22):
        assert session.state(at=position).state["l"].count("x") == 600 * (position - 1)
    assert max(folds) < FOLD_STEPS


def test_a_session_with_costly_patches_of_earlier_versions_is_read_and_mended_by_the_next_change(
    log: Turnlog, folds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = log.sessions.create("s", state={"l": [0] * 200_000})
    with monkeypatch.context() as earlier:
        earlier.setattr("turnlog.core.json_patch.MAX_STEPS", 10**12)
        earlier.setattr("turnlog.sessions.state_store.FOLD_STEPS", 10**12)
        session.patch_state([{"op": "add", "path": "/l/0", "value": 1}] * 5_000)
    assert session.state().state == {"l": [1] * 5_000 + [0] * 200_000}
    assert session.state(at=2).state == session.state().state
    assert max(folds) > MAX_PATCH_STEPS, "more than a patch of today may take"
    session.patch_state({"n": 1})
    folds.clear()
    assert session.state().state == {"l": [1] * 5_000 + [0] * 200_000, "n": 1}
    assert max(folds, default=0) < FOLD_STEPS
    assert session.state(at=2).state == {"l": [1] * 5_000 + [0] * 200_000}


def test_a_refused_patch_writes_nothing(session: Session, harness: Any) -> None:
    session.put_state({"l": [0] * 200_000})
    before = session.info().head
    with pytest.raises(TooMuchWorkError):
        session.patch_state([{"op": "remove", "path": "/l/0"}] * 10_000)
    assert session.info().head == before and len(session.state().state["l"]) == 200_000


def copy_of(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_settings_from_before_there_were_schemas_ask_for_nothing(session: Session, harness: Any) -> None:
    before = harness.faults.calls
    session.put_state({"a": 1})
    assert harness.faults.calls - before == 3, "the end of the log, the commit, the cache"


def test_a_change_tells_who_made_it_what_it_was_and_which_keys_there_were(here: Turnlog) -> None:
    session = here.sessions.create("s", state={"a": 1})
    session.append({"role": "user", "content": "hi"}, run={"agent_id": "main", "iteration": 1})
    session.patch_state([{"op": "add", "path": "/b", "value": 2}])
    session.put_state({"c": 3})
    backend: Any = here.backend
    log, keys = backend.app.log.commits, SessionKeys(Owner.of(backend.owner.tenant, backend.owner.user), "s")
    commits = log.range(keys, 1, session.info().head)
    changes = [event for event in log.events(keys, commits) if isinstance(event, StateEvent)]
    by_run, patched, put = changes
    assert [event.position for event in changes] == [3, 4, 5]
    assert [event.previous for event in changes] == [by_run.previous, 3, 4] and by_run.previous < 3
    assert [event.count - by_run.count for event in changes] == [0, 1, 2]
    assert [event.agent_id for event in changes] == ["main", None, None]
    assert [event.keys_before for event in changes] == [("a",), ("a", "agents"), ("a", "agents", "b")]
    assert [event.keys_after for event in changes] == [("a", "agents"), ("a", "agents", "b"), ("c",)]
    assert [event.full for event in changes] == [None, None, {"c": 3}], "a patch is enough"
    assert patched.patch == [{"op": "add", "path": "/b", "value": 2}] and put.patch is None
