"""Building windows: of a session, and of a list of messages. No tokeniser for a session, no model, no write."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

from turnlog.core.errors import BuildMismatchError, CorruptError, InvalidInputError, OtherRendererError, Problem
from turnlog.core.events import MessageEvent, SummaryEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.loops import Arrival, Flow, accept
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import rfc3339
from turnlog.log.commit_items import first_position, is_tombstone
from turnlog.log.commits import Commit, clipped, header_in
from turnlog.log.headers import Header
from turnlog.log.keys import COMMITS_FROM, META, SUMMARY, SYSTEM, WINDOW_TO, SessionKeys, commit_sort_key
from turnlog.log.reading import Located, header_at, located
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
from turnlog.sessions.incoming import understand, with_calls
from turnlog.sessions.moments import above_head, resolved
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.build import Source, Window, WindowRequest, build, system_cost
from turnlog.windows.manifest import ManifestPart
from turnlog.windows.version import RENDERER_VERSION

_BESIDE_A_BUILD = frozenset({"build", "tools"})


def position_of_call(log: SessionLog, keys: SessionKeys, body: BuildContext) -> int | None:
    """The position that a call asks for, by ``at`` or by ``build``; None: the head."""
    if body.build is None:
        return resolved(log, keys, body.at) if body.at is not None else None
    extra_fields = sorted(body.model_fields_set - _BESIDE_A_BUILD)
    if extra_fields:
        raise _invalid(f"/{extra_fields[0]}", f"{extra_fields[0]} can't stand beside build, which says it all")
    if body.build.renderer != RENDERER_VERSION:
        message = f"the build is of renderer version {body.build.renderer}; this is version {RENDERER_VERSION}"
        raise OtherRendererError(message, details={"renderer": RENDERER_VERSION})
    return resolved(log, keys, body.build.position)


def check_head(header: Header, position: int, *, build: GivenBuild | None) -> None:
    """Refuses a position that the log has not reached. ``header`` is of the newest commit up to it."""
    if position <= header.last:
        return
    error = above_head(header, position)
    if build is not None:
        raise BuildMismatchError(error.detail, details=error.details)
    raise error


def check_build(build: GivenBuild, header: Header, tools: Sequence[JsonObject] | None) -> None:
    """Refuses a build that names what is not there. ``header`` is of its position."""
    if build.commit != header.hash.hex() or build.clock != rfc3339(header.time_ms):
        _mismatch("commit", f"the commit of position {build.position} is not the one that the build names")
    if build.summary != (header.summary.position if header.summary is not None else None):
        _mismatch("summary", f"another summary was in force at position {build.position}")
    if build.tools != hash_of(tools):
        _mismatch("tools", "the build has tools of its own call; send the same tools with it")


def body_of_build(build: GivenBuild, body: BuildContext) -> BuildContext:
    """The call that made the build."""
    codec_of(build.format, pointer="/build/format")
    return BuildContext(
        policy=build.policy,
        format=cast("Any", build.format),
        budget=build.budget.tokens,
        model=build.model,
        tools=body.tools,
        include_current_loop=build.include_current_loop,
        settle=build.settle,
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
    """What the window of a request at a header is made of. ``tools`` are the call's own, as given."""
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
        settle=request.settle,
        breakpoints="apply" if request.apply_breakpoints else "suggest",
    )


def hash_of(tools: Sequence[JsonObject] | None) -> str | None:
    """Names a call's own tools."""
    return hashlib.sha256(encode_json(list(tools))).hexdigest() if tools is not None else None


def _mismatch(field: str, message: str) -> NoReturn:
    raise BuildMismatchError(message, problems=[Problem("build_mismatch", f"/build/{field}", message)])


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", pointer, message)])


MAX_PAGES = 5
FIRST_ITEMS = 160
"""Of the first page: what most sessions have, and little where a summary stands for the rest."""


