"""Calls of the route table in this process, with the same checks as over HTTP, and a worker for the jobs that they start."""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import BaseModel

from turnlog.app import Application, make_application
from turnlog.core.errors import InvalidInputError, NotFoundError, TurnlogError, UnavailableError, describe_error
from turnlog.core.identity import Owner, correlated, correlation_of, serving
from turnlog.core.json_values import checked_json, joined_pairs
from turnlog.engines import FunctionModel
from turnlog.jobs.models import Redriven
from turnlog.log.keys import SessionKeys
from turnlog.log.links import DOWNLOADS
from turnlog.log.tombstones import due_shards
from turnlog.ports import JOB_KINDS, Prompt
from turnlog.routing import BY_NAME, JSON, HttpRequest, call
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.upkeep.backup import Backup
    from turnlog.upkeep.verify import Verification

_STOP_SECONDS, _FORK_SECONDS = 60.0, 5.0
"""Time that the end of a process or a client, and a fork, wait for the job under way."""
_LAST_START_SECONDS = 5.0
"""Time in which an ending worker still begins jobs that are due."""
_LONGEST_PAUSE_SECONDS, _TROUBLE_SECONDS = 30.0, 1.0
_RETENTION_SECONDS = 60.0
"""Time after which a call looks again for sessions that have expired or fallen silent."""
_log = logging.getLogger("turnlog")


