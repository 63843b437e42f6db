"""Changing a session's settings: one commit that holds them all, so that windows of earlier moments are as they were."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from turnlog.contracts.sessions import Session, UpdateSession
from turnlog.domain.errors import InvalidInputError, Problem, UnavailableError
from turnlog.domain.events import SettingsEvent
from turnlog.domain.identity import Owner
from turnlog.domain.session import Settings
from turnlog.log.commits import Commit, Draft, Tail, Written
from turnlog.log.headers import following
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import InForce, SessionLog
from turnlog.ports import TokenCounter
from turnlog.services.answers import session_answer
from turnlog.services.given_settings import check_settings_size, fields_of
from turnlog.services.idempotency import raw_request_key


class UpdateSessions:
    """The use case: a field that is given is set, null sets it to its default, and what is left out stays."""

    def __init__(self, log: SessionLog, counter: TokenCounter) -> None:
        self._log = log
        self._counter = counter

    def __call__(self, owner: Owner, session_id: str, body: UpdateSession, *, key: str | None = None) -> Session:
        keys, given = SessionKeys(owner, session_id), body.model_dump(exclude_unset=True)
        if not given:
            message = "no setting is given"
            raise InvalidInputError(message, problems=[Problem("missing", "", message)])
        request = raw_request_key(key, "update session", given)
        fields, in_force = fields_of(given, self._counter), InForce(Settings(), 0)

        def compose(tail: Tail) -> Draft | Commit:
            nonlocal in_force
            header = tail.header
            before = self._log.settings(keys, tail.meta, None, header)
            in_force = replace(before, settings=replace(before.settings, **fields))
            check_settings_size(in_force.settings)
            new = following(header, kind="p", events=1, now_ms=self._log.clock.now_ms())
            event = SettingsEvent(new.first, in_force.settings, tuple(sorted(given)))
            ttl_days = in_force.settings.ttl_days or 0
            return Draft(replace(new, last_settings=new.first, ttl_days=ttl_days), (event,))

        written = self._log.commits.write(keys, compose, request)
        header = written.commit.header
        if written.repeated:
            in_force = self._log.settings_at(keys, header)
            self._log.mend(keys, written.tail)
        else:
            self._write_caches(keys, written, in_force)
        return session_answer(keys, in_force.settings, header, created_ms=in_force.created_ms)

    def _write_caches(self, keys: SessionKeys, written: Written, in_force: InForce) -> None:
        """The commit is durable already: a cache that can't be written now is mended by a reader."""
        commit = written.commit
        payload = commit.settings_payload
        with suppress(UnavailableError):
            self._log.caches.write_settings(
                keys,
                in_force.settings,
                position=commit.header.first,
                created_ms=in_force.created_ms,
                payload=payload,
            )
        self._log.show(keys, commit.header, in_force)
