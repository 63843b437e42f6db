"""Which of a graph's messages the log does not have yet.

A list of all messages, a compressed one, and the new messages of one node look alike. What they share is the end of the log:
what stands behind it is new, and nothing before it is appended again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from turnlog.client.graph.messages import Said, key_of
from turnlog.client.model import Session
from turnlog.contracts.messages import StoredMessage

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Aligned:
    """``head`` is the log's; ``new`` is the index of the first message that the log does not have.

    ``is_sure`` is False where the end of the log is not in the list. ``positions`` are those of the log's newest messages.
    """

    head: int
    new: int
    is_sure: bool
    positions: dict[bytes, int]


def align(session: Session, messages: Sequence[Said | None], *, is_compressed: bool) -> Aligned:
    """Reads the newest page of the log, and older ones only while none of the messages is found."""
    head = session.info().head
    keys = [None if one is None else one.key for one in messages]
    wanted = {key for key in keys if key is not None}
    log, positions = deque[bytes](), dict[bytes, int]()
    before: int | None = None
    while True:
        page = session.page(order="desc", limit=_PAGE, before=before)
        for one in page.messages:
            if one.position <= head and one.status == "complete":
                log.appendleft(key_of(one))
                positions.setdefault(key_of(one), one.position)
        before = page.next
        if before is None or not wanted or wanted & positions.keys():
            break
    new, is_sure = _first_new(keys, list(log), is_compressed=is_compressed)
    return Aligned(head, new, is_sure, positions)


def _first_new(keys: Sequence[bytes | None], log: Sequence[bytes], *, is_compressed: bool) -> tuple[int, bool]:
    if not log:
        return 0, True
    best, longest = 0, 0
    for end in range(1, len(keys) + 1):
        length = _shared(keys[:end], log)
        if length > longest:
            best, longest = end, length
    if longest:
        return best, True
    known = set(log)
    last = max((at for at, key in enumerate(keys) if key in known), default=None)
    if last is not None:
        # An older state than the log: what is behind its last known message is all that can be new.
        return last + 1, last + 1 == len(keys)
    return (len(keys), not keys) if is_compressed else (0, True)


def _shared(keys: Sequence[bytes | None], log: Sequence[bytes]) -> int:
    """How many messages at the end of both are the same."""
    count = 0
    while count < min(len(keys), len(log)) and keys[-1 - count] == log[-1 - count]:
        count += 1
    return count


def complete(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    return [one for one in messages if one.status == "complete"]
