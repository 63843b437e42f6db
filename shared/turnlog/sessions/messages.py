"""Read the messages and the run loops of a session, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, Literal, cast

from turnlog.core.calls import MessageOutline, Pairing, Ref, pair, parse_ref
from turnlog.core.errors import CorruptError
from turnlog.core.events import Envelope, MessageEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json, json_or_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_POSITION, MAX_WINDOW_MESSAGES, PAGE_BYTES
from turnlog.core.loops import REASONING, has_open_calls
from turnlog.core.messages import Message
from turnlog.core.models import LoopStatus
from turnlog.core.positions import Stretch, VisibleRanges
from turnlog.core.times import milliseconds_since_epoch, rfc3339
from turnlog.log.commit import Commit
from turnlog.log.commit_items import MAX_EVENTS, PageSize, first_position
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.reading import Located, commit_at, header_at, header_of_moment, located, message_time, with_bodies
from turnlog.ports import Item
from turnlog.providers import Turn
from turnlog.providers.registry import codec_of
from turnlog.sessions.message_models import LoopAnswer, LoopCall, LoopPage, MessagePage, NestedLoop, StoredMessage
from turnlog.sessions.session_log import LogUseCase

MAX_LIMIT = 100
_PAGE_COMMITS = 64


class ReadMessages(LogUseCase):
    """Use case: read pages of messages in either order, each with at most 4 MiB of JSON."""

    def __call__(  # noqa: PLR0913
        self,
        owner: Owner,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = MAX_LIMIT,
        order: Literal["asc", "desc"] = "asc",
        format: str | None = None,
        at: int | str | None = None,
        in_view: bool = False,
    ) -> MessagePage:
        """Return a page of the full history.

        With ``in_view`` leave out what rewinds have taken out of view; with ``at`` return what was in view at that moment.
        """
        keys = SessionKeys(owner, session_id)
        if format is not None:
            codec_of(format)
        log = self._log.commits
        header = log.tail(keys).header if at is None else header_of_moment(log, keys, at, pointer="/query/at")
        last = min(header.last, before - 1) if before is not None else header.last
        view = VisibleRanges() if at is None and not in_view else header.view
        header = replace(header, last=last, view=view)
        messages = self._in_view(keys, header, after + 1, limit, newest_first=order == "desc")
        return _page(messages, limit, format)

    def among(
        self, keys: SessionKeys, header: Header, stretches: Sequence[Stretch], *, after: int, limit: int
    ) -> MessagePage:
        """Return a page of the messages in view at a header whose positions lie in ``stretches``."""
        first = max(after + 1, stretches[0][0]) if stretches else MAX_POSITION
        messages = self._in_view(keys, header, first, limit)
        in_view = (
            message for message in messages if any(first <= message.event.position <= last for first, last in stretches)
        )
        return _page(in_view, limit, None)

    def _in_view(
        self, keys: SessionKeys, header: Header, first: int, limit: int, *, newest_first: bool = False
    ) -> Iterator[Located]:
        """Yield the messages in view at a header from position ``first`` on. ``limit`` messages are read at a time."""
        log = self._log.commits
        if first > header.last:
            return
        read = log.in_view if newest_first else log.in_view_on
        for commits in read(keys, header, first=first, limit=_commits_with(limit, header)):
            messages = located(log, keys, commits, fetch=True)
            for message in reversed(messages) if newest_first else messages:
                if first <= message.event.position <= header.last:
                    yield message


def _commits_with(positions: int, header: Header) -> PageSize:
    """Return a page size: as many commits as hold ``positions`` positions together.

    The first request asks for the right number if all commits have as many events as the newest one, at ``header``.
    """
    positions += MAX_EVENTS
    events = max(1, header.last - header.first + 1)
    limits = chain([-(-positions // events)], repeat(positions))

    def size(items: Sequence[Item]) -> int:
        if not items:
            return min(_PAGE_COMMITS, next(limits))
        begin = first_position(items[0])
        return sum(abs(first_position(item) - begin) < positions for item in items)

    return size


def _page(messages: Iterable[Located], limit: int, format: str | None) -> MessagePage:
    """Return the first messages, up to the limits of a page, with the position to continue from."""
    page, size = list[StoredMessage](), 0
    for count, message in enumerate(messages):
        stored_messages = _stored_messages(message, format)
        size += sum(len(encode_json(stored.model_dump())) for stored in stored_messages)
        if count == limit or (page and size > PAGE_BYTES):
            return MessagePage(messages=page, next=page[-1].position)
        page.extend(stored_messages)
    return MessagePage(messages=page, next=None)


class ReadLoops(LogUseCase):
    """Use case: list run loops, newest first."""

    def __call__(self, owner: Owner, session_id: str, *, limit: int = 20, before: int | None = None) -> LoopPage:
        keys = SessionKeys(owner, session_id)
        tail = self._log.commits.tail(keys)
        timeout_ms = self._log.short_settings(keys, tail).settings.loop_timeout_seconds * 1000
        newest = tail.header.flow.loop.number
        newest_listed = min(newest, before - 1) if before is not None else newest
        oldest = max(1, newest_listed - limit + 1)
        if newest_listed < 1:
            return LoopPage(loops=[], next=None)
        messages, is_cut = self._loops(keys, tail.header, range(oldest, newest_listed + 1))
        is_over = self._is_over(tail.header, timeout_ms)
        by_loop = dict[int, list[_LoopMessage]]()
        for message in messages:
            by_loop.setdefault(message.loop, []).append(message)
        pairing = pair(
            (message.event.position, message.facts)
            for message in messages
            if message.event.envelope.status == "complete" and message.event.envelope.parent is None
        )
        if is_cut:
            oldest = messages[0].loop
        is_partial = is_cut and not messages[0].event.opens_loop
        if is_partial and messages[-1].loop > oldest:
            # The next page has this loop whole.
            del by_loop[oldest]
            oldest, is_partial = oldest + 1, False
        loops, size = list[LoopAnswer](), 0
        for number in sorted(by_loop, reverse=True):
            is_open = number == newest and not is_over
            own = [message for message in by_loop[number] if message.event.envelope.parent is None]
            span = own or by_loop[number]  # all that was read of it may be of agents within its calls
            fields = _loop_fields(own, pairing)
            ended_status: LoopStatus = "closed" if fields["reply"] is not None else "interrupted"
            loop = LoopAnswer(
                loop=number,
                status="open" if is_open else ended_status,
                started_at=rfc3339(span[0].time_ms),
                ended_at=None if is_open else rfc3339(span[-1].time_ms),
                first=span[0].event.position,
                last=span[-1].event.position,
                partial=is_partial,
                nested=_nested_loops(by_loop[number], pairing, is_open=is_open),
                **fields,
            )
            size += len(encode_json(loop.model_dump()))
            if loops and size > PAGE_BYTES:
                return LoopPage(loops=loops, next=loops[-1].loop)
            loops.append(loop)
        return LoopPage(loops=loops, next=oldest if oldest > 1 else None)

    def _is_over(self, header: Header, timeout_ms: int) -> bool:
        """Return whether the newest loop has ended: with its session, by its final reply, or after a time without messages."""
        if header.ended:
            return True
        if header.pending:
            return False
        flow = header.flow
        is_answered = flow.loop.final and flow.previous_role != REASONING and not has_open_calls(flow)
        return is_answered or self._log.clock.now_ms() - header.time_ms > timeout_ms

    def _loops(self, keys: SessionKeys, header: Header, loops: range) -> tuple[list[_LoopMessage], bool]:
        """Return the messages in view of a range of loops, oldest first; those of user and assistant with their bodies.

        Commits after the range are not read: a binary search finds where the range ends. No commits are read behind
        `MAX_WINDOW_MESSAGES` events, so the oldest loop may lack its beginning; the second value says whether that was so.
        """
        log = self._log.commits
        end = header if loops.stop > header.flow.loop.number else self._header_opening(keys, header, loops.stop)
        commits, event_count, is_cut = list[Commit](), 0, False
        positions = len(loops) * end.last // max(1, end.flow.loop.number)
        for page in log.in_view(keys, end, limit=_commits_with(positions, end)):
            commits = [*page, *commits]
            event_count += sum(len(commit.lines) for commit in page)
            is_cut = event_count >= MAX_WINDOW_MESSAGES
            if commits[0].header.flow.loop.number < loops.start or is_cut:
                break
        in_loops = [message for message in located(log, keys, commits) if message.loop in loops]
        whole = with_bodies(log, keys, in_loops, lambda message: message.facts.role in ("user", "assistant"))
        messages = [_loop_message(message) for message in whole]
        return messages, is_cut and bool(messages)

    def _header_opening(self, keys: SessionKeys, header: Header, loop: int) -> Header:
        """Return the header of the commit in view that opens a loop, found by binary search and cut to the view."""
        log = self._log.commits
        stretches = log.view(keys, header).up_to(header.last)
        for index, (first, last) in enumerate(stretches):
            newest = header_at(log, keys, commit_at(log, keys, last), last)
            if newest.flow.loop.number < loop and index + 1 < len(stretches):
                continue
            low, high = first, last
            while low < high:
                middle = (low + high) // 2
                middle_header = log.holding(keys, middle).header
                if middle_header.flow.loop.number >= loop:
                    high = middle
                else:
                    low = max(middle, middle_header.last) + 1
            opening = log.holding(keys, high).header
            return replace(opening, last=min(opening.last, last), view=VisibleRanges(tuple(stretches[:index]), first))
        return header


def _stored_messages(message: Located, format_name: str | None) -> list[StoredMessage]:
    """Return a message as the API sends it.

    A format that needs several bodies for one message gives several entries of one position. The first has the tokens.
    """
    event, envelope = message.event, message.event.envelope
    if event.body is None:
        raise CorruptError("a message without body", item=commit_sort_key(event.position))
    bodies = [event.body] if format_name is None or format_name == event.format else _converted(message, format_name)
    fields = {name: getattr(envelope, name) for name in Envelope.__slots__}
    fields["created_at"] = envelope.created_at or rfc3339(message.time_ms)
    return [
        StoredMessage(
            position=event.position,
            loop=message.loop or None,
            format=format_name or event.format,
            body=body,
            tokens=0 if index else event.tokens,
            redacted=event.redacted,
            **fields,
        )
        for index, body in enumerate(bodies)
    ]


def _converted(located_message: Located, format_name: str) -> list[JsonObject]:
    """Return the bodies of a message in another format, with its call ids unchanged."""
    message = cast("Message", located_message.message)
    turn = Turn.with_own_ids(message, located_message.event.format, located_message.event.body)
    return codec_of(format_name).bodies(turn) or [{"role": message.given_role, "content": None}]


@lazy_dataclass(frozen=True, slots=True)
class _LoopMessage:
    """A message of a loop, parsed once."""

    event: MessageEvent
    loop: int
    time_ms: int
    message: Message | None
    facts: MessageOutline


def _loop_message(located_message: Located) -> _LoopMessage:
    message = located_message.message
    facts = located_message.outline_of(message)
    said_ms = milliseconds_since_epoch(message_time(located_message))
    return _LoopMessage(located_message.event, located_message.loop, said_ms, message, facts)


def _loop_fields(messages: Sequence[_LoopMessage], pairing: Pairing) -> dict[str, Any]:
    """Return the fields that the answers about a loop and about an agent's loop have in common. A closed loop has a reply."""
    complete = [message for message in messages if message.event.envelope.status == "complete"]
    users = [
        message
        for message in complete
        if message.facts.role == "user" and message.facts.head and not message.facts.calls
    ]
    replies = [
        message for message in complete if message.facts.role == "assistant" and message.facts.given_role != REASONING
    ]
    last_reply = replies[-1] if replies else None
    by_position = {message.event.position: message for message in complete}
    return {
        "user_message": "\n".join(message.facts.head for message in users) if users else None,
        "reply": last_reply.facts.head if last_reply is not None and last_reply.facts.is_reply else None,
        "tool_calls": [call for message in complete for call in _calls(message, pairing, by_position)],
        "tokens": sum(message.event.tokens for message in messages),
    }


