"""Messages of the log with their loop and time, headers at any moment, and the searchable text of messages.

A moment is a position, or a time (RFC 3339).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Protocol, TypeVar

from turnlog.core.calls import MessageOutline, outline_of
from turnlog.core.errors import CorruptError, InvalidInputError, NotFoundError, Problem
from turnlog.core.events import Event, LoggedMessage, MessageEvent
from turnlog.core.limits import MAX_POSITION
from turnlog.core.loops import Arrival, accept
from turnlog.core.messages import Message
from turnlog.core.times import caller_time, milliseconds_of
from turnlog.log.commit import Commit, header_in, read_commit
from turnlog.log.commit_items import is_tombstone, shared_position
from turnlog.log.commits import CommitLog
from turnlog.log.headers import CREATION, Header
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.ports import Item
from turnlog.providers.blocks import objects_in, placeholder_text
from turnlog.providers.registry import CODECS

NEAR = 64
"""Commits that a search by time reads at once, when it has narrowed the log down to that many positions."""
INDEXED_CHARS = 20_000
_CAPTIONS = ("caption", "alt", "alt_text", "title")


class Located(LoggedMessage):
    """A message of the log that can be read: parsed, in outline, and as the rules of loops take it."""

    __slots__ = ()

    @property
    def message(self) -> Message | None:
        """The parsed message, or None while its payload is not fetched."""
        if self.event.body is None:
            return None
        return CODECS[self.event.format].parse(self.event.body, is_error=self.event.envelope.is_error)

    @property
    def facts(self) -> MessageOutline:
        """The message's outline: from its body, or from the card of a payload that is not fetched."""
        return self.outline_of(self.message)

    def outline_of(self, message: Message | None) -> MessageOutline:
        """Return the outline of the parsed message, or the card's when it is None."""
        if message is not None:
            return outline_of(message)
        if self.event.facts is None:
            raise CorruptError("a message without body and card", item=commit_sort_key(self.event.position))
        return self.event.facts

    def arrival(self, *, index: int = 0, timed_out: bool, joins: bool = False) -> Arrival:
        """Return the message as `accept` takes it. Contents of a payload that is not fetched are not checked then."""
        event, message = self.event, self.message
        return Arrival(
            position=event.position,
            index=index,
            message=message if message is not None else Message("unknown"),
            facts=self.outline_of(message),
            tokens=event.tokens,
            interrupted=event.envelope.status == "interrupted",
            timed_out=timed_out,
            joins=joins,
        )


class _HasEvent(Protocol):
    @property
    def event(self) -> MessageEvent: ...


_Message = TypeVar("_Message", bound=_HasEvent)


def located(log: CommitLog, keys: SessionKeys, commits: Sequence[Commit], *, fetch: bool = False) -> list[Located]:
    """Return the messages in view of commits, in order.

    Payloads are fetched with ``fetch``, and always for a message without a card.
    """
    messages = list[Located]()
    for commit in commits:
        messages.extend(placed(log.events(keys, [commit], fetch=False), commit))
    return with_bodies(log, keys, messages, lambda message: fetch or message.event.facts is None)


def with_bodies(
    log: CommitLog, keys: SessionKeys, messages: list[Located], is_wanted: Callable[[Located], bool]
) -> list[Located]:
    """Return the messages. Missing bodies of messages that ``is_wanted`` accepts are fetched, in one request."""
    bodies = log.fetch(
        keys, [message.event for message in messages if message.event.body is None and is_wanted(message)]
    )
    if not bodies:
        return messages
    return [replace(message, event=bodies.get(message.event.position, message.event)) for message in messages]


def newest_commits(commits: Sequence[Commit], *, events: int) -> Sequence[Commit]:
    """Return the newest commits that have at least ``events`` events together; all when there are fewer."""
    count = 0
    for index in range(len(commits) - 1, -1, -1):
        count += len(commits[index].lines)
        if count >= events:
            return commits[index:]
    return commits


