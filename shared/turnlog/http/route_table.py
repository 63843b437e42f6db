"""The route table. Each route parses a request, makes one call, and shapes the answer; each resource has modules of its own.

The Lambda resolver, the local server, the library in process and docs/openapi.json are all made from this table. `routes_of`
loads one resource; the first use of `ROUTES` or `BY_NAME` loads all.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnlog.routing import HttpRequest, Parameter, Response, Route, call, read_body

if TYPE_CHECKING:
    from turnlog.http.all_routes import BY_NAME, ROUTES


__all__ = [
    "BY_NAME",
    "RESOURCES",
    "ROUTES",
    "HttpRequest",
    "Parameter",
    "Response",
    "Route",
    "call",
    "read_body",
    "routes_of",
]

RESOURCES: Mapping[str, tuple[str, ...]] = {
    "append": ("sessions.append_routes",),
    "build_context": ("sessions.context_routes",),
    "compress": ("summaries.routes",),
    "erase": ("privacy.routes",),
    "export": ("snapshots.export_routes",),
    "health": ("http.health_routes",),
    "history": ("sessions.history_routes",),
    "jobs": ("jobs.routes",),
    "lint": ("linter.routes",),
    "memory": ("memory.routes",),
    "messages": ("sessions.message_routes",),
    "recall": ("search.recall_routes",),
    "search": ("search.routes",),
    "sessions": ("sessions.routes",),
    "snapshot": ("snapshots.routes",),
    "state": ("sessions.state_routes",),
}
"""Resource -> the modules with its routes, below `turnlog`. The resource is also the name of its Lambda function."""


def routes_of(resource: str) -> tuple[Route, ...]:
    """Return the routes of a resource, and load no other; empty for an unknown resource."""
    modules = [import_module(f"turnlog.{name}") for name in RESOURCES.get(resource, ())]
    return tuple(route for module in modules for route in module.ROUTES)


def __getattr__(name: str) -> Any:
    if name not in ("BY_NAME", "ROUTES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("turnlog.http.all_routes"), name)
