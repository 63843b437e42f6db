"""Sessions of Google's Agent Development Kit (2.13) over the log: https://google.github.io/adk-docs/sessions/session/.

    from turnlog.integrations.google_adk import TurnlogSessionService, TurnlogWindowPlugin

    service = TurnlogSessionService(log)
    app = App(name="desk", root_agent=agent, plugins=[TurnlogWindowPlugin(service, budget=30_000)])
    runner = Runner(app=app, session_service=service)

Each event is a message of the log. With the plugin the model is sent the session's window instead of all events.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.flows.llm_flows import _code_execution, _nl_planning, contents
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions._session_util import extract_state_delta
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.genai import types

from turnlog.client import retried
from turnlog.client.async_calls import reads, run_to_end, writes
from turnlog.client.model import Session as Log
from turnlog.client.model import Turnlog
from turnlog.core import errors
from turnlog.core.json_values import canonical_json
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.integrations import originals
from turnlog.integrations.originals import FORMAT, FrameworkWindow, Limits, Originals, Part
from turnlog.integrations.sessions import KeptDocuments, session_id_of, sync_log

_TRANSLATED = {
    *("text", "thought", "thought_signature", "inline_data", "file_data", "function_call", "function_response"),
    "part_metadata",
}
"""Fields of a part that `_to_parts` reads, and those that take no tokens."""
_SHORTENED = "model"
"""Author of a reply that a window has shortened, or that another program has said: which agent said it is not known."""
_STATE, _SESSIONS = "adk/state", "adk/sessions/"
_NO_STATE: Mapping[str, Any] = {"state": {}, "head": 0, "time": None}
Scope = tuple[str, str, str]
"""App, user and id of a session."""


def _to_parts(event: Event) -> tuple[str, list[Part]]:
    content, parts = event.content or types.Content(), list[Part]()
    for part in content.parts or []:
        if call := part.function_call:
            parts.append(originals.tool_call(call.id, call.name, call.args))
        if answer := part.function_response:
            media = [block for item in answer.parts or () for block in _media(item)]
            parts += originals.result_parts(originals.tool_result(answer.id, answer.response), media)
        if part.text is not None:
            parts.append(originals.text_block(part.text, is_thinking=bool(part.thought)))
        elif part.inline_data is not None and part.inline_data.data is not None:
            parts.append(originals.media_block(part.inline_data.mime_type or "", part.inline_data.data))
        else:
            parts += _media(part)
        if others := part.model_dump(mode="json", exclude=_TRANSLATED, exclude_none=True, fallback=str):
            parts += originals.other_parts(next(iter(others)), others)
    return "user" if content.role == "user" else "assistant", parts


def _media(part: types.Part | types.FunctionResponsePart) -> list[Part]:
    if (data := part.inline_data) is not None and data.data is not None:
        return [originals.added_media(data.mime_type, data.data)]
    if (file := part.file_data) is not None and file.file_uri:
        return [originals.added_media(file.mime_type, url=file.file_uri)]
    return []


def _result_media(block: Part) -> types.FunctionResponsePart:
    media_type = block["media_type"]
    if "data" in block:
        return types.FunctionResponsePart.from_bytes(data=base64.b64decode(block["data"]), mime_type=media_type)
    return types.FunctionResponsePart.from_uri(file_uri=block.get("url") or "", mime_type=media_type)


def _from_parts(role: str, parts: Sequence[Part]) -> Event:
    author, adk_parts = _SHORTENED if role == "assistant" else "user", list[types.Part]()
    for part in parts:
        match part:
            case {"type": "text", "text": text}:
                adk_parts.append(types.Part(text=text))
            case {"media_type": media_type, "data": str(data)}:
                adk_parts.append(types.Part.from_bytes(data=base64.b64decode(data), mime_type=media_type))
            case {"media_type": media_type, "url": str(url)}:
                adk_parts.append(types.Part.from_uri(file_uri=url, mime_type=media_type))
            case {"id": call_id, "name": name, "args": arguments}:
                adk_parts.append(types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=arguments)))
            case {"tool_call_id": call_id, "name": name, "result": result}:
                response = result if isinstance(result, dict) else {"result": result}
                media = [_result_media(block) for block in part.get("media") or () if block.get("media_type")]
                answer = types.FunctionResponse(id=call_id, name=name, response=response, parts=media or None)
                adk_parts.append(types.Part(function_response=answer))
    return Event(author=author, content=types.Content(role=author, parts=adk_parts))


EVENTS = Originals[Event](
    "google_adk",
    dump=lambda event: event.model_dump(mode="json", exclude_none=True, fallback=str),
    load=Event.model_validate,
    to_parts=_to_parts,
    from_parts=_from_parts,
    content_of=lambda event: event.content is not None and event.content.parts,
)


class TurnlogSessionService(BaseSessionService):
    """Stores sessions, events and state of an app: the state of the session, of its user and of the whole app.

    An event and its changes of state are one commit. An event for a session that has changed since it was read raises
    `StaleSessionError`, unless the change is that event. A rewind takes the events after it out of view of `get_session` and of
    windows. Deleting a session erases it for good, and frees its id a day later. New sessions get ``settings`` of
    `Sessions.create`.
    """

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        self._log = sync_log(log)
        self._settings = {"recall": "never", **settings}
        self._locks = WeakValueDictionary[tuple[object, ...], asyncio.Lock]()

    @writes
    def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        return self._create(app_name, user_id, session_id or "", state or {}, self._new_log)

    @reads
    def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        name, limits = session_id.strip(), config or GetSessionConfig()
        session = self._session(app_name, user_id, name)
        if session is None or limits.num_recent_events == 0:
            return session
        marker, newer, events = int(session._storage_update_marker or 0), list[tuple[int, Event]](), list[Event]()
        for position, event in EVENTS.newest_first(self.log_of(app_name, user_id, name)):
            if position > marker:
                newer.append((position, event))
            elif len(events) == limits.num_recent_events:
                break
            if event.timestamp >= (limits.after_timestamp or 0) and len(events) != limits.num_recent_events:
                events.append(event)
        for position, event in reversed(newer):
            self._update_session_state(session, event)
            session._storage_update_marker, session.last_update_time = str(position), event.timestamp
        session.events = events[::-1]
        return session

    @reads
    def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        listed = [json.loads(document.data) for document in self._documents(app_name).list(_SESSIONS)]
        stored = [self._session(app_name, owner, name) for owner, name in listed if user_id in (None, owner)]
        sessions = [session for session in stored if session is not None]
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    @writes
    def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        self._documents(app_name).delete([_SESSIONS + session_id_of(user_id, session_id.strip())])
        with suppress(errors.NotFoundError):
            self.log_of(app_name, user_id, session_id.strip()).erase()

    @reads
    def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return self._documents(app_name, user_id).read(_STATE) or {}

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        # Agents that run at once append to one session object; each append moves the position that the next is checked against.
        key = (asyncio.get_running_loop(), session.app_name, session.user_id, session.id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if any(stored.id == event.id and EVENTS.body(stored) == EVENTS.body(event) for stored in session.events):
                return event
            head = await run_to_end(lambda: self._append(session, event))
            session._storage_update_marker, session.last_update_time = str(head), event.timestamp
            return self._commit_event_to_session(session, event)

    @writes
    def fork_session(self, app_name: str, user_id: str, session_id: str, new_session_id: str) -> Session:
        """Return a new session that begins as this one is, with its events and its state. The events are not copied."""
        session = self._session(app_name, user_id, session_id.strip())
        if session is None:
            raise SessionNotFoundError(f"Session {session_id} not found.")
        state, parent = extract_state_delta(session.state)["session"], self.log_of(app_name, user_id, session.id)
        return self._create(app_name, user_id, new_session_id, state, parent.fork)

    def log_of(self, app_name: str, user_id: str, session_id: str) -> Log:
        """Return the session of the log, for windows, search and summaries."""
        return self._log.sessions.of(session_id_of("adk", app_name, user_id, session_id))

    def _new_log(self, session_id: str) -> Log:
        return self._log.sessions.get_or_create(session_id, **self._settings)

    def _create(
        self, app: str, user: str, session_id: str, state: dict[str, Any], new_log: Callable[[str], Log]
    ) -> Session:
        name, deltas = session_id.strip() or str(uuid.uuid4()), extract_state_delta(state)
        try:
            head = new_log(self.log_of(app, user, name).id).info().head
            value = {"state": deltas["session"], "head": head, "time": None}
            self._documents(app, user, name).replace(_STATE, value, None)
        except (errors.DocumentChangedError, errors.SessionExistsError) as error:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from error
        self._merge(deltas["app"], app)
        self._merge(deltas["user"], app, user)
        self._documents(app).put_many({_SESSIONS + session_id_of(user, name): canonical_json([user, name])})
        return self._session(app, user, name)

    def _append(self, session: Session, event: Event) -> int:
        """Append an event, store its changes of state, and return the log's head."""
        scope, marker = (session.app_name, session.user_id, session.id), session._storage_update_marker
        stale = StaleSessionError(f"Session {session.id} has changed since it was read; get it again.")

        def append_at_head() -> int:
            """Append behind the log's head, which others move by more than events: by summaries, or by settings."""
            log = self.log_of(*scope)
            self._session(*scope)  # goes on with a rewind that was cut off
            head, events = log.info().head, len(session.events) if marker is None else int(marker)
            newer = (
                [EVENTS.body(stored) for _, stored in EVENTS.stored(log)[events:]]
                if marker is None
                else [stored.body for stored in log.page(after=events, limit=2, in_view=True).messages]
            )
            if newer == [EVENTS.body(event)]:  # it was appended, and the caller did not learn of it
                return head
            if newer:
                raise stale
            return self._append_at(head, scope, event)

        try:
            if marker is not None:
                with suppress(errors.HeadMismatchError):
                    return self._append_at(int(marker), scope, event)
            return retried(append_at_head)
        except errors.NotFoundError as error:
            raise SessionNotFoundError(f"Session {session.id} not found.") from error
        except errors.HeadMismatchError as error:
            raise stale from error

    def _append_at(self, head: int, scope: Scope, event: Event) -> int:
        """Append an event behind ``head``, and return the new head. Raises `HeadMismatchError` when the log ends elsewhere."""
        log, invocation_id = self.log_of(*scope), event.actions.rewind_before_invocation_id
        if invocation_id:
            events = EVENTS.stored(log)
            first = next((position for position, earlier in events if earlier.invocation_id == invocation_id), None)
            if first is not None:
                rewind = {"head": head, "to": max(first - 1, 1), "id": event.id, "body": EVENTS.body(event)}
                # A rewind is two commits: when this process ends between them, the next one that reads the session goes on.
                self._documents(*scope).change(_STATE, lambda value: {**(value or _NO_STATE), "rewind": rewind})
                return self._rewind(scope, rewind)
        answer = log.append(EVENTS.body(event), meta=[{"id": event.id}], format=FORMAT, if_head=head, lenient=True)
        self._store_state(scope, event, head, answer.head)
        return answer.head

    def _rewind(self, scope: Scope, rewind: Mapping[str, Any]) -> int:
        """Rewind a log, append the event that asks for it, and return the new head. Repeated, it has one effect."""
        log, key, body = self.log_of(*scope), f"{rewind['id']}-{rewind['head']}", rewind["body"]
        head = log.rewind(rewind["to"], if_head=rewind["head"], idempotency_key=f"rewind-{key}").head
        answer = log.append(
            body, meta=[{"id": rewind["id"]}], format=FORMAT, if_head=head, lenient=True, idempotency_key=f"event-{key}"
        )
        self._store_state(scope, EVENTS.message(body), head, answer.head)
        return answer.head

    def _store_state(self, scope: Scope, event: Event, before: int, head: int) -> None:
        """Store the changes of state of an event that was appended behind ``before``, and now is the log's ``head``."""

        def change(value: Any) -> Any:
            state, last = (value or _NO_STATE)["state"], (value or _NO_STATE)["head"]
            if last >= head:  # another process has brought the state up to date
                return value
            events = [event]
            if last < before:  # a process ended between an append and its state
                events = [missed for position, missed in EVENTS.stored(self.log_of(*scope)) if position > last]
            changes = {key: item for changed in events for key, item in changed.actions.state_delta.items()}
            deltas = extract_state_delta(changes)
            self._merge(deltas["app"], scope[0])
            self._merge(deltas["user"], *scope[:2])
            return {"state": {**state, **deltas["session"]}, "head": head, "time": events[-1].timestamp}

        self._documents(*scope).change(_STATE, change)

    def _merge(self, delta: Mapping[str, Any], *scope: str) -> None:
        if delta:
            self._documents(*scope).change(_STATE, lambda value: {**(value or {}), **delta})

    def _shared(self, prefix: str, *scope: str) -> dict[str, Any]:
        return {prefix + key: value for key, value in (self._documents(*scope).read(_STATE) or {}).items()}

    def _documents(self, *scope: str) -> KeptDocuments:
        return KeptDocuments(self._log, session_id_of("adk", *scope))

    def _session(self, app: str, user: str, name: str) -> Session | None:
        """Return a session as its document has it, without events; None when there is none."""
        documents = self._documents(app, user, name)
        document = documents.get(_STATE)
        if document is not None and (rewind := json.loads(document.data).get("rewind")) is not None:
            # Another process may have appended before it, or it is refused.
            with suppress(errors.ConflictError, errors.InvalidInputError):
                self._rewind((app, user, name), rewind)
            document = documents.get(_STATE)
        if document is None:
            return None
        value = json.loads(document.data)
        state = value["state"] | self._shared(State.APP_PREFIX, app) | self._shared(State.USER_PREFIX, app, user)
        changed_at = value["time"] or document.updated_ms / 1000
        session = Session(id=name, app_name=app, user_id=user, state=state, last_update_time=changed_at)
        session._storage_update_marker = str(value["head"])
        return session


