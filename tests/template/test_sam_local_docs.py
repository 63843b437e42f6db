"""docs/how-to/sam-local.md, mk/local.mk and events/env.json speak of what is there, and the events work as that page says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.functions.events import RUNS, Context, handler_of, load, run_events
from tests.support import templates
from turnlog.core.errors import InvalidInputError
from turnlog.server.stack import Template, expand, template_path

PAGE = ROOT / "docs" / "how-to" / "sam-local.md"
MAKEFILE = ROOT / "mk" / "local.mk"
ENVIRONMENT = ROOT / "events" / "env.json"
_LOGICAL_ID = re.compile(r"\b(?:[A-Z][a-z]+)+(?:Function|Worker|Queue|DeadLetters)\b")


@pytest.fixture
def template() -> Template:
    return templates.template()


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("local_stack", ROOT / "tools" / "local_stack.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _environments() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = json.loads(ENVIRONMENT.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("path", [PAGE, MAKEFILE, ENVIRONMENT], ids=lambda path: path.name)
def test_every_logical_name_is_in_the_template(template: Template, path: Path) -> None:
    named = set(_LOGICAL_ID.findall(path.read_text(encoding="utf-8")))
    assert named and named <= template.resources.keys()


@pytest.mark.parametrize("path", [PAGE, MAKEFILE], ids=lambda path: path.name)
def test_every_event_file_is_there(path: Path) -> None:
    named = set(re.findall(r"\bevents/[\w.-]+\.json\b", path.read_text(encoding="utf-8")))
    assert named and [name for name in named if not (ROOT / name).is_file()] == []


def test_each_event_goes_to_its_function(template: Template) -> None:
    invoked = re.findall(r"FN=(\w+) EVENT=events/(\w+)\.json", PAGE.read_text(encoding="utf-8"))
    assert {name for _, name in invoked} >= {"append_messages", "build_context", "compress_session", "create_snapshot"}
    for function, event in invoked:
        assert template.handlers[function] == handler_of(event)


def test_every_target_of_the_page_is_a_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", PAGE.read_text(encoding="utf-8"))) <= targets


def test_the_environment_is_the_one_of_the_template(template: Template, tool: ModuleType) -> None:
    assert _environments() == tool.environments(), "python tools/local_stack.py env > events/env.json"
    assert _environments().keys() == template.handlers.keys()


def test_the_local_template_declares_the_endpoint(tool: ModuleType, tmp_path: Path) -> None:
    built = tmp_path / "template.yaml"
    shutil.copy(template_path(), built)
    tool.write_local_template(built, tmp_path / "local.yaml")
    functions = dict(expand(tmp_path / "local.yaml").of_type("AWS::Lambda::Function"))
    for name, item in _environments().items():
        # `sam local` passes on no other variable.
        assert item.keys() <= functions[name]["Environment"]["Variables"].keys()
        assert functions[name]["Environment"]["Variables"][tool.ENDPOINT] == ""
    with pytest.raises(InvalidInputError, match="beside"):
        tool.write_local_template(built, tmp_path / "elsewhere" / "local.yaml")


@pytest.mark.parametrize("target", ["sam-invoke", "sam-api"])
def test_without_docker_a_target_says_so_in_one_line(tmp_path: Path, target: str) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    ended = subprocess.run(
        ["make", "--silent", "-f", str(MAKEFILE), target],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode != 0 and ended.stdout == ""
    said = [line for line in ended.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1 and "sam local needs Docker" in said[0]


def test_a_template_that_is_not_there_is_named(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = tmp_path / "template.yaml"
    assert tool.main(["template", str(built), str(tmp_path / "local.yaml")]) == 1
    assert capsys.readouterr().err == f"local_stack: {built}: No such file or directory\n"


@pytest.fixture
def resources() -> Iterator[str]:
    """The address of what `make sam-resources` serves."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "tools" / "local_stack.py"), "serve", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith(f"moto serves http://127.0.0.1:{port};"), process.communicate()
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        assert (process.communicate(timeout=30)[1], process.returncode) == ("", 0)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.full
@pytest.mark.network
def test_the_events_are_answered_over_the_served_resources(
    resources: str, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `sam-invoke` does, without the container: each handler with its variables of events/env.json."""
    function_of = {handler: name for name, handler in template.handlers.items()}
    for name in [name for name in os.environ if name.startswith(("AWS_", "TURNLOG_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")

    def invoke(name: str, event: dict[str, Any]) -> dict[str, Any]:
        handler = handler_of(name)
        for variable, value in _environments()[function_of[handler]].items():
            monkeypatch.setenv(variable, value.replace("http://host.docker.internal:5555", resources))
        return load(handler)(event, Context())

    answers = run_events(invoke)
    for name, status in RUNS.items():
        if status:
            assert answers[name]["statusCode"] == status, answers[name]["body"]
        elif name.startswith("sqs_"):
            assert answers[name] == {"batchItemFailures": []}
    assert json.loads(answers["get_summary"]["body"])["position"] > 0
