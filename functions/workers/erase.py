"""Lambda entry point: the queue of jobs that erase. No other function may delete."""

from turnlog.http.lambda_workers import make_worker
from turnlog.ports import QUEUES

handler = make_worker(QUEUES["erase"])
