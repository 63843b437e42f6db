"""A log with a queue of jobs."""

from __future__ import annotations

from turnlog import Turnlog
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteJobQueue
from turnlog.ports import BlobStore, ItemTable
from turnlog.settings import Settings as AppSettings
from turnlog.testing.fixed import FixedClock, SequentialIds


def with_queue(items: ItemTable, blobs: BlobStore, ids: SequentialIds) -> Turnlog:
    queue = SqliteJobQueue(SqliteDatabase(MEMORY), ids, FixedClock().now_ms, visibility_seconds=360, max_receives=5)
    engine = Engine("explored", items, blobs, queue, lambda: None)
    app = Application(engine, AppSettings(token_counter="estimate"), clock=FixedClock(), ids=ids)
    return Turnlog(InProcessBackend(app, Owner.of("acme", "ada")))
