"""No backlog makes a dead letter of a healthy job: the real worker behind a simulated queue, with the numbers of template.yaml."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from tests.support.templates import WORKERS, template
from turnlog.http.lambda_workers import make_worker
from turnlog.jobs.worker import JobOutcome
from turnlog.ports import QUEUES, Delivery
from turnlog.server.lambda_calls import sqs_event

JOBS = 200
CONCURRENCY = 4
SPAWN_SECONDS = 0.01
"""Between two invocations of a function."""


@dataclass(frozen=True)
class Numbers:
    """What the template says of a worker and its queue, in seconds."""

    batch: int
    timeout: int
    visibility: int
    max_receives: int
    longest_summary: float


def numbers_of(worker: str) -> Numbers:
    (source,) = [source for source in template().sources.values() if source["FunctionName"] == worker]
    resources = template().resources
    queue = resources[source["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]
    function = resources[worker]["Properties"]
    seconds = int(function["Environment"]["Variables"].get("TURNLOG_SUMMARY_TIMEOUT_SECONDS", 0))
    return Numbers(
        batch=source["BatchSize"],
        timeout=function["Timeout"],
        visibility=queue["VisibilityTimeout"],
        max_receives=queue["RedrivePolicy"]["maxReceiveCount"],
        longest_summary=seconds * 1.25,  # as `longest_summary_ms` of the application
    )


class Backlog:
    """200 jobs of one kind that wait at once; each takes so many seconds and succeeds."""

    def __init__(self, worker: str, numbers: Numbers, seconds: float) -> None:
        self._numbers, self._seconds, self._now = numbers, seconds, 0.0
        self.longest_summary_ms = numbers.longest_summary * 1000
        self.done = set[str]()
        self.dead = self.received = 0
        self._handler = make_worker(QUEUES[WORKERS[worker]], self)  # type: ignore[arg-type]

    def run_job(self, body: str, kinds: object) -> JobOutcome:
        self._now += self._seconds
        self.done.add(body)
        return JobOutcome(body, "compress", "done")

    def signal(self, *_: object) -> None:
        """No signal is looked at."""

    def drain(self) -> Backlog:
        waiting = [(0.0, number, 0) for number in range(JOBS)]
        free = [0.0] * CONCURRENCY
        while waiting:
            start = max(heapq.heappop(free), waiting[0][0])
            taken = self._receive(waiting, start)
            failed = self._invoke(taken, start) if taken else set()
            for number, receives in taken:
                if str(number) in failed:
                    heapq.heappush(waiting, (start + self._numbers.visibility, number, receives))
            heapq.heappush(free, self._now + SPAWN_SECONDS if taken else start)
        return self

    def _receive(self, waiting: list[tuple[float, int, int]], start: float) -> list[tuple[int, int]]:
        taken = list[tuple[int, int]]()
        while waiting and waiting[0][0] <= start and len(taken) < self._numbers.batch:
            _, number, receives = heapq.heappop(waiting)
            if receives == self._numbers.max_receives:
                self.dead += 1
            else:
                taken.append((number, receives + 1))
        self.received += len(taken)
        return taken

    def _invoke(self, taken: list[tuple[int, int]], start: float) -> set[str]:
        self._now, end = start, start + self._numbers.timeout
        context = SimpleNamespace(get_remaining_time_in_millis=lambda: (end - self._now) * 1000, function_name="worker")
        deliveries = [Delivery(str(number), str(number), "receipt", receives) for number, receives in taken]
        answer = self._handler(sqs_event(deliveries, now_ms=0), context)
        assert self._now <= end, "Lambda ends the function in the middle of a job"
        return {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}


@pytest.mark.parametrize("seconds", [10, 20, 40])
@pytest.mark.parametrize("worker", WORKERS)
def test_no_healthy_job_of_a_backlog_is_a_dead_letter(worker: str, seconds: int) -> None:
    backlog = Backlog(worker, numbers_of(worker), seconds).drain()
    assert (len(backlog.done), backlog.dead, backlog.received) == (JOBS, 0, JOBS), "each is received once"


def test_the_simulation_sees_batches_kill_jobs() -> None:
    """What was found with batches of 10: more than half of the jobs of 20 s died."""
    numbers = numbers_of("OffloadWorker")
    backlog = Backlog("OffloadWorker", Numbers(**{**vars(numbers), "batch": 10}), 20).drain()
    assert backlog.dead > JOBS // 4


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_has_time_for_the_longest_job_it_begins(worker: str) -> None:
    numbers = numbers_of(worker)
    assert numbers.visibility >= 6 * numbers.timeout, "as AWS advises for event source mappings"
    backlog = Backlog(worker, numbers, 1).drain()
    assert backlog.received == JOBS, "a fresh invocation has time to begin a job"
