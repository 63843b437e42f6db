"""Build windows of a session, or of a list of messages.

Nothing is written and no model is called. Windows of a session use stored token counts, so they need no tokeniser.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from turnlog.core.errors import BuildMismatchError, InvalidInputError, OtherRendererError
from turnlog.core.events import NO_ENVELOPE, MessageEvent, SummaryEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.loops import Arrival, Flow, accept
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import rfc3339
from turnlog.log.headers import Header
from turnlog.log.keys import META, SUMMARY, SYSTEM, SessionKeys
from turnlog.log.reading import Located, position_of_moment
from turnlog.ports import TokenCounter
from turnlog.providers.registry import codec_of
from turnlog.providers.token_rules import count_tools
from turnlog.sessions.context_models import (
    BudgetAnswer,
    Build,
    BuildContext,
    BuildWindow,
    GivenBuild,
    ManifestAnswer,
    OpenCall,
    ParentWindow,
    WindowAnswer,
)
from turnlog.sessions.context_requests import ContextRequest, counted_by_the_provider, effective, request_of
from turnlog.sessions.incoming import understand, with_calls
from turnlog.sessions.session_history import (
    FindInSession,
    SessionHistory,
    SessionReading,
    WarmSession,
    WarmSessions,
    messages_within,
    read_newest,
    read_up_to,
)
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.build import RENDERER_VERSION, Window, build
from turnlog.windows.plan import MessageList, entry_of
from turnlog.windows.recalled import RecallHit, RecallSearch
from turnlog.windows.request import WindowRequest, system_cost, upper_bound_of_json

FindInList: TypeAlias = Callable[[Sequence[Located], RecallSearch], Sequence[Sequence[RecallHit]]]
"""Searches a list of messages."""
_FIELDS_WITH_BUILD = frozenset({"build", "tools"})

if TYPE_CHECKING:
    from turnlog.summaries.store import Summaries


def position_of_call(log: SessionLog, keys: SessionKeys, body: BuildContext) -> int | None:
    """Return the position to build the window at, from ``at`` or ``build``; None for the head."""
    if body.build is None:
        return position_of_moment(log.commits, keys, body.at) if body.at is not None else None
    extra_fields = sorted(body.model_fields_set - _FIELDS_WITH_BUILD)
    if extra_fields:
        raise InvalidInputError.at(
            f"/{extra_fields[0]}", f"{extra_fields[0]} can't be sent with build, which contains it"
        )
    if body.build.renderer != RENDERER_VERSION:
        message = f"the build is of renderer version {body.build.renderer}; this is version {RENDERER_VERSION}"
        raise OtherRendererError(message, details={"renderer": RENDERER_VERSION})
    return position_of_moment(log.commits, keys, body.build.position)


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
        others_calls=build.others_calls,
        breakpoints=build.breakpoints,
        query=build.query,
    )


def build_of(
    request: WindowRequest,
    header: Header,
    budget: BudgetAnswer,
    *,
    model: str | None,
    tools: Sequence[JsonObject] | None,
    elsewhere: str = "",
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
        others_calls=request.others_calls,
        breakpoints="apply" if request.apply_breakpoints else "suggest",
        query=request.query,
        elsewhere=elsewhere,
    )


def hash_of(tools: Sequence[JsonObject] | None) -> str | None:
    """Return the SHA-256 of the tools that a call has sent; None without tools."""
    return hashlib.sha256(encode_json(list(tools))).hexdigest() if tools is not None else None


def _mismatch(field: str, message: str) -> NoReturn:
    raise BuildMismatchError.at(f"/build/{field}", message, "build_mismatch")


class BuildContexts:
    """Use case: build the window of a session, by default at its head.

    One request to the engine, and another one when whole messages have large payloads. A process remembers the sessions that it
    built windows of last, and reads only what is new.
    """

    def __init__(
        self, log: SessionLog, summaries: Summaries, models: Mapping[str, int] | None, find: FindInSession
    ) -> None:
        """``find`` searches a session for the step recall."""
        self._log = log
        self._summaries = summaries
        self._models = models
        self._find = find
        self.warm_sessions = WarmSessions[WarmSession]()

    def __call__(self, owner: Owner, session_id: str, body: BuildContext) -> WindowAnswer:
        keys, stored_build = SessionKeys(owner, session_id), body.build
        if body.parent is not None:
            return self._within_a_call(keys, body, body.parent)
        reading = self._read(keys, body)
        header = reading.header
        tools = cast("list[JsonObject] | None", body.tools)
        if stored_build is not None:
            check_build(stored_build, header, tools)
            body = body_of_build(stored_build, body)
        codec_of(body.format)
        context = self._context_request(reading, body, stored_build)
        request, budget = context.request, context.budget
        model = body.model if body.model is not None else context.settings.model
        history = SessionHistory(self._log, reading, context, self._find)
        request = replace(request, recaller=history.recall)
        with counted_by_the_provider(budget):
            window = build(history, request, history.memory)
        if stored_build is not None and stored_build.elsewhere != window.elsewhere:
            _mismatch("elsewhere", "what other sessions had, or what was ranked by an embedder, is not found again")
        if reading.position is None:
            self.warm_sessions.put(keys, history.warm())
        return window_answer(
            window,
            [*history.kept, *history.sources],
            head=header.last,
            budget=budget,
            summary_stale=request.policy.takes_summary and window.is_partial,
            build=build_of(request, header, budget, model=model, tools=tools, elsewhere=window.elsewhere),
        )

    def _within_a_call(self, keys: SessionKeys, body: BuildContext, parent: ParentWindow) -> WindowAnswer:
        """Return the window of an agent that works within a call of another. It has no part in the session's epochs."""
        codec_of(body.format)
        for name in sorted(body.model_fields_set & {"build", "query"}):
            raise InvalidInputError.at(f"/{name}", f"{name} can't be sent with parent")
        reading = self._read(keys, body)
        settings, _ = self._settings_and_summary(reading)
        if parent.system is not None:
            tokens = system_cost(upper_bound_of_json(parent.system))
            settings = replace(settings, system=parent.system, system_tokens=tokens)
        request, budget = request_of(body, settings, calibration=reading.header.calibration, models=self._models)
        sources = messages_within(self._log, reading, parent, room=2 * budget.tokens)
        outside = [source.event.position for source in sources if source.event.envelope.parent is None]
        with counted_by_the_provider(budget):
            history = MessageList(sources, sum(source.event.tokens for source in sources), max(outside, default=0))
            window = build(history, request)
        return window_answer(window, sources, head=reading.header.last, budget=budget, parent=parent)

    def _read(self, keys: SessionKeys, body: BuildContext) -> SessionReading:
        """Read the session at the position that the call names, else at its head.

        At the head, what this process remembers of the session is not read again. An agent within a call reads everything.
        """
        position = position_of_call(self._log, keys, body)
        if position is not None:
            return read_up_to(self._log, keys, position, is_build=body.build is not None)
        return read_newest(self._log, keys, self.warm_sessions.take(keys) if body.parent is None else None)

    def _settings_and_summary(self, reading: SessionReading) -> tuple[SessionSettings, SummaryEvent | None]:
        """Return the settings at the window's position, and the summary there, if reading them has found it."""
        keys, header, caches = reading.keys, reading.header, reading.caches
        if reading.position is not None:
            return self._log.as_of(keys, header)
        settings = reading.settings or self._log.settings(keys, header, caches.get(META), caches.get(SYSTEM)).settings
        return settings, reading.summary

    def _context_request(
        self, reading: SessionReading, body: BuildContext, stored_build: GivenBuild | None
    ) -> ContextRequest:
        """Return the window request of a call, with the settings and the summary at the position of the window."""
        keys, header = reading.keys, reading.header
        settings, summary = self._settings_and_summary(reading)
        request, budget = request_of(body, settings, calibration=header.calibration, models=self._models)
        if stored_build is not None:
            budget = BudgetAnswer(**stored_build.budget.model_dump())
            request = replace(request, budget=effective(budget))
        if header.summary is not None and request.policy.takes_summary:
            if summary is None:
                summary = self._summaries.cached_or_logged(keys, header.summary, reading.caches.get(SUMMARY)).event
            request = replace(request, summary=None if summary.is_redacted else summary)
        return ContextRequest(request, budget, settings)


