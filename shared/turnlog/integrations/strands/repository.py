"""Strands' `SessionRepository` over the log and the documents of its sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from strands.session import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from turnlog.client.model import Session as Log
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError, TurnlogError
from turnlog.core.identity import check_session_id
from turnlog.integrations.strands.messages import FORMAT, KEPT, body_of, message_of, meta_of, session_message_of
from turnlog.integrations.strands.storage import PartedValues
from turnlog.sessions.message_models import StoredMessage

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase


_SESSION = "strands/session"
_AGENTS, _MULTI, _UPDATES = "strands/agents/", "strands/multi_agents/", "strands/updates/"


class TurnlogRepository(SessionRepository):
    """Sessions, agents and messages of Strands: ``RepositorySessionManager("support-42", TurnlogRepository(log))``.

    A message is a message of the log, its ``author`` the agent: windows, search and recall see it. Sessions, agents and
    multi-agents are documents of the session. A message that is updated, as guardrails do, is kept beside the log, and what it
    said before is redacted there. New sessions have ``settings`` of `Sessions.create`.
    """

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        self._log = log
        self._settings = settings

    # ------------------------------------------------------------ sessions

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """`SessionException` when there is one; of several at once one wins."""
        with _told(f"Session {session.session_id} can't be created"):
            log = self._log.sessions.get_or_create(_checked(session.session_id), **self._settings)
            try:
                PartedValues(log.documents).write(_SESSION, _dumped(session.to_dict()), if_absent=True)
            except ConflictError as error:
                raise SessionException(f"Session {session.session_id} already exists") from error
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        found = self._read(session_id, _SESSION)
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Erases the session for good."""
        if self.read_session(session_id) is None:
            raise SessionException(f"Session {session_id} does not exist")
        with _told(f"Session {session_id} can't be deleted"):
            self._of(session_id).erase()

    # ------------------------------------------------------------ agents

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        self._create(session_id, _AGENTS, session_agent.agent_id, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        found = self._read(session_id, _AGENTS + _quoted(agent_id))
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        def changed(before: dict[str, Any]) -> dict[str, Any]:
            session_agent.created_at = before["created_at"]
            return session_agent.to_dict()

        self._change(session_id, _AGENTS, session_agent.agent_id, changed)

    # ------------------------------------------------------------ messages

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Appends it, once. Two processes that give different messages the same id lose neither."""
        said = session_message.to_message()
        body, kept = body_of(said)
        kept |= {name: getattr(session_message, name) for name in ("created_at", "updated_at")}
        meta = meta_of(said, {**kept, "id": _number(session_message.message_id)}, agent_id)
        key = hashlib.sha256(_dumped([session_id, body, meta])).hexdigest()[:40]
        with _told(f"Message {session_message.message_id} can't be created"):
            appended = self._of(session_id).append(body, meta=[meta], format=FORMAT, key=f"strands-{key}")
            if session_message.redact_message is not None:
                self._write(session_id, _update(agent_id, appended.first), session_message.to_dict())

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        """Of several of one id the newest."""
        found = self._find(session_id, agent_id, _number(message_id), None)
        return None if found is None else found[0]

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Keeps it as it is now; what the log has of it, if that is something else, is redacted for good."""
        number = _number(session_message.message_id)
        found = self._find(session_id, agent_id, number, session_message.message.get("tracking_id"))
        if found is None:
            raise SessionException(f"Message {number} does not exist")
        before, position, stored = found
        session_message.created_at = before.created_at
        self._write(session_id, _update(agent_id, position), session_message.to_dict())
        if not stored.redacted and body_of(session_message.to_message())[0] != stored.body:
            with _told(f"Message {number} can't be redacted"):
                self._of(session_id).redact(position)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """In order of their ids; those of one id as they came."""
        if self.read_agent(session_id, agent_id) is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        with _told(f"Messages of agent {agent_id} can't be read"):
            found = sorted((one for one, _, _ in self._messages(session_id, agent_id)), key=lambda one: one.message_id)
        return found[offset:] if limit is None else found[offset : offset + limit]

    # ------------------------------------------------------------ multi-agents

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        self._create(session_id, _MULTI, multi_agent.id, multi_agent.serialize_state())

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        return self._read(session_id, _MULTI + _quoted(multi_agent_id))

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        state = multi_agent.serialize_state()
        self._change(session_id, _MULTI, multi_agent.id, lambda before: state)

    # ------------------------------------------------------------ inside

    def _of(self, session_id: str) -> Log:
        return self._log.sessions.of(_checked(session_id))

    def _create(self, session_id: str, folder: str, name: str, value: dict[str, Any]) -> None:
        with _told(f"{name} in session {session_id} can't be created"):
            try:
                PartedValues(self._of(session_id).documents).write(
                    folder + _quoted(name), _dumped(value), if_absent=True
                )
            except ConflictError as error:
                raise SessionException(f"{name} in session {session_id} already exists") from error

    def _change(
        self, session_id: str, folder: str, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        with _told(f"{name} in session {session_id} can't be updated"):
            values = PartedValues(self._of(session_id).documents)
            if not values.change(folder + _quoted(name), lambda data: _dumped(change(json.loads(data)))):
                raise SessionException(f"{name} in session {session_id} does not exist")

    def _write(self, session_id: str, key: str, value: dict[str, Any]) -> None:
        with _told(f"{key} of session {session_id} can't be written"):
            PartedValues(self._of(session_id).documents).write(key, _dumped(value))

    def _read(self, session_id: str, key: str) -> dict[str, Any] | None:
        with _told(f"{key} of session {session_id} can't be read"):
            try:
                data = PartedValues(self._of(session_id).documents).read(key)
            except NotFoundError:
                return None
        found: dict[str, Any] | None = None if data is None else json.loads(data)
        return found

    def _messages(self, session_id: str, agent_id: str) -> Iterator[tuple[SessionMessage, int, StoredMessage]]:
        """An agent's messages as they are now, in the log's order. A redacted one says not whose it was: it is the agent's whose
        message is before it."""
        log, last, is_ours = self._of(session_id), -1, True
        updates = self._updates(log)
        for one in log.messages(in_view=True):
            author, update = updates.get(one.position, (one.author, None))
            if not one.redacted or update is not None:
                is_ours = author == agent_id
            if not is_ours:
                continue
            if update is None:
                kept = (one.metadata or {}).get(KEPT) or {}
                update = session_message_of(one, kept.get("id", last + 1))
            last = update.message_id
            yield update, one.position, one

    def _find(
        self, session_id: str, agent_id: str, number: int, tracking_id: str | None
    ) -> tuple[SessionMessage, int, StoredMessage] | None:
        with _told(f"Message {number} can't be read"):
            try:
                found = [one for one in self._messages(session_id, agent_id) if one[0].message_id == number]
            except NotFoundError:
                return None
        same = [one for one in found if tracking_id and _tracking_id(one) == tracking_id] or found
        return same[-1] if same else None

    def _updates(self, log: Log) -> dict[int, tuple[str, SessionMessage]]:
        """Messages as they are now, and whose they are, by what they were in the log."""
        found = dict[int, tuple[str, SessionMessage]]()
        for key, data in PartedValues(log.documents).items(_UPDATES):
            agent, position = key.removeprefix(_UPDATES).split("/")
            found[int(position)] = (unquote(agent), SessionMessage.from_dict(json.loads(data)))
        return found


def _tracking_id(found: tuple[SessionMessage, int, StoredMessage]) -> str | None:
    return found[0].message.get("tracking_id") or message_of(found[2]).get("tracking_id")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What goes wrong in Turnlog as the exception that Strands knows."""
    try:
        yield
    except TurnlogError as error:
        raise SessionException(f"{what}: {error.detail}") from error


def _checked(session_id: str) -> str:
    try:
        return check_session_id(session_id)
    except InvalidInputError as error:
        raise ValueError(f"session_id={session_id} | {error.detail}") from error


def _number(message_id: Any) -> int:
    if not isinstance(message_id, int):
        raise ValueError(f"message_id=<{message_id}> | message id must be an integer")  # noqa: TRY004 - as the SDK does
    return message_id


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _update(agent_id: str, position: int) -> str:
    return f"{_UPDATES}{_quoted(agent_id)}/{position:012d}"


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
