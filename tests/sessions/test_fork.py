"""Forks: a session that begins as another was, by a pointer; from there on the two know nothing of each other."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest

from tests.conftest import Harness
from tests.explorer import Crash, ScheduleRun, explore
from tests.log.everything import held
from tests.privacy.expired import expire
from tests.support.erasing import worked
from tests.support.exports import members
from tests.support.jobs import poller
from tests.support.redacting import CANARY
from tests.support.rewinds import contents, everything, said, seen
from tests.support.segments import OWNER, noise
from tests.support.steps import HUGE, LARGE, appending, application, fresh
from tests.support.talks import AMPLE, filled, texts, turn
from turnlog import Policy
from turnlog.client.model import Session, Turnlog
from turnlog.core import positions as borders
from turnlog.core.errors import (
    CorruptError,
    InvalidInputError,
    NotFoundError,
    SessionExistsError,
    TurnlogError,
    UnavailableError,
)
from turnlog.core.identity import Owner
from turnlog.log.commit import VERIFIED
from turnlog.log.keys import SessionKeys, export_blob
from turnlog.ports import BlobStore, ItemTable, Query
from turnlog.testing.fixed import SequentialIds

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.fixture
def parent(harness: Harness) -> Session:
    """Calls, states, payloads out of line, other settings."""
    session = harness.log().sessions.create("parent", system="Be brief.", state={"a": 1}, title="Parent")
    session.append(*said(1))
    session.append({"role": "user", "content": "Look"}, CALLS)
    session.append(LARGE, {"role": "assistant", "content": "Found"})
    session.patch_state({"b": 2})
    session.update(policy="run_loops")
    session.append(*said(3), {**HUGE, "role": "user"})
    return session


def exported_blob(session: Session, harness: Harness) -> bytes:
    session.backend.call("export_session", path={"session_id": session.id}, body={})
    data = harness.app.engine.blobs.get(export_blob(OWNER, session.id))
    assert data is not None
    return data


NESTED = [(3, 2), (4, 3), (4, 2), (3, 3)]


@pytest.mark.parametrize(("outer", "inner"), NESTED)
def test_forks_of_forks_that_end_inside_one_commit(harness: Harness, outer: int, inner: int) -> None:
    """Each shares less of it than the one before, and stays so when those before are erased."""
    session = harness.log().sessions.create("s")
    session.append(*({"role": "user", "content": text} for text in "abcd"))
    fork = session.fork("outer", at=outer)
    nested = fork.fork("inner", at=inner)
    wanted = list("abcd")[: inner - 1]

    def check() -> None:
        assert contents(nested) == seen(nested) == contents(nested, order="desc")[::-1] == wanted
        assert [message.body["content"] for message in nested.page(after=1, limit=9).messages] == wanted

    check()
    for ancestor in (session, fork):
        ancestor.erase()
        check()
        poller(harness).run_once()
        check()


@pytest.mark.parametrize("size", [10, 9_000, 90_000])
def test_what_is_made_of_a_fork_has_nothing_of_what_lies_behind_its_moment(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Neither its segments, snapshots and exports, nor what becomes of these, also where a commit is shared in part."""
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", 4)
    parent = harness.log().sessions.create("parent")
    behind = {"role": "user", "content": CANARY + noise(size)}
    parent.append({"role": "user", "content": "one"}, {"role": "user", "content": noise(size)}, behind, behind)
    fork = parent.fork("fork", at=3)
    for number in range(4):
        fork.append({"role": "user", "content": f"mine {number}"})
    made = fork.create_snapshot("whole", kind="full")
    poller(harness).run_once()
    assert list(harness.app.log.items.query(Query(SessionKeys(OWNER, "fork").partition, "G#", "G$")).items)
    data = exported_blob(fork, harness)
    assert CANARY not in str(members(data))
    log = harness.log()
    copies = [log.sessions.import_(io.BytesIO(data), session_id="copy")[0].session_id]
    worked(harness, parent.erase())
    assert held(CANARY, harness) == [], "all that had it was the parent's"
    wanted = list(fork.messages())
    assert [item.position for item in wanted] == [2, 3, 7, 8, 9, 10]
    data = exported_blob(log.sessions.get("copy"), harness)
    copies += [log.sessions.import_(io.BytesIO(data), session_id="copied")[0].session_id]
    copies += [log.sessions.get("copy").fork("fork-of-a-copy").id]
    copies += [fork.restore_snapshot(made.snapshot_id, session_id="restored").session_id]

    def check(name: str) -> None:
        copy = log.sessions.get(name)
        assert [message.model_dump() for message in copy.messages()] == [item.model_dump() for item in wanted], name
        assert [message.position for message in copy.messages(in_view=True)] == [item.position for item in wanted], name
        assert copy.search(CANARY).results == [], name
        assert copy.append({"role": "user", "content": "on"}).first > 10

    for name in copies:
        check(name)
    expire(harness, SessionKeys(OWNER, "fork"), tombstones=False)
    VERIFIED.clear()
    check(fork.restore_snapshot(made.snapshot_id, session_id="again").session_id)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_at_every_position_a_fork_is_what_its_parent_was(parent: Session) -> None:
    for position in range(1, parent.info().head + 1):
        before = everything(parent, at=position)
        fork = parent.fork(f"fork-{position}", at=position)
        assert everything(fork) == before, position
        assert contents(fork) == contents(parent, at=position), "and nothing of what came behind it"
        info = fork.info()
        assert (info.forked_from, info.forked_at, info.status) == ("parent", position, "active")
        assert everything(fork, at=position) == before


