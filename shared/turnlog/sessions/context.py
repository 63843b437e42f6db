"""Build windows of a session, or of a list of messages.

Nothing is written and no model is called. Windows of a session use stored token counts, so they need no tokeniser.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from turnlog.core.errors import BuildMismatchError, CorruptError, InvalidInputError, OtherRendererError, Problem
from turnlog.core.events import MessageEvent, SummaryEvent
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
    GivenBuild,
    ManifestAnswer,
    OpenCall,
    PrefixAnswer,
    WindowAnswer,
    WindowPart,
)
from turnlog.sessions.context_requests import (
    ContextRequest,
    EarlierRequest,
    counted_by_the_provider,
    effective,
    request_of,
)
from turnlog.sessions.incoming import MAX_CALLS, understand, with_calls
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.build import Source, Window, WindowRequest, build, system_cost
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


MAX_PAGES = 5
"""Pages of commits that a window reads at most; each rewind of the session allows one more."""
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
        covered, summary = header.summary if request.summary is not None else None, request.summary
        covered_to = covered.last if covered is not None else 0
        commits = reading.back_to(covered_to)
        messages = newest_within(
            [
                message
                for message in located(self._log.commits, keys, commits)
                if covered_to < message.event.position <= header.last
            ],
            max_messages=MAX_WINDOW_MESSAGES,
            max_calls=MAX_CALLS,
            loop_start=header.flow.loop.start,
        )
        retained = self._retained_messages(keys, summary) if summary is not None else []
        sources = [Source(message.event, message.loop, message.time_ms) for message in [*retained, *messages]]
        unread = header.flow.messages - len(messages) - (covered.messages if covered is not None else 0)
        with counted_by_the_provider(budget):
            window = build(
                sources,
                request,
                total=header.flow.tokens,
                fetch=lambda events: self._log.commits.fetch(keys, events),
                unread=unread,
                then=EarlierRequest(self._log, keys, header, commits, context, unread, self._models),
            )
        return window_answer(
            window,
            sources,
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

    def _retained_messages(self, keys: SessionKeys, summary: SummaryEvent) -> list[Located]:
        """Return the messages that stay in the window although the summary covers them. One request if there are any."""
        commits = self._log.commits.at(keys, sorted({kept.commit for kept in summary.kept}))
        positions = {kept.position for kept in summary.kept}
        return [message for message in located(self._log.commits, keys, commits) if message.event.position in positions]


class _WindowReading:
    """The commits and caches of a window, read from the newest commit back."""

    def __init__(
        self, log: SessionLog, keys: SessionKeys, position: int | None, stored_build: GivenBuild | None
    ) -> None:
        """Read the first page: caches and newest commits, or with a position the commits up to it."""
        self._log = log
        self._keys = keys
        self.position = position
        self.caches: dict[str, Item] = {}
        self._items = (
            self._newest() if position is None else next(log.commits.stored.back(keys, position, limit=FIRST_ITEMS), ())
        )
        if not self._items or is_tombstone(self._items[:1]) or MATERIALISING in self.caches.get(META, {}):
            log.commits.tail(keys)
        self.header = header_in(self._items[0])
        if position is None:
            log.commits.check_alive(keys, self.header)
            log.commits.check_reached(keys, self.header, self.caches.values())
        else:
            check_head(self.header, position, build=stored_build)
            self.header = header_at(log.commits, keys, self._items[0], position, self._before)

    def back_to(self, covered_to: int) -> list[Commit]:
        """Return the commits in view after position ``covered_to``, oldest first.

        Reads at most `MAX_PAGES` pages, and one more for each rewind, and none after `MAX_WINDOW_MESSAGES` events. Includes the
        open loop's first commit when it is older.
        """
        log, header, event_count = self._log.commits, self.header, 0
        pages, page_count, page_limit = list[list[Commit]](), 1, MAX_PAGES + len(header.view.closed)
        oldest_read = first_position(self._items[-1])
        for page in log.in_view(self._keys, header, first=covered_to + 1, read=self._items):
            pages.append(page)
            page_count += page[0].header.first < oldest_read
            event_count += sum(len(commit.lines) for commit in page)
            if page_count == page_limit or event_count > MAX_WINDOW_MESSAGES:
                break
        uncovered = [commit for page in reversed(pages) for commit in page if commit.header.last > covered_to]
        commits = list(newest_commits(uncovered, events=MAX_WINDOW_MESSAGES))
        start = header.flow.loop.start
        if start and commits and commits[0].header.first > start:
            opening = log.containing(self._keys, start)
            commits = [*([clipped(opening, header.view.up_to(header.last))] if opening is not None else []), *commits]
        return commits

    def _before(self) -> Header:
        """Return the header of the commit before the newest one that was read."""
        if len(self._items) > 1:
            return header_in(self._items[1])
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
        window = build(sources, request, total=total, fetch=_nothing_to_fetch)
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


def _nothing_to_fetch(events: list[MessageEvent]) -> Mapping[int, MessageEvent]:
    return {event.position: event for event in events}
