"""What a newcomer pastes works: each block of the README and the tutorial runs alone, or in order, in an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.effort import is_full
from tests.support.python_blocks import run_alone

PASTED = ("README.md", "docs/tutorial/getting-started.md", "docs/zh-CN/getting-started.md")
NEEDS = {"make": "a clone of its own and minutes", "sam": "an AWS account", "aws": "an AWS account"}
"""Commands that are not run here: each block with one is checked for its syntax, and its targets of make are looked up."""
SERVICE = "http://127.0.0.1:8787"


def blocks(name: str, language: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def is_run(block: str) -> bool:
    return not re.search(rf"^(?:\w+=\$\()?(?:{'|'.join(NEEDS)}) ", block, re.M)


PYTHON = [(name, block) for name in PASTED if is_full() or "zh-CN" not in name for block in blocks(name, "python")]
"""`make full` runs those of the Chinese page too, which are the same but for what is said."""
SHELL = [(name, [block for block in blocks(name, "sh") if is_run(block)]) for name in PASTED]
LOOKED_AT = [(name, block) for name in PASTED for block in blocks(name, "sh") if not is_run(block)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "turnlog.cli",
        "serve",
        "--port",
        "0",
        "--json",
        "--data",
        str(tmp_path / "served"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["url"]
        server.terminate()


def test_a_python_block_runs_alone_and_again(tmp_path: Path) -> None:
    files = [tmp_path / str(number) / "pasted.py" for number in range(len(PYTHON))]
    for file, (_, block) in zip(files, PYTHON, strict=True):
        file.parent.mkdir()
        file.write_text(block, encoding="utf-8")
    results = zip([*PYTHON, *PYTHON], run_alone([*files, *files]), strict=True)
    assert [(name, block, result) for (name, block), result in results if result != (0, "")] == []


@pytest.mark.full
def test_the_python_blocks_of_a_page_run_one_after_another_in_one_new_folder(tmp_path: Path) -> None:
    files = list[Path]()
    for number, (name, block) in enumerate(PYTHON):
        files.append(tmp_path / Path(name).parent.name / f"{number:02d}.py")
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].write_text(block, encoding="utf-8")
    results = zip(PYTHON, run_alone(files), strict=True)
    assert [(name, block, result) for (name, block), result in results if result != (0, "")] == []


@pytest.mark.parametrize(
    ("name", "shell"),
    [pytest.param(*page, id=page[0], marks=[pytest.mark.full] * ("zh-CN" in page[0])) for page in SHELL[1:]],
)
def test_shell_blocks_run_in_order(name: str, shell: list[str], tmp_path: Path, service: str) -> None:
    assert shell, name
    pasted(shell, tmp_path, service)


def pasted(shell: list[str], tmp_path: Path, service: str) -> str:
    """Run blocks one after the other in an empty folder, and return what they print."""
    (tmp_path / "folder").mkdir()
    script = "set -e\n" + "\n".join(shell).replace(SERVICE, service).replace("curl -s", "curl -sS --fail-with-body")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path / "folder",
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize(("name", "block"), LOOKED_AT, ids=lambda value: value[:20])
def test_a_block_that_is_not_run_names_what_is_there(name: str, block: str) -> None:
    assert subprocess.run(["bash", "-n", "-c", block], check=False).returncode == 0, name
    makefiles = "".join(path.read_text("utf-8") for path in [ROOT / "Makefile", *(ROOT / "mk").glob("*.mk")])
    for target in re.findall(r"^make (\S+)", block, re.M):
        assert re.search(rf"^{target}:", makefiles, re.M), target
    for environment in re.findall(r"--config-env (\S+)", block):
        assert f"\n[{environment}." in (ROOT / "samconfig.toml").read_text("utf-8")


def test_the_blocks_of_the_readme_run_and_its_answer_is_the_one_that_curl_shows(tmp_path: Path, service: str) -> None:
    (answer,) = blocks("README.md", "json")
    printed = pasted(dict(SHELL)["README.md"], tmp_path, service)
    window = json.loads(printed[printed.index('{"messages"') :])
    shown = json.loads(answer.replace("[...]", "[]").replace(", ...}", "}"))
    parts = {"messages", "tools", "tokens", "head"}
    assert {name: window[name] for name in parts} == {name: shown[name] for name in parts}
    assert window["manifest"]["budget"] == shown["manifest"]["budget"]
    assert [message["role"] for message in window["messages"]] == ["system", "user"], "no more than what was said"