def test_both_go_on_by_themselves(parent: Session) -> None:
    fork = parent.fork("fork", at=3, title="Fork", policy=Policy.from_options({"preserve_system": False}))
    fork.append(*said(8), idempotency_key="same")
    parent.append(*said(9), idempotency_key="same")
    fork.patch_state({"of": "fork"})
    parent.put_state({"of": "parent"})
    assert seen(fork) == ["Question 1", "Answer 1", "Question 8", "Answer 8"]
    assert seen(parent)[-2:] == ["Question 9", "Answer 9"]
    assert (fork.state().state, parent.state().state) == ({"a": 1, "of": "fork"}, {"of": "parent"})
    assert (fork.info().title, parent.info().title) == ("Fork", "Parent")
    assert fork.info().policy["preserve_system"] is False and parent.info().policy == "run_loops"  # type: ignore[index]
    assert [(loop.loop, loop.first) for loop in fork.loops()] == [(2, 5), (1, 2)]
    actions = [item.action for item in fork.history()]
    assert actions == ["state_change", *["message_added"] * 2, "fork", *["message_added"] * 2, "create"]
    fork.rewind(2)
    assert seen(fork) == ["Question 1"]
    assert fork.diff(4).left[0].first == 3


def test_what_is_out_of_line_and_what_is_recalled(parent: Session) -> None:
    fork = parent.fork("fork")
    assert contents(fork)[4] == LARGE["content"]
    assert contents(fork)[-1] == HUGE["content"]
    (ref,) = (call.ref for loop in fork.loops() for call in loop.tool_calls)
    assert fork.recall(ref, max_tokens=100_000).model_dump() == parent.recall(ref, max_tokens=100_000).model_dump()
    assert fork.recall(call_id="c1").ref == ref
    fork.append({"role": "user", "content": "A needle"})
    assert [result.snippet for result in fork.search("needle").results] == ["A ⟦needle⟧"]
    assert [result.snippet for result in parent.search("needle").results] == []
    assert fork.search("Found").results[0].position == 7


def test_forks_of_forks(harness: Harness) -> None:
    session = harness.log().sessions.create("f0")
    wanted = list[str]()
    for depth in range(4):
        session.append({"role": "user", "content": f"at {depth}"}, {"role": "user", "content": f"behind {depth}"})
        wanted.append(f"at {depth}")
        session = session.fork(f"f{depth + 1}", at=session.info().head - 1)
        assert contents(session) == contents(session, in_view=True) == seen(session) == wanted
    assert contents(session, order="desc") == wanted[::-1]
    early = session.fork("early", at=2)
    assert contents(early) == ["at 0"]
    early.append({"role": "user", "content": "end"})
    assert contents(early.fork("last")) == seen(early) == ["at 0", "end"]
    assert session.page(after=2, limit=1).messages[0].body["content"] == "at 1"
    newest = session.page(before=session.info().head, limit=2, order="desc")
    assert [message.body["content"] for message in newest.messages] == ["at 3", "at 2"]


def test_s6_a_fork_has_the_summary_of_its_moment(harness: Harness) -> None:
    session = filled(harness.log(), 6)
    session.compress(keep_loops=1)
    first = session.summary()
    before = session.fork("before", at=first.position - 1)
    at = session.fork("at", at=first.position)
    session.append(*turn(7))
    session.append(*turn(8))
    session.compress(keep_loops=1)
    assert before.summary() is None
    assert "Question 1" in texts(before.context(budget=AMPLE))
    assert at.summary() == first
    assert at.context(budget=AMPLE).messages == session.context(at=first.position, budget=AMPLE).messages
    at.append(*turn(9))
    at.append(*turn(10))
    at.compress(keep_loops=1)
    assert at.summary().base == first.position
    assert "Question 9" in texts(at.context(budget=AMPLE))


