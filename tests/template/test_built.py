"""The built functions in the Lambda runtime, with the built layers and nothing else, without a network.

`make build-test` builds for this machine and runs these. Elsewhere they are skipped where there is no build of these sources.
"""

from __future__ import annotations

import base64
import filecmp
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.functions.events import load, read_event
from tests.http.events import event
from tools.finish_build import UNUSED
from turnlog.core.json_values import encode_json
from turnlog.core.limits import MAX_RESPONSE_BYTES
from turnlog.engines.aws_clients import SERVICES
from turnlog.server.stack import expand

BUILD = ROOT / ".aws-sam" / "host" / "build"
RUNTIME = ROOT / ".venv-lambda" / "bin" / "python"
MACHINE = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "")
MUST_RUN = os.environ.get("TURNLOG_TEST_BUILT") == "1"
LIMITS = {"DependenciesLayer": 30_000_000, "SharedLayer": 2_050_000}
"""Bytes zipped; of the shared one by docs/contributing/adr/0041. AWS's own limit is 250 MB for all of a function, unzipped."""
SOURCES_LIMIT = 729_000
"""Bytes zipped, of the shared layer without its bytecode: docs/contributing/adr/0041."""
_EMBEDDED = ("files", "sqlite", "sqlite_tables")
_MODULES = (*(f"engines/{name}.py" for name in _EMBEDDED), "jobs/redrive.py")
LEFT_OUT = tuple(
    map(Path, ("agents", "cli", "client", "importers", "integrations", "server", "testing", "upkeep", *_MODULES))
)
"""Of the package: what shared/Makefile leaves out of the layer."""
_NOWHERE = "http://127.0.0.1:9"


def emulator() -> Path | None:
    """The Runtime Interface Emulator that the SAM CLI's wheel has in it."""
    pattern = f"lib/python3.*/site-packages/samcli/local/rapid/aws-lambda-rie-{MACHINE}"
    return next((ROOT / ".venv-sam").glob(pattern), None)


def _missing() -> str | None:
    """Why the built functions can't run here."""
    if not (BUILD / "template.yaml").is_file():
        return "there is no build for this machine"
    if not RUNTIME.is_file():
        return "there is no .venv-lambda, the Lambda runtime's Python"
    if emulator() is None:
        return "there is no Runtime Interface Emulator in .venv-sam"
    if not _is_current():
        return "the build is of other sources"
    return None


def _is_current() -> bool:
    pairs = [
        (ROOT / "shared" / "turnlog", BUILD / "SharedLayer" / "python" / "turnlog"),
        (ROOT / "functions", BUILD / "AppendFunction"),
    ]
    for source, built in pairs:
        here, there = ({path.relative_to(root) for path in root.rglob("*.py")} for root in (source, built))
        here = {name for name in here if not any(map(name.is_relative_to, LEFT_OUT))}
        if here != there or any(not filecmp.cmp(source / name, built / name, shallow=False) for name in here):
            return False
    return True


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    reason = _missing()
    if reason is not None:
        (pytest.fail if MUST_RUN else pytest.skip)(f"{reason}: run `make build-test`")


def _environment(folder: Path) -> dict[str, str]:
    """A function's environment: its variables, the layers as Lambda mounts them with the engine that runs here added, and no
    way out."""
    shared, engines = folder / "shared", Path("turnlog") / "engines"
    if not shared.is_dir():
        shutil.copytree(BUILD / "SharedLayer" / "python", shared)
        for name in _EMBEDDED:
            shutil.copy(ROOT / "shared" / engines / f"{name}.py", shared / engines)
    layers = [str(BUILD / "DependenciesLayer" / "python"), str(shared)]
    made = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(layers),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_LAMBDA_FUNCTION_NAME": "turnlog-built",
        "TURNLOG_ENGINE": f"sqlite:///{folder}/turnlog.db",
        "TURNLOG_IDENTITY": "iam",
    }
    return made | dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _NOWHERE)


def _without_network() -> list[str]:
    """A command that gives a process a network namespace of its own, where that is permitted."""
    command = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        return []
    return command if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0 else []


