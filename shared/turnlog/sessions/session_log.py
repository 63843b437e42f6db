"""The log of sessions as the use cases see it: current settings, and entries in the list of sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from turnlog.core.errors import ConflictError, CorruptError, SessionEndedError, UnavailableError
from turnlog.core.events import CreateEvent, ForkEvent, SettingsEvent, SummaryEvent
from turnlog.core.identity import Owner, serving
from turnlog.core.json_values import JsonObject
from turnlog.core.models import Cursors
from turnlog.core.session_settings import SessionSettings
from turnlog.log.caches import Caches, CurrentSettings, directory_item, is_listing_due, read_meta, reflected_position
from turnlog.log.commit import header_in
from turnlog.log.commits import CommitLog, Tail
from turnlog.log.headers import Header
from turnlog.log.keys import OwnerKeys, RecordKeys, SessionKeys, commit_sort_key, item_at
from turnlog.log.payloads import Payloads
from turnlog.log.records import Record, Records
from turnlog.log.tombstones import is_being_erased, is_cache_tombstone
from turnlog.ports import Absent, Clock, IdSource, Item, ItemTable, Key, Less, get_item

_SECRET = Key("#turnlog", "cursor-secret")
_PAGES = 10
"""Pages of records that one listing with a filter reads at most."""


def check_active(header: Header) -> None:
    """Raise `SessionEndedError` when the session has ended."""
    if header.ended:
        raise SessionEndedError("the session has ended")


class SessionLog:
    """The commit log of an engine with its records, the current settings of sessions, and the list of sessions."""

    def __init__(
        self, items: ItemTable, payloads: Payloads, clock: Clock, ids: IdSource, *, expires: bool = True
    ) -> None:
        """Open the log over an engine's tables. ``expires=False`` also reads sessions that have expired."""
        self.items = items
        self.clock = clock
        self.ids = ids
        self.commits = CommitLog(items, payloads, clock, ids, expires=expires)
        self.caches = Caches(items, payloads)
        self.records = Records(items, clock, ids)
        self._secret = b""

    def check_in(self, owner: Owner) -> None:
        """Put the owner into the list of its tenant's users, unless it is there. Call it before a session is created.

        Raises `ConflictError` while the owner's data is being erased.
        """
        own = OwnerKeys(owner)
        stored = self.items.get_many([own.erasing, own.user])
        self.check_not_erasing(owner, stored.get(own.erasing))
        if own.user not in stored:
            self.items.put(item_at(own.user, {"n": owner.user}))

    def check_not_erasing(self, owner: Owner, marker: Item | None) -> None:
        """Raise `ConflictError` while the owner's data is being erased. ``marker`` is the owner's item ``ERASING``."""
        if is_being_erased(self.items, owner, marker):
            raise ConflictError(
                "this user's data is being erased; if that lasts, erase it again",
                code="erasing",
                retry_after_seconds=900,
            )

    def short_settings(self, keys: SessionKeys, tail: Tail) -> CurrentSettings:
        """Return the current settings without system text, tools, and a long policy or metadata.

        No request while the cache META is up to date.
        """
        return self._meta(tail.meta, tail.header) or self.settings_from_log(keys, tail.header)

    def state_schema(self, keys: SessionKeys, tail: Tail) -> JsonObject | None:
        """Return the JSON Schema of the state; None without one, which takes no request while the cache META is up to date."""
        meta = self._meta(tail.meta, tail.header)
        if meta is not None and not meta.has_schema:
            return None
        return self.full_settings(keys, tail).settings.state_schema

    def full_settings(self, keys: SessionKeys, tail: Tail) -> CurrentSettings:
        """Return all current settings, as `settings` reads them for the end of the log."""
        return self.settings(keys, tail.header, tail.meta)

    def settings(
        self, keys: SessionKeys, header: Header, meta: Item | None, system: Item | None = None
    ) -> CurrentSettings:
        """Return all settings at ``header``: from the caches META and ``E#SYS``, else from the log, which repairs the caches."""
        cached = self._meta(meta, header)
        if cached is None:
            return self.settings_from_log(keys, header)
        if not cached.missing:
            return cached
        if system is None:
            system = self.caches.read(keys.system)
        if system is None or reflected_position(system) != cached.position:
            return self.settings_from_log(keys, header)
        settings = self.caches.settings_in(keys, system)
        if settings is None:
            return self.settings_from_log(keys, header, again=True)
        return replace(cached, settings=settings, missing=0)

    def refresh_listing(
        self, keys: SessionKeys, before: Tail, header: Header, *, current: CurrentSettings | None = None
    ) -> None:
        """Update the session's entry in the list after a commit, at most once in five minutes unless the status changes.

        ``before`` is the end of the log before the commit. A later commit repairs an entry that can't be written.
        """
        if not is_listing_due(before.header.time_ms, header.time_ms) and before.header.status == header.status:
            return
        self.write_listing(keys, header, current if current is not None else self.short_settings(keys, before))

    def write_listing(
        self, keys: SessionKeys, header: Header, current: CurrentSettings, *, again: bool = False, settled: bool = False
    ) -> None:
        """Update the session's entry in the list to a commit, unless it reflects a later one. Ignores an unavailable engine.

        ``again``: also if it reflects this commit. ``settled``: see `directory_item`.
        """
        item = directory_item(keys, current, header, settled=settled)
        with suppress(UnavailableError):
            self.items.put(item, condition=Less("pos", header.last + again, or_absent=False))

    def repair_caches(self, keys: SessionKeys, tail: Tail) -> None:
        """Repair the caches of a session, after a request that may have crashed between its commit and its caches."""
        self.write_listing(keys, tail.header, self.full_settings(keys, tail))

    def settings_from_log(self, keys: SessionKeys, header: Header, *, again: bool = False) -> CurrentSettings:
        """Return the settings at ``header``, read from the log; write caches that reflect less, with ``again`` these too."""
        current = self.settings_at(keys, header)
        self.caches.write_settings(keys, current, rewound=header.rewound, again=again)
        return current

    def settings_at(self, keys: SessionKeys, header: Header) -> CurrentSettings:
        """Return the settings that were current at a commit."""
        position = max(1, header.last_settings)
        (commit,) = self.commits.at(keys, [position])
        event = self.commits.events(keys, [commit])[0]
        if not isinstance(event, CreateEvent | SettingsEvent | ForkEvent):
            raise CorruptError("no settings where the log says there are", item=commit_sort_key(commit.header.first))
        first = commit.header
        if isinstance(event, SettingsEvent) or commit.home != keys.partition:
            item = get_item(self.items, keys.commit(1))
            if item is None:
                raise CorruptError("the first commit is missing", item=commit_sort_key(1))
            first = header_in(item)
        return CurrentSettings(
            event.settings,
            first.time_ms,
            position,
            has_schema=event.settings.state_schema is not None,
            payload=commit.settings_payload,
        )

    def as_of(self, keys: SessionKeys, header: Header) -> tuple[SessionSettings, SummaryEvent | None]:
        """Return the settings and the summary that are current at a header: one request, and those for large payloads."""
        places = {max(1, header.last_settings)} | ({header.summary.position} if header.summary is not None else set())
        commits = self.commits.at(keys, sorted(places))
        settings, summary = None, None
        for event in self.commits.events(keys, commits):
            if isinstance(event, CreateEvent | SettingsEvent | ForkEvent):
                settings = event.settings
            elif isinstance(event, SummaryEvent):
                summary = event
        if settings is None or (summary is None) != (header.summary is None):
            raise CorruptError("no settings or summary where the log says there are", item=commit_sort_key(min(places)))
        return settings, summary

    def cursor_secret(self) -> bytes:
        """Return the key that signs page cursors. It is created once for each table."""
        if not self._secret:
            with serving(None):  # the secret belongs to no tenant
                item = get_item(self.items, _SECRET)
                if item is None:
                    secret_bytes = hashlib.sha256(self.ids.nonce() + self.ids.new_id().encode()).digest()
                    conflict = self.items.put(item_at(_SECRET, {"b": secret_bytes}), condition=Absent())
                    item = conflict.existing if conflict is not None else {"b": secret_bytes}
            secret = item["b"] if item is not None else b""
            if not isinstance(secret, bytes) or not secret:
                raise CorruptError("the cursor secret is damaged", item=_SECRET.sk)
            self._secret = secret
        return self._secret

    def page_of_records(
        self, keys: RecordKeys, is_wanted: Callable[[Record], bool], *, limit: int, cursor: str | None, scope: str
    ) -> tuple[list[Record], str | None]:
        """Return the next wanted records of a list, newest first, and the cursor of the next page; None after the last one.

        A page may be short, or even empty, although another one follows. ``scope`` names the list: a cursor is valid for no other.
        """
        cursors = Cursors(self.cursor_secret())
        after: Mapping[str, str] | None = cursors.read(cursor, scope=scope) if cursor is not None else None
        wanted = list[Record]()
        for _ in range(_PAGES):
            records, after = self.records.page(keys, limit=limit - len(wanted), after=after)
            wanted += filter(is_wanted, records)
            if len(wanted) >= limit or after is None:
                break
        return wanted, cursors.write(after, scope=scope) if after is not None else None

    def _meta(self, item: Item | None, header: Header) -> CurrentSettings | None:
        if item is None or is_cache_tombstone(item):
            return None
        meta = read_meta(item)
        return meta if meta.position == header.last_settings else None


class LogUseCase:
    """A use case that needs the log of sessions and nothing else."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
