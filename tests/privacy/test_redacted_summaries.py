"""E5: a redaction overwrites the summaries that were made of the message's text, and no summary that was made after it."""

from __future__ import annotations

from io import BytesIO

import pytest

from tests.conftest import Harness
from tests.log.everything import held
from tests.support.erasing import KEYS, OWNER, message_of, worked
from tests.support.exports import exported
from tests.support.jobs import deliver
from tests.support.redacting import CANARY, bodies_are_gone, said
from tests.support.scripted import ScriptedSummariser, summarise_with
from tests.support.talks import turn
from turnlog.client.model import Session, Turnlog
from turnlog.core.messages import REDACTED
from turnlog.core.summaries import Summarised, SummaryRequest
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.lines import Redacted
from turnlog.ports import Query
from turnlog.snapshots.full import parts_of
from turnlog.snapshots.segment_format import read_segment

pytestmark = pytest.mark.usefixtures("by_bucket")
POLICY = {"steps": [{"step": "summary"}]}


def talked(session: Session, first: int, last: int) -> None:
    for number in range(first, last):
        session.append(*turn(number, words=40))


def said_early(harness: Harness) -> tuple[Session, int]:
    """A session that says the canary in its second loop, and its position."""
    session = harness.log().sessions.create("s")
    session.append(*turn(1))
    position = session.append({"role": "user", "content": CANARY}).first
    talked(session, 2, 7)
    return session, position


def shown(session: Session) -> str:
    """The window's text, with the summary in it."""
    return repr(session.context(policy=POLICY, budget=6_000).messages)


def in_full_snapshots(harness: Harness) -> str:
    """The stored lines of the session's full snapshots."""
    lines, blobs = list[bytes](), harness.app.engine.blobs
    for record in harness.app.log.records.every(KEYS.snapshots):
        for part in parts_of(record):
            data = part.inline or blobs.get(KEYS.blob_prefix + part.blob) or b""
            lines += [line for sealed in read_segment(data, name="x") for line in sealed.lines]
    return b"\n".join(lines).decode()


def overwritten_by_earlier_code(harness: Harness, session: Session, position: int) -> None:
    """Earlier versions overwrote every summary that covers the position, whenever it was made."""
    keys = SessionKeys(OWNER, session.id)
    harness.app.redaction.overwrite(keys, Redacted(position, b"", b""))
    harness.app.engine.items.delete_many([keys.summary])


@pytest.mark.every_engine
@pytest.mark.parametrize("passes", [0, 1])
def test_e5_a_summary_that_was_made_after_the_redaction_stays(harness: Harness, passes: int) -> None:
    """In every process, in forks, full snapshots and exports."""
    session, position = said(harness, CANARY)
    job = session.redact(position)
    for _ in range(passes):
        deliver(harness, message_of(job))
    talked(session, 4, 7)
    assert session.compress(keep_loops=1).status == "published"
    summary = session.summary()
    assert summary.first < position < summary.last and summary.facts
    window = shown(session)
    assert summary.text[:20] in window
    fork = session.fork("forked")
    talked(fork, 7, 9)
    fork.compress(keep_loops=1)
    own = fork.summary()
    session.create_snapshot("later", kind="full")
    assert worked(harness, job).result["status"] == "redacted"
    bodies_are_gone(harness)
    for log in (harness.log(), harness.other_process().log()):
        assert log.sessions.of("s").summary() == summary
        assert shown(log.sessions.of("s")) == window
        assert log.sessions.of("forked").summary() == own
    assert [entry.action for entry in fork.history()].count("redact") == 1
    assert session.compress(keep_loops=1).summary == summary
    assert summary.text.splitlines()[0] in in_full_snapshots(harness)
    copy = Turnlog.open("memory://")
    copy.sessions.import_(BytesIO(exported(session)))
    assert copy.sessions.of("s").summary() == summary
    assert shown(copy.sessions.of("s")) == window


@pytest.mark.every_engine
def test_e5_the_first_summary_of_a_redacted_session_is_in_its_export(harness: Harness) -> None:
    session, position = said_early(harness)
    worked(harness, session.redact(position))
    session.compress(keep_loops=1)
    copy = Turnlog.open("memory://")
    copy.sessions.import_(BytesIO(exported(session)))
    assert copy.sessions.of("s").summary() == session.summary()
    assert shown(copy.sessions.of("s")) == shown(session)


@pytest.mark.every_engine
@pytest.mark.parametrize("passes", [0, 1])
def test_e5_a_fork_at_an_earlier_moment_has_nothing_of_the_message(harness: Harness, passes: int) -> None:
    """It begins with the summary of then, and may continue it before the job runs."""
    session, position = said(harness, CANARY)
    moment = session.info().head
    job = session.redact(position)
    for _ in range(passes):
        deliver(harness, message_of(job))
    fork = session.fork("forked", at=moment)
    talked(fork, 4, 7)
    fork.compress(keep_loops=1)
    worked(harness, job)
    bodies_are_gone(harness)
    talked(fork, 7, 9)
    fork.compress(keep_loops=1)
    summary = fork.summary()
    assert (summary.first_loop, summary.text.startswith(REDACTED), bool(summary.facts)) == (1, False, True)


