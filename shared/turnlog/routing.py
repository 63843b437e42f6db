"""Routes of the HTTP API: the route table, requests, responses, parameters, and the checks before an endpoint is called.

The Lambda resolver, the local server, the library in process and openapi.json are all made from the table. Each resource has
a module of its own with its routes, which parse a request, make one call, and shape the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from turnlog.core.errors import SHAPES, InvalidInputError, Problem, problem_text
from turnlog.core.identity import Owner, serving
from turnlog.core.json_values import JsonObject, json_pointer
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_POSITION
from turnlog.core.models import Answer

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from turnlog.app import Application
    from turnlog.log.links import Download


B = TypeVar("B", bound=BaseModel)
CORRELATION_HEADER = "X-Correlation-Id"
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_TYPES = (JSON, "application/merge-patch+json")
"""Media types of bodies that every route takes. A merge patch is a JSON object too."""


@lazy_dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, independent of its transport.

    ``body`` is parsed JSON that has passed `checked_json`, an instance of the route's model, or None.

    ``is_operator`` says that the caller may see which sessions other users of its tenant have.
    """

    owner: Owner
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    idempotency_key: str | None = None
    media_type: str = JSON
    is_operator: bool = False


@lazy_dataclass(frozen=True, slots=True)
class Response:
    """An HTTP status with an answer."""

    status: int
    answer: Answer | JsonObject | Download


Query: TypeAlias = Mapping[str, Any]
"""The query parameters that a request has, checked and converted."""
Endpoint: TypeAlias = "Callable[[Application, HttpRequest, Query], Response]"


@lazy_dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter. A string may have one of ``values``, or what fits a ``pattern`` of `SHAPES`; without them any.

    ``minimum`` and ``maximum`` of a string are of its length, which the use case checks. A ``moment`` is a position or a time
    (RFC 3339), a ``flag`` is ``true`` or ``false``.
    """

    name: str
    kind: Literal["integer", "string", "moment", "flag"]
    description: str
    minimum: int | None = None
    maximum: int | None = None
    default: int | str | None = None
    values: tuple[str, ...] = ()
    pattern: str = ""
    required: bool = False


@lazy_dataclass(frozen=True, slots=True)
class Route:
    """A route of the API.

    ``key`` is the method and the path, with parameters in braces, as in ``GET /v1/jobs/{job_id}``. ``name`` is the use case of
    `Application` that the route calls: with the owner, the path's parameters, the body, the query parameters, and the key if the
    route writes. ``endpoint`` is called in its place.

    ``answers`` are by status; the type of an answer tells its status. ``writes`` says that the route takes an
    ``Idempotency-Key``, ``free_body`` that its body has no model, ``optional_body`` that a missing body is an empty one,
    ``is_file`` that its answer is bytes. ``resource``, a key of `RESOURCES`, is added when the route is loaded.
    """

    key: str
    name: str
    summary: str
    body: type[BaseModel] | None = None
    answers: Mapping[int, type[Answer]] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    endpoint: Endpoint | None = None
    writes: bool = False
    free_body: bool = False
    optional_body: bool = False
    is_file: bool = False
    media_types: tuple[str, ...] = MERGE_TYPES
    resource: str = ""

    @property
    def method(self) -> str:
        return self.key.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.key.partition(" ")[2]

    @property
    def path_names(self) -> list[str]:
        """The names of the path's parameters, in their order."""
        return [part[1:-1] for part in self.key.split("/") if part.startswith("{")]


RESOURCES: Mapping[str, str] = {
    "sessions": "sessions.routes",
    "append": "sessions.append_routes",
    "messages": "sessions.message_routes",
    "build_context": "sessions.context_routes",
    "lint": "linter.routes",
    "search": "search.routes",
    "state": "sessions.state_routes",
    "history": "sessions.history_routes",
    "compress": "summaries.routes",
    "snapshot": "snapshots.routes",
    "erase": "privacy.routes",
    "export": "snapshots.export_routes",
    "memory": "memory.routes",
    "jobs": "jobs.routes",
    "health": "http.health_routes",
}
"""Resource -> the module with its routes, below `turnlog`, in the order of openapi.json."""
SERVED_BY: Mapping[str, str] = {"search": "messages", "history": "state"}
"""Resource -> the resource whose Lambda function serves it too: nearly the same rights (ADR 50). The others have their own."""


def function_of(resource: str) -> str:
    """Return the name of the Lambda function that serves a resource."""
    return SERVED_BY.get(resource, resource)


def routes_of(function: str) -> tuple[Route, ...]:
    """Return the routes that a Lambda function serves, and load no other; empty for an unknown function."""
    return _routes_of(resource for resource in RESOURCES if function_of(resource) == function)


def _routes_of(resources: Iterable[str]) -> tuple[Route, ...]:
    modules = [(resource, import_module(f"turnlog.{RESOURCES[resource]}")) for resource in resources]
    return tuple(replace(route, resource=resource) for resource, module in modules for route in module.ROUTES)


ROUTES: tuple[Route, ...]
"""All routes, in the order of openapi.json. The first use of `ROUTES` or `BY_NAME` loads all resources."""
BY_NAME: dict[str, Route]


