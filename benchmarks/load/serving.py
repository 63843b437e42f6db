"""`turnlog serve` as processes of their own, on free ports of loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

_STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    pid: int


@contextmanager
def serving(engine: str, folder: Path, servers: int = 1) -> Iterator[list[Served]]:
    """Yield so many servers; several have one data folder. Raises `RuntimeError` when one does not start, or ends badly."""
    with ExitStack() as stack:
        yield [stack.enter_context(_served(engine, folder)) for _ in range(servers)]


@contextmanager
def _served(engine: str, folder: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "turnlog.cli", "serve", "--engine", engine, "--data", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
    said = folder.parent / f"{folder.name}.log"
    with said.open("ab") as errors:
        process = subprocess.Popen(
            [*command, "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"turnlog serve did not start: {said.read_text(errors='replace')[-2_000:]}")
        yield Served(json.loads(line)["url"], process.pid)
        process.send_signal(signal.SIGTERM)
        if process.wait(_STOP_SECONDS):
            raise RuntimeError(f"turnlog serve ended with {process.returncode}: {said.read_text()[-2_000:]}")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
