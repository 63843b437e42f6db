"""Make's targets on a machine that lacks what they need: each fails by itself, and `make pr` says what it has skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not on PATH")
NO_RUNTIME = "RUNTIME_PYTHON=python-that-is-not-here"


def make(*arguments: str, path: str | None = None) -> tuple[int, str, str]:
    names = ("SKIPPED_PARTS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    ended = subprocess.run(
        [shutil.which("make") or "make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={**clean, "PATH": path or clean["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("target", ["build", "build-test", "bench-starts", "e2e"])
def test_a_target_without_the_runtime_s_python_fails_and_says_what_to_install(target: str) -> None:
    code, output, errors = make(target, NO_RUNTIME)
    assert code == 2 and output == ""
    assert f"make {target}: needs python-that-is-not-here on PATH" in errors and "install it" in errors


@pytest.mark.parametrize("target", ["mcp-conformance", "clients"])
def test_a_target_without_npm_fails_and_says_what_to_install(target: str, tmp_path: Path) -> None:
    code, output, errors = make(target, path=str(tmp_path))
    assert code == 2 and output == "" and "needs npm on PATH; install Node.js" in errors


def test_pr_goes_on_and_its_last_lines_say_what_was_skipped(tmp_path: Path) -> None:
    skipped = f"SKIPPED={tmp_path}/skipped"
    code, output, errors = make("pr", "PR_PARTS=build-test e2e", NO_RUNTIME, skipped)
    assert code == 0 and errors == ""
    heading, *lines = output.splitlines()
    assert heading == "make pr has skipped:"
    assert [line.partition(":")[0] for line in lines] == ["make build-test", "make e2e"]
    assert make("pr", "PR_PARTS=", skipped) == (0, "make pr has skipped nothing\n", "")


def test_pr_fails_with_its_parts(tmp_path: Path) -> None:
    code, output, errors = make("pr", "PR_PARTS=no-such-part", f"SKIPPED={tmp_path}/skipped")
    assert code == 2 and "no-such-part" in errors and "skipped" not in output