def _with_newest_result_last(events: list[Event], newest: Sequence[Event]) -> list[Event]:
    """Return the events as they are in the log, in which the late result of a long-running tool may be the newest.

    A window has each result behind its call. ADK leaves out what stands between a call and a newest result.
    """
    ids = {answer.id for event in newest for answer in event.get_function_responses()}
    results = [event for event in events if any(answer.id in ids for answer in event.get_function_responses())]
    return [event for event in events if not results or event is not results[-1]] + results[-1:]


async def _contents_of(context: InvocationContext, events: list[Event], model: str | None) -> list[types.Content]:
    """Return the contents that ADK would send the agent of a context for these events."""
    request = LlmRequest(model=model)
    shown = context.model_copy(update={"session": context.session.model_copy(update={"events": events})})
    processors = [contents.request_processor, _nl_planning.request_processor]
    if not getattr(getattr(context.agent, "code_executor", None), "optimize_data_file", False):  # that runs code
        processors.append(_code_execution.request_processor)
    for processor in processors:
        async for _ in processor.run_async(shown, request):
            pass
    return request.contents


def _sees_part(context: InvocationContext) -> bool:
    """Return whether ADK shows the agent of a context only some of the events. A window would tell it of all."""
    agent: Any = context.agent
    is_inner = bool(context.branch or context.isolation_scope)
    return is_inner or agent.include_contents != "default" or agent.mode == "single_turn"