def newest_within(
    messages: Sequence[_Message], *, max_messages: int, max_calls: int, loop_start: int = 0
) -> list[_Message]:
    """Return the newest messages, up to ``max_messages`` with ``max_calls`` calls and results, which bounds the work of a reader.

    The newest message is always among them, and so is the one at position ``loop_start``, which opens the newest loop.
    """
    newest, call_count = list[_Message](), 0
    for message in reversed(messages[-max_messages:]):
        call_count += calls_in(message.event)
        if newest and call_count > max_calls:
            break
        newest.append(message)
    older = messages[: len(messages) - len(newest)]
    return [*(message for message in older if message.event.position == loop_start), *reversed(newest)]


def calls_in(event: MessageEvent) -> int:
    """Return the calls and results of a message without parsing it: a block that has no text counts as one."""
    if event.body is None:
        return len(event.facts.calls) + len(event.facts.results) if event.facts is not None else 0
    lists = (value for value in event.body.values() if isinstance(value, list))
    return sum(isinstance(block, dict) and "text" not in block for blocks in lists for block in blocks)


def placed(events: Iterable[Event], commit: Commit) -> Iterator[Located]:
    """Yield the messages among the events of a commit, with their loop and time."""
    opened = next((line["o"] for line in commit.lines if line["k"] == "m" and "o" in line), None)
    loop = opened - 1 if opened is not None else commit.header.flow.loop.number
    for event in events:
        if isinstance(event, MessageEvent):
            loop = event.opens_loop or loop
            yield Located(event, loop, commit.header.time_ms)


def position_at(log: CommitLog, keys: SessionKeys, time_ms: int) -> int | None:
    """Return the newest position at a time; None for a time before the session's creation.

    Takes one request for a time among the newest 64 commits. Earlier times take one more for each halving of the log down
    to 64 positions.
    """
    low, high = 0, MAX_POSITION + 1
    while high - low > 1:
        # Commits from `high` on are too new; commits up to `low` are old enough.
        is_near = high - low <= NEAR or high > MAX_POSITION
        last = high - 1 if is_near else (low + high) // 2
        items = next(log.stored.back(keys, last, limit=NEAR if is_near else 1), ())
        if not items or is_tombstone(items):
            raise NotFoundError(f"no session {keys.session_id!r}")
        if high > MAX_POSITION:
            log.check_alive(keys, header_in(items[0]))
        for header in map(header_in, items):
            if header.time_ms > time_ms:
                high = header.first
            elif is_near:
                return header.last
            else:
                low = header.last
    return low or None


def header_at(log: CommitLog, keys: SessionKeys, item: Item, position: int, *, before: Item | None = None) -> Header:
    """Return the header as if the log ended at a position inside the commit in ``item``.

    ``before`` is the commit before, where it is read already. For a position before the commit's end, messages up to the position
    are folded onto its header; usage that the commit reports stays in effect. When a fork shares only a part of the
    commit, the commit ends with that part. The first commit of a session always counts as a whole, because a session that
    begins with memories has them from position 1 on.
    """
    header, position = header_in(item), shared_position(item, position)
    if position == header.last or header.kind == CREATION:
        return header
    previous = header_in(before) if before is not None else log.holding(keys, header.first - 1).header
    flow = previous.flow
    for message in located(log, keys, [read_commit(item)]):
        if message.event.position <= position and message.event.envelope.parent is None:
            opens_loop = message.event.opens_loop > 0
            flow = accept(flow, message.arrival(timed_out=opens_loop, joins=not opens_loop)).flow
    # A commit's state event is its last.
    return replace(header, last=position, flow=flow, last_state=previous.last_state)


