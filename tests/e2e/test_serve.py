"""`turnlog serve` as a process of its own: killed, stopped, started again. What it has acknowledged is there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.effort import is_full
from turnlog import Turnlog
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import TurnlogError, UnauthorizedError, UnavailableError

pytestmark = pytest.mark.network


class Served:
    """Starts `turnlog serve` on a free port; ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[str]] = []

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "turnlog.cli", "serve", "--data", str(self.folder), *arguments]

    def start(self, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            self.command("--port", "0", "--json", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        self._processes.append(process)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        announced: dict[str, Any] = json.loads(line)
        return process, announced["url"]

    def refused(self, *arguments: str) -> tuple[int, str]:
        ended = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, timeout=60, env=_environment()
        )
        assert ended.stdout == ""
        return ended.returncode, ended.stderr

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}


def _ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "data")
    yield made
    made.end()


def _message(number: int) -> dict[str, str]:
    return {"role": "user" if number % 2 else "assistant", "content": f"message {number} " + "x" * (number * 37 % 900)}


def _append_until_it_is_gone(
    url: str, first: int, *, acknowledged: dict[int, int], enough: threading.Event, session_id: str = "s"
) -> int:
    """Appends one message after the other until the service is gone; returns the number of the one without an answer."""
    number = first
    with Turnlog(HttpBackend(url, max_tries=1, timeout_seconds=10)) as log:
        session = log.sessions.get_or_create(session_id)
        while True:
            try:
                acknowledged[number] = session.append(_message(number), idempotency_key=f"k{number}").first
            except UnavailableError:
                return number
            number += 1
            if number - first == 15:
                enough.set()


