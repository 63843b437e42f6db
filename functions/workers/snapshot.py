"""Lambda entry point: the queue of `snapshot` jobs."""

from turnlog.core.jobs import QUEUES
from turnlog.http.lambda_workers import make_worker

handler = make_worker(QUEUES["snapshot"])
