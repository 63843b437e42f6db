"""Locks that a forked child finds free."""

from __future__ import annotations

import os
from threading import RLock
from weakref import WeakSet

_registry, _locks = RLock(), WeakSet["ForkLock"]()
_held = list["ForkLock"]()


class ForkLock:
    """A lock that no other thread holds while the process forks: a child has no thread that would release it.

    Code that holds it takes no other lock, as a fork takes all of them.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = RLock()
        with _registry:
            _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def _begin_fork() -> None:
    _registry.acquire()
    for lock in list(_locks):
        lock.__enter__()
        _held.append(lock)


def _end_fork() -> None:
    while _held:
        _held.pop().__exit__()
    _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_begin_fork, after_in_parent=_end_fork, after_in_child=_end_fork)
