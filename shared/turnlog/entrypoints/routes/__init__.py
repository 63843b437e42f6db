"""The route table: each route parses, makes one call, and shapes the answer. A module for each resource.

Everything that serves the API is made from this table: the Lambda resolver, the local server, the library in process, and
docs/openapi.json. `routes_of` loads one resource; the first use of `ROUTES` or `BY_NAME` loads all.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnlog.entrypoints.routing import Parameter, Request, Response, Route, call, read_body

if TYPE_CHECKING:
    from turnlog.entrypoints.routes.table import BY_NAME, ROUTES

__all__ = [
    "BY_NAME",
    "RESOURCES",
    "ROUTES",
    "Parameter",
    "Request",
    "Response",
    "Route",
    "call",
    "read_body",
    "routes_of",
]

RESOURCES: Mapping[str, tuple[str, ...]] = {
    "append": ("append",),
    "build_context": ("build_context",),
    "compress": ("compress",),
    "erase": ("erase",),
    "export": ("export",),
    "health": ("health",),
    "history": ("history",),
    "jobs": ("jobs",),
    "lint": ("lint",),
    "memory": ("memory",),
    "messages": ("messages",),
    "recall": ("recall",),
    "search": ("search",),
    "sessions": ("sessions",),
    "snapshot": ("snapshot",),
    "state": ("state", "agents", "documents"),
}
"""Resource, which is the name of its function -> the modules of this package that have its routes."""


def routes_of(resource: str) -> tuple[Route, ...]:
    """The routes that one function serves; none for a name that is no resource. Loads no other resource."""
    modules = [import_module(f"{__name__}.{name}") for name in RESOURCES.get(resource, ())]
    return tuple(route for module in modules for route in module.ROUTES)


def __getattr__(name: str) -> Any:
    if name not in ("BY_NAME", "ROUTES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.table"), name)
