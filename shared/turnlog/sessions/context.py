"""Build windows of a session, or of a list of messages.

Nothing is written and no model is called. Windows of a session use stored token counts, so they need no tokeniser.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from turnlog.core.errors import BuildMismatchError, CorruptError, InvalidInputError, OtherRendererError, Problem
from turnlog.core.events import MessageEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.limits import MAX_WINDOW_MESSAGES
from turnlog.core.loops import Arrival, Flow, accept
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import rfc3339
from turnlog.log.commit import Commit, clipped, header_in
from turnlog.log.commit_items import first_position, is_tombstone
from turnlog.log.headers import Header
from turnlog.log.keys import COMMITS_FROM, META, SUMMARY, SYSTEM, WINDOW_TO, SessionKeys, commit_sort_key
from turnlog.log.reading import (
    Located,
    above_head_error,
    header_at,
    located,
    newest_commits,
    newest_within,
    position_of_moment,
)
from turnlog.log.tombstones import MATERIALISING
from turnlog.ports import Item, Query, TokenCounter
from turnlog.providers.registry import codec_of
from turnlog.providers.token_rules import count_tools
from turnlog.sessions.context_models import (
    Breakpoint,
    BudgetAnswer,
    Build,
    BuildContext,
    BuildWindow,
    EpochAnswer,
    GivenBuild,
    ManifestAnswer,
    OpenCall,
    PrefixAnswer,
    WindowAnswer,
    WindowPart,
)
from turnlog.sessions.context_requests import (
    ContextRequest,
    RequestHistory,
    counted_by_the_provider,
    effective,
    request_of,
)
from turnlog.sessions.incoming import MAX_CALLS, understand, with_calls
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.build import MessageList, Source, Window, WindowRequest, build, system_cost
from turnlog.windows.epochs import EpochStart
from turnlog.windows.manifest import ManifestPart
from turnlog.windows.version import RENDERER_VERSION

_FIELDS_WITH_BUILD = frozenset({"build", "tools"})

if TYPE_CHECKING:
    from turnlog.summaries.store import Summaries


def position_of_call(log: SessionLog, keys: SessionKeys, body: BuildContext) -> int | None:
    """Return the position to build the window at, from ``at`` or ``build``; None for the head."""
    if body.build is None:
        return position_of_moment(log.commits, keys, body.at) if body.at is not None else None
    extra_fields = sorted(body.model_fields_set - _FIELDS_WITH_BUILD)
    if extra_fields:
        raise _invalid(f"/{extra_fields[0]}", f"{extra_fields[0]} can't be sent with build, which contains it")
    if body.build.renderer != RENDERER_VERSION:
        message = f"the build is of renderer version {body.build.renderer}; this is version {RENDERER_VERSION}"
        raise OtherRendererError(message, details={"renderer": RENDERER_VERSION})
    return position_of_moment(log.commits, keys, body.build.position)


def check_head(header: Header, position: int, *, build: GivenBuild | None) -> None:
    """Refuse a position that the log has not reached. ``header`` is that of the newest commit up to the position."""
    if position <= header.last:
        return
    error = above_head_error(header, position)
    if build is not None:
        raise BuildMismatchError(error.detail, details=error.details)
    raise error


def check_build(build: GivenBuild, header: Header, tools: Sequence[JsonObject] | None) -> None:
    """Refuse a build whose commit, summary or tools differ from the log's. ``header`` is the one at the build's position."""
    if build.commit != header.hash.hex() or build.clock != rfc3339(header.time_ms):
        _mismatch("commit", f"the commit of position {build.position} differs from the one in the build")
    if build.summary != (header.summary.position if header.summary is not None else None):
        _mismatch("summary", f"another summary was current at position {build.position}")
    if build.tools != hash_of(tools):
        _mismatch("tools", "the tools differ from those that the build was made with; send the same tools")


def body_of_build(build: GivenBuild, body: BuildContext) -> BuildContext:
    """Return the context call that made the build. ``body`` is the call that sends the build back, with its tools."""
    codec_of(build.format, pointer="/build/format")
    return BuildContext(
        policy=build.policy,
        format=cast("Any", build.format),
        budget=build.budget.tokens,
        model=build.model,
        tools=body.tools,
        include_current_loop=build.include_current_loop,
        answer_open_calls=build.answer_open_calls,
        breakpoints=build.breakpoints,
    )


def build_of(
    request: WindowRequest,
    header: Header,
    budget: BudgetAnswer,
    *,
    model: str | None,
    tools: Sequence[JsonObject] | None,
) -> Build:
    """Return the build record of a window: everything needed to build it again. ``tools`` are those that the call has sent."""
    return Build(
        renderer=RENDERER_VERSION,
        position=header.last,
        commit=header.hash.hex(),
        clock=rfc3339(header.time_ms),
        policy=request.policy.model_dump(mode="json"),
        format=request.format,
        budget=budget,
        model=model,
        summary=header.summary.position if header.summary is not None else None,
        tools=hash_of(tools),
        include_current_loop=request.include_current_loop,
        answer_open_calls=request.answer_open_calls,
        breakpoints="apply" if request.apply_breakpoints else "suggest",
    )


def hash_of(tools: Sequence[JsonObject] | None) -> str | None:
    """Return the SHA-256 of the tools that a call has sent; None without tools."""
    return hashlib.sha256(encode_json(list(tools))).hexdigest() if tools is not None else None


def _mismatch(field: str, message: str) -> NoReturn:
    raise BuildMismatchError(message, problems=[Problem("build_mismatch", f"/build/{field}", message)])


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", pointer, message)])


MAX_PAGES = 8
"""Pages of commits that a window reads at most; each rewind of the session allows one more."""
SMALL_PAGES = 4
"""Pages before those that have no limit but 1 MB."""
FIRST_ITEMS = 160
"""Items on the first page: all commits of most sessions, and few more than needed where a summary covers the older ones."""


class BuildContexts:
    """Use case: build the window of a session, by default at its head.

    One request to the engine, and another one when whole messages have large payloads.
    """

    def __init__(self, log: SessionLog, summaries: Summaries, models: Mapping[str, int] | None = None) -> None:
        self._log = log
        self._summaries = summaries
        self._models = models

    def __call__(self, owner: Owner, session_id: str, body: BuildContext) -> WindowAnswer:
        keys, stored_build = SessionKeys(owner, session_id), body.build
        reading = _WindowReading(self._log, keys, position_of_call(self._log, keys, body), stored_build)
        header = reading.header
        if stored_build is not None:
            check_build(stored_build, header, cast("list[JsonObject] | None", body.tools))
            body = body_of_build(stored_build, body)
        codec_of(body.format)
        context = self._context_request(keys, reading, body, stored_build)
        request, budget = context.request, context.budget
        history = _SessionHistory(self._log, keys, reading, context)
        with counted_by_the_provider(budget):
            window = build(history, request)
        return window_answer(
            window,
            [*history.kept, *history.sources],
            head=header.last,
            budget=budget,
            summary_stale=request.policy.takes_summary and window.is_partial,
            build=build_of(request, header, budget, model=context.model, tools=context.tools),
        )

    def _context_request(
        self, keys: SessionKeys, reading: _WindowReading, body: BuildContext, stored_build: GivenBuild | None
    ) -> ContextRequest:
        """Return the window request of a call, with the settings and the summary at the position of the window."""
        header, summary = reading.header, None
        if reading.position is not None:
            settings, summary = self._log.as_of(keys, header)
        else:
            settings = self._log.settings(keys, reading.caches.get(META), reading.caches.get(SYSTEM), header).settings
        request, budget = request_of(body, settings, calibration=header.calibration, models=self._models)
        if stored_build is not None:
            budget = BudgetAnswer(**stored_build.budget.model_dump())
            request = replace(request, budget=effective(budget))
        model = body.model if body.model is not None else settings.model
        if header.summary is not None and request.policy.takes_summary:
            if summary is None:
                summary = self._summaries.cached_or_logged(keys, header.summary, reading.caches.get(SUMMARY)).event
            request = replace(request, summary=summary)
        return ContextRequest(request, budget, settings, model, cast("list[JsonObject] | None", body.tools))


class _WindowReading:
    """The caches of a session and its newest commits, read in one request."""

    def __init__(
        self, log: SessionLog, keys: SessionKeys, position: int | None, stored_build: GivenBuild | None
    ) -> None:
        """Read the first page: caches and newest commits, or with a position the commits up to it."""
        self._log = log
        self._keys = keys
        self.position = position
        self.caches: dict[str, Item] = {}
        self.items = (
            self._newest() if position is None else next(log.commits.stored.back(keys, position, limit=FIRST_ITEMS), ())
        )
        if not self.items or is_tombstone(self.items[:1]) or MATERIALISING in self.caches.get(META, {}):
            log.commits.tail(keys)
        self.header = header_in(self.items[0])
        if position is None:
            log.commits.check_alive(keys, self.header)
            log.commits.check_reached(keys, self.header, self.caches.values())
        else:
            check_head(self.header, position, build=stored_build)
            self.header = header_at(log.commits, keys, self.items[0], position, self._before)

    def _before(self) -> Header:
        """Return the header of the commit before the newest one that was read."""
        if len(self.items) > 1:
            return header_in(self.items[1])
        position = self.header.first - 1
        commit = self._log.commits.containing(self._keys, position)
        if commit is None:
            raise CorruptError("a commit is missing", item=commit_sort_key(position))
        return commit.header

    def _newest(self) -> Sequence[Item]:
        """Read the newest commits and the caches in one request; return the commits, newest first."""
        query = Query(self._keys.partition, COMMITS_FROM, WINDOW_TO, descending=True, limit=FIRST_ITEMS)
        commits = list[Item]()
        for item in self._log.items.query(query).items:
            sort_key = str(item["sk"])
            if sort_key.startswith(COMMITS_FROM):
                commits.append(item)
            else:
                self.caches[sort_key] = item
        return commits


class _SessionHistory:
    """The messages of a session as a window reads them: from the newest commit back, as far as the plan needs."""

    def __init__(self, log: SessionLog, keys: SessionKeys, reading: _WindowReading, context: ContextRequest) -> None:
        self._log, self._keys, self._context, self._header = log.commits, keys, context, reading.header
        self.total = self._header.flow.tokens
        self._requests = RequestHistory(log, keys, self._header, context)
        self._summary = context.request.summary
        self._covered = self._header.summary if self._summary is not None else None
        self._covered_to = self._covered.last if self._covered is not None else 0
        self._pages = self._log.in_view(
            keys, self._header, first=self._covered_to + 1, read=reading.items, limit=self._page_size
        )
        self._items = reading.items
        self._oldest_read = first_position(reading.items[-1])
        self._page_count = 1
        self._commits = list[Commit]()
        self._messages = list[Located]()
        self._is_limited = False
        self._older: dict[int, Located] | None = None
        self._read_page()

    @property
    def sources(self) -> Sequence[Source]:
        return [_source(message) for message in self._messages]

    @property
    def kept(self) -> Sequence[Source]:
        """The messages before the first loop, pinned ones, and those that the summary keeps; none that `sources` has."""
        if self._older is None:
            self._older = self._read_kept()
        first = self._messages[0].event.position if self._messages else self._header.last + 1
        return [_source(message) for position, message in sorted(self._older.items()) if position < first]

    @property
    def has_all_kept(self) -> bool:
        return self._header.pinned is not None

    @property
    def unread(self) -> int:
        kept = sum(source.event.position > self._covered_to for source in self.kept)
        covered = self._covered.messages if self._covered is not None else 0
        return self._header.flow.messages - covered - len(self._messages) - kept

    def read_on(self) -> bool:
        """Read one more page. Behind the last one that may be read, read the message that opens the current loop."""
        return self._read_page() or self._read_opening()

    def fetch(self, events: list[MessageEvent]) -> Mapping[int, MessageEvent]:
        return self._log.fetch(self._keys, events)

    def breaks(self) -> Sequence[EpochStart]:
        return self._requests.breaks(self._commits)

    def _read_page(self) -> bool:
        """Read a page of commits; return whether there was one. At most `MAX_PAGES`, and one more for each rewind."""
        page = next(self._pages, None) if not self._is_limited else None
        if page is None:
            return False
        self._page_count += page[0].header.first < self._oldest_read
        commits = newest_commits(
            [*(commit for commit in page if commit.header.last > self._covered_to), *self._commits],
            events=MAX_WINDOW_MESSAGES,
        )
        new = located(self._log, self._keys, commits[: len(commits) - len(self._commits)])
        self._commits = list(commits)
        messages = [
            *(message for message in new if self._covered_to < message.event.position <= self._header.last),
            *self._messages,
        ]
        self._messages = newest_within(messages, max_messages=MAX_WINDOW_MESSAGES, max_calls=MAX_CALLS)
        is_last_page = self._page_count == MAX_PAGES + len(self._header.view.closed)
        self._is_limited = (
            len(self._messages) < len(messages)
            or sum(len(commit.lines) for commit in commits) >= MAX_WINDOW_MESSAGES
            or (is_last_page and page[0].header.first <= self._oldest_read)
        )
        return True

    def _page_size(self) -> int | None:
        """Return how many commits to look at next: those that bring twice the budget's tokens, if they are like those before.

        That is at least half as many as before; None, as many as there are in 1 MB, behind a few pages.
        """
        if self._page_count >= SMALL_PAGES:
            return None
        flow, count = self._header.flow, len(self._commits)
        tokens = sum(message.event.tokens for message in self._messages)
        missing = 2 * self._context.request.budget.tokens - tokens
        positions = missing * self._header.last // max(1, flow.tokens)
        size = positions * len(self._items) // (self._header.last - self._oldest_read + 1)
        size = max(size, count // 2, 8 if count < len(self._items) else FIRST_ITEMS // 4)
        return size if size < FIRST_ITEMS * 4 else None

    def _read_kept(self) -> dict[int, Located]:
        """Read the older messages that every window sends, by position. One request if there are any; a lead takes another."""
        header, places = self._header, set[tuple[int, int]]()
        if self._summary is not None:
            places |= {(kept.commit, kept.position) for kept in self._summary.kept}
        first = self._messages[0].event.position if self._messages else header.last + 1
        pinned = [place for place in header.pinned or () if header.view.shows(place[1])]
        places |= {place for place in pinned if self._covered_to < place[1] < first}
        commits = self._log.at(self._keys, sorted({commit for commit, _ in places}))
        positions = {position for _, position in places}
        kept = [message for message in located(self._log, self._keys, commits) if message.event.position in positions]
        if self._covered is None:
            kept += self._lead(first)
        return {message.event.position: message for message in kept}

    def _lead(self, first: int) -> list[Located]:
        """Return the messages before the first loop, as far as they are before position ``first``."""
        header, messages = self._header, list[Located]()
        count = header.flow.lead.messages
        if not count or header.flow.messages == len(self._messages):
            return []
        for page in self._log.in_view_on(self._keys, header, limit=min(count + 1, FIRST_ITEMS)):
            messages += located(self._log, self._keys, page)
            if len(messages) >= count:
                break
        return [message for message in messages[:count] if message.event.position < first]

    def _read_opening(self) -> bool:
        start = self._header.flow.loop.start
        if not self._is_limited or self._older is None or start in self._older:
            return False
        if not self._messages or self._messages[0].event.position <= start:
            return False
        commit = self._log.containing(self._keys, start)
        opening = located(
            self._log, self._keys, [clipped(commit, self._header.view.up_to(self._header.last))] if commit else []
        )
        self._older |= {message.event.position: message for message in opening if message.event.position == start}
        return start in self._older


def _source(message: Located) -> Source:
    return Source(message.event, message.loop, message.time_ms)


class BuildWindows:
    """Use case: build a window over a list of messages. Stores nothing."""

    def __init__(self, counter: TokenCounter, models: Mapping[str, int] | None = None) -> None:
        self._counter = counter
        self._models = models

    def __call__(self, body: BuildWindow) -> WindowAnswer:
        codec_of(body.format)
        sources, total = self._sources(body)
        tools = cast("tuple[JsonObject, ...]", tuple(body.tools or ()))
        settings = SessionSettings(
            system=body.system,
            system_tokens=system_cost(self._counter.count(body.system)) if body.system is not None else 0,
            tools=tools,
            tools_tokens=count_tools(list(tools), self._counter),
        )
        request, budget = request_of(body.model_copy(update={"tools": None}), settings, models=self._models)
        window = build(MessageList(sources, total), request)
        return window_answer(window, sources, head=len(sources), budget=budget)

    def _sources(self, body: BuildWindow) -> tuple[list[Source], int]:
        flow, sources, call_count = Flow(), list[Source](), 0
        codec = codec_of(body.input_format, pointer="/input_format") if body.input_format is not None else None
        for index, message_body in enumerate(body.messages):
            incoming, position = understand(message_body, index, self._counter, codec=codec), index + 1
            call_count = with_calls(call_count, incoming.facts, index)
            flow = accept(flow, Arrival(position, index, incoming.message, incoming.facts, incoming.tokens)).flow
            event = MessageEvent(
                position=position,
                format=incoming.codec.format,
                tokens=incoming.tokens,
                envelope=incoming.envelope,
                body=incoming.body,
                head_tokens=incoming.head_tokens,
            )
            sources.append(Source(event, flow.loop.number, 0))
        return sources, flow.tokens


def window_answer(
    window: Window,
    sources: Sequence[Source],
    *,
    head: int,
    budget: BudgetAnswer,
    summary_stale: bool = False,
    build: Build | None = None,
) -> WindowAnswer:
    """Return the answer that describes a window. ``head`` is the position that the window was built at."""
    manifest = window.manifest
    events = {source.event.position: source.event for source in sources}
    parsed = {
        position: codec_of(event.format).parse(event.body)
        for position, event in (
            (position, events[position]) for position in {ref.position for ref in window.open_calls}
        )
        if event.body is not None
    }
    open_calls = list[OpenCall]()
    for ref in window.open_calls:
        facts = events[ref.position].facts
        if ref.position in parsed:
            call = parsed[ref.position].tool_calls[ref.index]
            open_calls.append(OpenCall(ref=str(ref), call_id=call.id, name=call.name))
        elif facts is not None:
            fact = facts.calls[ref.index]
            open_calls.append(OpenCall(ref=str(ref), call_id=fact.key, name=fact.name))
    return WindowAnswer(
        messages=window.messages,
        system=window.system,
        tools=window.tools,
        requires_tool_config=window.requires_tool_config,
        tool_names=list(window.tool_names),
        open_calls=open_calls,
        tokens=window.tokens,
        manifest=ManifestAnswer(
            position=head,
            budget=budget,
            parts=[_part(part) for part in manifest.parts],
            totals=manifest.totals,
            breakpoints=[
                Breakpoint(pointer=cache_point.pointer, form=cache_point.form) for cache_point in window.breakpoints
            ],
            epoch=EpochAnswer(id=window.epoch, since=window.since),
            build=build,
        ),
        prefix=PrefixAnswer(
            stable_tokens=window.prefix.stable_tokens, broke_at=window.prefix.broke_at, reason=window.prefix.reason
        ),
        head=head,
        summary_stale=summary_stale,
    )


def _part(part: ManifestPart) -> WindowPart:
    return WindowPart(
        kind=part.kind,
        loop=part.loop,
        first=part.first,
        last=part.last,
        level=part.level,
        tokens=part.tokens,
        reason=part.reason,
        refs=list(part.refs),
    )
