"""The worker of a library in process: it does the jobs of the engine's queue, and ends with its client, its process or a fork."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Harness
from tests.support.chat_messages import assistant, user
from turnlog import AsyncTurnlog, Turnlog, count_tokens
from turnlog.app import Application, make_application
from turnlog.client import in_process
from turnlog.client.in_process import InProcessBackend, open_backend
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError
from turnlog.core.identity import Owner
from turnlog.ports import Prompt
from turnlog.privacy import erase
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock

CANARY = "CANARY-of-the-worker"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/agent.db"


def talk(session: Session, loops: int = 30) -> list[str]:
    """Append loops of a conversation, and return what the appends answer about compression."""
    answers = list[str]()
    for number in range(loops):
        question = {"role": "user", "content": f"q{number} " + "word " * 80}
        answers.append(session.append(question, {"role": "assistant", "content": "answer " * 80}).compression)
    return answers


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "turnlog-worker"]


def until_idle() -> None:
    for thread in threads():
        thread.join(120)
    assert not threads()


def test_a_job_that_is_due_later_is_done_when_it_is_due(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erase, "SECOND_PASS_SECONDS", 2)
    with Turnlog.open(url) as log:
        session = log.sessions.create("a")
        session.append({"role": "user", "content": CANARY})
        job, begun = session.erase(), time.monotonic()
        while log.job(job.job_id).status != "done" and time.monotonic() - begun < 25:
            time.sleep(0.2)
        assert log.job(job.job_id).status == "done", "before the longest pause of the worker"


def files_with(text: str, folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_a_summary_appears_by_itself(url: str) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("s", policy="classic")
        assert not threads()  # an idle library has no thread
        assert "queued" in talk(session)
        until_idle()
        summary = session.summary()
        assert summary is not None and summary.last_loop > 10
        assert "summary of exchanges" in str(session.context().messages)
        assert {job.status for job in log.jobs()} == {"done"}
        talk(session, 20)  # the thread has ended, and starts again
        until_idle()
        later = session.summary()
        assert later is not None and later.last > summary.last
    assert not threads()


def test_a_summary_appears_in_asyncio(url: str) -> None:
    async def life() -> None:
        async with AsyncTurnlog.open(url) as log:
            session = await log.sessions.create("s", policy="classic")
            for number in range(30):
                question = {"role": "user", "content": f"q{number} " + "word " * 80}
                await session.append(question, {"role": "assistant", "content": "answer " * 80})
            until_idle()
            assert await session.summary() is not None

    asyncio.run(life())


def test_close_erases_what_was_to_be_erased(tmp_path: Path) -> None:
    with Turnlog.open(f"sqlite:///{tmp_path}/agent.db") as log:
        session = log.sessions.create("s")
        session.append({"role": "user", "content": CANARY})
        assert files_with(CANARY, tmp_path)
        session.erase()
    assert not files_with(CANARY, tmp_path)


def test_without_a_worker_the_jobs_wait_for_run_jobs(url: str) -> None:
    with Turnlog.open(url, worker=False) as log:
        session = log.sessions.create("s", policy="classic")
        talk(session)
        assert not threads()
        assert session.summary() is None
        assert log.run_jobs() > 0
        assert session.summary() is not None


def test_jobs_of_a_process_that_has_ended_are_done_by_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    with Turnlog.open(url, worker=False) as log:
        session = log.sessions.create("s")
        session.append({"role": "user", "content": CANARY})
        session.erase()
    assert files_with(CANARY, tmp_path)
    with Turnlog.open(url) as log:
        assert not log.sessions.exists("s")
    assert not files_with(CANARY, tmp_path)


WRITER = """
import sys
from turnlog import Turnlog
with Turnlog.open(sys.argv[1]) as log:
    session = log.sessions.create(sys.argv[2], policy="classic")
    for number in range(20):
        session.append({"role": "user", "content": "word " * 80}, {"role": "assistant", "content": "answer " * 80})
