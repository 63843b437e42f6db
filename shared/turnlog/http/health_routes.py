"""The HTTP routes of health, with its answer, and of the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog import __version__
from turnlog.core.models import Answer
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.routing import HttpRequest, Query, Response, Route

if TYPE_CHECKING:
    from turnlog.app import Application


class Health(Answer):
    """The state of the service."""

    status: str
    version: str
    engine: str
    schema_version: int


def _health(app: Application, request: HttpRequest, query: Query) -> Response:
    return Response(
        200, Health(status="ok", version=__version__, engine=app.engine.name, schema_version=SCHEMA_VERSION)
    )


def _openapi(app: Application, request: HttpRequest, query: Query) -> Response:
    from turnlog.http.openapi import openapi_document

    return Response(200, openapi_document())


ROUTES: tuple[Route, ...] = (
    Route("GET /v1/health", "health", "Version, engine and schema version", answers={200: Health}, endpoint=_health),
    Route("GET /v1/openapi.json", "openapi", "This description", endpoint=_openapi),
)
