"""The state of a session, folded again from its history: up to a moment, on another beginning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from turnlog.contracts.history import HistoryEntry
from turnlog.domain import actions
from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.patches import folded
from turnlog.domain.times import milliseconds_of
from turnlog.domain.values import dataclass


@dataclass(frozen=True, slots=True)
class Replayed:
    """``state`` is that after the event at ``position``. ``changes`` counts the changes it is made of, those that rewinds have
    taken back not among them."""

    position: int
    state: dict[str, Any]
    changes: int


def replayed(
    entries: Iterable[HistoryEntry], *, base_state: Mapping[str, Any] | None = None, until: int | str | None = None
) -> Replayed:
    """Folds the entries of a history, oldest first, until a position or a time.

    ``base_state`` is in place of what the session was created with. A change that does not fit it is a `PatchError`.
    """
    last = until if isinstance(until, int) else None
    time_ms = _milliseconds(until) if isinstance(until, str) else None
    found = [Replayed(0, {}, 0)]
    positions = [0]
    for entry in entries:
        position = int(entry.history_id)
        is_later = last is not None and position > last
        if is_later or (time_ms is not None and milliseconds_of(entry.created_at) > time_ms):
            break
        found.append(_after(found[-1], entry, position, base_state, found, positions))
        positions.append(position)
    return found[-1]


def _after(
    before: Replayed,
    entry: HistoryEntry,
    position: int,
    base_state: Mapping[str, Any] | None,
    found: list[Replayed],
    positions: list[int],
) -> Replayed:
    if entry.action == actions.CREATE and position == 1 and base_state is not None:
        return Replayed(position, dict(base_state), 0)
    back_to = _goes_back_to(entry)
    if back_to is not None:
        then = found[max(at for at, one in enumerate(positions) if one <= back_to)]
        return Replayed(position, then.state, then.changes)
    if entry.diff is None:
        return Replayed(position, before.state, before.changes)
    return Replayed(position, folded(before.state, [entry.diff])[0], before.changes + 1)


def _goes_back_to(entry: HistoryEntry) -> int | None:
    if entry.action in (actions.REWIND, actions.RESTORE):
        return entry.metadata.get("to")
    return entry.metadata.get("at") if entry.action == actions.FORK else None


def _milliseconds(time: str) -> int:
    try:
        return milliseconds_of(time)
    except ValueError as error:
        message = f"{time[:64]!r} is no time of RFC 3339"
        raise InvalidInputError(message, problems=[Problem("invalid_parameter", "/until", message)]) from error
