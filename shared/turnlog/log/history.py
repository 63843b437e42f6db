"""Any moment of the log: a time as a position, and the header that the log would have if it ended at a position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from turnlog.domain.errors import NotFoundError
from turnlog.domain.flow import Arrival, Flow, accept
from turnlog.domain.messages import Message
from turnlog.log.commit_items import is_tombstone, shared_position
from turnlog.log.commits import CommitLog, header_in, read_commit
from turnlog.log.headers import CREATION, Header
from turnlog.log.keys import MAX_POSITION, SessionKeys
from turnlog.log.reading import located
from turnlog.ports import Item

NEAR = 64
"""So many commits are read at once where the search is near, instead of asking for one after the other."""


def position_at(log: CommitLog, keys: SessionKeys, time_ms: int) -> int | None:
    """The newest position at a time; None before creation.

    One request while the time is among the newest 64 commits; before them one more for each halving of the log down to 64
    positions.
    """
    low, high = 0, MAX_POSITION + 1
    while high - low > 1:
        # All that is newer than `high` is too new, all up to `low` is old enough.
        is_near = high - low <= NEAR or high > MAX_POSITION
        at = high - 1 if is_near else (low + high) // 2
        found = next(log.stored.back(keys, at, limit=NEAR if is_near else 1), ())
        if not found or is_tombstone(found):
            raise NotFoundError(f"no session {keys.session_id!r}")
        if high > MAX_POSITION:
            log.check_alive(keys, header_in(found[0]))
        for header in map(header_in, found):
            if header.time_ms > time_ms:
                high = header.first
            elif is_near:
                return header.last
            else:
                low = header.last
    return low or None


def header_at(log: CommitLog, keys: SessionKeys, item: Item, position: int, before: Callable[[], Header]) -> Header:
    """The header as if the log ended at a position of a commit, whose item is given. ``before`` brings the header before it.

    Inside a commit its messages up to the position are folded onto the commit before; what the whole commit told (of usage)
    holds. Of a commit that a fork shares only in part the end is where that part ends. A session begins with all of its first
    commit: what it knows from memory is there from position 1 on.
    """
    header, position = header_in(item), shared_position(item, position)
    if position == header.last or header.kind == CREATION:
        return header
    commit, previous = read_commit(item), before()
    flow: Flow = previous.flow
    for one in located(log, keys, [commit]):
        if one.event.position <= position:
            arrival = Arrival(
                position=one.event.position,
                index=0,
                message=one.message or Message("unknown"),
                facts=one.facts,
                tokens=one.event.tokens,
                interrupted=one.event.envelope.status == "interrupted",
                timed_out=one.event.opens_loop > 0,
            )
            flow = accept(flow, arrival).flow
    # A commit's state event is its last.
    return replace(header, last=position, flow=flow, last_state=previous.last_state)
