"""Building windows: of a session, and of a list of messages. No tokeniser for a session, no model, no write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from turnlog.codecs.counting import count_tools
from turnlog.codecs.registry import codec_of
from turnlog.contracts.builds import BudgetAnswer, Build, GivenBuild
from turnlog.contracts.context import (
    Breakpoint,
    BuildContext,
    BuildWindow,
    ManifestAnswer,
    OpenCall,
    Part,
    PrefixAnswer,
    WindowAnswer,
)
from turnlog.domain.errors import CorruptError
from turnlog.domain.events import MessageEvent, SummaryEvent
from turnlog.domain.flow import Arrival, Flow, accept
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.session import Settings
from turnlog.log.commit_items import first_position, is_tombstone
from turnlog.log.commits import Commit, clipped, header_in
from turnlog.log.headers import Header
from turnlog.log.history import header_at
from turnlog.log.keys import COMMITS_FROM, META, SUMMARY, SYSTEM, WINDOW_TO, SessionKeys, commit_sort_key
from turnlog.log.reading import Located, located
from turnlog.log.sessions import SessionLog
from turnlog.log.tombstones import MATERIALISING
from turnlog.ports import Item, Query, TokenCounter
from turnlog.services.budgets import counted_by_the_provider, effective
from turnlog.services.builds import asked_by, build_of, check_build, check_head, position_of_call
from turnlog.services.incoming import understand, with_calls
from turnlog.services.requests import Asked, AskedBefore, request_of
from turnlog.windows.build import Source, Window, build, system_cost
from turnlog.windows.manifest import Part as ManifestPart

MAX_PAGES = 5
FIRST_ITEMS = 160
"""Of the first page: what most sessions have, and little where a summary stands for the rest."""


class BuildContexts:
    """The use case: the window of a session at its head, in one request (two with payloads that are sent whole)."""

    def __init__(self, log: SessionLog, models: Mapping[str, int] | None = None) -> None:
        self._log = log
        self._models = models

    def __call__(self, owner: Owner, session_id: str, body: BuildContext) -> WindowAnswer:
        keys, given = SessionKeys(owner, session_id), body.build
        read = _Reading(self._log, keys, position_of_call(self._log, keys, body), given)
        header = read.header
        if given is not None:
            check_build(given, header, cast("list[JsonObject] | None", body.tools))
            body = asked_by(given, body)
        codec_of(body.format)
        asked = self._asked(keys, read, body, given)
        request, budget = asked.request, asked.budget
        covered, summary = header.summary if request.summary is not None else None, request.summary
        border = covered.last if covered is not None else 0
        commits = read.back_to(border)
        messages = [
            one for one in located(self._log.commits, keys, commits) if border < one.event.position <= header.last
        ]
        kept = self._kept(keys, summary) if summary is not None else []
        sources = [Source(one.event, one.loop, one.time_ms) for one in [*kept, *messages]]
        unread = header.flow.messages - len(messages) - (covered.messages if covered is not None else 0)
        with counted_by_the_provider(budget):
            window = build(
                sources,
                request,
                total=header.flow.tokens,
                fetch=lambda events: self._log.commits.fetch(keys, events),
                unread=unread,
                then=AskedBefore(self._log, keys, header, commits, asked, unread, self._models),
            )
        return window_answer(
            window,
            sources,
            head=header.last,
            budget=budget,
            summary_stale=request.policy.takes_summary and window.is_partial,
            build=build_of(request, header, budget, model=asked.model, tools=asked.tools),
        )

    def _asked(self, keys: SessionKeys, read: _Reading, body: BuildContext, given: GivenBuild | None) -> Asked:
        """What is asked for, with the settings and the summary that are in force where the window is read."""
        header, summary = read.header, None
        if read.at is not None:
            settings, summary = self._log.as_of(keys, header)
        else:
            settings = self._log.settings(keys, read.beside.get(META), read.beside.get(SYSTEM), header).settings
        request, budget = request_of(body, settings, calibration=header.calibration, models=self._models)
        if given is not None:
            budget = BudgetAnswer(**given.budget.model_dump())
            request = replace(request, budget=effective(budget))
        model = body.model if body.model is not None else settings.model
        if header.summary is not None and request.policy.takes_summary:
            if summary is None:
                summary = self._log.summaries.among(keys, header.summary, read.beside.get(SUMMARY)).event
            request = replace(request, summary=summary)
        return Asked(request, budget, settings, model, cast("list[JsonObject] | None", body.tools))

    def _kept(self, keys: SessionKeys, summary: SummaryEvent) -> list[Located]:
        """The messages that stay though the summary covers them, in one request when there are any."""
        commits = self._log.commits.at(keys, sorted({kept.commit for kept in summary.kept}))
        wanted = {kept.position for kept in summary.kept}
        return [one for one in located(self._log.commits, keys, commits) if one.event.position in wanted]


class _Reading:
    """What a window is made of, read from the newest commit back."""

    def __init__(self, log: SessionLog, keys: SessionKeys, at: int | None, given: GivenBuild | None) -> None:
        """The first page: the caches and the newest commits; or the commits up to a position, as if the log ended there."""
        self._log = log
        self._keys = keys
        self.at = at
        self.beside: dict[str, Item] = {}
        self._items = self._newest() if at is None else next(log.commits.stored.back(keys, at, limit=FIRST_ITEMS), ())
        if not self._items or is_tombstone(self._items[:1]) or MATERIALISING in self.beside.get(META, {}):
            log.commits.tail(keys)
        self.header = header_in(self._items[0])
        if at is None:
            log.commits.check_alive(keys, self.header)
            log.commits.check_reached(keys, self.header, self.beside.values())
        else:
            check_head(self.header, at, build=given)
            self.header = header_at(log.commits, keys, self._items[0], at, self._before)

    def back_to(self, border: int) -> list[Commit]:
        """The commits in view behind a position, oldest first: of at most `MAX_PAGES` pages beside one for each rewind, and the
        open loop's first commit if it lies before them."""
        log, header = self._log.commits, self.header
        pages, read, most = list[list[Commit]](), 1, MAX_PAGES + len(header.view.closed)
        reached = first_position(self._items[-1])
        for page in log.in_view(self._keys, header, first=border + 1, read=self._items):
            pages.append(page)
            read += page[0].header.first < reached
            if read == most:
                break
        commits = [commit for page in reversed(pages) for commit in page if commit.header.last > border]
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
        found = list[Item]()
        for item in self._log.items.query(query).items:
            sort_key = str(item["sk"])
            if sort_key.startswith(COMMITS_FROM):
                found.append(item)
            else:
                self.beside[sort_key] = item
        return found