class JobWorker:
    """A worker for an embedded engine: a daemon thread that runs the jobs of the engine's queue.

    The thread starts when a job waits and ends when none is left, so an idle library has no thread. It also starts what
    sessions are due for that have expired or fallen silent. Several processes with one file take jobs from one queue. A job
    that is cut off is delivered again, to any of them.
    """

    _thread: threading.Thread | None

    def __init__(self, app: Application) -> None:
        self._app = app
        self.forget_thread()
        _WORKERS.add(self)

    def wake(self) -> None:
        """Start the thread if a job waits in the queue, or a session is due. Never raises: the call before it has succeeded."""
        due_ms = None
        with suppress(TurnlogError):
            due_ms = self._next_job_ms()
            if self._finds_due_sessions():
                self._must_retain, due_ms = True, 0
        if due_ms is None:
            return
        with self._lock:
            if not self._is_ending and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="turnlog-worker", daemon=True)
                self._thread.start()
            elif due_ms <= self._app.clock.now_ms() and self._changes.empty():
                self._changes.put(None)

    def retain_sessions(self) -> None:
        """Start the jobs of sessions that have expired or fallen silent. Looks for them at most once a minute."""
        if self._app.engine.next_job_ms is not None and self._finds_due_sessions():
            self._app.retain_sessions()

    def run_next(self) -> bool | None:
        """Run the next job that is due, and return whether it is done; None when no job is due."""
        queue = self._app.engine.queue
        if queue is None:
            return None
        with self._running:  # one job at a time, so that `run_jobs` returns after the thread's job
            delivery = next(iter(queue.receive(limit=1)), None)
            if delivery is None:
                return None
            try:
                with correlated(correlation_of(delivery.body)):
                    self._app.run_job(delivery.body, kinds=JOB_KINDS)
            except TurnlogError as error:
                # The queue delivers a failed job again, and moves it to the dead letters after several tries.
                _log.info("message %s is not done: %s", delivery.job_id, error.error_code)
                return False
            queue.acknowledge(delivery.receipt)
            return True

    def run_job(self, owner: Owner, job_id: str) -> None:
        """Run one queued job, and no other that waits. A failed try is noted in the job, which stays in the queue."""
        if self._app.engine.queue is None:
            return
        with self._running:
            try:
                self._app.run_job.run_now(owner, job_id)
            except TurnlogError as error:
                _log.info("job %s is not done: %s", job_id, error.error_code)

    def stop(self, *, start_seconds: float = _LAST_START_SECONDS, wait_seconds: float = _STOP_SECONDS) -> None:
        """End the thread after the job under way, and after the other due jobs that begin within ``start_seconds``.

        Waits for the thread for at most ``wait_seconds``.
        """
        thread, self._last_start = self._thread, time.monotonic() + start_seconds
        self.end()
        self._changes.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait_seconds)

    def end(self) -> None:
        """Tell the thread to end. Takes no lock, because it is called when the garbage collector finds an unused client."""
        self._is_ending = True

    def resume(self) -> None:
        """Let the next `wake` start the thread again."""
        self._is_ending = False

    def forget_thread(self) -> None:
        """Set the state of a worker without a thread: at its creation, and in a forked child, which has no other thread."""
        self._thread, self._last_start, self._is_ending = None, 0.0, False
        self._must_retain, self._next_look = False, 0.0
        # A queue and no Event, whose lock stays taken when Ctrl-C comes while it is set.
        self._lock, self._running, self._changes = threading.Lock(), threading.RLock(), SimpleQueue[None]()

    def _next_job_ms(self) -> int | None:
        next_job_ms = self._app.engine.next_job_ms
        return next_job_ms() if next_job_ms is not None else None

    def _finds_due_sessions(self) -> bool:
        """Return whether a session has expired or fallen silent. Looks once a minute; in between the answer is False."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _RETENTION_SECONDS
        return self._app.engine.has_due(due_shards(), f"{self._app.clock.now_ms() + 1:013d}")

    def _run(self) -> None:
        pause_seconds: float | None = 0.0
        while pause_seconds is not None:
            with suppress(Empty):
                self._changes.get(timeout=pause_seconds)
            try:
                if self._must_retain:
                    self._must_retain = False
                    self._app.retain_sessions()
                while self._may_start() and self.run_next() is not None:
                    pass
                pause_seconds = self._pause_seconds()
            except Exception as error:  # noqa: BLE001 - a job that broke the worker is not acknowledged, and comes again
                _log.error("the worker met %s", describe_error(error))
                pause_seconds = _TROUBLE_SECONDS if self._may_start() else None

    def _may_start(self) -> bool:
        return not self._is_ending or time.monotonic() < self._last_start

    def _pause_seconds(self) -> float | None:
        """Return the time until the next job is due, or None to end the thread, which `wake` then starts again."""
        with self._lock:
            due_ms = self._next_job_ms() if not self._is_ending else None
            if due_ms is None:
                self._thread = None
                return None
        return min(max(0.0, (due_ms - self._app.clock.now_ms()) / 1000), _LONGEST_PAUSE_SECONDS)


_WORKERS: weakref.WeakSet[JobWorker] = weakref.WeakSet()


def _with_all_workers(act: Callable[[JobWorker], None]) -> Callable[[], None]:
    """Return a function that calls ``act`` with every worker of the process."""

    def call() -> None:
        for worker in list(_WORKERS):
            act(worker)

    return call


atexit.register(_with_all_workers(JobWorker.stop))
if hasattr(os, "register_at_fork"):
    # What is registered later runs earlier before a fork: jobs end, then the databases of this module pause.
    import turnlog.engines.sqlite  # noqa: F401

    os.register_at_fork(
        # The threads end, so that a child inherits no lock that a thread holds. The next call starts them again.
        before=_with_all_workers(lambda worker: worker.stop(start_seconds=0.0, wait_seconds=_FORK_SECONDS)),
        after_in_parent=_with_all_workers(JobWorker.resume),
        after_in_child=_with_all_workers(JobWorker.forget_thread),
    )


class InProcessBackend:
    """`Backend` over an application in this process."""

    def __init__(self, app: Application, owner: Owner, *, worker: bool = False) -> None:
        """Create a backend. With ``worker``, a thread runs the jobs that calls start and those that other processes left."""
        self.app = app
        self.owner = owner
        self._closed = False
        self._worker = JobWorker(app)
        self._has_worker = worker
        weakref.finalize(self, self._worker.end).atexit = False

    def __str__(self) -> str:
        place = self.app.settings.engine.partition("?")[0]
        return f"{place}, tenant={self.owner.tenant!r}, user={self.owner.user!r}"

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | BaseModel | None = None,
        idempotency_key: str | None = None,
        media_type: str | None = None,
    ) -> Any:
        self._check_open()
        if body is not None and not isinstance(body, BaseModel):
            body = checked_json(body)
        request = HttpRequest(
            owner=self.owner,
            path=path or {},
            query={name: joined_pairs(str(value)) for name, value in (query or {}).items() if value is not None},
            body=body,
            idempotency_key=idempotency_key,
            media_type=media_type or JSON,
            is_operator=True,  # a program with an engine reads what it likes
        )
        try:
            return call(self.app, BY_NAME[operation], request).answer
        finally:
            self._wake_worker()

    def run_jobs(self) -> int:
        self._check_open()
        self._worker.retain_sessions()
        done = 0
        while (is_done := self._worker.run_next()) is not None:
            done += is_done
        return done

    def run_job(self, job_id: str) -> None:
        self._check_open()
        self._worker.run_job(self.owner, job_id)

    def download(self, url: str, into: BinaryIO) -> None:
        self._check_open()
        if url.startswith(DOWNLOADS):
            with serving(self.owner.tenant_id):
                into.write(self.app.links.open(self.owner, url[len(DOWNLOADS) :]).data)
            return
        from turnlog.client.over_http import fetch

        fetch(url, into)

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven:
        self._check_open()
        with serving(self.owner.tenant_id):
            redriven = self.app.redrive_jobs(self.owner, job_id, failed=failed)
        self._wake_worker()
        return redriven

    def verify(self, session_id: str | None, progress: Callable[[Verification], None]) -> Verification:
        self._check_open()
        keys = SessionKeys(self.owner, session_id) if session_id is not None else None
        with serving(self.owner.tenant_id):
            done = self.app.upkeep.verify(keys, progress)
        if keys is not None and not (done.sessions or done.snapshots or done.damages):
            raise NotFoundError(f"no session {session_id!r}")
        return done

    def back_up(self, path: Path, progress: Callable[[Verification], None]) -> Backup:
        self._check_open()
        return self.app.upkeep.back_up(path, progress)

    def close(self) -> None:
        self._closed = True
        try:
            self._worker.stop()
        finally:
            self.app.close()

    def _wake_worker(self) -> None:
        if self._has_worker:
            self._worker.wake()

    def _check_open(self) -> None:
        # Checked here too: a call that needs no engine must also fail after close, as it does over HTTP.
        if self._closed:
            raise UnavailableError("the client is closed", code="closed")


def open_backend(
    url: str, *, tenant: str, user: str, worker: bool | None = None, summariser: Callable[[Prompt], str] | None = None
) -> InProcessBackend:
    """Open a backend over the engine that the URL names. Its other settings come from the environment.

    By default an embedded engine has a worker, and one on AWS has none: there, deployed functions do the jobs.
    """
    if summariser is not None and not callable(summariser):
        raise InvalidInputError(f"summariser is a function of a Prompt, not a {type(summariser).__name__}")
    if any(map(inspect.iscoroutinefunction, (summariser, getattr(type(summariser), "__call__", None)))):  # noqa: B004
        raise InvalidInputError("summariser is not awaited: give lambda prompt: asyncio.run(FUNCTION(prompt))")
    model = FunctionModel(summariser) if summariser is not None else None
    owner = Owner.of(tenant, user)
    settings = Settings.from_environment().model_copy(update={"engine": url})
    try:
        app = make_application(settings, summary_model=model)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "botocore":
            raise
        raise InvalidInputError("dynamodb:// needs boto3: pip install 'turnlog[aws]'", code="extra_missing") from error
    is_embedded = app.engine.next_job_ms is not None
    if worker and not is_embedded:
        raise InvalidInputError(
            "worker=True is for sqlite:/// and memory://; on dynamodb:// deployed functions do the jobs"
        )
    return InProcessBackend(app, owner, worker=is_embedded if worker is None else worker)