def _after(enough: threading.Event, process: subprocess.Popen[str], number: int) -> threading.Thread:
    def send() -> None:
        if enough.wait(60):
            process.send_signal(number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_killed_in_the_middle_of_appends_of_32_clients_it_has_lost_none_that_was_acknowledged(served: Served) -> None:
    """Appends of several sessions share a transaction: a session has each of its own, once and in order."""
    process, url = served.start()
    enough = threading.Event()
    killer = _after(enough, process, signal.SIGKILL)
    acknowledged: list[dict[int, int]] = [{} for _ in range(32)]

    def append(client: int) -> int:
        return _append_until_it_is_gone(
            url, 1, session_id=f"s{client}", acknowledged=acknowledged[client], enough=enough
        )

    with ThreadPoolExecutor(32) as pool:
        unanswered = list(pool.map(append, range(32)))
    killer.join()
    assert _ended(process)[0] == -signal.SIGKILL

    process, url = served.start()
    with Turnlog.open(url) as log:
        for client, last in enumerate(unanswered):
            stored = [message.body for message in log.sessions.get_or_create(f"s{client}").messages()]
            assert stored in ([_message(number) for number in range(1, end)] for end in (last, last + 1))
            assert len(stored) >= len(acknowledged[client]) == last - 1
    process.send_signal(signal.SIGTERM)
    assert _ended(process)[0] == 0


def test_killed_in_the_middle_of_appends_it_has_lost_nothing_and_goes_on(served: Served) -> None:
    acknowledged: dict[int, int] = {}
    unanswered = 1
    for _ in range(3 if is_full() else 1):
        process, url = served.start()
        enough = threading.Event()
        killer = _after(enough, process, signal.SIGKILL)
        unanswered = _append_until_it_is_gone(url, unanswered, acknowledged=acknowledged, enough=enough)
        killer.join()
        assert _ended(process)[0] == -signal.SIGKILL

        process, url = served.start()
        with Turnlog.open(url) as log:
            session = log.sessions.get("s")
            stored = {message.position: message.body for message in session.messages()}
            assert {position: _message(number) for number, position in acknowledged.items()}.items() <= stored.items()
            assert len(stored) - len(acknowledged) in (0, 1), "at most the one that had no answer"
            assert list(stored) == list(range(2, len(stored) + 2))
            # The same key again: it is stored once, whether or not the first try had its effect.
            acknowledged[unanswered] = session.append(_message(unanswered), idempotency_key=f"k{unanswered}").first
            assert [message.body for message in session.messages()] == [
                _message(number) for number in sorted(acknowledged)
            ]
            assert session.context(budget=100_000).messages
        unanswered += 1
        process.send_signal(signal.SIGTERM)
        assert _ended(process)[0] == 0


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_stopped_in_the_middle_of_appends_it_ends_cleanly(served: Served, number: signal.Signals) -> None:
    process, url = served.start()
    acknowledged: dict[int, int] = {}
    enough = threading.Event()
    stopper = _after(enough, process, number)
    _append_until_it_is_gone(url, 1, acknowledged=acknowledged, enough=enough)
    stopper.join()
    assert _ended(process) == (0, "", "")
    with Turnlog.open(f"sqlite:///{served.folder / 'turnlog.db'}") as log:
        stored = {message.position: message.body for message in log.sessions.get("s").messages()}
    assert {position: _message(number) for number, position in acknowledged.items()}.items() <= stored.items()


def test_idle_connections_do_not_keep_it_from_stopping(served: Served) -> None:
    process, url = served.start()
    with Turnlog.open(url) as log:
        log.health()
        process.send_signal(signal.SIGINT)
        assert _ended(process) == (0, "", "")


def test_it_says_where_it_is_and_that_it_has_stopped(served: Served) -> None:
    process = subprocess.Popen(
        served.command("--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
    )
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("turnlog serves http://127.0.0.1:") and str(served.folder) in second
        process.send_signal(signal.SIGINT)
        assert _ended(process) == (0, "turnlog stopped\n", "")
    finally:
        process.kill()
        process.wait()


def test_the_bearer_token(served: Served) -> None:
    _, url = served.start("--token", "s3cret")
    with Turnlog.open(url) as log, pytest.raises(UnauthorizedError):
        log.sessions.create("a")
    with Turnlog.open(url, token="s3cret") as log:
        log.sessions.create("a").append(_message(1))
        assert log.sessions.get("a").info().messages == 1


MORE_ADDRESSES = [pytest.param(host, marks=pytest.mark.full) for host in ("::", "192.0.2.1")]


@pytest.mark.parametrize("host", ["0.0.0.0", *MORE_ADDRESSES])  # noqa: S104 - refused is what is tested
def test_other_addresses_than_loopback_need_a_token(served: Served, host: str) -> None:
    code, said = served.refused("--host", host)
    assert code == 2
    assert said.count("\n") == 1 and "needs a token" in said


def test_a_port_that_is_taken_is_said(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = served.refused("--port", str(taken.getsockname()[1]))
    assert code == 1
    assert said.count("\n") == 1 and "port_in_use" in said


def test_two_services_on_one_folder_share_its_sessions(served: Served) -> None:
    (_, first), (_, second) = served.start(), served.start()
    with Turnlog.open(first) as session, Turnlog.open(second) as other:
        session.sessions.create("a/b:c@d").append(_message(1))
        other.sessions.get("a/b:c@d").append(_message(2))
        assert [stored.body for stored in session.sessions.get("a/b:c@d").messages()] == [_message(1), _message(2)]
    with urlopen(f"{first}/v1/sessions/a%2Fb:c%40d") as answer:
        assert json.load(answer)["session_id"] == "a/b:c@d"


def test_the_memory_engine_leaves_no_folder(served: Served) -> None:
    process, url = served.start("--engine", "memory")
    with Turnlog.open(url) as log:
        assert log.health().engine == "memory"
    process.send_signal(signal.SIGINT)
    assert _ended(process)[0] == 0
    assert not served.folder.exists()


def test_errors_are_typed_across_the_process_border(served: Served) -> None:
    _, url = served.start()
    with Turnlog.open(url) as log, pytest.raises(TurnlogError) as caught:
        log.sessions.get("nope")
    assert caught.value.error_code == "not_found"
