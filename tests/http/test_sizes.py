"""No answer is over 6,291,556 bytes as the runtime of Lambda sends it, and no request that is taken is over 6 MB."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import Harness
from tests.effort import is_full
from tests.http.events import event
from turnlog import Turnlog
from turnlog.app import Application
from turnlog.core.errors import NotFoundError, TooLargeError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.limits import MAX_ANSWER_BYTES, MAX_EVENT_BYTES, MAX_RESPONSE_BYTES, event_bytes, fits_as_text
from turnlog.engines import Engine, RandomIds, SystemClock
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.http.lambda_api import make_handler
from turnlog.log.keys import answers_prefix
from turnlog.routing import ROUTES
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

QUOTES = '"' * 200_000
TEXTS = {"quotes": '"', "plain": "x", "accents": "\u00e9", "beyond the BMP": "\U0001f600", "surrogates": "\ud83d"}


class Api:
    """The handler over an application. Every answer is measured as the runtime encodes it."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._handler = make_handler(ROUTES, app)
        self.largest = 0

    def __call__(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        asked = event(method, path, **options)
        answer = self._handler(asked, None)
        sizes = [
            len(json.dumps(answer, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))
            for ascii_only in (True, False)
        ]
        self.largest = max(self.largest, *sizes)
        data = base64.b64decode(answer["body"]) if answer["isBase64Encoded"] else answer["body"].encode()
        must_fit = self.has_addresses or len(data) <= MAX_ANSWER_BYTES
        assert max(sizes) <= MAX_RESPONSE_BYTES or not must_fit, (method, path, sizes)
        document = json.loads(data)
        if answer["statusCode"] != 303:
            return answer["statusCode"], document
        assert answer["headers"]["Location"] == document["url"]
        return document["status"], json.loads(self._stored(document["url"]))

    @property
    def has_addresses(self) -> bool:
        return self._app.engine.blobs.url("x", seconds=1, filename="x") is not None

    def _stored(self, url: str) -> bytes:
        name = unquote(urlsplit(url).path).partition("turnlog-blobs")[2].lstrip("/") or unquote(
            urlsplit(url).path
        ).lstrip("/")
        data = self._app.engine.blobs.get(name)
        assert data is not None, name
        return data


@pytest.fixture
def api(harness: Harness) -> Api:
    made = Api(harness.app)
    assert made("POST", "/v1/sessions", body={"session_id": "s"})[0] == 201
    return made


@pytest.mark.parametrize(
    "kind", ["quotes", *(pytest.param(kind, marks=pytest.mark.full) for kind in TEXTS if kind != "quotes")]
)
def test_a_state_that_was_committed_is_read_back(api: Api, kind: str) -> None:
    """The reproduction: five patches make a state of 4.8 MB, whatever its characters become on the way."""
    character, version = TEXTS[kind], 0
    piece = character * (960_000 // (len(encode_json(character)) - 2))
    for name in "abcde":
        status, answer = api("PATCH", "/v1/sessions/s/state", raw=encode_json({name: piece}).decode())
        assert status == 200, answer
        version = answer["version"]
    status, answer = api("GET", "/v1/sessions/s/state")
    assert (status, answer["version"]) == (200, version)
    assert answer["state"] == dict.fromkeys("abcde", piece)
    assert len(encode_json(answer)) > 4_700_000, "more than base64 has room for"


def test_a_page_ends_before_it_is_too_large(api: Api) -> None:
    """Not the body alone counts: metadata, arguments and what a record holds are in the answer too."""
    for number in range(8):
        call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "f", "arguments": json.dumps({"q": QUOTES})},
        }
        said = [
            {"role": "user", "content": QUOTES},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "ok"},
            {"role": "assistant", "content": "done"},
        ]
        meta = [{"metadata": {"note": QUOTES}}, {}, {}, {}]
        assert api("POST", "/v1/sessions/s/messages", body={"messages": said, "meta": meta})[0] == 201
        assert api("PUT", "/v1/sessions/s/state", body={"state": {"a": QUOTES * 2 + str(number)}})[0] == 200
    fewer = ("messages?order=desc", "loops", "history")
    for path in (*fewer, "messages", "messages?format=openai_chat") if is_full() else fewer:
        assert_pages_fit(api, path)


def assert_pages_fit(api: Api, path: str) -> None:
    name, _, query = path.partition("?")
    asked = dict([query.split("=")]) if query else {}
    moves = {"messages": "before" if "desc" in path else "after", "loops": "before", "history": "before"}[name]
    entries, pages = list[Any](), 0
    while True:
        status, page = api("GET", f"/v1/sessions/s/{name}", query=asked)
        assert status == 200, page
        assert len(encode_json(page)) <= MAX_ANSWER_BYTES
        entries += page["entries" if name == "history" else name]
        pages += 1
        if page["next"] is None:
            break
        asked[moves] = str(page["next"])
    assert pages > 1
    assert len(entries) == {"messages": 32, "loops": 8, "history": 41}[name]
    assert len({json.dumps(entry) for entry in entries}) == len(entries)


