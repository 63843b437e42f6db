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
    from turnlog.server.moto_engine import StackServer, moto_service

    clock = SystemClock()
    with moto_service(clock) as service:
        server = StackServer(service, clock, port=0).start()
        yield server.url
        server.stop()
