"""Messages of a graph into the log: those that it does not have, once, whoever else appends at the same time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnlog.client.graph.aligning import Aligned, align
from turnlog.client.graph.messages import Said
from turnlog.client.model import Session
from turnlog.client.parts import parts_of
from turnlog.domain.errors import (
    HeadMismatchError,
    InvalidInputError,
    LoopUnfinishedError,
    RunActiveError,
    TurnlogError,
)
from turnlog.domain.jsonvalue import canonical_json

_TRIES = 100
"""Whoever loses looks again; somebody else has appended then."""
Options = Callable[[Sequence[Said]], Mapping[str, Any]]


def append_new(
    session: Session,
    messages: Sequence[Said | None],
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


def _append(session: Session, new: Sequence[Said], head: int, options: Options) -> list[int]:
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
