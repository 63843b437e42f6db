"""Calls of Lambda workers on this machine, as AWS makes them: a `Poller` polls a queue and passes its jobs on as SQS events."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from turnlog.core.errors import TurnlogError, describe_error
from turnlog.ports import Clock, Delivery, JobQueue


class LocalContext:
    """A Lambda context for handlers that run on this machine."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def get_remaining_time_in_millis(self) -> int:
        """Return the full time at every call, because nothing ends a handler on this machine."""
        return self._milliseconds


def sqs_event(deliveries: Sequence[Delivery], *, now_ms: int) -> dict[str, Any]:
    """Return the event of a batch of jobs, as an SQS event source mapping sends it."""
    return {
        "Records": [
            {
                "messageId": delivery.job_id,
                "receiptHandle": delivery.receipt,
                "body": delivery.body,
                "attributes": {"ApproximateReceiveCount": str(delivery.receives), "SentTimestamp": str(now_ms)},
                "messageAttributes": {},
                "md5OfBody": hashlib.md5(delivery.body.encode(), usedforsecurity=False).hexdigest(),
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:local:000000000000:turnlog",
                "awsRegion": "local",
            }
            for delivery in deliveries
        ]
    }


Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
_IDLE_SECONDS, _TROUBLE_SECONDS = 0.2, 2.0
_STOP_SECONDS = 60
_WORKER_MS = 24 * 3_600_000
"""The remaining time that a worker sees; on this machine nothing ends it."""
_CHORE_MS = 60_000
_log = logging.getLogger("turnlog")


class Poller:
    """Polls one queue in a thread between `start` and `stop`. A job that its handler reports as failed becomes visible again."""

    def __init__(
        self, queue: JobQueue, handler: Handler, *, clock: Clock, chore: Callable[[], object] | None = None
    ) -> None:
        """``chore`` runs at the start and then every minute, as a schedule does in AWS."""
        self._queue = queue
        self._handler = handler
        self._clock = clock
        self._chore = chore
        self._chore_ms = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Poller:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="turnlog-poller", daemon=True)
        self._thread.start()  # Ctrl-C may interrupt this call while the thread runs; `stop` then needs ``_thread``
        return self

    def stop(self) -> None:
        """Take no new job and wait up to a minute for the one under way."""
        self._stopping.set()
        # A thread that is not alive has ended, or will see the stop flag before it does anything.
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._thread = None

    def run_once(self) -> int:
        """Handle one job and return the number of jobs received, 0 when the queue is empty."""
        # One at a time: a job that waits behind another may become visible again before it starts, which wastes a receive.
        deliveries = self._queue.receive(limit=1)
        for delivery in deliveries:
            answer = self._handler(sqs_event([delivery], now_ms=self._clock.now_ms()), LocalContext(_WORKER_MS))
            if not answer.get("batchItemFailures"):
                self._queue.acknowledge(delivery.receipt)
        return len(deliveries)

    def run_chore(self) -> None:
        """Run the chore when a minute has passed since the last run."""
        now = self._clock.now_ms()
        if self._chore is not None and now >= self._chore_ms:
            self._chore_ms = now + _CHORE_MS
            self._chore()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run_chore()
                pause = 0.0 if self.run_once() else _IDLE_SECONDS
            except TurnlogError as error:
                _log.warning("the queue can't be polled: %s", error.error_code)
                pause = _TROUBLE_SECONDS
            except Exception as error:  # noqa: BLE001 - the thread must go on; nothing is acknowledged
                _log.error("the poller met %s", describe_error(error))
                pause = _TROUBLE_SECONDS
            self._stopping.wait(pause)
