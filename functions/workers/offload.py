"""Lambda entry point: the queue of `offload` jobs."""

from turnlog.domain.jobs import QUEUES
from turnlog.entrypoints.sqs import make_worker

handler = make_worker(QUEUES["offload"])
