"""A handler over an engine in memory."""

from __future__ import annotations

import json
from typing import Any

from tests.faulty_engines import Faults, FaultyBlobStore, FaultyItemTable
from tests.http.events import event
from turnlog.app import Application
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.http.lambda_api import make_handler
from turnlog.routing import ROUTES
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds


class Service:
    """A handler over an engine in memory."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.faults = Faults()
        engine = Engine(
            "memory",
            FaultyItemTable(SqliteItemTable(SqliteDatabase(MEMORY)), self.faults),
            FaultyBlobStore(MemoryBlobStore(), self.faults),
            None,
            lambda: None,
        )
        settings = settings or Settings(token_counter="estimate")
        self.app = Application(engine, settings, clock=FixedClock(), ids=SequentialIds())
        self.handler = make_handler(ROUTES, self.app)

    def __call__(self, method: str, path: str, **options: Any) -> tuple[int, Any, dict[str, str]]:
        answer = self.handler(event(method, path, **options), None)
        body = json.loads(answer["body"]) if answer.get("body") else None
        return answer["statusCode"], body, answer.get("headers") or {}
