"""Lambda entry point: the queue of `offload` jobs."""

from turnlog.core.jobs import QUEUES
from turnlog.http.lambda_workers import make_worker

handler = make_worker(QUEUES["offload"])
