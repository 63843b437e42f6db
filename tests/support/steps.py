"""Applications over tables of a test, and operations to interrupt: what is there before each, and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
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


STEPS: dict[str, Callable[[Turnlog], Any]] = {
    "create": lambda log: log.sessions.create("s", system="Be brief.", state={"a": 1}, idempotency_key="create").id,
    "create with a made id": lambda log: log.sessions.create(idempotency_key="made").id,
    "append small": lambda log: log.sessions.of("base").append(
        {"role": "user", "content": "hi"}, idempotency_key="small"
    ),
    "append with payloads": lambda log: log.sessions.of("base").append(CALLS, LARGE, HUGE, idempotency_key="large"),
    "append with run": lambda log: log.sessions.of("base").append(
        {"role": "user", "content": "hi"}, run={"iteration": 1}, idempotency_key="run"
    ),
    "patch agent": lambda log: log.sessions.of("base").patch_agent({"iteration": 2}, idempotency_key="patch"),
    "lease": lambda log: log.sessions.of("base").acquire("run", idempotency_key="lease"),
    "put state": lambda log: log.sessions.of("base").put_state({"n": 1}, idempotency_key="put"),
    "put a large state": lambda log: log.sessions.of("base").put_state(
        {"n": 1, "x": HUGE["content"]}, idempotency_key="put"
    ),
    "patch state": lambda log: log.sessions.of("base").patch_state(
        [{"op": "add", "path": "/n", "value": 1}], if_version=0, idempotency_key="patch"
    ),
    "refuse": lambda log: log.sessions.of("base").decide_pending("reject", reason="no", idempotency_key="refuse"),
    "approve": lambda log: log.sessions.of("base").decide_pending("approve", idempotency_key="approve"),
    "append what waited": lambda log: log.sessions.of("base").append(RESULT, idempotency_key="result"),
    "put documents": lambda log: [
        document.revision
        for document in log.backend.call(
            "put_documents",
            path={"session_id": "base"},
            body={"put": [{"key": "a", "data": "QQ==", "if_absent": True}], "then": [{"key": "b", "data": "QQ=="}]},
            idempotency_key="documents",
        ).documents
    ],
    "record": lambda log: log.sessions.of("base").record("handed_over", idempotency_key="record"),
    "update": lambda log: log.sessions.of("base").update(title="New", system="x" * 3_000, idempotency_key="update"),
    "update with payloads": lambda log: log.sessions.of("base").update(
        title="New", system=HUGE["content"], idempotency_key="update"
    ),
    "end": lambda log: log.sessions.of("base").end(idempotency_key="end"),
    "end without a key": lambda log: log.sessions.of("base").end(),
    "reset": lambda log: log.sessions.of("base").reset(idempotency_key="reset").info(),
    "rewind": lambda log: log.sessions.of("base").rewind(1, idempotency_key="rewind"),
    "fork": lambda log: log.sessions.of("base").fork("fork", at=2, title="Fork", idempotency_key="fork").info(),
    "fork with a made id": lambda log: log.sessions.of("base").fork(system="x" * 3_000, idempotency_key="fork").info(),
    "compress": lambda log: log.sessions.of("base").compress(idempotency_key="compress"),
    "compress as a job": lambda log: log.sessions.of("base").compress(mode="async", idempotency_key="job"),
    "snapshot": lambda log: log.sessions.of("base").create_snapshot("a name", idempotency_key="snapshot"),
    "snapshot of an unused name": lambda log: log.sessions.of("base").create_snapshot(
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


def check(log: Turnlog, step: str) -> None:
    listed = {session.session_id for session in log.sessions.list()}
    assert len(listed) == (2 if step.startswith(("create", "reset", "fork")) else 1)
    bodies = [message.body for message in log.sessions.of("base").messages()]
    added = {
        "append small": [{"role": "user", "content": "hi"}],
        "append with payloads": [CALLS, LARGE, HUGE],
        "append with run": [{"role": "user", "content": "hi"}],
        "refuse": [REFUSAL],
        "append what waited": [RESULT],
    }.get(step, [])
    before = LONG if step.startswith("compress") else [CALLS] if step in WAITING else []
    assert bodies == [{"role": "user", "content": "before"}, *before, *added]
    base = log.sessions.of("base")
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
        assert [value.title for value in (base.info(), *log.sessions.list())] == ["New", "New"]
        assert base.context(budget=10**6).messages[0]["role"] == "system"
    if step.startswith("end"):
        assert base.info().head == 3
        assert [value.status for value in (base.info(), *log.sessions.list())] == ["ended", "ended"]
    if step == "reset":
        assert base.info().head == 3
        assert {(item.status, item.reset_of) for item in log.sessions.list()} == {("ended", None), ("active", "base")}
    if step == "rewind":
        assert (base.info().head, base.info().messages, list(base.messages(in_view=True))) == (3, 0, [])
    if step.startswith("fork"):
        (fork,) = (log.sessions.of(item) for item in listed if item != "base")
        assert [(message.position, message.body["content"]) for message in fork.messages()] == [(2, "before")]
        assert (fork.info().head, fork.info().forked_from, base.info().head) == (3, "base", 2)
    if step == "record":
        assert [entry.action for entry in base.history()] == ["handed_over", "message_added", "create"]
    if step == "append with run":
        assert log.sessions.of("base").agent().state["iteration"] == 1
    if step == "patch agent":
        assert log.sessions.of("base").agent().state["iteration"] == 2


def application(items: ItemTable, blobs: BlobStore, ids: SequentialIds) -> Turnlog:
    engine = Engine("explored", items, blobs, None, lambda: None)
    app = Application(engine, Settings(token_counter="estimate"), clock=FixedClock(), ids=ids)
    return Turnlog(InProcessBackend(app, Owner.of("acme", "ada")))


def fresh(prepare: Callable[[Turnlog], Any]) -> Callable[[], tuple[ItemTable, BlobStore]]:
    """Return a maker of engines that all begin with what ``prepare`` has written, once."""
    prepared = SqliteDatabase(MEMORY), MemoryBlobStore()
    calls = iter([lambda: prepare(application(SqliteItemTable(prepared[0]), prepared[1], SequentialIds()))])

    def make() -> tuple[ItemTable, BlobStore]:
        for call in calls:
            call()
        database, blobs = SqliteDatabase(MEMORY), MemoryBlobStore()
        prepared[0].connection().backup(database.connection())
        for name in prepared[1].names(""):
            blobs.put(name, prepared[1].get(name) or b"")
        return SqliteItemTable(database), blobs

    return make


def appending(
    start: int, *contents: str, key: str | None = None, if_head: int | None = None
) -> Callable[[ItemTable, BlobStore], Any]:
    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        session = application(items, blobs, SequentialIds(start)).sessions.of("s")
        return session.append(
            *({"role": "user", "content": text} for text in contents), idempotency_key=key, if_head=if_head
        )

    return operation


def contents(items: ItemTable, blobs: BlobStore) -> list[tuple[int, str]]:
    session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
    return [(message.position, message.body["content"]) for message in session.messages()]
