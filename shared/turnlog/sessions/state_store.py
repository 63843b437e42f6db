"""The state of a session, folded from its events: the newest event with a whole state, and the patches after it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from turnlog.core.errors import CorruptError, PatchError, UnavailableError
from turnlog.core.events import MAX_LISTED_KEYS, CreateEvent, StateEvent
from turnlog.core.json_patch import OPERATION_STEPS, Patch, apply_patch, apply_patches, difference
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import Lasting, lazy_dataclass, once
from turnlog.log.caches import reflected_position
from turnlog.log.headers import attribute
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.packing import json_in, pack
from turnlog.ports import AttributeValue, Item
from turnlog.sessions.session_log import SessionLog

FULL_EVERY = 32
FOLD_STEPS = 32_768
"""Steps (a few milliseconds) that folding the patches after a whole state may take. Each 8 bytes of them count as a step."""
_BYTES_PER_STEP = 8
MAX_STATE_BYTES = 5 * 1024 * 1024
INLINE_BYTES = 32 * 1024
"""Packed size of a cached state, or of the cached patches since a whole state."""
_MAX_PACKED_CONTENT_BYTES = 8 * INLINE_BYTES
"""Larger contents are taken as too large without compressing them."""


@lazy_dataclass(frozen=True, slots=True)
class SessionState(Lasting):
    """A state with the events that it was folded from.

    ``version`` is the position of the newest state event, 0 before the first; ``count`` is the number of state events. ``base``
    is the position of the event that holds a whole state (0: none was needed), and ``since`` the patches after it; None when
    only the folded state was read. ``steps`` is the cost of folding these patches.
    """

    value: JsonObject
    version: int = 0
    count: int = 0
    base: int = 0
    since: tuple[Patch, ...] | None = ()
    steps: int = 0


def state_at(log: SessionLog, keys: SessionKeys, version: int) -> SessionState:
    """Return the state after the state event at position ``version``.

    One request while the cache is up to date, two more for a large state; at most 35 from the log alone.
    """
    cached = log.caches.read(keys.state) if version else None
    base, patches, position = SessionState({}), list[Patch](), version
    while position:
        if cached is not None and reflected_position(cached) == position:
            base = _from_cache(log, keys, cached, position)
            break
        event = _event_at(log, keys, position)
        if isinstance(event, CreateEvent) or event.full is not None:
            base = _whole(event)
            break
        patches.append(_patch_of(event, position))
        position = event.previous
    return _folded(base, patches[::-1], version)


def _from_cache(log: SessionLog, keys: SessionKeys, item: Item, position: int) -> SessionState:
    """Return the state in ``S#STATE``: the state itself, or folded from the patches since the event at ``bs``."""
    content = json_in(item)
    if "bs" not in item:
        return SessionState(content, position, attribute(item, "n", int), since=None)
    base = attribute(item, "bs", int)
    return _folded(_whole(_event_at(log, keys, base)) if base else SessionState({}), content, position)


def _whole(event: StateEvent | CreateEvent) -> SessionState:
    """Return the state that an event holds as a whole. Raises `CorruptError` for an event that holds a patch alone."""
    value, count = (event.state, 0) if isinstance(event, CreateEvent) else (event.full, event.count)
    if value is None:
        raise CorruptError("no whole state where the log says there is one", item=commit_sort_key(event.position))
    return SessionState(value, event.position, count, event.position)


def _folded(base: SessionState, patches: Sequence[Patch], version: int) -> SessionState:
    try:
        value, steps = apply_patches(base.value, patches)
    except PatchError as error:
        raise CorruptError("a stored patch does not apply", item=commit_sort_key(version)) from error
    since = (*base.since, *patches) if base.since is not None else None
    steps += base.steps + _read_steps(patches)
    return SessionState(value, version, base.count + len(patches), base.base, since, steps)


def _event_at(log: SessionLog, keys: SessionKeys, position: int) -> StateEvent | CreateEvent:
    commit = log.commits.holding(keys, position)
    (event,) = log.commits.whole(keys, [(commit, position)])
    if not isinstance(event, StateEvent | CreateEvent):
        raise CorruptError("no state event where the log says there is one", item=commit_sort_key(position))
    return event


