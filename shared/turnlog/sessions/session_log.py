"""The log of sessions as the use cases see it: current settings, forks, and entries in the list of sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress

from turnlog.core.errors import CorruptError, SessionEndedError, UnavailableError
from turnlog.core.events import CreateEvent, ForkEvent, Payload, SettingsEvent, SummaryEvent
from turnlog.core.identity import serving
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SessionSettings
from turnlog.log.caches import CachedSettings, Caches, directory_item, is_touch, read_meta, reflected
from turnlog.log.commit_items import first_position, parent_of, shared_of, shared_position
from turnlog.log.commits import Commit, CommitLog, Tail, header_in, read_commit, stored_lines
from turnlog.log.headers import Header, hashed_header, item_name, log_key
from turnlog.log.keys import FORKS_FROM, FORKS_TO, MAX_POSITION, SessionKeys, commit_sort_key
from turnlog.log.packing import pack
from turnlog.log.payloads import Payloads
from turnlog.log.records import Records
from turnlog.log.redacted_lines import hidden
from turnlog.log.summary_cache import Summaries
from turnlog.log.tombstones import is_cache_tombstone
from turnlog.ports import Absent, Clock, Equal, IdSource, Item, ItemTable, Key, Less, Query, item_size_bytes
from turnlog.sessions.state_store import States

_POINTER = ("fp", "bs", "fa")


class Forks:
    """Finds the forks of a session, and makes them independent of it."""

    def __init__(self, items: ItemTable, payloads: Payloads, commits: CommitLog) -> None:
        self._items = items
        self._payloads = payloads
        self._commits = commits

    def of(self, keys: SessionKeys) -> Iterator[SessionKeys]:
        """Yield the sessions that were forked from this one, including those whose first commit is not written yet."""
        after = None
        while True:
            page = self._items.query(Query(keys.partition, FORKS_FROM, FORKS_TO, after=after))
            for item in page.items:
                yield SessionKeys(keys.owner, item_name(item)[len(FORKS_FROM) :])
            after = page.next
            if after is None:
                return

    def make_independent(self, keys: SessionKeys) -> int:
        """Copy this session's log to every fork that shares it; return the number of forks.

        Call it only when the session can't be forked: then forks without a first commit will never have one.
        """
        count = 0
        for child in self.of(keys):
            item = self._items.get_many([child.commit(1)]).get(child.commit(1))
            if item is None or "fp" not in item or parent_of(child, item) != keys:
                continue
            for page in self._commits.stored.on(keys, 1, first_position(item) - 1):
                self._copy(child, page, shared_of(item))
            self._items.put({**item, "bs": ""}, condition=Equal("bs", keys.session_id))
            count += 1
        return count

    def _copy(self, child: SessionKeys, items: Sequence[Item], shared: int) -> None:
        """Copy commits to a fork's base, payloads first. Lines after position ``shared``, where sharing ends, are hidden."""
        base, page = child.base, [as_shared(item, shared) for item in items]
        for item in page:
            self._payloads.copy(base, read_commit(item).payloads)
        self._items.write_many(
            [
                {name: value for name, value in item.items() if name not in _POINTER}
                | {"pk": base.partition, "sk": log_key(item)}
                for item in page
            ]
        )


def as_shared(item: Item, shared: int = MAX_POSITION) -> Item:
    """Return a commit's item as a fork may read it: lines after the end of sharing are hidden.

    Sharing ends at position ``shared``, or earlier when the commit's own field ``fu`` says so.
    """
    end, last = shared_position(item, shared), item.get("l")
    if not isinstance(last, int) or last <= end:
        return item
    first = first_position(item)
    lines = [line if first + index <= end else hidden(line) for index, line in enumerate(stored_lines(item))]
    bare = {name: value for name, value in item.items() if name != "b"}
    covered = hashed_header(log_key(item), item)
    return {**bare, "b": pack(b"\n".join(lines), beside=covered, item_bytes=item_size_bytes(bare) + 1)}


_SECRET = Key("#turnlog", "cursor-secret")


@lazy_dataclass(frozen=True, slots=True)
class CurrentSettings:
    """The current settings and the creation time of a session. ``missing``: fields that were not read (see `CachedSettings`)."""

    settings: SessionSettings
    created_ms: int
    missing: int = 0


def check_active(header: Header) -> None:
    """Raise `SessionEndedError` when the session has ended."""
    if header.ended:
        raise SessionEndedError("the session has ended")