"""


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str]) -> str:
    """Return what a process printed; it must end well and write nothing to stderr."""
    out, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")
    return out


def test_several_processes_share_the_queue_of_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    for process in [python(WRITER, url, f"s{number}") for number in range(3)]:
        output(process)
    with Turnlog.open(url, worker=False) as log:
        log.run_jobs()  # what was due after the last process had ended
        assert all(log.sessions.of(f"s{number}").summary() is not None for number in range(3))
        assert {(job.status, job.attempts) for job in log.jobs()} == {("done", 1)}


LEFT_OPEN = """
import warnings
warnings.simplefilter("ignore", ResourceWarning)  # Python 3.13 tells of a connection that is left open
import sys
from turnlog import Turnlog
log = Turnlog.open(sys.argv[1])
session = log.sessions.create("s")
session.append({"role": "user", "content": sys.argv[2]})
session.erase()
"""


def test_a_process_that_never_closes_ends_with_its_jobs_done(tmp_path: Path) -> None:
    output(python(LEFT_OPEN, f"sqlite:///{tmp_path}/agent.db", CANARY))
    assert not files_with(CANARY, tmp_path)


FORKED = """
import os, sys, time
from turnlog import Turnlog
def talk(name):
    session = log.sessions.get_or_create(name, policy="classic")
    for number in range(20):
        session.append({"role": "user", "content": "word " * 80}, {"role": "assistant", "content": "answer " * 80})
    log.run_jobs()
    until = time.monotonic() + 60  # the other process may have the job
    while session.summary() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert session.summary() is not None
log = Turnlog.open(sys.argv[1])
log.sessions.create("erased").append({"role": "user", "content": "hi"})
log.sessions.of("erased").erase()  # its second pass keeps the thread until 15 minutes have passed
talk("before")
child = os.fork()
talk("child" if child == 0 else "parent")
log.close()
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_parent_and_child_go_on(tmp_path: Path) -> None:
    assert output(python(FORKED, f"sqlite:///{tmp_path}/agent.db")) == "0\n"


