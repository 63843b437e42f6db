"""Wrappers of engines, and a guard of AWS clients, that inject faults.

A chosen call fails before its effect, or its answer is lost after it.

    guard = FaultyGuard.attach(client)
    guard.fail(at=2, when="after")                  # the second request from here takes effect, its answer is lost

Create the clients of a fault test with ``max_attempts=1``: otherwise the SDK repeats the request and hides the fault.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from turnlog.core.errors import ThrottledError, UnavailableError
from turnlog.ports import (
    BlobStore,
    Condition,
    Delivery,
    Item,
    ItemTable,
    JobQueue,
    Key,
    Lost,
    Page,
    Query,
    Redrivable,
)
from turnlog.testing.aws import DemandConsistent, Guard

When: TypeAlias = Literal["before", "after"]
T = TypeVar("T")


@dataclass
class _Fault:
    at: int
    when: When


class Faults:
    """Counts the calls of all wrapped engines and injects faults into them.

    ``fail(n, "after")``: the nth call from now takes effect and its answer is lost.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.by_name: Counter[str] = Counter()
        self._fault: _Fault | None = None
        self._often: tuple[float, When, random.Random] | None = None
        self.often_met = 0
        self._lock = threading.Lock()

    def fail(self, at: int, when: When) -> None:
        self._fault = _Fault(self.calls + at, when)

    def fail_often(self, share: float, when: When, *, seed: int) -> None:
        """Fail this share of all further calls: throttled before their effect, or with their answers lost."""
        self._often = (share, when, random.Random(seed)) if share else None

    @property
    def is_pending(self) -> bool:
        """Whether the fault set by `fail` has not occurred yet."""
        return self._fault is not None

    def clear(self) -> None:
        self._fault = self._often = None

    def around(self, name: str, effect: Callable[[], T]) -> T:
        with self._lock:
            self.calls += 1
            self.by_name[name] += 1
            hit = self._fault if self._fault is not None and self._fault.at == self.calls else None
            if hit is not None:
                self._fault = None
            often = self._often[1] if self._often is not None and self._often[2].random() < self._often[0] else None
            self.often_met += often is not None
        if hit is not None and hit.when == "before":
            raise UnavailableError(f"injected before {name}")
        if often == "before":
            raise ThrottledError(f"injected before {name}")
        result = effect()
        if often is not None:
            raise UnavailableError(f"injected after {name}")
        if hit is not None:
            raise UnavailableError(f"injected after {name}")
        return result


class FaultyItemTable:
    """`ItemTable` whose calls go through `Faults`."""

    def __init__(self, inner: ItemTable, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        return self._faults.around("get_many", lambda: self._inner.get_many(keys, consistent=consistent))

    def query(self, query: Query) -> Page:
        return self._faults.around("query", lambda: self._inner.query(query))

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        return self._faults.around("put", lambda: self._inner.put(item, condition=condition))

    def write_many(self, items: Sequence[Item]) -> None:
        self._faults.around("write_many", lambda: self._inner.write_many(items))

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._faults.around("delete_many", lambda: self._inner.delete_many(keys))


class FaultyBlobStore(BlobStore):
    """`BlobStore` whose calls go through `Faults`."""

    def __init__(self, inner: BlobStore, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    def place(self) -> str:
        return self._inner.place

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        self._faults.around("blob_put", lambda: self._inner.put(name, data))

    def get(self, name: str) -> bytes | None:
        return self._faults.around("blob_get", lambda: self._inner.get(name))

    def names(self, prefix: str) -> Sequence[str]:
        return self._faults.around("blob_names", lambda: self._inner.names(prefix))

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        return self._faults.around("blob_erase", lambda: self._inner.erase(prefix, keep=keep))

    def url(self, name: str, *, seconds: int, filename: str) -> str | None:
        return self._inner.url(name, seconds=seconds, filename=filename)

    def upload_url(self, name: str, *, seconds: int, size_bytes: int) -> str | None:
        return self._inner.upload_url(name, seconds=seconds, size_bytes=size_bytes)


class FaultyJobQueue:
    """`JobQueue` whose calls go through `Faults`."""

    def __init__(self, inner: JobQueue, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def send(self, body: str, *, group: str, delay_seconds: int = 0) -> str:
        return self._faults.around("send", lambda: self._inner.send(body, group=group, delay_seconds=delay_seconds))

    def receive(self, *, limit: int = 10) -> Sequence[Delivery]:
        return self._faults.around("receive", lambda: self._inner.receive(limit=limit))

    def acknowledge(self, receipt: str) -> None:
        self._faults.around("acknowledge", lambda: self._inner.acknowledge(receipt))

    def redrive(self, group_of: Callable[[str], str | None]) -> int:
        inner = self._inner
        assert isinstance(inner, Redrivable)
        return self._faults.around("redrive", lambda: inner.redrive(group_of))


THROTTLED = "ThrottlingException"


@dataclass
class _Due:
    countdown: int
    when: When
    error: Exception


class FaultyGuard(Guard):
    """A guard whose requests can fail."""

    def __init__(self, demand_consistent: DemandConsistent, *, one_at_a_time: bool) -> None:
        super().__init__(demand_consistent, one_at_a_time=one_at_a_time)
        self._faults: list[_Due] = []
        self._often: tuple[float, When, random.Random] | None = None
        self._often_code, self._often_of = THROTTLED, frozenset[str]()
        self.often_met = 0
        self._faults_lock = threading.Lock()

    def fail(self, at: int, when: When, error: Exception | None = None) -> None:
        """Fail the request number ``at``, counted from 1 and from this call: before it is sent, or with its answer lost.

        ``error`` is raised inside the SDK. The default is a closed connection, which the SDK's retry repeats.
        """
        fault = _Due(at, when, error or ConnectionClosedError(endpoint_url="the guard's fault"))
        with self._faults_lock:
            self._faults.append(fault)

    def fail_often(
        self, share: float, when: When, *, seed: int, code: str = THROTTLED, operations: Collection[str] = ()
    ) -> None:
        """Fail this share of all further requests: refused with ``code`` before they are sent, or with their answers lost.

        ``operations`` limits the faults to these operations.
        """
        with self._faults_lock:
            self._often = (share, when, random.Random(seed)) if share else None
            self._often_code, self._often_of = code, frozenset(operations)

    def clear_faults(self) -> None:
        """Remove the faults that have not occurred yet."""
        with self._faults_lock:
            self._faults = []
            self._often = None

    @property
    def faults_left(self) -> int:
        """The number of faults that have not occurred yet."""
        return len(self._faults)

    def attempt(self, operation: str, send: Callable[[], Any]) -> Any:
        fault = self._next_fault(operation)
        if fault is None:
            return send()
        if fault.when == "after":
            send()
        return None, fault.error

    def _next_fault(self, operation: str) -> _Due | None:
        with self._faults_lock:
            for fault in self._faults:
                fault.countdown -= 1
            due = [fault for fault in self._faults if fault.countdown == 0]
            self._faults = [fault for fault in self._faults if fault.countdown > 0]
            if not due and self._often is not None and (not self._often_of or operation in self._often_of):
                share, when, chance = self._often
                if chance.random() < share:
                    self.often_met += 1
                    return _Due(0, when, _often_error(when, operation, self._often_code))
        return due[0] if due else None


def _often_error(when: When, operation: str, code: str) -> Exception:
    if when == "after":
        return ReadTimeoutError(endpoint_url="the guard's fault")
    return ClientError({"Error": {"Code": code, "Message": "the guard's fault"}}, operation)
