"""A Strands `SessionRepository` over the log and the documents of its sessions; Strands messages converted to the log's.

A message is stored as `bedrock_converse`, with bytes in base64 as in the HTTP API. Fields that this format lacks are stored in
its metadata.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

from strands.session import SessionRepository
from strands.types.content import Message
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, decode_bytes_values, encode_bytes_values

from turnlog.agents.graph_state.messages import FRAMEWORK_METADATA
from turnlog.client.model import Session as Log
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, NotFoundError, TurnlogError
from turnlog.integrations.originals import is_refused
from turnlog.integrations.sessions import KeptDocuments, stored_ids
from turnlog.integrations.strands.storage import PartedValues
from turnlog.sessions.message_models import StoredMessage

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase


FORMAT = "bedrock_converse"
STRANDS_METADATA = "strands"
assert STRANDS_METADATA in FRAMEWORK_METADATA  # noqa: S101 - alignment knows these messages by their ids
_BODY = ("role", "content")
_DECODED: Mapping[str, Callable[[str], Any]] = {"bytes": base64.b64decode, "numbers": json.loads}
"""Values that a body holds as text, and how to read them. The metadata has the places of each kind."""
_MAX_ID = 128
_MEDIA = ("image", "document", "video", "audio")
_SESSION = "strands/session"
_AGENTS, _MULTI, _UPDATES = "strands/agents/", "strands/multi_agents/", "strands/updates/"


def body_of(message: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the body of a message for the log, and the metadata that `message_of` needs to restore it."""
    places: dict[str, Any] = {kind: list[list[str | int]]() for kind in _DECODED}
    body = {name: _plain(message[name], (name,), places) for name in _BODY if name in message}
    rest = {name: value for name, value in message.items() if name not in (*_BODY, "tracking_id")}
    own_fields = {**places, "rest": encode_bytes_values(rest)}
    return body, {name: value for name, value in own_fields.items() if value}


def meta_of(message: Mapping[str, Any], own_fields: Mapping[str, Any], agent_id: str) -> dict[str, Any]:
    """Return the fields of a message beside its body: author, metadata, and its tracking id as message id."""
    meta: dict[str, Any] = {"author": agent_id, "metadata": {STRANDS_METADATA: dict(own_fields)}}
    tracking_id = message.get("tracking_id")
    if isinstance(tracking_id, str) and 0 < len(tracking_id) <= _MAX_ID:
        meta["id"] = tracking_id
    elif tracking_id is not None:
        meta["metadata"][STRANDS_METADATA]["tracking_id"] = tracking_id
    return meta


def message_of(stored: StoredMessage) -> Message:
    """Return a stored message as Strands gave it."""
    own_fields = (stored.metadata or {}).get(STRANDS_METADATA) or {}
    message: dict[str, Any] = copy.deepcopy(stored.body)
    for kind, decoded in _DECODED.items():
        for *steps, last in own_fields.get(kind, ()):
            holder: Any = reduce(getitem, steps, message)
            holder[last] = decoded(holder[last])
    tracking_id = stored.id if stored.id is not None else own_fields.get("tracking_id")
    if tracking_id is not None:
        message["tracking_id"] = tracking_id
    return cast("Message", message | decode_bytes_values(own_fields.get("rest", {})))


def session_message_of(stored: StoredMessage, message_id: int) -> SessionMessage:
    """Return a stored message as a `SessionMessage` of Strands."""
    own_fields = (stored.metadata or {}).get(STRANDS_METADATA) or {}
    times = {name: own_fields.get(name, stored.created_at) for name in ("created_at", "updated_at")}
    return SessionMessage(message_of(stored), message_id, **times)


def decode_message(body: Mapping[str, Any]) -> Message:
    """Return a message of a window with its base64 fields decoded to bytes, as Strands sends them."""
    return cast("Message", {**body, "content": [_block(block) for block in body["content"]]})


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    decoded = dict(block)
    for kind in _MEDIA:
        source = (decoded.get(kind) or {}).get("source") or {}
        if isinstance(source.get("bytes"), str):
            decoded[kind] = {**decoded[kind], "source": {**source, "bytes": base64.b64decode(source["bytes"])}}
    reasoning = decoded.get("reasoningContent") or {}
    if isinstance(reasoning.get("redactedContent"), str):
        decoded["reasoningContent"] = {**reasoning, "redactedContent": base64.b64decode(reasoning["redactedContent"])}
    result = decoded.get("toolResult")
    if result is not None:
        decoded["toolResult"] = {**result, "content": [_block(part) for part in result["content"]]}
    return decoded


