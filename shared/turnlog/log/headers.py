"""The commit header: the state of the log that an append needs. The newest commit holds the current one.

The attribute ``h`` chains commits: 16 bytes of a SHA-256 over the previous hash, the header and the digests of the events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from turnlog.core.calls import OpenCalls
from turnlog.core.errors import CorruptError, NewerSchemaError
from turnlog.core.json_values import canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.loops import Amount, Flow, LoopState
from turnlog.core.models import SessionStatus
from turnlog.core.positions import VisibleRanges
from turnlog.core.run_lease import RunLease
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.core.summaries import CompressionRequest
from turnlog.core.times import DAY_MS
from turnlog.log.keys import commit_sort_key, position_of
from turnlog.ports import AttributeValue, Item
from turnlog.providers.token_rules import Calibration

_Attribute = TypeVar("_Attribute", int, str, bytes)
HASH_BYTES = 16
MAX_PINNED = 16
"""Pinned messages that a header lists."""
GENESIS = bytes(HASH_BYTES)
_NONE_PINNED = "-"
CREATION = "c"
"""The kind of a session's first commit."""
_KINDS = frozenset({CREATION, "m", "s", "y", "d", "h", "p", "e", "r", "f"})
_NUMBERS = ("v", "l", "t", "om", "ls", "lc", "lf", "pa", "en", "xd", "it", "rw", "rd")
_TEXTS = ("k", "ct", "ol", "pr", "lt", "vw", "sm", "ws", "cf", "ca", "pn", "le")
_TYPES: dict[str, type] = (
    dict.fromkeys(_NUMBERS, int) | dict.fromkeys(_TEXTS, str) | dict.fromkeys(("n", "h", "ik", "oc", "rn"), bytes)
)
_OUTSIDE = frozenset({"pk", "sk", "h", "b", "fp", "bs", "fa", "fu"})
"""Attributes that the chain hash does not cover: the item's key, the hash, the body, and a fork's link to its parent."""


@lazy_dataclass(frozen=True, slots=True)
class Covered:
    """The current summary.

    ``position`` is the summary's own position. ``last`` and ``loop`` are the last position and loop that it covers;
    ``messages`` and ``tokens`` are the totals there. ``own_tokens`` counts the summary itself.
    """

    position: int
    last: int
    loop: int
    messages: int
    tokens: int
    own_tokens: int = 0

    def encode(self) -> str:
        return f"{self.position} {self.last} {self.loop} {self.messages} {self.tokens} {self.own_tokens}"

    @classmethod
    def decode(cls, text: str) -> Covered:
        return cls(*map(int, text.split(" ")))


@lazy_dataclass(frozen=True, slots=True)
class Sent:
    """The newest window that is known to have been sent: its position, and the time of the commit that reported it."""

    position: int
    time_ms: int

    def encode(self) -> str:
        return f"{self.position} {self.time_ms}"

    @classmethod
    def decode(cls, text: str) -> Sent:
        return cls(*map(int, text.split(" ")))


@lazy_dataclass(frozen=True, slots=True)
class Header:
    """A commit's header: its place in the log, and the state of the session after it.

    - ``first``, ``last``: positions of the commit's first and last event.
    - ``idempotency``: hash of the key (16 bytes) and of the payload (16 bytes), or empty.
    - ``last_state``, ``last_settings``: positions of the newest state event and settings event.
    - ``last_frame``: position of the newest settings event that changes windows; for old headers ``last_settings``.
    - ``run``: 6-byte hash of the open loop's run id, or empty. ``pending``: an agent waits for a decision.
    - ``lease``: the lease of the run that has the session, which may have expired.
    - ``summary``: the current summary. ``sent``: the newest window that is known to have been sent.
    - ``calibration``: the calibration of token counts. ``asked``: the newest request for a summary.
    - ``ended``: position of the commit that ended the session, 0 while it is active.
    - ``ttl_days``: the session expires so many days after its newest activity; 0 means never.
    - ``idle_ms``: time of the newest activity when this commit marks the session inactive, else 0.
    - ``view``: the positions in view after rewinds.
    - ``rewound``: position of the newest rewind, or of the fork event that the session begins with, else 0.
    - ``redacted``: position of the newest redaction's entry.
    - ``pinned``: each pinned message, as the first position of its commit and its own position; None when there are more than
      `MAX_PINNED`, and in logs that were begun before headers listed them.
    """

    first: int
    last: int
    kind: str
    time_ms: int
    nonce: bytes
    flow: Flow
    hash: bytes = b""
    idempotency: bytes = b""
    last_state: int = 0
    last_settings: int = 1
    last_frame: int = 1
    run: bytes = b""
    pending: bool = False
    summary: Covered | None = None
    sent: Sent | None = None
    calibration: Calibration = field(default_factory=Calibration)
    asked: CompressionRequest | None = None
    ended: int = 0
    ttl_days: int = 0
    idle_ms: int = 0
    view: VisibleRanges = field(default_factory=VisibleRanges)
    rewound: int = 0
    redacted: int = 0
    pinned: tuple[tuple[int, int], ...] | None = None
    lease: RunLease | None = None
    version: int = field(default=SCHEMA_VERSION)

    @property
    def status(self) -> SessionStatus:
        if self.ended:
            return "ended"
        return "inactive" if self.idle_ms else "active"

    @property
    def active_ms(self) -> int:
        """The time of the newest activity."""
        return self.idle_ms or self.time_ms

    @property
    def expires_ms(self) -> int | None:
        """The time from which the session counts as deleted; None when it never expires. Exact, as every activity is a commit."""
        return self.active_ms + self.ttl_days * DAY_MS if self.ttl_days else None


