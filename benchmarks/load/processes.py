"""What a process holds: resident memory and open files, from /proc, or from `ps` where there is none."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Held:
    """``files``: open descriptors; None where the system does not tell."""

    rss_bytes: int
    files: int | None


def held(pid: int) -> Held:
    """Return what a running process holds; raise `ProcessLookupError` for one that does not run."""
    folder = Path("/proc") / str(pid)
    try:
        if folder.is_dir():
            resident = int((folder / "statm").read_text().split()[1]) * _PAGE_BYTES
            return Held(resident, sum(1 for _ in (folder / "fd").iterdir()))
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    result = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    if not result.strip():
        raise ProcessLookupError(pid)
    return Held(int(result) * 1024, None)


class Watch:
    """Samples what processes hold, together, within its block."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._samples: list[tuple[float, Held]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._sample()

    def quarters(self) -> list[Held]:
        """Return the figures at the start, and after each quarter of the time."""
        begun, ended = self._samples[0][0], self._samples[-1][0]
        wanted = [begun + (ended - begun) * quarter / 4 for quarter in range(5)]
        return [min(self._samples, key=lambda sample: abs(sample[0] - at))[1] for at in wanted]

    def _run(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            self._sample()

    def _sample(self) -> None:
        values = [held(pid) for pid in self._pids]
        files = [item.files for item in values if item.files is not None]
        together = Held(sum(item.rss_bytes for item in values), sum(files) if len(files) == len(values) else None)
        self._samples.append((time.monotonic(), together))