def __getattr__(name: str) -> Any:
    """Load all routes at the first use of `ROUTES` or `BY_NAME`."""
    if name not in ("BY_NAME", "ROUTES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    routes = _routes_of(RESOURCES)
    globals().update(ROUTES=routes, BY_NAME={route.name: route for route in routes})
    return globals()[name]


class RouteTable:
    """Routes by method and path. Among those that a path fits, the one with the fewest parameters is found."""

    def __init__(self, routes: Iterable[Route]) -> None:
        # Method and number of parts -> the places of the parts that are no parameters -> these parts -> the route.
        self._routes: dict[tuple[str, int], dict[tuple[int, ...], dict[tuple[str, ...], Route]]] = {}
        for route in sorted(routes, key=lambda route: len(route.path_names)):
            parts = route.path.split("/")
            places = tuple(place for place, part in enumerate(parts) if not part.startswith("{"))
            of_places = self._routes.setdefault((route.method, len(parts)), {}).setdefault(places, {})
            of_places[tuple([parts[place] for place in places])] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a request with the path's parameters, or None."""
        parts = path.split("/")
        for places, routes in self._routes.get((method, len(parts)), {}).items():
            route = routes.get(tuple([parts[place] for place in places]))
            values = [part for place, part in enumerate(parts) if place not in places]
            if route is not None and all(values):
                return route, dict(zip(route.path_names, values, strict=True))
        return None

    def methods_of(self, path: str) -> list[str]:
        """Return the methods that a path takes, sorted; none for an unknown path."""
        methods = {method for method, _ in self._routes if self.find(method, path)}
        return sorted(methods | {"HEAD"} if "GET" in methods else methods)


CURSOR = Parameter("cursor", "string", "`next_cursor` of the page before")


def call(app: Application, route: Route, request: HttpRequest) -> Response:
    """Check a request's query parameters, then call the route's use case for the tenant of the request's owner.

    Raises `InvalidInputError` for a bad parameter or an unexpected body.
    """
    query = dict[str, Any]()
    for name, text in request.query.items():
        parameter = next((parameter for parameter in route.parameters if parameter.name == name), None)
        if parameter is None:
            pointer = json_pointer(["query", name], max_chars=128)
            raise InvalidInputError.at(pointer, f"unknown query parameter {name[:64]!r}")
        query[name] = _value(parameter, text)
    for name in {parameter.name for parameter in route.parameters if parameter.required} - query.keys():
        raise InvalidInputError.at(f"/query/{name}", f"{name} is missing")
    if route.body is None and not route.free_body and request.body is not None:
        raise InvalidInputError.at("", f"{route.key} takes no body")
    with serving(request.owner.tenant_id):
        if route.endpoint is not None:
            return route.endpoint(app, request, query)
        arguments: list[Any] = [request.path[name] for name in route.path_names]
        if route.body is not None:
            arguments.append(read_body(request.body, route.body, is_optional=route.optional_body))
        elif route.free_body:
            arguments.append(_patch_in(request))
        if route.writes:
            query["key"] = request.idempotency_key
        answer = getattr(app, route.name)(request.owner, *arguments, **query)
        return Response(next(status for status, kind in route.answers.items() if isinstance(answer, kind)), answer)


def _patch_in(request: HttpRequest) -> object:
    """Return a body that has no model: a list of a JSON Patch, or an object."""
    if request.media_type == JSON_PATCH and not isinstance(request.body, list):
        raise InvalidInputError.at("", "a JSON Patch is a list of operations")
    if request.media_type != JSON_PATCH and not isinstance(request.body, dict):
        raise _not_an_object()
    return request.body


def read_body(body: object, model: type[B], *, is_optional: bool = False) -> B:
    """Return the body as an instance of the model. A missing body gives the model's defaults if ``is_optional``.

    Raises `InvalidInputError` with up to 20 problems and their pointers, without contents of the body.
    """
    if body is None and is_optional:
        return model()
    if isinstance(body, model):
        return body
    if not isinstance(body, dict):
        raise _not_an_object()
    try:
        return model.model_validate(body, strict=True)
    except ValidationError as error:
        problems = [
            Problem(detail["type"], pointer, problem_text(detail, pointer))
            for detail in error.errors(include_url=False, include_input=False)[:20]
            for pointer in [_pointer(body, detail)]
        ]
        first = problems[0]
        is_named = first.pointer.count("/") == 1 and first.pointer[1:] in first.message
        detail = first.message if is_named else f"{first.pointer or 'body'}: {first.message}"
        raise InvalidInputError(detail, problems=problems) from error


_MISSING = "missing"


def _pointer(body: Any, error: ErrorDetails) -> str:
    """Return the JSON pointer of an error in the body.

    The location of a pydantic error also names branches of unions, which the body does not have; they are left out.
    """
    parts, value = list[int | str](), body
    location = error["loc"]
    for part in location[:-1] if error["type"] == _MISSING else location:
        is_there = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if is_there:
            parts.append(part)
            value = value[part]
    parts += location[-1:] if error["type"] == _MISSING else ()
    return json_pointer(parts, max_chars=128)


def _value(parameter: Parameter, text: str) -> int | str | bool:
    """Return the value of a query parameter. Raises `InvalidInputError` when it is none of its values or outside its limits."""
    name, low, high = parameter.name, parameter.minimum, parameter.maximum
    if parameter.values and text not in parameter.values:
        raise InvalidInputError.at(f"/query/{name}", f"{name} is not one of {', '.join(parameter.values)}")
    if parameter.pattern and not re.fullmatch(parameter.pattern, text):
        raise InvalidInputError.at(f"/query/{name}", f"{name} is not {SHAPES[parameter.pattern]}")
    if parameter.kind == "flag":
        return text == "true"
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
    if parameter.kind == "integer":
        if number is None or (low is not None and number < low) or (high is not None and number > high):
            raise InvalidInputError.at(f"/query/{name}", f"{name} is not an integer from {low} to {high}")
        return number
    if parameter.kind == "string" or number is None:
        return text
    if not 1 <= number <= MAX_POSITION:
        raise InvalidInputError.at(f"/query/{name}", f"{name} is not a position from 1 to the head")
    return number


def _not_an_object() -> InvalidInputError:
    return InvalidInputError.at("", "the body is not a JSON object")
