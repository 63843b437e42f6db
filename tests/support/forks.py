"""Forked processes of tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess


def forked(child: Callable[[], object]) -> BaseProcess:
    """Start a forked process that ends with 0 when ``child`` returns, and with 1 when it raises."""
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    return process


def ends_well(process: BaseProcess) -> bool:
    """Return whether the process ends with 0. One that hangs is killed after 30 seconds."""
    process.join(30)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode == 0
