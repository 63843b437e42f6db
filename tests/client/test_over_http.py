"""The library over HTTP: one effect however often an answer is lost, the same errors as in process."""

from __future__ import annotations

import http.client
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.client.service import Fault, gated, status
from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.client import Backend
from turnlog.client.documents import Documents
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Sessions
from turnlog.client.over_http import MAX_WAIT_SECONDS, HttpBackend, error_of, fetch, put
from turnlog.core import errors
from turnlog.core.errors import (
    InvalidInputError,
    PatchError,
    Problem,
    SessionEndedError,
    TurnlogError,
    UnavailableError,
    VersionMismatchError,
)
from turnlog.core.identity import Owner
from turnlog.engines import RandomIds, SystemClock
from turnlog.http.api import problem_document, status_of
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

USER = {"role": "user", "content": "hi"}


class FaultyGate:
    """Stands between client and service. ``plan`` holds what to do with the next requests; after it, all pass.

    ``before``: the request is lost; ``after``: the answer is lost; ``close``: the answer passes, then the connection is
    closed without a word; a status: that problem document, with ``retry_after`` if set.
    """

    def __init__(self, url: str) -> None:
        self.plan: list[str | int] = []
        self.retry_after: str | None = None
        self.keys: list[str | None] = []
        self.connections = 0
        host, port = url.removeprefix("http://").split(":")
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                gate.connections += 1
                super().setup()

            def log_message(self, *arguments: Any) -> None:
                pass

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                gate.keys.append(self.headers.get("Idempotency-Key"))
                fault = gate.plan.pop(0) if gate.plan else ""
                if fault == "before":
                    self.close_connection = True
                    return
                if isinstance(fault, int):
                    self._answer(fault, "application/problem+json", b'{"code": "throttled", "detail": "slow down"}')
                    return
                inner = http.client.HTTPConnection(host, int(port), timeout=10)
                inner.request(self.command, self.path, body=body, headers=dict(self.headers))
                answer = inner.getresponse()
                data = answer.read()
                inner.close()
                if fault == "after":
                    self.close_connection = True
                    return
                self._answer(answer.status, str(answer.headers["Content-Type"]), data)
                self.close_connection = fault == "close"

            do_GET = do_POST = do_PATCH = _pass  # noqa: N815

            def _answer(self, status: int, content_type: str, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(data)))
                if gate.retry_after is not None:
                    self.send_header("Retry-After", gate.retry_after)
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def app() -> Iterator[Application]:
    made = make_application(Settings(engine="memory://", identity="jwt"))
    yield made
    made.close()


@pytest.fixture
def server(app: Application) -> Iterator[LocalServer]:
    made = LocalServer(app, SystemClock(), port=0).start()
    yield made
    made.stop()


@pytest.fixture
def gate(server: LocalServer) -> Iterator[FaultyGate]:
    made = FaultyGate(server.url)
    yield made
    made.stop()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def log(gate: FaultyGate, clock: FixedClock) -> Iterator[Turnlog]:
    with Turnlog(HttpBackend(gate.url, clock=clock, ids=SequentialIds())) as made:
        yield made


@pytest.mark.network
@pytest.mark.parametrize("fault", ["before", "after", 429, 502, 503, 504])
def test_a_call_that_fails_once_has_one_effect_and_one_key(log: Turnlog, gate: FaultyGate, fault: str | int) -> None:
    gate.plan = [fault]
    session = log.sessions.create("a")
    gate.plan, gate.keys = [fault, fault], []
    appended = session.append(USER)
    assert (appended.first, appended.head) == (2, 2)
    assert [stored.body for stored in session.messages()] == [USER]
    keys = gate.keys[:3]
    assert keys[0] is not None and keys == [keys[0]] * 3


@pytest.mark.network
def test_the_callers_key_is_the_one_sent_and_each_call_has_its_own_otherwise(log: Turnlog, gate: FaultyGate) -> None:
    session = log.sessions.create("a")
    gate.plan, gate.keys = ["after"], []
    session.append(USER, idempotency_key="mine")
    session.append(USER)
    session.append(USER)
    assert gate.keys[:2] == ["mine", "mine"]
    assert len(set(gate.keys[2:])) == 2 and None not in gate.keys
    assert session.append(USER, idempotency_key="mine").first == 2


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "acquire": ("me",),
    "append": (USER,),
    "decide_pending": ("approve",),
    "delete": (["a"],),
    "delete_snapshot": ("n",),
    "extend": ([USER],),
    "patch_agent": ({},),
    "patch_state": ({},),
    "put": ("a", b"1"),
    "put_many": ({"a": b"1"},),
    "put_state": ({},),
    "record": ("noted",),
    "redact": (2,),
    "release": (1,),
    "renew": (1,),
    "restore_snapshot": ("n",),
    "rewind": (2,),
    "send_to_run": (USER,),
}
KEYED = [
    (kind, name)
    for kind in (Turnlog, Sessions, Session, Documents)
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and "idempotency_key" in inspect.signature(method).parameters
]


