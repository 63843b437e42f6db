"""An append that crosses its policy's trigger asks for a summary: once, without waiting, and again when the job got lost."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.support.jobs import poller, waiting
from tests.support.scripted import summarise_with
from tests.support.talks import filled, turn
from tests.support.triggers import POLICY, asks, script
from turnlog.core.errors import SummariserConfigError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.loops import Flow
from turnlog.core.summaries import COOL_DOWN_LOOPS, LEASE_MS, Summarised, SummaryRequest
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.summaries import compress, rounds
from turnlog.summaries.trigger import (
    MAX_FAILURES,
    MAX_USELESS,
    REST_LOOPS,
    AskForSegments,
    Attempts,
    read_attempts,
    write_attempts,
)
from turnlog.testing.contracts.job_queue import dead_letters

OWNER = Owner.of("acme", "ada")
LONG_POLICY = {
    "steps": [{"step": "summary"}, *[{"step": "tokens", "n": 1_000_000 + at} for at in range(7)]],
    "compress": {"any": [{"loops_over": 3}, *[{"tokens_over": 9_000_000 + at} for at in range(7)]]},
}


def meta_of(harness: Any) -> Any:
    key = SessionKeys(OWNER, "s").meta
    return harness.app.items.get_many([key])[key]


@pytest.mark.parametrize("policy", [POLICY, LONG_POLICY])
def test_the_append_that_crosses_asks_and_no_other(harness: Any, policy: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=policy)
    assert asks(session, 5) == [5], "the fifth opens when four are past"
    (job,) = log.jobs()
    assert (job.kind, job.status, job.session_id) == ("compress", "queued", "s")
    assert session.summary() is None, "no append waits for it"
    assert poller(harness).run_once() == 1
    assert session.summary().last_loop == 2, "the newest two stay"


def test_nothing_is_asked_while_the_only_past_loops_are_the_newest_two(harness: Any) -> None:
    session = harness.log().sessions.create("s", policy={**POLICY, "compress": {"any": [{"loops_over": 1}]}})
    assert asks(session, 4) == [4]


def test_after_a_summary_it_takes_a_crossing_and_the_cool_down(harness: Any) -> None:
    session = harness.log().sessions.create("s", policy=POLICY)
    result = list[int]()
    for number in range(1, 16):
        result += asks(session, 1, first=number)
        poller(harness).run_once()
    assert result == [5, 7, 9, 11, 13, 15]
    assert all(later - earlier >= COOL_DOWN_LOOPS for earlier, later in pairwise(result))


def test_a_session_has_one_job_at_a_time_however_much_is_appended(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    assert asks(session, 40) == [5]
    assert len(list(log.jobs())) == 1
    assert len(set(waiting(harness))) == 1


def test_a_job_that_continues_with_another_is_still_the_one(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND_LOOPS", 2)
    monkeypatch.setattr(compress, "JOB_ROUNDS", 1)
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 20)
    result, number = list[int](), 20
    while session.summary() is None or session.summary().last_loop < number - 6:
        assert poller(harness).run_once() == 1, "there is always a job that goes on"
        result += asks(session, 1, first=(number := number + 1))
        assert len([job for job in log.jobs() if job.status == "queued"]) <= 1
    assert result == [], "it covers two loops while one is added, and no append asked for another"


def test_what_is_appended_while_the_job_runs_is_covered_by_the_next_one(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    assert asks(session, 5) == [5]
    extracts = harness.app.extracts

    class AppendsMeanwhile:
        name = "appends"

        def summarise(self, request: SummaryRequest) -> Summarised:
            summarise_with(harness.app, extracts)
            assert asks(session, 10, first=6) == [], "one job at a time"
            return extracts.summarise(request)

    summarise_with(harness.app, AppendsMeanwhile())
    log.run_jobs()
    assert session.summary().last_loop == 12, "the newest two of fourteen past loops stay"
    assert [job.status for job in log.jobs()] == ["done", "done"]


def test_a_job_that_ends_without_a_summary_is_followed_by_another_after_the_cool_down(harness: Any) -> None:
    log = harness.log()
    script(harness, *["much more than was ever said " * 400] * 9)
    session = log.sessions.create("s", policy=POLICY)
    assert asks(session, 5) == [5]
    poller(harness).run_once()
    assert next(iter(log.jobs())).result["reason"] == "not_worth_it"
    assert asks(session, 5, first=6) == [5 + COOL_DOWN_LOOPS]


def test_a_session_whose_settings_change_is_tried_again(harness: Any) -> None:
    session = harness.log().sessions.create("s", policy=POLICY)
    asks(session, 4)
    write_attempts(harness.app.items, meta_of(harness), Attempts(failures=MAX_FAILURES, loop=4))
    session.update(title="T")
    assert session.append({"role": "user", "content": "five"}).compression == "queued"


@pytest.mark.parametrize("to", ["fork", "rewind"])
def test_a_fork_and_a_rewind_do_not_wait_for_a_job_that_was_asked_for_before(harness: Any, to: str) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 5)
    if to == "fork":
        session = session.fork("t")
    else:
        session.rewind(session.info().head)
    assert asks(session, 1, first=6) == [6]
    jobs = list(log.jobs())
    assert [job.session_id for job in jobs] == [session.id, "s"]


def test_a_policy_without_a_trigger_is_off(harness: Any) -> None:
    session = harness.log().sessions.create("s", policy="turns")
    assert session.append({"role": "user", "content": "hi"}).compression == "off"
    default = harness.log().sessions.create("t")
    assert default.append({"role": "user", "content": "hi"}).compression == "none"


def test_the_high_mark_of_the_budget_crosses(harness: Any) -> None:
    session = harness.log().sessions.create("s", output_reserve=120_000)
    result = list[str]()
    while "queued" not in result:
        before = session.info().tokens
        result.append(session.append(*turn(len(result) + 1)).compression)
    assert before <= 0.8 * 8_000 < session.info().tokens


def test_the_same_append_again_gives_the_same_job(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 4)
    first = session.append({"role": "user", "content": "five"}, idempotency_key="k")
    again = session.append({"role": "user", "content": "five"}, idempotency_key="k")
    assert first == again
    assert first.compression == "queued"
    assert len(list(log.jobs())) == 1
    assert len(set(waiting(harness))) == 1


def test_a_job_that_was_never_sent_is_asked_for_again_after_the_lease(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 4)
    session.append({"role": "user", "content": "five"})
    waiting(harness)  # taken, and the worker ends
    harness.clock.advance(seconds=LEASE_MS // 1000 - 1)
    assert session.append({"role": "assistant", "content": "still five"}).compression == "none"
    harness.clock.advance(seconds=2)
    assert session.append({"role": "assistant", "content": "and still"}).compression == "queued"
    assert len(list(log.jobs())) == 2


def test_an_outage_of_the_queue_fails_no_append(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = harness.log().sessions.create("s", policy=POLICY)
    asks(session, 4)

    def down(*_arguments: Any, **_options: Any) -> None:
        raise UnavailableError("the queue is down")

    monkeypatch.setattr(harness.app.engine.queue_of("compress"), "send", down)
    assert session.append({"role": "user", "content": "five"}).last > 0
    assert list(session.messages())[-1].body == {"role": "user", "content": "five"}


def test_several_appends_at_once_ask_once(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 4)
    with ThreadPoolExecutor(4) as pool:
        items = list(pool.map(lambda at: session.append({"role": "user", "content": f"{at}"}), range(4)))
    assert [item.compression for item in items].count("queued") == 1
    assert len(list(log.jobs())) == 1


@pytest.mark.parametrize("attempts", [Attempts(failures=MAX_FAILURES, loop=4), Attempts(useless=MAX_USELESS, loop=4)])
def test_a_session_that_can_t_be_compressed_is_left_alone(harness: Any, attempts: Attempts) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 4)
    write_attempts(harness.app.items, meta_of(harness), attempts)
    assert session.append({"role": "user", "content": "five"}).compression == "off"
    assert list(log.jobs()) == []
    result = asks(session, REST_LOOPS + 4, first=6)
    assert bool(result) == (attempts.useless > 0), "useless attempts are made again when there is more to cover"


def test_s4_a_summariser_that_is_down_uses_up_no_receives_and_is_asked_again(harness: Any) -> None:
    log = harness.log()
    summariser = script(harness, UnavailableError("down"), UnavailableError("down"), "All of it was about orders.")
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 5)
    for _ in range(2):
        assert poller(harness).run_once() == 1
        assert poller(harness).run_once() == 0, "acknowledged, not given back"
        assert next(iter(log.jobs())).result["status"] == "postponed"
        assert session.context(budget=100_000).messages, "windows go on"
        harness.clock.advance(seconds=LEASE_MS // 1000 + 1)
        assert session.append({"role": "assistant", "content": "and on"}).compression == "queued"
    assert poller(harness).run_once() == 1
    assert "about orders" in session.summary().text
    assert summariser.is_done
    assert not dead_letters(harness.app.engine.queue_of("compress"))


def test_after_three_failures_that_nothing_mends_it_is_off_until_one_works(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnlog")
    log = harness.log()
    script(harness, *[SummariserConfigError("no such model")] * 3, "All of it was about orders.")
    session = log.sessions.create("s", policy=POLICY)
    result = list[str]()
    for number in range(1, 20):
        result += [session.append(message).compression for message in turn(number)]
        poller(harness).run_once()
    assert result.count("queued") == MAX_FAILURES
    assert result[-1] == "off", "whether the append crosses or not"
    assert [job.status for job in log.jobs()] == ["failed"] * MAX_FAILURES
    assert "compression is off" in caplog.text
    assert "counted compression_off: 1" in caplog.text, "the operator's counter, where there are no metrics"
    session.compress(mode="async")
    poller(harness).run_once()
    assert read_attempts(meta_of(harness)) == Attempts()


def test_attempts_that_save_nothing_are_counted(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    script(harness, *["much more than was ever said " * 400] * 9)
    result = list[str]()
    for number in range(1, 14):
        result += [session.append(message).compression for message in turn(number, words=1)]
        poller(harness).run_once()
    assert result.count("queued") == MAX_USELESS
    assert {job.result["reason"] for job in log.jobs()} == {"not_worth_it"}


def test_a_library_without_a_service_does_its_jobs_when_it_is_told_to(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", policy=POLICY)
    asks(session, 5)
    assert log.run_jobs() == 1
    assert session.summary().last_loop == 2
    assert log.run_jobs() == 0


def test_filled_sessions_of_other_tests_ask_nothing(harness: Any) -> None:
    session = filled(harness.log(), 6)
    assert session.append({"role": "user", "content": "x"}).compression == "none"


@pytest.mark.parametrize(
    ("failures", "useless", "loop", "is_off"),
    [
        (0, 0, 7, False),
        (MAX_FAILURES - 1, MAX_USELESS - 1, 7, False),
        (MAX_FAILURES, 0, 99, True),
        (0, MAX_USELESS, 7, True),
        (0, MAX_USELESS, 7 + REST_LOOPS - 1, True),
        (0, MAX_USELESS, 7 + REST_LOOPS, False),
    ],
)
def test_appends_start_no_job_after_failures_and_for_some_loops_after_useless_ones(
    failures: int, useless: int, loop: int, is_off: bool
) -> None:
    assert (MAX_FAILURES, MAX_USELESS, REST_LOOPS) == (3, 2, 10)
    assert Attempts(failures, useless, 7).is_off(loop) is is_off


def test_attempts_are_counted_and_stored(harness: Any) -> None:
    session = harness.log().sessions.create("s", title="T")
    before = meta_of(harness)
    assert read_attempts(before) == read_attempts(None) == Attempts()
    attempts = replace(Attempts().failed(3).saved_nothing(4).saved_nothing(5), ended_ms=7)
    assert attempts == Attempts(1, 2, 5, 7)
    write_attempts(harness.app.items, before, attempts)
    assert read_attempts(meta_of(harness)) == attempts
    assert session.info().title == "T"
    session.update(title="U")
    assert read_attempts(meta_of(harness)) == Attempts(), "other settings may mend what failed"
    write_attempts(harness.app.items, before, attempts)
    assert read_attempts(meta_of(harness)) == Attempts(), "no newer settings are replaced"


@pytest.mark.parametrize("damaged", ["", "1", "1 2 3 x", "-1 2 3 4", "1 2 3 4 5", 7])
def test_damaged_attempts_count_nothing(damaged: str | int) -> None:
    assert read_attempts({"pk": "p", "sk": "s", "tr": damaged}) == Attempts()


@pytest.mark.parametrize(
    ("before", "header", "is_sealed"),
    [
        (("m", 250, 254), ("m", 255, 255), False),
        (("m", 250, 254), ("m", 255, 256), True),
        (("m", 250, 255), ("m", 256, 256), True),
        (("m", 250, 256), ("m", 257, 257), False),
        (("s", 256, 256), ("m", 257, 257), True),
        (("s", 255, 255), ("m", 256, 256), True),
        (("s", 250, 250), ("m", 260, 260), False),
        (("s", 254, 254), ("m", 255, 255), False),
    ],
)
def test_a_segment_is_asked_for_by_the_append_that_completes_it_or_follows_another_commit_that_does(
    before: tuple[str, int, int], header: tuple[str, int, int], is_sealed: bool
) -> None:
    started = list[dict[str, Any]]()

    def header_of(kind: str, first: int, last: int) -> Header:
        return Header(first=first, last=last, kind=kind, time_ms=first, nonce=b"", flow=Flow())

    def start(owner: Owner, kind: str, session_id: str, options: Any, **more: Any) -> None:
        started.append({"kind": kind, "session_id": session_id, "options": options, **more})

    asking, owner = AskForSegments(start), Owner.of("acme", "ada")  # type: ignore[arg-type]
    for _ in range(2):
        asking.send(owner, "s", header_of(*header), header_of(*before))
    assert len(started) == 2 * is_sealed
    if is_sealed:
        assert started[0] == started[1], "again for the same commit, the same job"
        assert (started[0]["kind"], started[0]["options"]) == ("seal", {})
        assert started[0]["job_id"].startswith(f"{header[1]:013d}-")
