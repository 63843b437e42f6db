"""Sessions as the log knows them: what is in force at the log's end, and the list of an owner's sessions."""

from __future__ import annotations

import hashlib
from contextlib import suppress

from turnlog.domain.errors import CorruptError, SessionEndedError, UnavailableError
from turnlog.domain.events import CreateEvent, ForkEvent, Payload, SettingsEvent, SummaryEvent
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.session import Settings
from turnlog.domain.tenancy import serving
from turnlog.domain.values import dataclass
from turnlog.log.caches import Caches, Meta, directory_item, is_touch, read_meta, reflected
from turnlog.log.commits import Commit, CommitLog, Tail, header_in
from turnlog.log.forks import Forks
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.payloads import Payloads
from turnlog.log.records import Records
from turnlog.log.state import States
from turnlog.log.summaries import Summaries
from turnlog.log.tombstones import is_cache_tombstone
from turnlog.ports import Absent, Clock, IdSource, Item, ItemTable, Key, Less

_SECRET = Key("#turnlog", "cursor-secret")


@dataclass(frozen=True, slots=True)
class InForce:
    """The settings at the log's end and the time of creation. ``missing``: what the settings are read without (see `Meta`)."""

    settings: Settings
    created_ms: int
    missing: int = 0


def check_active(header: Header) -> None:
    """Refuses a write to a session that has ended."""
    if header.ended:
        raise SessionEndedError("the session has ended")


class SessionLog:
    """Everything that the use cases need of an engine's log, in one place."""

    def __init__(
        self, items: ItemTable, payloads: Payloads, clock: Clock, ids: IdSource, *, expires: bool = True
    ) -> None:
        """``expires=False``: of what is kept longer than its session."""
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

    def short_settings(self, keys: SessionKeys, tail: Tail) -> InForce:
        """The settings without the system text, tools, and a long policy or metadata; no request while META is up to date."""
        meta = self._meta(tail.meta, tail.header)
        if meta is None:
            return self.settings_from_log(keys, tail.header)
        return InForce(meta.settings, meta.created_ms, meta.missing)

    def state_schema(self, keys: SessionKeys, tail: Tail) -> JsonObject | None:
        """The JSON Schema that the state must fit; no request for a session without one while META is up to date."""
        meta = self._meta(tail.meta, tail.header)
        if meta is not None and not meta.has_schema:
            return None
        return self.settings(keys, tail.meta, None, tail.header).settings.state_schema

    def settings(self, keys: SessionKeys, meta: Item | None, system: Item | None, header: Header) -> InForce:
        """All settings, from META and ``E#SYS`` while they are up to date, else from the log (and the caches are mended)."""
        known = self._meta(meta, header)
        if known is None:
            return self.settings_from_log(keys, header)
        if not known.missing:
            return InForce(known.settings, known.created_ms)
        if system is None:
            system = self.items.get_many([keys.system]).get(keys.system)
        if system is None or reflected(system) != known.position:
            return self.settings_from_log(keys, header)
        return InForce(self.caches.settings_in(keys, system), known.created_ms)

    def touch(self, keys: SessionKeys, before: Tail, header: Header, *, in_force: InForce | None = None) -> None:
        """Brings the session's entry in the list up to date after a commit, when that is the first of its five minutes, or another
        status begins.

        The commit is durable already: an entry that can't be written now is brought up to date by a later one.
        """
        if not is_touch(before.header.time_ms, header.time_ms) and before.header.status == header.status:
            return
        self.show(keys, header, in_force if in_force is not None else self.short_settings(keys, before))

    def show(self, keys: SessionKeys, header: Header, in_force: InForce) -> None:
        """Brings the session's entry in the list up to date with a commit, unless it reflects a later one."""
        item = directory_item(
            keys, in_force.settings, created_ms=in_force.created_ms, header=header, missing=in_force.missing
        )
        with suppress(UnavailableError):
            self.items.put(item, condition=Less("pos", header.last, or_absent=False))

    def mend(self, keys: SessionKeys, tail: Tail) -> None:
        """Writes the caches that a request may have left behind when it ended right after its commit."""
        self.show(keys, tail.header, self.settings(keys, tail.meta, None, tail.header))

    def settings_from_log(self, keys: SessionKeys, header: Header) -> InForce:
        """The settings by the log itself; the caches are written again."""
        found, position, payload = self._settings_at(keys, header)
        self.caches.write_settings(
            keys,
            found.settings,
            position=position,
            created_ms=found.created_ms,
            payload=payload,
            rewound=header.rewound,
        )
        return found

    def settings_at(self, keys: SessionKeys, header: Header) -> InForce:
        """The settings that were in force at a commit."""
        return self._settings_at(keys, header)[0]

    def as_of(self, keys: SessionKeys, header: Header) -> tuple[Settings, SummaryEvent | None]:
        """Settings and summary in force at a header, from their own commits: one request, and what they have out of line."""
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

    def _settings_at(self, keys: SessionKeys, header: Header) -> tuple[InForce, int, Payload | None]:
        position = max(1, header.last_settings)
        (commit,) = self.commits.at(keys, [position])
        event = self._settings_event(keys, commit)
        begins = isinstance(event, CreateEvent | ForkEvent) and commit.home == keys.partition
        created = commit.header.time_ms if begins else self._created_ms(keys)
        payload = commit.settings_payload
        return InForce(event.settings, created), position, payload

    def cursor_secret(self) -> bytes:
        """The key that signs page cursors: made once for each table."""
        if not self._secret:
            with serving(None):  # it is no tenant's
                found = self.items.get_many([_SECRET]).get(_SECRET)
                if found is None:
                    made = hashlib.sha256(self.ids.nonce() + self.ids.new_id().encode()).digest()
                    lost = self.items.put({"pk": _SECRET.pk, "sk": _SECRET.sk, "b": made}, condition=Absent())
                    found = lost.existing if lost is not None else {"b": made}
            secret = found["b"] if found is not None else b""
            if not isinstance(secret, bytes) or not secret:
                raise CorruptError("the cursor secret is damaged", item=_SECRET.sk)
            self._secret = secret
        return self._secret

    def _meta(self, item: Item | None, header: Header) -> Meta | None:
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
