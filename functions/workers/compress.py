"""Lambda entry point: the queue of `compress`, `seal` and `index` jobs."""

from turnlog.http.lambda_workers import make_worker
from turnlog.ports import QUEUES

handler = make_worker(QUEUES["compress"])
