# ruff: noqa: N803, N815 - parameters are named as in the service
"""AgentCore Memory's data plane on loopback: REST and JSON as botocore's own description of the service says, with its limits."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from botocore.loaders import create_loader
from botocore.model import ServiceModel

from turnlog.core.json_values import is_unicode

MEMORY_ID = "turnlog_memory-Ab12Cd34Ef"
ARN = f"arn:aws:bedrock-agentcore:eu-central-1:111122223333:memory/{MEMORY_ID}"
TEMPLATE = "/turnlog/{actorId}/{sessionId}/"


@functools.cache
def service() -> ServiceModel:
    return ServiceModel(create_loader().load_service_model("bedrock-agentcore", "service-2"), "bedrock-agentcore")


@functools.cache
def _routes() -> list[tuple[str, re.Pattern[str], str]]:
    routes = list[tuple[str, re.Pattern[str], str]]()
    for name in service().operation_names:
        http = service().operation_model(name).http
        path = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", http["requestUri"].split("?")[0])
        routes.append((http["method"], re.compile(path), name))
    return routes


class RefusedError(Exception):
    """An answer that is not 200."""

    def __init__(
        self, status: int, code: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.headers, self.body = status, code, headers or {}, body


@dataclass
class Event:
    id: str
    payload: list[Any]
    time: float
    metadata: dict[str, Any]
    is_extracted: bool = False


@dataclass
class AgentCore:
    """The service. ``calls`` are the operations that were asked for; ``before`` and ``after`` may raise `RefusedError`
    for one of them, before its effect or behind it. Memories are made when `settle` is called: one of each text of a user.
    """

    before: Callable[[str, dict[str, Any]], None] | None = None
    after: Callable[[str, dict[str, Any]], None] | None = None
    remembers_tokens: bool = True
    page_items: int = 100
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    events: dict[tuple[str, str], list[Event]] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._tokens: dict[str, Event] = {}
        self._lock = threading.Lock()
        self._made = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, content = outer.answer(self.command, self.path, body)
                try:
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(content))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True

            do_POST = do_GET = do_DELETE = _serve

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        try:
            name, asked = _understood(method, path, body)
            with self._lock:
                self.calls.append((name, asked))
                if self.before is not None:
                    self.before(name, asked)
                made = getattr(self, f"_{name}")(**{key: value for key, value in asked.items() if key != "memoryId"})
                if self.after is not None:
                    self.after(name, asked)
            return 200, {"Content-Type": "application/json"}, json.dumps(made).encode()
        except RefusedError as refused:
            said = json.dumps({"message": f"you sent {body.decode()}", "reason": "CannotParse"}).encode()
            content = refused.body if refused.body is not None else said
            headers = {"Content-Type": "application/json", "x-amzn-ErrorType": refused.code, **refused.headers}
            return refused.status, headers, content

    def settle(self) -> None:
        """Makes the memories of all events that are there."""
        with self._lock:
            for (actor, session), events in self.events.items():
                for event in events:
                    if not event.is_extracted:
                        event.is_extracted = True
                        self._extract(actor, session, event)

    def _extract(self, actor: str, session: str, event: Event) -> None:
        namespace = TEMPLATE.replace("{actorId}", actor).replace("{sessionId}", session)
        for at, part in enumerate(event.payload):
            said = part["conversational"]
            if said["role"] == "USER":
                self._made += 1
                digest = sha256(f"{self._made}".encode()).hexdigest()
                record = {
                    "memoryRecordId": f"mem-{digest[:40]}",
                    "content": {"text": said["content"]["text"][:16_000]},
                    "memoryStrategyId": "facts-0123456789",
                    "namespaces": [namespace],
                    "createdAt": event.time + 100 + at,
                    "timestamp": event.time + at,
                }
                self.records[record["memoryRecordId"]] = record

    def _CreateEvent(self, *, actorId: str, sessionId: str, **asked: Any) -> Any:
        known = self._tokens.get(asked["clientToken"]) if self.remembers_tokens else None
        if known is None:
            self._made += 1
            known = Event(
                f"{self._made:04d}#a{self._made:x}", asked["payload"], asked["eventTimestamp"], asked["metadata"]
            )
            self.events.setdefault((actorId, sessionId), []).append(known)
            self._tokens[asked["clientToken"]] = known
        return {"event": _shown(known, actorId, sessionId)}

    def _ListEvents(
        self, *, actorId: str, sessionId: str, maxResults: int = 20, nextToken: str = "0", **asked: Any
    ) -> Any:
        result = self.events.get((actorId, sessionId), [])
        for item in asked.get("filter", {}).get("eventMetadata", []):
            assert item["operator"] == "EQUALS_TO"
            name, value = item["left"]["metadataKey"], item["right"]["metadataValue"]
            result = [event for event in result if event.metadata.get(name) == value]
        page, following = self._page(result, maxResults, nextToken)
        return {"events": [_shown(event, actorId, sessionId, payload=[]) for event in page], **following}

    def _DeleteEvent(self, *, actorId: str, sessionId: str, eventId: str) -> Any:
        events = self.events.get((actorId, sessionId), [])
        if all(event.id != eventId for event in events):
            raise RefusedError(404, "ResourceNotFoundException")
        self.events[actorId, sessionId] = [event for event in events if event.id != eventId]
        return {"eventId": eventId}

    def _ListSessions(self, *, actorId: str, maxResults: int = 20, nextToken: str = "0") -> Any:
        # One without events is listed for a day.
        result = [session for actor, session in self.events if actor == actorId]
        page, following = self._page(result, maxResults, nextToken)
        sessions = [{"sessionId": session, "actorId": actorId, "createdAt": 1.0} for session in page]
        return {"sessionSummaries": sessions, **following}

    def _ListMemoryRecords(self, *, namespacePath: str, maxResults: int = 20, nextToken: str = "0") -> Any:
        page, following = self._page(list(self.below(namespacePath)), maxResults, nextToken)
        return {"memoryRecordSummaries": page, **following}

    def _RetrieveMemoryRecords(
        self, *, namespacePath: str, searchCriteria: dict[str, Any], maxResults: int = 20, nextToken: str = "0"
    ) -> Any:
        words = set(re.findall(r"\w+", searchCriteria["searchQuery"].lower()))

        def score(record: dict[str, Any]) -> float:
            return len(words & set(re.findall(r"\w+", record["content"]["text"].lower()))) / 10

        values = [{**record, "score": score(record)} for record in self.below(namespacePath)]
        values.sort(key=lambda record: -record["score"])
        page, following = self._page(values[: searchCriteria["topK"]], maxResults, nextToken)
        return {"memoryRecordSummaries": page, **following}

    def _BatchDeleteMemoryRecords(self, *, records: list[dict[str, Any]]) -> Any:
        done, failed = list[Any](), list[Any]()
        for record in records:
            name = record["memoryRecordId"]
            value = self.records.get(name)
            if value is None:
                failed.append({"memoryRecordId": name, "status": "FAILED", "errorCode": 404})
            elif name in self.kept or record["namespace"] not in value["namespaces"]:
                failed.append({"memoryRecordId": name, "status": "FAILED", "errorCode": 500})
            else:
                del self.records[name]
                done.append({"memoryRecordId": name, "status": "SUCCEEDED"})
        return {"successfulRecords": done, "failedRecords": failed}

    def below(self, path: str) -> Iterator[dict[str, Any]]:
        return (
            record for record in self.records.values() if any(name.startswith(path) for name in record["namespaces"])
        )

    def _page(self, found: list[Any], most: int, token: str) -> tuple[list[Any], dict[str, str]]:
        start, size = int(token), min(most, self.page_items)
        return found[start : start + size], {"nextToken": str(start + size)} if start + size < len(found) else {}


def _shown(event: Event, actor: str, session: str, **changed: Any) -> dict[str, Any]:
    whole = {
        "memoryId": MEMORY_ID,
        "actorId": actor,
        "sessionId": session,
        "eventId": event.id,
        "eventTimestamp": event.time,
        "payload": event.payload,
        "metadata": event.metadata,
    }
    return whole | changed


def _understood(method: str, target: str, body: bytes) -> tuple[str, dict[str, Any]]:
    """The operation and its input, checked against the service's own description."""
    path = urlsplit(target).path
    for wanted, pattern, name in _routes():
        match = pattern.fullmatch(path)
        if wanted == method and match:
            asked = {key: unquote(value) for key, value in match.groupdict().items()}
            asked |= json.loads(body) if body else {}
            shape = service().operation_model(name).input_shape
            _check(shape, asked)
            if asked["memoryId"] not in (MEMORY_ID, ARN):
                raise RefusedError(404, "ResourceNotFoundException")
            return name, asked
    raise RefusedError(404, "UnknownOperationException")


def _check(shape: Any, value: Any) -> None:
    """Required members, no others, and the limits of lengths, patterns and enumerations."""
    limits = shape.metadata
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        unknown = set(value) - set(shape.members)
        if unknown or set(shape.required_members) - set(value):
            raise RefusedError(400, "ValidationException")
        for name, member in value.items():
            _check(shape.members[name], member)
    elif shape.type_name == "list":
        _check_size(len(value), limits)
        for member in value:
            _check(shape.member, member)
    elif shape.type_name == "map":
        _check_size(len(value), limits)
        for name, member in value.items():
            _check(shape.key, name)
            _check(shape.value, member)
    elif shape.type_name == "string":
        if not is_unicode(value):
            raise RefusedError(400, "SerializationException")
        _check_size(len(value), limits)
        if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
            raise RefusedError(400, "ValidationException")
        if shape.enum and value not in shape.enum:
            raise RefusedError(400, "ValidationException")
    elif shape.type_name == "integer":
        _check_size(value, limits)


def _check_size(size: int, limits: Any) -> None:
    if not limits.get("min", 0) <= size <= limits.get("max", size):
        raise RefusedError(400, "ValidationException")
