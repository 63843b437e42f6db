"""Runs one built function in the Lambda runtime and calls it: the Runtime Interface Emulator in front of `awslambdaric`.

A script of the standard library, run in a process of its own, where that is permitted without a network. It reads
{emulator, python, folder, handler, environment, events, isolated, stalls} from stdin and writes {answers, sizes, offline, log}.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

_PATH = "/2015-03-31/functions/function/invocations"
_START_SECONDS, _CALL_SECONDS = 20, 60
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_ELSEWHERE = ("192.0.2.1", 443)  # TEST-NET-1: nobody is there


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    if asked["isolated"]:
        _raise_loopback()
    with tempfile.TemporaryFile() as log:
        with socket.create_server(("127.0.0.1", 0)) as stalled:  # connects, and never answers
            if asked["stalls"]:
                asked["environment"]["TURNLOG_ENDPOINT_URL"] = f"http://127.0.0.1:{stalled.getsockname()[1]}"
            sent = _run(asked, log)
        log.seek(0)
        text = log.read().decode("utf-8", "replace")
    answers, sizes = list(map(json.loads, sent)), list(map(len, sent))
    json.dump({"answers": answers, "sizes": sizes, "offline": _is_offline(), "log": text}, sys.stdout)


def _run(asked: dict[str, Any], log: Any) -> list[bytes]:
    emulator, api = _free_port(), _free_port()
    command = [
        asked["emulator"],
        "--runtime-interface-emulator-address",
        f"127.0.0.1:{emulator}",
        "--runtime-api-address",
        f"127.0.0.1:{api}",
        asked["python"],
        "-m",
        "awslambdaric",
        asked["handler"],
    ]
    process = subprocess.Popen(
        command,
        cwd=asked["folder"],
        env=asked["environment"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        _wait(emulator)
        return [_call(emulator, event) for event in asked["events"]]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _call(port: int, event: Any) -> bytes:
    """Return the answer as the runtime has encoded it."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{_PATH}", json.dumps(event).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_CALL_SECONDS) as answer:
        data: bytes = answer.read()
        return data


def _wait(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _free_port() -> int:
    with socket.socket() as resource:
        resource.bind(("127.0.0.1", 0))
        return int(resource.getsockname()[1])


def _raise_loopback() -> None:
    """A new network namespace has its loopback down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))


def _is_offline() -> bool:
    """Whether no interface but the loopback is there."""
    return {path.name for path in Path("/sys/class/net").iterdir()} <= {"lo"} or not _reaches()


def _reaches() -> bool:
    try:
        socket.create_connection(_ELSEWHERE, timeout=0.2).close()
    except TimeoutError:
        return True
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
