"""The interleaving explorer: runs a few operations against one engine in every order of their requests.

Each operation runs in a thread that stops before each of its requests until the explorer lets it go on, so a schedule is a
list of choices and a run can be repeated exactly. All schedules are tried by depth-first search; a crash can be put before
or after any request of an operation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, BinaryIO

from turnlog.ports import BlobStore, Condition, Item, ItemTable, Key, Lost, Page, Query

Operation = Callable[[ItemTable, BlobStore], Any]
_STEP_SECONDS = 20.0


class Crashed(BaseException):
    """Raised inside an operation that the explorer has crashed; nothing may catch it."""


@dataclass(frozen=True)
class Crash:
    """Operation ``actor`` ends before or after the effect of its request number ``at``, counted from 1."""

    actor: int
    at: int
    after: bool


@dataclass
class Run:
    """What one schedule did. ``results`` are answers, or the exceptions that operations raised."""

    schedule: list[int]
    results: list[Any] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)


class _Actor:
    def __init__(self, index: int, crash: Crash | None) -> None:
        self.index = index
        self.crash = crash if crash is not None and crash.actor == index else None
        self.requests = 0
        self.result: Any = None
        self.done = False
        self.waiting = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def step(self, effect: Callable[[], Any]) -> Any:
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
        found: dict[Key, Item] = self._actor.step(lambda: self._inner.get_many(keys, consistent=consistent))
        return found

    def query(self, query: Query) -> Page:
        page: Page = self._actor.step(lambda: self._inner.query(query))
        return page

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        lost: Lost | None = self._actor.step(lambda: self._inner.put(item, condition=condition))
        return lost

    def write_many(self, items: Sequence[Item]) -> None:
        self._actor.step(lambda: self._inner.write_many(items))

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._actor.step(lambda: self._inner.delete_many(keys))


class _SteppedBlobs:
    def __init__(self, inner: BlobStore, actor: _Actor) -> None:
        self._inner = inner
        self._actor = actor

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        self._actor.step(lambda: self._inner.put(name, data))

    def get(self, name: str) -> bytes | None:
        found: bytes | None = self._actor.step(lambda: self._inner.get(name))
        return found

    def names(self, prefix: str) -> Sequence[str]:
        names: Sequence[str] = self._actor.step(lambda: self._inner.names(prefix))
        return names

    def delete_many(self, names: Sequence[str]) -> None:
        self._actor.step(lambda: self._inner.delete_many(names))

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        erased: int = self._actor.step(lambda: self._inner.erase(prefix, keep=keep))
        return erased

    def url(self, name: str, *, seconds: int, filename: str) -> str | None:
        return self._inner.url(name, seconds=seconds, filename=filename)


def run_schedule(
    operations: Sequence[Operation],
    items: ItemTable,
    blobs: BlobStore,
    choices: Sequence[int],
    *,
    crash: Crash | None = None,
) -> tuple[Run, list[list[int]]]:
    """Runs operations by ``choices`` (then always the first that can go); the run, and who could go at each step."""
    actors = [_Actor(at, crash) for at in range(len(operations))]
    threads = [
        threading.Thread(target=_perform, args=(operation, actor, items, blobs), daemon=True)
        for operation, actor in zip(operations, actors, strict=True)
    ]
    for thread, actor in zip(threads, actors, strict=True):
        thread.start()
        _await(actor)
    run, offered = Run([]), list[list[int]]()
    while True:
        ready = [actor.index for actor in actors if not actor.done]
        if not ready:
            break
        wanted = choices[len(run.schedule)] if len(run.schedule) < len(choices) else ready[0]
        offered.append(ready)
        run.schedule.append(wanted)
        actors[wanted].go.release()
        _await(actors[wanted])
    for thread in threads:
        thread.join(_STEP_SECONDS)
    run.results = [actor.result for actor in actors]
    run.requests = [actor.requests for actor in actors]
    return run, offered


def explore(
    operations: Sequence[Operation],
    make: Callable[[], tuple[ItemTable, BlobStore]],
    check: Callable[[Run, ItemTable, BlobStore], None],
    *,
    crash: Crash | None = None,
    max_preemptions: int | None = None,
) -> int:
    """Tries every order of the operations' requests, each on a fresh engine from ``make``, and checks each; how many there were.

    ``max_preemptions`` bounds how often a schedule leaves an operation that could go on.
    """
    tried, pending = 0, [list[int]()]
    while pending:
        choices = pending.pop()
        items, blobs = make()
        run, offered = run_schedule(operations, items, blobs, choices, crash=crash)
        check(run, items, blobs)
        tried += 1
        for at in range(len(choices), len(run.schedule)):
            for other in offered[at]:
                if other == run.schedule[at]:
                    continue
                branch = [*run.schedule[:at], other]
                if max_preemptions is None or _preemptions(branch, offered) <= max_preemptions:
                    pending.append(branch)
    return tried


def _preemptions(schedule: Sequence[int], offered: Sequence[Sequence[int]]) -> int:
    return sum(before != after and before in offered[at + 1] for at, (before, after) in enumerate(pairwise(schedule)))


def _perform(operation: Operation, actor: _Actor, items: ItemTable, blobs: BlobStore) -> None:
    try:
        actor.result = operation(_SteppedTable(items, actor), _SteppedBlobs(blobs, actor))
    except Crashed as crashed:
        actor.result = crashed
    except Exception as error:  # noqa: BLE001 - the check judges what an operation may raise
        actor.result = error
    finally:
        actor.done = True
        actor.waiting.release()


def _await(actor: _Actor) -> None:
    if not actor.waiting.acquire(timeout=_STEP_SECONDS):
        raise TimeoutError(f"operation {actor.index} made no request and did not end")