def following(before: Header, *, kind: str, events: int, now_ms: int, state: Header | None = None) -> Header:
    """Return the header of the next commit with ``events`` events. All other state is copied from ``state``, else from ``before``.

    Times of commits always increase, whatever the clock does.
    """
    return replace(
        state if state is not None else before,
        first=before.last + 1,
        last=before.last + events,
        kind=kind,
        time_ms=max(now_ms, before.time_ms + 1),
        nonce=b"",
        hash=b"",
        idempotency=b"",
        idle_ms=0,
        version=SCHEMA_VERSION,
    )


_PLAIN = {
    "ik": "idempotency",
    "ls": "last_state",
    "rn": "run",
    "en": "ended",
    "xd": "ttl_days",
    "it": "idle_ms",
    "rw": "rewound",
    "rd": "redacted",
}
"""Attribute -> the field that it holds as it is."""
_CODED: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "vw": ("view", VisibleRanges.decode),
    "sm": ("summary", Covered.decode),
    "ws": ("sent", Sent.decode),
    "cf": ("calibration", Calibration.decode),
    "ca": ("asked", CompressionRequest.decode),
    "le": ("lease", RunLease.decode),
}
"""Attribute -> the field that it holds as text, and the reader of the text. The field's own ``encode`` writes it."""


def header_attributes(header: Header) -> dict[str, AttributeValue]:
    """Return the header as attributes of its item, without ``h``, ``pk`` and ``sk``. Empty attributes are left out."""
    flow = header.flow
    loop_totals = (*flow.lead, *flow.closed)
    attributes: dict[str, AttributeValue] = {
        "v": header.version,
        "k": header.kind,
        "l": header.last,
        "t": header.time_ms,
        "n": header.nonce,
        "ct": f"{flow.messages} {flow.tokens}",
        "ol": flow.loop.encode(),
    }
    coded = [(name, getattr(header, field_name)) for name, (field_name, _) in _CODED.items()]
    optional: dict[str, AttributeValue] = {
        **{name: getattr(header, field_name) for name, field_name in _PLAIN.items()},
        **{name: value.encode() for name, value in coded if value is not None},
        "oc": flow.open_calls.encode(),
        "om": flow.open_calls.more,
        "pr": flow.previous_role,
        "lt": " ".join(map(str, loop_totals)) if any(loop_totals) else "",
        "lc": header.last_settings if header.last_settings > 1 else 0,
        "lf": header.last_frame if header.last_frame != header.last_settings else 0,
        "pa": int(header.pending),
        "pn": _encode_pinned(header.pinned),
    }
    return attributes | {name: value for name, value in optional.items() if value}


def read_header(item: Item) -> Header:
    """Return the header in a commit's item. Raises `CorruptError` or `NewerSchemaError`, which name the item."""
    check_version(item)
    try:
        return _read(item)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        message = f"a commit's header is damaged: {type(error).__name__}"
        raise CorruptError(message, item=item_name(item)) from error


