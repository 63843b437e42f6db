"""`make demo`, the first command of the README, runs to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_demo_runs_to_its_end_and_every_window_is_valid() -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--engine", "embedded"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "every message came back equal, every window is valid" in " ".join(done.stdout.split())
