"""What of a source's session the log holds already.

The log itself is asked, not a memory of earlier imports: so an import that was killed goes on where it stopped, a second one
finds nothing to do, and one of a source that has grown appends what is new, however long ago the first was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from turnlog.client.imports.errors import SourceChangedError
from turnlog.client.imports.fitting import fitted
from turnlog.client.imports.sessions import Noted, SourceMessage, SourceSession
from turnlog.contracts.messages import StoredMessage
from turnlog.domain.jsonvalue import canonical_json
from turnlog.domain.values import dataclass

_GIVEN = ("id", "author", "metadata", "finish_reason", "is_error")


@dataclass(frozen=True, slots=True)
class Held:
    """``present`` are positions of the source's messages that are there, ``missing`` the messages that are not.

    ``passed`` interrupted messages are in the log and no more in the source; ``more`` messages stand behind its last one.
    """

    present: tuple[tuple[int, SourceMessage], ...]
    missing: tuple[SourceMessage, ...]
    changed: tuple[Noted, ...]
    passed: int
    more: int


def compare(source: SourceSession, stored: Iterable[StoredMessage]) -> Held:
    """Raises `SourceChangedError` at the first message of the source that is not the one in the log."""
    waiting = deque(source.messages)
    present, changed = list[tuple[int, SourceMessage]](), list[Noted]()
    passed = more = 0
    for one in stored:
        if not waiting:
            more += 1
            continue
        found = _found(waiting, one, source.format)
        if found is not None:
            message, cut = found
            present.append((one.position, message))
            changed += cut
        elif one.status == "interrupted":
            # A partial answer of an earlier import: it has become a whole one, or was given up.
            passed += 1
        else:
            place = waiting[0].place
            text = f"{place} of {source.source_id[:80]!r} is not message {one.position} of session {source.id!r}"
            raise SourceChangedError(text, details={"place": place, "position": one.position})
    missing = list[SourceMessage]()
    for message in waiting:
        made, cut = fitted(message, source.format)
        missing.append(made)
        changed += cut
    return Held(tuple(present), tuple(missing), tuple(changed), passed, more)


def _found(
    waiting: deque[SourceMessage], stored: StoredMessage, format: str
) -> tuple[SourceMessage, tuple[Noted, ...]] | None:
    """The next message of the source, taken, where it is the stored one; or its first pieces, where these are."""
    whole = waiting[0]
    for cut in (None, *range(1, len(whole.pieces))):
        made = whole if cut is None else whole.first(cut)
        message, noted = fitted(made, format)
        if _key(_given(message, format)) == _key(_stored(stored, has_time=message.created_at is not None)):
            waiting.popleft()
            if cut is not None:
                waiting.appendleft(whole.rest(cut))
            return message, noted
    return None


def _given(message: SourceMessage, format: str) -> list[Any]:
    meta = message.meta
    own = [meta.get(name) for name in _GIVEN]
    return [format, message.body, meta.get("status", "complete"), meta.get("pin", False), meta.get("created_at"), *own]


def _stored(one: StoredMessage, *, has_time: bool) -> list[Any]:
    own = [getattr(one, name) for name in _GIVEN]
    return [one.format, one.body, one.status, one.pin, one.created_at if has_time else None, *own]


def _key(value: list[Any]) -> bytes:
    return canonical_json(value)
