"""The contract suite of `JobQueue`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from turnlog.ports import Delivery, JobQueue, Redrivable

Advance: TypeAlias = Callable[[float], None]
"""Lets a number of seconds pass for the queue: advances an engine's clock, or sleeps."""

MARGIN_SECONDS = 0.2


class _QueueContract:
    visibility_seconds: int = 1
    """The queue's visibility timeout. Tests act within it, so an engine on real time may need a longer one."""
    max_receives: int = 3
    """Deliveries before a job is a dead letter."""

    def _outlast(self, advance: Advance) -> None:
        advance(self.visibility_seconds + MARGIN_SECONDS)

    def _use_up(self, queue: JobQueue, advance: Advance) -> None:
        """Receive every job until it is a dead letter."""
        for _ in range(self.max_receives):
            receive_all(queue)
            self._outlast(advance)
        assert receive_all(queue) == []


class JobQueueContract(_QueueContract):
    """Tests of a `JobQueue`. Fixtures: ``queue``, empty and with the two settings, and ``advance``, an `Advance`."""

    outdated_receipt_is_ignored: bool = True
    """False for an emulator that deletes a job by an outdated receipt; a real engine must not."""

    def test_a_job_arrives_once_and_not_again_when_acknowledged(self, queue: JobQueue, advance: Advance) -> None:
        job_id = queue.send('{"job": "compress", "text": "Grüße, 世界 🌍"}', group="acme")
        (delivery,) = receive_all(queue)
        assert delivery.job_id == job_id
        assert delivery.body == '{"job": "compress", "text": "Grüße, 世界 🌍"}'
        assert delivery.receives == 1
        queue.acknowledge(delivery.receipt)
        self._outlast(advance)
        assert receive_all(queue) == []

    def test_an_empty_queue_answers_at_once(self, queue: JobQueue) -> None:
        assert list(queue.receive()) == []

    def test_a_received_job_is_invisible_until_the_time_out_and_then_comes_again(
        self, queue: JobQueue, advance: Advance
    ) -> None:
        job_id = queue.send("body", group="acme")
        (first,) = receive_all(queue)
        assert receive_all(queue) == []
        self._outlast(advance)
        (second,) = receive_all(queue)
        assert (second.job_id, second.body, second.receives) == (job_id, "body", 2)
        assert second.receipt != first.receipt

    def test_equal_bodies_are_jobs_of_their_own(self, queue: JobQueue) -> None:
        ids = {queue.send("same", group="acme") for _ in range(3)}
        assert len(ids) == 3
        assert {delivery.job_id for delivery in receive_all(queue)} == ids

    def test_every_job_of_every_group_arrives_at_most_ten_at_a_time(self, queue: JobQueue) -> None:
        ids = {queue.send(f"job {number}", group=f"tenant-{number % 3}") for number in range(23)}
        seen: list[Delivery] = []
        while batch := queue.receive(limit=10):
            assert len(batch) <= 10
            seen += batch
        assert len(seen) == 23
        assert {delivery.job_id for delivery in seen} == ids

    def test_receive_keeps_to_its_limit(self, queue: JobQueue) -> None:
        for number in range(3):
            queue.send(f"job {number}", group="acme")
        assert len(queue.receive(limit=2)) == 2
        assert len(queue.receive(limit=2)) == 1

    def test_a_delayed_job_comes_after_its_delay(self, queue: JobQueue, advance: Advance) -> None:
        queue.send("later", group="acme", delay_seconds=2)
        queue.send("now", group="acme")
        assert [delivery.body for delivery in receive_all(queue, acknowledge=True)] == ["now"]
        advance(2 + MARGIN_SECONDS)
        assert [delivery.body for delivery in receive_all(queue)] == ["later"]

    def test_a_job_is_delivered_max_receives_times(self, queue: JobQueue, advance: Advance) -> None:
        job_id = queue.send("poison", group="acme")
        for expected in range(1, self.max_receives + 1):
            assert [(delivery.job_id, delivery.receives) for delivery in receive_all(queue)] == [(job_id, expected)]
            self._outlast(advance)
        assert receive_all(queue) == []

    def test_a_poison_job_does_not_hold_up_the_others(self, queue: JobQueue, advance: Advance) -> None:
        for body in ("good 1", "poison", "good 2"):
            queue.send(body, group="acme")
        done: list[str] = []
        for _ in range(self.max_receives + 1):
            for delivery in receive_all(queue):
                if delivery.body != "poison":
                    queue.acknowledge(delivery.receipt)
                    done.append(delivery.body)
            self._outlast(advance)
        assert sorted(done) == ["good 1", "good 2"]

    def test_an_outdated_receipt_is_no_error(self, queue: JobQueue, advance: Advance) -> None:
        queue.send("body", group="acme")
        (outdated,) = receive_all(queue)
        self._outlast(advance)
        (newest,) = receive_all(queue)
        queue.acknowledge(outdated.receipt)
        if self.outdated_receipt_is_ignored:
            self._outlast(advance)
            (newest,) = receive_all(queue)
        queue.acknowledge(newest.receipt)
        self._outlast(advance)
        assert receive_all(queue) == []

    def test_a_receipt_of_a_finished_job_is_no_error(self, queue: JobQueue, advance: Advance) -> None:
        queue.send("body", group="acme")
        (delivery,) = receive_all(queue)
        queue.acknowledge(delivery.receipt)
        queue.acknowledge(delivery.receipt)
        self._outlast(advance)
        assert receive_all(queue) == []


