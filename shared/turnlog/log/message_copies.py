"""The messages of a session for who keeps them elsewhere: all of them as lines of JSON, and those in view as plain texts.

Read a commit at a time, so that no more than one is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta

from turnlog.domain.events import Envelope
from turnlog.domain.facts import facts_of
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.domain.memory import Said
from turnlog.domain.times import rfc3339
from turnlog.domain.view import Stretch
from turnlog.log.commits import Commit, CommitLog, checked_chain
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import Located, located
from turnlog.log.search_index import said_at, shown_text

_PAGE_COMMITS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENVELOPE = tuple(field.name for field in fields(Envelope) if field.name not in ("status", "created_at"))


def copied_lines(log: CommitLog, keys: SessionKeys, header: Header) -> Iterator[bytes]:
    """A line for each message of the full history up to a header, those that were rewound marked; the same bytes every time."""
    stretches = log.view(keys, header).up_to(header.last)
    for items in log.stored_on(keys, 1, header.last, limit=_PAGE_COMMITS):
        for commit in checked_chain(items):
            for one in located(log, keys, [commit], fetch=True):
                yield encode_json(_line(one, stretches)) + b"\n"


def said_in(log: CommitLog, keys: SessionKeys, header: Header, *, first: int) -> Iterator[Said]:
    """What is in view at a header from a position on, in words. Left out: what is redacted or interrupted, or says nothing."""
    for commits in log.in_view_on(keys, header, first=first, limit=_PAGE_COMMITS):
        for commit in commits:
            yield from _said(log, keys, commit, first)


def _said(log: CommitLog, keys: SessionKeys, commit: Commit, first: int) -> Iterator[Said]:
    for one in located(log, keys, [commit], fetch=True):
        message, event = one.message, one.event
        if event.position < first or event.redacted or event.envelope.status != "complete" or message is None:
            continue
        if event.envelope.origin is not None:
            continue  # nobody has said it here
        text = shown_text(one, facts_of(message)).strip()
        if message.role != "unknown" and text:
            yield Said(event.position, message.role, text, (said_at(one) - _EPOCH) // timedelta(milliseconds=1))


def _line(one: Located, stretches: tuple[Stretch, ...]) -> JsonObject:
    event, envelope, message = one.event, one.event.envelope, one.message
    position = event.position
    line: JsonObject = {
        "position": position,
        "loop": one.loop or None,
        "role": message.role if message is not None else "unknown",
        "format": event.format,
        "body": event.body,
        "tokens": event.tokens,
        "created_at": envelope.created_at or rfc3339(one.time_ms),
        "status": envelope.status,
        "in_view": any(first <= position <= last for first, last in stretches),
    }
    default = Envelope()
    line |= {name: getattr(envelope, name) for name in _ENVELOPE if getattr(envelope, name) != getattr(default, name)}
    return line | ({"redacted": True} if event.redacted else {})
