"""What is tried: cells of sessions, writers and readers, and how many requests each of them makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """So many sessions, each with so many writers and readers at once, over so many servers of one file.

    ``appends`` is of one writer, ``reads`` of one reader. Every ``if_head_every``-th append names the head that its writer knows.
    """

    sessions: int
    writers: int
    readers: int
    appends: int
    reads: int = 0
    servers: int = 1
    if_head_every: int = 4

    @property
    def name(self) -> str:
        shape = f"{self.sessions} x {self.writers} x {self.readers}"
        return shape if self.servers == 1 else f"{shape}, {self.servers} servers"

    @property
    def clients(self) -> int:
        """Threads that send requests, each with a client of its own."""
        return self.sessions * (self.writers + self.readers)


_SHAPES = ((1, 1, 0, 1), (8, 1, 1, 1), (8, 4, 4, 1), (1, 16, 8, 1), (64, 1, 1, 1), (64, 2, 0, 1), (8, 4, 4, 2))
"""Sessions, writers, readers, servers. 64 x 2 x 0: more connections than a server with a limit of 100 would take."""
_APPENDS = {"embedded": 1_000, "moto": 200}
_QUICK_SHAPES = ((4, 1, 1, 1), (1, 8, 4, 1))
_QUICK_APPENDS = {"embedded": 120, "moto": 40}


def grid(engine: str, *, quick: bool = False) -> list[Cell]:
    """Return the cells of an engine: about as many appends each, and reads by as many readers. Only a file can be shared."""
    appends = (_QUICK_APPENDS if quick else _APPENDS)[engine]
    shapes = [
        quick_shape
        for quick_shape in (_QUICK_SHAPES if quick else _SHAPES)
        if quick_shape[3] == 1 or engine == "embedded"
    ]
    return [cell(*shape, appends=appends) for shape in shapes]


def cell(sessions: int, writers: int, readers: int, servers: int = 1, *, appends: int) -> Cell:
    """Return a cell of about so many appends together, and one read for each append where there are readers."""
    each = max(2, appends // (sessions * writers))
    return Cell(sessions, writers, readers, each, max(2, each * writers // readers) if readers else 0, servers)
