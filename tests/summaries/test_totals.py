"""What triggers are asked about is in the newest header: it equals a recount of the whole session, at every head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.talks import turn
from turnlog.client.model import Session
from turnlog.core.errors import CorruptError
from turnlog.core.loops import Amount
from turnlog.log.headers import Covered, Header, read_header
from turnlog.log.keys import SessionKeys
from turnlog.ports import Query
from turnlog.summaries.trigger import totals_since_summary
from turnlog.windows.policy import PRESETS
from turnlog.windows.triggers import Counted, Totals, is_crossed
from turnlog.windows.view import Room


def header_of(session: Session) -> Header:
    backend: Any = session.backend
    header: Header = backend.app.log.commits.tail(SessionKeys(backend.owner, session.id)).header
    return header


def recounted(session: Session) -> Totals:
    """Of all messages beyond the summary in force."""
    summary = session.summary()
    border, covered = (summary.last, summary.last_loop) if summary is not None else (0, 0)
    everything = [message for message in session.messages() if message.position > border]
    current = max((message.loop or 0 for message in session.messages()), default=0)
    past = [message for message in everything if 0 < (message.loop or 0) < current]
    loops = max(0, current - 1) - covered
    open_loop = [message for message in everything if current and message.loop == current]
    parts = ((loops, everything), (loops, past), (0, open_loop))
    return Totals(*(Counted(number, len(some), sum(message.tokens for message in some)) for number, some in parts))


def test_totals_are_those_of_a_recount_through_a_session_s_whole_path(log: Any) -> None:
    session = log.sessions.create("s", policy="default")
    leads: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
    ]
    later = {"role": "system", "content": "The shop closes at eight."}
    batches = [leads[:1], leads[1:], turn(1), [*turn(2), *turn(3)], turn(4)[:2], [*turn(4)[2:], later], turn(5)]
    for at, batch in enumerate([*batches, *(turn(number) for number in range(6, 12))]):
        session.append(*batch)
        assert totals_since_summary(header_of(session)) == recounted(session)
        if at % 3 == 2:
            session.compress(keep_loops=at % 2)
            assert totals_since_summary(header_of(session)) == recounted(session)
    assert session.summary() is not None
    assert header_of(session).flow.lead == Amount(2, sum(message.tokens for message in list(session.messages())[:2]))


def test_a_summary_of_steps_of_the_open_loop_leaves_nothing_past(log: Any) -> None:
    session = log.sessions.create("s")
    session.append(*turn(1), *turn(2))
    header = header_of(session)
    flow = header.flow
    summary = Covered(flow.messages, flow.messages - 1, 1, flow.messages - 1, flow.tokens - 7)
    rest = Counted(0, 1, 7)
    assert totals_since_summary(replace(header, summary=summary)) == Totals(rest, Counted(0, 0, 0), rest)


def test_a_summary_brings_the_totals_below_the_trigger_again(log: Any) -> None:
    session = log.sessions.create("s")
    trigger, room = PRESETS["default"].compress, Room(4_000, 0)
    assert trigger is not None
    for number in range(1, 7):
        assert not is_crossed(trigger, totals_since_summary(header_of(session)), room)
        session.append(*turn(number))
    assert is_crossed(trigger, totals_since_summary(header_of(session)), room)
    session.compress(keep_loops=1)
    assert not is_crossed(trigger, totals_since_summary(header_of(session)), room)


def test_a_header_that_has_no_such_totals_yet_reads_as_none(log: Any) -> None:
    """One of an earlier Turnlog. From its next loop border on what is past is counted."""
    session = log.sessions.create("s")
    session.append({"role": "system", "content": "Be brief."}, *turn(1), *turn(2))
    backend: Any = session.backend
    partition = SessionKeys(backend.owner, session.id).partition
    item = dict(backend.app.engine.items.query(Query(partition, "C#", "C~", descending=True, limit=1)).items[0])
    assert item.pop("lt") == " ".join(
        str(number) for flow in [header_of(session).flow] for number in (*flow.lead, *flow.closed)
    )
    assert totals_since_summary(read_header(item)).past == Counted(1, 0, 0)
    with pytest.raises(CorruptError):
        read_header({**item, "lt": "1 2 3"})


@pytest.mark.parametrize("total", [640, 641, 642, 900])
def test_the_trigger_of_default_is_its_high_mark(total: int) -> None:
    trigger = PRESETS["default"].compress
    assert trigger is not None
    counted = Counted(3, 9, total)
    assert is_crossed(trigger, Totals(counted, counted, counted), Room(1_000, 160)) == (total > 640)
