"""Real conversations and the project's samples: appended one by one, a window before each reply, everything checked."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from benchmarks.replay.loading import load_transcripts, sample_of
from benchmarks.replay.replaying import Replay, ReplayOutcome, ReplayReport
from tests.conftest import SAMPLES, Harness
from tests.effort import is_full
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.cli.transcripts import Transcript, read_transcripts
from turnlog.client import Backend
from turnlog.client.in_process import InProcessBackend
from turnlog.core.identity import Owner
from turnlog.engines import SystemClock, location_url
from turnlog.linter.rules import lint
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

PR_SESSIONS, PR_MESSAGES = 60, 80
SAME_KINDS = {
    "user_tool_calls": ("user message with tool_calls",),
    "consecutive_user": ("consecutive user messages",),
    "consecutive_assistant": ("consecutive assistant messages",),
    "assistant_first": ("session starts with assistant",),
    "system_mid": ("system message in mid-conversation",),
    "open_calls": ("message arrives while calls are still open",),
    "missing_id": ("call with empty or missing id", "result with empty or missing tool_call_id"),
    "orphan_result": ("orphan result (no such open call)",),
    "second_result": ("second result for an answered call",),
    "bad_arguments": ("call arguments not a JSON object", "call arguments not valid JSON"),
    "control_chars": ("control characters in text",),
    "unknown_role": ("unknown role 'exit'",),
}
"""Our warnings, and what ../shared/data/check.py calls them. Not compared: `result_out_of_order` (check.py pairs a result
without an id with the oldest call without one, we with the newest message's) and `empty_content` (a reply of nothing but
reasoning is empty there, not here)."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Turnlog]:
    """The embedded engine over real HTTP."""
    app = make_application(Settings(engine=location_url(tmp_path), identity="jwt"))
    server = LocalServer(app, SystemClock(), port=0).start()
    with Turnlog.open(server.url) as log:
        yield log
    server.stop()
    app.close()


def _samples() -> list[Transcript]:
    return read_transcripts([SAMPLES])


def _replies(transcripts: list[Transcript]) -> int:
    return sum(message.get("role") == "assistant" for transcript in transcripts for message in transcript.messages[1:])


def _assert_all_is_well(report: ReplayReport, transcripts: list[Transcript]) -> None:
    assert report.findings == []
    assert report.ok
    assert report.total.sessions == len(transcripts)
    assert report.total.messages == sum(len(transcript.messages) for transcript in transcripts)
    assert report.total.windows + report.total.too_small == _replies(transcripts)


@pytest.mark.network
@pytest.mark.parametrize(
    ("policy", "budget"),
    [
        pytest.param("default", None, marks=pytest.mark.full),
        pytest.param("default", 6000, marks=pytest.mark.full),  # as the demo does: tests/examples/test_demo.py
        pytest.param("run_loops", 6000, marks=pytest.mark.full),
        pytest.param("turns(2)", None, marks=pytest.mark.full),
        pytest.param("messages(7)", None, marks=pytest.mark.full),
        pytest.param("full", None, marks=pytest.mark.full),
    ],
)
def test_samples_over_http(service: Turnlog, policy: str, budget: int | None) -> None:
    transcripts = _samples()
    report = Replay(policy=policy, budget=budget).run(service, transcripts)
    _assert_all_is_well(report, transcripts)
    if budget is not None:
        assert report.rows["support-agent"].tokens_window < 0.7 * report.rows["support-agent"].tokens_full
    else:
        assert not report.total.too_small
    if policy == "default":
        allowed = {"late_result"} | ({"crossing", "budget", "large_result"} if budget else set())
        assert set(report.total.breaks) <= allowed
    assert 0 < report.total.tokens_stable < report.total.tokens_window
    assert report.as_json()["total"]["breaks"] == report.total.breaks


@pytest.mark.network
def test_samples_in_the_turnlog_format_are_not_linted_but_come_back(service: Turnlog) -> None:
    transcripts = _samples()[::2]
    _assert_all_is_well(Replay(format="turnlog").run(service, transcripts), transcripts)


