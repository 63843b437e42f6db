"""A run of these tests ends: a test that hangs is ended and named, and a failure of made-up examples tells how to repeat it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

HANGS = """
import time
from hypothesis import given, strategies as st

@given(st.integers())
def test_hangs(number):
    time.sleep(60)

def test_is_well():
    pass
"""
FAILS = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_fails(number):
    assert number < 1000, "too large"
"""


def run(path: Path, source: str, *options: str) -> str:
    """Return what pytest prints for one module, run with the settings of this project and of tests/conftest.py."""
    path.write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(path.parent), *options, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("timeout")) == 300 and pytestconfig.getini("timeout_method") == "thread"


@pytest.mark.full
@pytest.mark.parametrize("workers", [["-n", "1"], []])
def test_a_test_that_hangs_is_ended_and_named(tmp_path: Path, workers: list[str]) -> None:
    outcome = run(tmp_path / "test_it.py", HANGS, "--timeout", "5", *workers)
    assert "test_hangs" in outcome
    assert not workers or "1 failed, 1 passed" in outcome, "with workers the other tests go on"


def test_a_failure_tells_its_seed_and_its_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    outcome = run(tmp_path / "test_it.py", FAILS)
    seed = re.search(r"--hypothesis-seed=(\d+)", outcome)
    assert seed is not None and "@reproduce_failure(" in outcome, outcome
    assert seed[0] in run(tmp_path / "test_it.py", FAILS, seed[0])
