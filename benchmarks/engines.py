"""The engines that the benchmarks run on: embedded in memory with its ports timed, and a metered DynamoDB.

DynamoDB is dynoxide where `make emulators` has put it, else moto, whose queries slow down with a session's length.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from unittest import mock

from tools.emulators import DYNOXIDE, running
from turnlog.app import Application
from turnlog.engines import Engine
from turnlog.engines.aws_clients import Clients
from turnlog.engines.dynamodb import DynamoItemTable
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.ports import BlobStore, ItemTable
from turnlog.settings import Settings
from turnlog.testing.aws import Guard, create_table, real_item_limit
from turnlog.testing.fixed import FixedClock, SequentialIds

T = TypeVar("T")
REGION, TABLE = "eu-central-1", "turnlog"
MOTO_MOST_MESSAGES = 1_000


@dataclass
class PortTimes:
    """Calls of the ports, and the CPU seconds of the threads that were inside them."""

    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def around(self, name: str, call: Callable[[], T]) -> T:
        start = time.thread_time()
        try:
            return call()
        finally:
            with self._lock:
                self.seconds += time.thread_time() - start
                self.calls[name] += 1


class Timed:
    """Any port: its calls go through `PortTimes`."""

    def __init__(self, inner: object, times: PortTimes, prefix: str = "") -> None:
        self._inner = inner
        self._times = times
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, full_name = getattr(self._inner, name), self._prefix + name

        def timed(*arguments: Any, **named: Any) -> Any:
            return self._times.around(full_name, lambda: method(*arguments, **named))

        return timed


@dataclass
class Embedded:
    """SQLite in memory. ``times`` is what its ports took."""

    app: Application
    clock: FixedClock
    times: PortTimes

    @classmethod
    def make(cls) -> Embedded:
        times, clock = PortTimes(), FixedClock()
        database = SqliteDatabase(MEMORY)
        engine = Engine(
            "memory",
            cast("ItemTable", Timed(SqliteItemTable(database), times)),
            cast("BlobStore", Timed(MemoryBlobStore(), times, "blob_")),
            None,
            database.close,
        )
        return cls(Application(engine, Settings(), clock=clock, ids=SequentialIds()), clock, times)


@dataclass
class Wire:
    """Body bytes of requests and answers, one attempt each."""

    sent: int = 0
    received: int = 0

    def watch(self, client: Any) -> None:
        service = client.meta.service_model.service_name
        client.meta.events.register(f"before-call.{service}", self._before)
        client.meta.events.register(f"after-call.{service}", self._after)

    def _before(self, params: Mapping[str, Any], **_: Any) -> None:
        body = params.get("body") or b""
        self.sent += body.getbuffer().nbytes if isinstance(body, io.BytesIO) else len(body)

    def _after(self, http_response: Any, **_: Any) -> None:
        self.received += int(http_response.headers.get("content-length") or len(http_response.content))


@dataclass
class Dynamo:
    """One table under two applications: ``metered`` by the guard, ``plain`` with its bytes counted. Blobs in memory."""

    name: str
    metered: Application
    plain: Application
    clock: FixedClock
    guard: Guard
    wire: Wire
    blobs: PortTimes
    most_messages: int | None

    @property
    def note(self) -> str:
        if self.most_messages is None:
            return f"requests, capacity and bytes on {self.name}"
        return f"requests, capacity and bytes on {self.name}, up to {self.most_messages:,} messages: {DYNOXIDE.why_not}"


@contextlib.contextmanager
def dynamo(*, only_moto: bool = False) -> Iterator[Dynamo]:
    """Yield a metered DynamoDB with an empty table."""
    with contextlib.ExitStack() as stack:
        credentials = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
        stack.enter_context(mock.patch.dict(os.environ, credentials))
        url: str | None = None
        if not only_moto and (DYNOXIDE.is_installed or DYNOXIDE.variable in os.environ):
            url = stack.enter_context(running(DYNOXIDE))
        else:
            from moto import mock_aws

            stack.enter_context(mock_aws())
            stack.enter_context(real_item_limit())
        metered, plain = (Clients(REGION, url, max_attempts=1) for _ in range(2))
        create_table(metered.dynamodb, TABLE)
        clock, ids, blobs, wire, store = FixedClock(), SequentialIds(), PortTimes(), Wire(), MemoryBlobStore()
        guard = Guard.attach(metered.dynamodb, one_at_a_time=url is None)
        wire.watch(plain.dynamodb)

        def application(clients: Clients) -> Application:
            table = DynamoItemTable(clients.dynamodb, TABLE, sleep=clock.sleep)
            engine = Engine("dynamodb", table, cast("BlobStore", Timed(store, blobs, "blob_")), None, lambda: None)
            return Application(engine, Settings(), clock=clock, ids=ids)

        yield Dynamo(
            f"dynoxide {DYNOXIDE.version}" if url else "moto",
            application(metered),
            application(plain),
            clock,
            guard,
            wire,
            blobs,
            None if url else MOTO_MOST_MESSAGES,
        )
        for clients in (metered, plain):
            clients.dynamodb.close()
