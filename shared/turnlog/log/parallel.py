"""Several requests at once, each in the context of whoever asks: the tenant that is served, the correlation id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TypeVar

_A = TypeVar("_A")
_T = TypeVar("_T")


def in_parallel(work: Callable[[_A], _T], given: Sequence[_A], *, threads: int, few: int = 0) -> list[_T]:
    """What ``work`` makes of each, in order. The first error is raised when those that had begun have ended. No more than ``few``
    are done one after the other, without a thread."""
    if len(given) <= few:
        return list(map(work, given))
    from concurrent.futures import ThreadPoolExecutor

    # A context is entered by one thread at a time, so each call has its own.
    contexts = [copy_context() for _ in given]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda context, one: context.run(work, one), contexts, given))
