"""V3: schemathesis drives `turnlog serve` by its own OpenAPI document; no answer is a 5xx, every one is documented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.effort import is_full
from turnlog.adapters.system import SystemClock
from turnlog.bootstrap import make_application
from turnlog.entrypoints.openapi import openapi_document
from turnlog.local.server import LocalServer
from turnlog.settings import Settings

pytestmark = pytest.mark.network
SCHEMA = schemathesis.openapi.from_dict(openapi_document())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    app = make_application(Settings(engine=f"sqlite:///{folder}/turnlog.db", identity="jwt", token_counter="estimate"))
    server = LocalServer(app, SystemClock(), port=0).start()
    import json
    from urllib.request import Request, urlopen

    body = json.dumps({"session_id": "s", "state": {"agents": {"main": {"agent_id": "main"}}}}).encode()
    urlopen(Request(f"{server.url}/v1/sessions", body, {"Content-Type": "application/json"})).close()
    yield server.url
    server.stop()
    app.close()


@SCHEMA.parametrize()
@settings(
    max_examples=25 if is_full() else 10,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
def test_v3_no_request_makes_a_5xx(case: Any, url: str) -> None:
    if "session_id" in (case.path_parameters or {}):
        case.path_parameters["session_id"] = "s"
    if "agent_id" in (case.path_parameters or {}):
        case.path_parameters["agent_id"] = "main"
    case.call_and_validate(
        base_url=url,
        checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
    )
