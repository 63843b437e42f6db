"""Property A3 and A4: a key is remembered by time, whatever else is written, for every call that takes one."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import is_full
from tests.log.everything import items_of
from tests.support.chat_messages import assistant, user
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import (
    CorruptError,
    HeadMismatchError,
    IdempotencyMismatchError,
    SessionEndedError,
    VersionMismatchError,
)
from turnlog.core.events import NoteEvent
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.commit import VERIFIED, stored_lines
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import chain_hash, following, hashed_header, short_hash
from turnlog.log.keys import REQUESTS, SessionKeys
from turnlog.log.packing import pack
from turnlog.log.request_keys import RequestKey, request_key
from turnlog.ports import Key
from turnlog.sessions.message_models import AppendMessages
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

HOUR = 3600
CALL = assistant(None, ("c1", "f"))
TALK = [{"role": ("user", "assistant")[at % 2], "content": f"{at} " + "something to say " * 40} for at in range(10)]
CALLS: dict[str, Callable[[Session], Any]] = {
    "append": lambda s: s.append(user("PAY 100"), idempotency_key="k"),
    "append on a head": lambda s: s.append(user("PAY 100"), if_head=12, idempotency_key="k"),
    "append with run": lambda s: s.append(user("PAY 100"), run={"iteration": 1}, idempotency_key="k"),
    "put state": lambda s: s.put_state({"paid": 100}, idempotency_key="k"),
    "patch state": lambda s: s.patch_state([{"op": "add", "path": "/paid/-", "value": 100}], idempotency_key="k"),
    "patch agent": lambda s: s.patch_agent({"iteration": 2}, idempotency_key="k"),
    "approve": lambda s: s.decide_pending("approve", idempotency_key="k"),
    "refuse": lambda s: s.decide_pending("reject", reason="no", idempotency_key="k"),
    "record": lambda s: s.record("paid", idempotency_key="k"),
    "update": lambda s: s.update(title="Paid", idempotency_key="k").title,
    "rewind": lambda s: s.rewind(5, idempotency_key="k"),
    "end": lambda s: s.end(idempotency_key="k"),
    "reset": lambda s: s.reset(idempotency_key="k").id,
    "compress": lambda s: s.compress(keep_loops=1, idempotency_key="k").summary,
    "compress as a job": lambda s: s.compress(mode="async", idempotency_key="k").job_id,
    "discard": lambda s: s.discard_summary(idempotency_key="k").job_id,
    "snapshot": lambda s: s.create_snapshot("paid", idempotency_key="k").snapshot_id,
    "fork": lambda s: s.fork("other", idempotency_key="k").id,
    "redact": lambda s: s.redact(2, idempotency_key="k").job_id,
}


def begun(log: Turnlog, call: str = "") -> Session:
    """A session of 12 positions, with what a call needs."""
    session = log.sessions.create("s", state={"paid": []})
    session.append(*TALK)
    waits = call in ("approve", "refuse")
    session.append(*([CALL] if waits else [user("and")]), run={"pending_action": {"call_id": "c1"}} if waits else None)
    if call == "discard":
        session.compress(keep_loops=1)
    return session


def key_records(harness: Harness) -> list[dict[str, Any]]:
    return [item for item in items_of(harness) if str(item["sk"]).startswith(REQUESTS)]


@pytest.mark.parametrize("call", CALLS)
def test_a3_a_repeated_call_has_one_effect_after_any_number_of_other_requests_with_keys(
    harness: Harness, call: str
) -> None:
    session = begun(harness.log(), call)
    answer = CALLS[call](session)
    for at in range(26):
        session.record("noted", idempotency_key=f"other {at}")
    before = (session.info().head, len(list(harness.log().sessions.list())), len(list(harness.log().jobs())))
    assert CALLS[call](session) == answer
    assert CALLS[call](session) == answer
    after = (session.info().head, len(list(harness.log().sessions.list())), len(list(harness.log().jobs())))
    assert after == before


def test_a3_a_repeated_append_is_one_commit_with_many_commits_between() -> None:
    """Ten thousand of them in `make full`; in memory, where so many commits are quick."""
    between = 10_000 if is_full() else 1_000
    engine = Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None)
    clock = FixedClock()
    app = Application(engine, Settings(token_counter="estimate"), clock=clock, ids=SequentialIds())
    session = Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))).sessions.create("s")
    first = session.append(user("PAY 100"), idempotency_key="pay-1")
    keys = SessionKeys(Owner.of("acme", "ada"), "s")

    def noted(tail: Tail) -> Draft:
        header = following(tail.header, kind="h", events=1, now_ms=clock.now_ms())
        return Draft(header, (NoteEvent(header.first, "noted", None, None),))

    for at in range(between):
        other = None if at % 2 else RequestKey(at.to_bytes(16, "big"), bytes(16))
        app.log.commits.write(keys, noted, other)
    assert session.append(user("PAY 100"), idempotency_key="pay-1") == first
    assert session.info().head == between + 2


@pytest.mark.parametrize("skew_seconds", [-HOUR, 0, HOUR])
def test_a3_a_key_is_remembered_for_24_hours_also_when_clocks_differ(harness: Harness, skew_seconds: int) -> None:
    """DynamoDB deletes the record by its own clock, at the ttl at the earliest."""
    session = begun(harness.log())
    started = harness.clock.now_ms() // 1000
    harness.clock.advance(skew_seconds)
    first = session.append(user("PAY 100"), idempotency_key="k")
    (record,) = key_records(harness)
    assert set(record) == {"pk", "sk", "pos", "ttl", "cs"}
    assert record["pos"] == 12
    assert started + 24 * HOUR <= record["ttl"] <= started + 26 * HOUR
    harness.clock.advance(24 * HOUR)
    assert session.append(user("PAY 100"), idempotency_key="k") == first


def test_a3_a_key_whose_record_has_expired_counts_as_new(harness: Harness) -> None:
    session = begun(harness.log())
    session.append(user("hi"), idempotency_key="k")
    (record,) = key_records(harness)
    harness.app.engine.items.delete_many([Key(record["pk"], record["sk"])])
    assert session.append(user("another day"), idempotency_key="k").first == 14


def test_a3_a_refused_request_does_not_bind_its_key(harness: Harness) -> None:
    session = begun(harness.log())
    with pytest.raises(HeadMismatchError):
        session.append(user("hi"), if_head=1, idempotency_key="k")
    with pytest.raises(VersionMismatchError):
        session.put_state({"n": 1}, if_version=99, idempotency_key="state")
    corrected = session.append(user("corrected"), if_head=12, idempotency_key="k")
    assert session.put_state({"n": 2}, if_version=1, idempotency_key="state").state == {"n": 2}
    assert session.append(user("corrected"), idempotency_key="k") == corrected
    with pytest.raises(IdempotencyMismatchError):
        session.append(user("hi"), if_head=1, idempotency_key="k")


def test_a3_a_retry_is_answered_where_a_new_request_would_be_refused(harness: Harness) -> None:
    session = begun(harness.log())
    first = session.append(user("PAY 100"), if_head=12, idempotency_key="k")
    session.end()
    assert session.append(user("PAY 100"), if_head=12, idempotency_key="k") == first
    with pytest.raises(SessionEndedError):
        session.append(user("PAY 100"), if_head=12, idempotency_key="another")


def test_a4_a_key_that_was_used_with_another_payload_is_refused_after_any_number_of_commits(harness: Harness) -> None:
    session = begun(harness.log())
    session.append(user("hi"), idempotency_key="k")
    for at in range(26):
        session.append(user(str(at)), idempotency_key=f"other {at}")
    for call in (
        lambda: session.append(user("ho"), idempotency_key="k"),
        lambda: session.put_state({}, idempotency_key="k"),
        lambda: session.rewind(2, idempotency_key="k"),
        lambda: session.end(idempotency_key="k"),
    ):
        with pytest.raises(IdempotencyMismatchError):
            call()
    assert session.info().head == 39


def test_a3_a_retry_of_a_rewound_message_finds_it_and_a_forks_key_is_its_own(harness: Harness) -> None:
    session = begun(harness.log())
    first = session.append(user("PAY 100"), idempotency_key="k")
    fork = session.fork("fork")
    session.rewind(5)
    repeated = session.append(user("PAY 100"), idempotency_key="k")
    assert repeated.warnings.pop().code == "not_in_view"
    assert repeated == first
    assert fork.append(user("PAY 100"), idempotency_key="k").first == 15


def test_a3_a_discard_that_comes_again_leaves_the_summary_that_was_made_since(harness: Harness) -> None:
    session = begun(harness.log())
    job = session.discard_summary(idempotency_key="k")
    session.compress(keep_loops=1)
    assert session.discard_summary(idempotency_key="k").job_id == job.job_id
    assert session.summary() is not None


def test_a_missing_commit_is_an_error_of_a_retry_not_a_second_effect(harness: Harness) -> None:
    session = begun(harness.log())
    session.append(user("PAY 100"), idempotency_key="k")
    for at in range(3):
        session.append(user(str(at)))
    for position in (13, 15):
        key = SessionKeys(Owner.of("acme", "ada"), "s").commit(position)
        kept = harness.app.engine.items.get_many([key])[key]
        harness.app.engine.items.delete_many([key])
        with pytest.raises(CorruptError):
            session.append(user("PAY 100"), idempotency_key="k")
        harness.app.engine.items.put(kept)
    assert session.info().head == 16


def test_a_record_that_is_behind_the_end_of_the_log_tells_nothing(harness: Harness) -> None:
    """As of another session that has had this id."""
    session = begun(harness.log())
    first = session.append(user("PAY 100"), idempotency_key="k")
    (record,) = key_records(harness)
    harness.app.items.put({**record, "pos": 99})
    assert session.append(user("PAY 100"), idempotency_key="k") == first
    harness.app.items.put({**record, "pos": "99"})
    with pytest.raises(CorruptError):
        session.append(user("PAY 100"), idempotency_key="k")


def test_a_request_to_a_session_that_is_not_there_leaves_nothing(harness: Harness) -> None:
    with pytest.raises(Exception, match="no session"):
        harness.log().sessions.get("nowhere").append(user("hi"), idempotency_key="k")
    assert items_of(harness) == []


# ------------------------------------------------------------ logs of before


def test_a_log_whose_headers_have_keys_is_read_and_carried_on_without_them(harness: Harness) -> None:
    """A Turnlog of before wrote the last 24 keys into headers, and no record."""
    session = begun(harness.log())
    answer = session.append(user("PAY 100"), idempotency_key="pay")
    items, keys = harness.app.engine.items, SessionKeys(Owner.of("acme", "ada"), "s")
    (item,) = (item for item in items_of(harness) if item["sk"] == f"C#{answer.first:012d}")
    ring = short_hash("pay")[:6] + answer.first.to_bytes(4, "big")
    before = harness.app.log.commits.get(keys, answer.first - 1)
    assert before is not None
    old = {name: value for name, value in {**item, "w": ring}.items() if name not in ("h", "b")}
    digests = [sha256(line).digest() for line in stored_lines(item)]
    covered = hashed_header(str(item["sk"]), old)
    chained = chain_hash(before.header.hash, covered, digests)
    items.write_many([{**old, "h": chained, "b": pack(b"\n".join(stored_lines(item)), beside=covered)}])
    VERIFIED.clear()
    assert [message.body["content"] for message in session.messages()][-1] == "PAY 100"
    session.append(user("later"))
    assert [message.body["content"] for message in session.messages()][-2:] == ["PAY 100", "later"]
    assert "w" not in items_of(harness)[-1] and harness.log().verify("s").damages == []


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [
        ({}, True),
        ({"if_head": 7, "lenient": True, "lease": {"token": 3}}, True),
        ({"loop": "new"}, False),
        ({"parent": {"ref": "2.0", "agent_id": "child"}}, False),
        ({"format": "anthropic"}, False),
    ],
)
def test_a4_the_payload_of_a_request_is_what_it_was_when_these_fields_did_not_exist(
    fields: dict[str, Any], is_same: bool
) -> None:
    """A retry may come after an update. The digest is that of `messages`, `meta`, `format`, `run`, `window`, `usage`, `run_id`."""
    request = request_key("k", "append s", AppendMessages.model_validate({"messages": [user("hi")], **fields}))
    assert request is not None
    assert (request.payload_hash.hex() == "b33ee1edd77a965fce3794f8c39ea854") is is_same
