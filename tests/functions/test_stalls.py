"""Services that accept a request and never answer: each route answers 503 itself, before Lambda or API Gateway end it.

Times are scaled down: a function has 2 s in place of 29, and waits for bytes a tenth of what it does on AWS.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.http.events import event
from tests.support.templates import template
from turnlog.app import Application, make_application
from turnlog.core.errors import UnavailableError
from turnlog.core.limits import check_time, seconds_left, with_deadline
from turnlog.engines import Engine, RandomIds, SystemClock, aws_clients
from turnlog.engines.dynamodb import DynamoItemTable
from turnlog.engines.s3 import S3BlobStore
from turnlog.engines.sqlite import SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.http import lambda_api as http
from turnlog.http.lambda_api import make_handler
from turnlog.ports import Key
from turnlog.routing import ROUTES
from turnlog.settings import Settings

pytestmark = pytest.mark.network
FUNCTION_SECONDS, RESERVE_SECONDS = 20.0, 18.3
"""A function has 1.7 s to wait in, and much to answer in: this machine may be busy."""


class Stall:
    """Listens, accepts, and sends only what it is told to send first."""

    def __init__(self, first: bytes = b"", every: float = 0.0, backlog: int = 50) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(backlog)
        self.accepted = list[socket.socket]()
        self._first, self._every = first, every
        self._over = threading.Event()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.recv(65_536)
            connection.sendall(self._first)
            while self._every and not self._over.wait(self._every):
                connection.sendall(bytes(20_000))
        except OSError:
            return

    def close(self) -> None:
        self._over.set()
        for value in (*self.accepted, self._socket):
            value.close()


@pytest.fixture
def stall() -> Iterator[Callable[..., Stall]]:
    made = list[Stall]()

    def make(**options: Any) -> Stall:
        made.append(Stall(**options))
        return made[-1]

    yield make
    for item in made:
        item.close()


@pytest.fixture(autouse=True)
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, seconds in (("CONNECT_SECONDS", 0.2), ("ITEM_SECONDS", 0.5), ("BLOB_SECONDS", 0.6)):
        monkeypatch.setattr(aws_clients, name, seconds)
    monkeypatch.setattr("turnlog.engines.s3.BLOB_SECONDS", 0.6)
    monkeypatch.setattr(http, "RESERVE_SECONDS", RESERVE_SECONDS)


def asked(app: Application, method: str, path: str, **options: Any) -> tuple[dict[str, Any], float]:
    """The answer, and how long it took."""
    began = time.monotonic()
    context = SimpleNamespace(
        get_remaining_time_in_millis=lambda: round((FUNCTION_SECONDS - (time.monotonic() - began)) * 1000)
    )
    answer = make_handler(ROUTES, app)(event(method, path, **options), context)
    return answer, time.monotonic() - began


def assert_told(answer: dict[str, Any], seconds: float) -> None:
    problem = json.loads(answer["body"])
    assert (answer["statusCode"], problem["status"]) == (503, 503), problem
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert int(answer["headers"]["Retry-After"]) >= 1
    assert seconds < FUNCTION_SECONDS


def on_dynamodb(url: str) -> Application:
    return make_application(
        Settings(engine="dynamodb://t?bucket=b&region=eu-central-1", endpoint_url=url, memory="none")
    )


def on_s3(url: str, folder: Path) -> Application:
    """Items that are at hand, and blobs that stall."""
    database = SqliteDatabase(folder / "turnlog.db")
    blobs = S3BlobStore(aws_clients.Clients("eu-central-1", url).s3, "b")
    engine = Engine("dynamodb", SqliteItemTable(database), blobs, None, database.close)
    return Application(engine, Settings(token_counter="estimate"), clock=SystemClock(), ids=RandomIds())


S = "/v1/sessions/s"
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/sessions", {"body": {"session_id": "s"}}),
    ("GET", "/v1/sessions", {}),
    ("GET", S, {}),
    ("POST", f"{S}/messages", {"body": {"messages": [{"role": "user", "content": "hi"}]}}),
    ("GET", f"{S}/messages", {}),
    ("POST", f"{S}/context", {"body": {}}),
    ("GET", f"{S}/state", {}),
    ("PATCH", f"{S}/state", {"body": {"a": 1}}),
    ("GET", f"{S}/history", {}),
    ("POST", f"{S}/compress", {"body": {}}),
    ("POST", f"{S}/export", {"body": {}}),
    ("POST", f"{S}/snapshots", {"body": {}}),
    ("GET", f"{S}/recall", {"query": {"ref": "2.1"}}),
    ("GET", f"{S}/search", {"query": {"q": "words"}}),
    ("GET", "/v1/search", {"query": {"q": "words"}}),
    ("DELETE", S, {}),
    ("GET", "/v1/jobs", {}),
]


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        pytest.param(*call, id=f"{call[0]} {call[1]}", marks=[pytest.mark.full] * (number % 3 != 0))
        for number, call in enumerate(CALLS)
    ],
)
def test_a_table_that_stalls_is_a_503_of_ours_in_time(
    stall: Callable[..., Stall], method: str, path: str, options: dict[str, Any]
) -> None:
    service = stall()
    answer, seconds = asked(on_dynamodb(service.url), method, path, **options)
    assert_told(answer, seconds)


LARGE = {"messages": [{"role": "user", "content": "".join(f"{number:x}" for number in range(40_000))}]}


def test_blobs_that_stall_are_a_503_of_ours_in_time(stall: Callable[..., Stall], tmp_path: Path) -> None:
    app = on_s3(stall().url, tmp_path)
    assert asked(app, "POST", "/v1/sessions", body={"session_id": "s"})[0]["statusCode"] == 201
    assert_told(*asked(app, "POST", f"{S}/messages", body=LARGE))
    assert json.loads(asked(app, "GET", f"{S}/messages")[0]["body"])["messages"] == [], "nothing was half written"


@pytest.mark.parametrize("every", [0.0, 0.01])
def test_an_object_that_stops_or_is_slow_is_a_503_of_ours_in_time(
    stall: Callable[..., Stall], tmp_path: Path, every: float
) -> None:
    """The head and some bytes come at once; then nothing more, or too little at a time, which no wait for bytes ends."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\nETag: x\r\n\r\n" + bytes(300_000)
    app = on_s3(stall(first=head, every=every).url, tmp_path)
    began = time.monotonic()
    with (
        with_deadline(lambda: FUNCTION_SECONDS - RESERVE_SECONDS - (time.monotonic() - began)),
        pytest.raises(UnavailableError) as caught,
    ):
        app.engine.blobs.get("acme/ada/s/payload/1")
    assert time.monotonic() - began < FUNCTION_SECONDS
    assert caught.value.retry_after_seconds == 1


