"""Resolve moments of a session, given as a position or a time (RFC 3339), to positions and headers."""

from __future__ import annotations

from turnlog.core.errors import CorruptError, InvalidInputError, NotFoundError, Problem
from turnlog.core.times import milliseconds_of
from turnlog.log.commit_items import is_tombstone
from turnlog.log.commits import header_in
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.reading import header_at, position_at
from turnlog.ports import Item
from turnlog.sessions.session_log import SessionLog


def resolved(log: SessionLog, keys: SessionKeys, moment: int | str, *, pointer: str = "/at") -> int:
    """Return the position of a moment. `NotFoundError` without the session; a position above the head is not checked here."""
    if isinstance(moment, int):
        log.commits.tail(keys)
        return moment
    try:
        time_ms = milliseconds_of(moment)
    except ValueError as error:
        message = f"{moment[:64]!r} is neither a position nor a time of RFC 3339"
        raise _invalid(pointer, message) from error
    position = position_at(log.commits, keys, time_ms)
    if position is None:
        raise _invalid(pointer, f"the session is newer than {moment}")
    return position


def above_head(header: Header, position: int, *, pointer: str = "/at") -> InvalidInputError:
    """Return the error for a position that the log has not reached. ``header`` is the newest commit's."""
    message = f"position {position} is above the head, {header.last}"
    return InvalidInputError(
        message, problems=[Problem("invalid_parameter", pointer, message)], details={"head": header.last}
    )


def commit_at(log: SessionLog, keys: SessionKeys, position: int, *, pointer: str = "/at") -> Item:
    """Return the item of the commit that holds a position, in one request. `InvalidInputError` for one above the head."""
    items = next(log.commits.stored.back(keys, position, limit=1), ())
    if not items or is_tombstone(items):
        raise NotFoundError(f"no session {keys.session_id!r}")
    header = header_in(items[0])
    if position > header.last:
        if position <= log.commits.tail(keys).header.last:
            raise log.commits.missing(keys, position)
        raise above_head(header, position, pointer=pointer)
    return items[0]


def header_of(log: SessionLog, keys: SessionKeys, moment: int | str, *, pointer: str = "/at") -> Header:
    """Return the header that the log would have if it ended at a moment: with the view, settings and summary of then."""
    position = resolved(log, keys, moment, pointer=pointer)
    item = commit_at(log, keys, position, pointer=pointer)

    def before() -> Header:
        commit = log.commits.containing(keys, header_in(item).first - 1)
        if commit is None:
            raise CorruptError("a commit is missing", item=commit_sort_key(position))
        return commit.header

    return header_at(log.commits, keys, item, position, before)


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", pointer, message)])
