"""A `SessionStore` of the Claude Agent SDK (0.2) over the log: https://platform.claude.com/docs/en/agent-sdk/session-storage.

    from turnlog.integrations.claude_agent_sdk import TurnlogSessionStore

    options = ClaudeAgentOptions(session_store=TurnlogSessionStore(log))

Each transcript is a session. Its messages are messages of the log in the format ``anthropic``, so windows, search, summaries and
the linter work on them; its other entries are kept in the metadata of empty messages, and no window shows them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

from turnlog.agents.graph_state.messages import Newest
from turnlog.client import parts_of, retried
from turnlog.client.async_calls import in_thread, reads, writes
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.json_values import JsonObject, canonical_json
from turnlog.integrations.originals import packed, storable, unpacked
from turnlog.integrations.sessions import KeptDocuments, SessionIndex, session_id_of, sync_log
from turnlog.providers.registry import codec_of
from turnlog.sessions.message_models import StoredMessage

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

Key = Mapping[str, Any]
Entry = dict[str, Any]
FORMAT = "anthropic"
CLAUDE_METADATA = "claude_agent_sdk"
_ROOT, _SESSIONS, _SUBKEYS = "claude", "sessions/", "subkeys/"
_EMPTY: JsonObject = {"role": "assistant", "content": ""}
_MAX_ID, _MAX_KNOWN = 128, 200


class TurnlogSessionStore:
    """Stores transcripts of the Claude Agent SDK: the main one and those of subagents, a session each.

    An entry with a ``uuid`` that the transcript has is not appended again. `append` returns when all entries are stored; a batch of
    more than 25 may be stored in part when it fails, and is completed when the SDK repeats it. Deleting erases for good, and frees
    the name of a transcript a day later. New sessions get ``settings`` of `Sessions.create`.
    """

    def __init__(self, log: Turnlog, **settings: Any) -> None:
        self._log = sync_log(log)
        self._settings = settings
        self._known = Newest[str, tuple[int, set[str]]](_MAX_KNOWN)

    @writes
    def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries in order. Entries without a ``uuid`` are appended each time."""
        if not entries:
            return
        session = self._log.sessions.get_or_create(_session_id(key), **self._settings_of(key))
        copies = [cast("Entry", dict(entry)) for entry in entries]
        if key.get("subpath"):
            self._documents(_main_of(key)).put_many({_SUBKEYS + quote(key["subpath"], safe=""): b""})

        def attempt() -> None:
            head, known = self._uuids(session)
            self._append_new(session, list(_unknown(copies, known)), head)

        retried(attempt)
        if not key.get("subpath"):
            self._summarise(key, copies)

    @reads
    def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries in order, equal to what was appended; None for an unknown key."""
        with suppress(NotFoundError):
            entries = [_entry_of(message) for message in self.session(key).messages(in_view=True)]
            return cast("list[SessionStoreEntry]", entries) or None
        return None

    @reads
    def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the main transcripts of a project."""
        return [{"session_id": entry["session_id"], "mtime": entry["mtime"]} for entry in self._summaries(project_key)]

    def _summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summary of each main transcript of a project."""
        documents = self._project(project_key).list_living(
            _SESSIONS, lambda rest: _session_id({"project_key": project_key, "session_id": unquote(rest)})
        )
        return [{**json.loads(document.data), "mtime": document.updated_ms} for document in documents]

    list_session_summaries = in_thread(_summaries)

    def _subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a transcript's subagents."""
        return [unquote(document.key.removeprefix(_SUBKEYS)) for document in self._documents(key).list(_SUBKEYS)]

    list_subkeys = in_thread(_subkeys)

    @writes
    def delete(self, key: SessionKey) -> None:
        """Erase a transcript with those of its subagents; with a subpath that one alone."""
        main, subpath = _main_of(key), key.get("subpath")
        if subpath:
            gone: list[Key] = [key]
            self._documents(main).delete([_SUBKEYS + quote(subpath, safe="")])
        else:
            gone = [*({**main, "subpath": subkey} for subkey in self._subkeys(main)), main]
            self._project(key["project_key"]).delete([_SESSIONS + quote(key["session_id"], safe="")])
        for transcript in gone:
            self._known.pop(_session_id(transcript), None)
            with suppress(NotFoundError):
                self.session(transcript).erase()

    def session(self, key: Key) -> Session:
        """Return the session of a transcript, for windows, search and summaries."""
        return self._log.sessions.of(_session_id(key))

    def _settings_of(self, key: Key) -> dict[str, Any]:
        """Return the settings of a new session: the key is in its metadata."""
        return {**self._settings, "metadata": {**(self._settings.get("metadata") or {}), CLAUDE_METADATA: dict(key)}}

    def _append_new(self, session: Session, entries: Sequence[Entry], head: int) -> None:
        pairs = [_message_of(entry) for entry in entries]
        bodies, metas = [body for body, _ in pairs], [meta for _, meta in pairs]
        for part in parts_of(bodies, metas):
            digest = hashlib.sha256(canonical_json([session.id, head, bodies[part], metas[part]])).hexdigest()[:32]
            answer = session.append(
                *bodies[part], meta=metas[part], format=FORMAT, if_head=head, idempotency_key=f"claude-{digest}"
            )
            head = answer.head
            known = self._known.get(session.id, (0, set[str]()))[1]
            self._known[session.id] = (head, known | {str(meta["id"]) for meta in metas[part] if "id" in meta})

    def _uuids(self, session: Session) -> tuple[int, set[str]]:
        """Return the head and the uuids of all entries; what this object has read or written before is not read again."""
        head = session.info().head
        last, known = self._known.get(session.id, (0, set[str]()))
        place: int | None = last
        while place is not None and last < head:
            page = session.page(after=place or None)
            known |= {message.id for message in page.messages if message.id is not None and message.position <= head}
            place = page.next
        self._known[session.id] = (head, known)
        return head, known

    def _summarise(self, key: Key, entries: Sequence[Entry]) -> None:
        from claude_agent_sdk import fold_session_summary

        def fold(summary: SessionSummaryEntry | None) -> SessionSummaryEntry:
            return fold_session_summary(summary, cast("SessionKey", key), cast("list[SessionStoreEntry]", entries))

        self._project(key["project_key"]).change(_SESSIONS + quote(key["session_id"], safe=""), fold)

    def _project(self, project_key: str) -> SessionIndex:
        key = {"project_key": project_key}
        return SessionIndex(self._log, _session_id(key), self._settings_of(key))

    def _documents(self, key: Key) -> KeptDocuments:
        return KeptDocuments(self._log, _session_id(key), **self._settings_of(key))


