"""`turnlog chat` as a process of its own: Ctrl-C in a stream, a decision after a restart, the end of the terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat_server import StreamingServer
from turnlog import Turnlog
from turnlog.engines import location_url

pytestmark = pytest.mark.network
PATIENCE_SECONDS = 60
# The leader of a session that opens a terminal has it as its own: Ctrl-C and the end of it are signals then.
_CONTROLLING = """
import os, runpy
os.open(os.ttyname(0), os.O_RDWR)
runpy.run_module("turnlog.cli", run_name="__main__")
"""
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "price", "arguments": '{"sku": "A-7"}'}}],
}


def interruptible() -> None:
    """A process that was started in the background hands it on that Ctrl-C is ignored: CI may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command on a terminal of its own: what it shows is read, and what is typed is typed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._own, theirs = pty.openpty()
        env = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
        command = [sys.executable, "-c", _CONTROLLING, "chat", "--data", str(folder / "data"), *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**env, "TERM": "dumb", "COLUMNS": "150"},
            start_new_session=True,
            preexec_fn=interruptible,  # noqa: PLW1509 - one call of the system in the child
        )
        os.close(theirs)
        self._shown = ""

    def until(self, text: str) -> str:
        """What is shown up to and with this text."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while text not in self._shown:
            assert time.monotonic() < ends_at, f"{text!r} is not shown: {self._shown!r}"
            if select.select([self._own], [], [], 0.1)[0]:
                try:
                    data = os.read(self._own, 65536)
                except OSError:
                    data = b""
                assert data or text in self._shown, f"{text!r} was not shown: {self._shown!r}"
                self._shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode("utf-8", "replace"))
        at = self._shown.index(text) + len(text)
        result, self._shown = self._shown[:at], self._shown[at:]
        return result

    def types(self, text: str) -> None:
        os.write(self._own, text.encode())

    def ended(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._own)


@pytest.fixture
def server() -> Iterator[StreamingServer]:
    made = StreamingServer()
    yield made
    made.close()


def kept(folder: Path) -> list[Any]:
    with Turnlog.open(location_url(folder / "data")) as log:
        return [(message.status, message.body.get("content")) for message in log.sessions.get("s").messages()]


def test_a_talk_of_two_processes(server: StreamingServer, tmp_path: Path) -> None:
    tools = 'def price(sku: str) -> str:\n    open("asked.txt", "a").write(sku)\n    return "12.50"\n'
    (tmp_path / "shop.py").write_text(tools, encoding="utf-8")
    result = ["s", "--model", f"{server.url}#m", "--tools", "shop.py:price"]
    server.replies = [
        {"role": "assistant", "content": "It is far away"},
        {"role": "assistant", "content": "Near."},
        CALL,
    ]
    server.held_after = 6
    first = Terminal(tmp_path, *result)
    try:
        first.until("/help lists the commands")
        first.until("you> ")
        first.types("Where is it?\r")
        first.until("It is")
        assert server.holds.wait(PATIENCE_SECONDS)
        first.types("\x03")
        first.until("stopped: what came of the answer is stored")
        first.until("you> ")
        first.types("/history\r")
        first.until("interrupted")
        first.until("you> ")
        first.types("/go\r")
        first.until("Near.")
        first.until("you> ")
        first.types("And the price?\r")
        first.until('? price({"sku":"A-7"})')
        first.until("run it?")
        first.types("\x04")  # undecided; the second one leaves
        first.until("you> ")
        first.types("\x04")
        assert first.ended() == 0
    finally:
        first.close()
    assert not (tmp_path / "asked.txt").exists()
    assert "It is" not in str(server.asked[1]), "what was interrupted is in no window"

    server.replies = [{"role": "assistant", "content": "It is 12.50."}]
    second = Terminal(tmp_path, *result)
    try:
        second.until('? price({"sku":"A-7"})')
        second.until("run it?")
        second.types("perhaps\r")
        second.until("run it?")
        second.types("y\r")
        second.until("It is 12.50.")
        second.until("you> ")
        second.types("/quit\r")
        assert second.ended() == 0
    finally:
        second.close()
    assert (tmp_path / "asked.txt").read_text(encoding="utf-8") == "A-7"
    statuses = [status for status, _ in kept(tmp_path)]
    assert statuses == ["complete", "interrupted", *["complete"] * 5]
    assert kept(tmp_path)[-1] == ("complete", "It is 12.50.")


def test_a_terminal_that_is_closed_in_a_stream_loses_nothing_and_the_next_one_says_so(
    server: StreamingServer, tmp_path: Path
) -> None:
    server.replies, server.held_after = [{"role": "assistant", "content": "It is far away"}], 6
    terminal = Terminal(tmp_path, "s", "--model", f"{server.url}#m")
    try:
        terminal.until("you> ")
        terminal.types("Where is it?\r")
        terminal.until("It is")
        assert server.holds.wait(PATIENCE_SECONDS)
        os.kill(terminal.process.pid, signal.SIGHUP)
        assert terminal.ended() == 128 + signal.SIGHUP
    finally:
        terminal.close()
    assert kept(tmp_path) == [("complete", "Where is it?"), ("interrupted", "It is")]

    server.replies = [{"role": "assistant", "content": "Near."}]
    for is_answered in (False, True):
        terminal = Terminal(tmp_path, "s", "--model", f"{server.url}#m")
        try:
            assert ("no complete answer: /go asks for one" in terminal.until("you> ")) is not is_answered
            if not is_answered:
                terminal.types("/go\r")
                terminal.until("Near.")
                terminal.until("you> ")
            terminal.types("/quit\r")
            assert terminal.ended() == 0
        finally:
            terminal.close()


def test_a_pipe_that_is_stopped_in_a_stream_says_130(server: StreamingServer, tmp_path: Path) -> None:
    server.replies, server.held_after = [{"role": "assistant", "content": "It is far away"}], 6
    command = [sys.executable, "-m", "turnlog.cli", "chat", "s", "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command, "--model", f"{server.url}#m"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,  # noqa: PLW1509 - one call of the system in the child
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("Where is it?\n")
        process.stdin.flush()
        assert process.stdout.read(5) == "It is"
        assert server.holds.wait(PATIENCE_SECONDS)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "Traceback" not in errors
    assert kept(tmp_path) == [("complete", "Where is it?"), ("interrupted", "It is")]
