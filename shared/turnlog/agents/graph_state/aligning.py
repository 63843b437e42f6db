"""Find the messages of a graph that the log does not have yet.

A graph may hold all messages, a compressed list, the new messages of one node, or a list that misses messages which others
appended; these look alike. Messages with ids are found by their ids. The others are found by their place: new messages follow
the part that the list shares with the end of the log. When it shares none with the end, the shared beginning counts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from turnlog.agents.graph_state.messages import GRAPH_METADATA, GraphMessage, Identity, identity_of
from turnlog.client import parts_of, retried
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, LoopUnfinishedError, RunActiveError, TurnlogError
from turnlog.core.json_values import JsonValue, canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.sessions.message_models import StoredMessage

_PAGE = 100
_MIN_SHARED = 2
"""Shared messages in a row that prove a common beginning; a single one may be a repeated text."""


@lazy_dataclass(frozen=True, slots=True)
class Aligned:
    """The comparison of a list of messages with the log.

    ``head`` is the log's, ``new`` the indexes of messages that the log does not have. ``is_sure`` is False when no message of
    the list is in the log and the list may be compressed. ``known`` are the newest messages of the log with their positions.
    """

    head: int
    new: tuple[int, ...]
    is_sure: bool
    known: tuple[tuple[Identity, int], ...]

    def position(self, identity: Identity) -> int | None:
        """Return the position of the newest message with this identity, or None."""
        return next((position for known, position in self.known if known.is_same(identity)), None)


def align(
    session: Session,
    messages: Sequence[GraphMessage | None],
    *,
    is_compressed: bool,
    is_same_run: Callable[[], bool | None],
    is_last_new: bool = False,
) -> Aligned:
    """Compare messages with the newest page of the log; read older pages only while no message is found.

    ``is_same_run`` is called when it matters: it returns whether the list is of the run that was saved before, or None when
    that is unknown. With ``is_last_new`` the last message is new when the log has another text under its id.
    """
    head = session.info().head
    identities = [(index, message.identity) for index, message in enumerate(messages) if message is not None]
    known = list[tuple[Identity, int]]()
    before: int | None = None
    while True:
        page = session.page(order="desc", limit=_PAGE, before=before, in_view=True)
        known += [
            (identity_of(stored), stored.position)
            for stored in page.messages
            if stored.position <= head and stored.status == "complete"
        ]
        before = page.next
        log = [identity for identity, _ in reversed(known)]
        if before is None or not identities or any(_is_in(identity, log) for _, identity in identities):
            break
    listed = [identity for _, identity in identities]
    start = _start(listed, log, is_compressed=is_compressed, is_whole=before is None, is_same_run=is_same_run)
    new = list[int]()
    if start is not None:
        ids = {identity.id for identity in log if identity.id is not None}
        new = [index for index in range(start, len(listed)) if listed[index].id not in ids]
        new = new if is_compressed else _without_siblings(listed, log, start, new)
        if is_last_new and listed and _is_changed(listed[-1], log):
            new.append(len(listed) - 1)
    return Aligned(head, tuple(identities[index][0] for index in new), start is not None, tuple(known))


def _is_changed(listed: Identity, log: Sequence[Identity]) -> bool:
    """Return whether the log's newest message with the id of a listed one has another text and is not redacted."""
    same_id = (stored for stored in reversed(log) if stored.id is not None and stored.id == listed.id)
    newest = next(same_id, listed)
    return newest.body != listed.body and not newest.is_redacted


def _start(
    listed: Sequence[Identity],
    log: Sequence[Identity],
    *,
    is_compressed: bool,
    is_whole: bool,
    is_same_run: Callable[[], bool | None],
) -> int | None:
    """Return the index from which messages may be new; None when a compressed list shares nothing with the log.

    ``log`` is the end of the log; with ``is_whole`` all of it.
    """
    if not log or not listed:
        return 0
    ends = [(_shared(reversed(listed), reversed(log)), -len(listed))]
    ends += [(_shared_end(listed[:end], log, is_whole=is_whole), -end) for end in range(1, len(listed))]
    length, end = max(ends)
    if length:
        return -end
    by_id = [index for index, identity in enumerate(listed) if identity.id is not None and _is_in(identity, log)]
    if by_id:
        return max(by_id) + 1
    length = max(_shared(listed, log[index:]) for index in range(len(log)))
    if length >= _MIN_SHARED:
        return length
    if length:
        same_run = is_same_run()
        if same_run or (same_run is None and is_whole and listed[0].is_same(log[0])):
            return length
    return None if is_compressed else 0