def _plain(value: Any, place: Sequence[str | int], places: Mapping[str, list[list[str | int]]]) -> Any:
    if isinstance(value, bytes | bytearray):
        places["bytes"].append(list(place))
        return base64.b64encode(value).decode("ascii")
    if is_refused(value):
        places["numbers"].append(list(place))
        return json.dumps(value)
    if isinstance(value, Mapping):
        return {name: _plain(member, (*place, name), places) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member, (*place, index), places) for index, member in enumerate(value)]
    return value


class TurnlogRepository(SessionRepository):
    """Stores sessions, agents and messages of Strands: ``RepositorySessionManager("support-42", TurnlogRepository(log))``.

    Each message is a message of the log with the agent as ``author``, so windows, search and recall see it. Sessions, agents and
    multi-agents are documents of the session. An updated message, as guardrails make it, is stored as a document, and its old text
    in the log is redacted. New sessions get ``settings`` of `Sessions.create`.
    """

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        self._log = log
        self._settings = settings
        self._id_of = stored_ids(log)

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Create a session. Raises `SessionException` when it exists; of concurrent calls exactly one succeeds."""
        with _strands_errors(f"Session {session.session_id} can't be created"):
            log = self._log.sessions.get_or_create(self._of(session.session_id).id, **self._settings)
            try:
                PartedValues(log.documents).write(_SESSION, _dumped(session.to_dict()), if_absent=True)
            except ConflictError as error:
                raise SessionException(f"Session {session.session_id} already exists") from error
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        state = self._read(session_id, _SESSION)
        return None if state is None else Session.from_dict(state)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Erase the session permanently. Raises `SessionException` when it does not exist."""
        if self.read_session(session_id) is None:
            raise SessionException(f"Session {session_id} does not exist")
        with _strands_errors(f"Session {session_id} can't be deleted"):
            self._of(session_id).erase()

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        self._create(session_id, _AGENTS, session_agent.agent_id, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        state = self._read(session_id, _AGENTS + _quoted(agent_id))
        return None if state is None else SessionAgent.from_dict(state)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        def changed(before: dict[str, Any]) -> dict[str, Any]:
            session_agent.created_at = before["created_at"]
            return session_agent.to_dict()

        self._change(session_id, _AGENTS, session_agent.agent_id, changed)

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Append a message; a repeated call has no further effect. Different messages with the same id are all kept."""
        message = session_message.to_message()
        body, own_fields = body_of(message)
        own_fields |= {name: getattr(session_message, name) for name in ("created_at", "updated_at")}
        meta = meta_of(message, {**own_fields, "id": _number(session_message.message_id)}, agent_id)
        key = hashlib.sha256(_dumped([session_id, body, meta])).hexdigest()[:40]
        with _strands_errors(f"Message {session_message.message_id} can't be created"):
            appended = self._of(session_id).append(body, meta=[meta], format=FORMAT, idempotency_key=f"strands-{key}")
            if session_message.redact_message is not None:
                self._write(session_id, _update(agent_id, appended.first), session_message.to_dict())

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        """Return the newest message with this id, or None."""
        match = self._find(session_id, agent_id, _number(message_id), None)
        return None if match is None else match[0]

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Store the message's new content. When the log's content differs, it is redacted permanently."""
        number = _number(session_message.message_id)
        match = self._find(session_id, agent_id, number, session_message.message.get("tracking_id"))
        if match is None:
            raise SessionException(f"Message {number} does not exist")
        before, position, stored = match
        session_message.created_at = before.created_at
        self._write(session_id, _update(agent_id, position), session_message.to_dict())
        if not stored.redacted and body_of(session_message.to_message())[0] != stored.body:
            with _strands_errors(f"Message {number} can't be redacted"):
                self._of(session_id).redact(position)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """Return messages in order of their ids; messages with the same id in the order they were appended."""
        if self.read_agent(session_id, agent_id) is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        with _strands_errors(f"Messages of agent {agent_id} can't be read"):
            messages = [message for message, _, _ in self._messages(session_id, agent_id)]
        messages.sort(key=lambda message: message.message_id)
        return messages[offset:] if limit is None else messages[offset : offset + limit]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        self._create(session_id, _MULTI, multi_agent.id, multi_agent.serialize_state())

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        return self._read(session_id, _MULTI + _quoted(multi_agent_id))

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        state = multi_agent.serialize_state()
        self._change(session_id, _MULTI, multi_agent.id, lambda before: state)

    def _of(self, session_id: str) -> Log:
        """Return the session. Raises ``ValueError`` for a path separator in its id, as Strands' own storages do."""
        if not session_id or "/" in session_id or "\\" in session_id:
            raise ValueError(f"session_id={session_id} | id is empty or has a path separator")
        return self._log.sessions.of(self._id_of(session_id))

    def _create(self, session_id: str, folder: str, name: str, value: dict[str, Any]) -> None:
        with _strands_errors(f"{name} in session {session_id} can't be created"):
            try:
                PartedValues(self._of(session_id).documents).write(
                    folder + _quoted(name), _dumped(value), if_absent=True
                )
            except ConflictError as error:
                raise SessionException(f"{name} in session {session_id} already exists") from error

    def _change(
        self, session_id: str, folder: str, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        with _strands_errors(f"{name} in session {session_id} can't be updated"):
            values = PartedValues(self._of(session_id).documents)
            if not values.change(folder + _quoted(name), lambda data: _dumped(change(json.loads(data)))):
                raise SessionException(f"{name} in session {session_id} does not exist")

    def _write(self, session_id: str, key: str, value: dict[str, Any]) -> None:
        with _strands_errors(f"{key} of session {session_id} can't be written"):
            PartedValues(self._of(session_id).documents).write(key, _dumped(value))

    def _read(self, session_id: str, key: str) -> dict[str, Any] | None:
        with _strands_errors(f"{key} of session {session_id} can't be read"):
            data = PartedValues(KeptDocuments(self._log, self._of(session_id).id)).read(key)
        return None if data is None else cast("dict[str, Any]", json.loads(data))

    def _messages(self, session_id: str, agent_id: str) -> Iterator[tuple[SessionMessage, int, StoredMessage]]:
        """Yield an agent's messages with their updates applied, their positions and stored messages, in the log's order.

        A redacted message has no author; it counts as the author's of the message before it.
        """
        log, last, is_ours, updates = self._of(session_id), -1, True, dict[int, tuple[str, SessionMessage]]()
        for key, data in PartedValues(log.documents).items(_UPDATES):
            agent, position = key.removeprefix(_UPDATES).split("/")
            updates[int(position)] = (unquote(agent), SessionMessage.from_dict(json.loads(data)))
        for stored in log.messages(in_view=True):
            author, update = updates.get(stored.position, (stored.author, None))
            if not stored.redacted or update is not None:
                is_ours = author == agent_id
            if not is_ours:
                continue
            if update is None:
                own_fields = (stored.metadata or {}).get(STRANDS_METADATA) or {}
                update = session_message_of(stored, own_fields.get("id", last + 1))
            last = update.message_id
            yield update, stored.position, stored

    def _find(
        self, session_id: str, agent_id: str, number: int, tracking_id: str | None
    ) -> tuple[SessionMessage, int, StoredMessage] | None:
        with _strands_errors(f"Message {number} can't be read"):
            try:
                matches = [match for match in self._messages(session_id, agent_id) if match[0].message_id == number]
            except NotFoundError:
                return None
        same = [match for match in matches if tracking_id and _tracking_id(match) == tracking_id] or matches
        return same[-1] if same else None


def _tracking_id(match: tuple[SessionMessage, int, StoredMessage]) -> str | None:
    return match[0].message.get("tracking_id") or message_of(match[2]).get("tracking_id")


@contextmanager
def _strands_errors(action: str) -> Iterator[None]:
    """Raise Turnlog errors of the block as `SessionException`, prefixed with the failed ``action``."""
    try:
        yield
    except TurnlogError as error:
        raise SessionException(f"{action}: {error.detail}") from error


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
