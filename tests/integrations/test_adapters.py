"""The contract of adapters over each framework's real agents, on SQLite and on moto.

Frameworks that are not in the development environment are tested in one of their own: `make frameworks`.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Harness
from tests.effort import is_full
from tests.integrations.adapters import AGENTS, agent_of
from turnlog.client.model import Session
from turnlog.sessions import incoming
from turnlog.testing.adapters import LARGE_CHARS, AdapterContract, Desk, KilledRun, check_log

# What frameworks warn of among themselves is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")
AT_ONCE = ("agent_framework", "langchain", "pydantic_ai", "strands")
"""Frameworks whose runs on one session go on at once, or conflict. Other adapters do not know the run of a call."""
KILLED = [name for name in AGENTS if is_full() or name not in ("langgraph", "openai_agents", "strands")]
"""Whose process is killed: of the frameworks of the development environment one, and every one by `make full`."""


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what became of each agent whose process was killed."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-W", "ignore", "-m", "tests.integrations.adapters", str(folder), *KILLED]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    return folder


class TestAdapters(AdapterContract):
    turns = 200 if is_full() else 10

    @pytest.fixture(params=AGENTS)
    def desk(self, request: pytest.FixtureRequest, harness: Harness) -> Desk:
        kind = agent_of(request.param)
        if kind is None:
            pytest.skip(f"{request.param} has an environment of its own: make frameworks")
        return Desk(harness.log(), kind)

    def test_05_a_process_that_is_killed_is_continued_by_another(
        self, desk: Desk, killed: Callable[[], KilledRun]
    ) -> None:
        if not any(desk.kind is agent_of(name) for name in KILLED):
            pytest.skip("of every framework by `make full`")
        super().test_05_a_process_that_is_killed_is_continued_by_another(desk, killed)

    def test_07_a_result_of_more_than_a_megabyte_is_kept(self, desk: Desk) -> None:
        if getattr(incoming, "MAX_MESSAGE_BYTES", LARGE_CHARS * 2) < LARGE_CHARS:
            pytest.skip("a message has at most 1 MiB")
        if not is_full() and desk.kind is not agent_of("langchain"):
            pytest.skip("of every framework by `make full`")
        super().test_07_a_result_of_more_than_a_megabyte_is_kept(desk)

    def test_runs_at_once_are_each_asked_their_own_question(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        if not any(desk.kind is agent_of(name) for name in AT_ONCE):
            pytest.skip("the adapter does not know the run of a call")
        desk.agent()[0].ask("Hello")
        build, both_asked, firsts = Session.context, threading.Barrier(2, timeout=20), itertools.count()

        def context(session: Session, **options: Any) -> Any:
            if next(firsts) < 2:
                both_asked.wait()
            return build(session, **options)

        def ask(question: str) -> str:
            for _ in range(10):
                with suppress(*desk.kind.conflicts):
                    return desk.agent()[0].ask(question)
            raise AssertionError(f"{question!r} was refused 10 times")

        monkeypatch.setattr(Session, "context", context)
        questions = ["Ada is here", "Bob is here"]
        with ThreadPoolExecutor() as threads:
            answers = [*threads.map(ask, questions)]
        # Bedrock takes no two messages of a user in a row, so one of them may hold both questions.
        assert all(answer.endswith(question) for answer, question in zip(answers, questions, strict=True))
        check_log(desk.log, desk.agent()[0].session())

    @pytest.fixture
    def killed(self, request: pytest.FixtureRequest, killed_runs: Path) -> Callable[[], KilledRun]:
        name = request.node.callspec.params["desk"]
        return lambda: KilledRun(**json.loads((killed_runs / f"{name}.json").read_text()))