def test_the_same_call_again_and_calls_that_are_refused(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(*said(1))
    fork = session.fork("fork", at=2, idempotency_key="k")
    session.append(*said(2))
    assert session.fork("fork", at=2, idempotency_key="k").info() == fork.info()
    assert session.fork(idempotency_key="made").id == session.fork(idempotency_key="made").id
    with pytest.raises(SessionExistsError):
        session.fork("fork", at=2)
    with pytest.raises(SessionExistsError):
        log.sessions.create("fork")
    with pytest.raises(SessionExistsError):
        session.fork("s")
    with pytest.raises(InvalidInputError, match="above the head"):
        session.fork("other", at=99)
    for name, value in {"state": {}, "recall": "never", "bootstrap": True}.items():
        with pytest.raises(InvalidInputError, match=f"a fork takes its {name} "):
            session.fork("other", **{name: value})
    with pytest.raises(NotFoundError):
        log.sessions.of("not-there").fork("other")
    with pytest.raises(NotFoundError):
        harness.log(user="bob").sessions.of("s").fork("other")
    assert {item.session_id for item in log.sessions.list()} == {"s", "fork", session.fork(idempotency_key="made").id}
    assert log.sessions.create("fork", if_exists="return").info().forked_from == "s"


def test_an_ended_session_is_gone_on_with_in_a_fork(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(*said(1))
    session.end()
    fork = session.fork("fork")
    fork.append(*said(2))
    assert seen(fork) == ["Question 1", "Answer 1", "Question 2", "Answer 2"]
    assert fork.reset().info().forked_from is None


@pytest.mark.parametrize(
    ("change", "begins_anew"),
    [
        ({}, False),
        ({"title": "x"}, False),
        ({"system": "Other"}, True),
        ({"policy": "full"}, True),
        ({"model": "o3"}, True),
    ],
)
def test_a_fork_begins_an_epoch_where_its_windows_begin_otherwise(
    log: Turnlog, change: dict[str, Any], begins_anew: bool
) -> None:
    session = log.sessions.create("s", system="Be brief.")
    session.append(*said(1))
    fork = session.fork("fork", **change)
    assert fork.context().manifest.epoch.since == (fork.info().head if begins_anew else 0)


def test_nothing_is_copied(harness: Harness) -> None:
    if harness.meter is None:
        pytest.skip("requests are metered on moto")
    session = harness.log().sessions.create("s", state={"a": 1})
    for n in range(8):
        session.append(*said(n))
        session.patch_state({"a": n})

    def requests(call: Any) -> int:
        before = sum(harness.meter.meter.requests.values())
        call()
        return int(sum(harness.meter.meter.requests.values()) - before)

    fork = session.fork("of-a-short-one")
    short = requests(lambda: session.fork("short"))
    for n in range(8):
        session.append(*said(n), HUGE)
    assert requests(lambda: session.fork("long")) == short
    assert requests(fork.state) == 2
    assert requests(lambda: fork.append(*said(1))) == 2
    assert requests(lambda: fork.context(budget=AMPLE)) == 2, "its own log, and its parent's"


def forking(items: ItemTable, blobs: BlobStore) -> Any:
    return application(items, blobs, SequentialIds(2_000)).sessions.of("s").fork("fork", idempotency_key="fork").info()


def creating(items: ItemTable, blobs: BlobStore) -> Any:
    return application(items, blobs, SequentialIds(3_000)).sessions.create("fork", title="created").id


def prepared(log: Turnlog) -> None:
    log.sessions.create("s").append({"role": "user", "content": "1"})


def test_d2_every_order_of_a_fork_and_an_append_to_its_parent() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        fork = application(items, blobs, SequentialIds(10**9)).sessions.get("fork")
        assert contents(fork) in (["1"], ["1", "a"])
        assert contents(fork) == seen(fork)

    assert explore([appending(1_000, "a"), forking], fresh(prepared), check) >= 6


def test_d2_every_order_of_a_fork_and_a_creation_of_the_same_id() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        session = application(items, blobs, SequentialIds(10**9)).sessions.get("fork")
        refused = [result for result in run.results if isinstance(result, TurnlogError)]
        assert [item.error_code for item in refused] == ["session_exists"]
        is_fork = session.info().forked_from is not None
        assert contents(session) == (["1"] if is_fork else [])
        assert session.info().title == (None if is_fork else "created")

    assert explore([creating, forking], fresh(prepared), check, max_preemptions=1) >= 6


@pytest.mark.parametrize("after", [False, True])
def test_d1_a_fork_that_ends_anywhere_is_made_by_the_next_try(after: bool) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        made = forking(items, blobs)
        assert (made.session_id, made.forked_from) == ("fork", "s")
        assert contents(application(items, blobs, SequentialIds(10**9)).sessions.get("fork"))[0] == "1"

    for at in range(1, 8):
        explore([forking, appending(1_000, "b")], fresh(prepared), check, crash=Crash(0, at, after))


def test_e1_a_fork_lives_on_when_its_parent_is_erased(harness: Harness, parent: Session) -> None:
    fork = parent.fork("fork", at=6)
    grandchild = fork.fork("grandchild", at=4)
    fork.append(*said(5))
    parent.append({"role": "user", "content": "of the parent alone"})
    before, older = everything(fork), everything(grandchild)
    parent.erase()
    assert (everything(fork), everything(grandchild)) == (before, older), "fenced, and nothing erased yet"
    for _ in range(2):
        poller(harness).run_once()
        assert (everything(fork), everything(grandchild)) == (before, older)
        harness.clock.advance(16 * 60)
    assert contents(fork)[4] == LARGE["content"]
    fork.erase()
    poller(harness).run_once()
    assert everything(grandchild) == older
    grandchild.append(*said(6))
    assert seen(grandchild)[-1] == "Answer 6"


def test_e1_so_does_a_fork_of_a_session_whose_first_commit_is_one_event(harness: Harness) -> None:
    parent = harness.log().sessions.create("parent")
    parent.append(*said(1))
    fork = parent.fork("fork")
    before = everything(fork)
    parent.erase()
    for _ in range(2):
        poller(harness).run_once()
        harness.clock.advance(16 * 60)
    assert everything(fork) == before
    assert harness.log().verify("fork").damages == []


def test_e1_a_fork_rewound_into_its_parents_part_keeps_large_settings_of_an_erased_parent(harness: Harness) -> None:
    log = harness.log()
    parent = log.sessions.create("parent", metadata={"m": noise(70_000)})
    parent.append(*said(1))
    parent.append(*said(2))
    fork = parent.fork("fork")
    fork.append(*said(3))
    fork.rewind(3)
    metadata = fork.info().metadata
    parent.erase()
    for _ in range(2):
        poller(harness).run_once()
        harness.clock.advance(16 * 60)
    calls = list[int]()
    for _ in range(2):
        before = harness.faults.calls
        assert fork.info().metadata == metadata
        calls.append(harness.faults.calls - before)
    assert [(info.session_id, info.metadata) for info in log.sessions.list()] == [("fork", metadata)]
    assert calls[1] < calls[0], "the cache is written again"
    assert fork.update(title="It goes on").metadata == metadata


def test_d1_an_eraser_that_ends_anywhere_goes_on(harness: Harness, parent: Session) -> None:
    """`Forks.make_independent` by itself: a fault at each of its calls, and then again."""
    owner, forks = Owner.of("acme", "ada"), harness.app.forks
    fork = parent.fork("fork", at=6)
    before = everything(fork)
    for at in range(1, 40):
        harness.faults.fail(at, "after")
        with contextlib.suppress(UnavailableError):
            forks.make_independent(SessionKeys(owner, "parent"))
        if harness.faults.is_pending:
            break
        assert everything(fork) == before, at
    harness.faults.clear()
    assert everything(fork) == before
    assert harness.app.engine.items.get_many([SessionKeys(owner, "fork").commit(1)]).popitem()[1]["bs"] == ""


@pytest.mark.parametrize(("attribute", "value"), [("bs", "other"), ("fa", 2), ("fp", 4)])
def test_d4_a_fork_whose_link_was_changed_is_named_and_reads_nothing_of_another(
    harness: Harness, attribute: str, value: str | int
) -> None:
    """No checksum covers the link: it is compared with the fork's own event before it is followed."""
    log = harness.log()
    for name in ("s", "other"):
        session = log.sessions.create(name)
        session.put_state({"of": name})
        for number in range(4):
            session.append({"role": "user", "content": f"{name} {number}"})
    fork = log.sessions.get("s").fork("forked")
    fork.append({"role": "user", "content": "on"})
    assert fork.state(at=2).state == {"of": "s"}
    items, keys = harness.app.engine.items, SessionKeys(Owner.of("acme", "ada"), "forked")
    item = items.get_many([keys.commit(1)])[keys.commit(1)]
    assert attribute in item and item[attribute] != value
    items.put({**item, attribute: value})
    items.delete_many([keys.state])
    for read in (lambda: list(fork.messages()), lambda: fork.state(at=2), fork.state, lambda: list(fork.history())):
        with pytest.raises(CorruptError) as caught:
            read()
        assert "C#" in str(caught.value)