def _main_of(key: Key) -> Key:
    """Return the key of a transcript without its subpath."""
    return {name: key[name] for name in ("project_key", "session_id")}


def _session_id(key: Key) -> str:
    """Return the session id of a transcript; without a ``session_id`` that of its project's list."""
    return session_id_of(_ROOT, key["project_key"], *(key[name] for name in ("session_id", "subpath") if key.get(name)))


def _unknown(entries: Sequence[Entry], known: set[str]) -> Iterator[Entry]:
    """Yield the entries whose uuid is neither known nor that of an entry before."""
    seen = set[str]()
    for entry in entries:
        uuid = _id_of(entry)
        if uuid is None or (uuid not in known and uuid not in seen):
            yield entry
        if uuid is not None:
            seen.add(uuid)


def _message_of(entry: Entry) -> tuple[JsonObject, JsonObject]:
    """Return the message that stores an entry, and the metadata with the rest of the entry."""
    message = entry.get("message")
    body = _EMPTY
    if isinstance(message, Mapping) and not entry.get("isApiErrorMessage"):
        said = {name: storable(message[name]) for name in ("role", "content") if name in message}
        with suppress(InvalidInputError):
            codec_of(FORMAT).parse(said)
            body = said
    meta: JsonObject = {"metadata": {CLAUDE_METADATA: packed(entry, body)}}
    if (uuid := _id_of(entry)) is not None:
        meta["id"] = uuid
    return body, meta


def _entry_of(stored: StoredMessage) -> Entry:
    kept = (stored.metadata or {}).get(CLAUDE_METADATA)
    if kept is None:  # a message that another program has appended
        return {"type": stored.body["role"], "message": dict(stored.body), "timestamp": stored.created_at}
    entry: Entry = unpacked(kept, stored.body)
    return entry


def _id_of(entry: Entry) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) and 0 < len(uuid) <= _MAX_ID else None