@pytest.mark.every_engine
def test_e5_a_fork_at_an_earlier_moment_shows_nothing_of_the_message_before_the_job_runs(harness: Harness) -> None:
    session, position = said(harness, CANARY)
    moment = session.info().head
    session.create_snapshot("then")
    assert CANARY in shown(session)
    session.redact(position)
    restored = session.restore_snapshot("then", session_id="restored").session_id
    for fork in (session.fork("forked", at=moment), harness.log().sessions.of(restored)):
        again = fork.fork(f"{fork.id}-again", at=moment)
        talked(fork, 4, 5)
        fork.rewind(moment)
        for branch in (fork, again):
            assert branch.summary() is None and CANARY not in shown(branch)
            assert not harness.log().search(CANARY).results


@pytest.mark.every_engine
def test_e5_a_rewind_to_before_the_redaction_brings_no_summary_of_the_message_back(harness: Harness) -> None:
    session, position = said(harness, CANARY)
    moment = session.info().head
    talked(session, 4, 7)
    assert CANARY in shown(session)
    job = session.redact(position)
    session.rewind(moment)
    assert session.summary() is None and CANARY not in shown(session)
    session.compress(keep_loops=1)
    summary = session.summary()
    assert summary.base is None and CANARY not in summary.text + repr(summary.facts)
    worked(harness, job)
    bodies_are_gone(harness)
    assert session.summary() == summary
    session.rewind(session.info().head - 1)
    assert session.summary() is None


@pytest.mark.every_engine
def test_e5_a_rewind_behind_the_redaction_keeps_the_summary(harness: Harness) -> None:
    session, position = said(harness, CANARY)
    worked(harness, session.redact(position))
    session.compress(keep_loops=1)
    summary, moment = session.summary(), session.info().head
    talked(session, 4, 5)
    session.rewind(moment)
    assert session.summary() == summary


@pytest.mark.every_engine
@pytest.mark.parametrize("when", ["in the log", "in the cache too"])
def test_e5_an_overwritten_summary_is_not_current_and_the_next_one_covers_all_of_it(
    harness: Harness, when: str
) -> None:
    """So sessions recover whose newer summaries an earlier version has overwritten, and so do imports of their exports."""
    session, position = said(harness, CANARY)
    worked(harness, session.redact(position))
    talked(session, 4, 7)
    session.compress(keep_loops=1)
    lost, moment = session.summary(), session.info().head
    overwritten_by_earlier_code(harness, session, position)
    if when == "in the cache too":
        summaries = harness.app.summaries
        (current,) = summaries.at(KEYS, [lost.position])
        summaries.write_cache(KEYS, current.event, time_ms=current.time_ms)
    copies = Turnlog.open("memory://")
    copies.sessions.import_(BytesIO(exported(session)))
    for member in (harness.other_process().log().sessions.of("s"), copies.sessions.of("s"), session.fork("forked")):
        assert member.summary() is None
        assert "summary of" not in shown(member)
        assert "summary of" not in repr(member.context(policy=POLICY, budget=6_000, at=moment).messages)
        assert member.compress(keep_loops=1).status == "published"
        summary = member.summary()
        assert (summary.text, summary.facts, summary.first) == (lost.text, lost.facts, lost.first)
        assert summary.text[:20] in shown(member)


@pytest.mark.every_engine
def test_e5_a_summary_that_was_begun_before_the_redaction_is_not_published(harness: Harness) -> None:
    session, position = said_early(harness)
    jobs = []

    class Redacting(ScriptedSummariser):
        def summarise(self, request: SummaryRequest) -> Summarised:
            if not jobs:
                assert CANARY in repr(request)
                jobs.append(session.redact(position))
                return super().summarise(request)
            assert CANARY not in repr(request)
            return super().summarise(request)

    summarise_with(harness.app, Redacting([f"of {CANARY}", "of the rest"]))
    assert session.compress(keep_loops=1).summary.text == "of the rest"
    worked(harness, jobs[0])
    assert held(CANARY, harness) == []
    assert session.summary().text == "of the rest"


@pytest.mark.every_engine
def test_e5_summaries_of_a_copy_that_an_erasure_made_too_late_are_overwritten(harness: Harness) -> None:
    """It read the parent's commit before the redaction, and wrote it afterwards."""
    session, position = said(harness, CANARY)
    fork = session.fork("forked")
    talked(fork, 4, 7)
    worked(harness, session.erase())
    keys, items = SessionKeys(OWNER, "forked"), harness.app.engine.items
    query = Query(keys.base.partition, commit_sort_key(1), commit_sort_key(position))
    before = [dict(item) for item in items.query(query).items]
    job = fork.redact(position)
    for item in before:
        items.put(item)
    fork.compress(keep_loops=1)
    assert CANARY in repr(fork.summary())
    worked(harness, job)
    assert held(CANARY, harness) == []
    assert fork.summary() is None
