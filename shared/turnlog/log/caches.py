"""The caches beside the log: META, the settings in force, the folded state, the list of sessions.

Each is stamped with the position that it reflects and written under `pos < :pos`. Losing one is harmless: it is read
from the log again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnlog.core.errors import CorruptError, NewerSchemaError
from turnlog.core.events import Payload
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SCHEMA_VERSION, SessionSettings
from turnlog.core.times import DAY_MS
from turnlog.log.headers import Header, item_name
from turnlog.log.keys import SessionKeys
from turnlog.log.lines import settings_object
from turnlog.log.packing import decoding, pack, unpack
from turnlog.log.payloads import Payloads
from turnlog.log.read_lines import settings_from
from turnlog.log.tombstones import due_index, is_cache_tombstone
from turnlog.ports import AttributeValue, Item, ItemTable, Key, Less

TOUCH_MS = 5 * 60 * 1000
_MISSING = "x"
_META_BYTES = 700
_LARGE_BYTES = 32 * 1024
_LONG_FIELDS = ("policy", "metadata")


class Caches:
    """Writes and reads the caches of sessions."""

    def __init__(self, items: ItemTable, payloads: Payloads) -> None:
        self._items = items
        self._payloads = payloads

    def write_settings(
        self,
        keys: SessionKeys,
        settings: SessionSettings,
        *,
        position: int,
        created_ms: int,
        payload: Payload | None,
        rewound: int = 0,
    ) -> None:
        """META, and ``E#SYS`` when the settings have more than META holds. ``payload`` is where the commit has them."""
        whole = settings_object(settings)
        short, missing = _short(whole)
        has_schema = settings.state_schema is not None
        if missing:
            packed = pack(encode_json({"set": whole}))
            place: dict[str, AttributeValue] = {"b": packed}
            if len(packed) > _LARGE_BYTES and payload is not None:
                place = {"at": payload.place, "sz": payload.size_bytes, "d": payload.digest}
                if payload.home not in ("", keys.partition):
                    place["hm"] = payload.home
            self._put(keys.system, place, position, rewound)
        meta = meta_content(short, missing=missing, created_ms=created_ms, has_schema=has_schema)
        self._put(keys.meta, meta, position, rewound)

    def settings_in(self, keys: SessionKeys, system: Item) -> SessionSettings:
        """The settings that ``E#SYS`` holds."""
        if "at" in system:
            payload = Payload(str(system["at"]), _int(system, "sz"), str(system["d"]), str(system.get("hm", "")))
            content = self._payloads.fetch(keys, [payload])[payload.place]
        else:
            content = _content(system)
        with decoding(item_name(system)):
            return settings_from(json.loads(content)["set"])

    def write_state(
        self, keys: SessionKeys, packed: bytes, *, position: int, count: int, base: int | None, rewound: int = 0
    ) -> None:
        """``S#STATE``, as of the state event at this position. ``packed`` is the folded state; or with ``base``, the position
        of an event that holds a whole state, the patches since."""
        content: dict[str, AttributeValue] = {"n": count, "b": packed}
        if base is not None:
            content["bs"] = base
        self._put(keys.state, content, position, rewound)

    def write_summary(
        self, keys: SessionKeys, line: JsonObject, *, position: int, time_ms: int, rewound: int = 0
    ) -> None:
        """``E#SUM``: the summary of the commit at this position, whole."""
        self._put(keys.summary, {"t": time_ms, "b": pack(encode_json(line))}, position, rewound)

    def _put(self, key: Key, content: Mapping[str, AttributeValue], position: int, rewound: int) -> None:
        """What a commit at this position has put in force, or a rewind back in force: a later one is not overwritten."""
        stamp = max(position, rewound)
        item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "pos": stamp, **content}
        if stamp != position:
            item["of"] = position
        self._items.put(item, condition=Less("pos", stamp))

    def read_summary(self, keys: SessionKeys) -> Item | None:
        return self._get(keys.summary)

    def read_state(self, keys: SessionKeys) -> CachedState | None:
        item = self._get(keys.state)
        if item is None:
            return None
        base = _int(item, "bs") if "bs" in item else None
        return CachedState(reflected(item), _int(item, "n"), _json(item), base)

    def _get(self, key: Key) -> Item | None:
        """The cache; None also where it was erased."""
        item = self._items.get_many([key]).get(key)
        return None if item is None or is_cache_tombstone(item) else item


@lazy_dataclass(frozen=True, slots=True)
class CachedState:
    """What ``S#STATE`` holds: position of the newest state event, count of them, and the state; or with ``base`` the patches
    since the event at that position."""

    position: int
    count: int
    content: Any
    base: int | None


def summary_in(item: Item) -> tuple[JsonObject, int, int]:
    """Line, position and time of the summary that ``E#SUM`` holds."""
    return _json(item), reflected(item), _int(item, "t")


def reflected(item: Item) -> int:
    """The position of the event that a cache reflects. Its ``pos`` may be that of a rewind which put this back in force."""
    return _int(item, "of" if "of" in item else "pos")


def meta_content(short: JsonObject, *, missing: int, created_ms: int, has_schema: bool) -> Mapping[str, AttributeValue]:
    item: dict[str, AttributeValue] = {
        "v": SCHEMA_VERSION,
        "c": created_ms,
        "b": _packed(short, missing),
    }
    if has_schema:
        item["ss"] = 1
    return item


