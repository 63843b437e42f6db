"""The route table. Each route parses a request, makes one call, and shapes the answer; each resource has modules of its own.

The Lambda resolver, the local server, the library in process and docs/openapi.json are all made from this table. `routes_of`
loads one resource; the first use of `ROUTES` or `BY_NAME` loads all.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnlog.routing import Route

    ROUTES: tuple[Route, ...]
    BY_NAME: dict[str, Route]

RESOURCES: Mapping[str, tuple[str, ...]] = {
    "sessions": ("sessions.routes",),
    "append": ("sessions.append_routes",),
    "messages": ("sessions.message_routes",),
    "build_context": ("sessions.context_routes",),
    "lint": ("linter.routes",),
    "recall": ("search.recall_routes",),
    "search": ("search.routes",),
    "state": ("sessions.state_routes",),
    "history": ("sessions.history_routes",),
    "compress": ("summaries.routes",),
    "snapshot": ("snapshots.routes",),
    "erase": ("privacy.routes",),
    "export": ("snapshots.export_routes",),
    "memory": ("memory.routes",),
    "jobs": ("jobs.routes",),
    "health": ("http.health_routes",),
}
"""Resource -> the modules with its routes, below `turnlog`, in the order of docs/openapi.json. The resource is also the name of its
Lambda function."""


def routes_of(resource: str) -> tuple[Route, ...]:
    """Return the routes of a resource, and load no other; empty for an unknown resource."""
    modules = [import_module(f"turnlog.{name}") for name in RESOURCES.get(resource, ())]
    return tuple(route for module in modules for route in module.ROUTES)


def __getattr__(name: str) -> Any:
    """Load all routes at the first use of `ROUTES` or `BY_NAME`."""
    if name not in ("BY_NAME", "ROUTES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    routes = tuple(route for resource in RESOURCES for route in routes_of(resource))
    globals().update(ROUTES=routes, BY_NAME={route.name: route for route in routes})
    return globals()[name]
