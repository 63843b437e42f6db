"""`make demo`, the first command of the README, runs to its end."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def shown() -> list[str]:
    """Return the lines of the demo's output that the README shows."""
    block = re.findall(r"^```text\n\$ make demo\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.S | re.M)[0]
    return [line for line in block.splitlines() if line != "..." and not line.startswith("$")]


@pytest.mark.network
def test_the_demo_runs_to_its_end_and_every_window_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    kept = tmp_path / "kept"
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"))
    assert demo["main"](["--engine", "embedded", "--keep", str(kept)]) == 0
    printed = capsys.readouterr().out
    for line in shown():
        assert line in printed.splitlines(), "the README shows another output"
    assert "every message came back equal, every window is valid" in " ".join(printed.split())
    assert f"turnlog inspect {kept}" in printed and (kept / "turnlog.db").is_file()