@lazy_dataclass(frozen=True, slots=True)
class CachedSettings:
    """Settings as META or an entry of the list has them, the position that they reflect, and the time of creation.

    ``missing``: 0 nothing, 1 the system text, tools or the state's schema, 2 the policy and metadata too; ``E#SYS`` has them.
    """

    settings: SessionSettings
    missing: int
    position: int
    created_ms: int
    has_schema: bool = False


def read_meta(item: Item) -> CachedSettings:
    """The settings in a session's card or entry. What a newer version has written may mean something else: it is not read."""
    if (version := _int(item, "v") if "v" in item else SCHEMA_VERSION) > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version} is newer than {SCHEMA_VERSION}", item=item_name(item))
    content, beside = _json(item), _int(item, _MISSING) if _MISSING in item else 0
    position, created_ms = reflected(item), _int(item, "c")
    with decoding(item_name(item)):
        return CachedSettings(settings_from(content), content.get(_MISSING, beside), position, created_ms, "ss" in item)


def directory_item(
    keys: SessionKeys,
    settings: SessionSettings,
    *,
    created_ms: int,
    header: Header | None,
    settled: bool = False,
    missing: int = 0,
) -> Item:
    """The session's entry in the list of its owner's sessions, as of a commit's header (None: being created).

    ``settled``: the header was the newest when its five minutes were over, so the entry is exact until the next touch.
    ``missing``: what the settings are given without (see `CachedSettings`).
    """
    short, left_out = _short(settings_object(settings))
    missing = max(missing, left_out)
    status = "creating" if header is None else header.status
    active_ms = header.active_ms if header is not None else created_ms
    flow = header.flow if header is not None else None
    item: dict[str, AttributeValue] = {
        "pk": keys.directory.pk,
        "sk": keys.directory.sk,
        "g1pk": keys.directory.pk,
        "g1sk": activity_key(active_ms, keys.session_id),
        "st": status,
        "v": SCHEMA_VERSION,
        "c": created_ms,
        "a": active_ms,
        "pos": header.last if header is not None else 0,
        "ct": f"{flow.messages} {flow.tokens} {flow.loop.number}" if flow is not None else "0 0 0",
        "b": _packed(short, missing),
    }
    if header is not None and header.summary is not None:
        item["sm"] = header.summary.encode()
    if header is not None and header.sent is not None:
        item["ws"] = header.sent.encode()
    if settled:
        item["ok"] = 1
    due_ms = due_at(settings, active_ms, status)
    if due_ms is not None:
        item |= due_index(keys, due_ms)
    return item


def due_at(settings: SessionSettings, active_ms: int, status: str) -> int | None:
    """When a session expires or, if that is earlier, is inactive, should nothing more be said in it; None: never."""
    days = [settings.ttl_days] if settings.ttl_days else []
    if settings.inactive_after_days and status in ("creating", "active"):
        days.append(settings.inactive_after_days)
    return active_ms + min(days) * DAY_MS if days else None


def is_settled(item: Item, now_ms: int) -> bool:
    """Whether an entry is exact, or may lag because its session's five minutes are not over yet."""
    return "ok" in item or not is_touch(_int(item, "a"), now_ms)


def is_touch(before_ms: int, now_ms: int) -> bool:
    """Whether a commit at ``now_ms`` after one at ``before_ms`` brings the session's entry up to date: each 5 minutes' first."""
    return before_ms // TOUCH_MS != now_ms // TOUCH_MS


def activity_key(active_ms: int, session_id: str) -> str:
    return f"{active_ms:013d}#{session_id}"


def status_of(entry: Item) -> str:
    """The status in an entry of the list."""
    value = entry.get("st")
    if not isinstance(value, str):
        raise CorruptError("an entry of the list is damaged", item=item_name(entry))
    return value


def active_of(entry: Item) -> int:
    """The time in milliseconds of an entry's last activity."""
    return _int(entry, "a")


def session_id_of(item: Item) -> str:
    return item_name(item)[2:]


def _short(whole: JsonObject) -> tuple[JsonObject, int]:
    """The settings that fit META, and what is missing of them (see `CachedSettings`)."""
    short = {name: value for name, value in whole.items() if name not in ("system", "tools", "state_schema")}
    if len(encode_json(short)) > _META_BYTES:
        policy = short.get("policy")
        short = {name: value for name, value in short.items() if name not in _LONG_FIELDS}
        if isinstance(policy, dict):
            # An append asks the trigger, and reads no more than META.
            short["policy"] = {name: value for name, value in policy.items() if name == "compress"}
        return short, 2
    return short, int(len(short) < len(whole))


def _packed(short: JsonObject, missing: int) -> bytes:
    """With what is missing, so that it is checked with them. Early items have it beside."""
    return pack(encode_json(short | {_MISSING: missing} if missing else short))


def _content(item: Item) -> bytes:
    packed = item.get("b")
    if not isinstance(packed, bytes):
        raise CorruptError("a cache without content", item=item_name(item))
    return unpack(packed, item=item_name(item))


def _json(item: Item) -> Any:
    content = _content(item)
    with decoding(item_name(item)):
        return json.loads(content)


def _int(item: Item, name: str) -> int:
    value = item.get(name)
    if not isinstance(value, int):
        raise CorruptError(f"attribute {name!r} is not a number", item=item_name(item))
    return value
