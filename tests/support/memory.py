"""A log in memory, and golden items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.ports import Item
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

GOLDEN = Path(__file__).parent.parent / "log" / "golden"


def memory() -> tuple[Turnlog, SqliteItemTable, MemoryBlobStore]:
    items, blobs = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore()
    engine = Engine("memory", items, blobs, None, lambda: None)
    app = Application(engine, Settings(token_counter="estimate"), clock=FixedClock(), ids=SequentialIds())
    return Turnlog(InProcessBackend(app, Owner.of("acme", "ada"))), items, blobs


def golden_item(stored: dict[str, Any]) -> Item:
    return {name: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for name, value in stored.items()}
