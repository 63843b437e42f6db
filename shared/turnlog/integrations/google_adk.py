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
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.genai import types

from turnlog.client import GivenPolicy
from turnlog.client.async_calls import run_to_end
from turnlog.client.documents import Document, Documents
from turnlog.client.model import Session as Log
from turnlog.client.model import Turnlog
from turnlog.core.errors import DocumentChangedError, HeadMismatchError, NotFoundError, SessionExistsError
from turnlog.core.json_values import JsonObject, canonical_json
from turnlog.integrations import originals
from turnlog.integrations.originals import FORMAT, Limits, Originals
from turnlog.integrations.sessions import session_id_of


def _to_body(event: Event) -> JsonObject:
    content = event.content or types.Content()
    parts = content.parts or []
    calls = [originals.tool_call(call.id, call.name, call.args) for part in parts if (call := part.function_call)]
    results = [
        originals.tool_result(answer.id, answer.response) for part in parts if (answer := part.function_response)
    ]
    role = "tool" if results else "user" if content.role == "user" else "assistant"
    return originals.body_of(role, [block for part in parts if (block := _block(part)) is not None], calls, results)


def _block(part: types.Part) -> JsonObject | None:
    if part.text is not None:
        return originals.text_block(part.text, is_thinking=bool(part.thought))
    if part.inline_data is not None and part.inline_data.data is not None:
        return originals.media_block(part.inline_data.mime_type or "", part.inline_data.data)
    return None


def _from_body(body: Mapping[str, Any], names: Mapping[str, str]) -> Event:
    """Return a new event for a body that a window has shortened. Media in it are named by their text."""
    parts = list[types.Part]()
    for block in originals.blocks_of(body):
        if block["type"] == "text":
            parts.append(types.Part(text=block["text"]))
        elif block.get("data"):
            parts.append(types.Part.from_bytes(data=base64.b64decode(block["data"]), mime_type=block["media_type"]))
    for call in body.get("tool_calls") or ():
        parts.append(types.Part(function_call=types.FunctionCall(id=call["id"], name=call["name"], args=call["args"])))
    for result in body.get("tool_results") or ():
        value = result["result"]
        response = types.FunctionResponse(
            id=result["tool_call_id"],
            name=names.get(result["tool_call_id"], "tool"),
            response=value if isinstance(value, dict) else {"result": value},
        )
        parts.append(types.Part(function_response=response))
    role = "model" if body["role"] == "assistant" else "user"
    return Event(author=role, content=types.Content(role=role, parts=parts))


EVENTS = Originals[Event](
    "google_adk",
    dump=lambda event: event.model_dump(mode="json", exclude_none=True, fallback=str),
    load=Event.model_validate,
    to_body=_to_body,
    from_body=_from_body,
)
_STATE, _SESSIONS, _OWN = "adk/state", "adk/sessions/", ""


