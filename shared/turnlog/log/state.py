"""The session's state, folded from its events: the newest whole state before, and the patches after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from turnlog.domain.errors import CorruptError
from turnlog.domain.events import CreateEvent, StateEvent
from turnlog.domain.execution import merge
from turnlog.domain.jsonvalue import JsonObject
from turnlog.log.caches import Caches
from turnlog.log.commits import CommitLog
from turnlog.log.keys import SessionKeys, commit_sort_key

FULL_EVERY = 32
MAX_STATE_BYTES = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class State:
    """``version`` is the position of the newest state event, 0 before the first; ``count`` how many there were."""

    value: JsonObject
    version: int = 0
    count: int = 0


class States:
    """Reads the state of sessions."""

    def __init__(self, commits: CommitLog, caches: Caches) -> None:
        self._commits = commits
        self._caches = caches

    def at(self, keys: SessionKeys, version: int) -> State:
        """The state after the state event at this position. One request while the cache is up to date, at most 33 more else."""
        if version == 0:
            return State({})
        cached = self._caches.read_state(keys)
        if cached is not None and cached[1] == version:
            return State(*cached)
        patches, position = list[StateEvent](), version
        while True:
            if cached is not None and cached[1] == position:
                base = State(*cached)
                break
            event = self._event(keys, position)
            if isinstance(event, CreateEvent):
                base = State(event.state or {}, position, 0)
                break
            if event.full is not None:
                base = State(event.full, position, event.count)
                break
            patches.append(event)
            if event.previous == 0:
                base = State({})
                break
            position = event.previous
        value, count = base.value, base.count
        for event in reversed(patches):
            value, count = cast("JsonObject", merge(value, event.patch)), event.count
        return State(value, version, count)

    def _event(self, keys: SessionKeys, position: int) -> StateEvent | CreateEvent:
        commit = self._commits.containing(keys, position)
        if commit is None:
            raise CorruptError("a state event is missing", item=commit_sort_key(position))
        for event in self._commits.events(keys, [commit]):
            if event.position == position and isinstance(event, StateEvent | CreateEvent):
                return event
        raise CorruptError("no state event where the log says there is one", item=commit_sort_key(commit.header.first))


def next_event(
    state: State, *, position: int, action: str, patch: JsonObject, agent_id: str | None
) -> tuple[StateEvent, State]:
    """The event that changes the state by a merge patch, and the state after it."""
    value = cast("JsonObject", merge(state.value, patch))
    count = state.count + 1
    full = value if count % FULL_EVERY == 0 else None
    event = StateEvent(position, action, patch, state.version, count, agent_id, full)
    return event, State(value, position, count)
