"""Recall: a tool call and its result, whole or a part, from wherever it is in the log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from turnlog.core.calls import OpenCalls, pair
from turnlog.core.errors import InvalidInputError, MalformedError, NotFoundError, Problem
from turnlog.core.events import MessageEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import parse_strict_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import ToolCall, ToolResult
from turnlog.core.positions import VisibleRanges
from turnlog.core.refs import Ref, call_key, parse_ref
from turnlog.core.times import rfc3339
from turnlog.log.commits import Commit, checked_chain
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import Located, located, newest_pages
from turnlog.providers.blocks import placeholder_text
from turnlog.search.models import Recalled, RecallQuery
from turnlog.search.parts import capped, part_of
from turnlog.sessions.session_log import SessionLog

MISS = "Tool call result not found"
NEXT_COMMITS = (4, 64, 64)
"""How many commits behind a call are read for its result, a request each, until it is there."""
BACK_PAGES = 4
"""How far back a call id is looked for: pages of at most 1 MB, the first of `FIRST_COMMITS` commits."""
FIRST_COMMITS = 64
_NEWEST_REFS = 8
_MADE_ID = re.compile(r"call_([1-9][0-9]{0,11})_(0|[1-9][0-9]{0,5})")


@lazy_dataclass(frozen=True, slots=True)
class _Place:
    """A call in the log, and the commits from its own on that have been read."""

    ref: Ref
    commits: list[Commit]
    is_all: bool = False
    others: tuple[Ref, ...] = ()
    view: VisibleRanges | None = None
    """Results that a rewind took out of it do not answer a call that is in it."""

    def located(self, log: SessionLog, keys: SessionKeys, commits: Sequence[Commit]) -> list[Located]:
        found, view = located(log.commits, keys, commits), self.view
        if view is None or view.is_cut or not view.shows(self.ref.position):
            return found
        return [one for one in found if view.shows(one.event.position)]


class RecallCalls:
    """The use case: by ref two requests for the call, one for a result in a later commit, one for payloads out of line."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, query: RecallQuery) -> Recalled:
        keys = SessionKeys(owner, session_id)
        if (query.ref is None) == (query.call_id is None):
            message = "give one of ref and call_id"
            raise InvalidInputError(message, problems=[Problem("invalid_parameter", "/query/ref", message)])
        extract = part_of(query)
        place, asked = None, query.ref
        if query.ref is not None:
            ref = parse_ref(query.ref, pointer="/query/ref")
            place, hint = self._by_ref(keys, ref, self._log.commits.tail(keys).header.view)
        else:
            asked = query.call_id or ""
            place, hint = self._by_id(keys, asked)
        if place is None:
            return self._miss(keys, asked, hint)
        call, result = self._call_and_result(keys, place)
        if call is None:
            return self._miss(keys, asked, f"position {place.ref.position} has no call {place.ref.index}")
        made, of_call = call
        arguments, arguments_cut = capped(of_call.arguments, query.max_tokens // 2)
        answer = Recalled(
            found=True,
            ref=str(place.ref),
            call_id=of_call.id,
            name=of_call.name,
            arguments=arguments.text if arguments_cut else _json_or_text(of_call.arguments),
            loop=made.loop or None,
            called_at=rfc3339(made.time_ms),
            truncated=arguments_cut,
            tokens=arguments.tokens,
            other_refs=[str(ref) for ref in place.others] or None,
        )
        if result is None:
            return answer.model_copy(update={"note": "this call has no result"})
        of_result, given = result
        part = extract(
            "\n".join(placeholder_text(block) for block in given.content), query.max_tokens - arguments.tokens
        )
        return answer.model_copy(
            update={
                "position": of_result.event.position,
                "is_error": given.is_error,
                "content": part.text,
                "lines": part.lines,
                "tokens": arguments.tokens + part.tokens,
                "truncated": arguments_cut or part.truncated,
                "note": part.note,
            }
        )

    # ------------------------------------------------------------ finding the call

    def _by_ref(self, keys: SessionKeys, ref: Ref, view: VisibleRanges | None = None) -> tuple[_Place | None, str]:
        commits = checked_chain(next(self._log.commits.stored.back(keys, ref.position, limit=1), ()))
        if not commits:
            raise NotFoundError(f"no session {keys.session_id!r}")
        if commits[0].header.last < ref.position:
            return None, f"position {ref.position} is beyond the newest, {commits[0].header.last}"
        return _Place(ref, commits, view=view), ""

    def _by_id(self, keys: SessionKeys, call_id: str) -> tuple[_Place | None, str]:
        """The newest use of a call id, and the others on its page. Looks back a bounded way and says how far."""
        key, later, oldest = call_key(ToolCall(call_id, "", "")), list[Commit](), 0
        if not key:
            raise InvalidInputError(
                "call_id is empty", problems=[Problem("invalid_parameter", "/query/call_id", "empty")]
            )
        for commits in newest_pages(self._log.commits, keys, pages=BACK_PAGES, first_limit=FIRST_COMMITS):
            later, oldest = [*commits, *later], commits[0].header.first
            uses = [
                Ref(one.event.position, at)
                for one in reversed(located(self._log.commits, keys, commits))
                for at, call in enumerate(one.facts.calls)
                if call.key == key
            ]
            if uses:
                at = next(at for at, commit in enumerate(later) if commit.header.last >= uses[0].position)
                return _Place(uses[0], later[at:], is_all=True, others=tuple(uses[1 : 1 + _NEWEST_REFS])), ""
        made = _MADE_ID.fullmatch(call_id)
        if made is not None:
            return self._by_ref(keys, Ref(int(made[1]), int(made[2])))
        if oldest <= 1:
            return None, "no call of this session has this id"
        return None, f"no call from position {oldest} on has this id; the search went no further back: use a ref"

    # ------------------------------------------------------------ its content

    def _call_and_result(
        self, keys: SessionKeys, place: _Place
    ) -> tuple[tuple[Located, ToolCall] | None, tuple[Located, ToolResult] | None]:
        """The call, and its newest result among the commits that were read up to where it has one."""
        ref = place.ref
        found = place.located(self._log, keys, place.commits)
        made = next((one for one in found if one.event.position == ref.position), None)
        if made is None or ref.index >= len(made.facts.calls):
            return None, None
        # Calls of before that were open still after this commit: results behind it may be theirs.
        opened = place.commits[0].header.flow.open_calls
        first = place.commits[0].header.first
        before = OpenCalls(tuple(call for call in opened.calls if call.ref.position < first))
        answered = _result_place(found, ref, before)
        batches = iter(() if place.is_all else NEXT_COMMITS)
        commits, last = place.commits, place.commits[-1]
        while answered is None and (limit := next(batches, None)) is not None:
            page = next(self._log.commits.stored.on(keys, last.header.last + 1, limit=limit, exact=True), ())
            if not page:
                break
            more = checked_chain(page)
            if more[0].header.first != last.header.last + 1:
                raise self._log.commits.missing(keys, last.header.last + 1)
            commits, last = [*commits, *more], more[-1]
            found = place.located(self._log, keys, commits)
            answered = _result_place(found, ref, before)
        result = next((one for one in found if answered and one.event.position == answered[0]), None)
        made, result = self._with_bodies(keys, made, result)
        message = made.message
        assert message is not None  # noqa: S101 - fetched
        call = (made, message.tool_calls[ref.index])
        if result is None or answered is None or result.message is None:
            return call, None
        return call, (result, result.message.tool_results[answered[1]])

    def _with_bodies(self, keys: SessionKeys, made: Located, result: Located | None) -> tuple[Located, Located | None]:
        wanted = [one.event for one in (made, result) if one is not None and one.event.body is None]
        bodies = self._log.commits.fetch(keys, wanted) if wanted else {}
        return _with_body(made, bodies), _with_body(result, bodies) if result is not None else None

    def _miss(self, keys: SessionKeys, ref: str | None, hint: str) -> Recalled:
        """Nothing there: why, and which calls are the newest."""
        page = next(iter(newest_pages(self._log.commits, keys, pages=1, first_limit=FIRST_COMMITS)))
        refs = [
            str(Ref(one.event.position, at))
            for one in reversed(located(self._log.commits, keys, page))
            for at in reversed(range(len(one.facts.calls)))
        ][:_NEWEST_REFS]
        return Recalled(found=False, ref=ref, error=MISS, hint=hint, newest_refs=refs)


def _result_place(found: Sequence[Located], ref: Ref, before: OpenCalls) -> tuple[int, int] | None:
    complete = ((one.event.position, one.facts) for one in found if one.event.envelope.status == "complete")
    return pair(complete, before=before).result_of.get(ref)


def _with_body(one: Located, bodies: dict[int, MessageEvent]) -> Located:
    return Located(bodies.get(one.event.position, one.event), one.loop, one.time_ms)


def _json_or_text(text: str) -> object:
    try:
        return parse_strict_json(text)
    except MalformedError:
        return text
