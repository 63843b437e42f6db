"""The caches beside the log: the current settings in META and ``E#SYS``, the list of sessions, and what features keep.

Each cache is stamped with the position that it reflects and written on the condition `pos < :pos`. A lost cache is
harmless, because it can be rebuilt from the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from turnlog.core.errors import CorruptError
from turnlog.core.events import Payload
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SCHEMA_VERSION, SessionSettings
from turnlog.core.times import DAY_MS, MINUTE_MS
from turnlog.log.headers import Header, attribute, check_version, item_name
from turnlog.log.keys import SessionKeys, item_at
from turnlog.log.lines import settings_object
from turnlog.log.packing import decoding, pack, unpack
from turnlog.log.payloads import Payloads
from turnlog.log.read_lines import settings_from
from turnlog.log.tombstones import due_index, is_cache_tombstone
from turnlog.ports import AttributeValue, Item, ItemTable, Key, Less, get_item

LISTING_MS = 5 * 60 * 1000
_MISSING = "x"
_META_BYTES = 700
LARGE_BYTES = 32 * 1024
_LONG_FIELDS = ("policy", "metadata")


class Caches:
    """A writer and reader of the caches of sessions."""

    def __init__(self, items: ItemTable, payloads: Payloads) -> None:
        self._items = items
        self._payloads = payloads

    def write_settings(
        self, keys: SessionKeys, current: CurrentSettings, *, rewound: int = 0, again: bool = False
    ) -> None:
        """Write META, and ``E#SYS`` for settings that do not fit into META."""
        fields, position, payload = settings_object(current.settings), current.position, current.payload
        short, missing = _short(fields)
        meta: dict[str, AttributeValue] = {"v": SCHEMA_VERSION, "c": current.created_ms, "b": _packed(short, missing)}
        if "state_schema" in fields:
            meta["ss"] = 1
        if missing:
            packed = pack(encode_json({"set": fields}))
            place: dict[str, AttributeValue] = {"b": packed}
            if len(packed) > LARGE_BYTES and payload is not None:
                place = {"at": payload.place, "sz": payload.size_bytes, "d": payload.digest}
                if payload.home not in ("", keys.partition):
                    place["hm"] = payload.home
            self.write(keys.system, place, position=position, rewound=rewound, again=again)
        self.write(keys.meta, meta, position=position, rewound=rewound)

    def settings_in(self, keys: SessionKeys, system: Item) -> SessionSettings | None:
        """Return the settings in an ``E#SYS`` item; None when their payload is gone, as that of an erased parent is."""
        if "at" in system:
            payload = Payload(
                str(system["at"]), attribute(system, "sz", int), str(system["d"]), str(system.get("hm", ""))
            )
            try:
                content = self._payloads.content(keys, payload)
            except CorruptError:
                return None
        else:
            content = unpack(attribute(system, "b", bytes), item=item_name(system))
        with decoding(item_name(system)):
            return settings_from(json.loads(content)["set"])

    def write(
        self, key: Key, content: Mapping[str, AttributeValue], *, position: int, rewound: int, again: bool = False
    ) -> None:
        """Write a cache unless it already reflects a later event.

        ``position`` is the event that the content comes from. ``rewound`` is the position of a rewind that made the content
        current again, or 0. ``again``: also if it reflects this event.
        """
        stamp = max(position, rewound)
        item = item_at(key, {"pos": stamp, **content})
        if stamp != position:
            item["of"] = position
        self._items.put(item, condition=Less("pos", stamp + again))

    def read(self, key: Key) -> Item | None:
        """Return a cache item, or None when it is missing or erased."""
        item = get_item(self._items, key)
        return None if item is None or is_cache_tombstone(item) else item


def reflected_position(item: Item) -> int:
    """Return the position of the event that a cache reflects.

    ``pos`` can't serve for that: it may be the position of a rewind that made the event current again.
    """
    return attribute(item, "of" if "of" in item else "pos", int)


@lazy_dataclass(frozen=True, slots=True)
class CurrentSettings:
    """The settings of a session, its time of creation, and the position of the event that has made them.

    ``missing`` says which fields were not read, as META and an entry of the session list do not have them: 0 none; 1 the system
    text, the tools or the state's schema; 2 the policy and metadata as well. ``payload`` is that of the settings' commit, where it
    is stored out of line; the cache of large settings refers to it.
    """

    settings: SessionSettings
    created_ms: int
    position: int = 0
    missing: int = 0
    has_schema: bool = False
    payload: Payload | None = field(default=None, compare=False)