@lazy_dataclass(frozen=True, slots=True)
class BuildWindows:
    """Use case: build a window over a list of messages. Stores nothing. ``find`` searches the messages for the step recall."""

    counter: TokenCounter
    models: Mapping[str, int] | None
    find: FindInList

    def __call__(self, body: BuildWindow) -> WindowAnswer:
        codec_of(body.format)
        sources, total = self._sources(body)
        tools = cast("tuple[JsonObject, ...]", tuple(body.tools or ()))
        settings = SessionSettings(
            system=body.system,
            system_tokens=system_cost(self.counter.count(body.system)) if body.system is not None else 0,
            tools=tools,
            tools_tokens=count_tools(list(tools), self.counter),
        )
        request, budget = request_of(body.model_copy(update={"tools": None}), settings, models=self.models)
        window = build(MessageList(sources, total), replace(request, recaller=partial(self.find, sources)))
        return window_answer(window, sources, head=len(sources), budget=budget)

    def _sources(self, body: BuildWindow) -> tuple[list[Located], int]:
        flow, sources, call_count = Flow(), list[Located](), 0
        codec = codec_of(body.input_format, pointer="/input_format") if body.input_format is not None else None
        for index, message_body in enumerate(body.messages):
            parsed, position = understand(message_body, index, self.counter, codec=codec), index + 1
            call_count = with_calls(call_count, parsed.facts, index)
            flow = accept(flow, Arrival(position, index, parsed.message, parsed.facts, parsed.tokens)).flow
            event = MessageEvent(
                position, parsed.codec.format, parsed.tokens, NO_ENVELOPE, parsed.body, head_tokens=parsed.head_tokens
            )
            sources.append(Located(event, flow.loop.number, 0))
        return sources, flow.tokens


