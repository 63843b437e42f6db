"""The route table: each route parses, makes one call, and shapes the answer.

Everything that serves the API is made from this table: the Lambda resolver, the local server, the library in process, and
docs/openapi.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ValidationError

from turnlog.bootstrap import Application
from turnlog.contracts.agents import AgentState, Health
from turnlog.contracts.base import FORMATS, Answer
from turnlog.contracts.context import BuildContext, BuildWindow, WindowAnswer
from turnlog.contracts.jobs import Job, JobPage
from turnlog.contracts.messages import Appended, AppendMessages, LoopPage, MessagePage
from turnlog.contracts.recall import (
    DEFAULT_RECALL_TOKENS,
    MAX_RECALL_TOKENS,
    Recalled,
    RecallQuery,
    SearchAnswer,
    SearchQuery,
)
from turnlog.contracts.sessions import CreateSession, Session, SessionPage
from turnlog.contracts.snapshots import CreateSnapshot, Snapshot, SnapshotPage, WholeSnapshot
from turnlog.contracts.summaries import Compressed, CompressSession, SummaryAnswer
from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.session import SCHEMA_VERSION
from turnlog.version import __version__

B = TypeVar("B", bound=BaseModel)
MAX_POSITION = 999_999_999_999


@dataclass(frozen=True, slots=True)
class Request:
    """A request, independent of how it came: ``body`` is parsed JSON that has passed `check_json`, or None."""

    owner: Owner
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    answer: Answer | JsonObject


Endpoint = Callable[[Application, Request], Response]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter. ``values`` closes a string to these."""

    name: str
    kind: Literal["integer", "string"]
    description: str
    minimum: int | None = None
    maximum: int | None = None
    default: int | str | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` has parameters in braces. ``writes``: it takes an ``Idempotency-Key``. ``resource`` names its function."""

    method: Literal["GET", "POST", "PATCH"]
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


def _create(app: Application, request: Request) -> Response:
    created = app.create_session(request.owner, read_body(request, CreateSession), key=request.idempotency_key)
    return Response(201 if created.is_new else 200, created.session)


def _list(app: Application, request: Request) -> Response:
    status = cast("Literal['active', 'ended'] | None", request.query.get("status"))
    limit = _integer(request, _LIST_LIMIT)
    return Response(
        200, app.list_sessions(request.owner, limit=limit or 20, cursor=request.query.get("cursor"), status=status)
    )


def _get(app: Application, request: Request) -> Response:
    return Response(200, app.get_session(request.owner, request.path["session_id"]))


def _append(app: Application, request: Request) -> Response:
    body = read_body(request, AppendMessages)
    return Response(
        201, app.append_messages(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    )


def _messages(app: Application, request: Request) -> Response:
    page = app.read_messages(
        request.owner,
        request.path["session_id"],
        after=_integer(request, _AFTER) or 0,
        before=_integer(request, _BEFORE),
        limit=_integer(request, _PAGE_LIMIT) or 100,
        order=cast("Literal['asc', 'desc']", request.query.get("order", "asc")),
        format=request.query.get("format"),
    )
    return Response(200, page)


def _loops(app: Application, request: Request) -> Response:
    limit, before = _integer(request, _LOOP_LIMIT), _integer(request, _BEFORE_LOOP)
    return Response(200, app.read_loops(request.owner, request.path["session_id"], limit=limit or 20, before=before))


def _context(app: Application, request: Request) -> Response:
    return Response(200, app.build_context(request.owner, request.path["session_id"], read_body(request, BuildContext)))


def _window(app: Application, request: Request) -> Response:
    return Response(200, app.build_window(read_body(request, BuildWindow)))


def _recall(app: Application, request: Request) -> Response:
    query = RecallQuery(
        ref=request.query.get("ref"),
        call_id=request.query.get("call_id"),
        pattern=request.query.get("pattern"),
        from_line=_integer(request, _FROM_LINE),
        to_line=_integer(request, _TO_LINE),
        pointer=request.query.get("pointer"),
        max_tokens=_integer(request, _RECALL_TOKENS) or DEFAULT_RECALL_TOKENS,
    )
    return Response(200, app.recall(request.owner, request.path["session_id"], query))


def _search(app: Application, request: Request) -> Response:
    query = SearchQuery(
        q=request.query.get("q", ""),
        limit=_integer(request, _SEARCH_LIMIT) or 10,
        role=request.query.get("role"),
        loop=_integer(request, _OF_LOOP),
        tool=request.query.get("tool"),
    )
    return Response(200, app.search_session(request.owner, request.path["session_id"], query))


def _get_agent(app: Application, request: Request) -> Response:
    return Response(200, app.get_agent(request.owner, request.path["session_id"], request.path["agent_id"]))


def _patch_agent(app: Application, request: Request) -> Response:
    if not isinstance(request.body, dict):
        raise _not_an_object()
    patch = cast("JsonObject", request.body)
    answer = app.patch_agent(
        request.owner, request.path["session_id"], request.path["agent_id"], patch, key=request.idempotency_key
    )
    return Response(200, answer)


def _compress(app: Application, request: Request) -> Response:
    body = read_body(request, CompressSession)
    answer = app.compress_session(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(202 if isinstance(answer, Job) else 200, answer)


def _get_summary(app: Application, request: Request) -> Response:
    return Response(200, app.get_summary(request.owner, request.path["session_id"]))


def _create_snapshot(app: Application, request: Request) -> Response:
    body = read_body(request, CreateSnapshot)
    answer = app.create_snapshot(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(202 if isinstance(answer, Job) else 201, answer)


def _list_snapshots(app: Application, request: Request) -> Response:
    page = app.list_snapshots(
        request.owner,
        request.path["session_id"],
        limit=_integer(request, _SNAPSHOT_LIMIT) or 50,
        cursor=request.query.get("cursor"),
        name=request.query.get("name"),
        agent=request.query.get("agent"),
    )
    return Response(200, page)


def _get_snapshot(app: Application, request: Request) -> Response:
    return Response(200, app.get_snapshot(request.owner, request.path["session_id"], request.path["snapshot"]))


def _get_job(app: Application, request: Request) -> Response:
    return Response(200, app.get_job(request.owner, request.path["job_id"]))


def _list_jobs(app: Application, request: Request) -> Response:
    status = cast("Literal['queued', 'done', 'failed'] | None", request.query.get("status"))
    limit = _integer(request, _JOB_LIMIT) or 20
    return Response(200, app.list_jobs(request.owner, limit=limit, cursor=request.query.get("cursor"), status=status))


def _health(app: Application, request: Request) -> Response:
    return Response(
        200, Health(status="ok", version=__version__, engine=app.engine.name, schema_version=SCHEMA_VERSION)
    )


def _openapi(app: Application, request: Request) -> Response:
    from turnlog.entrypoints.openapi import openapi_document

    return Response(200, openapi_document())


_LIST_LIMIT = Parameter("limit", "integer", "Sessions a page", 1, 100, 20)
_PAGE_LIMIT = Parameter("limit", "integer", "Messages a page; a page ends after 4 MB", 1, 100, 100)
_LOOP_LIMIT = Parameter("limit", "integer", "Loops a page", 1, 100, 20)
_AFTER = Parameter("after", "integer", "Positions greater than this", 0, MAX_POSITION)
_BEFORE = Parameter("before", "integer", "Positions smaller than this", 1, MAX_POSITION)
_SNAPSHOT_LIMIT = Parameter("limit", "integer", "Snapshots a page", 1, 100, 50)
_JOB_LIMIT = Parameter("limit", "integer", "Jobs a page", 1, 100, 20)
_CURSOR = Parameter("cursor", "string", "`next_cursor` of the page before")
_BEFORE_LOOP = Parameter("before", "integer", "Loops with a smaller number", 1, MAX_POSITION)
_FROM_LINE = Parameter("from_line", "integer", "The first line, counted from 1", 1, MAX_POSITION)
_TO_LINE = Parameter("to_line", "integer", "The last line", 1, MAX_POSITION)
_RECALL_TOKENS = Parameter("max_tokens", "integer", "Cut at so many", 64, MAX_RECALL_TOKENS, DEFAULT_RECALL_TOKENS)
_SEARCH_LIMIT = Parameter("limit", "integer", "Results at most", 1, 50, 10)
_OF_LOOP = Parameter("loop", "integer", "Only messages of this loop", 1, MAX_POSITION)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions",
        "create_session",
        "sessions",
        "Create a session",
        _create,
        CreateSession,
        {201: Session, 200: Session},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions",
        "list_sessions",
        "sessions",
        "The caller's sessions, newest activity first",
        _list,
        answers={200: SessionPage},
        parameters=(
            _LIST_LIMIT,
            _CURSOR,
            Parameter("status", "string", "Only sessions of this status", values=("active", "ended")),
        ),
    ),
    Route("GET", "/v1/sessions/{session_id}", "get_session", "sessions", "One session", _get, answers={200: Session}),
    Route(
        "POST",
        "/v1/sessions/{session_id}/messages",
        "append_messages",
        "append",
        "Append 1 to 25 messages in one commit",
        _append,
        AppendMessages,
        {201: Appended},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/messages",
        "read_messages",
        "messages",
        "The full history",
        _messages,
        answers={200: MessagePage},
        parameters=(
            _AFTER,
            _BEFORE,
            _PAGE_LIMIT,
            Parameter("order", "string", "By position", default="asc", values=("asc", "desc")),
            Parameter("format", "string", "Convert bodies to this format", values=FORMATS),
        ),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/loops",
        "read_loops",
        "messages",
        "Run loops, newest first",
        _loops,
        answers={200: LoopPage},
        parameters=(_LOOP_LIMIT, _BEFORE_LOOP),
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/context",
        "build_context",
        "build_context",
        "The window for the next model call",
        _context,
        BuildContext,
        {200: WindowAnswer},
    ),
    Route(
        "POST",
        "/v1/window",
        "build_window",
        "build_context",
        "A window over a list of messages; nothing is stored",
        _window,
        BuildWindow,
        {200: WindowAnswer},
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/recall",
        "recall",
        "recall",
        "A tool call and its result, whole or a part",
        _recall,
        answers={200: Recalled},
        parameters=(
            Parameter("ref", "string", "The call by its ref, position.index"),
            Parameter("call_id", "string", "The newest call of this id"),
            Parameter("pattern", "string", "Only lines that match this regular expression, numbered"),
            _FROM_LINE,
            _TO_LINE,
            Parameter("pointer", "string", "JSON pointer (RFC 6901) into a result that is JSON"),
            _RECALL_TOKENS,
        ),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/search",
        "search_session",
        "search",
        "The newest messages by the words of a question",
        _search,
        answers={200: SearchAnswer},
        parameters=(
            Parameter("q", "string", "The question, or some words"),
            _SEARCH_LIMIT,
            Parameter("role", "string", "Only messages of this role", values=("system", "user", "assistant", "tool")),
            _OF_LOOP,
            Parameter("tool", "string", "Only calls of this tool and their results"),
        ),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/agents/{agent_id}",
        "get_agent",
        "sessions",
        "The execution state of an agent",
        _get_agent,
        answers={200: AgentState},
    ),
    Route(
        "PATCH",
        "/v1/sessions/{session_id}/agents/{agent_id}",
        "patch_agent",
        "sessions",
        "Change an agent's execution state by a JSON Merge Patch",
        _patch_agent,
        answers={200: AgentState},
        writes=True,
        free_body=True,
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/compress",
        "compress_session",
        "compress",
        "Summarise closed loops; the log keeps them",
        _compress,
        CompressSession,
        {200: Compressed, 202: Job},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/summary",
        "get_summary",
        "compress",
        "The summary in force",
        _get_summary,
        answers={200: SummaryAnswer},
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/snapshots",
        "create_snapshot",
        "snapshot",
        "Name a point of the session",
        _create_snapshot,
        CreateSnapshot,
        {201: Snapshot, 202: Job},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/snapshots",
        "list_snapshots",
        "snapshot",
        "The session's snapshots, newest first",
        _list_snapshots,
        answers={200: SnapshotPage},
        parameters=(
            _SNAPSHOT_LIMIT,
            _CURSOR,
            Parameter("name", "string", "Only snapshots of this name"),
            Parameter("agent", "string", "Only snapshots of this agent"),
        ),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/snapshots/{snapshot}",
        "get_snapshot",
        "snapshot",
        "One snapshot, by id or name, with what the session was",
        _get_snapshot,
        answers={200: WholeSnapshot},
    ),
    Route("GET", "/v1/jobs/{job_id}", "get_job", "jobs", "One of the caller's jobs", _get_job, answers={200: Job}),
    Route(
        "GET",
        "/v1/jobs",
        "list_jobs",
        "jobs",
        "The caller's jobs, newest first",
        _list_jobs,
        answers={200: JobPage},
        parameters=(
            _JOB_LIMIT,
            _CURSOR,
            Parameter("status", "string", "Only jobs of this status", values=("queued", "done", "failed")),
        ),
    ),
    Route(
        "GET", "/v1/health", "health", "health", "Version, engine and schema version", _health, answers={200: Health}
    ),
    Route("GET", "/v1/openapi.json", "openapi", "health", "This description", _openapi),
)
BY_NAME: dict[str, Route] = {route.name: route for route in ROUTES}


def call(app: Application, route: Route, request: Request) -> Response:
    """One request through the table: its query parameters are checked, then its endpoint is called."""
    known = {parameter.name: parameter for parameter in route.parameters}
    for name, value in request.query.items():
        parameter = known.get(name)
        if parameter is None:
            raise _invalid(f"/query/{name}", f"unknown query parameter {name[:64]!r}")
        if parameter.values and value not in parameter.values:
            raise _invalid(f"/query/{name}", f"{name} is not one of {', '.join(parameter.values)}")
    if route.body is None and not route.free_body and request.body is not None:
        raise _invalid("", f"{route.method} {route.path} takes no body")
    return route.endpoint(app, request)


def routes_of(resource: str) -> tuple[Route, ...]:
    """The routes that one function serves."""
    return tuple(route for route in ROUTES if route.resource == resource)


def read_body(request: Request, model: type[B]) -> B:
    if request.body is None:
        if model in _BODY_OPTIONAL:
            return model()
        raise _not_an_object()
    if not isinstance(request.body, dict):
        raise _not_an_object()
    try:
        return model.model_validate(request.body, strict=True)
    except ValidationError as error:
        problems = [
            Problem(found["type"], _pointer(found["loc"]), _WORDS.get(found["type"], found["msg"]))
            for found in error.errors(include_url=False, include_input=False, include_context=False)[:20]
        ]
        raise InvalidInputError(f"{problems[0].pointer or 'body'}: {problems[0].message}", problems=problems) from error


_BODY_OPTIONAL = frozenset({BuildContext, CompressSession, CreateSnapshot})
_WORDS = {"extra_forbidden": "unknown field", "missing": "the field is missing"}


def _pointer(location: tuple[Any, ...]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1")[:128] for part in location)


def _integer(request: Request, parameter: Parameter) -> int | None:
    text = request.query.get(parameter.name)
    if text is None:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
    low, high = parameter.minimum, parameter.maximum
    if value is None or (low is not None and value < low) or (high is not None and value > high):
        raise _invalid(f"/query/{parameter.name}", f"{parameter.name} is not an integer from {low} to {high}")
    return value


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", pointer, message)])


def _not_an_object() -> InvalidInputError:
    return _invalid("", "the body is not a JSON object")