class BuildContexts:
    """The use case: the window of a session at its head, in one request (two with payloads that are sent whole)."""

    def __init__(self, log: SessionLog, models: Mapping[str, int] | None = None) -> None:
        self._log = log
        self._models = models

    def __call__(self, owner: Owner, session_id: str, body: BuildContext) -> WindowAnswer:
        keys, stored_build = SessionKeys(owner, session_id), body.build
        reading = _WindowReading(self._log, keys, position_of_call(self._log, keys, body), stored_build)
        header = reading.header
        if stored_build is not None:
            check_build(stored_build, header, cast("list[JsonObject] | None", body.tools))
            body = body_of_build(stored_build, body)
        codec_of(body.format)
        context = self._asked(keys, reading, body, stored_build)
        request, budget = context.request, context.budget
        covered, summary = header.summary if request.summary is not None else None, request.summary
        covered_to = covered.last if covered is not None else 0
        commits = reading.back_to(covered_to)
        messages = [
            message
            for message in located(self._log.commits, keys, commits)
            if covered_to < message.event.position <= header.last
        ]
        kept = self._kept(keys, summary) if summary is not None else []
        sources = [Source(message.event, message.loop, message.time_ms) for message in [*kept, *messages]]
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

    def _asked(
        self, keys: SessionKeys, reading: _WindowReading, body: BuildContext, stored_build: GivenBuild | None
    ) -> ContextRequest:
        """What is asked for, with the settings and the summary that are in force where the window is read."""
        header, summary = reading.header, None
        if reading.at is not None:
            settings, summary = self._log.as_of(keys, header)
        else:
            settings = self._log.settings(keys, reading.beside.get(META), reading.beside.get(SYSTEM), header).settings
        request, budget = request_of(body, settings, calibration=header.calibration, models=self._models)
        if stored_build is not None:
            budget = BudgetAnswer(**stored_build.budget.model_dump())
            request = replace(request, budget=effective(budget))
        model = body.model if body.model is not None else settings.model
        if header.summary is not None and request.policy.takes_summary:
            if summary is None:
                summary = self._log.summaries.among(keys, header.summary, reading.beside.get(SUMMARY)).event
            request = replace(request, summary=summary)
        return ContextRequest(request, budget, settings, model, cast("list[JsonObject] | None", body.tools))

    def _kept(self, keys: SessionKeys, summary: SummaryEvent) -> list[Located]:
        """The messages that stay though the summary covers them, in one request when there are any."""
        commits = self._log.commits.at(keys, sorted({kept.commit for kept in summary.kept}))
        wanted = {kept.position for kept in summary.kept}
        return [message for message in located(self._log.commits, keys, commits) if message.event.position in wanted]


class _WindowReading:
    """What a window is made of, read from the newest commit back."""

    def __init__(
        self, log: SessionLog, keys: SessionKeys, position: int | None, stored_build: GivenBuild | None
    ) -> None:
        """The first page: the caches and the newest commits; or the commits up to a position, as if the log ended there."""
        self._log = log
        self._keys = keys
        self.at = position
        self.beside: dict[str, Item] = {}
        self._items = (
            self._newest() if position is None else next(log.commits.stored.back(keys, position, limit=FIRST_ITEMS), ())
        )
        if not self._items or is_tombstone(self._items[:1]) or MATERIALISING in self.beside.get(META, {}):
            log.commits.tail(keys)
        self.header = header_in(self._items[0])
        if position is None:
            log.commits.check_alive(keys, self.header)
            log.commits.check_reached(keys, self.header, self.beside.values())
        else:
            check_head(self.header, position, build=stored_build)
            self.header = header_at(log.commits, keys, self._items[0], position, self._before)

    def back_to(self, covered_to: int) -> list[Commit]:
        """The commits in view behind a position, oldest first: of at most `MAX_PAGES` pages beside one for each rewind, and the
        open loop's first commit if it lies before them."""
        log, header = self._log.commits, self.header
        pages, page_count, page_limit = list[list[Commit]](), 1, MAX_PAGES + len(header.view.closed)
        reached = first_position(self._items[-1])
        for page in log.in_view(self._keys, header, first=covered_to + 1, read=self._items):
            pages.append(page)
            page_count += page[0].header.first < reached
            if page_count == page_limit:
                break
        commits = [commit for page in reversed(pages) for commit in page if commit.header.last > covered_to]
        start = header.flow.loop.start
        if start and commits and commits[0].header.first > start:
            opening = log.containing(self._keys, start)
            commits = [*([clipped(opening, header.view.up_to(header.last))] if opening is not None else []), *commits]
        return commits

    def _before(self) -> Header:
        """The header of the commit before the newest."""
        if len(self._items) > 1:
            return header_in(self._items[1])
        position = self.header.first - 1
        commit = self._log.commits.containing(self._keys, position)
        if commit is None:
            raise CorruptError("a commit is missing", item=commit_sort_key(position))
        return commit.header

    def _newest(self) -> Sequence[Item]:
        """The newest commits, newest first, and the caches beside them, in one request."""
        query = Query(self._keys.partition, COMMITS_FROM, WINDOW_TO, descending=True, limit=FIRST_ITEMS)
        commits = list[Item]()
        for item in self._log.items.query(query).items:
            sort_key = str(item["sk"])
            if sort_key.startswith(COMMITS_FROM):
                commits.append(item)
            else:
                self.beside[sort_key] = item
        return commits


class BuildWindows:
    """The use case: a window over a list of messages; nothing is stored."""

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
