"""Reading closed loops from the log, oldest first, as many as one round takes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from turnlog.domain.values import dataclass
from turnlog.log.commits import Commit
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import Located, located
from turnlog.log.sessions import SessionLog

ROUND_PAGES = 4
"""Pages of history that a round reads, of 1 MB each."""
ROUND_LOOPS = 50
"""Loops that a round covers at most: so many can be told in short without leaving one out."""


@dataclass(frozen=True, slots=True)
class History:
    """Messages of whole loops, and the commits that hold them and the position before them. ``has_more``: so do later ones."""

    messages: Sequence[Located]
    commits: Sequence[Commit]
    has_more: bool

    def commit_of(self, position: int) -> Commit:
        return self.commits[bisect_right(self.commits, position, key=lambda commit: commit.header.first) - 1]

    def while_covered(self, is_covered: Callable[[int, int, int], bool]) -> History:
        """The loops up to the first for which it is not so. It is asked about a loop and what of this comes before it: messages,
        tokens."""
        messages, tokens, loop = 0, 0, 0
        for one in self.messages:
            if one.loop != loop and not is_covered(one.loop, messages, tokens):
                return replace(self, messages=self.messages[:messages] if loop else (), has_more=False)
            loop = one.loop
            messages, tokens = messages + 1, tokens + one.event.tokens
        return self


def read_loops(log: SessionLog, keys: SessionKeys, header: Header, after: int, newest: int) -> History:
    """Whole loops behind a position that are in view at a header, up to loop ``newest``: as many as `ROUND_PAGES` pages hold,
    at least one, and at most `ROUND_LOOPS`."""
    commits, messages, is_all = list[Commit](), list[Located](), True
    last = newest
    for at, here in enumerate(log.commits.in_view_on(keys, header, first=max(1, after))):
        commits += here
        messages += [one for one in located(log.commits, keys, here) if one.event.position > after]
        reached = messages[-1].loop if messages else 0
        opened = max(messages[0].loop, 1) if messages else 0
        last = min(newest, opened + ROUND_LOOPS - 1)
        if reached > last or (at + 1 >= ROUND_PAGES and reached > opened):
            is_all = False
            break
    reached = messages[-1].loop if messages else 0
    # The newest loop of what was read may go on behind it.
    whole = min(last, reached if is_all else reached - 1)
    return History([one for one in messages if one.loop <= whole], commits, has_more=whole < newest)