def _without_siblings(
    listed: Sequence[Identity], log: Sequence[Identity], start: int, rest: Sequence[int]
) -> list[int]:
    """Leave out messages that parallel nodes appended in another order than the graph has them."""
    first = max((index for index, identity in enumerate(log) if listed and identity.is_same(listed[0])), default=0)
    surplus = list(log[first:])
    for identity in listed[:start]:
        _take(surplus, identity)
    return [index for index in rest if not _take(surplus, listed[index])] if start else list(rest)


def _take(identities: list[Identity], wanted: Identity) -> bool:
    """Remove the first identity that is the same as ``wanted``; return whether there was one."""
    for index, identity in enumerate(identities):
        if identity.is_same(wanted):
            del identities[index]
            return True
    return False


def _is_in(wanted: Identity, identities: Sequence[Identity]) -> bool:
    return any(identity.is_same(wanted) for identity in identities)


def _shared(listed: Iterable[Identity], log: Iterable[Identity]) -> int:
    """Count the messages that both lists begin with."""
    pairs = zip(listed, log, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].is_same(pair[1]), pairs))


def _shared_end(listed: Sequence[Identity], log: Sequence[Identity], *, is_whole: bool) -> int:
    """Count the messages that both lists end with. A redacted one is known by its role, and by a message before it, or by none."""
    length = 0
    for count, (message, stored) in enumerate(zip(reversed(listed), reversed(log), strict=False), 1):
        is_same = message.is_same(stored)
        if not is_same and not (stored.is_redacted and stored.role == message.role):
            break
        if is_same or (is_whole and count == len(listed) == len(log)):
            length = count
    return length


EDITED, REMOVED = "message_edited", "messages_removed"
_MAX_IDS = 50


def record_edits(session: Session, messages: Sequence[GraphMessage | None], aligned: Aligned) -> None:
    """Record an entry in the history for each message whose newest version in the log, by its id, has another body."""
    bodies = {message.identity.id: message.identity.body for message in messages if message is not None}
    for identity, position in aligned.known:
        body = bodies.pop(identity.id, None) if identity.id is not None else None
        if body is not None and body != identity.body:
            details = {"message_id": identity.id, "position": position}
            session.record(EDITED, metadata=details, idempotency_key=f"edited-{position}-{_digest(body)}")


