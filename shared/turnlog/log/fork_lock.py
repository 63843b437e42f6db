"""Locks that a forked child finds free."""

from __future__ import annotations

import os
from threading import RLock
from weakref import WeakSet

_locks, _registry = WeakSet[RLock](), RLock()
_held = list[RLock]()


def fork_lock() -> RLock:
    """Return a lock for which a fork waits: its child has no thread that would release it.

    Code that holds the lock takes no other one, as a fork takes all of them.
    """
    lock = RLock()
    with _registry:
        _locks.add(lock)
    return lock


def _begin_fork() -> None:
    _registry.acquire()
    for lock in list(_locks):
        lock.acquire()
        _held.append(lock)


def _end_fork() -> None:
    while _held:
        _held.pop().release()
    _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_begin_fork, after_in_parent=_end_fork, after_in_child=_end_fork)
