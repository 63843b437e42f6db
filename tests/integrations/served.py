"""Where agents in processes of their own find Turnlog: a file, or the service on moto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def url_of(engine: str, folder: Path) -> Iterator[str]:
    if engine == "sqlite":
        yield f"sqlite:///{folder}/agent.db"
        return
    from turnlog.engines import SystemClock
    from turnlog.server.local_server import HttpServer
    from turnlog.server.moto_engine import moto_service

    with moto_service(SystemClock()) as service:
        server = HttpServer(service.answer, port=0).start()
        yield server.url
        server.stop()
