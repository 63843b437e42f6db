"""Lambda entry point: the queue of jobs that erase. No other function may delete."""

from turnlog.core.jobs import QUEUES
from turnlog.http.lambda_workers import make_worker

handler = make_worker(QUEUES["erase"])
