"""Read one session, and list an owner's sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonValue, copied_json
from turnlog.core.loops import Flow, LoopState
from turnlog.core.models import Cursors, SessionStatus
from turnlog.core.session_settings import SCHEMA_VERSION, SessionSettings
from turnlog.core.times import milliseconds_since_epoch, read_time, rfc3339
from turnlog.log.caches import (
    CurrentSettings,
    active_of,
    is_listing_due,
    is_settled,
    read_meta,
    session_id_of,
    status_of,
)
from turnlog.log.headers import Covered, Header, Sent, attribute, item_name
from turnlog.log.keys import USERS_FROM, USERS_TO, OwnerKeys, SessionKeys, TenantKeys
from turnlog.log.tombstones import MATERIALISING, is_slot_tombstone
from turnlog.ports import Item, Query
from turnlog.sessions.models import ORIGIN, Bootstrapped, Session, SessionPage
from turnlog.sessions.runs import held_lease
from turnlog.sessions.session_log import LogUseCase


def session_answer(keys: SessionKeys, current: CurrentSettings, header: Header) -> Session:
    """Return a session as the API sends it, with copies of its settings."""
    flow, settings = header.flow, current.settings
    asked = settings.bootstrap
    names = [name for name in SessionSettings.__slots__ if name in Session.model_fields]
    fields = {name: copied_json(getattr(settings, name)) for name in names}
    fields |= {
        "bootstrap": Bootstrapped.model_validate(asked["found"]) if asked is not None else None,
        "created_at": rfc3339(current.created_ms),
        "updated_at": rfc3339(header.active_ms),
        "last_sent_at": rfc3339(header.sent.time_ms) if header.sent is not None else None,
        "last_sent_position": header.sent.position if header.sent is not None else None,
    }
    return Session(
        session_id=keys.session_id,
        user=keys.owner.user,
        status=header.status,
        head=header.last,
        messages=flow.messages,
        loops=flow.loop.number,
        tokens=flow.tokens,
        summary_to=header.summary.last if header.summary is not None else None,
        expires_at=rfc3339(header.expires_ms) if header.expires_ms is not None else None,
        lease=held_lease(header.lease),
        schema_version=SCHEMA_VERSION,
        **fields | _times_of_source(settings, header),
    )


def _times_of_source(settings: SessionSettings, header: Header) -> dict[str, Any]:
    """Return the times that the source of an imported session tells, in place of the log's; nothing for other sessions.

    Messages and windows that came after the import have times of the log.
    """
    origin = (settings.metadata or {}).get(ORIGIN)
    if not isinstance(origin, dict) or "from" not in origin or settings.forked_from or settings.reset_of:
        return {}
    names = ["created_at"]
    names += ["updated_at"] if header.flow.messages == origin.get("messages") else []
    names += ["last_sent_at"] if header.sent is None else []
    times: dict[str, Any] = {name: time for name in names if (time := _normal_time(origin.get(name))) is not None}
    position = origin.get("last_sent_position")
    if "last_sent_at" in times and type(position) is int:
        times["last_sent_position"] = position
    return times


def _normal_time(text: JsonValue) -> str | None:
    """Return a time as answers have it (UTC without a zone); None for any other value."""
    moment = read_time(text) if isinstance(text, str) else None
    return rfc3339(milliseconds_since_epoch(moment)) if moment is not None else None


DEFAULT_LIMIT = 20
_FILTERED_ITEMS, _MAX_PAGES = 200, 5
"""Entries per page and pages that a filtered listing reads at most. Then it answers with a short page and a cursor."""


class GetSession(LogUseCase):
    """Use case: return one session, as of its newest commit."""

    def __call__(self, owner: Owner, session_id: str) -> Session:
        keys = SessionKeys(owner, session_id)
        tail = self._log.commits.tail(keys)
        current = self._log.short_settings(keys, tail)
        if current.missing > 1:
            current = self._log.full_settings(keys, tail)
        return session_answer(keys, current, tail.header)


EVERY_USER = "*"
_MAX_USERS = 50
"""Users whose sessions one request for those of every user reads at most."""


class ListSessions(LogUseCase):
    """Use case: list sessions, newest activity first. Counts and order lag by up to five minutes.

    They are the caller's own, those of another user of the tenant, or with `EVERY_USER` those of all its users, user after
    user. The route checks that the caller may see them.

    Appends update the session's entry at most once in five minutes. When a listing meets an entry that no append has updated
    for that time, it reads the session's log and writes the entry once more. The entry is exact from then on.
    """

    def __call__(
        self,
        owner: Owner,
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        status: SessionStatus | None = None,
        user: str | None = None,
    ) -> SessionPage:
        if user == EVERY_USER:
            return self._of_every_user(owner, limit=limit, cursor=cursor, status=status)
        owner = Owner.of(owner.tenant, user) if user is not None else owner
        cursors = Cursors(self._log.cursor_secret())
        scope = f"sessions {owner.tenant_id} {owner.user_id} {status or ''}"
        after: Mapping[str, str] | None = cursors.read(cursor, scope=scope) if cursor is not None else None
        items, partition = list[Item](), OwnerKeys(owner).partition
        size = limit + 1 if status is None else max(limit + 1, _FILTERED_ITEMS)
        for _ in range(_MAX_PAGES):
            newest = Query(partition, "", "~", descending=True, limit=size, index="activity", after=after)
            page = self._log.items.query(newest)
            items.extend(item for item in page.items if self._is_shown(owner, item, status))
            after = page.next
            if len(items) > limit or after is None:
                break
        if len(items) > limit:
            after = {name: str(items[limit - 1][name]) for name in ("pk", "sk", "g1pk", "g1sk")}
        read = [self._session_of_entry(owner, item) for item in items[:limit]]
        sessions = [session for session in read if session is not None and status in (None, session.status)]
        return SessionPage(sessions=sessions, next_cursor=cursors.write(after, scope=scope) if after else None)

    def _of_every_user(
        self, owner: Owner, *, limit: int, cursor: str | None, status: SessionStatus | None
    ) -> SessionPage:
        """Return a page of the tenant's sessions. A cursor holds the user that comes next and the cursor of its list."""
        cursors = Cursors(self._log.cursor_secret())
        scope = f"sessions of tenant {owner.tenant_id} {status or ''}"
        start = cursors.read(cursor, scope=scope) if cursor is not None else {"user": USERS_FROM, "cursor": ""}
        inner, sessions, next_user = start["cursor"] or None, list[Session](), None
        users = self._log.items.query(
            Query(TenantKeys(owner.tenant_id).partition, start["user"], USERS_TO, limit=_MAX_USERS + 1)
        ).items
        for number, item in enumerate(users):
            if number == _MAX_USERS or len(sessions) == limit:
                next_user = item_name(item)
                break
            page = self(_user_in(owner, item), limit=limit - len(sessions), cursor=inner, status=status)
            sessions, inner = sessions + page.sessions, page.next_cursor
            if inner is not None:
                next_user = item_name(item)
                break
        following = {"user": next_user, "cursor": inner or ""} if next_user is not None else None
        return SessionPage(
            sessions=sessions, next_cursor=cursors.write(following, scope=scope) if following is not None else None
        )

    def _is_shown(self, owner: Owner, item: Item, status: str | None) -> bool:
        """Return whether an entry passes the filter. An entry with status ``creating`` counts once the first commit exists."""
        if status_of(item) == "creating":
            keys = SessionKeys(owner, session_id_of(item))
            stored = self._log.items.get_many([keys.commit(1), keys.meta])
            if is_slot_tombstone(stored.get(keys.commit(1), {})) or MATERIALISING in stored.get(keys.meta, {}):
                return False
            return status in (None, "active")
        return status in (None, status_of(item))

    def _session_of_entry(self, owner: Owner, item: Item) -> Session | None:
        """Return the session of a list entry; None when it was erased since the index was read, or has expired."""
        keys, now = SessionKeys(owner, session_id_of(item)), self._log.clock.now_ms()
        if status_of(item) == "creating" or not is_settled(item, now):
            return self._from_log(keys)
        current = read_meta(item)
        header = _header_of_entry(item, current.settings.ttl_days or 0)
        if header.expires_ms is not None and now >= header.expires_ms:
            return None
        if current.missing > 1:
            system = self._log.caches.read(keys.system)
            settings = self._log.caches.settings_in(keys, system) if system is not None else None
            if settings is None:
                return self._from_log(keys)
            current = replace(current, settings=settings)
        return session_answer(keys, current, header)

    def _from_log(self, keys: SessionKeys) -> Session | None:
        """Return the session as of its newest commit, and write its entry in the list again; None when it does not exist."""
        try:
            tail = self._log.commits.tail(keys)
            current = self._log.full_settings(keys, tail)
        except NotFoundError:
            return None
        header = tail.header
        settled = is_listing_due(header.time_ms, self._log.clock.now_ms())
        self._log.write_listing(keys, header, current, again=True, settled=settled)
        return session_answer(keys, current, header)


def _header_of_entry(item: Item, ttl_days: int) -> Header:
    """Return a header with the fields that a list entry stores; the others have defaults."""
    position, active = attribute(item, "pos", int), active_of(item)
    messages, tokens, loops = (int(count) for count in attribute(item, "ct", str).split(" "))
    return Header(
        first=position,
        last=position,
        kind="m",
        time_ms=active,
        nonce=b"",
        flow=Flow(loop=LoopState(number=loops), messages=messages, tokens=tokens),
        summary=Covered.decode(attribute(item, "sm", str)) if "sm" in item else None,
        sent=Sent.decode(attribute(item, "ws", str)) if "ws" in item else None,
        ended=position if status_of(item) == "ended" else 0,
        ttl_days=ttl_days,
        idle_ms=active if status_of(item) == "inactive" else 0,
    )


def _user_in(owner: Owner, item: Item) -> Owner:
    """Return the user of the owner's tenant that an item names. Raises `CorruptError` when the name is not that of its key."""
    user = Owner.of(owner.tenant, attribute(item, "n", str))
    if USERS_FROM + user.user_id != item_name(item):
        raise CorruptError("the name of a user is not that of its key", item=item_name(item))
    return user