def _added(sent: Sequence[types.Content], own: Sequence[types.Content]) -> list[tuple[int, types.Content]] | None:
    """Return what a request has beyond ``own``, each with the number of own contents behind it; None when it lacks some of them."""
    added, place = list[tuple[int, types.Content]](), 0
    for content in sent:
        if own[place : place + 1] == [content]:
            place += 1
        else:
            added.append((len(own) - place if place else sys.maxsize, content))
    return added if place == len(own) else None


def _with_added(window: list[types.Content], added: Sequence[tuple[int, types.Content]]) -> list[types.Content]:
    """Insert what `_added` has returned into a window: as far from the end as it was, and never between call and result."""
    merged, end = list[types.Content](), len(window)
    for behind, content in reversed(added):
        begin = max(0, min(end, len(window) - behind))
        while 0 < begin < len(window) and any(part.function_response for part in window[begin].parts or ()):
            begin -= 1
        merged, end = [content, *window[begin:end], *merged], begin
    return [*window[:end], *merged]


@dataclass(eq=False)
class TurnlogWindowPlugin(Limits, BasePlugin):
    """Sends the model the session's window when its events exceed the budget, and of it what ADK shows to the agent.

    ``budget``, ``policy`` and ``output_reserve`` are those of `Session.context`; the agent's instructions and tools, and what tools
    add to the request, count in the budget. A request stays as it is while all events fit, when the agent is shown a part of the
    events alone, and when the service does not have the session, such as that of an `AgentTool`.
    """

    service: TurnlogSessionService

    def __post_init__(self) -> None:
        BasePlugin.__init__(self, name="turnlog_window")

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        context, model = callback_context._invocation_context, llm_request.model
        session = context.session
        # Only inner agents see such events; those of agents that a tool runs have a branch NAME@CALL.
        has_hidden = any(event.isolation_scope or "@" in (event.branch or "") for event in session.events)
        if _sees_part(context) or (has_hidden and self._fits(llm_request)):
            return
        added = _added(llm_request.contents, await _contents_of(context, session.events, model))
        if added is None:  # another plugin has changed what ADK sends
            if self._fits(llm_request):
                return
            added = []
        try:
            window = await self._window(session, llm_request, [content for _, content in added])
        except errors.NotFoundError:  # ADK runs an `AgentTool` in a session that is in memory alone
            return
        if window.system:
            llm_request.append_instructions([window.system])
        sent = {event.id for event in session.events if event.content and event.content.parts}
        if sent == {event.id for event in window.messages}:
            return
        for event in window.messages:
            if event.author == _SHORTENED:
                event.author = callback_context.agent_name
        # ADK presents replies of other agents as context.
        events = _with_newest_result_last(window.messages, session.events[-1:])
        llm_request.contents = _with_added(await _contents_of(context, events, model), added)

    def _fits(self, request: LlmRequest) -> bool:
        """Return whether a request is within the budget, if there is one."""
        config, contents = request.config, request.contents
        texts = [*map(str, [config.system_instruction or "", *(config.tools or ())])]
        texts += [content.model_dump_json(exclude_none=True) for content in contents]
        return self.budget is not None and sum(map(upper_bound_tokens, texts)) <= self.budget

    async def _window(
        self, session: Session, request: LlmRequest, added: Sequence[types.Content]
    ) -> FrameworkWindow[Event]:
        """Return a session's window. A request's instructions and tools, and texts that are added to it, count in the budget."""
        log = self.service.log_of(session.app_name, session.user_id, session.id)
        texts = [part.text for content in added for part in content.parts or () if part.text]
        tools: dict[str, Any] = {
            declaration.name or "": declaration.model_dump(mode="json", exclude_none=True)
            for tool in request.config.tools or []
            for declaration in getattr(tool, "function_declarations", None) or []
        }
        # A window has calls of other tools as text: those of other agents, and those that ADK hides from the model.
        for call in (call for event in session.events for call in event.get_function_calls()):
            tools.setdefault(call.name or "", {})
        functions = [originals.function_tool(name, parameters) for name, parameters in tools.items()]
        system = "\n".join([str(request.config.system_instruction or ""), *texts]).strip()
        return await asyncio.to_thread(EVENTS.window, log, self, system=system, tools=functions)