def _read(item: Item) -> Header:
    values: Mapping[str, Any] = item
    for name, value in item.items():
        if type(value) is not _TYPES.get(name, type(value)):
            raise TypeError(name)
    get = values.get
    messages, tokens = values["ct"].split(" ")
    loop_totals = [int(number) for number in get("lt", "0 0 0 0").split(" ")]
    if len(loop_totals) != 4:
        raise ValueError("lt")
    kind = values["k"]
    if kind not in _KINDS:
        raise ValueError(kind)
    last_settings = get("lc", 1)
    fields = {field_name: values[name] for name, field_name in _PLAIN.items() if name in values}
    fields |= {field_name: decode(values[name]) for name, (field_name, decode) in _CODED.items() if name in values}
    return Header(
        first=position_of(log_key(item)),
        last=values["l"],
        kind=kind,
        time_ms=values["t"],
        nonce=get("n", b""),
        hash=get("h", b""),
        flow=Flow(
            loop=LoopState.decode(values["ol"]),
            open_calls=OpenCalls.decode(get("oc", b""), get("om", 0)),
            messages=int(messages),
            tokens=int(tokens),
            previous_role=get("pr", ""),
            lead=Amount(*loop_totals[:2]),
            closed=Amount(*loop_totals[2:]),
        ),
        last_settings=last_settings,
        last_frame=get("lf", last_settings),
        pending=get("pa", 0) == 1,
        pinned=_decode_pinned(get("pn", "")),
        version=values["v"],
        **fields,
    )


def listed(header: Header, pinned: Sequence[int]) -> Header:
    """Return the header as its item holds it: with no more open calls and pinned messages than it lists.

    ``pinned`` are the positions of messages that the commit pins.
    """
    open_calls = header.flow.open_calls.listed()
    if open_calls is not header.flow.open_calls:
        header = replace(header, flow=replace(header.flow, open_calls=open_calls))
    if header.pinned is None or not pinned:
        return header
    places = (*header.pinned, *((header.first, position) for position in pinned))
    return replace(header, pinned=places if len(places) <= MAX_PINNED else None)


def _encode_pinned(pinned: tuple[tuple[int, int], ...] | None) -> str:
    if pinned is None:
        return ""
    return " ".join(f"{first}.{position}" for first, position in pinned) or _NONE_PINNED


def _decode_pinned(text: str) -> tuple[tuple[int, int], ...] | None:
    if not text:
        return None
    pairs = [] if text == _NONE_PINNED else [pair.split(".") for pair in text.split(" ")]
    return tuple((int(first), int(position)) for first, position in pairs)


def log_key(item: Item) -> str:
    """Return the sort key of a commit in its log. A fork's first commit is stored under another key, in slot 1."""
    fork = item.get("fp")
    return commit_sort_key(fork) if isinstance(fork, int) else str(item["sk"])


def hashed_header(sort_key: str, attributes: Item) -> bytes:
    """Return the bytes of a header that the chain hash and the checksum cover."""
    covered = {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in attributes.items()
        if name not in _OUTSIDE
    }
    return canonical_json([sort_key, covered])


def chain_hash(previous: bytes, header: bytes, digests: Sequence[bytes]) -> bytes:
    """Return the chain hash of a commit: 16 bytes over the previous hash, the header and the digests of its events."""
    return hashlib.sha256(b"".join([previous, header, *digests])).digest()[:HASH_BYTES]


def short_hash(text: str) -> bytes:
    """Return a 16-byte hash of an idempotency key or a payload."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:HASH_BYTES]


def item_name(item: Item) -> str:
    """Return the name of an item for errors: its sort key, which reveals neither contents nor owner."""
    return str(item.get("sk", "?"))


def check_version(item: Item) -> None:
    """Raise `NewerSchemaError` for an item of a newer version, whose fields may have other meanings; versions begin with 1."""
    version = attribute(item, "v", int) if "v" in item else SCHEMA_VERSION
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version} is newer than {SCHEMA_VERSION}", item=item_name(item))
    if version < 1:
        raise CorruptError("attribute 'v' is missing or damaged", item=item_name(item))


def attribute(item: Item, name: str, kind: type[_Attribute]) -> _Attribute:
    """Return an attribute of an item. Raises a `CorruptError` that names the item when it is missing or not of this type."""
    value = item.get(name)
    if not isinstance(value, kind):
        raise CorruptError(f"attribute {name!r} is missing or damaged", item=item_name(item))
    return value
