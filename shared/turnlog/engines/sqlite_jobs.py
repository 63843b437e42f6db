"""`JobQueue` on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnlog.engines.sqlite import SqliteDatabase
from turnlog.ports import Delivery, IdSource


class SqliteJobQueue:
    """Implements `JobQueue`: at-least-once, fair between groups; a job that fails ``max_receives`` times becomes a dead letter."""

    def __init__(
        self,
        database: SqliteDatabase,
        ids: IdSource,
        now_ms: Callable[[], int],
        *,
        visibility_seconds: int = 360,
        max_receives: int = 5,
    ) -> None:
        self._database = database
        self._ids = ids
        self._now_ms = now_ms
        self._visibility_ms = visibility_seconds * 1000
        self._max_receives = max_receives

    def send(self, body: str, *, group: str, delay_seconds: int = 0) -> str:
        job_id, now = self._ids.new_id(), self._now_ms()
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO jobs (id, grp, body, visible_ms, sent) VALUES (?, ?, ?, ?, ?)",
                (job_id, group, body, now + delay_seconds * 1000, now),
            )
        return job_id

    def receive(self, *, limit: int = 10) -> Sequence[Delivery]:
        now, deliveries = self._now_ms(), list[Delivery]()
        with self._database.reading() as connection:
            # A worker polls several times a second, so an empty queue must not take the lock for writing.
            if (
                connection.execute("SELECT 1 FROM jobs WHERE dead = 0 AND visible_ms <= ? LIMIT 1", (now,)).fetchone()
                is None
            ):
                return deliveries
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE jobs SET dead = 1, receipt = NULL WHERE dead = 0 AND visible_ms <= ? AND receives >= ?",
                (now, self._max_receives),
            )
            rows = connection.execute(
                "SELECT row, id, body, receives FROM (SELECT rowid AS row, id, body, receives, sent,"
                " ROW_NUMBER() OVER (PARTITION BY grp ORDER BY sent, id) AS turn"
                " FROM jobs WHERE dead = 0 AND visible_ms <= ?) ORDER BY turn, sent LIMIT ?",
                (now, max(1, min(limit, 10))),
            ).fetchall()
            for row, job_id, body, receives in rows:
                receipt = self._ids.new_id()
                connection.execute(
                    "UPDATE jobs SET visible_ms = ?, receives = receives + 1, receipt = ? WHERE rowid = ?",
                    (now + self._visibility_ms, receipt, row),
                )
                deliveries.append(Delivery(job_id, body, receipt, receives + 1))
        return deliveries

    def acknowledge(self, receipt: str) -> None:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM jobs WHERE receipt = ?", (receipt,))

    def postpone(self, receipt: str, *, seconds: int) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE jobs SET visible_ms = ? WHERE receipt = ?", (self._now_ms() + seconds * 1000, receipt)
            )

    def dead_letters(self, *, limit: int = 10) -> Sequence[Delivery]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id, body, receives FROM jobs WHERE dead = 1 OR (visible_ms <= ? AND receives >= ?)"
                " ORDER BY sent, id LIMIT ?",
                (self._now_ms(), self._max_receives, limit),
            ).fetchall()
        return [Delivery(job_id, body, "", receives) for job_id, body, receives in rows]

    def redrive(self, group_of: Callable[[str], str | None]) -> int:
        """Implement `Redrivable`, in one transaction."""
        now = self._now_ms()
        with self._database.writing() as connection:
            rows = connection.execute(
                "SELECT rowid, body FROM jobs WHERE dead = 1 OR (visible_ms <= ? AND receives >= ?)",
                (now, self._max_receives),
            ).fetchall()
            wanted = [(now, group, row) for row, body in rows if (group := group_of(body)) is not None]
            connection.executemany(
                "UPDATE jobs SET dead = 0, receives = 0, receipt = NULL, visible_ms = ?, grp = ? WHERE rowid = ?",
                wanted,
            )
        return len(wanted)
