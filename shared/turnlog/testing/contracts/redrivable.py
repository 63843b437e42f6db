"""What a `Redrivable` queue promises besides `JobQueue`."""

from __future__ import annotations

from turnlog.ports import JobQueue, Redrivable
from turnlog.testing.contracts.job_queue import MARGIN_SECONDS, Advance, receive_all


class RedrivableContract:
    """Fixtures and settings: those of `JobQueueContract`, of a ``queue`` that is `Redrivable` too."""

    visibility_seconds: int = 1
    """The queue's visibility time-out."""
    max_receives: int = 3
    """Deliveries before a job is a dead letter."""

    def test_a_queue_without_dead_letters_redrives_none(self, queue: JobQueue) -> None:
        queue.send("waits", group="acme")
        assert _redrivable(queue).redrive(lambda _body: "acme") == 0
        assert [delivery.body for delivery in receive_all(queue)] == ["waits"]

    def test_a_redriven_job_comes_as_a_new_one(self, queue: JobQueue, advance: Advance) -> None:
        queue.send("mended", group="acme")
        self._outlive(queue, advance)
        assert _redrivable(queue).redrive(lambda _body: "acme") == 1
        assert list(queue.dead_letters()) == []
        for expected in range(1, self.max_receives + 1):
            assert [(one.body, one.receives) for one in receive_all(queue)] == [("mended", expected)]
            advance(self.visibility_seconds + MARGIN_SECONDS)
        assert receive_all(queue) == []
        assert [letter.body for letter in queue.dead_letters()] == ["mended"]

    def test_only_those_that_are_wanted_go_back(self, queue: JobQueue, advance: Advance) -> None:
        bodies = [f"letter {number}" for number in range(13)]
        for body in bodies:
            queue.send(body, group="acme")
        self._outlive(queue, advance)
        wanted = set(bodies[::2])
        assert _redrivable(queue).redrive(lambda body: "acme" if body in wanted else None) == len(wanted)
        assert {delivery.body for delivery in receive_all(queue, acknowledge=True)} == wanted
        advance(MARGIN_SECONDS)
        assert {letter.body for _ in range(9) for letter in queue.dead_letters()} == set(bodies) - wanted

    def _outlive(self, queue: JobQueue, advance: Advance) -> None:
        for _ in range(self.max_receives):
            receive_all(queue)
            advance(self.visibility_seconds + MARGIN_SECONDS)
        assert receive_all(queue) == []


def _redrivable(queue: JobQueue) -> Redrivable:
    assert isinstance(queue, Redrivable)
    return queue