def _nested_loops(messages: Sequence[_LoopMessage], pairing: Pairing, *, is_open: bool) -> list[NestedLoop]:
    """Return the loops of agents within the calls of a loop, in the order in which they began.

    ``is_open`` is the loop; those of its agents are open until their calls have results, or they have replied.
    """
    by_agent = dict[tuple[str, str], list[_LoopMessage]]()
    for message in messages:
        envelope = message.event.envelope
        if envelope.parent is not None:
            by_agent.setdefault((envelope.parent, envelope.agent_id or ""), []).append(message)
    nested = list[NestedLoop]()
    for (parent, agent_id), own in by_agent.items():
        fields = _loop_fields(own, pair((message.event.position, message.facts) for message in own))
        without_reply: LoopStatus = "open" if is_open and parse_ref(parent) not in pairing.result_of else "interrupted"
        status = "closed" if fields["reply"] is not None else without_reply
        first, last = own[0].event.position, own[-1].event.position
        nested.append(NestedLoop(parent=parent, agent_id=agent_id, status=status, first=first, last=last, **fields))
    return nested


def _calls(located_message: _LoopMessage, pairing: Pairing, by_position: dict[int, _LoopMessage]) -> Iterable[LoopCall]:
    message = located_message.message
    if message is None:
        return
    for index, call in enumerate(message.tool_calls):
        place = pairing.result_of.get(Ref(located_message.event.position, index))
        result = by_position.get(place[0]) if place else None
        yield LoopCall(
            ref=str(Ref(located_message.event.position, index)),
            call_id=call.id,
            name=call.name,
            arguments=json_or_text(call.arguments),
            called_at=rfc3339(located_message.time_ms),
            is_error=result.facts.results[place[1]].is_error if result is not None and place else None,
            tokens=result.event.tokens if result is not None else 0,
        )