fails = status(500, body=b'{"code": "internal", "detail": "x"}')


@pytest.mark.network
@pytest.mark.parametrize(("kind", "name"), KEYED, ids=[f"{kind.__name__}.{name}" for kind, name in KEYED])
def test_every_call_that_takes_a_key_sends_it(kind: type, name: str) -> None:
    with gated() as (_, gate), Turnlog.open(gate.url) as log:
        session = log.sessions.create("s")
        session.patch_agent({"run_id": "r"})
        objects = {Turnlog: log, Sessions: log.sessions, Session: session, Documents: session.documents}
        gate.plan = [lambda handler: gate.received[-1].method == "GET" or fails(handler)] * 2
        with pytest.raises(TurnlogError):
            getattr(objects[kind], name)(*ARGUMENTS.get(name, ()), idempotency_key="mine")
        assert gate.received[-1].text("idempotency-key").partition("-")[0] == "mine"


@pytest.mark.network
def test_a_reading_call_carries_no_key_and_is_tried_again_too(log: Turnlog, gate: FaultyGate) -> None:
    session = log.sessions.create("a")
    gate.plan, gate.keys = ["after", 503], []
    assert session.info().session_id == "a"
    assert gate.keys == [None, None, None]


@pytest.mark.network
def test_pauses_grow_and_retry_after_is_kept(log: Turnlog, gate: FaultyGate, clock: FixedClock) -> None:
    session = log.sessions.create("a")
    start, gate.plan = clock.now_ms(), [503, 503, 503]
    session.info()
    grown = clock.now_ms() - start
    assert grown == 75 + 150 + 300
    gate.plan, gate.retry_after = [429], "7"
    session.info()
    assert clock.now_ms() - start - grown == 7000


@pytest.mark.network
def test_it_gives_up_with_the_services_own_error(log: Turnlog, gate: FaultyGate, clock: FixedClock) -> None:
    gate.plan, gate.retry_after = [429] * 5, "1"
    with pytest.raises(errors.ThrottledError) as caught:
        log.health()
    assert caught.value.retry_after_seconds == 1 and not gate.plan
    gate.plan, gate.retry_after, start = [503], str(int(MAX_WAIT_SECONDS) + 1), clock.now_ms()
    with pytest.raises(errors.UnavailableError):
        log.health()
    assert clock.now_ms() == start, "a pause longer than we wait is the caller's business"


@pytest.mark.network
def test_a_service_that_is_not_there_is_unavailable(clock: FixedClock) -> None:
    log = Turnlog(HttpBackend("http://127.0.0.1:1", clock=clock))
    with log, pytest.raises(errors.UnavailableError, match="connection refused") as caught:
        log.health()
    assert caught.value.error_code == "unreachable" and caught.value.__cause__ is not None


@pytest.mark.network
def test_a_connection_that_the_service_closed_while_idle_costs_no_try(server: LocalServer, gate: FaultyGate) -> None:
    with Turnlog(HttpBackend(gate.url, max_tries=1)) as log:
        for _ in range(3):
            gate.plan = ["close"]
            assert log.health().status == "ok"
        assert log.health().status == "ok"


