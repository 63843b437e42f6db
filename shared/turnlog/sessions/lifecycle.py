"""Create, fork, end and reset sessions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from turnlog.core.errors import InvalidInputError, NotFoundError, SessionExistsError
from turnlog.core.events import CloseEvent, CreateEvent
from turnlog.core.identity import Owner, check_session_id
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.loops import Flow
from turnlog.core.memory import OffloadReason
from turnlog.core.session_settings import SessionSettings
from turnlog.log.caches import CurrentSettings, directory_item
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import CREATION, Header, following
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.request_keys import RequestKey, raw_request_key, request_key
from turnlog.log.tombstones import id_taken
from turnlog.ports import Absent, Less, TokenCounter, get_item
from turnlog.sessions.incoming import Incoming, message_event
from turnlog.sessions.models import Bootstrap, CreateSession, ForkPoint, Session
from turnlog.sessions.read import session_answer
from turnlog.sessions.rewind_and_fork import ForkOrigin
from turnlog.sessions.session_log import SessionLog
from turnlog.sessions.state import check_change
from turnlog.sessions.state_store import SessionState, write_state_cache
from turnlog.sessions.update import check_settings_size, fields_of

if TYPE_CHECKING:
    from turnlog.memory.bootstrap import BootstrapMessage
    from turnlog.memory.hand_over import AskForOffloads
    from turnlog.summaries.store import Summaries


_NO_SETTINGS = {"session_id", "state", "fork", "bootstrap", "if_exists"}
"""Fields of a new session that are not among its settings."""
_FORBIDDEN_IN_FORK = frozenset({"state", "state_schema", "recall", "bootstrap"})


@lazy_dataclass(frozen=True, slots=True)
class Created:
    """The answer of creating a session. ``is_new`` is False when the session existed and ``if_exists`` is ``return``."""

    session: Session
    is_new: bool


@lazy_dataclass(frozen=True, slots=True)
class CreateSessions:
    """Use case: create a session by a commit at position 1 with all settings. Of concurrent creators exactly one succeeds."""

    log: SessionLog
    summaries: Summaries
    counter: TokenCounter
    bring_memories: Callable[[Owner, Bootstrap], BootstrapMessage]

    def __call__(self, owner: Owner, body: CreateSession, *, key: str | None = None) -> Created:
        request = request_key(key, "create", body)
        session_id = body.session_id
        if session_id is None:
            session_id = derived_session_id(owner, request.key_hash) if request is not None else self.log.ids.new_id()
        keys = SessionKeys(owner, session_id)
        if body.fork is not None:
            return self._fork(keys, body, body.fork, request)
        options = Bootstrap() if body.bootstrap is True else body.bootstrap or None
        if options is not None and (body.session_id is not None or request is not None):
            existing = self._existing_session(keys, body, request)
            if existing is not None:
                return existing
        settings = SessionSettings(**fields_of(body.model_dump(exclude=_NO_SETTINGS), self.counter))
        state = cast("JsonObject | None", body.state)
        check_settings_size(settings)
        _check_first_state(state, settings.state_schema)
        put = self._put_first_commit(keys, settings, state, request, options=options)
        if put is None:
            return self._answer_existing(keys, body, request)
        return Created(self._write_caches(keys, *put, state), True)

    def _fork(self, keys: SessionKeys, body: CreateSession, fork: ForkPoint, request: RequestKey | None) -> Created:
        """Create a session that begins as its parent was at the fork point. Settings in ``body`` replace the parent's."""
        for name in _FORBIDDEN_IN_FORK & body.model_fields_set:
            message = f"a fork takes its {name} from its parent session; leave {name} out"
            raise InvalidInputError.at(f"/{name}", message, "invalid_with_fork")
        existing = self._existing_session(keys, body, request)
        if existing is not None:
            return existing
        parent = check_session_id(fork.session_id, pointer="/fork/session_id")
        point = ForkOrigin(self.log, SessionKeys(keys.owner, parent), fork.at)
        changes = body.model_dump(exclude_unset=True, exclude=_NO_SETTINGS)
        settings = replace(point.settings, **fields_of(changes, self.counter))
        check_settings_size(settings)
        self._reserve(keys, settings)
        commit = point.put(keys, settings, request=request)
        if commit is None:
            return self._answer_existing(keys, body, request)
        session = self._write_caches(keys, commit, settings)
        point.write_caches(keys, commit.header, self.summaries)
        return Created(session, True)

    def create_with_settings(self, keys: SessionKeys, settings: SessionSettings) -> Session:
        """Create a session with the settings of another one, or return it when it exists.

        The id must be derived for this purpose alone, so that a retry gets the same session. A session whose settings ask for
        memories at the beginning gets them again.
        """
        options = Bootstrap.model_validate(settings.bootstrap["asked"]) if settings.bootstrap is not None else None
        is_there = options is not None and get_item(self.log.items, keys.commit(1)) is not None
        put = self._put_first_commit(keys, settings, None, None, options=options) if not is_there else None
        if put is not None:
            return self._write_caches(keys, *put)
        return self._answer_created(keys, self._existing(keys)[1])

    def _put_first_commit(
        self,
        keys: SessionKeys,
        settings: SessionSettings,
        state: JsonObject | None,
        request: RequestKey | None,
        *,
        options: Bootstrap | None,
    ) -> tuple[Commit, SessionSettings] | None:
        """Write the first commit; return it with the settings, or None when the session exists.

        The session is reserved before memory is read. An erasure of the user's data then sees the session and stops it.
        """
        now = self._reserve(keys, settings)
        memory_message: BootstrapMessage | None = None
        if options is not None:
            memory_message = self.bring_memories(keys.owner, options)
            settings = replace(settings, bootstrap=memory_message.record)
        draft = _draft(keys, settings, state, now, memory_message.message if memory_message is not None else None)
        stamp = request.stamp if request is not None else b""
        commit = self.log.commits.put(keys, draft, nonce=self.log.ids.nonce(), stamp=stamp)
        return (commit, settings) if commit is not None else None

    def _reserve(self, keys: SessionKeys, settings: SessionSettings) -> int:
        """Put the session into the owner's list with status ``creating``; return the time in milliseconds.

        `ConflictError` while the user's data is being erased.
        """
        now = self.log.clock.now_ms()
        self.log.items.put(directory_item(keys, CurrentSettings(settings, now), None), condition=Absent())
        self.log.check_in(keys.owner)
        return now

    def _existing_session(self, keys: SessionKeys, body: CreateSession, request: RequestKey | None) -> Created | None:
        """Return the session of that id if there is one, or raise `SessionExistsError`.

        A fork checks this before it reads its parent, which may be gone when the request is repeated.
        """
        first = get_item(self.log.items, keys.commit(1))
        return self._answer_existing(keys, body, request) if first is not None else None

    def _answer_existing(self, keys: SessionKeys, body: CreateSession, request: RequestKey | None) -> Created:
        tail, first = self._existing(keys)
        if request is not None and request.matches(first.header.idempotency):
            return Created(self._answer_created(keys, first), True)
        if body.if_exists == "error":
            raise SessionExistsError(f"session {keys.session_id!r} exists")
        return Created(session_answer(keys, self.log.full_settings(keys, tail), tail.header), False)

    def _existing(self, keys: SessionKeys) -> tuple[Tail, Commit]:
        """Return the end of a session's log and its first commit. Raises `SessionExistsError` for one that is gone."""
        try:
            tail, first = self.log.commits.tail(keys), self.log.commits.begin(keys)
        except NotFoundError:
            first = None
        if first is None:
            raise id_taken(keys.session_id)
        return tail, first

    def _answer_created(self, keys: SessionKeys, first: Commit) -> Session:
        """Return the session as it was created, and write its caches: a crash after the first commit may have skipped them."""
        return self._write_listing(keys, first.header, self.log.settings_from_log(keys, first.header))

    def _write_caches(
        self, keys: SessionKeys, commit: Commit, settings: SessionSettings, state: JsonObject | None = None
    ) -> Session:
        """Write the caches of a new session, and return it."""
        header, payload = commit.header, commit.settings_payload
        current = CurrentSettings(settings, header.time_ms, header.last_settings, payload=payload)
        self.log.caches.write_settings(keys, current)
        if state is not None:
            write_state_cache(self.log, keys, SessionState(state, version=1, base=1))
        return self._write_listing(keys, header, current)

    def _write_listing(self, keys: SessionKeys, header: Header, current: CurrentSettings) -> Session:
        self.log.items.put(directory_item(keys, current, header), condition=Less("pos", header.last))
        return session_answer(keys, current, header)