class SessionLog:
    """The commit log of an engine with its caches, states, summaries, forks and records."""

    def __init__(
        self, items: ItemTable, payloads: Payloads, clock: Clock, ids: IdSource, *, expires: bool = True
    ) -> None:
        """Open the log over an engine's tables. ``expires=False`` also reads sessions that have expired."""
        self.items = items
        self.clock = clock
        self.ids = ids
        self.commits = CommitLog(items, payloads, clock, ids, expires=expires)
        self.caches = Caches(items, payloads)
        self.states = States(self.commits, self.caches)
        self.summaries = Summaries(self.commits, self.caches)
        self.forks = Forks(items, payloads, self.commits)
        self.records = Records(items, clock, ids)
        self._secret = b""

    def short_settings(self, keys: SessionKeys, tail: Tail) -> CurrentSettings:
        """Return the current settings without system text, tools, and a long policy or metadata.

        No request while the cache META is up to date.
        """
        meta = self._meta(tail.meta, tail.header)
        if meta is None:
            return self.settings_from_log(keys, tail.header)
        return CurrentSettings(meta.settings, meta.created_ms, meta.missing)

    def state_schema(self, keys: SessionKeys, tail: Tail) -> JsonObject | None:
        """Return the JSON Schema of the state; None without one, which takes no request while the cache META is up to date."""
        meta = self._meta(tail.meta, tail.header)
        if meta is not None and not meta.has_schema:
            return None
        return self.settings(keys, tail.meta, None, tail.header).settings.state_schema

    def settings(self, keys: SessionKeys, meta: Item | None, system: Item | None, header: Header) -> CurrentSettings:
        """Return all settings at ``header``: from the caches META and ``E#SYS``, else from the log, which repairs the caches."""
        cached = self._meta(meta, header)
        if cached is None:
            return self.settings_from_log(keys, header)
        if not cached.missing:
            return CurrentSettings(cached.settings, cached.created_ms)
        if system is None:
            system = self.items.get_many([keys.system]).get(keys.system)
        if system is None or reflected(system) != cached.position:
            return self.settings_from_log(keys, header)
        return CurrentSettings(self.caches.settings_in(keys, system), cached.created_ms)

    def touch(self, keys: SessionKeys, before: Tail, header: Header, *, current: CurrentSettings | None = None) -> None:
        """Update the session's entry in the list after a commit, at most once in five minutes unless the status changes.

        ``before`` is the end of the log before the commit. A later commit repairs an entry that can't be written.
        """
        if not is_touch(before.header.time_ms, header.time_ms) and before.header.status == header.status:
            return
        self.show(keys, header, current if current is not None else self.short_settings(keys, before))

    def show(self, keys: SessionKeys, header: Header, current: CurrentSettings) -> None:
        """Update the session's entry in the list to a commit, unless it reflects a later one. Ignores an unavailable engine."""
        item = directory_item(
            keys, current.settings, created_ms=current.created_ms, header=header, missing=current.missing
        )
        with suppress(UnavailableError):
            self.items.put(item, condition=Less("pos", header.last, or_absent=False))

    def repair_caches(self, keys: SessionKeys, tail: Tail) -> None:
        """Repair the caches of a session, after a request that may have crashed between its commit and its caches."""
        self.show(keys, tail.header, self.settings(keys, tail.meta, None, tail.header))

    def settings_from_log(self, keys: SessionKeys, header: Header) -> CurrentSettings:
        """Return the settings at ``header``, read from the log; write the caches again."""
        current, position, payload = self._settings_at(keys, header)
        self.caches.write_settings(
            keys,
            current.settings,
            position=position,
            created_ms=current.created_ms,
            payload=payload,
            rewound=header.rewound,
        )
        return current

    def settings_at(self, keys: SessionKeys, header: Header) -> CurrentSettings:
        """Return the settings that were current at a commit."""
        return self._settings_at(keys, header)[0]

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

    def _settings_at(self, keys: SessionKeys, header: Header) -> tuple[CurrentSettings, int, Payload | None]:
        position = max(1, header.last_settings)
        (commit,) = self.commits.at(keys, [position])
        event = self._settings_event(keys, commit)
        begins = isinstance(event, CreateEvent | ForkEvent) and commit.home == keys.partition
        created = commit.header.time_ms if begins else self._created_ms(keys)
        payload = commit.settings_payload
        return CurrentSettings(event.settings, created), position, payload

    def cursor_secret(self) -> bytes:
        """Return the key that signs page cursors. It is created once for each table."""
        if not self._secret:
            with serving(None):  # the secret belongs to no tenant
                item = self.items.get_many([_SECRET]).get(_SECRET)
                if item is None:
                    secret_bytes = hashlib.sha256(self.ids.nonce() + self.ids.new_id().encode()).digest()
                    conflict = self.items.put(
                        {"pk": _SECRET.pk, "sk": _SECRET.sk, "b": secret_bytes}, condition=Absent()
                    )
                    item = conflict.existing if conflict is not None else {"b": secret_bytes}
            secret = item["b"] if item is not None else b""
            if not isinstance(secret, bytes) or not secret:
                raise CorruptError("the cursor secret is damaged", item=_SECRET.sk)
            self._secret = secret
        return self._secret

    def _meta(self, item: Item | None, header: Header) -> CachedSettings | None:
        if item is None or is_cache_tombstone(item):
            return None
        meta = read_meta(item)
        return meta if meta.position == header.last_settings else None

    def _settings_event(self, keys: SessionKeys, commit: Commit) -> CreateEvent | SettingsEvent | ForkEvent:
        event = self.commits.events(keys, [commit])[0]
        if not isinstance(event, CreateEvent | SettingsEvent | ForkEvent):
            raise CorruptError("no settings where the log says there are", item=commit_sort_key(commit.header.first))
        return event

    def _created_ms(self, keys: SessionKeys) -> int:
        item = self.items.get_many([keys.commit(1)]).get(keys.commit(1))
        if item is None:
            raise CorruptError("the first commit is missing", item=commit_sort_key(1))
        return header_in(item).time_ms