def newest_pages(
    log: CommitLog, keys: SessionKeys, *, pages: int | None, first_limit: int | None = None, first: int = 1
) -> Iterator[list[Commit]]:
    """Yield up to ``pages`` pages of the newest commits in view; None means all. Within a page the oldest commit is first.

    The hash chain is checked. Each page is one request of at most 1 MB. ``first`` is the oldest position needed; the newest
    commit is always included. ``first_limit`` limits the commits of the first page. Raises `NotFoundError` when there is
    no session.
    """
    newest = next(log.stored.back(keys, first=first, first_limit=first_limit), ())
    if not newest or is_tombstone(newest[:1]):
        raise NotFoundError(f"no session {keys.session_id!r}")
    header = header_in(newest[0])
    log.check_alive(keys, header)
    yield from islice(log.in_view(keys, header, first=first, read=newest), pages)


def searchable_text(item: Located, message: Message | None, facts: MessageOutline) -> str:
    """Return the searchable text of a parsed message: text, calls with their arguments, results and captions.

    For a payload that is not fetched, whose message is None, it is the text in the card.
    """
    texts = [facts.head]
    if message is not None:
        texts += [placeholder_text(block) for block in message.content if not hasattr(block, "text")]
        texts += captions(item.event.body)
        results = [placeholder_text(block) for result in message.tool_results for block in result.content]
    else:
        results = [result.text for result in facts.results]
    calls = [f"{call.name} {call.arguments}" for call in facts.calls]
    return "\n".join(text for text in (*texts, *calls, *results, " ".join(facts.ledger)) if text)[:INDEXED_CHARS]


def captions(body: object) -> list[str]:
    """Return the captions of pictures and files in a message's body, from the fields that formats and people use."""
    blocks = objects_in(body.get("content")) if isinstance(body, dict) else []
    inner = [part for block in blocks for part in block.values() if isinstance(part, dict)]
    values = [part.get(name) for part in (*blocks, *inner) for name in _CAPTIONS]
    return [text for text in values if isinstance(text, str)]


def message_time(message: Located) -> datetime:
    """Return the time of a message: the caller's own time if there is one (UTC without a zone), else the commit's time."""
    return caller_time(message.event.envelope.created_at, message.time_ms)


def position_of_moment(log: CommitLog, keys: SessionKeys, moment: int | str, *, pointer: str = "/at") -> int:
    """Return the position of a moment. `NotFoundError` without the session; a position above the head is not checked here."""
    if isinstance(moment, int):
        log.tail(keys)
        return moment
    try:
        time_ms = milliseconds_of(moment)
    except ValueError as error:
        message = f"{moment[:64]!r} is neither a position nor a time such as 2026-01-31T12:00:00Z"
        raise InvalidInputError.at(pointer, message) from error
    position = position_at(log, keys, time_ms)
    if position is None:
        raise InvalidInputError.at(pointer, f"the session is newer than {moment}")
    return position


def above_head_error(header: Header, position: int, *, pointer: str = "/at") -> InvalidInputError:
    """Return the error for a position that the log has not reached. ``header`` is the newest commit's."""
    message = f"position {position} is above the head, {header.last}"
    return InvalidInputError(
        message, problems=[Problem("invalid_parameter", pointer, message)], details={"head": header.last}
    )


def commit_at(log: CommitLog, keys: SessionKeys, position: int, *, pointer: str = "/at") -> Item:
    """Return the item of the commit that holds a position, in one request. `InvalidInputError` for one above the head."""
    items = next(log.stored.back(keys, position, limit=1), ())
    if not items or is_tombstone(items):
        raise NotFoundError(f"no session {keys.session_id!r}")
    header = header_in(items[0])
    if position > header.last:
        if position <= log.tail(keys).header.last:
            raise log.missing(keys, position)
        raise above_head_error(header, position, pointer=pointer)
    return items[0]


def header_of_moment(log: CommitLog, keys: SessionKeys, moment: int | str, *, pointer: str = "/at") -> Header:
    """Return the header that the log would have if it ended at a moment: with the view, settings and summary of then."""
    position = position_of_moment(log, keys, moment, pointer=pointer)
    return header_at(log, keys, commit_at(log, keys, position, pointer=pointer), position)
