"""Measures the operations: own CPU time on the embedded engine, requests, capacity and bytes on DynamoDB."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from benchmarks.engines import Dynamo, Embedded, PortTimes
from benchmarks.scenarios import TENANT, USER, Call, Operation, Scene
from turnlog.core.errors import TurnlogError
from turnlog.core.json_values import encode_json
from turnlog.routing import BY_NAME, ROUTES

_PATIENCE_SECONDS = 1.5
_FEWEST_RUNS = 1
Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


@dataclass
class Row:
    """One operation at one length. ``requests`` are those to DynamoDB and, named ``blob_``, to the blob store."""

    operation: str
    messages: int
    own_ms: float | None = None
    handler_ms: float | None = None
    engine_ms: float | None = None
    port_calls: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] | None = None
    read_units: float | None = None
    write_units: float | None = None
    index_write_units: float | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    error: str | None = None
    over: list[str] = field(default_factory=list)
    has_budget: bool = False


def own_times(row: Row, operation: Operation, scene: Scene, engine: Embedded, handler: Handler, runs: int) -> None:
    """Measure own CPU time: that of the process during the call, less that of the threads while they are inside a port.

    Once as a call of the route table, once through the Lambda handler (event in, proxy answer out). The median of
    ``runs`` after one that is not counted; of fewer when they take long.
    """
    library = _timed(runs, operation, scene, engine.times, lambda call: call.send(engine.app))
    events = _timed(runs, operation, scene, engine.times, lambda event: _answered(handler(event, None)), event_of)
    row.own_ms, row.engine_ms = library[0], library[1]
    row.handler_ms = events[0]
    row.port_calls = library[2]


def _timed(
    runs: int,
    operation: Operation,
    scene: Scene,
    ports: PortTimes,
    act: Callable[[Any], object],
    form: Callable[[Call], Any] = lambda call: call,
) -> tuple[float, float, dict[str, int]]:
    own, engine, calls = list[float](), list[float](), Counter[str]()
    end = time.monotonic() + _PATIENCE_SECONDS
    for run in range(runs + 1):
        if run > min(runs, _FEWEST_RUNS) and time.monotonic() > end:
            break
        operation.before_each(scene)
        what = form(operation.make(scene))
        before, calls_before = ports.seconds, ports.calls.copy()
        start = time.process_time()
        act(what)
        total = time.process_time() - start
        if run:
            inside = ports.seconds - before
            own.append((total - inside) * 1_000)
            engine.append(inside * 1_000)
            calls = ports.calls - calls_before
    return statistics.median(own), statistics.median(engine), dict(calls)


def spending(row: Row, operation: Operation, scene: Scene, engine: Dynamo) -> None:
    """Count requests and capacity by the guard's meter, then the bytes of the same call from a client without it."""
    operation.before_each(scene)
    call, blobs = operation.make(scene), engine.blobs.calls.copy()
    with engine.guard.measure() as spent:
        call.send(engine.metered)
    row.requests = {**spent.requests, **(engine.blobs.calls - blobs)}
    row.read_units, row.write_units = spent.read_units, spent.write_units
    row.index_write_units = spent.index_write_units
    operation.before_each(scene)
    call, sent, received = operation.make(scene), engine.wire.sent, engine.wire.received
    call.send(engine.plain)
    row.sent_bytes, row.received_bytes = engine.wire.sent - sent, engine.wire.received - received


def judge(row: Row, operation: Operation) -> None:
    """Names what is over its budget."""
    budget = operation.budget
    requests = sum(row.requests.values()) if row.requests is not None else None
    figures = (
        ("requests", requests, budget.requests),
        ("RCU", row.read_units, budget.read_units),
        ("WCU", row.write_units, budget.write_units),
        ("own ms", row.own_ms, budget.own_ms),
    )
    row.has_budget = any(limit is not None for _, _, limit in figures)
    row.over = [
        f"{name} {figure:.4g} > {limit:g}"
        for name, figure, limit in figures
        if figure is not None and limit is not None and figure > limit
    ]


def measure(
    operations: Sequence[Operation], lengths: Sequence[int], dynamo: Dynamo, *, runs: int, say: Callable[[str], None]
) -> list[Row]:
    """Return a row of each operation at each length; a refused operation is a row with its error."""
    from turnlog.http.lambda_api import make_handler

    rows = list[Row]()
    for length in lengths:
        embedded = Embedded.make()
        handler = make_handler(ROUTES, embedded.app)
        say(f"{length:,} messages: embedded")
        scene = Scene.build(embedded.app, embedded.clock, length)
        measured = dynamo.most_messages is None or length <= dynamo.most_messages
        if measured:
            say(f"{length:,} messages: {dynamo.name}")
        metered = (
            Scene.build(dynamo.plain, dynamo.clock, length, batches=dynamo.most_messages is not None)
            if measured
            else None
        )
        for operation in operations:
            if operation.once and length != lengths[0]:
                continue
            row = Row(operation.name, length)
            try:
                operation.prepare(scene)
                own_times(row, operation, scene, embedded, handler, runs)
                if metered is not None:
                    operation.prepare(metered)
                    spending(row, operation, metered, dynamo)
            except TurnlogError as error:
                row.error = f"{error.error_code}: {error.detail}"
            judge(row, operation)
            rows.append(row)
        embedded.app.close()
    return rows


def event_of(call: Call) -> dict[str, Any]:
    """Return the call as API Gateway's HTTP API sends it."""
    route = BY_NAME[call.operation]
    path = route.path
    for name, value in call.path.items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    query = {name: str(value) for name, value in call.query.items() if value is not None}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": f"{route.method} {route.path}",
        "rawPath": path,
        "rawQueryString": urlencode(query),
        "headers": {"content-type": "application/json", "host": "bench"},
        "requestContext": {
            "authorizer": {
                "iam": {"accountId": TENANT, "userArn": f"arn:aws:sts::{TENANT}:assumed-role/{USER}/session"}
            },
            "http": {"method": route.method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"},
            "requestId": "request-1",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }
    if query:
        event["queryStringParameters"] = query
    if call.body is not None:
        event["body"] = encode_json(dict(call.body)).decode()
    return event


def _answered(answer: Mapping[str, Any]) -> None:
    if answer["statusCode"] >= 300:
        raise AssertionError(f"the handler answered {answer['statusCode']}: {answer['body'][:300]}")