def test_documents_are_read_in_pages_that_fit(api: Api) -> None:
    data = base64.b64encode(bytes(1_000_000)).decode()
    for number in range(6):
        assert api("POST", "/v1/sessions/s/documents", body={"put": [{"key": f"k{number}", "data": data}]})[0] == 200
    wanted, result = [f"k{number}" for number in range(6)], list[str]()
    while wanted:
        status, page = api("POST", "/v1/sessions/s/documents/read", body={"keys": wanted})
        assert status == 200 and len(encode_json(page)) <= MAX_ANSWER_BYTES
        result += [document["key"] for document in page["documents"]]
        wanted = page["unread"]
    assert result == [f"k{number}" for number in range(6)]


def test_a_window_of_more_than_two_million_tokens_arrives(api: Api) -> None:
    text = 'The "answer" is\n' * 50_000
    for _ in range(7):
        messages = [{"role": "user", "content": text}]
        assert api("POST", "/v1/sessions/s/messages", body={"messages": messages})[0] == 201
    body = {"budget": 3_000_000, "policy": {"steps": []}}
    status, window = api("POST", "/v1/sessions/s/context", body=body)
    assert status == 200, window
    assert len(encode_json(window)) > MAX_RESPONSE_BYTES
    assert [message["content"] for message in window["messages"][-7:]] == [text] * 7


def test_settings_and_a_snapshot_with_them_arrive(api: Api) -> None:
    body = {"session_id": "t", "metadata": {"a": "\n" * 1_000_000}, "state": {"b": QUOTES}}
    assert api("POST", "/v1/sessions", body=body)[0] == 201
    assert api("GET", "/v1/sessions/t")[1]["metadata"] == body["metadata"]
    assert api("PUT", "/v1/sessions/t/state", body={"state": {"b": "x" * 3_000_000}})[0] == 200
    made = api("POST", "/v1/sessions/t/snapshots", body={})[1]
    status, result = api("GET", f"/v1/sessions/t/snapshots/{made['snapshot_id']}")
    assert (status, result["content"]) == (200, None), "it says so, and the parts have it"


@pytest.mark.every_engine
def test_a_request_that_lambda_would_not_take_is_refused_and_writes_nothing(api: Api) -> None:
    """Over S3; a store on this machine is not behind Lambda."""
    body = {"messages": [{"role": "user", "content": '"' * 500_000}] * 4}
    assert event_bytes(json.dumps(body).encode()) > MAX_EVENT_BYTES
    status, problem = api("POST", "/v1/sessions/s/messages", body=body)
    if not api.has_addresses:
        assert status == 201
        return
    assert (status, problem["code"]) == (413, "too_large")
    assert "quotes" in problem["detail"] and "less" in problem["detail"]
    assert api("GET", "/v1/sessions/s/messages")[1]["messages"] == []
    fits = {"messages": body["messages"][:3]}
    assert len(json.dumps(event("POST", "/v1/sessions/s/messages", body=fits))) <= MAX_EVENT_BYTES
    assert api("POST", "/v1/sessions/s/messages", body=fits)[0] == 201


