"""All routes of the API. A Lambda function loads only the routes of its resource: see `routes_of`."""

from __future__ import annotations

from turnlog.http import health_routes as health
from turnlog.jobs import routes as jobs
from turnlog.linter import routes as lint
from turnlog.memory import routes as memory
from turnlog.privacy import routes as erase
from turnlog.routing import Route
from turnlog.search import recall_routes as recall
from turnlog.search import routes as search
from turnlog.sessions import append_routes as append
from turnlog.sessions import context_routes as build_context
from turnlog.sessions import history_routes as history
from turnlog.sessions import message_routes as messages
from turnlog.sessions import routes as sessions
from turnlog.sessions import state_routes as state
from turnlog.snapshots import export_routes as export
from turnlog.snapshots import routes as snapshot
from turnlog.summaries import routes as compress

ROUTES: tuple[Route, ...] = (
    *sessions.ROUTES,
    *append.ROUTES,
    *messages.ROUTES,
    *build_context.ROUTES,
    *lint.ROUTES,
    *recall.ROUTES,
    *search.ROUTES,
    *state.ROUTES,
    *history.ROUTES,
    *compress.ROUTES,
    *snapshot.ROUTES,
    *erase.ROUTES,
    *export.ROUTES,
    *memory.ROUTES,
    *jobs.ROUTES,
    *health.ROUTES,
)
"""All routes, in the order of docs/openapi.json."""
BY_NAME: dict[str, Route] = {route.name: route for route in ROUTES}