def derived_session_id(owner: Owner, seed: bytes) -> str:
    """Return a session id that is derived from owner and seed, so that a repeated request gets the same id."""
    source = f"{owner.tenant_id}#{owner.user_id}#".encode() + seed
    return "s" + base64.b32encode(hashlib.sha256(source).digest()).decode("ascii").rstrip("=").lower()[:31]


def _check_first_state(state: JsonObject | None, schema: JsonObject | None) -> None:
    """Refuse an invalid state, an invalid schema, and a state that does not fit the schema."""
    if state is not None:
        check_change({}, state)
    if schema is None:
        return
    # Imported here: most sessions have no schema, and the library takes long to import.
    from turnlog.sessions.state_schema import check_schema, check_state, check_work

    work = check_work()
    check_schema(schema, work)
    if state is not None:
        check_state(state, schema, work)


def _draft(
    keys: SessionKeys, settings: SessionSettings, state: JsonObject | None, now: int, message: Incoming | None
) -> Draft:
    header = Header(
        first=1,
        last=2 if message is not None else 1,
        kind=CREATION,
        time_ms=now,
        nonce=b"",
        # The message has no author: no role precedes the first one, and no loop is open.
        flow=Flow(messages=1, tokens=message.tokens) if message is not None else Flow(),
        last_state=1 if state is not None else 0,
        ttl_days=settings.ttl_days or 0,
        pinned=(),
    )
    create = CreateEvent(1, keys.session_id, settings, state)
    return Draft(header, (create, message_event(message, 2)) if message is not None else (create,))


