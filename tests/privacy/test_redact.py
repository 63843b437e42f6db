"""E5: a redacted body is nowhere; the log proves itself as before, and every window stays valid."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from zipfile import ZipFile

import pytest

from tests.conftest import Harness
from tests.effort import boundaries, is_full
from tests.explorer import Crash, ScheduleRun, explore
from tests.log.everything import held, local_blobs, places_of, sqlite_items
from tests.properties.building import COUNTER
from tests.support.erase_orders import at_s, with_queue
from tests.support.erasing import KEYS, OWNER, message_of, worked
from tests.support.jobs import deliver
from tests.support.redacting import CANARY, bodies_are_gone, noise, said
from tests.support.scripted import ScriptedSummariser, summarise_with
from tests.support.steps import fresh
from tests.support.talks import turn
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import NotFoundError
from turnlog.core.messages import REDACTED
from turnlog.linter.rules import lint
from turnlog.log.commit import checked_chain
from turnlog.log.keys import INDEX_BLOBS, SEGMENT_BLOBS, SessionKeys, export_blob
from turnlog.log.lines import Redacted
from turnlog.ports import JOB_KINDS, BlobStore, ItemTable
from turnlog.privacy import redact
from turnlog.privacy import redacted_archives as redacted_parts
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.providers.registry import codec_of
from turnlog.providers.token_rules import count_message
from turnlog.snapshots.full import parts_of

FORMATS = ("openai_chat", "openai_responses", "anthropic", "bedrock_converse")


@pytest.mark.parametrize("size", [0, 6_000, 60_000])
def test_e5_a_redacted_body_is_nowhere(harness: Harness, size: int) -> None:
    if harness.name == "moto" and size != 60_000 and not is_full():
        pytest.skip("the largest has blobs too")
    session, position = said(harness, noise(size), many=size == 6_000)
    fork = session.fork(session_id="forked")
    fork.append({"role": "user", "content": "on"})
    fork.create_snapshot("full", kind="full")
    session.backend.call("export_session", path={"session_id": session.id}, body={})
    assert held(CANARY, harness)
    job = session.redact(position)
    assert (job.kind, job.status) == ("redact", "queued")
    for value in (session, fork):
        assert CANARY not in repr(list(value.messages()))
        (message,) = [message for message in value.messages() if message.position == position]
        assert (message.redacted, message.body) == (True, {"role": "user", "content": "[redacted]"})
    assert worked(harness, job).result["status"] == "redacted"
    bodies_are_gone(harness)
    for value in (session, fork):
        assert CANARY not in repr(list(value.history()))
        assert not value.search(CANARY).results
        for format in FORMATS:
            value.context(format=format)
        assert value.snapshot("full").position
    with pytest.raises(NotFoundError):
        session.redact(1)
    with pytest.raises(NotFoundError):
        session.redact(10**6)


def verified(harness: Harness, keys: SessionKeys) -> int:
    """How many commits there are, when each follows on the one before."""
    items = [item for page in harness.app.log.commits.stored.on(keys, 1, exact=True) for item in page]
    return len(checked_chain(items))


def test_e5_the_log_proves_itself_and_snapshots_are_read_as_before(harness: Harness) -> None:
    session, position = said(harness, CANARY)
    inline = session.snapshot("inline")
    before = verified(harness, KEYS)
    assert "E#SUM" in held(CANARY, harness)
    worked(harness, session.redact(position))
    bodies_are_gone(harness)
    assert verified(harness, KEYS) == before + 1
    whole = session.snapshot("inline")
    assert (whole.position, whole.sha256 != inline.sha256) == (inline.position, True)
    assert whole.content is not None
    shown = {message.position: message for message in whole.content.messages}
    assert shown[position].redacted
    assert (shown[position].metadata, shown[position].author) == (None, None)
    assert [item.action for item in session.history()][:1] == ["redact"]
    restored = session.restore_snapshot("inline", as_="fork")
    assert verified(harness, SessionKeys(OWNER, restored.session_id))


@pytest.mark.parametrize("room", [0, -1])
def test_e5_a_part_stays_in_its_record_while_there_is_room(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A redaction may make a part larger. What has no room in the record goes into a blob, and no other part does."""
    session, position = said(harness, "a secret")
    (before, *_) = [parts_of(item) for item in harness.app.log.records.every(KEYS.snapshots)]
    assert all(part.inline is not None for part in before)
    packed = redacted_parts.redact_segment(before[-1].inline or b"", at_position(harness, position))
    assert packed is not None
    monkeypatch.setattr(redacted_parts, "INLINE_BYTES", len(packed) + room)
    monkeypatch.setattr(harness.app.segments, "pack", lambda *_: pytest.fail("what the record holds is not read again"))
    worked(harness, session.redact(position))
    (after, *_) = [parts_of(item) for item in harness.app.log.records.every(KEYS.snapshots)]
    assert [part.inline is not None for part in after] == [room == 0]
    assert after[-1].size_bytes == len(packed) and after[-1].sha256 == sha256(packed).hexdigest()
    data = after[-1].inline or harness.app.engine.blobs.get(KEYS.blob_prefix + after[-1].blob)
    assert data == packed
    content = session.snapshot("inline").content
    assert "a secret" not in repr(content) and "[redacted]" in repr(content)


