"""Which of a graph's messages the log does not have yet.

A list of all messages, a compressed one, the new messages of one node, and a list from before what others have appended look
alike. Messages with ids are known by them. The others are known by where they stand: what the list and the log share at
the log's end comes before what is new; without it, what they share at the list's beginning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnlog.agents.graph_state.messages import GraphMessage, Identity, identity_of
from turnlog.client.model import Session
from turnlog.client.parts import parts_of
from turnlog.core.errors import HeadMismatchError, InvalidInputError, LoopUnfinishedError, RunActiveError, TurnlogError
from turnlog.core.json_values import JsonValue, canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass

_PAGE = 100
_RUN = 2
"""So many messages that follow each other in both are no accident; a single one may be the same words said again."""


@lazy_dataclass(frozen=True, slots=True)
class Aligned:
    """``head`` is the log's, ``new`` the indexes of messages that it does not have.

    ``is_sure`` is False where nothing of the list is known and it may be compressed. ``known`` are the newest messages.
    """

    head: int
    new: tuple[int, ...]
    is_sure: bool
    known: tuple[tuple[Identity, int], ...]

    def position(self, identity: Identity) -> int | None:
        """Where the newest message stands that is this one."""
        return next((position for one, position in self.known if one.is_same(identity)), None)


def align(
    session: Session,
    messages: Sequence[GraphMessage | None],
    *,
    is_compressed: bool,
    is_same_run: Callable[[], bool | None],
) -> Aligned:
    """Reads the newest page of the log, and older ones only while none of the messages is found.

    ``is_same_run`` says, when it matters, whether the list is of the run that was saved before; None where nobody knows.
    """
    head = session.info().head
    given = [(at, one.identity) for at, one in enumerate(messages) if one is not None]
    known = list[tuple[Identity, int]]()
    before: int | None = None
    while True:
        page = session.page(order="desc", limit=_PAGE, before=before, in_view=True)
        known += [
            (identity_of(one), one.position)
            for one in page.messages
            if one.position <= head and one.status == "complete"
        ]
        before = page.next
        if before is None or not given or any(_is_in(one, known) for _, one in given):
            break
    log = [identity for identity, _ in reversed(known)]
    listed = [identity for _, identity in given]
    new, is_sure = new_of(listed, log, is_compressed=is_compressed, is_whole=before is None, is_same_run=is_same_run)
    return Aligned(head, tuple(given[at][0] for at in new), is_sure, tuple(known))


def new_of(
    listed: Sequence[Identity],
    log: Sequence[Identity],
    *,
    is_compressed: bool,
    is_whole: bool,
    is_same_run: Callable[[], bool | None],
) -> tuple[list[int], bool]:
    """Indexes of the list that are new, and whether that is sure. ``log`` is its end, all of it where ``is_whole``."""
    ids = {one.id for one in log if one.id is not None}
    start = _start(listed, log, is_compressed=is_compressed, is_whole=is_whole, is_same_run=is_same_run)
    if start is None:
        return [], False
    rest = [at for at in range(start, len(listed)) if listed[at].id is None or listed[at].id not in ids]
    if not is_compressed:
        rest = _without_siblings(listed, log, start, rest)
    return rest, True


def _start(
    listed: Sequence[Identity],
    log: Sequence[Identity],
    *,
    is_compressed: bool,
    is_whole: bool,
    is_same_run: Callable[[], bool | None],
) -> int | None:
    """The index from which on messages may be new; None where a compressed list shares nothing with the log."""
    if not log or not listed:
        return 0
    ends = [(_shared_back(listed[:end], log), -end) for end in range(1, len(listed) + 1)]
    length, end = max(ends)
    if length:
        return -end
    by_id = [at for at, one in enumerate(listed) if one.id is not None and _is_in(one, [(other, 0) for other in log])]
    if by_id:
        return max(by_id) + 1
    length = max(_shared_on(listed, log[at:]) for at in range(len(log)))
    if length >= _RUN:
        return length
    if length:
        same_run = is_same_run()
        if same_run or (same_run is None and is_whole and listed[0].is_same(log[0])):
            return length
    return None if is_compressed else 0


def _without_siblings(
    listed: Sequence[Identity], log: Sequence[Identity], start: int, rest: Sequence[int]
) -> list[int]:
    """Without what nodes beside this one have appended in another order than the graph has it."""
    first = max((at for at, one in enumerate(log) if listed and one.is_same(listed[0])), default=0)
    surplus = list(log[first:])
    for one in listed[:start]:
        _take(surplus, one)
    return [at for at in rest if not _take(surplus, listed[at])] if start else list(rest)


def _take(found: list[Identity], wanted: Identity) -> bool:
    for at, one in enumerate(found):
        if one.is_same(wanted):
            del found[at]
            return True
    return False


def _is_in(wanted: Identity, known: Sequence[tuple[Identity, int]]) -> bool:
    return any(one.is_same(wanted) for one, _ in known)


def _shared_back(listed: Sequence[Identity], log: Sequence[Identity]) -> int:
    """How many messages at the end of both are the same."""
    count = 0
    while count < min(len(listed), len(log)) and listed[-1 - count].is_same(log[-1 - count]):
        count += 1
    return count


def _shared_on(listed: Sequence[Identity], log: Sequence[Identity]) -> int:
    """How many messages at the beginning of both are the same."""
    count = 0
    while count < min(len(listed), len(log)) and listed[count].is_same(log[count]):
        count += 1
    return count


EDITED, REMOVED = "message_edited", "messages_removed"
_TOLD = 50


def tell_edited(session: Session, messages: Sequence[GraphMessage | None], aligned: Aligned) -> None:
    """Tells each message of an id that the log has with another body."""
    bodies = {one.identity.id: one.identity.body for one in messages if one is not None}
    for identity, position in aligned.known:
        body = bodies.get(identity.id) if identity.id is not None else None
        if body is not None and body != identity.body:
            told = {"message_id": identity.id, "position": position}
            session.record(EDITED, metadata=told, key=f"edited-{position}-{_digest(body)}")


def tell_removed(session: Session, before: Sequence[Any], messages: Sequence[Any]) -> None:
    """Tells the messages with an id that were there ``before``."""
    left = {one.id for one in messages}
    removed: list[JsonValue] = [one.id for one in before if one.id is not None and one.id not in left]
    if removed:
        told = {"message_ids": removed[-_TOLD:], "count": len(removed)}
        session.record(REMOVED, metadata=told, key=f"removed-{_digest(canonical_json(removed))}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


_TRIES = 100
"""Whoever loses looks again; somebody else has appended then."""
Options = Callable[[Sequence[GraphMessage]], Mapping[str, Any]]


def append_new(
    session: Session,
    messages: Sequence[GraphMessage | None],
    *,
    is_compressed: bool,
    is_same_run: Callable[[], bool | None],
    refused: Callable[[TurnlogError], None] | None = None,
    options: Options = lambda batch: {},
) -> tuple[Aligned, list[int]]:
    """How the messages stand in the log, with what was appended, and the positions of that.

    ``refused`` is told what the log does not take, and nothing is appended then; without it that is raised. ``options`` are
    further arguments of `Session.append` for a batch.
    """
    for left in reversed(range(_TRIES)):
        aligned = align(session, messages, is_compressed=is_compressed, is_same_run=is_same_run)
        new = [one for at in aligned.new if (one := messages[at]) is not None]
        try:
            positions = _append(session, new, aligned.head, options)
        except HeadMismatchError:
            if not left:
                raise
            continue
        except (InvalidInputError, LoopUnfinishedError, RunActiveError) as error:
            if refused is None:
                raise
            refused(error)
            positions = []
        known = zip((one.identity for one in reversed(new)), reversed(positions), strict=False)
        return replace(aligned, known=(*known, *aligned.known)), positions
    raise AssertionError("a try returns or raises")


def _append(session: Session, new: Sequence[GraphMessage], head: int, options: Options) -> list[int]:
    positions = list[int]()
    for part in parts_of([one.body for one in new], [one.meta for one in new]):
        batch = new[part]
        more = dict(options(batch))
        content = canonical_json([session.id, head, [[one.body, one.meta] for one in batch], more])
        answer = session.append(
            *(one.body for one in batch),
            meta=[one.meta for one in batch],
            if_head=head,
            key=f"graph-{hashlib.sha256(content).hexdigest()[:32]}",
            **more,
        )
        positions += range(answer.first, answer.last + 1)
        head = answer.head
    return positions