@pytest.mark.parametrize("character", ["x", '"', "\\", "\n", "\u00e9", "\u2028", "\U0001f600", "\x7f", "\x01"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_what_counts_as_fitting_fits(character: str, ascii_only: bool) -> None:
    for size in (2_000_000, 3_000_000, 6_220_000) if is_full() else (3_000_000, 6_220_000):
        text = encode_json(character * (size // (len(encode_json(character)) - 2))).decode()
        answer = json.dumps({"statusCode": 200, "body": text}, ensure_ascii=ascii_only).encode()
        assert not fits_as_text(text, len(text.encode())) or len(answer) <= MAX_RESPONSE_BYTES
        asked = json.dumps({"body": text}, ensure_ascii=False).encode()
        assert 0 <= len(asked) - event_bytes(text.encode()) <= 20


# ------------------------------------------------------------ addresses of answers


class Addressed(MemoryBlobStore):
    """Blobs with addresses, as S3 has them: a server on this machine gives them out."""

    def __init__(self) -> None:
        super().__init__()
        blobs = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = blobs.get(unquote(urlsplit(self.path).path[1:]))
                blobs.asked.append(dict(self.headers))
                self.send_response(200 if data is not None else 404)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def do_PUT(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                blobs.asked.append(dict(self.headers))
                if blobs.refuses is None:
                    MemoryBlobStore.put(blobs, unquote(urlsplit(self.path).path)[1:], data)
                self.send_response(200 if blobs.refuses is None else 403)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self.asked = list[dict[str, str]]()
        self.refuses: str | None = None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def put(self, name: str, data: Any) -> None:
        if self.refuses is not None and "/answers/" in name:
            raise UnavailableError("PutObject was refused", code=self.refuses)
        super().put(name, data)

    def url(self, name: str, *, seconds: int, filename: str) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}?X-Signature=1"

    def upload_url(self, name: str, *, seconds: int, size_bytes: int) -> str:
        return self.url(name, seconds=seconds, filename="")


@pytest.fixture
def blobs() -> Iterator[Addressed]:
    made = Addressed()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def app(blobs: Addressed) -> Application:
    engine = Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), blobs, None, lambda: None)
    return Application(engine, Settings(token_counter="estimate", identity="jwt"), clock=SystemClock(), ids=RandomIds())


@pytest.fixture
def large(app: Application) -> Iterator[Turnlog]:
    """A client of a service, with a session of a window over 6 MB."""
    server = LocalServer(app, SystemClock(), port=0).start()
    with Turnlog.open(server.url, token="secret") as log:
        session = log.sessions.create("s")
        for number in range(7):
            session.append({"role": "user", "content": f"{number}" + "x" * 1_000_000})
        yield log
    server.stop()


ASK: dict[str, Any] = {"budget": 100_000_000, "policy": {"steps": []}}
ANSWERS = answers_prefix(Owner.of("local", "me"), "s")


@pytest.mark.network
def test_the_client_follows_the_address_of_a_large_answer(large: Turnlog, blobs: Addressed) -> None:
    window = large.sessions.get("s").context(**ASK)
    assert sum(len(message["content"]) for message in window.messages) > 7_000_000
    assert len(blobs.asked) == 1
    assert not {"authorization", "x-turnlog-user"} & {name.lower() for name in blobs.asked[0]}, (
        "no credential goes there"
    )
    assert large.sessions.get("s").context(**ASK) == window
    assert len(blobs.names(ANSWERS)) == 1, "the same answer is stored once"


@pytest.mark.network
def test_an_answer_that_is_gone_is_told(large: Turnlog, blobs: Addressed, monkeypatch: pytest.MonkeyPatch) -> None:
    get = blobs.get
    monkeypatch.setattr(blobs, "get", lambda name: None if "/answers/" in name else get(name))
    with pytest.raises(NotFoundError, match="download link"):
        large.sessions.get("s").context(**ASK)


@pytest.mark.network
def test_a_function_without_the_right_to_store_says_what_to_do(large: Turnlog, blobs: Addressed) -> None:
    blobs.refuses = "storage_denied"
    with pytest.raises(TooLargeError, match="smaller limit or budget") as caught:
        large.sessions.get("s").context(**ASK)
    assert caught.value.error_code == "answer_too_large"


@pytest.mark.every_engine
def test_stored_answers_go_with_their_session_and_with_a_redaction(harness: Harness) -> None:
    owner, blobs = Owner.of("acme", "ada"), harness.app.engine.blobs
    prefix, log = answers_prefix(owner, "s"), harness.log()
    session = log.sessions.create("s")
    position = session.append({"role": "user", "content": "secret"}).first
    for done in (lambda: session.redact(position), session.erase):
        blobs.put(f"{prefix}a.json", b"secret")
        blobs.put(f"{answers_prefix(owner, 'other')}a.json", b"kept")
        done()
        log.run_jobs()
        assert blobs.names(prefix) == []
        assert len(blobs.names(answers_prefix(owner, "other"))) == 1


def test_the_client_names_what_was_too_large_when_the_gateway_does_not() -> None:
    from turnlog.client.connections import HttpAnswer
    from turnlog.client.over_http import HttpBackend

    backend = HttpBackend("http://127.0.0.1:1")
    answer = HttpAnswer(500, {}, b'{"message":"Internal Server Error"}')  # type: ignore[arg-type]
    error = backend.error_of_answer(answer, b'"' * 3_500_000)
    assert isinstance(error, TooLargeError) and "7000000" in error.detail
    assert not isinstance(backend.error_of_answer(answer, b"{}"), TooLargeError)


def test_what_the_client_cuts_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnlog.client import parts_of

    messages = [{"role": "user", "content": '"' * 400_000}] * 10
    for part in parts_of(messages):
        body = encode_json({"messages": messages[part]})
        assert len(json.dumps(event("POST", "/v1/sessions/s/messages", raw=body.decode()))) <= MAX_EVENT_BYTES


# ---------------------------------------------------------------- requests that are too large to send

SCREENSHOT = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000_000}}],
}


