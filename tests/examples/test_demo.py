"""`make demo`, the first command of the README, runs to its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
WIDE = {**os.environ, "COLUMNS": "120"}


def shown() -> list[str]:
    """Return the lines of the demo's output that the README shows."""
    block = re.findall(r"^```text\n\$ make demo\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.S | re.M)[0]
    return [line for line in block.splitlines() if line != "..." and not line.startswith("$")]


def test_the_demo_runs_to_its_end_and_every_window_is_valid(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--engine", "embedded", "--keep", str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=WIDE)
    assert done.returncode == 0, done.stderr[-2000:]
    for line in shown():
        assert line in done.stdout.splitlines(), "the README shows another output"
    assert "every message came back equal, every window is valid" in " ".join(done.stdout.split())
    assert f"turnlog inspect {kept}" in done.stdout and (kept / "turnlog.db").is_file()