def test_e5_the_receipt_counts_what_was_packed_again(harness: Harness) -> None:
    session, position = said(harness, noise(6_000), many=True)
    records, segments = harness.app.log.records, harness.app.segments

    def parts() -> list[str]:
        of_snapshots = [part.sha256 for record in records.every(KEYS.snapshots) for part in parts_of(record)]
        return [*of_snapshots, *(segment.sha256 for segment in segments.list(KEYS))]

    before = parts()
    receipt = worked(harness, session.redact(position)).result
    changed = sum(item != other for item, other in zip(before, parts(), strict=True))
    assert receipt["parts"] == changed > 1
    assert receipt["commits"] >= 1


def test_a_record_is_exchanged_only_while_it_is_as_it_was_read(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.create_snapshot("n")
    records, record_keys = harness.app.log.records, KEYS.snapshots
    (first,) = records.every(record_keys)
    second, third = (replace(first, content={**first.content, "metadata": {"n": number}}) for number in (2, 3))
    assert records.exchange(record_keys, first, second) is True
    assert records.exchange(record_keys, first, third) is False
    assert list(records.every(record_keys)) == [second]


def at_position(harness: Harness, position: int) -> Redacted:
    redacted, _ = harness.app.redaction.find(KEYS, position)
    return redacted


def test_e5_a_second_time_changes_nothing(harness: Harness) -> None:
    session, position = said(harness, CANARY)
    first = worked(harness, session.redact(position, idempotency_key="once"))
    head = session.info().head
    assert session.redact(position, idempotency_key="once") == first
    worked(harness, session.redact(position))
    assert session.info().head == head
    assert [item.action for item in session.history()].count("redact") == 1


def test_e5_a_summary_is_made_again_and_the_old_moment_has_none_of_it(harness: Harness) -> None:
    session, position = said(harness, CANARY)
    then = session.summary()
    assert CANARY in then.text + repr(then.facts)
    worked(harness, session.redact(position))
    assert session.summary() is None
    assert CANARY not in session.context(at=then.position).model_dump_json()
    session.compress(keep_loops=1)
    assert CANARY not in session.summary().text
    session.rewind(then.position)
    assert session.summary() is None
    bodies_are_gone(harness)


def test_e5_a_summary_that_does_not_cover_the_message_stays(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    for number in range(1, 5):
        session.append(*turn(number))
    position = session.append({"role": "user", "content": CANARY}).first
    summary = session.compress(keep_loops=2).summary
    worked(harness, session.redact(position))
    assert session.summary() == summary
    assert harness.other_process().log().sessions.of("s").summary() == summary


@pytest.mark.parametrize("size", [60, 6_000])
def test_e5_a_summary_that_is_stored_separately_goes_too(harness: Harness, size: int) -> None:
    summarise_with(harness.app, ScriptedSummariser([noise(size)]))
    session = harness.log().sessions.create("s")
    session.append(*turn(1))
    position = session.append({"role": "user", "content": CANARY}).first
    for number in range(2, 5):
        session.append(*turn(number, words=1_500))
    session.compress(keep_loops=1, max_tokens=8_000)
    assert CANARY in session.summary().text
    worked(harness, session.redact(position))
    assert held(CANARY, harness) == []


@pytest.mark.parametrize("size", [60, 6_000])
def test_e5_no_summary_of_the_message_is_used_while_its_job_waits(harness: Harness, size: int) -> None:
    summarise_with(harness.app, ScriptedSummariser([noise(size)] * 2))
    log = harness.log()
    session = log.sessions.create("s")
    position = session.append({"role": "user", "content": CANARY}).first
    for number in range(1, 4):
        session.append(*turn(number, words=1_500))
    session.compress(keep_loops=1, max_tokens=8_000)
    fork, summary = session.fork("forked"), session.summary()
    fork.append({"role": "user", "content": "on"})
    nested, other = fork.fork("nested"), session.fork("other", at=position)
    for number in range(4, 7):
        other.append(*turn(number, words=1_500))
    other.compress(keep_loops=1, max_tokens=8_000)
    family = (session, fork, nested, other)
    for member in family:
        assert CANARY in member.summary().text and CANARY in members_of(exported(harness, member))
    assert "summary" in {hit.where for hit in log.search(CANARY).results}
    nested.redact(position)
    for member in family:
        assert member.summary() is None
        assert CANARY not in member.context(policy="classic").model_dump_json()
        assert CANARY not in members_of(exported(harness, member))
        assert [entry.action for entry in member.history()].count("redact") == 1
    assert log.search(CANARY).results == []
    copy = Turnlog.open("memory://")
    copy.sessions.import_(BytesIO(exported(harness, fork)))
    assert copy.sessions.of("forked").summary() is None and copy.verify().damages == []
    assert copy.sessions.of("forked").context(at=summary.position).messages


def exported(harness: Harness, session: Session) -> bytes:
    session.backend.call("export_session", path={"session_id": session.id}, body={})
    return harness.app.engine.blobs.get(export_blob(OWNER, session.id)) or b""


def members_of(archive: bytes) -> str:
    with ZipFile(BytesIO(archive)) as members:
        return "".join(members.read(name).decode() for name in members.namelist())


def test_e5_a_fork_whose_parent_is_erased_has_a_copy_that_is_redacted(harness: Harness) -> None:
    session, position = said(harness, noise(6_000))
    fork = session.fork("forked")
    worked(harness, session.erase())
    assert held(CANARY, harness)
    worked(harness, fork.redact(position))
    bodies_are_gone(harness)
    assert verified(harness, SessionKeys(OWNER, "forked"))
    assert fork.context().messages


@pytest.mark.parametrize("passes", [0, 1])
def test_e5_a_redaction_of_a_session_that_is_erased_meanwhile_ends_as_gone(harness: Harness, passes: int) -> None:
    session, position = said(harness, CANARY)
    redaction = session.redact(position)
    for _ in range(passes):
        deliver(harness, message_of(redaction))
    erasure = session.erase()
    deliver(harness, message_of(erasure))
    assert worked(harness, redaction).result["status"] == "gone"
    assert worked(harness, erasure).result["status"] == "erased"
    assert held(CANARY, harness) == []


@pytest.mark.every_engine
@pytest.mark.parametrize("passes", [0, 1])
def test_e5_forks_of_an_erased_session_carry_its_redactions_through(harness: Harness, passes: int) -> None:
    session, position = said(harness, CANARY)
    fork, other = session.fork("forked"), session.fork("other", at=position - 1)
    for number in range(4, 7):
        fork.append(*turn(number))
    fork.compress(keep_loops=1)
    nested = fork.fork("nested")
    other.append(*({"role": "user", "content": f"own {number}"} for number in range(9)))
    redaction = session.redact(position)
    for _ in range(passes):
        deliver(harness, message_of(redaction))
    assert worked(harness, session.erase()).result["status"] == "erased"
    assert worked(harness, redaction).result["status"] == "gone"
    started = [job for job in harness.log().jobs(status="queued") if job.kind == "redact"]
    assert {job.session_id for job in started} == {"forked"}
    assert [worked(harness, job).result["status"] for job in started] == ["redacted"]
    bodies_are_gone(harness)
    assert [message.position for message in nested.messages() if message.redacted] == [position]
    assert [message.position for message in other.messages() if message.redacted] == []
    assert fork.context().messages and nested.context().messages


def test_e5_the_first_pass_notes_the_redaction_in_forks(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """For those that the request had no time for."""
    session, position = said(harness, CANARY)
    fork = session.fork("forked")
    monkeypatch.setattr(redact, "NOTED_SESSIONS", 1)
    redaction = session.redact(position)
    assert session.summary() is None and fork.summary() is not None
    deliver(harness, message_of(redaction))
    assert next(item.action for item in fork.history()) == "redact"
    assert fork.summary() is None


def test_e5_the_parent_is_cleared_when_the_redacted_fork_is_erased_first(harness: Harness) -> None:
    session, position = said(harness, noise(6_000))
    fork = session.fork("forked")
    redaction, erasure = fork.redact(position), fork.erase()
    deliver(harness, message_of(erasure))
    assert held(CANARY, harness)
    assert worked(harness, redaction).result["status"] == "redacted"
    bodies_are_gone(harness)
    assert [message.position for message in session.messages() if message.redacted] == [position]
    assert session.context().messages


def test_e1_what_lies_behind_a_forks_moment_is_not_in_its_copy(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "shared"}, {"role": "user", "content": noise(6_000)})
    fork = session.fork("forked", at=2)
    worked(harness, session.erase())
    bodies_are_gone(harness)
    assert [message.body["content"] for message in fork.messages()] == ["shared"]
    assert verified(harness, SessionKeys(OWNER, "forked"))


def test_a_fork_redacts_nothing_that_lies_behind_its_moment(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "shared"}, {"role": "user", "content": "not shared"})
    fork = session.fork("forked", at=2)
    with pytest.raises(NotFoundError):
        fork.redact(3)
    assert not any(message.redacted for message in session.messages())


@pytest.mark.parametrize(("position", "work_ms"), [(2, 10_000), (2, 0), (3, 10_000), (4, 10_000), (5, 10_000)])
def test_e5_the_forks_that_have_the_message_are_cleared_and_no_others(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, position: int, work_ms: int
) -> None:
    """What is cleared includes the exports of a session: a fork that never had the message keeps its own.

    A job without time clears one session in each of its runs."""
    monkeypatch.setattr(redact, "WORK_MS", work_ms)
    session = harness.log().sessions.create("s")
    forks, blobs = dict[int, Session](), harness.app.engine.blobs
    for at in range(2, 6):
        session.append({"role": "user", "content": f"{CANARY} {at}"})
        forks[at] = session.fork(f"at-{at}")
    exports = {at: export_blob(OWNER, f"at-{at}") for at in forks}
    for name in exports.values():
        blobs.put(name, b"an export")
    worked(harness, session.redact(position))
    assert [at for at, name in exports.items() if blobs.get(name) is not None] == list(range(2, position))
    for at, fork in forks.items():
        redacted = [message.position for message in fork.messages() if message.redacted]
        assert redacted == ([position] if position <= at else [])


BODIES = {
    "openai_chat": [
        {"role": "user", "content": CANARY},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": f'"{CANARY}"'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": CANARY},
        {"role": "assistant", "content": CANARY},
    ],
    "anthropic": [
        {"role": "user", "content": [{"type": "text", "text": CANARY}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": CANARY, "signature": CANARY},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": CANARY}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": CANARY}]},
        {"role": "assistant", "content": [{"type": "text", "text": CANARY}]},
    ],
    "bedrock_converse": [
        {"role": "user", "content": [{"text": CANARY}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "look", "input": {"q": CANARY}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": CANARY}]}}]},
        {"role": "assistant", "content": [{"text": CANARY}]},
    ],
    "openai_responses": [
        {"role": "user", "content": CANARY},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": f'{{"q": "{CANARY}"}}'},
        {"type": "function_call_output", "call_id": "c1", "output": CANARY},
        {"role": "assistant", "content": CANARY},
    ],
}


@pytest.mark.parametrize("given", BODIES)
def test_every_window_stays_valid_in_every_format(harness: Harness, given: str) -> None:
    if harness.name == "moto" and not is_full():
        pytest.skip("says nothing of engines")
    session = harness.log().sessions.create("s")
    messages = session.append(*BODIES[given], format=given)
    session.append({"role": "user", "content": "on"})
    for position in range(messages.first, messages.last + 1):
        session.redact(position)
        for format in BODIES:
            window = session.context(format=format)
            assert not lint(window.messages, format=format)
    for stored in session.messages():
        assert CANARY not in stored.model_dump_json()
    assert [call.name for loop in session.loops() for call in loop.tool_calls] == ["look"]


def test_a_window_sends_and_counts_a_redacted_result_as_it_is(harness: Harness) -> None:
    """However little room there is, nothing of it is left out, and no other tokens are counted than it has."""
    session = harness.log().sessions.create("s")
    user, call, result = BODIES["openai_chat"][:3]
    session.append(user, call, {**result, "content": CANARY * 2_000})
    session.redact(4)
    least = session.context(budget=8_000)
    assert least.tokens < 500 and least.messages[-1]["content"] == REDACTED
    assert session.context(budget=least.tokens).messages == least.messages


def test_a_window_of_redacted_messages_that_were_shorter_has_room_for_them(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.append(*({"role": role, "content": "a"} for role in ("user", "assistant") * 6))
    for position in range(2, 14):
        session.redact(position)
    window = session.context(budget=2_000)
    read = [codec_of("openai_chat").parse(message) for message in window.messages]
    assert [message.text for message in read[-12:]] == [REDACTED] * 12
    assert sum(count_message(message, COUNTER) for message in read) <= window.tokens


PREEMPTIONS = 2 if is_full() else 1
SAID = {"role": "user", "content": CANARY}
OTHERS = {
    "append": at_s(lambda session: session.append({"role": "user", "content": "more"}, idempotency_key="k")),
    "compress": at_s(lambda session: session.compress(keep_loops=1)),
    "snapshot": at_s(lambda session: session.create_snapshot("a", kind="full")),
    "rewind": at_s(lambda session: session.rewind(5)),
    "fork": at_s(lambda session: session.fork("forked") and None),
}


def prepared(log: Turnlog) -> None:
    log.sessions.create("s").append(SAID, *turn(1), *turn(2), *turn(3))


def asked(items: ItemTable, blobs: BlobStore) -> None:
    """The request alone; `swept` does what its job does at last."""
    app, _ = with_queue(items, blobs, 5000)
    Session(InProcessBackend(app, OWNER), "s").redact(2, idempotency_key="redact")


def redacting(items: ItemTable, blobs: BlobStore) -> None:
    """The request and both passes of its job."""
    app, clock = with_queue(items, blobs, 5000)
    Session(InProcessBackend(app, OWNER), "s").redact(2, idempotency_key="redact")
    for _ in range(2):
        for delivery in app.engine.queue.receive() if app.engine.queue else ():
            app.run_job(delivery.body, kinds=JOB_KINDS)
        clock.advance(SECOND_PASS_SECONDS)


def swept(items: ItemTable, blobs: BlobStore) -> None:
    app, _ = with_queue(items, blobs, 10**9)
    result, home = app.redaction.find(KEYS, 2)
    for entry in app.redaction.family(KEYS, home, 2):
        app.redaction.clear(entry, result)
    assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []
    log = app.log.commits
    for session_id in ("s", "forked"):
        keys = SessionKeys(OWNER, session_id)
        checked_chain([item for page in log.stored.on(keys, 1, exact=True) for item in page])


@pytest.mark.parametrize("other", OTHERS)
def test_d2_every_order_of_redacting_and_another_request(other: str) -> None:
    """Both are done; no summary of the old text is in force; and the last pass leaves nothing."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        for result in run.results:
            assert not isinstance(result, BaseException), result
        app, _ = with_queue(items, blobs, 10**8)
        summary = app.summaries.current(KEYS, app.log.commits.tail(KEYS).header.summary)
        assert summary is None or CANARY not in summary.event.text
        swept(items, blobs)

    limit = {"max_preemptions": PREEMPTIONS, "only_conflicts": True}
    assert explore([OTHERS[other], redacting if is_full() else asked], fresh(prepared), check, **limit) > 1


def worked_once(app: Application, kind: str) -> None:
    for job in app.list_jobs(OWNER, status="queued").jobs:
        if job.kind == kind:
            app.run_job.run_now(OWNER, job.job_id)


def test_e5_d1_a_crash_of_the_erasure_anywhere_loses_no_redaction_of_a_fork() -> None:
    """The redaction ends between the two tries of the erasure, and may find nothing then."""
    calls = 0

    def crowded(log: Turnlog) -> None:
        prepared(log)
        fork = log.sessions.get("s").fork("forked")
        fork.append(*turn(4), *turn(5))
        fork.compress(keep_loops=1)

    prepare = fresh(crowded)

    def begin() -> tuple[ItemTable, BlobStore]:
        items, blobs = prepare()
        asked(items, blobs)
        Session(InProcessBackend(with_queue(items, blobs, 6000)[0], OWNER), "s").erase()
        return items, blobs

    def erasing(items: ItemTable, blobs: BlobStore) -> None:
        worked_once(with_queue(items, blobs, 7000)[0], "erase")

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        nonlocal calls
        calls = max(calls, len(run.schedule))
        app, clock = with_queue(items, blobs, 8000)
        for kind in ("redact", "redact", "erase", "erase", "redact", "redact"):
            worked_once(app, kind)
            clock.advance(SECOND_PASS_SECONDS)
        assert list(app.list_jobs(OWNER, status="queued").jobs) == []
        assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []

    explore([erasing], begin, check)
    assert calls > 20
    for at in boundaries(calls, "explored"):
        explore([erasing], begin, check, crash=Crash(0, at, after=False))
        explore([erasing], begin, check, crash=Crash(0, at, after=True))


def test_d1_a_crash_at_any_request_leaves_what_the_same_request_again_completes() -> None:
    calls = 0

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        nonlocal calls
        calls = max(calls, len(run.schedule))
        redacting(items, blobs)
        app, _ = with_queue(items, blobs, 10**8)
        assert [item.action for item in Session(InProcessBackend(app, OWNER), "s").history()].count("redact") == 1
        swept(items, blobs)

    def crowded(log: Turnlog) -> None:
        prepared(log)
        session = log.sessions.get("s")
        session.compress(keep_loops=1)
        session.create_snapshot("a", kind="full")
        session.fork("forked")

    explore([redacting], fresh(crowded), check)
    assert calls > 20
    for at in boundaries(calls, "explored"):
        explore([redacting], fresh(crowded), check, crash=Crash(0, at, after=False))
        explore([redacting], fresh(crowded), check, crash=Crash(0, at, after=True))


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_redacted_session_is_as_inactive_as_it_was(harness: Harness) -> None:
    """Nobody has said anything."""
    session = harness.log().sessions.create("s", inactive_after_minutes=1440, ttl_days=9)
    session.append({"role": "user", "content": CANARY})
    harness.clock.advance(2 * 86_400)
    assert harness.app.retain_sessions().timed_out == 1
    before = session.info()
    assert worked(harness, session.redact(2)).status == "done"
    after = session.info()
    assert (after.status, after.updated_at, after.expires_at) == ("inactive", before.updated_at, before.expires_at)
    assert after.head == before.head + 1


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_e5_the_search_index_of_a_replaced_segment_goes_with_it(harness: Harness) -> None:
    """It holds the words of what was redacted."""
    session, position = said(harness, "a few words", many=True)
    blobs = harness.app.engine.blobs

    def parts(kind: str) -> set[str]:
        prefix = KEYS.blob_prefix + kind
        return {name.removeprefix(prefix) for name in blobs.names(prefix)}

    before = parts(INDEX_BLOBS)
    assert before and before <= parts(SEGMENT_BLOBS)
    assert worked(harness, session.redact(position)).status == "done"
    assert parts(INDEX_BLOBS) <= parts(SEGMENT_BLOBS)
    assert before - parts(INDEX_BLOBS), "that of the segment with the message"
