"""Recall: find a tool call with its result, or a message, anywhere in the log, and return it whole or in part, with its media."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import cast

from turnlog.core.calls import OpenCalls, Ref, id_key, is_ref, pair, parse_ref
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, json_or_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Block, ToolCall, ToolResult
from turnlog.core.recall_calls import MADE_ID
from turnlog.core.times import rfc3339
from turnlog.log.commit import Commit, checked_chain
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import Located, located, newest_pages, with_bodies
from turnlog.providers.blocks import placeholder_text
from turnlog.providers.turnlog_format import media_blocks
from turnlog.search.models import Recalled, RecallQuery
from turnlog.search.text_parts import Extract, capped, part_of
from turnlog.sessions.session_log import SessionLog

MISS = "Tool call result not found"
NEXT_COMMITS = (4, 64)
"""Numbers of commits in the first two pages that are read for a call's result. Later pages have up to 1 MB."""
FIRST_COMMITS = 64
"""Number of commits in the first page that is searched backwards for a call id."""
PAGES, POSITIONS = 32, 4_096
"""A search for a call id or a result stops after so many pages, each one request, or positions. Forks and rewinds end a page."""
_NEWEST_REFS, _HINT_PAGES = 8, 4


@lazy_dataclass(frozen=True, slots=True)
class _Place:
    """A tool call's place in the log, and the commits that were read, from the call's commit on."""

    ref: Ref
    commits: list[Commit]
    newest: Header
    """The header of the log's end. A result that a rewind has hidden does not answer a visible call."""
    others: tuple[Ref, ...] = ()

    def located(self, log: SessionLog, keys: SessionKeys, commits: Sequence[Commit]) -> list[Located]:
        """Return the messages of commits; for a visible call only the visible messages."""
        messages, view = located(log.commits, keys, commits), self.newest.view
        if view.is_cut or not view.shows(self.ref.position):
            return messages
        return [message for message in messages if view.shows(message.event.position)]