def test_samples_through_the_routes_in_process_on_both_engines(harness: Harness) -> None:
    """The messy ones and one with tools, each engine: a sample on moto is the same run as on SQLite."""
    transcripts = [sample for sample in _samples() if sample.source in ("messy", "travel-agent-zh")]
    report = Replay(policy="default", budget=6000, threads=1).run(harness.log(), transcripts)
    _assert_all_is_well(report, transcripts)
    assert report.warnings == Counter(
        missing_id=4,
        open_calls=1,
        orphan_result=2,
        empty_content=2,
        control_chars=2,
        bad_arguments=2,
        second_result=1,
        user_tool_calls=1,
        unknown_role=1,
        assistant_first=1,
        system_mid=1,
        consecutive_user=1,
    )
    assert report.repeated_ids == 1


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)  # what is judged is the judge
def test_a_wrong_window_and_a_lost_message_are_found(harness: Harness) -> None:
    """The judge is judged: a service that breaks what it gives back is caught at it."""
    owner = Owner.of("acme", "eve")
    transcript = next(sample for sample in _samples() if sample.id == "travel-agent-zh")
    transcript = replace(transcript, messages=transcript.messages[:12])

    def outcome(break_it: Any) -> ReplayOutcome:
        class Broken(InProcessBackend):
            def call(self, operation: str, **given: Any) -> Any:
                return break_it(operation, super().call(operation, **given))

        return Replay().replay_one(Turnlog(cast("Backend", Broken(harness.app, owner))), transcript)

    def without_results(operation: str, answer: Any) -> Any:
        if operation != "build_context":
            return answer
        kept = [message for message in answer.messages if message["role"] != "tool"]
        return answer.model_copy(update={"messages": kept})

    def too_long(operation: str, answer: Any) -> Any:
        return answer.model_copy(update={"tokens": 10**9}) if operation == "build_context" else answer

    def one_lost(operation: str, answer: Any) -> Any:
        if operation != "read_messages":
            return answer
        return answer.model_copy(update={"messages": answer.messages[:3] + answer.messages[4:]})

    def one_altered(operation: str, answer: Any) -> Any:
        if operation != "read_messages":
            return answer
        altered = answer.messages[2].model_copy(update={"body": {**answer.messages[2].body, "extra": True}})
        return answer.model_copy(update={"messages": [*answer.messages[:2], altered, *answer.messages[3:]]})

    assert outcome(lambda operation, answer: answer).findings == []
    assert outcome(without_results).row.invalid > 0
    assert {finding.code for finding in outcome(too_long).findings} == {"over_budget"}
    assert (outcome(one_lost).row.lost, outcome(one_lost).findings[0].code) == (1, "lost")
    assert (outcome(one_altered).row.lost, outcome(one_altered).findings[0].code) == (1, "unequal")


def test_a_refused_message_is_a_finding_and_the_others_go_on(harness: Harness) -> None:
    wrong = Transcript("wrong", "test", [{"role": "user", "content": "a"}, {"role": "user", "content": 5}])
    right = Transcript("right", "test", [{"role": "user", "content": "a"}])
    report = Replay(threads=1).run(harness.log(), [wrong, right])
    assert not report.ok
    assert (report.total.failed, report.total.lost) == (1, 1)
    assert {finding.session for finding in report.findings} == {"wrong"}


def test_the_samples_are_valid_but_for_the_messy_ones() -> None:
    for sample in _samples():
        is_messy = bool(lint(sample.messages, format="openai_chat"))
        assert is_messy <= (sample.source == "messy"), sample.id
        assert sample.source == "messy" or len(sample.messages) >= 40


# ---------------------------------------------------------------- ../shared/data


def _real(real_data: ModuleType) -> list[Transcript]:
    path = Path(str(real_data.__file__))
    return load_transcripts([path.parent / "dev"], path)


@pytest.mark.network
@pytest.mark.parametrize(
    ("policy", "budget", "half"), [("default", 4000, 0), pytest.param("run_loops", None, 1, marks=pytest.mark.full)]
)
def test_real_conversations_over_http(
    service: Turnlog, real_data: ModuleType, policy: str, budget: int | None, half: int
) -> None:
    """A fixed sample of every source, the first messages of each; a part of it by each policy."""
    chosen = sample_of(_real(real_data), PR_SESSIONS)
    assert len(chosen) == PR_SESSIONS and len({item.source for item in chosen}) == 14
    transcripts = [
        replace(item, messages=item.messages[:PR_MESSAGES]) for item in chosen[half :: 4 if is_full() else 10]
    ]
    _assert_all_is_well(Replay(policy=policy, budget=budget).run(service, transcripts), transcripts)


def test_real_conversations_in_process_on_both_engines(harness: Harness, real_data: ModuleType) -> None:
    chosen = sample_of(_real(real_data), 14)
    transcripts = [replace(item, messages=item.messages[: 20 if is_full() else 7]) for item in chosen]
    _assert_all_is_well(Replay(threads=1).run(harness.log(), transcripts), transcripts)


@pytest.mark.full
@pytest.mark.network
def test_all_real_conversations_and_their_disorder(service: Turnlog, real_data: ModuleType) -> None:
    transcripts = _real(real_data)
    report = Replay().run(service, transcripts)
    _assert_all_is_well(report, transcripts)
    assert report.total.sessions == 377
    counted = _checked(Path(str(real_data.__file__)))
    for code, kinds in SAME_KINDS.items():
        assert report.warnings[code] == sum(counted[kind] for kind in kinds), code
    assert report.repeated_ids == counted["call id used before in the session"]


def _checked(loader: Path) -> Counter[str]:
    """What ../shared/data/check.py counts."""
    counted: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # Its scripts import each other by name, and leave files to the garbage collector.
        patch.syspath_prepend(str(loader.parent))
        warnings.simplefilter("ignore", ResourceWarning)
        check, load = importlib.import_module("check"), importlib.import_module("load")
        for session in load.iter_sessions(str(loader.with_name("dev"))):
            counted.update(check.check(session))
    for name in ("check", "load"):
        del sys.modules[name]
    return counted
