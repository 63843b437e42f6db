"""Routes of the HTTP API: the route table, requests, responses, parameters, and the checks before an endpoint is called.

The Lambda resolver, the local server, the library in process and openapi.json are all made from the table. Each resource has
a module of its own with its routes, which parse a request, make one call, and shape the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.identity import Owner, serving
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import Answer

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from turnlog.app import Application
    from turnlog.log.links import Download


B = TypeVar("B", bound=BaseModel)
MAX_POSITION = 999_999_999_999
CORRELATION_HEADER = "X-Correlation-Id"
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_TYPES = (JSON, "application/merge-patch+json")
"""Media types of bodies that every route takes. A merge patch is a JSON object too."""


@lazy_dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, independent of its transport. ``body`` is parsed JSON that has passed `check_json`, or None."""

    owner: Owner
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    idempotency_key: str | None = None
    media_type: str = JSON


@lazy_dataclass(frozen=True, slots=True)
class Response:
    """An HTTP status with an answer."""

    status: int
    answer: Answer | JsonObject | Download


Endpoint: TypeAlias = "Callable[[Application, HttpRequest], Response]"


@lazy_dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter. ``values`` lists the values that a string may have; empty means any."""

    name: str
    kind: Literal["integer", "string"]
    description: str
    minimum: int | None = None
    maximum: int | None = None
    default: int | str | None = None
    values: tuple[str, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class Route:
    """A route of the API.

    ``path`` has parameters in braces. ``resource`` is a key of `RESOURCES`. ``writes`` says that the route takes an
    ``Idempotency-Key``, ``free_body`` that its body has no model, ``is_file`` that its answer is bytes.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    name: str
    resource: str
    summary: str
    endpoint: Endpoint
    body: type[BaseModel] | None = None
    answers: Mapping[int, type[Answer]] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    writes: bool = False
    free_body: bool = False
    is_file: bool = False
    media_types: tuple[str, ...] = MERGE_TYPES


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
"""Resource -> the modules with its routes, below `turnlog`, in the order of openapi.json."""
SERVED_BY: Mapping[str, str] = {"recall": "messages", "search": "messages", "history": "state"}
"""Resource -> the resource whose Lambda function serves it too: nearly the same rights (ADR 50). The others have their own."""


def function_of(resource: str) -> str:
    """Return the name of the Lambda function that serves a resource."""
    return SERVED_BY.get(resource, resource)


def routes_of(function: str) -> tuple[Route, ...]:
    """Return the routes that a Lambda function serves, and load no other; empty for an unknown function."""
    return _routes_of(resource for resource in RESOURCES if function_of(resource) == function)


def _routes_of(resources: Iterable[str]) -> tuple[Route, ...]:
    modules = [import_module(f"turnlog.{name}") for resource in resources for name in RESOURCES[resource]]
    return tuple(route for module in modules for route in module.ROUTES)


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


CURSOR = Parameter("cursor", "string", "`next_cursor` of the page before")


def call(app: Application, route: Route, request: HttpRequest) -> Response:
    """Check a request's query parameters, then call the route's endpoint for the tenant of the request's owner.

    Raises `InvalidInputError` for a bad parameter or an unexpected body.
    """
    known = {parameter.name: parameter for parameter in route.parameters}
    for name, value in request.query.items():
        parameter = known.get(name)
        if parameter is None:
            raise invalid_parameter(f"/query/{name}", f"unknown query parameter {name[:64]!r}")
        if parameter.values and value not in parameter.values:
            raise invalid_parameter(f"/query/{name}", f"{name} is not one of {', '.join(parameter.values)}")
    if route.body is None and not route.free_body and request.body is not None:
        raise invalid_parameter("", f"{route.method} {route.path} takes no body")
    with serving(request.owner.tenant_id):
        return route.endpoint(app, request)


def read_body(request: HttpRequest, model: type[B], *, is_optional: bool = False) -> B:
    """Return the body as an instance of the model. A missing body gives the model's defaults if ``is_optional``.

    Raises `InvalidInputError` with up to 20 problems and their pointers, without contents of the body.
    """
    if request.body is None and is_optional:
        return model()
    if not isinstance(request.body, dict):
        raise not_an_object()
    try:
        return model.model_validate(request.body, strict=True)
    except ValidationError as error:
        problems = [
            Problem(detail["type"], _pointer(request.body, detail), _words(detail))
            for detail in error.errors(include_url=False, include_input=False, include_context=False)[:20]
        ]
        raise InvalidInputError(f"{problems[0].pointer or 'body'}: {problems[0].message}", problems=problems) from error


_MISSING = "missing"
_WORDS = {"extra_forbidden": "unknown field", _MISSING: "the field is missing", "model_type": "not an object"}


def _words(error: ErrorDetails) -> str:
    """Return what is wrong, in the words of the model's own check where it has one."""
    return _WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))


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
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1")[:128] for part in parts)


def integer(request: HttpRequest, parameter: Parameter) -> int | None:
    """Return an integer query parameter, or None when it is missing.

    Raises `InvalidInputError` when it is outside its limits.
    """
    text = request.query.get(parameter.name)
    if text is None:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
    low, high = parameter.minimum, parameter.maximum
    if value is None or (low is not None and value < low) or (high is not None and value > high):
        raise invalid_parameter(f"/query/{parameter.name}", f"{parameter.name} is not an integer from {low} to {high}")
    return value


def moment(request: HttpRequest, parameter: Parameter) -> int | str | None:
    """Return a query parameter that is a position or a time as text; None when it is missing."""
    text = request.query.get(parameter.name)
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 15):
        return text
    if not 1 <= int(text) <= MAX_POSITION:
        raise invalid_parameter(
            f"/query/{parameter.name}", f"{parameter.name} is not a position from 1 to {MAX_POSITION}"
        )
    return int(text)


def not_an_object() -> InvalidInputError:
    """Return the error for a body that is not a JSON object."""
    return invalid_parameter("", "the body is not a JSON object")


def invalid_parameter(pointer: str, message: str) -> InvalidInputError:
    """Return the error for a bad parameter or body at a JSON pointer."""
    return InvalidInputError(message, problems=[Problem("invalid_parameter", pointer, message)])