class BuildWindows:
    """The use case: a window over a list of messages; nothing is stored."""

    def __init__(self, counter: TokenCounter, models: Mapping[str, int] | None = None) -> None:
        self._counter = counter
        self._models = models

    def __call__(self, body: BuildWindow) -> WindowAnswer:
        codec_of(body.format)
        sources, total = self._sources(body)
        tools = cast("tuple[JsonObject, ...]", tuple(body.tools or ()))
        settings = Settings(
            system=body.system,
            system_tokens=system_cost(self._counter.count(body.system)) if body.system is not None else 0,
            tools=tools,
            tools_tokens=count_tools(list(tools), self._counter),
        )
        request, budget = request_of(body.model_copy(update={"tools": None}), settings, models=self._models)
        window = build(sources, request, total=total, fetch=_nothing_to_fetch)
        return window_answer(window, sources, head=len(sources), budget=budget)

    def _sources(self, body: BuildWindow) -> tuple[list[Source], int]:
        flow, sources, calls = Flow(), list[Source](), 0
        codec = codec_of(body.input_format, pointer="/input_format") if body.input_format is not None else None
        for at, given in enumerate(body.messages):
            one, position = understand(given, at, self._counter, codec=codec), at + 1
            calls = with_calls(calls, one.facts, at)
            flow = accept(flow, Arrival(position, at, one.message, one.facts, one.tokens)).flow
            event = MessageEvent(
                position=position,
                format=one.codec.format,
                tokens=one.tokens,
                envelope=one.envelope,
                body=one.body,
                head_tokens=one.head_tokens,
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
            breakpoints=[Breakpoint(pointer=one.pointer, form=one.form) for one in window.breakpoints],
            build=build,
        ),
        prefix=PrefixAnswer(
            stable_tokens=window.prefix.stable_tokens, broke_at=window.prefix.broke_at, reason=window.prefix.reason
        ),
        head=head,
        summary_stale=summary_stale,
    )


def _part(part: ManifestPart) -> Part:
    return Part(
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
