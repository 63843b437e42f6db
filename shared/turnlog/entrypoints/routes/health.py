"""Health, and the description of the API."""

from __future__ import annotations

from turnlog.bootstrap import Application
from turnlog.contracts.agents import Health
from turnlog.domain.session import SCHEMA_VERSION
from turnlog.entrypoints.routing import Request, Response, Route
from turnlog.version import __version__


def _health(app: Application, request: Request) -> Response:
    return Response(
        200, Health(status="ok", version=__version__, engine=app.engine.name, schema_version=SCHEMA_VERSION)
    )


def _openapi(app: Application, request: Request) -> Response:
    from turnlog.entrypoints.openapi import openapi_document

    return Response(200, openapi_document())


ROUTES: tuple[Route, ...] = (
    Route(
        "GET", "/v1/health", "health", "health", "Version, engine and schema version", _health, answers={200: Health}
    ),
    Route("GET", "/v1/openapi.json", "openapi", "health", "This description", _openapi),
)