def test_no_try_is_begun_that_could_outlast_the_deadline(stall: Callable[..., Stall]) -> None:
    service = stall()
    table = DynamoItemTable(aws_clients.Clients("eu-central-1", service.url).dynamodb, "t")
    with with_deadline(lambda: 0.6), pytest.raises(UnavailableError) as caught:
        table.get_many([Key("a", "b")])
    assert (caught.value.error_code, service.accepted) == ("deadline", [])


def test_a_deadline_is_that_of_its_block() -> None:
    check_time(10**9, "anything")
    with with_deadline(lambda: 5.0):
        check_time(4.0, "it")
        with pytest.raises(UnavailableError, match=r"it may take 6 s .* 5\.0 s were left"):
            check_time(6.0, "it")
        with with_deadline(None):
            check_time(6.0, "it")
    assert seconds_left() > 10**9


def test_tries_fit_the_time_of_the_templates_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real numbers: a try that is begun at the last moment ends before the function does, and that before API Gateway."""
    monkeypatch.undo()
    pytest.importorskip("samtranslator")
    resources = template().resources
    timeouts = {
        resource["Properties"]["Timeout"]
        for name, resource in resources.items()
        if resource["Type"] == "AWS::Lambda::Function" and resource["Properties"]["Handler"].startswith("api.")
    }
    assert timeouts == {29}
    waits = aws_clients.CONNECT_SECONDS + max(aws_clients.ITEM_SECONDS, aws_clients.BLOB_SECONDS)
    assert 3 * waits <= 29 - http.RESERVE_SECONDS, "three tries have room"


def test_a_model_that_stalls_is_told_in_time(stall: Callable[..., Stall], tmp_path: Path) -> None:
    """The time-out of a summary is 20 s; less is left of the request."""
    settings = Settings(
        engine=f"sqlite:///{tmp_path}/t.db", token_counter="estimate", summary_model="m", summary_url=stall().url
    )
    app = make_application(settings)
    assert asked(app, "POST", "/v1/sessions", body={"session_id": "s"})[0]["statusCode"] == 201
    for number in range(4):
        messages = [{"role": "user", "content": f"{number} " + "word " * 200}, {"role": "assistant", "content": "ok"}]
        assert asked(app, "POST", f"{S}/messages", body={"messages": messages})[0]["statusCode"] == 201
    answer, seconds = asked(app, "POST", f"{S}/compress", body={"mode": "sync", "keep_loops": 1})
    assert answer["statusCode"] == 503, answer["body"]
    assert json.loads(answer["body"])["code"] == "summariser_timeout"
    assert seconds < FUNCTION_SECONDS
