"""Lambda handlers of jobs from SQS, and of the retention schedule.

A worker receives a batch of messages and answers with those to be delivered again. A message that fails goes back to the queue
until the redrive policy removes it; it never stops the others of its batch. A job that failed for good is recorded as failed, and
its message is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from turnlog.app import Application, make_application
from turnlog.core.errors import TurnlogError, UnavailableError, describe_error
from turnlog.core.identity import correlated, correlation_of
from turnlog.http.logs import EmfSignals, log_calls, signal_of

DEADLINE_MS = 15_000
"""Time that must be left to begin a job, without the time that the job's model calls may take."""
_CALLS = {"compress": 1, "offload": 2}
"""Number of successive model calls in a job of each kind."""
_log = logging.getLogger("turnlog")


def make_worker(
    kinds: Collection[str], app: Application | None = None
) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Return a Lambda handler for a queue with jobs of these kinds; a job of another kind fails.

    Without ``app``, as in Lambda, the first batch makes the application from environment variables, with metrics as signals.
    """
    holder = [app]

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        application = holder[0] = holder[0] or make_application(signals=EmfSignals())
        deadline_ms = DEADLINE_MS + application.longest_summary_ms * max(_CALLS.get(kind, 0) for kind in kinds)

        def work(record: SQSRecord) -> None:
            if context is not None and context.get_remaining_time_in_millis() < deadline_ms:
                raise UnavailableError("too little time is left to begin a job", code="deadline")
            with correlated(correlation_of(record.body)):
                _run(application, kinds, record)

        processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
        return dict(process_partial_response(event, work, processor))

    return handler if app is not None else log_calls(handler)


def _run(app: Application, kinds: Collection[str], record: SQSRecord) -> None:
    """Run the job of a message, and log ids and codes, never contents."""
    try:
        ran = app.run_job(record.body, kinds=kinds)
    except TurnlogError as error:
        _log.warning("message %s is not done: %s", record.message_id, error.error_code)
        raise
    except Exception as error:
        _log.error("message %s broke the worker: %s", record.message_id, describe_error(error))
        raise
    facts = {"job_id": ran.job_id, "kind": ran.kind, "status": ran.status, "code": ran.code}
    _log.info("job %s (%s) is %s %s", *facts.values(), extra=facts)
    if ran.error is not None and (name := signal_of(ran.error)):
        app.signal(name)


_LAST_BATCH_MS = 60_000
"""Time at the end of an invocation that is reserved for sessions in progress."""


def make_retention(app: Application | None = None) -> Callable[[dict[str, Any], Any], dict[str, int]]:
    """Return a Lambda handler that applies retention, and answers with the number of sessions by outcome.

    The event may name one of several workers, ``{"worker": 0, "workers": 4}``. Each worker handles its part of the due sessions
    for as long as the invocation lasts.

    Without ``app``, as in Lambda, the first event makes the application from environment variables. If a session has failed, the
    handler raises `UnavailableError` at the end, which sets off the alarm on errors; the next run tries the session again.
    """
    holder = [app]

    def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
        application = holder[0] = holder[0] or make_application()
        remaining_ms = context.get_remaining_time_in_millis()
        work_ms = max(remaining_ms - _LAST_BATCH_MS, remaining_ms // 2)
        done = asdict(application.retain_sessions(event.get("worker", 0), event.get("workers", 1), work_ms=work_ms))
        _log.info("retention: %s", done)
        if done["failed"]:
            raise UnavailableError(f"retention of {done['failed']} sessions failed")
        return done

    return handler if app is not None else log_calls(handler)
