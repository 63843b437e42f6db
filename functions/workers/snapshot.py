"""Lambda entry point: the queue of `snapshot`, `restore` and `export` jobs."""

from turnlog.http.lambda_workers import make_worker
from turnlog.ports import QUEUES

handler = make_worker(QUEUES["snapshot"])
