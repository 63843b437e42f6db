"""V3: schemathesis drives `turnlog serve` by its own OpenAPI document; no answer is a 5xx, every one is documented.

`make pr` tries a few requests for each route; `make full` the corner cases of the document too, with four seeds, of which one on
moto. Each route has a session of its own, with something of everything in it: what one route erases is there for the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import hypothesis
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
from turnlog.app import make_application
from turnlog.engines import SystemClock
from turnlog.http.openapi import openapi_document
from turnlog.routing import ROUTES
from turnlog.server.local_server import HttpServer, LocalServer
from turnlog.settings import Settings

pytestmark = pytest.mark.network
SCHEMA = schemathesis.openapi.from_dict(openapi_document())
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SEEDS = (1, 20, 300, 4_000)
ENGINES = ("sqlite", "moto") if is_full() else ("sqlite",)
ENDING = ("/end", "/reset", "/rewind", "/restore", "/redact")
"""Ends of paths after which a session is not what it was; as after DELETE."""


class Served:
    """The service's address, and ids of what is there for each route."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tried: set[str] = set()
        self.reached: set[str] = set()
        self._ids: dict[str, dict[str, str]] = {}
        self._made = 0

    def ids_for(self, label: str) -> dict[str, str]:
        """Made once for a route; anew each time where the route ends or erases them."""
        method, _, path = label.partition(" ")
        if label not in self._ids or method == "DELETE" or path.endswith(ENDING):
            self._ids[label] = self._make(label)
        return self._ids[label]

    def user_of(self, label: str) -> str:
        """Whoever is being erased can begin nothing until that is over."""
        return f"fuzz-{self._made}" if label == "DELETE /v1/users/me" else f"fuzz-{label}"

    def _make(self, label: str) -> dict[str, str]:
        self._made += 1
        session_id = f"s{self._made}"
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
            {"role": "assistant", "content": "done"},
        ]
        run = {"iteration": 1, "pending_action": {"tool": "f"}}
        self._post(label, "/v1/sessions", {"session_id": session_id, "state": {"a": 1}})
        self._post(label, f"/v1/sessions/{session_id}/messages", {"messages": messages, "run": run})
        self._post(label, f"/v1/sessions/{session_id}/documents", {"put": [{"key": "k", "data": "AAAA"}]})
        self._post(label, f"/v1/sessions/{session_id}/snapshots", {"name": "named"})
        ids = {"session_id": session_id, "agent_id": "main", "snapshot": "named", "position": "2"}
        if "{token}" in label:
            ids["token"] = str(self._post(label, f"/v1/sessions/{session_id}/export", {})["url"]).rpartition("/")[2]
        if "{job_id}" in label:
            ids["job_id"] = str(self._post(label, f"/v1/sessions/{session_id}/compress", {"mode": "async"})["job_id"])
        return ids

    def _post(self, label: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json", "X-Turnlog-User": self.user_of(label)}
        with urlopen(Request(f"{self.url}{path}", json.dumps(body).encode(), headers)) as answer:
            return json.load(answer)


@contextmanager
def served(engine: str, folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if engine == "moto":
            from turnlog.server.moto_engine import moto_service

            service = stack.enter_context(moto_service(SystemClock()))
            server = HttpServer(service.answer, port=0)
        else:
            url = f"sqlite:///{folder}/turnlog.db"
            app = make_application(Settings(engine=url, identity="jwt", token_counter="estimate"))
            stack.callback(app.close)
            server = LocalServer(app, SystemClock(), port=0)
        server.start()
        stack.callback(server.stop)
        yield server.url


@pytest.fixture(scope="module", params=ENGINES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(request.param, tmp_path_factory.mktemp("fuzz")) as url:
        yield Served(url)


def check(case: Any, service: Served) -> None:
    label = case.operation.label
    service.tried.add(label)
    ids = service.ids_for(label)
    for name, value in (case.path_parameters or {}).items():
        if name in ids and len(str(value)) % 4:  # of four, one is left as it was drawn
            case.path_parameters[name] = ids[name]
    case.headers["X-Turnlog-User"] = service.user_of(label)
    answer = case.call_and_validate(base_url=service.url, checks=CHECKS)
    if answer.status_code < 300:
        service.reached.add(label)


few = settings(
    max_examples=10 if is_full() else 3,
    deadline=None,
    derandomize=not is_full(),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
many = settings(few, max_examples=40, derandomize=False, database=None, phases=[Phase.explicit, Phase.generate])


@SCHEMA.parametrize()
@few
def test_v3_no_request_makes_a_5xx(case: Any, service: Served) -> None:
    check(case, service)


for _seed in SEEDS if is_full() else ():
    # On moto a request takes ten times as long: one seed of them there.
    @pytest.mark.parametrize("service", ENGINES if _seed == SEEDS[0] else ENGINES[:1], indirect=True)
    @SCHEMA.parametrize()
    @hypothesis.seed(_seed)
    @many
    def _seeded(case: Any, service: Served) -> None:
        check(case, service)

    globals()[f"test_v3_no_request_of_seed_{_seed}_makes_a_5xx"] = _seeded


def test_many_of_these_requests_do_something(service: Served) -> None:
    """After the others: else they would have shown nothing but refusals."""
    routes = {route.key for route in ROUTES}
    if not routes <= service.tried:
        pytest.skip("others of them ran in another process")
    assert service.reached <= routes
    assert len(service.reached) >= len(routes) * 2 // 3, sorted(routes - service.reached)