class TurnlogSessionService(BaseSessionService):
    """Stores sessions, events and state of an app: the state of the session, of its user and of the whole app.

    An event and its changes of state are one commit. An event for a session that has changed since it was read raises
    `StaleSessionError`. Deleting a session erases it for good, and frees its id a day later. New sessions get ``settings`` of
    `Sessions.create`.
    """

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        self._log = log
        self._settings = {"recall": "never", **settings}

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        name = (session_id or "").strip() or str(uuid.uuid4())
        return await run_to_end(lambda: self._create(app_name, user_id, name, state or {}))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return await asyncio.to_thread(self._get, app_name, user_id, session_id.strip(), config or GetSessionConfig())

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        sessions = await asyncio.to_thread(self._list, app_name, user_id)
        return ListSessionsResponse(
            sessions=sorted(sessions, key=lambda session: (session.last_update_time, session.user_id, session.id))
        )

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await run_to_end(lambda: self._delete(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await asyncio.to_thread(lambda: self._state(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        head = await run_to_end(lambda: self._append(session, event))
        session._storage_update_marker = str(head)
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    async def fork_session(self, app_name: str, user_id: str, session_id: str, new_session_id: str) -> Session:
        """Return a new session that begins as this one is, with its events and its state. The events are not copied."""

        def fork() -> Session:
            session = self._get(app_name, user_id, session_id, GetSessionConfig(num_recent_events=0))
            if session is None:
                raise SessionNotFoundError(f"Session {session_id} not found.")
            log = self.log_of(app_name, user_id, session_id)
            log.fork(self.log_of(app_name, user_id, new_session_id).id)
            return self._create(app_name, user_id, new_session_id, _scopes(session.state)[_OWN])

        return await run_to_end(fork)

    def log_of(self, app_name: str, user_id: str, session_id: str) -> Log:
        """Return the session of the log, for windows, search and summaries."""
        return self._log.sessions.of(session_id_of("adk", app_name, user_id, session_id))

    # ------------------------------------------------------------ blocking work, called in a thread

    def _create(self, app: str, user: str, name: str, state: Mapping[str, Any]) -> Session:
        scopes = _scopes(state)
        try:
            session = self._log.sessions.get_or_create(session_id_of("adk", app, user, name), **self._settings)
            first = originals.put_json(
                session.documents, _STATE, {"state": scopes[_OWN], "head": session.info().head, "time": None}, None
            )
        except (DocumentChangedError, SessionExistsError) as error:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from error
        self._merge(scopes[State.APP_PREFIX], app)
        self._merge(scopes[State.USER_PREFIX], app, user)
        self._log.sessions.get_or_create(session_id_of("adk", app)).documents.put(
            _SESSIONS + session_id_of(user, name), canonical_json([user, name])
        )
        return self._session(app, user, name, first)

    def _get(self, app: str, user: str, name: str, config: GetSessionConfig) -> Session | None:
        log = self.log_of(app, user, name)
        try:
            document = log.documents.get(_STATE)
            stored = list(EVENTS.stored(log)) if document is not None and config.num_recent_events != 0 else []
        except NotFoundError:
            return None
        if document is None:
            return None
        session = self._session(app, user, name, document)
        for position, event in stored:
            if position > int(session._storage_update_marker or 0):
                self._update_session_state(session, event)
                session._storage_update_marker, session.last_update_time = str(position), event.timestamp
        events = [event for _, event in stored]
        if config.after_timestamp is not None:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        session.events = events[-config.num_recent_events :] if config.num_recent_events else events
        return session

    def _list(self, app: str, user: str | None) -> list[Session]:
        sessions = list[Session]()
        with suppress(NotFoundError):
            for entry in self._log.sessions.of(session_id_of("adk", app)).documents.list(_SESSIONS):
                owner, name = json.loads(entry.data)
                if user in (None, owner):
                    with suppress(NotFoundError):
                        document = self.log_of(app, owner, name).documents.get(_STATE)
                        sessions += [self._session(app, owner, name, document)] if document is not None else []
        return sessions

    def _delete(self, app: str, user: str, name: str) -> None:
        with suppress(NotFoundError):
            listed = self._log.sessions.of(session_id_of("adk", app)).documents
            listed.delete([_SESSIONS + session_id_of(user, name)])
            self.log_of(app, user, name).erase()

    def _append(self, session: Session, event: Event) -> int:
        """Append an event with its changes of state, and return the log's head."""
        log = self.log_of(session.app_name, session.user_id, session.id)
        marker = session._storage_update_marker
        try:
            document = log.documents.get(_STATE)
            if document is None:
                raise NotFoundError(f"session {session.id!r} has no state")
            head = int(marker) if marker is not None else log.info().head
            if marker is None and len(session.events) < sum(1 for _ in EVENTS.stored(log)):
                raise HeadMismatchError("events are missing in the session")
            answer = log.append(EVENTS.body(event), meta=[{"id": event.id}], format=FORMAT, if_head=head, lenient=True)
        except NotFoundError as error:
            raise SessionNotFoundError(f"Session {session.id} not found.") from error
        except HeadMismatchError as error:
            raise StaleSessionError(f"Session {session.id} has changed since it was read; get it again.") from error
        changed = [event]
        if (last := json.loads(document.data)["head"]) < head:  # a process ended between an append and its state
            changed = [missed for position, missed in EVENTS.stored(log) if position > last]
        self._apply(session, log.documents, changed, answer.head)
        return answer.head

    def _apply(self, session: Session, documents: Documents, events: list[Event], head: int) -> None:
        delta = {key: value for event in events for key, value in event.actions.state_delta.items()}
        scopes = _scopes(delta)
        self._merge(scopes[State.APP_PREFIX], session.app_name)
        self._merge(scopes[State.USER_PREFIX], session.app_name, session.user_id)

        def change(value: Any) -> Any:
            if value["head"] >= head:  # another process has brought the state up to date
                return value
            return {"state": {**value["state"], **scopes[_OWN]}, "head": head, "time": events[-1].timestamp}

        originals.change_document(documents, _STATE, change)

    def _merge(self, delta: Mapping[str, Any], *scope: str) -> None:
        if delta:
            documents = self._log.sessions.get_or_create(session_id_of("adk", *scope)).documents
            originals.change_document(documents, _STATE, lambda value: {**(value or {}), **delta})

    def _state(self, *scope: str) -> dict[str, Any]:
        return originals.read_json(self._log.sessions.of(session_id_of("adk", *scope)).documents, _STATE) or {}

    def _session(self, app: str, user: str, name: str, document: Document) -> Session:
        value = json.loads(document.data)
        state = value["state"] | {State.APP_PREFIX + key: item for key, item in self._state(app).items()}
        state |= {State.USER_PREFIX + key: item for key, item in self._state(app, user).items()}
        changed_at = value["time"] if value["time"] is not None else document.updated_ms / 1000
        session = Session(id=name, app_name=app, user_id=user, state=state, last_update_time=changed_at)
        session._storage_update_marker = str(value["head"])
        return session


class TurnlogWindowPlugin(BasePlugin):
    """Sends the model the session's window in place of all events. ``budget``, ``policy`` and ``output_reserve`` are those of
    `Session.context`; the agent's instructions and tools count in the budget.
    """

    def __init__(
        self,
        service: TurnlogSessionService,
        *,
        budget: int | None = None,
        policy: GivenPolicy | None = None,
        output_reserve: int | None = None,
    ) -> None:
        super().__init__(name="turnlog_window")
        self._service = service
        self._limits = Limits(budget, policy, output_reserve)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        session = callback_context.session
        log = self._service.log_of(session.app_name, session.user_id, session.id)
        system = llm_request.config.system_instruction
        window = await asyncio.to_thread(
            EVENTS.window,
            log,
            self._limits,
            system=system if isinstance(system, str) else "",
            tools=_tools(llm_request),
        )
        if window.system:
            llm_request.append_instructions([window.system])
        llm_request.contents = [event.content for event in window.messages if event.content is not None]


def _tools(request: LlmRequest) -> list[JsonObject]:
    return [
        originals.function_tool(declaration.name or "", declaration.model_dump(mode="json", exclude_none=True))
        for tool in request.config.tools or []
        for declaration in getattr(tool, "function_declarations", None) or []
    ]


def _scopes(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parts of a state by their prefix, without it: of the app, the user and a call, and the session's own."""
    scopes: dict[str, dict[str, Any]] = {State.APP_PREFIX: {}, State.USER_PREFIX: {}, State.TEMP_PREFIX: {}, _OWN: {}}
    for key, value in state.items():
        prefix = next(prefix for prefix in scopes if key.startswith(prefix))
        scopes[prefix][key.removeprefix(prefix)] = value
    return scopes
