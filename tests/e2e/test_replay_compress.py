"""Replays with summaries made meanwhile: the worker runs beside the appends, and what it makes is looked at from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.replay.loading import load_transcripts, sample_of
from benchmarks.replay.outcomes import (
    Compression,
    ReplayOutcome,
    ReplayReport,
    SummaryWatch,
    compressing_policy,
    wait_for_jobs,
)
from benchmarks.replay.replaying import Replay
from tests.conftest import SAMPLES, Harness, sqlite_harness
from tests.support.scripted import ScriptedSummariser, summarise_with
from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.cli.transcripts import Transcript, read_transcripts
from turnlog.client import Backend
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.engines import SystemClock, location_url
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings
from turnlog.summaries.trigger import KEEP_LOOPS

PR_SESSIONS, PR_MESSAGES = 20, 36
OFTEN = "loops > 3"
LONG = "Would you please tell me all about it, and take your time. " * 10


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Application]:
    made = make_application(Settings(engine=location_url(tmp_path), identity="jwt"))
    yield made
    made.close()


@pytest.fixture
def service(app: Application) -> Iterator[Turnlog]:
    """The embedded engine over real HTTP, its worker running."""
    server = LocalServer(app, SystemClock(), port=0).start()
    with Turnlog.open(server.url) as log:
        yield log
    server.stop()


def talk(loops: int) -> Transcript:
    messages = [
        {"role": role, "content": f"{number}. {LONG}"}
        for number in range(1, loops + 1)
        for role in ("user", "assistant")
    ]
    return Transcript("talk", "made-up", messages)


def assert_all_is_well(report: ReplayReport) -> Compression:
    assert report.findings == []
    assert report.ok
    result = report.all_compressed
    assert (result.wrong, result.jobs["failed"], result.jobs["pending"]) == (0, 0, 0)
    assert result.sessions == report.total.sessions
    most = result.asked + result.jobs["published"]
    assert sum(result.jobs.values()) <= most, (
        "one job for each append that asked, and one behind a job that left more to do"
    )
    assert result.made >= result.jobs["published"]
    assert 0 < result.tokens < 0.6 * result.source_tokens
    return result


@pytest.mark.network
@pytest.mark.parametrize(
    ("policy", "budget"), [pytest.param("run_loops", 6000, marks=pytest.mark.full), ("classic", None)]
)
def test_samples_with_summaries_made_meanwhile(service: Turnlog, policy: str, budget: int | None) -> None:
    trigger = OFTEN if policy != "classic" else "policy"
    samples = [
        read_transcript for read_transcript in read_transcripts([SAMPLES]) if read_transcript.source != "coding-agent"
    ]  # all of it is one loop
    report = Replay(policy=policy, budget=budget, compress=trigger).run(service, samples)
    outcome = assert_all_is_well(report)
    assert outcome.made >= 2
    assert {name for name, item in report.compressed.items() if item.made} >= {"support-agent", "travel-agent-zh"}
    result = report.as_json()["compression"]
    assert result["total"]["made"] == outcome.made and len(result["sessions"]) == 12
    assert sum(session["source_tokens"] for session in result["sessions"]) == result["total"]["source_tokens"]


@pytest.mark.network
def test_appends_never_wait_for_a_summary(app: Application, service: Turnlog) -> None:
    """The summariser gives no answer until the last message is in: every append and every window came without it."""
    is_asked, is_released = threading.Event(), threading.Event()
    held = list[bool]()

    def blocked(request: Any) -> str:
        is_asked.set()
        held.append(is_released.wait(60))
        return "They talked about it at length."

    summarise_with(app, ScriptedSummariser(then=blocked))
    appended, transcript = 0, talk(12)
    late = list[int]()

    def count() -> None:
        nonlocal appended
        appended += 1
        if appended == 10:
            assert is_asked.wait(30), "the worker has a job while appends go on"
        if is_asked.is_set() and not is_released.is_set():
            late.append(appended)
        if appended == len(transcript.messages):
            is_released.set()

    report = Replay(compress=OFTEN, threads=1).run(service, [transcript], on_message=count)
    assert report.total.windows == 12
    assert len(late) >= len(transcript.messages) - 10, "appended while the summariser was silent"
    assert held[0], "it was released, it did not time out"
    result = assert_all_is_well(report)
    assert result.made >= 2, "and the job that ended began another one, because there was more"


def test_replays_in_process_on_both_engines(harness: Harness) -> None:
    """Without a service the replay does the jobs itself, at the end."""
    report = Replay(threads=1, compress=OFTEN).run(harness.log(), [talk(8), replace(talk(2), id="short")])
    outcome = assert_all_is_well(report)
    assert (outcome.made, outcome.asked, outcome.loops) == (1, 1, 8 - 1 - KEEP_LOOPS)
    assert outcome.jobs == {"published": 1}, "it covers all that there was to cover"
    result = Replay(threads=1, compress=OFTEN).replay_one(harness.log(), talk(6))
    assert result.compression is not None and result.compression.made == 1 and not result.findings


def test_what_is_left_or_wrong_is_found(tmp_path: Path) -> None:
    """The judge is judged: jobs that are never done or fail, and summaries that say they cover other than they do."""
    with sqlite_harness(tmp_path) as harness:
        _assert_it_is_found(harness)


def _assert_it_is_found(harness: Harness) -> None:

    def outcome(break_it: Any, **options: Any) -> ReplayOutcome:
        class Broken(InProcessBackend):
            def call(self, operation: str, **given: Any) -> Any:
                return break_it(operation, super().call(operation, **given))

            def run_jobs(self) -> int:
                return 0 if options.get("no_worker") else super().run_jobs()

        log = Turnlog(cast("Backend", Broken(harness.app, Owner.of("acme", "eve"))))
        return Replay(threads=1, compress=OFTEN, wait_seconds=0.3).replay_one(log, options.get("of", talk(8)))

    def codes(found: ReplayOutcome) -> list[str]:
        return [finding.message for finding in found.findings]

    def told(**changes: Any) -> Any:
        return lambda operation, answer: answer.model_copy(update=changes) if operation == "get_summary" else answer

    assert codes(outcome(lambda operation, answer: answer)) == []
    left = outcome(lambda operation, answer: answer, no_worker=True)
    assert left.compression is not None and left.compression.jobs["pending"] >= 1 and not left.compression.ok
    assert "is pending" in codes(left)[0]
    report = ReplayReport()
    report.add(left)
    assert not report.ok and report.total.invalid == report.total.lost == 0
    for wrong, says in (
        (told(position=2), "has the position of a message"),
        (told(messages=3), "counts 3 messages"),
        (told(last=17), "while loop 8 is open"),
    ):
        result = outcome(wrong)
        assert says in " ".join(codes(result))
        assert result.compression is not None and result.compression.wrong >= 1 and not result.compression.ok

    asked = Transcript("talk", "made-up", [*talk(8).messages, {"role": "user", "content": "And?"}])
    assert "loop 9, which is open" in " ".join(codes(outcome(told(last_loop=9), of=asked)))

    def shown(operation: str, answer: Any) -> Any:
        if operation != "build_context":
            return answer
        parts = [replace(part, last=answer.head) if part.kind == "summary" else part for part in answer.manifest.parts]
        return answer.model_copy(update={"manifest": answer.manifest.model_copy(update={"parts": parts})})

    result = outcome(shown)
    assert [finding.code for finding in result.findings] == ["summary"]
    assert "the window at the end" in codes(result)[0]


def test_a_job_that_fails_is_told(harness: Harness) -> None:
    def fails(request: Any) -> Any:
        raise InvalidInputError("this can't be summarised", code="filtered")

    summarise_with(harness.app, ScriptedSummariser(then=fails))
    result = Replay(threads=1, compress=OFTEN).replay_one(harness.log(), talk(8))
    assert result.compression is not None
    assert (result.compression.made, result.compression.jobs["failed"], result.compression.wrong) == (0, 1, 0)
    assert {finding.code for finding in result.findings} == {"summary"} and result.row.lost == 0
    summarise_with(harness.app, ScriptedSummariser(then=UnavailableError("down")))
    result = Replay(threads=1, compress=OFTEN).replay_one(harness.log(), talk(8))
    assert result.compression is not None and result.compression.ok, "an outage costs nothing: later appends ask again"
    assert result.compression.jobs == {"postponed": 1}


def test_the_window_may_show_no_loop_that_is_too_new() -> None:
    watch = SummaryWatch()
    for at in range(1, 7):
        watch.appended(cast("Any", SimpleNamespace(compression="none", first=at + 1, loop=at)))

    def window(last: int | None) -> Any:
        part = SimpleNamespace(kind="summary", last=last)
        return SimpleNamespace(manifest=SimpleNamespace(parts=[part]))

    assert watch.fault(window(4)) is None, "6 is open, 5 and 4 are the newest closed ones"
    assert "covers loop 4" in str(watch.fault(window(5)))
    assert watch.fault(window(None)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("messages > 30", [{"messages_over": 30}]),
        ("loops>4,tokens > 3_000", [{"loops_over": 4}, {"tokens_over": 3000}]),
        ("fraction > 0.8", [{"fraction_over": 0.8}]),
        ('{"any": [{"loops_over": 2}], "counts": "past"}', [{"loops_over": 2}]),
    ],
)
def test_triggers_as_text(text: str, expected: list[dict[str, Any]]) -> None:
    body = compressing_policy("run_loops", text)
    assert body["compress"]["any"] == expected  # type: ignore[index,call-overload]
    assert [step["step"] for step in body["steps"]] == ["summary", "loops"]  # type: ignore[index,call-overload,union-attr]


@pytest.mark.parametrize(
    ("policy", "text", "says"),
    [
        (None, "messages", "is not like"),
        (None, "days > 3", "is not like"),
        (None, "loops > 4.5", "invalid_policy"),
        (None, "fraction > 8", "invalid_policy"),
        (None, '{"any": []}', "invalid_policy"),
        (None, "{", "trigger"),
        ("full", "loops > 4", "no window would show"),
        ("turns", "policy", "no trigger of its own"),
        ("nope", "loops > 4", "policy 'nope'"),
    ],
)
def test_triggers_that_are_none(policy: str | None, text: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        compressing_policy(policy, text)
    assert says in f"{raised.value.error_code} {raised.value.detail}"


def test_waiting_is_bounded_and_looks_at_its_own_sessions_only(harness: Harness) -> None:
    class NoWorker(InProcessBackend):
        def run_jobs(self) -> int:
            return 0

    log = Turnlog(cast("Backend", NoWorker(harness.app, Owner.of("acme", "ada"))))
    session = log.sessions.create("s")
    session.append(*talk(6).messages)
    job = session.compress(mode="async")
    assert wait_for_jobs(log, ["another"], seconds=60) == {"another": []}
    (left,) = wait_for_jobs(log, ["s"], seconds=0.2)["s"]
    assert (left.job_id, left.status) == (job.job_id, "queued")


# ---------------------------------------------------------------- ../shared/data


def _real(real_data: ModuleType) -> list[Transcript]:
    path = Path(str(real_data.__file__))
    return load_transcripts([path.parent / "dev"], path)


@pytest.mark.network
def test_real_conversations_with_summaries_made_meanwhile(service: Turnlog, real_data: ModuleType) -> None:
    """A fixed sample of every source, the first messages of each."""
    chosen = sample_of(_real(real_data), PR_SESSIONS)
    transcripts = [replace(item, messages=item.messages[:PR_MESSAGES]) for item in chosen]
    assert len({transcript.source for transcript in transcripts}) == 14
    result = assert_all_is_well(Replay(compress=OFTEN).run(service, transcripts))
    assert result.made >= 8 and result.loops > 20  # how many depends on when the worker comes


@pytest.mark.full
@pytest.mark.network
def test_all_real_conversations_with_summaries_made_meanwhile(service: Turnlog, real_data: ModuleType) -> None:
    report = Replay(compress=OFTEN).run(service, _real(real_data))
    result = assert_all_is_well(report)
    assert report.total.sessions == 377 and result.made > 300
