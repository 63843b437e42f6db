"""The wheel, in an environment that has nothing else: library, client and embedded engine; with an extra, the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.network
EXTRAS = {"aws", "cli", "local", "mcp", "moto", "otel", "dev", "openai-agents", "langgraph", "langchain", "strands"}
EXTRAS |= {"agent-framework", "claude-agent-sdk", "google-adk", "llama-index", "pydantic-ai"}
LIBRARY = """
import sys, turnlog
before = set(sys.modules)
assert not {"pydantic", "jsonschema", "tiktoken"} & before, "import turnlog loads what only a session needs"
from turnlog import Turnlog
with Turnlog.open("sqlite:///" + sys.argv[1] + "/agent.db") as log:
    session = log.sessions.get_or_create("s", system="Be brief.")
    session.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"})
    assert session.context(budget=4_000, format="anthropic").messages
    session.documents.put("plan", b"pack")
    assert len(session.search("hello").results) == 1
heavy = {"boto3", "botocore", "aws_lambda_powertools", "typer", "rich", "waitress", "langgraph", "openai", "mcp", "strands"}
assert not heavy & set(sys.modules)
"""
OVER_HTTP = """
import sys
from turnlog import Turnlog
with Turnlog.open(sys.argv[1]) as log:
    session = log.sessions.create("s")
    session.append({"role": "user", "content": "hi"})
    assert [one.body["content"] for one in session.messages()] == ["hi"]
from urllib.request import urlopen
with urlopen(sys.argv[1] + "/docs") as answer:
    assert b"Turnlog" in answer.read()
with urlopen(sys.argv[1] + "/docs/openapi.json") as answer:
    assert b"create_session" in answer.read()
"""


class Environment:
    """A virtual environment of its own, with the wheel."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel
        venv.create(folder / "venv")
        self.install("")

    def install(self, extra: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--no-compile", "--quiet"]
        options = ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *options, f"{self.wheel}{extra}"], check=True, timeout=300, env=_clean())

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env=_clean(), cwd=self.folder
        )

    def script(self, *arguments: str) -> list[str]:
        return [str(self.folder / "venv" / "bin" / "turnlog"), *arguments]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "-w", str(folder), str(ROOT)], check=True, timeout=300)
    (built,) = folder.glob("turnlog-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"), wheel)


def test_the_wheel_is_whole_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        head = Parser().parsestr(archive.read(metadata).decode())
    assert set(head.get_all("Provides-Extra", [])) == EXTRAS
    needed = {line.split(">")[0] for line in head.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert {name.split("<")[0] for name in needed} == {"jsonschema", "pydantic", "tiktoken"}
    sources = {f"turnlog/{path.relative_to(ROOT / 'shared' / 'turnlog')}" for path in (ROOT / "shared").rglob("*.py")}
    packed = {name for name in names if name.startswith("turnlog/") and name.endswith(".py")}
    assert packed == sources
    assert {"turnlog/py.typed", "turnlog/server/template.yaml"} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"turnlog", "turnlog_vocabulary"}


@pytest.mark.full
def test_the_wheel_alone_is_the_library(environment: Environment, tmp_path: Path) -> None:
    done = environment.run("-I", "-c", LIBRARY, str(tmp_path))
    assert done.returncode == 0, done.stderr
    refused = subprocess.run(environment.script("serve"), capture_output=True, text=True, check=False, env=_clean())
    assert refused.returncode == 1 and "pip install 'turnlog[cli]'" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.full
def test_the_wheel_with_an_extra_is_the_service(environment: Environment, tmp_path: Path) -> None:
    environment.install("[cli]")
    command = environment.script("serve", "--port", "0", "--json", "--data", str(tmp_path / "data"))
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_clean())
    try:
        assert serving.stdout is not None
        url = json.loads(serving.stdout.readline())["url"]
        done = environment.run("-I", "-c", OVER_HTTP, url)
        assert done.returncode == 0, done.stderr
    finally:
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=60)
    assert serving.returncode == 0, said


def _clean() -> dict[str, str]:
    """Nothing of this process but the way to the network."""
    kept = ("PATH", "HOME", "TMPDIR", "LANG")
    return {name: value for name, value in os.environ.items() if name in kept or name.startswith(("PIP_", "SSL_"))}
