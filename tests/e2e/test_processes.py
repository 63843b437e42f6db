"""A1 on SQLite with processes: writers on one session of one file, 16 in `make full`, and a writer that is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import is_full
from turnlog import Turnlog

PROCESSES = 16 if is_full() else 4
WRITER = """
import sys
from turnlog import Turnlog
from turnlog.core.errors import ConflictError, UnavailableError

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Turnlog.open(url) as log:
    session = log.sessions.get_or_create("shared")
    for at in range(count):
        while True:
            try:
                answer = session.append({"role": "user", "content": f"{name}-{at}"}, idempotency_key=f"{name}-{at}")
                break
            except (ConflictError, UnavailableError):
                continue
        print(answer.first, f"{name}-{at}", flush=True)
"""


def writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, name, str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def acknowledged(process: subprocess.Popen[str]) -> list[tuple[int, str]]:
    output, errors = process.communicate(timeout=120)
    assert errors == "" or process.returncode < 0, errors
    lines = [line.split(" ") for line in output.splitlines() if line.count(" ") == 1]
    return [(int(position), text) for position, text in lines]


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.full), True])
def test_a1_many_processes_lose_nothing_and_leave_no_gap(tmp_path: Path, kill: bool) -> None:
    url, each = f"sqlite:///{tmp_path}/shared.db", 6
    processes = [writer(url, f"w{at}", each) for at in range(PROCESSES)]
    if kill:
        assert processes[0].stdout is not None
        first = processes[0].stdout.readline().split()
        processes[0].kill()
    answers = [acknowledged(process) for process in processes]
    if kill:
        answers[0].append((int(first[0]), first[1]))
    with Turnlog.open(url) as log:
        stored = {message.position: message.body["content"] for message in log.sessions.get("shared").messages()}
    assert list(stored) == list(range(2, 2 + len(stored)))
    for answer in answers:
        assert all(stored[position] == text for position, text in answer)
    assert len(set(stored.values())) == len(stored)
    if not kill:
        assert len(stored) == PROCESSES * each