class EndSessions:
    """Use case: end a session. A concurrent append is committed before the end or refused. Ending twice gives the same answer."""

    def __init__(self, log: SessionLog, offload: AskForOffloads) -> None:
        self._log = log
        self._offload = offload

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Session:
        keys = SessionKeys(owner, session_id)
        commit, current = self.close(keys, raw_request_key(key, "end session", {}), "ended")
        return session_answer(keys, current, commit.header)

    def close(
        self, keys: SessionKeys, request: RequestKey | None, reason: OffloadReason
    ) -> tuple[Commit, CurrentSettings]:
        """End the session; return the commit that ended it and its settings. Hands the session over to long-term memory."""

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            if header.ended:
                return self._log.commits.at(keys, [header.ended])[0]
            if reason == "reset":  # whoever is being erased gets no new session, so this one must not end
                self._log.check_not_erasing(keys.owner, get_item(self._log.items, OwnerKeys(keys.owner).erasing))
            self._offload.note(keys, reason)
            new = following(header, kind="e", events=1, now_ms=self._log.clock.now_ms())
            return Draft(replace(new, ended=new.first), (CloseEvent(new.first),))

        written = self._log.commits.write(keys, compose, request)
        header, tail = written.commit.header, written.tail
        if written.repeated:
            self._log.repair_caches(keys, tail)
            self._offload.send(keys, header, reason)
            return written.commit, self._log.settings_at(keys, header)
        current = self._log.full_settings(keys, tail)
        self._log.write_listing(keys, header, current)
        self._offload.send(keys, header, reason)
        return written.commit, current


class ResetSessions:
    """Use case: end a session and create another one with its settings. Repeating it returns the session that was created.

    The new id is derived from the commit that ended the old session. A retry after a crash finds or creates that session.
    """

    def __init__(self, log: SessionLog, end: EndSessions, create: CreateSessions) -> None:
        self._log = log
        self._end = end
        self._create = create

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Session:
        keys = SessionKeys(owner, session_id)
        closed, _ = self._end.close(keys, raw_request_key(key, "reset session", {}), "reset")
        tail = self._log.commits.tail(keys)
        settings = self._log.full_settings(keys, tail).settings
        replacement = SessionKeys(owner, derived_session_id(owner, b"reset#" + closed.header.hash))
        return self._create.create_with_settings(
            replacement, replace(settings, reset_of=session_id, forked_from=None, forked_at=None)
        )
