"""The tree of a session's rounds: which stored texts a summary is written of anew, so that no job reads the history again.

Each round of compression stores in short what it has read. Eight such texts are put together to one of the next level, eight
of these again: all that was covered stands in a few texts however long the session is.
"""

from __future__ import annotations

from turnlog.domain.values import dataclass

FAN = 8
"""So many texts are put together to one."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A stored text: ``level`` 0 tells of one round, the next of `FAN` of the level below. ``position`` is that of the summary
    which holds it."""

    level: int
    position: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A tree with one round more. ``branches`` are its texts, oldest first; the newest, of ``level``, is made in this round:
    of what the round has read and, group by group, of the texts of ``merged``."""

    branches: tuple[Branch, ...]
    level: int
    merged: tuple[tuple[Branch, ...], ...]

    @property
    def is_rebuilt(self) -> bool:
        """Whether the summary is to be written anew of all texts: every `FAN` rounds."""
        return bool(self.merged)


def grown(tree: tuple[Branch, ...]) -> Growth:
    """The tree with one round more."""
    older, level, merged = tree, 0, list[tuple[Branch, ...]]()
    while len(older) >= FAN - 1 and all(branch.level == level for branch in older[1 - FAN :]):
        older, group = older[: 1 - FAN], older[1 - FAN :]
        merged.append(group)
        level += 1
    return Growth(older, level, tuple(merged))
