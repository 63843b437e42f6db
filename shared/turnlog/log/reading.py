"""Messages with their place: which loop, when, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from turnlog.core.calls import MessageOutline, outline_of
from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.events import Event, MessageEvent
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.loops import Arrival, Flow, accept
from turnlog.core.messages import Message
from turnlog.log.commit_items import is_tombstone, shared_position
from turnlog.log.commits import Commit, CommitLog, header_in, read_commit
from turnlog.log.headers import CREATION, Header
from turnlog.log.keys import MAX_POSITION, SessionKeys, commit_sort_key
from turnlog.log.read_lines import opened_loops
from turnlog.ports import Item
from turnlog.providers.blocks import placeholder_text
from turnlog.providers.registry import CODECS


@lazy_dataclass(frozen=True, slots=True)
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
    def facts(self) -> MessageOutline:
        message = self.message
        if message is not None:
            return outline_of(message)
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


NEAR = 64
"""So many commits are read at once where the search is near, instead of asking for one after the other."""


def position_at(log: CommitLog, keys: SessionKeys, time_ms: int) -> int | None:
    """The newest position at a time; None before creation.

    One request while the time is among the newest 64 commits; before them one more for each halving of the log down to 64
    positions.
    """
    low, high = 0, MAX_POSITION + 1
    while high - low > 1:
        # All that is newer than `high` is too new, all up to `low` is old enough.
        is_near = high - low <= NEAR or high > MAX_POSITION
        at = high - 1 if is_near else (low + high) // 2
        found = next(log.stored.back(keys, at, limit=NEAR if is_near else 1), ())
        if not found or is_tombstone(found):
            raise NotFoundError(f"no session {keys.session_id!r}")
        if high > MAX_POSITION:
            log.check_alive(keys, header_in(found[0]))
        for header in map(header_in, found):
            if header.time_ms > time_ms:
                high = header.first
            elif is_near:
                return header.last
            else:
                low = header.last
    return low or None


def header_at(log: CommitLog, keys: SessionKeys, item: Item, position: int, before: Callable[[], Header]) -> Header:
    """The header as if the log ended at a position of a commit, whose item is given. ``before`` brings the header before it.

    Inside a commit its messages up to the position are folded onto the commit before; what the whole commit told (of usage)
    holds. Of a commit that a fork shares only in part the end is where that part ends. A session begins with all of its first
    commit: what it knows from memory is there from position 1 on.
    """
    header, position = header_in(item), shared_position(item, position)
    if position == header.last or header.kind == CREATION:
        return header
    commit, previous = read_commit(item), before()
    flow: Flow = previous.flow
    for one in located(log, keys, [commit]):
        if one.event.position <= position:
            arrival = Arrival(
                position=one.event.position,
                index=0,
                message=one.message or Message("unknown"),
                facts=one.facts,
                tokens=one.event.tokens,
                interrupted=one.event.envelope.status == "interrupted",
                timed_out=one.event.opens_loop > 0,
            )
            flow = accept(flow, arrival).flow
    # A commit's state event is its last.
    return replace(header, last=position, flow=flow, last_state=previous.last_state)


def newest_pages(
    log: CommitLog, keys: SessionKeys, *, pages: int | None, first_limit: int | None = None, first: int = 1
) -> Iterator[list[Commit]]:
    """At most so many pages, each oldest commit first and checked as a chain; each is one request of at most 1 MB.

    ``first`` is the oldest position that is wanted; the newest commit is there in any case. ``first_limit`` counts the commits of
    the first page. `NotFoundError` when there is no session.
    """
    newest = next(log.stored.back(keys, first=first, first_limit=first_limit), ())
    if not newest or is_tombstone(newest[:1]):
        raise NotFoundError(f"no session {keys.session_id!r}")
    header = header_in(newest[0])
    log.check_alive(keys, header)
    yield from islice(log.in_view(keys, header, first=first, read=newest), pages)


INDEXED_CHARS = 20_000


def shown_text(one: Located, facts: MessageOutline) -> str:
    """What can be found: text, calls with their arguments, results, captions; of a payload not at hand what its card has."""
    message = one.message
    texts = [facts.head]
    if message is not None:
        texts += [placeholder_text(block) for block in message.content if not hasattr(block, "text")]
        texts += captions(one.event.body)
        results = [placeholder_text(block) for result in message.tool_results for block in result.content]
    else:
        results = [result.text for result in facts.results]
    calls = [f"{call.name} {call.arguments}" for call in facts.calls]
    return "\n".join(text for text in (*texts, *calls, *results, " ".join(facts.ledger)) if text)[:INDEXED_CHARS]


def captions(body: object) -> list[str]:
    """What a message says about its pictures and files: the fields by which formats and people caption blocks."""
    content = body.get("content") if isinstance(body, dict) else None
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    inner = [part for block in blocks for part in block.values() if isinstance(part, dict)]
    found = [part.get(name) for part in (*blocks, *inner) for name in _CAPTIONS]
    return [text for text in found if isinstance(text, str)]


_CAPTIONS = ("caption", "alt", "alt_text", "title")


def said_at(one: Located) -> datetime:
    """When it was said: the caller's own time where there is one, in UTC if that names no zone."""
    try:
        moment = datetime.fromisoformat(one.event.envelope.created_at or "")
    except ValueError:
        return datetime.fromtimestamp(one.time_ms / 1000, UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
