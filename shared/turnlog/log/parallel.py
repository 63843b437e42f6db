"""Requests in parallel threads, with the caller's context (served tenant, correlation id, deadline)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TypeVar

_A = TypeVar("_A")
_T = TypeVar("_T")


def in_parallel(work: Callable[[_A], _T], items: Sequence[_A], *, threads: int, few: int = 0) -> list[_T]:
    """Return the results of ``work`` for each item, in order, computed in up to ``threads`` threads.

    Up to ``few`` items are handled one after the other without threads. Raises the first error, after the calls that
    had begun have ended.
    """
    if len(items) <= few:
        return list(map(work, items))
    from concurrent.futures import ThreadPoolExecutor

    # Only one thread at a time can enter a context, so each call has its own copy.
    contexts = [copy_context() for _ in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda context, item: context.run(work, item), contexts, items))