FORKED_IN_A_JOB = """
import os, sys, threading
forking = threading.Event()
alive = lambda: [thread.name for thread in threading.enumerate()].count("turnlog-worker")
os.register_at_fork(before=lambda: print(alive(), flush=True))  # the first that is registered runs last
from turnlog import Turnlog
log = Turnlog.open(sys.argv[1])
os.register_at_fork(before=forking.set)
run_job, begun = log.backend.app.run_job, threading.Event()
def slowly(body, **options):
    begun.set()
    forking.wait(60)
    return run_job(body, **options)
log.backend.app.run_job = slowly
log.sessions.create("erased").append({"role": "user", "content": "hi"})
log.sessions.of("erased").erase()
begun.wait(60)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
log.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_lets_the_job_under_way_end_before_the_database_pauses(tmp_path: Path) -> None:
    assert output(python(FORKED_IN_A_JOB, f"sqlite:///{tmp_path}/agent.db")) == "0\n"


def test_run_jobs_waits_for_the_job_that_the_worker_runs(tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()
    backend = open_backend(f"sqlite:///{tmp_path}/agent.db", tenant="acme", user="ada")
    real = backend.app.run_job

    def slowly(body: str, *, kinds: Any) -> Any:
        begun.set()
        may_end.wait(60)
        return real(body, kinds=kinds)

    backend.app.run_job = slowly  # type: ignore[assignment]
    log = Turnlog(backend)
    session = log.sessions.create("s", policy="classic")
    talk(session, 3)
    job = session.compress(mode="async", keep_loops=0)
    assert begun.wait(60)
    threading.Timer(0.2, may_end.set).start()
    assert log.run_jobs() == 0  # the worker has done it
    assert log.job(job.job_id).status == "done"  # type: ignore[union-attr]
    log.close()


def test_a_job_that_breaks_the_worker_is_tried_again_and_the_thread_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = open_backend(f"sqlite:///{tmp_path}/agent.db", tenant="acme", user="ada")
    real, calls = backend.app.run_job, list[str]()

    def at_first_broken(body: str, *, kinds: Any) -> Any:
        calls.append(body)
        if len(calls) == 1:
            raise ZeroDivisionError("what was said")
        return real(body, kinds=kinds)

    backend.app.run_job = at_first_broken  # type: ignore[assignment]
    log = Turnlog(backend)
    session = log.sessions.create("s")
    talk(session, 3)
    first = session.compress(mode="async", keep_loops=0)
    second = session.compress(mode="async", keep_loops=1)
    log.close()
    with Turnlog.open(f"sqlite:///{tmp_path}/agent.db", tenant="acme", user="ada", worker=False) as log:
        assert sorted(log.job(job.job_id).status for job in (first, second)) == ["done", "queued"]  # type: ignore[union-attr]
    (text,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert text.startswith("the worker met ZeroDivisionError at ") and "at_first_broken test_worker.py:" in text
    assert "what was said" not in text


def test_an_unused_client_does_not_keep_its_thread() -> None:
    log = Turnlog.open("memory://")
    session = log.sessions.create("s")
    session.append({"role": "user", "content": "hi"})
    session.erase()  # its second pass is due in 15 minutes
    del log, session
    for thread in threads():
        thread.join(30)
    assert not threads()


def test_a_worker_whose_next_job_is_due_later_sleeps_until_then_or_until_a_call_brings_one() -> None:
    clock, looks = FixedClock(), list[int]()
    made = make_application(Settings(engine="memory://"), clock=clock)
    next_job_ms = made.engine.next_job_ms
    assert next_job_ms is not None

    def look() -> int | None:
        looks.append(1)
        return next_job_ms()

    app = Application(replace(made.engine, next_job_ms=look), Settings(), clock=clock, ids=made.ids)
    backend = InProcessBackend(app, Owner.of("local", "me"), worker=True)
    with Turnlog(backend) as log:
        log.sessions.create("s").erase()  # its second pass is due in 15 minutes
        (thread,) = threads()
        thread.join(0.3)
        assert thread.is_alive() and len(looks) < 6
        clock.advance(16 * 60)
        log.health()
        until_idle()


def test_an_engine_without_a_queue_says_that_there_is_no_worker(harness: Harness) -> None:
    engine = replace(harness.app.engine, queue=None, queues={})
    app = Application(engine, Settings(), clock=harness.clock, ids=harness.app.ids)
    log = Turnlog(InProcessBackend(app, harness.log().backend.owner))  # type: ignore[attr-defined]
    answers = talk(log.sessions.create("s", policy="classic"))
    assert "no_worker" in answers and "queued" not in answers
    assert log.run_jobs() == 0


def test_only_an_embedded_engine_takes_the_option() -> None:
    for url, options in (("http://127.0.0.1:1", {"worker": True}), ("http://127.0.0.1:1", {"worker": False})):
        with pytest.raises(InvalidInputError, match="a service has its own workers"):
            Turnlog.open(url, **options)
    with pytest.raises(InvalidInputError, match="deployed functions do the jobs"):
        Turnlog.open("dynamodb://table?bucket=b&region=eu-central-1", worker=True)


@pytest.mark.parametrize("outcome", ["a summary", "an error", "no text"])
def test_a_function_of_the_caller_writes_the_summaries(
    url: str, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = list[Prompt]()

    def summarise(prompt: Prompt) -> str:
        prompts.append(prompt)
        if outcome == "an error":
            raise ZeroDivisionError("what was said")
        return "The user asked many times about words." if outcome == "a summary" else None  # type: ignore[return-value]

    with Turnlog.open(url, summariser=summarise, worker=False) as log:
        session = log.sessions.create("s", policy="classic")
        talk(session)
        log.run_jobs()
        summary = session.summary()
        assert prompts and "q0" in prompts[0].record and prompts[0].system
        if outcome == "a summary":
            assert summary is not None
            assert (summary.text, summary.summariser) == (
                "The user asked many times about words.",
                "function:summarise",
            )
        else:
            assert summary is None
        if outcome == "an error":
            assert re.search(
                r"summariser 'function:summarise' met ZeroDivisionError at .*summarise test_worker.py:\d+", caplog.text
            )
            assert "what was said" not in caplog.text
        if outcome == "no text":
            assert "the summariser 'function:summarise' returned NoneType, not a text" in caplog.text


class Awaited:
    async def __call__(self, prompt: Prompt, extra: int = 1) -> str:
        return "The user asked many times about words."


@pytest.mark.parametrize("function", [Awaited(), Awaited().__call__, partial(Awaited().__call__, extra=2)])
def test_a_summariser_that_must_be_awaited_is_refused_and_told_what_to_give(function: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"not awaited: give lambda prompt: asyncio\.run"):
        Turnlog.open("memory://", summariser=function)

    async def main() -> None:
        with pytest.raises(InvalidInputError, match="not awaited"):
            await AsyncTurnlog.open("memory://", summariser=function)
        async with AsyncTurnlog.open("memory://", summariser=lambda prompt: asyncio.run(function(prompt))) as log:
            session = await log.sessions.create("s", policy="classic")
            for number in range(12):
                await session.append(user(f"q{number} " + "words " * 80), assistant("a " * 80))
            await session.compress(keep_loops=1)
            summary = await session.summary()
            assert summary is not None and summary.summariser.startswith("function:")

    asyncio.run(main())


def test_a_summariser_is_a_function_of_this_process() -> None:
    with pytest.raises(InvalidInputError, match="function of a Prompt, not a str"):
        Turnlog.open("memory://", summariser="gpt")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="summariser is for an engine in this process"):
        Turnlog.open("http://127.0.0.1:1", summariser=lambda prompt: "")


def test_tokens_are_counted_as_an_append_counts_them(harness: Harness) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is my order?"},
        {"role": "assistant", "content": "On its way."},
    ]
    assert count_tokens(messages) == harness.log().sessions.create("s").append(*messages).tokens
    assert count_tokens(messages, format="anthropic") == count_tokens(messages)
    assert 0 == count_tokens("") == count_tokens([]) < count_tokens("hello") <= 2
    with pytest.raises(InvalidInputError):
        count_tokens([{"role": 7}])


def test_a_session_that_falls_silent_for_minutes_is_handed_to_memory_by_itself(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "_RETENTION_SECONDS", 0.0)  # each call looks, as a minute later
    clock = FixedClock()
    app = make_application(Settings(engine=url), clock=clock)
    backend = InProcessBackend(app, Owner.of("local", "me"), worker=True)
    with Turnlog(backend) as log:
        session = log.sessions.create("s", inactive_after_minutes=5)
        session.append({"role": "user", "content": "I live in Lisbon."}, {"role": "assistant", "content": "Noted."})
        clock.advance(4 * 60)
        assert session.info().status == "active" and not threads()
        clock.advance(2 * 60)
        session.info()
        until_idle()
        assert session.info().status == "inactive"
        assert [memory.text for memory in log.memory()] == ["I live in Lisbon"]


def test_without_a_worker_run_jobs_hands_silent_sessions_to_memory_and_erases_expired_ones(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "_RETENTION_SECONDS", 0.0)
    clock = FixedClock()
    app = make_application(Settings(engine=url), clock=clock)
    with Turnlog(InProcessBackend(app, Owner.of("local", "me"))) as log:
        session = log.sessions.create("s", inactive_after_minutes=5)
        session.append({"role": "user", "content": "I live in Lisbon."}, {"role": "assistant", "content": "Noted."})
        log.sessions.create("short", ttl_days=1)
        clock.advance(6 * 60)
        session.info()
        until_idle()
        assert session.info().status == "active"
        log.run_jobs()
        assert session.info().status == "inactive"
        assert [memory.text for memory in log.memory()] == ["I live in Lisbon"]
        clock.advance(2 * 86_400)
        log.run_jobs()
        assert [summary.session_id for summary in log.sessions.list()] == ["s"]
    assert not threads()
