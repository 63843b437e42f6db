"""Erasing explored in every order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import is_full
from tests.log.everything import local_blobs, places_of, sqlite_items
from tests.support.erasing import CANARY, KEYS, TOMBSTONE
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import NotFoundError, SessionExistsError
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteJobQueue
from turnlog.ports import JOB_KINDS, BlobStore, ItemTable
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

PREEMPTIONS = 2 if is_full() else 1


Operation = Callable[[ItemTable, BlobStore], Any]


def with_queue(items: ItemTable, blobs: BlobStore, start: int) -> tuple[Application, FixedClock]:
    """An application whose queue is its own: what is sent to it is no request of the engine."""
    clock = FixedClock()
    queue = SqliteJobQueue(SqliteDatabase(MEMORY), SequentialIds(10**6), clock.now_ms)
    engine = Engine("explored", items, blobs, queue, lambda: None)
    return Application(engine, Settings(token_counter="estimate"), clock=clock, ids=SequentialIds(start)), clock


def session_of(items: ItemTable, blobs: BlobStore, start: int) -> Session:
    app, _ = with_queue(items, blobs, start)
    return Session(InProcessBackend(app, Owner.of("acme", "ada")), "s")


def erasing(start: int = 5000, *, passes: int = 0) -> Operation:
    """The request, and so many passes of its job."""

    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        app, clock = with_queue(items, blobs, start)
        job = Session(InProcessBackend(app, Owner.of("acme", "ada")), "s").erase(idempotency_key="erase")
        for _ in range(passes):
            for delivery in app.engine.queue.receive() if app.engine.queue else ():
                app.run_job(delivery.body, kinds=JOB_KINDS)
            clock.advance(SECOND_PASS_SECONDS)
        return job

    return operation


def is_gone(items: ItemTable, blobs: BlobStore) -> None:
    session = session_of(items, blobs, 10**8)
    log = Turnlog(session.backend)
    for read in (
        session.info,
        lambda: list(session.messages()),
        session.context,
        session.state,
        lambda: session.recall("2.0"),
    ):
        with pytest.raises(NotFoundError):
            read()
    assert "s" not in [item.session_id for item in log.sessions.list()]
    with pytest.raises(SessionExistsError):
        log.sessions.create("s", idempotency_key="again")


def holds_nothing(items: ItemTable, blobs: BlobStore) -> None:
    result = [item for item in sqlite_items(items) if item["sk"] == KEYS.directory.sk or item["pk"] == KEYS.partition]
    assert places_of(CANARY, result, local_blobs(blobs)) == []
    assert {name for item in result if item["pk"] == KEYS.partition for name in item} <= TOMBSTONE


def at_s(what: Callable[[Session], Any]) -> Operation:
    return lambda items, blobs: what(session_of(items, blobs, 1000))
