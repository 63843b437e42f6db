"""A handler loads what its own routes take: no other resource's routes and shapes, no use case before it is called."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.conftest import ROOT
from turnlog.routing import RESOURCES, ROUTES, SERVED_BY, function_of, routes_of

LOADED_AT_MOST = {"api": 24, "workers": 13}
"""Modules of ours at import. Each is a file that a cold start reads; they were 52 when one module had all routes."""
API = sorted(path.stem for path in (ROOT / "functions" / "api").glob("*.py") if path.stem != "__init__")
WORKERS = sorted(path.stem for path in (ROOT / "functions" / "workers").glob("*.py") if path.stem != "__init__")
MODULES = [*(f"api.{name}" for name in API), *(f"workers.{name}" for name in WORKERS)]


_LOADED = """
import json, os, sys
import aws_lambda_powertools, pydantic  # modules of others are not counted: they are loaded once

assert not [name for name in sys.modules if name.split(".")[0] == "turnlog"]
for module in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        __import__(module)
        print(json.dumps([module, [name for name in sys.modules if name.split(".")[0] == "turnlog"]]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, module
"""


@cache
def loaded() -> dict[str, frozenset[str]]:
    """Return our modules in a process that has imported a function's module, as a cold start does, by that module."""
    command = [sys.executable, "-c", _LOADED, *MODULES]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return {module: frozenset(names) for module, names in map(json.loads, ran.stdout.splitlines())}


def environment() -> dict[str, str]:
    places = [str(ROOT / name) for name in ("functions", "shared", "layers/dependencies")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


@pytest.mark.parametrize("function", API)
def test_a_handler_loads_its_own_routes_and_no_others(function: str) -> None:
    every = {f"turnlog.{module}" for module in RESOURCES.values()}
    own = {f"turnlog.{module}" for name, module in RESOURCES.items() if function_of(name) == function}
    assert loaded()[f"api.{function}"] & every == own


@pytest.mark.parametrize("module", MODULES)
def test_a_handler_loads_little(module: str) -> None:
    result = loaded()[module]
    assert len(result) <= LOADED_AT_MOST[module.partition(".")[0]], sorted(result)
    unused = re.compile(
        r"turnlog\.(log|windows|providers|client|agents|integrations|importers|server|cli|testing|engines\.\w+)\b"
        r"|turnlog\.(sessions|summaries|snapshots|search|memory|privacy|jobs|linter)\.(?!.*(models|routes)$)"
    )
    assert [name for name in result if unused.match(name)] == []


def test_the_resources_are_the_table() -> None:
    assert set(RESOURCES) == {*API, *SERVED_BY} == {route.resource for route in ROUTES}
    for function in API:
        assert routes_of(function) == tuple(route for route in ROUTES if function_of(route.resource) == function)
    assert routes_of("nothing") == ()


def test_every_module_of_routes_is_in_the_table() -> None:
    package = ROOT / "shared" / "turnlog"
    files = list(package.rglob("*routes.py"))
    assert {f"{path.parent.name}.{path.stem}" for path in files} == set(RESOURCES.values())
    assert max(len(path.read_text(encoding="utf-8").splitlines()) for path in files) < 300


_PREPARED = """
import json, os, sys
os.environ["AWS_LAMBDA_INITIALIZATION_TYPE"] = "on-demand"
import api.append
print(json.dumps(sorted(sys.modules)))
with open(sys.argv[1]) as event:
    answer = api.append.handler(json.load(event), None)
print(answer["statusCode"], answer["body"])
"""


@pytest.mark.parametrize("engine", ["dynamodb://t?bucket=b&region=eu-central-1", "nonsense://"])
def test_a_function_that_lambda_starts_is_prepared_before_its_first_request(engine: str) -> None:
    """Settings that are wrong do not keep it from starting: a request is told."""
    variables = {
        "TURNLOG_ENGINE": engine,
        "TURNLOG_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    ran = subprocess.run(
        [sys.executable, "-c", _PREPARED, ROOT / "events" / "append_messages.json"],
        env=environment() | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith('["')))
    prepared = {"botocore.client", "turnlog.sessions.append", "turnlog.engines.piece_counter"}.intersection(modules)
    assert len(prepared) == (3 if engine.startswith("dynamodb") else 0)
    assert ("is not prepared" in ran.stdout + ran.stderr) == (not prepared)
    assert "503" in ran.stdout if prepared else "nonsense://" in ran.stdout
