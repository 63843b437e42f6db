"""Messages with their place: which loop, when, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from turnlog.codecs.registry import CODECS
from turnlog.domain.errors import CorruptError
from turnlog.domain.events import Event, MessageEvent
from turnlog.domain.facts import Facts, facts_of
from turnlog.domain.messages import Message
from turnlog.domain.values import dataclass
from turnlog.log.commits import Commit, CommitLog
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.read_lines import opened_loops


@dataclass(frozen=True, slots=True)
class Located:
    """A message of the log. ``loop`` is 0 before the first loop. Facts of a payload come from its card."""

    event: MessageEvent
    loop: int
    time_ms: int

    @property
    def message(self) -> Message | None:
        if self.event.body is None:
            return None
        return CODECS[self.event.format].parse(self.event.body, is_error=self.event.envelope.is_error)

    @property
    def facts(self) -> Facts:
        message = self.message
        if message is not None:
            return facts_of(message)
        if self.event.facts is None:
            raise CorruptError("a message without body and card", item=commit_sort_key(self.event.position))
        return self.event.facts


def located(log: CommitLog, keys: SessionKeys, commits: Sequence[Commit], *, fetch: bool = False) -> list[Located]:
    """The messages of commits in order. Payloads are fetched when ``fetch``, and always where there is no card."""
    found = list[Located]()
    for commit in commits:
        found.extend(placed(log.events(keys, [commit], fetch=False), commit))
    bare = [one.event for one in found if one.event.body is None and (fetch or one.event.facts is None)]
    if not bare:
        return found
    bodies = log.fetch(keys, bare)
    return [Located(bodies.get(one.event.position, one.event), one.loop, one.time_ms) for one in found]


def placed(events: Iterable[Event], commit: Commit) -> Iterator[Located]:
    """The messages among the events of one commit."""
    opened = opened_loops(commit.lines)
    loop = opened[0] - 1 if opened else commit.header.flow.loop.number
    for event in events:
        if isinstance(event, MessageEvent):
            loop = event.opens_loop or loop
            yield Located(event, loop, commit.header.time_ms)