def _invoke(
    handler: str, events: list[dict[str, Any]], folder: Path, *, stalls: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The answers of a function. ``stalls``: variables of its environment, where AWS is a socket that never answers."""
    function = f"{handler.split('.')[1].title().replace('_', '')}Function"
    prefix = _without_network()
    asked = {
        "emulator": str(emulator()),
        "python": str(RUNTIME),
        "folder": str(BUILD / function),
        "handler": handler,
        "environment": {**_environment(folder), "LAMBDA_TASK_ROOT": str(BUILD / function), **(stalls or {})},
        "events": events,
        "isolated": bool(prefix),
        "stalls": stalls is not None,
    }
    ran = subprocess.run(
        [*prefix, sys.executable, str(Path(__file__).with_name("invoke_built.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    content = json.loads(ran.stdout)
    assert content["offline"] or not prefix
    print(f"{handler}: {'no network' if content['offline'] else 'proxies that lead nowhere'}")
    answers: list[dict[str, Any]] = content["answers"]
    assert all("statusCode" in answer for answer in answers), content["log"]
    assert max(content["sizes"]) <= MAX_RESPONSE_BYTES, "as the runtime encodes them"
    print(f"{handler}: the largest answer has {max(content['sizes']):,} bytes")
    return answers


def test_the_runtime_answers_with_tokens_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (health,) = _invoke("api.health.handler", [read_event("health")], tmp_path)
    assert json.loads(health["body"])["engine"] == "sqlite"
    (created,) = _invoke("api.sessions.handler", [read_event("create_session")], tmp_path)
    assert created["statusCode"] == 201, created["body"]
    append = read_event("append_messages")
    first, again = _invoke("api.append.handler", [append, append], tmp_path)
    assert (first["statusCode"], again["statusCode"]) == (201, 201), first["body"]
    assert first["body"] == again["body"], "the idempotency key is known"

    monkeypatch.setenv("TURNLOG_ENGINE", f"sqlite:///{tmp_path}/here.db")
    load("api.sessions.handler")(read_event("create_session"), None)
    here = json.loads(load("api.append.handler")(append, None)["body"])
    assert here["tokens"] > 100
    assert json.loads(first["body"]) == here, "the layers count as we do"


@pytest.mark.parametrize("piece", ['"', "\n", "\u00e9", "\U0001f600"])
def test_a_large_state_passes_the_runtime(tmp_path: Path, piece: str) -> None:
    """It refuses an answer over 6,291,556 bytes, and escapes quotes that are escaped already."""
    (created,) = _invoke("api.sessions.handler", [event("POST", "/v1/sessions", body={"session_id": "s"})], tmp_path)
    assert created["statusCode"] == 201, created["body"]
    text = piece * (880_000 // (len(encode_json(piece)) - 2))
    path, names = "/v1/sessions/s/state", "abcde"
    patches = [event("PATCH", path, raw=encode_json({name: text}).decode()) for name in names]
    *changed, read = _invoke("api.state.handler", [*patches, event("GET", path)], tmp_path)
    assert [answer["statusCode"] for answer in changed] == [200] * len(names)
    body = base64.b64decode(read["body"]) if read["isBase64Encoded"] else read["body"]
    assert json.loads(body)["state"] == dict.fromkeys(names, text)


def test_a_table_that_stalls_is_a_503_before_the_runtime_ends_the_function(tmp_path: Path) -> None:
    stalls = {
        "TURNLOG_ENGINE": "dynamodb://t?bucket=b&region=eu-central-1",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": "14",
        "AWS_ACCESS_KEY_ID": "made-up",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_REGION": "eu-central-1",
    }
    (answer,) = _invoke("api.sessions.handler", [read_event("create_session")], tmp_path, stalls=stalls)
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "1"), answer["body"]


def test_the_built_template_has_every_alias_written_out() -> None:
    """CloudFormation reads no aliases. What is built makes what the source makes, but for where its code is."""
    text = (BUILD / "template.yaml").read_text(encoding="utf-8")
    events = {type(event) for event in yaml.parse(text)}
    assert yaml.AliasEvent not in events and "Turnlog::Shared" not in text
    built, source = (expand(folder / "template.yaml").resources for folder in (BUILD, ROOT))
    assert {name: item for name, item in built.items() if item["Type"] == "AWS::IAM::Role"} == {
        name: item for name, item in source.items() if item["Type"] == "AWS::IAM::Role"
    }
    same = {name for name in source if built.get(name) == source[name]}
    assert {source[name]["Type"] for name in source.keys() - same} <= {"AWS::Lambda::Function"}, "SamResourceId"
    assert {name.rstrip("0123456789abcdef") for name in built} == {name.rstrip("0123456789abcdef") for name in source}


def test_code_and_vocabulary_come_from_the_layers(tmp_path: Path) -> None:
    names = (
        "turnlog",
        "turnlog_vocabulary",
        "tiktoken",
        "pydantic",
        "pydantic_core",
        "botocore",
        "aws_lambda_powertools",
    )
    program = f"import json, sys\nfor name in {names!r}: __import__(name)\n"
    program += f"print(json.dumps([sys.modules[name].__file__ for name in {names!r}]))"
    ran = subprocess.run(
        [*_without_network(), str(RUNTIME), "-c", program],
        env={
            **_environment(tmp_path),
            "PYTHONPATH": os.pathsep.join(str(BUILD / layer / "python") for layer in LIMITS),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    values = dict(zip(names, map(Path, json.loads(ran.stdout)), strict=True))
    assert values.pop("turnlog").is_relative_to(BUILD / "SharedLayer" / "python")
    assert all(path.is_relative_to(BUILD / "DependenciesLayer" / "python") for path in values.values()), values


@pytest.mark.parametrize("layer", LIMITS)
def test_a_layer_is_small(layer: str) -> None:
    size = zipped_bytes(BUILD / layer)
    print(f"{layer}: {size:,} bytes zipped, the limit is {LIMITS[layer]:,}")
    assert size <= LIMITS[layer]


def test_our_sources_are_small() -> None:
    size = zipped_bytes(BUILD / "SharedLayer", bytecode=False)
    print(f"SharedLayer without bytecode: {size:,} bytes zipped, the limit is {SOURCES_LIMIT:,}")
    assert size <= SOURCES_LIMIT


def test_a_layer_has_one_folder_called_python() -> None:
    assert {path.name for layer in LIMITS for path in (BUILD / layer).iterdir()} == {"python"}
    assert {path.name for path in (BUILD / "SharedLayer" / "python").iterdir()} == {"turnlog"}


def test_nothing_is_compiled_at_a_start(tmp_path: Path) -> None:
    """Layers are read-only in Lambda: what has no bytecode there is compiled at every cold start."""
    program = (
        "import os, sys, api.append, workers.compress, tiktoken, botocore.session, turnlog.sessions.append\n"
        "found = [getattr(module, '__cached__', None) or '' for module in list(sys.modules.values())]\n"
        "found = [name for name in found if name.startswith(sys.argv[1])]\n"
        "is_ready = lambda name: os.path.isfile(name) and open(name, 'rb').read(8)[4:] == b'\\1\\0\\0\\0'\n"
        "print(len(found), *[name for name in found if not is_ready(name)])"
    )
    folders = [BUILD / "AppendFunction", *(BUILD / layer / "python" for layer in LIMITS)]
    ran = subprocess.run(
        [str(RUNTIME), "-c", program, str(BUILD)],
        env={**_environment(tmp_path), "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    count, *compiled = ran.stdout.split()
    assert int(count) > 300
    assert compiled == []


def test_what_no_function_uses_is_left_out() -> None:
    layer = BUILD / "DependenciesLayer" / "python"
    assert not [name for name in UNUSED if (layer / name).exists() or list(layer.glob(f"{name}-*"))]
    data = layer / "botocore" / "data"
    assert {path.name for path in data.iterdir() if path.is_dir()} == set(SERVICES)


def zipped_bytes(folder: Path, *, bytecode: bool = True) -> int:
    """The size of the archive that is uploaded."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if bytecode or "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(folder))
    return len(target.getvalue())
