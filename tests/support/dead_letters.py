"""Dead letters of a queue."""

from __future__ import annotations

from typing import Any

from tests.support.jobs import waiting
from turnlog.testing.contracts.job_queue import dead_letters


def bury(harness: Any, *bodies: str) -> None:
    """Makes dead letters of what waits in the queue and of these bodies."""
    queue = harness.app.engine.queue
    bodies = (*waiting(harness), *bodies)
    if harness.name == "moto":  # its clock is not ours
        bury_on_aws(harness, *bodies)
        return
    for body in bodies:
        queue.send(body, group="acme")
    for _ in range(6):
        queue.receive()
        harness.clock.advance(361)
    assert queue.receive() == []


def bury_on_aws(harness: Any, *bodies: str) -> None:
    url = harness.clients.sqs.get_queue_url(QueueName="jobs-dead")["QueueUrl"]
    for body in bodies:
        harness.clients.sqs.send_message(QueueUrl=url, MessageBody=body)


def letters(harness: Any) -> set[str]:
    return set(dead_letters(harness.app.engine.queue))
