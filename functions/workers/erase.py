"""Lambda entry point: the queue of jobs that erase. No other function may delete."""

from turnlog.domain.jobs import QUEUES
from turnlog.entrypoints.sqs import make_worker

handler = make_worker(QUEUES["erase"])