class RecallCalls:
    """Use case: return a tool call and its result, or a message.

    By ref this takes two requests for the call, one for a result in a later commit, and one for payloads in items of their own.
    """

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, query: RecallQuery) -> Recalled:
        keys = SessionKeys(owner, session_id)
        if (query.ref is None) == (query.call_id is None):
            raise InvalidInputError.at("/query/ref", "give either ref or call_id")
        extract = part_of(query)
        requested = query.ref or query.call_id or ""
        is_position = query.ref is not None and is_ref(f"{query.ref}.0")
        if query.ref is not None:
            ref = parse_ref(f"{query.ref}.0" if is_position else query.ref, pointer="/query/ref")
            place, hint = self._by_ref(keys, ref, self._log.commits.tail(keys).header)
        else:
            place, hint = self._by_id(keys, requested)
        if place is None:
            return self._miss(keys, requested, hint)
        call_place, result_place, searched_to = self._call_and_result(keys, place)
        if call_place is None:
            message = self._message(keys, place) if is_position else None
            if message is None:
                what = "message" if is_position else f"call {place.ref.index}"
                return self._miss(keys, requested, f"position {place.ref.position} has no {what}")
            return _recalled_message(message, extract, query)
        call_message, call = call_place
        others = place.others
        if is_position:
            others = tuple(Ref(place.ref.position, index) for index in range(1, len(call_message.facts.calls)))
        arguments = capped(call.arguments, query.max_tokens // 2)
        answer = Recalled(
            found=True,
            ref=str(place.ref),
            call_id=call.id,
            name=call.name,
            arguments=arguments.text if arguments.truncated else json_or_text(call.arguments),
            loop=call_message.loop or None,
            called_at=rfc3339(call_message.time_ms),
            truncated=arguments.truncated,
            tokens=arguments.tokens,
            other_refs=[str(ref) for ref in others[:_NEWEST_REFS]] or None,
            media=_media(call_message.message.content, query) if is_position and call_message.message else None,
        )
        if result_place is None:
            until = f" up to position {searched_to}; the search went no further: use its call_id"
            note = "this call has no result" + (until if searched_to < place.newest.last else "")
            return answer.model_copy(update={"note": note})
        result_message, result = result_place
        part = extract(_text(result.content), query.max_tokens - arguments.tokens)
        return answer.model_copy(
            update={
                "position": result_message.event.position,
                "is_error": result.is_error,
                "content": part.text,
                "lines": part.lines,
                "tokens": arguments.tokens + part.tokens,
                "media": [*(answer.media or ()), *(_media(result.content, query) or ())] or None,
                "truncated": arguments.truncated or part.truncated,
                "note": part.note,
            }
        )

    def _by_ref(self, keys: SessionKeys, ref: Ref, newest: Header) -> tuple[_Place | None, str]:
        commits = checked_chain(next(self._log.commits.stored.back(keys, ref.position, limit=1), ()))
        if not commits:
            raise NotFoundError(f"no session {keys.session_id!r}")
        if commits[0].header.last < ref.position:
            return None, f"position {ref.position} is beyond the newest, {commits[0].header.last}"
        return _Place(ref, commits, newest), ""

    def _by_id(self, keys: SessionKeys, call_id: str) -> tuple[_Place | None, str]:
        """Return the place of the newest call with an id, and other such calls on its page; else None and a hint.

        A hint names the oldest position that was searched, where the search stopped early.
        """
        key, later = id_key(call_id), list[Commit]()
        if not key:
            raise InvalidInputError.at("/query/call_id", "call_id is empty")
        for commits in newest_pages(self._log.commits, keys, pages=PAGES, first_limit=FIRST_COMMITS):
            later = [*commits, *later]
            newest, oldest = later[-1].header, later[0].header.first
            uses = [
                Ref(message.event.position, index)
                for message in reversed(located(self._log.commits, keys, commits))
                for index, call in enumerate(message.facts.calls)
                if call.key == key
            ]
            if uses:
                start = next(index for index, commit in enumerate(later) if commit.header.last >= uses[0].position)
                return _Place(uses[0], later[start:], newest, tuple(uses[1 : 1 + _NEWEST_REFS])), ""
            if newest.last - oldest >= POSITIONS:
                break
        match = MADE_ID.fullmatch(call_id)
        if match is not None:
            return self._by_ref(keys, Ref(int(match[1]), int(match[2])), newest)
        if oldest <= 1:
            return None, "no call of this session has this id"
        return None, f"no call from position {oldest} on has this id; the search went no further back: use a ref"

    def _call_and_result(
        self, keys: SessionKeys, place: _Place
    ) -> tuple[tuple[Located, ToolCall] | None, tuple[Located, ToolResult] | None, int]:
        """Return the call and its newest result, each with its message, and the position up to which a result was searched.

        A call or result that is not there is None. Reads commits after the call's until one has a result.
        """
        ref = place.ref
        messages = place.located(self._log, keys, place.commits)
        call_message = next((message for message in messages if message.event.position == ref.position), None)
        if call_message is None or ref.index >= len(call_message.facts.calls):
            return None, None, 0
        # Earlier calls that are still open after this commit: later results may belong to them.
        opened = place.commits[0].header.flow.open_calls
        first = place.commits[0].header.first
        before = OpenCalls(tuple(call for call in opened.calls if call.ref.position < first))
        answered = _result_place(messages, ref, before)
        commits, last, sizes = place.commits, place.commits[-1].header.last, iter(NEXT_COMMITS)
        later = self._log.commits.stored.on(keys, last + 1, limit=lambda _: next(sizes, None), exact=True)
        pages = islice(later, PAGES)
        while (
            answered is None and last < min(place.newest.last, ref.position + POSITIONS) and (page := next(pages, ()))
        ):
            more = checked_chain(page)
            if more[0].header.first != last + 1:
                raise self._log.commits.missing(keys, last + 1)
            commits, last = [*commits, *more], more[-1].header.last
            messages = place.located(self._log, keys, commits)
            answered = _result_place(messages, ref, before)
        result_message = next((item for item in messages if answered and item.event.position == answered[0]), None)
        whole = list(filter(None, (call_message, result_message)))
        call_message, *results = with_bodies(self._log.commits, keys, whole, lambda _: True)
        calling, result = call_message.message, results[0].message if results else None
        assert calling is not None  # noqa: S101 - fetched
        call_place = (call_message, calling.tool_calls[ref.index])
        result_place = (results[0], result.tool_results[answered[1]]) if answered and result is not None else None
        return call_place, result_place, last

    def _message(self, keys: SessionKeys, place: _Place) -> Located | None:
        """Return the message at a place; None when there is none."""
        messages = place.located(self._log, keys, place.commits)
        message = next((message for message in messages if message.event.position == place.ref.position), None)
        return with_bodies(self._log.commits, keys, [message], lambda _: True)[0] if message is not None else None

    def _miss(self, keys: SessionKeys, ref: str | None, hint: str) -> Recalled:
        """Return the answer for a call that was not found, with a hint and the refs of the newest calls."""
        refs = list[str]()
        for page in newest_pages(self._log.commits, keys, pages=_HINT_PAGES, first_limit=FIRST_COMMITS):
            refs += [
                str(Ref(message.event.position, index))
                for message in reversed(located(self._log.commits, keys, page))
                for index in reversed(range(len(message.facts.calls)))
            ]
            if refs:
                break
        return Recalled(found=False, ref=ref, error=MISS, hint=hint, newest_refs=refs[:_NEWEST_REFS])


def _result_place(messages: Sequence[Located], ref: Ref, before: OpenCalls) -> tuple[int, int] | None:
    """Return position and index of the result that answers a call, or None."""
    complete = [message for message in messages if message.event.envelope.status == "complete"]
    return pair(((message.event.position, message.facts) for message in complete), before=before).result_of.get(ref)


def _recalled_message(message: Located, extract: Extract, query: RecallQuery) -> Recalled:
    """Return the answer for a message without calls."""
    content, position = _content(message), message.event.position
    part = extract(_text(content), query.max_tokens)
    return Recalled(
        found=True,
        ref=str(position),
        loop=message.loop or None,
        called_at=rfc3339(message.time_ms),
        position=position,
        content=part.text,
        lines=part.lines,
        tokens=part.tokens,
        media=_media(content, query),
        truncated=part.truncated,
        note=part.note,
    )


def _content(message: Located) -> tuple[Block, ...]:
    """Return the blocks of a message, with those of its results."""
    if message.message is None:
        return ()
    results = (block for result in message.message.tool_results for block in result.content)
    return (*message.message.content, *results)


def _text(content: Sequence[Block]) -> str:
    return "\n".join(placeholder_text(block) for block in content)


def _media(content: Sequence[Block], query: RecallQuery) -> list[JsonObject] | None:
    """Return the media of a content as blocks of the format `turnlog`; None for a query for a part of the text."""
    is_part = any(part is not None for part in (query.pattern, query.from_line, query.to_line, query.pointer))
    return None if is_part else cast("list[JsonObject]", media_blocks(content)) or None