def read_meta(item: Item) -> CurrentSettings:
    """Return the settings in META or in an entry of the session list.

    Raises `NewerSchemaError` for an item of a newer version, whose fields may have other meanings.
    """
    check_version(item)
    early_code = attribute(item, _MISSING, int) if _MISSING in item else 0
    settings, missing = _short_settings(attribute(item, "b", bytes), item_name(item))
    return CurrentSettings(
        settings,
        attribute(item, "c", int),
        reflected_position(item),
        early_code if missing is None else missing,
        "ss" in item,
    )


@lru_cache(maxsize=256)
def _short_settings(packed: bytes, name: str) -> tuple[SessionSettings, int | None]:
    """Return the settings in an item's content, and the code of the missing fields. Most sessions have the same content."""
    with decoding(name):
        content = json.loads(unpack(packed, item=name))
        return settings_from(content), content.get(_MISSING)


def directory_item(
    keys: SessionKeys, current: CurrentSettings, header: Header | None, *, settled: bool = False
) -> Item:
    """Return a session's entry in the list of its owner's sessions, as of a commit's header.

    ``header`` is None for a session that is being created. ``settled`` says that the header was the newest at the end of
    its five minutes, so the entry stays exact until the next update.
    """
    settings, created_ms = current.settings, current.created_ms
    short, left_out = _short(settings_object(settings))
    status, active_ms, position, totals = "creating", created_ms, 0, "0 0 0"
    if header is not None:
        status, active_ms, position, flow = header.status, header.active_ms, header.last, header.flow
        totals = f"{flow.messages} {flow.tokens} {flow.loop.number}"
    key = keys.directory
    fields: dict[str, AttributeValue] = {
        "g1pk": key.pk,
        "g1sk": f"{active_ms:013d}#{keys.session_id}",
        "st": status,
        "v": SCHEMA_VERSION,
        "c": created_ms,
        "a": active_ms,
        "pos": position,
        "ct": totals,
        "b": _packed(short, max(current.missing, left_out)),
    }
    if header is not None and header.summary is not None:
        fields["sm"] = header.summary.encode()
    if header is not None and header.sent is not None:
        fields["ws"] = header.sent.encode()
    if settled:
        fields["ok"] = 1
    due_ms = due_at(settings, active_ms, status)
    if due_ms is not None:
        fields |= due_index(keys, due_ms)
    return item_at(key, fields)


def due_at(settings: SessionSettings, active_ms: int, status: str) -> int | None:
    """Return the time when a session without further messages expires or becomes inactive, whichever is earlier.

    Returns None when its settings allow neither.
    """
    waits_ms = [settings.ttl_days * DAY_MS] if settings.ttl_days else []
    if settings.inactive_after_minutes and status in ("creating", "active"):
        waits_ms.append(settings.inactive_after_minutes * MINUTE_MS)
    return active_ms + min(waits_ms) if waits_ms else None


def is_settled(item: Item, now_ms: int) -> bool:
    """Return whether an entry is exact. It may lag while the five minutes of its last activity are not over."""
    return "ok" in item or not is_listing_due(attribute(item, "a", int), now_ms)


def is_listing_due(before_ms: int, now_ms: int) -> bool:
    """Return whether a commit updates the session's entry: the first commit of each five minutes does.

    ``now_ms`` is the commit's time, ``before_ms`` the time of the commit before it.
    """
    return before_ms // LISTING_MS != now_ms // LISTING_MS


def status_of(entry: Item) -> str:
    """Return the status in an entry of the session list."""
    return attribute(entry, "st", str)


def active_of(entry: Item) -> int:
    """Return the time in milliseconds of the last activity in an entry."""
    return attribute(entry, "a", int)


def session_id_of(item: Item) -> str:
    """Return the session id of an entry of the session list."""
    return item_name(item)[2:]


def _short(fields: JsonObject) -> tuple[JsonObject, int]:
    """Return the settings that fit into META, and the code of the missing fields (see `CurrentSettings`)."""
    short = {name: value for name, value in fields.items() if name not in ("system", "tools", "state_schema")}
    if len(encode_json(short)) > _META_BYTES:
        policy = short.get("policy")
        short = {name: value for name, value in short.items() if name not in _LONG_FIELDS}
        if isinstance(policy, dict):
            # An append evaluates the compression trigger, and reads only META for that.
            short["policy"] = {name: value for name, value in policy.items() if name == "compress"}
        return short, 2
    return short, int(len(short) < len(fields))


def _packed(short: JsonObject, missing: int) -> bytes:
    """Pack the short settings together with the code of the missing fields, so that the checksum covers both.

    Early items hold the code in a separate attribute.
    """
    return pack(encode_json(short | {_MISSING: missing} if missing else short))