def window_answer(
    window: Window,
    sources: Sequence[Located],
    *,
    head: int,
    budget: BudgetAnswer,
    summary_stale: bool = False,
    build: Build | None = None,
    parent: ParentWindow | None = None,
) -> WindowAnswer:
    """Return the answer that describes a window. ``head`` is the position that the window was built at."""
    manifest = window.manifest
    return WindowAnswer(
        messages=window.messages,
        system=window.system,
        tools=window.tools,
        requires_tool_config=window.requires_tool_config,
        tool_names=list(window.tool_names),
        open_calls=_open_calls(window, sources),
        tokens=window.tokens,
        manifest=ManifestAnswer(
            position=head,
            budget=budget,
            parts=list(manifest.parts),
            totals=manifest.totals,
            breakpoints=window.breakpoints,
            recalled=list(manifest.recalled),
            epoch=window.epoch,
            build=build,
            parent=parent,
        ),
        prefix=window.prefix,
        head=head,
        summary_stale=summary_stale,
    )


def _open_calls(window: Window, sources: Sequence[Located]) -> list[OpenCall]:
    """Return the open calls of a window, each as its message names it; without the message's body, as the card does."""
    waiting = {ref.position for ref in window.open_calls}
    entries = {source.event.position: entry_of(source) for source in sources if source.event.position in waiting}
    open_calls = list[OpenCall]()
    for ref in window.open_calls:
        entry = entries[ref.position]
        call = entry.facts.calls[ref.index]
        call_id = entry.message.tool_calls[ref.index].id if entry.message is not None else call.key
        open_calls.append(OpenCall(ref=str(ref), call_id=call_id, name=call.name))
    return open_calls
