"""Paging through the full history, and through run loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

from turnlog.codecs.base import Turn
from turnlog.codecs.registry import codec_of
from turnlog.contracts.messages import LoopAnswer, LoopCall, LoopPage, MessagePage, StoredMessage
from turnlog.domain.errors import MalformedError, NotFoundError
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject, encode_json, parse_strict_json
from turnlog.domain.loops import LoopStatus
from turnlog.domain.messages import Message
from turnlog.domain.pairing import Pairing, pair
from turnlog.domain.refs import Ref
from turnlog.domain.times import rfc3339
from turnlog.log.commits import MAX_EVENTS, Commit, checked_chain, read_commit
from turnlog.log.headers import Header
from turnlog.log.keys import MAX_POSITION, SessionKeys, commit_sort_key
from turnlog.log.reading import Located, located
from turnlog.log.sessions import SessionLog
from turnlog.ports import Item, Query

MAX_LIMIT = 100
MAX_PAGE_BYTES = 4 * 1024 * 1024
_PAGE_COMMITS = 64


class ReadMessages:
    """The use case: pages of messages as given, in either order, at most 4 MB each."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(
        self,
        owner: Owner,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = MAX_LIMIT,
        order: Literal["asc", "desc"] = "asc",
        format: str | None = None,
    ) -> MessagePage:
        keys = SessionKeys(owner, session_id)
        if format is not None:
            codec_of(format)
        self._log.commits.tail(keys)
        last = (before if before is not None else MAX_POSITION + 1) - 1
        found, size, more = list[StoredMessage](), 0, False
        messages = self._messages(keys, after + 1, last, descending=order == "desc", limit=limit)
        for count, one in enumerate(messages):
            here = _stored(one, format)
            size += sum(len(encode_json(stored.body)) for stored in here)
            if count == limit or (found and size > MAX_PAGE_BYTES):
                more = True
                break
            found.extend(here)
        return MessagePage(messages=found, next=found[-1].position if more else None)

    def _messages(self, keys: SessionKeys, first: int, last: int, *, descending: bool, limit: int) -> Iterable[Located]:
        """Messages of the positions, a page of commits at a time."""
        if last < first:
            return
        low, high = commit_sort_key(max(1, first - MAX_EVENTS + 1)), commit_sort_key(min(last, MAX_POSITION))
        after: Any = None
        while True:
            page = self._log.items.query(
                Query(
                    keys.partition,
                    low,
                    high,
                    descending=descending,
                    limit=min(_PAGE_COMMITS, limit + MAX_EVENTS),
                    after=after,
                )
            )
            items = page.items[::-1] if descending else page.items
            here = [
                one
                for one in located(self._log.commits, keys, checked_chain(items), fetch=True)
                if first <= one.event.position <= last
            ]
            yield from reversed(here) if descending else here
            after = page.next
            if after is None:
                return


class ReadLoops:
    """The use case: run loops, newest first."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, *, limit: int = 20, before: int | None = None) -> LoopPage:
        keys = SessionKeys(owner, session_id)
        tail = self._log.commits.tail(keys)
        timeout_ms = self._log.short_settings(keys, tail).settings.loop_timeout_seconds * 1000
        newest = tail.header.flow.loop.number
        wanted = min(newest, before - 1) if before is not None else newest
        oldest = max(1, wanted - limit + 1)
        if wanted < 1:
            return LoopPage(loops=[], next=None)
        last = self._last_position(keys, wanted, tail.header)
        messages = [one for one in self._back_to(keys, oldest, last) if oldest <= one.loop <= wanted]
        is_over = bool(tail.header.ended) or (
            not tail.header.pending and self._log.clock.now_ms() - tail.header.time_ms > timeout_ms
        )
        by_loop = dict[int, list[Located]]()
        for one in messages:
            by_loop.setdefault(one.loop, []).append(one)
        pairing = pair((one.event.position, one.facts) for one in messages if one.event.envelope.status == "complete")
        loops = [
            _loop_answer(number, by_loop[number], pairing, is_open=number == newest and not is_over)
            for number in sorted(by_loop, reverse=True)
        ]
        return LoopPage(loops=loops, next=oldest if oldest > 1 else None)

    def _last_position(self, keys: SessionKeys, loop: int, header: Header) -> int:
        """The position up to which the loop may reach, found by halving over commits' headers."""
        if loop >= header.flow.loop.number:
            return header.last
        low, high = 1, header.last
        while low < high:
            middle = (low + high) // 2
            commit = self._commit_at(keys, middle).header
            if commit.flow.loop.number > loop:
                high = middle
            else:
                low = max(middle, commit.last) + 1
        return self._commit_at(keys, high).header.last

    def _commit_at(self, keys: SessionKeys, position: int) -> Commit:
        query = Query(keys.partition, commit_sort_key(1), commit_sort_key(position), descending=True, limit=1)
        items = self._log.items.query(query).items
        if not items:
            raise NotFoundError(f"no session {keys.session_id!r}")
        return read_commit(items[0])

    def _back_to(self, keys: SessionKeys, loop: int, last: int) -> list[Located]:
        """The messages from the beginning of a loop to a position, oldest first."""
        items, after = list[Item](), None
        while True:
            page = self._log.items.query(
                Query(
                    keys.partition,
                    commit_sort_key(1),
                    commit_sort_key(last),
                    descending=True,
                    limit=_PAGE_COMMITS,
                    after=after,
                )
            )
            items.extend(page.items)
            after = page.next
            if after is None or read_commit(items[-1]).header.flow.loop.number < loop:
                break
        found = located(self._log.commits, keys, checked_chain(items[::-1]))
        wanted = [
            one.event
            for one in found
            if one.event.body is None and one.loop >= loop and one.facts.role in ("user", "assistant")
        ]
        bodies = self._log.commits.fetch(keys, wanted)
        return [Located(bodies.get(one.event.position, one.event), one.loop, one.time_ms) for one in found]