def record_removals(session: Session, before: Sequence[Any], messages: Sequence[Any]) -> None:
    """Record an entry in the history for the messages with an id that were there ``before`` and are gone."""
    left = {message.id for message in messages}
    removed: list[JsonValue] = [message.id for message in before if message.id is not None and message.id not in left]
    if removed:
        details = {"message_ids": removed[-_MAX_IDS:], "count": len(removed)}
        session.record(REMOVED, metadata=details, idempotency_key=f"removed-{_digest(canonical_json(removed))}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


Options = Callable[[Sequence[GraphMessage]], Mapping[str, Any]]


def append_new(
    session: Session,
    messages: Sequence[GraphMessage | None],
    *,
    is_compressed: bool = False,
    is_same_run: Callable[[], bool | None] = lambda: None,
    is_last_new: bool = False,
    refused: Callable[[TurnlogError], None] | None = None,
    options: Options = lambda batch: {},
) -> tuple[Aligned, list[int]]:
    """Append the messages that the log does not have, and return the comparison and the new positions.

    ``refused`` is called with the error when the log refuses a message, and nothing is appended; without it the error is
    raised. ``options`` returns further arguments of `Session.append` for a batch.
    """

    def attempt() -> tuple[Aligned, list[int]]:
        aligned = align(
            session, messages, is_compressed=is_compressed, is_same_run=is_same_run, is_last_new=is_last_new
        )
        new = [message for index in aligned.new if (message := messages[index]) is not None]
        try:
            positions, head = append_all(session, new, aligned.head, options)
        except (InvalidInputError, LoopUnfinishedError, RunActiveError) as error:
            if refused is None:
                raise
            refused(error)
            positions, head = [], aligned.head
        known = zip((message.identity for message in reversed(new)), reversed(positions), strict=False)
        return replace(aligned, head=head, known=(*known, *aligned.known)), positions

    return retried(attempt)


def append_all(
    session: Session, messages: Sequence[GraphMessage], head: int, options: Options
) -> tuple[list[int], int]:
    """Append messages behind ``head`` in batches that one append takes each, and return their positions and the new head.

    Raises `HeadMismatchError` when the log ends elsewhere.
    """
    positions = list[int]()
    for part in parts_of([message.body for message in messages], [message.meta for message in messages]):
        batch = messages[part]
        more = dict(options(batch))
        content = canonical_json([session.id, head, [[message.body, message.meta] for message in batch], more])
        answer = session.append(
            *(message.body for message in batch),
            meta=[message.meta for message in batch],
            if_head=head,
            lenient=True,
            idempotency_key=f"graph-{hashlib.sha256(content).hexdigest()[:32]}",
            **more,
        )
        positions += range(answer.first, answer.last + 1)
        head = answer.head
    return positions, head


def leave_branch(
    session: Session, messages: Sequence[GraphMessage | None], mark: str = GRAPH_METADATA
) -> tuple[int, int | None]:
    """Rewind the log to the newest message that it shares with a graph's list, when the graph is on another branch.

    The graph is on another branch when its messages follow in the log that the list lacks, or when the shared message is out of
    view. ``mark`` is the metadata key of its messages; those of others stay. An edited message is another one, a redacted
    message is not. Returns the head, and the place of the shared message in the list: None when messages without ids, or none
    at all, are shared.
    """
    listed = {message.identity.id: message.identity for message in messages if message is not None}

    def attempt() -> tuple[int, int | None]:
        head = session.info().head
        shared = next((stored for stored in session.messages(order="desc") if _is_listed(stored, listed)), None)
        if shared is None:
            return head, None
        place = next(index for index, message in enumerate(messages) if message and message.identity.id == shared.id)
        if not _is_left(session, shared.position, listed, mark):
            return head, place
        return session.rewind(shared.position, if_head=head).head, place

    return retried(attempt)


def leave_edits(
    session: Session, messages: Sequence[GraphMessage | None], head: int, place: int, *, is_last_new: bool
) -> tuple[int, list[int]]:
    """Rewind the log to before the first message of a graph's list, up to ``place``, that it lacks or has with another text.

    Messages that the list lacks stay in view: a graph that shortens its list has not changed what was said. A redacted message
    is not appended again; with ``is_last_new`` the list's last message is not taken for one. Returns the head, and the places of
    the messages to append behind it. Raises `HeadMismatchError` when another writer was there.
    """
    listed = {message.identity.id: message.identity for message in messages[: place + 1] if message is not None}
    places = {message.identity.id: index for index, message in enumerate(messages[: place + 1]) if message is not None}
    in_view, redacted = dict[int, StoredMessage](), list[StoredMessage]()
    for stored in session.messages(order="desc", in_view=True):
        if len(in_view) == len(places):
            break
        if stored.redacted:
            redacted.insert(0, stored)
        elif stored.id is not None and stored.id in places:
            in_view.setdefault(places[stored.id], stored)
    hidden = _redacted_places(messages[:-1] if is_last_new else messages, in_view, redacted)
    same = {index for index, stored in in_view.items() if _is_listed(stored, listed)}
    first = min(set(places.values()) - same - hidden, default=place + 1)
    if first <= place:
        # None is in view any more when another writer has rewound the log; `head` is not its head then.
        position = min((stored.position for index, stored in in_view.items() if index >= first), default=head)
        head = session.rewind(max(1, position - 1), if_head=head).head
    return head, [index for index in range(first, len(messages)) if index not in hidden]


def _redacted_places(
    messages: Sequence[GraphMessage | None], in_view: Mapping[int, StoredMessage], redacted: Sequence[StoredMessage]
) -> set[int]:
    """Return the places of redacted messages, which have no id in the log: they are known by role and by place among the others."""
    hidden, before = set[int](), 0
    for index, message in enumerate(messages if redacted else ()):
        if index in in_view:
            before = in_view[index].position
        elif message is not None:
            after = min((stored.position for later, stored in in_view.items() if later > index), default=math.inf)
            between = (stored for stored in redacted if before < stored.position < after)
            place = next(
                (stored.position for stored in between if stored.body.get("role") == message.body.get("role")), None
            )
            if place is not None:
                hidden.add(index)
                before = place
    return hidden


def _is_listed(stored: StoredMessage, listed: Mapping[str | None, Identity]) -> bool:
    identity = identity_of(stored)
    known = listed.get(identity.id) if identity.id is not None else None
    return known is not None and (stored.redacted or known.body == identity.body)


def _is_left(session: Session, position: int, listed: Mapping[str | None, Identity], mark: str) -> bool:
    """Return whether the message at a position is out of view, or followed by marked messages that are not listed."""
    after: int | None = position - 1
    is_in_view = False
    while after is not None:
        page = session.page(after=after, in_view=True)
        for stored in page.messages:
            is_in_view = is_in_view or stored.position == position
            if not is_in_view or (mark in (stored.metadata or {}) and not _is_listed(stored, listed)):
                return True
        after = page.next
    return not is_in_view