def write_state_cache(log: SessionLog, keys: SessionKeys, state: SessionState, *, rewound: int = 0) -> None:
    """Write ``S#STATE``, if the folded state or the patches since an event with a whole state are small enough.

    Ignores an unavailable engine: without the cache, readers fold the state from the log. ``rewound`` is the position of the
    newest rewind.
    """
    content = _cached(state)
    if content is not None:
        with suppress(UnavailableError):
            log.caches.write(keys.state, content, position=state.version, rewound=rewound)


@once
def _cached(state: SessionState) -> dict[str, AttributeValue] | None:
    """Return what the cache holds of a state: the folded state, or else the patches since ``bs``; None when both are too large."""
    folded = _packed_if_small(state.value)
    if folded is not None:
        return {"n": state.count, "b": folded}
    patches = _packed_if_small(list(state.since)) if state.since is not None else None
    return {"n": state.count, "b": patches, "bs": state.base} if patches is not None else None


def next_event(
    state: SessionState, *, position: int, action: str, patch: Patch, agent_id: str | None
) -> tuple[StateEvent, SessionState]:
    """Return the event that changes the state by a patch, and the state after it. Refuses as `apply_patch` does."""
    value, steps = apply_patch(state.value, patch)
    return _event_and_state(state, value, steps, position=position, action=action, patch=patch, agent_id=agent_id)


def replacing_event(
    state: SessionState, value: JsonObject, *, position: int, action: str
) -> tuple[StateEvent, SessionState]:
    """Return the event that replaces the state, and the state after it. Stores their difference when that is smaller."""
    patch: Patch | None = difference(state.value, value)
    if len(encode_json(patch)) >= len(encode_json(value)):
        patch = None
    steps = OPERATION_STEPS * len(patch or ())
    return _event_and_state(state, value, steps, position=position, action=action, patch=patch, agent_id=None)


def _event_and_state(
    state: SessionState,
    value: JsonObject,
    steps: int,
    *,
    position: int,
    action: str,
    patch: Patch | None,
    agent_id: str | None,
) -> tuple[StateEvent, SessionState]:
    """Return the state event and the state after it. ``steps`` is the cost of applying the patch.

    The event stores the whole state when there is no patch, and at each `FULL_EVERY`th event. It also does when folding would
    take too many steps, or when neither the state nor the patches fit into the cache.
    """
    count = state.count + 1
    since = (*state.since, patch) if state.since is not None and patch is not None else None
    steps += state.steps + _read_steps([patch] if patch is not None else [])
    after = SessionState(value, position, count, state.base, since, steps)
    is_full = patch is None or count % FULL_EVERY == 0 or steps > FOLD_STEPS or _cached(after) is None
    event = StateEvent(
        position=position,
        action=action,
        patch=patch,
        previous=state.version,
        count=count,
        agent_id=agent_id,
        full=value if is_full else None,
        keys_before=state_key_names(state.value),
        keys_after=state_key_names(value),
    )
    return event, SessionState(value, position, count, position) if is_full else after


def _read_steps(patches: Sequence[Patch]) -> int:
    """Return the cost of reading stored patches, in steps. Folding them costs extra."""
    return sum(len(encode_json(patch)) for patch in patches) // _BYTES_PER_STEP


def state_key_names(value: JsonObject) -> tuple[str, ...]:
    """Return the first names of a state, sorted, as the history lists them."""
    return tuple(sorted(value)[:MAX_LISTED_KEYS])


def _packed_if_small(value: Any) -> bytes | None:
    """Return a value packed for the cache; None when it is too large."""
    content = encode_json(value)
    if len(content) > _MAX_PACKED_CONTENT_BYTES:
        return None
    packed = pack(content)
    return packed if len(packed) <= INLINE_BYTES else None


def _patch_of(event: StateEvent, position: int) -> Patch:
    """Return the patch of a state event at ``position`` that changes an earlier state."""
    if event.patch is None:
        raise CorruptError("a state event without a change", item=commit_sort_key(position))
    if event.previous >= position:
        raise CorruptError("a state event changes one that is not before it", item=commit_sort_key(position))
    return event.patch
