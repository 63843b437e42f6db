"""Lambda entry point: the queue of `compress` and `seal` jobs."""

from turnlog.http.lambda_workers import make_worker
from turnlog.ports import QUEUES

handler = make_worker(QUEUES["compress"])
