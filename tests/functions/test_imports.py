"""A handler loads what its own routes take: no other resource's routes and shapes, no use case before it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from tests.conftest import ROOT
from turnlog.http import route_table as routes
from turnlog.http.route_table import RESOURCES, ROUTES, routes_of

LOADED_AT_MOST = {"api": 39, "workers": 25}
"""Modules of ours at import; they were 52 when one module had all routes. Each is a file that a cold start reads."""
API = sorted(path.stem for path in (ROOT / "functions" / "api").glob("*.py") if path.stem != "__init__")
WORKERS = sorted(path.stem for path in (ROOT / "functions" / "workers").glob("*.py") if path.stem != "__init__")


@cache
def loaded(module: str) -> frozenset[str]:
    """Our modules in a fresh process that has imported ``module``, which is as a cold start finds it."""
    code = f"import sys, json, {module}; print(json.dumps([n for n in sys.modules if n.split('.')[0] == 'turnlog']))"
    places = [str(ROOT / name) for name in ("functions", "shared", "layers/dependencies")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return frozenset(json.loads(ran.stdout))


@pytest.mark.parametrize("resource", API)
def test_a_handler_loads_its_own_routes_and_no_others(resource: str) -> None:
    package = f"{routes.__name__}."
    found = {name.removeprefix(package) for name in loaded(f"api.{resource}") if name.startswith(package)}
    assert found == set(RESOURCES[resource])


@pytest.mark.parametrize("module", [*(f"api.{name}" for name in API), *(f"workers.{name}" for name in WORKERS)])
def test_a_handler_loads_little(module: str) -> None:
    found = loaded(module)
    assert len(found) <= LOADED_AT_MOST[module.partition(".")[0]], sorted(found)
    unused = ("turnlog.log", "turnlog.services", "turnlog.windows", "turnlog.codecs", "turnlog.local", "turnlog.client")
    unused += ("turnlog.adapters.aws", "turnlog.core.summaries")
    if module != "api.memory":
        unused += ("turnlog.core.memory", "turnlog.core.messages")
    assert [name for name in found if name.startswith(unused)] == []


def test_the_resources_are_the_table() -> None:
    assert set(RESOURCES) == set(API) == {route.resource for route in ROUTES}
    for resource in RESOURCES:
        assert routes_of(resource) == tuple(route for route in ROUTES if route.resource == resource)
    assert routes_of("nothing") == ()


def test_a_module_of_routes_is_read_in_one_sitting() -> None:
    folder = ROOT / "shared" / "turnlog" / "entrypoints" / "routes"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__", "table"} == {
        name for names in RESOURCES.values() for name in names
    }
    assert max(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.glob("*.py")) < 300
