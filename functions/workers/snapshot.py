"""Lambda entry point: the queue of `snapshot` jobs."""

from turnlog.entrypoints.sqs import make_worker

handler = make_worker(["snapshot"])