@pytest.mark.network
def test_connections_are_kept_and_shared_by_threads(log: Turnlog, gate: FaultyGate) -> None:
    session = log.sessions.create("a")
    for _ in range(5):
        session.append(USER)
    assert gate.connections == 1
    threads = [threading.Thread(target=lambda: [session.append(USER) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.info().messages == 25
    assert gate.connections <= 5


WRONG: list[tuple[str, Callable[[Turnlog], object]]] = [
    ("missing", lambda log: log.sessions.get("nope")),
    ("summary of none", lambda log: log.sessions.of("nope").summary()),
    ("exists", lambda log: log.sessions.create("a")),
    ("bad id", lambda log: log.sessions.create("a b")),
    ("id of two parts", lambda log: log.sessions.get("a/messages")),
    ("empty id", lambda log: log.sessions.get("")),
    ("head", lambda log: log.sessions.get("a").append(USER, if_head=9)),
    (
        "other payload",
        lambda log: [log.sessions.get("a").append({**USER, "n": n}, idempotency_key="k") for n in (1, 2)],
    ),
    ("policy", lambda log: log.sessions.get("a").context(policy="nope")),
    ("policy body", lambda log: log.sessions.get("a").context(policy={"steps": [{"step": "turns", "n": -1}]})),
    ("budget", lambda log: log.sessions.get("a").context(budget=1)),
    ("no message", lambda log: log.sessions.get("a").append()),
    ("content", lambda log: log.sessions.get("a").append({"role": "user", "content": 5})),
    ("NaN", lambda log: log.sessions.get("a").append({"role": "user", "content": "x", "n": float("nan")})),
    ("no JSON", lambda log: log.sessions.get("a").append({"role": "user", "content": object()})),
    ("too large", lambda log: log.sessions.get("a").record("x", metadata={"m": "x" * 200_000})),
    ("cursor", lambda log: log.sessions.page(cursor="AAAA")),
    ("limit", lambda log: log.sessions.page(limit=0)),
    ("agent", lambda log: log.sessions.get("a").agent()),
    ("key that is no text", lambda log: log.sessions.get("a").append(USER, idempotency_key=7)),  # type: ignore[arg-type]
    ("long key", lambda log: log.sessions.get("a").append(USER, idempotency_key="k" * 300)),
]


@pytest.mark.network
@pytest.mark.parametrize("wrong", [call for _, call in WRONG], ids=[name for name, _ in WRONG])
def test_errors_are_those_of_the_library_in_process(
    app: Application, server: LocalServer, wrong: Callable[[Turnlog], object]
) -> None:
    """Class, code, detail, problems and details: a program moves from one engine to a service without a change."""
    seen = []
    backends: list[Backend] = [
        InProcessBackend(app, Owner.of("local", "in-process")),
        HttpBackend(server.url, user="http"),
    ]
    for backend in backends:
        log = Turnlog(backend)
        log.sessions.create("a").append(USER)
        with pytest.raises(TurnlogError) as caught:
            wrong(log)
        error = caught.value
        seen.append((type(error), error.error_code, error.detail, error.problems, error.details))
        assert error.detail
        if isinstance(backend, HttpBackend):
            backend.close()
    assert seen[0] == seen[1]


def _tree(kind: type[TurnlogError]) -> Iterator[type[TurnlogError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


@pytest.mark.parametrize("kind", [kind for kind in _tree(TurnlogError) if kind.__module__ == errors.__name__])
def test_every_error_class_survives_the_problem_document(kind: type[TurnlogError]) -> None:
    if issubclass(kind, errors.CorruptError):
        error: TurnlogError = kind("the hash is wrong", item="C#7")
    else:
        problems = [Problem("rule", "/messages/0", "is wrong")]
        error = kind("it is wrong", problems=problems, details={"head": 7, "needed": 12}, retry_after_seconds=3)
    document = problem_document(error, "r-1")
    read = error_of(status_of(error), document, url="http://x", retry_after_seconds=error.retry_after_seconds)
    assert type(read) is kind
    assert (read.detail, read.error_code, read.problems) == (error.detail, error.error_code, error.problems)
    assert (read.details, read.retry_after_seconds) == (error.details, error.retry_after_seconds)


def test_a_code_of_a_later_version_is_an_error_of_its_status() -> None:
    document = {"code": "brand_new", "detail": "x", "errors": "?", "limit": 3, "places": [4], "hint": None}
    read = error_of(409, document, url="http://x")
    assert read.details == {"limit": 3}, "details are numbers and texts"
    assert type(read) is errors.ConflictError and read.error_code == "brand_new"
    assert type(error_of(418, None, url="http://x")) is TurnlogError
    codes = [400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 503]
    assert [status_of(error_of(code, "<html>", url="http://x")) for code in codes] == codes
    assert {status_of(error_of(code, "<html>", url="http://x")) for code in (502, 504)} == {503}


@pytest.mark.network
@pytest.mark.parametrize("answer", [b"<html>hello</html>", b"[]", b'{"status": "fine"}', b"\xff"])
def test_another_kind_of_server_is_named_as_such(answer: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: Any) -> None:
            pass

    stranger = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=stranger.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        log = Turnlog.open(f"http://127.0.0.1:{stranger.server_address[1]}/")
        with log, pytest.raises(errors.UnavailableError, match="not as Turnlog does") as caught:
            log.health()
        assert caught.value.error_code == "not_turnlog"
    finally:
        stranger.shutdown()
        stranger.server_close()
        thread.join()


@pytest.mark.network
def test_a_request_without_a_body_says_so_where_one_is_expected() -> None:
    """Some gateways refuse a POST that tells no length (411)."""
    with gated() as (_, gate), Turnlog.open(gate.url) as log:
        session = log.sessions.create("a")
        session.end()
        session.info()
    assert [request.headers.get("content-length") for request in gate.received[1:]] == [b"0", None]


def gone(handler: Any) -> bool:
    """A connection that is closed before an answer."""
    raise ConnectionAbortedError


def garbled(handler: Any) -> bool:
    """An answer that is not HTTP."""
    handler.wfile.write(b"?\r\n\r\n")
    raise ConnectionAbortedError


LINK = "/file?signature=a%2Fb"


@pytest.mark.network
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        *((status(code), "link_expired") for code in (403, 404, 410)),
        (status(500), "download_failed"),
        (gone, "download_failed"),
        (garbled, "download_failed"),
    ],
)
def test_a_download_tells_a_link_that_has_expired_from_a_storage_that_fails(fault: Fault, code: str) -> None:
    content = BytesIO()
    with gated() as (_, gate):
        gate.plan = [fault, status(200, body=b"x" * 100_000)]
        with pytest.raises(TurnlogError) as caught:
            fetch(gate.url + LINK, content)
        assert (caught.value.error_code, content.getvalue()) == (code, b"")
        fetch(gate.url + LINK, content)
        assert (content.getvalue(), gate.received[1].target) == (b"x" * 100_000, LINK.encode())


def cut_short(handler: Any) -> bool:
    """An answer whose connection closes before its end."""
    handler.wfile.write(b"HTTP/1.1 200 x\r\nContent-Length: 100\r\n\r\n" + b"x" * 90)
    raise ConnectionAbortedError


@pytest.mark.network
def test_a_download_that_ends_early_is_an_error() -> None:
    with gated() as (_, gate):
        gate.plan = [cut_short]
        with pytest.raises(UnavailableError, match="10 bytes early") as caught:
            fetch(gate.url + LINK, BytesIO())
    assert caught.value.error_code == "download_failed"


@pytest.mark.network
@pytest.mark.parametrize("fault", [status(403), status(503), status(204), gone])
def test_an_upload_that_the_storage_does_not_take_has_failed_and_may_be_repeated(fault: Fault) -> None:
    with gated() as (_, gate):
        gate.plan = [fault, status(200)]
        with pytest.raises(errors.UnavailableError) as caught:
            put(gate.url + LINK, b"data")
        assert caught.value.error_code == "upload_failed"
        put(gate.url + LINK, b"data")
    assert [(item.method, item.target, item.body) for item in gate.received] == [("PUT", LINK.encode(), b"data")] * 2


@pytest.mark.network
@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (404, b'{"code": "not_found", "detail": "no session", "url": "http://x/"}', errors.NotFoundError),
        (200, b"[]", errors.TooLargeError),
        (200, b"{}", errors.TooLargeError),
        (200, b"", errors.TooLargeError),
    ],
)
def test_a_large_append_is_sent_nowhere_without_an_address(code: int, body: bytes, kind: type[TurnlogError]) -> None:
    with gated() as (_, gate), Turnlog.open(gate.url) as log:
        session = log.sessions.create("a")
        gate.plan = [status(code, body=body)]
        with pytest.raises(kind):
            session.append({"role": "user", "content": "x" * 7_000_000})
        assert len(gate.received) == 2 and len(gate.received[1].body) < 200


@pytest.mark.network
def test_a_request_that_is_passed_on_brings_the_service_s_answer_whatever_its_status() -> None:
    with gated() as (_, gate):
        backend = HttpBackend(f"{gate.url}/stage", user="ada")
        gate.plan = [
            status(404, body=b"none"),
            status(303, body=b'{"url": "/kept", "status": 201}'),
            status(200, body=b"large"),
        ]
        answers = [backend.forward("PATCH", "/v1/x?limit=2", b"{}", {"X-More": "b"}) for _ in range(2)]
        assert [(answer.status, answer.data) for answer in answers] == [(404, b"none"), (201, b"large")]
        first, second, kept = gate.received
        assert first == second and (first.method, first.target, first.body) == ("PATCH", b"/stage/v1/x?limit=2", b"{}")
        assert (first.text("x-more"), first.text("x-turnlog-user"), kept.target) == ("b", "ada", b"/stage/kept")
        gate.plan = [status(303, body=b'{"url": "/kept", "status": 201}'), status(404)]
        with pytest.raises(errors.NotFoundError):
            backend.forward("GET", "/v1/x", None, {})
        for place in (b"[]", b"{}", b'{"url": 7, "status": 200}', b'{"url": "/kept", "status": true}'):
            gate.plan = [status(303, body=place)]
            with pytest.raises(errors.UnavailableError) as caught:
                backend.forward("GET", "/v1/x", None, {})
            assert caught.value.error_code == "not_turnlog"
        backend.close()


@pytest.mark.network
def test_a_call_that_fails_has_a_reason_whatever_the_error_says(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: dict[OSError | http.client.HTTPException, str] = {
        ConnectionAbortedError(): "ConnectionAbortedError",
        ConnectionRefusedError(111, "Connection refused"): "connection refused",
        http.client.BadStatusLine("no status"): "no status",
        TimeoutError(110, "Connection timed out"): "no answer in time",
    }
    for failure, reason in failures.items():

        def connect(connection: http.client.HTTPConnection, failure: Exception = failure) -> None:
            raise failure

        monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
        with pytest.raises(errors.UnavailableError) as caught:
            Turnlog(HttpBackend("http://127.0.0.1:1", max_tries=1)).health()
        assert caught.value.detail == f"can't reach http://127.0.0.1:1: {reason}"


def test_what_only_an_engine_does_is_refused_before_a_request() -> None:
    backend = HttpBackend("http://127.0.0.1:1")
    log = Turnlog(backend)
    for call in (
        lambda: backend.redrive(None, failed=True),
        lambda: backend.verify(None, lambda done: None),
        lambda: backend.back_up(Path("copy.db"), lambda done: None),
    ):
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert caught.value.error_code == "needs_engine"
    assert log.run_jobs() == 0
    for snapshot in ("", "a/b"):
        with pytest.raises(errors.NotFoundError, match="no snapshot"):
            backend.call("get_snapshot", path={"session_id": "s", "snapshot": snapshot})


@pytest.mark.network
def test_people_are_kept_apart_by_headers_of_any_script(app: Application, server: LocalServer) -> None:
    for user in ("ada", "Zoë 🙂", "auth0|1"):
        with Turnlog.open(server.url, tenant="Größe", user=user) as log:
            log.sessions.create("mine", title=user)
        inside = Turnlog(InProcessBackend(app, Owner.of("Größe", user)))
        assert inside.sessions.get("mine").info().title == user, "the owner over HTTP is the owner in process"
    with Turnlog.open(server.url) as log:
        assert not log.sessions.exists("mine")
        assert log.sessions.create("x").info().user == "me"


@pytest.mark.network
def test_requests_that_arrive_together_are_not_mixed(server: LocalServer) -> None:
    """Powertools keeps the event of a request in a class attribute: two at once would answer each other's."""
    wrong: list[object] = []

    def converse(name: str) -> None:
        messages = [{"role": "user", "content": f"{name} {number}"} for number in range(40)]
        with Turnlog.open(server.url, tenant=name, user=name) as log:
            session = log.sessions.create(f"s{name}", title=name)
            for at, message in enumerate(messages):
                if session.append(message).head != at + 2 or session.info().title != name:
                    wrong.append((name, at))
            if [stored.body for stored in session.messages()] != messages:
                wrong.append(name)
            if [item.session_id for item in log.sessions.list()] != [f"s{name}"]:
                wrong.append(f"{name} sees others")

    threads = [threading.Thread(target=converse, args=(name,)) for name in "abcdefgh"]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


@pytest.mark.network
def test_the_bearer_token(app: Application) -> None:
    server = LocalServer(app, SystemClock(), port=0, token="s3cret").start()
    try:
        for token in (None, "other"):
            with Turnlog.open(server.url, token=token) as log, pytest.raises(errors.UnauthorizedError):
                log.sessions.create("a")
        with Turnlog.open(server.url, token="s3cret") as log:
            assert log.sessions.create("a").id == "a"
    finally:
        server.stop()


@pytest.mark.network
def test_lone_surrogates_and_large_integers_come_back(server: LocalServer) -> None:
    messages = [{"role": "user", "content": "\ud83d and 😀"}, {"role": "user", "content": "x", "n": 2**64 - 1}]
    with Turnlog.open(server.url) as log:
        session = log.sessions.create(recall="never")
        session.append(*messages)
        assert [stored.body for stored in session.messages()] == messages
        sent = [{"role": "user", "content": "\ufffd and 😀"}, {"role": "user", "content": "x"}]
        assert session.context().messages == sent, "OpenAI takes neither a lone surrogate nor the key `n`"
        assert next(session.loops()).user_message == "\ud83d and 😀\nx"


@pytest.mark.network
def test_state_pending_actions_and_history_are_those_of_the_library_in_process(server: LocalServer) -> None:
    with Turnlog.open(server.url) as log:
        session = log.sessions.create("s", state={"a": None})
        assert session.patch_state([{"op": "add", "path": "/b", "value": None}]).state == {"a": None, "b": None}
        assert session.patch_state({"a": None}, action="cleared", if_version=2).state == {"b": None}
        assert session.put_state({"lone": "\ud83d"}, if_version=3).version == 4
        assert session.state(at=2).state == {"a": None, "b": None}
        with pytest.raises(VersionMismatchError) as caught:
            session.put_state({}, if_version=1)
        assert caught.value.details["version"] == 4
        with pytest.raises(PatchError) as failed:
            session.patch_state([{"op": "remove", "path": "/x"}])
        assert failed.value.problems[0].pointer == "/0/path"
        session.patch_agent({"pending_action": {"tool": "x"}})
        assert session.decide_pending("approve").state["pending_action"] == {"tool": "x", "decision": "approve"}
        entry = session.record("noted", metadata={"n": 1})
        entries = list(session.history())
        assert entries[0] == entry
        values = [entry.action for entry in reversed(entries[1:])]
        assert values == ["create", "state_change", "cleared", "state_change", "state_change", "approve"]
        assert entries[-2].diff == [{"op": "add", "path": "/b", "value": None}]
        assert next(session.history(action="cleared")).diff == {"a": None}


@pytest.mark.network
def test_update_end_and_reset_are_those_of_the_library_in_process(server: LocalServer) -> None:
    with Turnlog.open(server.url) as log:
        session = log.sessions.create("s", title="Old", system="Be brief.", metadata={"a": 1})
        result = session.update(title="Neu – 新", system=None, tools=({"type": "web_search"},), policy="turns(2)")
        assert (result.title, result.policy, result.metadata) == ("Neu – 新", "turns(2)", {"a": 1})
        with pytest.raises(InvalidInputError) as caught:
            session.update(recall="never")
        assert caught.value.problems[0].pointer == "/recall"
        assert session.end() == session.end() == session.info()
        with pytest.raises(SessionEndedError):
            session.append({"role": "user", "content": "hi"})
        fresh = session.reset()
        assert (fresh.id, fresh.info().reset_of) == (session.reset().id, "s")
        listed = {
            status: [item.session_id for item in log.sessions.list(status=status)] for status in ("active", "ended")
        }
        assert listed == {"active": [fresh.id], "ended": ["s"]}


@pytest.mark.network
def test_after_close_it_is_unavailable(server: LocalServer) -> None:
    log = Turnlog.open(server.url)
    log.health()
    log.close()
    with pytest.raises(errors.UnavailableError, match="closed"):
        log.health()


@pytest.mark.parametrize(
    "url", ["http://", "http://a:b", "https://x/?q", "http://x#f", "http://u@x", "http://x:99999", "http://bücher"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidInputError) as caught:
        Turnlog.open(url)
    assert caught.value.error_code == "invalid_url" and "is not the address" in caught.value.detail


@pytest.mark.parametrize("value", ["", " ada", "ada\n", "a\x00b"])
def test_what_no_header_carries_is_refused(value: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        Turnlog.open("http://127.0.0.1:1", user=value)
    with pytest.raises(errors.InvalidInputError):
        Turnlog.open("http://127.0.0.1:1", token=value)


def test_a_token_is_for_a_service() -> None:
    with pytest.raises(errors.InvalidInputError, match="token"):
        Turnlog.open("memory://", token="x")


def test_keys_of_its_own_are_as_good_as_random() -> None:
    ids = RandomIds()
    assert len({ids.new_id() for _ in range(1000)}) == 1000
