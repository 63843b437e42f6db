"""The disk is full in the middle of a call: a typed error, nothing half written, and well again as soon as there is space."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Harness, sqlite_harness
from tests.effort import is_full
from tests.log.everything import blobs_of, items_of
from tests.support.steps import HUGE, STEPS, begin, check
from turnlog.client.model import Turnlog
from turnlog.core.errors import UnavailableError
from turnlog.privacy.erase import SECOND_PASS_SECONDS

resource = pytest.importorskip("resource", reason="no limits of files here")
SPACES = (0, 4_200, 9_000, 14_000, 30_000, 60_000, 120_000)
"""Bytes that are left: with 4,200 the write-ahead log takes one page."""
pytestmark = pytest.mark.skipif(os.name != "posix", reason="no limits of files here")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Harness, Path]]:
    with sqlite_harness(tmp_path) as made:
        yield made, tmp_path


@contextlib.contextmanager
def full_after(folder: Path, free: int) -> Iterator[None]:
    """No file of this process grows beyond ``free`` bytes; the write-ahead log begins as an empty one."""
    with contextlib.closing(sqlite3.connect(folder / "turnlog.db")) as beside:
        assert beside.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def temporaries(folder: Path) -> list[Path]:
    return list((folder / "blobs").rglob(".*"))


@pytest.mark.parametrize("step", STEPS)
def test_a_call_on_a_full_disk_is_done_when_there_is_space(
    disk: tuple[Harness, Path], step: str, tells: Callable[..., None]
) -> None:
    harness, folder = disk
    met = 0
    for at, free in enumerate(SPACES if is_full() else SPACES[:5:2]):
        log = harness.log(user=f"user-{at}")
        begin(log, step)
        before = items_of(harness)
        with full_after(folder, free):
            try:
                STEPS[step](log)
            except UnavailableError as error:
                met += 1
                assert "disk" in str(error) or "blob folder" in str(error)
                if not free:
                    assert items_of(harness) == before
            else:
                assert free, "who may not write does not say that he has"
        assert not temporaries(folder)
        answer = STEPS[step](log)
        assert STEPS[step](log) == answer
        check(log, step)
    tells("full disk", step, met)


def test_what_is_there_is_read_on_a_full_disk_and_another_process_goes_on(
    disk: tuple[Harness, Path], tells: Callable[..., None]
) -> None:
    harness, folder = disk
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "hi"}, HUGE)
    wanted = [message.body for message in session.messages()], session.context(budget=10**6).messages
    with full_after(folder, 5_000):
        for at in range(20):
            with contextlib.suppress(UnavailableError):
                session.append({"role": "user", "content": f"{at} " + "x" * 3_000}, idempotency_key=f"k{at}")
            values = [message.body for message in session.messages()]
            assert values[:2] == wanted[0] and session.context(budget=10**6).messages[:1] == wanted[1][:1]
        with pytest.raises(UnavailableError):
            session.append({"role": "user", "content": "x" * 20_000})
        assert [message.body for message in session.messages()] == values
    with sqlite_harness(folder) as other:
        other.log().sessions.of("s").append({"role": "user", "content": "of another process"})
    assert [message.body for message in session.messages()] == [
        *values,
        {"role": "user", "content": "of another process"},
    ]
    tells("full disk", "read", 20)


def test_a_session_is_erased_as_soon_as_there_is_space(disk: tuple[Harness, Path], tells: Callable[..., None]) -> None:
    harness, folder = disk
    log = harness.log()
    session = log.sessions.create("s")
    session.append(
        {"role": "user", "content": "hi"}, HUGE, *({"role": "user", "content": "something"} for _ in range(20))
    )
    session.documents.put("large", os.urandom(300_000))
    job = session.erase()
    for free in (0, 4_200, 9_000):
        with full_after(folder, free):
            run_jobs(log)
        assert log.job(job.job_id).status != "done"
        harness.clock.advance(3_600)
    for _ in range(2):
        log.run_jobs()
        harness.clock.advance(SECOND_PASS_SECONDS + 1)
    assert log.job(job.job_id).status == "done"
    assert "something" not in str(items_of(harness)) and blobs_of(harness) == {}
    tells("full disk", "erase", 3)


def run_jobs(log: Turnlog) -> None:
    with contextlib.suppress(UnavailableError):
        log.run_jobs()
