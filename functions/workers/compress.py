"""Lambda entry point: the queue of `compress` jobs."""

from turnlog.entrypoints.sqs import make_worker

handler = make_worker(["compress"])
