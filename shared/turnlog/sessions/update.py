"""Change the settings of a session. Each change is a commit, so a window of any earlier moment can be built again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from turnlog.core.errors import InvalidInputError, TooLargeError, UnavailableError
from turnlog.core.events import SettingsEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, JsonValue, encode_json, measured
from turnlog.core.session_settings import WINDOW_SETTINGS, SessionSettings
from turnlog.log.caches import CurrentSettings
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import following
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import raw_request_key
from turnlog.ports import TokenCounter
from turnlog.providers.token_rules import count_tools
from turnlog.sessions.models import Session, UpdateSession
from turnlog.sessions.read import session_answer
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.policy import policy_of
from turnlog.windows.request import system_cost

MAX_SETTINGS_BYTES = 4 * 1024 * 1024
MAX_SETTINGS_VALUES = 250_000


def fields_of(changes: dict[str, Any], counter: TokenCounter) -> dict[str, Any]:
    """Return changes as fields of `SessionSettings`, with token counts. A None is replaced by the field's default."""
    default = SessionSettings()
    fields = {name: value if value is not None else getattr(default, name) for name, value in changes.items()}
    if "policy" in fields:
        policy_of(fields["policy"])
    if "system" in fields:
        text = fields["system"]
        fields["system_tokens"] = system_cost(counter.count(text)) if text is not None else 0
    if "tools" in fields:
        tools = cast("list[JsonObject]", list(fields["tools"]))
        fields |= {"tools": tuple(tools), "tools_tokens": count_tools(tools, counter)}
    return fields


def check_settings_size(settings: SessionSettings) -> None:
    """Raise `TooLargeError` when system text, tools, policy and metadata are together over the limits."""
    content = [settings.system, list(settings.tools), settings.policy, settings.metadata]
    count, _ = measured(cast("JsonValue", content))
    if count > MAX_SETTINGS_VALUES:
        message = f"system text, tools, policy and metadata have {count} JSON values together; the limit is {MAX_SETTINGS_VALUES}"
        raise TooLargeError(message)
    if len(encode_json(content)) > MAX_SETTINGS_BYTES:
        raise TooLargeError(f"system text, tools, policy and metadata are over the limit of {MAX_SETTINGS_BYTES} bytes")


class UpdateSessions:
    """Use case: change settings. A null resets a field to its default; fields that are left out stay unchanged."""

    def __init__(self, log: SessionLog, counter: TokenCounter) -> None:
        self._log = log
        self._counter = counter

    def __call__(self, owner: Owner, session_id: str, body: UpdateSession, *, key: str | None = None) -> Session:
        keys, changes = SessionKeys(owner, session_id), body.model_dump(exclude_unset=True)
        if not changes:
            raise InvalidInputError.at("", "no setting is given", "missing")
        request = raw_request_key(key, "update session", changes)
        fields, current = fields_of(changes, self._counter), CurrentSettings(SessionSettings(), 0)

        def compose(tail: Tail) -> Draft | Commit:
            nonlocal current
            header = tail.header
            before = self._log.full_settings(keys, tail)
            current = replace(before, settings=replace(before.settings, **fields))
            check_settings_size(current.settings)
            new = following(header, kind="p", events=1, now_ms=self._log.clock.now_ms())
            event = SettingsEvent(new.first, current.settings, tuple(sorted(changes)))
            ttl_days = current.settings.ttl_days or 0
            last_frame = new.first if changes.keys() & WINDOW_SETTINGS else new.last_frame
            return Draft(replace(new, last_settings=new.first, last_frame=last_frame, ttl_days=ttl_days), (event,))

        written = self._log.commits.write(keys, compose, request)
        header = written.commit.header
        if written.repeated:
            current = self._log.settings_at(keys, header)
            self._log.repair_caches(keys, written.tail)
        else:
            current = replace(current, position=header.first, payload=written.commit.settings_payload)
            # The commit is durable: readers repair a cache that could not be written.
            with suppress(UnavailableError):
                self._log.caches.write_settings(keys, current)
            self._log.write_listing(keys, header, current)
        return session_answer(keys, current, header)
