"""Jobs that are delivered, and queues that are polled."""

from __future__ import annotations

from typing import Any

from turnlog.http.lambda_workers import make_worker
from turnlog.ports import JOB_KINDS, Delivery
from turnlog.server.lambda_calls import LocalContext, Poller, sqs_event


def poller(harness: Any, kinds: Any = JOB_KINDS) -> Poller:
    return Poller(harness.app.engine.queue, make_worker(kinds, harness.app), clock=harness.clock)


def deliver(harness: Any, *bodies: str, milliseconds: int = 60_000, kinds: Any = JOB_KINDS) -> set[str]:
    """The message ids that the worker gives back."""
    deliveries = [Delivery(f"m{at}", body, f"r{at}", 1) for at, body in enumerate(bodies)]
    answer = make_worker(kinds, harness.app)(sqs_event(deliveries, now_ms=0), LocalContext(milliseconds))
    return {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}


def waiting(harness: Any) -> list[str]:
    return [delivery.body for delivery in harness.app.engine.queue.receive()]