def _stored(one: Located, wanted: str | None) -> list[StoredMessage]:
    """The message; as several of one position where the format asked for has no one body for it. The first has the tokens."""
    event, envelope = one.event, one.event.envelope
    assert event.body is not None  # noqa: S101 - fetched
    bodies = [event.body] if wanted is None or wanted == event.format else _converted(one, wanted)
    return [
        StoredMessage(
            position=event.position,
            loop=one.loop or None,
            format=wanted or event.format,
            body=body,
            tokens=0 if at else event.tokens,
            created_at=envelope.created_at or rfc3339(one.time_ms),
            status=envelope.status,
            id=envelope.id,
            author=envelope.author,
            pin=envelope.pin,
            metadata=envelope.metadata,
            finish_reason=envelope.finish_reason,
            is_error=envelope.is_error,
        )
        for at, body in enumerate(bodies)
    ]


def _converted(one: Located, wanted: str) -> list[JsonObject]:
    """The message in another format, by itself: ids as they were given."""
    message = cast("Message", one.message)
    turn = Turn(
        message,
        one.event.format,
        one.event.body,
        tuple(call.id for call in message.tool_calls),
        tuple(result.tool_call_id for result in message.tool_results),
    )
    return codec_of(wanted).bodies(turn) or [{"role": message.given_role, "content": None}]


def _loop_answer(number: int, messages: Sequence[Located], pairing: Pairing, *, is_open: bool) -> LoopAnswer:
    complete = [one for one in messages if one.event.envelope.status == "complete"]
    users = [one for one in complete if one.facts.role == "user" and one.facts.head and not one.facts.calls]
    replies = [one for one in complete if one.facts.role == "assistant"]
    last_reply = replies[-1] if replies else None
    is_final = last_reply is not None and not last_reply.facts.calls
    over: LoopStatus = "closed" if is_final else "interrupted"
    by_position = {one.event.position: one for one in complete}
    return LoopAnswer(
        loop=number,
        status="open" if is_open else over,
        started_at=rfc3339(messages[0].time_ms),
        ended_at=None if is_open else rfc3339(messages[-1].time_ms),
        first=messages[0].event.position,
        last=messages[-1].event.position,
        user_message="\n".join(one.facts.head for one in users) if users else None,
        reply=last_reply.facts.head if last_reply is not None and is_final else None,
        tool_calls=[call for one in complete for call in _calls(one, pairing, by_position)],
        tokens=sum(one.event.tokens for one in messages),
    )


def _calls(one: Located, pairing: Pairing, by_position: dict[int, Located]) -> Iterable[LoopCall]:
    message = one.message
    if message is None:
        return
    for at, call in enumerate(message.tool_calls):
        place = pairing.result_of.get(Ref(one.event.position, at))
        result = by_position.get(place[0]) if place else None
        yield LoopCall(
            ref=str(Ref(one.event.position, at)),
            call_id=call.id,
            name=call.name,
            arguments=_arguments(call.arguments),
            called_at=rfc3339(one.time_ms),
            is_error=result.facts.results[place[1]].is_error if result is not None and place else None,
            tokens=result.event.tokens if result is not None else 0,
        )


def _arguments(text: str) -> object:
    """Arguments as JSON, or as the text that the model wrote where that is no JSON that we send."""
    try:
        return parse_strict_json(text)
    except MalformedError:
        return text
