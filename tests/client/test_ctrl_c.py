"""Ctrl-C in the middle of a call, as in a notebook: the next call is well, nothing acknowledged is lost, nobody is kept out."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effort import is_full
from turnlog.app import make_application
from turnlog.engines import SystemClock
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

INTERRUPTED = """
import random, signal, sys
from turnlog import Turnlog

def interrupt(number, frame):
    raise KeyboardInterrupt

url, calls, longest = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
random.seed(calls)
signal.signal(signal.SIGALRM, interrupt)
log = Turnlog.open(url)
other = log if url == "memory://" else Turnlog.open(url)
session, beside = log.sessions.create("s"), other.sessions.of("s")
acknowledged, interrupted = dict(), 0
for number in range(calls):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, longest))
        position = session.append({"role": "user", "content": f"message {number}"}, idempotency_key=f"k{number}").first
        signal.setitimer(signal.ITIMER_REAL, 0)
        acknowledged[position] = f"message {number}"
    except BaseException as error:  # pydantic makes an error of its own of one that comes while it serialises
        assert "KeyboardInterrupt" in repr(error), repr(error)
        interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    # Again, as a caller would: whether or not it was stored, it is there once.
    position = session.append({"role": "user", "content": f"message {number}"}, idempotency_key=f"k{number}").first
    assert acknowledged.setdefault(position, f"message {number}") == f"message {number}"
    if number % 5 == 0:
        acknowledged[beside.append({"role": "user", "content": f"beside {number}"}).first] = f"beside {number}"
stored = {one.position: one.body["content"] for one in session.messages()}
assert stored == dict(sorted(acknowledged.items())), sorted(acknowledged.items() ^ stored.items())
assert list(stored) == list(range(2, len(stored) + 2)), "a hole in the log"
assert len([one for one in stored.values() if one.startswith("message")]) == calls
assert interrupted > calls / 50, f"{interrupted} of {calls}: too few to show anything"
"""

AT_EVERY_POINT = """
import faulthandler, sys, traceback
from types import SimpleNamespace
from turnlog import Turnlog
from turnlog.client.in_process import JobWorker

class Interrupt:
    # Python looks for a signal where a function begins, and where a call of C has returned.
    def __init__(self, after):
        self.left = after

    def __call__(self, frame, event, arg):
        if event in ("call", "c_return"):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

def calls(action, step):
    # Each call is interrupted one step later than the one before, and made again; the last is not interrupted.
    after, left = 1, 0
    while left <= 0:
        faulthandler.dump_traceback_later(30, exit=True)  # where it waits, if it never ends
        interrupt = Interrupt(after)
        try:
            sys.setprofile(interrupt)
            action(after)
        except BaseException as error:
            assert "KeyboardInterrupt" in "".join(traceback.format_exception(error))
        finally:
            sys.setprofile(None)
        action(after)
        yield after
        after, left = after + step, interrupt.left

url, step = sys.argv[1], int(sys.argv[2])
session = Turnlog.open(url).sessions.create("s")
message = lambda number: {"role": "user", "content": f"message {number}"}
appended = list(calls(lambda number: session.append(message(number), idempotency_key=str(number)), step))
assert len(appended) > 500 / step, f"{len(appended)}: too few to show anything"
assert [one.body for one in session.messages()] == [message(number) for number in appended]

# A worker that always has a job to do, with and without a thread that does it.
engine = SimpleNamespace(next_job_ms=lambda: 0, queue=None, has_due=lambda partitions, before: False)
worker = JobWorker(SimpleNamespace(engine=engine, clock=SimpleNamespace(now_ms=lambda: 0)))
assert len(list(calls(lambda number: worker.wake(), 1))) > 5

def start(number):
    worker.wake()
    worker.stop()
    worker.resume()

assert len(list(calls(start, 1))) > 20
faulthandler.cancel_dump_traceback_later()
"""


@pytest.fixture(params=["sqlite", pytest.param("memory", marks=pytest.mark.full), "http"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, float]]:
    """Its address, and the longest time in seconds after which an append is interrupted: about as long as it takes."""
    if request.param == "http":
        app = make_application(Settings(engine="memory://", identity="jwt"))
        server = LocalServer(app, SystemClock(), port=0).start()
        yield server.url, 0.012
        server.stop()
        app.close()
    else:
        yield ("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'agent.db'}"), 0.003


@pytest.mark.network
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such signal here")
def test_a_call_that_is_interrupted_leaves_nothing_open(engine: tuple[str, float]) -> None:
    url, longest = engine
    command = [sys.executable, "-c", INTERRUPTED, url, "3000" if is_full() else "100", str(longest)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500 if is_full() else 120)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("memory", marks=pytest.mark.full)], indirect=True)
def test_a_call_may_be_interrupted_at_every_point(engine: tuple[str, float]) -> None:
    command = [sys.executable, "-c", AT_EVERY_POINT, engine[0], "1" if is_full() else "20"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert ran.returncode == 0, ran.stderr