def receive_all(queue: JobQueue, *, acknowledge: bool = False) -> list[Delivery]:
    """Receive until two answers are empty: a short poll of a real queue asks only some of its hosts."""
    seen: list[Delivery] = []
    empty = 0
    while empty < 2:
        batch: Sequence[Delivery] = queue.receive()
        empty = 0 if batch else empty + 1
        seen += batch
        if acknowledge:
            for delivery in batch:
                queue.acknowledge(delivery.receipt)
    return seen


def dead_letters(queue: JobQueue) -> list[str]:
    """Return the bodies of the dead letters of a `Redrivable` queue, by a redrive that wants none."""
    bodies = list[str]()

    def leave(body: str) -> None:
        bodies.append(body)

    assert _redrivable(queue).redrive(leave) == 0
    return bodies


class RedrivableContract(_QueueContract):
    """Tests of a `Redrivable` queue. Fixtures and settings are those of `JobQueueContract`."""

    def test_a_queue_without_dead_letters_redrives_none(self, queue: JobQueue) -> None:
        queue.send("waits", group="acme")
        assert _redrivable(queue).redrive(lambda _body: "acme") == 0
        assert [delivery.body for delivery in receive_all(queue)] == ["waits"]

    def test_a_redriven_job_comes_as_a_new_one(self, queue: JobQueue, advance: Advance) -> None:
        queue.send("mended", group="acme")
        self._use_up(queue, advance)
        assert _redrivable(queue).redrive(lambda _body: "acme") == 1
        assert dead_letters(queue) == []
        for expected in range(1, self.max_receives + 1):
            assert [(delivery.body, delivery.receives) for delivery in receive_all(queue)] == [("mended", expected)]
            self._outlast(advance)
        assert receive_all(queue) == []
        assert dead_letters(queue) == ["mended"]

    def test_only_those_that_are_wanted_go_back(self, queue: JobQueue, advance: Advance) -> None:
        bodies = [f"letter {number}" for number in range(13)]
        for body in bodies:
            queue.send(body, group="acme")
        self._use_up(queue, advance)
        chosen = set(bodies[::2])
        assert _redrivable(queue).redrive(lambda body: "acme" if body in chosen else None) == len(chosen)
        assert {delivery.body for delivery in receive_all(queue, acknowledge=True)} == chosen
        for _ in range(self.max_receives + 2):
            advance(MARGIN_SECONDS)
            assert set(dead_letters(queue)) == set(bodies) - chosen


def _redrivable(queue: JobQueue) -> Redrivable:
    assert isinstance(queue, Redrivable)
    return queue
