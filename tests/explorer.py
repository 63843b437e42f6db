"""The interleaving explorer: runs a few operations against one engine in every order of their requests.

Each operation runs in a thread that stops before each of its requests until the explorer resumes it. A schedule is therefore a
list of choices, and a run can be repeated exactly. Depth-first search tries all schedules. A crash can be injected before or
after any request of an operation.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, BinaryIO

from tests.effort import is_full
from tests.log.everything import local_blobs, sqlite_rows
from turnlog.ports import BlobStore, Condition, Item, ItemTable, Key, Lost, Page, Query

Operation = Callable[[ItemTable, BlobStore], Any]
_STEP_SECONDS = 20.0
_TABLE, _BLOBS = "items", "blobs"


class Crashed(BaseException):
    """Raised inside an operation that the explorer crashes; the operation must not catch it."""


@dataclass(frozen=True)
class Crash:
    """A crash of operation ``actor`` before or after the effect of its request number ``at``, counted from 1."""

    actor: int
    at: int
    after: bool


@dataclass(frozen=True, slots=True)
class Footprint:
    """The items or blobs that a request touches: single ``names`` of a place, and the range from ``low`` to ``high``."""

    place: str
    names: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    writes: bool = False

    def conflicts(self, other: Footprint) -> bool:
        """Return whether the order of two requests can matter."""
        if self.place != other.place or not (self.writes or other.writes):
            return False
        overlap = bool(self.high and other.high) and self.low <= other.high and other.low <= self.high
        return overlap or any(map(other.has, self.names)) or any(map(self.has, other.names))

    def has(self, name: str) -> bool:
        return name in self.names or (bool(self.high) and self.low <= name <= self.high)


@dataclass
class ScheduleRun:
    """The run of one schedule. ``results`` are answers of the operations, or exceptions that they raised."""

    schedule: list[int]
    footprints: list[Footprint] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)


_EVERYTHING = Footprint(_TABLE, low="", high="\U0010ffff")
"""The footprint of an index query: every item."""


class _Actor:
    def __init__(self, index: int, crash: Crash | None) -> None:
        self.index = index
        self.crash = crash if crash is not None and crash.actor == index else None
        self.requests = 0
        self.result: Any = None
        self.done = False
        self.footprint = Footprint("")
        self.waiting = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def step(self, footprint: Footprint, effect: Callable[[], Any]) -> Any:
        self.footprint = footprint
        self.waiting.release()
        if not self.go.acquire(timeout=_STEP_SECONDS):
            raise Crashed
        self.requests += 1
        crash = self.crash if self.crash is not None and self.crash.at == self.requests else None
        if crash is not None and not crash.after:
            raise Crashed
        result = effect()
        if crash is not None:
            raise Crashed
        return result


class _SteppedTable:
    def __init__(self, inner: ItemTable, actor: _Actor) -> None:
        self._inner = inner
        self._actor = actor

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        items: dict[Key, Item] = self._actor.step(
            _items(keys), lambda: self._inner.get_many(keys, consistent=consistent)
        )
        return items

    def query(self, query: Query) -> Page:
        touched = (
            _EVERYTHING
            if query.index
            else Footprint(_TABLE, low=f"{query.pk} {query.low}", high=f"{query.pk} {query.high}")
        )
        page: Page = self._actor.step(touched, lambda: self._inner.query(query))
        return page

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        lost: Lost | None = self._actor.step(
            _items([item], writes=True), lambda: self._inner.put(item, condition=condition)
        )
        return lost

    def write_many(self, items: Sequence[Item]) -> None:
        self._actor.step(_items(items, writes=True), lambda: self._inner.write_many(items))

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._actor.step(_items(keys, writes=True), lambda: self._inner.delete_many(keys))


class _SteppedBlobs:
    def __init__(self, inner: BlobStore, actor: _Actor) -> None:
        self._inner = inner
        self._actor = actor

    @property
    def place(self) -> str:
        return self._inner.place

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        self._actor.step(Footprint(_BLOBS, (name,), writes=True), lambda: self._inner.put(name, data))

    def get(self, name: str) -> bytes | None:
        data: bytes | None = self._actor.step(Footprint(_BLOBS, (name,)), lambda: self._inner.get(name))
        return data

    def names(self, prefix: str) -> Sequence[str]:
        touched = Footprint(_BLOBS, low=prefix, high=prefix + "\U0010ffff")
        names: Sequence[str] = self._actor.step(touched, lambda: self._inner.names(prefix))
        return names

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        touched = Footprint(_BLOBS, (prefix,), low=prefix, high=prefix + "\U0010ffff", writes=True)
        erased: int = self._actor.step(touched, lambda: self._inner.erase(prefix, keep=keep))
        return erased

    def url(self, name: str, *, seconds: int, filename: str) -> str | None:
        return self._inner.url(name, seconds=seconds, filename=filename)

    def upload_url(self, name: str, *, seconds: int, size_bytes: int) -> str | None:
        return self._inner.upload_url(name, seconds=seconds, size_bytes=size_bytes)


def _items(targets: Sequence[Key] | Sequence[Item], *, writes: bool = False) -> Footprint:
    names = (
        f"{target.pk} {target.sk}" if isinstance(target, Key) else f"{target['pk']!s} {target['sk']!s}"
        for target in targets
    )
    return Footprint(_TABLE, tuple(names), writes=writes)


def run_schedule(
    operations: Sequence[Operation],
    items: ItemTable,
    blobs: BlobStore,
    choices: Sequence[int],
    *,
    crash: Crash | None = None,
) -> tuple[ScheduleRun, list[list[int]]]:
    """Run operations by ``choices``, then the running one to its end, and the others. Returns the run, and who was ready when."""
    actors = [_Actor(index, crash) for index in range(len(operations))]
    threads = [
        threading.Thread(target=_perform, args=(operation, actor, items, blobs), daemon=True)
        for operation, actor in zip(operations, actors, strict=True)
    ]
    for thread, actor in zip(threads, actors, strict=True):
        thread.start()
        _await(actor)
    run, offered, chosen = ScheduleRun([]), list[list[int]](), 0
    while True:
        ready = [actor.index for actor in actors if not actor.done]
        if not ready:
            break
        if len(run.schedule) < len(choices):
            chosen = choices[len(run.schedule)]
        elif chosen not in ready:
            chosen = ready[0]
        offered.append(ready)
        run.schedule.append(chosen)
        run.footprints.append(actors[chosen].footprint)
        actors[chosen].go.release()
        _await(actors[chosen])
    for thread in threads:
        thread.join(_STEP_SECONDS)
    run.results = [actor.result for actor in actors]
    run.requests = [actor.requests for actor in actors]
    return run, offered


def explore(
    operations: Sequence[Operation],
    make: Callable[[], tuple[ItemTable, BlobStore]],
    check: Callable[[ScheduleRun, ItemTable, BlobStore], None],
    *,
    crash: Crash | None = None,
    max_preemptions: int | None = None,
    only_conflicts: bool = False,
) -> int:
    """Try every order of the operations' requests, each on a fresh engine from ``make``, and check it. Returns the number tried.

    Orders that end with the same answers and the same stored bytes are checked once, so a check must look at nothing else.
    ``max_preemptions`` bounds how often a schedule interrupts an operation that could continue. With ``only_conflicts``, orders
    that differ only in independent requests are tried once: an order is changed only where two requests conflict (dynamic
    partial-order reduction). `make pr` always does so.
    """
    reduced = only_conflicts or not is_full()
    tried, pending, known, checked = 0, [list[int]()], set[tuple[int, ...]](), set[object]()
    while pending:
        choices = pending.pop()
        items, blobs = make()
        run, offered = run_schedule(operations, items, blobs, choices, crash=crash)
        end = _end(run, items, blobs)
        if end not in checked:
            check(run, items, blobs)
            checked.add(end)
        tried += 1
        for index, other in _conflicts(run) if reduced else _others(run, offered, len(choices)):
            branch = [*run.schedule[:index], other]
            is_new = other in offered[index] and tuple(branch) not in known
            if is_new and (max_preemptions is None or _preemptions(branch, offered) <= max_preemptions):
                known.add(tuple(branch))
                pending.append(branch)
    return tried


def _end(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> object:
    """Return what a schedule has left: the answers, and every item and blob."""
    answers = tuple((type(result), repr(result), repr(getattr(result, "__dict__", ""))) for result in run.results)
    stored = hashlib.sha256(repr((sqlite_rows(items), sorted(local_blobs(blobs).items()))).encode())
    return answers, stored.digest()


def _others(run: ScheduleRun, offered: Sequence[Sequence[int]], begin: int) -> Iterator[tuple[int, int]]:
    """Yield (index, operation) for every other choice of a run from ``begin`` on."""
    for index in range(begin, len(run.schedule)):
        yield from ((index, other) for other in offered[index] if other != run.schedule[index])


def _conflicts(run: ScheduleRun) -> Iterator[tuple[int, int]]:
    """Yield (index, operation) where a request conflicts with an earlier one of another operation and may go first.

    It may go first where the other operation had begun to run, too: that interrupts nothing, so a bound on interruptions hides no
    order (Coons, Musuvathi and McKinley, 2013).
    """
    for later, (actor, footprint) in enumerate(zip(run.schedule, run.footprints, strict=True)):
        for index in range(later - 1, -1, -1):
            if run.schedule[index] != actor and run.footprints[index].conflicts(footprint):
                yield index, actor
                yield _begin(run.schedule, index), actor
                break


def _begin(schedule: Sequence[int], index: int) -> int:
    """Return where the operation that is at ``index`` of a schedule had begun to run without interruption."""
    while index and schedule[index - 1] == schedule[index]:
        index -= 1
    return index


def _preemptions(schedule: Sequence[int], offered: Sequence[Sequence[int]]) -> int:
    return sum(
        before != after and before in offered[index + 1] for index, (before, after) in enumerate(pairwise(schedule))
    )


def _perform(operation: Operation, actor: _Actor, items: ItemTable, blobs: BlobStore) -> None:
    try:
        actor.result = operation(_SteppedTable(items, actor), _SteppedBlobs(blobs, actor))
    except Crashed as crashed:
        actor.result = crashed
    except Exception as error:
        actor.result = error
    finally:
        actor.done = True
        actor.waiting.release()


def _await(actor: _Actor) -> None:
    if not actor.waiting.acquire(timeout=_STEP_SECONDS):
        raise TimeoutError(f"operation {actor.index} made no request and did not end")
