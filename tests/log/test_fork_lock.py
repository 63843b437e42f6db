"""A forked child never waits for a lock that a thread of its parent held."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.effort import is_full
from tests.support.forks import ends_well, forked
from turnlog.engines.sqlite import SqliteDatabase
from turnlog.log.fork_lock import fork_lock
from turnlog.search.fts5 import Fts5SearchEngine

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_a_fork_waits_for_the_thread_that_holds_a_lock() -> None:
    lock, is_held = fork_lock(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            time.sleep(0.2)

    def take() -> None:
        """Take the lock in a thread of the child: its first thread would have it again, as the one that forked."""
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lock.acquire, timeout=5).result()

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(20)
    assert ends_well(forked(take))
    holder.join()
    with lock:
        assert ends_well(forked(lock.__enter__)), "of the thread that forks"


def test_a_child_searches_that_is_forked_while_a_thread_searches() -> None:
    engine, stop = Fts5SearchEngine(), threading.Event()

    def search() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            engine.terms([f"word{number} running dogs " * 20])

    searcher = threading.Thread(target=search)
    searcher.start()
    try:
        assert all(ends_well(forked(lambda: engine.terms(["cats sleep"]))) for _ in range(100 if is_full() else 3))
    finally:
        stop.set()
        searcher.join()


def test_a_child_opens_the_file_that_is_forked_while_a_thread_ends(tmp_path: Path) -> None:
    """The thread's connection was closed meanwhile, and the child found SQLite's memory locked."""
    database = SqliteDatabase(tmp_path / "turnlog.db")

    for _ in range(300 if is_full() else 4):
        begun = threading.Event()
        writer = threading.Thread(target=database.write, args=(lambda connection, begun=begun: begun.set(),))
        writer.start()
        assert begun.wait(20)
        assert ends_well(forked(lambda: database.read(lambda connection: connection.execute("SELECT 1").fetchone())))
        writer.join()
    database.close()
