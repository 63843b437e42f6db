"""The whole table. A Lambda function takes the routes of its resource only: `routes_of`."""

from __future__ import annotations

from turnlog.entrypoints.routes import (
    agents,
    append,
    build_context,
    compress,
    documents,
    erase,
    export,
    health,
    history,
    jobs,
    lint,
    memory,
    messages,
    recall,
    search,
    sessions,
    snapshot,
    state,
)
from turnlog.entrypoints.routing import Route

ROUTES: tuple[Route, ...] = (
    *sessions.ROUTES,
    *append.ROUTES,
    *messages.ROUTES,
    *build_context.ROUTES,
    *lint.ROUTES,
    *recall.ROUTES,
    *search.ROUTES,
    *state.ROUTES,
    *agents.ROUTES,
    *documents.ROUTES,
    *history.ROUTES,
    *compress.ROUTES,
    *snapshot.ROUTES,
    *erase.ROUTES,
    *export.ROUTES,
    *memory.ROUTES,
    *jobs.ROUTES,
    *health.ROUTES,
)
"""In the order of docs/openapi.json."""
BY_NAME: dict[str, Route] = {route.name: route for route in ROUTES}
