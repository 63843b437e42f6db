"""One meter for all systems: every attempt of a request by clients made within `Meter.clients`.

Capacity is that of `turnlog.testing.dynamodb_rules`, the formulas of the developer guide; moto's own figures are not used. What
a request replaces, or reads behind a projection, is looked up beside the meter by a client of its own. Items over the real
limit of 409,600 bytes are refused as DynamoDB refuses them. A request that can't be priced is an error, never a zero.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import botocore.session
from botocore.awsrequest import AWSResponse

from benchmarks.peers.dynamodb import Shadow, TooLarge
from benchmarks.peers.prices import DOLLARS, GET, PUT, READ_UNIT, WRITE_UNIT
from turnlog.testing.aws import Guard

_S3_CLASS = {
    "PutObject": PUT,
    "ListObjectsV2": PUT,
    "ListObjects": PUT,
    "GetObject": GET,
    "HeadObject": GET,
    "DeleteObject": None,
    "DeleteObjects": None,
}
_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "PutObject"})
_REFUSED = "Item size has exceeded the maximum allowed size"
_ONE_AT_A_TIME = threading.RLock()  # moto checks a condition and writes in two steps


class MeterError(AssertionError):
    """A request that the meter can't price, or a disagreement with Turnlog's own meter."""


@dataclass
class Spent:
    """What was spent. Index writes are write units; bytes are those of bodies, both ways, without headers."""

    requests: Counter[str] = field(default_factory=Counter)
    read_units: float = 0.0
    write_units: int = 0
    bytes_moved: int = 0

    @property
    def dynamodb(self) -> int:
        return sum(count for name, count in self.requests.items() if name not in _S3_CLASS)

    def s3(self, kind: str) -> int:
        """Return the number of requests of a class of price."""
        return sum(count for name, count in self.requests.items() if _S3_CLASS.get(name) == kind)

    @property
    def dollars(self) -> float:
        units = {WRITE_UNIT: self.write_units, READ_UNIT: self.read_units, PUT: self.s3(PUT), GET: self.s3(GET)}
        return sum(DOLLARS[name] * count for name, count in units.items())


class _NoBody:
    """Of an answer whose content is known already."""

    def stream(self) -> Iterator[bytes]:
        return iter(())


class Meter:
    """The requests of one process: one writer's clients. Safe for many threads.

    ``before_write`` is called once, before the next request that writes: the place of another writer in between.
    ``guarded``: Turnlog's own guard stands inside, and must count the same.
    """

    def __init__(self, shadow: Shadow, *, guarded: bool = False) -> None:
        self._shadow = shadow
        self.before_write: Callable[[], None] | None = None
        self.refused = 0
        self._spent: Spent | None = None
        self._guarded = guarded
        self._guards = list[Guard]()
        self._lock, self._gate = threading.Lock(), threading.Lock()
        self._own = threading.local()

    @contextmanager
    def clients(self) -> Iterator[None]:
        """Let every client that is made within the block be this meter's."""
        create = botocore.session.Session.create_client

        def created(session: Any, *args: Any, **kwargs: Any) -> Any:
            client = create(session, *args, **kwargs)
            self._attach(client)
            return client

        with mock.patch.object(botocore.session.Session, "create_client", created):
            yield

    @contextmanager
    def measure(self) -> Iterator[Spent]:
        """Yield what is spent within the block. One at a time."""
        spent = self._spent = Spent()
        before = self._guard_totals()
        try:
            yield spent
        finally:
            self._spent = None
        if not spent.requests:
            raise MeterError("nothing was metered: the clients are made elsewhere")
        if self._guards:
            reads, writes = (now - then for now, then in zip(self._guard_totals(), before, strict=True))
            if (reads, writes) != (spent.read_units, spent.write_units):
                raise MeterError(f"{spent} here, {reads} read and {writes} write units by the guard")

    def _guard_totals(self) -> tuple[float, float]:
        meters = [guard.meter for guard in self._guards]
        return sum(meter.read_units for meter in meters), sum(
            meter.write_units + meter.index_write_units for meter in meters
        )

    def _attach(self, client: Any) -> None:
        is_dynamodb = client.meta.service_model.service_name == "dynamodb"
        if is_dynamodb and self._guarded:
            self._guards.append(Guard.attach(client))
        endpoint = client._endpoint
        attempt = endpoint._do_get_response
        price = self._dynamodb if is_dynamodb else self._s3

        def metered(request: Any, operation_model: Any, context: Any) -> Any:
            if getattr(self._own, "busy", False):  # the guard looks something up
                return attempt(request, operation_model, context)
            operation = operation_model.name
            if operation in _WRITES:
                self._let_another_in()
            self._own.busy = True
            try:
                with _ONE_AT_A_TIME:
                    return price(operation, request, lambda: attempt(request, operation_model, context))
            finally:
                self._own.busy = False

        endpoint._do_get_response = metered

    def _let_another_in(self) -> None:
        with self._gate:  # this writer's other threads do not write meanwhile
            step, self.before_write = self.before_write, None
            if step is not None:
                step()

    def _dynamodb(self, operation: str, request: Any, send: Callable[[], Any]) -> Any:
        try:
            answer, (reads, writes) = self._shadow.priced(operation, request.body, send)
        except TooLarge:
            self.refused += 1
            self._count(operation, 0, 0, len(request.body))
            parsed = {"Error": {"Code": "ValidationException", "Message": _REFUSED}, "ResponseMetadata": {}}
            return (AWSResponse(request.url, 400, {}, _NoBody()), parsed), None
        http = answer[0][0] if answer[0] is not None else None
        self._count(operation, reads, writes, len(request.body) + (len(http.content) if http is not None else 0))
        return answer

    def _s3(self, operation: str, request: Any, send: Callable[[], Any]) -> Any:
        if operation not in _S3_CLASS:
            raise MeterError(f"{operation} of S3 has no price here")
        headers = request.headers
        size = int(headers.get("X-Amz-Decoded-Content-Length") or headers.get("Content-Length") or 0)
        answer = send()
        if answer[0] is not None:
            http, parsed = answer[0]
            is_object = operation == "GetObject" and http.status_code < 300
            size += int(parsed["ContentLength"]) if is_object else len(http.content)
        self._count(operation, 0, 0, size)
        return answer

    def _count(self, operation: str, reads: float, writes: int, size: int) -> None:
        with self._lock:
            if self._spent is not None:
                self._spent.requests[operation] += 1
                self._spent.read_units += reads
                self._spent.write_units += writes
                self._spent.bytes_moved += size