@pytest.mark.network
def test_the_client_uploads_a_large_append_first(large: Turnlog, blobs: Addressed) -> None:
    session = large.sessions.create("shots")
    appended = session.append(SCREENSHOT, idempotency_key="k")
    assert session.append(SCREENSHOT, idempotency_key="k") == appended
    assert [message.body for message in session.messages()] == [SCREENSHOT]
    puts = [headers for headers in blobs.asked if "content-length" in {name.lower() for name in headers}]
    assert len(puts) == 2
    assert not {"authorization", "x-turnlog-user"} & {name.lower() for headers in puts for name in headers}
    assert large.sessions.get("shots").context(budget=100_000).tokens < 100_000
    assert len(blobs.names(answers_prefix(Owner.of("local", "me"), "shots"))) >= 1


@pytest.mark.network
def test_an_upload_that_fails_appends_nothing_and_may_be_repeated(large: Turnlog, blobs: Addressed) -> None:
    session = large.sessions.create("shots")
    blobs.refuses = "storage_denied"
    with pytest.raises(UnavailableError, match="the storage answered 403 to an upload"):
        session.append(SCREENSHOT)
    blobs.refuses = None
    assert session.info().head == 1
    assert session.append(SCREENSHOT).first == 2


@pytest.mark.network
def test_a_service_without_addresses_takes_large_appends_as_they_are(tmp_path: Any) -> None:
    with Turnlog.open(f"sqlite:///{tmp_path}/agent.db") as log:
        app = log.backend.app  # type: ignore[attr-defined]
        server = LocalServer(app, SystemClock(), port=0).start()
        with Turnlog.open(server.url) as client:
            session = client.sessions.create("shots")
            session.append(SCREENSHOT)
            assert [message.body for message in session.messages()] == [SCREENSHOT]
            with pytest.raises(TooLargeError, match="41,943,040"):
                session.append({"role": "user", "content": "x" * 42_000_000})
            with pytest.raises(TooLargeError, match="33,554,432 for one append; the largest, number 0"):
                session.append({"role": "user", "content": "x" * 33_600_000})
            with pytest.raises(TooLargeError, match="4,456,448"):
                session.patch_state([{"op": "add", "path": "/x", "value": "x" * 5_000_000}])
        server.stop()


@pytest.mark.every_engine
def test_an_append_refers_to_what_was_uploaded_for_its_session(harness: Harness) -> None:
    api, body = Api(harness.app), encode_json({"messages": [{"role": "user", "content": "hi"}]})
    owner, blobs, digest = Owner.of("111122223333", "agent-backend"), harness.app.engine.blobs, sha256(body).hexdigest()
    for name in ("s", "other"):
        assert api("POST", "/v1/sessions", body={"session_id": name})[0] == 201
    path = "/v1/sessions/s/messages"
    status, place = api("POST", path, body={"upload": digest, "size_bytes": len(body)})
    assert (status, place["sha256"], place["max_bytes"]) == (200, digest, 41_943_040)
    assert (place["url"] is not None) == api.has_addresses
    assert place["url"] is None or f"upload-{digest}" in unquote(place["url"])
    missing = api("POST", path, body={"upload": digest})
    assert (missing[0], missing[1]["code"]) == (404, "upload_missing")
    blobs.put(f"{answers_prefix(owner, 's')}upload-{digest}.json", body)
    for _ in range(2):
        status, answer = api("POST", path, body={"upload": digest}, headers={"idempotency-key": "k"})
        assert (status, answer.get("first")) == (201, 2), answer
    assert api("POST", "/v1/sessions/other/messages", body={"upload": digest})[0] == 404
    blobs.put(f"{answers_prefix(owner, 's')}upload-{digest}.json", body + b" ")
    assert api("POST", path, body={"upload": digest})[0] == 400
    nobody = api("POST", "/v1/sessions/nobody/messages", body={"upload": digest, "size_bytes": len(body)})
    assert (nobody[0], nobody[1]["code"]) == (404, "not_found")
    assert api("POST", path, body={"upload": digest, "size_bytes": 50_000_000})[0] == 413
    assert api("POST", path, body={"upload": digest, "size_bytes": 0})[0] == 422
    assert api("POST", path, body={"upload": "../x"})[0] == 422
    assert api("POST", path, body={"upload": digest, "messages": []})[0] == 422
    log = harness.log("111122223333", "agent-backend")
    log.sessions.of("s").erase()
    log.run_jobs()
    assert blobs.names(answers_prefix(owner, "s")) == []
